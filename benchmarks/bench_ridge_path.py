"""Ridge classifiers at twenty penalties, from one decomposition, against scikit-learn's fitted anew for each."""

import numpy as np
from measure import compare, labelled_vectors
from sklearn.linear_model import RidgeClassifier

from agml_assets.evaluation.probes.ridge import RidgePath

EXAMPLES, DIMENSIONS, CLASSES = 5_000, 1_024, 20
SEPARATION = 0.35
PENALTIES = np.geomspace(1e-2, 1e4, 20).tolist()
AT_LEAST = 12
TOLERANCE = 1e-8


def refit(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return scikit-learn's weights, penalties x classes x dimensions."""
    return np.stack([RidgeClassifier(alpha=alpha).fit(vectors, labels).coef_ for alpha in PENALTIES])


def from_path(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ours."""
    path = RidgePath(vectors, labels, CLASSES)
    return np.stack([path.coefficients(alpha)[0] for alpha in PENALTIES])


def agree(obvious: np.ndarray, ours: np.ndarray) -> str:
    """Compare all weights, in units of the largest of each penalty."""
    largest = np.abs(obvious).max(axis=(1, 2), keepdims=True)
    difference = float((np.abs(obvious - ours) / largest).max())
    if difference > TOLERANCE:
        raise SystemExit(f"weights differ by {difference} of the largest")
    return f"all weights within {difference:.0e} of the largest"


def main() -> None:
    """Measure and print."""
    vectors, labels = labelled_vectors(EXAMPLES, DIMENSIONS, CLASSES, SEPARATION)
    vectors = vectors.astype(np.float64)
    print(
        compare(
            work=f"ridge, {len(PENALTIES)} penalties, N = {EXAMPLES:,}, d = {DIMENSIONS:,}, K = {CLASSES}",
            obvious_way="scikit-learn `RidgeClassifier` fitted at each, float64",
            obvious=lambda: refit(vectors, labels),
            ours=lambda: from_path(vectors, labels),
            agree=agree,
            at_least=AT_LEAST,
        )
    )


if __name__ == "__main__":
    main()
