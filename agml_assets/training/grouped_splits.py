"""Splits and folds in which copies of an image never part: the ground of every leak-safe figure.

What counts as a copy is decided in `embeddings`; splits from labels alone are in `dataset`.
"""

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from agml_assets.settings import Settings

SPLITS = ("train", "val", "test")

MIN_CLASS_GROUPS = 3
"""Groups that a class needs to be in all three splits."""

EXCEEDS_ROOM = "exceeds the room left"
"""Ends the reason of images whose group fits neither into the validation nor into the test split."""


def grouped_splits(
    labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"], n_classes: int, settings: Settings
) -> pl.DataFrame:
    """Draw a split and cross-validation folds by whole groups of copies, each class apart.

    A group is drawn with the class that most of its images carry. The groups of a class are drawn from the
    largest to the smallest, each into a split that still has room for it, at random in proportion to that
    room, so that groups of any size have their chance of being tested. A class with three groups or more has
    one in each split, whatever the ratios. To train go, with a reason: a group larger than the whole
    validation and test splits are to be; all images of a class with fewer than three groups, and their copies.

    Folds take every row: the groups of a class, from the largest to the smallest, each into the fold that has
    the fewest images of the class, then the fewest of all (greedy; Graham 1969, doi:10.1137/0117039).

    Args:
        labels: Class of each row, 0..n_classes-1.
        groups: Group of copies of each row; any ids.
        n_classes: Declared classes, with images or without.
        settings: `train_ratio`, `val_ratio`, `split_seed` and `cv_folds`.

    Returns:
        A frame with Int64 `row`; String `split`; Int64 `fold` in 0..cv_folds-1; String `reason`, why a row
        was sent to train instead of being drawn, null for rows that were drawn.

    Raises:
        ValueError: `labels` and `groups` differ in length.
    """
    if len(labels) != len(groups):
        raise ValueError(f"{len(labels)} labels and {len(groups)} groups")
    n = len(labels)
    _, group = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group)
    n_groups = len(sizes)
    pairs, pair_counts = np.unique(group * n_classes + labels, return_counts=True)
    pair_group, pair_class = np.divmod(pairs, n_classes)
    class_groups = np.bincount(pair_class, minlength=n_classes)
    main_class = _main_classes(pair_group, pair_class, pair_counts)

    shares = np.array([settings.train_ratio, settings.val_ratio, settings.test_ratio])
    oversized = sizes > max(1, round(float(shares[1:].max()) * n))
    rare = class_groups < MIN_CLASS_GROUPS
    held = np.zeros(n_groups, bool)
    held[pair_group[rare[pair_class]]] = True

    rng = np.random.default_rng(settings.split_seed)
    order = np.lexsort((rng.random(n_groups), -sizes, main_class))
    split = _draw_splits(sizes, main_class, oversized | held, shares, order, rng.random(n_groups))
    fold = _draw_folds(sizes, main_class, settings.cv_folds, order)

    reasons = pl.select(
        pl.when(pl.Series(rare[labels]))
        .then(_class_reason(pl.Series(class_groups[labels])))
        .when(pl.Series(oversized[group]))
        .then(pl.format("group of {} images " + EXCEEDS_ROOM, pl.Series(sizes[group])))
        .when(pl.Series(held[group]))
        .then(pl.lit(f"copy of an image of a class with fewer than {MIN_CLASS_GROUPS} groups"))
    ).to_series()
    return pl.DataFrame(
        {
            "row": np.arange(n, dtype=np.int64),
            "split": pl.Series(np.array(SPLITS, dtype=object)[split[group]], dtype=pl.String),
            "fold": fold[group],
            "reason": reasons,
        }
    )


def _class_reason(n_groups: pl.Series) -> pl.Expr:
    return pl.format(
        "class with {} group{}", n_groups, pl.when(n_groups == 1).then(pl.lit("")).otherwise(pl.lit("s"))
    )


def _main_classes(
    pair_group: Int[np.ndarray, " p"], pair_class: Int[np.ndarray, " p"], pair_counts: Int[np.ndarray, " p"]
) -> Int[np.ndarray, " g"]:
    """Return the most frequent class of every group, the first of equals."""
    order = np.lexsort((pair_class, -pair_counts, pair_group))
    first = np.unique(pair_group[order], return_index=True)[1]
    return pair_class[order][first]


def _draw_splits(
    sizes: Int[np.ndarray, " g"],
    main_class: Int[np.ndarray, " g"],
    to_train: Int[np.ndarray, " g"],
    shares: Float[np.ndarray, " 3"],
    order: Int[np.ndarray, " g"],
    lots: Float[np.ndarray, " g"],
) -> Int[np.ndarray, " g"]:
    """Return the split of each group, as a place in `SPLITS`."""
    split = np.zeros(len(sizes), np.int64)
    bounds = np.flatnonzero(np.diff(main_class[order], prepend=-1))
    for members in np.split(order, bounds[1:]):
        drawn = members[~to_train[members]]
        room = (shares * sizes[members].sum()).tolist()
        room[0] -= int(sizes[members[to_train[members]]].sum())
        empty = {0, 1, 2} if len(drawn) == len(members) else {1, 2}
        for left, (one, size, lot) in enumerate(
            zip(drawn.tolist(), sizes[drawn].tolist(), lots[drawn].tolist(), strict=True)
        ):
            must = len(drawn) - left <= len(empty)
            choice = _choose(room, size, sorted(empty) if must else [0, 1, 2], lot)
            split[one] = choice
            room[choice] -= size
            empty.discard(choice)
    return split


def _choose(room: list[float], size: int, allowed: list[int], lot: float) -> int:
    """Return the split that a group goes into: one that holds it, or most of it, else the roomiest."""
    for needed in (size, size / 2):
        fitting = [split for split in allowed if room[split] >= needed]
        if fitting:
            lot *= sum(room[split] for split in fitting)
            for split in fitting:
                lot -= room[split]
                if lot < 0:
                    return split
            return fitting[-1]
    return max(allowed, key=room.__getitem__)


def _draw_folds(
    sizes: Int[np.ndarray, " g"], main_class: Int[np.ndarray, " g"], n_folds: int, order: Int[np.ndarray, " g"]
) -> Int[np.ndarray, " g"]:
    """Return the fold of each group."""
    fold = np.zeros(len(sizes), np.int64)
    total = [0] * n_folds
    of_class = [0] * n_folds
    current = -1
    for one, label, size in zip(order.tolist(), main_class[order].tolist(), sizes[order].tolist(), strict=True):
        if label != current:
            current, of_class = label, [0] * n_folds
        choice = min(range(n_folds), key=lambda place: (of_class[place], total[place]))
        fold[one] = choice
        of_class[choice] += size
        total[choice] += size
    return fold
