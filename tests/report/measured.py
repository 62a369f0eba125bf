"""A small dataset with every artifact in its store, made by the plain functions from invented vectors."""

from pathlib import Path

import numpy as np
import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, IMAGE_STATISTICS, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.dataset.image_statistics import image_statistics
from agml_assets.dataset.source_identity import source_digest
from agml_assets.dataset.splits import make_splits
from agml_assets.embeddings.artifacts import (
    DUPLICATE_GROUPS,
    EMBEDDINGS,
    LABELS,
    NEIGHBORS,
    UMAP_3D,
    UMAP_PROJECTION,
)
from agml_assets.embeddings.duplicate_groups import duplicate_groups
from agml_assets.embeddings.neighbors import find_neighbors, from_arrays, to_arrays
from agml_assets.lineage import Artifact
from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from agml_assets.quality.metrics import METRICS
from agml_assets.quality.summary import MEASURED
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.training.artifacts import (
    DYNAMICS,
    GROUPED_SPLITS,
    NOISE_CALIBRATION,
    OUT_OF_FOLD,
    OUT_OF_FOLD_GROUPED,
    TEST_PREDICTIONS,
    TEST_PREDICTIONS_GROUPED,
)
from agml_assets.training.grouped_splits import grouped_splits
from agml_assets.training.noise_calibration import noise_calibration
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds
from agml_assets.workspace import DatasetWorkspace, making

N, CLASSES = 40, ("blight", "healthy", "rust")
LABELS_OF_ROWS = np.arange(N) % len(CLASSES)


def open_dataset(root: Path, settings: Settings | None = None, **entry) -> DatasetWorkspace:
    """Return the workspace of the dataset `beans`, of which nothing need be in the store."""
    registered = DatasetEntry(name="owner/beans", **entry)
    return DatasetWorkspace(registered, settings or Settings(), ArtifactStore(root))


def measure(dataset: DatasetWorkspace, *artifacts: Artifact) -> None:
    """Make these artifacts, or all, in order: forty images of three classes, the last a copy of the first."""
    for artifact in artifacts or tuple(MEASURED.values()):
        with making(dataset, artifact, "run 1") as work:
            given = {key: work.read(MEASURED[key]) for key in artifact.inputs}
            info = {"resolved": {"revision": "abc", "config": "default"}} if artifact == IMAGE_INDEX else {}
            source = source_digest(dataset.entry) if artifact.reads_source else None
            work.write(_make(artifact, given, dataset.settings), info=info, source_digest=source)


def _make(artifact: Artifact, given: dict, settings: Settings):
    made = {
        IMAGE_INDEX.key: _image_index,
        PIXEL_HASHES.key: _pixel_hashes,
        PIXELS.key: _pixels,
        IMAGE_STATISTICS.key: lambda: image_statistics(given[PIXELS.key]),
        SPLITS.key: lambda: _splits(given, settings),
        EMBEDDINGS.key: _embeddings,
        LABELS.key: lambda: LABELS_OF_ROWS,
        NEIGHBORS.key: lambda: to_arrays(
            find_neighbors(given[EMBEDDINGS.key], threshold=settings.near_dup_threshold, max_pairs=100)
        ),
        DUPLICATE_GROUPS.key: lambda: duplicate_groups(
            given[PIXEL_HASHES.key]["blake3_group"].to_numpy(), from_arrays(given[NEIGHBORS.key]).near_group
        ),
        UMAP_PROJECTION.key: list,
        UMAP_3D.key: list,
        GROUPED_SPLITS.key: lambda: grouped_splits(
            LABELS_OF_ROWS, given[DUPLICATE_GROUPS.key]["joined"].to_numpy(), len(CLASSES), settings
        ),
        DYNAMICS.key: lambda: _dynamics(_rows(given[SPLITS.key], settings.split_recipe, "train")),
        TEST_PREDICTIONS.key: lambda: _predictions(_rows(given[SPLITS.key], settings.split_recipe, "test")),
        TEST_PREDICTIONS_GROUPED.key: lambda: _predictions(_rows(given[GROUPED_SPLITS.key], "split", "test")),
        OUT_OF_FOLD.key: lambda: _out_of_fold(given, stratified_folds(LABELS_OF_ROWS, settings.cv_folds)),
        OUT_OF_FOLD_GROUPED.key: lambda: _out_of_fold(given, given[GROUPED_SPLITS.key]["fold"].to_numpy()),
        NOISE_CALIBRATION.key: lambda: noise_calibration(
            given[EMBEDDINGS.key],
            LABELS_OF_ROWS,
            given[DUPLICATE_GROUPS.key]["joined"].to_numpy(),
            given[GROUPED_SPLITS.key]["fold"].to_numpy(),
            len(CLASSES),
        ),
    }
    return made[artifact.key]() if artifact.key in made else compute_metric(artifact, given, settings)


def compute_metric(artifact: Artifact, given: dict, settings: Settings):
    """Return the value of a metric from its inputs by key."""
    metric = next(m for m in METRICS if METRIC_ARTIFACTS[m.name].key == artifact.key)
    arguments = {key.rpartition("/")[2]: value for key, value in given.items()}
    if "neighbors" in arguments:
        arguments["neighbors"] = from_arrays(arguments["neighbors"])
    return metric.compute(**arguments, **({"settings": settings} if metric.settings else {}))


def _splits(given: dict, settings: Settings) -> pl.DataFrame:
    index = given[IMAGE_INDEX.key].filter(pl.col("row").is_not_null())
    labels, native = index["label"].to_numpy(), index["native_split"].to_list()
    return make_splits(labels, native, settings)[0]


def _image_index() -> pl.DataFrame:
    # One image more than is usable: the source has N + 1.
    labels = [*(np.arange(N) % len(CLASSES)).tolist(), None]
    n = N + 1
    return pl.DataFrame(
        {
            "source_row": pl.Series(range(n), dtype=pl.Int64),
            "row": pl.Series([*range(N), None], dtype=pl.Int64),
            "excluded_reason": pl.Series([None] * N + ["no label"], dtype=pl.String),
            "file": [f"{i}.png" for i in range(n)],
            "label": pl.Series(labels, dtype=pl.Int64),
            "class_name": pl.Series([None if k is None else CLASSES[k] for k in labels], dtype=pl.Enum(CLASSES)),
            "native_split": pl.Series([None] * n, dtype=pl.String),
            "width": pl.Series(range(40, 40 + n), dtype=pl.Int32),
            "height": pl.Series([30] * n, dtype=pl.Int32),
            "mode": ["RGB"] * n,
            "format": ["PNG"] * n,
            "bytes": pl.Series([100] * n, dtype=pl.Int64),
            "exif_orientation": pl.Series([1] * n, dtype=pl.Int32),
            "frames": pl.Series([1] * n, dtype=pl.Int32),
            "transparent": [False] * n,
            "meta.field": pl.Series([f"f{i % 2}" for i in range(n)], dtype=pl.String),
        }
    )


def _pixel_hashes() -> pl.DataFrame:
    hashes = [f"{i:032x}" for i in range(N - 1)] + [f"{0:032x}"]
    group = pl.Series([*range(N - 1), 0], dtype=pl.Int64)
    rows = pl.Series(range(N), dtype=pl.Int64)
    return pl.DataFrame(
        {"row": rows, "md5_native": hashes, "blake3": hashes, "md5_group": group, "blake3_group": group}
    )


def _embeddings() -> np.ndarray:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, 16)) + 2 * np.eye(16)[np.arange(N) % len(CLASSES)]
    vectors[-1] = vectors[0]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _pixels() -> np.ndarray:
    noise = np.random.default_rng(1).integers(0, 256, size=(N, 8, 8, 3), dtype=np.uint8)
    return noise.repeat(32, axis=1).repeat(32, axis=2)


def _rows(splits: pl.DataFrame, column: str, part: str) -> np.ndarray:
    return splits.filter(pl.col(column) == part)["row"].to_numpy()


def _dynamics(rows: np.ndarray, epochs: int = 3) -> dict[str, np.ndarray]:
    true = np.random.default_rng(2).uniform(0.3, 0.9, size=(len(rows), epochs)).astype(np.float32)
    highest = np.maximum(true, 1 - true)
    return {"rows": rows, "true_train": true, "max_train": highest, "true_eval": true, "max_eval": highest}


def _predictions(rows: np.ndarray) -> dict[str, np.ndarray]:
    scores = np.random.default_rng(3).uniform(size=(len(rows), len(CLASSES))) + np.eye(3)[LABELS_OF_ROWS[rows]]
    return {"rows": rows, "probabilities": (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)}


def _out_of_fold(given: dict, folds: np.ndarray) -> np.ndarray:
    return out_of_fold(given[EMBEDDINGS.key], LABELS_OF_ROWS, folds, len(CLASSES))
