"""Operating-system file locks: one run per dataset, one user per GPU.

The kernel frees a lock when its process dies, however it dies, so nothing here ever needs cleaning up.
"""

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

_REMIND_S = 60.0


@contextmanager
def exclusive(path: Path, what: str, holder: str) -> Iterator[None]:
    """Hold the lock file `path`; wait for it as long as it takes, naming who holds it.

    Args:
        path: The lock file; the note on its holder lies beside it.
        what: What is locked, for the log, such as `dataset 'beans'`.
        holder: Who we are, for the log of others, such as `run 1234`.
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
        note.unlink(missing_ok=True)  # a killed holder's, perhaps another user's
        note.write_text(json.dumps({"holder": holder, "pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _describe(note: Path) -> str:
    try:
        who = json.loads(note.read_text())
        return f"{who['holder']} (process {who['pid']} on {who['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return f"another process (lock {note.with_suffix('').with_suffix('.lock')})"
