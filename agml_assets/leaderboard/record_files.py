"""The folder of run records: one JSON file a dataset, read as it lies there and never written here.

What a record must hold is told in `run_records`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agml_assets.errors import UserError
from agml_assets.leaderboard.javascript import code_units, parse_json
from agml_assets.settings import expand_path

MANIFESTS = ("index", "global")
"""Names in the folder that are made from the records and hold none."""


@dataclass(frozen=True)
class RecordFile:
    """One file of the folder.

    Attributes:
        dataset: Its name without `.json`, which is the dataset's.
        document: The JSON value in it; null where it could not be read.
        problem: Why it could not be read.
    """

    dataset: str
    document: Any
    problem: str | None = None


def performance_folder(explicit: str | Path | None = None) -> Path:
    """Return where the run records lie: `explicit`, else `$AGML_PERFORMANCE`, else `./performance`; absolute."""
    named = explicit or os.environ.get("AGML_PERFORMANCE") or "performance"
    return expand_path(str(named), "folder of run records").absolute()


def dataset_names(folder: Path) -> list[str]:
    """Return the datasets that have a file in the folder, in the site's order; none where it is not there."""
    names = (path.name.removesuffix(".json") for path in folder.glob("*.json"))
    return sorted((name for name in names if name not in MANIFESTS), key=code_units)


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
    try:
        content = path.read_bytes()
    except OSError as error:
        return RecordFile(dataset, None, f"it cannot be read: {error.strerror}")
    try:
        return RecordFile(dataset, parse_json(content.decode("utf-8")))
    except ValueError as error:
        return RecordFile(dataset, None, f"it is not valid JSON: {error}")
