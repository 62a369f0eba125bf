"""The linear probe: LayerNorm and one linear layer, trained by gradient steps."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float, Shaped
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from agml_assets.evaluation.probes.axes import row_blocks
from agml_assets.evaluation.probes.labels import encode_labels
from agml_assets.evaluation.probes.training_loop import train

if TYPE_CHECKING:
    import torch

EPSILON = 1e-5
"""Added to the variance by PyTorch's `LayerNorm`."""


class LinearProbe(ClassifierMixin, BaseEstimator):
    """BioBench's linear probe, seeded: LayerNorm, a linear layer, cross-entropy, AdamW, cosine schedule.

    Each vector is brought to mean 0 and variance 1 over its own values, times a learned scale, plus a learned
    shift; then one linear layer. Cross-entropy without class weights; AdamW (Loshchilov and Hutter 2019,
    arXiv:1711.05101) with PyTorch's betas, decay on the weights of the linear layer only; schedule and batches as
    `training_loop.train` says. There is no validation and no early stop. The published recipe draws without a
    seed; here the same features, labels and `random_state` give the same probe on the same kind of machine. It is
    float32 on either device, where the published one uses mixed precision on the GPU.

    Vectors are normalised once, before the training, which takes a float32 copy of them; scale and shift are
    applied to the weights rather than to a batch, so no gradient of the vectors is needed. A step takes a half to
    two thirds of the time of layers one after another, and differs from theirs by rounding alone.

    Args:
        n_steps: Gradient steps; published 10,000.
        batch_size: Examples a step; published 2,048.
        learning_rate: At the first step; published 3e-4. It falls to a hundredth.
        weight_decay: Published 1e-2.
        device: `cpu` or `cuda`; for training alone.
        random_state: Seed of initial weights and order.

    Attributes:
        classes_: Classes, sorted.
        coef_: float32 (K, d), for vectors of mean 0 and variance 1; the learned scale is part of it.
        intercept_: float32 (K,); the learned shift is part of it.
    """

    def __init__(
        self,
        n_steps: int = 10_000,
        batch_size: int = 2048,
        learning_rate: float = 3e-4,
        weight_decay: float = 1e-2,
        device: str = "cpu",
        random_state: int = 17,
    ) -> None:
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device
        self.random_state = random_state

    def fit(self, X: Float[np.ndarray, "n d"], y: Shaped[np.ndarray, " n"]) -> Self:
        """Train.

        Raises:
            ValueError: There is one class only, `n_steps` or `batch_size` is below 1, features are not finite, or
                lengths differ.
            UserError: Training diverged, or there is no such device.
        """
        import torch

        X, y = validate_data(self, X, y, dtype=(np.float32, np.float64))
        self.classes_, codes = encode_labels(y, least=2)

        class ScaledLinear(torch.nn.Module):
            """A linear layer on normalised vectors times a scale, plus a shift."""

            def __init__(self, d: int, k: int) -> None:
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(d))
                self.shift = torch.nn.Parameter(torch.zeros(d))
                self.linear = torch.nn.Linear(d, k)

            def folded(self) -> "tuple[torch.Tensor, torch.Tensor]":
                return self.linear.weight * self.scale, self.linear(self.shift)

            def forward(self, normalised: "torch.Tensor") -> "torch.Tensor":
                return torch.nn.functional.linear(normalised, *self.folded())

        def make() -> "tuple[torch.nn.Module, torch.optim.Optimizer]":
            model = ScaledLinear(X.shape[1], len(self.classes_))
            groups: list[dict[str, Any]] = [
                {"params": [model.linear.weight], "weight_decay": self.weight_decay},
                {"params": [model.scale, model.shift, model.linear.bias], "weight_decay": 0.0},
            ]
            return model, torch.optim.AdamW(groups, lr=self.learning_rate)

        model: Any = train(
            make,
            torch.nn.functional.cross_entropy,
            _normalised(X),
            codes,
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            seed=check_random_state(self.random_state).randint(2**31),
            device=self.device,
        )
        with torch.no_grad():
            self.coef_, self.intercept_ = (one.numpy() for one in model.folded())
        return self

    def predict_proba(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m k"]:
        """Return the probability of each class; rows sum to 1."""
        return softmax(self._logits(X), axis=1)

    def predict(self, X: Float[np.ndarray, "m d"]) -> Shaped[np.ndarray, " m"]:
        """Return the most probable class, the first of equals."""
        codes = self._logits(X).argmax(axis=1)
        return self.classes_[codes]

    def _logits(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m k"]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        logits = np.empty((len(X), len(self.classes_)), dtype=X.dtype)
        for rows in row_blocks(*X.shape):
            centred = X[rows] - X[rows].mean(axis=1, keepdims=True)
            variance = np.square(centred).mean(axis=1, keepdims=True)
            logits[rows] = (centred / np.sqrt(variance + X.dtype.type(EPSILON))) @ self.coef_.T + self.intercept_
        return logits


def _normalised(features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return float32 vectors of mean 0 and variance 1 over their own values, as PyTorch's `layer_norm`."""
    import torch

    normalised = np.empty(features.shape, np.float32)
    for rows in row_blocks(*features.shape):
        block = torch.from_numpy(np.ascontiguousarray(features[rows], dtype=np.float32))
        normalised[rows] = torch.nn.functional.layer_norm(block, block.shape[1:], eps=EPSILON).numpy()
    return normalised
