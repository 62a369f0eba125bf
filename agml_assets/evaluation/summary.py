"""Scores of models with their intervals: on each task, and in the mean over tasks.

Resampling and tests are resamples.py's and comparison.py's; the rules of intervals are those of docs/intervals.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from agml_assets.errors import UserError
from agml_assets.evaluation.comparison import Standing, compare_with_best
from agml_assets.evaluation.resamples import ALPHA, Bootstrap, Predictions, bootstrap
from agml_assets.quality.intervals import (
    LEVEL,
    bootstrap_interval,
    bootstrap_limits,
    macro_f1_interval,
    no_interval,
    proportion_interval,
)

GIVEN = "the trained models"

_UNVARIED = "The score is the same in every resample, which says nothing of other test examples."
_ROUNDING = 1e-12  # scores are in [0, 1]


@dataclass(frozen=True)
class ModelScore:
    """One model's score on one task.

    Attributes:
        model: Its name.
        score: Point score, on all test examples.
        bootstrap_mean: Mean over the resamples; below `score` by as much as macro-F1 is biased.
        interval: In the shape of `quality.intervals`.
    """

    model: str
    score: float
    bootstrap_mean: float
    interval: dict[str, Any]


@dataclass(frozen=True)
class TaskScores:
    """Scores of all models on one task.

    Attributes:
        task: Its key.
        metric: Name of the score.
        n_examples: Test examples.
        group_sizes: Examples of each independent group.
        results: A score for each model.
        standings: How each stands to the best, best first.
        replicates: Score of each model, in the order of `results`, in the same resamples.
    """

    task: str
    metric: str
    n_examples: int
    group_sizes: Int[np.ndarray, " g"]
    results: tuple[ModelScore, ...]
    standings: tuple[Standing, ...]
    replicates: Float[np.ndarray, "b m"]


@dataclass(frozen=True)
class MeanScore:
    """One model's unweighted mean over tasks.

    Attributes:
        model: Its name.
        score: Mean of the point scores of the tasks that it has.
        interval: In the shape of `quality.intervals`; `groups` counts tasks.
        tasks: Tasks that it has.
        missing: Tasks that it lacks. With any, the mean is of other tasks than that of other models and must not
            be ranked among them.
        standing: How it stands to the best mean among models that lack nothing; null if it lacks a task.
    """

    model: str
    score: float
    interval: dict[str, Any]
    tasks: tuple[str, ...]
    missing: tuple[str, ...]
    standing: Standing | None


def score_task(predictions: Predictions, n_resamples: int | None = None, alpha: float = ALPHA) -> TaskScores:
    """Return the scores of all models on a task, with intervals and ties.

    Shares of examples have Wilson's interval, macro-F1 the one of `macro_f1_interval`, other scores percentiles
    shifted by twice their bias (docs/intervals.md). Trained models are held fixed.

    Args:
        predictions: Of all models for the task's test examples.
        n_resamples: As for `bootstrap`; the same for tasks that are put together.
        alpha: Level of the ties.
    """
    drawn = bootstrap(predictions, n_resamples)
    sizes = drawn.group_sizes
    return TaskScores(
        predictions.task,
        predictions.score.name,
        len(predictions.true),
        sizes,
        tuple(
            ModelScore(
                model,
                float(drawn.points[place]),
                float(drawn.replicates[:, place].mean()),
                _interval(drawn, place),
            )
            for place, model in enumerate(drawn.models)
        ),
        compare_with_best(drawn.models, drawn.points, drawn.replicates, count_alike(sizes), alpha),
        drawn.replicates,
    )


def count_alike(sizes: Int[np.ndarray, " g"]) -> float:
    """Return how many groups of equal size weigh as much as groups of these: n^2 / sum(m^2)."""
    return float(sizes.sum() ** 2 / (sizes.astype(np.float64) ** 2).sum())


def average_tasks(tasks: Sequence[TaskScores], alpha: float = ALPHA) -> tuple[MeanScore, ...]:
    """Return every model's mean over tasks: those without gaps first, best first, then the others by name.

    A resample of the mean is the mean of one resample of each task. Resamples of a task are shared by all models,
    so means are compared in pairs; those of different tasks are independent. The interval is that of
    `bootstrap_limits`, with the groups of the task that has fewest.

    Raises:
        UserError: No tasks, one twice, or tasks that were resampled by different numbers.
    """
    keys = [one.task for one in tasks]
    if not keys or len(set(keys)) < len(keys):
        raise UserError(f"A mean needs at least one task, each once: {', '.join(keys) or 'none is given'}.")
    if len({len(one.replicates) for one in tasks}) > 1:
        raise UserError(f"Tasks {', '.join(keys)} were resampled by different numbers: give all the same.")
    places = [{result.model: place for place, result in enumerate(one.results)} for one in tasks]
    means: dict[str, tuple[float, Float[np.ndarray, " b"], list[int]]] = {}
    for model in sorted(set().union(*places)):
        has = [number for number, place in enumerate(places) if model in place]
        scores = [tasks[number].results[places[number][model]].score for number in has]
        drawn = [tasks[number].replicates[:, places[number][model]] for number in has]
        means[model] = float(np.mean(scores)), np.mean(drawn, axis=0), has
    complete = [model for model, (_, _, has) in means.items() if len(has) == len(tasks)]
    standings: dict[str, Standing] = {}
    if complete:
        found = compare_with_best(
            complete,
            np.array([means[model][0] for model in complete]),
            np.column_stack([means[model][1] for model in complete]),
            min(count_alike(one.group_sizes) for one in tasks),
            alpha,
        )
        standings = {standing.model: standing for standing in found}
    return tuple(
        MeanScore(
            model,
            means[model][0],
            _mean_interval(means[model][0], means[model][1], [tasks[number] for number in means[model][2]], model),
            tuple(keys[number] for number in means[model][2]),
            tuple(key for number, key in enumerate(keys) if number not in means[model][2]),
            standings.get(model),
        )
        for model in [*standings, *(model for model in means if model not in standings)]
    )


def average_kinds(
    tasks: Sequence[TaskScores], kinds: Mapping[str, str], alpha: float = ALPHA
) -> dict[str, tuple[MeanScore, ...]]:
    """Return the means over the tasks of each kind, such as each kingdom or each modality, kinds by name.

    Args:
        tasks: Scores of tasks.
        kinds: Kind of each task, by its key.
        alpha: Level of the ties.

    Raises:
        UserError: A task has no kind.
    """
    if missing := [one.task for one in tasks if one.task not in kinds]:
        raise UserError(f"{', '.join(missing)}: no kind is given; add it to the task's entry.")
    return {
        kind: average_tasks([one for one in tasks if kinds[one.task] == kind], alpha)
        for kind in sorted({kinds[one.task] for one in tasks})
    }


def _interval(drawn: Bootstrap, place: int) -> dict[str, Any]:
    predictions, resamples, replicates = drawn.predictions, drawn.resamples, drawn.replicates[:, place]
    true, predicted, score = predictions.true, predictions.predicted[drawn.models[place]], predictions.score
    rows = np.arange(len(true))
    if score.kind == "macro_f1":
        return macro_f1_interval(resamples, rows, true, predicted, GIVEN, score.declared, replicates)
    columns = score.columns(true, predicted)
    if score.kind == "share":
        return proportion_interval(resamples, rows, columns[:, 0], GIVEN)
    if _never_varies(replicates):
        return no_interval(_UNVARIED)
    return bootstrap_interval(resamples, rows, columns, score.figure, GIVEN, replicates)


def _never_varies(replicates: Float[np.ndarray, " b"]) -> bool:
    """Return whether a score is the same in every resample, as where nothing is wrong: not certain for that."""
    return bool(np.ptp(replicates) < _ROUNDING)


def _mean_interval(
    point: float, replicates: Float[np.ndarray, " b"], tasks: Sequence[TaskScores], model: str
) -> dict[str, Any]:
    intervals = {one.task: result.interval for one in tasks for result in one.results if result.model == model}
    for task, interval in intervals.items():
        if interval["kind"] == "none":
            return no_interval(f"Task {task} has none: {interval['reason']}")
    if _never_varies(replicates):
        return no_interval(_UNVARIED)
    fewest = min(tasks, key=lambda one: count_alike(one.group_sizes))
    low, high = bootstrap_limits(replicates, point, fewest.group_sizes)
    warned = [task for task, interval in intervals.items() if "warning" in interval]
    return {
        "kind": "sample",
        "low": round(max(0.0, float(low)), 4),
        "high": round(min(1.0, float(high)), 4),
        "level": LEVEL,
        "groups": len(tasks),
        "method": f"bootstrap over the test examples of each of {len(tasks)} tasks, {len(replicates)} resamples, "
        f"given {GIVEN} and these tasks",
        **({"warning": f"The interval of {', '.join(warned)} can cover less often."} if warned else {}),
    }
