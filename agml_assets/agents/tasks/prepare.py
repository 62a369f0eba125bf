"""A manifest becomes a task whose files are in place: made once, as a whole, and known again by their content.

What a task consists of is decided by its source: `folder`, `dataset`, `digits`.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from agml_assets.agents.metrics import find_metric
from agml_assets.agents.sandbox.confinement import prefixes
from agml_assets.agents.task import AgentTask
from agml_assets.agents.tasks.dataset import dataset_hidden, dataset_identity, make_from_dataset
from agml_assets.agents.tasks.digits import answers_below, installed_digits, make_digits
from agml_assets.agents.tasks.folder import folder_identity, make_from_folder, mounts_of
from agml_assets.agents.tasks.stage import Made, Stage, content_digest, make_readable, state_of
from agml_assets.errors import UserError
from agml_assets.locks import Unfinished, exclusive
from agml_assets.registry.agents import DIGITS, AgentTaskEntry
from agml_assets.store import PLATFORM, file_digest
from agml_assets.workspace import Workspace

logger = logging.getLogger(__name__)

MARKER = "prepared.json"
_PARTS = ("env", "public", "private")
_SAID = {
    *("identity", "source", "content", "state", "digest"),
    *("problem", "read_only", "public", "decided", "reference", "measured", "warnings", "hidden"),
}
_DECIDED = {"metric", "direction", "submission", "valid_above", "valid_below"}  # what a score means
_VERSION = "2"  # changed whenever the code would make other files from the same source


def prepare_task(
    entry: AgentTaskEntry, workspace: Workspace, *, python: Path, downloads: Path | None = None
) -> AgentTask:
    """Put the files of a task in place, unless they are, and return it.

    What was downloaded is kept when the rest fails; nothing is written into a task's or a dataset's own
    folder. Two that prepare the same task wait for each other.

    Args:
        entry: The manifest.
        workspace: Registry of datasets, settings and store.
        python: Interpreter for the task's scripts.
        downloads: Where downloaded images are kept; by default beside the task.

    Raises:
        UserError: Its source is not as it must be; it says what to do.
    """
    if entry.metric is not None and (better := find_metric(entry.metric, entry.key).direction) != entry.direction:
        raise UserError(
            f"Task {entry.key!r}: {better} is better of the metric {entry.metric!r}, and the manifest says "
            f"{entry.direction}. Let it say `direction: {better}`."
        )
    place = _place(entry, workspace)
    lock = workspace.store.local_folder(PLATFORM, "locks") / f"agents.{entry.key}.lock"
    with exclusive(lock, f"task {entry.key}", "prepare"):
        marker = _read_marker(place)
        identity, source = _identity(entry, workspace, marker)
        if marker is not None and not _changed(marker, place, identity):
            return _open(entry, workspace, place, marker)
        stage = Stage(place / "making", place / "downloads", downloads or place / "downloads" / "images")
        stage.make()
        made = _make(entry, workspace, stage, python)
        hidden = [str(path) for path in made.hidden]
        (place / MARKER).unlink(missing_ok=True)
        for part in _PARTS:
            shutil.rmtree(place / part, ignore_errors=True)
            make_readable(stage.folder / part)
            (stage.folder / part).rename(place / part)
        shutil.rmtree(stage.folder)
        marker = _describe(made, place) | {"identity": identity, "source": source, "hidden": hidden}
        _write_marker(place, marker)
        logger.info("Task %s is ready in %s.", entry.key, place)
        return _open(entry, workspace, place, marker)


def open_task(entry: AgentTaskEntry, workspace: Workspace) -> AgentTask:
    """Return a task that was prepared.

    Raises:
        UserError: It was not, its source has changed since, or its files are no longer what they were.
    """
    place = _place(entry, workspace)
    command = f"agml-assets agents prepare {entry.key}"
    marker = _read_marker(place)
    if marker is None:
        raise UserError(
            f"Task {entry.key!r} is not prepared. {entry.preparation.note} Run: {command}".replace("  ", " ")
        )
    if reason := _changed(marker, place, _identity(entry, workspace, marker)[0]):
        raise UserError(f"Task {entry.key!r}: {reason} since it was prepared. Run: {command}")
    return _open(entry, workspace, place, marker)


def answers_beside(entry: AgentTaskEntry, python: Path) -> tuple[Path, ...]:
    """Return what an interpreter, or the system that its scripts see, has installed of a task's answers."""
    return answers_below((*prefixes(python), Path("/usr"))) if entry.dataset == DIGITS else ()


def _place(entry: AgentTaskEntry, workspace: Workspace) -> Path:
    return workspace.store.local_folder(PLATFORM, f"agents/tasks/{entry.key}")


def _make(entry: AgentTaskEntry, workspace: Workspace, stage: Stage, python: Path) -> Made:
    if entry.dataset == DIGITS:
        return make_digits(entry, stage)
    if entry.dataset is not None:
        return make_from_dataset(entry, workspace, stage)
    return make_from_folder(entry, stage, python=python)


def _identity(
    entry: AgentTaskEntry, workspace: Workspace, marker: Mapping[str, Any] | None
) -> tuple[str, Mapping[str, Any]]:
    """Return what the files of a task are made from today: a digest, and what it stands for beside the manifest.

    Files of a folder that look as they did when the task was prepared are not read again.
    """
    if entry.dataset == DIGITS:
        starter = Path(__file__).with_name("starters") / "digits.py"
        digits = installed_digits()
        files = [path for path in (starter, digits) if path is not None and path.is_file()]
        source: dict[str, Any] = {"content": [file_digest(path) for path in files]}
    elif entry.dataset is not None:
        source = {"content": dataset_identity(entry, workspace)}
    else:
        source = dict(folder_identity(entry, marker["source"] if marker is not None else {}))
    manifest = entry.model_dump(
        mode="json",
        include={
            *("dataset", "goal", "metric", "direction", "submission", "scored", "preparation"),
            *("valid_above", "valid_below"),
        },
    )
    return _digest([_VERSION, source["content"], manifest]), source


def _describe(made: Made, place: Path) -> dict[str, Any]:
    """Return what the marker says of a task whose files are in place."""
    folders = [place / part for part in _PARTS]
    decided = made.entry.model_dump(mode="json", include=_DECIDED)
    content = content_digest(folders)
    told = {"problem": made.problem, "read_only": list(made.read_only), "public": list(made.public)}
    return {
        "content": content,
        "state": state_of(folders),
        "digest": _digest([content, told, decided]),
        **told,
        "decided": decided,
        "reference": made.reference,
        "measured": {"baseline": made.baseline, "baseline_guess": made.guess} if made.baseline is not None else {},
        "warnings": list(made.warnings),
    }


def _changed(marker: Mapping[str, Any], place: Path, identity: str) -> str:
    """Return what has changed since a task was prepared; an empty text where nothing has."""
    if marker["identity"] != identity:
        return "its source or its manifest has changed"
    folders = [place / part for part in _PARTS]
    if not all(folder.is_dir() for folder in folders):
        return "its files were removed"
    # Times differ where the files were copied; the contents decide.
    if marker["state"] != state_of(folders) and marker["content"] != content_digest(folders):
        return f"its files in {place} were changed"
    return ""


def _open(entry: AgentTaskEntry, workspace: Workspace, place: Path, marker: Mapping[str, Any]) -> AgentTask:
    warnings = (*entry.warnings, *marker["warnings"])
    known = AgentTaskEntry.model_validate(
        {**entry.model_dump(), **marker["decided"], **marker["measured"], "warnings": warnings}, strict=False
    )
    hidden = [Path(path) for path in marker["hidden"]]
    if entry.dataset is not None and entry.dataset != DIGITS:
        hidden += dataset_hidden(entry, workspace)
    reference = marker["reference"]
    return AgentTask(
        entry=known,
        problem=marker["problem"],
        env=place / "env",
        private=place / "private",
        digest=marker["digest"],
        read_only=tuple(marker["read_only"]),
        public={name: place / "public" / name for name in marker["public"]},
        mounts=mounts_of(entry),
        hidden=tuple(dict.fromkeys(hidden)),
        reference=reference if reference is not None else entry.reference,
    )


def _read_marker(place: Path) -> dict[str, Any] | None:
    try:
        marker = json.loads((place / MARKER).read_text())
    except (OSError, ValueError):
        return None
    return marker if isinstance(marker, dict) and marker.keys() == _SAID else None


def _write_marker(place: Path, marker: Mapping[str, Any]) -> None:
    with Unfinished(place, MARKER) as stage:
        stage.write_text(json.dumps(marker, indent=1))
        stage.chmod(0o644)
        stage.replace(place / MARKER)


def _digest(facts: Any) -> str:
    return blake3(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
