"""How evenly each class is spread over the values of the dataset's other columns (crop, site, camera ...)."""

from math import log
from typing import Any

import polars as pl

from agml_assets.dataset.image_index import usable_images
from agml_assets.quality.entropy import entropy
from agml_assets.quality.images import skipped
from agml_assets.quality.intervals import census

MAX_VALUES = 200
"""Distinct values beyond which a column is taken for an identifier or a measurement, not a condition."""

MAX_UNIQUE_RATIO = 0.5
"""The same, as distinct values for each image: a column where values hardly recur has no distribution."""

MAX_CELLS = 10_000
"""Class-and-value combinations of one column that a report lists."""

_PREFIX = "meta."


def metadata_coverage(*, image_index: pl.DataFrame) -> dict[str, Any]:
    """Count, for every metadata column, the values within each class, and say how even they are.

    With n_v images of value v in a class, H = -sum(p_v ln p_v). The published entropy divides by the ln of
    the number of values seen within that class and is 1.0 for a single value, so the narrowest coverage
    reads as perfect, and classes are measured by different yardsticks. The added one divides by
    ln of the number of values in the whole dataset and is 0.0 for a single value.

    Args:
        image_index: Images with `class_name` and metadata columns `meta.<name>`, an Enum where the source
            column is a class label.

    Returns:
        Published: `skipped` false; `metadata_columns`, all of them; `coverage`
        {column: {class: {value: images}}}, classes and values as first seen, class labels as their
        integers; `normalized_entropy` {column: {class: [0, 1]}}.

        Added: `normalized_entropy_dataset`, the same by the dataset-wide number of values;
        `n_values` {column: distinct values}; `value_names` {column: {integer: name}} of class labels;
        `not_covered` {column: {skipped, reason, n_values}}, columns with too many values
        (identifiers, file names, measurements), which are left out of all the others; `intervals`, which
        name the figures as a census.

        Skipped, with the published reason, where there is no metadata column.
    """
    columns = [name for name in image_index.columns if name.startswith(_PREFIX)]
    if not columns:
        return skipped("No metadata columns detected in dataset schema.")
    images = usable_images(image_index)
    result: dict[str, Any] = {
        "skipped": False,
        "metadata_columns": [column.removeprefix(_PREFIX) for column in columns],
        "coverage": {},
        "normalized_entropy": {},
        "normalized_entropy_dataset": {},
        "n_values": {},
        "value_names": {},
        "not_covered": {},
    }
    for column in columns:
        name = column.removeprefix(_PREFIX)
        cells = (
            images.select("class_name", value=_published_value(images[column]))
            .group_by("class_name", "value", maintain_order=True)
            .len()
        )
        n_values = cells["value"].n_unique()
        reason = _too_many(n_values, images.height, cells.height)
        if reason:
            result["not_covered"][name] = skipped(reason, n_values=n_values)
            continue
        coverage: dict[str, dict[str, int]] = {}
        for class_name, value, count in cells.iter_rows():
            coverage.setdefault(class_name, {})[value] = count
        result["coverage"][name] = coverage
        result["normalized_entropy"][name] = {
            class_name: _evenness(counts, len(counts), if_single=1.0) for class_name, counts in coverage.items()
        }
        result["normalized_entropy_dataset"][name] = {
            class_name: _evenness(counts, n_values, if_single=0.0) for class_name, counts in coverage.items()
        }
        result["n_values"][name] = n_values
        if isinstance(images[column].dtype, pl.Enum):
            seen = images[column].drop_nulls().unique().sort()
            result["value_names"][name] = {
                str(code): value for code, value in zip(seen.to_physical(), seen, strict=True)
            }
    result["intervals"] = census("normalized_entropy", "normalized_entropy_dataset")
    return result


def _published_value(column: pl.Series) -> pl.Series:
    values = column.to_physical() if isinstance(column.dtype, pl.Enum) else column
    return values.cast(pl.String).fill_null("None")


def _too_many(n_values: int, n_images: int, n_cells: int) -> str | None:
    if n_values > MAX_VALUES:
        return f"{n_values} distinct values, more than {MAX_VALUES}: an identifier or a measurement."
    if n_values > MAX_UNIQUE_RATIO * n_images:
        return f"{n_values} distinct values in {n_images} images: values hardly recur."
    if n_cells > MAX_CELLS:
        return f"{n_cells} combinations of class and value, more than {MAX_CELLS}."
    return None


def _evenness(counts: dict[str, int], n_values: int, if_single: float) -> float:
    if len(counts) == 1:
        return if_single
    return round(entropy(counts.values()) / log(n_values), 4)
