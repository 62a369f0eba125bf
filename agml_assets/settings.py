"""Everything that a user can set, with its default, and where it is looked up.

One flat, frozen, strictly typed model. What describes a dataset is in `registry`, not here.
"""

import json
import os
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from upath import UPath

from agml_assets.errors import UserError, did_you_mean

PLACES = (
    "AGML_RESULTS",
    "AGML_REGISTRY",
    "AGML_CONFIG",
    "AGML_MODELS",
    "AGML_TASKS",
    "AGML_TASK_DATA",
    "AGML_SUBMISSIONS",
    "AGML_AGENTS",
    "AGML_AGENT_TASKS",
    "AGML_BIOBENCH_RESULTS",
    "AGML_PERFORMANCE",
    "AGML_DATA_DIR",
    "AGML_SCRATCH",
)
"""Environment variables that name a file or folder; subprocesses, batches and Slurm jobs get them absolute."""

_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|(\w+))", re.ASCII)
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2  # a value is shown to be recognised; nested ones can be huge
_MODELS = {"embed_model", "backbone"}
_LOCAL = ("~", "$", "/", ".")  # how a model name starts that is a local path


class Settings(BaseModel):
    """Settings of a benchmark run; the first block has the keys and defaults of AgML's `config.json`.

    Attributes:
        split_seed: Seed of every split recipe, below 2**32 (scikit-learn's limit).
        train_ratio: Share of images in the training split, in (0, 1).
        val_ratio: Share of images in the validation split, in (0, 1); the rest is the test split.
        output_dir: Results root, unless an explicit argument or `$AGML_RESULTS` names another.
        embed_model: A `transformers` vision model (name or local path) or `efficientnet_lite0` (or 1, 2).
            Here and in `backbone`, `~` and `$VAR` in a local path are expanded.
        embed_batch_size: Images in one forward pass, of the embedder and of the reference trainer.
        near_dup_threshold: Cosine at or above which two images are near-duplicates, in (0, 1].
        faiss_ivf_threshold: Number of images from which an approximate IVF index is used;
            null means always exact.
        max_silhouette_samples: Images in the published, sampled silhouette.
        backbone: Reference model that is trained to measure difficulty.
        cartography_epochs: Epochs of the reference training.
        cartography_lr: Learning rate of the reference training.
        cv_folds: Folds of the out-of-fold probabilities.
        split_recipe: The split that metrics use: `hf`, `sklearn` or the dataset's own, `native`.
        embed_revision: Revision of the embedding model on the hub; null means its default branch.
        embed_precision: Floating-point type of the embedding model's forward pass.
        embed_shard_size: Images in one shard of embeddings; a killed run loses at most one shard.
        max_pairs: Near-duplicate pairs that are stored; those beyond are still counted and grouped.
        max_image_pixels: Images with more pixels are refused as decompression bombs.
        max_unreadable_pct: Percentage of unreadable images above which a run stops.
        decode_workers: Processes that decode images; null means one a core.
        train_image_size: Side in pixels to which the reference model's images are cropped and scaled.
        train_precision: Floating-point type of the reference model's forward pass: `float32`, `bfloat16` (mixed
            precision), or `auto`: float32 on the processor, mixed precision on a GPU.
        leak_safe: How leak-safe figures are made: `retrain` a second model on the grouped split; `subset`,
            the published test images that have no copy among the training images; or `off`.
        keep_pixels: Whether the decoded pixels stay on disk when their consumers are done.
        evaluation_split: How models are evaluated on a dataset: `leak_safe`, copies of an image never on both
            sides; or `published`, the split recipe.
        evaluation_probe: What is fitted on a model's features of a dataset; a task says it itself. `zero_shot`
            fits nothing and goes by the classes' names, `fine_tune` trains the model.
        evaluation_n_train: Training examples of an evaluation, drawn class-balanced; null means all.
        evaluation_seed: Seed of that draw and of the probe.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    split_seed: int = Field(42, ge=0, lt=2**32)
    train_ratio: float = Field(0.70, gt=0, lt=1)
    val_ratio: float = Field(0.15, gt=0, lt=1)
    output_dir: str = Field("./benchmark_results", min_length=1)
    embed_model: str = Field("facebook/dinov2-base", min_length=1)
    embed_batch_size: int = Field(64, ge=1)
    near_dup_threshold: float = Field(0.98, gt=0, le=1)
    faiss_ivf_threshold: int | None = Field(None, ge=1)
    max_silhouette_samples: int = Field(10_000, ge=2)
    backbone: str = Field("resnet18", min_length=1)
    cartography_epochs: int = Field(30, ge=1)
    cartography_lr: float = Field(1e-3, gt=0)
    cv_folds: int = Field(5, ge=2)

    split_recipe: Literal["hf", "sklearn", "native"] = "hf"
    embed_revision: str | None = None
    embed_precision: Literal["float32", "bfloat16", "float16"] = "float32"
    embed_shard_size: int = Field(1024, ge=1)
    max_pairs: int = Field(10_000_000, ge=0)
    max_image_pixels: int = Field(178_956_970, ge=1)
    max_unreadable_pct: float = Field(1.0, ge=0, le=100)
    decode_workers: int | None = Field(None, ge=1)
    train_image_size: int = Field(224, ge=32, le=224)
    train_precision: Literal["auto", "float32", "bfloat16"] = "auto"
    leak_safe: Literal["retrain", "subset", "off"] = "retrain"
    keep_pixels: bool = True
    evaluation_split: Literal["leak_safe", "published"] = "leak_safe"
    evaluation_probe: Literal[
        "linear", "logistic", "ridge", "knn", "simpleshot", "svm", "zero_shot", "fine_tune"
    ] = "logistic"
    evaluation_n_train: int | None = Field(None, ge=1)
    evaluation_seed: int = Field(17, ge=0, lt=2**32)

    @field_validator("leak_safe", mode="before")
    @classmethod
    def _take_yaml_at_its_word(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads a bare `off` as false

    @field_validator("embed_model", "backbone")
    @classmethod
    def _expand_local_path(cls, value: str) -> str:
        if not value.startswith(_LOCAL):
            return value
        try:
            return str(expand_path(value))
        except UserError as error:
            raise ValueError(error.message) from None

    @model_validator(mode="after")
    def _ratios_leave_a_test_split(self) -> "Settings":
        if self.train_ratio + self.val_ratio >= 1:
            raise ValueError("train_ratio + val_ratio must be below 1, so that a test split remains")
        return self

    @property
    def test_ratio(self) -> float:
        """Share of images in the test split, derived; in (0, 1)."""
        return round(1.0 - (self.train_ratio + self.val_ratio), 10)

    def used(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of these settings as an artifact remembers them.

        That of a local model folder is followed by a digest of its files' names, sizes and times: other weights
        in the same place are another model.
        """
        values = {name: getattr(self, name) for name in names}
        for name in _MODELS & values.keys():
            folder = Path(values[name])
            if folder.is_dir():
                values[name] += f" ({_state_of(folder)})"
        return values

    def override(self, overrides: Mapping[Any, Any], where: str) -> "Settings":
        """Return these settings with `overrides` applied; `where` names their origin in errors."""
        return parse_settings({**self.model_dump(), **overrides}, where) if overrides else self


def load_settings(path: Path | str | None = None) -> Settings:
    """Read the settings, or return the defaults where there is no settings file.

    The first that is given counts: `path`, `$AGML_CONFIG`, `benchmark/config.json` or `config.json` in the
    working directory.

    Raises:
        UserError: A named file is absent or holds no JSON object, a key is unknown, or a value is not valid.
    """
    named = path or os.environ.get("AGML_CONFIG")
    if named:
        return _read_settings(expand_path(str(named)), "" if path else ", named by $AGML_CONFIG,")
    for candidate in (Path("benchmark/config.json"), Path("config.json")):
        if candidate.is_file():
            return _read_settings(candidate.absolute(), "")
    return Settings()


def parse_settings(values: Mapping[Any, Any], where: str) -> Settings:
    """Validate `values`; raise `UserError` naming `where` and every bad key."""
    settings, problems = _validate(values)
    if settings is None or problems:
        raise UserError(f"Settings in {where} are not valid:\n" + "\n".join(f"  {p}" for p in problems))
    return settings


def setting_problems(values: Mapping[Any, Any]) -> list[str]:
    """Return what is wrong with `values` that are to override settings not known yet; one line a key."""
    return _validate(values, both_ratios={"train_ratio", "val_ratio"} <= values.keys())[1]


def unknown_key(key: object, known: Collection[str]) -> str:
    """Return the complaint about a key that is none of the `known` ones, with those that look like it."""
    hint = did_you_mean(str(key), known) or f" Known are {', '.join(known)}."
    return f"unknown key {key!r}.{hint}"


def results_root(explicit: str | Path | None, settings: Settings) -> UPath:
    """Return the results root: `explicit`, else `$AGML_RESULTS`, else the setting `output_dir`.

    Local paths are made absolute; other fsspec locations (`s3://...`, `memory://...`) stay as they are.

    Raises:
        UserError: A variable in it is not set, or no installed package knows its protocol.
    """
    if explicit:
        text, what = str(explicit), "results root"
    elif from_environment := os.environ.get("AGML_RESULTS"):
        text, what = from_environment, "results root in $AGML_RESULTS"
    else:
        text, what = settings.output_dir, "results root in the setting 'output_dir'"
    if "://" not in text:
        return UPath(expand_path(text, what).absolute())
    url = _expand_variables(text, what)
    refuse_password(url)
    try:
        root = UPath(url)
        _ = root.fs  # the driver of a protocol is imported when it is first needed
    except (ValueError, ImportError, OSError, EOFError) as error:
        raise UserError(f"The {what} {url!r} cannot be used: {error}.") from None
    return root


def refuse_password(root: str) -> None:
    """Raise `UserError` where the location of results holds a password."""
    before = root.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if ":" in before:
        raise UserError(
            "The results root holds a password, which every report would repeat. Leave it out, and set the "
            "credentials in the environment (for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)."
        )


def absolute_places(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those of `PLACES` that are set, absolute; locations of other file systems (`s3://...`) as they are.

    Raises:
        UserError: A variable in one of them is not set.
    """
    given = {name: environment[name] for name in PLACES if environment.get(name)}
    return {
        name: text if "://" in text else str(expand_path(text, f"path in ${name}").absolute())
        for name, text in given.items()
    }


def expand_path(text: str, what: str = "path") -> Path:
    """Return `text` as a path with `~` and `$VAR` expanded.

    Raises:
        UserError: A variable is not set or a user does not exist; `what` says what the path is for.
    """
    expanded = os.path.expanduser(_expand_variables(text, what))  # noqa: PTH111 - a variable may hold `~`
    if text.startswith("~") and expanded.startswith("~"):
        raise UserError(f"The {what} {text!r} names a home folder that does not exist.")
    return Path(expanded)


def _expand_variables(text: str, what: str) -> str:
    for braced, plain in _VARIABLE.findall(text):
        if (name := braced or plain) not in os.environ:
            raise UserError(f"The {what} {text!r} names the environment variable {name!r}, which is not set.")
    return os.path.expandvars(text)


def _state_of(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return blake3(json.dumps(facts).encode()).hexdigest()[:16]


def _validate(values: Mapping[Any, Any], both_ratios: bool = True) -> tuple[Settings | None, list[str]]:
    known = Settings.model_fields
    problems = [unknown_key(key, known) for key in values if key not in known]
    try:
        return Settings.model_validate({k: v for k, v in values.items() if k in known}), problems
    except ValidationError as error:
        for issue in error.errors():
            message = issue["msg"].removeprefix("Value error, ")
            if issue["loc"]:
                problems.append(f"{issue['loc'][0]!r}: {message} (got {_SHORT.repr(issue['input'])})")
            elif both_ratios:
                problems.append(message)
    return None, problems


def _read_settings(file: Path, named_by: str) -> Settings:
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_without_repetition)
    except FileNotFoundError:
        raise UserError(f"The settings file {file}{named_by} does not exist.") from None
    except OSError as error:
        raise UserError(f"The settings file {file}{named_by} cannot be read: {error.strerror}.") from None
    except json.JSONDecodeError as error:
        raise UserError(f"The settings file {file} is not JSON: line {error.lineno}: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"The settings file {file} is not valid: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f'The settings file {file} must hold one JSON object, such as {{"split_seed": 42}}.')
    return parse_settings(values, str(file))


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return values
