"""What out-of-fold predictions score, and how much each example contributes to it.

Scores are of all predictions of a repeat together, not means over folds. Intervals and tests are in
uncertainty.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class Scored:
    """A score of all examples of a repeat, and its linear part.

    Attributes:
        value: The score.
        contributions: float64 (n,), of mean 0: the influence of each example on the score (Hampel 1974,
            doi:10.1080/01621459.1974.10482962). The score of the same examples in other shares w_i / n is
            about `value` + mean of w_i times contribution.
    """

    value: float
    contributions: Float[np.ndarray, " n"]


def r2(true: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"]) -> Scored:
    """Return R2 = 1 - SSE / SST, SST about the mean of `true`; at most 1, of that mean 0, without lower bound.

    With e the errors and c the deviations of `true` from its mean, an example contributes
    ((1 - R2) c^2 - e^2) / mean(c^2).

    Raises:
        ValueError: All of `true` are equal.
    """
    deviations, errors = (true - true.mean()) ** 2, (true - predicted) ** 2
    spread = deviations.mean()
    if not spread > 0:
        raise ValueError("R2 of targets that are all equal")
    value = 1 - errors.mean() / spread
    return Scored(float(value), ((1 - value) * deviations - errors) / spread)


def mean_r2(true: Float[np.ndarray, "n t"], predicted: Float[np.ndarray, "n t"]) -> Scored:
    """Return the mean of R2 over targets, each of equal weight."""
    each = [r2(true[:, place], predicted[:, place]) for place in range(true.shape[1])]
    return Scored(
        float(np.mean([one.value for one in each])), np.mean([one.contributions for one in each], axis=0)
    )


def accuracy(true: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"]) -> Scored:
    """Return the share of examples whose class is predicted, in [0, 1]."""
    right = (true == predicted).astype(np.float64)
    return Scored(float(right.mean()), right - right.mean())


def f1(true: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], of: int) -> Scored:
    """Return F1 of a class, 2 tp / (given + predicted), in [0, 1]; where it is neither given nor predicted, 0.

    An example contributes (2 [given and predicted] - F1 ([given] + [predicted])) / mean([given] + [predicted]).
    """
    given, told = (true == of).astype(np.float64), (predicted == of).astype(np.float64)
    shares = (given + told).mean()
    if shares == 0:
        return Scored(0.0, np.zeros(len(true)))
    value = 2 * (given * told).mean() / shares
    return Scored(float(value), (2 * given * told - value * (given + told)) / shares)


def macro_f1(true: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], n_classes: int) -> Scored:
    """Return the mean of F1 over classes 0..n_classes-1, in [0, 1]."""
    each = [f1(true, predicted, one) for one in range(n_classes)]
    return Scored(
        float(np.mean([one.value for one in each])), np.mean([one.contributions for one in each], axis=0)
    )


def guessing_f1(true: Int[np.ndarray, " n"], n_classes: int) -> float:
    """Return macro-F1, in a large sample, of guessing each class equally often whatever the example.

    It is the mean over classes of 2 p / (K p + 1), p the share of the class: a figure of the labels alone.
    """
    shares = np.bincount(true, minlength=n_classes) / len(true)
    return float((2 * shares / (n_classes * shares + 1)).mean())


@dataclass(frozen=True)
class Repeated:
    """A score of repeated cross-validation.

    Attributes:
        value: Mean over repeats of the score of all predictions of a repeat.
        by_repeat: float64 (r,).
        by_fold: float64 (r, k): what a repeat's score would be if all its folds were like this one, to first
            order. Its mean over the folds of a repeat is the repeat's score.
        contributions: float64 (n,), mean over repeats.
    """

    value: float
    by_repeat: Float[np.ndarray, " r"]
    by_fold: Float[np.ndarray, "r k"]
    contributions: Float[np.ndarray, " n"]


def over_repeats(folds: Int[np.ndarray, "r n"], score: Callable[[int], Scored]) -> Repeated:
    """Score each repeat, by its number, and put them together.

    A fold's score to first order is that of its repeat plus (k / n) times the sum of its examples' contributions.
    R2 or macro-F1 of a fold alone would be biased: downwards where a fold has few examples (R2 of 20 examples
    divides by a sum of squares with 19 degrees of freedom), or lacks a class.
    """
    n_folds = int(folds.max()) + 1
    scored = [score(repeat) for repeat in range(len(folds))]
    by_repeat = np.array([one.value for one in scored])
    sums = np.stack([np.bincount(row, one.contributions, n_folds) for row, one in zip(folds, scored, strict=True)])
    return Repeated(
        float(by_repeat.mean()),
        by_repeat,
        by_repeat[:, None] + sums * n_folds / folds.shape[1],
        np.mean([one.contributions for one in scored], axis=0),
    )
