"""Assets for vectors, neighbours, duplicate groups and UMAP. Thin: load, call, record."""

import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

import dagster as dg
import numpy as np

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, SPLITS
from agml_assets.dataset.image_index import usable_images
from agml_assets.embeddings.artifacts import (
    DUPLICATE_GROUPS,
    EMBEDDINGS,
    LABELS,
    NEIGHBORS,
    UMAP_3D,
    UMAP_PROJECTION,
)
from agml_assets.embeddings.checks import finite_check, finite_spec
from agml_assets.embeddings.duplicate_groups import duplicate_groups
from agml_assets.embeddings.neighbors import find_neighbors, from_arrays, to_arrays
from agml_assets.embeddings.scatter import draw_scatter
from agml_assets.embeddings.steps import EMBED, embed_images
from agml_assets.embeddings.umap_projection import project_umap, umap_records
from agml_assets.heavy import Made, Work
from agml_assets.lineage import Artifact
from agml_assets.recording import dataset_asset, picture, step, table
from agml_assets.workspace import Workspace
from resources.compute import Compute
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
        compute: dg.ResourceParam[Compute],
    ) -> dg.MaterializeResult:
        """Encode the images where the run's heavy steps are computed."""
        with step(context, workspace, EMBEDDINGS) as work:

            def encode(works: Mapping[Artifact, Work]) -> Iterator[Made]:
                return embed_images(works, embedders.get(work.dataset.settings))

            def record(made: Made) -> dg.MaterializeResult:
                stored = made.sidecar is not None
                vectors = (
                    work.dataset.read(EMBEDDINGS)
                    if stored
                    else np.load(made.value, mmap_mode="r", allow_pickle=False)
                )
                work.checks.append(finite_check(vectors))
                del vectors
                return work.record(made)

            [result] = [record(made) for made in compute.make(context, EMBED, {EMBEDDINGS: work}, encode)]
            return result

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
