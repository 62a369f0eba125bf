"""The rows that the site makes of the run records of one dataset: its generator's and its dataset page's.

Followed to the letter, oddities included; the board that corrects them is in `board`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, Literal

from agml_assets.leaderboard.javascript import finite, number_text, to_fixed, to_number, trimmed, truthy
from agml_assets.leaderboard.metric_names import (
    FAMILIES,
    family_scores,
    label_category,
    metric_label,
    primary_metric,
)

Variant = Literal["zero-shot", "fine-tuned"]
VARIANTS: tuple[Variant, ...] = ("zero-shot", "fine-tuned")

_PARTS = (
    ("train_samples", "trained on {} images from this dataset"),
    ("val_samples", "validated on {} images"),
    ("epochs", "{} epochs"),
    ("lr", "lr={}"),
    ("weight_decay", "weight decay={}"),
    ("split_seed", "seed={}"),
    ("train_ratio", "train ratio={}"),
)
"""What the notes of a fine-tuned run say of its training, in this order."""


@dataclass(frozen=True)
class SiteRow:
    """The best run of a model on a dataset, zero-shot or fine-tuned.

    Attributes:
        record: The run record as published.
        model: Its model, trimmed.
        variant: Fine-tuned where the record has a `finetune` object.
        metric: The metric that ranks it.
        score: Its value, as a double.
    """

    record: Mapping[str, Any]
    model: str
    variant: Variant
    metric: str
    score: float


def site_rows(records: Sequence[Any], *, metrics_may_be_lists: bool) -> tuple[str | None, list[SiteRow]]:
    """Return the metric's name and the best run of each model and variant, best first.

    Of equal runs the first in the file counts, and equal models stand in order of appearance. The name is that
    of the first run that counts at all, whatever ranks the others.

    Args:
        records: The elements of the dataset's file.
        metrics_may_be_lists: The generator takes lists for metrics; the page does not.
    """
    first: str | None = None
    best: dict[str, dict[Variant, SiteRow]] = {}
    for record in records:
        row = _site_row(record, metrics_may_be_lists)
        if row is None:
            continue
        first = first or row.metric
        slots = best.setdefault(row.model, {})
        if row.variant not in slots or row.score > slots[row.variant].score:
            slots[row.variant] = row
    rows = [slots[variant] for slots in best.values() for variant in VARIANTS if variant in slots]
    return first, sorted(rows, key=lambda row: -row.score)


def _site_row(record: Any, metrics_may_be_lists: bool) -> SiteRow | None:
    if not isinstance(record, Mapping):
        return None
    model, metrics = trimmed(record.get("model")), record.get("metrics")
    takes = Mapping | list if metrics_may_be_lists else Mapping
    if model is None or not isinstance(metrics, takes):
        return None
    metric = primary_metric(record.get("task"), metrics)
    if not metric:  # the site takes a metric without a name for none
        return None
    score = finite(metrics[metric] if isinstance(metrics, Mapping) else metrics[int(metric)])
    if score is None:
        return None
    variant: Variant = "fine-tuned" if finetune_of(record) is not None else "zero-shot"
    return SiteRow(record, model, variant, metric, score)


def finetune_of(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the `finetune` object of a record; an empty one counts, anything but an object does not."""
    finetune = record.get("finetune")
    return finetune if isinstance(finetune, Mapping) else None


def is_optimized(value: Any) -> bool:
    """Return whether a value says that inference was optimised: `yes`, or what is true."""
    return (trimmed(value) or "").lower() == "yes" if isinstance(value, str) else truthy(value)


def row_is_optimized(record: Mapping[str, Any]) -> bool:
    """Return whether the record or its `finetune` object says that inference was optimised."""
    finetune = finetune_of(record) or {}
    return is_optimized(record.get("optimized")) or is_optimized(finetune.get("optimized"))


def build_notes(row: SiteRow) -> str:
    """Return a line on how the run was made, and below it the record's own notes."""
    finetune = finetune_of(row.record)
    if finetune is None:
        samples = finite(row.record.get("num_samples"))
        parts = ["Zero-shot"] + ([f"evaluated on {number_text(samples)} images"] if samples is not None else [])
    else:
        numbers = ((finite(finetune.get(name)), wording) for name, wording in _PARTS)
        parts = ["Fine-tuned", *(wording.format(number_text(n)) for n, wording in numbers if n is not None)]
    own = trimmed(row.record.get("notes"))
    return " · ".join(parts) + (f"\n\n{own}" if own else "")


def split_breakdown(record: Mapping[str, Any]) -> str | None:
    """Return the percentages of train, test and validation images, such as `70/15/15` or `-/100/-`."""
    counts = _split_counts(record)
    total = sum(count or 0 for count in counts)
    if not total:
        return None
    return "/".join("-" if count is None else to_fixed(count / total * 100, 0) for count in counts)


def _split_counts(record: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    finetune = finetune_of(record) or {}
    return (
        finite(finetune.get("train_samples")),
        finite(record.get("num_samples")),
        finite(finetune.get("val_samples")),
    )


def date_of(record: Mapping[str, Any]) -> str | None:
    """Return the day of a record's time."""
    timestamp = trimmed(record.get("timestamp"))
    return timestamp[:10] if timestamp else None


def dataset_config_of(record: Mapping[str, Any]) -> str:
    """Return the configuration of the dataset that was evaluated; `raw` where none is named."""
    return trimmed(record.get("dataset_config")) or "raw"


def train_seconds_per_image(record: Mapping[str, Any]) -> float | None:
    """Return training time per training image, in s, of a fine-tuned run."""
    finetune = finetune_of(record) or {}
    seconds, images = finite(finetune.get("training_time_seconds")), finite(finetune.get("train_samples"))
    return seconds / images if seconds is not None and images else None


def inference_seconds_per_image(record: Mapping[str, Any]) -> float | None:
    """Return inference time per evaluated image, in s."""
    seconds, images = finite(record.get("inference_time_seconds")), finite(record.get("num_samples"))
    return seconds / images if seconds is not None and images is not None and images > 0 else None


def dataset_table(document: Any) -> dict[str, Any]:
    """Return the table on a dataset's page.

    Args:
        document: The JSON value in the dataset's file: records, or an object with a ready `leaderboard`.

    Returns:
        `metric`, null if there is none, and `entries` in the page's order with the page's keys.
    """
    if isinstance(document, list):
        metric, rows = site_rows(document, metrics_may_be_lists=False)
        return {"metric": metric, "entries": [_page_entry(row, rank) for rank, row in enumerate(rows, start=1)]}
    if isinstance(document, Mapping) and isinstance(document.get("leaderboard"), list):
        ready = [entry for raw in document["leaderboard"] if (entry := _ready_entry(raw)) is not None]
        return {"metric": trimmed(document.get("metric")), "entries": in_rank_order(ready)}
    return {"metric": None, "entries": []}


def in_rank_order(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ready entries by rank where both have one, else by score where both have one."""

    def compare(one: dict[str, Any], other: dict[str, Any]) -> int:
        for name, sign in (("rank", 1), ("score", -1)):
            first, second = finite(one.get(name)), finite(other.get(name))
            if first is not None and second is not None:
                return sign * ((first > second) - (first < second))
        return 0

    return sorted(entries, key=cmp_to_key(compare))


def _page_entry(row: SiteRow, rank: int) -> dict[str, Any]:
    record, metrics = row.record, row.record["metrics"]
    shown = [
        {"key": name, "label": label, "value": value}
        for name, value in metrics.items()
        if finite(value) is not None and (label := metric_label(name))
    ]
    counts = _split_counts(record)
    total, trained = sum(count or 0 for count in counts), counts[0]
    return {
        "model": row.model,
        "score": row.score,
        "benchmarkId": finite(record.get("benchmark_id")),
        "variant": row.variant,
        "date": date_of(record),
        "submitted_by": None,
        "link": None,
        "optimized": row_is_optimized(record),
        "splitBreakdown": split_breakdown(record),
        "trainPercentage": trained / total * 100 if trained is not None and total else None,
        "datasetConfig": dataset_config_of(record),
        "trainTimePerImage": train_seconds_per_image(record),
        "infTimePerImage": inference_seconds_per_image(record),
        "platform": trimmed(record.get("device")),
        "metrics": shown,
        "metricCategories": list(dict.fromkeys(label_category(one["label"]) for one in shown)),
        "categoryScores": family_scores(metrics),
        "rank": rank,
        "notes": build_notes(row),
    }


def _ready_entry(raw: Any) -> dict[str, Any] | None:
    if not isinstance(raw, Mapping):
        return None

    def first(*names: str) -> Any:
        return next((raw[name] for name in names if raw.get(name) is not None), None)

    model = trimmed(first("model", "model_name", "name"))
    if model is None:
        return None
    variant = raw.get("variant")
    return {
        "model": model,
        "score": to_number(first("score", "value", "metric_value")),
        "benchmarkId": to_number(raw.get("benchmark_id")),
        "variant": variant if variant in VARIANTS else None,
        "date": trimmed(first("date", "submitted_at")),
        "submitted_by": trimmed(first("submitted_by", "submittedBy", "author")),
        "link": trimmed(first("link", "url", "source_link")),
        "optimized": is_optimized(raw.get("optimized")),
        "splitBreakdown": trimmed(raw.get("split_breakdown")),
        "trainPercentage": to_number(raw.get("train_percentage")),
        "datasetConfig": trimmed(first("dataset_config", "config")) or "raw",
        "trainTimePerImage": to_number(raw.get("train_time_per_image")),
        "infTimePerImage": to_number(raw.get("inference_time_per_image")),
        "platform": trimmed(first("platform", "device")),
        "metrics": [],
        "metricCategories": [],
        "categoryScores": dict.fromkeys(FAMILIES),
        "rank": to_number(raw.get("rank")),
        "notes": trimmed(raw.get("notes")),
    }
