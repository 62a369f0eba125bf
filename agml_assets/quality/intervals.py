"""Intervals of figures: resampled groups of copies, or Wilson's for independent proportions.

Which figure is which kind is said by the metrics; here are the one set of resamples that all share, and the one
shape in which an interval is reported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

LEVEL = 0.95
RESAMPLES = 1000
MIN_GROUPS = 20
"""Fewer independent groups give no interval that deserves the name."""

_SEED = 42
_Z = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
_BLOCK_VALUES = 1 << 22  # counts drawn at once


@dataclass(frozen=True)
class Resamples:
    """The resamples of a dataset's groups of copies: the same for every figure of the dataset.

    A resample draws as many groups as there are, with replacement; images of one group come together, as
    copies are no independent evidence (cluster bootstrap; Davison and Hinkley 1997, section 3.8).

    Attributes:
        joined: Group of every row of the dataset; any ids.
    """

    joined: Int[np.ndarray, " n"]

    @classmethod
    def of(cls, duplicate_groups: pl.DataFrame) -> "Resamples":
        """Return the resamples for `duplicate_groups`, exact and near copies joined."""
        return cls(duplicate_groups.sort("row")["joined"].to_numpy())

    @cached_property
    def _dense(self) -> Int[np.ndarray, " n"]:
        return np.unique(self.joined, return_inverse=True)[1]

    def count_groups(self, rows: Int[np.ndarray, " m"]) -> int:
        """Return how many groups the images in `rows` come from."""
        return len(np.unique(self._dense[rows]))

    def sums(self, rows: Int[np.ndarray, " m"], values: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "b c"]:
        """Return the column sums of per-image values in each of the `RESAMPLES` resamples.

        Args:
            rows: The images that the values belong to; a part of the dataset or all of it.
            values: One row per image; dense, or a SciPy sparse array where each image touches few columns.
        """
        from scipy.sparse import csr_array

        n_groups = int(self._dense.max()) + 1 if len(self._dense) else 0
        membership = csr_array(
            (np.ones(len(rows)), (self._dense[rows], np.arange(len(rows)))), shape=(n_groups, len(rows))
        )
        by_group = membership @ values
        rng = np.random.default_rng(_SEED)
        step = max(1, _BLOCK_VALUES // max(n_groups, 1))
        parts = []
        for start in range(0, RESAMPLES, step):
            size = min(step, RESAMPLES - start)
            drawn = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=size)
            parts.append(np.asarray(drawn.astype(np.float64) @ by_group))
        return np.concatenate(parts)


def bootstrap_interval(
    resamples: Resamples,
    rows: Int[np.ndarray, " m"],
    values: Float[np.ndarray, "m c"],
    figure: Callable[[Float[np.ndarray, "b c"]], Float[np.ndarray, " b"]],
    given: str = "",
) -> dict[str, Any]:
    """Return the percentile interval of a figure that is a function of column sums over images.

    Args:
        resamples: Of the dataset.
        rows: Images that the figure is about.
        values: Their values; `figure` sees the sums of the columns, one row per resample.
        figure: Returns the figure in every resample; NaN where it is not defined there.
        given: What is held fixed, such as `the trained model`; part of the wording.
    """
    groups = resamples.count_groups(rows)
    if groups < MIN_GROUPS:
        return no_interval(f"{groups} independent groups; at least {MIN_GROUPS} are needed.")
    replicates = figure(resamples.sums(rows, values))
    replicates = replicates[np.isfinite(replicates)]
    if not len(replicates):
        return no_interval("The figure is defined in no resample.")
    low, high = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    fixed = f", given {given}" if given else ""
    return {
        "kind": "sample",
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "level": LEVEL,
        "groups": groups,
        "method": f"bootstrap over {groups} groups of copies, {RESAMPLES} resamples{fixed}",
    }


def proportion_interval(
    resamples: Resamples, rows: Int[np.ndarray, " m"], successes: Float[np.ndarray, " m"], given: str = ""
) -> dict[str, Any]:
    """Return the interval of a share of images: Wilson's where no two are copies, else the bootstrap's."""
    groups = resamples.count_groups(rows)
    if groups < len(rows) or groups < MIN_GROUPS:
        values = np.column_stack([successes, np.ones(len(rows))])
        return bootstrap_interval(resamples, rows, values, _ratio, given)
    low, high = wilson(float(successes.sum()), len(rows))
    fixed = f", given {given}" if given else ""
    return {
        "kind": "proportion",
        "low": round(low, 4),
        "high": round(high, 4),
        "level": LEVEL,
        "groups": groups,
        "method": f"Wilson's interval of {groups} independent images{fixed}",
    }


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a proportion (Wilson 1927, doi:10.2307/2276774)."""
    share, z2 = successes / n, _Z * _Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def no_interval(reason: str) -> dict[str, Any]:
    """Return the shape of an interval that cannot be given."""
    return {"kind": "none", "reason": reason}


def _ratio(sums: Float[np.ndarray, "b 2"]) -> Float[np.ndarray, " b"]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[:, 0] / sums[:, 1]
