"""A file of fixed-size embeddings, a row per sample, becomes a `Submission`: CSV, Parquet, .npy and ids.

What is odd about the file is counted and kept visible, not mended; joining with labels is in `matching`.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float32

from agml_assets.errors import UserError, did_you_mean

ID = "id"
"""Column of the sample's name."""

_LFS = b"version https://git-lfs.github.com/spec/v1"
_LFS_BYTES = 1024  # a pointer is shorter than this: Git LFS's specification
_SHOWN = 5  # names in a message
_DIGITS = re.compile(r"[0-9]+")
_LISTS = (pl.List, pl.Array)


@dataclass(frozen=True)
class Issues:
    """What a reader noticed in a file and left as it is.

    Attributes:
        not_numbers: Values that are there and are no numbers; NaN among the vectors.
        first_not_numbers: Ids of the first rows with such a value.
        rows_without_id: Rows that name no sample; left out.
        ignored_columns: Columns that are neither ids nor dimensions.
    """

    not_numbers: int = 0
    first_not_numbers: tuple[str, ...] = ()
    rows_without_id: int = 0
    ignored_columns: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """Return what to tell about them, a sentence each; none of a clean file."""
        found = []
        if self.not_numbers:
            found.append(
                f"{counted(self.not_numbers, 'value')} of the submission no number, first in "
                f"the rows of {', '.join(self.first_not_numbers)}."
            )
        if self.rows_without_id:
            found.append(f"{counted(self.rows_without_id, 'row')} of the submission without an id left out.")
        if self.ignored_columns:
            found.append(
                f"{counted(len(self.ignored_columns), 'column')} of the submission, neither ids nor dimensions, "
                f"ignored: {_some(self.ignored_columns)}."
            )
        return tuple(found)


@dataclass(frozen=True)
class Submission:
    """Embeddings as a file has them.

    Attributes:
        method: Name of what made them.
        ids: Sample of each row, cleaned by `clean_id`, in the file's order; may repeat.
        vectors: float32, n >= 1 rows, d >= 1 dimensions; NaN where a value is missing or no number; infinities as
            in the file.
        columns: Name of each dimension.
        issues: What was noticed.
        file: Where it was read.
    """

    method: str
    ids: tuple[str, ...]
    vectors: Float32[np.ndarray, "n d"]
    columns: tuple[str, ...]
    issues: Issues
    file: Path

    def without(self, excluded: Collection[str]) -> "Submission":
        """Return the rows whose id is not among `excluded`.

        Raises:
            UserError: None is left.
        """
        keep = np.array([name not in excluded for name in self.ids])
        if not keep.any():
            raise UserError(f"{self.file}: every id of the submission is excluded; nothing is left to evaluate.")
        kept = tuple(name for name, here in zip(self.ids, keep, strict=True) if here)
        return replace(self, ids=kept, vectors=self.vectors[keep])

    def padded(self, dimensions: int) -> "Submission":
        """Return vectors of so many dimensions, zeros added on the right.

        Raises:
            UserError: There are more dimensions already.
        """
        n, found = self.vectors.shape
        if found > dimensions:
            raise UserError(
                f"{self.file}: embedding dimension mismatch: it has {found:,} dimensions, embedding_dim is "
                f"{dimensions:,}. Submit at most as many, or set embedding_dim to {found} or null."
            )
        added = tuple(f"padding_{place}" for place in range(found, dimensions))
        padding = np.zeros((n, dimensions - found), np.float32)
        return replace(self, vectors=np.hstack([self.vectors, padding]), columns=(*self.columns, *added))


def read_submission(file: str | Path, method: str | None = None, ids: Sequence[str] | None = None) -> Submission:
    """Read embeddings.

    * `.csv`: a column `id`, and a column per dimension. Columns whose names are all digits are the dimensions, in
      numerical order; where there is none, all columns but `id` in the file's order.
    * `.parquet`: the same, or a column `id` and one column of lists of equal length.
    * `.npy`: numbers of shape (n, d); ids in `ids`, or a line each in `<stem>.ids.txt` beside it.

    Ids are text: `0001` stays `0001`.

    Args:
        file: The file.
        method: Name of the method; by default the file's name without its suffix.
        ids: Sample of each row, of `.npy` alone.

    Raises:
        UserError: The file is absent, empty, a Git LFS pointer, of another format or damaged, has no ids or no
            dimensions, or ids and rows are not as many.
    """
    file = Path(file)
    if file.suffix not in _READERS:
        raise UserError(
            f"{file}: a submission is a file {', '.join(_READERS)}, not {file.suffix or 'without suffix'}."
        )
    if ids is not None and file.suffix != ".npy":
        raise UserError(f"{file}: a list of ids goes with .npy; a {file.suffix} file has a column `id`.")
    refuse_placeholder(file)
    names, vectors, columns, not_number, ignored = _READERS[file.suffix](file, ids)
    named = np.array([bool(name) for name in names], dtype=bool)
    if not named.any():
        raise UserError(f"{file}: it has no rows with an id; a submission has a row per sample.")
    if not columns:
        raise UserError(
            f"{file}: it has ids and no dimensions; add a column of numbers per dimension: 0, 1, 2, ..."
        )
    cleaned = tuple(clean_id(name) for name in names if name)
    counts = not_number[named]
    first = [cleaned[row] for row in np.flatnonzero(counts)[:_SHOWN]]
    issues = Issues(int(counts.sum()), tuple(first), int((~named).sum()), tuple(ignored))
    kept = vectors if named.all() else vectors[named]
    return Submission(method or file.stem, cleaned, kept, tuple(columns), issues, file)


def ids_beside(file: Path) -> Path:
    """Return where the ids of a .npy file are looked for: `<stem>.ids.txt` beside it."""
    return file.with_name(f"{file.stem}.ids.txt")


def clean_id(name: str) -> str:
    """Return a sample's name without `.zarr.zip`, then without `.zarr`, wherever they stand in it."""
    return name.replace(".zarr.zip", "").replace(".zarr", "")


def refuse_placeholder(file: Path) -> None:
    """Refuse a file that cannot hold data, whatever its format.

    Raises:
        UserError: It is absent, no regular file, empty, or a Git LFS pointer.
    """
    if not file.exists():
        raise UserError(f"{file}: there is no such file.")
    if not file.is_file():
        raise UserError(f"{file}: it is no file.")
    if not file.stat().st_size:
        raise UserError(f"{file}: it is empty.")
    with file.open("rb") as handle:
        start = handle.read(_LFS_BYTES)
    if start.startswith(_LFS):
        size = re.search(rb"^size (\d+)", start, re.MULTILINE)
        holds = f" ({int(size[1]) / 1e6:.1f} MB)" if size else ""
        raise UserError(
            f"{file}: it is a Git LFS pointer, not the file itself{holds}. Fetch it: "
            f"git lfs pull --include {file.name}"
        )


def read_header(file: Path) -> list[str]:
    """Return the names of a CSV's columns.

    Raises:
        UserError: It is no UTF-8 text, or a name stands twice.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as handle:
            header = next(csv.reader(handle), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file}: it is no CSV in UTF-8: {error}.") from None
    if twice := sorted(
        {name for name in header if header.count(name) > 1} if len(set(header)) < len(header) else ()
    ):
        raise UserError(f"{file}: columns stand twice in its header: {_some(twice)}. Give each its own name.")
    return header


def read_csv(file: Path, schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    """Read a CSV's columns as given; a value that is not of its column's type is null.

    Raises:
        UserError: A row has more fields than the header, a quote is not closed, or the text is not UTF-8.
    """
    try:
        return pl.read_csv(file, schema=schema, ignore_errors=True, raise_if_empty=False)
    except pl.exceptions.PolarsError as error:
        problem = _first_ragged(file, len(schema)) or str(error).partition("\n")[0]
        raise UserError(f"{file}: it is no valid CSV: {problem.rstrip('.')}.") from None


def require_column(file: Path, columns: Sequence[str], wanted: str) -> None:
    """Refuse a table that lacks a column.

    Raises:
        UserError: It does; its columns and the nearest name are told.
    """
    if wanted not in columns:
        raise UserError(
            f"{file}: it has no column {wanted!r}.{did_you_mean(wanted, columns)} "
            f"Its columns are {_some(columns)}."
        )


def counted(n: int, what: str) -> str:
    """Return a number with its noun: `1 value`, `2 values`."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


_Table = tuple[Sequence[str | None], Float32[np.ndarray, "n d"], list[str], np.ndarray, list[str]]


def _read_csv_submission(file: Path, _ids: Sequence[str] | None) -> _Table:
    header = read_header(file)
    require_column(file, header, ID)
    dimensions, ignored = _choose(header)
    wanted = set(dimensions)
    frame = read_csv(file, {name: pl.Float64() if name in wanted else pl.String() for name in header})
    text: pl.DataFrame | None = None
    if any(frame[name].null_count() for name in dimensions):
        text = read_csv(file, {name: pl.String() for name in header})
    vectors, not_number = _numbers(frame, dimensions, text)
    return frame[ID].to_list(), vectors, dimensions, not_number, ignored


def _read_parquet_submission(file: Path, _ids: Sequence[str] | None) -> _Table:
    try:
        frame = pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{file}: it is no valid Parquet file: {str(error).partition(chr(10))[0]}.") from None
    require_column(file, frame.columns, ID)
    try:
        names = frame[ID].cast(pl.String).to_list()
    except pl.exceptions.PolarsError:
        raise UserError(f"{file}: its column {ID!r} holds {frame[ID].dtype}; ids are text or numbers.") from None
    dimensions, ignored = _choose(frame.columns)
    if len(dimensions) == 1 and isinstance(frame.schema[dimensions[0]], _LISTS):
        vectors = _from_lists(file, frame[dimensions[0]])
        return (
            names,
            vectors,
            [str(place) for place in range(vectors.shape[1])],
            np.zeros(len(names), int),
            ignored,
        )
    numbers = frame.select(pl.col(dimensions).cast(pl.Float64, strict=False))
    vectors, not_number = _numbers(
        numbers, dimensions, frame.select(pl.col(dimensions).cast(pl.String, strict=False))
    )
    return names, vectors, dimensions, not_number, ignored


def _read_npy_submission(file: Path, ids: Sequence[str] | None) -> _Table:
    try:
        array: Any = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UserError(f"{file}: it is no valid .npy file of numbers: {error}.") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        shape = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        raise UserError(f"{file}: it must hold numbers of shape (samples, dimensions); it holds {shape}.")
    if ids is None:
        list_file = ids_beside(file)
        if not list_file.is_file():
            raise UserError(
                f"{file}: which samples its rows are is not known. Write their ids, a line each, to {list_file}."
            )
        ids = read_lines(list_file)
    if len(ids) != len(array):
        raise UserError(f"{file}: it has {len(array):,} rows, and there are {len(ids):,} ids; give one each.")
    columns = [str(place) for place in range(array.shape[1])]
    return list(ids), _to_float32(array), columns, np.zeros(len(array), int), []


_READERS: Mapping[str, Callable[[Path, Sequence[str] | None], _Table]] = {
    ".csv": _read_csv_submission,
    ".parquet": _read_parquet_submission,
    ".npy": _read_npy_submission,
}


def read_lines(file: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, without spaces at their ends and without blank ones.

    Raises:
        UserError: It cannot hold data (`refuse_placeholder`), or is not UTF-8.
    """
    refuse_placeholder(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: it is no UTF-8 text: {error}.") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _choose(columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns that are dimensions, and those that are neither these nor the ids."""
    others = [name for name in columns if name != ID]
    numbered = [name for name in others if _DIGITS.fullmatch(name)]
    if not numbered:
        return others, []
    chosen = set(numbered)
    return sorted(numbered, key=int), [name for name in others if name not in chosen]


def _numbers(
    frame: pl.DataFrame, dimensions: Sequence[str], text: pl.DataFrame | None
) -> tuple[Float32[np.ndarray, "n d"], np.ndarray]:
    """Return the values, NaN where there is no number, and how many of each row are there and are no numbers.

    Args:
        frame: Float64 columns, null where a value was not read as a number.
        dimensions: The columns.
        text: The same as text, for what was not read as a number.
    """
    vectors = np.empty((frame.height, len(dimensions)), np.float32)
    not_number = np.zeros(frame.height, dtype=np.int64)
    for place, name in enumerate(dimensions):
        column = frame[name]
        vectors[:, place] = _to_float32(column.fill_null(np.nan).to_numpy())
        if text is None or not column.null_count():
            continue
        for row in column.is_null().arg_true():
            written = text[name][row]
            if written is None or not written.strip():
                continue
            try:
                vectors[row, place] = np.float32(written.replace("_", "no digit"))  # Python reads 1_0 as 10
            except ValueError:
                not_number[row] += 1
    return vectors, not_number


def _from_lists(file: Path, column: pl.Series) -> Float32[np.ndarray, "n d"]:
    lengths = column.list.len() if isinstance(column.dtype, pl.List) else column.arr.len()
    if lengths.null_count() or lengths.n_unique() > 1:
        raise UserError(
            f"{file}: the lists of column {column.name!r} are not all of one length; they are "
            f"{lengths.min()!r} to {lengths.max()!r} long, {lengths.null_count():,} are missing."
        )
    width = int(lengths[0]) if len(lengths) else 0
    values = column.explode(empty_as_null=False) if width else pl.Series([], dtype=pl.Float64)
    try:
        flat = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
    except pl.exceptions.PolarsError:
        raise UserError(f"{file}: the lists of column {column.name!r} hold no numbers.") from None
    return _to_float32(flat.reshape(len(column), width))


def _to_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and counted as such
        return np.asarray(values).astype(np.float32)


def _first_ragged(file: Path, n_columns: int) -> str | None:
    """Return which row of a CSV has too many fields; None where that is not what is wrong."""
    try:
        rows = csv.reader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline=""))
        for number, row in enumerate(rows):
            if len(row) > n_columns:
                return f"row {number} (line {rows.line_num}) has {len(row):,} fields, the header {n_columns:,}"
    except (UnicodeDecodeError, csv.Error):
        return None
    return None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
