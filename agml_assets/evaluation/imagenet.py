"""How well ImageNet accuracy predicts scores on other tasks: agreement of two lists of scores over models.

The scores come as plain arrays; reading them is published.py's, drawing them the site's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from agml_assets.errors import UserError
from agml_assets.quality.intervals import LEVEL, no_interval

HIGH_ACCURACY = 0.75
"""ImageNet accuracy above which the models of today lie; ranks among them are what a user asks for."""

MIN_MODELS = 10
"""Fewer models give no figure worth showing."""

STATISTICS = ("r2", "spearman", "kendall", "misordered")
_ROUNDING = 1e-24  # of a sum of squares; scores are in [0, 1], ranks whole or halves
_RESAMPLES = 5000
_SEED = 0


@dataclass(frozen=True)
class Agreement:
    """How far two lists of scores of the same models agree.

    Where all models of a list have the same score, none of the four is defined, and they are null.

    Attributes:
        n_models: Models in both lists.
        r2: Squared Pearson correlation, in [0, 1]: share of the variance that a line explains.
        spearman: Pearson correlation of the ranks, ties at their mean, in [-1, 1].
        kendall: tau-b (Kendall 1945), in [-1, 1].
        misordered: Share of the pairs of models that the lists put in opposite orders, among those that neither
            ties, in [0, 1]; without ties (1 - kendall) / 2.
        intervals: By the names of the four, percentiles of a bootstrap over models, level 95 %, in the shape of
            `quality.intervals`. They say how much the figure hangs on which models happen to be listed; models are
            no random sample, and relatives (one architecture in three sizes) make them too narrow.
    """

    n_models: int
    r2: float | None
    spearman: float | None
    kendall: float | None
    misordered: float | None
    intervals: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Prediction:
    """How well ImageNet accuracy predicts, over all models that have every score.

    Attributes:
        aggregate: Of the mean over tasks.
        aggregate_high: The same among models above `HIGH_ACCURACY`; null with fewer than two.
        mean_of_tasks: Mean over tasks of the agreement with each task, models resampled once for all tasks.
        mean_of_tasks_high: The same among models above `HIGH_ACCURACY`.
        by_task: Agreement with each task.
        by_task_high: The same among models above `HIGH_ACCURACY`.
    """

    aggregate: Agreement
    aggregate_high: Agreement | None
    mean_of_tasks: Agreement
    mean_of_tasks_high: Agreement | None
    by_task: dict[str, Agreement]
    by_task_high: dict[str, Agreement]


def predict_from_imagenet(
    imagenet: Float[np.ndarray, " m"], scores: Mapping[str, Float[np.ndarray, " m"]]
) -> Prediction:
    """Return how well ImageNet accuracy predicts the scores on other tasks.

    Args:
        imagenet: Accuracy of every model, in [0, 1]; NaN where it was not measured.
        scores: Score of every model on each task; NaN where it was not measured. Models without all scores are
            left out of everything.

    Raises:
        UserError: No task, or fewer than three models have all scores.
    """
    if not scores:
        raise UserError("No task is named whose scores ImageNet accuracy should predict.")
    table = np.column_stack([imagenet, *scores.values()])
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) < 3:
        raise UserError(f"{len(table)} models have all of {len(table.T)} scores; at least 3 are needed.")
    x, y = table[:, 0], table[:, 1:]
    high = x >= HIGH_ACCURACY
    aggregate, mean_of_tasks, by_task = _agreements(x, y)
    aggregate_high, mean_of_tasks_high, by_task_high = (
        _agreements(x[high], y[high]) if high.sum() > 2 else (None, None, [])
    )
    return Prediction(
        aggregate,
        aggregate_high,
        mean_of_tasks,
        mean_of_tasks_high,
        dict(zip(scores, by_task, strict=True)),
        dict(zip(scores, by_task_high, strict=False)),
    )


def measure_agreement_with_mean(scores: Float[np.ndarray, "m t"], top: int | None = None) -> Agreement:
    """Return how far tasks agree with their own mean: the mean over tasks of each one's agreement with it.

    Args:
        scores: Of models on tasks, none missing.
        top: Only so many models, those with the best means.
    """
    order = np.argsort(-scores.mean(axis=1), kind="stable")[:top]
    return measure_agreement(scores[order].mean(axis=1), scores[order])


def measure_agreement(x: Float[np.ndarray, " m"], y: Float[np.ndarray, "m *t"]) -> Agreement:
    """Return the agreement of two lists of scores, or its mean over the columns of `y`.

    Raises:
        UserError: Fewer than three models.
    """
    if len(x) < 3:
        raise UserError(f"The agreement of scores needs at least 3 models, not {len(x)}.")
    return _summarise(_replicate(x, y.reshape(len(x), -1)).mean(axis=0), len(x))


def score_columns(
    scores: Mapping[tuple[str, str], float], models: Sequence[str], tasks: Sequence[str]
) -> dict[str, Float[np.ndarray, " m"]]:
    """Return the scores by (task, model) as a column for each task, in the order of `models`; NaN where absent."""
    return {task: np.array([scores.get((task, model), np.nan) for model in models]) for task in tasks}


def _agreements(
    x: Float[np.ndarray, " m"], y: Float[np.ndarray, "m t"]
) -> tuple[Agreement, Agreement, list[Agreement]]:
    """Return the agreement with the mean of the tasks, the mean of those with each task, and these."""
    values = _replicate(x, np.column_stack([y, y.mean(axis=1)]))
    return (
        _summarise(values[-1], len(x)),
        _summarise(values[:-1].mean(axis=0), len(x)),
        [_summarise(one, len(x)) for one in values[:-1]],
    )


def _replicate(x: Float[np.ndarray, " m"], y: Float[np.ndarray, "m t"]) -> Float[np.ndarray, "t 4 b"]:
    """Return the four statistics for each column of `y`: of the models themselves, then of every resample."""
    n = len(x)
    drawn = np.random.default_rng(_SEED).integers(n, size=(_RESAMPLES, n))
    counts = np.stack([np.ones(n), *(np.bincount(one, minlength=n) for one in drawn)])
    ranks, untied = _ranks(x, counts), _pairs(counts, x[:, None] != x)
    values = []
    for column in y.T:
        order = np.sign(x[:, None] - x) * np.sign(column[:, None] - column)
        concordant, discordant = _pairs(counts, order > 0), _pairs(counts, order < 0)
        untied_y = _pairs(counts, column[:, None] != column)
        # A resample of one model again and again has no correlation.
        with np.errstate(invalid="ignore", divide="ignore"):
            values.append(
                [
                    _correlate(x, column, counts) ** 2,
                    _correlate(ranks, _ranks(column, counts), counts),
                    (concordant - discordant) / np.sqrt(untied * untied_y),
                    discordant / (concordant + discordant),
                ]
            )
    return np.array(values)


def _summarise(values: Float[np.ndarray, "4 b"], n_models: int) -> Agreement:
    """Return the agreement: values of the models themselves come first, then those of the resamples."""
    point: dict[str, Any] = {
        name: value if np.isfinite(value) else None
        for name, value in zip(STATISTICS, values[:, 0].tolist(), strict=True)
    }
    drawn = zip(STATISTICS, values[:, 1:], strict=True)
    return Agreement(n_models, **point, intervals={name: _interval(one, n_models) for name, one in drawn})


def _pairs(counts: Float[np.ndarray, "b m"], values: Float[np.ndarray, "m m"]) -> Float[np.ndarray, " b"]:
    """Return the sum of a symmetric value with an empty diagonal over all pairs."""
    return ((counts @ values) * counts).sum(axis=1) / 2


def _ranks(values: Float[np.ndarray, " m"], counts: Float[np.ndarray, "b m"]) -> Float[np.ndarray, "b m"]:
    """Return the rank of each value in each resample, equal ones at the mean of theirs."""
    below = counts @ (values[:, None] < values)
    equal = counts @ (values[:, None] == values)
    return below + (equal + 1) / 2


def _correlate(
    x: Float[np.ndarray, "*b m"], y: Float[np.ndarray, "*b m"], counts: Float[np.ndarray, "b m"]
) -> Float[np.ndarray, " b"]:
    """Return Pearson's correlation of values that are there `counts` times; NaN where they do not differ."""
    total = counts.sum(axis=1, keepdims=True)
    x = x - (counts * x).sum(axis=1, keepdims=True) / total
    y = y - (counts * y).sum(axis=1, keepdims=True) / total
    across, squares_x, squares_y = ((counts * one).sum(axis=1) for one in (x * y, x * x, y * y))
    # What is left of equal values is rounding, and would correlate.
    varies = np.minimum(squares_x, squares_y) > _ROUNDING
    return np.where(varies, across, np.nan) / np.sqrt(squares_x * squares_y)


def _interval(replicates: Float[np.ndarray, " b"], n_models: int) -> dict[str, Any]:
    replicates = replicates[np.isfinite(replicates)]
    if n_models < MIN_MODELS:
        return no_interval(f"{n_models} models; at least {MIN_MODELS} are needed.")
    if not len(replicates):
        return no_interval("The scores do not differ.")
    low, high = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {
        "kind": "sample",
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "level": LEVEL,
        "groups": n_models,
        "method": f"percentiles of a bootstrap over {n_models} models, {_RESAMPLES} resamples",
    }
