"""A task's data fetched: streamed, resumed, verified, unpacked without leaving the task's folder.

Where the data are is in the registry. Data behind an account are a person's to fetch: instructions say how.
"""

import errno
import gzip
import hashlib
import http.client
import json
import logging
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from filelock import FileLock, Timeout

from agml_assets.disk import describe_bytes
from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import named
from agml_assets.registry.tasks import DownloadFile, TaskEntry

logger = logging.getLogger(__name__)

_CHUNK = 1 << 20
_TIMEOUT = 60  # seconds without a byte
_ATTEMPTS = 5  # interruptions in a row without any progress, then a person is asked
_PAUSE = 1.0  # seconds, times the number of interruptions
_LATER = (http.client.REQUEST_TIMEOUT, http.client.TOO_MANY_REQUESTS)
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EIO)
_MAX_FILES = 5_000_000  # the largest of the published archives holds half a million
_RATIO = 20  # images hardly shrink: an archive that grows more is a bomb
_FLOOR = 1_000_000_000  # bytes that even a tiny archive, of text, may grow to
_STATE = ".downloads"
_DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError,
    NotImplementedError, RuntimeError,  # a compression that zipfile lacks, a password
)  # fmt: skip


@dataclass(frozen=True)
class Downloaded:
    """What was fetched.

    Attributes:
        folder: The task's folder.
        fetched: Files that this call fetched; those fetched before are not among them.
        instructions: What is left to a person; empty where nothing is.
    """

    folder: Path
    fetched: tuple[str, ...]
    instructions: str


def download_task(entry: TaskEntry, folder: Path | None = None) -> Downloaded:
    """Fetch what can be fetched of a task's data; what is there already is not fetched again.

    Each file is streamed to `.downloads` in the folder, going on where an earlier call was interrupted; its size
    and checksum are compared with the published ones; it is then moved to its place or unpacked there, and
    archives are removed once they are unpacked.

    Args:
        entry: The task.
        folder: Where to; None means where the task is read from.

    Raises:
        UserError: A file cannot be fetched or written, differs from what is published, or is an archive with a
            path or a link that leads out, or that grows to more than 20 times its size; or another process is
            at it.
    """
    folder = (folder or entry.root()).absolute()
    state = folder / _STATE
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{named(entry)}: {folder} cannot be written: {error.strerror}.") from None
    try:
        with FileLock(state / "lock", timeout=0):
            fetched = [file.file for file in entry.download.files if _get_file(entry, file, folder)]
    except Timeout:
        raise UserError(f"{named(entry)}: another process is fetching its data into {folder}.") from None
    return Downloaded(folder, tuple(fetched), entry.download.instructions)


def _get_file(entry: TaskEntry, file: DownloadFile, folder: Path) -> bool:
    """Fetch one file; return False where it is there already."""
    where = f"{named(entry)}: {file.file}"
    state = folder / _STATE
    name = re.sub(r"[^\w.-]", "__", file.file)
    done = state / f"{name}.done"
    wanted = file.model_dump(mode="json")
    target = folder / file.file
    if _is_done(done, wanted, folder):
        return False
    if file.unpack is None and target.is_file():
        # Put there by a person, or by an older registry.
        _verify(where, target, file)
        _write_json(done, {"file": wanted, "gave": [file.file]})
        return False
    with _named_write_errors(where, folder):
        whole = state / f"{name}.whole"
        if not whole.is_file():
            _fetch_all(where, file, state / name, whole)
        try:
            _verify(where, whole, file)
        except UserError:
            whole.unlink()  # the next call begins anew
            raise
        if file.unpack is None:
            _require_inside(where, target.parent, folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            whole.replace(target)
            gave = [file.file]
        else:
            names = unpack(where, whole, folder / file.unpack, folder, state)
            gave = [f"{file.unpack}/{name}" for name in names]
            whole.unlink()
        _write_json(done, {"file": wanted, "gave": gave})
    return True


def _fetch_all(where: str, file: DownloadFile, base: Path, whole: Path) -> None:
    """Fetch every part and join them into `whole`; one that was joined is not fetched again."""
    part = base.with_name(base.name + ".part")
    if len(file.url) == 1:
        _fetch(where, file.url[0], part, file.bytes)
        part.replace(whole)
        return
    joined, note = base.with_name(base.name + ".joined"), base.with_name(base.name + ".joined.json")
    n_joined, size = _read_note(note) if joined.is_file() else (0, 0)
    for i, url in enumerate(file.url[n_joined:], start=n_joined):
        numbered = part.with_name(f"{part.name}{i}")
        _fetch(where, url, numbered, None)
        with joined.open("ab") as out, numbered.open("rb") as source:
            out.truncate(size)  # of what was killed while it was joined
            shutil.copyfileobj(source, out, _CHUNK)
            size = out.tell()
            out.flush()
            os.fsync(out.fileno())
        _write_json(note, {"parts": i + 1, "bytes": size})
        numbered.unlink()
    joined.replace(whole)
    note.unlink()


def _read_note(note: Path) -> tuple[int, int]:
    try:
        values = json.loads(note.read_text())
        return int(values["parts"]), int(values["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0


def _fetch(where: str, url: str, part: Path, n_bytes: int | None) -> None:
    """Stream `url` to `part`, going on where it ends; interruptions are tried again."""
    logger.info("%s: fetching %s", where, url)
    tag_file = part.with_name(part.name + ".tag")
    failures = 0
    while True:
        have = _size(part)
        try:
            if _stream(where, url, part, tag_file, n_bytes):
                tag_file.unlink(missing_ok=True)
                return
            reason = "the connection ended early"
        except urllib.error.HTTPError as error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
                # Killed between the last byte and the end of the call, or another version: begin anew.
                part.unlink()
            elif error.code < http.client.INTERNAL_SERVER_ERROR and error.code not in _LATER:
                raise UserError(f"{where}: {url} answered {error.code} {error.reason}.") from None
            reason = f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in _OF_THE_DISK:
                raise
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        failures = failures + 1 if _size(part) <= have else 0
        if failures >= _ATTEMPTS:
            raise UserError(f"{where}: {url} cannot be fetched: {reason}. What was fetched is kept; call again.")
        time.sleep(failures * _PAUSE)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _stream(where: str, url: str, part: Path, tag_file: Path, n_bytes: int | None) -> bool:
    """Fetch what is missing of `part`; return whether it is whole."""
    have = _size(part)
    tag = tag_file.read_text() if have and tag_file.is_file() else ""
    headers = {"User-Agent": "agml-assets", "Accept-Encoding": "identity"}
    if tag:
        # Without a tag of the version that was begun, a part of another version might be joined to it.
        headers |= {"Range": f"bytes={have}-", "If-Range": tag}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - https or http, the registry sees to it
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
        goes_on = answer.status == http.client.PARTIAL_CONTENT
        start = have if goes_on else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        if n_bytes is not None and total is not None and total != n_bytes:
            raise UserError(f"{where}: {url} has {total:,} bytes, but {n_bytes:,} are published. Another version?")
        free = shutil.disk_usage(part.parent).free
        if total is not None and total - start > free:
            raise UserError(
                f"{where}: {describe_bytes(total - start)} are to be fetched, but the disk of {part.parent} has "
                f"{describe_bytes(free)} free."
            )
        if not goes_on:
            tag_file.write_text(_strong_tag(answer.headers))
        with part.open("ab" if goes_on else "wb") as out:
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
    return total is None or part.stat().st_size == total


def _strong_tag(headers: Any) -> str:
    tag = headers.get("ETag") or ""
    return "" if tag.startswith("W/") else tag or headers.get("Last-Modified") or ""


def _verify(where: str, path: Path, file: DownloadFile) -> None:
    size = path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        raise UserError(f"{where}: {size:,} bytes were fetched, but {file.bytes:,} are published.")
    for kind, published in (("md5", file.md5), ("sha256", file.sha256)):
        if published is None:
            continue
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, kind).hexdigest()
        if digest != published:
            raise UserError(
                f"{where}: its {kind} is {digest}, but {published} is published: damaged, or another version. "
                f"Remove {path} where it is still there, and call again."
            )


def unpack(where: str, archive: Path, target: Path, folder: Path, state: Path) -> list[str]:
    """Unpack a tar or zip archive into `target`, inside `folder`; nothing appears there unless all is well.

    Args:
        where: How messages begin.
        archive: The archive.
        target: Folder whose files it adds to.
        folder: Folder that nothing may leave.
        state: Folder on the same file system, for what is unpacked but not checked yet.

    Returns:
        What lies at the top of the archive.

    Raises:
        UserError: It is damaged or no archive, a path or a link in it leads out, or it grows too large.
    """
    _require_inside(where, target, folder)
    limit = max(_FLOOR, _RATIO * archive.stat().st_size)
    with tempfile.TemporaryDirectory(prefix="unpacked-", dir=state) as temporary:
        fresh = Path(temporary)
        n_files, left = 0, limit
        try:
            for name, stream in _members(where, archive):
                n_files += 1
                if n_files > _MAX_FILES:
                    raise UserError(f"{where}: it holds more than {_MAX_FILES:,} files. Nothing was unpacked.")
                left -= _write_member(stream, fresh / name, left)
                if left < 0:
                    raise UserError(
                        f"{where}: it unpacks to more than {describe_bytes(limit)}, {_RATIO} times its size: "
                        "it is damaged or means harm. Nothing was unpacked."
                    )
        except _DAMAGED as error:
            archive.unlink()  # the next call fetches it anew
            raise UserError(
                f"{where}: the archive is damaged ({error}). Nothing was unpacked; call again."
            ) from None
        names = sorted(path.name for path in fresh.iterdir())
        _merge(where, fresh, target, folder)
    return names


def _members(where: str, archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the relative path and the content of every file of an archive."""
    if not tarfile.is_tarfile(archive):  # asked first: a tar may end with a zip
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                mode = info.external_attr >> 16
                if stat.S_ISLNK(mode):
                    raise _unsafe(where, info.filename, "is a link")
                path = _safe_name(where, info.filename)
                if not info.is_dir():
                    with zipped.open(info) as stream:
                        yield path, stream
        return
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            path = _safe_name(where, member.name)
            if member.isdir():
                continue
            if not member.isreg():
                raise _unsafe(where, member.name, "is a link or a device")
            content = tar.extractfile(member)
            if content is not None:
                yield path, content


def _safe_name(where: str, name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise _unsafe(where, name, "leads out of the task's folder")
    return path.as_posix()


def _unsafe(where: str, name: str, why: str) -> UserError:
    return UserError(f"{where}: {name!r} in the archive {why}. Nothing was unpacked.")


def _write_member(stream: IO[bytes], path: Path, limit: int) -> int:
    """Write one file; return its size, or more than `limit` as soon as it is exceeded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with path.open("wb") as out:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                break
            out.write(chunk)
    return size


def _merge(where: str, fresh: Path, target: Path, folder: Path) -> None:
    """Move everything in `fresh` into `target`, a folder at once where there is none of its name yet."""
    _require_inside(where, target, folder)
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(fresh.iterdir()):
        place = target / path.name
        if path.is_dir() and place.is_dir():
            _merge(where, path, place, folder)
        else:
            path.replace(place)


def _require_inside(where: str, path: Path, folder: Path) -> None:
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{where}: {path} leads out of {folder} by a link; nothing is written there.")


def _is_done(done: Path, wanted: dict[str, Any], folder: Path) -> bool:
    """Return whether the same file was fetched before, and what it gave is still there."""
    try:
        note = json.loads(done.read_text())
        return note["file"] == wanted and all((folder / name).exists() for name in note["gave"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_json(path: Path, values: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(values))
    temporary.replace(path)


@contextmanager
def _named_write_errors(where: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{where}: it could not be written to {folder}: {error.strerror or error}. What was fetched is kept; "
            "make room there and call again."
        ) from error
