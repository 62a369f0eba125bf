"""The report of one dataset as assets. Thin: read the store, write the files, name what is left out."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import polars as pl

from agml_assets.lineage import Artifact
from agml_assets.quality.artifacts import SCORE
from agml_assets.quality.summary import MEASURED, judge_dataset
from agml_assets.recording import asset_key, asset_spec, dataset_of, named_failures, table
from agml_assets.report.artifacts import ARTIFACTS, CARD, CONFIG_USED, CROISSANT, ISSUES, RESULT
from agml_assets.report.files import drop_pixels, left_out, write_report
from agml_assets.workspace import Workspace

_FILES = {
    CONFIG_USED: ("json", "Every setting, the registry entry, and which artifacts are stale, failed or missing."),
    RESULT: ("json", "The report of the dataset in AgML's published schema, from whatever is current."),
    ISSUES: ("parquet", "One row per image: what is suspicious, in Datalab's names, and whether to keep it."),
    CROISSANT: ("json", "The dataset in Croissant 1.1, with statistics and provenance, for catalogues."),
    CARD: ("html", "One page for people: is the dataset good, what is wrong, what to fix first. Opens from disk."),
}


def build_assets(datasets: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given dataset partitions."""
    upstream = [*MEASURED, SCORE.key]

    @dg.multi_asset(
        name="write_report",
        can_subset=True,
        specs=[
            asset_spec(
                artifact,
                description,
                datasets,
                kind=kind,
                deps=[*upstream, ISSUES.key] if artifact == CROISSANT else upstream,  # it describes that file
                skippable=True,
            )
            for artifact, (kind, description) in _FILES.items()
        ],
    )
    def write_files(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> Iterator[dg.MaterializeResult]:
        """Write what the store knows about the dataset."""
        dataset = dataset_of(context, workspace)
        with named_failures(dataset):
            verdicts = judge_dataset(dataset)
            missing = left_out(verdicts)
            wanted = tuple(a for a in ARTIFACTS if asset_key(a) in context.selected_asset_keys)
            for artifact, value, sidecar in write_report(dataset, verdicts, wanted):
                yield dg.MaterializeResult(
                    asset_key=asset_key(artifact),
                    metadata={
                        **_headline(artifact, value),
                        "left_out_count": float(len(missing)),
                        **({"left_out": table(("artifact", "why"), missing.items())} if missing else {}),
                        "path": dg.MetadataValue.path(str(dataset.store.path(dataset.key, artifact.file))),
                    },
                    data_version=dg.DataVersion(sidecar.digest),
                )
            if drop_pixels(dataset, verdicts):
                context.log.info("Removed the pixels, as keep_pixels is false and nothing waits for them.")

    return [write_files]


def _headline(artifact: Artifact, value: Any) -> dict[str, Any]:
    if artifact == RESULT:
        overall = value["score"]["overall"]
        scored = {"overall_0_to_10": float(overall)} if overall is not None else {}
        return {**scored, "phases_completed": dg.MetadataValue.json(value["phases_completed"])}
    if artifact == ISSUES:
        flags = [name for name in value.columns if name.startswith("is_")]
        counts = value.select(pl.col(flags).sum()).row(0) if value.height else [0] * len(flags)
        return {
            "images_count": float(value.height),
            "kept_images_count": float(value["keep"].sum()),
            "issues": table(("issue", "images"), zip(flags, counts, strict=True)),
        }
    return {}
