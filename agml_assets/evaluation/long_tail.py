"""How long the tail of a dataset's classes is: figures of the number of images of each class, nothing else."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from agml_assets.errors import UserError

TAIL_SHARE = 0.9
"""Share of the samples whose classes are counted for the tail mass, as BioBench describes its tasks."""


@dataclass(frozen=True)
class LongTail:
    """Descriptors of the class counts f of n classes that have samples, as BioBench describes its tasks.

    Attributes:
        n_classes: Classes with samples.
        zipf_exponent: Minus the least-squares slope of log f over log rank, largest first; at least 0. Null for
            one class.
        effective_classes: exp of the Shannon entropy of the shares, in [1, n].
        imbalance: Largest count over smallest, at least 1.
        gini: 1 - 2 sum(cumulative shares, smallest first) / (n + 1), in [0, (n - 1) / (n + 1)]; n / (n + 1) of the
            textbooks' Gini coefficient.
        tail_mass: Share of the classes, largest first, that it takes to hold 90 % of the samples, in (0, 1].
    """

    n_classes: int
    zipf_exponent: float | None
    effective_classes: float
    imbalance: float
    gini: float
    tail_mass: float


def describe_long_tail(counts: Int[np.ndarray, " k"]) -> LongTail:
    """Return how unequal classes are.

    Args:
        counts: Samples of each class, in any order; classes without samples are left out.

    Raises:
        UserError: No class has samples, or a count is negative.
    """
    if (counts < 0).any() or not counts.any():
        raise UserError("Class counts must be at least 0, and one of them more.")
    largest_first = np.sort(counts[counts > 0])[::-1].astype(np.float64)
    n, shares = len(largest_first), largest_first / largest_first.sum()
    slope = np.polyfit(np.log(np.arange(1, n + 1)), np.log(largest_first), 1)[0] if n > 1 else None
    # In whole samples, so that a class that ends at exactly 90 % is not missed by rounding.
    held = np.cumsum(largest_first)
    needed = int(np.searchsorted(held, TAIL_SHARE * held[-1] * (1 - 1e-12))) + 1
    return LongTail(
        n_classes=n,
        zipf_exponent=None if slope is None else float(-slope) + 0.0,
        effective_classes=float(np.exp(-(shares * np.log(shares)).sum())),
        imbalance=float(largest_first[0] / largest_first[-1]),
        gini=float(1 - 2 * np.cumsum(shares[::-1]).sum() / (n + 1)),
        tail_mass=needed / n,
    )
