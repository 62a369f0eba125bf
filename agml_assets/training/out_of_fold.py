"""Class probabilities of every image from models that never saw it: cross-validated logistic regression.

The folds are given; which labels look wrong is asked elsewhere. Time is that of some thirty matrix products of
images x dimensions x classes a fold, on the GPU when there is one.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from agml_assets.device import use_device
from agml_assets.errors import UserError

logger = logging.getLogger(__name__)

TOLERANCE = 1e-6
"""Largest gradient at which a fit is done: objective within 1e-8 and probabilities within 1e-4 of the optimum."""

LOOSE_TOLERANCE = 1e-4
"""For fits whose probabilities are averaged over many: within some 1e-3 of the optimum, in half the time."""

_CURVATURE = 0.1
"""Typical p(1 - p) of the softmax, which scales the start of the optimisation; changes its speed only."""

_RANK = 1e-13
"""Directions with less of the largest variance are rounding, or empty because there are fewer images."""

_BLOCK_VALUES = 1 << 22  # logits computed at once, 32 MiB of float64
_MAX_WEIGHTS = 2_000_000  # weights optimised at once; the optimiser keeps some twenty copies
_SMALLEST = float(np.finfo(np.float32).tiny)


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
        UserError: An embedding is not finite; the rows are named.
        ValueError: The arguments have different lengths, or a label is not below `n_classes`.
    """
    check_features(embeddings, labels, folds, n_classes)
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

    Embeddings are prepared once: centred (the intercept takes that up), turned onto their principal axes and
    scaled by the curvature that the objective is expected to have along each, which the penalty undoes. So the
    optimum stays what it was and lies some thirty steps away. Labellings are optimised side by side, as one
    sum of independent objectives: one matrix product serves all.

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

        features = torch.from_numpy(np.ascontiguousarray(embeddings[self._order])).to(device, torch.float64)
        features = features - features.mean(0)
        variances, axes = torch.linalg.eigh(features.T @ features / len(features))
        kept = variances > _RANK * variances[-1:]
        scale = 1 / torch.sqrt(_CURVATURE * variances[kept] + 1 / len(features))
        self._features = features @ (axes[:, kept] * scale)
        self._scale = scale

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
        weights = []
        for done, (start, stop) in enumerate(self._folds, 1):
            train = np.r_[0:start, stop:n]
            begin = None if initial is None else np.repeat(initial[done - 1], n_labellings, axis=1)
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
        from scipy.optimize import minimize

        start, stop = left_out
        n, n_labellings = labels.shape
        n_train = n - (stop - start)
        shape = self._shape(n_labellings)
        block = max(1, _BLOCK_VALUES // (n_labellings * self._n_classes))
        parts = [*_ranges(0, start, block), *_ranges(stop, n, block)]
        targets = torch.from_numpy(labels).to(self._device)[:, :, None]

        seen = np.zeros(shape[1:], dtype=bool)
        for rows in parts:
            seen[np.arange(n_labellings), labels[rows]] = True
        absent = torch.from_numpy(np.where(seen, 0.0, -np.inf)).to(self._device)
        # One weight vector w for two classes is the pair (-w/2, w/2), of half its squared length.
        strength = np.where(seen.sum(axis=1) == 2, 2.0, 1.0) / n_train
        penalty = self._scale[:, None, None] ** 2 * torch.from_numpy(strength).to(self._device)[:, None]

        def logits(rows: slice, weights: Any) -> Any:
            features, flat = self._features[rows], weights.reshape(shape[0], -1)
            return torch.addmm(flat[-1], features, flat[:-1]).reshape(-1, *shape[1:]) + absent

        def objective(flat: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
            weights = torch.from_numpy(flat).to(self._device).reshape(shape)
            gradient = torch.zeros_like(weights)
            penalised = penalty * weights[:-1]
            value = 0.5 * (penalised * weights[:-1]).sum()
            for rows in parts:
                residuals = torch.log_softmax(logits(rows, weights), dim=2)
                value -= residuals.gather(2, targets[rows]).sum() / n_train
                residuals.exp_().scatter_add_(2, targets[rows], -torch.ones_like(residuals[:, :, :1]))
                gradient[:-1] += (self._features[rows].T @ residuals.flatten(1)).reshape(-1, *shape[1:])
                gradient[-1] += residuals.sum(0)
            gradient /= n_train
            gradient[:-1] += penalised
            return value.item(), gradient.cpu().numpy().ravel()

        options = {"gtol": tolerance, "ftol": 0.0, "maxiter": 10_000, "maxfun": 100_000, "maxls": 50}
        begin = np.zeros(shape) if initial is None else np.where(seen, initial, 0.0)
        result = minimize(objective, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
        steepest = float(np.abs(result.jac).max())
        if steepest > 10 * tolerance:
            logger.warning("A logistic regression ended at a gradient of %.1e: %s", steepest, result.message)
        fitted = torch.from_numpy(result.x).to(self._device).reshape(shape)
        predicted = np.empty((stop - start, *shape[1:]), dtype=np.float32)
        for rows in _ranges(start, stop, block):
            found = torch.softmax(logits(rows, fitted), dim=2).cpu().numpy()
            predicted[rows.start - start : rows.stop - start] = np.where(seen, np.maximum(found, _SMALLEST), 0.0)
        return predicted, result.x.reshape(shape)


def _ranges(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))
