"""The dataset registry: what each entry may say, how it is read from YAML, and how a dataset is found by name.

Loads the `datasets.yaml` of AgML's benchmarking pipeline unchanged. Nothing here opens a dataset.
"""

import json
import logging
import os
import re
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml
from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agml_assets.errors import UserError, did_you_mean
from agml_assets.settings import Settings, expand_path

logger = logging.getLogger(__name__)

SHIPPED = Path(__file__).with_name("datasets.yaml")

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_INAT = ("iNatAg/", "iNatAg-mini/")
_IGNORED = frozenset({"time", "mem"})  # sizes for a batch system, in files of the existing pipeline
_PHASES = (1, 2, 3)


class DatasetEntry(BaseModel):
    """One dataset, and how it is read.

    Attributes:
        name: `owner/name` on the hub, an AgML name, or any name where `path` is given.
        key: Partition and folder name; derived from `name` where absent.
        source: `hf`, `agml`, `folder` or `sample`; derived from `name` and `path` where absent.
        path: Local folder or file that holds the data.
        revision: Revision on the hub; null means its default branch.
        hf_config_name: Configuration of a hub dataset that has several.
        label_col: Label column; null means the first ClassLabel column.
        image_col: Image column; null means the first Image column.
        compound_label_cols: Columns whose joined values are the label.
        metadata_cols: Columns that describe the images; null means every other column.
        native_splits: `all` reads every split of the source, `train` the training split alone, which gives
            the number of images of the published reports.
        phases: What is measured: 1 structure, 2 embeddings, 3 training.
        settings: Settings of this dataset that differ from those of the run.
        retired: Kept for its history, no longer run.
        num_images: About how many images there are; heavier datasets are run first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    key: str = ""
    source: Literal["hf", "agml", "folder", "sample"] = "hf"
    path: Path | None = None
    revision: str | None = None
    hf_config_name: str | None = None
    label_col: str | None = None
    image_col: str | None = None
    compound_label_cols: tuple[str, ...] = ()
    metadata_cols: tuple[str, ...] | None = None
    native_splits: Literal["all", "train"] = "all"
    phases: tuple[int, ...] = _PHASES
    settings: Mapping[str, Any] = Field(default_factory=dict)
    retired: bool = False
    num_images: int | None = Field(None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            return values
        values = dict(values)
        name = values["name"]
        if not values.get("source"):
            values["source"] = (
                "agml" if name.startswith(_INAT) else "folder" if values.get("path") else "hf"
            )
        if not values.get("key"):
            values["key"] = default_key(name)
        return values

    @field_validator("hf_config_name", "label_col", "image_col", "revision", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return None if value == "" else value

    @field_validator("phases", mode="before")
    @classmethod
    def _phases(cls, value: Any) -> Any:
        parts = value.split() if isinstance(value, str) else [value] if isinstance(value, int) else value
        if not isinstance(parts, Sequence) or not parts:
            raise ValueError("phases are numbers such as '1 2 3' or [1, 2]")
        if any(str(part) not in ("1", "2", "3") for part in parts):
            raise ValueError("phases are 1 (structure), 2 (embeddings) and 3 (training)")
        return tuple(sorted({int(part) for part in parts}))

    @field_validator("compound_label_cols", "metadata_cols", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        return value.split() if isinstance(value, str) else value

    @field_validator("compound_label_cols", mode="before")
    @classmethod
    def _no_columns(cls, value: Any) -> Any:
        return value or ()

    @field_validator("key")
    @classmethod
    def _key_is_safe(cls, value: str) -> str:
        if not _KEY.fullmatch(value):
            raise ValueError(
                f"key {value!r} must be 1 to 100 letters, digits, '_' or '-', and start with a letter or digit"
            )
        return value

    @field_validator("settings")
    @classmethod
    def _settings_are_known(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            Settings().override(dict(value), "settings")
        except UserError as error:
            raise ValueError(error.message.partition("\n")[2].strip()) from None
        return value

    @model_validator(mode="after")
    def _folder_has_a_path(self) -> "DatasetEntry":
        if self.source == "folder" and self.path is None:
            raise ValueError("a folder source needs `path`")
        return self

    def source_digest(self) -> str:
        """Return a short digest of everything here that says which images and labels are read."""
        fields = {
            "source", "name", "path", "revision", "hf_config_name", "label_col", "image_col",
            "compound_label_cols", "metadata_cols", "native_splits",
        }  # fmt: skip
        values = self.model_dump(mode="json", include=fields)
        return blake3(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


class DatasetRegistry(BaseModel):
    """All registered datasets.

    Attributes:
        entries: In the order of the file, retired ones included.
        where: The file they come from, for messages.
    """

    model_config = ConfigDict(frozen=True)

    entries: tuple[DatasetEntry, ...]
    where: str = "the registry"

    @cached_property
    def _by_name(self) -> dict[str, DatasetEntry]:
        return {n: e for e in self.entries for n in (e.name, e.key)}

    def keys(self) -> list[str]:
        """Return the keys of all datasets that are not retired, heaviest first, unknown sizes last."""
        active = [entry for entry in self.entries if not entry.retired]
        return [entry.key for entry in sorted(active, key=lambda entry: -(entry.num_images or 0))]

    def get(self, text: str) -> DatasetEntry:
        """Return the entry with this key or name; unknown and retired ones raise `UserError`."""
        entry = self._by_name.get(text)
        if entry is None:
            raise UserError(
                f"Dataset {text!r} is not in {self.where}."
                f"{did_you_mean(text, self._by_name)} Register it there, or check the spelling."
            )
        if entry.retired:
            raise UserError(f"Dataset {text!r} is retired in {self.where}; remove `retired` to run it.")
        return entry

    def with_entry(self, entry: DatasetEntry) -> "DatasetRegistry":
        """Return this registry with `entry` in place of the one with the same key, or added."""
        others = tuple(e for e in self.entries if e.key.lower() != entry.key.lower())
        return DatasetRegistry(entries=(*others, entry), where=self.where)


def default_key(name: str) -> str:
    """Return the part after the last `/`, with the collection in front for iNatAg, made safe for folders."""
    prefix = next((p.rstrip("/") + "__" for p in _INAT if name.startswith(p)), "")
    key = re.sub(r"[^A-Za-z0-9_-]+", "-", prefix + name.rstrip("/").rpartition("/")[2])
    return key.lstrip("_-")[:100]


def load_registry(path: Path | str | None = None) -> DatasetRegistry:
    """Read a registry file: `path`, else `$AGML_REGISTRY`, else the one that comes with the package.

    Raises:
        UserError: Names the file and every entry that is wrong, and what is wrong with it.
    """
    named = path or os.environ.get("AGML_REGISTRY")
    file = expand_path(str(named)).absolute() if named else SHIPPED
    document = _read_yaml(file)
    problems = [
        f"unknown key {key!r}.{did_you_mean(str(key), ('defaults', 'datasets'))}"
        for key in document
        if key not in ("defaults", "datasets")
    ]
    defaults = _mapping(document.get("defaults"), "defaults", problems)
    problems += _unknown(defaults, "defaults")
    items = document.get("datasets") or []
    if not isinstance(items, list):
        problems, items = [*problems, "`datasets` must be a list of entries"], []
    entries: list[DatasetEntry] = []
    for position, item in enumerate(items, start=1):
        entry = _parse_entry(item, position, defaults, file.parent, problems)
        if entry is not None:
            entries.append(entry)
    problems += _collisions(entries)
    if problems:
        raise UserError(
            f"The dataset registry {file} is not valid:\n" + "\n".join(f"  {p}" for p in problems)
        )
    return DatasetRegistry(entries=tuple(entries), where=str(file))


def resolve_dataset(text: str, registry: DatasetRegistry, **overrides: Any) -> DatasetEntry:
    """Find what a user means by `--dataset`: a registered key or name, `owner/name`, `iNatAg/...` or a folder.

    Args:
        text: What the user wrote.
        registry: Where it is looked up first.
        overrides: Fields of `DatasetEntry` that take the place of the registered ones; None means unchanged.

    Raises:
        UserError: It is none of these, or an override is not valid.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    if any(text in (entry.key, entry.name) for entry in registry.entries):
        values = registry.get(text).model_dump(exclude_unset=False) | given
    elif Path(text).expanduser().is_dir():
        folder = Path(text).expanduser().resolve()
        values = {"name": folder.name, "source": "folder", "path": folder, **given}
    elif text.startswith(_INAT) or re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        values = {"name": text, **given}
    else:
        known = [n for entry in registry.entries if not entry.retired for n in (entry.key, entry.name)]
        raise UserError(
            f"Dataset {text!r} is neither registered in {registry.where}, nor `owner/name` on the hub, nor "
            f"an existing folder.{did_you_mean(text, known)}"
        )
    try:
        return DatasetEntry.model_validate(values)
    except ValidationError as error:
        raise UserError(f"Dataset {text!r}: " + "; ".join(_messages(error))) from None


def _parse_entry(
    item: Any, position: int, defaults: Mapping[str, Any], folder: Path, problems: list[str]
) -> DatasetEntry | None:
    where = f"entry {position}"
    if not isinstance(item, dict):
        problems.append(f"{where}: must be a mapping with a `name`")
        return None
    if not isinstance(item.get("name"), str) or not item["name"].strip():
        problems.append(f"{where}: has no `name`")
        return None
    where = f"entry {position} ({item['name']!r})"
    unknown = _unknown(item, where)
    problems += unknown
    if dropped := sorted(_IGNORED & item.keys()):
        logger.warning("Registry %s: %s ignored.", where, ", ".join(f"`{key}`" for key in dropped))
    known = DatasetEntry.model_fields.keys()
    values = {k: v for k, v in {**defaults, **item}.items() if k in known}
    try:
        if values.get("path"):
            values["path"] = folder / expand_path(str(values["path"]))
        return DatasetEntry.model_validate(values)
    except UserError as error:
        problems.append(f"{where}: {error.message}")
    except ValidationError as error:
        problems += [f"{where}: {message}" for message in _messages(error)]
    return None


def _unknown(mapping: Mapping[Any, Any], where: str) -> list[str]:
    known = DatasetEntry.model_fields.keys()
    return [
        f"{where}: unknown key {key!r}.{did_you_mean(str(key), known)}"
        for key in mapping
        if key not in known and key not in _IGNORED
    ]


def _messages(error: ValidationError) -> list[str]:
    lines = []
    for issue in error.errors():
        field = ".".join(str(part) for part in issue["loc"])
        message = issue["msg"].removeprefix("Value error, ")
        lines.append(f"`{field}`: {message}" if field else message)
    return lines


def _collisions(entries: Sequence[DatasetEntry]) -> list[str]:
    seen: dict[str, DatasetEntry] = {}
    problems = []
    for entry in entries:
        other = seen.setdefault(entry.key.lower(), entry)
        if other is not entry:
            problems.append(
                f"{other.name!r} and {entry.name!r} have the same key {entry.key!r} (case does not count); "
                "set `key` on one of them"
            )
    return problems


def _mapping(value: Any, what: str, problems: list[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(f"`{what}` must be a mapping")
        return {}
    return value


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, which plain YAML loading silently overwrites."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506
    except FileNotFoundError:
        raise UserError(f"There is no dataset registry at {file}. Check $AGML_REGISTRY.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The dataset registry {file} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{file}{line}: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(document, dict):
        raise UserError(f"The dataset registry {file} must be a mapping with `datasets`.")
    return document
