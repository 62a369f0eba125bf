"""A folder per class, with folders for train, validation and test above them or not."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from blake3 import blake3

from agml_assets.dataset.sources.base import SPLIT_NAMES, Example, SourceInfo
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry

logger = logging.getLogger(__name__)

SUFFIXES = frozenset({".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class ImageFile:
    """An image file of a class folder."""

    path: Path
    relative: str
    class_name: str
    native_split: str | None


class FolderSource:
    """Images in a folder per class, sorted by the bytes of their relative path."""

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

    @cached_property
    def _split_folders(self) -> list[tuple[str | None, Path]]:
        folders = _visible_folders(self._root)
        if folders and all(f.name.lower() in SPLIT_NAMES and _visible_folders(f) for f in folders):
            splits = [(SPLIT_NAMES[f.name.lower()], f) for f in folders]
            order = ("train", "val", "test")
            splits.sort(key=lambda pair: (order.index(pair[0]), pair[1].name))
            if self._train_only:
                splits = [s for s in splits if s[0] == "train"] or splits[:1]
            return [*splits]
        if any(f.name.lower() in SPLIT_NAMES for f in folders):
            logger.warning("%s: some classes are called like splits (train, val, test).", self._where)
        return [(None, self._root)]

    @cached_property
    def _class_names(self) -> tuple[str, ...]:
        names = {c.name for _, folder in self._split_folders for c in _visible_folders(folder)}
        if not names:
            raise UserError(
                f"{self._where}: {self._root} holds no class folders. Expected <class>/<image>, or "
                "train/<class>/<image> and so on."
            )
        if unknown := names - set(self._classes or names):
            raise UserError(
                f"{self._where}: {self._root} holds folders that are no class: {', '.join(sorted(unknown))}."
            )
        return self._classes or tuple(sorted(names, key=os.fsencode))

    @cached_property
    def files(self) -> list[ImageFile]:
        """All image files in order; what is not one is counted in a warning."""
        files: list[ImageFile] = []
        others, outside, nested = 0, [], []
        class_folders = [(s, c) for s, folder in self._split_folders for c in _visible_folders(folder)]
        visible = (
            (split, folder.name, path)
            for split, folder in class_folders
            for path in sorted(folder.iterdir(), key=os.fsencode)
            if not path.name.startswith(".")
        )
        for split, class_name, path in visible:
            relative = path.relative_to(self._root).as_posix()
            if path.is_dir():
                nested.append(relative)
            elif path.suffix.lower() not in SUFFIXES:
                others += 1
            elif not path.resolve().is_relative_to(self._root):
                outside.append(relative)
            else:
                files.append(ImageFile(path, relative, class_name, split))
        if others:
            logger.warning("%s: %d files are no images and are left out.", self._where, others)
        if outside:
            logger.warning("%s: links out of the folder are left out: %s", self._where, _some(outside))
        if nested:
            logger.warning("%s: folders inside class folders are left out: %s", self._where, _some(nested))
        if not files:
            raise UserError(
                f"{self._where}: {self._root} holds no images in class folders ({', '.join(sorted(SUFFIXES))})."
            )
        return files

    def info(self) -> SourceInfo:
        """Return the facts about the folder."""
        splits = tuple(dict.fromkeys(s for s, _ in self._split_folders if s is not None))
        return SourceInfo(
            class_names=self._class_names,
            metadata_columns={},
            native_splits=splits if len(splits) > 1 else (),
            num_rows=len(self.files),
            fingerprint=list_fingerprint(self._root),
            resolved=self._resolved,
        )

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Stream the files from `start` on."""
        labels = {name: label for label, name in enumerate(self._class_names)}
        several = len({s for s, _ in self._split_folders}) > 1
        for row, file in enumerate(self.files[start:], start=start):
            split = file.native_split if several else None
            yield Example(row, file.path, file.relative, labels[file.class_name], split)


def list_fingerprint(root: Path) -> str:
    """Return a digest of the paths, sizes and modification times of all files below `root`."""
    digest = blake3()
    files = [root] if root.is_file() else [Path(f, name) for f, _, names in os.walk(root) for name in names]
    for path in sorted(files, key=os.fsencode):
        try:
            facts = path.stat()
        except OSError:
            continue  # a broken link is no image either
        digest.update(os.fsencode(path.relative_to(root)) + b"\0%d\0%d\n" % (facts.st_size, facts.st_mtime_ns))
    return digest.hexdigest()[:32]


def _visible_folders(folder: Path) -> list[Path]:
    inside = (p for p in folder.iterdir() if not p.name.startswith(".") and p.is_dir())
    return sorted((p for p in inside if p.resolve().is_relative_to(folder.resolve())), key=os.fsencode)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
