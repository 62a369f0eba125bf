"""How the image index is read: which of its rows every other artifact is aligned to."""

import polars as pl


def usable_images(image_index: pl.DataFrame) -> pl.DataFrame:
    """Return the decoded and labelled images of `image_index`, ascending by `row`."""
    return image_index.filter(pl.col("row").is_not_null()).sort("row")
