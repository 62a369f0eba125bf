"""Assets for vectors, neighbours, duplicate groups and UMAP. Thin: load, call, record."""

import time
from collections.abc import Sequence
from importlib.metadata import version

import dagster as dg
import numpy as np

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.dataset.decode import POLICY_VERSION
from agml_assets.dataset.image_index import usable_images
from agml_assets.dataset.sources import open_source
from agml_assets.embeddings.artifacts import (
    DUPLICATE_GROUPS,
    EMBEDDINGS,
    LABELS,
    NEIGHBORS,
    UMAP_3D,
    UMAP_PROJECTION,
)
from agml_assets.embeddings.cache import EmbeddingCache, embed_in_shards
from agml_assets.embeddings.checks import finite_check, finite_spec
from agml_assets.embeddings.duplicate_groups import duplicate_groups
from agml_assets.embeddings.images import encode_from_pixels, encode_from_source
from agml_assets.embeddings.neighbors import find_neighbors, from_arrays, to_arrays
from agml_assets.embeddings.scatter import draw_scatter
from agml_assets.embeddings.umap_projection import project_umap, umap_records
from agml_assets.recording import dataset_asset, picture, step, table
from agml_assets.workspace import Workspace
from resources.embedder import Embedders

_UMAP_SEED = 42  # the published one


def build_assets(datasets: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given dataset partitions."""

    @dataset_asset(
        EMBEDDINGS,
        "A unit vector of every usable image, from a frozen model; float32 (N, D). The heavy step.",
        datasets,
        kind="pytorch",
        checks=[finite_spec(datasets)],
    )
    def embeddings(
        context: dg.AssetExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        embedders: dg.ResourceParam[Embedders],
    ) -> dg.MaterializeResult:
        """Encode the images shard by shard through the cache: a killed run goes on at its next shard."""
        with step(context, workspace, EMBEDDINGS) as work:
            dataset, settings = work.dataset, work.dataset.settings
            index, hashes, pixels = work.read(IMAGE_INDEX), work.read(PIXEL_HASHES), work.read(PIXELS)
            embedder = embedders.get(settings)
            if embedder.serves_from_pixels:
                encode = encode_from_pixels(embedder, pixels)
            else:
                source = open_source(dataset.entry)
                encode = encode_from_source(embedder, source, index, settings.max_image_pixels)
            out = dataset.work_folder("embeddings") / "embeddings.npy"
            use = embed_in_shards(
                encode,
                hashes["blake3"].to_list(),
                EmbeddingCache(dataset.store, {**embedder.identity(), "decode_policy": POLICY_VERSION}),
                out,
                settings.embed_shard_size,
                work.progress("images embedded"),
            )
            vectors = np.load(out, mmap_mode="r")
            work.checks.append(finite_check(vectors))
            metadata = {
                "images_count": float(vectors.shape[0]),
                "dimensions_count": float(vectors.shape[1]),
                "cache": use.verdict,
                "cached_images_count": float(use.hits),
                "encoded_images_count": float(use.misses),
                "model": settings.embed_model,
            }
            del vectors
            return work.done(
                out, metadata, info={"embedder": embedder.identity(), "device": embedder.device or "cache"}
            )

    @dataset_asset(LABELS, "Class of every usable image; int64 (N,).", datasets, kind="numpy")
    def labels(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Take the labels out of the image index, aligned to the embeddings."""
        with step(context, workspace, LABELS) as work:
            values = usable_images(work.read(IMAGE_INDEX))["label"].to_numpy().astype(np.int64)
            return work.done(values, {"images_count": float(len(values))})

    @dataset_asset(
        NEIGHBORS,
        "The 50 nearest images of every image by cosine, and all pairs at or above the near-duplicate "
        "threshold. Shared by near-duplicates, UMAP and k-NN.",
        datasets,
        kind="numpy",
    )
    def neighbors(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Compare every image with every other once, block by block."""
        with step(context, workspace, NEIGHBORS) as work:
            settings = work.dataset.settings
            found = find_neighbors(
                work.read(EMBEDDINGS),
                threshold=settings.near_dup_threshold,
                max_pairs=settings.max_pairs,
                ivf_threshold=settings.faiss_ivf_threshold,
                progress=work.progress("images compared"),
            )
            pairs = zip(found.pair_rows[:30].tolist(), found.pair_cosines[:30].tolist(), strict=True)
            rows = [(a, b, cosine) for (a, b), cosine in pairs]
            return work.done(
                to_arrays(found),
                {
                    "near_pairs_count": float(found.n_pairs),
                    "search": found.index_type,
                    "first_pairs": table(("row", "row", "cosine"), rows),
                },
            )

    @dataset_asset(
        DUPLICATE_GROUPS,
        "Group of every image among exact copies, near-duplicates, and both joined.",
        datasets,
        kind="parquet",
    )
    def groups(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Join exact and near-duplicate groups."""
        with step(context, workspace, DUPLICATE_GROUPS) as work:
            near = from_arrays(work.read(NEIGHBORS)).near_group
            frame = duplicate_groups(work.read(PIXEL_HASHES)["blake3_group"].to_numpy(), near)
            sizes = frame["joined"].value_counts(sort=True)
            return work.done(
                frame,
                {
                    "groups_count": float(sizes.height),
                    "largest_group_images": float(sizes["count"][0]),
                    "largest": table(("first row", "images"), sizes.iter_rows(), limit=20),
                },
            )

    def umap_asset(artifact, n_components):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        @dataset_asset(
            artifact,
            f"The images in {n_components} dimensions by UMAP over the exact neighbours, with label and split.",
            datasets,
            kind="umap",
        )
        def projection(
            context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
        ) -> dg.MaterializeResult:
            """Lay out the graph of exact neighbours; seeded."""
            with step(context, workspace, artifact) as work:
                usable = usable_images(work.read(IMAGE_INDEX))
                split = work.read(SPLITS)[work.dataset.settings.split_recipe].fill_null("unknown")
                found = from_arrays(work.read(NEIGHBORS))
                what = f"{usable.height} images in {n_components} dimensions"
                work.say(f"laying out {what}; the first time, UMAP compiles its code for about half a minute")
                started = time.monotonic()
                points = project_umap(work.read(EMBEDDINGS), found, n_components=n_components, seed=_UMAP_SEED)
                work.say(f"laid out {what} in {time.monotonic() - started:.1f} s")
                records = umap_records(
                    points, usable["class_name"].to_list(), split.to_list(), usable["source_row"].to_list()
                )
                view = draw_scatter(points[:, :2], usable["label"].to_numpy())
                return work.done(
                    records,
                    {"points_count": float(len(records)), "preview": picture(view, "images by class")},
                    info={"umap-learn": version("umap-learn")},
                )

        return projection

    return [
        embeddings,
        labels,
        neighbors,
        groups,
        umap_asset(UMAP_PROJECTION, 2),
        umap_asset(UMAP_3D, 3),
    ]
