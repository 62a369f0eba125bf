"""Class probabilities of every image from models that never saw it: cross-validated logistic regression.

The folds are given; which labels look wrong is asked elsewhere. Time is that of some thirty matrix products of
images x dimensions x classes a fold, on the GPU when there is one.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from agml_assets.device import use_device
from agml_assets.errors import UserError
from agml_assets.memory import require_memory

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

TOLERANCE = 3e-6
"""Largest gradient, in units of the root of the curvature, at which a fit is done: objective within 1e-8 and
probabilities within 1e-4 of the optimum."""

LOOSE_TOLERANCE = 2e-4
"""For fits whose probabilities are averaged over many: within some 1e-3 of the optimum."""

_FIRST_TOLERANCE = 3e-5
"""Where the logits are computed afresh: float32 resolves a step from logits, but not from the start to the end."""

_ROUGH_TOLERANCE = 2e-3
"""Near enough to the optimum to tell its curvature."""

_CURVATURE = 0.1
"""Typical p(1 - p) of the softmax, before it is known; like the other scales it changes the speed only."""

_RANK = 1e-13
"""Directions with less of the largest variance are rounding, or empty because there are fewer images."""

_BLOCK_VALUES = 1 << 22  # logits computed at once, 32 MiB of float64
_BLOCK_ROWS = 2048  # images at once: their features stay in the cache from one product to the other
_MAX_WEIGHTS = 2_000_000  # weights optimised at once; the optimiser keeps some twenty copies
_SMALLEST = float(np.finfo(np.float32).tiny)

# Measured of confident learning over the result, which takes more than the fits: copies in float64, and tables of
# class by class.
_BYTES_PER_PROBABILITY, _BYTES_PER_CLASS_PAIR = 30, 16


def stratified_folds(labels: Int[np.ndarray, " n"], n_folds: int, seed: int = 42) -> Int[np.ndarray, " n"]:
    """Assign every image to a fold so that each class spreads over the folds.

    The published assignment, scikit-learn's `StratifiedKFold(n_folds, shuffle=True, random_state=seed)`,
    wherever that has one. Where every class has fewer images than folds it has none: then the images, in order
    of class and shuffled within, take the folds in turn. Fewer images than folds make as many folds as images.

    Args:
        labels: Class of each image.
        n_folds: Folds wanted, at least 2.
        seed: Of the shuffle.

    Returns:
        int64 fold of each image, 0..n_folds-1.
    """
    if len(labels) == 0:
        return np.zeros(0, dtype=np.int64)
    n_folds = min(n_folds, len(labels))
    folds = np.empty(len(labels), dtype=np.int64)
    if np.unique(labels, return_counts=True)[1].max() >= n_folds >= 2:
        from sklearn.model_selection import StratifiedKFold

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
            for fold, (_, held_out) in enumerate(splitter.split(np.zeros((len(labels), 1)), labels)):
                folds[held_out] = fold
        return folds
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    folds[by_class] = np.arange(len(labels)) % n_folds
    return folds


def out_of_fold(
    embeddings: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    folds: Int[np.ndarray, " n"],
    n_classes: int,
    progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, "n k"]:
    """Return each image's class probabilities by a model trained on all other folds.

    The model is scikit-learn's `LogisticRegression(C=1.0)` at its optimum: multinomial, for two classes
    binomial; L2 penalty on the weights, none on the intercept; features as they are. Its default stops before
    the optimum, some 0.02 off in probability.

    Args:
        embeddings: Features of each image, all finite.
        labels: Class of each image, 0..n_classes-1.
        folds: Fold of each image; any integers.
        n_classes: Declared classes, K.
        progress: Called with the fits done and all fits.

    Returns:
        float32, rows sum to 1. A probability is exactly 0 where, and only where, the class has no image in
        the other folds. One class in the other folds has probability 1. Where there are no other folds, the
        class shares of all images stand in for a model.

    Raises:
        UserError: An embedding is not finite; the rows are named. Or so many images and classes do not fit into
            memory.
        ValueError: The arguments have different lengths, or a label is not below `n_classes`.
    """
    check_features(embeddings, labels, folds, n_classes)
    require_memory(
        _BYTES_PER_PROBABILITY * len(labels) * n_classes + _BYTES_PER_CLASS_PAIR * n_classes**2,
        f"The class probabilities of {len(labels)} images in {n_classes} classes",
        "Run this on a machine with more, or leave out phase 3 (`phases: [1, 2]` in the registry).",
    )
    probabilities = np.zeros((len(labels), n_classes), dtype=np.float32)
    if len(labels):
        present, compact = np.unique(labels, return_inverse=True)
        with use_device("out-of-fold probabilities") as device:
            regression = CrossFittedRegression(embeddings, folds, len(present), device)
            probabilities[:, present] = regression.fit(compact[None], progress=progress).probabilities[0]
    return probabilities


def check_features(
    embeddings: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    folds: Int[np.ndarray, " n"],
    n_classes: int,
) -> None:
    """Raise where `out_of_fold` cannot be computed: see there."""
    if not len(embeddings) == len(labels) == len(folds):
        raise ValueError(f"{len(embeddings)} embeddings, {len(labels)} labels and {len(folds)} folds differ")
    if len(labels) and (labels.min() < 0 or labels.max() >= n_classes):
        raise ValueError(f"labels run from {labels.min()} to {labels.max()}, with {n_classes} classes")
    # A sum over a row is finite only where all of it is, unless it overflows float64.
    bad = np.flatnonzero(~np.isfinite(embeddings.sum(axis=1, dtype=np.float64)))
    if len(bad):
        more = " and more" if len(bad) > 10 else ""
        raise UserError(
            f"{len(bad)} of {len(labels)} embeddings are not finite: rows {bad[:10].tolist()}{more}.\n"
            "Embed the dataset again, with embed_precision 'float32' where it was another."
        )


@dataclass(frozen=True)
class Fit:
    """Regressions of one or more labellings.

    Attributes:
        probabilities: float32 (labellings, images, classes), out of fold.
        weights: By fold, float64 (features + 1, labellings, classes) in the regression's own coordinates; a
            start for other labellings of the same images.
    """

    probabilities: Float[np.ndarray, "r n k"]
    weights: list[Float[np.ndarray, "e r k"]]


class CrossFittedRegression:
    """Logistic regressions on the same images and folds, for any number of labellings.

    Embeddings are prepared once: centred (the intercept takes that up) and turned onto their principal axes. Each
    weight is optimised in units of one over the root of its own curvature, which a first rough fit tells, so that
    the optimum lies some fifteen steps away. Labellings are optimised side by side, as one sum of independent
    objectives: one matrix product serves all.

    Args:
        embeddings: Features of each image, all finite.
        folds: Fold of each image.
        n_classes: Classes of the labellings.
        device: Where to compute, `cpu` or `cuda`.
    """

    def __init__(
        self, embeddings: Float[np.ndarray, "n d"], folds: Int[np.ndarray, " n"], n_classes: int, device: str
    ) -> None:
        import torch

        self._n_classes = n_classes
        self._device = device
        # Images by fold: what is left out is one range of rows, what is trained on lies before and after it.
        self._order = np.argsort(folds, kind="stable")
        bounds = np.flatnonzero(np.diff(folds[self._order], prepend=np.nan, append=np.nan) != 0)
        self._folds = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

        self._features, variances = _principal_components(embeddings, self._order, device)
        curvature = torch.cat([variances, variances.new_ones(1)]) * _CURVATURE + 1 / len(embeddings)
        self._coordinates = _Coordinates(1 / torch.sqrt(curvature)[:, None, None], variances.new_zeros(1))
        self._guessed = True

    @property
    def labellings_at_once(self) -> int:
        """How many labellings `fit` can take without using too much memory; at least 1."""
        return max(1, _MAX_WEIGHTS // ((self._features.shape[1] + 1) * self._n_classes))

    def fit(
        self,
        labellings: Int[np.ndarray, "r n"],
        initial: list[Float[np.ndarray, "e 1 k"]] | None = None,
        tolerance: float = TOLERANCE,
        progress: Callable[[int, int], None] | None = None,
    ) -> Fit:
        """Fit every labelling on all folds but one, for each fold, and predict that one.

        Args:
            labellings: Class of each image, a row per labelling.
            initial: Weights of a labelling much like these, to start from.
            tolerance: Largest gradient at which a fit is done.
            progress: Called with the fits done and all fits.
        """
        n_labellings, n = labellings.shape
        ordered = np.ascontiguousarray(labellings[:, self._order].T)
        probabilities = np.empty((n_labellings, n, self._n_classes), dtype=np.float32)
        weights: list[Float[np.ndarray, "e r k"]] = []
        for done, (start, stop) in enumerate(self._folds, 1):
            train = np.r_[0:start, stop:n]
            begin = None
            if initial is not None:
                begin = np.repeat(initial[done - 1], n_labellings, axis=1)
            elif weights:
                begin = weights[-1]  # the fold before shares most of the images
            if len(train):
                predicted, fitted = self._fit_and_predict(ordered, (start, stop), begin, tolerance)
            else:
                predicted, fitted = self._shares(ordered), np.zeros(self._shape(n_labellings))
            probabilities[:, self._order[start:stop]] = predicted.transpose(1, 0, 2)
            weights.append(fitted)
            if progress is not None:
                progress(done * n_labellings, len(self._folds) * n_labellings)
        return Fit(probabilities, weights)

    def _shape(self, n_labellings: int) -> tuple[int, int, int]:
        return self._features.shape[1] + 1, n_labellings, self._n_classes

    def _shares(self, labels: Int[np.ndarray, "n r"]) -> Float[np.ndarray, "n r k"]:
        counts = np.stack([np.bincount(column, minlength=self._n_classes) for column in labels.T])
        return np.broadcast_to(counts / len(labels), (len(labels), *counts.shape))

    def _fit_and_predict(
        self,
        labels: Int[np.ndarray, "n r"],
        left_out: tuple[int, int],
        initial: Float[np.ndarray, "e r k"] | None,
        tolerance: float,
    ) -> tuple[Float[np.ndarray, "m r k"], Float[np.ndarray, "e r k"]]:
        import torch

        problem = _Problem(self._features, labels, left_out, self._n_classes)
        begin = np.zeros(problem.shape) if initial is None else np.where(problem.seen, initial, 0.0)
        weights = torch.from_numpy(begin).to(self._device)
        if self._guessed:
            weights, _ = problem.descend(weights, self._coordinates, _ROUGH_TOLERANCE)
            self._coordinates, self._guessed = problem.coordinates(weights), False
        for goal in sorted({max(tolerance, _FIRST_TOLERANCE), tolerance}, reverse=True):
            weights, steepest = problem.descend(weights, self._coordinates, goal)
        if steepest > 10 * tolerance:
            logger.warning("A logistic regression ended at a gradient of %.1e.", steepest)
        return problem.predict(weights), weights.cpu().numpy()


@dataclass(frozen=True)
class _Coordinates:
    """What the optimisation takes for a weight: so that the curvature is about 1 along each, and apart.

    Attributes:
        units: One over the root of the curvature along each weight and intercept.
        centres: Where each class is undecided, on average: intercepts are those there, not at the origin.
    """

    units: "Float[torch.Tensor, 'e 1 k']"
    centres: "Float[torch.Tensor, 'd 1 k']"

    def to_weights(self, point: "Float[torch.Tensor, 'e r k']") -> "Float[torch.Tensor, 'e r k']":
        weights = point * self.units
        weights[-1] -= (self.centres * weights[:-1]).sum(0)
        return weights

    def to_slope(self, gradient: "Float[torch.Tensor, 'e r k']") -> "Float[torch.Tensor, 'e r k']":
        """Return the gradient along the coordinates from that along the weights."""
        slope = gradient.clone()
        slope[:-1] -= self.centres * gradient[-1]
        return slope * self.units


class _Problem:
    """The regressions of some labellings on all images but those of one fold.

    Attributes:
        shape: Of the weights: features and the intercept, labellings, classes.
        seen: Which classes each labelling has in the other folds.
    """

    def __init__(
        self,
        features: "Float[torch.Tensor, 'n e']",
        labels: Int[np.ndarray, "n r"],
        left_out: tuple[int, int],
        n_classes: int,
    ) -> None:
        import torch

        self._features, self._left_out = features, left_out
        n, n_labellings = labels.shape
        start, stop = left_out
        self._n_train = n - (stop - start)
        self.shape = (features.shape[1] + 1, n_labellings, n_classes)
        self._block = max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // (n_labellings * n_classes)))
        self._parts = [*_ranges(0, start, self._block), *_ranges(stop, n, self._block)]
        self._targets = torch.from_numpy(labels).to(features.device)[:, :, None]
        self.seen = np.zeros(self.shape[1:], dtype=bool)
        for rows in self._parts:
            self.seen[np.arange(n_labellings), labels[rows]] = True
        absent = np.where(self.seen, 0.0, -np.inf).astype(np.float32)
        self._absent = torch.from_numpy(absent).to(features.device)
        # One weight vector w for two classes is the pair (-w/2, w/2), of half its squared length.
        strength = np.where(self.seen.sum(axis=1) == 2, 2.0, 1.0) / self._n_train
        self._penalty = torch.from_numpy(strength).to(features.device)[:, None]

    def descend(
        self, weights: "Float[torch.Tensor, 'e r k']", coordinates: _Coordinates, goal: float
    ) -> "tuple[Float[torch.Tensor, 'e r k'], float]":
        """Return weights where no slope, along the given coordinates, is above the goal, and the largest slope.

        Products are in float32, half the cost of float64: those of the step from where the descent begins, so that
        their rounding shrinks with the step.
        """
        import torch
        from scipy.optimize import minimize
        from threadpoolctl import threadpool_limits

        begin = [self._logits(rows, weights).float() for rows in self._parts]

        def step_to(flat: Float[np.ndarray, " p"]) -> torch.Tensor:
            return coordinates.to_weights(torch.from_numpy(flat).to(weights.device).reshape(self.shape))

        def objective(flat: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
            value, gradient = self._value_and_gradient(weights, begin, step_to(flat))
            return value, coordinates.to_slope(gradient).cpu().numpy().ravel()

        options = {"gtol": goal, "ftol": 0.0, "maxiter": 10_000, "maxfun": 100_000, "maxls": 50}
        # SciPy's threads gain nothing on vectors so short, and stand in the way of PyTorch's.
        with threadpool_limits(1, user_api="blas"):
            result = minimize(objective, np.zeros(weights.numel()), jac=True, method="L-BFGS-B", options=options)
        return weights + step_to(result.x), float(np.abs(result.jac).max())

    def coordinates(self, weights: "Float[torch.Tensor, 'e r k']") -> _Coordinates:
        """Return those that the curvature at these weights, the mean over labellings, asks for."""
        import torch

        n_features, n_classes = self._features.shape[1], self.shape[2]
        total = torch.zeros(n_classes, dtype=torch.float64, device=weights.device)
        first, second = (total.new_zeros(n_features, n_classes) for _ in range(2))
        for rows in self._parts:
            probabilities = torch.softmax(self._logits(rows, weights.float()), dim=2)
            undecided = (probabilities * (1 - probabilities)).mean(1)
            total += undecided.sum(0, dtype=torch.float64)
            first += self._features[rows].T @ undecided
            second += self._features[rows].square().T @ undecided
        centres = first / total.clamp(min=_SMALLEST)
        curvature = torch.cat([(second - centres * first).clamp(min=0), total[None]])
        return _Coordinates(1 / torch.sqrt((curvature + 1) / self._n_train)[:, None], centres[:, None])

    def predict(self, weights: "Float[torch.Tensor, 'e r k']") -> Float[np.ndarray, "m r k"]:
        """Return the probabilities of the images left out; 0 for classes not seen, and for no others."""
        import torch

        found = [
            torch.softmax(self._logits(rows, weights), dim=2).float().cpu().numpy()
            for rows in _ranges(*self._left_out, self._block)
        ]
        return np.where(self.seen, np.maximum(np.concatenate(found), _SMALLEST), np.float32(0))

    def _logits(self, rows: slice, weights: "Float[torch.Tensor, 'e r k']") -> "Float[torch.Tensor, 'b r k']":
        import torch

        features, flat = self._features[rows].to(weights.dtype), weights.reshape(self.shape[0], -1)
        return torch.addmm(flat[-1], features, flat[:-1]).reshape(-1, *self.shape[1:]).add_(self._absent)

    def _value_and_gradient(
        self,
        weights: "Float[torch.Tensor, 'e r k']",
        begin: "list[Float[torch.Tensor, 'b r k']]",
        step: "Float[torch.Tensor, 'e r k']",
    ) -> "tuple[float, Float[torch.Tensor, 'e r k']]":
        """Return the mean loss with its penalty, and the gradient, a step away from weights of known logits."""
        import torch

        moved = (weights + step)[:-1]
        value = 0.5 * (self._penalty * moved * moved).sum()
        gradient = torch.zeros_like(weights)
        rounded = step[:-1].flatten(1).float()
        for rows, logits in zip(self._parts, begin, strict=True):
            change = (self._features[rows] @ rounded).reshape(logits.shape) + step[-1]
            residuals = torch.log_softmax(logits + change, dim=2)
            targets = self._targets[rows]
            value -= residuals.gather(2, targets).sum() / self._n_train
            residuals.exp_().scatter_add_(2, targets, -torch.ones_like(residuals[:, :, :1]))
            # This way round the product is faster.
            product = residuals.flatten(1).float().T @ self._features[rows]
            gradient[:-1] += product.T.reshape(-1, *self.shape[1:])
            gradient[-1] += residuals.sum(0)
        gradient /= self._n_train
        gradient[:-1] += self._penalty * moved
        return value.item(), gradient


def _principal_components(
    embeddings: Float[np.ndarray, "n d"], order: Int[np.ndarray, " n"], device: str
) -> "tuple[Float[torch.Tensor, 'n e'], Float[torch.Tensor, ' e']]":
    """Return the embeddings, in order, along their principal axes, float32, and their variances, float64.

    Computed in float64 by blocks, so that of many images only the result is held.
    """
    import torch

    n, d = embeddings.shape
    mean = embeddings.mean(axis=0, dtype=np.float64)

    def centred(rows: slice) -> Any:
        return torch.from_numpy(embeddings[order[rows]].astype(np.float64) - mean).to(device)

    if n <= d:
        # Few images have few axes, the left singular vectors.
        points, lengths, _ = torch.linalg.svd(centred(slice(0, n)), full_matrices=False)
        variances = lengths.square() / n
        kept = variances > _RANK * variances.max()
        return (points[:, kept] * lengths[kept]).float(), variances[kept]
    blocks = list(_ranges(0, n, max(1, _BLOCK_VALUES // d)))
    scatter = torch.zeros(d, d, dtype=torch.float64, device=device)
    for rows in blocks:
        block = centred(rows)
        scatter.addmm_(block.T, block)
    variances, axes = torch.linalg.eigh(scatter / n)
    kept = variances > _RANK * variances[-1:]
    return torch.cat([(centred(rows) @ axes[:, kept]).float() for rows in blocks]), variances[kept]


def _ranges(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))
