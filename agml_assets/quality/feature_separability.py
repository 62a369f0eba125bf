"""How far apart the classes lie in the embedding space, without training anything on the dataset."""

from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from agml_assets.dataset.image_index import declared_classes
from agml_assets.quality.clusters import (
    COPY_DISTANCE,
    centroids,
    cosine_silhouettes,
    count_classes,
    davies_bouldin,
    distances_to_centroid,
    unfit_vectors,
)
from agml_assets.quality.images import skipped
from agml_assets.quality.intervals import Resamples, bootstrap_interval
from agml_assets.settings import Settings

_SAMPLE_SEED = 42
"""Seed of the published silhouette sample; fixed, whatever the split seed."""

_SILHOUETTE_CUTS = (
    (0.70, "strong separation"),
    (0.50, "reasonable separation"),
    (0.25, "moderate separation"),
    (0.00, "weak separation"),
)
_DAVIES_BOULDIN_CUTS = (
    (0.5, "well-separated clusters"),
    (1.0, "moderate separation"),
    (2.0, "some overlap between clusters"),
)


def feature_separability(
    *,
    image_index: pl.DataFrame,
    embeddings: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    duplicate_groups: pl.DataFrame,
    settings: Settings,
) -> dict[str, Any]:
    """Measure how well the labelled classes separate: cosine silhouette and Davies-Bouldin index.

    Formulas and sources: `clusters.cosine_silhouettes`, `clusters.davies_bouldin`.

    Args:
        image_index: Declares the classes.
        embeddings: float32 rows of unit L2 norm.
        labels: int64, the class of each row.
        duplicate_groups: `joined` group of each row, for the interval.
        settings: Names the embedding model and the size of the published sample.

    Returns:
        Published: `embed_model`; `n_total`; `n_silhouette_samples`, all images or a stratified sample of
        about `max_silhouette_samples`; `silhouette_score`, mean over those, in [-1, 1];
        `silhouette_interpretation`; `davies_bouldin_index` of all images, at least 0, lower is better;
        `davies_bouldin_interpretation`; `per_class_silhouette` in label order, 0.0 for an empty class.

        Added: `silhouette_score_all` and `per_class_silhouette_all`, exact over all images, classes without
        images null; `coincident_classes`, classes whose centroid coincides with another's, a
        pair that the Davies-Bouldin index leaves out although it is the worst possible; `intervals`.

        Skipped, never flattering, where fewer than two classes are declared or occur, a vector is not
        finite, no class has two different vectors, or all centroids coincide.

    Raises:
        ValueError: Rows are not of unit length.
    """
    names = declared_classes(image_index)
    model = settings.embed_model
    if len(names) < 2:
        return skipped(f"Separability compares classes; this dataset declares {len(names)}.", embed_model=model)
    counts = count_classes(labels, len(names))
    present = np.flatnonzero(counts)
    if len(present) < 2:
        return skipped(f"Images of {len(present)} class only; at least two are needed.", embed_model=model)
    unfit = unfit_vectors(embeddings)
    if unfit:
        return skipped(unfit, embed_model=model)
    means = centroids(embeddings, labels, len(names))
    spreads = distances_to_centroid(embeddings, labels, means)
    if spreads.max() <= COPY_DISTANCE:
        return skipped("No class holds two images that the embedding model tells apart.", embed_model=model)
    index, coincident = davies_bouldin(means[present], spreads[present])
    if index == 0:
        return skipped("All classes have the same centroid.", embed_model=model)

    silhouettes = cosine_silhouettes(embeddings, labels, len(names))
    if len(labels) > settings.max_silhouette_samples:
        sample = published_sample(labels, settings.max_silhouette_samples)
        sampled = cosine_silhouettes(embeddings[sample], labels[sample], len(names))
        sample_labels = labels[sample]
    else:
        sampled, sample_labels = silhouettes, labels
    return {
        "embed_model": model,
        "n_total": len(labels),
        "n_silhouette_samples": len(sampled),
        "silhouette_score": round(float(sampled.mean()), 4),
        "silhouette_interpretation": interpret_silhouette(float(sampled.mean())),
        "davies_bouldin_index": round(index, 4),
        "davies_bouldin_interpretation": interpret_davies_bouldin(index),
        "per_class_silhouette": {
            name: 0.0 if value is None else value
            for name, value in _per_class(sampled, sample_labels, names).items()
        },
        "silhouette_score_all": round(float(silhouettes.mean()), 4),
        "per_class_silhouette_all": _per_class(silhouettes, labels, names),
        "coincident_classes": [names[label] for label in present[coincident]],
        "intervals": {
            "silhouette_score_all": bootstrap_interval(
                Resamples.of(duplicate_groups),
                np.arange(len(labels)),
                np.column_stack([silhouettes, np.ones(len(labels))]),
                lambda sums: sums[:, 0] / sums[:, 1],
                "the class centroids",
            )
        },
    }


def published_sample(labels: Int[np.ndarray, " n"], size: int) -> Int[np.ndarray, " m"]:
    """Return the rows of the published silhouette sample, class by class, about `size` of them.

    Each class gives its share, rounded half to even, at least one and at most all; drawn without replacement
    by `default_rng(42)`, classes ascending.
    """
    rng = np.random.default_rng(_SAMPLE_SEED)
    chosen = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        share = min(len(rows), max(1, round(size * len(rows) / len(labels))))
        chosen.append(rng.choice(rows, size=share, replace=False))
    return np.concatenate(chosen)


def interpret_silhouette(score: float) -> str:
    """Return the published reading of a silhouette score; a cut-off itself reads as the lower."""
    return next((text for cut, text in _SILHOUETTE_CUTS if score > cut), "overlapping or no separation")


def interpret_davies_bouldin(index: float) -> str:
    """Return the published reading of a Davies-Bouldin index; a cut-off itself reads as the worse."""
    worst = "high overlap — classes not well-separated"
    return next((text for cut, text in _DAVIES_BOULDIN_CUTS if index < cut), worst)


def _per_class(
    values: Float[np.ndarray, " n"], labels: Int[np.ndarray, " n"], names: list[str]
) -> dict[str, float | None]:
    counts = count_classes(labels, len(names))
    sums = np.bincount(labels, weights=values, minlength=len(names))
    return {
        name: round(float(total / n), 4) if n else None for name, total, n in zip(names, sums, counts, strict=True)
    }
