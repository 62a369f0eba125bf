"""Errors of cross-validated scores, and tests of their differences.

Works on what examples, groups or folds do to a score; how that is computed is in scores.py. How often the
intervals cover and how often the tests reject wrongly is measured in docs/compression_exact.md.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

LEVEL = 0.95
_ROUNDING = 1e-12  # scores are of order 1: less is rounding


@dataclass(frozen=True)
class Spread:
    """What moves a score: the material of its error.

    Attributes:
        influences: float64 (u,), what each example, or group, adds to the score by being there: to be predicted,
            and to train the models that predict others; mean over repeats. Null where it is not known.
        by_repeat: float64 (r,), the score of each repeat of the folds.
        by_fold: float64 (r, k), the part of each fold in it (scores.py).
    """

    influences: Float[np.ndarray, " u"] | None
    by_repeat: Float[np.ndarray, " r"]
    by_fold: Float[np.ndarray, "r k"]

    def __sub__(self, other: "Spread") -> "Spread":
        """Return what moves the difference of two scores of the same examples and folds."""
        influences = None
        if self.influences is not None and other.influences is not None:
            influences = self.influences - other.influences
        return Spread(influences, self.by_repeat - other.by_repeat, self.by_fold - other.by_fold)

    @property
    def error(self) -> float:
        """Standard error: by the jackknife where influences are known, else `corrected_error`."""
        if self.influences is None:
            return corrected_error(self.by_fold)
        return jackknife_error(self.influences, self.by_repeat)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the error: examples or groups, else folds, less one."""
        return (self.by_fold.size if self.influences is None else len(self.influences)) - 1


@dataclass(frozen=True)
class Interval:
    """A t interval.

    Attributes:
        low: Lower limit.
        high: Upper limit.
        error: Standard error: half the width over the quantile of t.
        freedom: Degrees of freedom.
    """

    low: float
    high: float
    error: float
    freedom: int


def interval_of(value: float, spread: Spread, level: float = LEVEL) -> Interval:
    """Return `value` -/+ t times the error."""
    return _interval(value, spread.error, spread.freedom, level)


def jackknife_error(influences: Float[np.ndarray, " u"], by_repeat: Float[np.ndarray, " r"]) -> float:
    """Return the standard error of a score by the jackknife.

    Its square is u / (u - 1) times the sum of squared deviations of the influences from their mean (Efron and
    Stein 1981, doi:10.1214/aos/1176345462), plus the variance of the repeats over their number: what another
    drawing of the folds would change. It takes in that other data would train other models, in all folds at
    once, which no variance between folds shows.
    """
    units = len(influences)
    variance = ((influences - influences.mean()) ** 2).sum() * units / (units - 1)
    if len(by_repeat) > 1:
        variance += by_repeat.var(ddof=1) / len(by_repeat)
    return float(np.sqrt(variance))


def corrected_error(by_fold: Float[np.ndarray, "r k"]) -> float:
    """Return the standard error of a mean over folds, corrected for their overlap.

    sqrt((1 / J + n_test / n_train) s^2), s^2 the variance of the J = r k folds with J - 1 in the denominator and
    n_test / n_train = 1 / (k - 1) (Nadeau and Bengio 2003, doi:10.1023/A:1024068626366; for repeated k-fold,
    Bouckaert and Frank 2004, doi:10.1007/978-3-540-24775-3_3). Without the second term folds would count as
    independent, and more repeats would make the error as small as one likes.
    """
    count, folds = by_fold.size, by_fold.shape[1]
    return float(np.sqrt((1 / count + 1 / (folds - 1)) * by_fold.var(ddof=1)))


def corrected_interval(value: float, by_fold: Float[np.ndarray, "r k"], level: float = LEVEL) -> Interval:
    """Return `value` -/+ t times `corrected_error`, t of J - 1 degrees of freedom."""
    return _interval(value, corrected_error(by_fold), by_fold.size - 1, level)


def p_value(difference: float, error: float, freedom: int) -> float:
    """Return the two-sided p-value of no difference, by Student's t."""
    from scipy.stats import t

    if error <= _ROUNDING:
        return 1.0 if abs(difference) <= _ROUNDING else 0.0
    return float(2 * t.sf(abs(difference) / error, freedom))


def _interval(value: float, error: float, freedom: int, level: float) -> Interval:
    from scipy.stats import t

    reach = float(t.ppf((1 + level) / 2, freedom)) * error
    return Interval(value - reach, value + reach, error, freedom)
