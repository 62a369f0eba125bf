"""What the names of metrics mean: the one that ranks a run, the family, the label on the site.

The rules are the site's; which runs there are is told elsewhere.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agml_assets.leaderboard.javascript import finite, own_keys, to_fixed

TASK_METRICS: dict[str, tuple[str, ...]] = {
    "classification": ("f1", "accuracy", "top1_accuracy"),
    "detection": ("map", "map_50", "map50", "mAP", "mAP@0.5", "f1_at_iou50"),
    "segmentation": ("miou", "iou", "mean_iou"),
}
"""Metrics that rank the runs of a task, the first that a run has."""

Family = Literal["f1", "map", "precision", "recall"]
FAMILIES: tuple[Family, ...] = ("f1", "map", "precision", "recall")
"""Families of metrics, in the order of the site's files."""

_MEAN_AVERAGE_PRECISION = re.compile(r"[mM]?[aA][pP](?:[_@-]|\Z)")
_NAMED_FAMILY = re.compile(r"(f1|precision|prec|recall|rec)(?:[_@-]|\Z)")
_FAMILY_OF: dict[str, Family] = {
    "f1": "f1",
    "precision": "precision",
    "prec": "precision",
    "recall": "recall",
    "rec": "recall",
}
_FAMILY_LABELS = {"f1": "F1", "precision": "Precision", "recall": "Recall"}
_LABELS = {
    "accuracy": "Accuracy",
    "top1_accuracy": "Top-1 Accuracy",
    "miou": "mIoU",
    "iou": "IoU",
    "mean_iou": "mIoU",
}
_AT_HALF = ("map", "map_50", "map@0.5")
_THRESHOLDS = re.compile(r"(\d{2,3})(?:[_-](\d{2,3}))?\s*\Z", re.ASCII)
_OVERLAP = re.compile(r"iou[_@]?(\d{2,3})", re.ASCII)


def primary_metric(task: Any, metrics: Mapping[str, Any] | Sequence[Any]) -> str | None:
    """Return the metric by which the site ranks a run: the task's first that is a number, else any first."""
    if isinstance(metrics, Mapping):
        for name in listed_metrics(task):
            if finite(metrics.get(name)) is not None:
                return name
        return next((name for name in own_keys(metrics) if finite(metrics[name]) is not None), None)
    return next((str(place) for place, value in enumerate(metrics) if finite(value) is not None), None)


def listed_metrics(task: Any) -> tuple[str, ...]:
    """Return the metrics that rank the runs of a task, best first; none for a task without such a list."""
    return TASK_METRICS.get(task, ()) if isinstance(task, str) else ()


def is_score(task: Any, name: str) -> bool:
    """Return whether a metric is a score, a fraction of which more is better: one of the task or of a family."""
    return name in listed_metrics(task) or family(name) is not None


def family(name: str) -> Family | None:
    """Return the family that a metric belongs to."""
    if is_mean_average_precision(name):
        return "map"
    return _named_family(name)


def family_scores(metrics: Mapping[str, Any] | Sequence[Any]) -> dict[Family, Any]:
    """Return the largest number of each family; null where there is none."""
    scores: dict[Family, Any] = dict.fromkeys(FAMILIES)
    if isinstance(metrics, Mapping):
        for name, value in metrics.items():
            number = finite(value)
            kind = family(name) if number is not None else None
            if kind is not None and (scores[kind] is None or number > scores[kind]):
                scores[kind] = number
    return scores


def is_mean_average_precision(name: str) -> bool:
    """Return whether a name is `map` or `ap`, alone or with something after `_`, `@` or `-`."""
    return _MEAN_AVERAGE_PRECISION.match(name) is not None


def metric_label(name: str) -> str | None:
    """Return how the site calls a metric; None for those that it does not show."""
    lower = name.lower()
    if is_mean_average_precision(lower):
        return _mean_average_precision_label(lower)
    if lower in _LABELS:
        return _LABELS[lower]
    kind = _named_family(lower)
    if kind is None:
        return None
    overlap = _OVERLAP.search(lower)
    if overlap is None:
        return _FAMILY_LABELS[kind]
    fraction = re.sub(r"0\Z", "", to_fixed(int(overlap[1]) / 100, 2))
    return f"{_FAMILY_LABELS[kind]}@{fraction.removeprefix('0')}"


def label_category(label: str) -> str:
    """Return under which filter the site shows a label: `f1`, `map`, `precision_recall` or `other`."""
    if label.startswith("mAP"):
        return "map"
    return {"F1": "f1", "Precision": "precision_recall", "Recall": "precision_recall"}.get(label, "other")


def _named_family(name: str) -> Family | None:
    match = _NAMED_FAMILY.match(name.lower())
    return _FAMILY_OF[match[1]] if match else None


def _mean_average_precision_label(name: str) -> str:
    if name in _AT_HALF:
        return "mAP@0.50"
    match = _THRESHOLDS.search(name)
    if match is None:
        return "mAP"
    low, high = (to_fixed(int(part) / 100, 2) if part else None for part in match.groups())
    return f"mAP@[{low}:{high}]" if high else f"mAP@{low}"
