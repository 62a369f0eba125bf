"""New run records are appended to the files of their datasets: checked first, once each, all or nothing.

Staging files stay where they are; doing it again changes nothing.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agml_assets.errors import UserError
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.javascript import dump_json, parse_json, trimmed
from agml_assets.leaderboard.record_files import MANIFESTS, read_record_file
from agml_assets.leaderboard.run_records import AcceptedRecord, Refusal, check_record, one_line, parse_time
from agml_assets.leaderboard.site_rows import dataset_config_of, finetune_of
from agml_assets.locks import UNFINISHED, Unfinished, remove_unfinished

STAGING = "performance_staging"
"""Folder of new records, in the working directory."""

_LISTED = 50  # refusals in one message


@dataclass(frozen=True)
class Merge:
    """What becomes of one staging file.

    Attributes:
        dataset: Its dataset.
        existing: Records that the dataset's file held before.
        added: New records, checked.
        already_there: Staged records that the file held already, or that were staged twice.
        path: The dataset's file, or what a link in its place leads to.
        text: What it shall hold.
    """

    dataset: str
    existing: int
    added: tuple[AcceptedRecord, ...]
    already_there: int
    path: Path
    text: str

    @property
    def total(self) -> int:
        """Records that the file holds afterwards."""
        return self.existing + len(self.added)

    def describe(self) -> str:
        """Return the numbers in a line."""
        staged = len(self.added) + self.already_there
        there = f" - {self.already_there} already there" if self.already_there else ""
        numbers = f"{self.existing} existing + {staged} staged{there} = {self.total} total"
        return one_line(f"{self.dataset}.json: {numbers}")


def stage(performance: Path, staging: Path, catalogue: Catalogue, *, dry_run: bool = False) -> list[Merge]:
    """Append all staged records that are not there yet, and return what was done, by dataset.

    Nothing is written unless every staged record is accepted. Each file is replaced in one step; a process that is
    killed between two files leaves both as they should be, and the next call goes on.

    Args:
        performance: Folder of run records; made if it is not there.
        staging: Folder of new records, a JSON array `<dataset>.json` each.
        catalogue: Knows the datasets, for warnings.
        dry_run: Whether to write nothing.

    Raises:
        UserError: Lists every file and record that is refused, and why; or the folder cannot be written to.
    """
    if not staging.is_dir():
        raise UserError(f"There is no folder of staged records at {staging}. Name another with --staging.")
    try:
        _try_to_write_in(performance)
        if dry_run:
            return _plan(performance, staging, catalogue)
        performance.mkdir(parents=True, exist_ok=True)
        with _alone_in(performance):
            list(remove_unfinished(performance.glob(UNFINISHED)))
            merges = _plan(performance, staging, catalogue)
            for merge in merges:
                if merge.added:
                    _replace(merge.path, merge.text)
        return merges
    except OSError as error:
        raise UserError(
            f"Records cannot be merged into {performance}: {error.strerror}: {error.filename or performance}. "
            "Mend that, or name another folder with --performance; every file is as it was or whole, and staging "
            "again adds nothing twice."
        ) from None


def _try_to_write_in(folder: Path) -> None:
    """Fail where no file can be made in a folder, or where it shall be made; none is left."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(there)) from None  # not the name of the file that was tried


def _plan(performance: Path, staging: Path, catalogue: Catalogue) -> list[Merge]:
    """Return what staging will do; every refusal of every file is listed before anything is done."""
    merges: list[Merge] = []
    refused: list[Refusal] = []
    claims: dict[Path, str] = {}
    for path in sorted(staging.glob("*.json"), key=lambda path: path.name):
        planned = _plan_file(path, performance, catalogue)
        if not isinstance(planned, Merge):
            refused += planned
        elif (other := claims.setdefault(planned.path, planned.dataset)) != planned.dataset:
            refused.append(
                Refusal(planned.dataset, None, f"by a link its file is that of {other}, staged as well")
            )
        else:
            merges.append(planned)
    if refused:
        lines = [f"  {one.describe()}" for one in refused[:_LISTED]]
        more = [f"  and {len(refused) - _LISTED} more"] if len(refused) > _LISTED else []
        what = "\n".join([*lines, *more])
        raise UserError(f"Nothing was written: {len(refused)} refused in {staging}.\n{what}")
    return merges


def _plan_file(path: Path, performance: Path, catalogue: Catalogue) -> Merge | list[Refusal]:
    dataset = path.name.removesuffix(".json")
    if dataset in MANIFESTS:
        return [Refusal(dataset, None, "it is made from the run records of all datasets, and is no dataset")]
    if not dataset:
        return [Refusal(dataset, None, "its name names no dataset")]
    staged = read_record_file(path)
    if staged.problem is not None or not isinstance(staged.document, list):
        return [Refusal(dataset, None, staged.problem or "it must hold a JSON array of run records")]
    if staged.repeated:
        return [
            Refusal(dataset, position, f"a key is given twice in one object: {', '.join(names)}")
            for position, names in staged.repeated.items()
        ]
    target = Path(os.path.realpath(performance / path.name))
    if not target.is_relative_to(os.path.realpath(performance)):
        return [
            Refusal(
                dataset, None, f"{performance / path.name} is a link that leads out of its folder, to {target}"
            )
        ]
    text, existing = _existing(target, dataset)
    if isinstance(existing, Refusal):
        return [existing]
    return _merge(dataset, target, text, existing, staged.document, catalogue)


def _merge(
    dataset: str, path: Path, text: str, existing: Sequence[Any], staged: Sequence[Any], catalogue: Catalogue
) -> Merge | list[Refusal]:
    seen = {_content(record) for record in existing}
    runs = {key: f"record {n} of {dataset}.json" for n, record in enumerate(existing, 1) if (key := _run(record))}
    added: list[AcceptedRecord] = []
    refused: list[Refusal] = []
    for position, raw in enumerate(staged, start=1):
        outcome = check_record(raw, dataset, position, catalogue)
        if isinstance(outcome, Refusal):
            refused.append(outcome)
            continue
        content, run = _content(raw), _run(raw)
        if content in seen:
            continue
        if run in runs:
            same = "the same model, configuration, split, task, variant and time with other values"
            refused.append(Refusal(dataset, position, f"it has {same} as {runs[run]}; correct that one instead"))
            continue
        seen.add(content)
        if run is not None:
            runs[run] = f"staged record {position}"
        added.append(outcome)
    if refused:
        return refused
    added.sort(key=_time_order)
    text = _append(text, bool(existing), [one.raw for one in added])
    return Merge(dataset, len(existing), tuple(added), len(staged) - len(added), path, text)


def _existing(path: Path, dataset: str) -> tuple[str, list[Any] | Refusal]:
    """Return the text and the records of a dataset's file; an empty list where there is none."""
    if not path.exists():
        return "", []
    file = read_record_file(path)
    if file.problem is not None or not isinstance(file.document, list):
        reason = f"{path}, to which it would be appended: {file.problem or 'it holds no JSON array'}"
        return "", Refusal(dataset, None, reason)
    return path.read_bytes().decode("utf-8"), file.document  # with the line ends that it has


def _content(record: Any) -> str:
    """Return what records with the same values share, whatever the order of keys and the spelling of the time."""
    if isinstance(record, Mapping) and (time := parse_time(record.get("timestamp"))) is not None:
        record = {**record, "timestamp": time.timestamp()}
    return dump_json(_sorted(record))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _run(record: Any) -> tuple[Any, ...] | None:
    """Return what tells one run from another; None for a record without a time, of which content alone tells."""
    if not isinstance(record, Mapping) or (time := trimmed(record.get("timestamp"))) is None:
        return None
    config, tuned = dataset_config_of(record), finetune_of(record) is not None
    parsed = parse_time(time)
    return (
        trimmed(record.get("model")),
        config,
        trimmed(record.get("split")),
        trimmed(record.get("task")),
        tuned,
        parsed.timestamp() if parsed else time,
    )


def _time_order(one: AcceptedRecord) -> tuple[bool, float, str]:
    """Order by time, records without one last, so that the order in the staging file does not matter."""
    time = parse_time(one.record.timestamp)
    return time is None, time.timestamp() if time else 0.0, _content(one.raw)


def _append(text: str, any_there: bool, records: Iterable[Mapping[str, Any]]) -> str:
    """Return a file's text with records behind those that are there, whose lines stay as they are."""
    end = "\r\n" if "\r\n" in text and "\n" not in text.replace("\r\n", "") else "\n"
    new = [json.dumps(record, indent=2, allow_nan=False).replace("\n", f"{end}  ") for record in records]
    if not new:
        return text
    start = text.rstrip().removesuffix("]").rstrip() + "," if any_there else "["
    return f"{start}{end}  {f',{end}  '.join(new)}{end}]{end}"


def _replace(path: Path, text: str) -> None:
    """Write a file in one step: readers see the old or the new one, whenever the process dies."""
    parse_json(text)  # what was put together as text must still be JSON
    with Unfinished(path.parent, path.name) as unfinished:
        unfinished.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        with unfinished.open("w", encoding="utf-8", newline="") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        unfinished.replace(path)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder against others who would merge into it; the kernel frees it when the process ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
