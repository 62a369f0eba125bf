"""Image files below a task's folder: which exist, none of them outside, and how one is opened.

What the names come from is each reader's; decoding is the dataset room's.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agml_assets.dataset.sources.folder import SUFFIXES
from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import named
from agml_assets.registry.tasks import TaskEntry

_IN_TABLE = re.compile(r"(.+\.(parquet|arrow))#(\d+)")


class ImageFiles:
    """The files below a folder, each directory listed once, links that lead out refused.

    Args:
        entry: The task, for messages.
        root: Its folder.
    """

    def __init__(self, entry: TaskEntry, root: Path) -> None:
        self._where = named(entry)
        self._root = root
        self._real = root.resolve()
        self._listed: dict[str, dict[str, bool]] = {}

    def find(self, name: str, origin: str, within: str = "") -> str | None:
        """Return the path below the root, normalised, of a file that a table names, or None where it is missing.

        Args:
            name: Path below `within`, with slashes.
            origin: The table and its row, for messages.
            within: Folder below the root that the table's names start at.

        Raises:
            UserError: The path leads out of the root, or is no text.
        """
        if not _is_text(name):
            raise UserError(f"{self._where}: {origin} names the file {name!r}, which is no UTF-8 text.")
        # Text, not paths: there are hundreds of thousands of names.
        parts = [part for part in f"{within}/{name}".split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise self._leads_out(name, origin)
        file, folder = parts.pop() if parts else "", "/".join(parts)
        if folder not in self._listed:
            self._listed[folder] = self._list(folder, name, origin)
        is_link = self._listed[folder].get(file)
        if is_link is None:
            return None
        path = f"{folder}/{file}" if folder else file
        if is_link and not (self._root / path).resolve().is_relative_to(self._real):
            raise self._leads_out(name, origin)
        return path

    def _list(self, folder: str, name: str, origin: str) -> dict[str, bool]:
        real = (self._root / folder).resolve()
        if not real.is_relative_to(self._real):
            raise self._leads_out(name, origin)
        try:
            with os.scandir(real) as found:
                return {file.name: file.is_symlink() for file in found if file.is_file()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise UserError(f"{self._where}: the folder {real} cannot be read: {error.strerror}.") from None

    def _leads_out(self, name: str, origin: str) -> UserError:
        return UserError(
            f"{self._where}: {origin} names the file {name!r}, which leads out of {self._root}. Only files below "
            "it are read; if the data lie elsewhere behind a link, let `path` of the task name the real folder."
        )


@dataclass(frozen=True)
class ClassFolders:
    """What a folder with a folder per class holds.

    Attributes:
        images: Class name -> paths below the task's folder, both sorted by bytes; classes without images included.
        others: Files that are no images, and names that are no UTF-8 text.
        outside: Links that lead out of the task's folder.
    """

    images: Mapping[str, list[str]]
    others: int = 0
    outside: int = 0


def list_class_folders(entry: TaskEntry, root: Path, folder: Path) -> ClassFolders:
    """List `folder`, whose folders are classes that hold images; hidden files are passed over.

    Raises:
        UserError: It cannot be read, leads out of `root`, or holds no folders.
    """
    real = root.resolve()
    if not folder.resolve().is_relative_to(real):
        raise UserError(
            f"{named(entry)}: {folder} is a link out of {root}. Let `path` of the task name the real folder."
        )
    images: dict[str, list[str]] = {}
    others = outside = 0
    try:
        for class_folder in _visible(folder):
            if not class_folder.is_dir() or not _is_text(class_folder.name):
                others += 1
                continue
            if _leads_out(class_folder, real):
                outside += 1
                continue
            images[class_folder.name] = files = []
            within = Path(class_folder.path).relative_to(root).as_posix()
            for file in _visible(Path(class_folder.path)):
                if not _is_image(file):
                    others += 1
                elif _leads_out(file, real):
                    outside += 1
                else:
                    files.append(f"{within}/{file.name}")
    except OSError as error:
        raise UserError(f"{named(entry)}: {error.filename or folder} cannot be read: {error.strerror}.") from None
    if not images:
        raise UserError(f"{named(entry)}: {folder} holds no folders of classes.")
    return ClassFolders(images, others, outside)


class ImageOpener:
    """Opens the images of a task by the references in its `images` column.

    A reference is a path below the root, or `<table>#<row>` for an image that lies in a Parquet or Arrow file.
    The last row group that was read is kept, so references are best opened in their order.

    Args:
        root: The task's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file: Path | None = None
        self._start = 0
        self._column: Any = ()

    def __call__(self, reference: str) -> Path | bytes:
        """Return the path of an image file, or the encoded bytes of an image in a table.

        Raises:
            UserError: A table has no image in this row.
        """
        in_table = _IN_TABLE.fullmatch(reference)
        if in_table is None or (self._root / reference).is_file():
            return self._root / reference
        file, row = self._root / in_table[1], int(in_table[3])
        if file != self._file or not self._start <= row < self._start + len(self._column):
            self._column, self._start = (
                _arrow_column(file) if in_table[2] == "arrow" else _parquet_column(file, row)
            )
            self._file = file
        image = self._column[row - self._start].as_py() if row - self._start < len(self._column) else None
        if not image or not isinstance(image.get("bytes"), bytes):
            raise UserError(f"{file} holds no image in row {row}.")
        return bytes(image["bytes"])


def _arrow_column(file: Path) -> tuple[Any, int]:
    import pyarrow as pa

    # Mapped, not read: only the images asked for are copied.
    with pa.memory_map(str(file)) as mapped:
        return pa.ipc.open_stream(mapped).read_all().column("image"), 0


def _parquet_column(file: Path, row: int) -> tuple[Any, int]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        start = 0
        for group in range(parquet.num_row_groups):
            n_rows = parquet.metadata.row_group(group).num_rows
            if row < start + n_rows:
                return parquet.read_row_group(group, columns=["image"]).column("image"), start
            start += n_rows
    raise UserError(f"{file} holds no image in row {row}.")


def _visible(folder: Path) -> "list[os.DirEntry[str]]":
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    return sorted(visible, key=lambda entry: os.fsencode(entry.name))


def _is_image(file: "os.DirEntry[str]") -> bool:
    return "." + file.name.rpartition(".")[2].lower() in SUFFIXES and _is_text(file.name) and file.is_file()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _leads_out(entry: "os.DirEntry[str]", real: Path) -> bool:
    return entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(real)
