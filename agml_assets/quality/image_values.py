"""What each image contributes to the sampled figures of the score, gathered from the artifacts.

Values only; how they become intervals is in `score_intervals.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.quality.clusters import centroid_distances, centroids, cosine_silhouettes, unfit_vectors
from agml_assets.quality.dataset_cartography import map_images
from agml_assets.quality.label_noise import label_issues
from agml_assets.quality.score import Metrics
from agml_assets.training.noise_calibration import judged_rows

VALUES = (
    "silhouette",
    "centroid_distance",
    "hard",
    "published_confidence",
    "true_confidence",
    "correct",
    "correct_grouped",
    "flagged",
    "flagged_grouped",
)
"""Columns of `ImageValues.frame`, apart from `row` and `label`."""


@dataclass(frozen=True)
class ImageValues:
    """Per-image values behind the score.

    Attributes:
        frame: One row per usable image in `row` order: `row`, `label` Int64 and the columns of `VALUES`, Float64,
            null for images that a figure is not about and all null where it was not measured.
            `silhouette`, exact, in [-1, 1]; `centroid_distance`, L2, to the mean of the image's class;
            of training images `hard` (published rule), `published_confidence` (largest probability) and
            `true_confidence` (that of the true label), means over epochs; of test images `correct`, on the
            published split, and `correct_grouped`, on the leak-safe one; `flagged` as a label issue from published
            folds, `flagged_grouped` from leak-safe ones. Shares are 0 or 1.
        means: Mean vector of each declared class, zeros for an empty one; null without embeddings.
        n_classes: Declared classes.
    """

    frame: pl.DataFrame
    means: Float[np.ndarray, "k d"] | None
    n_classes: int


def image_values(
    *,
    metrics: Metrics,
    image_index: pl.DataFrame,
    embeddings: Float[np.ndarray, "n d"] | None = None,
    dynamics: Mapping[str, np.ndarray] | None = None,
    test_predictions: Mapping[str, np.ndarray] | None = None,
    test_predictions_grouped: Mapping[str, np.ndarray] | None = None,
    out_of_fold: Float[np.ndarray, "n k"] | None = None,
    out_of_fold_grouped: Float[np.ndarray, "n k"] | None = None,
) -> ImageValues:
    """Gather the values from whatever artifacts are current; pass none for the others.

    Artifacts without rows or epochs, as a dataset of one class has them, count as not measured; so
    do embeddings that are not finite or are all of one class.

    Args:
        metrics: JSON value of each metric by name; say which classes the leak-safe figures leave out.
        image_index: Images with `row`, `label`, `class_name`.
        embeddings: float32 rows of unit L2 norm.
        dynamics: Arrays of `training/dynamics`.
        test_predictions: `rows` and `probabilities` on the published test split.
        test_predictions_grouped: The same on the leak-safe one.
        out_of_fold: Class probabilities of every image from published folds.
        out_of_fold_grouped: The same from leak-safe folds.
    """
    images = usable_images(image_index)
    labels = images["label"].to_numpy()
    n_classes = len(declared_classes(image_index))
    columns: dict[str, Float[np.ndarray, " n"]] = {}
    means = None

    if embeddings is not None and len(np.unique(labels)) > 1 and unfit_vectors(embeddings) is None:
        means = centroids(embeddings, labels, n_classes)
        columns["silhouette"] = cosine_silhouettes(embeddings, labels, n_classes)
        columns["centroid_distance"] = centroid_distances(embeddings, labels, means)
    if dynamics is not None and dynamics["true_eval"].size:
        cartography = map_images(dynamics)
        rows = cartography["row"].to_numpy()
        columns["hard"] = _at(rows, (cartography["category"] == "hard").to_numpy(), len(labels))
        columns["published_confidence"] = _at(rows, cartography["published_confidence"].to_numpy(), len(labels))
        columns["true_confidence"] = _at(rows, cartography["confidence"].to_numpy(), len(labels))
    if test_predictions is not None and len(test_predictions["rows"]):
        columns["correct"] = _correct(test_predictions, labels, np.ones(len(labels), dtype=bool))
    if test_predictions_grouped is not None and len(test_predictions_grouped["rows"]):
        left_out = [entry["class"] for entry in _left_out(metrics, "leakage")]
        columns["correct_grouped"] = _correct(
            test_predictions_grouped, labels, ~images["class_name"].is_in(left_out).to_numpy()
        )
    if out_of_fold is not None and len(out_of_fold):
        columns["flagged"] = _flags(labels, out_of_fold, np.ones(len(labels), dtype=bool))
    if out_of_fold_grouped is not None and len(out_of_fold_grouped):
        kept = ~images["class_name"].is_in(_left_out(metrics, "label_noise")).to_numpy()
        columns["flagged_grouped"] = _flags(
            labels, out_of_fold_grouped, kept & judged_rows(labels, out_of_fold_grouped)
        )

    nothing = np.full(len(labels), np.nan)
    values = pl.DataFrame({name: columns.get(name, nothing) for name in VALUES}).fill_nan(None)
    return ImageValues(images.select("row", "label").hstack(values), means, n_classes)


def _at(rows: Int[np.ndarray, " m"], values: Float[np.ndarray, " m"], n: int) -> Float[np.ndarray, " n"]:
    """Return the values at their rows, NaN elsewhere."""
    column = np.full(n, np.nan)
    column[rows] = values
    return column


def _left_out(metrics: Metrics, name: str) -> list[Any]:
    """Return what a metric says of the classes that its leak-safe figures leave out."""
    leak_safe = metrics.get(name, {}).get("leak_safe") or {}
    return list(leak_safe.get("classes_left_out", []))


def _correct(
    tested: Mapping[str, np.ndarray], labels: Int[np.ndarray, " n"], kept: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    right = tested["probabilities"].argmax(axis=1) == labels[tested["rows"]]
    among = kept[tested["rows"]]
    return _at(tested["rows"][among], right[among], len(labels))


def _flags(
    labels: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"], kept: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    rows = np.flatnonzero(kept)
    issues = label_issues(labels[rows], probabilities[rows])
    return _at(rows, issues["is_label_issue"].to_numpy(), len(labels))
