"""The published score of a dataset, 0 to 10 on four axes and overall, from the metrics' JSON values.

Formula `agml-2026` as the AgML site computes it, JavaScript rounding included. Interpreting is the reader's
work: `docs/scoring.md` says what the formula is known to get wrong.
"""

from collections.abc import Callable, Collection, Mapping
from math import floor, isfinite
from typing import Any

FORMULA = "agml-2026"

WEIGHTS = {"structural": 0.30, "difficulty": 0.25, "diversity": 0.25, "annotation": 0.20}
"""Published weights of the axes; over the available ones they are brought to sum 1."""

Metrics = Mapping[str, Mapping[str, Any]]


class _NotMeasuredError(Exception):
    """An axis lacks something; the message is the reason that the result states."""


def score(metrics: Metrics, phases_completed: Collection[int]) -> dict[str, Any]:
    """Compute the four axes and the overall score.

    c(x) clamps x to [0, 10].

    - structural = c(0.40 balance + 0.35 redundancy + 0.25 resolution - leakage_penalty), with
      balance = c(10 normalized_entropy), redundancy = c(10 (1 - (exact_duplicate_rate + near_duplicate_rate)
      / 0.20)), resolution = c(10 (1 - area_cv)), leakage_penalty = 100 (cross_split_duplicates +
      cross_split_near_duplicates) / total_images, clamped to [0, 2]. Needs phase 1 and all four metrics.
    - difficulty = 0.40 separability + 0.30 cartography + 0.30 confusability, with separability = the mean of
      c(10 silhouette_score) and c(10 - 3 davies_bouldin_index), cartography = c(10 (1 - pct_hard / 50)),
      confusability = c(10 accuracy). Needs phase 2; separability alone without the phase 3 metrics.
    - diversity = c(10 mean_diversity / 0.4). Needs phase 2.
    - annotation = 10 (1 - estimated_noise_rate / 0.10, clamped to [0, 1])^1.5. Needs phase 3.
    - overall = sum(w axis) / sum(w) over the available axes, unrounded.

    A metric counts when it is there and not skipped.

    Args:
        metrics: JSON value of each metric by name.
        phases_completed: Numbers of the completed phases.

    Returns:
        `formula`; `overall` and `axes` {name: score}, one decimal, halves up, null where unavailable;
        `weights` of the available axes, summing to 1; `components` {name: value}, 4 decimals, of
        the axes that could be computed; `unavailable` {axis: reason}; `incomplete` {axis: reason}, axes
        computed from a part of their metrics, hence not comparable with complete ones.
    """
    axes: dict[str, float] = {}
    components: dict[str, float] = {}
    unavailable: dict[str, str] = {}
    incomplete: dict[str, str] = {}
    for axis, measure in _AXES.items():
        try:
            axes[axis], parts, missing = measure(metrics, phases_completed)
        except _NotMeasuredError as lack:
            unavailable[axis] = str(lack)
            continue
        components |= parts
        if missing:
            incomplete[axis] = missing

    total_weight = sum(WEIGHTS[axis] for axis in axes)
    overall = sum(value * WEIGHTS[axis] for axis, value in axes.items()) / total_weight if axes else None
    return {
        "formula": FORMULA,
        "overall": None if overall is None else round_half_up(overall),
        "axes": {axis: round_half_up(axes[axis]) if axis in axes else None for axis in WEIGHTS},
        "weights": {axis: round(WEIGHTS[axis] / total_weight, 4) for axis in axes},
        "components": {name: round(value, 4) for name, value in components.items()},
        "unavailable": unavailable,
        "incomplete": incomplete,
    }


def round_half_up(value: float) -> float:
    """Round to one decimal as JavaScript's `Math.round(value * 10) / 10`: halves go up, also below zero.

    Python's `round` goes to the even neighbour and looks at the decimal value, not at value * 10.
    """
    tenfold = value * 10
    below = floor(tenfold)
    return (below + (tenfold - below >= 0.5)) / 10


_Axis = tuple[float, dict[str, float], str | None]


def _structural(metrics: Metrics, phases: Collection[int]) -> _Axis:
    _need_phase(1, phases)
    balance = _clamp(_value(metrics, "class_imbalance", "normalized_entropy") * 10)
    copies = _value(metrics, "exact_duplicate", "exact_duplicate_rate") + _value(
        metrics, "near_duplicate", "near_duplicate_rate"
    )
    redundancy = _clamp(10 * (1 - copies / 0.2))
    resolution = _clamp(10 * (1 - _value(metrics, "resolution_consistency", "area_cv")))
    crossing = _value(metrics, "exact_duplicate", "cross_split_duplicates") + _value(
        metrics, "near_duplicate", "cross_split_near_duplicates"
    )
    total = _value(metrics, "exact_duplicate", "total_images")
    penalty = _clamp(crossing * 100 / total, high=2) if total > 0 else 0.0
    parts = {
        "balance": balance,
        "redundancy": redundancy,
        "resolution": resolution,
        "leakage_penalty": penalty,
    }
    return _clamp(0.4 * balance + 0.35 * redundancy + 0.25 * resolution - penalty), parts, None


def _difficulty(metrics: Metrics, phases: Collection[int]) -> _Axis:
    _need_phase(2, phases)
    silhouette = _clamp(_value(metrics, "feature_separability", "silhouette_score") * 10)
    davies_bouldin = _clamp(10 - _value(metrics, "feature_separability", "davies_bouldin_index") * 3)
    separability = (silhouette + davies_bouldin) / 2
    parts = {"silhouette": silhouette, "davies_bouldin": davies_bouldin, "separability": separability}
    lacking = [name for name in ("dataset_cartography", "class_confusability") if _lack(metrics, name)]
    if 3 not in phases or lacking:
        without = " and ".join(lacking) if 3 in phases else "phase 3"
        return separability, parts, f"Separability alone, without {without}."
    cartography = _clamp(10 * (1 - _value(metrics, "dataset_cartography", "pct_hard") / 50))
    confusability = _clamp(_value(metrics, "class_confusability", "accuracy") * 10)
    parts |= {"cartography": cartography, "confusability": confusability}
    return 0.4 * separability + 0.3 * cartography + 0.3 * confusability, parts, None


def _diversity(metrics: Metrics, phases: Collection[int]) -> _Axis:
    _need_phase(2, phases)
    diversity = _clamp(_value(metrics, "intra_class_diversity", "mean_diversity") / 0.4 * 10)
    return diversity, {"diversity": diversity}, None


def _annotation(metrics: Metrics, phases: Collection[int]) -> _Axis:
    _need_phase(3, phases)
    clean = _clamp(1 - _value(metrics, "label_noise", "estimated_noise_rate") / 0.1, high=1)
    annotation = _clamp(10 * clean**1.5)
    return annotation, {"annotation": annotation}, None


_AXES: dict[str, Callable[[Metrics, Collection[int]], _Axis]] = {
    "structural": _structural,
    "difficulty": _difficulty,
    "diversity": _diversity,
    "annotation": _annotation,
}


def _need_phase(phase: int, phases: Collection[int]) -> None:
    if phase not in phases:
        raise _NotMeasuredError(f"Phase {phase} is not completed.")


def _lack(metrics: Metrics, metric: str) -> str | None:
    """Return why `metric` does not count, or null."""
    value = metrics.get(metric)
    if value is None:
        return f"{metric} is missing."
    if value.get("skipped"):
        return f"{metric} is skipped: {value.get('reason', 'no reason given')}"
    return None


def _value(metrics: Metrics, metric: str, key: str) -> float:
    lack = _lack(metrics, metric)
    if lack:
        raise _NotMeasuredError(lack)
    number = metrics[metric].get(key)
    if not isinstance(number, int | float) or not isfinite(number):
        raise _NotMeasuredError(f"{metric} has no number for {key}.")
    return number


def _clamp(value: float, high: float = 10) -> float:
    return min(max(value, 0), high)
