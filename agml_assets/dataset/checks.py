"""Checks of this room: are the images readable, were the split recipes followed."""

from collections.abc import Mapping, Sequence

import dagster as dg
import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, SPLITS
from agml_assets.dataset.decode_pass import UnreadableShare, unreadable_share
from agml_assets.recording import check, check_spec, table
from agml_assets.settings import Settings

READABLE = "images_are_readable"
RECIPES = "split_recipes_were_followed"


def readable_spec(datasets: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    """Return the spec of the readability check, which stops the run when too many images are unreadable."""
    description = "WARN at one unreadable image; ERROR, and the run stops, above `max_unreadable_pct` percent."
    return check_spec(IMAGE_INDEX, READABLE, description, datasets, blocking=True)


def readable_check(image_index: pl.DataFrame, settings: Settings) -> dg.AssetCheckResult:
    """Judge the share of unreadable images; the files are named."""
    share = unreadable_share(image_index)
    percent = 100 * share.unreadable / share.total
    return check(
        IMAGE_INDEX,
        READABLE,
        passed=share.unreadable == 0,
        error=percent > settings.max_unreadable_pct,
        description=_describe_unreadable(share, percent, settings),
        unreadable_count=float(share.unreadable),
        unreadable_pct=round(percent, 3),
        allowed_pct=settings.max_unreadable_pct,
        files=table(("source_row", "file", "reason"), share.reasons.iter_rows()),
    )


def _describe_unreadable(share: UnreadableShare, percent: float, settings: Settings) -> str:
    if not share.unreadable:
        return "All images can be read."
    files = [f"{file or f'image {row}'} ({reason})" for row, file, reason in share.reasons.head(3).iter_rows()]
    more = f" and {share.unreadable - len(files)} more" if share.unreadable > len(files) else ""
    return (
        f"{share.unreadable} of {share.total} images ({percent:.2f} %) cannot be read; allowed are "
        f"{settings.max_unreadable_pct:g} %: {', '.join(files)}{more}. Repair or remove them, or raise "
        "max_unreadable_pct."
    )


def split_spec(datasets: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    """Return the spec of the split check."""
    return check_spec(
        SPLITS,
        RECIPES,
        "WARN when a recipe had to fall back, for instance to a split without strata.",
        datasets,
    )


def split_check(fallbacks: Mapping[str, Sequence[str]]) -> dg.AssetCheckResult:
    """Report every fallback of every recipe."""
    sentences = [f"{recipe}: {sentence}" for recipe, said in fallbacks.items() for sentence in said]
    return check(SPLITS, RECIPES, passed=not sentences, fallbacks=sentences)
