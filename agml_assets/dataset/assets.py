"""Assets that turn a source into image index, pixel hashes, pixels and splits. Thin: load, call, record."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import dagster as dg
import numpy as np
import polars as pl
from PIL import Image

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.dataset.checks import readable_check, readable_spec, split_check, split_spec
from agml_assets.dataset.decode_pass import decode_source, unreadable_share
from agml_assets.dataset.source_identity import source_digest
from agml_assets.dataset.sources import open_source
from agml_assets.dataset.splits import make_splits
from agml_assets.recording import Step, asset_key, asset_spec, picture, step, table
from agml_assets.workspace import Workspace

_CONTACT_SHEET = (10, 4)  # thumbnails across and down
_THUMBNAIL_PX = 64


def build_assets(datasets: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given dataset partitions."""

    @dg.multi_asset(
        name="decode_images",
        can_subset=True,
        specs=[
            asset_spec(
                IMAGE_INDEX,
                "One row per source image: label, size, mode, format, metadata, and why it is left out if it is.",
                datasets,
                kind="parquet",
                skippable=True,
            ),
            asset_spec(
                PIXEL_HASHES,
                "Two content hashes of every usable image, and the groups of images that share one.",
                datasets,
                kind="parquet",
                skippable=True,
            ),
            asset_spec(
                PIXELS,
                "Every usable image as 256 x 256 RGB: shortest side 256, centre crop; uint8, memory-mapped.",
                datasets,
                kind="numpy",
                skippable=True,
            ),
        ],
        check_specs=[readable_spec(datasets)],
    )
    def decode_images(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> Iterator[dg.MaterializeResult]:
        """Decode every image of the source once, on all cores; a killed pass goes on at its next block."""
        wanted = [a for a in (IMAGE_INDEX, PIXEL_HASHES, PIXELS) if asset_key(a) in context.selected_asset_keys]
        with ExitStack() as stack:
            steps = {a.name: stack.enter_context(step(context, workspace, a)) for a in wanted}
            first = next(iter(steps.values()))
            source = open_source(first.dataset.entry)
            work_dir = first.dataset.work_folder("decode")
            decoded = decode_source(
                source,
                work_dir=work_dir,
                settings=first.dataset.settings,
                outputs=frozenset(steps),
                progress=first.progress("images decoded"),
            )
            info = source.info()
            identity = source_digest(first.dataset.entry, info.fingerprint)
            facts = {"resolved": dict(info.resolved), "fingerprint": info.fingerprint}
            if index := steps.get("image_index"):
                index.checks.append(readable_check(decoded.image_index, index.dataset.settings))
                yield index.done(
                    decoded.image_index,
                    _describe_index(decoded.image_index),
                    info={**facts, "source_rows": info.num_rows, "native_splits": list(info.native_splits)},
                    source_digest=identity,
                )
            if (hashes := steps.get("pixel_hashes")) and decoded.pixel_hashes is not None:
                yield hashes.done(
                    decoded.pixel_hashes,
                    _describe_hashes(decoded.pixel_hashes),
                    info=facts,
                    source_digest=identity,
                )
            if (pixels := steps.get("pixels")) and decoded.pixels is not None:
                stored = np.load(decoded.pixels, mmap_mode="r")
                metadata = {
                    "images_count": float(len(stored)),
                    "preview": picture(_contact_sheet(stored), "images, evenly spaced over the rows"),
                }
                del stored
                yield pixels.done(decoded.pixels, metadata, info=facts, source_digest=identity)
            shutil.rmtree(work_dir, ignore_errors=True)

    @dg.asset(**_as_asset(asset_spec(
        SPLITS,
        "Train, validation and test by each recipe: hf (published), sklearn, and the dataset's own.",
        datasets,
        kind="parquet",
    )), check_specs=[split_spec(datasets)])
    def splits(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Draw every split recipe from the labels alone; a fallback is recorded and warned about."""
        with step(context, workspace, SPLITS) as work:
            usable = usable_rows(work)
            frame, fallbacks = make_splits(
                usable["label"].to_numpy(), usable["native_split"].to_list(), work.dataset.settings
            )
            work.checks.append(split_check(fallbacks))
            counts = {
                f"{recipe}_{part}_count": float((frame[recipe] == part).sum())
                for recipe in ("hf", "sklearn", "native")
                for part in ("train", "val", "test")
            }
            return work.done(frame, counts, info={"fallbacks": json.loads(json.dumps(fallbacks))})

    return [decode_images, splits]
