"""What must hold in any report, whatever the dataset; a breach is a bug of ours, not a fault of the data.

Looks at finished values only; computes no metric.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

Metrics = Mapping[str, Mapping[str, Any]]

_SLACK = 5.1e-5
"""Half of the fourth decimal, to which values are rounded."""

_CATEGORIES = ("easy", "ambiguous", "hard")

_PERCENT_SLACK = 5.1e-3
"""Half of the second decimal, to which percentages are rounded; three of them may add up to 99.99."""


def check_invariants(metrics: Metrics) -> list[str]:
    """Return one sentence for each breach in the metrics' JSON values; an empty list where all hold.

    Within a metric: counts add up, at least two images a group, cross-split and conflicting images among the
    duplicates, a rate is its count / total, every number in its range, no interval upside down. Between
    metrics: the same number of images everywhere, all that were trained on on the map, no more trained on and
    tested than there are; exact copies are contained in near ones, so there are at least as many
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
        ("dataset_cartography", _dataset_cartography),
        ("class_confusability", _class_confusability),
        ("label_noise", _label_noise),
        ("image_health", _image_health),
        ("leakage", _leakage),
    ):
        if name in measured:
            breaches += [f"{name}: {breach}" for breach in check(measured[name])]
    breaches += [f"{name}: {breach}" for name, value in measured.items() for breach in _intervals(value)]
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


def _dataset_cartography(value: Mapping[str, Any]) -> Iterator[str]:
    total = sum(value[f"n_{category}"] for category in _CATEGORIES)
    yield from _map(value, total)
    if "true_label" in value:
        true = value["true_label"]
        yield from (f"true_label: {breach}" for breach in _map(true, total))
        yield from _within(true, "mean_correctness", 0, 1)
        for key in ("n_never_learned", "n_forgotten"):
            if true[key] > total:
                yield f"{key} {true[key]} exceeds the {total} training images."


def _map(value: Mapping[str, Any], total: int) -> Iterator[str]:
    counts = {category: value[f"n_{category}"] for category in _CATEGORIES}
    if sum(counts.values()) != total:
        yield f"categories add up to {sum(counts.values())}, not {total}."
    for category, count in counts.items():
        percent = value[f"pct_{category}"]
        if total and abs(percent - 100 * count / total) > _PERCENT_SLACK:
            yield f"pct_{category} {percent} is not {count} / {total}."
    yield from _within(value, "mean_confidence", 0, 1)
    yield from _within(value, "mean_variability", 0, 0.5)  # the most that numbers from 0 to 1 can vary


def _class_confusability(value: Mapping[str, Any]) -> Iterator[str]:
    for key in ("accuracy", "macro_f1", "balanced_accuracy"):
        yield from _within(value, key, 0, 1)
    recalls = list(value["per_class_accuracy"].values())
    matrix = value["confusion_matrix"]
    if matrix is not None:
        k = len(recalls)
        if len(matrix) != k or any(len(row) != k for row in matrix):
            yield f"the confusion matrix is not {k} x {k}, the number of classes."
        elif [row[i] for i, row in enumerate(matrix)] != recalls:
            yield "per_class_accuracy is not the diagonal of the confusion matrix."
        elif any(sum(row) and abs(sum(row) - 1) > k * _SLACK for row in matrix):
            yield "a row of the confusion matrix does not add up to 1."
    if not all(0 <= recall <= 1 for recall in recalls):
        yield "a class's accuracy leaves [0, 1]."
    if value["n_top_pairs"] != len(value["top_confused_pairs"]):
        yield f"{len(value['top_confused_pairs'])} confused pairs, not {value['n_top_pairs']}."
    if "confusion_counts" in value:
        yield from _confusions(value)


def _confusions(value: Mapping[str, Any]) -> Iterator[str]:
    n, cells = value["n_test_samples"], value["confusion_counts"]
    if sum(count for *_, count in cells) != n:
        yield f"confusions add up to {sum(count for *_, count in cells)}, not {n}."
    if sum(value["n_test_per_class"].values()) != n:
        yield f"classes' test images add up to {sum(value['n_test_per_class'].values())}, not {n}."
    right = sum(count for given, taken, count in cells if given == taken)
    if n and abs(value["accuracy"] - right / n) > _SLACK:
        yield f"accuracy {value['accuracy']} is not {right} / {n}."


def _label_noise(value: Mapping[str, Any]) -> Iterator[str]:
    flagged = value["flagged_orig_indices"]
    n_flagged = value["n_noisy_samples"]
    if not len(set(flagged)) == len(flagged) == n_flagged:
        yield f"{len(set(flagged))} different images of {len(flagged)} are listed as flagged, not {n_flagged}."
    by_class = sum(value["per_class_noise_counts"].values())
    if by_class != n_flagged:
        yield f"classes' flagged images add up to {by_class}, not {n_flagged}."
    yield from _noise_rate(value)
    safe = value.get("leak_safe", {})
    if "estimated_noise_rate" in safe:
        yield from (f"leak_safe: {breach}" for breach in _noise_rate(safe))
    if safe.get("n_total_samples", 0) > value["n_total_samples"]:
        yield f"leak_safe: {safe['n_total_samples']} images of {value['n_total_samples']}."
    for key in ("low", "high"):
        yield from _within(value.get("adjusted_noise_rate", {}), key, 0, 1)


def _noise_rate(value: Mapping[str, Any]) -> Iterator[str]:
    count, total = value["n_noisy_samples"], value["n_total_samples"]
    if count > total:
        yield f"{count} flagged images of {total}."
    if total and abs(value["estimated_noise_rate"] - count / total) > _SLACK:
        yield f"estimated_noise_rate {value['estimated_noise_rate']} is not {count} / {total}."


def _image_health(value: Mapping[str, Any]) -> Iterator[str]:
    total, counts = value["total_images"], {kind: found["count"] for kind, found in value["issues"].items()}
    if not max(counts.values()) <= value["n_flagged"] <= min(total, sum(counts.values())):
        yield f"{value['n_flagged']} flagged images do not fit the counts {counts} of {total} images."
    rates = [("flagged_rate", value["n_flagged"], value["flagged_rate"])]
    rates += [(f"rate of {kind}", found["count"], found["rate"]) for kind, found in value["issues"].items()]
    for name, count, rate in rates:
        if total and abs(rate - count / total) > _SLACK:
            yield f"{name} {rate} is not {count} / {total}."


def _leakage(value: Mapping[str, Any]) -> Iterator[str]:
    yield from _within(value.get("leak_safe") or {}, "accuracy", 0, 1)


def _intervals(value: Mapping[str, Any]) -> Iterator[str]:
    """Look for intervals at any depth of a metric's objects."""
    for key, part in value.items():
        if not isinstance(part, Mapping):
            continue
        match part:
            # Counts by class or value may be named so too, but have no kind in words.
            case {"kind": str(), "low": int() | float() as low, "high": int() | float() as high} if low > high:
                yield f"the interval of {key} runs from {low} to {high}."
        yield from _intervals(part)


def _between(measured: Metrics) -> Iterator[str]:
    keys = ("total_images", "n_total")
    totals = {name: value[key] for name, value in measured.items() for key in keys if key in value}
    if "label_noise" in measured:
        totals["label_noise"] = measured["label_noise"]["n_total_samples"]
    if len(set(totals.values())) > 1:
        yield f"metrics count different numbers of images: {totals}."
    if {"class_imbalance", "resolution_consistency"} <= measured.keys():
        train = measured["class_imbalance"]["total_train_examples"]
        total = measured["resolution_consistency"]["total_images"]
        if train > total:
            yield f"class_imbalance: {train} training images of {total}."
    yield from _between_trained(measured)
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


def _between_trained(measured: Metrics) -> Iterator[str]:
    if {"class_imbalance", "dataset_cartography"} <= measured.keys():
        train = measured["class_imbalance"]["total_train_examples"]
        mapped = sum(measured["dataset_cartography"][f"n_{category}"] for category in _CATEGORIES)
        if mapped != train:
            yield f"dataset_cartography: {mapped} images on the map, {train} in training."
    if {"class_imbalance", "class_confusability", "label_noise"} <= measured.keys():
        train = measured["class_imbalance"]["total_train_examples"]
        test = measured["class_confusability"]["n_test_samples"]
        total = measured["label_noise"]["n_total_samples"]
        if train + test > total:
            yield f"class_confusability: {train} training and {test} test images of {total}."


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
