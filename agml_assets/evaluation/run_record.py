"""An evaluation as a run record of the published leaderboard format, see `leaderboard.run_records`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from agml_assets.evaluation.scoring import labels_of, macro_averages
from agml_assets.evaluation.stored import shown_contender
from agml_assets.evaluation.subjects import Subject
from agml_assets.evaluation.ways import FINE_TUNE, ZERO_SHOT
from agml_assets.registry.models import ModelEntry

_DECIMALS = 6  # of the published records


@dataclass(frozen=True)
class Timing:
    """How long an evaluation took; null where vectors came from the cache and nobody noted it.

    Attributes:
        encode_s: Seconds to encode the images that were encoded, or to answer the test images.
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
    settings: Mapping[str, Any],
    training: Mapping[str, Any] | None,
    timing: Timing,
    finished: datetime,
    split: str,
) -> dict[str, Any]:
    """Return the record; percentages are of the subject's examples, metrics macro averages over its classes.

    A probe is fitted on labelled training examples, so the run counts as fine-tuned, as does that of a trained
    model: `finetune` says how. A zero-shot run has none. A leaderboard keeps the best run of each name among those
    with `finetune`, so a trained model is named as such, or it would take the place of its own frozen features.

    Args:
        subject: The dataset or task.
        model: The model.
        predictions: As `Fitted.predictions`.
        scores: As stored.
        n_train: Training examples.
        settings: Of the probe, or of what else made the predictions.
        training: Of a fine-tuned model, as `Fitted.training`.
        timing: How long it took.
        finished: When.
        split: Name of the split.
    """
    n = len(subject.examples)
    share = {part: round(100 * len(subject.part(part)) / n, 2) for part in ("train", "val", "test")}
    if predictions.schema["true"].is_nested():
        metrics = {scores["metric"]: scores["score"]}
    else:
        metrics = {**macro_averages(predictions), "accuracy": _accuracy(predictions)}
        if scores["metric"] not in ("macro_f1", "accuracy"):
            metrics[scores["metric"]] = scores["score"]
    n_test, n_invalid = len(predictions), predictions["predicted"].null_count()
    if n_invalid:
        metrics["skipped_samples"] = n_invalid
    probe = subject.protocol.probe
    per_image = timing.encode_s / timing.encoded if timing.encode_s is not None and timing.encoded else None
    result_type, how = _what_was_done(model, probe, settings, training)
    notes = [f"{how}, {split.replace('_', '-')} split.", *subject.notes]
    if n_invalid:
        notes.append(f"{n_invalid} answers name no class; they count as wrong.")
    record = {
        "timestamp": finished.isoformat(timespec="seconds"),
        "dataset": subject.name,
        "dataset_config": subject.config,
        "split": "test",
        "model": shown_contender(model.display_name, FINE_TUNE) if probe == FINE_TUNE else model.display_name,
        "task": "classification",
        "result_type": result_type,
        "optimized": "no",
        "train_pct": share["train"],
        "test_pct": share["test"],
        "val_pct": share["val"],
        "num_samples": n_test,
        "device": timing.device,
        "inference_time_seconds": None if per_image is None else round(per_image * n_test, 3),
        "inference_time_seconds_per_image": None if per_image is None else round(per_image, 6),
        "train_time_seconds": round(timing.fit_s, 3) if n_train else None,
        "train_time_seconds_per_image": round(timing.fit_s / n_train, 6) if n_train else None,
        "metrics": {name: round(value, _DECIMALS) for name, value in metrics.items()},
        "notes": " ".join(notes),
    }
    if probe == ZERO_SHOT:
        return record
    finetune = {
        "train_samples": n_train,
        "val_samples": 0,
        "split_seed": float(subject.protocol.seed),
        "train_ratio": round(n_train / n, 4),
        "training_time_seconds": round(timing.fit_s, 3),
        "optimized": "no",
    }
    if training is not None:
        finetune |= {
            "val_samples": training["n_val"],
            "epochs": float(training["epochs"]),
            "lr": settings["lr"],
            "weight_decay": settings["weight_decay"],
        }
    return {**record, "finetune": finetune}


def _what_was_done(
    model: ModelEntry, probe: str, settings: Mapping[str, Any], training: Mapping[str, Any] | None
) -> tuple[str, str]:
    """Return the type of result, and the same in a sentence without its end."""
    if training is not None:
        return "fine-tuned", (
            f"{model.checkpoint} fine-tuned, all layers; weights of epoch {training['best_epoch']} of "
            f"{training['epochs']}, the lowest validation loss; augmented with random crops, flips and colours"
        )
    if probe == ZERO_SHOT:
        prompts = ", ".join(f'"{prompt}"' for prompt in settings["prompts"])
        return "zero-shot", f"Zero-shot answers of {model.checkpoint} to {prompts}"
    return f"frozen features, {probe} probe", f"Frozen features of {model.checkpoint}, {probe} probe"


def _accuracy(predictions: pl.DataFrame) -> float:
    return float((labels_of(predictions, "true") == labels_of(predictions, "predicted")).mean())
