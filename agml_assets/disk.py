"""Full disks, said in words. Where files lie and how they are written is the caller's."""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agml_assets.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)
# How libraries say it that keep no error number: Polars; NumPy of a file that takes fewer items than it should.
_SAID = re.compile(r"No space left on device|Disk quota exceeded|^\d+ requested and \d+ written$")


@contextmanager
def named_when_full(folder: Path, what: str) -> Iterator[None]:
    """Turn the failure to write `what` into a `UserError` where the disk of `folder` is full."""
    try:
        yield
    except Exception as error:
        if not _is_full(error):
            raise
        free = describe_bytes(shutil.disk_usage(folder).free)
        raise UserError(
            f"The disk of {folder} is full ({free} free): {what} could not be written. What was stored before is "
            "whole. Free some space, or let AGML_RESULTS (AGML_SCRATCH, where the results lie in a bucket) name a "
            "folder on a larger disk; then run the same again."
        ) from error


def describe_bytes(n_bytes: int) -> str:
    """Return a size in words."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def _is_full(error: Exception) -> bool:
    return getattr(error, "errno", None) in _FULL or bool(_SAID.search(str(error)))
