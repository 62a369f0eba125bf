"""The task registry: published evaluation tasks and the user's own, how each is read, probed and scored.

Nothing here opens a task's data, and nothing here computes a score.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.registry.prompts import ClassNames, Prompts
from agml_assets.registry.yaml_files import (
    absolute_path,
    find_file,
    key_collisions,
    read_entries,
    read_yaml,
    require_key,
)
from agml_assets.settings import expand_path, unknown_key

SHIPPED = Path(__file__).with_name("tasks.yaml")

PLUGINS = "agml_assets.tasks"
"""Entry-point group of installed tasks: each names a module with `ENTRY` and `read`."""

_HEX = {"md5": re.compile(r"[0-9a-f]{32}"), "sha256": re.compile(r"[0-9a-f]{64}")}

Probe = Literal["linear", "logistic", "ridge", "knn", "simpleshot_open_set", "svm", "multi_label"]
Metric = Literal["macro_f1", "accuracy", "user_loss", "trait_f1"]


class DownloadFile(BaseModel):
    """One file of a task's data that can be fetched without an account.

    Attributes:
        url: Where it is; several are joined in this order into the one file.
        file: Its name below the task's folder.
        unpack: Folder below the task's folder into which the archive is unpacked; None keeps the file as it is.
        md5: Published MD5 of the whole file, hexadecimal; None where none is published.
        sha256: Published SHA-256 of the whole file, hexadecimal; None where none is published.
        bytes: Published size; None where it is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    url: tuple[str, ...] = Field(min_length=1)
    file: str = Field(min_length=1)
    unpack: str | None = None
    md5: str | None = None
    sha256: str | None = None
    bytes: int | None = Field(None, ge=1)

    @field_validator("url", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _addresses_are_web_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            if not address.startswith(("https://", "http://")):
                raise ValueError(f"{address!r} must begin with https:// or http://")
        return value

    @field_validator("file", "unpack")
    @classmethod
    def _stays_below_the_folder(cls, value: str | None) -> str | None:
        parts = PurePosixPath(value or ".").parts
        if value is not None and (value.startswith("/") or ".." in parts or "\\" in value or "\0" in value):
            raise ValueError(f"{value!r} must be a relative path that stays below the task's folder")
        return value

    @field_validator("md5", "sha256")
    @classmethod
    def _checksum_is_hexadecimal(cls, value: str | None, info: Any) -> str | None:
        if value is not None and not _HEX[info.field_name].fullmatch(value):
            raise ValueError(f"{value!r} is no {info.field_name} in lower-case hexadecimal")
        return value


class Download(BaseModel):
    """How a task's data come to the disk.

    Attributes:
        files: What can be fetched by itself.
        instructions: What a person has to do besides: accounts, conditions, preparation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    files: tuple[DownloadFile, ...] = ()
    instructions: str = ""

    @field_validator("files", mode="before")
    @classmethod
    def _files_are_a_list(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


class TaskEntry(BaseModel):
    """One task: where its images are, what is predicted from their vectors, and how that is scored.

    Attributes:
        key: Partition and folder name; unique ignoring case, also among the datasets.
        display_name: Name for people.
        reader: Name of the reader: one of `agml_assets.evaluation.tasks`, or an installed task's.
        path: Folder that holds the data, absolute; None means `$AGML_TASK_DATA/<key>`.
        kingdom: `animal`, `plant`, `fungi`, `protist` or `several`; None where the task is not about organisms.
        modality: How the images were taken, such as `camera trap`.
        probe: Classifier that is fitted on the vectors.
        metric: Score of its predictions, in [0, 1], higher is better.
        aggregate: How the vectors of one example's images become one vector; None where each has one image.
        counts_in_mean: Whether the score enters the mean over tasks; false for prior work.
        download: How the data come to the disk.
        n_train: Published number of training examples; None where it is not published.
        n_test: Published number of test examples, of all examples where each is left out in turn; or None.
        n_classes: Published number of classes, traits for multi-label tasks; or None.
        size_gb: About how large the download is, in 10^9 bytes; or None.
        class_name_overrides: Of zero-shot evaluation: name of a class, and the name that prompts show.
        prompts: Of zero-shot evaluation; none means the model's.
        licence: Licence of the data as its source states it; None where the source must be asked.
        homepage: Page of the data.
        citation: What to cite.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    key: str
    display_name: str = ""
    reader: str = ""
    path: Path | None = Field(None, strict=False)
    kingdom: Literal["animal", "plant", "fungi", "protist", "several"] | None = None
    modality: str = Field(min_length=1)
    probe: Probe = "linear"
    metric: Metric = "macro_f1"
    aggregate: Literal["mean", "max"] | None = None
    counts_in_mean: bool = True
    download: Download = Download()
    n_train: int | None = Field(None, ge=0)
    n_test: int | None = Field(None, ge=0)
    n_classes: int | None = Field(None, ge=1)
    size_gb: float | None = Field(None, ge=0)
    class_name_overrides: ClassNames = Field(default_factory=dict)
    prompts: Prompts = ()
    licence: str | None = None
    homepage: str | None = None
    citation: str = ""

    @model_validator(mode="before")
    @classmethod
    def _derive_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        key = values.get("key")
        if isinstance(key, str):
            return {"display_name": key, "reader": key, **values}
        return values

    @field_validator("key")
    @classmethod
    def _key_is_safe(cls, value: str) -> str:
        return require_key(value)

    @field_validator("path")
    @classmethod
    def _path_is_absolute(cls, value: Path | None) -> Path | None:
        return absolute_path(value)

    def root(self) -> Path:
        """Return the folder of the task's data: `path`, else `$AGML_TASK_DATA/<key>`; it need not exist.

        Raises:
            UserError: Neither is set.
        """
        if self.path is not None:
            return self.path
        if not (data := os.environ.get("AGML_TASK_DATA")):
            raise UserError(
                f"Task {self.key!r}: where its data are is not set. Let AGML_TASK_DATA name the folder that holds "
                f"a folder {self.key!r}, or set `path` of the task in a file that AGML_TASKS names."
            )
        return expand_path(data, "folder in $AGML_TASK_DATA").absolute() / self.key


@dataclass(frozen=True)
class TaskRegistry:
    """All registered tasks.

    Attributes:
        entries: In the order of the file, installed ones behind.
        where: The file they come from, for messages.
    """

    entries: tuple[TaskEntry, ...]
    where: str = "the task registry"

    def keys(self) -> list[str]:
        """Return the keys of all tasks, in order."""
        return [entry.key for entry in self.entries]

    def find(self, key: str) -> TaskEntry | None:
        """Return the task with this key, or None."""
        return next((entry for entry in self.entries if entry.key == key), None)

    def get(self, key: str) -> TaskEntry:
        """Return the task with this key; an unknown one raises `UserError` naming those that look like it."""
        entry = self.find(key)
        if entry is None:
            hint = did_you_mean(key, self.keys()) or f" Registered are: {', '.join(self.keys()) or 'none'}."
            raise UserError(f"Task {key!r} is not registered in {self.where}.{hint}")
        return entry


def load_tasks(path: Path | str | None = None) -> TaskRegistry:
    """Read the task registry: `path`, else `$AGML_TASKS`, else the one that comes with the package.

    Tasks of installed packages (entry points of the group `agml_assets.tasks`) are added to it; a file's entry
    comes before an installed one of the same key. Relative paths in the file start at the file's folder.

    Raises:
        UserError: Names the file and every entry that is wrong, and what is wrong with it.
    """
    file, named_by = find_file(path, "AGML_TASKS", SHIPPED)
    document = read_yaml(file, "task registry", "tasks", named_by)
    problems: list[str] = []
    entries = read_entries(
        document, "tasks", lambda item, where, told: _read_entry(item, where, file.parent, told), problems
    )
    if problems:
        raise UserError(f"The task registry {file} is not valid:\n" + "\n".join(f"  {p}" for p in problems))
    taken = {entry.key.lower() for entry in entries}
    installed = [entry for entry in _installed_entries() if entry.key.lower() not in taken]
    if problems := key_collisions(installed, "tasks"):
        raise UserError("Installed tasks clash:\n" + "\n".join(f"  {p}" for p in problems))
    return TaskRegistry((*entries, *installed), str(file))


def check_keys_are_unique(tasks: TaskRegistry, datasets: DatasetRegistry) -> None:
    """Raise `UserError` naming every task whose key a dataset has as well (case does not count).

    Both are partitions of the same evaluation, so one key must mean one thing. Retired datasets count: their
    artifacts are kept under their keys.
    """
    of_datasets = {entry.key.lower(): entry for entry in datasets.entries}
    clashes = [task.key for task in tasks.entries if task.key.lower() in of_datasets]
    if clashes:
        raise UserError(
            f"Keys that both a task of {tasks.where} and a dataset of {datasets.where} have: "
            f"{', '.join(clashes)} (case does not count). Give one of them another `key`."
        )


def plugin_named(name: str) -> EntryPoint | None:
    """Return the installed task of this name, or None."""
    return next((point for point in entry_points(group=PLUGINS) if point.name == name), None)


def load_plugin(point: EntryPoint) -> Any:
    """Import the module of an installed task.

    Raises:
        UserError: It cannot be imported, or holds no `ENTRY` or no `read`.
    """
    origin = f" of the package {point.dist.name}" if point.dist else ""
    where = f"The installed task {point.name!r}{origin} ({point.value})"
    try:
        module = point.load()
    except Exception as error:
        # Whatever the user's code raises when it is imported.
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{where} cannot be imported: {reason}. Mend or uninstall it.") from error
    missing = [name for name in ("ENTRY", "read") if not hasattr(module, name)]
    if missing or not callable(module.read):
        raise UserError(
            f"{where} must be a module with `ENTRY`, a mapping as in tasks.yaml, and `read(entry, root)`; "
            f"{' and '.join(missing) or '`read`'} {'is' if len(missing) < 2 else 'are'} missing or no function."
        )
    return module


def _installed_entries() -> list[TaskEntry]:
    entries = []
    for point in sorted(entry_points(group=PLUGINS), key=lambda point: point.name):
        values = load_plugin(point).ENTRY
        if isinstance(values, TaskEntry):
            entries.append(values)
            continue
        problems: list[str] = []
        if isinstance(values, Mapping):
            values = {"reader": point.name, **values}
        entry = _read_entry(values, f"installed task {point.name!r} ({point.value})", Path.cwd(), problems)
        if entry is None or problems:
            raise UserError("An installed task is not valid:\n" + "\n".join(f"  {p}" for p in problems))
        entries.append(entry)
    return entries


def _read_entry(item: Any, where: str, folder: Path, problems: list[str]) -> TaskEntry | None:
    if not isinstance(item, Mapping):
        problems.append(f"{where}: must be a mapping with a `key`")
        return None
    if isinstance(item.get("key"), str):
        where = f"{where} ({item['key']!r})"
    values = dict(item)
    try:
        if isinstance(values.get("path"), str) and values["path"]:
            values["path"] = folder / expand_path(values["path"])
        return TaskEntry.model_validate(values)
    except UserError as error:
        problems.append(f"{where}: `path`: {error.message}")
    except ValidationError as error:
        problems += [f"{where}: {_sentence(issue)}" for issue in error.errors()]
    return None


def _sentence(issue: Any) -> str:
    parts = [str(part) for part in issue["loc"]]
    if issue["type"] == "extra_forbidden":
        inside: dict[str, type[BaseModel]] = {"download": Download, "files": DownloadFile}
        model: type[BaseModel] = next((inside[part] for part in reversed(parts[:-1]) if part in inside), TaskEntry)
        return unknown_key(parts[-1], model.model_fields)
    message = issue["msg"].removeprefix("Value error, ")
    if issue["type"] == "missing":
        message = "is missing"
    elif issue["type"] == "string_type":
        message = "must be text; put the value in quotes"
    return f"`{'.'.join(parts)}`: {message}" if parts else message
