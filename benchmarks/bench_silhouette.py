"""Exact cosine silhouette by class sums against scikit-learn's, which compares all pairs."""

import numpy as np
from measure import compare, labelled_vectors
from sklearn.metrics import silhouette_samples

from agml_assets.quality.clusters import cosine_silhouettes

IMAGES, DIMENSIONS, CLASSES = 20_000, 768, 40
AT_LEAST = 150
TOLERANCE = 1e-5


def agree(obvious: np.ndarray, ours: np.ndarray) -> str:
    """Compare the silhouettes of all images."""
    difference = float(np.abs(obvious - ours).max())
    if difference > TOLERANCE:
        raise SystemExit(f"silhouettes differ by {difference}")
    return f"within {difference:.0e}"


def main() -> None:
    """Measure and print."""
    vectors, labels = labelled_vectors(IMAGES, DIMENSIONS, CLASSES)
    print(
        compare(
            work=f"exact cosine silhouette, N = {IMAGES:,}, K = {CLASSES}, d = {DIMENSIONS}",
            obvious_way="scikit-learn `silhouette_samples`",
            obvious=lambda: silhouette_samples(vectors, labels, metric="cosine"),
            ours=lambda: cosine_silhouettes(vectors, labels, CLASSES),
            agree=agree,
            at_least=AT_LEAST,
        )
    )


if __name__ == "__main__":
    main()
