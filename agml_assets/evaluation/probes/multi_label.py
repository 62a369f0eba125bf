"""A head that answers several yes-or-no questions of one image at once, such as the traits of a fish."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from agml_assets.evaluation.probes.axes import row_blocks
from agml_assets.evaluation.probes.training_loop import train

if TYPE_CHECKING:
    import torch

HIDDEN, DROPOUT = 512, 0.5
"""Of BioBench's FishNet head."""


class MultiLabelHead(ClassifierMixin, BaseEstimator):
    """BioBench's FishNet head, mended: Linear(d, 512), dropout 0.5, Linear(512, L), a probability for each label.

    There is no non-linearity between the layers: the head is a linear map of rank 512 or less, which dropout
    regularises. Binary cross-entropy, the mean over examples and labels; Adam (Kingma and Ba 2015,
    arXiv:1412.6980) with PyTorch's betas; batches as `training_loop.train` says. Four things of the published head
    are defects and not as there:

    * Its schedule (`StepLR`, 20, 0.5) advances at every step, so the rate halves every 20 of 30,000 steps: the
      rates of all steps add up to 40 times the first. Here the rate falls by a cosine over all steps to a
      hundredth, as the linear probe's.
    * Dropout stays active at test, so its predictions are random. Here all units answer, scaled as in training.
    * A label is predicted above a logit of 0.5, a probability of 0.622. Here above a probability of 0.5.
    * Nothing is seeded. Here the same features, labels and `random_state` give the same head on the same kind of
      machine.

    Args:
        n_steps: Gradient steps; published 30,000.
        batch_size: Examples a step; published 1,024.
        learning_rate: At the first step; published 3e-4.
        device: `cpu` or `cuda`; for training alone.
        random_state: Seed of initial weights, order and dropout.

    Attributes:
        classes_: A list of the array (0, 1), one for each label.
        coef_: float32 (L, d), product of both layers.
        intercept_: float32 (L,).
    """

    def __init__(
        self,
        n_steps: int = 30_000,
        batch_size: int = 1024,
        learning_rate: float = 3e-4,
        device: str = "cpu",
        random_state: int = 17,
    ) -> None:
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def fit(self, X: Float[np.ndarray, "n d"], Y: Int[np.ndarray, "n l"]) -> Self:
        """Train.

        Args:
            X: Training features, finite.
            Y: 1 where an example has the label, 0 where it has not.

        Raises:
            ValueError: `Y` holds other values, `n_steps` or `batch_size` is below 1, features are not finite, or
                lengths differ.
            UserError: Training diverged, or there is no such device.
        """
        import torch

        X, Y = validate_data(self, X, Y, dtype=(np.float32, np.float64), multi_output=True)
        if Y.ndim != 2 or not np.isin(Y, (0, 1)).all():
            raise ValueError(
                "Unknown label type: Only binary classification is supported, of any number of labels: give a "
                "table of zeros and ones with a column for each label."
            )
        self.classes_ = [np.arange(2)] * Y.shape[1]

        def make() -> "tuple[torch.nn.Module, torch.optim.Optimizer]":
            model = torch.nn.Sequential(
                torch.nn.Linear(X.shape[1], HIDDEN), torch.nn.Dropout(DROPOUT), torch.nn.Linear(HIDDEN, Y.shape[1])
            )
            return model, torch.optim.Adam(model.parameters(), lr=self.learning_rate)

        model: Any = train(
            make,
            torch.nn.functional.binary_cross_entropy_with_logits,
            X,
            Y.astype(np.float32),
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            seed=check_random_state(self.random_state).randint(2**31),
            device=self.device,
        )
        first, _, second = model
        with torch.no_grad():
            self.coef_ = (second.weight @ first.weight).numpy()
            self.intercept_ = second(first.bias).numpy()
        return self

    def predict_proba(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m l"]:
        """Return the probability of each label, each in [0, 1]."""
        return expit(self._logits(X))

    def predict(self, X: Float[np.ndarray, "m d"]) -> Int[np.ndarray, "m l"]:
        """Return 1 where a label is more probable than not, else 0."""
        return (self._logits(X) > 0).astype(np.int64)

    def _logits(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m l"]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        logits = np.empty((len(X), len(self.classes_)), dtype=X.dtype)
        for rows in row_blocks(*X.shape):
            logits[rows] = X[rows] @ self.coef_.T + self.intercept_
        return logits
