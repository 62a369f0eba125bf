"""One matrix of counts per task resamples its test examples: the scores of all models in the same resamples.

Since models share the resamples, differences between them are paired. What is concluded from them is elsewhere.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from agml_assets.errors import UserError
from agml_assets.evaluation.scores import Score, check_shapes
from agml_assets.quality.intervals import RESAMPLES, Resamples

ALPHA = 0.05
_ROOM = 2  # times as many resamples as one p-value at the strictest level of Holm's correction needs


@dataclass(frozen=True)
class Predictions:
    """What models predict for the test examples of one task.

    Attributes:
        task: Its key. It seeds the resamples, so those of different tasks are independent.
        score: Of the task.
        true: Truth of each example; FishNet's have nine columns.
        predicted: Predictions by model, each shaped as the truth.
        groups: Group of each example, any ids; examples of one group (copies, frames of one video) are drawn
            together. Null where every example stands for itself.
    """

    task: str
    score: Score
    true: Int[np.ndarray, "n *t"]
    predicted: Mapping[str, Int[np.ndarray, "n *t"]]
    groups: Int[np.ndarray, " n"] | None = None

    def __post_init__(self) -> None:
        if not self.predicted:
            raise UserError(f"Task {self.task}: no model has predictions.")
        for model, predicted in self.predicted.items():
            check_shapes(self.true, predicted, f"Task {self.task}: model {model}")
        if self.groups is not None and self.groups.shape != self.true.shape[:1]:
            raise UserError(
                f"Task {self.task}: {len(self.groups)} group ids, {len(self.true)} test examples; give one each."
            )


@dataclass(frozen=True)
class Bootstrap:
    """Scores of all models of a task, as they are and in every resample.

    Attributes:
        predictions: What was scored.
        models: Names, in the order of the columns.
        points: Score of each model.
        replicates: Score of each model in each resample.
        resamples: How the test examples were drawn.
    """

    predictions: Predictions
    models: tuple[str, ...]
    points: Float[np.ndarray, " m"]
    replicates: Float[np.ndarray, "b m"]
    resamples: Resamples

    @cached_property
    def group_sizes(self) -> Int[np.ndarray, " g"]:
        """Test examples of each independent group."""
        return self.resamples.group_sizes(np.arange(len(self.resamples.joined)))


def count_resamples(n_models: int, alpha: float = ALPHA) -> int:
    """Return how many resamples a comparison of so many models needs.

    A p-value is at least 1 / (B + 1), and Holm's correction asks the smallest of m to be at most alpha / m: with
    fewer than m / alpha resamples no model could ever be told from the best. Twice as many, and at least
    `quality.intervals.RESAMPLES`.
    """
    return max(RESAMPLES, math.ceil(_ROOM * n_models / alpha))


def bootstrap(predictions: Predictions, n_resamples: int | None = None) -> Bootstrap:
    """Return the scores of all models of a task in the same resamples of its test examples.

    The counts of a block of resamples (b, g) times the columns that a score sums, group by group (g, c), give its
    sums in every resample of the block; only the scores are kept.

    Args:
        predictions: Of the task.
        n_resamples: By default as many as `count_resamples` says; give the same number for all tasks whose scores
            are put together.
    """
    models = tuple(predictions.predicted)
    true, score = predictions.true, predictions.score
    rows = np.arange(len(true))
    seed = int.from_bytes(hashlib.sha256(predictions.task.encode()).digest()[:8])
    groups = rows if predictions.groups is None else predictions.groups
    resamples = Resamples(groups, n_resamples or count_resamples(len(models)), seed)
    sums = [resamples.by_group(rows, score.columns(true, predictions.predicted[model])).T for model in models]
    points = np.concatenate([score.figure(np.asarray(one.sum(axis=1), np.float64)[None]) for one in sums])
    replicates = np.empty((resamples.n, len(models)))
    start = 0
    for counts in resamples.counts():
        block = slice(start, start + len(counts))
        columns = np.ascontiguousarray(counts.T)
        for place, one in enumerate(sums):
            replicates[block, place] = score.figure(np.asarray(one @ columns).T)
        start += len(counts)
    return Bootstrap(predictions, models, points, replicates, resamples)
