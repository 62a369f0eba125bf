"""NeuCo-Bench's scores of a fold and of a task, Q among them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from agml_assets.compression.labels import Kind

NOISE_FLOOR = 0.02
"""Added to the deviation in Q, so that stability alone is worth no more than Q = 100."""
NEAR_ZERO = 1e-4
"""Sums of squares up to this count as 0 in R2: torchmetrics' `r2_score`, which published scores are made with."""

METRICS: dict[Kind, str] = {"regression": "R2", "classification": "F1"}


@dataclass(frozen=True)
class TaskScore:
    """A task's scores.

    Attributes:
        folds: Score of each fold; NaN where it has none.
        mean: Mean of the folds that have one.
        std: Their standard deviation, divided by their number.
        q: 2 mean / (0.02 + std).
    """

    folds: Float64[np.ndarray, " f"]
    mean: float
    std: float
    q: float


def score_folds(folds: Float[np.ndarray, " f"]) -> TaskScore:
    """Return what a task's folds come to; all NaN where none has a score."""
    kept = np.asarray(folds, dtype=np.float64)
    scored = kept[~np.isnan(kept)]
    if not len(scored):
        return TaskScore(kept, np.nan, np.nan, np.nan)
    mean, std = float(scored.mean()), float(scored.std())
    return TaskScore(kept, mean, std, q_statistic(mean, std))


def q_statistic(mean: float, std: float) -> float:
    """Return Q = 2 mean / (0.02 + std): at most 100 for scores up to 1, negative for a negative mean."""
    return 2 * mean / (NOISE_FLOOR + std)


def score_outputs(
    kind: Kind, outputs: Float[np.ndarray, "*f t"], targets: Float[np.ndarray, "*f t"]
) -> Float64[np.ndarray, " *f"]:
    """Return the metric of each row of outputs: R2 of a regression; F1 of a classification's logits, 1 above 0."""
    return r2(outputs, targets) if kind == "regression" else f1(outputs > 0, targets > 0)


def r2(predicted: Float[np.ndarray, "*f t"], targets: Float[np.ndarray, "*f t"]) -> Float64[np.ndarray, " *f"]:
    """Return 1 - (sum of squared errors) / (sum of squares about the mean) along the last axis.

    As torchmetrics (`NEAR_ZERO`): 1 where the errors are near 0, else 0 where the targets are nearly constant. NaN
    where a prediction is no number.
    """
    targets = np.asarray(targets, np.float64)
    errors = ((targets - predicted) ** 2).sum(axis=-1)
    spread = ((targets - targets.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(spread > NEAR_ZERO, 1 - errors / spread, 0.0)
    scores = np.where(errors <= NEAR_ZERO, 1.0, scores)
    return np.where(np.isnan(errors), np.nan, scores)


def f1(predicted: np.ndarray, truth: np.ndarray) -> Float64[np.ndarray, " *f"]:
    """Return 2 TP / (2 TP + FP + FN) along the last axis; 0 where nothing is positive, predicted or in truth.

    Args:
        predicted: bool (..., t).
        truth: bool (..., t).
    """
    both = (predicted & truth).sum(axis=-1)
    either = predicted.sum(axis=-1) + truth.sum(axis=-1)
    return 2 * both / np.maximum(either, 1)
