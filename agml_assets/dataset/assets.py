"""Assets that turn a source into image index, pixel hashes, pixels and splits. Thin: load, call, record."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import dagster as dg
import numpy as np
import polars as pl
from jaxtyping import UInt8
from PIL import Image

from agml_assets.dataset.artifacts import IMAGE_INDEX, IMAGE_STATISTICS, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.dataset.checks import readable_check, readable_spec, split_check, split_spec
from agml_assets.dataset.decode import decoder
from agml_assets.dataset.decode_pass import decode_source
from agml_assets.dataset.image_index import usable_images
from agml_assets.dataset.image_statistics import image_statistics
from agml_assets.dataset.source_identity import source_digest
from agml_assets.dataset.sources import open_source
from agml_assets.dataset.splits import make_splits
from agml_assets.recording import asset_key, asset_spec, dataset_asset, picture, step, table
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
            # Taken before reading: files that change meanwhile make the artifacts stale, as they should.
            identity = source_digest(first.dataset.entry)
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
            facts = {"resolved": dict(info.resolved), "fingerprint": info.fingerprint, "decoder": decoder()}
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
                stored = np.load(decoded.pixels, mmap_mode="r", allow_pickle=False)
                metadata = {
                    "images_count": float(len(stored)),
                    "preview": picture(_contact_sheet(stored), "images, evenly spaced over the rows"),
                }
                del stored
                yield pixels.done(decoded.pixels, metadata, info=facts, source_digest=identity)
            shutil.rmtree(work_dir, ignore_errors=True)

    @dataset_asset(
        SPLITS,
        "Train, validation and test by each recipe: hf (published), sklearn, and the dataset's own.",
        datasets,
        kind="parquet",
        checks=[split_spec(datasets)],
    )
    def splits(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Draw every split recipe from the labels alone; a fallback is recorded and warned about."""
        with step(context, workspace, SPLITS) as work:
            usable = usable_images(work.read(IMAGE_INDEX))
            frame, fallbacks = make_splits(
                usable["label"].to_numpy(), usable["native_split"].to_list(), work.dataset.settings
            )
            work.checks.append(split_check(fallbacks))
            counts = {
                f"{recipe}_{part}_count": float((frame[recipe] == part).sum())
                for recipe in ("hf", "sklearn", "native")
                for part in ("train", "val", "test")
            }
            return work.done(
                frame, counts, info={"fallbacks": {recipe: list(said) for recipe, said in fallbacks.items()}}
            )

    @dataset_asset(
        IMAGE_STATISTICS,
        "Brightness, sharpness, entropy and colour of every usable image, measured on its stored pixels.",
        datasets,
        kind="parquet",
    )
    def statistics(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Measure every image by its stored square."""
        with step(context, workspace, IMAGE_STATISTICS) as work:
            frame = image_statistics(work.read(PIXELS), work.progress("images measured"))
            means = frame.select(pl.col("brightness_mean", "entropy").mean()).row(0)
            return work.done(
                frame,
                {
                    "images_count": float(frame.height),
                    "mean_brightness_0_to_1": float(means[0]),
                    "mean_entropy_bits": float(means[1]),
                },
            )

    return [decode_images, splits, statistics]


def _describe_index(index: pl.DataFrame) -> dict[str, Any]:
    reasons = index.filter(pl.col("row").is_null()).select("source_row", "file", "excluded_reason")
    classes = usable_images(index)["class_name"].value_counts(sort=True)
    metadata = {
        "source_images_count": float(index.height),
        "usable_images_count": float(index["row"].count()),
        "classes_count": float(index["class_name"].dtype.categories.len()),  # type: ignore[attr-defined]
        "images_by_class": table(("class", "images"), classes.iter_rows()),
    }
    if reasons.height:
        metadata["left_out"] = table(("source_row", "file", "reason"), reasons.iter_rows())
    return metadata


def _describe_hashes(hashes: pl.DataFrame) -> dict[str, Any]:
    groups = hashes.group_by("blake3_group").len().filter(pl.col("len") > 1)
    return {
        "images_count": float(hashes.height),
        "copied_images_count": float(groups["len"].sum()),
        "groups_of_copies_count": float(groups.height),
        "largest_groups": table(
            ("first row", "images"), groups.sort("len", "blake3_group", descending=[True, False]).iter_rows()
        ),
    }


def _contact_sheet(pixels: UInt8[np.ndarray, "n 256 256 3"]) -> Image.Image:
    across, down = _CONTACT_SHEET
    rows = np.linspace(0, len(pixels) - 1, min(len(pixels), across * down)).round().astype(int)
    sheet = Image.new("RGB", (across * _THUMBNAIL_PX, -(-len(rows) // across) * _THUMBNAIL_PX), "white")
    for place, row in enumerate(rows):
        thumbnail = Image.fromarray(np.asarray(pixels[row])).resize((_THUMBNAIL_PX, _THUMBNAIL_PX))
        sheet.paste(thumbnail, (place % across * _THUMBNAIL_PX, place // across * _THUMBNAIL_PX))
    return sheet
