"""The jobs of one dataset: everything, structure only, embeddings only; and what happens after a failure."""

from typing import Any

import dagster as dg

from agml_assets.dataset.artifacts import ARTIFACTS as DATASET_ARTIFACTS
from agml_assets.embeddings.artifacts import ARTIFACTS as EMBEDDINGS_ARTIFACTS
from agml_assets.quality.artifacts import METRIC_ARTIFACTS, SCORE
from agml_assets.quality.metrics import METRICS
from agml_assets.quality.summary import MEASURED
from agml_assets.recording import asset_key
from agml_assets.report.artifacts import CONFIG_USED, RESULT
from agml_assets.report.result import rebuild_report
from agml_assets.workspace import DatasetWorkspace, Workspace
from resources.workspace import PARTITION_TAG, find_dataset

_REPORT = (SCORE, RESULT, CONFIG_USED)


def _metrics(phase: int) -> tuple[dg.AssetKey, ...]:
    return tuple(asset_key(METRIC_ARTIFACTS[m.name]) for m in METRICS if m.phase == phase)


def _dataset_of(context: dg.HookContext) -> DatasetWorkspace | None:
    run = context.instance.get_run_by_id(context.run_id)
    key = run.tags.get(PARTITION_TAG) if run else None
    workspace: Workspace = context.resources.workspace
    return find_dataset(workspace, key) if key else None


@dg.failure_hook(name="report_what_is_there", required_resource_keys={"workspace"})
def report_after_failure(context: dg.HookContext) -> None:
    """Write score and report from what is current: a failed step skips them, their readers still need them."""
    dataset = _dataset_of(context)
    if dataset is not None and rebuild_report(dataset):
        context.log.info(f"Wrote the report of {dataset.key!r} from what is current.")


@dg.success_hook(name="report_what_came_after_a_failure", required_resource_keys={"workspace"})
def report_after_later_success(context: dg.HookContext) -> None:
    """Bring the report up to date when steps succeed after another step of the same run has failed."""
    dataset = _dataset_of(context)
    if dataset is None:
        return
    failures = (dataset.store.failure(dataset.key, artifact.file) for artifact in MEASURED.values())
    if any(failure and failure["run_id"] == context.run_id for failure in failures):
        rebuild_report(dataset)


def build_jobs() -> list[Any]:
    """Return the jobs that people launch for one dataset."""
    structure = [asset_key(a) for a in DATASET_ARTIFACTS]
    vectors = [asset_key(a) for a in EMBEDDINGS_ARTIFACTS]
    report = [asset_key(a) for a in _REPORT]
    hooks = {report_after_failure, report_after_later_success}
    return [
        dg.define_asset_job(
            "benchmark",
            selection=dg.AssetSelection.assets(
                *structure, *vectors, *_metrics(1), *_metrics(2), *_metrics(3), *report
            ),
            description="Everything about one dataset, from its source to score and report.",
            hooks=hooks,
        ),
        dg.define_asset_job(
            "structural_quality",
            selection=dg.AssetSelection.assets(*structure, *_metrics(1), *report),
            description="Phase 1: classes, copies, resolution, metadata. No model, no GPU. Needs nothing stored.",
            hooks=hooks,
        ),
        dg.define_asset_job(
            "embedding_quality",
            selection=dg.AssetSelection.assets(*vectors, *_metrics(2), *report),
            description=(
                "Phase 2: embeddings, near-duplicates, separability, diversity. Needs image_index, "
                "pixel_hashes, pixels and splits in the store: run structural_quality first."
            ),
            hooks=hooks,
        ),
    ]
