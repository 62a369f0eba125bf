"""`issues.parquet`: for every image what was found about it, and whether a clean copy of the dataset keeps it.

Columns are called as in cleanlab's Datalab (`is_<issue>_issue`, `<issue>_score`, lower is worse), so that its
users can read the table. What is an issue is decided in `quality` and `embeddings`; here it is put side by side.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, IMAGE_STATISTICS, PIXEL_HASHES, SPLITS
from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, LABELS, NEIGHBORS
from agml_assets.embeddings.neighbors import from_arrays
from agml_assets.lineage import Artifact, Verdict
from agml_assets.quality.groups import SPLITS as SPLIT_NAMES
from agml_assets.quality.image_health import KINDS, health_issues
from agml_assets.quality.label_noise import label_issues
from agml_assets.training.artifacts import GROUPED_SPLITS, OUT_OF_FOLD_GROUPED
from agml_assets.workspace import DatasetWorkspace

SCHEMA: dict[str, type[pl.DataType]] = {
    "row": pl.Int64,
    "source_row": pl.Int64,
    "file": pl.String,
    "given_label": pl.String,
    "suggested_label": pl.String,
    "split": pl.String,
    "grouped_split": pl.String,
    "exact_group": pl.Int64,
    "near_group": pl.Int64,
    "joined_group": pl.Int64,
    "is_label_issue": pl.Boolean,
    "label_score": pl.Float64,
    "is_exact_duplicate_issue": pl.Boolean,
    "is_near_duplicate_issue": pl.Boolean,
    "near_duplicate_score": pl.Float64,
    **{
        name: dtype
        for kind in KINDS
        for name, dtype in ((f"is_{kind}_issue", pl.Boolean), (f"{kind}_score", pl.Float64))
    },
    "keep": pl.Boolean,
    "drop_reason": pl.String,
}
"""Columns of the table, always all of them."""

_PLACES = {split: place for place, split in enumerate(SPLIT_NAMES)}
_LABELS_NAMED = 5


def build_issues(dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]) -> pl.DataFrame:
    """Return the table of issues, from what is current in the store.

    Args:
        dataset: Whose images.
        verdicts: Judgement of its artifacts; of those that are not current nothing is read.

    Returns:
        One row for each usable image, by `row`; without a current image index, none. A column is null
        throughout where an artifact that it comes from is not current.

        `row`; `source_row`; `file`; `given_label`; `split`, that of the recipe in use; `grouped_split`, the
        leak-safe one; `exact_group`, `near_group`, `joined_group`, named by their smallest row.

        `is_label_issue`, `label_score`, `suggested_label` (null where it is the given one or nothing can be
        told): from probabilities of models that saw no copy of the image; see `label_issues`.
        `is_exact_duplicate_issue`, `is_near_duplicate_issue`: the image has a copy; an exact one counts as near.
        `near_duplicate_score`: 1 - cosine to the nearest other image, clipped to [0, 1]; 1 without another.
        `is_<kind>_issue`, `<kind>_score`: see `health_issues`.

        `keep`, with `drop_reason` where false: the clean list, for `split`. Dropped are, in this order, each
        counting no more for those after it: (1) all copies of an image that carry different labels, as nobody
        can say which is right; (2) images with a copy, exact or near, in an earlier split, train before val
        before test; (3) of exact copies all but the first, those in no split coming last. So no copy straddles
        `split`. Near copies in one split stay, and so do suspected labels and unhealthy images: a person
        decides. Null without current hashes.
    """

    def current(*artifacts: Artifact) -> bool:
        return all(verdicts[artifact.key].state == "current" for artifact in artifacts)

    if not current(IMAGE_INDEX):
        return pl.DataFrame(schema=SCHEMA)
    index = dataset.read(IMAGE_INDEX)
    images = usable_images(index)
    frame = images.select("row", "source_row", "file", given_label=pl.col("class_name").cast(pl.String))
    taken = (
        (SPLITS, {"split": dataset.settings.split_recipe}),
        (GROUPED_SPLITS, {"grouped_split": "split"}),
        (PIXEL_HASHES, {"exact_group": "blake3_group"}),
        (DUPLICATE_GROUPS, {"near_group": "near", "joined_group": "joined"}),
    )
    parts = [dataset.read(one).select("row", **columns) for one, columns in taken if current(one)]
    if current(NEIGHBORS):
        neighbors = from_arrays(dataset.read(NEIGHBORS))
        nearest = neighbors.cosines[:, 0] if neighbors.cosines.shape[1] else np.zeros(images.height)
        scores = np.clip(1 - nearest.astype(np.float64), 0, 1)
        parts.append(images.select("row", near_duplicate_score=pl.Series(scores)))
    if current(NEIGHBORS, IMAGE_STATISTICS):
        parts.append(health_issues(index, dataset.read(IMAGE_STATISTICS), neighbors))
    if current(LABELS, OUT_OF_FOLD_GROUPED) and images["label"].n_unique() >= 2:
        issues = label_issues(np.asarray(dataset.read(LABELS)), np.asarray(dataset.read(OUT_OF_FOLD_GROUPED)))
        parts.append(_with_names(issues, images["label"], declared_classes(index)))
    for part in parts:
        frame = frame.join(part, on="row", how="left", validate="1:1", maintain_order="left")
    frame = frame.with_columns(pl.lit(None, kind).alias(n) for n, kind in SCHEMA.items() if n not in frame.columns)
    frame = frame.with_columns(
        is_exact_duplicate_issue=_has_others("exact_group"), is_near_duplicate_issue=_has_others("near_group")
    )
    if current(PIXEL_HASHES):
        frame = frame.with_columns(drop_reason=_drop_reasons(frame)).with_columns(
            keep=pl.col("drop_reason").is_null()
        )
    return frame.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _with_names(issues: pl.DataFrame, labels: pl.Series, names: list[str]) -> pl.DataFrame:
    """Return the label issues with the suggested class by its name, null where it is the given one."""
    code = pl.col("suggested_label")
    name = code.replace_strict(range(len(names)), names, return_dtype=pl.String, default=None)
    return issues.with_columns(suggested_label=pl.when(code != labels).then(name))


def _has_others(group: str) -> pl.Expr:
    return pl.when(pl.col(group).is_not_null()).then(pl.len().over(group) >= 2)


def _drop_reasons(frame: pl.DataFrame) -> pl.Series:
    """Return why each image is dropped, null where it is kept."""
    place = pl.col("split").replace_strict(_PLACES, return_dtype=pl.Int64, default=len(_PLACES))
    # Without current vectors only exact copies are known.
    copies = pl.coalesce("joined_group", "exact_group")
    images = frame.select("row", "source_row", "given_label", "split", "exact_group", place=place, copies=copies)

    given = pl.col("given_label")
    at_odds = images.filter(given.n_unique().over("exact_group") >= 2)
    labels = at_odds.group_by("exact_group").agg(given.unique().sort())
    conflicts = at_odds.join(labels, on="exact_group").select("row", reason=_conflict(pl.col("given_label_right")))

    rest = images.join(conflicts, on="row", how="anti").sort("place", "row")
    first = pl.struct("source_row", "split", "place").first().over("copies").struct
    in_later_split = (first.field("place") < pl.col("place")) & (pl.col("place") < len(_PLACES))
    leak_reason = pl.format("copy of source row {} in {}", first.field("source_row"), first.field("split"))
    rest = rest.with_columns(reason=pl.when(in_later_split).then(leak_reason))
    leaks, rest = rest.filter(pl.col("reason").is_not_null()), rest.filter(pl.col("reason").is_null())

    first_row = pl.col("source_row").first().over("exact_group")
    repeats = rest.with_columns(reason=pl.format("exact copy of source row {}", first_row)).filter(
        pl.col("source_row") != first_row
    )
    dropped = pl.concat([part.select("row", "reason") for part in (conflicts, leaks, repeats)])
    return images.join(dropped, on="row", how="left", maintain_order="left")["reason"]


def _conflict(labels: pl.Expr) -> pl.Expr:
    named = labels.list.head(_LABELS_NAMED).list.join(", ")
    more = labels.list.len().cast(pl.Int64) - _LABELS_NAMED
    words = pl.format("exact copies with different labels: {}", named)
    return pl.when(more > 0).then(pl.format("{} and {} more", words, more)).otherwise(words)
