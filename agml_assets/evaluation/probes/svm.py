"""Linear support vector machine on centred unit vectors."""

from typing import Self

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, validate_data

from agml_assets.evaluation.probes.labels import encode_labels


class LinearSvm(ClassifierMixin, BaseEstimator):
    """BioBench's NeWT probe: unit vectors, less the training mean, to unit length again; a linear SVM on them.

    scikit-learn's `SVC(kernel="linear", C=C)` behind those three steps; with more than two classes, one machine
    for each pair of classes, which vote. Time grows with the square of the training examples: for thousands of
    them, not for a hundred thousand.

    Args:
        C: Inverse penalty, positive.

    Attributes:
        classes_: Classes, sorted.
        pipeline_: The fitted scikit-learn pipeline.
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Float[np.ndarray, "n d"], y: Shaped[np.ndarray, " n"]) -> Self:
        """Fit.

        Raises:
            ValueError: There is one class only, `C` is not positive, features are not finite, or lengths differ.
        """
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        self.classes_, codes = encode_labels(y, least=2)
        svm = SVC(kernel="linear", C=self.C)
        self.pipeline_ = make_pipeline(Normalizer(), StandardScaler(with_std=False), Normalizer(), svm)
        self.pipeline_.fit(X, codes)
        return self

    def decision_function(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m *k"]:
        """Return the distances to the margin, (m,) for two classes, else (m, K), from votes."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return self.pipeline_.decision_function(X)

    def predict(self, X: Float[np.ndarray, "m d"]) -> Shaped[np.ndarray, " m"]:
        """Return the class with most votes, the first of equals."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return self.classes_[self.pipeline_.predict(X)]
