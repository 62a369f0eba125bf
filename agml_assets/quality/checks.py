"""Checks of this room: do the numbers of the report agree with one another."""

import dagster as dg

from agml_assets.quality.artifacts import SCORE
from agml_assets.recording import check, check_spec

CONSISTENT = "metrics_agree"


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
