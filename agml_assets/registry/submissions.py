"""The registry of submissions: embeddings whose content is measured, their phases and their tasks.

Nothing here opens a file of embeddings, and nothing here computes a score.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.registry.yaml_files import (
    absolute_path,
    complaints,
    find_file,
    is_key,
    read_entries,
    read_yaml,
    require_key,
)
from agml_assets.settings import expand_path

SHIPPED = Path(__file__).with_name("submissions.yaml")

DIGITS = "digits"
"""Embeddings that need no file: the 64 pixels of scikit-learn's handwritten digits."""

_PATHS = ("file", "ids", "tasks", "exclude")


class Compression(BaseModel):
    """How embeddings are made smaller, see `compression.codecs.compress`.

    Attributes:
        method: Name of the method.
        size: Values or codes that are kept.
        seed: Of what is drawn.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    method: Literal["none", "truncation", "pca", "random_projection", "product_quantisation"]
    size: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)


class SubmissionEntry(BaseModel):
    """One submission: embeddings, and the tasks that tell what is in them.

    Attributes:
        key: Partition and folder name; unique ignoring case.
        display_name: Name for people.
        phase: Submissions of one phase are compared; they share their tasks.
        file: CSV, Parquet or .npy file of embeddings, absolute.
        ids: Text file with an id a line, for a .npy file; None means `<file's stem>.ids.txt` beside it.
        embeddings: In place of a file: `digits`, or the key of a dataset whose embeddings are in the store.
        compress: What is done to them first.
        tasks: Folder with a label file for each task; None where `embeddings` bring their own.
        exclude: Text file with ids that are left out, one a line.
        bytes_per_embedding: What one takes as stored; None means 4 a value, or what `compress` says.
        block_km: Side of the blocks, in kilometres, that never straddle folds, where label files have `latitude`
            and `longitude` and no `group`; None means that places play no part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    key: str
    display_name: str = ""
    phase: str
    file: Path | None = Field(None, strict=False)
    ids: Path | None = Field(None, strict=False)
    embeddings: str | None = None
    compress: Compression = Compression(method="none")
    tasks: Path | None = Field(None, strict=False)
    exclude: Path | None = Field(None, strict=False)
    bytes_per_embedding: float | None = Field(None, gt=0)
    block_km: float | None = Field(None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _derive_name(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("key"), str):
            return {"display_name": values["key"], **values}
        return values

    @field_validator("key", "phase")
    @classmethod
    def _key_is_safe(cls, value: str) -> str:
        return require_key(value)

    @field_validator("embeddings")
    @classmethod
    def _embeddings_are_named_by_a_key(cls, value: str | None) -> str | None:
        if value is not None and not is_key(value):
            raise ValueError(f"{value!r} is neither {DIGITS!r} nor the key of a dataset")
        return value

    @field_validator(*_PATHS)
    @classmethod
    def _path_is_absolute(cls, value: Path | None) -> Path | None:
        return absolute_path(value)

    @model_validator(mode="after")
    def _one_source_of_embeddings(self) -> "SubmissionEntry":
        if (self.file is None) == (self.embeddings is None):
            raise ValueError("give either `file`, or `embeddings`")
        if self.file is not None and self.tasks is None:
            raise ValueError("a `file` needs `tasks`, the folder of its label files")
        if self.ids is not None and self.file is None:
            raise ValueError("`ids` goes with `file`")
        return self


@dataclass(frozen=True)
class SubmissionRegistry:
    """All registered submissions.

    Attributes:
        entries: In the order of the file.
        where: The file they come from, for messages.
    """

    entries: tuple[SubmissionEntry, ...]
    where: str = "the registry of submissions"

    def keys(self) -> list[str]:
        """Return the keys of all submissions, in order."""
        return [entry.key for entry in self.entries]

    def phases(self) -> dict[str, list[SubmissionEntry]]:
        """Return the submissions of each phase, in order."""
        found: dict[str, list[SubmissionEntry]] = {}
        for entry in self.entries:
            found.setdefault(entry.phase, []).append(entry)
        return found

    def get(self, key: str) -> SubmissionEntry:
        """Return the submission with this key; an unknown one raises `UserError` naming those like it."""
        found = next((entry for entry in self.entries if entry.key == key), None)
        if found is None:
            hint = did_you_mean(key, self.keys()) or f" Registered are: {', '.join(self.keys()) or 'none'}."
            raise UserError(f"Submission {key!r} is not registered in {self.where}.{hint}")
        return found


def load_submissions(path: Path | str | None = None) -> SubmissionRegistry:
    """Read the registry of submissions: `path`, else `$AGML_SUBMISSIONS`, else the one of the package.

    Relative paths in the file start at the file's folder.

    Raises:
        UserError: Names the file and every entry that is wrong, and what is wrong with it.
    """
    file, named_by = find_file(path, "AGML_SUBMISSIONS", SHIPPED)
    document = read_yaml(file, "registry of submissions", "submissions", named_by)
    problems: list[str] = []
    entries = read_entries(
        document, "submissions", lambda item, where, told: _read_entry(item, where, file.parent, told), problems
    )
    if problems:
        raise UserError(
            f"The registry of submissions {file} is not valid:\n" + "\n".join(f"  {p}" for p in problems)
        )
    return SubmissionRegistry(tuple(entries), str(file))


def check_keys_are_no_datasets(submissions: SubmissionRegistry, datasets: DatasetRegistry) -> None:
    """Raise `UserError` naming every submission whose key a dataset has as well (case does not count).

    A run knows what it works on by the key of its partition alone: it would hold, clear up and report the dataset.
    """
    of_datasets = {entry.key.lower() for entry in datasets.entries}
    clashes = [entry.key for entry in submissions.entries if entry.key.lower() in of_datasets]
    if clashes:
        raise UserError(
            f"Keys that both a submission of {submissions.where} and a dataset of {datasets.where} have: "
            f"{', '.join(clashes)} (case does not count). Give the submissions another `key`."
        )


def _read_entry(item: Any, where: str, folder: Path, problems: list[str]) -> SubmissionEntry | None:
    if not isinstance(item, Mapping):
        problems.append(f"{where}: must be a mapping with a `key`")
        return None
    if isinstance(item.get("key"), str):
        where = f"{where} ({item['key']!r})"
    values = dict(item)
    try:
        for name in _PATHS:
            if isinstance(values.get(name), str) and values[name]:
                values[name] = folder / expand_path(values[name])
        return SubmissionEntry.model_validate(values)
    except UserError as error:
        problems.append(f"{where}: {error.message}")
    except ValidationError as error:
        problems += [f"{where}: {sentence}" for _, sentence in complaints(error, SubmissionEntry.model_fields)]
    return None
