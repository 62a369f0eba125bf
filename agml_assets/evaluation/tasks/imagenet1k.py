"""ImageNet-1K: 1,000 kinds of things in web photos; the validation split is the test.

On disk, one of: folders `train/<class>/` and `val/<class>/` (or `validation`); the Parquet files of the hub
(`data/train-*.parquet`, `data/validation-*.parquet`, or beside one another); a dataset saved by `datasets`
(`train/*.arrow`). Images in tables keep their place there: their reference is `<table>#<row>`. Fixed: every test
image counts (the published loader dropped the end of some workers' shares). Labels of both splits must come from
one list.
"""

import json
from pathlib import Path
from typing import Any

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import TaskData, make_frame, missing_data, named
from agml_assets.evaluation.tasks.folders import read_splits
from agml_assets.registry.tasks import TaskEntry

_TEST = ("validation", "val")


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    tables = {
        "train": _tables(root, ("train",)),
        "test": _tables(root, _TEST),
    }
    if tables["train"] and tables["test"]:
        return _read_tables(entry, root, tables)
    train = root / "train"
    test = next((root / name for name in ("val", "validation") if (root / name).is_dir()), None)
    if not train.is_dir() or test is None:
        raise missing_data(entry, root, "folders train and val, or Parquet or Arrow files of both splits,")
    return read_splits(entry, root, train, test)


def _tables(root: Path, names: tuple[str, ...]) -> list[Path]:
    for name in names:
        for pattern in (f"data/{name}-*.parquet", f"{name}-*.parquet", f"{name}/*.parquet", f"{name}/*.arrow"):
            if found := sorted(root.glob(pattern)):
                return found
    return []


def _read_tables(entry: TaskEntry, root: Path, tables: dict[str, list[Path]]) -> TaskData:
    rows = []
    class_names: tuple[str, ...] | None = None
    for split, files in tables.items():
        for file in files:
            if not file.resolve().is_relative_to(root.resolve()):
                raise UserError(f"{named(entry)}: {file} is a link out of {root}.")
            labels, names = _read_labels(entry, file)
            if class_names is not None and names != class_names:
                raise UserError(f"{named(entry)}: {file} has other classes than the files before it.")
            class_names = names
            name = file.relative_to(root).as_posix()
            rows += [(f"{name}#{row}", split, label, [f"{name}#{row}"], None) for row, label in enumerate(labels)]
    return TaskData(root, make_frame(rows), class_names or ())


def _read_labels(entry: TaskEntry, file: Path) -> tuple[list[int], tuple[str, ...]]:
    """Return the label of every row and the class names that the file's features declare."""
    import pyarrow as pa

    try:
        schema, labels = _parquet_labels(file) if file.suffix == ".parquet" else _arrow_labels(file)
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = tuple(str(name) for name in features["label"]["names"])
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise UserError(
            f"{named(entry)}: {file} is no table of images with a column `label` declaring its classes: {error}."
        ) from None
    return labels, names


def _parquet_labels(file: Path) -> tuple[Any, list[int]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        return parquet.schema_arrow, parquet.read(columns=["label"]).column("label").to_pylist()


def _arrow_labels(file: Path) -> tuple[Any, list[int]]:
    import pyarrow as pa

    with pa.memory_map(str(file)) as mapped:
        table = pa.ipc.open_stream(mapped).read_all()
        return table.schema, table.column("label").to_pylist()
