"""Models compared over the datasets that they share: average ranks, whether they differ, and by how much.

After Demšar 2006, "Statistical comparisons of classifiers over multiple data sets" (JMLR 7:1-30): Friedman's test
over all models, Nemenyi's critical difference between any two average ranks, Wilcoxon's test for a pair.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

LEVEL = 0.95
FEWEST_DATASETS = 6
"""Datasets below which Wilcoxon's two-sided test of a pair cannot fall below 0.05 (2 / 2^5 = 0.0625)."""

_FEWEST_MODELS = 3  # of Friedman's test
_DECIMALS = 9  # of differences: 0.3 - 0.1 and 0.2 are equal ones, as scores have far fewer decimals

Scores = Mapping[str, Mapping[str, float]]
"""Score by model and dataset; higher is better."""


@dataclass(frozen=True)
class Ranking:
    """Models by average rank over the datasets that all of them share.

    Attributes:
        datasets: The shared datasets, by name.
        average_ranks: Average rank of each model, 1 being the best and equal scores sharing the mean of their
            ranks; ascending.
        friedman_p: P value of Friedman's test that all models are alike; null with fewer than three models, or if
            all are equal on every dataset.
        critical_difference: Average ranks that are further apart differ at the level of 5 % (Nemenyi).
        not_distinguished: Groups of models, as large as possible, in which no two differ.
    """

    datasets: tuple[str, ...]
    average_ranks: Mapping[str, float]
    friedman_p: float | None
    critical_difference: float
    not_distinguished: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Pair:
    """Two models over the datasets that they share.

    Attributes:
        first: The one model.
        second: The other.
        datasets: How many datasets both have a score on.
        wins: Datasets on which the first is better.
        losses: Datasets on which the second is better.
        mean_difference: Mean of the first's scores minus the second's.
        low: Lower limit of the 95 % interval of that mean, of Student's t; null with fewer than six datasets.
        high: Upper limit.
        p: P value of Wilcoxon's signed-rank test, equal scores split evenly; null as the limits.
    """

    first: str
    second: str
    datasets: int
    wins: int
    losses: int
    mean_difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


def rank_models(scores: Scores, models: Sequence[str]) -> Ranking | None:
    """Return two or more models ranked over the datasets that they share; None where there is none."""
    shared = sorted(set.intersection(*(set(scores[model]) for model in models)))
    if not shared:
        return None
    table = np.array([[scores[model][name] for model in models] for name in shared])
    averages = average_ranks(table)
    order = sorted(range(len(models)), key=lambda place: (averages[place], models[place]))
    ranks = {models[place]: float(averages[place]) for place in order}
    difference = critical_difference(len(models), len(shared))
    return Ranking(tuple(shared), ranks, friedman_p(table), difference, _groups(ranks, difference))


def rank_nested(scores: Scores) -> list[Ranking]:
    """Return rankings of ever more models over ever fewer datasets.

    The model with most datasets comes first; each next one is that which leaves most datasets shared. Of
    rankings over the same datasets only that with most models is returned: one narrow model shrinks only those
    rankings that it is in.
    """
    left = {model: set(datasets) for model, datasets in scores.items()}
    chosen: list[str] = []
    largest: dict[int, list[str]] = {}  # the sets shrink one into the next: their sizes tell them apart
    while left:
        # Of equal ones the first by name: the same scores give the same rankings.
        best = max(sorted(left), key=lambda model: len(left[model]))
        shared = left.pop(best)
        if not shared:
            break
        left = {model: datasets & shared for model, datasets in left.items()}
        chosen = [*chosen, best]
        largest[len(shared)] = chosen
    rankings = (rank_models(scores, models) for models in largest.values() if len(models) > 1)
    return [ranking for ranking in rankings if ranking is not None]


def compare_pairs(scores: Scores) -> list[Pair]:
    """Return every two models that share a dataset, by name.

    Differences are compared to nine decimals. All pairs that share as many datasets are tested at once: there are
    tens of thousands of pairs where there are hundreds of models.
    """
    models = sorted(scores)
    places = {name: place for place, name in enumerate(sorted({name for of in scores.values() for name in of}))}
    table = np.full((len(models), len(places)), np.nan)
    for row, model in enumerate(models):
        for name, score in scores[model].items():
            table[row, places[name]] = score
    firsts, seconds = np.triu_indices(len(models), 1)
    shared = (~np.isnan(table)).astype(int)
    sizes = (shared @ shared.T)[firsts, seconds]
    found: dict[int, Pair] = {}
    for n in np.unique(sizes[sizes > 0]):
        chosen = np.flatnonzero(sizes == n)
        differences = table[firsts[chosen]] - table[seconds[chosen]]
        differences = differences[~np.isnan(differences)].reshape(len(chosen), n)
        facts = _pair_facts(np.round(differences, _DECIMALS))
        for place, of_pair in zip(chosen.tolist(), facts, strict=True):
            found[place] = Pair(models[firsts[place]], models[seconds[place]], int(n), *of_pair)
    return [found[place] for place in sorted(found)]


def average_ranks(table: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    """Return the average rank of each model over the datasets, equal scores sharing the mean of their ranks.

    Args:
        table: Score of k models on n datasets; higher is better.
    """
    from scipy.stats import rankdata

    averages: Float[np.ndarray, " k"] = rankdata(-table, axis=1).mean(axis=0)
    return averages


def friedman_p(table: Float[np.ndarray, "n k"]) -> float | None:
    """Return the P value of Friedman's test (chi-squared, corrected for ties); None where it is not defined.

    It is too large rather than too small with few datasets: the distribution is that of many, more than ten as a
    rule (Demšar 2006, section 3.2.2).
    """
    from scipy.stats import friedmanchisquare

    all_equal = bool((table == table[:, :1]).all())
    if table.shape[1] < _FEWEST_MODELS or all_equal:
        return None
    return float(friedmanchisquare(*table.T).pvalue)


def critical_difference(n_models: int, n_datasets: int) -> float:
    """Return Nemenyi's critical difference of average ranks at 5 %: q sqrt(k (k + 1) / 6 N).

    q is the quantile of the studentized range for k models and infinite degrees of freedom, over sqrt(2)
    (Demšar 2006, section 3.2.2).
    """
    q = _studentized_range(n_models) / np.sqrt(2)
    return float(q * np.sqrt(n_models * (n_models + 1) / (6 * n_datasets)))


@lru_cache(maxsize=1024)
def _studentized_range(n_models: int) -> float:
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(LEVEL, n_models, np.inf))


def _groups(ranks: Mapping[str, float], difference: float) -> tuple[tuple[str, ...], ...]:
    models = list(ranks)
    groups: list[tuple[str, ...]] = []
    end = 0
    for start, model in enumerate(models):
        reach = sum(rank - ranks[model] < difference for rank in list(ranks.values())[start:]) + start
        if reach > max(end, start + 1):
            groups.append(tuple(models[start:reach]))
            end = reach
    return tuple(groups)


def _pair_facts(differences: Float[np.ndarray, "p n"]) -> Iterator[tuple[Any, ...]]:
    """Return what `Pair` says of each row of differences, from `wins` on."""
    n = differences.shape[1]
    means = differences.mean(axis=1)
    columns = [(differences > 0).sum(axis=1), (differences < 0).sum(axis=1), means]
    if n >= FEWEST_DATASETS:
        from scipy.special import stdtrit

        half = stdtrit(n - 1, (1 + LEVEL) / 2) * differences.std(axis=1, ddof=1) / np.sqrt(n)
        columns += [means - half, means + half, _wilcoxon_p(differences)]
    return zip(*(column.tolist() for column in columns), strict=True)


def _wilcoxon_p(differences: Float[np.ndarray, "p n"]) -> Float[np.ndarray, " p"]:
    """Return the P value of Wilcoxon's signed-rank test of each row."""
    from scipy.stats import wilcoxon

    p = np.ones(len(differences))  # of models that are equal everywhere
    sizes = np.sort(np.abs(differences), axis=1)
    # Ties have no exact distribution but by permuting all signs, which takes seconds a pair: R's way instead.
    tied = (sizes[:, 0] == 0) | (np.diff(sizes, axis=1) == 0).any(axis=1)
    for rows, method in ((~tied, "auto"), (tied & (sizes[:, -1] > 0), "asymptotic")):
        if rows.any():
            p[rows] = wilcoxon(differences[rows], axis=1, zero_method="zsplit", method=method).pvalue
    return p
