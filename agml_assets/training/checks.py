"""Checks of this room: does no copy straddle the leak-safe split, and is enough of it left."""

import dagster as dg
import numpy as np
import polars as pl
from jaxtyping import Int64

from agml_assets.recording import check, check_spec
from agml_assets.training.artifacts import GROUPED_SPLITS

COPIES = "no_copy_straddles_the_leak_safe_split"
ENOUGH = "leak_safe_split_takes_every_class"


def copies_spec(datasets: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    """Return the spec of the check that leak-safe means leak-safe."""
    description = "ERROR, and the run stops, when a group of copies lies in two splits or two folds."
    return check_spec(GROUPED_SPLITS, COPIES, description, datasets, blocking=True)


def copies_check(grouped: pl.DataFrame, groups: Int64[np.ndarray, " n"]) -> dg.AssetCheckResult:
    """Name the groups that straddle splits or folds."""
    parts = grouped.sort("row").with_columns(group=pl.Series(groups)).group_by("group")
    counts = parts.agg(pl.col("split").n_unique(), pl.col("fold").n_unique())
    torn = counts.filter((pl.col("split") > 1) | (pl.col("fold") > 1))["group"].sort()
    return check(
        GROUPED_SPLITS,
        COPIES,
        passed=torn.is_empty(),
        error=True,
        straddling_groups_expected=0,
        straddling_groups_seen=len(torn),
        groups=torn.head(20).to_list(),
    )


def enough_spec(datasets: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    """Return the spec of the check on images that could not be drawn."""
    description = "WARN when groups or classes had to go to train, so that leak-safe figures leave them out."
    return check_spec(GROUPED_SPLITS, ENOUGH, description, datasets)


def enough_check(grouped: pl.DataFrame) -> dg.AssetCheckResult:
    """Say how many images went to train, and why."""
    reasons = grouped["reason"].drop_nulls().value_counts(sort=True).head(20)
    sent = int(grouped["reason"].count())
    return check(
        GROUPED_SPLITS,
        ENOUGH,
        passed=sent == 0,
        sent_to_train_expected=0,
        sent_to_train_seen=sent,
        reasons=dict(reasons.iter_rows()),
    )
