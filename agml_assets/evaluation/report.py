"""All evaluations in the store brought together: scores, ties and means, and how well ImageNet predicts.

Everything is computed again from stored predictions, so new statistics cost no encoding. Models stand in one list
however they answer, each kind of result by itself; they are called as `stored.contender` says.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from blake3 import blake3
from upath import UPath

from agml_assets.evaluation.imagenet import predict_from_imagenet
from agml_assets.evaluation.protocol import score_of
from agml_assets.evaluation.published import Model, PublishedResults, Task, make_results, results_text
from agml_assets.evaluation.resamples import Predictions, count_resamples
from agml_assets.evaluation.scoring import labels_of
from agml_assets.evaluation.stored import file_of, find_results, model_and_kind, shown_contender
from agml_assets.evaluation.summary import MeanScore, TaskScores, average_kinds, average_tasks, score_task
from agml_assets.evaluation.ways import ASKED, FINE_TUNE, FROZEN, ZERO_SHOT
from agml_assets.registry.models import ModelEntry, ModelRegistry, load_models
from agml_assets.registry.tasks import TaskEntry, TaskRegistry, load_tasks
from agml_assets.store import PLATFORM, ArtifactStore, dump_json
from agml_assets.workspace import Workspace

IMAGENET = "imagenet1k"


@dataclass(frozen=True)
class Evaluations:
    """What is stored and comparable.

    Attributes:
        predictions: Of all models on each subject, by key.
        left_out: `subject: model` and why it is not compared.
    """

    predictions: Mapping[str, Predictions]
    left_out: Mapping[str, str]


_NOT_COMPARED = {
    FROZEN: {ASKED},
    FINE_TUNE: {ASKED, "probe"},
    ZERO_SHOT: {ASKED, "probe", "n_train", "seed"},  # nothing is fitted
}
"""Parts of the protocol in which results of each kind may differ from others: prompts are the model's own."""


@dataclass(frozen=True)
class _Stored:
    """Stored predictions, and how they were made."""

    kind: str
    frame: pl.DataFrame
    protocol: Mapping[str, Any]

    def made(self, kind: str) -> str:
        """Return what has to be the same where results of `kind` are compared with it, as a text."""
        alike = {name: value for name, value in self.protocol.items() if name not in _NOT_COMPARED[kind]}
        return f"{self._asked} {sorted(alike.items())}"

    @cached_property
    def _asked(self) -> str:
        asked = self.frame.select("example", "true").sort("example")
        return blake3(asked.write_json().encode()).hexdigest()


def collect(store: ArtifactStore, subjects: Sequence[str], models: Sequence[str]) -> Evaluations:
    """Read the stored predictions of registered models on registered subjects.

    Models of one subject are compared on the same examples under the same protocol. Where those of frozen models
    differ, the most common protocol counts; zero-shot and fine-tuned models have to agree with it in all that is
    not the way of answering. What does not is named.
    """
    found: dict[str, Predictions] = {}
    left_out: dict[str, str] = {}
    for subject in subjects:
        stored = _read_stored(store, subject, models)
        if not stored:
            continue
        kind = next(
            kind for kind in (FROZEN, FINE_TUNE, ZERO_SHOT) if any(one.kind == kind for one in stored.values())
        )
        protocols = Counter(one.made(kind) for one in stored.values() if one.kind == kind)
        [(common, _)] = protocols.most_common(1)
        most = next(one for one in stored.values() if one.kind == kind and one.made(kind) == common)
        alike = [name for name, one in stored.items() if one.made(one.kind) == most.made(one.kind)]
        for name in stored.keys() - set(alike):
            left_out[f"{subject}: {name}"] = (
                "made on other test examples or labels, or by another protocol, than most"
            )
        frame = most.frame.sort("example")
        found[subject] = Predictions(
            subject,
            score_of(most.protocol["metric"], most.protocol["poisonous"]),
            _labels(frame, "true"),
            {name: _labels(stored[name].frame, "predicted") for name in alike},
            frame["group"].to_numpy(),
        )
    return Evaluations(found, left_out)


def _read_stored(store: ArtifactStore, subject: str, models: Sequence[str]) -> dict[str, _Stored]:
    """Return all stored predictions on a subject, by contender."""
    folder = store.path(subject, "evaluation")
    there = {path.name for path in folder.iterdir()} if folder.exists() else set()
    stored = {}
    for model in models:
        places = find_results(store, subject, model, "predictions") if model in there else {}
        for name, place in places.items():
            file = file_of(place, "predictions")
            sidecar = store.sidecar(subject, file)
            if sidecar is not None:
                kind = model_and_kind(name)[1]
                stored[name] = _Stored(kind, store.read(subject, file), dict(sidecar.settings))
    return stored


def frozen_only(evaluations: Evaluations) -> Evaluations:
    """Return the evaluations of frozen models alone, as BioBench has them."""
    frozen = {
        subject: {name: of for name, of in one.predicted.items() if _is_frozen(name)}
        for subject, one in evaluations.predictions.items()
    }
    kept = {
        subject: replace(evaluations.predictions[subject], predicted=predicted)
        for subject, predicted in frozen.items()
        if predicted
    }
    return Evaluations(kept, evaluations.left_out)


def score_all(evaluations: Evaluations) -> dict[str, TaskScores]:
    """Return the scores of all models on every subject, from as many resamples everywhere."""
    most = max((len(one.predicted) for one in evaluations.predictions.values()), default=1)
    n = count_resamples(most)
    return {subject: score_task(one, n) for subject, one in evaluations.predictions.items()}


def build_report(
    scored: Mapping[str, TaskScores], left_out: Mapping[str, str], tasks: TaskRegistry, models: ModelRegistry
) -> dict[str, Any]:
    """Return the report as JSON values: every subject, the means over tasks and over datasets, ImageNet's part.

    ImageNet accuracy predicts scores of frozen models alone: it is measured on frozen features, too.
    """
    entries = {entry.key: entry for entry in tasks.entries if entry.key in scored}
    counting = [scored[key] for key, entry in entries.items() if entry.counts_in_mean]
    datasets = [one for key, one in scored.items() if key not in entries]
    report: dict[str, Any] = {
        "subjects": {key: _subject(one, entries.get(key)) for key, one in scored.items()},
        "left_out": dict(left_out),
        "mean_over_tasks": _means(average_tasks(counting)) if counting else [],
        "mean_over_datasets": _means(average_tasks(datasets)) if datasets else [],
    }
    for kind in ("kingdom", "modality"):
        kinds = {key: getattr(entry, kind) or "other" for key, entry in entries.items()}
        report[f"by_{kind}"] = (
            {name: _means(means) for name, means in average_kinds(counting, kinds).items()} if counting else {}
        )
    report["imagenet"] = _imagenet(scored, counting)
    known = {entry.key: entry for entry in models.entries}
    contenders = sorted({result.model for one in scored.values() for result in one.results})
    report["models"] = {name: _model(name, known[model_and_kind(name)[0]]) for name in contenders}
    return report


@dataclass(frozen=True)
class Written:
    """A report in the store: its file, its content, and the digest of that."""

    path: UPath
    report: dict[str, Any]
    digest: str


def write_report(workspace: Workspace, generated: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Written:
    """Write `report.json` of all evaluations in the store, and `results.json` in BioBench's published shape.

    Like the published file, the latter is of frozen features alone; ties are among them.
    """
    models, tasks = load_models(), load_tasks()
    evaluations = collect(workspace.store, [*tasks.keys(), *workspace.registry.keys()], models.keys())
    scored = score_all(evaluations)
    report = build_report(scored, evaluations.left_out, tasks, models)
    published = results_text(_published(score_all(frozen_only(evaluations)), tasks, models, generated()))
    path = workspace.store.path(PLATFORM, "evaluation/report.json")
    text = dump_json(report)
    workspace.store.write_text(path, text)
    workspace.store.write_text(workspace.store.path(PLATFORM, "evaluation/results.json"), published)
    return Written(path, report, blake3(text.encode()).hexdigest())


def _published(
    scored: Mapping[str, TaskScores], tasks: TaskRegistry, models: ModelRegistry, generated: datetime
) -> PublishedResults:
    """Return the scores on tasks as the published file lists them; datasets have no place there."""
    entries = tasks.entries
    of_tasks = [scored[entry.key] for entry in entries if entry.key in scored]
    used = {result.model for one in of_tasks for result in one.results}
    return make_results(
        [_published_model(entry) for entry in models.entries if entry.key in used],
        [Task(name=entry.key, display=entry.display_name) for entry in entries if entry.counts_in_mean],
        [Task(name=entry.key, display=entry.display_name) for entry in entries if not entry.counts_in_mean],
        of_tasks,
        generated=int(generated.timestamp() * 1000),
        git_commit="0" * 40,  # what made the predictions is in their sidecars
        seed=0,
    )


def _published_model(entry: ModelEntry) -> Model:
    released = entry.release_date
    return Model(
        ckpt=entry.key,
        display=entry.display_name,
        family=entry.family,
        resolution=entry.resolution or 0,
        params=entry.parameters or 0,
        release_ms=int(datetime(released.year, released.month, released.day, tzinfo=UTC).timestamp() * 1000)
        if released
        else None,
    )


def _model(name: str, entry: ModelEntry) -> dict[str, Any]:
    kind = model_and_kind(name)[1]
    return {
        "display_name": shown_contender(entry.display_name, kind),
        "family": entry.family,
        "checkpoint": entry.checkpoint,
        "parameters": entry.parameters,
        "resolution": entry.resolution,
        "release_date": str(entry.release_date or "") or None,
        "model": entry.key,
        "kind": kind,
    }


def _is_frozen(name: str) -> bool:
    return model_and_kind(name)[1] == FROZEN


def _labels(frame: pl.DataFrame, column: str) -> np.ndarray:
    return labels_of(frame.sort("example"), column)


def _subject(one: TaskScores, entry: TaskEntry | None) -> dict[str, Any]:
    intervals = {result.model: result.interval for result in one.results}
    return {
        "display_name": entry.display_name if entry else one.task,
        "kind": "dataset" if entry is None else "task" if entry.counts_in_mean else "prior work",
        "kingdom": entry.kingdom if entry else None,
        "modality": entry.modality if entry else None,
        "metric": one.metric,
        "test_examples": one.n_examples,
        "independent_groups": len(one.group_sizes),
        "standings": [{**asdict(standing), "interval": intervals[standing.model]} for standing in one.standings],
    }


def _means(means: Sequence[MeanScore]) -> list[dict[str, Any]]:
    return [asdict(mean) for mean in means]


def _imagenet(scored: Mapping[str, TaskScores], counting: Sequence[TaskScores]) -> dict[str, Any] | None:
    if IMAGENET not in scored or not counting:
        return None
    points = {
        one.task: {result.model: result.score for result in one.results if _is_frozen(result.model)}
        for one in counting
    }
    accuracy = {result.model: result.score for result in scored[IMAGENET].results if _is_frozen(result.model)}
    models = sorted(accuracy)
    columns = {task: np.array([of.get(model, np.nan) for model in models]) for task, of in points.items()}
    complete = np.isfinite(np.column_stack(list(columns.values()))).all(axis=1).sum()
    if complete < 3:
        return None
    return asdict(predict_from_imagenet(np.array([accuracy[model] for model in models]), columns))
