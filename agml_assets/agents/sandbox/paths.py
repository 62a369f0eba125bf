"""Files of a workspace, read and written by the harness: hostile code may have put anything there.

No link is followed, at any place of a path; nothing but plain files and folders is opened.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_FILES = 100_000


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


def list_files(root: Path) -> dict[str, os.stat_result]:
    """Return all plain files below the workspace by their relative path, sorted; links are left out.

    Raises:
        PathRefusedError: There are more than can be looked at.
    """
    found: dict[str, os.stat_result] = {}
    for folder, folders, names, handle in os.fwalk(root, follow_symlinks=False):
        folders.sort()
        for name in sorted(names):
            seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if stat.S_ISREG(seen.st_mode):
                found[(Path(folder) / name).relative_to(root).as_posix()] = seen
        if len(found) > _MOST_FILES:
            raise PathRefusedError(f"the workspace has more than {_MOST_FILES:,} files")
    return dict(sorted(found.items()))


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
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
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
