"""Commands run confined: started, watched, and ended with all that they have started.

What they may see is in `confinement`, and in `container` where Docker confines them. A command's processes live in
a namespace of their own, which the kernel ends with its first process; bubblewrap's ends with us.
"""

import contextlib
import os
import secrets
import selectors
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agml_assets.agents.sandbox.confinement import (
    Confinement,
    accounts_of,
    arguments,
    require_bubblewrap,
    within,
)
from agml_assets.agents.sandbox.container import (
    container_command,
    end_container,
    end_others,
    why_not_started,
)
from agml_assets.agents.sandbox.paths import MOST_DEEP, make_mount_point, walk
from agml_assets.agents.sandbox.system_calls import denied_calls

_LOOK_S = 0.1  # between two looks at what is used up
_LOOK_AT_FILES_S = 1.0
_MOST_ENTRIES = 200_000  # files, folders and links of a workspace: more keep disk and harness busy
_MEMORY_DISKS = ("tmp", "dev/shm")
_READ = 1 << 16
_FAREWELL_S = 10.0  # the kernel ends killed processes in far less
_NOT_STARTED = 125  # as Docker's client says that no container was started
_PAGE = os.sysconf("SC_PAGE_SIZE")

_GUARD, _LOCKS = threading.Lock(), dict[Path, threading.Lock]()

Stopped = Literal["", "time", "memory", "disk", "cancelled"]

_WORDS = {
    "time": "Stopped: the command took longer than {seconds:g} s.",
    "memory": "Stopped: its processes used more than {memory} MB of memory.",
    "disk": f"Stopped: the workspace holds more than {{disk}} MB or {_MOST_ENTRIES:,} files, or a folder that is "
    f"unreadable or below {MOST_DEEP} others.",
    "cancelled": "Stopped: the trial has ended.",
}


@dataclass(frozen=True)
class Finished:
    """How a command ended.

    Attributes:
        returncode: Its exit status, negative for a signal; -9 where it was stopped.
        stdout: What it wrote, its middle left out where that is more than the limit.
        stderr: Likewise; ends with the reason where it was stopped.
        seconds: By the clock.
        stopped: The limit at which it was stopped; empty where it ended by itself.
    """

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    stopped: Stopped = ""


def run_confined(
    command: Sequence[str],
    confinement: Confinement,
    *,
    timeout_s: float | None = None,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Finished:
    """Run a command confined and wait for its end; nothing of it is left afterwards.

    Args:
        command: Program and arguments, looked up inside.
        confinement: What it may see and use up.
        timeout_s: Seconds by the clock; None means the limit for one command.
        stdin: Its input; None means that there is none.
        env: Variables beside those that all commands have.
        cancelled: Asked now and then whether it shall be stopped.

    Raises:
        UserError: Commands cannot be confined on this machine, or Docker cannot start a container.
    """
    if confinement.image is None:
        require_bubblewrap()
    # One command at a time in a workspace: between them nothing of an agent runs, and mount points stay as made.
    with _at_work(confinement.workspace):
        for relative, path in confinement.read_only.items():
            make_mount_point(confinement.workspace, relative, is_folder=path.is_dir())
        return _run(list(command), confinement, timeout_s, stdin, env or {}, cancelled)


def _run(
    command: list[str],
    confinement: Confinement,
    timeout_s: float | None,
    stdin: bytes | None,
    env: Mapping[str, str],
    cancelled: Callable[[], bool],
) -> Finished:
    limits = confinement.limits
    timeout = limits.seconds_per_command if timeout_s is None else timeout_s
    container = f"agml-assets-{secrets.token_hex(8)}" if confinement.image is not None else ""
    if container:
        end_others(confinement.workspace)
    started = time.monotonic()
    if container:
        process = _begin(container_command(confinement, container, command, env=env, seconds=timeout), stdin)
    else:
        process = _begin_within_bubblewrap(command, confinement, stdin, env)
    outputs = _Outputs(process, stdin, limits.output_kb << 10)
    try:
        stopped = _watch(process, outputs, confinement, timeout, cancelled)
    finally:
        try:
            if container and process.poll() is None:
                end_container(container)
        finally:
            _end(process)
    outputs.take_rest()
    stderr = outputs.of(process.stderr)
    if container and process.returncode == _NOT_STARTED and stderr.startswith(b"docker: "):
        raise why_not_started(stderr)
    if stopped:
        words = _WORDS[stopped].format(seconds=timeout, memory=limits.memory_mb, disk=limits.disk_mb)
        stderr += (b"\n" if stderr else b"") + words.encode()
    code = -signal.SIGKILL if stopped else process.returncode
    return Finished(code, outputs.of(process.stdout), stderr, time.monotonic() - started, stopped)


def _watch(
    process: "subprocess.Popen[bytes]",
    outputs: "_Outputs",
    confinement: Confinement,
    timeout: float,
    cancelled: Callable[[], bool],
) -> Stopped:
    """Wait until a command has ended, or has reached a limit; return that.

    It ends with its first process: what it left in the background is ended by the kernel then. The memory of a
    container is the kernel's business too.
    """
    limits, here = confinement.limits, confinement.image is None
    started = looked = time.monotonic()
    memory_of_files = disk_of_files = 0
    while process.poll() is None:
        outputs.take(_LOOK_S)
        now = time.monotonic()
        if now - started > timeout:
            return "time"
        if cancelled():
            return "cancelled"
        processes = _processes_of(process.pid) if here else []
        if now - looked > _LOOK_AT_FILES_S:
            looked = now
            memory_of_files, disk_of_files = _files_of(processes, confinement.workspace.stat().st_dev)
            if confinement.writable and _is_too_full(confinement.workspace, limits.disk_mb << 20, disk_of_files):
                return "disk"
        if sum(map(_resident, processes)) + memory_of_files > limits.memory_mb << 20:
            return "memory"
    return ""


def _begin(
    command: list[str], stdin: bytes | None, handles: tuple[int, ...] = (), env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603
        command,
        pass_fds=handles,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=env,
    )


def _begin_within_bubblewrap(
    command: list[str], confinement: Confinement, stdin: bytes | None, env: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    accounts = _handle_of(accounts_of(confinement).encode())
    # By a handle, not on the command line, which everybody in the sandbox can read.
    calls = _handle_of(denied_calls(gpu=confinement.gpu is not None))
    options = _handle_of(b"\0".join(map(os.fsencode, arguments(confinement, env, accounts, calls))) + b"\0")
    handles = (accounts, calls, options)
    try:
        whole = ["bwrap", "--args", str(options), "--", *within(confinement, command)]
        return _begin(whole, stdin, handles, {"PATH": "/usr/local/bin:/usr/bin:/bin"})
    finally:
        for handle in handles:
            os.close(handle)


async def run_confined_async(
    command: Sequence[str],
    confinement: Confinement,
    *,
    timeout_s: float | None = None,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Like `run_confined`, beside other work; a cancelled call stops the command, and waits until it has ended."""
    import anyio.to_thread

    stop = threading.Event()

    def run() -> Finished:
        return run_confined(command, confinement, timeout_s=timeout_s, stdin=stdin, env=env, cancelled=stop.is_set)

    def wait_for_its_end() -> None:
        with _at_work(confinement.workspace):
            return

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        stop.set()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(wait_for_its_end)
        raise
    finally:
        stop.set()


def _handle_of(content: bytes) -> int:
    handle = os.memfd_create("sandbox")
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


@contextlib.contextmanager
def _at_work(workspace: Path) -> Iterator[None]:
    with _GUARD:
        lock = _LOCKS.setdefault(workspace, threading.Lock())
    with lock:
        yield


class _Outputs:
    """Takes what a process writes, and keeps the beginning and the end of each stream."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: bytes | None, most: int) -> None:
        self._kept = {stream: _Kept(most) for stream in (process.stdout, process.stderr)}
        self._selector = selectors.DefaultSelector()
        for stream in self._kept:
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)
        if process.stdin is not None:
            self._feeder = threading.Thread(target=self._feed, args=(process.stdin, stdin or b""), daemon=True)
            self._feeder.start()

    @staticmethod
    def _feed(stream: "subprocess.IO[bytes]", content: bytes) -> None:  # type: ignore[name-defined]
        with contextlib.suppress(OSError):
            stream.write(content)
        with contextlib.suppress(OSError):
            stream.close()

    def take(self, seconds: float) -> None:
        """Take what comes within some seconds."""
        if not self._selector.get_map():
            time.sleep(seconds / 10)
            return
        for key, _ in self._selector.select(seconds):
            content = os.read(key.fd, _READ)
            if content:
                self._kept[key.fileobj].add(content)  # type: ignore[index]
            else:
                self._selector.unregister(key.fileobj)

    def take_rest(self) -> None:
        """Take what is left in the pipes until nobody is left who could write there."""
        deadline = time.monotonic() + _FAREWELL_S
        while self._selector.get_map() and time.monotonic() < deadline:
            self.take(_LOOK_S)
        self._selector.close()
        for stream in self._kept:
            assert stream is not None
            stream.close()

    def of(self, stream: object) -> bytes:
        """Return what was kept of a stream."""
        return self._kept[stream].content()  # type: ignore[index]


class _Kept:
    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head, self._tail, self._seen = bytearray(), bytearray(), 0

    def add(self, content: bytes) -> None:
        self._seen += len(content)
        room = self._half - len(self._head)
        self._head += content[:room] if room > 0 else b""
        self._tail += content[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def content(self) -> bytes:
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        left_out = self._seen - len(self._head) - len(tail)
        gap = f"\n[... {left_out:,} bytes left out ...]\n".encode() if left_out > 0 else b""
        return bytes(self._head) + gap + tail


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End bubblewrap, and with it every process of the sandbox."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _processes_of(first: int) -> list[int]:
    """Return a process and all below it."""
    found, waiting = [], [first]
    while waiting:
        one = waiting.pop()
        found.append(one)
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found


def _resident(process: int) -> int:
    """Return the resident bytes of a process; shared pages count for each."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    return 0


def _files_of(processes: Sequence[int], device: int) -> tuple[int, int]:
    """Return the bytes of what no folder of the workspace shows: in memory, and on the disk of the workspace.

    The disks in memory, and files that were removed and are still open.
    """
    memory, disk = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    for process in processes:
        for place in _MEMORY_DISKS:
            with contextlib.suppress(OSError):
                root = Path(f"/proc/{process}/root") / place
                used, on = os.statvfs(root), root.stat().st_dev
                if on != Path("/", place).stat().st_dev:  # bubblewrap itself still sees ours
                    memory[on, 0] = (used.f_blocks - used.f_bfree) * used.f_frsize
        with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/fd") as opened:
            for one in opened:
                with contextlib.suppress(OSError):
                    seen = one.stat()
                    if seen.st_nlink == 0 and stat.S_ISREG(seen.st_mode):
                        where = disk if seen.st_dev == device else memory
                        where[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
    # A removed file of a disk in memory is part of what that disk uses.
    counted = {device for device, inode in memory if inode == 0}
    return sum(size for (on, inode), size in memory.items() if inode == 0 or on not in counted), sum(disk.values())


def _is_too_full(workspace: Path, most: int, beside: int) -> bool:
    """Return whether a workspace takes more bytes than it may, `beside` among them, or that cannot be told."""
    total = beside
    for count, found in enumerate(walk(workspace)):
        total += found.status.st_blocks * 512
        if total > most or count > _MOST_ENTRIES or found.closed:
            return True
    return total > most
