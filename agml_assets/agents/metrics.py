"""What submissions are measured by: pure functions of arrays, and how each takes its arrays from two tables.

Reading and checking a submission is `submission`; a metric may refuse values that no scale has, naming the row.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int, Shaped

from agml_assets.errors import UserError, did_you_mean

MASK_SIDE = 256
"""Pixels across and down of a mask of contrails."""

MOST_CATEGORIES = 20
"""Categories of an image that count in the mean average precision of FathomNet 2023."""


class NotMeasurable(Exception):  # noqa: N818
    """A submission holds values that the metric has no scale for; the message names the row."""


def accuracy(true: Shaped[np.ndarray, " n"], predicted: Shaped[np.ndarray, " n"]) -> float:
    """Return the share of examples that are right, 0 to 1."""
    return float(np.mean(true == predicted))


def probability_accuracy(true: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"]) -> float:
    """Return the share of examples whose likeliest class is right, 0 to 1; of equals, the first counts."""
    return accuracy(true, probabilities.argmax(axis=1))


def macro_f1(true: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"]) -> float:
    """Return the mean of 2 TP / (2 TP + FP + FN) over the classes that have examples, 0 to 1.

    As scikit-learn's `f1_score(true, predicted, labels=numpy.unique(true), average="macro")`: a class that is only
    predicted costs the class that was missed, and has no F1 of its own.
    """
    classes = np.unique(true)
    hits = np.array([np.sum((true == one) & (predicted == one)) for one in classes], float)
    sizes = np.array([np.sum(true == one) + np.sum(predicted == one) for one in classes], float)
    return float(np.mean(2 * hits / sizes))


def average_precision(positive: Bool[np.ndarray, " n"], scores: Float[np.ndarray, " n"]) -> float:
    """Return the sum over thresholds of the gain in recall times the precision there, 0 to 1.

    Equal scores share a threshold, so that no order among them can be gained by luck; scikit-learn's
    `average_precision_score`. Source: Zhu 2004, Recall, precision and average precision.

    Raises:
        ValueError: Nothing is positive.
    """
    if not positive.any():
        raise ValueError("nothing is positive")
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    precision = hits[last] / (last + 1)
    gain = np.diff(hits[last], prepend=0) / hits[-1]
    return float(np.sum(precision * gain))


def mean_absolute_error(true: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"]) -> float:
    """Return the mean of |predicted - true|, in the unit of the values."""
    return float(np.mean(np.abs(predicted - true)))


def smape_plus_one(true: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"]) -> float:
    """Return the symmetric mean absolute percentage error of the values plus one, 0 to 200.

    100 times the mean of 2 |p - t| / (|t + 1| + |p + 1|), 0 where both are 0. Source: evaluation page of
    Kaggle's AMP Parkinson's Disease Progression Prediction; Makridakis 1993, doi:10.1016/0169-2070(93)90079-3.
    """
    size = np.abs(true + 1) + np.abs(predicted + 1)
    shares = np.divide(2 * np.abs(predicted - true), size, out=np.zeros_like(size), where=size > 0)
    return float(100 * np.mean(shares))


def mean_columnwise_rmse(true: Float[np.ndarray, "n c"], predicted: Float[np.ndarray, "n c"]) -> float:
    """Return the mean over columns of the root mean squared error, in the unit of the values.

    Source: evaluation page of Kaggle's Feedback Prize - English Language Learning.
    """
    return float(np.mean(np.sqrt(np.mean((predicted - true) ** 2, axis=0))))


def mean_dice(true: Sequence[Bool[np.ndarray, " p"]], predicted: Sequence[Bool[np.ndarray, " p"]]) -> float:
    """Return the mean over images of 2 |A and B| / (|A| + |B|), 0 to 1; two empty masks agree.

    Both sides of the fraction have 1e-6 added, as in the benchmark's own evaluation. Source: Dice 1945,
    doi:10.2307/1932409.
    """
    smooth = 1e-6
    shares = [
        (2 * np.sum(a & b) + smooth) / (np.sum(a) + np.sum(b) + smooth)
        for a, b in zip(true, predicted, strict=True)
    ]
    return float(np.mean(shares))


def mean_average_precision_at(
    true: Sequence[Collection[int]], predicted: Sequence[Sequence[int]], most: int = MOST_CATEGORIES
) -> float:
    """Return the mean over images of the average precision of their first `most` guesses, 0 to 1.

    Of one image: the sum, over the places of right guesses, of the precision up to there, over the number of right
    answers or `most`, whichever is less. A guess counts once; without answers the image counts 0. Source:
    evaluation page of Kaggle's FathomNet 2023.
    """
    values = []
    for answers, guesses in zip(true, predicted, strict=True):
        wanted, hits, total = set(answers), 0, 0.0
        for place, guess in enumerate(guesses[:most], start=1):
            if guess in wanted:
                wanted.remove(guess)
                hits += 1
                total += hits / place
        values.append(total / min(len(set(answers)), most) if answers else 0.0)
    return float(np.mean(values))


def area_under_curve(positive: Bool[np.ndarray, " n"], scores: Float[np.ndarray, " n"]) -> float:
    """Return the chance that a positive example has a higher score than a negative one, ties half, 0 to 1.

    Source: Mann and Whitney 1947, doi:10.1214/aoms/1177730491.

    Raises:
        ValueError: All are positive, or none is.
    """
    n_positive = int(positive.sum())
    if n_positive in (0, len(positive)):
        raise ValueError("one class alone has no area under the curve")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    wins = ranks[positive].sum() - n_positive * (n_positive + 1) / 2
    return float(wins / (n_positive * (len(positive) - n_positive)))


def fathomnet_score(
    true: Sequence[Collection[int]],
    predicted: Sequence[Sequence[int]],
    out_of_sample: Bool[np.ndarray, " n"],
    scores: Float[np.ndarray, " n"],
) -> float:
    """Return the mean of the MAP@20 of the categories and 2 AUC - 1 of what is out of sample, -0.5 to 1.

    Where the truth has no out-of-sample image, or no other, there is no AUC, and the MAP@20 stands alone. Source:
    evaluation page of Kaggle's FathomNet 2023.
    """
    categories = mean_average_precision_at(true, predicted)
    if out_of_sample.all() or not out_of_sample.any():
        return categories
    return (2 * area_under_curve(out_of_sample, scores) - 1 + categories) / 2


def read_mask(text: str) -> Bool[np.ndarray, " p"]:
    """Return the pixels of a run-length encoded mask, top to bottom, then left to right.

    `-`, or nothing, is an empty mask; else pairs of a start, from 1, and a length. Source: evaluation page of
    Kaggle's Google Research - Identify Contrails.

    Raises:
        NotMeasurable: It is no such text, or leaves the image.
    """
    pixels = MASK_SIDE**2
    words = text.split() if text.strip() != "-" else []
    if len(words) % 2 or not all(re.fullmatch("[0-9]{1,6}", word) for word in words):
        raise NotMeasurable("holds no pairs of a start and a length; write `-` for an empty mask")
    if len(words) > pixels:
        raise NotMeasurable("has more runs than the mask has room for")
    starts, lengths = np.array(words, dtype=np.int64).reshape(-1, 2).T
    outside = np.flatnonzero((starts < 1) | (starts - 1 + lengths > pixels))
    if len(outside):
        start, length = starts[outside[0]], lengths[outside[0]]
        raise NotMeasurable(f"has a run of {length} from pixel {start}, outside a mask of {pixels} pixels")
    steps = np.zeros(pixels + 1, np.int64)
    np.add.at(steps, starts - 1, 1)
    np.add.at(steps, starts - 1 + lengths, -1)
    covered: Bool[np.ndarray, " p"] = np.cumsum(steps)[:-1] > 0
    return covered


def write_mask(mask: Bool[np.ndarray, " p"]) -> str:
    """Return the run-length encoding that `read_mask` reads."""
    steps = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    pairs = np.stack([steps[::2] + 1, steps[1::2] - steps[::2]], axis=1)
    return " ".join(map(str, pairs.reshape(-1).tolist())) or "-"


def read_categories(text: str) -> list[int]:
    """Return the numbers of a list, parted by spaces or commas, in brackets or not.

    Raises:
        NotMeasurable: Something in it is no whole number.
    """
    words = re.sub(r"[\[\],]", " ", text).split()
    if not all(re.fullmatch(r"[0-9]{1,9}(\.0)?", word) for word in words):
        raise NotMeasurable("is no list of whole numbers parted by spaces")
    return [int(word.partition(".")[0]) for word in words]


Table = pl.DataFrame
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Metric:
    """A metric of the manifests.

    Attributes:
        measure: Takes the answers and the submission, aligned row by row: the same columns, or in the submission
            one Float64 column a class.
        direction: Whether a higher or a lower score is better.
    """

    measure: Callable[[Table, Table], float]
    direction: Literal["higher", "lower"]


def _only(table: Table) -> np.ndarray:
    """Return the one column that is measured."""
    return table.to_series(0).to_numpy()


def _masks(table: Table, column: str) -> list[Bool[np.ndarray, " p"]]:
    return [_named(row, column, read_mask, text) for row, text in enumerate(table[column], start=1)]


def _categories(table: Table) -> list[list[int]]:
    return [
        _named(row, "categories", read_categories, text) for row, text in enumerate(table["categories"], start=1)
    ]


def _named(row: int, column: str, read: Callable[[str], _Value], text: str) -> _Value:
    try:
        return read(text)
    except NotMeasurable as error:
        raise NotMeasurable(f"row {row}, column {column!r}: {str(text)[:40]!r} {error}") from None


def _columns(true: Table, predicted: Table) -> float:
    return mean_columnwise_rmse(true.to_numpy(), predicted.select(true.columns).to_numpy())


def _fathomnet(true: Table, predicted: Table) -> float:
    return fathomnet_score(
        _categories(true), _categories(predicted), true["osd"].to_numpy() > 0, predicted["osd"].to_numpy()
    )


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(lambda true, predicted: accuracy(_only(true), _only(predicted)), "higher"),
    "probability_accuracy": Metric(
        lambda true, predicted: probability_accuracy(_only(true), predicted.to_numpy()), "higher"
    ),
    "macro_f1": Metric(lambda true, predicted: macro_f1(_only(true), _only(predicted)), "higher"),
    "average_precision": Metric(
        lambda true, predicted: average_precision(_only(true).astype(bool), _only(predicted)), "higher"
    ),
    "mean_absolute_error": Metric(
        lambda true, predicted: mean_absolute_error(_only(true), _only(predicted)), "lower"
    ),
    "smape_plus_one": Metric(lambda true, predicted: smape_plus_one(_only(true), _only(predicted)), "lower"),
    "mean_columnwise_rmse": Metric(_columns, "lower"),
    "mean_dice": Metric(
        lambda true, predicted: mean_dice(_masks(true, true.columns[0]), _masks(predicted, true.columns[0])),
        "higher",
    ),
    "fathomnet_score": Metric(_fathomnet, "higher"),
}
"""By the names that manifests use."""


def find_metric(name: str, task: str) -> Metric:
    """Return a metric by its name.

    Raises:
        UserError: There is none of this name, naming the task and those that look like it.
    """
    if name not in METRICS:
        raise UserError(
            f"Task {task!r}: there is no metric {name!r}.{did_you_mean(name, METRICS)} "
            f"Metrics: {', '.join(METRICS)}."
        )
    return METRICS[name]
