"""The files of a dataset's report: what makes each, and the writing of them from whatever is current."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXELS
from agml_assets.embeddings.artifacts import UMAP_PROJECTION
from agml_assets.lineage import Artifact, Verdict
from agml_assets.quality.artifacts import SCORE
from agml_assets.quality.dataset_cartography import map_images
from agml_assets.quality.summary import MEASURED, asked_for, judge_dataset, score_dataset
from agml_assets.report.artifacts import ARTIFACTS, CARD, CONFIG_USED, CROISSANT, ISSUES, RESULT
from agml_assets.report.card import CardData, build_card
from agml_assets.report.croissant import build_croissant
from agml_assets.report.issues import build_issues
from agml_assets.report.result import build_config_used, build_result
from agml_assets.store import Sidecar
from agml_assets.training.artifacts import DYNAMICS
from agml_assets.workspace import DatasetWorkspace, Making

Verdicts = Mapping[str, Verdict]


def write_report(
    dataset: DatasetWorkspace, verdicts: Verdicts, wanted: tuple[Artifact, ...] = ARTIFACTS
) -> Iterator[tuple[Artifact, Any, Sidecar]]:
    """Write the wanted files one by one; yield each with its value and sidecar."""
    for artifact in wanted:
        making = Making(dataset, artifact)
        value = _BUILDERS[artifact](dataset, verdicts)
        yield artifact, value, making.write(value)


def report_after_failure(dataset: DatasetWorkspace, run_id: str) -> bool:
    """Write score and report again from what is current, if a step of the run failed; say whether.

    For the end of a run, as Dagster skips these assets when a step before them has failed. Nothing is written
    where no image was read yet.
    """
    failures = (dataset.store.failure(dataset.key, artifact.file) for artifact in MEASURED.values())
    if not any(failure and failure["run_id"] == run_id for failure in failures):
        return False
    if dataset.store.sidecar(dataset.key, IMAGE_INDEX.file) is None:
        return False
    verdicts = judge_dataset(dataset)
    making = Making(dataset, SCORE)
    scored, used = score_dataset(dataset, verdicts)
    making.inputs.update(used)
    making.write(scored)
    for _ in write_report(dataset, verdicts):
        pass
    return True


def drop_pixels(dataset: DatasetWorkspace, verdicts: Verdicts) -> bool:
    """Remove the pixels if the settings do not keep them and nothing waits for them; say whether they went."""
    if dataset.settings.keep_pixels:
        return False
    consumers = [artifact.key for artifact in asked_for(dataset) if PIXELS.key in artifact.inputs]
    if any(verdicts[key].state != "current" for key in consumers):
        return False
    dataset.store.remove(dataset.key, PIXELS.file)
    return True


def left_out(verdicts: Verdicts) -> dict[str, str]:
    """Return the artifacts that are not current, with the reason of each."""
    return {key: verdict.reason for key, verdict in verdicts.items() if verdict.state != "current"}


def _build_card(dataset: DatasetWorkspace, verdicts: Verdicts) -> str:
    def current(artifact: Artifact) -> Any:
        return dataset.read(artifact) if verdicts[artifact.key].state == "current" else None

    dynamics = current(DYNAMICS)
    pixels = dataset.sidecar(PIXELS) if verdicts[PIXELS.key].state == "current" else None
    return build_card(
        CardData(
            result=build_result(dataset, verdicts),
            config_used=build_config_used(dataset, verdicts),
            issues=build_issues(dataset, verdicts),
            points=current(UMAP_PROJECTION),
            cartography=map_images(dynamics) if dynamics is not None and dynamics["true_eval"].size else None,
            pixels=current(PIXELS) if pixels is not None and not pixels.removed else None,
        )
    )


_BUILDERS: Mapping[Artifact, Callable[[DatasetWorkspace, Verdicts], Any]] = {
    CONFIG_USED: build_config_used,
    RESULT: build_result,
    ISSUES: build_issues,
    CROISSANT: build_croissant,
    CARD: _build_card,
}
