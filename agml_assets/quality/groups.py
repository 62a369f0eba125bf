"""Facts about groups of copies, whatever makes two images copies: sizes, leaks over splits, label conflicts.

Works on one frame: a row per image with `row`, `source_row`, `class_name`, `split`, `native` and a group id.
"""

from itertools import combinations
from typing import Any

import polars as pl

SPLITS = ("train", "val", "test")

MAX_EXAMPLES = 100
"""Label-conflict groups that a report lists; all are counted."""

MAX_EXAMPLE_IMAGES = 20
"""Images that a report lists of one such group."""


def members(images: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return the images whose group in column `group` has at least two, the group id renamed `group`."""
    return images.filter(pl.len().over(group) >= 2).rename({group: "group"})


def count_cross_split(members: pl.DataFrame) -> int:
    """Count the images in groups that touch at least two splits of the recipe in use (column `split`)."""
    return members.filter(pl.col("split").drop_nulls().n_unique().over("group") >= 2).height


def largest_group(members: pl.DataFrame) -> int:
    """Return the size of the largest group; 1 where no image has a copy."""
    sizes = members.group_by("group").len()["len"]
    return int(sizes.max() or 1)  # type: ignore[arg-type]


def native_split_leaks(members: pl.DataFrame, has_native_splits: bool) -> dict[str, Any] | None:
    """Return, for each pair of the dataset's own splits, the copies that lie in both.

    Args:
        members: Images in groups of copies.
        has_native_splits: Whether the dataset comes with splits of its own.

    Returns:
        `{"train-test": {"groups": 3, "train_images": 4, "test_images": 5}, ...}`: three groups with
        an image in either split, holding four training images and five test images; or null for a
        dataset without splits of its own.
    """
    if not has_native_splits:
        return None
    counts = members.group_by("group").agg(
        (pl.col("native") == split).fill_null(value=False).sum().alias(split) for split in SPLITS
    )
    leaks = {}
    for one, other in combinations(SPLITS, 2):
        both = counts.filter((pl.col(one) > 0) & (pl.col(other) > 0))
        leaks[f"{one}-{other}"] = {
            "groups": both.height,
            f"{one}_images": int(both[one].sum()),
            f"{other}_images": int(both[other].sum()),
        }
    return leaks


def label_conflicts(members: pl.DataFrame) -> dict[str, Any]:
    """Return the groups whose images do not all carry the same label.

    Returns:
        `groups` and `images` in them, all counted; `examples`, the first `MAX_EXAMPLES` groups by
        smallest row, each with `size`, `classes` {class: images} and `source_rows`, at most
        `MAX_EXAMPLE_IMAGES` of them, ascending.
    """
    at_odds = members.filter(pl.col("class_name").n_unique().over("group") >= 2).sort("group", "row")
    first = at_odds["group"].unique(maintain_order=True).head(MAX_EXAMPLES)
    listed = at_odds.filter(pl.col("group").is_in(first.implode())).partition_by("group", maintain_order=True)
    return {
        "groups": at_odds["group"].n_unique(),
        "images": at_odds.height,
        "examples": [
            {
                "size": group.height,
                "classes": dict(group.group_by("class_name").len().sort("class_name").iter_rows()),
                "source_rows": group["source_row"].head(MAX_EXAMPLE_IMAGES).to_list(),
            }
            for group in listed
        ],
    }
