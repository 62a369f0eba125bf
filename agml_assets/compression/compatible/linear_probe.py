"""NeuCo-Bench's linear probe, all folds of a task trained as one: weights (folds, d), gathered mini-batches.

Every fold has its own weights, gradients, moments and order of samples, so it is what training it alone would be.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, Float64, Int64

from agml_assets.compression.compatible.config import SEED, LinearParams
from agml_assets.compression.compatible.scores import score_outputs
from agml_assets.compression.compatible.splits import Splits
from agml_assets.compression.labels import Kind

if TYPE_CHECKING:
    import torch

_BATCH_BYTES = 2**26
"""Largest gathered mini-batch of all folds together; more folds are trained in several blocks."""


@dataclass(frozen=True)
class LinearProbe:
    """A linear probe: x W + b; of a classification the logit of class 1.

    Attributes:
        weight: float32 (d,).
        bias: Its constant.
    """

    weight: Float32[np.ndarray, " d"]
    bias: float

    def outputs(self, vectors: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, " n"]:
        """Return what it says of each row."""
        return vectors @ self.weight + np.float32(self.bias)


@dataclass(frozen=True)
class TrainedFolds:
    """What all folds of a task came to.

    Attributes:
        scores: Metric on the test split after each epoch.
        train_loss: Mean loss of each epoch's mini-batches, as they were met.
        test_loss: Loss on the test split after each epoch.
        best: Probe of each fold after its best epoch.
    """

    scores: Float64[np.ndarray, "e f"]
    train_loss: Float64[np.ndarray, "e f"]
    test_loss: Float64[np.ndarray, "e f"]
    best: tuple[LinearProbe, ...]

    @property
    def fold_scores(self) -> Float64[np.ndarray, " f"]:
        """Best score of each fold over the epochs, by its test split as published; NaN where it has none."""
        scored = np.where(np.isnan(self.scores), -np.inf, self.scores).max(axis=0)
        return np.where(np.isnan(self.scores).all(axis=0), np.nan, scored)


def train_folds(
    vectors: Float32[np.ndarray, "n d"],
    targets: Float32[np.ndarray, " n"],
    kind: Kind,
    splits: Splits,
    params: LinearParams,
    task: str,
    device: str = "cpu",
) -> TrainedFolds:
    """Train a linear probe on every fold and score it after every epoch.

    Linear(d, 1), PyTorch's initial weights; AdamW with PyTorch's defaults (betas 0.9 and 0.999, decay 0.01, of
    the bias as well); mean squared error, or binary cross-entropy of the logit. Training is seeded by task and
    fold alone: other tasks and further folds change nothing.

    Args:
        vectors: Finite embeddings.
        targets: Labels; 0 and 1 of a classification.
        kind: Of the labels.
        splits: Rows of each fold.
        params: Batch size, epochs, learning rate.
        task: Name of the task, for the seeds.
        device: torch device.
    """
    import torch

    n_folds, n_train = splits.train.shape
    block = max(1, _BATCH_BYTES // (4 * vectors.shape[1] * min(params.batch_size, n_train)))
    on_device = torch.from_numpy(np.ascontiguousarray(vectors, np.float32)).to(device)
    goals = torch.from_numpy(np.ascontiguousarray(targets, np.float32)).to(device)
    parts = [
        _train_block(on_device, goals, kind, splits, range(start, min(start + block, n_folds)), params, task)
        for start in range(0, n_folds, block)
    ]
    return TrainedFolds(
        np.concatenate([part.scores for part in parts], axis=1),
        np.concatenate([part.train_loss for part in parts], axis=1),
        np.concatenate([part.test_loss for part in parts], axis=1),
        tuple(probe for part in parts for probe in part.best),
    )


def train_on_all(
    vectors: Float32[np.ndarray, "n d"],
    targets: Float32[np.ndarray, " n"],
    kind: Kind,
    params: LinearParams,
    task: str,
    device: str = "cpu",
) -> LinearProbe:
    """Return a probe trained on all rows in their order, as the published one that is stored."""
    import torch

    on_device = torch.from_numpy(np.ascontiguousarray(vectors, np.float32)).to(device)
    goals = torch.from_numpy(np.ascontiguousarray(targets, np.float32)).to(device)
    rng = _generator(task, "all rows")
    order = np.arange(len(vectors))[None]
    *_, (weight, bias, _) = _epochs(on_device, goals, kind, [rng], lambda: order, params)
    return LinearProbe(weight[0].cpu().numpy(), float(bias[0]))


def _train_block(
    vectors: "torch.Tensor",
    targets: "torch.Tensor",
    kind: Kind,
    splits: Splits,
    folds: range,
    params: LinearParams,
    task: str,
) -> TrainedFolds:
    import torch

    chosen = slice(folds.start, folds.stop)
    train, test = splits.train[chosen], splits.test[chosen]
    rngs = [_generator(task, f"fold {fold}") for fold in folds]
    rows = torch.from_numpy(test).to(vectors.device)
    goals = targets[rows]
    goals_here = goals.cpu().numpy()
    best = np.full(len(folds), -np.inf)
    best_weight = torch.empty(len(folds), vectors.shape[1], device=vectors.device)
    best_bias = torch.empty(len(folds), device=vectors.device)
    scores, train_losses, test_losses = [], [], []

    def orders() -> Int64[np.ndarray, "f m"]:
        return np.stack([rng.permutation(one) for rng, one in zip(rngs, train, strict=True)])

    for weight, bias, loss in _epochs(vectors, targets, kind, rngs, orders, params):
        outputs = torch.gather(weight @ vectors.T, 1, rows) + bias[:, None]
        test_losses.append(_loss(kind, outputs, goals).mean(dim=1).cpu().numpy())
        train_losses.append(loss.cpu().numpy())
        score = score_outputs(kind, outputs.cpu().numpy(), goals_here)
        scores.append(np.where(torch.isfinite(outputs).all(dim=1).cpu().numpy(), score, np.nan))
        improved = np.nan_to_num(scores[-1], nan=-np.inf) > best
        if len(scores) == 1:  # also of folds that never have a score
            improved[:] = True
        best = np.fmax(best, scores[-1])
        mask = torch.from_numpy(improved).to(vectors.device)
        best_weight[mask], best_bias[mask] = weight[mask], bias[mask]
    probes = zip(best_weight.cpu().numpy(), best_bias.cpu().numpy(), strict=True)
    return TrainedFolds(
        np.array(scores, np.float64),
        np.array(train_losses, np.float64),
        np.array(test_losses, np.float64),
        tuple(LinearProbe(weight, float(bias)) for weight, bias in probes),
    )


def _epochs(
    vectors: "torch.Tensor",
    targets: "torch.Tensor",
    kind: Kind,
    rngs: list[np.random.Generator],
    orders: Callable[[], Int64[np.ndarray, "f m"]],
    params: LinearParams,
) -> Iterator[tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]]:
    """Yield weights (f, d), biases (f,) and the mean loss (f,) of its mini-batches after every epoch."""
    import torch

    device, dimensions = vectors.device, vectors.shape[1]
    bound = 1 / math.sqrt(dimensions)  # torch.nn.Linear.reset_parameters, of weight and bias
    drawn = np.stack([rng.uniform(-bound, bound, dimensions + 1) for rng in rngs]).astype(np.float32)
    weight = torch.from_numpy(drawn[:, :-1].copy()).to(device).requires_grad_()
    bias = torch.from_numpy(drawn[:, -1].copy()).to(device).requires_grad_()
    # AdamW works element by element: one optimizer of all folds is one of each.
    optimizer = torch.optim.AdamW([weight, bias], lr=params.learning_rate, fused=True)
    for _ in range(params.epochs):
        order = torch.from_numpy(orders()).to(device)
        total = torch.zeros(len(rngs), device=device)
        steps = 0
        with torch.no_grad():
            for rows in order.split(params.batch_size, dim=1):
                gathered = torch.index_select(vectors, 0, rows.reshape(-1)).view(*rows.shape, dimensions)
                goals = targets[rows]
                outputs = torch.bmm(weight[:, None], gathered.transpose(1, 2))[:, 0] + bias[:, None]
                total += _loss(kind, outputs, goals).mean(dim=1)
                # Of both losses' means over the batch; the folds' losses are added up, so each has its own.
                slope = 2 * (outputs - goals) if kind == "regression" else torch.sigmoid(outputs) - goals
                slope /= rows.shape[1]
                weight.grad = torch.bmm(slope[:, None], gathered)[:, 0]
                bias.grad = slope.sum(dim=1)
                optimizer.step()
                steps += 1
        yield weight.detach(), bias.detach(), total / steps


def _loss(kind: Kind, outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
    import torch

    if kind == "regression":
        return (outputs - targets) ** 2
    return torch.nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def _generator(task: str, what: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{task}\0{what}".encode()).digest()
    return np.random.default_rng([SEED, int.from_bytes(digest[:8])])
