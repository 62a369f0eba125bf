"""Logistic regression of classes on all folds at once, each penalty chosen without the test rows.

All models share the features; they differ in the rows they leave out. What the predictions score is elsewhere.
"""

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits

from agml_assets.compression.exact.ridge import standardise, training_scales

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

PENALTIES = tuple(np.geomspace(1e-4, 1e2, 10).tolist())
"""Per training example: 1 / (C n) of scikit-learn's C. From hardly any to all weights near 0."""

TOLERANCE = 1e-7
"""Root of twice the distance to the optimum of the mean loss, estimated, at which a final fit is done."""

_SEARCH_TOLERANCE = 1e-3  # the loss left out changes by some 1e-5 on the way from here to the optimum
_MAX_NEWTON, _MAX_CONJUGATE, _MAX_HALVINGS = 60, 60, 20
_BLOCK_VALUES = 1 << 20  # logits of models fitted at once: they stay in the cache
_CHUNKS = 4  # at least, so that every core has some
_INNER_STEPS = 2  # a penalty is chosen on the folds up to so many places before and behind
_WORSE_IN_A_ROW = 2  # the search ends where so many weaker penalties in a row lose more
_RANK = 1e-10  # axes with less of the largest variance are left to the penalty


@dataclass(frozen=True)
class LogisticPredictions:
    """Predictions of rows by models that never saw them.

    Attributes:
        predicted: int64 (repeats, examples).
        penalties: Chosen, per training example, float64 (repeats, folds).
    """

    predicted: Int[np.ndarray, "r n"]
    penalties: Float[np.ndarray, "r k"]


def predict_out_of_fold(
    features: Float[np.ndarray, "n d"],
    codes: Int[np.ndarray, " n"],
    n_classes: int,
    folds: Int[np.ndarray, "r n"],
    penalties: Sequence[float] = PENALTIES,
) -> LogisticPredictions:
    """Predict the class of each row by a logistic regression on the other folds, in every repeat.

    The model of a fold is scikit-learn's `make_pipeline(StandardScaler(), LogisticRegression(C=1 / (a n_train),
    class_weight="balanced"))` at its optimum on the training part: binomial for two classes, multinomial for more,
    each example of weight n_train / (K n_class). The penalty a is chosen by cross-validation inside the training
    part: the one with the least log loss, classes weighted alike, of the rows of four other folds, the two before
    and the two behind, each predicted by a model that lacks it as well; of equals the largest. The model for fold
    i inside the training part of fold j is that for fold j inside that of i: 2 k fits serve k folds. Penalties are
    tried from the largest on; where two in a row lose more, none smaller is. Groups that the folds keep whole are
    whole inside as well.

    Models are fitted side by side by Newton's method, its steps by conjugate gradients (Nocedal and Wright 2006,
    Numerical Optimization, section 7.1): a product with the features serves many models.

    Args:
        features: Finite.
        codes: Class of each row, 0..n_classes-1.
        n_classes: Classes, K, 2 or more.
        folds: Of each row in each repeat, 0..k-1, none empty, 3 or more.
        penalties: To choose from, per training example, positive.

    Raises:
        ValueError: A penalty is not positive, there are fewer than three folds, or outside of two folds a class
            has no examples (`lacks_class` tells).
    """
    grid = np.sort(np.asarray(penalties, np.float64))[::-1]
    if not len(grid) or not (grid > 0).all():
        raise ValueError(f"penalties = {penalties!r}: give one or more positive numbers")
    n_folds = int(folds.max()) + 1
    if n_folds < 3 or lacks_class(codes, n_classes, folds):
        raise ValueError(f"{n_folds} folds leave fewer than one fold, or no example of a class, to train on")
    problem = _Problem(features, codes, n_classes)
    losses = _search(problem, folds, grid, n_folds)
    best = losses.argmin(axis=0)  # descending penalties: of equals the largest
    outer = [(repeat, fold) for repeat in range(len(folds)) for fold in range(n_folds)]
    inside = np.stack([folds[repeat] != fold for repeat, fold in outer])
    predicted = np.empty(folds.shape, np.int64)

    def predict(some: slice) -> None:
        at = grid[[best[one] for one in outer[some]]]
        near = _Models(problem, inside[some], np.float32).fit(at, _SEARCH_TOLERANCE, None)
        models = _Models(problem, inside[some], np.float64)
        logits = models.logits(models.fit(at, TOLERANCE, near.astype(np.float64)))
        for place, (repeat, fold) in enumerate(outer[some]):
            out = folds[repeat] == fold
            predicted[repeat, out] = _decide(logits[out, place])

    _side_by_side(predict, problem.chunks(len(outer)))
    return LogisticPredictions(predicted, grid[best])


def lacks_class(codes: Int[np.ndarray, " n"], n_classes: int, folds: Int[np.ndarray, "r n"]) -> bool:
    """Return whether in any repeat any two folds hold all examples of a class."""
    n_folds = int(folds.max()) + 1
    for row in folds:
        counts = np.bincount(codes * n_folds + row, minlength=n_classes * n_folds).reshape(n_classes, n_folds)
        if (np.sort(counts, axis=1)[:, :-2].sum(axis=1) == 0).any():
            return True
    return False


def _search(
    problem: "_Problem", folds: Int[np.ndarray, "r n"], grid: Float[np.ndarray, " a"], n_folds: int
) -> Float[np.ndarray, "a r k"]:
    """Return the loss left out inside each training part at each penalty; infinite where none was tried."""
    pairs = [(repeat, *two) for repeat in range(len(folds)) for two in _neighbours(n_folds)]
    counts = np.stack(
        [
            [np.bincount(problem.codes[row != fold], minlength=problem.n_classes) for fold in range(n_folds)]
            for row in folds
        ]
    )
    shares = 1 / (problem.n_classes * counts)  # weight of an example of each class in a training part

    def search(some: slice) -> Float[np.ndarray, "a r k"]:
        inside = np.stack([(folds[r] != first) & (folds[r] != second) for r, first, second in pairs[some]])
        models = _Models(problem, inside, np.float32)
        lost = np.zeros((len(grid), len(folds), n_folds))
        of_models = np.full((len(grid), len(inside)), np.inf)
        weights = None
        for place, penalty in enumerate(grid):
            weights = models.fit(np.full(len(inside), penalty), _SEARCH_TOLERANCE, weights)
            logits = models.logits(weights)
            of_models[place] = 0
            for model, (repeat, *two) in enumerate(pairs[some]):
                for outer, inner in (two, two[::-1]):
                    rows = np.flatnonzero(folds[repeat] == inner)
                    loss = _losses(logits[rows, model].astype(np.float64), problem.codes[rows])
                    weighted = loss @ shares[repeat, outer][problem.codes[rows]]
                    lost[place, repeat, outer] += weighted
                    of_models[place, model] += weighted
            if (place - of_models.argmin(axis=0) >= _WORSE_IN_A_ROW).all():
                for repeat, *two in pairs[some]:
                    lost[place + 1 :, repeat, two] = np.inf
                break
        return lost

    return np.sum(_side_by_side(search, problem.chunks(len(pairs))), axis=0)


def _neighbours(n_folds: int) -> list[tuple[int, int]]:
    """Return the pairs of folds of which each chooses the other's penalty: those near in the circle of folds."""
    steps = range(1, min(_INNER_STEPS, n_folds // 2) + 1)
    pairs = {
        (min(two), max(two))
        for fold in range(n_folds)
        for step in steps
        for two in [(fold, (fold + step) % n_folds)]
    }
    return sorted(pairs)


def _side_by_side(work: Callable[[slice], _Result], chunks: Sequence[slice]) -> list[_Result]:
    """Do the work on every chunk, in threads; what a chunk is does not depend on the machine."""
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, chunks))


class _Problem:
    """Features and classes that all models share, and the axes along which their curvature is about known."""

    def __init__(self, features: Float[np.ndarray, "n d"], codes: Int[np.ndarray, " n"], n_classes: int) -> None:
        self.features, _ = standardise(features)
        self.codes, self.n_classes = codes, n_classes
        self.columns = 1 if n_classes == 2 else n_classes
        self.targets = (codes[:, None] == np.arange(n_classes)[-self.columns :]).astype(np.float64)
        n, d = self.features.shape
        weights = balanced_weights(codes, n_classes, np.ones((1, n), bool))[0]
        centred = (self.features - weights @ self.features) * np.sqrt(weights)[:, None]
        if n > d:
            squares, axes = np.linalg.eigh(centred.T @ centred)
        else:
            squares, left = np.linalg.eigh(centred @ centred.T)
            axes = centred.T @ (left / np.sqrt(np.maximum(squares, squares[-1] * _RANK)))
        kept = squares > squares[-1] * _RANK
        self.axes, self.variances = axes[:, kept], squares[kept]

    def chunks(self, n_models: int) -> list[slice]:
        size = max(1, min(_BLOCK_VALUES // (len(self.codes) * self.columns), -(-n_models // _CHUNKS)))
        return [slice(first, first + size) for first in range(0, n_models, size)]


def balanced_weights(
    codes: Int[np.ndarray, " n"], n_classes: int, inside: Bool[np.ndarray, "m n"]
) -> Float[np.ndarray, "m n"]:
    """Return weights of the examples of each training part, classes alike, of sum 1."""
    member = codes[:, None] == np.arange(n_classes)
    counts = inside.astype(np.float64) @ member
    return inside / (n_classes * counts[:, codes])


class _Models:
    """Logistic regressions on different parts of the same rows.

    Weights are (d + 1, m, t): of features over their deviation in the model's part and less their weighted mean
    there, the intercept last; t = K, or 1 for two classes.
    """

    def __init__(self, problem: _Problem, inside: Bool[np.ndarray, "m n"], dtype: type[np.floating[Any]]) -> None:
        self._problem, self._dtype = problem, dtype
        self._features: np.ndarray = problem.features.astype(dtype, copy=False)
        self._axes: np.ndarray = problem.axes.astype(dtype, copy=False)
        self._targets = problem.targets.astype(dtype)[:, None, :]
        share = balanced_weights(problem.codes, problem.n_classes, inside)
        _, deviations, _ = training_scales(problem.features, inside)
        self._share: np.ndarray = np.ascontiguousarray(share.T, dtype)[:, :, None]
        self._means = (problem.features.T @ share.T).astype(dtype)[:, :, None]
        self._inverse: np.ndarray = (1 / deviations.T).astype(dtype)[:, :, None]

    def fit(
        self,
        penalties: Float[np.ndarray, " m"],
        tolerance: float,
        start: Float[np.ndarray, "e m t"] | None,
    ) -> Float[np.ndarray, "e m t"]:
        """Return the weights of each model at its penalty."""
        d, m = self._inverse.shape[:2]
        columns = self._problem.columns
        weights = np.zeros((d + 1, m, columns), self._dtype) if start is None else start.copy()
        logits = self._apply(weights, np.arange(m))
        values = self._value(logits, weights, penalties, np.arange(m))
        active = np.arange(m)
        for _ in range(_MAX_NEWTON):
            step, decrement, moved = self._newton_step(
                logits[:, active], weights[:, active], penalties[active], active, tolerance
            )
            going = decrement > tolerance
            if not going.any():
                return weights
            active, step, moved = active[going], step[:, going], moved[:, going]
            length: np.ndarray = np.ones(len(active), self._dtype)
            settled = np.zeros(len(active), bool)
            for _ in range(_MAX_HALVINGS):
                tried = weights[:, active] + length[:, None] * step
                tried_logits = logits[:, active] + length[:, None] * moved
                found = self._value(tried_logits, tried, penalties[active], active)
                settled = found <= values[active] + 10 * np.finfo(self._dtype).eps
                if settled.all():
                    break
                length[~settled] /= 2
            keep = active[settled]
            weights[:, keep], logits[:, keep] = tried[:, settled], tried_logits[:, settled]
            values[keep] = found[settled]
            active = keep
        if len(active):
            logger.warning("%d logistic regressions are not at their optimum.", len(active))
        return weights

    def logits(self, weights: Float[np.ndarray, "e m t"]) -> Float[np.ndarray, "n m t"]:
        """Return the logits of all rows."""
        return self._apply(weights, np.arange(weights.shape[1]))

    def _apply(self, weights: Float[np.ndarray, "e a t"], which: Int[np.ndarray, " a"]) -> np.ndarray:
        own = weights[:-1] * self._inverse[:, which]
        product = (self._features @ own.reshape(len(own), -1)).reshape(-1, *own.shape[1:])
        product += weights[-1] - (self._means[:, which] * own).sum(axis=0)
        return product

    def _gradient(self, residuals: Float[np.ndarray, "n a t"], which: Int[np.ndarray, " a"]) -> np.ndarray:
        """Return the adjoint of `_apply`."""
        _, a, t = residuals.shape
        total = residuals.sum(axis=0)
        product = (self._features.T @ residuals.reshape(len(residuals), -1)).reshape(-1, a, t)
        product -= self._means[:, which] * total
        product *= self._inverse[:, which]
        return np.concatenate([product, total[None]])

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        if logits.shape[2] == 1:
            return 0.5 * (1 + np.tanh(0.5 * logits))
        shifted = np.exp(logits - logits.max(axis=2, keepdims=True))
        shifted /= shifted.sum(axis=2, keepdims=True)
        return shifted

    def _value(
        self, logits: np.ndarray, weights: np.ndarray, penalties: np.ndarray, which: Int[np.ndarray, " a"]
    ) -> Float[np.ndarray, " a"]:
        if logits.shape[2] == 1:
            one = logits[:, :, 0]
            losses = np.maximum(one, 0) - one * self._targets[:, :, 0] + np.log1p(np.exp(-np.abs(one)))
        else:
            top = logits.max(axis=2, keepdims=True)
            total = np.log(np.exp(logits - top).sum(axis=2)) + top[:, :, 0]
            losses = total - (logits * self._targets).sum(axis=2)
        loss = (losses * self._share[:, which, 0]).sum(axis=0, dtype=np.float64)
        return loss + 0.5 * penalties * (weights[:-1] ** 2).sum(axis=(0, 2), dtype=np.float64)

    def _newton_step(
        self,
        logits: np.ndarray,
        weights: np.ndarray,
        penalties: np.ndarray,
        which: Int[np.ndarray, " a"],
        tolerance: float,
    ) -> tuple[np.ndarray, Float[np.ndarray, " a"], np.ndarray]:
        """Return the step, the root of twice the gain it promises before conjugate gradients, and its logits."""
        share = self._share[:, which]
        ridge: np.ndarray = penalties.astype(self._dtype)[:, None]
        probabilities = self._probabilities(logits)
        gradient = self._gradient(share * (probabilities - self._targets), which)
        gradient[:-1] += ridge * weights[:-1]
        bend = share * probabilities * (1 - probabilities)
        mean_bend = np.maximum(
            bend.sum(axis=0).mean(axis=1), 1e-4
        )  # of each model; what it scales is rough anyway

        def curve(direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            along = self._apply(direction, which)
            if along.shape[2] == 1:
                turned = bend * along
            else:
                turned = along - (probabilities * along).sum(axis=2, keepdims=True)
                turned *= share * probabilities
            result = self._gradient(turned, which)
            result[:-1] += ridge * direction[:-1]
            return result, along

        shrink = 1 / (mean_bend * self._problem.variances[:, None] + ridge[:, 0])
        whole = self._axes.shape[1] == len(self._axes)
        if not whole:
            shrink = shrink - 1 / ridge[:, 0]
        shrink = shrink.astype(self._dtype)[:, :, None]

        def precondition(vector: np.ndarray) -> np.ndarray:
            flat = vector[:-1].reshape(len(vector) - 1, -1)
            turned = (self._axes.T @ flat).reshape(-1, *vector.shape[1:]) * shrink
            back = (self._axes @ turned.reshape(len(turned), -1)).reshape(vector[:-1].shape)
            if not whole:
                back += vector[:-1] / ridge
            return np.concatenate([back, (vector[-1] / mean_bend[:, None])[None]])

        def dot(first: np.ndarray, second: np.ndarray) -> np.ndarray:
            return np.einsum("emt,emt->m", first, second)

        residual = -gradient
        direction = precondition(residual)
        size = dot(residual, direction)
        first = np.sqrt(np.maximum(size, 0)).astype(np.float64)
        step, moved = np.zeros_like(weights), np.zeros_like(logits)
        # Looser than the tolerance asks for no more than needed; each step gains at least this factor.
        goal = np.maximum(0.05 * first, 0.3 * tolerance) ** 2
        done = (first <= tolerance) | (size <= 0)
        for _ in range(_MAX_CONJUGATE):
            if done.all():
                break
            curved, along = curve(direction)
            length = np.where(done, 0, size / np.where(done, 1, dot(direction, curved)))[:, None]
            step += length * direction
            moved += length * along
            residual -= length * curved
            preconditioned = precondition(residual)
            new = dot(residual, preconditioned)
            done |= new <= goal
            direction = preconditioned + np.where(done, 0, new / np.where(done, 1, size))[:, None] * direction
            size = new
        return step, first, moved


def _losses(logits: Float[np.ndarray, "p t"], codes: Int[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    if logits.shape[1] == 1:
        return np.logaddexp(0, np.where(codes == 1, -1, 1) * logits[:, 0])
    top = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return total - logits[np.arange(len(codes)), codes]


def _decide(logits: Float[np.ndarray, "p t"]) -> Int[np.ndarray, " p"]:
    """Return the most probable class, the first of equals."""
    return (logits[:, 0] > 0).astype(np.int64) if logits.shape[1] == 1 else logits.argmax(axis=1)
