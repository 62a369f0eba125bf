"""Ridge regression as a classifier: all penalties from one decomposition, chosen by exact leave-one-out."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.linalg.lapack import dorgqr, dptsv, dsytrd, dsytrd_lwork
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from agml_assets.evaluation.probes.axes import block_rows, row_blocks
from agml_assets.evaluation.probes.labels import encode_labels, macro_f1

ALPHAS = tuple(np.geomspace(1e-3, 1e6, 20).tolist())
"""Spans unit vectors (squared lengths sum to n) as well as raw features some thousand times that."""


class RidgePath:
    """Ridge regressions of the same targets on the same features, for any penalty.

    Minimises ||Y - X W - b||^2 + alpha ||W||^2, b unpenalised, with targets of 1 for the example's class and -1
    for all others (one column for two classes), as scikit-learn's `RidgeClassifier`. With centred features,
    X'X = Q T Q' where T is tridiagonal (Householder; Golub and Van Loan 2013, Matrix Computations, section 8.3.1)
    and W = Q (T + alpha I)^-1 Q'X'Y: a further penalty costs a tridiagonal solution and a product (Elden 1977, BIT
    17:134). Where there are fewer examples than dimensions, they are first turned into as many.

    Args:
        X: Features, finite.
        codes: Class of each row, 0..n_classes-1.
        n_classes: Classes, 2 or more.
    """

    def __init__(self, X: Float[np.ndarray, "n d"], codes: Int[np.ndarray, " n"], n_classes: int) -> None:
        self._X, self._codes, self._n_classes = X, codes, n_classes
        n, d = X.shape
        self._mean = X.mean(axis=0, dtype=np.float64)
        self._basis = np.linalg.qr((X - self._mean).T)[0] if n <= d else None
        self._target_mean = (2 * np.bincount(codes, minlength=n_classes) / n - 1)[self._columns]
        self._scatter = np.zeros((min(n, d), min(n, d)))
        products = np.zeros((min(n, d), len(self._target_mean)))
        for rows in row_blocks(n, d):
            Z = self._centred(X[rows])
            self._scatter += Z.T @ Z
            products += Z.T @ self._targets(codes[rows])
        self._turn, self._diagonal, self._beside = _tridiagonal(self._scatter)
        self._turned_products = self._turn.T @ products

    def coefficients(self, alpha: float) -> tuple[Float[np.ndarray, "t d"], Float[np.ndarray, " t"]]:
        """Return weights and intercepts, t = K, or 1 for two classes; as `RidgeClassifier(alpha)` has them."""
        weights = self._weights(alpha)
        weights = (weights if self._basis is None else self._basis @ weights).T
        return weights, self._target_mean - weights @ self._mean

    def predict(self, X: Float[np.ndarray, "m d"], alphas: Sequence[float]) -> Int[np.ndarray, "a m"]:
        """Return the class that each penalty predicts for each row."""
        predicted = np.empty((len(alphas), len(X)), dtype=np.int64)
        for place, alpha in enumerate(alphas):
            weights, intercept = self.coefficients(alpha)
            for rows in row_blocks(*X.shape):
                predicted[place, rows] = decide(X[rows] @ weights.T + intercept)
        return predicted

    def predict_left_out(
        self, alphas: Sequence[float], groups: Shaped[np.ndarray, " n"] | None = None
    ) -> Int[np.ndarray, "a n"]:
        """Return the class that each penalty predicts for each row when its group is not trained on.

        Without groups each row is one. Exact, and without fitting again: with H the matrix that takes targets
        to fitted values (intercept included), the residuals of group g when it is left out are
        (I - H_gg)^-1 (Y - H Y)_g. (Cook 1977, doi:10.2307/1268249; for one row, PRESS: Allen 1974,
        doi:10.1080/00401706.1974.10489157.) H for all penalties comes from one eigendecomposition of X'X.

        Raises:
            ValueError: All rows are in one group, so that nothing is left to train on.
        """
        n = len(self._X)
        order, bounds = np.arange(n), np.arange(n + 1)
        if groups is not None:
            _, group = np.unique(groups, return_inverse=True)
            order = np.argsort(group, kind="stable")
            bounds = np.r_[0, np.cumsum(np.bincount(group))]
        if len(bounds) < 3:
            raise ValueError("All training examples are in one group; leaving it out leaves none to train on.")
        squares, axes = np.linalg.eigh(self._scatter)
        shrunken = 1 / (np.maximum(squares, 0)[:, None] + np.asarray(alphas))
        weights = [axes.T @ self._weights(alpha) for alpha in alphas]
        predicted = np.empty((len(alphas), n), dtype=np.int64)
        for first, last in _cut(bounds, self._X.shape[1]):
            rows = order[bounds[first] : bounds[last]]
            edges = bounds[first : last + 1] - bounds[first]
            Z, targets = self._centred(self._X[rows]) @ axes, self._targets(self._codes[rows])
            leverages = Z**2 @ shrunken + 1 / n
            shared = [slice(start, stop) for start, stop in pairwise(edges.tolist()) if stop - start > 1]
            for place in range(len(alphas)):
                residuals = targets - self._target_mean - Z @ weights[place]
                left_out = residuals / (1 - leverages[:, place, None])
                for some in shared:
                    hat = Z[some] * shrunken[:, place] @ Z[some].T + 1 / n
                    left_out[some] = np.linalg.solve(np.eye(len(hat)) - hat, residuals[some])
                predicted[place, rows] = decide(targets - left_out)
        return predicted

    @property
    def _columns(self) -> slice:
        return slice(1, 2) if self._n_classes == 2 else slice(None)

    def _targets(self, codes: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m t"]:
        return np.where(codes[:, None] == np.arange(self._n_classes)[self._columns], 1.0, -1.0)

    def _centred(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m r"]:
        centred = X - self._mean
        return centred if self._basis is None else centred @ self._basis

    def _weights(self, alpha: float) -> Float[np.ndarray, "r t"]:
        """Return the weights for the features that `_centred` returns."""
        if len(self._diagonal) == 1:
            return self._turned_products / (self._diagonal + alpha)
        *_, solution, failed = dptsv(self._diagonal + alpha, self._beside, self._turned_products)
        if failed:
            raise ValueError(f"A penalty of {alpha:g} is too small to tell from rounding: give larger alphas.")
        return self._turn @ solution


class RidgeProbe(ClassifierMixin, BaseEstimator):
    """Ridge classifier in closed form, its penalty chosen on the training split.

    The weights are those of scikit-learn's `RidgeClassifier(alpha)`. The penalty is the one of `alphas` whose
    predictions have the highest macro-F1, of equals the largest: on `validation` when that is given to `fit`, else
    with each example (or group of copies) left out in turn, exactly (see `RidgePath`). Features are used as
    they are: scale them alike before, as encoders do.

    Args:
        alphas: Penalties, positive.

    Attributes:
        classes_: Classes, sorted.
        alpha_: Penalty chosen.
        macro_f1_: float64 (a,), by which it was chosen, one for each of `alphas`, in [0, 1].
        coef_: float64 (K, d), (1, d) for two classes.
        intercept_: float64 (K,), (1,) for two classes.
    """

    def __init__(self, alphas: Sequence[float] = ALPHAS) -> None:
        self.alphas = alphas

    def fit(
        self,
        X: Float[np.ndarray, "n d"],
        y: Shaped[np.ndarray, " n"],
        groups: Shaped[np.ndarray, " n"] | None = None,
        validation: tuple[Any, Any] | None = None,
    ) -> Self:
        """Choose the penalty and fit.

        Args:
            X: Training features, finite.
            y: Class of each, of any type.
            groups: Group of copies of each; a group is left out as a whole.
            validation: Features and classes to choose the penalty on, instead of leaving out. Examples of a class
                that training has not are told wrong by every penalty.

        Raises:
            ValueError: There is one class only, or one group; a penalty is not positive; lengths differ.
        """
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        alphas = np.asarray(self.alphas, dtype=np.float64)
        if alphas.ndim != 1 or not len(alphas) or not (alphas > 0).all():
            raise ValueError(f"alphas = {self.alphas!r}: give one or more positive penalties.")
        self.classes_, codes = encode_labels(y, least=2)
        path = RidgePath(X, codes, len(self.classes_))
        if validation is None:
            if groups is not None:
                check_consistent_length(X, groups)
            truth, predicted = codes, path.predict_left_out(alphas.tolist(), groups)
        else:
            X_val, y_val = validate_data(self, *validation, dtype=(np.float64, np.float32), reset=False)
            truth = _known(y_val, self.classes_)
            predicted = path.predict(X_val, alphas.tolist())
        self.macro_f1_ = np.array([macro_f1(truth, some, len(self.classes_)) for some in predicted])
        self.alpha_ = float(alphas[self.macro_f1_ == self.macro_f1_.max()].max())
        self.coef_, self.intercept_ = path.coefficients(self.alpha_)
        return self

    def decision_function(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m *k"]:
        """Return the regressed targets, (m, K), or (m,) for two classes: positive for the second."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Float[np.ndarray, "m d"]) -> Shaped[np.ndarray, " m"]:
        """Return the class with the largest regressed target, of equals the first."""
        codes = decide(self.decision_function(X))
        return self.classes_[codes]


def decide(scores: Float[np.ndarray, "m *k"]) -> Int[np.ndarray, " m"]:
    """Return the place of the largest score, the first of equals; of a single score, whether it is positive."""
    if scores.ndim == 2 and scores.shape[1] > 1:
        return scores.argmax(axis=1)
    return (scores.reshape(-1) > 0).astype(np.int64)


def _known(y: Shaped[np.ndarray, " m"], classes: Shaped[np.ndarray, " k"]) -> Int[np.ndarray, " m"]:
    """Return the place of each label among the classes, K for a label that training has not."""
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return np.where(classes[places] == y, places, len(classes))


def _tridiagonal(
    symmetric: Float[np.ndarray, "r r"],
) -> tuple[Float[np.ndarray, "r r"], Float[np.ndarray, " r"], Float[np.ndarray, " s"]]:
    """Return Q, diagonal and off-diagonal with `symmetric` = Q T Q'."""
    r = len(symmetric)
    turn = np.eye(r)
    if r == 1:
        return turn, symmetric[0], np.zeros(0)
    size, _ = dsytrd_lwork(r, lower=1)
    # Half of it is products with single vectors: too short for threads, which then wait for one another.
    with threadpool_limits(1, user_api="blas"):
        reflectors, diagonal, beside, scales, _ = dsytrd(symmetric, lower=1, lwork=int(size))
        turn[1:, 1:], _, _ = dorgqr(reflectors[1:, :-1], scales, lwork=int(size))
    return turn, diagonal, beside


def _cut(bounds: Int[np.ndarray, " g1"], values_per_row: int) -> list[tuple[int, int]]:
    """Cut groups into runs whose rows fit into a block; a larger group stands alone."""
    size, cuts = block_rows(values_per_row), [0]
    while cuts[-1] < len(bounds) - 1:
        end = int(np.searchsorted(bounds, bounds[cuts[-1]] + size, side="right")) - 1
        cuts.append(max(end, cuts[-1] + 1))
    return list(pairwise(cuts))
