"""What Dagster adds: the benchmark job on 20 tiny images against the same pure functions in a fresh process.

`python benchmarks/bench_overhead.py [REPEATS]`: both medians in seconds and their difference, which shall be
at most 6 s. Both start from nothing: a new process, an empty results folder, no cached embeddings. The job also
writes issues, Croissant and card, which the pure functions do not. Processor time is shown too: on a busy machine
it says more than the clock.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

LIMIT_S = 6.0
IMAGES = 20
REPEATS = 5
CLASSES = ("blight", "healthy")


def write_images(folder: Path) -> None:
    """Write noise images in a folder per class."""
    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        pixels = rng.integers(0, 256, size=(48, 64, 3)).astype(np.uint8)
        file = folder / CLASSES[number % len(CLASSES)] / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)


def run_pure_functions(registry: Path, out: Path) -> None:
    """Do what the job does, without Dagster, store or cache."""
    from agml_assets.dataset.decode_pass import decode_source
    from agml_assets.dataset.image_index import usable_images
    from agml_assets.dataset.image_statistics import image_statistics
    from agml_assets.dataset.sources import open_source
    from agml_assets.dataset.splits import make_splits
    from agml_assets.embeddings.duplicate_groups import duplicate_groups
    from agml_assets.embeddings.embedder import ImageEmbedder
    from agml_assets.embeddings.images import encode_from_pixels
    from agml_assets.embeddings.neighbors import find_neighbors
    from agml_assets.embeddings.umap_projection import project_umap
    from agml_assets.quality.calibrated_score import calibrated_score
    from agml_assets.quality.image_values import image_values
    from agml_assets.quality.intervals import Resamples
    from agml_assets.quality.invariants import check_group_invariants, check_invariants
    from agml_assets.quality.metrics import METRICS
    from agml_assets.quality.score import score
    from agml_assets.quality.score_intervals import score_intervals
    from agml_assets.quality.summary import BEHIND_THE_SCORE
    from agml_assets.registry.datasets import load_registry
    from agml_assets.settings import Settings
    from agml_assets.training.grouped_splits import grouped_splits
    from agml_assets.training.noise_calibration import noise_calibration
    from agml_assets.training.out_of_fold import out_of_fold, stratified_folds
    from agml_assets.training.reference_trainer import ReferenceTrainer, dynamics_arrays, prediction_arrays

    entry = load_registry(registry).get("tiny")
    settings = Settings().override(dict(entry.settings), "the registry")
    decoded = decode_source(open_source(entry), work_dir=out / "work", settings=settings)
    if decoded.pixels is None or decoded.pixel_hashes is None:
        raise RuntimeError("the pass gave no pixels")
    labels = usable_images(decoded.image_index)["label"].to_numpy().astype(np.int64)
    splits, _ = make_splits(labels, usable_images(decoded.image_index)["native_split"].to_list(), settings)
    pixels = np.load(decoded.pixels, mmap_mode="r")
    vectors = encode_from_pixels(ImageEmbedder.from_settings(settings), pixels)(range(len(pixels)))
    neighbors = find_neighbors(
        vectors,
        threshold=settings.near_dup_threshold,
        max_pairs=settings.max_pairs,
        ivf_threshold=settings.faiss_ivf_threshold,
    )
    groups = duplicate_groups(decoded.pixel_hashes["blake3_group"].to_numpy(), neighbors.near_group)
    for dimensions in (2, 3):
        project_umap(vectors, neighbors, n_components=dimensions, seed=42)
    joined, n_classes = groups["joined"].to_numpy(), len(CLASSES)
    grouped = grouped_splits(labels, joined, n_classes, settings)
    trainer = ReferenceTrainer.from_settings(settings)
    published, leak_safe = (
        trainer.train(
            pixels,
            np.flatnonzero(split.to_numpy() == "train"),
            labels,
            n_classes,
            out / name,
            np.flatnonzero(split.to_numpy() == "test"),
            pixels_digest=name,
        )
        for name, split in (("published", splits[settings.split_recipe]), ("grouped", grouped["split"]))
    )
    folds = grouped["fold"].to_numpy()
    made: dict[str, Any] = {
        "image_index": decoded.image_index,
        "pixel_hashes": decoded.pixel_hashes,
        "image_statistics": image_statistics(pixels),
        "splits": splits,
        "embeddings": vectors,
        "labels": labels,
        "neighbors": neighbors,
        "duplicate_groups": groups,
        "grouped_splits": grouped,
        "dynamics": dynamics_arrays(published),
        "test_predictions": prediction_arrays(published),
        "test_predictions_grouped": prediction_arrays(leak_safe),
        "out_of_fold": out_of_fold(vectors, labels, stratified_folds(labels, settings.cv_folds), n_classes),
        "out_of_fold_grouped": out_of_fold(vectors, labels, folds, n_classes),
        "noise_calibration": noise_calibration(vectors, labels, joined, folds, n_classes),
    }
    metrics = {}
    for metric in METRICS:
        arguments = {key.rpartition("/")[2]: made[key.rpartition("/")[2]] for key in metric.inputs}
        if metric.settings:
            arguments["settings"] = settings
        metrics[metric.name] = metric.compute(**arguments)
    behind = {artifact.name: made[artifact.name] for artifact in BEHIND_THE_SCORE}
    phases = [1, 2, 3]
    scored = {
        **score(metrics, phases),
        "calibrated": calibrated_score(metrics, honest=True),
        "intervals": score_intervals(
            metrics, phases, image_values(metrics=metrics, **behind), Resamples.of(groups)
        ),
    }
    breaches = check_invariants(metrics) + check_group_invariants(groups)
    (out / "result.json").write_text(json.dumps({"metrics": metrics, "score": scored, "breaches": breaches}))


def seconds(command: list[str], environment: dict[str, str], folder: Path) -> tuple[float, float]:
    """Return how long a command takes by the clock and on processors; one that fails ends the benchmark."""
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    clock, after = time.perf_counter() - started, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return clock, used


def one_round(folder: Path, home: Path) -> tuple[float, float, float, float]:
    """Return the seconds of the job and of the pure functions, by the clock and on processors."""
    write_images(folder / "images")
    registry = folder / "datasets.yaml"
    registry.write_text(
        f"datasets:\n  - name: tiny\n    path: {folder / 'images'}\n"
        "    settings: {embed_model: efficientnet_lite0, backbone: efficientnet_lite0, cartography_epochs: 1, "
        "train_image_size: 64}\n"
    )
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("AGML_", "DAGSTER_"))},
        "AGML_REGISTRY": str(registry),
        "AGML_RESULTS": str(folder / "results"),
        "DAGSTER_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
    }
    dagster = str(Path(sys.executable).parent / "dagster")
    tags = '{"dagster/partition": "tiny"}'
    job = [dagster, "job", "execute", "-m", "agml_assets.definitions", "-j", "benchmark", "--tags", tags]
    pure = [sys.executable, str(Path(__file__).absolute()), "--pure", str(registry), str(folder)]
    return (*seconds(job, environment, folder), *seconds(pure, environment, folder))


def main(repeats: int) -> None:
    """Print the medians and their difference."""
    rounds = []
    with tempfile.TemporaryDirectory() as home:
        # One for all rounds, as people have: its databases are made in the first.
        (Path(home) / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(one_round(Path(folder), Path(home)))
    job, job_used, pure, pure_used = (statistics.median(times) for times in zip(*rounds, strict=True))
    print(f"{IMAGES} images, median of {repeats}: benchmark job {job:.1f} s, pure functions {pure:.1f} s")
    print(f"Dagster, store and reports add {job - pure:.1f} s (limit {LIMIT_S:.0f} s),")
    print(f"of processor time {job_used - pure_used:.1f} s ({job_used:.1f} and {pure_used:.1f})")
    if job - pure > LIMIT_S:
        raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pure"]:
        run_pure_functions(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS)
