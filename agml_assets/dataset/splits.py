"""Train, validation and test split from labels alone, by the recipes that AgML's results were made with.

Splits that keep copies of an image together need duplicate groups and belong to `training`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import polars as pl
from jaxtyping import Int

from agml_assets.dataset.sources.base import SPLIT_NAMES
from agml_assets.errors import UserError
from agml_assets.settings import Settings

TRAIN, VAL, TEST = "train", "val", "test"


@dataclass(frozen=True)
class SplitResult:
    """The part that each row falls in, and what kept a recipe from being followed.

    Attributes:
        assignment: `train`, `val`, `test` or None for each row; only `native` leaves rows out.
        fallback: Sentences for people; empty when all went by the recipe.
    """

    assignment: tuple[str | None, ...]
    fallback: tuple[str, ...]


def make_splits(
    labels: Int[np.ndarray, " n"], native_splits: Sequence[str | None], settings: Settings
) -> tuple[pl.DataFrame, dict[str, tuple[str, ...]]]:
    """Split the usable rows of a dataset by every recipe.

    Args:
        labels: Class of each usable row.
        native_splits: The source's own split of each usable row, as it calls it, or None.
        settings: Ratios, seed, and the recipe that metrics use.

    Returns:
        A frame with `row` and a String column for each recipe, and the fallback sentences by recipe.

    Raises:
        UserError: The settings ask for the native split and the dataset has none.
    """
    ratios = settings.train_ratio, settings.val_ratio, settings.split_seed
    results = {
        "hf": split_hf(labels, *ratios),
        "sklearn": split_sklearn(labels, *ratios),
        "native": split_native(native_splits),
    }
    if settings.split_recipe == "native" and not any(results["native"].assignment):
        raise UserError(
            "The setting split_recipe is 'native', but the dataset has no train, val or test split of its "
            "own. Use 'hf' or 'sklearn'."
        )
    frame = pl.DataFrame(
        {
            "row": np.arange(labels.size, dtype=np.int64),
            **{recipe: pl.Series(result.assignment, dtype=pl.String) for recipe, result in results.items()},
        }
    )
    return frame, {recipe: result.fallback for recipe, result in results.items()}


def split_hf(labels: Int[np.ndarray, " n"], train_ratio: float, val_ratio: float, seed: int) -> SplitResult:
    """Split as two calls of `datasets.Dataset.train_test_split(stratify_by_column=...)` do.

    This is the recipe of all published AgML reports: train is drawn against the rest, then, from the rest in
    the shuffled order of that draw, validation against test with the same seed. A draw that cannot be
    stratified is made at random. One that would leave a part empty is not made: its rows go to train.

    Args:
        labels: Class of each row, any integers.
        train_ratio: Share of the training split, in (0, 1).
        val_ratio: Share of the validation split, in (0, 1).
        seed: Seed of either draw.
    """
    rest_share, test_share = _shares(train_ratio, val_ratio)
    rest, first_problem = _draw_hf(labels, rest_share, seed)[1:]
    val, test, second_problem = _draw_hf(labels[rest], test_share, seed)
    return _result(
        labels.size,
        val=rest[val],
        test=rest[test],
        problems={"train against the rest": first_problem, "validation against test": second_problem},
    )


def split_sklearn(labels: Int[np.ndarray, " n"], train_ratio: float, val_ratio: float, seed: int) -> SplitResult:
    """Split with two uses of `sklearn.model_selection.StratifiedShuffleSplit`.

    This is the recipe of AgML's current code and its experiments; it differs from `split_hf` in the draws,
    not in the sizes. A draw that cannot be stratified is made at random, with a size that is rounded
    instead of rounded up, the second one with the next seed.

    Args:
        labels: Class of each row, any integers.
        train_ratio: Share of the training split, in (0, 1).
        val_ratio: Share of the validation split, in (0, 1).
        seed: Seed of either draw.
    """
    rest_share, test_share = _shares(train_ratio, val_ratio)
    _, rest, first_problem = _draw_sklearn(labels, rest_share, train_ratio, seed, seed)
    val, test, second_problem = _draw_sklearn(
        labels[rest], test_share, val_ratio / (1.0 - train_ratio), seed, seed + 1
    )
    return _result(
        labels.size,
        val=rest[val],
        test=rest[test],
        problems={"train against the rest": first_problem, "validation against test": second_problem},
    )


def split_native(native_splits: Sequence[str | None]) -> SplitResult:
    """Take the source's own split, whatever it calls its parts.

    Args:
        native_splits: Name of the source's split of each row, in any case, or None.
    """
    assignment = [SPLIT_NAMES.get(name.lower()) if name is not None else None for name in native_splits]
    others = Counter(
        name for name, part in zip(native_splits, assignment, strict=True) if name is not None and part is None
    )
    return SplitResult(
        tuple(assignment),
        tuple(
            f"{count} images of the dataset's own split {name!r} are in neither train, val nor test."
            for name, count in sorted(others.items())
        ),
    )


def _shares(train_ratio: float, val_ratio: float) -> tuple[float, float]:
    """Return the share of the rest in all rows, and of the test split in the rest.

    The floating-point errors belong to the recipes: 0.7 and 0.15 give 0.30000000000000004 and
    0.5000000000000001, which puts 151 and not 150 of 1000 images in the test split.
    """
    rest = 1.0 - train_ratio
    return rest, 1.0 - val_ratio / rest


def _result(
    n: int, val: Int[np.ndarray, " v"], test: Int[np.ndarray, " t"], problems: dict[str, str | None]
) -> SplitResult:
    assignment = np.full(n, TRAIN, dtype=object)
    assignment[val] = VAL
    assignment[test] = TEST
    sentences = (f"Drawing {draw}: {problem}" for draw, problem in problems.items() if problem)
    return SplitResult(tuple(assignment), tuple(sentences))


Draw = tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"], str | None]
"""Positions of the two parts, in drawn order, and what kept the draw from being stratified."""


def _draw_hf(labels: Int[np.ndarray, " n"], share: float, seed: int) -> Draw:
    """Draw a share of the rows as the second part; both parts are empty when that is impossible."""
    n_second = ceil(share * labels.size)
    n_first = labels.size - n_second
    if n_first == 0:
        problem = f"{labels.size} images are too few for two parts and went to train." if labels.size else None
        return np.arange(0), np.arange(0), problem
    obstacle = _obstacle(labels, n_first, n_second)
    rng = np.random.default_rng(seed)
    if obstacle is None:
        return *_stratified_hf(labels, n_first, n_second, rng), None
    shuffled = rng.permutation(labels.size)
    return shuffled[n_second:], shuffled[:n_second], f"{obstacle}, so it is random and not stratified."


def _obstacle(labels: Int[np.ndarray, " n"], n_first: int, n_second: int) -> str | None:
    """Return why the rows cannot be stratified, or None."""
    classes, counts = np.unique(labels, return_counts=True)
    if counts.min() < 2:
        single = classes[counts < 2]
        return f"{single.size} of {classes.size} classes have a single image (the first is label {single[0]})"
    if min(n_first, n_second) < classes.size:
        return f"parts of {n_first} and {n_second} images cannot hold {classes.size} classes each"
    return None


def _stratified_hf(
    labels: Int[np.ndarray, " n"], n_first: int, n_second: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(classes, kind="stable"), np.cumsum(counts)[:-1])
    firsts = _quotas(counts, n_first, rng)
    seconds = _quotas(counts - firsts, n_second, rng)
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for rows, first, second in zip(members, firsts, seconds, strict=True):
        shuffled = rows[rng.permutation(rows.size)]
        parts[0].append(shuffled[:first])
        parts[1].append(shuffled[first : first + second])
    return rng.permutation(np.concatenate(parts[0])), rng.permutation(np.concatenate(parts[1]))


def _quotas(counts: Int[np.ndarray, " k"], n: int, rng: np.random.Generator) -> Int[np.ndarray, " k"]:
    """Divide `n` draws among classes in proportion to their counts, by largest remainders.

    Classes of equal remainder are drawn by lot. The lot is drawn even where all of them win, as
    every use of the generator changes what follows.
    """
    exact = n * counts / counts.sum()
    quotas = np.floor(exact).astype(np.int64)
    remainders = exact - quotas
    missing = n - int(quotas.sum())
    for value in np.unique(remainders)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(remainders == value)
        winners = rng.choice(tied, size=min(tied.size, missing), replace=False)
        quotas[winners] += 1
        missing -= winners.size
    return quotas


def _draw_sklearn(
    labels: Int[np.ndarray, " n"], share: float, first_share: float, seed: int, fallback_seed: int
) -> Draw:
    """Draw a share of the rows as the second part; at random, the first part is `first_share`, rounded."""
    from sklearn.model_selection import StratifiedShuffleSplit

    if labels.size == 0:
        return np.arange(0), np.arange(0), None
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=share, random_state=seed)
    try:
        first, second = next(splitter.split(np.zeros(labels.size), labels))
    except ValueError as error:
        shuffled = np.random.default_rng(fallback_seed).permutation(labels.size)
        n_first = round(labels.size * first_share)
        problem = f"{str(error).rstrip('.')}. So it is random and not stratified."
        return shuffled[:n_first], shuffled[n_first:], problem
    return first, second, None
