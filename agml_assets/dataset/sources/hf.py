"""Hugging Face datasets: from the hub, or local as saved datasets, Parquet files or image folders."""

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
from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.datasets import DatasetEntry

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, Features

logger = logging.getLogger(__name__)

_COMPOUND_SEPARATOR = ", "  # as in AgML's published compound labels
_COMMIT = re.compile(r"[/\\]([0-9a-f]{40})[/\\]")
_ORDER = {"train": 0, "val": 1, "test": 2}


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


class HuggingFaceSource:
    """A dataset of the `datasets` library, memory-mapped, its images never decoded here."""

    def __init__(self, entry: DatasetEntry) -> None:
        self._entry = entry
        self._where = f"Dataset {entry.key!r}"
        self._splits = self._select_splits(_load(entry))
        features = self._splits[0][1].features
        self._roles = find_roles(features, entry)
        self._class_names, self._labels = self._read_labels()
        if clash := [name for name in self._class_names if name.lower() in SPLIT_NAMES]:
            logger.warning("%s: classes are called like splits: %s.", self._where, ", ".join(clash))

    def info(self) -> SourceInfo:
        """Return the facts about the dataset."""
        digest = blake3("\n".join(d._fingerprint for _, d in self._splits).encode())
        roles = self._roles
        first = self._splits[0][1]
        resolved = {
            "source": "hf",
            "name": self._entry.name,
            "path": str(self._entry.path) if self._entry.path else None,
            "config": first.info.config_name or self._entry.hf_config_name,
            "revision": _revision(first) or self._entry.revision,
            "splits": [name for name, _ in self._splits],
            "image_col": roles.image,
            "label_col": roles.label,
            "compound_label_cols": list(roles.compound),
            "metadata_cols": list(roles.metadata),
        }
        if roles.label is not None and not hasattr(first.features[roles.label], "names"):
            resolved["label_mapping"] = {name: label for label, name in enumerate(self._class_names)}
        return SourceInfo(
            class_names=self._class_names,
            metadata_columns=roles.metadata,
            native_splits=tuple(dict.fromkeys(s for s in self._native_splits if s is not None)),
            num_rows=sum(len(dataset) for _, dataset in self._splits),
            fingerprint=digest.hexdigest()[:32],
            resolved=resolved,
        )

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Stream the rows from `start` on."""
        from datasets import Image

        roles, offset = self._roles, 0
        for _, dataset in self._splits:
            first = max(start - offset, 0)
            if first < len(dataset):
                columns = dataset.select_columns([roles.image, *roles.metadata])
                columns = columns.cast_column(roles.image, Image(decode=False))
                for row, values in enumerate(columns.select(range(first, len(dataset))), offset + first):
                    image, file = _encoded(values[roles.image])
                    metadata = {column: values[column] for column in roles.metadata}
                    yield Example(row, image, file, self._labels[row], self._native_splits[row], metadata)
            offset += len(dataset)

    def _select_splits(self, loaded: "Dataset | DatasetDict") -> list[tuple[str, "Dataset"]]:
        if not isinstance(loaded, dict):
            return [("train", loaded)]
        if not loaded:
            raise UserError(f"{self._where}: the source has no split.")
        splits = list(loaded.items())
        splits.sort(key=lambda pair: _ORDER.get(SPLIT_NAMES.get(pair[0].lower(), ""), 3))
        if self._entry.native_splits == "train":
            if "train" not in loaded:
                logger.warning("%s: there is no split train; %s is read.", self._where, splits[0][0])
            return splits[:1]
        return splits

    @cached_property
    def _native_splits(self) -> list[str | None]:
        if len(self._splits) > 1:
            return [SPLIT_NAMES.get(name.lower(), name) for name, d in self._splits for _ in range(len(d))]
        dataset = self._splits[0][1]
        # Some datasets carry their own split as a column.
        if "split" in self._roles.metadata and self._roles.metadata["split"] is None:
            values = _column(dataset, "split")
            if all(isinstance(v, str) and v.lower() in SPLIT_NAMES for v in values) and len(set(values)) > 1:
                return [SPLIT_NAMES[v.lower()] for v in values]
        return [None] * len(dataset)

    def _read_labels(self) -> tuple[tuple[str, ...], list[int | None]]:
        roles = self._roles
        if roles.compound:
            columns = [[v for _, d in self._splits for v in _named(d, column)] for column in roles.compound]
            return compound_labels(columns, self._where)
        if roles.label is None:
            raise AssertionError("a source has a label column or a compound label")
        values = [v for _, d in self._splits for v in _column(d, roles.label)]
        names = getattr(self._splits[0][1].features[roles.label], "names", None)
        if names is not None:
            inside = range(len(names))
            return tuple(names), [v if v is not None and v in inside else None for v in values]
        return plain_labels(values, self._where, roles.label)


def find_roles(features: "Features", entry: DatasetEntry) -> Roles:
    """Find image, label and metadata columns by the type of their feature, in declaration order.

    Raises:
        UserError: A column named by the entry is absent or of the wrong type, or none can be found.
    """
    from datasets import ClassLabel, Image
    from datasets.features.features import require_decoding

    where, columns = f"Dataset {entry.key!r}", list(features)

    def require(column: str, key: str) -> str:
        if column not in features:
            raise UserError(
                f"{where}: {key} names {column!r}, which is no column.{did_you_mean(column, columns)} "
                f"The columns are {', '.join(columns)}."
            )
        return column

    images = [c for c in columns if isinstance(features[c], Image)]
    image = require(entry.image_col, "image_col") if entry.image_col else next(iter(images), None)
    if image is None or not isinstance(features[image], Image):
        raise UserError(
            f"{where}: {f'{image!r} is no Image column' if image else 'there is no Image column'}. The columns "
            f"are {_describe(features)}. Set image_col."
        )
    compound = tuple(require(c, "compound_label_cols") for c in entry.compound_label_cols)
    label = None
    if not compound:
        classes = [c for c in columns if isinstance(features[c], ClassLabel)]
        label = require(entry.label_col, "label_col") if entry.label_col else next(iter(classes), None)
        if label is None:
            raise UserError(
                f"{where}: there is no ClassLabel column. The columns are {_describe(features)}. Set label_col "
                "to the column that holds the class; text and integers are fine."
            )
    if entry.metadata_cols is not None:
        metadata = [require(c, "metadata_cols") for c in entry.metadata_cols]
    else:
        metadata = [c for c in columns if c not in (image, label, *compound)]
    kept = [c for c in metadata if not require_decoding(features[c])]
    return Roles(
        image,
        label,
        compound,
        {c: tuple(n) if (n := getattr(features[c], "names", None)) else None for c in kept},
    )


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
        UserError: Two different combinations would get the same name.
    """
    rows = list(zip(*columns, strict=True))
    combinations = {row for row in rows if None not in row}
    names: dict[str, tuple[str | None, ...]] = {}
    for combination in sorted(combinations, key=str):
        name = _COMPOUND_SEPARATOR.join(str(part) for part in combination)
        other = names.setdefault(name, combination)
        if other != combination:
            raise UserError(
                f"{where}: the label columns {other} and {combination} would both be called {name!r}. "
                "Rename one of the values."
            )
    ordered = sorted(names)
    index = {names[name]: label for label, name in enumerate(ordered)}
    return tuple(ordered), [index.get(row) for row in rows]


def plain_labels(values: Sequence[Any], where: str, column: str) -> tuple[tuple[str, ...], list[int | None]]:
    """Map text, integer or boolean labels to classes; None, NaN, empty text and negative numbers are no label.

    Returns:
        The class names (integers in numeric order), and the label of every row or None.
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
    if isinstance(value, int | float) and value == int(value):
        return int(value) if value >= 0 else None
    raise UserError(
        f"{where}: {column!r} holds {value!r}, which is no class. Labels are text, integers or booleans."
    )


def _load(entry: DatasetEntry) -> "Dataset | DatasetDict":
    import datasets

    where, path = f"Dataset {entry.key!r}", entry.path
    if path is not None and not path.exists():
        raise UserError(f"{where}: there is nothing at {path}. Check `path` in the registry.")
    try:
        if path is None:
            return datasets.load_dataset(entry.name, entry.hf_config_name, revision=entry.revision)
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            return datasets.load_from_disk(str(path))
        if path.suffix == ".parquet":
            return datasets.load_dataset("parquet", data_files=str(path))
        return datasets.load_dataset(str(path), entry.hf_config_name)
    except ValueError as error:
        if "Config name is missing" in str(error) or "BuilderConfig" in str(error):
            raise UserError(f"{where}: {_list_configs(entry)}") from None
        raise UserError(f"{where}: {_first_line(error)}") from None
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"{where}: {entry.name!r} cannot be loaded: {_first_line(error)}\n"
            "Check the name and hf_config_name. Without network, download it beforehand into $HF_HOME, or give "
            "the `path` of a local copy."
        ) from None


def _list_configs(entry: DatasetEntry) -> str:
    import datasets

    try:
        names = datasets.get_dataset_config_names(str(entry.path or entry.name), revision=entry.revision)
    except (OSError, ValueError) as error:
        return f"needs a valid hf_config_name ({_first_line(error)})."
    asked = f"has no configuration {entry.hf_config_name!r}" if entry.hf_config_name else "has several"
    return f"{asked} configurations; set hf_config_name to one of: {', '.join(names)}."


def _revision(dataset: "Dataset") -> str | None:
    """Return the hub commit, which the library keeps in the path of its cache files."""
    for file in dataset.cache_files:
        if found := _COMMIT.search(file["filename"]):
            return found[1]
    return None


def _column(dataset: "Dataset", column: str) -> list[Any]:
    return dataset.select_columns([column]).with_format("arrow")[:][column].to_pylist()


def _named(dataset: "Dataset", column: str) -> list[str | None]:
    values = _column(dataset, column)
    names = getattr(dataset.features[column], "names", None)
    if names is None:
        return [None if value is None else str(value) for value in values]
    return [names[v] if v is not None and 0 <= v < len(names) else None for v in values]


def _encoded(value: Any) -> tuple[bytes | Path | None, str | None]:
    if value is None:
        return None, None
    content, path = value.get("bytes"), value.get("path")
    file = Path(path).name if path and content is None else path
    return (content if content is not None else Path(path) if path else None), file


def _describe(features: "Features") -> str:
    return ", ".join(f"{name} ({type(feature).__name__})" for name, feature in features.items())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
