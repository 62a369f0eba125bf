"""Rates of success with their intervals: of one task, over several tasks, and of two agents against each other.

Counts in, figures out; which trials count as successful is told in `evaluation`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy as np

from agml_assets.quality.intervals import wilson

MIN_TASKS = 5
"""Fewer tasks say nothing of what other tasks would give."""

_LEVEL_TAIL = 0.975


@dataclass(frozen=True)
class Count:
    """Trials of one task, and how many of them were successful."""

    successes: int
    n: int

    @property
    def rate(self) -> float:
        """The share that was."""
        return self.successes / self.n

    @property
    def limits(self) -> tuple[float, float]:
        """Wilson's 95 % interval; exactly 0 or 1 at the end where no trial was, or every one."""
        return _clean(self.rate, *wilson(self.successes, self.n))


def mean_rate(counts: Sequence[Count]) -> tuple[float, float, float]:
    """Return the unweighted mean of the rates of several tasks, with low and high of its 95 % interval.

    For these tasks and other trials: Wilson's interval of the mean at as many trials as tell as much of it,
    `tasks^2 / sum(1 / n_t)`, which is all of them where every task has as many. Tasks of different difficulty make
    the mean steadier than so many trials of one difficulty would be (Hoeffding 1956, doi:10.1214/aoms/1177728178),
    so it is wide enough, and wider than it had to be where they differ. What adds up the intervals of the tasks
    (MOVER; Zou, Huang and Zhang 2009, doi:10.1016/j.csda.2008.09.033) is narrower there, but covers only 84 % of
    truths where all rates are near 0, which is where agents are: 15 tasks, 3 trials, rates of 5 %; this one covers
    98 %.

    Args:
        counts: Of each task, at least one.
    """
    value = float(np.mean([one.rate for one in counts]))
    effective = len(counts) ** 2 / sum(1 / one.n for one in counts)
    low, high = _clean(value, *wilson(value * effective, effective))
    return value, low, high


def other_tasks(counts: Sequence[Count]) -> tuple[float, float] | str:
    """Return the 95 % interval of the mean rate for other tasks of the same kind, or why there is none.

    Student's, of the rates as one value a task, `tasks - 1` degrees of freedom; the spread between tasks holds
    that between trials. Approximate: rates are neither normal nor unbounded.

    Args:
        counts: Of each task.
    """
    from scipy.special import stdtrit

    if len(counts) < MIN_TASKS:
        return f"fewer than {MIN_TASKS} tasks say nothing of others"
    rates = np.array([one.rate for one in counts])
    if np.ptp(rates) == 0:
        return "the rates of all tasks are equal: how far tasks differ cannot be seen"
    half = float(stdtrit(len(rates) - 1, _LEVEL_TAIL) * rates.std(ddof=1) / math.sqrt(len(rates)))
    value = float(rates.mean())
    return max(0.0, value - half), min(1.0, value + half)


def difference_p_value(first: Sequence[Count], second: Sequence[Count]) -> float:
    """Return the exact two-sided p-value of two agents being as often successful, on every task of several.

    If they are, any of a task's trials could be either agent's: given how many of them are successful, the first
    agent's share of these is hypergeometric, independently by task (the exact conditional test of a common odds
    ratio of 1 in 2 x 2 tables; Gart 1970, doi:10.1093/biomet/57.3.471). Its statistic here is the difference of
    the mean rates, and p the probability of one at least as far from 0. It never rejects too often, however few
    trials there are.

    Args:
        first: Of each task, of one agent.
        second: Of the same tasks, of the other.
    """
    distribution: dict[Fraction, float] = {Fraction(0): 1.0}
    observed = Fraction(0)
    for a, b in zip(first, second, strict=True):
        observed += Fraction(a.successes, a.n) - Fraction(b.successes, b.n)
        successes, n = a.successes + b.successes, a.n + b.n
        of_task = {
            Fraction(own, a.n) - Fraction(successes - own, b.n): comb(successes, own)
            * comb(n - successes, a.n - own)
            / comb(n, a.n)
            for own in range(max(0, successes - b.n), min(a.n, successes) + 1)
        }
        sums: dict[Fraction, float] = defaultdict(float)
        for so_far, p in distribution.items():
            for difference, q in of_task.items():
                sums[so_far + difference] += p * q
        distribution = sums
    return min(1.0, sum(p for difference, p in sorted(distribution.items()) if abs(difference) >= abs(observed)))


def _clean(rate: float, low: float, high: float) -> tuple[float, float]:
    """Return limits inside 0 and 1, without the rounding at the ends."""
    return (0.0 if rate == 0 else max(0.0, float(low))), (1.0 if rate == 1 else min(1.0, float(high)))
