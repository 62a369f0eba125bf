"""Which methods keep more: paired tests on each task and over all, ranks with ties, and how far choices move them.

A method's own figures never depend on which other methods there are; ranks and corrected p-values do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from agml_assets.compression.exact.evaluate import MIN_UNITS, ExactResult, TaskResult
from agml_assets.compression.exact.uncertainty import Interval, corrected_error, p_value
from agml_assets.errors import UserError
from agml_assets.evaluation.comparison import holm

ALPHA = 0.05


@dataclass(frozen=True)
class Pair:
    """A method against another.

    Attributes:
        first: Name.
        second: Name.
        difference: First less second, of scores on a task, of what is kept over all.
        error: Standard error (uncertainty.py).
        p_value: Of no difference, two-sided.
        p_holm: Corrected by Holm's method over all pairs (of this task, or over all).
        p_corrected_resampled: By the corrected resampled t test (Nadeau and Bengio), not corrected over pairs, for
            comparison with figures of others: it rejects too often where few examples train many weights. Null
            over all tasks.
    """

    first: str
    second: str
    difference: float
    error: float
    p_value: float
    p_holm: float
    p_corrected_resampled: float | None = None


@dataclass(frozen=True)
class Rank:
    """The place of a method.

    Attributes:
        method: Name.
        value: Its score, or what it keeps over all tasks.
        rank: 1 + how many methods are better and told from it at the level; 1 may be shared by many.
        floor: Score of the control task; null over all tasks, or where there is none.
        interval: Of the value, at 95 % over all tasks; null where there is none.
    """

    method: str
    value: float
    rank: int
    floor: float | None
    interval: Interval | None


@dataclass(frozen=True)
class TaskComparison:
    """Methods on one task.

    Attributes:
        task: Its name.
        metric: Of the scores.
        ranks: Best score first, of equals by name.
        pairs: All pairs of methods that have the task.
        missing: Methods without a number.
    """

    task: str
    metric: str
    ranks: tuple[Rank, ...]
    pairs: tuple[Pair, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Sensitivity:
    """The order of methods under another choice.

    Attributes:
        choice: What was chosen instead.
        order: Methods, best first, of equals by name.
        values: Of each, in this order; higher is better, except of ranks.
        tau: Kendall's tau-b with the values of the overall ranking, in [-1, 1]; null where it is not defined.
        same_best: The best method is the same.
    """

    choice: str
    order: tuple[str, ...]
    values: tuple[float, ...]
    tau: float | None
    same_best: bool


@dataclass(frozen=True)
class Comparison:
    """Methods over all tasks.

    Attributes:
        tasks: By name.
        weights: Of each task, of sum 1.
        overall: By what is kept, weighted mean over tasks; of methods that have all tasks.
        pairs: Of the methods in `overall`.
        incomplete: Methods that lack a task, with the tasks. They are not in `overall`: a mean over other tasks is
            another figure.
        sensitivity: Leaving out each task, and other ways to put tasks together.
    """

    tasks: tuple[TaskComparison, ...]
    weights: dict[str, float]
    overall: tuple[Rank, ...]
    pairs: tuple[Pair, ...]
    incomplete: dict[str, tuple[str, ...]]
    sensitivity: tuple[Sensitivity, ...]


def compare_methods(
    results: Mapping[str, ExactResult], weights: Mapping[str, float] | None = None, alpha: float = ALPHA
) -> Comparison:
    """Compare methods evaluated on the same tasks, pair by pair on the same folds, and rank them.

    Over all tasks a method is worth the weighted mean of what it keeps, (score - reference) / (1 - reference),
    whose reference is a figure of the targets alone: who else is compared never moves it. The error of a
    difference of means is sqrt(sum_tu w_t w_u rho_tu e_t e_u): e the errors of the differences on single tasks,
    rho the correlation of what examples, matched by id, contribute to them.

    Args:
        results: By method.
        weights: Of tasks, not negative; by default equal. A task without a weight is not in the overall ranking.
        alpha: Level of the ties.

    Raises:
        UserError: There is no method or no task; a weight is wrong; or two methods were evaluated on other
            examples, labels or folds of a task.
    """
    if not results:
        raise UserError("No method to compare.")
    methods = sorted(results)
    by_task: dict[str, dict[str, TaskResult]] = {}
    for method in methods:
        for one in results[method].tasks:
            by_task.setdefault(one.task, {})[method] = one
    if not by_task:
        raise UserError("No method has a number on any task.")
    for task, found in by_task.items():
        _check_same(task, found)
    tasks = tuple(_compare_on(task, methods, by_task[task], alpha) for task in sorted(by_task))
    shares = _shares(sorted(by_task), weights)
    lacking = {one: tuple(task for task in shares if one not in by_task[task]) for one in methods}
    complete = [one for one in methods if not lacking[one]]
    incomplete = {one: some for one, some in lacking.items() if some}
    pairs = _pairs(complete, lambda first, second: _apart_over_all(by_task, shares, first, second))
    kept = {one: _kept(by_task, shares, one) for one in complete}
    overall = tuple(
        Rank(one, kept[one], rank, None, _interval_over_all(by_task, shares, one))
        for one, rank in _ranked(kept, pairs, alpha)
    )
    return Comparison(tasks, shares, overall, pairs, incomplete, _sensitivity(by_task, shares, complete))


def _check_same(task: str, found: Mapping[str, TaskResult]) -> None:
    (model, first), *others = found.items()
    for method, one in others:
        if one.examples != first.examples:
            raise UserError(
                f"Task {task}: methods {model!r} ({first.n} examples) and {method!r} ({one.n}) were evaluated on "
                "other examples, labels or folds. Evaluate all methods with the same settings, on ids that all "
                "of them have."
            )


def _shares(tasks: Sequence[str], weights: Mapping[str, float] | None) -> dict[str, float]:
    if weights is None:
        return {task: 1 / len(tasks) for task in tasks}
    unknown = sorted(set(weights) - set(tasks))
    if unknown:
        raise UserError(f"Weights of unknown tasks: {', '.join(unknown)}. There are {', '.join(tasks)}.")
    total = sum(weights.values())
    if not (np.isfinite(total) and total > 0 and min(weights.values()) >= 0):
        raise UserError("Weights of tasks must be finite, not negative, and not all 0.")
    return {task: weights[task] / total for task in tasks if weights.get(task)}


def _compare_on(
    task: str, methods: Sequence[str], found: Mapping[str, TaskResult], alpha: float
) -> TaskComparison:
    def apart(first: str, second: str) -> tuple[float, float, int, float | None]:
        one, other = found[first], found[second]
        spread = one.spread - other.spread
        difference = one.score.value - other.score.value
        if one.units < MIN_UNITS:
            return difference, float("inf"), spread.freedom, None
        resampled = p_value(difference, corrected_error(spread.by_fold), spread.by_fold.size - 1)
        return difference, spread.error, spread.freedom, resampled

    pairs = _pairs(sorted(found), apart)
    ranks = tuple(
        Rank(
            method,
            found[method].score.value,
            rank,
            control.score.value if (control := found[method].control) else None,
            found[method].score.interval,
        )
        for method, rank in _ranked({one: found[one].score.value for one in found}, pairs, alpha)
    )
    missing = tuple(one for one in methods if one not in found)
    return TaskComparison(task, next(iter(found.values())).metric, ranks, pairs, missing)


def _pairs(
    methods: Sequence[str], apart: Callable[[str, str], tuple[float, float, int, float | None]]
) -> tuple[Pair, ...]:
    names = list(combinations(methods, 2))
    found = [apart(*two) for two in names]
    p_values = np.array([p_value(difference, error, freedom) for difference, error, freedom, _ in found])
    return tuple(
        Pair(*two, difference, error, float(own), float(corrected), resampled)
        for two, (difference, error, _, resampled), own, corrected in zip(
            names, found, p_values, holm(p_values), strict=True
        )
    )


def _ranked(values: Mapping[str, float], pairs: Sequence[Pair], alpha: float) -> list[tuple[str, int]]:
    better = dict.fromkeys(values, 1)
    for pair in pairs:
        if pair.p_holm <= alpha and pair.difference:
            better[pair.second if pair.difference > 0 else pair.first] += 1
    return [(one, better[one]) for one in sorted(values, key=lambda one: (-values[one], one))]


def _kept(by_task: Mapping[str, Mapping[str, TaskResult]], shares: Mapping[str, float], method: str) -> float:
    return sum(share * by_task[task][method].kept for task, share in shares.items())


def _scaled(
    by_task: Mapping[str, Mapping[str, TaskResult]], shares: Mapping[str, float]
) -> list[tuple[float, Mapping[str, TaskResult]]]:
    """Return by how much the mean moves with each score, and the task's results."""
    return [
        (share / (1 - next(iter(by_task[task].values())).reference), by_task[task])
        for task, share in shares.items()
    ]


def _apart_over_all(
    by_task: Mapping[str, Mapping[str, TaskResult]], shares: Mapping[str, float], first: str, second: str
) -> tuple[float, float, int, float | None]:
    difference = _kept(by_task, shares, first) - _kept(by_task, shares, second)
    errors, contributions, freedom = [], [], []
    for scale, found in _scaled(by_task, shares):
        one, other = found[first], found[second]
        spread = one.spread - other.spread
        errors.append(scale * spread.error if one.units >= MIN_UNITS else float("inf"))
        freedom.append(spread.freedom)
        contributions.append((one.ids, one.contributions - other.contributions))
    return difference, _together(errors, contributions), min(freedom), None


def _interval_over_all(
    by_task: Mapping[str, Mapping[str, TaskResult]], shares: Mapping[str, float], method: str
) -> Interval | None:
    from scipy.stats import t

    results = [(scale, found[method]) for scale, found in _scaled(by_task, shares)]
    if any(one.score.interval is None for _, one in results):
        return None
    error = _together(
        [scale * one.spread.error for scale, one in results], [(one.ids, one.contributions) for _, one in results]
    )
    freedom = min(one.spread.freedom for _, one in results)
    value = _kept(by_task, shares, method)
    reach = float(t.ppf(0.975, freedom)) * error
    return Interval(value - reach, value + reach, error, freedom)


def _together(
    errors: Sequence[float], contributions: Sequence[tuple[tuple[str, ...], Float[np.ndarray, " n"]]]
) -> float:
    """Return the error of a sum, from the errors of its terms and what examples contribute to each."""
    if not np.isfinite(errors).all():
        return float("inf")
    places: dict[str, int] = {}
    for ids, _ in contributions:
        for one in ids:
            places.setdefault(one, len(places))
    table = np.zeros((len(contributions), len(places)))
    for row, (ids, values) in zip(table, contributions, strict=True):
        row[[places[one] for one in ids]] = values
    lengths = np.linalg.norm(table, axis=1)
    table /= np.where(lengths > 0, lengths, 1)[:, None]
    correlation = table @ table.T
    np.fill_diagonal(correlation, 1)
    return float(np.sqrt(max(0.0, np.asarray(errors) @ correlation @ np.asarray(errors))))


def _sensitivity(
    by_task: Mapping[str, Mapping[str, TaskResult]], shares: Mapping[str, float], methods: Sequence[str]
) -> tuple[Sensitivity, ...]:
    if len(methods) < 2:
        return ()
    tasks = list(shares)
    kept = np.array([[by_task[task][one].kept for task in tasks] for one in methods])
    weights = np.array([shares[task] for task in tasks])
    overall = kept @ weights
    choices: list[tuple[str, Float[np.ndarray, " m"], bool]] = []
    if len(tasks) > 1:
        for place, task in enumerate(tasks):
            if (rest := 1 - weights[place]) > 0:
                choices.append((f"without {task}", (overall - kept[:, place] * weights[place]) / rest, True))
    scores = np.array([[by_task[task][one].score.value for task in tasks] for one in methods])
    kinds = np.array([next(iter(by_task[task].values())).kind for task in tasks])
    choices += [
        ("scores as they are, equal weights", scores.mean(axis=1), True),
        ("kept, equal weights", kept.mean(axis=1), True),
        ("kept, median over tasks", np.median(kept, axis=1), True),
        ("mean of ranks", _competition_ranks(kept).mean(axis=1), False),
    ]
    if len(set(kinds.tolist())) == 2:
        halves = [kept[:, kinds == kind].mean(axis=1) for kind in ("regression", "classification")]
        choices.append(("kept, numbers and classes at one half each", np.mean(halves, axis=0), True))
    choices.append(("published: ranks by Q, weights by its deviation", _published(by_task, tasks, methods), False))
    return tuple(_choice(name, values, higher, methods, overall) for name, values, higher in choices)


def _choice(
    name: str,
    values: Float[np.ndarray, " m"],
    higher: bool,
    methods: Sequence[str],
    overall: Float[np.ndarray, " m"],
) -> Sensitivity:
    from scipy.stats import kendalltau

    good = values if higher else -values
    order = sorted(range(len(methods)), key=lambda place: (-good[place], methods[place]))
    varies = good.max() > good.min() and overall.max() > overall.min()
    best = min(range(len(methods)), key=lambda place: (-overall[place], methods[place]))
    return Sensitivity(
        name,
        tuple(methods[place] for place in order),
        tuple(float(values[place]) for place in order),
        float(kendalltau(good, overall).statistic) if varies else None,
        order[0] == best,
    )


def _competition_ranks(values: Float[np.ndarray, "m t"]) -> Float[np.ndarray, "m t"]:
    """Return ranks within each column, 1 the largest; equal values share the first of their places."""
    return 1 + (values[None] > values[:, None]).sum(axis=1).astype(np.float64)


def _published(
    by_task: Mapping[str, Mapping[str, TaskResult]], tasks: Sequence[str], methods: Sequence[str]
) -> Float[np.ndarray, " m"]:
    """Return the weighted mean of ranks by Q = 2 mean / (0.02 + deviation) of fold scores; lower is better.

    A task's weight is the deviation of Q over the methods, with m - 1 in the denominator, over the sum of all
    tasks'; equal where all are 0 (NeuCo-Bench, arXiv:2510.17914).
    """
    folds = [[by_task[task][one].fold_scores for task in tasks] for one in methods]
    quality = np.array([[2 * np.nanmean(one) / (0.02 + np.nanstd(one)) for one in row] for row in folds])
    weights = quality.std(axis=0, ddof=1)
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(tasks), 1 / len(tasks))
    return _competition_ranks(quality) @ weights
