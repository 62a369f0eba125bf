"""The dataset registry: what an entry may say, how it is read from YAML, how a dataset is found by name.

Loads the `datasets.yaml` of AgML's benchmarking pipeline unchanged. Nothing here opens a dataset.
"""

import json
import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.prompts import ClassNames, Prompts
from agml_assets.registry.yaml_files import absolute_path, complaints, find_file, is_key, read_yaml, require_key
from agml_assets.settings import expand_path, setting_problems, unknown_key

logger = logging.getLogger(__name__)

SHIPPED = Path(__file__).with_name("datasets.yaml")

_AGML_NAME = re.compile(r"iNatAg(-mini)?/[^/\s]+")
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+")
_COLLECTIONS = ("iNatAg/", "iNatAg-mini/")
_PHASES = (1, 2, 3)
_OF_ONE_ENTRY = frozenset({"name", "key", "path"})  # make no sense as a default for all
_COLUMNS = ("label_col", "image_col", "compound_label_cols", "metadata_cols")
_WITHOUT_COLUMNS = ("folder", "sample")  # sources whose folders are the classes
_IGNORED = frozenset({"time", "mem"})  # job sizes, which older files of the existing pipeline carry
_OF_THE_RUN = "output_dir"  # the one setting that cannot differ from dataset to dataset


class DatasetEntry(BaseModel):
    """One dataset, and how it is read.

    Attributes:
        name: `owner/name` on the hub, an AgML name, or any name where `path` is given.
        key: Partition and folder name; derived from `name` where absent.
        source: `hf`, `agml`, `folder` or `sample`; derived from `name` and `path` where absent.
        path: Local folder or file that holds the data; absolute.
        revision: Revision on the hub; None means its default branch.
        hf_config_name: Configuration of a hub dataset that has several.
        label_col: Label column; None means the first ClassLabel column.
        image_col: Image column; None means the first Image column.
        compound_label_cols: Columns whose joined values are the label; they take the place of `label_col`.
        metadata_cols: Columns that describe the images; None means every other column.
        native_splits: `all` reads every split of the source, `train` the training split alone, which gives
            the number of images of the published reports.
        phases: What is measured: 1 structure, 2 embeddings, 3 training; ascending.
        settings: Settings of this dataset that differ from those of the run.
        retired: Kept for its history, no longer run.
        num_images: About how many images there are; heavier datasets are run first.
        class_name_overrides: Of zero-shot evaluation: declared name of a class, and the name that prompts show.
        prompts: Of zero-shot evaluation; none means the model's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(min_length=1)
    key: str = ""
    source: Literal["hf", "agml", "folder", "sample"] = "hf"
    path: Path | None = Field(None, strict=False)
    revision: str | None = None
    hf_config_name: str | None = None
    label_col: str | None = None
    image_col: str | None = None
    compound_label_cols: tuple[str, ...] = ()
    metadata_cols: tuple[str, ...] | None = None
    native_splits: Literal["all", "train"] = "all"
    phases: tuple[int, ...] = _PHASES
    settings: dict[str, Any] = Field(default_factory=dict)
    retired: bool = False
    num_images: int | None = Field(None, ge=0)
    class_name_overrides: ClassNames = Field(default_factory=dict)
    prompts: Prompts = ()

    @model_validator(mode="before")
    @classmethod
    def _derive_key_and_source(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        # Null and, as in the existing pipeline, an empty text mean: not set.
        values = {k: v for k, v in values.items() if v is not None and v != ""}
        name = values.get("name")
        if isinstance(name, str):
            values["name"] = name = name.strip()
            values.setdefault("key", default_key(name))
            by_path = "folder" if "path" in values else "hf"
            values.setdefault("source", "agml" if name.startswith(_COLLECTIONS) else by_path)
        return values

    @field_validator("key")
    @classmethod
    def _key_is_safe(cls, value: str) -> str:
        return require_key(value)

    @field_validator("path")
    @classmethod
    def _path_is_absolute(cls, value: Path | None) -> Path | None:
        return absolute_path(value)

    @field_validator("phases", mode="before")
    @classmethod
    def _phases_are_known(cls, value: Any) -> Any:
        parts = value.split() if isinstance(value, str) else value
        parts = parts if isinstance(parts, list | tuple) else [parts]
        known = (*_PHASES, *map(str, _PHASES))
        if not parts or any(isinstance(part, bool) or part not in known for part in parts):
            raise ValueError(
                "phases are 1 (structure), 2 (embeddings) and 3 (training), such as '1 2 3' or [1, 2]"
            )
        return tuple(sorted({int(part) for part in parts}))

    @field_validator("compound_label_cols", "metadata_cols", mode="before")
    @classmethod
    def _columns_are_a_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(value.split())
        return tuple(value) if isinstance(value, list) else value

    @field_validator("compound_label_cols", "metadata_cols")
    @classmethod
    def _columns_are_named_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        columns = value or ()
        if "" in columns or len(set(columns)) < len(columns):
            raise ValueError("each column must be named, and only once")
        return value

    @field_validator("settings", mode="before")
    @classmethod
    def _settings_are_known(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("must be a mapping of settings, such as {embed_model: efficientnet_lite0}")
        problems = setting_problems(value)
        if _OF_THE_RUN in value:
            problems.append(f"{_OF_THE_RUN!r} is set for all datasets, not for one")
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @model_validator(mode="after")
    def _folder_has_a_path(self) -> "DatasetEntry":
        if self.source == "folder" and self.path is None:
            raise ValueError("`source: folder` needs `path`")
        if self.source == "agml" and self.name.startswith(_COLLECTIONS) and not _AGML_NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} names no dataset of the collection")
        return self

    def source_digest(self) -> str:
        """Return a short digest of everything here that says which images and labels are read."""
        fields = {
            "source", "name", "path", "revision", "hf_config_name", "label_col", "image_col",
            "compound_label_cols", "metadata_cols", "native_splits",
        }  # fmt: skip
        values = self.model_dump(mode="json", include=fields)
        return blake3(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DatasetRegistry:
    """All registered datasets.

    Attributes:
        entries: In the order of the file, retired ones included.
        where: The file they come from, for messages.
    """

    entries: tuple[DatasetEntry, ...]
    where: str = "the registry"

    def keys(self) -> list[str]:
        """Return the keys of all datasets that are not retired, heaviest first, unknown sizes last."""
        active = [entry for entry in self.entries if not entry.retired]
        active.sort(key=lambda entry: -1 if entry.num_images is None else entry.num_images, reverse=True)
        return [entry.key for entry in active]

    def find(self, text: str) -> DatasetEntry | None:
        """Return the entry with this key, or else with this name; None where there is none.

        Raises:
            UserError: The entry is retired, or several share the name.
        """
        found = [entry for entry in self.entries if entry.key == text]
        found = found or [entry for entry in self.entries if entry.name == text]
        active = [entry for entry in found if not entry.retired]
        if len(active) > 1:
            keys = ", ".join(entry.key for entry in active)
            raise UserError(f"Dataset {text!r} is registered several times in {self.where}; choose a key: {keys}.")
        if found and not active:
            raise UserError(
                f"Dataset {text!r} is retired: its entry in {self.where} keeps its history, and it is no longer "
                "run. To run it again, remove `retired` there."
            )
        return active[0] if active else None

    def get(self, key_or_name: str) -> DatasetEntry:
        """Return the entry with this key or name; unknown and retired ones raise `UserError`."""
        entry = self.find(key_or_name)
        if entry is None:
            raise UserError(
                f"Dataset {key_or_name!r} is not registered in {self.where}.{self.closest(key_or_name)}"
            )
        return entry

    def closest(self, text: str) -> str:
        """Return a hint at the registered names that look most like `text`, or at some that there are."""
        names = [name for e in self.entries if not e.retired for name in dict.fromkeys((e.key, e.name))]
        known = self.keys()
        some = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        return did_you_mean(text, names) or f" Registered are: {some or 'none'}."

    def with_entry(self, entry: DatasetEntry) -> "DatasetRegistry":
        """Return this registry with `entry` in place of the one with the same key, or added."""
        others = tuple(e for e in self.entries if e.key.lower() != entry.key.lower())
        return replace(self, entries=(*others, entry))


def default_key(name: str) -> str:
    """Return the part of a dataset's name after the last `/`, with the collection in front for iNatAg.

    Characters that a key cannot hold become `-` and accents are dropped; where nothing is left, the key is
    made from a digest of the name.
    """
    collection = next((c.removesuffix("/") + "__" for c in _COLLECTIONS if name.startswith(c)), "")
    key = collection + name.rstrip("/").rpartition("/")[2]
    if is_key(key):
        return key
    plain = "".join(c for c in unicodedata.normalize("NFKD", key) if not unicodedata.combining(c))
    key = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-_")[:100]
    return key or f"dataset-{blake3(name.encode()).hexdigest()[:8]}"


def load_registry(path: Path | str | None = None) -> DatasetRegistry:
    """Read a registry file: `path`, else `$AGML_REGISTRY`, else the one that comes with the package.

    An entry's own values come before the file's `defaults`, and those before the defaults of `DatasetEntry`.
    Relative paths in the file start at the file's folder.

    Raises:
        UserError: Names the file and every entry that is wrong, and what is wrong with it.
    """
    file, named_by = find_file(path, "AGML_REGISTRY", SHIPPED)
    document = read_yaml(file, "dataset registry", "datasets", named_by)
    sections = ("defaults", "datasets")
    problems = [unknown_key(key, sections) for key in document if key not in sections]
    defaults = _read_defaults(document.get("defaults"), problems)
    items = document.get("datasets")
    if "datasets" not in document or not isinstance(items, list | None):
        problems.append("`datasets` must be a list of entries, each with a `name`")
    entries = []
    items = items if isinstance(items, list) else []
    for position, item in enumerate(items, start=1):
        entry = _read_entry(item, position, defaults, file.parent, problems)
        if entry is not None:
            entries.append(entry)
    problems += _collisions(entries)
    if problems:
        raise UserError(f"The dataset registry {file} is not valid:\n" + "\n".join(f"  {p}" for p in problems))
    _warn_of_ignored([document.get("defaults"), *items], file)
    return DatasetRegistry(tuple(entries), str(file))


def resolve_dataset(text: str, registry: DatasetRegistry, **overrides: Any) -> DatasetEntry:
    """Find what a user means by `--dataset`.

    A registered key or name comes first, then `iNatAg/...` and `iNatAg-mini/...`, an existing folder, and
    `owner/name` on the hub; these run without being registered.

    Args:
        text: What the user wrote.
        registry: Where it is looked up first.
        overrides: Fields of `DatasetEntry` that take the place of the registered ones; None means unchanged.

    Raises:
        UserError: It is none of these, is retired, or an override is not valid.
    """
    given = {field: value for field, value in overrides.items() if value is not None}
    registered = registry.find(text)
    if registered is not None:
        if given.get("label_col") and "compound_label_cols" not in given:
            given["compound_label_cols"] = ()  # else the label asked for would not be used
        values = registered.model_dump() | given
    elif _AGML_NAME.fullmatch(text):
        values = {"name": text, **given}
    elif text.strip() and os.path.isdir(folder := expand_path(text)):  # noqa: PTH112 - never raises
        folder = Path(os.path.abspath(folder))  # noqa: PTH100 - a link keeps its name
        _require_nameable(folder)
        values = {"name": folder.name, "path": folder, "source": _guess_source(folder), **given}
    elif _HUB_NAME.fullmatch(text):
        values = {"name": text, **given}
    else:
        raise UserError(
            f"Dataset {text!r} is neither registered in {registry.where}, nor `owner/name` on the hub, nor "
            f"`iNatAg/...`, nor an existing folder.{registry.closest(text)}"
        )
    try:
        entry = DatasetEntry.model_validate(values)
    except ValidationError as error:
        raise UserError(f"Dataset {text!r}: " + "; ".join(m for _, m in _messages(error))) from None
    if columns := _columns_without_use(given, entry):
        raise UserError(
            f"Dataset {text!r}: {columns} cannot be set: it has no columns, its folders are the classes. Leave "
            "that out."
        )
    if registered is None and (holder := _holder(entry.key, registry.entries)):
        raise UserError(
            f"Dataset {text!r} would be kept under the key {entry.key!r}, which belongs to the registered "
            f"{holder.name!r}. Run that one with `--dataset {holder.key}`, or register {text!r} with a `key` of "
            "its own."
        )
    return entry


def _guess_source(folder: Path) -> str:
    """Return `hf` for a saved dataset or Parquet files (without class folders, or in `data`), else `folder`."""
    if any((folder / file).is_file() for file in ("dataset_dict.json", "state.json")):
        return "hf"
    folders = {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    pattern = {frozenset(): "*.parquet", frozenset({"data"}): "data/*.parquet"}.get(frozenset(folders))
    return "hf" if pattern and any(folder.glob(pattern)) else "folder"


def _require_nameable(folder: Path) -> None:
    """Refuse a folder whose name cannot stand in a report."""
    if not folder.name:
        raise UserError(f"Dataset {str(folder)!r} is the root of the file system. Name the folder of a dataset.")
    try:
        f"{folder}{folder.resolve()}".encode()
    except UnicodeEncodeError:
        raise UserError(
            f"Dataset {str(folder)!r}: its path is no UTF-8 text, and could not be written into a report. Rename "
            "the folder; names of classes and files inside may stay as they are."
        ) from None


def _columns_without_use(given: Mapping[str, Any], entry: DatasetEntry) -> str:
    """Return the keys in `given` that name columns, where the source of `entry` has none."""
    if entry.source not in _WITHOUT_COLUMNS:
        return ""
    return ", ".join(f"`{key}`" for key in _COLUMNS if given.get(key))


def _read_defaults(value: Any, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        problems.append("`defaults` must be a mapping")
    if not isinstance(value, dict):
        return {}
    known = [field for field in DatasetEntry.model_fields if field not in _OF_ONE_ENTRY]
    for key in value:
        if key in _OF_ONE_ENTRY:
            problems.append(f"defaults: {key!r} belongs to an entry, not to all")
        elif key not in known and key not in _IGNORED:
            problems.append(f"defaults: {unknown_key(key, known)}")
    defaults = {key: value[key] for key in value if key in known}
    try:
        DatasetEntry.model_validate({**defaults, "name": "defaults", "path": "."})
    except ValidationError as error:
        # Said once, not for every entry.
        for field, message in _messages(error):
            problems.append(f"defaults: {message}")
            defaults.pop(field, None)
    return defaults


def _read_entry(
    item: Any, position: int, defaults: Mapping[str, Any], folder: Path, problems: list[str]
) -> DatasetEntry | None:
    name = item.get("name") if isinstance(item, dict) else None
    if not isinstance(name, str) or not name.strip():
        if not isinstance(item, dict):
            what = "must be a mapping with a `name`"
        else:
            what = (
                "has no `name`"
                if name is None or isinstance(name, str)
                else "`name` must be text; put it in quotes"
            )
        problems.append(f"entry {position}: {what}")
        return None
    where, known = f"entry {position} ({name!r})", DatasetEntry.model_fields
    problems += [f"{where}: {unknown_key(key, known)}" for key in item if key not in known and key not in _IGNORED]
    values = {**defaults, **{key: item[key] for key in item if key in known}}
    own = values.get("settings")
    if isinstance(own, dict):
        values["settings"] = {**(defaults.get("settings") or {}), **own}
    try:
        if isinstance(values.get("path"), str) and values["path"]:
            values["path"] = folder / expand_path(values["path"])
        entry = DatasetEntry.model_validate(values)
        own_columns = {key: item[key] for key in _COLUMNS if key in item and item[key] != defaults.get(key)}
        if columns := _columns_without_use(own_columns, entry):
            problems.append(f"{where}: {columns}: a dataset with `source: {entry.source}` has no columns")
        return entry
    except UserError as error:
        problems.append(f"{where}: `path`: {error.message}")
    except ValidationError as error:
        problems += [f"{where}: {message}" for _, message in _messages(error)]
    return None


def _messages(error: ValidationError) -> list[tuple[str, str]]:
    return complaints(error, DatasetEntry.model_fields)


def _holder(key: str, entries: Iterable[DatasetEntry]) -> DatasetEntry | None:
    return next((entry for entry in entries if entry.key.lower() == key.lower()), None)


def _collisions(entries: list[DatasetEntry]) -> list[str]:
    seen: dict[str, DatasetEntry] = {}
    problems = []
    for entry in entries:
        other = seen.setdefault(entry.key.lower(), entry)
        if other is not entry:
            problems.append(
                f"{other.name!r} and {entry.name!r} have the same key, {entry.key!r} (case does not count); set "
                "`key` on one of them"
            )
    return problems


def _warn_of_ignored(mappings: list[Any], file: Path) -> None:
    found = [key for mapping in mappings if isinstance(mapping, dict) for key in mapping if key in _IGNORED]
    for key in sorted(set(found)):
        logger.warning(
            "%s: `%s` is ignored (%d times). Sizes of jobs are set where jobs are launched.",
            file, key, found.count(key),
        )  # fmt: skip
