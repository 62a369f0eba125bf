"""Scores of one model on one subject, from its stored predictions alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Int

from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.resamples import Predictions
from agml_assets.evaluation.scores import ACCURACY, ALL_TRAITS, BALANCED_ACCURACY, MACRO_F1, Score
from agml_assets.evaluation.summary import score_task

NO_CLASS = -2
"""No label: neither a class nor the unknown one of open sets, so it is wrong whatever the truth."""


def score_predictions(subject: str, model: str, predictions: pl.DataFrame, protocol: Protocol) -> dict[str, Any]:
    """Return the protocol's score with its interval, and the usual others beside it.

    Args:
        subject: Key of the dataset or task; it seeds the resamples.
        model: Key of the model.
        predictions: As `Fitted.predictions`.
        protocol: Says which score counts.

    Returns:
        `metric`, `score`, `interval`, and `others` by name, each with `score` and `interval`; scores in [0, 1].
    """
    true, predicted = (labels_of(predictions, name) for name in ("true", "predicted"))
    groups = predictions["group"].to_numpy()
    main = protocol.score
    several = true.ndim == 2
    beside = (ALL_TRAITS,) if several else tuple(s for s in (ACCURACY, MACRO_F1, BALANCED_ACCURACY) if s != main)

    def measured(score: Score) -> dict[str, Any]:
        given = Predictions(subject, score, true, {model: predicted}, groups)
        [found] = score_task(given).results
        return {"score": found.score, "interval": found.interval}

    return {
        "metric": protocol.metric,
        **measured(main),
        "others": {score.name: measured(score) for score in beside},
    }


def labels_of(predictions: pl.DataFrame, column: str) -> Int[np.ndarray, "n *t"]:
    """Return labels of predictions as int64; a null, an answer that is no class, becomes one that nobody has."""
    labels = predictions[column]
    return np.array((labels if labels.dtype.is_nested() else labels.fill_null(NO_CLASS)).to_list(), np.int64)


def macro_averages(predictions: pl.DataFrame) -> Mapping[str, float]:
    """Return macro precision, recall and F1 over the truth's classes, in [0, 1]; 0 where nothing is predicted.

    As scikit-learn's `precision_recall_fscore_support(average="macro", zero_division=0)` with these labels.
    """
    from sklearn.metrics import precision_recall_fscore_support

    true, predicted = labels_of(predictions, "true"), labels_of(predictions, "predicted")
    precision, recall, f1, _ = precision_recall_fscore_support(
        true, predicted, labels=np.unique(true), average="macro", zero_division=0
    )
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall)}
