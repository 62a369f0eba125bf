"""The table of metrics: what each reads, which settings change it, and its headline numbers.

A new metric is a module with a pure function and an entry here; nothing else changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agml_assets.quality.class_confusability import class_confusability
from agml_assets.quality.class_imbalance import class_imbalance
from agml_assets.quality.dataset_cartography import dataset_cartography
from agml_assets.quality.exact_duplicate import exact_duplicate
from agml_assets.quality.feature_separability import feature_separability
from agml_assets.quality.image_health import image_health
from agml_assets.quality.intra_class_diversity import intra_class_diversity
from agml_assets.quality.label_noise import label_noise
from agml_assets.quality.leakage import leakage
from agml_assets.quality.metadata_coverage import metadata_coverage
from agml_assets.quality.near_duplicate import near_duplicate
from agml_assets.quality.resolution_consistency import resolution_consistency


@dataclass(frozen=True)
class Metric:
    """One metric of a dataset.

    Attributes:
        name: Key under `metrics` in the report and name of the asset.
        phase: 1 structure, 2 embeddings, 3 training.
        inputs: Keys of the artifacts that `compute` takes, each under the name after the `/`.
        settings: Names of the settings that change the value; if any, `compute` takes `settings` too.
        code_version: Changed whenever the code would give another value for the same inputs.
        compute: Returns the JSON value; `{"skipped": true, "reason": ...}` where it cannot be computed.
        headline: Numbers that a reader sees first: name with unit -> from the JSON value of a metric that is
            not skipped.
    """

    name: str
    phase: int
    inputs: tuple[str, ...]
    settings: tuple[str, ...]
    code_version: str
    compute: Callable[..., dict[str, Any]]
    headline: Mapping[str, Callable[[dict[str, Any]], float]]


METRICS: tuple[Metric, ...] = (
    Metric(
        name="class_imbalance",
        phase=1,
        inputs=("dataset/image_index", "dataset/splits"),
        settings=("split_recipe",),
        code_version="3",
        compute=class_imbalance,
        headline={
            "imbalance_ratio": lambda value: float(value["imbalance_ratio"]),
            "normalized_entropy": lambda value: float(value["normalized_entropy"]),
            "empty_classes_count": lambda value: float(len(value["empty_classes"])),
        },
    ),
    Metric(
        name="exact_duplicate",
        phase=1,
        inputs=("dataset/image_index", "dataset/pixel_hashes", "dataset/splits"),
        settings=("split_recipe",),
        code_version="2",
        compute=exact_duplicate,
        headline={
            "exact_duplicate_pct": lambda value: _percent(value["blake3"]["duplicate_count"], value),
            "cross_split_exact_duplicate_pct": lambda value: _percent(
                value["blake3"]["cross_split_duplicates"], value
            ),
            "exact_label_conflict_groups_count": lambda value: float(value["blake3"]["label_conflicts"]["groups"]),
        },
    ),
    Metric(
        name="resolution_consistency",
        phase=1,
        inputs=("dataset/image_index",),
        settings=(),
        code_version="2",
        compute=resolution_consistency,
        headline={
            "mean_width_px": lambda value: float(value["upright"]["width"]["mean"]),
            "mean_height_px": lambda value: float(value["upright"]["height"]["mean"]),
            "area_cv_ratio": lambda value: float(value["area_cv"]),
        },
    ),
    Metric(
        name="metadata_coverage",
        phase=1,
        inputs=("dataset/image_index",),
        settings=(),
        code_version="2",
        compute=metadata_coverage,
        headline={"metadata_columns_count": lambda value: float(len(value["metadata_columns"]))},
    ),
    Metric(
        name="near_duplicate",
        phase=2,
        inputs=(
            "dataset/image_index",
            "dataset/splits",
            "embeddings/neighbors",
            "embeddings/duplicate_groups",
        ),
        settings=("split_recipe", "embed_model"),
        code_version="2",
        compute=near_duplicate,
        headline={
            "near_duplicate_pct": lambda value: _percent(value["near_duplicate_count"], value),
            "cross_split_near_duplicate_pct": lambda value: _percent(value["cross_split_near_duplicates"], value),
            "effective_images_count": lambda value: float(value["effective_images"]),
        },
    ),
    Metric(
        name="feature_separability",
        phase=2,
        inputs=(
            "dataset/image_index",
            "embeddings/embeddings",
            "embeddings/labels",
            "embeddings/duplicate_groups",
        ),
        settings=("embed_model", "max_silhouette_samples"),
        code_version="1",
        compute=feature_separability,
        headline={
            "silhouette_score": lambda value: float(value["silhouette_score_all"]),
            "davies_bouldin_index": lambda value: float(value["davies_bouldin_index"]),
        },
    ),
    Metric(
        name="intra_class_diversity",
        phase=2,
        inputs=(
            "dataset/image_index",
            "embeddings/embeddings",
            "embeddings/labels",
            "embeddings/duplicate_groups",
        ),
        settings=("embed_model",),
        code_version="1",
        compute=intra_class_diversity,
        headline={"mean_diversity_l2": lambda value: float(value["mean_diversity"])},
    ),
    Metric(
        name="dataset_cartography",
        phase=3,
        inputs=("dataset/image_index", "training/dynamics", "embeddings/duplicate_groups"),
        settings=(),
        code_version="1",
        compute=dataset_cartography,
        headline={
            "easy_pct": lambda value: float(value["pct_easy"]),
            "ambiguous_pct": lambda value: float(value["pct_ambiguous"]),
            "hard_pct": lambda value: float(value["pct_hard"]),
        },
    ),
    Metric(
        name="class_confusability",
        phase=3,
        inputs=("dataset/image_index", "training/test_predictions", "embeddings/duplicate_groups"),
        settings=(),
        code_version="1",
        compute=class_confusability,
        headline={
            "accuracy_ratio": lambda value: float(value["accuracy"]),
            "test_images_count": lambda value: float(value["n_test_samples"]),
        },
    ),
    Metric(
        name="label_noise",
        phase=3,
        inputs=(
            "dataset/image_index",
            "embeddings/labels",
            "training/out_of_fold",
            "training/out_of_fold_grouped",
            "embeddings/duplicate_groups",
            "training/noise_calibration",
        ),
        settings=("cv_folds",),
        code_version="2",
        compute=label_noise,
        headline={
            "flagged_pct": lambda value: round(100 * value["estimated_noise_rate"], 2),
            "flagged_images_count": lambda value: float(value["n_noisy_samples"]),
        },
    ),
    Metric(
        name="image_health",
        phase=2,
        inputs=(
            "dataset/image_index",
            "dataset/image_statistics",
            "embeddings/neighbors",
            "embeddings/labels",
        ),
        settings=(),
        code_version="1",
        compute=image_health,
        headline={
            "flagged_pct": lambda value: round(100 * value["flagged_rate"], 2),
            "flagged_images_count": lambda value: float(value["n_flagged"]),
        },
    ),
    Metric(
        name="leakage",
        phase=3,
        inputs=(
            "dataset/image_index",
            "dataset/splits",
            "embeddings/duplicate_groups",
            "training/grouped_splits",
            "embeddings/embeddings",
            "training/test_predictions",
            "training/test_predictions_grouped",
        ),
        settings=("split_recipe", "leak_safe"),
        code_version="2",
        compute=leakage,
        headline={
            "independent_images_count": lambda value: float(value["effective_sample_size"]["overall"]),
            "largest_group_images_count": lambda value: float(value["largest_group"]["images"]),
        },
    ),
)
"""All metrics, those of AgML's reports first, in the published order of writing."""


def _percent(images: int, value: Mapping[str, Any]) -> float:
    return round(100 * images / value["total_images"], 2)
