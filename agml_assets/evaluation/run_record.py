"""An evaluation as a run record of the published leaderboard format, see `leaderboard.run_records`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from agml_assets.evaluation.scoring import macro_averages
from agml_assets.evaluation.subjects import Subject
from agml_assets.registry.models import ModelEntry

_DECIMALS = 6  # of the published records


@dataclass(frozen=True)
class Timing:
    """How long an evaluation took; null where vectors came from the cache and nobody noted it.

    Attributes:
        encode_s: Seconds to encode the images that were encoded.
        encoded: How many these were.
        fit_s: Seconds to fit the probe.
        device: What encoded.
    """

    encode_s: float | None
    encoded: int
    fit_s: float
    device: str


def make_run_record(
    subject: Subject,
    model: ModelEntry,
    predictions: pl.DataFrame,
    scores: Mapping[str, Any],
    *,
    n_train: int,
    timing: Timing,
    finished: datetime,
    split: str,
) -> dict[str, Any]:
    """Return the record; percentages are of the subject's examples, metrics macro averages over its classes.

    A probe is fitted on labelled training examples, so the run counts as fine-tuned: `finetune` says how.
    """
    n = len(subject.examples)
    share = {part: round(100 * len(subject.part(part)) / n, 2) for part in ("train", "val", "test")}
    if predictions.schema["true"].is_nested():
        metrics = {scores["metric"]: scores["score"]}
    else:
        metrics = {**macro_averages(predictions), "accuracy": _accuracy(predictions)}
        if scores["metric"] not in ("macro_f1", "accuracy"):
            metrics[scores["metric"]] = scores["score"]
    n_test = len(predictions)
    probe = subject.protocol.probe
    per_image = timing.encode_s / timing.encoded if timing.encode_s is not None and timing.encoded else None
    notes = (
        f"Frozen features of {model.checkpoint}, {probe} probe, {split.replace('_', '-')} split.",
        *subject.notes,
    )
    return {
        "timestamp": finished.isoformat(timespec="seconds"),
        "dataset": subject.name,
        "dataset_config": subject.config,
        "split": "test",
        "model": model.display_name,
        "task": "classification",
        "result_type": f"frozen features, {probe} probe",
        "optimized": "no",
        "train_pct": share["train"],
        "test_pct": share["test"],
        "val_pct": share["val"],
        "num_samples": n_test,
        "device": timing.device,
        "inference_time_seconds": None if per_image is None else round(per_image * n_test, 3),
        "inference_time_seconds_per_image": None if per_image is None else round(per_image, 6),
        "train_time_seconds": round(timing.fit_s, 3),
        "train_time_seconds_per_image": round(timing.fit_s / n_train, 6),
        "metrics": {name: round(value, _DECIMALS) for name, value in metrics.items()},
        "notes": " ".join(notes),
        "finetune": {
            "train_samples": n_train,
            "val_samples": 0,
            "split_seed": float(subject.protocol.seed),
            "train_ratio": round(n_train / n, 4),
            "training_time_seconds": round(timing.fit_s, 3),
            "optimized": "no",
        },
    }


def _accuracy(predictions: pl.DataFrame) -> float:
    return float((predictions["true"] == predictions["predicted"]).to_numpy().mean())
