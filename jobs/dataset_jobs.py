"""The jobs of one dataset: everything, or one phase with score and report.

After a failure the workspace resource writes score and report from what is current, whatever the job.
"""

from typing import Any

import dagster as dg

from agml_assets.dataset.artifacts import ARTIFACTS as DATASET_ARTIFACTS
from agml_assets.embeddings.artifacts import ARTIFACTS as EMBEDDINGS_ARTIFACTS
from agml_assets.quality.artifacts import METRIC_ARTIFACTS, SCORE
from agml_assets.quality.metrics import METRICS
from agml_assets.recording import asset_key
from agml_assets.report.artifacts import ARTIFACTS as REPORT_ARTIFACTS
from agml_assets.training.artifacts import ARTIFACTS as TRAINING_ARTIFACTS

_REPORT = (SCORE, *REPORT_ARTIFACTS)


def _metrics(phase: int) -> tuple[dg.AssetKey, ...]:
    return tuple(asset_key(METRIC_ARTIFACTS[m.name]) for m in METRICS if m.phase == phase)


def build_jobs() -> list[Any]:
    """Return the jobs that people launch for one dataset."""
    structure = [asset_key(a) for a in DATASET_ARTIFACTS]
    vectors = [asset_key(a) for a in EMBEDDINGS_ARTIFACTS]
    trained = [asset_key(a) for a in TRAINING_ARTIFACTS]
    report = [asset_key(a) for a in _REPORT]
    return [
        dg.define_asset_job(
            "benchmark",
            selection=dg.AssetSelection.assets(
                *structure, *vectors, *trained, *_metrics(1), *_metrics(2), *_metrics(3), *report
            ),
            description="Everything about one dataset, from its source to score and report.",
        ),
        dg.define_asset_job(
            "structural_quality",
            selection=dg.AssetSelection.assets(*structure, *_metrics(1), *report),
            description="Phase 1: classes, copies, resolution, metadata. No model, no GPU. Needs nothing stored.",
        ),
        dg.define_asset_job(
            "embedding_quality",
            selection=dg.AssetSelection.assets(*vectors, *_metrics(2), *report),
            description=(
                "Phase 2: embeddings, near-duplicates, separability, diversity, image health. Needs what "
                "structural_quality stores: run that first."
            ),
        ),
        dg.define_asset_job(
            "training_quality",
            selection=dg.AssetSelection.assets(*trained, *_metrics(3), *report),
            description=(
                "Phase 3: leak-safe splits, reference training, label noise, confusions. Needs what "
                "structural_quality and embedding_quality store: run those first."
            ),
        ),
    ]
