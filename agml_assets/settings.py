"""Everything that a user can set, with its default, and where it is looked up.

One flat, frozen, strictly typed model. What describes a dataset is in `registry`, not here.
"""

import json
import os
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from upath import UPath

from agml_assets.errors import UserError, did_you_mean


class Settings(BaseModel):
    """Settings of a benchmark run; the first block has the keys and defaults of AgML's `config.json`.

    Attributes:
        split_seed: Seed of every split recipe.
        train_ratio: Share of images in the training split, in (0, 1).
        val_ratio: Share of images in the validation split, in (0, 1); the rest is the test split.
        output_dir: Results root, unless an explicit argument or `$AGML_RESULTS` names another.
        embed_model: A `transformers` vision model (name or local path) or `efficientnet_lite0`.
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
        keep_pixels: Whether the decoded pixels stay on disk when their consumers are done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    split_seed: int = Field(42, ge=0)
    train_ratio: float = Field(0.70, gt=0, lt=1)
    val_ratio: float = Field(0.15, gt=0, lt=1)
    output_dir: str = "./benchmark_results"
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
    keep_pixels: bool = True

    @model_validator(mode="after")
    def _ratios_leave_a_test_split(self) -> "Settings":
        if self.train_ratio + self.val_ratio >= 1:
            raise ValueError("train_ratio + val_ratio must be below 1, so that a test split remains")
        return self

    @property
    def test_ratio(self) -> float:
        """Share of images in the test split, derived; in (0, 1)."""
        return round(1.0 - (self.train_ratio + self.val_ratio), 10)

    def override(self, overrides: dict[str, Any], where: str) -> "Settings":
        """Return these settings with `overrides` applied; `where` names their origin in errors."""
        return parse_settings({**self.model_dump(), **overrides}, where) if overrides else self

    def digest(self, keys: tuple[str, ...]) -> str:
        """Return a short content digest of the named settings (those that change an artifact)."""
        values = {key: getattr(self, key) for key in sorted(keys)}
        return blake3(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def parse_settings(values: dict[str, Any], where: str) -> Settings:
    """Validate `values`; raise `UserError` naming `where` and every bad key."""
    known = Settings.model_fields
    problems = [
        f"unknown key {key!r}.{did_you_mean(key, known)}" for key in values if key not in known
    ]
    try:
        settings = Settings.model_validate({k: v for k, v in values.items() if k in known})
    except ValidationError as error:
        for issue in error.errors():
            key = ".".join(str(part) for part in issue["loc"]) or "ratios"
            problems.append(f"{key!r}: {issue['msg']} (got {issue['input']!r})" if issue["loc"] else issue["msg"])
        raise UserError(_complain(where, problems)) from None
    if problems:
        raise UserError(_complain(where, problems))
    return settings


def _complain(where: str, problems: list[str]) -> str:
    return f"Settings in {where} are not valid:\n" + "\n".join(f"  {problem}" for problem in problems)


def expand_path(text: str) -> Path:
    """Return `text` as a path with `~` and `$VAR` expanded; an undefined variable is a `UserError`."""
    expanded = os.path.expandvars(os.path.expanduser(text))  # noqa: PTH111 - both must expand
    if "$" in expanded:
        raise UserError(f"The path {text!r} names an environment variable that is not set.")
    return Path(expanded)


def load_settings(path: Path | str | None = None) -> Settings:
    """Read the settings: from `path`, `$AGML_CONFIG`, `benchmark/config.json` or `config.json`, or defaults.

    Raises:
        UserError: A named file is absent or no JSON object, a key is unknown, or a value has the wrong type.
    """
    named = path or os.environ.get("AGML_CONFIG")
    if named:
        return _read_settings(expand_path(str(named)))
    for candidate in (Path("benchmark/config.json"), Path("config.json")):
        if candidate.is_file():
            return _read_settings(candidate)
    return Settings()


def _read_settings(file: Path) -> Settings:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The settings file {file} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise UserError(f"The settings file {file} is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f"The settings file {file} must hold one JSON object.")
    return parse_settings(values, str(file))


def results_root(explicit: str | Path | None, settings: Settings) -> UPath:
    """Return the results root: `explicit`, else `$AGML_RESULTS`, else the setting `output_dir`.

    Local paths are made absolute; other fsspec locations (`s3://...`, `memory://...`) stay as they are.
    """
    text = str(explicit or os.environ.get("AGML_RESULTS") or settings.output_dir)
    if "://" in text:
        return UPath(text)
    return UPath(expand_path(text).absolute())
