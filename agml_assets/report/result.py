"""`result.json` and `config_used.json`: the published schema and key order, our keys after the published ones."""

import platform
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from agml_assets.dataset.artifacts import IMAGE_INDEX, SPLITS
from agml_assets.embeddings.artifacts import EMBEDDINGS
from agml_assets.lineage import Artifact, Verdict
from agml_assets.quality.summary import (
    completed_phases,
    current_metrics,
    score_dataset,
)
from agml_assets.settings import Settings
from agml_assets.store import Sidecar
from agml_assets.workspace import DatasetWorkspace

_PUBLISHED_SETTINGS = (
    "split_seed", "train_ratio", "val_ratio", "output_dir", "embed_model", "embed_batch_size",
    "near_dup_threshold", "faiss_ivf_threshold", "max_silhouette_samples", "backbone", "cartography_epochs",
    "cartography_lr", "cv_folds",
)  # fmt: skip
_VERSIONS = (
    "agml-assets",
    "numpy",
    "pillow",
    "polars",
    "scikit-learn",
    "torch",
    "transformers",
    "umap-learn",
)


def today() -> date:
    """Return the date in UTC."""
    return datetime.now(UTC).date()


def build_result(
    dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict], clock: Callable[[], date] = today
) -> dict[str, Any]:
    """Return the report of a dataset from what is current in the store."""
    metrics, _ = current_metrics(dataset, verdicts)
    scored, _ = score_dataset(dataset, verdicts)
    breaches = scored.pop("breaches")
    return {
        "dataset": dataset.entry.name,
        "date": clock().isoformat(),
        "reproducibility": _reproducibility(dataset, verdicts),
        "phases_completed": completed_phases(dataset, verdicts),
        "metrics": metrics,
        "score": scored,
        "breaches": breaches,
    }


def build_config_used(dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Return every setting, the registry entry, and the state of every artifact of a dataset."""
    settings = dataset.settings.model_dump()
    published = {key: settings.pop(key) for key in _PUBLISHED_SETTINGS}
    states = {
        key: {"state": verdict.state, **({"reason": verdict.reason} if verdict.reason else {})}
        for key, verdict in verdicts.items()
    }
    return {
        **published,
        **settings,
        "dataset": dataset.entry.model_dump(mode="json"),
        "artifacts": states,
    }


def _reproducibility(dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    settings: Settings = dataset.settings
    facts: dict[str, Any] = {
        "split_seed": settings.split_seed,
        "train_ratio": settings.train_ratio,
        "val_ratio": settings.val_ratio,
        "test_ratio": settings.test_ratio,
        "embed_model": settings.embed_model,
        "near_dup_threshold": settings.near_dup_threshold,
        "backbone": settings.backbone,
        "cartography_epochs": settings.cartography_epochs,
        "cartography_lr": settings.cartography_lr,
        "cv_folds": settings.cv_folds,
        "split_recipe": settings.split_recipe,
        "max_silhouette_samples": settings.max_silhouette_samples,
        "faiss_ivf_threshold": settings.faiss_ivf_threshold,
    }
    index = _current(dataset, IMAGE_INDEX, verdicts)
    if index is not None:
        frame = dataset.read(IMAGE_INDEX)
        resolved = dict(index.info.get("resolved", {}))
        facts |= {
            "revision": resolved.pop("revision", None),
            "config": resolved.pop("config", None),
            "source": resolved,
            "decoder": index.info.get("decoder"),
            "source_images": frame.height,
            "num_images": int(frame["row"].count()),
            "num_classes": len(frame["class_name"].dtype.categories),
        }
    splits, embeddings = _current(dataset, SPLITS, verdicts), _current(dataset, EMBEDDINGS, verdicts)
    if splits is not None:
        facts |= {"split_digest": splits.digest, "split_fallbacks": splits.info.get("fallbacks", {})}
    if embeddings is not None:
        facts |= {
            "embedder": embeddings.info.get("embedder"),
            "device": embeddings.info.get("device"),
        }
    return {**facts, "versions": {"python": platform.python_version(), **_versions()}}


def _current(dataset: DatasetWorkspace, artifact: Artifact, verdicts: Mapping[str, Verdict]) -> Sidecar | None:
    """Return the sidecar of an artifact that the report may speak of: one that today's inputs would give."""
    return dataset.sidecar(artifact) if verdicts[artifact.key].state == "current" else None


def _versions() -> dict[str, str]:
    found = {}
    for package in _VERSIONS:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
