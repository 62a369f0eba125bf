"""Time of the leaderboard's files for many records: `python benchmarks/bench_leaderboard.py`.

10,000 records over 1,000 datasets, with prompts of the published length and a catalogue of 6,200 names: the
two manifests, from reading the folder to the finished text, within 2 s of processor time: one thread does it, and
what others do on the machine does not count. The other two files stand beside.
"""

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agml_assets.leaderboard.outputs import board_text, global_text, index_text, read_source, run_records_text

RECORDS, DATASETS, MODELS, CATALOGUE = 10_000, 1_000, 40, 6_200
LIMIT_S = 2.0
NOTES = 1_500  # characters, as a published prompt with its parsing rules
REPEATS = 5


def write_folder(root: Path) -> Path:
    """Write a catalogue and a folder of records, drawn with a seed."""
    rng = random.Random(0)
    names = [f"dataset_{n:04}" for n in range(CATALOGUE)]
    catalogue = [
        {"name": name, "machine_learning_task": "image_classification", "crop_types": ["Bean", "Maize"]}
        for name in names
    ]
    (root / "datasets.json").write_text(json.dumps(catalogue))
    folder = root / "performance"
    folder.mkdir()
    for name in names[:DATASETS]:
        models = rng.sample(range(MODELS), RECORDS // DATASETS)
        (folder / f"{name}.json").write_text(json.dumps([_record(rng, name, model) for model in models], indent=2))
    return folder


def _record(rng: random.Random, dataset: str, model: int) -> dict[str, object]:
    record: dict[str, object] = {
        "benchmark_id": 1,
        "timestamp": f"2026-08-{rng.randint(10, 28)}T05:16:17.{rng.randint(100000, 999999)}+00:00",
        "dataset": f"owner/{dataset}",
        "model": f"owner/model-{model}",
        "task": "classification",
        "num_samples": rng.randint(25, 50_000),
        "device": "cuda",
        "inference_time_seconds": round(rng.uniform(10, 2000), 2),
        "metrics": {name: round(rng.random(), 6) for name in ("f1", "precision", "recall")},
        "notes": "Prompt: which crop is this? " * (NOTES // 28),
    }
    if model % 4 == 0:
        record["finetune"] = {"train_samples": 2000, "epochs": 10, "lr": 1e-5, "split_seed": 42}
    return record


def _seconds(make: Callable[[], str]) -> tuple[float, float]:
    """Return the seconds of a call on the processor and by the clock."""
    used, clock = time.process_time(), time.perf_counter()
    make()
    return time.process_time() - used, time.perf_counter() - clock


def main() -> None:
    """Print the medians, and fail where the manifests take too long."""
    with tempfile.TemporaryDirectory() as root:
        folder = write_folder(Path(root))

        def manifests() -> str:
            source = read_source(folder)
            return index_text(source) + global_text(source)

        steps: dict[str, Callable[[], str]] = {
            "index.json and global.json": manifests,
            "run_records.json": lambda: run_records_text(read_source(folder)),
            "board.json": lambda: board_text(read_source(folder)),
        }
        medians = {}
        for name, make in steps.items():
            size = len(make()) / 1e6  # the first call imports
            rounds = [_seconds(make) for _ in range(REPEATS)]
            used, clock = (statistics.median(one) for one in zip(*rounds, strict=True))
            medians[name] = used
            print(f"{name}: {used:.2f} s ({clock:.2f} s by the clock), {size:.1f} MB, median of {REPEATS}")
    took = medians["index.json and global.json"]
    print(f"{RECORDS} records over {DATASETS} datasets: manifests in {took:.2f} s (limit {LIMIT_S:.0f} s)")
    if took > LIMIT_S:
        sys.exit(1)


if __name__ == "__main__":
    main()
