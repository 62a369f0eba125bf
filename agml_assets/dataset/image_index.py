"""How the image index is read: which of its rows every other artifact is aligned to, and the declared classes."""

import polars as pl


def usable_images(image_index: pl.DataFrame) -> pl.DataFrame:
    """Return the decoded and labelled images of `image_index`, ascending by `row`."""
    return image_index.filter(pl.col("row").is_not_null()).sort("row")


def declared_classes(image_index: pl.DataFrame) -> list[str]:
    """Return every class name that the source declares, in label order, whether or not it has images."""
    dtype = image_index.schema["class_name"]
    if not isinstance(dtype, pl.Enum):
        raise TypeError(f"image_index['class_name'] must be an Enum of the declared classes, not {dtype}")
    return dtype.categories.to_list()
