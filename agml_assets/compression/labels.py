"""Files of labels `<task>__<type>.csv` become `LabelTask`s: a folder is a benchmark, a file a task.

What is predicted and how samples belong together is here; which samples have an embedding is in `matching`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from jaxtyping import Float64, Int64

from agml_assets.compression.submissions import (
    ID,
    clean_id,
    read_csv,
    read_header,
    refuse_placeholder,
    require_column,
)
from agml_assets.errors import UserError, did_you_mean

Kind = Literal["regression", "classification"]

KINDS: dict[str, Kind] = {
    "regression": "regression",
    "regr": "regression",
    "classification": "classification",
    "cls": "classification",
}
"""Types that a file's name may end with, in lower case."""

LABEL = "label"
GROUP, LATITUDE, LONGITUDE = "group", "latitude", "longitude"

_KM_PER_DEGREE = (
    math.pi / 180 * 6371.0088
)  # mean radius of the Earth, IUGG (Moritz 2000, doi:10.1007/s001900050278)
_MISSING = ("", "nan")  # what a table that lacks a number is written with; `none` may be a class
_ROW = " row"  # no column of a file is called so


@dataclass(frozen=True)
class LabelTask:
    """What is to be predicted of which samples.

    Attributes:
        name: The file's name before the first double underscore.
        kind: Of the targets.
        ids: Sample of each label, in the file's order; may repeat.
        targets: float64 (n,), or (n, t) where there are several label columns; of a classification int64 (n,),
            places in `class_names`.
        class_names: Classes, sorted, as numbers where all are; none of a regression.
        outputs: Label columns.
        group: Number from 0 of the group that each sample belongs to; samples of one group never stand on both
            sides of a split. None where every sample stands for itself.
        unlabelled: Rows without a label, which are left out.
        file: Where it was read.
    """

    name: str
    kind: Kind
    ids: tuple[str, ...]
    targets: Float64[np.ndarray, "n *t"] | Int64[np.ndarray, " n"]
    class_names: tuple[str, ...]
    outputs: tuple[str, ...]
    group: Int64[np.ndarray, " n"] | None
    unlabelled: int
    file: Path

    def sentences(self) -> tuple[str, ...]:
        """Return what to tell about what was left out, a sentence each."""
        if not self.unlabelled:
            return ()
        return (
            f"Task {self.name!r}: {self.unlabelled:,} rows of {self.file.name} have no label and are left out.",
        )


@dataclass(frozen=True)
class LabelFile:
    """A file of labels, known by its name alone.

    Attributes:
        path: The file.
        name: The task.
        type_name: What its name says of the type.
    """

    path: Path
    name: str
    type_name: str

    @property
    def kind(self) -> Kind:
        """The type.

        Raises:
            UserError: There is no such type.
        """
        found = KINDS.get(self.type_name.lower())
        if found is None:
            raise UserError(
                f"{self.path}: there is no type of task {self.type_name!r}."
                f"{did_you_mean(self.type_name, KINDS)} "
                f"Call it {self.name}__<type>.csv with one of {', '.join(KINDS)}."
            )
        return found


def list_label_files(folder: str | Path) -> tuple[LabelFile, ...]:
    """Return the files of labels of a folder, by the name of their task.

    Raises:
        UserError: There is no such folder, no file `<task>__<type>.csv` in it, a CSV that is called otherwise, or
            two files of one task.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder of labels.")
    paths = sorted(path for path in folder.glob("*.csv") if not path.name.startswith("."))
    if not paths:
        raise UserError(
            f"{folder}: it has no labels; add a file <task>__<type>.csv with columns id and label per task."
        )
    files: dict[str, LabelFile] = {}
    for path in paths:
        name, separator, type_name = path.stem.partition("__")
        if not separator or not name:
            raise UserError(
                f"{path}: a file of labels is called <task>__<type>.csv, with two underscores, and <type> one of "
                f"{', '.join(KINDS)}. Rename it, or move it out of the folder of labels."
            )
        if name in files:
            raise UserError(f"{path}: {files[name].path.name} is of task {name!r} as well; keep one of them.")
        files[name] = LabelFile(path, name, type_name)
    return tuple(files[name] for name in sorted(files))


def choose_tasks(files: Sequence[LabelFile], chosen: Sequence[str] | None) -> tuple[LabelFile, ...]:
    """Return the files of the chosen tasks, of all by default, their types known.

    Raises:
        UserError: A chosen task has no file, or a type is not known.
    """
    names = [file.name for file in files]
    for name in chosen or ():
        if name not in names:
            raise UserError(
                f"There is no task {name!r} among the labels.{did_you_mean(name, names)} "
                f"Tasks are {', '.join(names)}."
            )
    kept = tuple(file for file in files if chosen is None or file.name in chosen)
    for file in kept:
        _ = file.kind  # raises before anything is computed
    return kept


def read_labels(file: LabelFile, *, clean_ids: bool = True, block_km: float | None = None) -> LabelTask:
    """Read the labels of one task.

    Columns: `id`; `label`, or several, `label` or `label_...`, of a regression with several outputs; optionally
    `group`, any text; optionally `latitude` and `longitude` in degrees, which with `block_km` put samples into
    the groups of a grid where there is no `group`. Other columns are ignored. Rows in which a label is missing are
    left out and counted.

    Args:
        file: The file.
        clean_ids: Whether `.zarr.zip` and `.zarr` are taken out of the ids, as of a submission's.
        block_km: Side of a block of the grid, in kilometres; null means none.

    Raises:
        UserError: Columns are missing or stand twice, the file is empty or damaged, a row has no id, no row has
            a label, a label of a regression is no finite number, or a group or a coordinate is missing or not
            possible.
    """
    path, kind = file.path, file.kind
    rows, outputs, unlabelled = _read_labelled(path)
    if kind == "classification" and len(outputs) > 1:
        raise UserError(f"{path}: a classification has one column of labels; it has {', '.join(outputs)}.")
    ids = rows[ID].to_list()
    if kind == "regression":
        class_names: tuple[str, ...] = ()
        targets: np.ndarray = np.column_stack([_read_numbers(path, rows, name) for name in outputs])
        targets = targets[:, 0] if len(outputs) == 1 else targets
    else:
        targets, class_names = _encode(rows[outputs[0]].str.strip_chars().to_list())
    return LabelTask(
        name=file.name,
        kind=kind,
        ids=tuple(map(clean_id, ids) if clean_ids else ids),
        targets=targets,
        class_names=class_names,
        outputs=tuple(outputs),
        group=_read_groups(path, rows, block_km),
        unlabelled=unlabelled,
        file=path,
    )


def read_ids(file: LabelFile) -> list[str]:
    """Return the ids that a file of labels has a label for, as they stand there, of whatever type it is.

    Raises:
        UserError: As `read_labels`, of what is read.
    """
    rows, _, _ = _read_labelled(file.path)
    return rows[ID].to_list()


def block_groups(
    latitude: Float64[np.ndarray, " n"], longitude: Float64[np.ndarray, " n"], block_km: float
) -> Int64[np.ndarray, " n"]:
    """Return the number of the block of a grid that each place lies in.

    Bands of equal width in latitude, each cut into as many equal pieces in longitude as make them about as wide as
    they are high at the band's middle; a place at 180 degrees west is that at 180 degrees east.

    Args:
        latitude: Degrees, -90 to 90.
        longitude: Degrees, -180 to 360.
        block_km: Side, in kilometres.
    """
    height = block_km / _KM_PER_DEGREE
    band = np.floor((latitude + 90) / height)
    middle = np.radians(np.clip((band + 0.5) * height - 90, -90, 90))
    pieces = np.maximum(np.round(360 * np.cos(middle) / height), 1)
    piece = np.minimum(np.floor(np.mod(longitude, 360) / 360 * pieces), pieces - 1)
    _, groups = np.unique(np.column_stack([band, piece]), axis=0, return_inverse=True)
    return groups.reshape(-1).astype(np.int64)


def _read_labelled(path: Path) -> tuple[pl.DataFrame, list[str], int]:
    """Return the rows that have a label, as text and numbered; the label columns; how many rows have none."""
    refuse_placeholder(path)
    header = read_header(path)
    require_column(path, header, ID)
    outputs = [name for name in header if name == LABEL or name.startswith(f"{LABEL}_")]
    if not outputs:
        require_column(path, header, LABEL)
    frame = read_csv(path, {name: pl.String() for name in header})
    # Blank lines, which end many a file, hold nothing.
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null())).with_row_index(_ROW)
    if frame.is_empty():
        raise UserError(f"{path}: it has no rows.")
    nameless = (frame[ID].is_null() | (frame[ID] == "")).arg_true()
    if len(nameless):
        raise UserError(f"{path}: row {nameless[0] + 1} has no id.")
    text = [pl.col(name).str.strip_chars().str.to_lowercase() for name in outputs]
    rows = frame.filter(~pl.any_horizontal(one.is_null() | one.is_in(_MISSING) for one in text))
    if rows.is_empty():
        raise UserError(f"{path}: no row has a label.")
    return rows, outputs, frame.height - rows.height


def _read_numbers(path: Path, rows: pl.DataFrame, column: str) -> Float64[np.ndarray, " n"]:
    text = rows[column].str.strip_chars()
    values = text.cast(pl.Float64, strict=False)
    odd = values.is_null() | ~values.is_finite().fill_null(False)
    if odd.any():
        place = int(odd.arg_true()[0])
        raise UserError(
            f"{path}: row {rows[_ROW][place] + 1} (id {rows[ID][place]}): {column} {text[place]!r} is no finite "
            "number. Leave it empty where it is not known."
        )
    return values.to_numpy().astype(np.float64)


def _encode(labels: list[str]) -> tuple[Int64[np.ndarray, " n"], tuple[str, ...]]:
    """Return the place of each label among the classes, and these; `1` and `1.0` are one class."""
    values = [_as_number(label) for label in labels]
    if all(value is not None for value in values):
        numbers, codes = np.unique(np.array(values, dtype=np.float64), return_inverse=True)
        names = tuple(str(int(value)) if value.is_integer() else repr(value) for value in numbers.tolist())
    else:
        found, codes = np.unique(np.array(labels, dtype=object), return_inverse=True)
        names = tuple(found.tolist())
    return codes.astype(np.int64), names


def _as_number(label: str) -> float | None:
    try:
        value = float(label.replace("_", "no digit"))  # Python reads 1_0 as 10
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _read_groups(path: Path, rows: pl.DataFrame, block_km: float | None) -> Int64[np.ndarray, " n"] | None:
    if GROUP in rows.columns:
        names = rows[GROUP].str.strip_chars()
        missing = (names.is_null() | (names == "")).arg_true()
        if len(missing):
            raise UserError(f"{path}: row {rows[_ROW][int(missing[0])] + 1} has no group; name one in every row.")
        _, codes = np.unique(names.to_numpy().astype(str), return_inverse=True)
        return codes.astype(np.int64)
    if block_km is None:
        return None
    if not block_km > 0:
        raise UserError(f"block_km is {block_km}; a block's side is above 0 km.")
    for column in (LATITUDE, LONGITUDE):
        require_column(path, [name for name in rows.columns if name != _ROW], column)
    places = {}
    for column, low, high in ((LATITUDE, -90, 90), (LONGITUDE, -180, 360)):
        values = _read_numbers(path, rows.with_columns(pl.col(column).fill_null("")), column)
        outside = np.flatnonzero((values < low) | (values > high))
        if len(outside):
            row = rows[_ROW][int(outside[0])] + 1
            raise UserError(
                f"{path}: row {row}: {column} {values[outside[0]]:g} is not within {low} and {high} degrees."
            )
        places[column] = values
    return block_groups(places[LATITUDE], places[LONGITUDE], block_km)
