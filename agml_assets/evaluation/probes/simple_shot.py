"""Nearest class mean on centred unit vectors: the few-shot baseline."""

from typing import Self

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted, validate_data

from agml_assets.evaluation.probes.axes import row_blocks
from agml_assets.evaluation.probes.labels import encode_labels


class SimpleShot(ClassifierMixin, BaseEstimator):
    """SimpleShot, CL2N: subtract the training mean, scale to unit length, take the nearest class mean.

    Wang, Chao, Weinberger and van der Maaten 2019, arXiv:1911.04623. A class mean is the mean of its centred unit
    vectors, itself not scaled; distances are Euclidean; of classes as near the first in sorted order is taken.
    Labels may be any: BioBench's version returns the place of the class among the sorted ones, right only for
    0..K-1.

    Attributes:
        classes_: Classes, sorted.
        mean_: float64 (d,), of the training features.
        centroids_: float64 (K, d), mean of each class's centred unit vectors.
    """

    def fit(self, X: Float[np.ndarray, "n d"], y: Shaped[np.ndarray, " n"]) -> Self:
        """Find the means.

        Raises:
            ValueError: Features are not finite, labels are no classes, or lengths differ.
        """
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        self.classes_, codes = encode_labels(y)
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        sums = np.zeros((len(self.classes_), X.shape[1]))
        for rows in row_blocks(*X.shape):
            np.add.at(sums, codes[rows], normalize(X[rows] - self.mean_))
        self.centroids_ = sums / np.bincount(codes)[:, None]
        return self

    def predict(self, X: Float[np.ndarray, "m d"]) -> Shaped[np.ndarray, " m"]:
        """Return the class with the nearest mean."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        half_squares = np.einsum("kd,kd->k", self.centroids_, self.centroids_) / 2
        codes = np.empty(len(X), dtype=np.int64)
        for rows in row_blocks(len(X), max(X.shape[1], len(half_squares))):
            # The vector's own square is the same for all classes.
            codes[rows] = (normalize(X[rows] - self.mean_) @ self.centroids_.T - half_squares).argmax(axis=1)
        return self.classes_[codes]
