"""How time and peak anonymous memory of each numeric step grow with the number of images; writes docs/growth.md.

`python benchmarks/growth.py [STEP ...]` measures those steps, or all, each in a fresh process, and keeps the other
rows of the table. Inputs are drawn at random in the shape of the real artifacts and read as the steps read them:
embeddings by memory map, the rest from files.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from measure import exponent, machine, markdown_row, near_copies, run_child

TABLE = Path(__file__).parent.parent / "docs" / "growth.md"
CLASSES = 50
COPIES = 0.05
EPOCHS = 30
PACKAGED = "efficientnet_lite0"
BASE = 1_000
"""Images at which a step shows what it takes for nothing: imports, compiling, small tables."""

ALL, SMALL, PASSES = 768, 384, 1280
SIZES = {
    ALL: (BASE, 10_000, 30_000, 100_000),
    SMALL: (BASE, 30_000, 100_000, 300_000, 1_000_000),
    PASSES: (20, BASE, 2_000),
}
"""Numbers of images by dimensions of their embeddings: every step without a model pass, some of them with fewer
dimensions, and those with one, with as many as EfficientNet-Lite0 gives."""

SHOWN = (20, BASE, 2_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
HEAD = """# Growth

Seconds and peak anonymous memory of each step, measured in a process of its own, over the number of images N; 50
classes, 5 % of the images copies. Pages of the memory-mapped embeddings do not
count: the kernel can drop them. Seconds are those of the step alone, memory is that of the process, libraries
included (60 to 300 MiB). Exponents are those of N in what a step takes beyond its cost at the fewest images, from
one of the two largest measured sizes to the other. Values with ≈ are extrapolated with the exponent, not
measured. Calibration of label noise takes at most 20,000 images. Embedding and training pass every image through a
model: EfficientNet-Lite0, and five epochs of it at 96 pixels.
"""


class Inputs:
    """Artifacts of N images with D dimensions, in a folder; made by `prepare`, and by the steps before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Any:
        file = next(self._folder.glob(f"{name}.*"))
        if file.suffix == ".npy":
            return np.load(file, mmap_mode="r") if name in ("embeddings", "pixels") else np.load(file)
        if file.suffix == ".json":
            return json.loads(file.read_text())
        if file.suffix == ".parquet":
            return pl.read_parquet(file)
        with np.load(file) as arrays:
            return dict(arrays)

    def keep(self, name: str, value: Any) -> None:
        """Write one more."""
        if isinstance(value, pl.DataFrame):
            value.write_parquet(self._folder / f"{name}.parquet")
        elif isinstance(value, np.ndarray):
            np.save(self._folder / f"{name}.npy", value)
        elif isinstance(next(iter(value.values())), np.ndarray):
            np.savez(self._folder / f"{name}.npz", **value)
        else:
            (self._folder / f"{name}.json").write_text(json.dumps(value))


def prepare(inputs: Inputs, n: int, dimensions: int) -> None:
    """Draw the artifacts that the steps with so many dimensions read."""
    from agml_assets.dataset.splits import make_splits
    from agml_assets.settings import Settings

    rng = np.random.default_rng(0)
    if dimensions == PASSES:
        inputs.keep("pixels", rng.integers(0, 256, (n, 256, 256, 3), dtype=np.uint8))
        inputs.keep("labels", rng.integers(0, CLASSES, n))
        return
    vectors = near_copies(n, dimensions, COPIES)
    inputs.keep("embeddings", vectors)
    labels = rng.integers(0, CLASSES, n)
    inputs.keep("labels", labels)
    copies = round(n * COPIES)
    near = np.arange(n)
    near[n - copies :] = np.arange(copies)
    inputs.keep("near_group", near)
    names = [f"class {label:02}" for label in range(CLASSES)]
    index = pl.DataFrame({"source_row": np.arange(n), "row": np.arange(n), "label": labels})
    inputs.keep(
        "image_index",
        index.with_columns(
            pl.lit(None, pl.String).alias("excluded_reason"),
            pl.Series("class_name", np.array(names)[labels]).cast(pl.Enum(names)),
            pl.format("{}.jpg", "row").alias("file"),
            pl.lit(None, pl.String).alias("native_split"),
            pl.Series("width", rng.integers(500, 600, n), pl.Int32),
            pl.Series("height", rng.integers(500, 600, n), pl.Int32),
            pl.lit("RGB").alias("mode"),
            pl.lit("JPEG").alias("format"),
            pl.lit(50_000, pl.Int64).alias("bytes"),
            pl.lit(1, pl.Int32).alias("exif_orientation"),
            pl.lit(1, pl.Int32).alias("frames"),
            pl.lit(value=False).alias("transparent"),
            pl.Series("meta.camera", rng.choice(["a", "b", "c"], n)),
        ),
    )
    if dimensions != ALL:
        return
    hashes = pl.DataFrame({"row": np.arange(n), "md5_group": near, "blake3_group": near})
    inputs.keep(
        "pixel_hashes",
        hashes.with_columns(
            pl.col(f"{kind}_group").cast(pl.String).str.zfill(32).alias(name)
            for kind, name in (("md5", "md5_native"), ("blake3", "blake3"))
        ),
    )
    measured = ("brightness_mean", "brightness_std", "brightness_p5", "brightness_p99", "sharpness", "entropy")
    others = ("saturation_mean", "colourfulness", "red_mean", "green_mean", "blue_mean")
    statistics = pl.DataFrame({"row": np.arange(n)} | {name: rng.random(n) for name in measured + others})
    inputs.keep("image_statistics", statistics.with_columns(pl.Series("is_grey", rng.random(n) < 0.1)))
    inputs.keep("splits", make_splits(labels, [None] * n, Settings())[0])
    rows = rng.permutation(n)
    train, test = np.sort(rows[: int(0.7 * n)]), np.sort(rows[int(0.85 * n) :])
    history = rng.random((4, EPOCHS, len(train)), dtype=np.float32).transpose(0, 2, 1)
    largest = np.maximum(history[:2], history[2:])
    inputs.keep(
        "dynamics",
        {
            "rows": train,
            "true_train": history[0],
            "max_train": largest[0],
            "true_eval": history[1],
            "max_eval": largest[1],
        },
    )
    probabilities = rng.random((n, CLASSES), dtype=np.float32) ** 8
    probabilities[np.arange(n), labels] += 0.5
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    for name in ("test_predictions", "test_predictions_grouped"):
        inputs.keep(name, {"rows": test, "probabilities": probabilities[test]})
    for name in ("out_of_fold", "out_of_fold_grouped"):
        inputs.keep(name, probabilities)


def find_neighbors(inputs: Inputs, k: int = 50) -> None:
    """Find neighbours and pairs."""
    from agml_assets.embeddings.neighbors import find_neighbors, to_arrays

    found = find_neighbors(inputs["embeddings"], threshold=0.98, max_pairs=10_000_000, k=k)
    if k:
        inputs.keep("neighbors", to_arrays(found))


def find_pairs(inputs: Inputs) -> None:
    """Find pairs alone."""
    find_neighbors(inputs, 0)


def group_duplicates(inputs: Inputs) -> None:
    """Join exact and near copies."""
    from agml_assets.embeddings.duplicate_groups import duplicate_groups

    near = inputs["near_group"]
    inputs.keep("duplicate_groups", duplicate_groups(near, near))


def split_by_groups(inputs: Inputs) -> None:
    """Draw the leak-safe splits and folds."""
    from agml_assets.settings import Settings
    from agml_assets.training.grouped_splits import grouped_splits

    joined = inputs["duplicate_groups"]["joined"].to_numpy()
    inputs.keep("grouped_splits", grouped_splits(inputs["labels"], joined, CLASSES, Settings()))


def fit_out_of_fold(inputs: Inputs) -> None:
    """Fit the five logistic regressions."""
    from agml_assets.training.out_of_fold import out_of_fold

    out_of_fold(inputs["embeddings"], inputs["labels"], inputs["grouped_splits"]["fold"].to_numpy(), CLASSES)


def calibrate_noise(inputs: Inputs) -> None:
    """Flip labels and fit again."""
    from agml_assets.training.noise_calibration import noise_calibration

    joined, fold = (
        inputs[name][column].to_numpy()
        for name, column in (("duplicate_groups", "joined"), ("grouped_splits", "fold"))
    )
    found = noise_calibration(inputs["embeddings"], inputs["labels"], joined, fold, CLASSES)
    inputs.keep("noise_calibration", found)


def lay_out(inputs: Inputs) -> None:
    """Lay out UMAP in two dimensions."""
    from agml_assets.embeddings.neighbors import from_arrays
    from agml_assets.embeddings.umap_projection import project_umap

    project_umap(inputs["embeddings"], from_arrays(inputs["neighbors"]), n_components=2, seed=42)


def bootstrap(inputs: Inputs) -> None:
    """Draw the resamples of macro-F1 over all images."""
    from agml_assets.quality.intervals import Resamples, class_counts, macro_f1

    labels = inputs["labels"]
    predicted = np.where(np.random.default_rng(0).random(len(labels)) < 0.9, labels, 0)
    resamples = Resamples.of(inputs["duplicate_groups"])
    macro_f1(resamples.sums(np.arange(len(labels)), class_counts(labels, predicted)))


def measure_metric(name: str, inputs: Inputs) -> None:
    """Compute one metric of the table."""
    from agml_assets.embeddings.neighbors import from_arrays
    from agml_assets.quality.metrics import METRICS
    from agml_assets.settings import Settings

    metric = next(metric for metric in METRICS if metric.name == name)
    arguments = {key.rpartition("/")[2]: inputs[key.rpartition("/")[2]] for key in metric.inputs}
    if "neighbors" in arguments:
        arguments["neighbors"] = from_arrays(arguments["neighbors"])
    if metric.settings:
        arguments["settings"] = Settings()
    inputs.keep(name, metric.compute(**arguments))


def score_all(inputs: Inputs) -> None:
    """Compute both scores and their intervals from the metrics."""
    from agml_assets.quality.calibrated_score import calibrated_score
    from agml_assets.quality.image_values import image_values
    from agml_assets.quality.intervals import Resamples
    from agml_assets.quality.metrics import METRICS
    from agml_assets.quality.score import score
    from agml_assets.quality.score_intervals import score_intervals
    from agml_assets.quality.summary import BEHIND_THE_SCORE

    metrics = {metric.name: inputs[metric.name] for metric in METRICS}
    behind = {artifact.name: inputs[artifact.name] for artifact in BEHIND_THE_SCORE}
    phases = [1, 2, 3]
    score(metrics, phases)
    calibrated_score(metrics, honest=True)
    values = image_values(metrics=metrics, **behind)
    score_intervals(metrics, phases, values, Resamples.of(inputs["duplicate_groups"]))


def embed(inputs: Inputs) -> None:
    """Embed the stored squares."""
    from agml_assets.embeddings.embedder import ImageEmbedder
    from agml_assets.settings import Settings

    embedder = ImageEmbedder.from_settings(Settings(embed_model=PACKAGED))
    embedder.encode_pixels(inputs["pixels"])
    embedder.close()


def train(inputs: Inputs) -> None:
    """Train for five epochs, on all images."""
    from agml_assets.training.reference_trainer import ReferenceTrainer

    labels = inputs["labels"]
    trainer = ReferenceTrainer(PACKAGED, epochs=5, image_size=96)
    with tempfile.TemporaryDirectory() as folder:
        rows, none = np.arange(len(labels)), np.arange(0)
        trainer.train(inputs["pixels"], rows, labels, CLASSES, Path(folder), none, pixels_digest="")


@cache
def steps() -> dict[str, Callable[[Inputs], None]]:
    """Return every step by name, in an order in which each finds what it reads."""
    from agml_assets.quality.metrics import METRICS

    return {
        "neighbours and pairs": find_neighbors,
        "pairs alone": find_pairs,
        "duplicate groups": group_duplicates,
        "grouped splits": split_by_groups,
        "out of fold": fit_out_of_fold,
        "noise calibration": calibrate_noise,
        "umap": lay_out,
        "bootstrap": bootstrap,
        **{metric.name: lambda inputs, name=metric.name: measure_metric(name, inputs) for metric in METRICS},
        "score and intervals": score_all,
        **WITH_A_MODEL,
    }


WITH_A_MODEL = {"embedding": embed, "reference training": train}
"""Steps that pass every image through a model."""

WITH_A_MILLION = (
    "pairs alone",
    "duplicate groups",
    "grouped splits",
    "bootstrap",
    "feature_separability",
    "intra_class_diversity",
)
"""Steps that are measured with the smaller embeddings too."""

PAIRS_MEASURED = 300_000
"""Beyond that, comparing all pairs takes two cores more than a few minutes."""


def measure_step(name: str, folder: Path) -> tuple[float, float]:
    """Return the seconds of a step and the peak anonymous memory of its process in MiB."""
    child = run_child([__file__, "--run", name, str(folder)])
    return float(child.output.split()[-1]), child.peak_anonymous_bytes / 2**20


def run_step(name: str, folder: Path) -> None:
    """Run one step in this process and print its seconds."""
    inputs = Inputs(folder)
    start = time.perf_counter()
    steps()[name](inputs)
    print(time.perf_counter() - start)


Measured = dict[int, tuple[float, float]]


def measure_all(dimensions: int, sizes: list[int], names: list[str]) -> None:
    """Measure steps at all sizes, each in a fresh process, and write their rows as they grow."""
    found: dict[str, Measured] = {name: {} for name in names}
    for n in sizes:
        with tempfile.TemporaryDirectory(prefix="growth-") as folder:
            prepare(Inputs(Path(folder)), n, dimensions)
            for name in needed(names):
                if name == "pairs alone" and n > PAIRS_MEASURED:
                    continue
                seconds, memory = measure_step(name, Path(folder))
                print(f"{name}, N = {n:,}, d = {dimensions}: {seconds:.2f} s, {memory:.0f} MiB", flush=True)
                if name in names:
                    found[name][n] = (seconds, memory)
                    write_row(name, dimensions, found[name])


def needed(names: list[str]) -> list[str]:
    """Return the steps and those whose results they read, in order."""
    from agml_assets.quality.metrics import METRICS

    alone = {"neighbours and pairs", "pairs alone", *WITH_A_MODEL}
    before = {"duplicate groups"} if set(names) - alone else set()
    if set(names) & {"out of fold", "noise calibration", "leakage", "label_noise", "score and intervals"}:
        before |= {"grouped splits"}
    if set(names) & {"umap", "near_duplicate", "image_health", "score and intervals"}:
        before |= {"neighbours and pairs"}
    if set(names) & {"label_noise", "score and intervals"}:
        before |= {"noise calibration"}
    if "score and intervals" in names:
        before |= {metric.name for metric in METRICS}
    return [name for name in steps() if name in before or name in names]


def row_of(name: str, dimensions: int, figures: Measured) -> str:
    """Return the row of a step: measured cells, extrapolated ones, and both exponents."""
    growths = [growth_of([figures[n][which] for n in figures], list(figures)) for which in (0, 1)]
    cells = []
    for n in SHOWN:
        if n in figures:
            cells.append(cell(*figures[n]))
        elif n > max(figures) and growths[0] is not None:
            cells.append("≈ " + cell(*(at(n, which, figures, growths[which]) for which in (0, 1))))
        else:
            cells.append("")
    shown = ("–" if growth is None else f"{growth:.2f}" for growth in growths)
    return markdown_row((name, dimensions, *cells, *shown))


def cell(seconds: float, memory: float) -> str:
    """Return seconds and MiB, to two digits below a hundred seconds."""
    return f"{seconds:,.0f} s, {memory:,.0f} MiB" if seconds >= 100 else f"{seconds:.2g} s, {memory:,.0f} MiB"


def growth_of(values: list[float], sizes: list[int]) -> float | None:
    """Return the last exponent of what is beyond the cost at the smallest size; null where that is little."""
    beyond = [(n, value - values[0]) for n, value in zip(sizes[1:], values[1:], strict=True)]
    grown = [(n, value) for n, value in beyond if value > 0.3 * values[0]]
    return exponent(*zip(*grown[-2:], strict=True)) if len(grown) > 1 else None


def at(n: int, which: int, figures: Measured, growth: float | None) -> float:
    """Return the extrapolated figure."""
    base, largest = figures[min(figures)][which], max(figures)
    return base + (figures[largest][which] - base) * (n / largest) ** (growth or 0.0)


def write_row(name: str, dimensions: int, figures: Measured) -> None:
    """Put a row into the table in place of the old one; drop rows of another machine."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    here = machine()
    same = all(f"- {line}" in lines for line in here)
    rows = [line for line in lines if same and line.startswith("| ") and not line.startswith(("| step", "| ---"))]
    rows = [row for row in rows if not row.startswith(f"| {name} | {dimensions} |")]
    rows.append(row_of(name, dimensions, figures))
    order = [f"| {step} | {d} |" for d in SIZES for step in steps()]
    rows.sort(key=lambda row: next(place for place, begin in enumerate(order) if row.startswith(begin)))
    columns = ("step", "d", *(f"N = {n:,}" for n in SHOWN), "exponent of time", "of memory")
    table = [markdown_row(columns), markdown_row("---" for _ in columns), *rows]
    TABLE.write_text("\n".join([HEAD, *(f"- {line}" for line in here), "", *table, ""]))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="steps; all if none is given")
    parser.add_argument("--run", nargs=2, metavar=("STEP", "FOLDER"), help="run one step here")
    parser.add_argument("--largest", type=int, default=1_000_000, help="largest number of images")
    options = parser.parse_args()
    if options.run:
        run_step(options.run[0], Path(options.run[1]))
        return
    names = options.names or list(steps())
    if unknown := set(names) - set(steps()):
        raise SystemExit(f"no step {', '.join(sorted(unknown))}; there are {', '.join(steps())}")
    of_dimensions = {
        ALL: [name for name in names if name not in WITH_A_MODEL],
        SMALL: [name for name in names if name in WITH_A_MILLION],
        PASSES: [name for name in names if name in WITH_A_MODEL],
    }
    for dimensions, sizes in SIZES.items():
        if some := of_dimensions[dimensions]:
            measure_all(dimensions, [n for n in sizes if n <= options.largest], some)


if __name__ == "__main__":
    sys.exit(main())
