"""How much the images differ in size and shape. Reads file headers' values; no pixel is looked at."""

from math import fsum
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from agml_assets.dataset.image_index import usable_images
from agml_assets.quality.images import skipped
from agml_assets.quality.intervals import census

_ROTATED = (5, 6, 7, 8)
"""EXIF orientations that turn an image by a quarter, so that width and height swap (Exif 2.3, tag 0x0112)."""


def resolution_consistency(*, image_index: pl.DataFrame) -> dict[str, Any]:
    """Describe widths, heights, aspect ratios and areas of all usable images.

    Standard deviations are those of a sample (divisor n - 1; 0.0 for one image). The mean
    of whole numbers that is itself whole is an integer.

    Args:
        image_index: Images with `width`, `height` (of the file header, pixels), `mode`, `format`, `bytes`,
            `exif_orientation`, `frames`, `transparent`.

    Returns:
        Published, from the header: `total_images`; `width`, `height` in pixels and `aspect_ratio`
        (width / height), each {`mean` 2 decimals, `std` 2 decimals, `min`, `max`}; `area_cv`, standard
        deviation / mean of width x height; `mode_distribution` {PIL mode: images}, as first seen.

        Added: `upright`, width, height and aspect ratio after EXIF rotation, as viewers and models see the
        images (`area_cv` is the same); `rotated_images`, those whose sides swap; `file_bytes`, the same
        four numbers of the encoded size, null where no size is known; `format_distribution`;
        `multi_frame_images`; `transparent_images`; `intervals`, which name `area_cv` as a census.

        Skipped where there is no image.
    """
    images = usable_images(image_index)
    if images.is_empty():
        return skipped("The dataset has no usable image.")
    swapped = pl.col("exif_orientation").is_in(_ROTATED)
    upright = images.select(
        width=pl.when(swapped).then("height").otherwise("width"),
        height=pl.when(swapped).then("width").otherwise("height"),
    )
    areas = (images["width"].cast(pl.Int64) * images["height"]).to_numpy()
    sizes = images["bytes"].drop_nulls()
    return {
        "total_images": images.height,
        **_describe_sizes(images),
        "area_cv": round(_std(areas) / float(areas.mean()), 4),
        "mode_distribution": _distribution(images["mode"]),
        "upright": _describe_sizes(upright),
        "rotated_images": images.filter(swapped).height,
        "file_bytes": _describe(sizes) if len(sizes) else None,
        "format_distribution": _distribution(images["format"]),
        "multi_frame_images": images.filter(pl.col("frames") > 1).height,
        "transparent_images": images.filter(pl.col("transparent")).height,
        "intervals": census("area_cv"),
    }


def _describe_sizes(images: pl.DataFrame) -> dict[str, Any]:
    return {
        "width": _describe(images["width"]),
        "height": _describe(images["height"]),
        "aspect_ratio": _describe(images["width"] / images["height"]),
    }


def _describe(values: pl.Series) -> dict[str, int | float]:
    numbers = values.to_numpy()
    return {
        "mean": _mean(numbers),
        "std": round(_std(numbers), 2),
        "min": numbers.min().item(),
        "max": numbers.max().item(),
    }


def _mean(numbers: Int[np.ndarray, " n"] | Float[np.ndarray, " n"]) -> int | float:
    if numbers.dtype.kind == "i":
        total = int(numbers.sum(dtype=np.int64))
        return total // len(numbers) if total % len(numbers) == 0 else round(total / len(numbers), 2)
    return round(fsum(numbers) / len(numbers), 2)


def _std(numbers: Int[np.ndarray, " n"] | Float[np.ndarray, " n"]) -> float:
    return float(numbers.std(ddof=1, dtype=np.float64)) if len(numbers) > 1 else 0.0


def _distribution(names: pl.Series) -> dict[str, int]:
    counts = pl.DataFrame({"name": names.fill_null("unknown")}).group_by("name", maintain_order=True).len()
    return dict(counts.iter_rows())
