"""What a workspace holds, by content: kept after every step, packed at the end, put back when a trial goes on.

Workspaces are written by agents. Links are noted, never followed; nothing that is no regular file is opened.
"""

import errno
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from blake3 import blake3

from agml_assets.agents.sandbox.paths import Found, remove_beneath, remove_tree, walk
from agml_assets.agents.task import AgentTask
from agml_assets.errors import UserError
from agml_assets.locks import Unfinished

LARGEST_FILE = 64 << 20
"""Bytes of a file that is kept; larger ones are named and left out."""

LARGEST_SNAPSHOT = 512 << 20
"""Bytes of all files of one snapshot."""

MOST_FILES = 20_000
"""Files and links of one snapshot."""

MOST_NAMED = 1_000
"""Files that are named as left out; more are counted."""

_CHUNK = 1 << 20
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: the same contents give the same bytes
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Snapshot:
    """The files of a workspace that are no read-only ones.

    Attributes:
        files: BLAKE3 of each, by relative path.
        links: Target of each symbolic link, as its text.
        left_out: Bytes of each file, and of folders that nobody can look into, above the caps.
        unnamed: How many more there are.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    unnamed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    def lacking(self, task: AgentTask) -> str:
        """Return why it is not enough to score the workspace; empty where it is."""
        if task.entry.metric is not None or not self.left_out:  # a declared submission is kept whatever its size
            return ""
        names, count = ", ".join(list(self.left_out)[:3]), len(self.left_out) + self.unnamed
        return f"eval.py may read files that were too large to be kept ({names}; {count} in all)"


class SnapshotStore:
    """Contents of files, each once.

    Args:
        folder: Where they are kept, by their digest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A file whose inode, size and times are as they were has the content it had: no agent can set its ctime.
        self._known: dict[tuple[int, int, int, int, int], str] = {}

    def take(self, workspace: Path, read_only: "ReadOnly", wanted: Mapping[str, int] | None = None) -> Snapshot:
        """Keep a workspace as it is.

        Args:
            workspace: The workspace.
            read_only: Which of its files are left out because they cannot change.
            wanted: Files that are kept before all others and above the caps, up to so many bytes.

        Returns:
            What it holds; contents are in the store.
        """
        wanted = wanted or {}
        found = [
            (one.path not in wanted, one.path, one.status)
            for one in _walk(workspace, read_only)
            if stat.S_ISREG(one.status.st_mode) or stat.S_ISLNK(one.status.st_mode) or one.closed
        ]
        files: dict[str, str] = {}
        links: dict[str, str] = {}
        left_out: dict[str, int] = {}
        total = unnamed = 0
        for _, path, status in sorted(found, key=lambda one: one[:2]):
            room = 0 if len(files) + len(links) >= MOST_FILES else min(LARGEST_FILE, LARGEST_SNAPSHOT - total)
            most = wanted.get(path, room)
            kept, where = None, files
            if status.st_size <= most and stat.S_ISREG(status.st_mode):
                kept, where = self._keep(workspace, path, status, most), files
            elif status.st_size < most and stat.S_ISLNK(status.st_mode):
                kept, where = _target_of(workspace, path), links
            if kept is not None:
                where[path] = kept
                total += status.st_size
            elif len(left_out) < MOST_NAMED:
                left_out[path] = status.st_size
            else:
                unnamed += 1
        return Snapshot(dict(sorted(files.items())), dict(sorted(links.items())), left_out, unnamed)

    def keep_bytes(self, content: bytes) -> str:
        """Keep some bytes and return their digest."""
        digest = blake3(content).hexdigest()
        target = self.path(digest)
        if not target.exists():
            write_whole(target, content)
        return digest

    def keep_snapshot(self, snapshot: Snapshot) -> str:
        """Keep the list of a snapshot and return its digest."""
        return self.keep_bytes(json.dumps(snapshot.to_json(), sort_keys=True).encode())

    def read_snapshot(self, digest: str) -> Snapshot:
        """Return the snapshot that `keep_snapshot` kept."""
        return Snapshot(**json.loads(self.path(digest).read_bytes()))

    def path(self, digest: str) -> Path:
        """Return where a content is kept."""
        return self.folder / digest

    def restore(self, snapshot: Snapshot, workspace: Path, read_only: "ReadOnly") -> None:
        """Bring a workspace back to a snapshot.

        What is as it was stays untouched; what came later goes. Files above the caps stay as they are, where they
        are.
        """
        workspace.mkdir(parents=True, exist_ok=True)
        keep = snapshot.files.keys() | snapshot.left_out.keys()
        for one in _walk(workspace, read_only):
            if stat.S_ISLNK(one.status.st_mode):
                stale = snapshot.links.get(one.path) != os.readlink(one.name, dir_fd=one.parent)
            else:
                stale = one.path not in keep or not (stat.S_ISREG(one.status.st_mode) or one.closed)
            if stale and not snapshot.unnamed:  # else it may be one of these
                remove_beneath(one.parent, one.name)
        for path, digest in snapshot.files.items():
            if _digest_of(workspace, path) != digest:
                write_beneath(workspace, path, self.path(digest).read_bytes())
        for path, target in snapshot.links.items():
            link_beneath(workspace, path, target)

    def _keep(self, workspace: Path, path: str, status: os.stat_result, most: int) -> str | None:
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key in self._known and self.path(self._known[key]).exists():
            return self._known[key]
        try:
            handle = _open_beneath(workspace, path)
        except OSError:  # gone, or exchanged for a link, while we looked
            return None
        with os.fdopen(handle, "rb") as source, Unfinished(self.folder, "blob") as stage:
            hashed, length = blake3(), 0
            with stage.open("wb") as target:
                while length <= most and (chunk := source.read(_CHUNK)):
                    hashed.update(chunk)
                    target.write(chunk)
                    length += len(chunk)
            if length > most:
                return None
            digest = hashed.hexdigest()
            if not self.path(digest).exists():
                stage.replace(self.path(digest))
        self._known[key] = digest
        return digest


@dataclass(frozen=True)
class ReadOnly:
    """What an agent may not change: some starter files, and the public data.

    Attributes:
        files: Starter files by relative path.
        public: Files and folders of public data by relative path.
    """

    files: frozenset[str] = frozenset()
    public: frozenset[str] = frozenset()

    @classmethod
    def of(cls, task: AgentTask) -> "ReadOnly":
        """Find out which starter files the patterns of a task mean."""
        files = {
            one.path
            for one in _walk(task.env, cls())
            if stat.S_ISREG(one.status.st_mode)
            and any(fnmatchcase(_as_listed(one.path), pattern) for pattern in task.read_only)
        }
        return cls(frozenset(files), frozenset(task.public))

    def __contains__(self, path: object) -> bool:
        """Say whether a relative path is one of them, or below one."""
        here = PurePosixPath(str(path))
        return str(here) in self.files or any(str(one) in self.public for one in (here, *here.parents))

    def mounts(self, task: AgentTask) -> dict[str, Path]:
        """Return what is mounted read-only in the workspace, by relative path."""
        return {**{path: task.env / path for path in sorted(self.files)}, **dict(task.public)}


def lay_out(task: AgentTask, workspace: Path) -> None:
    """Make a workspace with the starter files of a task.

    Raises:
        UserError: A link among them leads out of their folder.
    """
    inside = task.env.resolve()
    for one in _walk(task.env, ReadOnly()):
        if stat.S_ISLNK(one.status.st_mode):
            link = task.env / one.path
            if link.readlink().is_absolute() or not link.resolve().is_relative_to(inside):
                raise UserError(
                    f"Task {task.key!r}: {link} is a link that leads out of {task.env}. Put the file there."
                )
    remove_tree(workspace)
    workspace.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(task.env, workspace, symlinks=True)


def lay_public(task: AgentTask, workspace: Path) -> None:
    """Copy the public data of a task into a workspace, for want of a sandbox that shows it there."""
    for path, source in task.public.items():
        target = workspace / path
        remove_tree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)


def hand_over(workspace: Path, read_only: ReadOnly, user: int) -> None:
    """Let a user own a workspace, read-only files apart; for the administrator."""
    os.chown(workspace, user, user)
    for one in walk(workspace):
        if one.is_folder or one.path not in read_only:
            os.chown(one.name, user, user, dir_fd=one.parent, follow_symlinks=False)


def lay_read_only(task: AgentTask, read_only: ReadOnly, workspace: Path) -> None:
    """Put the read-only starter files where they belong, whatever lies there."""
    for path in sorted(read_only.files):
        write_beneath(workspace, path, (task.env / path).read_bytes())


def pack(store: SnapshotStore, trials: Mapping[int, tuple[Sequence[Snapshot], Snapshot]], target: Path) -> None:
    """Write the workspaces of a run into one zip; the same contents give the same bytes.

    `blobs/<digest>` holds each content once, `seeds/<n>.json` what lay where: `{"steps": [...], "final": ...}`,
    each with `files`, `links` and `left_out` as in `Snapshot`.

    Args:
        store: Where the contents are.
        trials: By seed: the snapshot after each step, and the last one.
        target: The zip.
    """
    digests = {
        digest for steps, final in trials.values() for one in (*steps, final) for digest in one.files.values()
    }
    with Unfinished(target.parent, target.name) as stage:
        with zipfile.ZipFile(stage, "w", zipfile.ZIP_DEFLATED) as archive:
            for digest in sorted(digests):
                with (
                    store.path(digest).open("rb") as source,
                    archive.open(_member(f"blobs/{digest}"), "w") as blob,
                ):
                    shutil.copyfileobj(source, blob, _CHUNK)
            for seed, (steps, final) in sorted(trials.items()):
                listed = {"steps": [one.to_json() for one in steps], "final": final.to_json()}
                archive.writestr(_member(f"seeds/{seed}.json"), json.dumps(listed, sort_keys=True))
        stage.replace(target)


@dataclass(frozen=True)
class PackedTrial:
    """What a packed trial left: a snapshot after each step, and the last one."""

    steps: tuple[Snapshot, ...]
    final: Snapshot


def read_packed(packed: Path, seed: int) -> PackedTrial:
    """Return what a zip of workspaces says of a trial.

    Raises:
        UserError: It is no such zip, or knows no such trial.
    """
    try:
        with zipfile.ZipFile(packed) as archive:
            found = json.loads(archive.read(f"seeds/{seed}.json"))
        return PackedTrial(tuple(Snapshot(**one) for one in found["steps"]), Snapshot(**found["final"]))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{packed}: it holds no workspace of seed {seed} ({error}). Run the trials again."
        ) from None


def unpack(packed: Path, snapshot: Snapshot, target: Path) -> None:
    """Write a packed snapshot into a folder.

    Raises:
        UserError: A content is missing or not what its digest says, or a path leads out of the folder.
    """
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(packed) as archive:
        for path, digest in snapshot.files.items():
            try:
                content = archive.read(f"blobs/{digest}")
            except (KeyError, zipfile.BadZipFile) as error:
                raise UserError(f"{packed}: the content of {path!r} is missing ({error}).") from None
            if blake3(content).hexdigest() != digest:
                raise UserError(f"{packed}: the content of {path!r} is not what its digest says.")
            try:
                write_beneath(target, path, content)
            except ValueError as error:
                raise UserError(f"{packed}: {error}") from None


def write_whole(target: Path, content: bytes) -> None:
    """Write a file of the harness's own: it is there as a whole or not at all."""
    with Unfinished(target.parent, target.name) as stage:
        stage.write_bytes(content)
        stage.replace(target)


def write_beneath(folder: Path, path: str, content: bytes) -> None:
    """Write a file below a folder without following any link; what stands in its way goes.

    Raises:
        ValueError: The path is absolute, or leads out of the folder.
    """
    with _parent_beneath(folder, path, make=True) as (parent, name):
        remove_beneath(parent, name)
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=parent)
        with os.fdopen(handle, "wb") as target:
            target.write(content)


def link_beneath(folder: Path, path: str, target: str) -> None:
    """Make a symbolic link below a folder, unless it is there."""
    with _parent_beneath(folder, path, make=True) as (parent, name):
        with suppress(OSError):
            if os.readlink(name, dir_fd=parent) == target:
                return
        remove_beneath(parent, name)
        os.symlink(target, name, dir_fd=parent)


@contextmanager
def _parent_beneath(folder: Path, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
    parts = path.split("/")
    if not all(parts) or any(part in (".", "..") for part in parts):
        raise ValueError(f"the path {path!r} leads out of its folder")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            if make:
                try:
                    if not stat.S_ISDIR(os.stat(part, dir_fd=handle, follow_symlinks=False).st_mode):
                        os.unlink(part, dir_fd=handle)
                except FileNotFoundError:
                    pass
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
            below = os.open(part, os.O_DIRECTORY | _OPEN, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle, parts[-1]
    finally:
        os.close(handle)


def _open_beneath(folder: Path, path: str) -> int:
    with _parent_beneath(folder, path) as (parent, name):
        handle = os.open(name, _OPEN, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no regular file", path)
    return handle


def _digest_of(folder: Path, path: str) -> str | None:
    try:
        handle = _open_beneath(folder, path)
    except OSError:
        return None
    hashed = blake3()
    with os.fdopen(handle, "rb") as source:
        while chunk := source.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()


def _walk(folder: Path, read_only: ReadOnly) -> Iterator[Found]:
    """Yield whatever is no folder and not read-only, and the folders that cannot be looked into."""
    for one in walk(folder, read_only.__contains__, open_up=True):
        if (one.closed or not one.is_folder) and one.path not in read_only:
            yield one


def _target_of(folder: Path, path: str) -> str | None:
    try:
        with _parent_beneath(folder, path) as (parent, name):
            return os.readlink(name, dir_fd=parent)
    except OSError:  # gone since we looked
        return None


def _as_listed(path: str) -> str:
    """Return a path as the patterns of the old benchmark have it: `./name` at the top, `folder/name` below."""
    return path if "/" in path else f"./{path}"


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _LONG_AGO)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member
