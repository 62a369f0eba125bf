"""Intervals of figures: resampled groups of copies, and Wilson's for proportions.

Which figure is which kind is said by the metrics; here are the one set of resamples that all share, and the one
shape in which an interval is reported. How often they cover the truth is measured in docs/intervals.md.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

LEVEL = 0.95
RESAMPLES = 1000
MIN_GROUPS = 20
"""Fewer independent groups give no interval that deserves the name."""

MIN_EVENT_GROUPS = 10
"""Groups that must hold an error, and hold none, for the interval of a share to keep its level."""

MIN_CLASS_GROUPS = 30
"""Groups that every class must have for the interval of macro-F1 to keep its level."""

MAX_GROUP_SHARE = 0.15
"""Share of the images in one group beyond which the interval of a share is wider than its level asks for."""

_SEED = 42
_Z = 1.959963984540054  # 97.5 % quantile of the standard normal distribution
_BLOCK_VALUES = 1 << 18  # counts drawn at once: they stay in the cache
_LEAST_AT_ONCE = 4  # resamples


@dataclass(frozen=True)
class Resamples:
    """The resamples of a dataset's groups of copies: the same for every figure of the dataset.

    A resample draws as many groups as there are, with replacement; images of one group come together, as
    copies are no independent evidence (cluster bootstrap; Davison and Hinkley 1997, section 3.8).

    Attributes:
        joined: Group of every row of the dataset; any ids.
        n: How many resamples.
        seed: Of the draws; figures of different data that are put together need different ones.
    """

    joined: Int[np.ndarray, " n"]
    n: int = RESAMPLES
    seed: int = _SEED

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

    def group_sizes(self, rows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " g"]:
        """Return how many of the images in `rows` each group holds that holds any, by group."""
        return np.unique(self._dense[rows], return_counts=True)[1]

    def group_sums(self, rows: Int[np.ndarray, " m"], values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " g"]:
        """Return the sum of the values of the images in `rows` for each group that holds any, by group."""
        groups, place = np.unique(self._dense[rows], return_inverse=True)
        return np.bincount(place, weights=values, minlength=len(groups))

    def residuals(self, rows: Int[np.ndarray, " m"], values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " g"]:
        """Return the sum of the values less their mean, for every group of the dataset; 0 for those without."""
        deviations = np.asarray(values, np.float64) - np.mean(values)
        return np.bincount(self._dense[rows], weights=deviations, minlength=int(self._dense.max()) + 1)

    def sums(self, rows: Int[np.ndarray, " m"], values: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "b c"]:
        """Return the column sums of per-image values in each resample.

        Args:
            rows: The images that the values belong to; a part of the dataset or all of it.
            values: One row per image; dense, or a SciPy sparse array where each image touches few columns.
        """
        by_group = self.by_group(rows, values).T
        return np.concatenate([np.asarray(by_group @ counts.T).T for counts in self.counts()])

    def by_group(self, rows: Int[np.ndarray, " m"], values: Float[np.ndarray, "m c"]) -> Any:
        """Return the column sums of per-image values over each group of the dataset (g, c); sparse if they are."""
        from scipy.sparse import csr_array

        membership = csr_array(
            (np.ones(len(rows)), (self._dense[rows], np.arange(len(rows)))), shape=(self._n_groups, len(rows))
        )
        return membership @ values

    def counts(self) -> Iterator[Float[np.ndarray, "b g"]]:
        """Yield how often every group is drawn in every resample, some resamples at once: `n` rows in all."""
        rng = np.random.default_rng(self.seed)
        n_groups = self._n_groups
        step = max(_LEAST_AT_ONCE, _BLOCK_VALUES // max(n_groups, 1))
        for start in range(0, self.n, step):
            counts = np.empty((min(step, self.n - start), n_groups))
            for row in counts:
                # Drawing and counting is ten times faster than a multinomial draw of the same counts.
                row[:] = np.bincount(rng.integers(n_groups, size=n_groups), minlength=n_groups)
            yield counts

    @property
    def _n_groups(self) -> int:
        return int(self._dense.max()) + 1 if len(self._dense) else 0


def bootstrap_interval(
    resamples: Resamples,
    rows: Int[np.ndarray, " m"],
    values: Float[np.ndarray, "m c"],
    figure: Callable[[Float[np.ndarray, "b c"]], Float[np.ndarray, " b"]],
    given: str = "",
    replicates: Float[np.ndarray, " b"] | None = None,
) -> dict[str, Any]:
    """Return the bootstrap interval of a figure that is a function of column sums over images.

    For a share of images take `proportion_interval`, for macro-F1 `macro_f1_interval`: they keep their level with
    few errors too.

    Args:
        resamples: Of the dataset.
        rows: Images that the figure is about.
        values: Their values; `figure` sees the sums of the columns, one row per resample.
        figure: Returns the figure in every resample; NaN where it is not defined there.
        given: What is held fixed, such as `the trained model`; part of the wording.
        replicates: The figure in these resamples, where it is known already.
    """
    groups = resamples.count_groups(rows)
    if lack := too_few(resamples.group_sizes(rows)):
        return no_interval(lack)
    point = float(figure(np.asarray(values.sum(axis=0), np.float64)[None])[0])
    if replicates is None:
        replicates = figure(resamples.sums(rows, values))
    replicates = replicates[np.isfinite(replicates)]
    if not np.isfinite(point) or not len(replicates):
        return no_interval("The figure is defined in no resample.")
    low, high = bootstrap_limits(replicates, point, resamples.group_sizes(rows))
    return _interval(
        "sample", low, high, groups, f"bootstrap over {groups} groups of copies, {resamples.n} resamples", given
    )


def bootstrap_limits(
    replicates: Float[np.ndarray, "b *r"], point: Float[np.ndarray, "*r"] | float, sizes: Int[np.ndarray, " g"]
) -> tuple[Any, Any]:
    """Return the limits that the replicates of a figure give.

    Percentiles, wider and shifted: plain ones are too narrow for few groups or groups of unequal size, and off by
    twice the bias of a figure that is not linear, whose resamples have fewer different images than the sample.
    Wider, at the level that makes them t intervals for a mean (expanded percentiles; Hesterberg 2015,
    doi:10.1080/00031305.2015.1089789), with n^2 / sum(m^2) groups of equal weight and Satterthwaite's degrees of
    freedom, (sum m^2)^2 / sum(m^4) - 1, for groups of m images. Shifted by twice the mean of the replicates
    minus the point, but never past the point itself.

    Args:
        replicates: The figure in each resample; one column for each figure.
        point: The figure itself.
        sizes: Images of each group.
    """
    from scipy.special import ndtr, stdtrit

    alike = _alike(sizes)
    tail = ndtr(-np.sqrt(alike / max(alike - 1, 1e-9)) * stdtrit(_freedom(sizes), (1 + LEVEL) / 2))
    bias = replicates.mean(axis=0) - point
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=0)
    return np.minimum(low - 2 * bias, point), np.maximum(high - 2 * bias, point)


def proportion_interval(
    resamples: Resamples, rows: Int[np.ndarray, " m"], successes: Float[np.ndarray, " m"], given: str = ""
) -> dict[str, Any]:
    """Return Wilson's interval of a share of images; with copies among them, at their effective number.

    Args:
        resamples: Of the dataset.
        rows: Images that the share is of.
        successes: 1 or true for each image that counts.
        given: What is held fixed; part of the wording.
    """
    n, groups = len(rows), resamples.count_groups(rows)
    if lack := too_few(resamples.group_sizes(rows)):
        return no_interval(lack)
    share = float(np.mean(successes))
    if groups == n:
        low, high = wilson(float(np.sum(successes)), n)
        return _interval(
            "proportion", low, high, groups, f"Wilson's interval of {groups} independent images", given
        )
    sizes = resamples.group_sizes(rows)
    hits = resamples.group_sums(rows, successes)
    effective = float(effective_size(sizes, hits[:, None])[0])
    low, high = wilson(share * effective, effective)
    method = f"Wilson's interval at an effective {effective:.1f} of {n} images in {groups} groups of copies"
    return _interval("sample", low, high, groups, method, given, _warn_of_few_events(sizes, hits))


def effective_size(sizes: Int[np.ndarray, " g"], successes: Float[np.ndarray, "g r"]) -> Float[np.ndarray, " r"]:
    """Return how many independent images tell as much of a share as the images in groups do.

    The smaller of two: by the common intraclass correlation (Fleiss and Cuzick 1979, Applied Psychological
    Measurement 3:537; as design effect in Wilson's interval, Saha, Miller and Wang 2016,
    doi:10.1515/ijb-2015-0024), steady with few errors but blind to large groups being easier or harder than small
    ones; and by the variance between groups (linearised, with the factor g / (g - 1)), which sees that but is too
    small while no large group happens to hold an error. Where all images agree, the correlation is taken as 1.

    Args:
        sizes: Images of each group.
        successes: Those that count, of each group; one column for each share.
    """
    m, n, g = sizes[:, None].astype(np.float64), float(sizes.sum()), len(sizes)
    share = successes.sum(axis=0) / n
    spread = share * (1 - share)
    within = (successes * (m - successes) / m).sum(axis=0)
    mixed = spread > 0
    correlation = np.ones_like(share)
    np.divide(within, (n - g) * spread, out=correlation, where=mixed & (n > g))
    correlation = np.where(mixed, np.clip(1 - correlation, 0, 1), 1)
    by_correlation = n * n / (m * (1 + correlation * (m - 1))).sum(axis=0)
    return np.maximum(1, np.minimum(by_correlation, _size_between(sizes, successes)))


def _size_between(sizes: Int[np.ndarray, " g"], successes: Float[np.ndarray, "g r"]) -> Float[np.ndarray, " r"]:
    """Return the effective size by the variance between groups; that of all images where there is none."""
    n, g = float(sizes.sum()), len(sizes)
    share = successes.sum(axis=0) / n
    variance = ((successes - share * sizes[:, None]) ** 2).sum(axis=0) / n**2 * g / max(g - 1, 1)
    return np.divide(share * (1 - share), variance, out=np.full_like(share, n), where=variance > 0)


def difference_interval(
    resamples: Resamples,
    first: tuple[Int[np.ndarray, " m"], Float[np.ndarray, " m"]],
    second: tuple[Int[np.ndarray, " k"], Float[np.ndarray, " k"]],
    given: str = "",
) -> dict[str, Any]:
    """Return the interval of the difference of two shares, the first minus the second.

    From the intervals of both and the correlation of the two shares over groups, the one that they have over the
    resamples but for chance; none where no group is in both (Newcombe 1998, method 10,
    doi:10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I; with correlation Zou and Donner 2008,
    doi:10.1002/sim.3095).

    Args:
        resamples: Of the dataset.
        first: Rows of the images, each once, and 1 or true for each that counts.
        second: The same; images of both are compared as pairs.
        given: What is held fixed; part of the wording.
    """
    intervals = [proportion_interval(resamples, *one) for one in (first, second)]
    for interval in intervals:
        if interval["kind"] == "none":
            return interval
    correlation = _correlation(resamples.residuals(*first), resamples.residuals(*second))
    shares = [float(np.mean(successes)) for _, successes in (first, second)]
    down = [share - interval["low"] for share, interval in zip(shares, intervals, strict=True)]
    up = [interval["high"] - share for share, interval in zip(shares, intervals, strict=True)]
    groups = resamples.count_groups(np.union1d(first[0], second[0]))
    return _interval(
        "sample",
        shares[0] - shares[1] - _distance(down[0], up[1], correlation),
        shares[0] - shares[1] + _distance(up[0], down[1], correlation),
        groups,
        f"Wilson's intervals of both shares and the correlation of these over {groups} groups of copies",
        given,
        next((interval["warning"] for interval in intervals if "warning" in interval), None),
    )


def macro_f1_interval(
    resamples: Resamples,
    rows: Int[np.ndarray, " m"],
    true: Int[np.ndarray, " m"],
    predicted: Int[np.ndarray, " m"],
    given: str = "",
    declared: Sequence[int] = (),
    replicates: Float[np.ndarray, " b"] | None = None,
) -> dict[str, Any]:
    """Return the interval of macro-F1 over the classes that have images.

    Args:
        resamples: Of the dataset.
        rows: Images that were predicted.
        true: Their classes.
        predicted: The classes predicted for them.
        given: What is held fixed; part of the wording.
        declared: Classes that count with or without images; each of them and of those in `true` then counts in
            every resample.
        replicates: The figure in these resamples, where it is known already.
    """
    groups = resamples.count_groups(rows)
    if lack := too_few(resamples.group_sizes(rows)):
        return no_interval(lack)
    values, every = class_counts(true, predicted, declared), len(declared) > 0
    point = float(macro_f1(np.asarray(values.sum(axis=0), np.float64)[None], every)[0])
    if replicates is None:
        replicates = macro_f1(resamples.sums(rows, values), every)
    sizes, hits = resamples.group_sizes(rows), resamples.group_sums(rows, true == predicted)
    of_classes = [resamples.group_sizes(rows[true == label]) for label in np.unique(true)]
    low, high = macro_f1_limits(replicates, point, sizes, hits, of_classes)
    least = 0 if len(set(declared) - set(true.tolist())) else min(map(len, of_classes))
    warning = _warn_of_few_events(sizes, hits) if groups < len(rows) else None
    if least < MIN_CLASS_GROUPS:
        warning = (
            f"A class has {least} independent test groups; with fewer than {MIN_CLASS_GROUPS} the interval can "
            f"cover less often than {LEVEL:.0%}."
        )
    method = (
        f"Wilson's interval at the effective size that a bootstrap over {groups} groups of copies gives, "
        f"{resamples.n} resamples"
    )
    return _interval("sample", low, high, groups, method, given, warning)


def macro_f1_limits(
    replicates: Float[np.ndarray, " b"],
    point: float,
    sizes: Int[np.ndarray, " g"],
    hits: Float[np.ndarray, " g"],
    of_classes: Sequence[Int[np.ndarray, " _"]],
) -> tuple[float, float]:
    """Return the limits of macro-F1.

    Wilson's interval, as for a share of images, since the percentiles of a figure near 1 lie too high (for groups
    of one, Takahashi et al. 2022, doi:10.1007/s10489-021-02635-5, give the variance in closed form): about the
    figure less its bias, at the effective size f (1 - f) / variance, both by the replicates, with Student's t at
    Satterthwaite's degrees of freedom as in `bootstrap_limits`. The variance is enlarged by as much as
    `effective_size` enlarges that of the share of hits over what the groups show. Where the replicates do not
    vary, all images of a group count as one: the effective size is c^2 / sum(1 / n_k) for c classes of n_k groups
    of equal weight.

    Args:
        replicates: The figure in each resample; NaN where it is not defined.
        point: The figure itself.
        sizes: Images of each group.
        hits: Those predicted right.
        of_classes: Images of each class in each group that holds any of it.
    """
    from scipy.special import stdtrit

    replicates = replicates[np.isfinite(replicates)]
    variance = float(replicates.var()) * len(sizes) / (len(sizes) - 1)
    if variance > 0:
        share = float(np.clip(2 * point - replicates.mean(), 0, 1))
        enlarged = float((_size_between(sizes, hits[:, None]) / effective_size(sizes, hits[:, None]))[0])
        effective = max(1.0, share * (1 - share) / (variance * max(1.0, enlarged)))
    else:
        share = point
        effective = len(of_classes) ** 2 / sum(1 / _alike(of_class) for of_class in of_classes)
    low, high = _score_limits(share, effective, float(stdtrit(_freedom(sizes), (1 + LEVEL) / 2)))
    return min(float(low), point), max(float(high), point)


def class_counts(
    true: Int[np.ndarray, " m"], predicted: Int[np.ndarray, " m"], declared: Sequence[int] = ()
) -> Any:
    """Return what `macro_f1` sums: a sparse (m, 3 c) array of hit, given and predicted, for each of c classes.

    The classes are those in `true` and those `declared`, ascending; a prediction of another class is a miss and
    nothing more.
    """
    from scipy.sparse import csr_array

    classes = np.union1d(true, np.asarray(declared, np.int64)) if len(declared) else np.unique(true)
    own = np.searchsorted(classes, true)
    images, n = np.arange(len(true)), len(classes)
    guess = np.searchsorted(classes, predicted).clip(max=max(n - 1, 0))
    known, hit = classes[guess] == predicted, true == predicted
    row = np.concatenate([images[hit], images, images[known]])
    column = np.concatenate([own[hit], n + own, 2 * n + guess[known]])
    return csr_array((np.ones(len(row)), (row, column)), shape=(len(true), 3 * n))


def macro_f1(sums: Float[np.ndarray, "b 3c"], every: bool = False) -> Float[np.ndarray, " b"]:
    """Return the mean of 2 hits / (given + predicted) over the classes that are given at all; NaN if none is.

    Args:
        sums: Column sums of `class_counts`.
        every: Count classes that are not given too, at 0.
    """
    hits, given, predicted = np.split(sums, 3, axis=1)
    f1 = np.divide(2 * hits, given + predicted, out=np.zeros_like(hits), where=given > 0)
    n_given = np.full(len(sums), given.shape[1]) if every else (given > 0).sum(axis=1)
    return np.divide(f1.sum(axis=1), n_given, out=np.full(len(sums), np.nan), where=n_given > 0)


def balanced_accuracy(sums: Float[np.ndarray, "b 3c"]) -> Float[np.ndarray, " b"]:
    """Return the mean of hits / given over the classes that are given at all; NaN if none is.

    Args:
        sums: Column sums of `class_counts`. A class that a resample leaves without images has no recall there,
            as a class without test images has none.
    """
    hits, given, _ = np.split(sums, 3, axis=1)
    recalls = np.divide(hits, given, out=np.zeros_like(hits), where=given > 0)
    n_given = (given > 0).sum(axis=1)
    return np.divide(recalls.sum(axis=1), n_given, out=np.full(len(sums), np.nan), where=n_given > 0)


def wilson(successes: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a proportion (Wilson 1927, doi:10.2307/2276774).

    NumPy arrays of both give arrays.
    """
    return _score_limits(successes / n, n, _Z)


def no_interval(reason: str) -> dict[str, Any]:
    """Return the shape of an interval that cannot be given."""
    return {"kind": "none", "reason": reason}


def census(*figures: str) -> dict[str, Any]:
    """Return what stands in place of the intervals of figures for which every image was counted."""
    reason = "Every image of the dataset was counted: there is no sampling error."
    return {figure: {"kind": "census", "reason": reason} for figure in figures}


def _score_limits(share: Any, n: Any, z: float) -> tuple[Any, Any]:
    z2 = z * z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return np.maximum(0.0, centre - half), np.minimum(1.0, centre + half)


def _alike(sizes: Int[np.ndarray, " g"]) -> float:
    """Return how many groups of equal size weigh as much."""
    return float(sizes.sum() ** 2 / (sizes.astype(np.float64) ** 2).sum())


def _freedom(sizes: Int[np.ndarray, " g"]) -> float:
    squares = sizes.astype(np.float64) ** 2
    return max(1.0, float(squares.sum() ** 2 / (squares**2).sum()) - 1)


def too_few(sizes: Int[np.ndarray, " g"]) -> str | None:
    """Return why groups of these sizes give no interval, or null: too few, or a few with most of the images."""
    if len(sizes) < MIN_GROUPS:
        return f"{len(sizes)} independent groups; at least {MIN_GROUPS} are needed."
    if (alike := _alike(sizes)) < MIN_GROUPS:
        return (
            f"{len(sizes)} independent groups that weigh as much as {alike:.1f} of equal size; at least "
            f"{MIN_GROUPS} are needed."
        )
    return None


def _interval(
    kind: str, low: float, high: float, groups: int, method: str, given: str, warning: str | None = None
) -> dict[str, Any]:
    return {
        "kind": kind,
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "level": LEVEL,
        "groups": groups,
        "method": f"{method}, given {given}" if given else method,
        **({"warning": warning} if warning else {}),
    }


def few_events(sizes: Int[np.ndarray, " g"], successes: Float[np.ndarray, "g *r"]) -> Any:
    """Return how many groups hold an image of the rarer kind, and how many hold none."""
    rare = np.where(2 * successes.sum(axis=0) > sizes.sum(), (sizes - successes.T).T, successes)
    holding = (rare > 0).sum(axis=0)
    return holding, len(sizes) - holding


def _warn_of_few_events(sizes: Int[np.ndarray, " g"], successes: Float[np.ndarray, " g"]) -> str | None:
    holding, free = few_events(sizes, successes)
    if min(holding, free) >= MIN_EVENT_GROUPS:
        largest = float(sizes.max() / sizes.sum())
        if largest <= MAX_GROUP_SHARE:
            return None
        return (
            f"One group of copies holds {largest:.0%} of the images; beyond {MAX_GROUP_SHARE:.0%} the interval "
            f"can be wider than {LEVEL:.0%} asks for."
        )
    return (
        f"{holding} groups of copies hold images of the rarer kind, {free} hold none; with fewer than "
        f"{MIN_EVENT_GROUPS} of either the interval can cover less often than {LEVEL:.0%}."
    )


def _correlation(first: Float[np.ndarray, " g"], second: Float[np.ndarray, " g"]) -> float:
    scale = np.sqrt(first @ first) * np.sqrt(second @ second)
    return float(first @ second / scale) if scale > 0 else 0.0


def _distance(first: float, second: float, correlation: float) -> float:
    return float(np.sqrt(max(0.0, first**2 + second**2 - 2 * correlation * first * second)))
