"""Scores of a submission back from `task_scores.json`, so that stored submissions can be compared."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agml_assets.compression.exact.evaluate import (
    Control,
    Estimate,
    ExactResult,
    ExactSettings,
    Excluded,
    TaskResult,
)
from agml_assets.compression.exact.uncertainty import Interval, Spread


def result_from_json(document: Mapping[str, Any]) -> ExactResult:
    """Return what `exact.evaluate.to_json` made of a result; of fold scores, null is NaN again."""
    settings: dict[str, Any] = {
        name: tuple(one) if isinstance(one, list) else one for name, one in document["settings"].items()
    }
    return ExactResult(
        ExactSettings(**settings),
        tuple(map(_task, document["tasks"])),
        tuple(Excluded(**one) for one in document["excluded"]),
    )


def _task(one: Mapping[str, Any]) -> TaskResult:
    control = one["control"]
    return TaskResult(
        **{
            **one,
            "score": _estimate(one["score"]),
            "others": {name: _estimate(other) for name, other in one["others"].items()},
            "control": Control(_estimate(control["score"]), control["repeats"]) if control else None,
            "ids": tuple(one["ids"]),
            "class_names": tuple(one["class_names"]),
            "exclusions": tuple(one["exclusions"]),
            "true": np.asarray(one["true"]),
            "predicted": np.asarray(one["predicted"]),
            "contributions": np.asarray(one["contributions"], np.float64),
            "penalties": np.asarray(one["penalties"], np.float64),
            "fold_scores": np.asarray(one["fold_scores"], np.float64),
            "spread": Spread(**{name: _array(value) for name, value in one["spread"].items()}),
        }
    )


def _estimate(one: Mapping[str, Any]) -> Estimate:
    intervals = {
        name: Interval(**one[name]) if one[name] else None for name in ("interval", "corrected_resampled")
    }
    return Estimate(one["value"], **intervals)


def _array(value: Any) -> Any:
    return None if value is None else np.asarray(value, np.float64)
