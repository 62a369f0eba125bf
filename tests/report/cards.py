"""Invented datasets of every kind of trouble, as what a card is made from; measured by the real metrics."""

import numpy as np
import polars as pl

from agml_assets.dataset.splits import make_splits
from agml_assets.embeddings.duplicate_groups import duplicate_groups
from agml_assets.embeddings.neighbors import find_neighbors
from agml_assets.embeddings.umap_projection import umap_records
from agml_assets.quality.calibrated_score import calibrated_score
from agml_assets.quality.class_confusability import class_confusability
from agml_assets.quality.class_imbalance import class_imbalance
from agml_assets.quality.dataset_cartography import dataset_cartography, map_images
from agml_assets.quality.exact_duplicate import exact_duplicate
from agml_assets.quality.feature_separability import feature_separability
from agml_assets.quality.image_health import health_issues, image_health
from agml_assets.quality.image_values import image_values
from agml_assets.quality.intervals import Resamples
from agml_assets.quality.intra_class_diversity import intra_class_diversity
from agml_assets.quality.label_noise import label_issues, label_noise
from agml_assets.quality.leakage import leakage
from agml_assets.quality.metadata_coverage import metadata_coverage
from agml_assets.quality.near_duplicate import near_duplicate
from agml_assets.quality.resolution_consistency import resolution_consistency
from agml_assets.quality.score import score
from agml_assets.quality.score_intervals import score_intervals
from agml_assets.report.card import CardData
from agml_assets.report.issues import SCHEMA
from agml_assets.settings import Settings
from agml_assets.training.grouped_splits import grouped_splits

CLASSES = ("blight", "healthy", "leaf spot", "rust")
_EPOCHS = 8
_PHASE = {
    "class_imbalance": 1,
    "exact_duplicate": 1,
    "resolution_consistency": 1,
    "metadata_coverage": 1,
    "near_duplicate": 2,
    "feature_separability": 2,
    "intra_class_diversity": 2,
}  # the others belong to phase 3


class Pictures:
    """Stands for memory-mapped pixels: makes each picture when it is asked for."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, row: int) -> np.ndarray:
        rng = np.random.default_rng(row)
        tiles = rng.integers(40, 220, size=(8, 8, 3), dtype=np.uint8)
        noise = rng.integers(0, 12, size=(256, 256, 3), dtype=np.uint8)
        return np.kron(tiles, np.ones((32, 32, 1), np.uint8)) + noise


def invent_card(
    *,
    name: str = "owner/beans",
    classes: tuple[str, ...] = CLASSES,
    n: int = 240,
    copies: int = 16,
    flips: int = 8,
    faults: bool = True,
    sizes: bool = True,
    phases: tuple[int, ...] = (1, 2, 3),
    file: str = "photos/{row:05}.jpg",
    signal: float = 4.0,
) -> CardData:
    """Return the data of a card.

    Args:
        name: Of the dataset.
        classes: Their names.
        n: Usable images.
        copies: The last images are copies of the first; every other one an exact copy, every fourth with the
            label of another class.
        flips: Images after the first hundred that carry the label of another class.
        faults: Whether some images are dark, blurred and so on.
        sizes: Whether images differ in size.
        phases: Those completed.
        file: Pattern of file names.
        signal: How well vectors and predictions tell the classes apart.
    """
    settings, rng = Settings(), np.random.default_rng(0)
    k = len(classes)
    # Sizes of the classes fall off; each has at least one image where there are enough.
    weights = 1 / np.arange(1, k + 1) ** 0.5
    drawn = rng.choice(k, size=max(n - k, 0), p=weights / weights.sum())
    truth = np.concatenate([np.arange(min(k, n)), drawn])
    rng.shuffle(truth)
    truth[n - copies :] = truth[:copies]
    labels = truth.copy()
    wrong = np.r_[n - copies : n : 4, 100 : 100 + flips] if copies else np.arange(100, 100 + flips)
    labels[wrong] = (labels[wrong] + 1) % k

    index = _image_index(labels, classes, sizes, file)
    vectors = rng.normal(size=(n, 32)) + signal * np.eye(max(k, 32))[truth][:, :32]
    nearly = np.where(np.arange(copies) % 2, 0.03, 0)[:, None]
    vectors[n - copies :] = vectors[:copies] + nearly * rng.normal(size=(copies, 32))
    embeddings = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    pixel_group = np.arange(n)
    exact = np.arange(0, copies, 2)
    pixel_group[n - copies + exact] = exact
    hashes = pl.DataFrame({"row": np.arange(n), "md5_group": pixel_group, "blake3_group": pixel_group})
    neighbors = find_neighbors(embeddings, threshold=settings.near_dup_threshold, max_pairs=10_000)
    groups = duplicate_groups(pixel_group, neighbors.near_group)
    splits, _ = make_splits(labels, index["native_split"].to_list(), settings)
    grouped = grouped_splits(labels, groups["joined"].to_numpy(), k, settings)

    def predict(rows):
        logits = rng.normal(size=(len(rows), k)) + signal * np.eye(k)[truth[rows]]
        odds = np.exp(logits)
        return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)

    def rows_of(frame, column, split):
        return frame.filter(pl.col(column) == split)["row"].to_numpy()

    taught = k > 1
    train, test = rows_of(splits, "hf", "train")[: n * taught], rows_of(splits, "hf", "test")[: n * taught]
    safe = rows_of(grouped, "split", "test")[: n * taught]
    epochs = np.stack([predict(train) for _ in range(_EPOCHS * taught)], axis=1) if taught else np.zeros((0, 0, k))
    true = epochs[np.arange(len(train)), :, labels[train]]
    largest = epochs.max(axis=2, initial=0)
    dynamics = {"rows": train, "true_train": true, "max_train": largest, "true_eval": true, "max_eval": largest}
    predictions = {"rows": test, "probabilities": predict(test)}
    predictions_grouped = {"rows": safe, "probabilities": predict(safe)}
    out_of_fold = predict(np.arange(n))
    statistics = _statistics(n, faults)

    shared = {"image_index": index, "settings": settings}
    by_split = shared | {"splits": splits}
    by_vector = shared | {"embeddings": embeddings, "labels": labels, "duplicate_groups": groups}
    uncalibrated = {"skipped": True, "reason": "Too few images."}
    measured = {
        "class_imbalance": lambda: class_imbalance(**by_split),
        "exact_duplicate": lambda: exact_duplicate(**by_split, pixel_hashes=hashes),
        "resolution_consistency": lambda: resolution_consistency(image_index=index),
        "metadata_coverage": lambda: metadata_coverage(image_index=index),
        "near_duplicate": lambda: near_duplicate(**by_split, neighbors=neighbors, duplicate_groups=groups),
        "feature_separability": lambda: feature_separability(**by_vector),
        "intra_class_diversity": lambda: intra_class_diversity(**by_vector),
        "dataset_cartography": lambda: dataset_cartography(
            image_index=index, dynamics=dynamics, duplicate_groups=groups
        ),
        "class_confusability": lambda: class_confusability(
            image_index=index, test_predictions=predictions, duplicate_groups=groups
        ),
        "label_noise": lambda: label_noise(
            **shared,
            labels=labels,
            out_of_fold=out_of_fold,
            out_of_fold_grouped=out_of_fold,
            duplicate_groups=groups,
            noise_calibration=uncalibrated,
        ),
        "leakage": lambda: leakage(
            **by_split,
            duplicate_groups=groups,
            grouped_splits=grouped,
            embeddings=embeddings,
            test_predictions=predictions,
            test_predictions_grouped=predictions_grouped,
        ),
        "image_health": lambda: image_health(
            image_index=index, image_statistics=statistics, neighbors=neighbors, labels=labels
        ),
    }
    metrics = {
        name: measure()
        if _PHASE.get(name, 3) in phases
        else {"skipped": True, "reason": f"Phase {_PHASE.get(name, 3)} was not asked for."}
        for name, measure in measured.items()
    }
    values = image_values(
        metrics=metrics,
        image_index=index,
        embeddings=embeddings,
        dynamics=dynamics,
        test_predictions=predictions,
        test_predictions_grouped=predictions_grouped,
        out_of_fold=out_of_fold if taught else None,
        out_of_fold_grouped=out_of_fold if taught else None,
    )
    scored = score(metrics, phases) | {
        "calibrated": calibrated_score(metrics, honest=True),
        "intervals": score_intervals(metrics, phases, values, Resamples.of(groups)),
    }
    result = {
        "dataset": name,
        "date": "2026-01-02",
        "reproducibility": {
            "split_seed": 42,
            "split_recipe": "hf",
            "embed_model": settings.embed_model,
            "backbone": settings.backbone,
            "revision": "4f1c0de",
            "source": {"source": "hf", "name": name},
            "source_images": n + 2 * faults,
            "num_images": n,
            "num_classes": k,
            "split_digest": "0" * 64,
            "device": "cpu",
            "versions": {"python": "3.11.7", "numpy": "2.4.6"},
        },
        "phases_completed": list(phases),
        "metrics": metrics,
        "score": scored,
        "breaches": [],
    }
    suspects = label_issues(labels, out_of_fold) if 3 in phases and taught else None
    names = index["class_name"].to_list()
    points = umap_records(embeddings[:, :2] * 10, names, splits["hf"].to_list(), index["source_row"].to_list())
    return CardData(
        result=result,
        config_used={**settings.model_dump(), "dataset": {"name": name}, "artifacts": {}},
        issues=_issues(index, groups, splits, suspects, classes, health_issues(index, statistics, neighbors))
        if 2 in phases
        else None,
        points=points if 2 in phases else None,
        cartography=map_images(dynamics) if 3 in phases and taught else None,
        pixels=Pictures(n),
    )


def _image_index(labels, classes, sizes, file) -> pl.DataFrame:
    n = len(labels)
    side = pl.Series(np.arange(n) % 7 * 40 + 320 if sizes else np.full(n, 320), dtype=pl.Int32)
    rows = pl.Series(np.arange(n), dtype=pl.Int64)
    return pl.DataFrame(
        {
            "source_row": rows,
            "row": rows,
            "excluded_reason": pl.Series([None] * n, dtype=pl.String),
            "file": [file.format(row=row) for row in range(n)],
            "label": labels,
            "class_name": pl.Series([classes[label] for label in labels], dtype=pl.Enum(classes)),
            "native_split": pl.Series(["train" if i % 4 else "test" for i in range(n)]),
            "width": side,
            "height": pl.Series([320] * n, dtype=pl.Int32),
            "mode": ["RGB"] * n,
            "format": ["JPEG"] * n,
            "bytes": pl.Series([90_000] * n, dtype=pl.Int64),
            "exif_orientation": pl.Series([1] * n, dtype=pl.Int32),
            "frames": pl.Series([1] * n, dtype=pl.Int32),
            "transparent": [False] * n,
            "meta.site": [f"field {i % 3}" for i in range(n)],
        }
    )


def _statistics(n, faults) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    frame = {
        "row": np.arange(n),
        "brightness_mean": rng.uniform(0.4, 0.6, n),
        "brightness_std": rng.uniform(0.1, 0.2, n),
        "brightness_p5": rng.uniform(0.1, 0.2, n),
        "brightness_p99": rng.uniform(0.8, 0.95, n),
        "sharpness": rng.uniform(0.5, 0.9, n),
        "entropy": rng.uniform(6, 7.5, n),
        "saturation_mean": rng.uniform(0.3, 0.5, n),
        "colourfulness": rng.uniform(0.3, 0.5, n),
        "is_grey": np.zeros(n, bool),
        "red_mean": rng.uniform(0.3, 0.5, n),
        "green_mean": rng.uniform(0.3, 0.5, n),
        "blue_mean": rng.uniform(0.3, 0.5, n),
    }
    if faults:
        frame["brightness_p99"][[3, 40]] = 0.1
        frame["brightness_p5"][[7]] = 0.99
        frame["sharpness"][[9, 11, 60]] = 0.1
        frame["is_grey"][[12]] = True
    return pl.DataFrame(frame)


def _issues(index, groups, splits, suspects, classes, health) -> pl.DataFrame:
    """Return the table of issues; columns of what was not measured are null."""
    frame = index.select("row", "source_row", "file", given_label=pl.col("class_name").cast(pl.String))
    frame = frame.with_columns(split=splits["hf"], exact_group=groups["exact"], near_group=groups["near"])
    frame = frame.with_columns(joined_group=groups["joined"], keep=groups["exact"] == groups["row"])
    if suspects is not None:
        names = pl.col("suggested_label").replace_strict(dict(enumerate(classes)), return_dtype=pl.String)
        frame = frame.join(suspects.with_columns(names), on="row", maintain_order="left")
    frame = frame.join(health, on="row", maintain_order="left")
    lacking = {name: kind for name, kind in SCHEMA.items() if name not in frame.columns}
    frame = frame.with_columns(pl.lit(None, kind).alias(name) for name, kind in lacking.items())
    return frame.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
