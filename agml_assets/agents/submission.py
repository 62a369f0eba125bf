"""A declared submission file becomes a table that fits the answers row by row, or a list of what is wrong with it.

Everything in the file was made by an agent: it is opened without following links, and its bytes are parsed as
text, JSON or plain arrays. What it is worth is `scoring`.
"""

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from agml_assets.agents.metrics import NotMeasurable, find_metric
from agml_assets.agents.sandbox.paths import PathRefusedError, read_bytes
from agml_assets.agents.task import AgentTask
from agml_assets.errors import did_you_mean
from agml_assets.registry.agents import Submission

ANSWERS = "answers.parquet"
"""In a task's private folder: the id column as text where there is one, then the answers, typed."""

PROBABILITIES = "probabilities"
"""Name of the array (n, k) of an .npz, and of the lists of a .json, that hold one probability a class."""

_SHOWN = 3  # examples in a message
_MOST_COLUMNS = 4096
_HEADER_BYTES = 1 << 20
_ARRAY_HEADER_BYTES = 10_000  # NumPy's own limit
_WHOLE = 2.0**53  # up to here every whole number has a float64 of its own
_TRUTHS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}

_Columns = Mapping[str, pl.Series]


class InvalidSubmission(Exception):  # noqa: N818
    """A submission that cannot be scored.

    Attributes:
        problems: What is wrong, a sentence each; nothing of the answers but which ids there are.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = tuple(problems)


def read_answers(task: AgentTask) -> pl.DataFrame:
    """Return the answers of a task whose metric is declared: the id column, if there is one, and the answers."""
    return pl.read_parquet(task.private / ANSWERS)


def read_submission(task: AgentTask, folder: Path) -> pl.DataFrame:
    """Return the submission of a workspace, its rows in the order of the answers, without the id column.

    Args:
        task: A task that declares a submission.
        folder: The workspace, or what is left of it.

    Returns:
        The declared columns: Float64, Int64, Boolean or String, numbers finite; or, of `probabilities`, one
        Float64 column a class, `0`, `1`, ....

    Raises:
        InvalidSubmission: There is none, or it is not as declared.
    """
    declared = task.entry.submission
    assert declared is not None
    answers = read_answers(task)
    found = _read_columns(declared, folder, answers.height)
    wanted = _wanted(declared, answers)
    chosen, problems = _choose(declared, found, wanted)
    if problems:
        raise InvalidSubmission(problems)
    order, id_problems = _order(declared, found, answers)
    typed = {}
    for name, (source, kind) in chosen.items():
        typed[name], problem = _cast(found[source], kind)
        problems += [f"{declared.file}: column {source!r}: {problem}"] if problem else []
    problems = id_problems + problems
    if problems:
        raise InvalidSubmission(problems)
    table = pl.DataFrame(typed)
    return table if order is None else table[order]


def validate(task: AgentTask, folder: Path) -> list[str]:
    """Return what is wrong with the format of a workspace's submission, a sentence each; nothing if all is well.

    Says nothing of the answers. A task whose `eval.py` reads the workspace by itself has no declared format.
    """
    if task.entry.submission is None or task.entry.metric is None:
        return []
    try:
        measure(task, folder)
    except InvalidSubmission as error:
        return list(error.problems)
    return []


def measure(task: AgentTask, folder: Path) -> float:
    """Return a submission's score in the declared metric; it may overflow to infinity.

    Raises:
        InvalidSubmission: It cannot be scored.
    """
    entry = task.entry
    assert entry.metric is not None
    assert entry.submission is not None
    metric = find_metric(entry.metric, task.key)
    submitted, answers = read_submission(task, folder), read_answers(task)
    true = answers.drop(entry.submission.id_column) if entry.submission.id_column is not None else answers
    try:
        with np.errstate(all="ignore"):
            return metric.measure(true, submitted)
    except NotMeasurable as error:
        raise InvalidSubmission([f"{entry.submission.file}: {error}."]) from None


def _wanted(declared: Submission, answers: pl.DataFrame) -> Mapping[str, str]:
    """Return the columns that are to be there, and what they hold."""
    if not declared.probabilities:
        return declared.columns
    labels = answers.select(pl.exclude(declared.id_column)) if declared.id_column is not None else answers
    classes = int(labels.to_series(0).max()) + 1  # type: ignore[arg-type]
    return {str(place): "number" for place in range(classes)}


def _choose(
    declared: Submission, found: _Columns, wanted: Mapping[str, str]
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return, for each wanted column, the one that holds it and what it holds; and what is lacking.

    Further columns do not matter, as in the old benchmark, whose starters write some; but of probabilities,
    there is to be one a class.
    """
    problems = []
    if declared.id_column is not None and declared.id_column not in found:
        problems.append(_lacking(declared, declared.id_column, found))
    given = [name for name in found if name != declared.id_column]
    if declared.probabilities:
        sources = sorted(given, key=int) if all(name.isdecimal() for name in given) else given
        if len(sources) != len(wanted):
            problems.append(
                f"{declared.file}: it has {len(sources)} columns of probabilities for {len(wanted)} classes."
            )
            return {}, problems
    else:
        sources = list(wanted)
        problems += [_lacking(declared, name, found) for name in wanted if name not in found]
    return {name: (source, wanted[name]) for name, source in zip(wanted, sources, strict=True)}, problems


def _lacking(declared: Submission, name: str, found: _Columns) -> str:
    shown = ", ".join(_show(one) for one in list(found)[:10])
    return f"{declared.file}: it has no column {name!r}.{did_you_mean(name, found)} Its columns are {shown}."


def _order(declared: Submission, found: _Columns, answers: pl.DataFrame) -> tuple[pl.Series | None, list[str]]:
    """Return which row of the submission belongs to each answer, None where they stand in order; and problems."""
    n = len(next(iter(found.values())))
    if declared.id_column is None:
        if n == answers.height:
            return None, []
        return None, [f"{declared.file}: it has {n} rows; there are {answers.height} examples."]
    known, given = answers[declared.id_column], found[declared.id_column].str.strip_chars()
    problems = []
    if twice := given.filter(given.is_duplicated()).unique(maintain_order=True).to_list():
        problems.append(f"{declared.file}: {_some(twice, 'id')} more than once.")
    if unknown := given.filter(~given.is_in(known.implode())).unique(maintain_order=True).to_list():
        problems.append(f"{declared.file}: {_some(unknown, 'id')} not known to this task.")
    if missing := known.filter(~known.is_in(given.implode())).to_list():
        problems.append(f"{declared.file}: {_some(missing, 'id')} missing.")
    if problems:
        return None, problems
    rows = pl.DataFrame({"id": given}).with_row_index("place")
    placed = pl.DataFrame({"id": known}).join(rows, on="id", how="left", maintain_order="left")
    return placed["place"], []


def _cast(column: pl.Series, kind: str) -> tuple[pl.Series, str]:
    """Return a column of text as what it is to hold, and what is wrong with it or an empty text."""
    if kind == "text":
        return column.fill_null(""), ""
    text = column.str.strip_chars()
    if kind == "boolean":
        typed = text.str.to_lowercase().replace_strict(_TRUTHS, default=None, return_dtype=pl.Boolean)
        return typed, _bad_rows(text, typed.is_null(), "is neither true nor false")
    typed = text.cast(pl.Float64, strict=False)
    if problem := _bad_rows(text, ~typed.is_finite().fill_null(False), "is no finite number"):
        return typed, problem
    if kind == "number":
        return typed, ""
    whole = (typed == typed.round()) & (typed.abs() <= _WHOLE)
    return typed.cast(pl.Int64, strict=False), _bad_rows(text, ~whole, "is no whole number")


def _bad_rows(text: pl.Series, bad: pl.Series, what: str) -> str:
    rows = bad.arg_true()
    if not len(rows):
        return ""
    more = f", and {len(rows) - 1} more are not" if len(rows) > 1 else ""
    return f"row {rows[0] + 1}: {_show(text[rows[0]])} {what}{more}."


def _some(values: Sequence[str], noun: str) -> str:
    shown = ", ".join(_show(value) for value in values[:_SHOWN])
    return (
        f"{len(values)} {noun}{'' if len(values) == 1 else 's'} ({shown}{', ...' if len(values) > _SHOWN else ''})"
    )


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- The three formats: every column as text ------------------------------------------------------


def _read_columns(declared: Submission, folder: Path, n_answers: int) -> _Columns:
    readers = {".csv": _from_csv, ".json": _from_json, ".npz": _from_npz}
    content = _read_file(declared, folder)
    if not content:
        raise InvalidSubmission([f"{declared.file}: it is empty."])
    try:
        found = readers[Path(declared.file).suffix](declared, content, n_answers)
    except _BadFormat as error:
        raise InvalidSubmission([f"{declared.file}: {error}."]) from None
    except MemoryError:
        raise InvalidSubmission([f"{declared.file}: it does not fit into memory."]) from None
    if not found:
        raise InvalidSubmission([f"{declared.file}: it has no columns."])
    if uneven := {len(column) for column in found.values()} - {len(next(iter(found.values())))}:
        raise InvalidSubmission(
            [f"{declared.file}: its columns differ in length: {sorted(uneven)[0]} and others."]
        )
    return found


class _BadFormat(Exception):  # noqa: N818
    """What is wrong with a file as a file of its format."""


def _from_csv(declared: Submission, content: bytes, n_answers: int) -> _Columns:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _BadFormat(f"it is no UTF-8 text (byte {error.start})") from None
    first, _, rest = text.partition("\n")
    if len(first) > _HEADER_BYTES or first.count(declared.separator) >= _MOST_COLUMNS:
        raise _BadFormat(f"its header has more than {_MOST_COLUMNS} columns")
    lines = rest.count("\n") + 1
    if (
        lines > 2 * n_answers + 1000
    ):  # far more than are wanted, even with line breaks in quotes: not worth the memory
        raise _BadFormat(f"it has {lines} lines; there are {n_answers} examples")
    try:
        header = next(csv.reader([first], delimiter=declared.separator), [])
    except csv.Error as error:
        raise _BadFormat(f"its header cannot be read: {error}") from None
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise _BadFormat(f"column {_show(twice[0])} stands twice in its header")
    if not header:
        raise _BadFormat("it has no header")
    try:
        frame = pl.read_csv(
            io.BytesIO(text.encode()),
            schema=dict.fromkeys(header, pl.String()),
            separator=declared.separator,
            raise_if_empty=False,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _BadFormat(f"it is no CSV: {str(error).partition(chr(10))[0].rstrip('.')}") from None
    return frame.to_dict()


def _from_json(declared: Submission, content: bytes, n_answers: int) -> _Columns:
    try:
        document = json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise _BadFormat(f"it is no valid JSON: {error}") from None
    if isinstance(document, list):
        document = _by_column(document)
    if not isinstance(document, dict) or not all(isinstance(values, list) for values in document.values()):
        raise _BadFormat("it must hold a list of objects, one an example, or an object of lists, one a column")
    if declared.probabilities and PROBABILITIES in document:
        document |= _split_lists(document.pop(PROBABILITIES))
    if len(document) > _MOST_COLUMNS:
        raise _BadFormat(f"it has more than {_MOST_COLUMNS} columns")
    return {name: pl.Series(name, [_as_text(v) for v in values], pl.String) for name, values in document.items()}


def _by_column(rows: list[Any]) -> dict[str, list[Any]]:
    if not all(isinstance(row, dict) for row in rows):
        raise _BadFormat("it must hold a list of objects, one an example, or an object of lists, one a column")
    names = list(rows[0]) if rows else []
    for place, row in enumerate(rows, start=1):
        if row.keys() != set(names):
            raise _BadFormat(f"object {place} has other keys than the first")
    return {name: [row[name] for row in rows] for name in names}


def _split_lists(rows: list[Any]) -> dict[str, list[Any]]:
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    if not all(isinstance(row, list) and len(row) == width for row in rows) or not 0 < width <= _MOST_COLUMNS:
        raise _BadFormat(f"{PROBABILITIES!r} must hold a list for every example, all of one length")
    return {str(place): [row[place] for row in rows] for place in range(width)}


def _as_text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _BadFormat("it holds a text that is no Unicode (half of a surrogate pair)") from None
        return value
    if value is None:
        return None
    raise _BadFormat(f"it holds a {type(value).__name__} where a single value is due")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return values


def _from_npz(declared: Submission, content: bytes, n_answers: int) -> _Columns:
    columns: dict[str, pl.Series] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name, array in _arrays(archive, declared.max_mb * 10**6):
                if array.ndim == 2 and name == PROBABILITIES and array.shape[1] <= _MOST_COLUMNS:
                    columns |= {str(k): _text_column(str(k), array[:, k]) for k in range(array.shape[1])}
                elif array.ndim == 1:
                    columns[name] = _text_column(name, array)
                else:
                    raise _BadFormat(
                        f"array {_show(name)} has the shape {array.shape}; columns have one dimension"
                    )
    except (_BadFormat, MemoryError):
        raise
    except Exception as error:  # whatever the readers of hostile bytes raise: zlib, struct, NumPy's header
        raise _BadFormat(f"it is no valid .npz: {error}") from None
    return columns


def _arrays(archive: zipfile.ZipFile, most_bytes: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of an .npz; sizes and types are judged from their headers, before a value is read."""
    members = archive.infolist()
    if len(members) > _MOST_COLUMNS:
        raise _BadFormat(f"it has more than {_MOST_COLUMNS} arrays")
    if sum(member.file_size for member in members) > most_bytes:
        raise _BadFormat(f"its arrays hold more than {most_bytes // 10**6} MB")
    for member in members:
        if not member.filename.endswith(".npy"):
            raise _BadFormat(f"{_show(member.filename)} in it is no array")
        with archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0)):
                raise _BadFormat(f"array {_show(member.filename)} has an unusual format {version}")
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = read_header(stream, max_header_size=_ARRAY_HEADER_BYTES)
            if dtype.kind not in "iufbU":
                raise _BadFormat(
                    f"array {_show(member.filename)} holds {dtype}; numbers, booleans and text are read"
                )
            size = math.prod(shape) * dtype.itemsize
            if size > member.file_size:
                raise _BadFormat(f"array {_show(member.filename)} ends too early")
            values = np.frombuffer(stream.read(size), dtype) if size else np.zeros(0, dtype)
            yield member.filename[:-4], values.reshape(shape, order="F" if fortran else "C")


def _text_column(name: str, array: np.ndarray) -> pl.Series:
    if array.dtype.kind == "U":
        return pl.Series(name, array.tolist(), pl.String)
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
    return pl.Series(name, np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))).cast(pl.String)


# --- The file -------------------------------------------------------------------------------------


def _read_file(declared: Submission, folder: Path) -> bytes:
    """Return the content of the submission's file; nothing outside the workspace is opened, no link followed."""
    try:
        return read_bytes(folder, declared.file, declared.max_mb * 10**6)
    except (PathRefusedError, OSError) as error:
        raise InvalidSubmission([f"The submission cannot be read: {error}."]) from None
