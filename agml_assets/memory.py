"""How much memory this process may still take, so that too large a step is refused in words and not killed."""

from collections.abc import Iterator
from pathlib import Path

from agml_assets.disk import describe_bytes
from agml_assets.errors import UserError

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")  # version 2: containers and batch systems set a job's limit there


def free_memory() -> int | None:
    """Return the bytes that can be taken, by the machine and the job's limits; None where nobody knows."""
    return min((*_of_machine(), *_of_job()), default=None)


def require_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse a step that needs more bytes than are free; where nobody knows how many are, it goes on.

    Raises:
        UserError: `what` needs too much; `remedy` says what to do.
    """
    free = free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{what} need about {describe_bytes(needed)} of memory, where {describe_bytes(free)} are free. "
            f"{remedy}"
        )


def _of_machine() -> Iterator[int]:
    facts = _read_pairs(_PROC / "meminfo")
    if "MemAvailable:" in facts:
        yield facts["MemAvailable:"] * 1024


def _of_job() -> Iterator[int]:
    try:
        path = (_PROC / "self" / "cgroup").read_text().rpartition("0::/")[2].strip()
    except OSError:
        return
    group = _CGROUPS / path
    for folder in (group, *group.parents):
        if not folder.is_relative_to(_CGROUPS):
            return
        limit, used = (_read_number(folder / name) for name in ("memory.max", "memory.current"))
        if limit is not None and used is not None:
            # What was read from files and not used since is given back when it is needed.
            yield max(limit - used + _read_pairs(folder / "memory.stat").get("inactive_file", 0), 0)


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # there is none, or it says `max`
        return None


def _read_pairs(file: Path) -> dict[str, int]:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) >= 2 and line[1].isdigit()}
