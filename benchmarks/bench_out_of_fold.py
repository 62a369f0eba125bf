"""Five-fold out-of-fold logistic regression against scikit-learn's, by default settings and run to convergence."""

import warnings

import numpy as np
from measure import compare, labelled_vectors
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from agml_assets.training.out_of_fold import out_of_fold, stratified_folds

IMAGES, DIMENSIONS, CLASSES, FOLDS = 20_000, 768, 50, 5
SEPARATION = 0.35  # some 15 % of the images are told wrong
MISLABELLED = 0.03
BY_DEFAULT, TO_CONVERGENCE = 2.5, 8
AS_CONVERGED = 1e-3


def cross_validate(vectors: np.ndarray, labels: np.ndarray, folds: np.ndarray, **settings: float) -> np.ndarray:
    """Return scikit-learn's probabilities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(**settings)
        return cross_val_predict(model, vectors, labels, cv=PredefinedSplit(folds), method="predict_proba")


def agree(obvious: np.ndarray, ours: np.ndarray, tolerance: float) -> str:
    """Compare all probabilities."""
    difference = float(np.abs(obvious - ours).max())
    if difference > tolerance:
        raise SystemExit(f"probabilities differ by {difference}")
    return f"probabilities within {difference:.0e}"


def main() -> None:
    """Measure and print."""
    vectors, labels = labelled_vectors(IMAGES, DIMENSIONS, CLASSES, SEPARATION)
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(IMAGES) < MISLABELLED, rng.integers(0, CLASSES, IMAGES), labels)
    folds = stratified_folds(labels, FOLDS)
    work = f"{FOLDS}-fold out-of-fold logistic regression, N = {IMAGES:,}, d = {DIMENSIONS}, K = {CLASSES}"
    ours = out_of_fold
    print(
        compare(
            work=work,
            obvious_way="scikit-learn `LogisticRegression()`, lbfgs, stopped by default",
            obvious=lambda: cross_validate(vectors, labels, folds),
            ours=lambda: ours(vectors, labels, folds, CLASSES),
            agree=lambda theirs, mine: agree(theirs, mine, 0.1) + ", ours at the optimum",
            at_least=BY_DEFAULT,
            obvious_repeats=1,
        )
    )
    print(
        compare(
            work=work,
            obvious_way="the same to convergence: `tol=1e-7, max_iter=10_000`, float64",
            obvious=lambda: cross_validate(vectors.astype(np.float64), labels, folds, tol=1e-7, max_iter=10_000),
            ours=lambda: ours(vectors, labels, folds, CLASSES),
            agree=lambda theirs, mine: agree(theirs, mine, AS_CONVERGED),
            at_least=TO_CONVERGENCE,
            obvious_repeats=1,
        )
    )


if __name__ == "__main__":
    main()
