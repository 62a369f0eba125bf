"""A classifier that may answer "none of these": examples far from every class are called unknown."""

from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.covariance import ledoit_wolf
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from agml_assets.evaluation.probes.axes import row_blocks
from agml_assets.evaluation.probes.labels import encode_labels
from agml_assets.evaluation.probes.simple_shot import SimpleShot

_RANK = 1e-12
"""Directions with less of the largest variance do not vary within classes, as of a unit that is always off."""


class OpenSetDetector(ClassifierMixin, BaseEstimator):
    """Mahalanobis detector around a classifier: known examples are classified, unknown ones get their own label.

    Classes have their means and share one covariance S, the mean of theirs weighted by their size, each shrunken
    as Ledoit and Wolf do (2004, doi:10.1016/S0047-259X(03)00096-4) on standardised features: the means and
    covariance of scikit-learn's `LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto")`. The distance of an
    example x is the least over classes of (x - mean)' S^-1 (x - mean), S^-1 taken along the directions in which S
    varies (Lee and others 2018, arXiv:1807.03888). It is unknown if its distance is above the quantile 1 - alpha
    of those of the training examples. BioBench's version takes the 95th percentile whatever its `alpha` says.

    Args:
        estimator: Classifies the known ones; `SimpleShot()` if None.
        alpha: Share of the training examples that are above the threshold, in [0, 1).

    Attributes:
        classes_: Classes of the training examples, sorted; the unknown label is not among them.
        unknown_label_: What unknown examples are predicted as: -1 for numeric labels, or one below the lowest
            where there are negative ones; "unknown" for text.
        estimator_: The fitted classifier.
        means_: float64 (K, d).
        covariance_: float64 (d, d).
        threshold_: Largest distance of a known example.
    """

    def __init__(self, estimator: Any = None, alpha: float = 0.05) -> None:
        self.estimator = estimator
        self.alpha = alpha

    def fit(self, X: Float[np.ndarray, "n d"], y: Shaped[np.ndarray, " n"]) -> Self:
        """Fit the classifier, the covariance and the threshold.

        Raises:
            ValueError: `alpha` is not in [0, 1); no class has two different examples; "unknown" is a class;
                features are not finite; or lengths differ.
        """
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha = {self.alpha}: give a share of at least 0 and below 1.")
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        self.classes_, codes = encode_labels(y)
        self.unknown_label_ = _unknown_label(self.classes_)
        self.estimator_ = clone(SimpleShot() if self.estimator is None else self.estimator).fit(X, y)
        self.means_, self.covariance_ = class_means_and_covariance(X, codes, len(self.classes_))
        variances, directions = np.linalg.eigh(self.covariance_)
        kept = variances > _RANK * variances[-1]
        if not kept.any():
            raise ValueError("No class has two different examples: one sample a class tells no distances.")
        self._whitening = directions[:, kept] / np.sqrt(variances[kept])
        self.threshold_ = float(np.quantile(self._distances(X), 1 - self.alpha))
        return self

    def mahalanobis(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Return the squared Mahalanobis distance of each row to the nearest class mean, 0 or more."""
        check_is_fitted(self)
        return self._distances(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))

    def predict(self, X: Float[np.ndarray, "m d"]) -> Shaped[np.ndarray, " m"]:
        """Return the class of each known row, `unknown_label_` of each other."""
        unknown = self.mahalanobis(X) > self.threshold_
        known = self.estimator_.predict(X)
        # A dtype that holds both: text of the longer of the two.
        labels = np.append(self.classes_, np.array([self.unknown_label_], dtype=_dtype(self.classes_)))
        return np.where(unknown, labels[-1], known.astype(labels.dtype))

    def _distances(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        means = (self.means_ - self.means_[0]) @ self._whitening
        squares = np.einsum("kr,kr->k", means, means)
        distances = np.empty(len(X))
        for rows in row_blocks(len(X), max(X.shape[1], len(means))):
            white = (X[rows] - self.means_[0]) @ self._whitening
            nearest = (squares - 2 * (white @ means.T)).argmin(axis=1)
            distances[rows] = ((white - means[nearest]) ** 2).sum(axis=1)
        return distances


def class_means_and_covariance(
    X: Float[np.ndarray, "n d"], codes: Int[np.ndarray, " n"], n_classes: int
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "d d"]]:
    """Return the mean of each class and the covariance within classes: see `OpenSetDetector`."""
    means = np.empty((n_classes, X.shape[1]))
    covariance = np.zeros((X.shape[1], X.shape[1]))
    order = np.argsort(codes, kind="stable")
    for code, members in enumerate(np.split(order, np.cumsum(np.bincount(codes, minlength=n_classes))[:-1])):
        examples = X[members].astype(np.float64)
        means[code] = examples.mean(axis=0)
        if len(members) > 1:  # a single example has no deviations
            scaler = StandardScaler()
            shrunken, _ = ledoit_wolf(scaler.fit_transform(examples))
            covariance += len(members) / len(X) * (scaler.scale_[:, None] * shrunken * scaler.scale_)
    return means, covariance


def _unknown_label(classes: Shaped[np.ndarray, " k"]) -> Any:
    if not np.issubdtype(classes.dtype, np.number) and classes.dtype != bool:
        if "unknown" in classes:
            raise ValueError("'unknown' is one of the classes, and what unknown examples are called; rename it.")
        return "unknown"
    return min(int(classes.min()), 0) - 1


def _dtype(classes: Shaped[np.ndarray, " k"]) -> Any:
    return None if classes.dtype.kind in "US" else np.int64 if classes.dtype.kind in "bu" else classes.dtype
