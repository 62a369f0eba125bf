"""A dataset of any labels, names and vectors, with every artifact in its store and its report; no model runs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, IMAGE_STATISTICS, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.dataset.image_index import usable_images
from agml_assets.dataset.source_identity import source_digest
from agml_assets.dataset.splits import make_splits
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS, LABELS, NEIGHBORS, UMAP_3D
from agml_assets.embeddings.artifacts import UMAP_PROJECTION as UMAP
from agml_assets.embeddings.duplicate_groups import duplicate_groups
from agml_assets.embeddings.neighbors import find_neighbors, from_arrays, to_arrays
from agml_assets.embeddings.umap_projection import umap_records
from agml_assets.lineage import Artifact
from agml_assets.quality.artifacts import SCORE
from agml_assets.quality.summary import MEASURED, asked_for, judge_dataset, score_dataset
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.report.files import write_report
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
from agml_assets.workspace import DatasetWorkspace, Making, making
from tests.report.measured import compute_metric

_EPOCHS = 3


@dataclass
class Faked:
    """An invented dataset.

    Attributes:
        labels: Class of each image.
        classes: Names of the classes.
        vectors: Embeddings, unit rows.
        pixel_group: Smallest row with the same pixels, of each image; by default all differ.
        name: Of the dataset.
        file: Pattern of the file names.
        columns: Further columns of the image index.
        calibrate: Whether label flips are fitted, which takes long.
    """

    labels: np.ndarray
    classes: tuple[str, ...]
    vectors: np.ndarray
    pixel_group: np.ndarray | None = None
    name: str = "owner/beans"
    file: str = "{row}.png"
    columns: dict[str, Any] = field(default_factory=dict)
    calibrate: bool = True

    def report(self, root: Path, phases: tuple[int, ...] = (1, 2, 3), **entry_values: Any) -> DatasetWorkspace:
        """Make every artifact that these phases ask for, then score and report; return where they are."""
        entry = DatasetEntry(name=self.name, phases=phases, **entry_values)
        dataset = DatasetWorkspace(entry, Settings(), ArtifactStore(root))
        for artifact in asked_for(dataset):
            with making(dataset, artifact, "run 1") as work:
                given = {key: work.read(MEASURED[key]) for key in artifact.inputs}
                source = source_digest(entry) if artifact.reads_source else None
                work.write(self._make(artifact, given, dataset.settings), source_digest=source)
        verdicts = judge_dataset(dataset)
        score, used = score_dataset(dataset, verdicts)
        scoring = Making(dataset, SCORE)
        scoring.inputs.update(used)
        scoring.write(score)
        for _ in write_report(dataset, verdicts):
            pass
        return dataset

    def _make(self, artifact: Artifact, given: dict[str, Any], settings: Settings) -> Any:
        made = {
            IMAGE_INDEX: lambda: self._index(),
            PIXEL_HASHES: lambda: self._hashes(),
            PIXELS: lambda: self._pixels(),
            IMAGE_STATISTICS: lambda: self._statistics(),
            SPLITS: lambda: make_splits(self.labels, [None] * len(self.labels), settings)[0],
            EMBEDDINGS: lambda: self.vectors,
            LABELS: lambda: self.labels,
            NEIGHBORS: lambda: to_arrays(
                find_neighbors(self.vectors, threshold=settings.near_dup_threshold, max_pairs=settings.max_pairs)
            ),
            DUPLICATE_GROUPS: lambda: duplicate_groups(
                given[PIXEL_HASHES.key]["blake3_group"].to_numpy(), from_arrays(given[NEIGHBORS.key]).near_group
            ),
            UMAP: lambda: self._points(given, 2),
            UMAP_3D: lambda: self._points(given, 3),
            GROUPED_SPLITS: lambda: grouped_splits(
                self.labels, given[DUPLICATE_GROUPS.key]["joined"].to_numpy(), len(self.classes), settings
            ),
            DYNAMICS: lambda: self._dynamics(given[SPLITS.key], settings.split_recipe),
            TEST_PREDICTIONS: lambda: self._predict(given[SPLITS.key], settings.split_recipe),
            TEST_PREDICTIONS_GROUPED: lambda: self._predict(given[GROUPED_SPLITS.key], "split"),
            OUT_OF_FOLD: lambda: self._probabilities(np.arange(len(self.labels))),
            OUT_OF_FOLD_GROUPED: lambda: self._probabilities(np.arange(len(self.labels))),
            NOISE_CALIBRATION: lambda: self._calibration(given),
        }
        return made[artifact]() if artifact in made else compute_metric(artifact, given, settings)

    def _index(self) -> pl.DataFrame:
        n = len(self.labels)
        rows = pl.Series(range(n), dtype=pl.Int64)
        frame = pl.DataFrame(
            {
                "source_row": rows,
                "row": rows,
                "excluded_reason": pl.Series([None] * n, dtype=pl.String),
                "file": [self.file.format(row=row) for row in range(n)],
                "label": pl.Series(self.labels, dtype=pl.Int64),
                "class_name": pl.Series(self.classes, dtype=pl.Enum(self.classes)).gather(self.labels),
                "native_split": pl.Series([None] * n, dtype=pl.String),
                "width": pl.Series([40] * n, dtype=pl.Int32),
                "height": pl.Series([30] * n, dtype=pl.Int32),
                "mode": ["RGB"] * n,
                "format": ["PNG"] * n,
                "bytes": pl.Series([100] * n, dtype=pl.Int64),
                "exif_orientation": pl.Series([1] * n, dtype=pl.Int32),
                "frames": pl.Series([1] * n, dtype=pl.Int32),
                "transparent": [False] * n,
            }
        )
        return frame.with_columns(pl.Series(name, values) for name, values in self.columns.items())

    def _hashes(self) -> pl.DataFrame:
        n = len(self.labels)
        group = np.arange(n) if self.pixel_group is None else self.pixel_group
        hashes = [f"{one:032x}" for one in group.tolist()]
        return pl.DataFrame(
            {
                "row": np.arange(n),
                "md5_native": hashes,
                "blake3": hashes,
                "md5_group": group,
                "blake3_group": group,
            }
        )

    def _pixels(self) -> np.ndarray:
        # Of many images, the same few pictures would do; what the report draws from them is tested elsewhere.
        return np.zeros((min(len(self.labels), 8), 256, 256, 3), np.uint8)

    def _statistics(self) -> pl.DataFrame:
        n, rng = len(self.labels), np.random.default_rng(1)
        names = ("brightness_mean", "brightness_std", "brightness_p5", "brightness_p99", "sharpness", "entropy")
        names += ("saturation_mean", "colourfulness", "red_mean", "green_mean", "blue_mean")
        values = {name: rng.uniform(0.4, 0.6, n) for name in names}
        return pl.DataFrame({"row": np.arange(n), **values, "is_grey": np.zeros(n, bool)})

    def _points(self, given: dict[str, Any], n_components: int) -> list[dict[str, Any]]:
        images = usable_images(given[IMAGE_INDEX.key])
        split = given[SPLITS.key]["hf"].to_list()
        points = np.zeros((len(self.labels), n_components), np.float32)
        points[:, : self.vectors.shape[1]] = self.vectors[:, :n_components]
        return umap_records(points, images["class_name"].to_list(), split, images["source_row"].to_list())

    def _probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return one class for certain more probable than all others; for every tenth image, not its own."""
        k = len(self.classes)
        values = np.full((len(rows), k), 0.5 / k, np.float32)
        values[np.arange(len(rows)), (self.labels[rows] + (rows % 10 == 9)) % k] += 0.5
        return values

    def _predict(self, splits: pl.DataFrame, column: str) -> dict[str, np.ndarray]:
        rows = splits.filter(pl.col(column) == "test")["row"].to_numpy()
        if len(np.unique(self.labels)) < 2:
            rows = rows[:0]
        return {"rows": rows, "probabilities": self._probabilities(rows)}

    def _dynamics(self, splits: pl.DataFrame, column: str) -> dict[str, np.ndarray]:
        rows = splits.filter(pl.col(column) == "train")["row"].to_numpy()
        epochs = _EPOCHS if len(np.unique(self.labels[rows])) >= 2 else 0
        true = np.random.default_rng(2).uniform(0.3, 0.9, size=(len(rows) * bool(epochs), epochs)).astype("f4")
        highest = np.maximum(true, 1 - true)
        rows = rows if epochs else rows[:0]
        return {"rows": rows, "true_train": true, "max_train": highest, "true_eval": true, "max_eval": highest}

    def _calibration(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self.calibrate:
            return {"skipped": True, "reason": "Not asked for."}
        return noise_calibration(
            self.vectors,
            self.labels,
            given[DUPLICATE_GROUPS.key]["joined"].to_numpy(),
            given[GROUPED_SPLITS.key]["fold"].to_numpy(),
            len(self.classes),
        )


def unit_vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Return random unit rows, float32."""
    vectors = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
