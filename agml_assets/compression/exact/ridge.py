"""Ridge regression of any number of targets on all folds at once, penalties chosen without the test rows.

Features are scaled on the training part. What the predictions score is elsewhere.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits

PENALTIES = tuple(np.geomspace(1e-5, 1e3, 20).tolist())
"""Per training example. With d uncorrelated, scaled features that explain a share s of a scaled target, the best
is d (1 - s) / (s n): from 1e-5 (nothing to shrink) to 1e3 (all shrunk away), factors of 2.6."""

_NEARLY_CONSTANT = 1e-6
"""Variance of a training part, in units of that of all rows, below which differences of sums are not trusted."""

_MAX_WORKERS = 8  # each holds some three copies of the features


@dataclass(frozen=True)
class RidgePredictions:
    """Predictions of rows by models that never saw them.

    Attributes:
        predicted: float64 (repeats, examples, targets).
        penalties: Chosen, per training example, float64 (repeats, folds, targets).
        pulls: By how much the sum of squared errors of a repeat would grow if the models of the other folds were
            fitted without this example (or its group, of which this is the example's part): to first order in the
            change of predictions, at the same penalty and scale; float64 (repeats, examples, targets).
    """

    predicted: Float[np.ndarray, "r n t"]
    penalties: Float[np.ndarray, "r k t"]
    pulls: Float[np.ndarray, "r n t"]


def predict_out_of_fold(
    features: Float[np.ndarray, "n d"],
    targets: Float[np.ndarray, "n t"],
    folds: Int[np.ndarray, "r n"],
    penalties: Sequence[float] = PENALTIES,
    groups: Int[np.ndarray, " n"] | None = None,
) -> RidgePredictions:
    """Predict each row by a ridge regression on the other folds, in every repeat.

    The model of a fold is scikit-learn's `make_pipeline(StandardScaler(), Ridge(alpha=a * n_train))` on its
    training part: minimises ||Y - Z W - b||^2 + a n_train ||W||^2, where Z are the features less their mean, over
    their standard deviation (a feature that does not vary there is not divided), and b is not penalised. The
    penalty a is chosen for each target: the one with the least mean squared error when each training row is left
    out in turn, of equals the largest, as `RidgeCV(alpha_per_target=True)` does. Left-out residuals are exact
    without fitting again: with H the matrix from targets to fitted values, intercept included, r_i / (1 - H_ii)
    (PRESS; Allen 1974, doi:10.1080/00401706.1974.10489157), for a group g the rows (I - H_gg)^-1 r_g (Cook 1977,
    doi:10.2307/1268249): with groups, groups are left out.

    The matrix of products is computed once and the test rows' part subtracted for each fold; one
    eigendecomposition of it then serves all penalties and targets. With fewer training rows than features it is of
    the rows' products (dual form).

    Args:
        features: Finite.
        targets: Finite.
        folds: Of each row in each repeat, 0..k-1, none empty.
        penalties: To choose from, per training example, positive.
        groups: Group of each row, never divided by folds.

    Raises:
        ValueError: A penalty is not positive, or the training part of a fold has fewer than two rows or groups.
    """
    grid = np.asarray(penalties, np.float64)
    if not len(grid) or not (grid > 0).all():
        raise ValueError(f"penalties = {penalties!r}: give one or more positive numbers")
    n_repeats, n = folds.shape
    n_folds = int(folds.max()) + 1
    problem = _Problem(features, np.asarray(targets, np.float64), np.sort(grid), groups)
    predicted, pulls = np.empty((n_repeats, n, targets.shape[1])), np.zeros((n_repeats, n, targets.shape[1]))
    chosen = np.empty((n_repeats, n_folds, targets.shape[1]))
    held_out = [(repeat, fold) for repeat in range(n_repeats) for fold in range(n_folds)]

    inside = np.stack([folds[repeat] != fold for repeat, fold in held_out])
    means, deviations, near = training_scales(problem.features, inside)

    def fit(place: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return problem.predict(~inside[place], (means[place], deviations[place], bool(near[place])))

    # Half of an eigendecomposition is products with single vectors, too short for threads: folds side by side
    # use the cores better.
    workers = min(len(held_out), _MAX_WORKERS, len(os.sched_getaffinity(0)))
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        for place, (out, penalty, pull) in enumerate(pool.map(fit, range(len(held_out)))):
            repeat, fold = held_out[place]
            predicted[repeat, ~inside[place]], chosen[repeat, fold] = out, penalty
            pulls[repeat, inside[place]] += pull
    return RidgePredictions(predicted, chosen, pulls)


@dataclass(frozen=True)
class _Fit:
    """All ridge regressions of one training part, for any penalty.

    Fitted values are `train` diag(w) `products` + the targets' mean, w = `weights(penalty)`; those of the test
    rows likewise, with `test` and `test_weights`.
    """

    train: Float[np.ndarray, "m r"]
    test: Float[np.ndarray, "p r"]
    squares: Float[np.ndarray, " r"]
    products: Float[np.ndarray, "r t"]
    dual: bool

    def weights(self, penalty: float) -> Float[np.ndarray, " r"]:
        return (self.squares if self.dual else 1.0) / (self.squares + penalty)

    def test_weights(self, penalty: float) -> Float[np.ndarray, " r"]:
        return 1 / (self.squares + penalty)


class _Problem:
    def __init__(
        self,
        features: Float[np.ndarray, "n d"],
        targets: Float[np.ndarray, "n t"],
        penalties: Float[np.ndarray, " a"],
        groups: Int[np.ndarray, " n"] | None,
    ) -> None:
        self.features, self._scale = standardise(features)
        self._targets, self._penalties, self._groups = targets, penalties, groups
        n, d = self.features.shape
        self._products = self.features.T @ self.features if n > d else None

    def predict(
        self, out: Bool[np.ndarray, " n"], scale: tuple[np.ndarray, np.ndarray, bool]
    ) -> tuple[Float[np.ndarray, "p t"], Float[np.ndarray, " t"], Float[np.ndarray, "m t"]]:
        """Return predictions of the rows left out, each target's penalty, and what each training row takes off."""
        inside = ~out
        n_train = int(inside.sum())
        groups = None if self._groups is None else self._groups[inside]
        if n_train < 2 or (groups is not None and len(np.unique(groups)) < 2):
            raise ValueError("a training part has fewer than two examples or groups")
        mean_target = self._targets[inside].mean(axis=0)
        targets = self._targets[inside] - mean_target
        fit = self._fit(out, targets, scale)
        blocks = _blocks(groups)
        weights = np.stack([fit.weights(penalty * n_train) for penalty in self._penalties], axis=1)
        leverages = fit.train**2 @ weights + 1 / n_train
        errors = np.empty((len(self._penalties), targets.shape[1]))
        for place in range(len(self._penalties)):
            residuals = _left_out(fit, weights[:, place], leverages[:, place], targets, slice(None), blocks)
            errors[place] = (residuals**2).mean(axis=0)
        # From behind, so that of equals the largest is taken.
        best = len(errors) - 1 - errors[::-1].argmin(axis=0)
        predicted, pulls = np.empty((len(fit.test), targets.shape[1])), np.empty_like(targets)
        for place in np.unique(best):
            some = np.flatnonzero(best == place)
            test_weights = fit.test_weights(self._penalties[place] * n_train)[:, None]
            predicted[:, some] = fit.test @ (test_weights * fit.products[:, some]) + mean_target[some]
            wrong = self._targets[np.ix_(out, some)] - predicted[:, some]
            residuals = _left_out(fit, weights[:, place], leverages[:, place], targets, some, blocks)
            reach = fit.train @ (test_weights * (fit.test.T @ wrong)) + wrong.sum(axis=0) / n_train
            pulls[:, some] = 2 * reach * residuals
        return predicted, self._penalties[best], pulls

    def _fit(
        self,
        out: Bool[np.ndarray, " n"],
        targets: Float[np.ndarray, "m t"],
        scale: tuple[np.ndarray, np.ndarray, bool],
    ) -> _Fit:
        inside = ~out
        n_train = int(inside.sum())
        mean, deviation, exact = scale
        if self._products is None or n_train <= self.features.shape[1]:
            scaled = (self.features - mean) / deviation
            train = scaled[inside]
            squares, axes = np.linalg.eigh(train @ train.T)
            # That of the ones is 0; its rounding would show where fitted values come near the targets.
            squares[squares < squares[-1] * n_train * np.finfo(np.float64).eps] = 0
            return _Fit(axes, scaled[out] @ (train.T @ axes), squares, axes.T @ targets, True)
        if exact:
            train = (self.features[inside] - mean) / deviation
            scatter = train.T @ train
        else:
            left = self.features[out]
            scatter = self._products - left.T @ left - n_train * np.outer(mean, mean)
            scatter /= deviation[:, None]
            scatter /= deviation
        squares, axes = np.linalg.eigh(scatter)
        turned = axes / deviation[:, None]
        coordinates = self.features @ turned
        coordinates -= mean @ turned
        train = coordinates[inside]
        return _Fit(train, coordinates[out], np.maximum(squares, 0), train.T @ targets, False)


def _left_out(
    fit: _Fit,
    weights: Float[np.ndarray, " r"],
    leverages: Float[np.ndarray, " m"],
    targets: Float[np.ndarray, "m t"],
    some: slice | Int[np.ndarray, " s"],
    blocks: Sequence[Int[np.ndarray, "g z"]],
) -> Float[np.ndarray, "m s"]:
    """Return the residuals of some targets when each row, or each group, is left out of the training part."""
    residuals = targets[:, some] - fit.train @ (weights[:, None] * fit.products[:, some])
    left_out = residuals / (1 - leverages)[:, None]
    for rows in blocks:
        part = fit.train[rows]
        hat = (part * weights) @ part.transpose(0, 2, 1) + 1 / len(targets)
        left_out[rows] = np.linalg.solve(np.eye(rows.shape[1]) - hat, residuals[rows])
    return left_out


def _blocks(groups: Int[np.ndarray, " m"] | None) -> list[Int[np.ndarray, "g z"]]:
    """Return the rows of all groups of two rows or more: a table, a group a row, for each size."""
    if groups is None:
        return []
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=groups.min() - 1))
    sizes = np.diff(starts, append=len(groups))
    return [
        order[starts[sizes == size][:, None] + np.arange(size)] for size in np.unique(sizes).tolist() if size > 1
    ]


def standardise(features: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n e"], Float[np.ndarray, " e"]]:
    """Return features that vary, float64, of mean 0 and deviation 1 over all rows, and their deviations.

    Only for the accuracy of what follows: any model here is the same for features in other units.
    """
    values = np.asarray(features, np.float64)
    mean = values.mean(axis=0)
    centred = values - mean
    deviation = centred.std(axis=0)
    # As scikit-learn's StandardScaler: less than this is rounding.
    varies = deviation > 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0, initial=0)
    return centred[:, varies] / deviation[varies], deviation[varies]


def training_scales(
    features: Float[np.ndarray, "n d"], inside: Bool[np.ndarray, "m n"]
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m d"], Bool[np.ndarray, " m"]]:
    """Return mean and deviation of each training part, 1 for a feature that does not vary there.

    Also in which parts a feature varies so little that sums over all rows less those of the test rows would lose
    their digits.
    """
    weights = inside / inside.sum(axis=1, keepdims=True)
    means = weights @ features
    variances = weights @ features**2 - means**2
    small = variances < _NEARLY_CONSTANT
    for part in np.flatnonzero(small.any(axis=1)):
        values = features[np.ix_(inside[part], small[part])]
        deviation = values.std(axis=0)
        constant = deviation <= 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0)
        variances[part, small[part]] = np.where(constant, 1.0, deviation**2)
    return means, np.sqrt(variances), small.any(axis=1)
