"""Invented run records, and folders of them, shared by the tests of the leaderboard."""

import json

from hypothesis import strategies as st

from agml_assets.leaderboard.record_files import RecordFile

NAMES = (
    "f1", "accuracy", "top1_accuracy", "map", "map_50", "mAP@0.5", "f1_at_iou50", "miou", "precision", "prec@1",
    "recall", "skipped_samples", "loss", "10", "2", "", "constructor",
)  # fmt: skip


def record(model="clip", **fields):
    """A record that nothing is odd about, except for what `fields` say."""
    return {
        "benchmark_id": 1,
        "timestamp": "2026-08-11T05:16:17+00:00",
        "dataset": "owner/beans",
        "dataset_config": None,
        "split": "train",
        "model": model,
        "task": "classification",
        "result_type": "zero-shot",
        "optimized": "no",
        "train_pct": 0.0,
        "test_pct": 100.0,
        "val_pct": 0.0,
        "num_samples": 200,
        "device": "cuda",
        "inference_time_seconds": 20.0,
        "metrics": {"f1": 0.5, "precision": 0.5, "recall": 0.5},
        "notes": "",
        **fields,
    }


def scored(model, f1, **fields):
    """A record with this F1 and nothing else."""
    return record(model, metrics={"f1": f1}, **fields)


def tuned(model, f1, **fields):
    """A fine-tuned record."""
    return record(model, metrics={"f1": f1}, result_type="fine-tuned", finetune={"train_samples": 700}, **fields)


def file_of(*records, dataset="beans"):
    return RecordFile(dataset, list(records))


def write(folder, dataset, records):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{dataset}.json"
    path.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
    return path


numbers = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, 0.5, 1e-7, 2.5, 97.5, 1.7e308, -1.7e308]),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)
"""Any JSON value, lone surrogates apart: those cannot stand in a file."""

metrics = st.dictionaries(st.sampled_from(NAMES), st.one_of(numbers, json_values), max_size=5)
fine_tuning = st.dictionaries(
    st.sampled_from(["train_samples", "val_samples", "epochs", "lr", "split_seed", "optimized"]),
    st.one_of(numbers, json_values),
    max_size=4,
)
odd_records = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.one_of(st.sampled_from(["a", "b", " a "]), json_values),
            "task": st.one_of(st.sampled_from(["classification", "detection", "constructor"]), json_values),
            "metrics": st.one_of(metrics, json_values),
            "finetune": st.one_of(fine_tuning, json_values),
            "num_samples": st.one_of(numbers, json_values),
            "benchmark_id": st.one_of(numbers, json_values),
            "timestamp": st.one_of(st.just("2026-08-11T05:16:17+00:00"), json_values),
            "dataset_config": json_values,
            "device": json_values,
            "notes": json_values,
            "optimized": json_values,
            "predictions": json_values,
            "extra": json_values,
        },
    ),
)
"""Anything that may stand in a file where a record is expected."""
