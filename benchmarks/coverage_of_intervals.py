"""How often the 95 % intervals of accuracy and macro-F1 cover the truth: the tables of docs/intervals.md.

`nice -n 10 python benchmarks/coverage_of_intervals.py`: some minutes of one core. One classifier, given by how
often it takes each class for each, stays fixed; new test sets are drawn again and again, and the intervals that
the product gives for them are compared with the figures that follow from the classifier itself.
"""

import sys
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.sparse import hstack

from agml_assets.quality.intervals import (
    MAX_GROUP_SHARE,
    MIN_CLASS_GROUPS,
    MIN_EVENT_GROUPS,
    MIN_GROUPS,
    Resamples,
    class_counts,
    effective_size,
    few_events,
    macro_f1,
    macro_f1_limits,
    wilson,
)

TEST_SETS = 1000
SIZES, CLASSES = (100, 300, 1000, 5000), (2, 15, 60)
BALANCED, ZIPF = "balanced", "Zipf"
ONE, CLUSTERED, ONE_LARGE = "groups of one", "clustered", "clustered, one group of 20 %"
LEVELS = 0.7, 0.95
"""Mean recall of the classifiers."""

MEAN_GROUP = 5
"""Images of a group in clustered test sets, on average; their number is geometric."""

SHARED = 0.8
"""Probability that an image of a group has the prediction of the group, and not one of its own."""

TAILS = 0.025, 0.975

_COLUMNS = 9000  # counts that are resampled at once


@dataclass(frozen=True)
class Classifier:
    """A fixed classifier: share of each class, and probability of each prediction given the class (k, k)."""

    prior: np.ndarray
    confusion: np.ndarray

    @property
    def accuracy(self) -> float:
        """Probability of a right prediction."""
        return float(self.prior @ np.diag(self.confusion))

    @property
    def macro_f1(self) -> float:
        """Macro-F1 in the population."""
        sums = np.concatenate([self.prior * np.diag(self.confusion), self.prior, self.prior @ self.confusion])
        return float(macro_f1(sums[None])[0])


def make_classifier(n_classes: int, balance: str, level: float) -> Classifier:
    """Return a classifier whose recalls lie around `level` and whose errors go to a few other classes."""
    prior = 1 / np.arange(1, n_classes + 1) if balance == ZIPF else np.ones(n_classes)
    spread = min(0.14, 0.8 * (1 - level))
    recall = np.random.default_rng(5).permutation(np.linspace(level - spread, level + spread, n_classes))
    confusion = np.diag(recall)
    for step, share in ((1, 0.6), (2, 0.3), (5, 0.1)) if n_classes > 2 else ((1, 1.0),):
        confusion[np.arange(n_classes), (np.arange(n_classes) + step) % n_classes] += (1 - recall) * share
    return Classifier(prior / prior.sum(), confusion)


def group_sizes(n: int, kind: str) -> np.ndarray:
    """Return sizes of groups that hold `n` images together."""
    if kind == ONE:
        return np.ones(n, np.int64)
    large = [n // 5] if kind == ONE_LARGE else []
    sizes = np.append(large, np.random.default_rng(1).geometric(1 / MEAN_GROUP, n)).astype(np.int64)
    sizes = sizes[: np.searchsorted(sizes.cumsum(), n) + 1]
    sizes[-1] -= sizes.sum() - n
    return sizes


def draw(classifier: Classifier, sizes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return given and predicted classes of the images of one test set; a group has one given class."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    cumulated = classifier.confusion.cumsum(axis=1)
    cumulated[:, -1] = 1
    true = rng.choice(len(classifier.prior), len(sizes), p=classifier.prior)
    common = (rng.random(len(sizes))[:, None] > cumulated[true]).sum(axis=1)[group]
    own = (rng.random(len(group))[:, None] > cumulated[true[group]]).sum(axis=1)
    return true[group], np.where(rng.random(len(group)) < SHARED, common, own)


@dataclass(frozen=True)
class Coverage:
    """Shares of test sets, in [0, 1]: those whose interval covers, those where it carries no warning.

    `percentile`: those that the plain percentiles of the resamples cover, the obvious way.
    """

    covered: float
    unwarned: float
    percentile: float


def measure(n: int, classifier: Classifier, kind: str, test_sets: int) -> tuple[Coverage, Coverage]:
    """Draw test sets and return how often the intervals of accuracy and of macro-F1 cover."""
    rng = np.random.default_rng([n, len(classifier.prior), kind == ONE])
    sizes = group_sizes(n, kind)
    first = np.append(0, sizes.cumsum()[:-1])
    resamples = Resamples(np.repeat(np.arange(len(sizes)), sizes))
    rows = np.arange(n)

    correct = np.zeros((n, test_sets))
    f1_covers, least_groups = [], []
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    for test_set in range(test_sets):
        true, predicted = draw(classifier, sizes, rng)
        correct[:, test_set] = true == predicted
        least_groups.append(np.unique(true[first], return_counts=True)[1].min())
        waiting.append((true, predicted))
        if 3 * len(classifier.prior) * len(waiting) >= _COLUMNS or test_set == test_sets - 1:
            f1_covers += covers_macro_f1(resamples, rows, waiting, sizes, classifier.macro_f1)
            waiting = []

    hits = np.add.reduceat(correct, first, axis=0)
    enough_events = (kind == ONE) | (np.minimum(*few_events(sizes, hits)) >= MIN_EVENT_GROUPS)
    enough_events &= sizes.max() <= MAX_GROUP_SHARE * n
    if kind == ONE:
        low, high = wilson(correct.sum(axis=0), n)
    else:
        effective = effective_size(sizes, hits)
        low, high = wilson(correct.mean(axis=0) * effective, effective)
    covers = (low <= classifier.accuracy) & (classifier.accuracy <= high)
    sums = resamples.sums(rows, np.column_stack([correct, np.ones(n)]))
    plain = np.quantile(sums[:, :-1] / sums[:, -1:], TAILS, axis=0)
    of_f1, plain_of_f1 = np.mean(f1_covers, axis=0).tolist()
    least = np.array(least_groups) >= MIN_CLASS_GROUPS
    return (
        Coverage(float(np.mean(covers)), float(enough_events.mean()), cover(plain, classifier.accuracy)),
        Coverage(of_f1, float(np.mean(enough_events & least)), plain_of_f1),
    )


def cover(limits: np.ndarray, truth: float) -> float:
    """Return the share of the intervals (2, r) that hold the truth."""
    return float(np.mean((limits[0] <= truth) & (truth <= limits[1])))


def covers_macro_f1(
    resamples: Resamples,
    rows: np.ndarray,
    test_sets: list[tuple[np.ndarray, np.ndarray]],
    sizes: np.ndarray,
    truth: float,
) -> list[tuple[bool, bool]]:
    """Return for each test set whether its interval of macro-F1, and plain percentiles, cover the truth."""
    values = [class_counts(true, predicted) for true, predicted in test_sets]
    sums = resamples.sums(rows, hstack(values, format="csr"))
    first = np.append(0, sizes.cumsum()[:-1])
    result, start = [], 0
    for (true, predicted), one in zip(test_sets, values, strict=True):
        point = float(macro_f1(np.asarray(one.sum(axis=0))[None])[0])
        replicates = macro_f1(sums[:, start : start + one.shape[1]])
        start += one.shape[1]
        hits = np.add.reduceat((true == predicted).astype(np.float64), first)
        of_classes = [sizes[true[first] == label] for label in np.unique(true)]
        low, high = macro_f1_limits(replicates, point, sizes, hits, of_classes)
        plain = np.nanquantile(replicates, TAILS)
        result.append((bool(low <= truth <= high), bool(plain[0] <= truth <= plain[1])))
    return result


def main(test_sets: int) -> None:
    """Print the tables as Markdown, a row as soon as it is measured."""
    print(f"{test_sets} test sets a cell; coverage in %, then in brackets the test sets without warning in %.")
    header = " | ".join(f"{figure} at {level}" for figure in ("accuracy", "macro-F1") for level in LEVELS)
    for kind in (ONE, CLUSTERED, ONE_LARGE):
        print(f"\n{kind}\n\n| n | groups | K | classes | {header} |\n|---|---|---|---|---|---|---|---|")
        measured: tuple[list[Coverage], list[Coverage]] = ([], [])
        for n, n_classes, balance in product(SIZES, CLASSES, (BALANCED, ZIPF)):
            if kind == ONE_LARGE and (n_classes, balance) != (CLASSES[1], BALANCED):
                continue
            groups, shown = len(group_sizes(n, kind)), [[], []]
            if groups < MIN_GROUPS:
                print(f"| {n} | {groups} | {n_classes} | {balance} | fewer than {MIN_GROUPS} groups | | | |")
                continue
            for level in LEVELS:
                both = measure(n, make_classifier(n_classes, balance, level), kind, test_sets)
                for cells, seen, coverage in zip(shown, measured, both, strict=True):
                    cells.append(f"{100 * coverage.covered:.1f} ({100 * coverage.unwarned:.0f})")
                    seen.append(coverage)
            print(f"| {n} | {groups} | {n_classes} | {balance} | {' | '.join(shown[0] + shown[1])} |", flush=True)
        print()
        for figure, seen in zip(("accuracy", "macro-F1"), measured, strict=True):
            sound = [coverage for coverage in seen if coverage.unwarned >= 0.95]
            if sound:
                ours, plain = ([100 * getattr(c, way) for c in sound] for way in ("covered", "percentile"))
                print(
                    f"{figure}, where at least 95 % of the test sets have no warning: {min(ours):.1f} to "
                    f"{max(ours):.1f} %; plain percentiles {min(plain):.1f} to {max(plain):.1f} %."
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TEST_SETS)
