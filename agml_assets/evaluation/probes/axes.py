"""Principal axes of centred features, by the smaller of the two Gram matrices.

An L2 penalty is the same in any rotated coordinates, so a regression may work along these, where features are
uncorrelated.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_BLOCK_VALUES = 1 << 22  # float64 copies of features made at once, 32 MiB
_RANK = 1e-13
"""Axes with less of the largest variance are rounding, or empty because there are fewer examples."""


@dataclass(frozen=True)
class PrincipalAxes:
    """Coordinates in which features are uncorrelated.

    Attributes:
        mean: float64 (d,), of the examples.
        axes: float64 (d, r), orthonormal columns; r is the rank of the centred features.
        squares: float64 (r,), positive and ascending: sum of squared coordinates of the examples along each axis.
    """

    mean: Float[np.ndarray, " d"]
    axes: Float[np.ndarray, "d r"]
    squares: Float[np.ndarray, " r"]

    def coordinates(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m r"]:
        """Return the centred features along the axes, float64."""
        return (X - self.mean) @ self.axes


def principal_axes(X: Float[np.ndarray, "n d"]) -> PrincipalAxes:
    """Find the axes by one eigendecomposition of d x d, or of n x n where there are fewer examples."""
    n, d = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    if n <= d:
        centred = X - mean
        squares, left = np.linalg.eigh(centred @ centred.T)
        kept = squares > _RANK * squares[-1]
        axes = centred.T @ (left[:, kept] / np.sqrt(squares[kept]))
        return PrincipalAxes(mean, axes, squares[kept])
    scatter = np.zeros((d, d))
    for rows in row_blocks(n, d):
        centred = X[rows] - mean
        scatter += centred.T @ centred
    squares, axes = np.linalg.eigh(scatter)
    kept = squares > _RANK * squares[-1]
    return PrincipalAxes(mean, axes if kept.all() else axes[:, kept], squares[kept])


def row_blocks(n: int, values_per_row: int) -> list[slice]:
    """Cut n rows into blocks of `block_rows`."""
    size = block_rows(values_per_row)
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


def block_rows(values_per_row: int) -> int:
    """Return how many rows hold some four million values; at least 1."""
    return max(1, _BLOCK_VALUES // max(1, values_per_row))
