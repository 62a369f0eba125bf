"""The four files of the leaderboard, as text, from all run records; others write them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from upath import UPath

from agml_assets.leaderboard.board import build_board
from agml_assets.leaderboard.catalogue import Catalogue, load_catalogue
from agml_assets.leaderboard.javascript import dump_json
from agml_assets.leaderboard.manifests import build_global, build_index
from agml_assets.leaderboard.own_records import add_records, read_own_records
from agml_assets.leaderboard.record_files import PREDICTIONS, RecordFile, performance_folder, read_record_files
from agml_assets.leaderboard.run_records import RunRecords, check_files, describe_records
from agml_assets.store import ArtifactStore


@dataclass(frozen=True)
class Source:
    """What there is.

    Attributes:
        folder: Folder of run records.
        files: The records as their files hold them, those of this platform's own evaluations behind them.
        catalogue: The one in the folder above.
        results: Results root of these evaluations; null where they were not asked for.
    """

    folder: Path
    files: tuple[RecordFile, ...]
    catalogue: Catalogue
    results: UPath | None = None

    @property
    def prediction_folders(self) -> tuple[UPath, ...]:
        """Where records' predictions lie: beside the records, or below the results root."""
        return (UPath(self.folder / PREDICTIONS), *([self.results] if self.results else []))

    @cached_property
    def records(self) -> RunRecords:
        """Every record, accepted or refused."""
        return check_files(self.files, self.catalogue)


def read_source(performance: str | Path | None = None, store: ArtifactStore | None = None) -> Source:
    """Read the run records of a folder, see `performance_folder`, and the catalogue beside it.

    Args:
        performance: Folder of run records; it may be absent where `store` holds records.
        store: Holds this platform's own evaluations, whose records are taken up with the others.

    Raises:
        UserError: There is no such folder, or the catalogue is damaged.
    """
    folder = performance_folder(performance)
    own = read_own_records(store) if store else {}
    files = read_record_files(folder) if folder.is_dir() or not own else []
    merged = add_records(files, own)
    return Source(folder, tuple(merged), load_catalogue(folder.parent), store.root if store else None)


def run_records_text(source: Source) -> str:
    """Return `run_records.json`: every record, and what became of it."""
    return _compact(describe_records(source.records))


def index_text(source: Source) -> str:
    """Return `index.json` of the site."""
    return dump_json(build_index(source.files))


def global_text(source: Source) -> str:
    """Return `global.json` of the site."""
    return dump_json(build_global(source.files, source.catalogue))


def board_text(source: Source) -> str:
    """Return `board.json`."""
    return _compact(build_board(source.records, source.catalogue, source.prediction_folders))


OUTPUTS: Mapping[str, Callable[[Source], str]] = {
    "leaderboard/run_records.json": run_records_text,
    "leaderboard/index.json": index_text,
    "leaderboard/global.json": global_text,
    "leaderboard/board.json": board_text,
}
"""Files below `_platform` of the results root, and what makes each."""


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n"
