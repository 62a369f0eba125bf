"""Which metrics of a dataset are current, and the score made from them."""

from collections.abc import Mapping
from typing import Any

from agml_assets.dataset.artifacts import ARTIFACTS as DATASET_ARTIFACTS
from agml_assets.dataset.artifacts import IMAGE_INDEX
from agml_assets.dataset.source_identity import source_digest
from agml_assets.embeddings.artifacts import ARTIFACTS as EMBEDDINGS_ARTIFACTS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS
from agml_assets.lineage import Artifact, Verdict, judge
from agml_assets.quality.artifacts import ARTIFACTS, METRIC_ARTIFACTS
from agml_assets.quality.calibrated_score import calibrated_score
from agml_assets.quality.image_values import image_values
from agml_assets.quality.intervals import Resamples
from agml_assets.quality.invariants import check_group_invariants, check_invariants
from agml_assets.quality.metrics import METRICS
from agml_assets.quality.score import score
from agml_assets.quality.score_intervals import score_intervals
from agml_assets.training.artifacts import ARTIFACTS as TRAINING_ARTIFACTS
from agml_assets.training.artifacts import (
    DYNAMICS,
    OUT_OF_FOLD,
    OUT_OF_FOLD_GROUPED,
    TEST_PREDICTIONS,
    TEST_PREDICTIONS_GROUPED,
)
from agml_assets.workspace import DatasetWorkspace

MEASURED = {a.key: a for a in (*DATASET_ARTIFACTS, *EMBEDDINGS_ARTIFACTS, *TRAINING_ARTIFACTS, *ARTIFACTS)}
"""Every artifact of a dataset that is made from its inputs alone, each after its inputs."""


def judge_dataset(dataset: DatasetWorkspace) -> dict[str, Verdict]:
    """Judge every artifact of a dataset against its source, settings and code today."""
    return judge(dataset.store, dataset.key, MEASURED, dataset.settings, lambda: source_digest(dataset.entry))


def failures_of_run(dataset: DatasetWorkspace, run_id: str) -> list[str]:
    """Return what was noted beside the artifacts that a run failed to make."""
    notes = (dataset.store.failure(dataset.key, artifact.file) for artifact in MEASURED.values())
    return [note["error"] for note in notes if note and note["run_id"] == run_id]


def asked_for(dataset: DatasetWorkspace) -> list[Artifact]:
    """Return the artifacts of the dataset's phases, and all that these are made from, each after its inputs."""
    wanted = {key for key, artifact in MEASURED.items() if _phase_of(artifact) in dataset.entry.phases}
    for artifact in reversed(MEASURED.values()):
        if artifact.key in wanted:
            wanted.update(artifact.inputs)
    return [artifact for key, artifact in MEASURED.items() if key in wanted]


def _phase_of(artifact: Artifact) -> int:
    """Return the phase of an artifact: that of the metric, or of the room."""
    if artifact in EMBEDDINGS_ARTIFACTS:
        return 2
    if artifact in TRAINING_ARTIFACTS:
        return 3
    return next((m.phase for m in METRICS if METRIC_ARTIFACTS[m.name] == artifact), 1)


def current_metrics(
    dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Read the current metrics of the phases that the registry asks for.

    Returns:
        The value of each metric by name, in published order; a metric of a phase that was not asked for is
        skipped, with that reason. And the digest of each file that was read, by artifact key.
    """
    metrics: dict[str, dict[str, Any]] = {}
    used: dict[str, str] = {}
    for metric in METRICS:
        artifact = METRIC_ARTIFACTS[metric.name]
        if metric.phase not in dataset.entry.phases:
            reason = f"Phase {metric.phase} was not asked for."
            metrics[metric.name] = {"skipped": True, "reason": reason}
        elif verdicts[artifact.key].state == "current":
            metrics[metric.name] = dataset.read(artifact)
            used[artifact.key] = dataset.sidecar(artifact).digest
    return metrics, used


def completed_phases(dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]) -> list[int]:
    """Return the phases all of whose metrics were asked for and are current."""
    phases = sorted({metric.phase for metric in METRICS})
    return [
        phase
        for phase in phases
        if phase in dataset.entry.phases
        and all(verdicts[METRIC_ARTIFACTS[m.name].key].state == "current" for m in METRICS if m.phase == phase)
    ]


def score_dataset(
    dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Score a dataset from its current metrics.

    Returns:
        The published score; under `calibrated` that of formula `calibrated-1`; `intervals` of both; the
        `breaches` of invariants. And the digests of the artifacts that were used.
    """
    metrics, used = current_metrics(dataset, verdicts)
    phases = completed_phases(dataset, verdicts)
    result = {**score(metrics, phases), "calibrated": calibrated_score(metrics, honest=True)}
    breaches = check_invariants(metrics)
    intervals: dict[str, Any] = {}
    if verdicts[DUPLICATE_GROUPS.key].state == "current":
        groups = dataset.read(DUPLICATE_GROUPS)
        breaches += check_group_invariants(groups)
        values = image_values(metrics=metrics, **_behind_the_score(dataset, verdicts, used))
        intervals = score_intervals(metrics, phases, values, Resamples.of(groups))
    return {**result, "intervals": intervals, "breaches": breaches}, used


BEHIND_THE_SCORE = (
    IMAGE_INDEX,
    EMBEDDINGS,
    DYNAMICS,
    TEST_PREDICTIONS,
    TEST_PREDICTIONS_GROUPED,
    OUT_OF_FOLD,
    OUT_OF_FOLD_GROUPED,
)


def _behind_the_score(
    dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict], used: dict[str, str]
) -> dict[str, Any]:
    """Read what the score's per-image values come from; None for what is not current or not asked for."""
    asked = {artifact.key for artifact in asked_for(dataset)}
    found: dict[str, Any] = {}
    for artifact in BEHIND_THE_SCORE:
        current = verdicts[artifact.key].state == "current" and artifact.key in asked
        found[artifact.name] = dataset.read(artifact) if current else None
        if current:
            used[artifact.key] = dataset.sidecar(artifact).digest
    return found
