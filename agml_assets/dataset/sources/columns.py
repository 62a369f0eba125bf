"""Which column of a table is image, label or metadata, and how the values of label columns become classes.

Nothing here opens a dataset.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.datasets import DatasetEntry

if TYPE_CHECKING:
    from datasets import Features

logger = logging.getLogger(__name__)

_COMPOUND_SEPARATOR = ", "  # as in AgML's published compound labels


@dataclass(frozen=True)
class Roles:
    """Which column is what.

    Attributes:
        image: Image column.
        label: Label column; None with a compound label.
        compound: Columns whose joined values are the label.
        metadata: Columns that describe the image -> names of their values, where declared.
    """

    image: str
    label: str | None
    compound: tuple[str, ...]
    metadata: Mapping[str, tuple[str, ...] | None]


def find_roles(features: "Features", entry: DatasetEntry) -> Roles:
    """Find image, label and metadata columns by the type of their feature, in declaration order.

    Args:
        features: Of the dataset.
        entry: Its columns override what would be found; a label column may then hold text, integers or
            booleans, an image column bytes or paths.

    Raises:
        UserError: A column named by the entry is absent or of the wrong type, or none can be found.
    """
    _require_columns(features, entry)
    image = _find_image(features, entry)
    compound = entry.compound_label_cols
    label = None if compound else _find_label(features, entry)
    for column in compound or (label,):
        if column == image or not hasattr(features[column], "dtype") or not _describes(features[column]):
            raise UserError(
                f"Dataset {entry.key!r}: column {column!r} ({_type(features[column])}) cannot be a label; it must "
                f"hold one class an image, as text, integer or ClassLabel. The columns are {_describe(features)}."
            )
    metadata = _find_metadata(features, entry, {image, label, *compound})
    names = {column: getattr(features[column], "names", None) for column in metadata}
    return Roles(image, label, compound, {c: tuple(n) if n else None for c, n in names.items()})


def _require_columns(features: "Features", entry: DatasetEntry) -> None:
    named = {
        "image_col": [entry.image_col] if entry.image_col else [],
        # A compound label takes the place of the label column, which defaults may name all the same.
        "label_col": [entry.label_col] if entry.label_col and not entry.compound_label_cols else [],
        "compound_label_cols": entry.compound_label_cols,
        "metadata_cols": entry.metadata_cols or (),
    }
    for key, columns in named.items():
        for column in columns:
            if column not in features:
                raise UserError(
                    f"Dataset {entry.key!r}: {key} names {column!r}, which is no column."
                    f"{did_you_mean(column, features)} The columns are {_describe(features)}."
                )


def _find_image(features: "Features", entry: DatasetEntry) -> str:
    from datasets import Image

    image = entry.image_col or next((c for c in features if isinstance(features[c], Image)), None)
    if image is None or not _holds_images(features[image]):
        what = f"column {image!r} holds no images" if image else "there is no Image column"
        raise UserError(f"Dataset {entry.key!r}: {what}. The columns are {_describe(features)}. Set image_col.")
    return image


def _find_label(features: "Features", entry: DatasetEntry) -> str:
    from datasets import ClassLabel

    label = entry.label_col or next((c for c in features if isinstance(features[c], ClassLabel)), None)
    if label is None:
        raise UserError(
            f"Dataset {entry.key!r}: there is no ClassLabel column. The columns are {_describe(features)}. Set "
            "label_col to the column that holds the class; text and integers are fine."
        )
    return label


def _find_metadata(features: "Features", entry: DatasetEntry, taken: set[str | None]) -> list[str]:
    where = f"Dataset {entry.key!r}"
    columns = [c for c in features if c not in taken] if entry.metadata_cols is None else entry.metadata_cols
    files = [column for column in columns if not _describes(features[column])]
    if files and entry.metadata_cols is not None:
        raise UserError(f"{where}: metadata_cols names {', '.join(files)}, which hold files, not descriptions.")
    if files:
        logger.info("%s: columns that hold files are not read: %s.", where, ", ".join(files))
    return [column for column in columns if column not in files]


def compound_labels(
    columns: Sequence[Sequence[str | None]], where: str
) -> tuple[tuple[str, ...], list[int | None]]:
    """Join the values of several columns into one label, as AgML does: `"tomato, blight"`.

    Args:
        columns: For each column, its value in every row; None where it is missing.
        where: The dataset, for messages.

    Returns:
        The sorted class names, and the label of every row, None where a component is missing.

    Raises:
        UserError: Two different combinations would get the same name, or no row has a label.
    """
    rows = list(zip(*columns, strict=True))
    names: dict[str, tuple[str | None, ...]] = {}
    for combination in sorted({row for row in rows if None not in row}, key=str):
        name = _COMPOUND_SEPARATOR.join(str(part) for part in combination)
        other = names.setdefault(name, combination)
        if other != combination:
            raise UserError(
                f"{where}: the label columns {other} and {combination} would both be called {name!r}. "
                "Rename one of the values."
            )
    if not names:
        raise UserError(f"{where}: no row has a value in every one of compound_label_cols.")
    ordered = sorted(names)
    index = {names[name]: label for label, name in enumerate(ordered)}
    return tuple(ordered), [index.get(row) for row in rows]


def declared_labels(
    values: Sequence[int | None], names: Sequence[str], where: str, column: str
) -> list[int | None]:
    """Return the labels of a column that declares its classes; None and negative numbers are no label.

    Raises:
        UserError: A number has no name.
    """
    highest = max((value for value in values if value is not None), default=-1)
    if highest >= len(names):
        raise UserError(
            f"{where}: {column!r} holds class {highest}, in row {values.index(highest)}, but declares only the "
            f"{len(names)} classes 0 to {len(names) - 1}. Correct the column or its names."
        )
    return [value if value is not None and value >= 0 else None for value in values]


def plain_labels(values: Sequence[Any], where: str, column: str) -> tuple[tuple[str, ...], list[int | None]]:
    """Map text, integer or boolean labels to classes; None, NaN, empty text and negative numbers are no label.

    Returns:
        The class names (integers in numeric order), and the label of every row or None.

    Raises:
        UserError: A value is no class, text and numbers are mixed, or no row has a label.
    """
    cleaned = [clean_label(value, where, column) for value in values]
    present = {value for value in cleaned if value is not None}
    if not present:
        raise UserError(f"{where}: no row of {column!r} has a label.")
    if len({type(value) for value in present}) > 1:
        raise UserError(f"{where}: {column!r} mixes text and numbers.")
    ordered = sorted(present)
    index = {value: label for label, value in enumerate(ordered)}
    return tuple(str(value) for value in ordered), [None if v is None else index[v] for v in cleaned]


def clean_label(value: Any, where: str, column: str) -> int | str | None:
    """Return one value of a label column as text or integer; None where it says that there is no label.

    Raises:
        UserError: The value is no class.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)) or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    # Integers with gaps become floats in many tools.
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value) if value >= 0 else None
    raise UserError(
        f"{where}: {column!r} holds {value!r}, which is no class. Labels are text, integers or booleans."
    )


def _holds_images(feature: Any) -> bool:
    from datasets import Image

    if isinstance(feature, dict):
        return "bytes" in feature or "path" in feature
    stored = ("string", "large_string", "binary", "large_binary")
    return isinstance(feature, Image) or getattr(feature, "dtype", None) in stored


def _describes(feature: Any) -> bool:
    """Tell whether the values of a feature say something about an image, rather than being a file."""
    from datasets.features.features import require_decoding

    if require_decoding(feature, ignore_decode_attribute=True):
        return False
    return getattr(feature, "dtype", None) not in ("binary", "large_binary")


def _describe(features: "Features") -> str:
    return ", ".join(f"{name} ({_type(feature)})" for name, feature in features.items())


def _type(feature: Any) -> str:
    kind = type(feature).__name__
    return str(feature.dtype) if kind == "Value" else kind
