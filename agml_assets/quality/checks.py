"""Checks of this room: do the numbers agree with one another, and what should a reader look into."""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from agml_assets.lineage import Artifact
from agml_assets.quality.artifacts import SCORE
from agml_assets.recording import check, check_spec

CONSISTENT = "metrics_agree"
NOTHING_TO_LOOK_INTO = "nothing_to_look_into"

_UNEVEN = 10.0
"""Largest class over smallest beyond which accuracies say little of the small ones (dataset curators' custom)."""


def consistent_spec(datasets: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    """Return the spec of the invariants; a breach is an ERROR, the report is written all the same."""
    description = (
        "ERROR when metrics contradict one another: exact copies outside near-duplicate groups, more "
        "images across splits than there are, groups that do not sum up."
    )
    return check_spec(SCORE, CONSISTENT, description, datasets)


def consistent_check(breaches: list[str]) -> dg.AssetCheckResult:
    """Name every breach."""
    return check(SCORE, CONSISTENT, passed=not breaches, error=True, breaches=breaches)


def concerns_specs(name: str, artifact: Artifact, datasets: dg.PartitionsDefinition) -> list[dg.AssetCheckSpec]:
    """Return the spec of the check on what a metric found, for metrics that find things."""
    if name not in CONCERNS:
        return []
    description = "WARN, with the counts, when the metric found what a curator should look into."
    return [check_spec(artifact, NOTHING_TO_LOOK_INTO, description, datasets)]


def concerns_checks(name: str, artifact: Artifact, value: Mapping[str, Any]) -> list[dg.AssetCheckResult]:
    """Say what a metric found."""
    if name not in CONCERNS:
        return []
    found = {} if value.get("skipped") else {k: v for k, v in CONCERNS[name](value).items() if v}
    return [check(artifact, NOTHING_TO_LOOK_INTO, passed=not found, found=found)]


CONCERNS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "class_imbalance": lambda value: {
        "classes without images": value["empty_classes"],
        "largest class over smallest": value["imbalance_ratio"] if value["imbalance_ratio"] > _UNEVEN else None,
    },
    "exact_duplicate": lambda value: {
        "images with a copy in another split": value["blake3"]["cross_split_duplicates"],
        "groups of copies with different labels": value["blake3"]["label_conflicts"]["groups"],
    },
    "near_duplicate": lambda value: {
        "images with a near-duplicate in another split": value["cross_split_near_duplicates"],
        "groups of near-duplicates with different labels": value["label_conflicts"]["groups"],
    },
    "feature_separability": lambda value: {"classes that coincide": value["coincident_classes"]},
    "label_noise": lambda value: {"labels flagged": value["n_noisy_samples"]},
    "image_health": lambda value: {
        kind: issue["count"] for kind, issue in value["issues"].items() if not issue["widespread"]
    },
    "leakage": lambda value: {
        "accuracy that copies across splits add": max(value["leakage_inflation"] or 0, 0),
        "images sent to train": value["images_sent_to_train"],
    },
}
"""What each metric may find, in words -> how much; nothing where it is empty or zero."""
