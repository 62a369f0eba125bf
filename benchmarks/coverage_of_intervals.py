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
    MIN_CLASS_GROUPS,
    MIN_EVENT_GROUPS,
    MIN_GROUPS,
    Resamples,
    bootstrap_limits,
    class_counts,
    effective_size,
    few_events,
    macro_f1,
    wilson,
)

TEST_SETS = 1000
SIZES, CLASSES = (100, 300, 1000, 5000), (2, 15, 60)
BALANCED, ZIPF = "balanced", "Zipf"
ONE, CLUSTERED = "groups of one", "clustered"
LEVELS = 0.7, 0.95
"""Mean recall of the classifiers."""

MEAN_GROUP = 5
"""Images of a group in clustered test sets, on average; their number is geometric."""

SHARED = 0.8
"""Probability that an image of a group has the prediction of the group, and not one of its own."""

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
    sizes = np.random.default_rng(1).geometric(1 / MEAN_GROUP, n)
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
    """Shares of test sets, in [0, 1], whose interval covers, and whose interval carries no warning."""

    accuracy: float
    accuracy_unwarned: float
    macro_f1: float
    macro_f1_unwarned: float


def measure(n: int, classifier: Classifier, kind: str, test_sets: int) -> Coverage:
    """Draw test sets and return how often the intervals cover."""
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
    if kind == ONE:
        low, high = wilson(correct.sum(axis=0), n)
        unwarned = np.ones(test_sets, bool)
    else:
        effective = effective_size(sizes, hits)
        low, high = wilson(correct.mean(axis=0) * effective, effective)
        unwarned = np.minimum(*few_events(sizes, hits)) >= MIN_EVENT_GROUPS
    return Coverage(
        accuracy=float(np.mean((low <= classifier.accuracy) & (classifier.accuracy <= high))),
        accuracy_unwarned=float(unwarned.mean()),
        macro_f1=float(np.mean(f1_covers)),
        macro_f1_unwarned=float(np.mean(np.array(least_groups) >= MIN_CLASS_GROUPS)),
    )


def covers_macro_f1(
    resamples: Resamples,
    rows: np.ndarray,
    test_sets: list[tuple[np.ndarray, np.ndarray]],
    sizes: np.ndarray,
    truth: float,
) -> list[bool]:
    """Return for each test set whether its interval of macro-F1 covers the truth."""
    values = [class_counts(true, predicted) for true, predicted in test_sets]
    sums = resamples.sums(rows, hstack(values, format="csr"))
    result, start = [], 0
    for one in values:
        point = float(macro_f1(np.asarray(one.sum(axis=0))[None])[0])
        replicates = macro_f1(sums[:, start : start + one.shape[1]])
        start += one.shape[1]
        low, high = bootstrap_limits(replicates, point, sizes)
        result.append(bool(low <= truth <= high))
    return result


def main(test_sets: int) -> None:
    """Print both tables as Markdown, a row as soon as it is measured."""
    print(f"{test_sets} test sets a cell; coverage in %, then in brackets the test sets without warning in %.\n")
    header = " | ".join(f"{figure} at {level}" for figure in ("accuracy", "macro-F1") for level in LEVELS)
    for kind in (ONE, CLUSTERED):
        print(f"{kind}\n\n| n | groups | K | classes | {header} |\n|---|---|---|---|---|---|---|---|")
        for n, n_classes, balance in product(SIZES, CLASSES, (BALANCED, ZIPF)):
            groups = len(group_sizes(n, kind))
            if groups < MIN_GROUPS:
                print(f"| {n} | {groups} | {n_classes} | {balance} | none: fewer than {MIN_GROUPS} groups | | | |")
                continue
            cells = [measure(n, make_classifier(n_classes, balance, level), kind, test_sets) for level in LEVELS]
            shown = [f"{100 * c.accuracy:.1f} ({100 * c.accuracy_unwarned:.0f})" for c in cells]
            shown += [f"{100 * c.macro_f1:.1f} ({100 * c.macro_f1_unwarned:.0f})" for c in cells]
            print(f"| {n} | {groups} | {n_classes} | {balance} | {' | '.join(shown)} |", flush=True)
        print()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TEST_SETS)
