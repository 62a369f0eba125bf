"""The report of one dataset as assets. Thin: read the store, write two files, name what is left out."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from agml_assets.dataset.artifacts import IMAGE_INDEX
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, UMAP_3D, UMAP_PROJECTION
from agml_assets.quality.artifacts import METRIC_ARTIFACTS, SCORE
from agml_assets.quality.summary import judge_dataset
from agml_assets.recording import asset_key, asset_spec, dataset_of, named_failures, table
from agml_assets.report.artifacts import CONFIG_USED, RESULT
from agml_assets.report.result import build_config_used, build_result, drop_pixels, left_out
from agml_assets.workspace import Making, Workspace


def build_assets(datasets: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given dataset partitions."""
    read = (IMAGE_INDEX, DUPLICATE_GROUPS, *METRIC_ARTIFACTS.values())
    waited_for = (SCORE, UMAP_PROJECTION, UMAP_3D)
    upstream = [artifact.key for artifact in (*read, *waited_for)]

    @dg.multi_asset(
        name="write_report",
        can_subset=True,
        specs=[
            asset_spec(
                RESULT,
                "The report of the dataset in AgML's published schema, from whatever is current.",
                datasets,
                kind="json",
                deps=upstream,
                skippable=True,
            ),
            asset_spec(
                CONFIG_USED,
                "Every setting, the registry entry, and which artifacts are stale, failed or missing.",
                datasets,
                kind="json",
                deps=upstream,
                skippable=True,
            ),
        ],
    )
    def write_report(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> Iterator[dg.MaterializeResult]:
        """Write what the store knows about the dataset."""
        dataset = dataset_of(context, workspace)
        builders = {CONFIG_USED: build_config_used, RESULT: build_result}
        with named_failures(dataset):
            verdicts = judge_dataset(dataset)
            missing = left_out(verdicts)
            for artifact, build in builders.items():
                if asset_key(artifact) not in context.selected_asset_keys:
                    continue
                value = build(dataset, verdicts)
                sidecar = Making(dataset, artifact).write(value)
                path = dataset.store.path(dataset.key, artifact.file)
                metadata: dict[str, Any] = {}
                if artifact is RESULT:
                    overall = value["score"]["overall"]
                    metadata |= {"overall_0_to_10": float(overall)} if overall is not None else {}
                    metadata["phases_completed"] = dg.MetadataValue.json(value["phases_completed"])
                metadata["left_out_count"] = float(len(missing))
                if missing:
                    metadata["left_out"] = table(("artifact", "why"), missing.items())
                metadata["path"] = dg.MetadataValue.path(str(path))
                yield dg.MaterializeResult(
                    asset_key=asset_key(artifact),
                    metadata=metadata,
                    data_version=dg.DataVersion(sidecar.digest),
                )
            if drop_pixels(dataset, verdicts):
                context.log.info("Removed the pixels, as keep_pixels is false and nothing waits for them.")

    return [write_report]
