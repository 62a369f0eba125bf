"""What is drawn of a task's out-of-fold predictions: points of numbers, a confusion matrix of classes.

Small enough for a page of many submissions: points are sampled, and of many classes only the most confused remain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

MOST_POINTS = 500
"""Points of a parity plot, of all outputs together."""
MOST_OUTPUTS = 8
MOST_CLASSES = 30
MOST_PAIRS = 40
_DIGITS = 4


@dataclass(frozen=True)
class Parity:
    """True and predicted numbers.

    Attributes:
        n: Samples, of which the points are some.
        outputs: Place of each drawn output among the labels; empty where there is one output.
        more: Outputs that are not drawn.
        points: For each drawn output, true value and prediction of samples that are evenly spaced in the order of
            ids, at 4 significant digits.
    """

    kind: ClassVar = "parity"
    n: int
    outputs: tuple[int, ...]
    more: int
    points: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True)
class Confusion:
    """True and predicted classes.

    Attributes:
        n: Samples.
        classes: Names.
        counts: Samples by true class, a row each, and predicted class.
    """

    kind: ClassVar = "matrix"
    n: int
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Confused:
    """Classes that are taken for another, of more classes than a matrix shows.

    Attributes:
        n: Samples.
        classes: How many there are.
        wrong: Samples with a wrong prediction.
        pairs: True class, prediction, how often, and samples of the true class; most frequent first.
        pairs_in_all: How many there are.
    """

    kind: ClassVar = "confused"
    n: int
    classes: int
    wrong: int
    pairs: tuple[tuple[str, str, int, int], ...]
    pairs_in_all: int


Figure = Parity | Confusion | Confused


def predictions_of(task: Mapping[str, Any]) -> Figure:
    """Return what is drawn of a task in `task_scores.json`."""
    true, predicted = np.asarray(task["true"]), np.asarray(task["predicted"])
    if task["kind"] == "regression":
        return _parity(true.reshape(len(true), -1), predicted.reshape(len(true), -1), task["others"])
    names, n = [str(name) for name in task["class_names"]], len(true)
    counts = np.bincount(true * len(names) + predicted, minlength=len(names) ** 2).reshape(len(names), -1)
    if len(names) <= MOST_CLASSES:
        return Confusion(n, tuple(names), tuple(map(tuple, counts.tolist())))
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")
    pairs = [divmod(place, len(names)) for place in order[: (wrong > 0).sum()].tolist()]
    return Confused(
        n,
        len(names),
        int(wrong.sum()),
        tuple((names[a], names[b], int(wrong[a, b]), int(counts[a].sum())) for a, b in pairs[:MOST_PAIRS]),
        len(pairs),
    )


def _parity(true: np.ndarray, predicted: np.ndarray, others: Mapping[str, Any]) -> Parity:
    drawn = min(true.shape[1], MOST_OUTPUTS)
    some = np.unique(np.linspace(0, len(true) - 1, min(len(true), MOST_POINTS // drawn)).round().astype(int))
    # Outputs keep their numbers among the labels where others were left out; scores of each are named by them.
    named = [int(name[3:-1]) for name in others if name.startswith("r2[")] if true.shape[1] > 1 else []
    return Parity(
        len(true),
        tuple(named[:drawn]),
        true.shape[1] - drawn,
        tuple(
            tuple((_rounded(a), _rounded(b)) for a, b in zip(true[some, one], predicted[some, one], strict=True))
            for one in range(drawn)
        ),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
