"""The folder of run records: one JSON file a dataset, read as it lies there and never written here.

What a record must hold is told in `run_records`.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agml_assets.errors import UserError
from agml_assets.leaderboard.javascript import code_units, parse_json
from agml_assets.settings import expand_path

MANIFESTS = ("index", "global")
"""Names in the folder that are made from the records and hold none."""

PREDICTIONS = "predictions"
"""Folder beside the records; what lies in it is told in `predictions`."""


@dataclass(frozen=True)
class RecordFile:
    """One file of the folder.

    Attributes:
        dataset: Its name without `.json`, which is the dataset's.
        document: The JSON value in it; null where it could not be read.
        problem: Why it could not be read.
        repeated: Keys that an object has twice, of which the last value counts, by the position from 1 of the
            record that it is or is in.
    """

    dataset: str
    document: Any
    problem: str | None = None
    repeated: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def performance_folder(explicit: str | Path | None = None) -> Path:
    """Return where the run records lie: `explicit`, else `$AGML_PERFORMANCE`, else `./performance`; absolute."""
    named = explicit or os.environ.get("AGML_PERFORMANCE") or "performance"
    return expand_path(str(named), "folder of run records").absolute()


def dataset_names(folder: Path) -> list[str]:
    """Return the datasets that have a file in the folder, in the site's order; none where it is not there."""
    names = (path.name.removesuffix(".json") for path in folder.glob("*.json"))
    return sorted((name for name in names if name not in MANIFESTS), key=code_units)


def passed_over(folder: Path) -> list[str]:
    """Return names in a folder of records that are not read, such as `beans.JSON`; hidden ones apart."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(name for name in names if not name.endswith(".json") and name[0] != "." and name != PREDICTIONS)


def read_record_files(folder: Path) -> list[RecordFile]:
    """Read every dataset's file.

    Raises:
        UserError: There is no such folder.
    """
    if not folder.is_dir():
        raise UserError(
            f"There is no folder of run records at {folder}. Make it, or name another with $AGML_PERFORMANCE."
        )
    return [read_record_file(folder / f"{name}.json") for name in dataset_names(folder)]


def read_record_file(path: Path) -> RecordFile:
    """Read one file; one that cannot be read has a problem in place of a document."""
    dataset = path.name.removesuffix(".json")
    if path.exists() and not path.is_file():  # a pipe would be waited for
        return RecordFile(dataset, None, "it is no regular file")
    try:
        content = path.read_bytes()
    except OSError as error:
        return RecordFile(dataset, None, f"it cannot be read: {error.strerror}")
    try:
        text = content.decode("utf-8")
        return RecordFile(dataset, parse_json(text), repeated=_repeated_keys(text))
    except ValueError as error:
        return RecordFile(dataset, None, f"it is not valid JSON: {error}")


def _repeated_keys(text: str) -> dict[int, tuple[str, ...]]:
    """Return keys that an object in a JSON text has twice, by the position of the element it is in."""

    def repeats(pairs: list[tuple[str, Any]]) -> frozenset[str]:
        counts = Counter(name for name, _ in pairs)
        own = (name for name, n in counts.items() if n > 1) if len(counts) < len(pairs) else ()
        return frozenset((*own, *_names(value for _, value in pairs)))

    document = json.loads(text, object_pairs_hook=repeats, parse_int=lambda _: 0)
    elements = document if isinstance(document, list) else [document]
    found = ((position, sorted(set(_names([element])))) for position, element in enumerate(elements, start=1))
    return {position: tuple(names) for position, names in found if names}


def _names(values: Iterable[Any]) -> Iterator[str]:
    """Return the repeated keys in values in which every object has become the set of its own."""
    for value in values:
        if isinstance(value, frozenset):
            yield from value
        elif isinstance(value, list):
            yield from _names(value)
