"""Which classes the reference model takes for which, on the test split. No training here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.quality.images import skipped
from agml_assets.quality.intervals import (
    Resamples,
    balanced_accuracy,
    bootstrap_interval,
    class_counts,
    macro_f1,
    macro_f1_interval,
    proportion_interval,
)

MAX_MATRIX_CLASSES = 500
"""More declared classes give no full matrix: its cells grow as the square, to hundreds of MB at some thousand."""

MIN_TEST_IMAGES = 30
"""Fewer test images of a class make every figure that gives each class the same weight unreliable."""

_N_PAIRS = 10  # published
_GIVEN = "the trained model"


def class_confusability(
    *, image_index: pl.DataFrame, test_predictions: Mapping[str, np.ndarray], duplicate_groups: pl.DataFrame
) -> dict[str, Any]:
    """Compare the given classes of the test images with the most probable ones (the first on ties).

    Args:
        image_index: Declares the classes; the given class of each image.
        test_predictions: `rows` int64 (m,), `probabilities` float32 (m, declared classes).
        duplicate_groups: Groups of copies, for the intervals.

    Returns:
        Published, 4 decimals: `accuracy`; `per_class_accuracy` in label order, 0.0 for a class without test
        images; `confusion_matrix`, K x K, rows the given classes, each divided by its sum;
        `top_confused_pairs`, up to 10 of {`true_class`, `predicted_as`, `confusion_rate`}, by the rounded rate,
        ties in the order of the matrix; `n_top_pairs`; `n_test_samples`. Above 500 declared classes the
        matrix is null, everything else the same.

        Added: `confusion_counts`, the matrix's non-zero cells as [given label, predicted label, images];
        `macro_f1`, mean over the classes with test images of 2 tp / (given + predicted), and
        `balanced_accuracy`, mean of their recalls, both in [0, 1] and equal to scikit-learn's `f1_score(labels=the
        given classes, average="macro")` and `balanced_accuracy_score`; `n_test_per_class`; `small_class_warning`,
        null unless a class has fewer than 30 test images; `intervals` of the three figures.

        Skipped where nothing was predicted.

    Raises:
        ValueError: Probabilities have another number of columns than there are declared classes.
    """
    rows, probabilities = test_predictions["rows"], test_predictions["probabilities"]
    names = declared_classes(image_index)
    if not len(rows):
        return skipped("No test image was predicted: it needs a model of at least two classes and a test split.")
    if probabilities.shape != (len(rows), len(names)):
        expected = (len(rows), len(names))
        raise ValueError(f"probabilities must be {expected}, images by classes, not {probabilities.shape}")
    true = usable_images(image_index)["label"].to_numpy()[rows]
    predicted = probabilities.argmax(axis=1)
    correct = true == predicted

    n_true = np.bincount(true, minlength=len(names))
    cells, counts = np.unique(true * len(names) + predicted, return_counts=True)
    given, taken = np.divmod(cells, len(names))
    # Rounded as published, by NumPy: 3 of 160 images give 0.0188, Python's own round gives 0.0187.
    rates = np.round(counts / n_true[given], 4)
    diagonal = dict(zip(given[given == taken].tolist(), rates[given == taken].tolist(), strict=True))
    pairs = _most_confused(given, taken, rates, names)

    per_image = class_counts(true, predicted)
    sums = per_image.sum(axis=0)[None]
    resamples = Resamples.of(duplicate_groups)
    return {
        "accuracy": round(float(correct.mean()), 4),
        "per_class_accuracy": {name: diagonal.get(label, 0.0) for label, name in enumerate(names)},
        "confusion_matrix": (
            _matrix(given, taken, rates, len(names)) if len(names) <= MAX_MATRIX_CLASSES else None
        ),
        "top_confused_pairs": pairs,
        "n_top_pairs": len(pairs),
        "n_test_samples": len(rows),
        "confusion_counts": np.column_stack([given, taken, counts]).tolist(),
        "macro_f1": round(float(macro_f1(sums)[0]), 4),
        "balanced_accuracy": round(float(balanced_accuracy(sums)[0]), 4),
        "n_test_per_class": dict(zip(names, n_true.tolist(), strict=True)),
        "small_class_warning": warn_of_small_classes(n_true, names),
        "intervals": {
            "accuracy": proportion_interval(resamples, rows, correct, _GIVEN),
            "macro_f1": macro_f1_interval(resamples, rows, true, predicted, _GIVEN),
            "balanced_accuracy": bootstrap_interval(resamples, rows, per_image, balanced_accuracy, _GIVEN),
        },
    }


def warn_of_small_classes(n_test: Int[np.ndarray, " k"], names: list[str]) -> str | None:
    """Return in words which classes have too few test images for figures that weigh all classes alike, or null."""
    small = np.flatnonzero(n_test < MIN_TEST_IMAGES)
    if not len(small):
        return None
    least = small[n_test[small].argmin()]
    return (
        f"{len(small)} of {len(names)} classes have fewer than {MIN_TEST_IMAGES} test images (the fewest: "
        f"{names[least]}, {n_test[least]}). Macro-F1, balanced accuracy and their intervals are unreliable."
    )


def _most_confused(
    given: Int[np.ndarray, " c"], taken: Int[np.ndarray, " c"], rates: Float[np.ndarray, " c"], names: list[str]
) -> list[dict[str, Any]]:
    confused = np.flatnonzero((given != taken) & (rates > 0))
    order = confused[np.argsort(-rates[confused], kind="stable")][:_N_PAIRS]
    return [
        {
            "true_class": names[given[cell]],
            "predicted_as": names[taken[cell]],
            "confusion_rate": float(rates[cell]),
        }
        for cell in order
    ]


def _matrix(
    given: Int[np.ndarray, " c"], taken: Int[np.ndarray, " c"], rates: Float[np.ndarray, " c"], n_classes: int
) -> list[list[float]]:
    matrix = np.zeros((n_classes, n_classes))
    matrix[given, taken] = rates
    return matrix.tolist()
