"""Hugging Face datasets: from the hub, or local as saved datasets, Parquet files or image folders.

Columns get their roles here. Images are handed on as they are stored; nothing remote is executed.
"""

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from agml_assets.dataset.sources.base import SPLIT_NAMES, Example, SourceInfo
from agml_assets.dataset.sources.folder import list_fingerprint
from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.datasets import DatasetEntry

if TYPE_CHECKING:
    from datasets import Dataset, Features

logger = logging.getLogger(__name__)

_COMPOUND_SEPARATOR = ", "  # as in AgML's published compound labels
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Where the library unpacks what it downloads; the rest of such a path is the path inside the dataset.
_CACHE_FOLDER = re.compile(r".*/(?:snapshots/[0-9a-f]{40}|downloads/extracted/[0-9a-f]{64})/")
_ORDER = {"train": 0, "val": 1, "test": 2}
_BATCH = 16  # rows in memory at once; encoded photographs have up to some 20 MB


@dataclass(frozen=True)
class Roles:
    """Which column is what.

    Attributes:
        image: Image column.
        label: Label column; None with a compound label.
        compound: Columns whose joined values are the label.
        metadata: Columns that describe the image -> names of their values, where declared.
    """

    image: str
    label: str | None
    compound: tuple[str, ...]
    metadata: Mapping[str, tuple[str, ...] | None]


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
                    image, file = _encoded(values[roles.image], self._entry.path)
                    metadata = {column: values[column] for column in roles.metadata}
                    yield Example(row, image, file, self._labels[row], self._native_splits[row], metadata)
                    row += 1

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
                        f"{self._where}: column {column!r} is {dataset.features.get(column)} in split {name!r} and "
                        f"{first.features[column]} in {first_name!r}. Make them the same, or read one split with "
                        "`native_splits: train`."
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
            columns = [[v for d in datasets for v in _named(d, column)] for column in roles.compound]
            return compound_labels(columns, self._where)
        if roles.label is None:
            raise AssertionError("a source has a label column or a compound label")
        values = [v for d in datasets for v in _column(d, roles.label)]
        names = self._declared_names
        return plain_labels(values, self._where, roles.label) if names is None else (
            tuple(names), declared_labels(values, names, self._where, roles.label)
        )  # fmt: skip


def find_roles(features: "Features", entry: DatasetEntry) -> Roles:
    """Find image, label and metadata columns by the type of their feature, in declaration order.

    Args:
        features: Of the dataset.
        entry: Its columns override what would be found; a label column may then hold text, integers or
            booleans, an image column bytes or paths.

    Raises:
        UserError: A column named by the entry is absent or of the wrong type, or none can be found.
    """
    from datasets import ClassLabel, Image

    where, columns = f"Dataset {entry.key!r}", list(features)

    def require(column: str, key: str) -> str:
        if column not in features:
            raise UserError(
                f"{where}: {key} names {column!r}, which is no column.{did_you_mean(column, columns)} "
                f"The columns are {_describe(features)}."
            )
        return column

    image = next((c for c in columns if isinstance(features[c], Image)), None)
    if entry.image_col:
        image = require(entry.image_col, "image_col")
    if image is None or not _holds_images(features[image]):
        what = f"column {image!r} holds no images" if image else "there is no Image column"
        raise UserError(f"{where}: {what}. The columns are {_describe(features)}. Set image_col.")

    compound = tuple(require(c, "compound_label_cols") for c in entry.compound_label_cols)
    label = None
    if not compound:
        label = next((c for c in columns if isinstance(features[c], ClassLabel)), None)
        if entry.label_col:
            label = require(entry.label_col, "label_col")
        if label is None:
            raise UserError(
                f"{where}: there is no ClassLabel column. The columns are {_describe(features)}. Set label_col "
                "to the column that holds the class; text and integers are fine."
            )
    for column in (label, *compound):
        if column == image or (column is not None and not hasattr(features[column], "dtype")):
            raise UserError(
                f"{where}: column {column!r} ({_type(features[column])}) cannot be a label; it must hold one class "
                f"an image, as text, integer or ClassLabel. The columns are {_describe(features)}."
            )

    if entry.metadata_cols is not None:
        metadata = [require(c, "metadata_cols") for c in entry.metadata_cols]
        if media := [c for c in metadata if not _describes(features[c])]:
            raise UserError(f"{where}: metadata_cols names {', '.join(media)}, which hold files, not descriptions.")
    else:
        rest = [c for c in columns if c not in (image, label, *compound)]
        metadata = [c for c in rest if _describes(features[c])]
        if len(metadata) < len(rest):
            logger.info("%s: columns of files are not read: %s.", where, ", ".join(set(rest) - set(metadata)))
    names = {c: getattr(features[c], "names", None) for c in metadata}
    return Roles(image, label, compound, {c: tuple(n) if n else None for c, n in names.items()})


def compound_labels(
    columns: Sequence[Sequence[str | None]], where: str
) -> tuple[tuple[str, ...], list[int | None]]:
    """Join the values of several columns into one label, as AgML does: `"tomato, blight"`.

    Args:
        columns: For each column, its value in every row; None where it is missing.
        where: The dataset, for messages.

    Returns:
        The sorted class names, and the label of every row, None where a component is missing.

    Raises:
        UserError: Two different combinations would get the same name, or no row has a label.
    """
    rows = list(zip(*columns, strict=True))
    names: dict[str, tuple[str | None, ...]] = {}
    for combination in sorted({row for row in rows if None not in row}, key=str):
        name = _COMPOUND_SEPARATOR.join(str(part) for part in combination)
        other = names.setdefault(name, combination)
        if other != combination:
            raise UserError(
                f"{where}: the label columns {other} and {combination} would both be called {name!r}. "
                "Rename one of the values."
            )
    if not names:
        raise UserError(f"{where}: no row has a value in every one of compound_label_cols.")
    ordered = sorted(names)
    index = {names[name]: label for label, name in enumerate(ordered)}
    return tuple(ordered), [index.get(row) for row in rows]


def declared_labels(
    values: Sequence[int | None], names: Sequence[str], where: str, column: str
) -> list[int | None]:
    """Return the labels of a column that declares its classes; None and negative numbers are no label.

    Raises:
        UserError: A number has no name.
    """
    highest = max((value for value in values if value is not None), default=-1)
    if highest >= len(names):
        raise UserError(
            f"{where}: {column!r} holds class {highest}, in row {values.index(highest)}, but declares only the "
            f"{len(names)} classes 0 to {len(names) - 1}. Correct the column or its names."
        )
    return [value if value is not None and value >= 0 else None for value in values]


def plain_labels(values: Sequence[Any], where: str, column: str) -> tuple[tuple[str, ...], list[int | None]]:
    """Map text, integer or boolean labels to classes; None, NaN, empty text and negative numbers are no label.

    Returns:
        The class names (integers in numeric order), and the label of every row or None.

    Raises:
        UserError: A value is no class, text and numbers are mixed, or no row has a label.
    """
    cleaned = [_clean_label(value, where, column) for value in values]
    present = {value for value in cleaned if value is not None}
    if not present:
        raise UserError(f"{where}: no row of {column!r} has a label.")
    if len({type(value) for value in present}) > 1:
        raise UserError(f"{where}: {column!r} mixes text and numbers.")
    ordered = sorted(present)
    index = {value: label for label, value in enumerate(ordered)}
    return tuple(str(value) for value in ordered), [None if v is None else index[v] for v in cleaned]


def _clean_label(value: Any, where: str, column: str) -> int | str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)) or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    # Integers with gaps become floats in many tools.
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value) if value >= 0 else None
    raise UserError(
        f"{where}: {column!r} holds {value!r}, which is no class. Labels are text, integers or booleans."
    )


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
        loaded = datasets.load_from_disk(str(path))
    else:
        builder = datasets.load_dataset_builder(str(path), entry.hf_config_name)
        builder.download_and_prepare()
        loaded, config = builder.as_dataset(), builder.config.name
    splits = [*loaded.items()] if isinstance(loaded, dict) else [(str(loaded.split or "train"), loaded)]
    return _Loaded(splits, config, None, "local copy")


def _cannot_load(entry: DatasetEntry, error: Exception) -> UserError:
    if entry.path is not None:
        return UserError(
            f"Dataset {entry.key!r}: {entry.path} cannot be loaded: {_first_line(error)}\n"
            "Let `path` name a folder of `save_to_disk`, of Parquet files or of images; for a plain folder per "
            "class use `source: folder`."
        )
    return UserError(
        f"Dataset {entry.key!r}: {entry.name!r} cannot be loaded: {_first_line(error)}\n"
        "Check name, revision and hf_config_name, and that you may access it. Without network, fetch it beforehand "
        "with `agml-assets prefetch` (into $HF_HOME), or give the `path` of a local copy."
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


def _named(dataset: "Dataset", column: str) -> list[str | None]:
    """Return the values of a column as text, or its names; None where they are missing."""
    values = _column(dataset, column)
    names = getattr(dataset.features[column], "names", None)
    if names is None:
        missing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in values]
        return [None if gone else str(value) for value, gone in zip(values, missing, strict=True)]
    return [names[v] if v is not None and 0 <= v < len(names) else None for v in values]


def _encoded(value: Any, root: Path | None) -> tuple[bytes | Path | None, str | None]:
    """Return content or path of an image, and its name for people, from any form in which it is stored."""
    if isinstance(value, bytes):
        return value, None
    if isinstance(value, str):
        value = {"path": value}
    content, path = (value or {}).get("bytes"), (value or {}).get("path") or None
    if content is not None:
        return content, _inside(path, root) if path else None
    if path is None:
        return None, None
    if "://" in path:
        return _fetch(path), _inside(path, root)
    return Path(root or "", path), _inside(path, root)


def _fetch(url: str) -> bytes | None:
    from datasets.utils.file_utils import xopen

    try:
        with xopen(url, "rb") as stream:
            return stream.read()
    except (OSError, ValueError) as error:
        logger.warning("The image %s cannot be read: %s", url, _first_line(error))
        return None


def _inside(path: str, root: Path | None) -> str:
    """Return a path inside its dataset: without the folder of the dataset, of the cache, or of an archive."""
    if "://" in path:
        return path.partition("::")[0].partition("://")[2]
    if root is not None and Path(path).is_relative_to(root):
        return Path(path).relative_to(root).as_posix()
    shortened = _CACHE_FOLDER.sub("", Path(path).as_posix())
    return Path(path).name if Path(shortened).is_absolute() else shortened


def _holds_images(feature: Any) -> bool:
    from datasets import Image

    if isinstance(feature, dict):
        return "bytes" in feature or "path" in feature
    stored = ("string", "large_string", "binary", "large_binary")
    return isinstance(feature, Image) or getattr(feature, "dtype", None) in stored


def _describes(feature: Any) -> bool:
    """Tell whether the values of a feature say something about an image, rather than being a file."""
    from datasets.features.features import require_decoding

    if require_decoding(feature, ignore_decode_attribute=True):
        return False
    return getattr(feature, "dtype", None) not in ("binary", "large_binary")


def _describe(features: "Features") -> str:
    return ", ".join(f"{name} ({_type(feature)})" for name, feature in features.items())


def _type(feature: Any) -> str:
    kind = type(feature).__name__
    return str(feature.dtype) if kind == "Value" else kind


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
