"""Operating-system file locks: one run per dataset, one user per GPU, one writer per unfinished file.

The kernel frees a lock when its process dies, however it dies: no lock needs cleaning up, and an unfinished file
whose lock is free is one that nobody will finish.
"""

import fcntl
import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

UNFINISHED = ".*.tmp"
"""Pattern of the names of unfinished files."""

_REMIND_S = 60.0
_ASK_AGAIN_S = 0.5
_LONGEST_START = 200  # bytes of a file's name that its unfinished one begins with: 255 are the most for both


@contextmanager
def exclusive(path: Path, what: str, holder: str) -> Iterator[str | None]:
    """Hold the lock file `path`; wait for it as long as it takes, naming who holds it.

    Args:
        path: The lock file; the note on its holder lies beside it.
        what: What is locked, for the log, such as `dataset 'beans'`.
        holder: Who we are, for the log of others, such as `run 1234`.

    Yields:
        The holder before us if it was killed, else None.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    note = path.with_suffix(".holder.json")
    lock = FileLock(path, mode=0o666)  # another user of the machine may come next
    reminded = -_REMIND_S
    while True:
        try:
            lock.acquire(timeout=1.0)
            break
        except Timeout:
            if time.monotonic() - reminded >= _REMIND_S:
                logger.warning("Waiting for %s: held by %s.", what, _describe(note))
                reminded = time.monotonic()
    try:
        killed = _holder(note)
        with suppress(OSError):  # a full disk keeps nobody from holding a lock
            note.unlink(missing_ok=True)  # a killed holder's, perhaps another user's
            _write_note(note, {"holder": holder, "pid": os.getpid(), "host": socket.gethostname()})
        yield killed
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)
        lock.release()


def wait_until_free(path: Path, what: str) -> None:
    """Wait as long as another process holds the lock file `path`, naming it; nothing is held afterwards.

    The note on a holder that was killed stays for who takes the lock next.
    """
    reminded = -_REMIND_S
    while is_held(path):
        if time.monotonic() - reminded >= _REMIND_S:
            logger.warning("Waiting for %s: held by %s.", what, _describe(path.with_suffix(".holder.json")))
            reminded = time.monotonic()
        time.sleep(_ASK_AGAIN_S)


def is_held(path: Path) -> bool:
    """Return whether a living process holds the lock file `path`."""
    if not path.exists():
        return False
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


class Unfinished:
    """A new hidden file, locked until it is closed; then it is gone, unless it was given another name.

    Args:
        folder: Where it shall lie; made if it is not there.
        name: What it will become, for those who list the folder.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        start = os.fsdecode(os.fsencode(name)[:_LONGEST_START])
        while True:
            self._handle, path = tempfile.mkstemp(prefix=f".{start}.", suffix=".tmp", dir=folder)
            self.path = Path(path)
            with suppress(OSError):  # a file system without locks: its leftovers stay
                fcntl.flock(self._handle, fcntl.LOCK_EX)
            if os.fstat(self._handle).st_nlink:
                return
            os.close(self._handle)  # someone cleaned up between these lines

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file if it still has its name, and free its lock."""
        self.path.unlink(missing_ok=True)
        os.close(self._handle)


def remove_unfinished(files: Iterable[Path]) -> Iterator[Path]:
    """Remove unfinished files that no living process holds; yield each just before, its lock held."""
    for file in files:
        with suppress(OSError), file.open("r+b") as handle:  # gone, another user's
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held, or on a file system without locks
            yield file
            file.unlink()


def _write_note(note: Path, content: dict[str, Any]) -> None:
    with Unfinished(note.parent, note.name) as stage:
        stage.chmod(0o644)
        stage.write_text(json.dumps(content))
        stage.replace(note)


def _holder(note: Path) -> str | None:
    try:
        return str(json.loads(note.read_text())["holder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _describe(note: Path) -> str:
    try:
        who = json.loads(note.read_text())
        return f"{who['holder']} (process {who['pid']} on {who['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return f"another process (lock {note.with_suffix('').with_suffix('.lock')})"
