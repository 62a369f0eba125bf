"""k nearest neighbours, exact and with ties broken by rule, also leave-one-out over the training examples."""

from typing import Self

import numpy as np
from jaxtyping import Float, Int, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from agml_assets.errors import UserError
from agml_assets.evaluation.probes.axes import row_blocks
from agml_assets.evaluation.probes.labels import encode_labels


class NearestNeighborsProbe(ClassifierMixin, BaseEstimator):
    """The class that most of the k nearest training examples have; BioBench's Beluga probe with k = 5.

    Distances are Euclidean on the features as they are, votes are equal. Ties follow two rules: of examples at
    the same distance the earlier in the training data is nearer; of classes with as many votes the first in sorted
    order wins. The same neighbours, distances and classes as scikit-learn's `KNeighborsClassifier`, but for the
    order of examples at the same distance, which that leaves open.

    Memory beyond the features, in float64, is below 400 MB for up to four million training examples.

    Args:
        n_neighbors: k, 1 or more.

    Attributes:
        classes_: Classes, sorted.
    """

    def __init__(self, n_neighbors: int = 5) -> None:
        self.n_neighbors = n_neighbors

    def fit(self, X: Float[np.ndarray, "n d"], y: Shaped[np.ndarray, " n"]) -> Self:
        """Keep the training examples.

        Raises:
            ValueError: `n_neighbors` is below 1, features are not finite, or lengths differ.
        """
        if self.n_neighbors < 1:
            raise ValueError(f"n_neighbors = {self.n_neighbors}: give 1 or more.")
        X, y = validate_data(self, X, y, dtype=np.float64)
        self._X = X
        self.classes_, self._codes = encode_labels(y)
        self._squares = np.einsum("nd,nd->n", X, X)
        return self

    def kneighbors(
        self, X: Float[np.ndarray, "m d"] | None = None
    ) -> tuple[Float[np.ndarray, "m k"], Int[np.ndarray, "m k"]]:
        """Return distances and places in the training data of the nearest, nearest first.

        Args:
            X: Features; None for the training examples themselves, none of which is its own neighbour (copies
                of it are).

        Raises:
            UserError: There are fewer training examples to choose from than neighbours asked for.
        """
        check_is_fitted(self)
        left_out = X is None
        queries = self._X if X is None else validate_data(self, X, dtype=np.float64, reset=False)
        available = len(self._X) - left_out
        if self.n_neighbors > available:
            raise UserError(
                f"Each example has {available} training examples to choose {self.n_neighbors} neighbours from. "
                f"Set n_neighbors to {max(available, 1)} or fewer, or train on more examples."
            )
        distances = np.empty((len(queries), self.n_neighbors))
        neighbors = np.empty((len(queries), self.n_neighbors), dtype=np.int64)
        for rows in row_blocks(len(queries), len(self._X)):
            own = np.arange(rows.start, rows.stop) if left_out else None
            distances[rows], neighbors[rows] = self._nearest(queries[rows], own)
        return distances, neighbors

    def predict_proba(self, X: Float[np.ndarray, "m d"] | None) -> Float[np.ndarray, "m k"]:
        """Return the share of votes of each class; of the training examples, left out in turn, if X is None."""
        _, neighbors = self.kneighbors(X)
        votes = np.zeros((len(neighbors), len(self.classes_)))
        np.add.at(votes, (np.arange(len(neighbors))[:, None], self._codes[neighbors]), 1 / self.n_neighbors)
        return votes

    def predict(self, X: Float[np.ndarray, "m d"] | None) -> Shaped[np.ndarray, " m"]:
        """Return the class with most votes; for the training examples, left out in turn, if X is None."""
        _, neighbors = self.kneighbors(X)
        codes = np.sort(self._codes[neighbors], axis=1)
        # Votes of the class at each place; argmax takes the first place of the largest, which is the lowest class.
        votes = (codes[:, :, None] == codes[:, None, :]).sum(axis=2)
        return self.classes_[codes[np.arange(len(codes)), votes.argmax(axis=1)]]

    def predict_leave_one_out(self) -> Shaped[np.ndarray, " n"]:
        """Return the class of every training example by its nearest others."""
        return self.predict(None)

    def _nearest(
        self, queries: Float[np.ndarray, "b d"], own: Int[np.ndarray, " b"] | None
    ) -> tuple[Float[np.ndarray, "b k"], Int[np.ndarray, "b k"]]:
        """Return the k nearest: by a matrix product, then measured exactly among all that rounding leaves open."""
        squares = np.einsum("bd,bd->b", queries, queries)
        rough = self._squares - 2 * (queries @ self._X.T)
        if own is not None:
            rough[np.arange(len(own)), own] = np.inf
        kth = np.partition(rough, self.n_neighbors - 1, axis=1)[:, self.n_neighbors - 1]
        # Bound of the error of a product of d terms (Higham 2002, Accuracy and Stability, section 3.1), twice.
        error = 4 * (queries.shape[1] + 4) * np.finfo(np.float64).eps * (squares + self._squares.max())
        place, candidate = np.nonzero(rough <= (kth + 2 * error)[:, None])
        exact = np.empty(len(place))
        for some in row_blocks(len(place), 2 * queries.shape[1]):
            difference = queries[place[some]] - self._X[candidate[some]]
            exact[some] = np.einsum("cd,cd->c", difference, difference)
        order = np.lexsort((candidate, exact, place))
        first = np.searchsorted(place, np.arange(len(queries)))  # `place` ascends, also in this order
        chosen = order[first[:, None] + np.arange(self.n_neighbors)]
        return np.sqrt(exact[chosen]), candidate[chosen]
