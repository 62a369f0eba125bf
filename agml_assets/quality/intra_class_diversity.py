"""How different the images within each class are to the embedding model."""

from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from agml_assets.dataset.image_index import declared_classes
from agml_assets.quality.clusters import (
    COPY_DISTANCE,
    centroid_distances,
    centroids,
    count_classes,
    distances_to_centroid,
    mean_cosine_distances,
    unfit_vectors,
)
from agml_assets.quality.images import skipped
from agml_assets.quality.intervals import Resamples, bootstrap_interval
from agml_assets.settings import Settings


def intra_class_diversity(
    *,
    image_index: pl.DataFrame,
    embeddings: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    duplicate_groups: pl.DataFrame,
    settings: Settings,
) -> dict[str, Any]:
    """Measure the spread of each class around its centroid, and the mean distance within it.

    Published diversity of a class: mean L2 distance of its vectors to their plain mean, in [0, 1] for unit
    vectors (published texts call it a cosine distance; it is not). It grows with the number of
    images (one image has 0) and ends at 1 for vectors that point everywhere. The added cosine
    distance is the mean over all pairs of different images, see `clusters.mean_cosine_distances`.

    Args:
        image_index: Declares the classes; one is enough.
        embeddings: float32 rows of unit L2 norm.
        labels: int64, the class of each row.
        duplicate_groups: `joined` group of each row, for the interval.
        settings: Names the embedding model.

    Returns:
        Published: `embed_model`; `per_class_diversity` by class name, 0.0 for an empty class;
        `mean_diversity`, mean of the rounded values over all declared classes, empty ones included;
        `min_diversity_class`, `max_diversity_class`, the first by name on ties (an empty class wins the
        least).

        Added: `mean_diversity_present`, over classes with at least two images, null if there is none;
        `n_classes_measured`, the number of those; `per_class_cosine_distance` by class name, null with fewer
        than two images; `mean_cosine_distance`, its mean, null likewise; `identical_classes`, classes of
        at least two images that the model cannot tell apart; `intervals`, of `mean_diversity`.

        Skipped where there is no image or a vector is not finite.

    Raises:
        ValueError: Rows are not of unit length.
    """
    names = declared_classes(image_index)
    if not len(labels):
        return skipped("The dataset has no usable image.", embed_model=settings.embed_model)
    unfit = unfit_vectors(embeddings)
    if unfit:
        return skipped(unfit, embed_model=settings.embed_model)
    counts = count_classes(labels, len(names))
    means = centroids(embeddings, labels, len(names))
    spreads = distances_to_centroid(embeddings, labels, means)
    cosine = mean_cosine_distances(embeddings, labels, len(names))

    by_name = sorted(range(len(names)), key=names.__getitem__)
    diversity = {names[label]: round(float(spreads[label]), 4) for label in by_name}
    measured = counts > 1
    return {
        "embed_model": settings.embed_model,
        "per_class_diversity": diversity,
        "mean_diversity": round(float(np.mean(list(diversity.values()))), 4),
        "min_diversity_class": min(diversity, key=diversity.__getitem__),
        "max_diversity_class": max(diversity, key=diversity.__getitem__),
        "mean_diversity_present": round(float(spreads[measured].mean()), 4) if measured.any() else None,
        "n_classes_measured": int(measured.sum()),
        "per_class_cosine_distance": {
            names[label]: round(float(cosine[label]), 4) if measured[label] else None for label in by_name
        },
        "mean_cosine_distance": round(float(cosine[measured].mean()), 4) if measured.any() else None,
        "identical_classes": [
            names[label] for label in by_name if measured[label] and spreads[label] <= COPY_DISTANCE
        ],
        "intervals": {
            "mean_diversity": _interval(embeddings, labels, means, Resamples.of(duplicate_groups)),
        },
    }


def _interval(
    embeddings: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    means: Float[np.ndarray, "k d"],
    resamples: Resamples,
) -> dict[str, Any]:
    """Return the interval of the mean over classes, the centroids held fixed; an absent class counts 0."""
    from scipy.sparse import csr_array

    n, k = len(labels), len(means)
    rows = np.arange(n)
    values = np.append(centroid_distances(embeddings, labels, means), np.ones(n))
    columns = csr_array((values, (np.append(rows, rows), np.append(labels, k + labels))), shape=(n, 2 * k))

    def mean_diversity(sums: Float[np.ndarray, "b c"]) -> Float[np.ndarray, " b"]:
        return (sums[:, :k] / np.maximum(sums[:, k:], 1)).mean(axis=1)

    return bootstrap_interval(resamples, rows, columns, mean_diversity, "the class centroids")
