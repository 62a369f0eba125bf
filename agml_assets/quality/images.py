"""What every metric asks of the images: the split in use.

Also the one shape of a metric that cannot be computed. No measuring here.
"""

from typing import Any

import polars as pl


def with_splits(images: pl.DataFrame, splits: pl.DataFrame, recipe: str) -> pl.DataFrame:
    """Return usable images with `split` (that of `recipe`) and `native` (the dataset's own) beside them.

    Args:
        images: Usable images, one per `row`.
        splits: `row` and one column for each recipe; values `train`, `val`, `test` or null.
        recipe: Name of the recipe in use.

    Raises:
        ValueError: An image has no row in `splits`, or the other way round.
    """
    chosen = splits.select("row", split=pl.col(recipe), native=pl.col("native"))
    joined = images.join(chosen, on="row", how="inner", validate="1:1", maintain_order="left")
    if not joined.height == images.height == splits.height:
        raise ValueError(f"splits cover {splits.height} rows, the image index {images.height} usable images")
    return joined


def skipped(reason: str, **facts: Any) -> dict[str, Any]:
    """Return the JSON value of a metric that cannot be computed: why, and what is known all the same."""
    return {"skipped": True, "reason": reason, **facts}
