"""Files of a workspace, read and written by the harness: hostile code may have put anything there.

No link is followed, at any place of a path; nothing but plain files and folders is opened.
"""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

MOST_DEEP = 100
"""Folders within one another; what lies deeper is not looked at."""


class PathRefusedError(Exception):
    """A path that is not, or not as it should be, in the workspace; the message is for the agent."""


def parts_of(relative: str) -> tuple[str, ...]:
    """Return the parts of a path below the workspace.

    Raises:
        PathRefusedError: It is absolute, leaves the workspace, or cannot be a path.
    """
    path = PurePosixPath(relative)
    if not relative or "\0" in relative or path.is_absolute() or ".." in path.parts:
        raise PathRefusedError(f"{relative!r}: name a file of the workspace, relative to it and without `..`")
    return path.parts


def read_bytes(root: Path, relative: str, most: int) -> bytes:
    """Return the content of a file.

    Args:
        root: The workspace.
        relative: Path below it.
        most: Bytes; a larger file is refused.

    Raises:
        PathRefusedError: There is no such plain file, a link is on the way, or it is too large.
    """
    *folders, name = parts_of(relative) or ("",)
    with _folder(root, folders, relative) as folder:
        # Not blocking: opening a pipe that nobody writes to would wait for ever.
        handle = _open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, folder, relative)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefusedError(f"{relative!r} is no plain file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(handle)
    if len(content) > most:
        raise PathRefusedError(f"{relative!r} is larger than {most:,} bytes")
    return content


def write_bytes(root: Path, relative: str, content: bytes, owner: int | None = None) -> None:
    """Write a file in place of what is there, making the folders above it.

    Args:
        root: The workspace.
        relative: Path below it.
        content: What it shall hold.
        owner: User that new files and folders belong to; None means who we are.

    Raises:
        PathRefusedError: A link or no folder is on the way, or the place holds something else than a plain file.
    """
    *folders, name = parts_of(relative) or ("",)
    with _folder(root, folders, relative, owner=owner, make=True) as folder:
        temporary = f".{name[:100]}.{os.getpid()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = 0o644
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                raise PathRefusedError(f"{relative!r} is no plain file")
            mode = stat.S_IMODE(found.st_mode) & 0o777
        except FileNotFoundError:
            pass
        handle = _open(temporary, flags, folder, relative)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
                if owner is not None:
                    os.fchown(file.fileno(), owner, owner)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise


@dataclass(frozen=True)
class Found:
    """Something below a workspace.

    Attributes:
        path: Relative to the workspace.
        status: Of itself, not of what a link leads to.
        parent: Descriptor of the folder it lies in, until the next one is asked for.
        closed: Whether it is a folder that was not looked into: unreadable, or too deep.
    """

    path: str
    status: os.stat_result
    parent: int
    closed: bool = False

    @property
    def name(self) -> str:
        """Its name in its folder."""
        return self.path.rpartition("/")[2]

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.status.st_mode)


def walk(root: Path, skip: Callable[[str], bool] = lambda _: False, *, open_up: bool = False) -> Iterator[Found]:
    """Yield all that lies below a workspace, folders before what they hold; few files are open however deep it is.

    Args:
        root: The workspace; nothing below is an error where it is gone.
        skip: Tells of a folder's path whether it is left out with all it holds.
        open_up: Whether folders that we may not read are made readable; only where no command is running.
    """
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with ExitStack() as opened:
            try:
                handle = opened.enter_context(_folder(root, above.split("/") if above else [], above))
            except (OSError, PathRefusedError):  # gone, or exchanged for a link, since it was seen
                continue
            for name in os.listdir(handle):  # noqa: PTH208 - of a descriptor
                path = f"{above}/{name}" if above else name
                try:
                    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    yield Found(path, status, handle)
                elif not skip(path):
                    enter = path.count("/") < MOST_DEEP and _is_readable(name, handle, open_up=open_up)
                    yield Found(path, status, handle, closed=not enter)
                    if enter:
                        waiting.append(path)


def remove_tree(folder: Path) -> None:
    """Remove a folder that others have filled, however deep or closed what they have left is; it may be gone.

    Raises:
        OSError: It cannot be removed.
    """
    if not os.path.lexists(folder):
        return
    # Programs of the system that keep neither open files nor a stack of calls for each level, as shutil does.
    subprocess.run(["chmod", "-R", "u+rwX", "--", folder], capture_output=True, check=False)  # noqa: S603, S607
    done = subprocess.run(["rm", "-rf", "--", folder], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        raise OSError(f"{folder} cannot be removed: {done.stderr.strip()[-500:]}")


def remove_beneath(parent: int, name: str) -> None:
    """Remove whatever has a name in an open folder; links are removed, not followed."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        remove_tree(Path(f"/proc/{os.getpid()}/fd/{parent}") / name)


def make_mount_point(root: Path, relative: str, *, is_folder: bool) -> None:
    """Make the place at which a read-only file or folder will appear, whatever lies there now.

    What is in the way, a link above all, is removed: a mount follows links, to anywhere.
    """
    *folders, name = parts_of(relative)
    handle = os.open(root, _FOLDER)
    try:
        for one in folders:
            _clear(handle, one, is_folder=True)
            following = os.open(one, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = following
        _clear(handle, name, is_folder=is_folder)
    finally:
        os.close(handle)


def _clear(folder: int, name: str, *, is_folder: bool) -> None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if found is not None and not (stat.S_ISDIR(found.st_mode) if is_folder else stat.S_ISREG(found.st_mode)):
        remove_beneath(folder, name)
        found = None
    if found is None and is_folder:
        os.mkdir(name, 0o755, dir_fd=folder)
    elif found is None:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder))


@contextmanager
def _folder(
    root: Path, folders: list[str], relative: str, *, owner: int | None = None, make: bool = False
) -> Iterator[int]:
    handle = os.open(root, _FOLDER)
    try:
        for name in folders:
            if make:
                try:
                    os.mkdir(name, 0o755, dir_fd=handle)
                    if owner is not None:
                        os.chown(name, owner, owner, dir_fd=handle, follow_symlinks=False)
                except FileExistsError:
                    pass
            following = _open(name, _FOLDER, handle, relative)
            os.close(handle)
            handle = following
        yield handle
    finally:
        os.close(handle)


def _open(name: str, flags: int, folder: int, relative: str) -> int:
    try:
        return os.open(name, flags, 0o644, dir_fd=folder)
    except FileNotFoundError:
        raise PathRefusedError(f"There is no file {relative!r}") from None
    except OSError as error:  # a link (ELOOP), a file in place of a folder, a socket
        raise PathRefusedError(f"{relative!r} cannot be opened: {error.strerror}") from None


def _is_readable(name: str, parent: int, *, open_up: bool) -> bool:
    try:
        os.close(os.open(name, _FOLDER, dir_fd=parent))
    except PermissionError:
        if not open_up:
            return False
        with suppress(OSError):
            os.chmod(name, 0o700, dir_fd=parent)
            return True
        return False
    except OSError:
        return False
    return True
