"""Multinomial logistic regression, its penalty searched honestly: by cross-validation inside the training split.

Regression at a fixed penalty without class weights, for label noise, is in `training.out_of_fold`.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from agml_assets.evaluation.probes.axes import principal_axes
from agml_assets.evaluation.probes.labels import encode_labels, macro_f1
from agml_assets.settings import Settings
from agml_assets.training.grouped_splits import grouped_splits
from agml_assets.training.out_of_fold import stratified_folds

logger = logging.getLogger(__name__)

STRENGTHS = tuple(np.geomspace(1e-3, 10, 13).tolist())
"""BioBench draws thirty at random, log-uniform between these ends; three a decade leave none of them far."""

TOLERANCE = 1e-8
"""Largest gradient, in units of the root of the curvature, at which the final fit is done: probabilities within
1e-6 of the optimum."""

_SEARCH_TOLERANCE = 1e-5  # hardly a prediction changes on the way from here to the optimum
_MAX_STEPS = 2_000


class LogisticProbe(ClassifierMixin, BaseEstimator):
    """Logistic regression on standardised features, classes weighted alike, penalty chosen by cross-validation.

    At a penalty it is scikit-learn's `make_pipeline(StandardScaler(), LogisticRegression(C=C,
    class_weight="balanced"))` at its optimum: each example weighs n / (K n_class), for two classes the model is
    binomial. The penalty is the one of `Cs` with the highest macro-F1 over the predictions of all folds
    together, of equals the smallest; each fold is predicted by a model, and standardised by statistics, of the
    others. Then all training examples are fitted. Differs from BioBench's search in three ways: a grid instead of
    thirty random draws, macro-F1 over all examples instead of the mean over folds (where a rare class missing from
    a fold distorts it), and copies, if `groups` tells them, never straddle folds.

    With fewer than two examples (or groups) to divide, C is scikit-learn's default, 1, and `macro_f1_` is NaN.

    Args:
        Cs: Inverse penalties, positive.
        cv: Folds, 2 or more; never more than examples or groups.
        random_state: Seed of the folds.

    Attributes:
        classes_: Classes, sorted.
        C_: Inverse penalty chosen.
        macro_f1_: float64 (c,), by which it was chosen, one for each of `Cs` ascending, in [0, 1].
        coef_: float64 (K, d), (1, d) for two classes; for features as given, not standardised.
        intercept_: float64 (K,), (1,) for two classes.
    """

    def __init__(self, Cs: Sequence[float] = STRENGTHS, cv: int = 5, random_state: int = 17) -> None:
        self.Cs = Cs
        self.cv = cv
        self.random_state = random_state

    def fit(
        self,
        X: Float[np.ndarray, "n d"],
        y: Shaped[np.ndarray, " n"],
        groups: Shaped[np.ndarray, " n"] | None = None,
    ) -> Self:
        """Choose the penalty and fit.

        Args:
            X: Training features, finite.
            y: Class of each, of any type.
            groups: Group of copies of each; a group is never divided by folds.

        Raises:
            ValueError: There is one class only, `Cs` are not positive, `cv` is below 2, or lengths differ.
        """
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        Cs = np.sort(np.asarray(self.Cs, dtype=np.float64))
        if Cs.ndim != 1 or not len(Cs) or not (Cs > 0).all():
            raise ValueError(f"Cs = {self.Cs!r}: give one or more positive numbers.")
        if self.cv < 2:
            raise ValueError(f"cv = {self.cv}: give 2 folds or more.")
        self.classes_, codes = encode_labels(y, least=2)
        n_classes = len(self.classes_)

        self.C_, self.macro_f1_ = 1.0, np.full(len(Cs), np.nan)
        if len(Cs) == 1:
            self.C_ = float(Cs[0])
        else:
            folds = self._folds(X, codes, groups)
            if len(np.unique(folds)) > 1:
                predicted = np.empty((len(Cs), len(X)), dtype=np.int64)
                for fold in np.unique(folds):
                    held_out = folds == fold
                    predicted[:, held_out] = _predict_path(
                        X[~held_out], codes[~held_out], X[held_out], Cs.tolist()
                    )
                self.macro_f1_ = np.array([macro_f1(codes, some, n_classes) for some in predicted])
                self.C_ = float(Cs[self.macro_f1_.argmax()])

        regression = _Regression(X, codes, n_classes)
        self.coef_, self.intercept_ = regression.coefficients(regression.fit(self.C_, TOLERANCE))
        return self

    def decision_function(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m *k"]:
        """Return the logits, (m, K), or (m,) for two classes: those of the second."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        logits = X @ self.coef_.T + self.intercept_
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def predict_proba(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m k"]:
        """Return the probability of each class; rows sum to 1. Classes count alike, whatever their size."""
        logits = self.decision_function(X)
        return softmax(np.c_[-logits / 2, logits / 2] if logits.ndim == 1 else logits, axis=1)

    def predict(self, X: Float[np.ndarray, "m d"]) -> Shaped[np.ndarray, " m"]:
        """Return the most probable class, the first of equals."""
        logits = self.decision_function(X)
        return self.classes_[(logits > 0).astype(int) if logits.ndim == 1 else logits.argmax(axis=1)]

    def _folds(
        self, X: Float[np.ndarray, "n d"], codes: Int[np.ndarray, " n"], groups: Shaped[np.ndarray, " n"] | None
    ) -> Int[np.ndarray, " n"]:
        if groups is None:
            return stratified_folds(codes, self.cv, self.random_state)
        check_consistent_length(X, groups)
        settings = Settings(cv_folds=self.cv, split_seed=self.random_state)
        return grouped_splits(codes, np.asarray(groups), len(self.classes_), settings)["fold"].to_numpy()


def _predict_path(
    X: Float[np.ndarray, "n d"],
    codes: Int[np.ndarray, " n"],
    held_out: Float[np.ndarray, "m d"],
    Cs: Sequence[float],
) -> Int[np.ndarray, "c m"]:
    """Return the class of each held-out row, for every C ascending; each fit starts where the one before ended."""
    present, compact = np.unique(codes, return_inverse=True)
    if len(present) == 1:
        return np.full((len(Cs), len(held_out)), present[0])
    regression = _Regression(X, compact, len(present))
    predicted = []
    for weights in regression.fit_path(Cs, _SEARCH_TOLERANCE):
        coef, intercept = regression.coefficients(weights)
        logits = held_out @ coef.T + intercept
        predicted.append(present[(logits[:, 0] > 0).astype(int) if len(present) == 2 else logits.argmax(axis=1)])
    return np.stack(predicted)


class _Regression:
    """Weighted multinomial regressions of the same examples at any penalty.

    Minimises sum_i w_i (-log p_i) / n + ||W||^2 / (2 C n). Features are standardised and turned onto their
    principal axes; each weight is optimised in units of one over the root of its curvature. Two
    classes share one vector w as the pair (-w/2, w/2), of half its squared length.
    """

    def __init__(self, X: Float[np.ndarray, "n d"], codes: Int[np.ndarray, " n"], n_classes: int) -> None:
        self._codes, self._n_classes = codes, n_classes
        deviation = X.std(axis=0, dtype=np.float64)
        # As StandardScaler: a feature that does not vary is not divided.
        constant = deviation <= 10 * np.finfo(np.float64).eps * np.abs(X).max(axis=0)
        self._scale = np.where(constant, 1.0, deviation)
        standardised = X / self._scale
        self._axes = principal_axes(standardised)
        self._Z = self._axes.coordinates(standardised)
        counts = np.bincount(codes, minlength=n_classes)
        self._example_weights = (len(codes) / (n_classes * counts))[codes]

    def fit(self, C: float, tolerance: float) -> Float[np.ndarray, "e k"]:
        """Return the weights along the axes, intercepts last."""
        *_, weights = self.fit_path([C], tolerance)
        return weights

    def fit_path(self, Cs: Sequence[float], tolerance: float) -> Iterator[Float[np.ndarray, "e k"]]:
        """Yield the weights for each C."""
        n, r = self._Z.shape
        shape = (r + 1, self._n_classes)
        weights = np.zeros(shape)
        undecided = (1 - 1 / self._n_classes) / self._n_classes  # p(1 - p) where all classes are as likely
        for C in Cs:
            penalty = (2 if self._n_classes == 2 else 1) / (C * n)
            curvature = np.r_[undecided * self._axes.squares / n + penalty, undecided]
            units = 1 / np.sqrt(curvature)[:, None]

            def objective(
                flat: Float[np.ndarray, " p"], penalty: float = penalty, units: np.ndarray = units
            ) -> tuple[float, Float[np.ndarray, " p"]]:
                value, gradient = self._value_and_gradient(flat.reshape(shape) * units, penalty)
                return value, (gradient * units).ravel()

            options = {
                "gtol": tolerance,
                "ftol": 0.0,
                "maxiter": _MAX_STEPS,
                "maxfun": 2 * _MAX_STEPS,
                "maxls": 50,
            }
            found = minimize(objective, (weights / units).ravel(), jac=True, method="L-BFGS-B", options=options)
            if (steepest := np.abs(found.jac).max()) > 10 * tolerance:
                logger.warning("Logistic regression at C = %g ended at a gradient of %.1e.", C, steepest)
            weights = found.x.reshape(shape) * units
            yield weights

    def coefficients(
        self, weights: Float[np.ndarray, "e k"]
    ) -> tuple[Float[np.ndarray, "t d"], Float[np.ndarray, " t"]]:
        """Return weights and intercepts for features as given, t = K, or 1 for two classes."""
        if self._n_classes == 2:
            weights = weights[:, 1:] - weights[:, :1]
        turned = self._axes.axes @ weights[:-1]
        return (turned / self._scale[:, None]).T, weights[-1] - self._axes.mean @ turned

    def _value_and_gradient(
        self, weights: Float[np.ndarray, "e k"], penalty: float
    ) -> tuple[float, Float[np.ndarray, "e k"]]:
        n = len(self._Z)
        logits = self._Z @ weights[:-1] + weights[-1]
        log_probabilities = log_softmax(logits, axis=1)
        rows = np.arange(n)
        value = -self._example_weights @ log_probabilities[rows, self._codes] / n
        residuals = np.exp(log_probabilities)
        residuals[rows, self._codes] -= 1
        residuals *= self._example_weights[:, None] / n
        gradient = np.concatenate([self._Z.T @ residuals, residuals.sum(axis=0)[None]])
        gradient[:-1] += penalty * weights[:-1]
        return value + 0.5 * penalty * float((weights[:-1] ** 2).sum()), gradient
