"""The files of one run, in NeuCo-Bench's places and with its keys; each is whole or not there."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from agml_assets.compression.compatible.scores import TaskScore
from agml_assets.disk import named_when_full
from agml_assets.errors import UserError
from agml_assets.locks import Unfinished
from agml_assets.store import dump_json

LEADERBOARDS = "leaderboards"
SUMMARY = "results_summary.json"
_STAMP = "%Y%m%d_%H%M%S"
_LONGEST = 200  # bytes of method and task in a file's name, of 255 that file systems allow


@dataclass(frozen=True)
class TaskResult:
    """What is written of one task.

    Attributes:
        name: The task.
        metric: `R2` or `F1`.
        score: Its scores.
        hyperparameters: Of the probe.
        n_samples: Samples that it was computed from.
        coverage: How submission and labels fit together, JSON values.
        notes: What to know about it, a sentence each.
    """

    name: str
    metric: str
    score: TaskScore
    hyperparameters: Mapping[str, Any]
    n_samples: int
    coverage: Mapping[str, Any]
    notes: tuple[str, ...]

    def as_json(self, with_folds: bool) -> dict[str, Any]:
        """Return the task's document: published keys, `hyperparamaters` as published, then further ones."""
        document: dict[str, Any] = {
            "q_stat": or_null(self.score.q),
            "mean_score": or_null(self.score.mean),
            "std_dev": or_null(self.score.std),
            "hyperparamaters": dict(self.hyperparameters),
        }
        if with_folds:
            document["q_t"] = [or_null(one) for one in self.score.folds.tolist()]
        further = {"metric": self.metric, "n_samples": self.n_samples, "coverage": dict(self.coverage)}
        return {**document, **further, "notes": list(self.notes)}


def require_name(what: str, name: str) -> str:
    """Return a name that may be that of a folder.

    Raises:
        UserError: It may not.
    """
    if not name.isprintable() or not name or name in (".", "..") or any(c in name for c in "/\\"):
        raise UserError(
            f"{what} is {name!r}; it names a folder, so it cannot be empty or hold a slash or a control character."
        )
    return name


def require_task(method: str, task: str) -> str:
    """Return a task's name.

    Raises:
        UserError: It cannot be that of a folder of a run, or files named by method and task cannot be made.
    """
    if require_name("The task", task) == SUMMARY:
        raise UserError(f"A task cannot be called {SUMMARY!r}: a run's summary lies there. Rename its file.")
    if len(f"{method}_{task}".encode()) > _LONGEST:
        raise UserError(
            f"The names of method and task, {method!r} and {task!r}, are together longer than {_LONGEST} bytes; "
            "files are named by both. Shorten one of them."
        )
    return task


def require_phase(phase: str) -> str:
    """Return a phase's name.

    Raises:
        UserError: It cannot be that of a folder of runs.
    """
    if require_name("The phase", phase) == LEADERBOARDS:
        raise UserError(f"The phase cannot be called {LEADERBOARDS!r}: leaderboards lie there.")
    return phase


def make_run_folder(output_dir: Path, phase: str, method: str, now: datetime) -> Path:
    """Make and return `<output_dir>/<phase>/<method>_<YYYYMMDD_HHMMSS>`, `_2` ... added where it is there.

    Raises:
        UserError: It cannot be made.
    """
    name = f"{require_name('The method', method)}_{now.strftime(_STAMP)}"
    try:
        return _make_new(output_dir / require_phase(phase) / name)
    except OSError as error:
        raise UserError(
            f"The output folder {output_dir} cannot be used: {error.strerror} ({error.filename}). Name a folder "
            "that you may write to."
        ) from None


def write_task(folder: Path, result: TaskResult, with_folds: bool) -> Path:
    """Write `<task>/<task>_result.json` and return its path."""
    path = folder / result.name / f"{result.name}_result.json"
    write_text(path, dump_json(result.as_json(with_folds)))
    return path


def write_summary(
    folder: Path, results: Mapping[str, TaskResult], config: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Write `results_summary.json`, the last of a run's files, and return what it holds.

    Args:
        folder: Of the run.
        results: Of each task.
        config: As it was given.
        **more: Values of keys behind the published ones.
    """
    q = {name: or_null(result.score.q) for name, result in results.items()}
    means = {name: or_null(result.score.mean) for name, result in results.items()}
    document = {
        "experiment": folder.name,
        "overall_q_score": _mean(q),
        "overall_acc_score": _mean(means),
        "task_q_scores": q,
        "task_acc_scores": means,
        "config": dict(config),
        **more,
    }
    write_text(folder / SUMMARY, dump_json(document))
    return document


def write_probe(folder: Path, task: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> Path:
    """Write `<task>/probe/probe.npz`, arrays alone, and `metadata.json` beside it; return the folder."""
    place = folder / task / "probe"
    with unfinished(place / "probe.npz") as stage, stage.open("wb") as handle:
        np.savez(handle, allow_pickle=False, **arrays)
    write_text(place / "metadata.json", dump_json(dict(metadata)))
    return place


def leaderboard_path(output_dir: Path, phase: str, now: datetime) -> Path:
    """Return `<output_dir>/leaderboards/<phase>/leaderboard_<YYYYMMDD_HHMMSS>.csv`, which is not there yet."""
    folder = output_dir / LEADERBOARDS / phase
    stem = f"leaderboard_{now.strftime(_STAMP)}"
    return next(path for path in _numbered(folder / stem, ".csv") if not path.exists())


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with unfinished(path) as stage:
        stage.write_text(text, encoding="utf-8")


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Give a file to write, which becomes `path` at the end, unless an error ends it."""
    with named_when_full(path.parent, str(path)), Unfinished(path.parent, path.name) as stage:
        mask = os.umask(0)
        os.umask(mask)
        stage.chmod(0o666 & ~mask)
        yield stage
        stage.replace(path)


def or_null(value: float) -> float | None:
    """Return a number that JSON can hold, or None."""
    return float(value) if np.isfinite(value) else None


def _mean(values: Mapping[str, float | None]) -> float | None:
    known = [value for value in values.values() if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _make_new(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    for candidate in _numbered(path, ""):
        try:
            candidate.mkdir()
        except FileExistsError:
            continue
        return candidate
    raise AssertionError("numbers never end")


def _numbered(path: Path, suffix: str) -> Iterator[Path]:
    yield path.with_name(path.name + suffix)
    number = 2
    while True:
        yield path.with_name(f"{path.name}_{number}{suffix}")
        number += 1
