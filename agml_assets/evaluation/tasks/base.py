"""What every task gives, and what its readers share: tables read strictly, missing data explained, frames built.

Which files a task consists of is each reader's; which files exist below a folder is `images`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from agml_assets.errors import UserError
from agml_assets.registry.tasks import TaskEntry

UNKNOWN = -1
"""Label of an example whose class is none of those in training."""

SCHEMA: dict[str, Any] = {
    "example": pl.String,
    "split": pl.String,
    "label": pl.Int64,
    "images": pl.List(pl.String),
    "group": pl.String,
}


@dataclass(frozen=True)
class TaskData:
    """A task as it lies on disk: what is predicted of which images, in a stable order.

    Attributes:
        root: Folder that the images' paths start at; absolute.
        examples: One row per example: `example` (String, unique), `split` (`train` and `test`, or `all` where each
            example is predicted from all others), `label` (Int64: index into `class_names`, -1 for a class that is
            none of them, null where there are several labels), `images` (List(String): paths below `root`, or
            frames of a clip in time order), `group` (String or null: what was photographed, met or visited
            together, and is resampled together); for multi-label tasks also `labels` (List(Int8), one 0 or 1 per
            name in `class_names`); and columns of one task alone.
        class_names: Classes in label order; the traits of a multi-label task.
        notes: What was left out and why, with numbers, and what differs from the published task; sentences.
        poisonous: Labels of the poisonous classes, for the user loss; ascending.
    """

    root: Path
    examples: pl.DataFrame
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    poisonous: tuple[int, ...] = ()


Row = tuple[str, str, int | None, Sequence[str], str | None]
"""An example as its reader finds it: name, split, label, images, group."""


def distinct(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows; an example whose name was there before gets ` #2`, ` #3` and so on behind it."""
    times: Counter[str] = Counter()
    for name, *rest in rows:
        times[name] += 1
        yield (name if times[name] == 1 else f"{name} #{times[name]}", *rest)  # type: ignore[misc]


def make_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """Return the frame of examples."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pl.DataFrame(
        {name: list(values) for name, values in zip(SCHEMA, columns, strict=True)}, schema=SCHEMA
    ).with_columns(pl.col("images").cast(pl.List(pl.String)))


def read_table(entry: TaskEntry, file: Path, columns: Sequence[str], **options: Any) -> pl.DataFrame:
    """Read a CSV file as text: empty cells are null.

    Args:
        entry: The task, for messages.
        file: The file; it exists.
        columns: Columns that must be there.
        **options: Options of `polars.read_csv`, such as `separator`.

    Raises:
        UserError: It is no table, or a column is missing.
    """
    try:
        frame = pl.read_csv(file, infer_schema=False, **options)
    except (pl.exceptions.PolarsError, UnicodeDecodeError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{named(entry)}: {file} is not a readable table: {reason}.") from None
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise UserError(
            f"{named(entry)}: {file} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}. Is it "
            "the right file?"
        )
    return frame


def read_json(entry: TaskEntry, file: Path) -> Any:
    """Read a JSON file; one that cannot be read raises `UserError`."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{named(entry)}: {file} cannot be read as JSON: {error}.") from None


def whole_numbers(entry: TaskEntry, file: Path, column: pl.Series) -> pl.Series:
    """Return a column of text as Int64; an empty cell or another value raises `UserError` naming the first row."""
    numbers = column.cast(pl.Float64, strict=False)
    wrong = (numbers.is_null() | (numbers != numbers.round()) | (numbers.abs() > 2**53)).fill_null(True)
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise UserError(
            f"{named(entry)}: {file}, row {row + 1}: {column.name} is {column[row]!r}, but must be a whole number."
        )
    return numbers.cast(pl.Int64)


def find_file(entry: TaskEntry, root: Path, *names: str) -> Path:
    """Return the first of these files that exists below `root`; none raises `UserError`."""
    found = next((root / name for name in names if (root / name).is_file()), None)
    if found is None:
        raise missing_data(entry, root, f"the file {' or '.join(names)}")
    return found


def find_folder(entry: TaskEntry, root: Path, *names: str) -> Path:
    """Return the first of these folders that exists below `root`; none raises `UserError`."""
    found = next((root / name for name in names if (root / name).is_dir()), None)
    if found is None:
        raise missing_data(entry, root, f"the folder {' or '.join(names)}")
    return found


def missing_data(entry: TaskEntry, root: Path, what: str) -> UserError:
    """Return the error that says what is missing, where it was looked for and how to get it."""
    where = f"in {root}" if root.is_dir() else f"in {root}, which does not exist"
    return UserError(f"{named(entry)}: {what} is missing; it was looked for {where}.\n{how_to_get(entry, root)}")


def missing_images(entry: TaskEntry, root: Path, file: Path, missing: Sequence[str]) -> UserError:
    """Return the error for images that a table names and that do not exist."""
    return UserError(
        f"{named(entry)}: {counted(len(missing), 'image')} that {file} names do not exist below {root}: "
        f"{some(missing, 3)}. Scores on the rest could not be compared; get the images again.\n"
        f"{how_to_get(entry, root)}"
    )


def how_to_get(entry: TaskEntry, root: Path) -> str:
    """Return in words how the data of a task come to `root`."""
    lines = []
    for file in entry.download.files:
        then = f", unpacked into {root / file.unpack}" if file.unpack else ""
        more = f" and {len(file.url) - 1} more parts" if len(file.url) > 1 else ""
        lines.append(f"  {file.url[0]}{more} -> {root / file.file}{then}")
    if lines:
        lines.insert(0, "How to get it: `download_task` fetches, or fetch yourself")
    if entry.download.instructions:
        lines.append(f"{'Then' if lines else 'How to get it'}: {entry.download.instructions}")
    return "\n".join(lines) or f"How to get it: see {entry.homepage or 'the source of the data'}."


def named(entry: TaskEntry) -> str:
    """Return how messages name a task."""
    return f"Task {entry.key!r}"


def some(names: Iterable[str], n: int = 5) -> str:
    """Return the first names in words, and how many more there are."""
    names = list(names)
    return ", ".join(names[:n]) + (f" and {len(names) - n} more" if len(names) > n else "")


def counted(n: int, what: str, several: str | None = None) -> str:
    """Return a number with its noun: `1 image`, `2 images`."""
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def check(entry: TaskEntry, data: TaskData) -> None:
    """Raise `UserError` where a reader's result is not what `TaskData` promises."""
    frame = data.examples
    problems = [
        f"column {name!r} must be {dtype}, not {frame.schema.get(name)}"
        for name, dtype in SCHEMA.items()
        if frame.schema.get(name) != dtype
    ]
    if problems:
        raise _invalid(entry, problems)
    if frame.is_empty():
        problems.append("there are no examples")
    if frame["example"].null_count():
        problems.append("examples must have a name")
    if twice := [name for name, n in Counter(frame["example"].to_list()).items() if n > 1]:
        problems.append(f"examples must be named once: {some(twice)}")
    splits = set(frame["split"].unique())
    if splits not in ({"train", "test"}, {"all"}, set()):
        problems.append(f"splits must be train and test, or all alone; there are {some(sorted(map(str, splits)))}")
    if not frame["images"].list.len().gt(0).fill_null(False).all():
        problems.append("every example needs an image")
    problems += _label_problems(frame, len(data.class_names))
    if len(set(data.class_names)) < len(data.class_names):
        problems.append("class names must be unique")
    if problems:
        raise _invalid(entry, problems)


def _label_problems(frame: pl.DataFrame, n_classes: int) -> list[str]:
    if "labels" in frame.columns:
        if frame.schema["labels"] != pl.List(pl.Int8):
            return [f"column 'labels' must be {pl.List(pl.Int8)}, not {frame.schema['labels']}"]
        whole = frame["labels"].list.len().eq(n_classes).fill_null(False).all()
        return [] if whole else [f"every row of 'labels' must hold {n_classes} numbers"]
    labels = frame["label"]
    if labels.null_count():
        return ["labels must not be null"]
    problems = []
    if not frame.is_empty() and not labels.is_between(UNKNOWN, n_classes - 1).all():
        problems.append(f"labels must be -1 to {n_classes - 1}; they are {labels.min()!r} to {labels.max()!r}")
    if (frame.filter(pl.col("split") == "train")["label"] == UNKNOWN).any():
        problems.append("training examples must have a known class")
    return problems


def _invalid(entry: TaskEntry, problems: list[str]) -> UserError:
    return UserError(f"{named(entry)}: its reader {entry.reader!r} gave no valid task: {'; '.join(problems)}.")
