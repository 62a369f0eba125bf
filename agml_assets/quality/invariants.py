"""What must hold in any report, whatever the dataset; a breach is a bug of ours, not a fault of the data.

Looks at finished values only; computes no metric.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

Metrics = Mapping[str, Mapping[str, Any]]

_SLACK = 5.1e-5
"""Half of the fourth decimal, to which values are rounded."""


def check_invariants(metrics: Metrics) -> list[str]:
    """Return one sentence for each breach in the metrics' JSON values; an empty list where all hold.

    Within a metric: counts add up, at least two images a group, cross-split and conflicting images among the
    duplicates, a rate is its count / total, every number in its range. Between metrics: the same number
    of images everywhere; exact copies are contained in near ones, so there are at least as many
    near-duplicate images and cross-split ones. Missing and skipped metrics are passed over.

    Args:
        metrics: JSON value of each metric by name; published reports as well as our own.
    """
    measured = {name: value for name, value in metrics.items() if not value.get("skipped")}
    breaches = []
    for name, check in (
        ("class_imbalance", _class_imbalance),
        ("exact_duplicate", _exact_duplicate),
        ("near_duplicate", _near_duplicate),
        ("resolution_consistency", _resolution_consistency),
        ("metadata_coverage", _metadata_coverage),
        ("feature_separability", _feature_separability),
        ("intra_class_diversity", _intra_class_diversity),
    ):
        if name in measured:
            breaches += [f"{name}: {breach}" for breach in check(measured[name])]
    return breaches + list(_between(measured))


def check_group_invariants(duplicate_groups: pl.DataFrame) -> list[str]:
    """Return one sentence for each breach in the groups of copies themselves.

    Images with the same pixels have the same vector, so every exact group lies inside one near group; joined
    groups hold both; a group's id is its smallest row.

    Args:
        duplicate_groups: `row`, `exact`, `near`, `joined`.
    """
    breaches = []
    for part, whole in (("exact", "near"), ("exact", "joined"), ("near", "joined")):
        parts = duplicate_groups.group_by(part).agg(pl.col(whole).n_unique(), pl.col("row").min())
        split = parts.filter(pl.col(whole) > 1).sort(part)
        if split.height:
            breaches.append(
                f"duplicate_groups: {split.height} {part} groups lie in several {whole} groups, "
                f"the first is that of row {split['row'][0]}."
            )
    for kind in ("exact", "near", "joined"):
        smallest = duplicate_groups.group_by(kind).agg(pl.col("row").min())
        wrong = smallest.filter(pl.col(kind) != pl.col("row")).height
        if wrong:
            breaches.append(f"duplicate_groups: {wrong} {kind} groups are not named by their smallest row.")
    return breaches


def _class_imbalance(value: Mapping[str, Any]) -> Iterator[str]:
    counts = value["counts"]
    if sum(counts.values()) != value["total_train_examples"]:
        yield f"counts add up to {sum(counts.values())}, not {value['total_train_examples']}."
    yield from _within(value, "normalized_entropy", 0, 1)
    yield from _within(value, "imbalance_ratio", 1)
    if "class_totals" in value:
        totals = value["class_totals"]
        if sum(totals.values()) != value["total_images"]:
            yield f"class totals add up to {sum(totals.values())}, not {value['total_images']}."
        if any(count > totals[name] for name, count in counts.items()):
            yield "a class has more training images than images."


def _exact_duplicate(value: Mapping[str, Any]) -> Iterator[str]:
    total = value["total_images"]
    yield from _groups(value, total, "exact_duplicate_count", "exact_duplicate_rate", "duplicate_groups")
    yield from _among(value, "cross_split_duplicates", "exact_duplicate_count")
    strict = value.get("blake3")
    if strict:
        yield from _groups(strict, total, "duplicate_count", "duplicate_rate", "duplicate_groups")
        yield from _among(strict, "cross_split_duplicates", "duplicate_count")
        yield from _conflicts(strict, "duplicate_count")
        if strict["redundant_images"] != strict["duplicate_count"] - strict["duplicate_groups"]:
            yield "redundant images are not duplicates minus groups."


def _near_duplicate(value: Mapping[str, Any]) -> Iterator[str]:
    total = value["total_images"]
    yield from _groups(value, total, "near_duplicate_count", "near_duplicate_rate", "near_duplicate_groups")
    yield from _among(value, "cross_split_near_duplicates", "near_duplicate_count")
    if "effective_images" not in value:
        return
    yield from _conflicts(value, "near_duplicate_count")
    count, groups = value["near_duplicate_count"], value["near_duplicate_groups"]
    if value["effective_images"] > total - count + groups:
        yield f"{value['effective_images']} effective images, more than near-duplicates leave."
    if value["n_pairs"] < count - groups:
        yield f"{value['n_pairs']} pairs cannot join {count} images into {groups} groups."
    if value["pairs_stored"] > value["n_pairs"]:
        yield f"{value['pairs_stored']} pairs stored of {value['n_pairs']}."
    if value["without_exact_copies"]["near_duplicate_count"] > count:
        yield "there are more near-duplicates without exact copies than with them."


def _resolution_consistency(value: Mapping[str, Any]) -> Iterator[str]:
    for key in ("width", "height", "aspect_ratio"):
        low, mean, high = value[key]["min"], value[key]["mean"], value[key]["max"]
        if not low - 0.0051 <= mean <= high + 0.0051:  # means have two decimals
            yield f"mean {key} {mean} lies outside {low} to {high}."
    yield from _within(value, "area_cv", 0)
    modes = sum(value["mode_distribution"].values())
    if modes != value["total_images"]:
        yield f"modes add up to {modes}, not {value['total_images']}."


def _metadata_coverage(value: Mapping[str, Any]) -> Iterator[str]:
    totals = {
        column: sum(sum(counts.values()) for counts in classes.values())
        for column, classes in value["coverage"].items()
    }
    if len(set(totals.values())) > 1:
        yield f"columns count different numbers of images: {totals}."
    for key in ("normalized_entropy", "normalized_entropy_dataset"):
        for column, classes in value.get(key, {}).items():
            if not all(0 <= evenness <= 1 for evenness in classes.values()):
                yield f"{key} of {column} leaves [0, 1]."


def _feature_separability(value: Mapping[str, Any]) -> Iterator[str]:
    yield from _within(value, "silhouette_score", -1, 1)
    yield from _within(value, "silhouette_score_all", -1, 1)
    yield from _within(value, "davies_bouldin_index", 0)
    if value["n_silhouette_samples"] > value["n_total"]:
        yield f"{value['n_silhouette_samples']} silhouette samples of {value['n_total']} images."


def _intra_class_diversity(value: Mapping[str, Any]) -> Iterator[str]:
    classes = value["per_class_diversity"]
    if not all(0 <= spread <= 1 for spread in classes.values()):
        yield "a diversity leaves [0, 1], the range of unit vectors around their mean."
    if not min(classes.values()) - _SLACK <= value["mean_diversity"] <= max(classes.values()) + _SLACK:
        yield f"mean diversity {value['mean_diversity']} lies outside the classes' values."
    yield from _within(value, "mean_cosine_distance", 0, 2)


def _between(measured: Metrics) -> Iterator[str]:
    totals = {
        name: value[key] for name, value in measured.items() for key in ("total_images", "n_total") if key in value
    }
    if len(set(totals.values())) > 1:
        yield f"metrics count different numbers of images: {totals}."
    if {"class_imbalance", "resolution_consistency"} <= measured.keys():
        train = measured["class_imbalance"]["total_train_examples"]
        total = measured["resolution_consistency"]["total_images"]
        if train > total:
            yield f"class_imbalance: {train} training images of {total}."
    if not {"exact_duplicate", "near_duplicate"} <= measured.keys():
        return
    exact, near = measured["exact_duplicate"], measured["near_duplicate"]
    # Published reports have the looser hash only.
    strict = exact.get("blake3", {})
    copies = strict.get("duplicate_count", exact["exact_duplicate_count"])
    crossing = strict.get("cross_split_duplicates", exact["cross_split_duplicates"])
    if copies > near["near_duplicate_count"]:
        yield (
            f"near_duplicate: {near['near_duplicate_count']} near-duplicate images, fewer than the {copies} "
            "exact duplicates, which are near-duplicates too."
        )
    if crossing > near["cross_split_near_duplicates"]:
        yield (
            f"near_duplicate: {near['cross_split_near_duplicates']} cross-split images, fewer than the "
            f"{crossing} of the exact duplicates."
        )


def _groups(value: Mapping[str, Any], total: int, count_key: str, rate_key: str, groups_key: str) -> Iterator[str]:
    count, groups = value[count_key], value[groups_key]
    if count > total:
        yield f"{count_key} {count} exceeds the {total} images."
    if count < 2 * groups or (count > 0) != (groups > 0):
        yield f"{count} images cannot make {groups} groups of at least two."
    if total and abs(value[rate_key] - count / total) > _SLACK:
        yield f"{rate_key} {value[rate_key]} is not {count} / {total}."


def _conflicts(value: Mapping[str, Any], count_key: str) -> Iterator[str]:
    conflicts = value["label_conflicts"]
    if conflicts["images"] > value[count_key] or conflicts["images"] < 2 * conflicts["groups"]:
        yield f"{conflicts['images']} images in {conflicts['groups']} groups with conflicting labels."


def _among(value: Mapping[str, Any], part: str, whole: str) -> Iterator[str]:
    if value[part] > value[whole]:
        yield f"{part} {value[part]} exceeds {whole} {value[whole]}."


def _within(value: Mapping[str, Any], key: str, low: float, high: float | None = None) -> Iterator[str]:
    number = value.get(key)
    if number is not None and (number < low or (high is not None and number > high)):
        yield f"{key} {number} leaves the range {low} to {'infinity' if high is None else high}."
