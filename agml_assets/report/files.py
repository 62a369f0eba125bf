"""The files of a dataset's report: what makes each, and the writing of them from whatever is current."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXELS
from agml_assets.embeddings.artifacts import UMAP_PROJECTION
from agml_assets.lineage import Artifact, Verdict
from agml_assets.quality.artifacts import SCORE
from agml_assets.quality.dataset_cartography import map_images
from agml_assets.quality.summary import asked_for, failures_of_run, judge_dataset, score_dataset
from agml_assets.report.artifacts import ARTIFACTS
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
    report = _Report(dataset, verdicts)
    for artifact in wanted:
        making = Making(dataset, artifact)
        value = getattr(report, artifact.name)
        yield artifact, value, making.write(value)


def report_after_failure(dataset: DatasetWorkspace, run_id: str) -> bool:
    """Write score and report again from what is current, if a step of the run failed; say whether.

    For the end of a run, as Dagster skips these assets when a step before them has failed. Nothing is written
    where no image was read yet.
    """
    if not failures_of_run(dataset, run_id):
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


@dataclass(frozen=True)
class _Report:
    """The values of the files, by the names of their artifacts; what the card shares with others is made once."""

    dataset: DatasetWorkspace
    verdicts: Verdicts

    @cached_property
    def config_used(self) -> dict[str, Any]:
        return build_config_used(self.dataset, self.verdicts)

    @cached_property
    def result(self) -> dict[str, Any]:
        return build_result(self.dataset, self.verdicts)

    @cached_property
    def issues(self) -> pl.DataFrame:
        return build_issues(self.dataset, self.verdicts)

    @property
    def croissant(self) -> dict[str, Any]:
        return build_croissant(self.dataset, self.verdicts)

    @property
    def card(self) -> str:
        dynamics = self._current(DYNAMICS)
        return build_card(
            CardData(
                result=self.result,
                config_used=self.config_used,
                issues=self.issues,
                points=self._current(UMAP_PROJECTION),
                cartography=map_images(dynamics) if dynamics is not None and dynamics["true_eval"].size else None,
                pixels=self._current(PIXELS),
            )
        )

    def _current(self, artifact: Artifact) -> Any:
        """Read an artifact; None where it is not current or was removed to save space."""
        if self.verdicts[artifact.key].state != "current" or self.dataset.sidecar(artifact).removed:
            return None
        return self.dataset.read(artifact)
