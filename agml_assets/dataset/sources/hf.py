"""Hugging Face datasets: from the hub, or local as saved datasets, Parquet files or image folders.

Images are handed on as they are stored, and nothing remote is executed. What columns mean is in `columns`.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from agml_assets.dataset.sources.base import SPLIT_NAMES, Example, SourceInfo
from agml_assets.dataset.sources.columns import (
    clean_label,
    compound_labels,
    declared_labels,
    find_roles,
    plain_labels,
)
from agml_assets.dataset.sources.folder import list_fingerprint
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}")
# Where the library unpacks what it downloads; the rest of such a path is the path inside the dataset.
_CACHE_FOLDER = re.compile(r".*/(?:snapshots/[0-9a-f]{40}|downloads/extracted/[0-9a-f]{64})/")
_REMOTE = ("https://", "http://", "hf://", "s3://", "gs://")
_ORDER = {"train": 0, "val": 1, "test": 2}
_MOST_BYTES = 1 << 30  # of one image behind an address; a few kB of an archive can hold any number
_BATCH = 16  # rows in memory at once; encoded photographs have up to some 20 MB


@dataclass(frozen=True)
class _Loaded:
    """What the library gave.

    Attributes:
        splits: Name and rows of each split, in its order.
        config: Configuration; None where there are none.
        revision: Commit on the hub, or None.
        reason: Why there is no revision, or None.
    """

    splits: list[tuple[str, "Dataset"]]
    config: str | None
    revision: str | None
    reason: str | None


class HuggingFaceSource:
    """A dataset of the `datasets` library, memory-mapped, its images never decoded here.

    Several splits are read one after the other: train, validation, test, others. Opening it may download.
    """

    def __init__(self, entry: DatasetEntry) -> None:
        self._entry = entry
        self._where = f"Dataset {entry.key!r}"
        self._folder = entry.path.parent if entry.path and entry.path.is_file() else entry.path
        self._homes = _homes(self._folder)
        self._told_of_strangers = False
        self._loaded = _load(entry)
        self._splits = self._select_splits()
        self._roles = find_roles(self._splits[0][1].features, entry)
        self._require_same_columns()
        self._class_names, self._labels = self._read_labels()
        if clash := [name for name in self._class_names if name.lower() in SPLIT_NAMES]:
            logger.warning("%s: classes are called like splits: %s.", self._where, ", ".join(clash))

    def info(self) -> SourceInfo:
        """Return the facts about the dataset."""
        entry, roles = self._entry, self._roles
        identity = [dataset._fingerprint for _, dataset in self._splits]
        if entry.path is not None:
            identity = [list_fingerprint(entry.path), *(name for name, _ in self._splits)]
        resolved: dict[str, Any] = {
            "source": "hf",
            "name": entry.name,
            "path": str(entry.path) if entry.path else None,
            "config": self._loaded.config,
            "revision": self._loaded.revision,
            "splits": {name: len(dataset) for name, dataset in self._splits},
            "image_col": roles.image,
            "label_col": roles.label,
            "compound_label_cols": list(roles.compound),
            "metadata_cols": list(roles.metadata),
        }
        if self._loaded.reason is not None:
            resolved["revision_reason"] = self._loaded.reason
        if roles.label is not None and self._declared_names is None:
            resolved["label_mapping"] = {name: label for label, name in enumerate(self._class_names)}
        return SourceInfo(
            class_names=self._class_names,
            metadata_columns=roles.metadata,
            native_splits=tuple(dict.fromkeys(s for s in self._native_splits if s is not None)),
            num_rows=len(self._labels),
            fingerprint=blake3("\n".join(identity).encode()).hexdigest()[:32],
            resolved=resolved,
        )

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Stream the rows from `start` on, a few of them in memory at a time."""
        roles, row = self._roles, 0
        for _, dataset in self._splits:
            first = max(start - row, 0)
            row += min(first, len(dataset))
            if first >= len(dataset):
                continue
            # Arrow tables hold images as they are stored, whatever their feature says.
            columns = dataset.select_columns([roles.image, *roles.metadata]).with_format("arrow")
            for table in columns.select(range(first, len(dataset))).iter(batch_size=_BATCH):
                for values in table.to_pylist():
                    image, file = self._encoded(values[roles.image])
                    metadata = {column: values[column] for column in roles.metadata}
                    yield Example(row, image, file, self._labels[row], self._native_splits[row], metadata)
                    row += 1

    def _encoded(self, value: Any) -> tuple[bytes | Path | None, str | None]:
        """Return content or path of an image, and its name for people, from any form in which it is stored."""
        if isinstance(value, bytes):
            return value, None
        if isinstance(value, str):
            value = {"path": value}
        content, path = (value or {}).get("bytes"), (value or {}).get("path") or None
        if content is not None:
            return content, _inside(path, self._folder) if path else None
        if path is None:
            return None, None
        name = _inside(path, self._folder)
        archive, _, file = path.rpartition("::") if "://" in path else ("", "", path)
        if file.startswith(_REMOTE):
            return _fetch(path), name
        local = Path(self._folder or "", file.removeprefix("file://"))
        if not self._is_ours(local, path):
            return None, name
        return (_fetch(f"{archive}::{local}") if archive else local), name

    def _is_ours(self, local: Path, path: str) -> bool:
        """Tell whether a file may be opened: rows can name any file of this machine."""
        try:
            if any(local.resolve().is_relative_to(home) for home in self._homes):
                return True
        except (OSError, RuntimeError, ValueError):
            pass  # a loop of links, or what no file can be called
        if not self._told_of_strangers:
            logger.warning("%s: images outside of its folder are never opened, such as %s.", self._where, path)
            self._told_of_strangers = True
        return False

    @property
    def _declared_names(self) -> list[str] | None:
        label = self._roles.label
        return getattr(self._splits[0][1].features[label], "names", None) if label is not None else None

    def _select_splits(self) -> list[tuple[str, "Dataset"]]:
        splits = sorted(self._loaded.splits, key=lambda pair: _ORDER.get(SPLIT_NAMES.get(pair[0].lower(), ""), 3))
        if self._entry.native_splits == "train":
            if splits[0][0] != "train" and len(splits) > 1:
                logger.warning("%s: there is no split train; %s is read.", self._where, splits[0][0])
            splits = splits[:1]
        splits = [(name, dataset) for name, dataset in splits if len(dataset)]
        if not splits:
            raise UserError(f"{self._where}: the source has no rows.")
        return splits

    def _require_same_columns(self) -> None:
        """Refuse splits whose columns mean different things; only the labels may be missing in some."""
        roles = self._roles
        first_name, first = self._splits[0]
        for name, dataset in self._splits[1:]:
            for column in (roles.image, *roles.compound, *roles.metadata, *([roles.label] if roles.label else [])):
                if column == roles.label and column not in dataset.features:
                    logger.warning("%s: split %s has no labels; its images are left out.", self._where, name)
                elif dataset.features.get(column) != first.features[column]:
                    raise UserError(
                        f"{self._where}: column {column!r} is {first.features[column]} in split {first_name!r} "
                        f"and {dataset.features.get(column)} in {name!r}. Make them the same, or read one split "
                        "with `native_splits: train`."
                    )

    @cached_property
    def _native_splits(self) -> list[str | None]:
        if len(self._splits) > 1:
            return [SPLIT_NAMES.get(name.lower(), name) for name, d in self._splits for _ in range(len(d))]
        dataset = self._splits[0][1]
        # Some datasets carry their own split as a column.
        if getattr(dataset.features.get("split"), "dtype", None) in ("string", "large_string"):
            values = _column(dataset, "split")
            if all(isinstance(v, str) and v.lower() in SPLIT_NAMES for v in values) and len(set(values)) > 1:
                return [SPLIT_NAMES[v.lower()] for v in values]
        return [None] * len(dataset)

    def _read_labels(self) -> tuple[tuple[str, ...], list[int | None]]:
        roles, datasets = self._roles, [dataset for _, dataset in self._splits]
        if roles.compound:
            columns = [[v for d in datasets for v in _named(d, column, self._where)] for column in roles.compound]
            return compound_labels(columns, self._where)
        if roles.label is None:
            raise AssertionError("a source has a label column or a compound label")
        values = [v for d in datasets for v in _column(d, roles.label)]
        names = self._declared_names
        return plain_labels(values, self._where, roles.label) if names is None else (
            tuple(names), declared_labels(values, names, self._where, roles.label)
        )  # fmt: skip


def _load(entry: DatasetEntry) -> _Loaded:
    import datasets

    where = f"Dataset {entry.key!r}"
    try:
        loaded = _load_local(entry, entry.path) if entry.path is not None else _load_remote(entry)
    except ValueError as error:
        if "Config name is missing" in str(error) or "BuilderConfig" in str(error):
            raise UserError(f"{where}: {_list_configs(entry)}") from None
        raise _cannot_load(entry, error) from None
    except (OSError, RuntimeError, NotImplementedError, datasets.exceptions.DatasetsError) as error:
        raise _cannot_load(entry, error) from None
    except (KeyError, TypeError) as error:
        if entry.path is None:
            raise
        raise _cannot_load(entry, error) from None  # what a broken local copy makes the library stumble over
    asked = entry.revision or ""
    if loaded.revision and _COMMIT.fullmatch(asked) and asked != loaded.revision:
        # Without network the library takes what is in its cache, whatever was asked for.
        raise UserError(
            f"{where}: revision {asked} was asked for, and only {loaded.revision} is in the cache. Run this where "
            "there is network, or change `revision`."
        )
    return loaded


def _load_remote(entry: DatasetEntry) -> _Loaded:
    import datasets

    builder = datasets.load_dataset_builder(entry.name, entry.hf_config_name, revision=entry.revision)
    builder.download_and_prepare()
    # The builder of a hub repository is identified by the commit that it was resolved to.
    commit = builder.hash if builder.hash and _COMMIT.fullmatch(builder.hash) else None
    return _Loaded(
        splits=list(builder.as_dataset().items()),
        config=builder.config.name,
        revision=commit,
        reason=None if commit else "the cached copy does not say",
    )


def _load_local(entry: DatasetEntry, path: Path) -> _Loaded:
    import datasets

    if not path.exists():
        raise UserError(f"Dataset {entry.key!r}: there is nothing at {path}. Check `path` in the registry.")
    config = None
    if path.is_file():
        if path.suffix != ".parquet":
            raise UserError(
                f"Dataset {entry.key!r}: {path} is neither a folder nor a Parquet file. Let `path` name a folder "
                "of `save_to_disk`, of Parquet files or of images."
            )
        loaded = datasets.load_dataset("parquet", data_files=str(path))
    elif (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        try:
            loaded = datasets.load_from_disk(str(path))
        except IndexError:  # the library saves a split without rows, and cannot read it
            raise UserError(
                f"Dataset {entry.key!r}: {path}, or one of its splits, has no rows. Save it again without."
            ) from None
    else:
        builder = datasets.load_dataset_builder(str(path), entry.hf_config_name)
        builder.download_and_prepare()
        loaded, config = builder.as_dataset(), builder.config.name
    splits = [*loaded.items()] if isinstance(loaded, dict) else [(str(loaded.split or "train"), loaded)]
    return _Loaded(splits, config, None, "local copy")


def _cannot_load(entry: DatasetEntry, error: Exception) -> UserError:
    import datasets

    file, cache = getattr(error, "filename", None), Path(datasets.config.HF_DATASETS_CACHE)
    if isinstance(file, str) and (cache.is_relative_to(file) or Path(file).is_relative_to(cache)):
        return UserError(
            f"Dataset {entry.key!r}: the datasets library cannot use its cache {cache}: {_first_line(error)}. Let "
            "$HF_HOME name a folder that you may write to."
        )
    if entry.path is not None:
        return UserError(
            f"Dataset {entry.key!r}: {entry.path} cannot be loaded: {_first_line(error)}\n"
            "Let `path` name a folder of `save_to_disk`, of Parquet files or of images; for a plain folder per "
            "class use `source: folder`."
        )
    return UserError(
        f"Dataset {entry.key!r}: {entry.name!r} cannot be loaded: {_first_line(error)}\n"
        "Check name, revision and hf_config_name, and that you may access it. Without network (or with "
        "HF_HUB_OFFLINE=1), load it once beforehand into $HF_HOME, or give the `path` of a local copy."
    )


def _list_configs(entry: DatasetEntry) -> str:
    import datasets

    try:
        names = datasets.get_dataset_config_names(str(entry.path or entry.name), revision=entry.revision)
    except (OSError, ValueError) as error:
        return f"needs a valid hf_config_name ({_first_line(error)})."
    asked = f"has no configuration {entry.hf_config_name!r}" if entry.hf_config_name else "has several"
    separator = ", it has" if entry.hf_config_name else " configurations"
    return f"{asked}{separator}; set hf_config_name to one of: {', '.join(names)}."


def _column(dataset: "Dataset", column: str) -> list[Any]:
    if column not in dataset.features:
        return [None] * len(dataset)
    return dataset.select_columns([column]).with_format("arrow")[:][column].to_pylist()


def _named(dataset: "Dataset", column: str, where: str) -> list[str | None]:
    """Return the values of a column as text, or its names; None where they are missing."""
    values = _column(dataset, column)
    names = getattr(dataset.features[column], "names", None)
    if names is None:
        cleaned = [clean_label(value, where, column) for value in values]
        return [None if value is None else str(value) for value in cleaned]
    return [names[v] if v is not None and 0 <= v < len(names) else None for v in values]


def _homes(folder: Path | None) -> list[Path]:
    """Return the folders whose files belong to a dataset: its own, and those where the library keeps downloads."""
    import datasets
    from huggingface_hub import constants

    caches = (datasets.config.HF_DATASETS_CACHE, datasets.config.DOWNLOADED_DATASETS_PATH, constants.HF_HUB_CACHE)
    return [Path(home).resolve() for home in (folder, *caches) if home is not None]


def _fetch(url: str) -> bytes | None:
    from datasets.utils.file_utils import xopen

    try:
        with xopen(url, "rb") as stream:
            content: bytes = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        logger.warning("The image %s cannot be read: %s", url, _first_line(error))
        return None
    if len(content) > _MOST_BYTES:
        logger.warning("The image %s has more than %d bytes and is not read.", url, _MOST_BYTES)
        return None
    return content


def _inside(path: str, root: Path | None) -> str:
    """Return a path inside its dataset: without the folder of the dataset, of the cache, or of an archive."""
    if "://" in path:
        return path.partition("::")[0].partition("://")[2]
    if root is not None and Path(path).is_relative_to(root):
        return Path(path).relative_to(root).as_posix()
    shortened = _CACHE_FOLDER.sub("", Path(path).as_posix())
    return Path(path).name if Path(shortened).is_absolute() else shortened


def _first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    # "An error occurred while generating the dataset" says nothing that its cause does not.
    cause = error.__cause__
    return f"{line}: {_first_line(cause)}" if type(error).__name__ == "DatasetGenerationError" and cause else line
