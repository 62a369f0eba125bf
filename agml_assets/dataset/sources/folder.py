"""A folder per class, with folders for train, validation and test above them or not.

Only names are read here. Whether a file is an image is found out when it is decoded.
"""

import logging
import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from blake3 import blake3

from agml_assets.dataset.sources.base import SPLIT_NAMES, Example, SourceInfo
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry

logger = logging.getLogger(__name__)

SUFFIXES = frozenset({".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""What the names of image files end in, in any case."""

_SPLIT_ORDER = ("train", "val", "test")


@dataclass(frozen=True)
class ImageFile:
    """An image file of a class folder.

    Attributes:
        path: Where it lies, below the dataset's folder.
        name: Its path inside the dataset, with slashes.
        class_name: The folder that it lies in; None for an image beside the class folders of a split.
        split: `train`, `val`, `test`, or None.
    """

    path: Path
    name: str
    class_name: str | None
    split: str | None


class FolderSource:
    """Images in a folder per class: sorted by split (train, val, test), class folder and file name, by bytes.

    Class folders are the classes, in that order, even those without images. Where all top folders are called
    like splits, they are the native splits; images that lie in them beside the class folders have no label.

    Args:
        entry: `path` is the folder.
        root: The folder, where another than the entry's `path`.
        classes: The classes in label order, where they are known beforehand.
        resolved: What to record, where it is not only the folder.
    """

    def __init__(
        self,
        entry: DatasetEntry,
        root: Path | None = None,
        classes: Sequence[str] = (),
        resolved: dict[str, Any] | None = None,
    ) -> None:
        self._where = f"Dataset {entry.key!r}"
        path = root or entry.path
        if path is None or not path.is_dir():
            raise UserError(f"{self._where}: there is no folder {path}. Check `path` in the registry.")
        self._root = path.resolve()
        self._train_only = entry.native_splits == "train"
        self._classes = tuple(classes)
        self._resolved = resolved or {"source": "folder", "name": entry.name, "path": str(self._root)}

    def info(self) -> SourceInfo:
        """Return the facts about the folder.

        Raises:
            UserError: It holds no class folders, no images, or classes inside classes.
        """
        return SourceInfo(
            class_names=self._class_names,
            metadata_columns={},
            native_splits=self._native_splits,
            num_rows=len(self.files),
            fingerprint=list_fingerprint(self._root),
            resolved=self._resolved,
        )

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Stream the files from `start` on."""
        labels = {name: label for label, name in enumerate(self._class_names)}
        for row, file in enumerate(self.files[start:], start=start):
            label = None if file.class_name is None else labels[file.class_name]
            yield Example(row, file.path, file.name, label, file.split if self._native_splits else None)

    @cached_property
    def files(self) -> list[ImageFile]:
        """All image files, in order."""
        files = self._listing.files
        if not files:
            raise UserError(
                f"{self._where}: {self._root} holds no images in class folders. Image files end in "
                f"{', '.join(sorted(SUFFIXES))}."
            )
        return files

    @cached_property
    def _native_splits(self) -> tuple[str, ...]:
        splits = tuple(dict.fromkeys(split for split, _ in self._split_folders if split is not None))
        return splits if len(splits) > 1 else ()

    @cached_property
    def _split_folders(self) -> list[tuple[str | None, Path]]:
        folders = [Path(entry.path) for entry in _visible(self._root, self._where) if entry.is_dir()]
        like_splits = [folder for folder in folders if folder.name.lower() in SPLIT_NAMES]
        if like_splits == folders and any(_has_folders(folder, self._where) for folder in folders):
            splits = [(SPLIT_NAMES[folder.name.lower()], folder) for folder in folders]
            splits.sort(key=lambda split: _SPLIT_ORDER.index(split[0]))
            if self._train_only:
                splits = [split for split in splits if split[0] == "train"] or splits[:1]
                if splits[0][0] != "train":
                    logger.warning("%s: there is no split train; %s is read.", self._where, splits[0][1].name)
            return [*splits]
        if like_splits:
            logger.warning(
                "%s: classes are called like splits: %s.", self._where, _some([f.name for f in like_splits])
            )
        return [(None, self._root)]

    @cached_property
    def _class_names(self) -> tuple[str, ...]:
        found = self._listing.classes
        if not found:
            raise UserError(
                f"{self._where}: {self._root} holds no class folders. Expected <class>/<image>, or "
                "train/<class>/<image> and so on."
            )
        if self._classes and (unknown := found - set(self._classes)):
            raise UserError(
                f"{self._where}: {self._root} holds folders that are none of its classes: "
                f"{_some(sorted(unknown))}. Remove them; the classes are {_some(self._classes)}."
            )
        return self._classes or tuple(sorted(found))

    @cached_property
    def _listing(self) -> "_Listing":
        listing = _Listing(self._root, self._where)
        for split, folder in self._split_folders:
            listing.add_split(split, folder)
        listing.warn()
        return listing


@dataclass
class _Listing:
    """Everything found below a folder, sorted into images, their classes, and what is left out."""

    root: Path
    where: str
    classes: set[str] = field(default_factory=set)
    files: list[ImageFile] = field(default_factory=list)
    others: int = 0
    strays: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def add_split(self, split: str | None, folder: Path) -> None:
        """Add the class folders of one split, or of the whole dataset where `split` is None."""
        if not folder.resolve().is_relative_to(self.root):
            self.outside.append(_text(folder.name))
            return
        for entry in _visible(folder, self.where):
            if self._leads_outside(entry):
                continue
            if entry.is_dir():
                name = _text(entry.name)
                self.classes.add(name)
                self._add_class(name, split, Path(entry.path))
            elif not _is_image(entry):
                self.others += 1
            elif split is None:
                self.strays.append(self._name(entry))
            else:
                self.files.append(ImageFile(Path(entry.path), self._name(entry), None, split))

    def _add_class(self, class_name: str, split: str | None, folder: Path) -> None:
        for entry in _visible(folder, self.where):
            if self._leads_outside(entry):
                continue
            if entry.is_dir():
                self._refuse_nested(entry)
            elif _is_image(entry):
                self.files.append(ImageFile(Path(entry.path), self._name(entry), class_name, split))
            else:
                self.others += 1

    def warn(self) -> None:
        """Say what was left out."""
        if self.others:
            logger.warning("%s: %d files are no images and are left out.", self.where, self.others)
        if self.strays:
            logger.warning("%s: images outside class folders are left out: %s.", self.where, _some(self.strays))
        if self.outside:
            logger.warning("%s: links out of the folder are left out: %s.", self.where, _some(self.outside))

    def _leads_outside(self, entry: "os.DirEntry[str]") -> bool:
        if not entry.is_symlink() or Path(entry.path).resolve().is_relative_to(self.root):
            return False
        self.outside.append(self._name(entry))
        return True

    def _refuse_nested(self, folder: "os.DirEntry[str]") -> None:
        for _, _, names in os.walk(folder.path):
            if any(Path(name).suffix.lower() in SUFFIXES for name in names):
                raise UserError(
                    f"{self.where}: {self._name(folder)!r} holds images, but folders inside class folders are not "
                    f"supported. Give every class one folder, directly below {self.root} or below train, val and "
                    "test there (and nothing else beside these), or let `path` name another folder."
                )

    def _name(self, entry: "os.DirEntry[str]") -> str:
        return _text(Path(entry.path).relative_to(self.root).as_posix())


def list_fingerprint(root: Path) -> str:
    """Return a digest of the paths, sizes and modification times of all visible files below `root`.

    Linked folders count where they lead to one inside, as images are read from them, and not up their own path.
    """
    if root.is_file():
        facts = root.stat()
        return blake3(b"%d\0%d" % (facts.st_size, facts.st_mtime_ns)).hexdigest()[:32]
    digest = blake3()
    real = os.path.realpath(root)
    for folder, folders, names in os.walk(root, followlinks=True):
        seen = [f for f in folders if not f.startswith(".") and _is_walked(f"{folder}{os.sep}{f}", folder, real)]
        folders[:] = sorted(seen, key=os.fsencode)
        # Empty folders count: they are classes.
        digest.update(os.fsencode(os.path.relpath(folder, root)) + b"/\n")
        for name in sorted((n for n in names if not n.startswith(".")), key=os.fsencode):
            try:
                facts = os.stat(f"{folder}{os.sep}{name}")  # noqa: PTH116 - half the time of Path.stat
            except OSError:
                continue  # a broken link is no image either
            digest.update(os.fsencode(name) + b"\0%d\0%d\n" % (facts.st_size, facts.st_mtime_ns))
    return digest.hexdigest()[:32]


def _is_walked(path: str, folder: str, root: str) -> bool:
    """Tell whether a folder is to be listed: one that is linked leads to another place inside the root."""
    if not os.path.islink(path):  # noqa: PTH114 - half the time of Path.is_symlink
        return True
    target = os.path.realpath(path)
    inside = target.startswith(root + os.sep)
    return inside and not (os.path.realpath(folder) + os.sep).startswith(target + os.sep)


def _visible(folder: Path, where: str) -> "list[os.DirEntry[str]]":
    """Return what a folder holds but hidden files, sorted by bytes."""
    try:
        with os.scandir(folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(f"{where}: the folder {folder} cannot be read: {error.strerror}.") from None
    return sorted(visible, key=lambda entry: os.fsencode(entry.name))


def _has_folders(folder: Path, where: str) -> bool:
    return any(entry.is_dir() for entry in _visible(folder, where))


def _is_image(entry: "os.DirEntry[str]") -> bool:
    return Path(entry.name).suffix.lower() in SUFFIXES and entry.is_file()


def _text(name: str) -> str:
    """Return a file name as text: composed as most systems write it, bytes that are no UTF-8 spelled out."""
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "backslashreplace"))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
