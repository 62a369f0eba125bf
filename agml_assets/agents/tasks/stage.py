"""What every maker of a task returns, and how folders are copied and identified."""

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from blake3 import blake3
from jaxtyping import Shaped

from agml_assets.agents.submission import ANSWERS
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentTaskEntry
from agml_assets.store import file_digest

PYTHON_LEFTOVERS = ("__pycache__", "*.pyc")


@dataclass(frozen=True)
class Stage:
    """A folder in which a task is made, to be moved to its place as a whole.

    Attributes:
        folder: The folder.
        downloads: Where archives are kept from one try to the next.
        images: Where downloaded images are.
    """

    folder: Path
    downloads: Path
    images: Path

    @property
    def env(self) -> Path:
        """Files that every run starts with."""
        return self.folder / "env"

    @property
    def public(self) -> Path:
        """Data that the agent sees and cannot change, by its path in the workspace."""
        return self.folder / "public"

    @property
    def private(self) -> Path:
        """Answers and scorers."""
        return self.folder / "private"

    def make(self) -> None:
        """Make it new and empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.env, self.public, self.private):
            folder.mkdir(parents=True)
        self.downloads.mkdir(parents=True, exist_ok=True)

    def write_answers(self, answers: pl.DataFrame) -> None:
        """Write the answers: the id column as text where there is one, then what is to be found, typed."""
        answers.write_parquet(self.private / ANSWERS)


@dataclass(frozen=True)
class Made:
    """A task whose files are in its stage.

    Attributes:
        entry: The manifest, with what its maker decided.
        problem: What the agent is told to do.
        public: Files and folders below the stage's `public` that appear in the workspace under the same path.
        read_only: As `AgentTask.read_only`.
        reference: Score of a good solution, measured; None where it was not.
        baseline: Score of a guess where the starter code does not run; None where it was not measured.
        guess: What is guessed for it.
        warnings: What makes its scores doubtful and only shows when it is made.
        hidden: As `AgentTask.hidden`, beside what the package knows by itself.
    """

    entry: AgentTaskEntry
    problem: str
    public: tuple[str, ...]
    read_only: tuple[str, ...] = ()
    reference: float | None = None
    baseline: float | None = None
    guess: str = ""
    warnings: tuple[str, ...] = ()
    hidden: tuple[Path, ...] = ()


def list_files(folder: Path) -> list[Path]:
    """Return every file and every link below a folder, by path, without what Python leaves behind.

    Links are not followed.
    """
    found = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [Path(where, name) for name in files if not name.endswith(".pyc")]
        found += [Path(where, name) for name in folders if Path(where, name).is_symlink()]
    return sorted(found)


def content_digest(folders: Iterable[Path]) -> str:
    """Return the identity of what lies in folders: names, contents and links; times do not matter."""
    facts = []
    for folder in folders:
        for path in list_files(folder):
            what = f"-> {path.readlink()}" if path.is_symlink() else file_digest(path)
            facts.append((folder.name, path.relative_to(folder).as_posix(), what))
    return blake3(json.dumps(facts).encode()).hexdigest()[:32]


def state_of(folders: Iterable[Path]) -> str:
    """Return what tells cheaply that folders are as they were: names, sizes and times of their files."""
    facts = []
    for folder in folders:
        for path in list_files(folder):
            status = path.lstat()
            facts.append((folder.name, path.relative_to(folder).as_posix(), status.st_size, status.st_mtime_ns))
    return blake3(json.dumps(facts).encode()).hexdigest()[:32]


def refuse_links_outside(folder: Path, task: str) -> None:
    """Refuse links that lead out of a folder, and links by absolute paths, which would lead out of any copy.

    Raises:
        UserError: There is one.
    """
    inside = folder.resolve()
    for path in list_files(folder):
        if not path.is_symlink():
            continue
        if path.readlink().is_absolute() or not path.resolve().is_relative_to(inside):
            raise UserError(
                f"Task {task!r}: {path} is a link to {path.readlink()}, which is outside {folder}. Put the file "
                "itself there, or link by a relative path inside the folder."
            )


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder, links as links, without what Python leaves behind."""
    shutil.copytree(
        source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*PYTHON_LEFTOVERS)
    )


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file a second name, or, on another disk, a copy; links are copied as links."""
    if Path(source).is_symlink():
        Path(target).symlink_to(Path(source).readlink())
        return
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def make_readable(folder: Path) -> None:
    """Let everybody read a folder and all in it: commands in a sandbox run as another user."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def write_arrays(file: Path, **arrays: Shaped[np.ndarray, "..."]) -> None:
    """Write an .npz, compressed; the same arrays give the same bytes. Arrays of objects are refused."""
    if any(array.dtype.hasobject for array in arrays.values()):
        raise ValueError("an array of objects would be pickled")
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
