"""The model registry: what an entry may say, how it is read from YAML, how a model is found by name.

Nothing here loads a model; `agml_assets.evaluation.backbones` does.
"""

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.prompts import Prompts
from agml_assets.registry.yaml_files import complaints, find_file, read_yaml, require_key
from agml_assets.settings import unknown_key

SHIPPED = Path(__file__).with_name("models.yaml")

NO_PROVIDER = "none"
"""Provider of a model that nothing here can load; its entry says why, and published results can still name it."""

_OF_ONE_ENTRY = ("key", "checkpoint", "published_checkpoint")  # make no sense as a default for all


class ImageRule(BaseModel):
    """How a decoded image becomes a model's input, where the checkpoint's own rule cannot be used or is wrong.

    Attributes:
        resize: Pixels of the shortest side after a bicubic resize.
        crop: Pixels of the square cut from the centre, and the model's input.
        mean: Subtracted from each channel; of values in [0, 1].
        std: What each channel is then divided by; of values in [0, 1].
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    resize: int = Field(ge=1)
    crop: int = Field(ge=1)
    mean: tuple[float, float, float] = Field(strict=False)
    std: tuple[float, float, float] = Field(strict=False)

    @model_validator(mode="after")
    def _can_be_applied(self) -> Self:
        if self.crop > self.resize:
            raise ValueError(f"`crop` ({self.crop}) is larger than `resize` ({self.resize})")
        if not all(math.isfinite(value) for value in (*self.mean, *self.std)) or min(self.std) <= 0:
            raise ValueError("`mean` must be finite, `std` finite and above 0")
        return self


class ModelEntry(BaseModel):
    """One model, and how it is loaded.

    Attributes:
        key: Partition and folder name.
        provider: What loads it: `transformers`, `packaged`, `open_clip`, `timm`, the name of an installed entry
            point in the group `agml_assets.backbones`, or `none`, with a `reason`.
        checkpoint: What the provider is given.
        org: Who published the weights.
        revision: Revision on the hub; None means its default branch.
        display_name: For people; the key where absent.
        family: Models that belong together, such as `SigLIP2`; `other` where absent.
        parameters: Of the image tower; None where unknown.
        resolution: Side of the input in pixels; None where unknown.
        release_date: When the weights were published; None where unknown.
        precision: Of the multiplications of the forward pass; weights and vectors are float32.
        vector: How the one vector of an image is made. `features`: the model's own pooled or projected image
            features; `class_token`; `max_patches` and `mean_patches` over the patches; `class_token_or_max`: the
            class token, or the maximum over the patches where there is none.
        image: How images are resized and normalised; None means as the checkpoint says.
        drop_keys: Weights in a local file that are not read.
        published_checkpoint: Its name in the results file of BioBench, so that published rows find it.
        zero_shot: Whether it has a text tower.
        prompts: Of zero-shot evaluation, unless a dataset or task says its own; none means the usual two.
        reason: Why no provider loads it.
        retired: Kept for its history, no longer run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str
    provider: str = Field(min_length=1)
    checkpoint: str = Field(min_length=1)
    org: str = ""
    revision: str | None = None
    display_name: str = ""
    family: str = "other"
    parameters: int | None = Field(None, ge=1)
    resolution: int | None = Field(None, ge=1)
    release_date: datetime.date | None = None
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    vector: Literal["features", "class_token", "max_patches", "mean_patches", "class_token_or_max"] = "features"
    image: ImageRule | None = None
    drop_keys: tuple[str, ...] = Field((), strict=False)
    published_checkpoint: str | None = None
    zero_shot: bool = False
    prompts: Prompts = ()
    reason: str | None = None
    retired: bool = False

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_is_not_set(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        # Null and empty text mean: not set.
        values = {key: value for key, value in values.items() if value is not None and value != ""}
        values.setdefault("display_name", values.get("key", ""))
        return values

    @field_validator("key")
    @classmethod
    def _key_is_safe(cls, value: str) -> str:
        return require_key(value)

    @field_validator("drop_keys", mode="before")
    @classmethod
    def _drop_keys_are_a_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("must be a list")
        return value

    @model_validator(mode="after")
    def _reason_goes_with_no_provider(self) -> Self:
        if (self.provider == NO_PROVIDER) != (self.reason is not None):
            raise ValueError("`reason` says why the provider is none: give both or neither")
        for field in self._without_use():
            raise ValueError(f"`{field}` has no use with the provider {self.provider} and this checkpoint")
        if self.image is not None and self.resolution not in (None, self.image.crop):
            raise ValueError(f"`resolution` is {self.resolution}, but `image` makes {self.image.crop} pixels")
        if self.prompts and not self.zero_shot:
            raise ValueError("`prompts` have no use without `zero_shot: true`")
        return self

    def _without_use(self) -> list[str]:
        """Return the fields that are set and that the provider would not read; of others than ours, none."""
        from_hub, local = (self.checkpoint.startswith(prefix) for prefix in ("hf-hub:", "local:"))
        read = {
            "transformers": {"revision", "image"},
            "packaged": set(),
            "open_clip": {"revision"} if from_hub else {"drop_keys"} if local else set(),
            "timm": {"revision"} if from_hub else set(),
        }.get(self.provider, {"revision", "image", "drop_keys"})
        return [
            field for field in ("revision", "image", "drop_keys") if getattr(self, field) and field not in read
        ]


@dataclass(frozen=True)
class ModelRegistry:
    """All registered models.

    Attributes:
        entries: In the order of the file, retired ones and those without a provider included.
        where: The file they come from, for messages.
    """

    entries: tuple[ModelEntry, ...]
    where: str = "the registry"

    def keys(self) -> list[str]:
        """Return the keys of all models that can be run, largest first, unknown sizes last."""
        active = [entry for entry in self.entries if not entry.retired and entry.provider != NO_PROVIDER]
        active.sort(key=lambda entry: entry.parameters or 0, reverse=True)
        return [entry.key for entry in active]

    def find(self, text: str) -> ModelEntry | None:
        """Return the entry with this key, or else with this checkpoint or published name; None without one.

        Raises:
            UserError: The entry is retired, or several share the checkpoint.
        """
        found = [entry for entry in self.entries if entry.key == text]
        found = found or [
            entry for entry in self.entries if text in (entry.checkpoint, entry.published_checkpoint)
        ]
        active = [entry for entry in found if not entry.retired]
        if len(active) > 1:
            keys = ", ".join(entry.key for entry in active)
            raise UserError(f"Model {text!r} is registered several times in {self.where}; choose a key: {keys}.")
        if found and not active:
            raise UserError(
                f"Model {text!r} is retired: its entry in {self.where} keeps its history, and it is no longer "
                "run. To run it again, remove `retired` there."
            )
        return active[0] if active else None

    def get(self, key_or_checkpoint: str) -> ModelEntry:
        """Return the entry with this key or checkpoint; unknown and retired ones raise `UserError`."""
        entry = self.find(key_or_checkpoint)
        if entry is None:
            raise UserError(
                f"Model {key_or_checkpoint!r} is not registered in {self.where}.{self.closest(key_or_checkpoint)}"
            )
        return entry

    def closest(self, text: str) -> str:
        """Return a hint at the registered names that look most like `text`, or at some that there are."""
        names = [name for e in self.entries if not e.retired for name in dict.fromkeys((e.key, e.checkpoint))]
        known = self.keys()
        some = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        return did_you_mean(text, names) or f" Registered are: {some or 'none'}."

    def published(self) -> dict[str, ModelEntry]:
        """Return the entry of every name in the published results file, retired ones included."""
        return {entry.published_checkpoint: entry for entry in self.entries if entry.published_checkpoint}


def load_models(path: Path | str | None = None) -> ModelRegistry:
    """Read a model registry: `path`, else `$AGML_MODELS`, else the one that comes with the package.

    An entry's own values come before the file's `defaults`, and those before the defaults of `ModelEntry`.

    Raises:
        UserError: Names the file and every entry that is wrong, and what is wrong with it.
    """
    file, named_by = find_file(path, "AGML_MODELS", SHIPPED)
    document = read_yaml(file, "model registry", "models", named_by)
    sections = ("defaults", "models")
    problems = [unknown_key(key, sections) for key in document if key not in sections]
    defaults = _read_defaults(document.get("defaults"), problems)
    items = document.get("models")
    if "models" not in document or not isinstance(items, list | None):
        problems.append("`models` must be a list of entries, each with a `key`")
    entries = []
    for position, item in enumerate(items if isinstance(items, list) else [], start=1):
        entry = _read_entry(item, position, defaults, problems)
        if entry is not None:
            entries.append(entry)
    problems += _collisions(entries)
    if problems:
        raise UserError(f"The model registry {file} is not valid:\n" + "\n".join(f"  {p}" for p in problems))
    return ModelRegistry(tuple(entries), str(file))


def _read_defaults(value: Any, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        problems.append("`defaults` must be a mapping")
    defaults = dict(value) if isinstance(value, dict) else {}
    known = [field for field in ModelEntry.model_fields if field not in _OF_ONE_ENTRY]
    for key in list(defaults):
        if key in _OF_ONE_ENTRY:
            problems.append(f"defaults: {key!r} belongs to an entry, not to all")
        elif key not in known:
            problems.append(f"defaults: {unknown_key(key, known)}")
        if key not in known:
            del defaults[key]
    try:
        ModelEntry.model_validate({"provider": "any", **defaults, "key": "defaults", "checkpoint": "any"})
    except ValidationError as error:
        # Said once, not for every entry.
        for field, message in complaints(error, ModelEntry.model_fields):
            problems.append(f"defaults: {message}")
            defaults.pop(field, None)
    return defaults


def _read_entry(item: Any, position: int, defaults: dict[str, Any], problems: list[str]) -> ModelEntry | None:
    key = item.get("key") if isinstance(item, dict) else None
    if not isinstance(key, str) or not key.strip():
        if not isinstance(item, dict):
            what = "must be a mapping with a `key`"
        else:
            what = "has no `key`" if key is None or key == "" else "`key` must be text; put it in quotes"
        problems.append(f"entry {position}: {what}")
        return None
    try:
        return ModelEntry.model_validate({**defaults, **item})
    except ValidationError as error:
        where = f"entry {position} ({key!r})"
        problems += [f"{where}: {message}" for _, message in complaints(error, ModelEntry.model_fields)]
    return None


def _collisions(entries: Iterable[ModelEntry]) -> list[str]:
    keys: dict[str, ModelEntry] = {}
    published: dict[str, ModelEntry] = {}
    problems = []
    for entry in entries:
        other = keys.setdefault(entry.key.lower(), entry)
        if other is not entry:
            problems.append(
                f"{other.checkpoint!r} and {entry.checkpoint!r} have the same key, {entry.key!r} (case does not "
                "count); rename one of them"
            )
        name = entry.published_checkpoint
        if name is not None and (other := published.setdefault(name, entry)) is not entry:
            problems.append(f"{other.key!r} and {entry.key!r} have the same `published_checkpoint`, {name!r}")
    return problems
