"""The score `calibrated-1`: every component between fixed anchors, none measured against other datasets.

From the metrics' JSON values, like `score.py`, whose axes and weights it shares. Intervals are the work of
`score_intervals.py`; the reasons for each anchor are in `docs/scoring.md`.
"""

from collections.abc import Mapping
from math import isfinite, sqrt
from typing import Any

from agml_assets.quality.score import WEIGHTS, Metrics

FORMULA = "calibrated-1"

COMPONENTS: dict[str, dict[str, float]] = {
    "structural": {"balance": 0.40, "redundancy": 0.35, "resolution": 0.25},
    "difficulty": {"silhouette": 0.20, "davies_bouldin": 0.20, "cartography": 0.30, "confusability": 0.30},
    "diversity": {"diversity": 1.0},
    "annotation": {"annotation": 1.0},
}
"""Components of each axis with their weights inside it, those of `agml-2026`."""

SOURCES: dict[str, tuple[str, str | None]] = {
    "balance": ("class_imbalance.normalized_entropy", None),
    "redundancy": ("exact_duplicate.exact_duplicate_rate", "exact_duplicate.blake3.duplicate_rate"),
    "resolution": ("resolution_consistency.area_cv", None),
    "silhouette": ("feature_separability.silhouette_score", "feature_separability.silhouette_score_all"),
    "davies_bouldin": ("feature_separability.davies_bouldin_index", None),
    "cartography": ("dataset_cartography.mean_confidence", "dataset_cartography.true_label.mean_confidence"),
    "confusability": ("class_confusability.accuracy", "leakage.leak_safe.accuracy"),
    "diversity": ("intra_class_diversity.mean_diversity", "intra_class_diversity.mean_diversity_present"),
    "annotation": ("label_noise.estimated_noise_rate", "label_noise.leak_safe.estimated_noise_rate"),
}
"""Where each component's figure stands: its published key, and the honest one beside it if there is one."""

_CHANCE = 1.0
"""Points for what chance alone gives. Above 0, so that worse than chance still differs from worst."""


class _NotMeasuredError(Exception):
    """A component lacks something; the message is the reason that the result states."""


def calibrated_score(metrics: Metrics, *, honest: bool) -> dict[str, Any]:
    """Compute the four axes and the overall score between anchors that no dataset moves.

    Each component runs from 0, the worst possible, to 10, the ideal; where there is such a thing as chance, that
    is worth 1 point, and both stretches are straight: with value x, worst w, chance z, ideal i,

        anchored(x) = 1 + 9 (x - z) / (i - z) from chance to ideal, (x - w) / (z - w) from worst to chance.

    c is the share of the largest class in training: what is right by naming it for every image.

    - balance = 10 normalized_entropy
    - redundancy = 10 (1 - max(exact_duplicate_rate, near_duplicate_rate)): near-duplicates include exact ones
    - resolution = 10 / (1 + area_cv)
    - silhouette = anchored(silhouette_score), worst -1, chance 0, ideal 1
    - davies_bouldin = 10 / (1 + davies_bouldin_index); honest: 0 where centroids of classes coincide, which the
      index passes over although it is infinite there
    - cartography = anchored(mean_confidence), worst 0, chance c, ideal 1
    - confusability = anchored(accuracy), worst 0, chance c, ideal 1
    - diversity = 10 mean_diversity
    - annotation = anchored(sqrt(estimated_noise_rate)), worst 1, chance sqrt(1 - c), ideal 0

    An axis is the mean of its components with the weights of `COMPONENTS`, overall that of the axes with
    `score.WEIGHTS`. An axis that lacks a component is not measured: overall is then an interval, with that axis
    at 0 and at 10. All but redundancy, which looks at the larger rate only, rise or fall strictly with
    their figure over its whole range.

    Args:
        metrics: JSON value of each metric by name; published reports as well as our own. A metric counts when
            it is there and not skipped.
        honest: Read the second of `SOURCES` where the report has it, so that copies and sampling do not flatter;
            else the published keys alone.

    Returns:
        `formula`, `honest`; `overall` {`low`, `high`}, equal where all axes are measured; `ranking_value`, its
        lower end; `axes` {name: score or null}; `components` {name: value} of those that were measured;
        `unavailable` {axis: reason}; `inputs` {component: key that was read};
        `published_inputs`, components of which an honest figure was not there or not asked for; `chance`, c or
        null. Scores have 4 decimals.
    """
    components: dict[str, float] = {}
    inputs: dict[str, str] = {}
    lacking: dict[str, str] = {}
    for name in SOURCES:
        try:
            components[name], inputs[name] = _measure(name, metrics, honest)
        except _NotMeasuredError as lack:
            lacking[name] = str(lack)

    axes: dict[str, float | None] = {}
    unavailable: dict[str, str] = {}
    for axis, parts in COMPONENTS.items():
        reasons = dict.fromkeys(lacking[part] for part in parts if part in lacking)
        axes[axis] = None if reasons else sum(weight * components[part] for part, weight in parts.items())
        if reasons:
            unavailable[axis] = " ".join(reasons)

    low = sum(WEIGHTS[axis] * (value or 0) for axis, value in axes.items())
    high = low + sum(WEIGHTS[axis] * 10 for axis in unavailable)
    return {
        "formula": FORMULA,
        "honest": honest,
        "overall": {"low": round(low, 4), "high": round(high, 4)},
        "ranking_value": round(low, 4),
        "axes": {axis: None if value is None else round(value, 4) for axis, value in axes.items()},
        "components": {name: round(value, 4) for name, value in components.items()},
        "unavailable": unavailable,
        "inputs": inputs,
        "published_inputs": [
            name for name, key in inputs.items() if SOURCES[name][1] is not None and key != SOURCES[name][1]
        ],
        "chance": _chance(metrics),
    }


def read_figure(metrics: Metrics, key: str) -> float | None:
    """Return the number at `metric.key` or `metric.object.key`; null where there is none or it is skipped."""
    name, *path = key.split(".")
    value: Any = metrics.get(name)
    if not isinstance(value, Mapping) or value.get("skipped"):
        return None
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def _measure(name: str, metrics: Metrics, honest: bool) -> tuple[float, str]:
    """Return the points of a component and the key that they come from."""
    published, sibling = SOURCES[name]
    # A report that could have the honest figure and has none is not scored by the flattering one.
    key = sibling if honest and sibling and _could_have(metrics, sibling) else published
    value = _need(metrics, key)
    match name:
        case "redundancy":
            return 10 * (1 - max(value, _need(metrics, "near_duplicate.near_duplicate_rate"))), key
        case "resolution":
            return 10 / (1 + value), key
        case "silhouette":
            return _anchored(value, worst=-1, chance=0, ideal=1), key
        case "davies_bouldin":
            coincident = honest and metrics["feature_separability"].get("coincident_classes")
            return (0.0 if coincident else 10 / (1 + value)), key
        case "cartography" | "confusability":
            return _anchored(value, worst=0, chance=_need_chance(metrics), ideal=1), key
        case "annotation":
            return _anchored(sqrt(value), worst=1, chance=sqrt(1 - _need_chance(metrics)), ideal=0), key
        case _:  # balance and diversity, fractions of their ideal
            return 10 * value, key


def _could_have(metrics: Metrics, key: str) -> bool:
    """Return whether a report measured what the figure at `key` belongs to, whether or not there is a number."""
    name, *path = key.split(".")
    value: Any = metrics.get(name)
    if not isinstance(value, Mapping) or value.get("skipped"):
        return False
    for part in path[:-1]:
        value = value.get(part)
        if not isinstance(value, Mapping):
            return False
    return len(path) > 1 or path[0] in value


def _anchored(value: float, *, worst: float, chance: float, ideal: float) -> float:
    above = (value - chance) / (ideal - chance)
    if above >= 0:
        return _CHANCE + (10 - _CHANCE) * above
    return _CHANCE * (value - worst) / (chance - worst)


def _chance(metrics: Metrics) -> float | None:
    """Return the share of the largest class among the training images; null where they are of one class."""
    balance = metrics.get("class_imbalance")
    counts = balance.get("counts") if balance else None
    present = [count for count in counts.values() if count > 0] if counts else []
    return float(max(present) / sum(present)) if len(present) > 1 else None


def _need_chance(metrics: Metrics) -> float:
    chance = _chance(metrics)
    if chance is None:
        raise _NotMeasuredError("class_imbalance counts fewer than two classes, so there is no level of chance.")
    return chance


def _need(metrics: Metrics, key: str) -> float:
    value = read_figure(metrics, key)
    if value is not None:
        return value
    name, _, figure = key.partition(".")
    metric = metrics.get(name)
    if metric is None:
        raise _NotMeasuredError(f"{name} is missing.")
    if metric.get("skipped"):
        raise _NotMeasuredError(f"{name} is skipped: {metric.get('reason', 'no reason given')}")
    raise _NotMeasuredError(f"{name} has no number for {figure}.")
