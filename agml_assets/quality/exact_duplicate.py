"""How many images have a copy with the very same pixels, and where the copies lie.

Hashing is the decode pass's work (`dataset/pixel_hashes`); this counts.
"""

from typing import Any

import polars as pl

from agml_assets.dataset.image_index import usable_images
from agml_assets.quality.groups import (
    count_cross_split,
    label_conflicts,
    largest_group,
    members,
    native_split_leaks,
)
from agml_assets.quality.images import skipped, with_splits
from agml_assets.quality.intervals import census
from agml_assets.settings import Settings


def exact_duplicate(
    *,
    image_index: pl.DataFrame,
    pixel_hashes: pl.DataFrame,
    splits: pl.DataFrame,
    settings: Settings,
) -> dict[str, Any]:
    """Count images that share their pixels with another image.

    The published counts group by MD5 of the decoded bytes in the file's own mode; width, height,
    mode and palette do not enter that hash, so images of different shape can match and the same
    picture stored as RGB and as RGBA does not. `blake3` groups by shape and pixels after EXIF
    rotation, brought to RGB (or RGBA where a pixel is not opaque).

    Args:
        image_index: Images with `row`, `source_row`, `class_name`.
        pixel_hashes: `md5_group` and `blake3_group` of each row.
        splits: Split of each row; the column `settings.split_recipe` is used for cross-split counts.
        settings: Names the split recipe.

    Returns:
        Published: `total_images`; `exact_duplicate_count`, images in groups of at least two (a pair
        counts 2); `exact_duplicate_rate` count / total, a fraction; `duplicate_groups`;
        `cross_split_duplicates`, all images of groups that touch at least two splits.

        Added: `blake3`, the same by the stricter hash (`duplicate_count`, `duplicate_rate`,
        `duplicate_groups`, `cross_split_duplicates`) and `redundant_images`, those that could go
        without losing a picture (images minus groups); `largest_group`; `native_split_leaks`, see
        `groups.native_split_leaks`; `label_conflicts`, copies that carry different labels, see
        `groups.label_conflicts`; `intervals`, which name the rates as a census.

        Skipped where there is no image or the recipe puts none into a split.
    """
    images = with_splits(usable_images(image_index), splits, settings.split_recipe)
    if images["split"].count() == 0:
        return skipped(f"The split recipe {settings.split_recipe!r} puts no image into any split.")
    hashes = pixel_hashes.select("row", "md5_group", "blake3_group")
    images = images.join(hashes, on="row", how="left", validate="1:1", maintain_order="left")
    total = images.height

    by_md5 = members(images, "md5_group")
    by_blake3 = members(images, "blake3_group")
    return {
        "total_images": total,
        "exact_duplicate_count": by_md5.height,
        "exact_duplicate_rate": round(by_md5.height / total, 4),
        "duplicate_groups": by_md5["group"].n_unique(),
        "cross_split_duplicates": count_cross_split(by_md5),
        "blake3": {
            "duplicate_count": by_blake3.height,
            "duplicate_rate": round(by_blake3.height / total, 4),
            "duplicate_groups": by_blake3["group"].n_unique(),
            "cross_split_duplicates": count_cross_split(by_blake3),
            "redundant_images": by_blake3.height - by_blake3["group"].n_unique(),
            "largest_group": largest_group(by_blake3),
            "native_split_leaks": native_split_leaks(by_blake3, images["native"].count() > 0),
            "label_conflicts": label_conflicts(by_blake3),
        },
        "intervals": census("exact_duplicate_rate", "blake3.duplicate_rate"),
    }
