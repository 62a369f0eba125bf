"""How many labels look wrong, which ones, and what that share is worth by a calibration on flipped labels.

The probabilities and the calibration are the work of `training`; this counts.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.quality.images import skipped
from agml_assets.quality.intervals import Resamples, proportion_interval
from agml_assets.settings import Settings
from agml_assets.training.noise_calibration import (
    KINDS,
    MIN_CLASS_GROUPS,
    count_class_groups,
    flag_labels,
    judged_rows,
)

MAX_SUGGESTIONS = 1000
"""Flagged images that a report lists with a suggested label; all are counted."""

MIN_JUDGED = 30
"""Fewer images give no leak-safe figure."""

MIN_MARGIN = 0.3
"""Flags must hit injected flips this much more often than other images for a rate to follow from them."""

_GIVEN = "the trained model"


def label_issues(labels: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"]) -> pl.DataFrame:
    """Return, for each image, whether its label looks wrong, and which would suit better.

    Args:
        labels: Given class of each image.
        probabilities: Out-of-fold probabilities of the declared classes.

    Returns:
        A frame with `row` Int64; `is_label_issue` Boolean, see `flag_labels`; `label_score` Float64,
        the probability of the given class (self-confidence), in [0, 1], lower is worse;
        `suggested_label` Int64, the most probable class. Score and suggestion are null where the label
        cannot be judged because its class has no image in the other folds.
    """
    flags = np.zeros(len(labels), dtype=bool)
    flags[flag_labels(labels, probabilities)] = True
    frame = pl.DataFrame(
        {
            "row": np.arange(len(labels), dtype=np.int64),
            "is_label_issue": flags,
            "label_score": probabilities[np.arange(len(labels)), labels].astype(np.float64),
            "suggested_label": probabilities.argmax(axis=1).astype(np.int64),
        }
    )
    judged = pl.lit(pl.Series(judged_rows(labels, probabilities)))
    return frame.with_columns(pl.when(judged).then(pl.col("label_score", "suggested_label")))


def label_noise(
    *,
    image_index: pl.DataFrame,
    labels: Int[np.ndarray, " n"],
    out_of_fold: Float[np.ndarray, "n k"],
    out_of_fold_grouped: Float[np.ndarray, "n k"],
    duplicate_groups: pl.DataFrame,
    noise_calibration: dict[str, Any],
    settings: Settings,
) -> dict[str, Any]:
    """Count the labels that confident learning holds for wrong, with and without copies in other folds.

    A flag is a suspicion: on hand-checked benchmarks, 20 to 87 % of them were errors. Where copies lie in other
    folds, the model has seen the image with its label, and errors go unnoticed; there `leak_safe` counts.

    Args:
        image_index: Images with `row`, `source_row`; declares the classes.
        labels: Class of each row.
        out_of_fold: Probabilities from folds drawn by class, the published way.
        out_of_fold_grouped: Probabilities from folds that keep copies together.
        duplicate_groups: `joined` group of each row.
        noise_calibration: Value of `training.noise_calibration`.
        settings: Number of folds.

    Returns:
        Published: `estimated_noise_rate`, flagged / all, a fraction; `n_noisy_samples`; `n_total_samples`;
        `flagged_orig_indices`, source rows, most suspicious first; `per_class_noise_counts`, flagged images by
        given class; `cv_folds`.

        Added: `suggested_labels`, for the first `MAX_SUGGESTIONS` flagged images `source_row`, `given` and
        `suggested` class and `self_confidence`, the probability of the given class; `not_judged`, images
        whose class has no image in the other folds, never flagged; `leak_safe`, from
        folds that keep copies together: `estimated_noise_rate`, `n_noisy_samples`, `n_total_samples`,
        `classes_left_out`, those in fewer than `MIN_CLASS_GROUPS` groups, and `intervals`, or `not_identifiable`
        with the reason; `calibration`, for each kind of flip and level the means over seeds of `r` and `f`, or
        skipped; `adjusted_noise_rate`, see `adjust_noise_rate`; `intervals`.

        Skipped where fewer than two classes are declared or occur, or no label can be judged.
    """
    names = declared_classes(image_index)
    if len(names) < 2:
        return skipped(f"Label noise compares classes; this dataset declares {len(names)}.")
    present = np.unique(labels)
    if len(present) < 2:
        return skipped(f"Images of {len(present)} class only; at least two are needed.")
    judged = judged_rows(labels, out_of_fold)
    if not judged.any():
        return skipped("No label can be judged: no class has images in two folds.")

    source_rows = usable_images(image_index)["source_row"].to_numpy()
    flagged = flag_labels(labels, out_of_fold)
    resamples = Resamples.of(duplicate_groups)
    by_class = np.bincount(labels[flagged], minlength=len(names))
    leak_safe = _leak_safe(labels, out_of_fold_grouped, duplicate_groups, resamples, names)
    return {
        "estimated_noise_rate": round(len(flagged) / len(labels), 4),
        "n_noisy_samples": len(flagged),
        "n_total_samples": len(labels),
        "flagged_orig_indices": source_rows[flagged].tolist(),
        "per_class_noise_counts": dict(zip(names, by_class.tolist(), strict=True)),
        "cv_folds": settings.cv_folds,
        "suggested_labels": [
            {
                "source_row": int(source_rows[row]),
                "given": names[labels[row]],
                "suggested": names[out_of_fold[row].argmax()],
                "self_confidence": round(float(out_of_fold[row, labels[row]]), 4),
            }
            for row in flagged[:MAX_SUGGESTIONS]
        ],
        "not_judged": int((~judged).sum()),
        "leak_safe": leak_safe,
        "calibration": _calibration(noise_calibration),
        "adjusted_noise_rate": adjust_noise_rate(leak_safe, noise_calibration),
        "intervals": {"estimated_noise_rate": _interval(resamples, np.ones(len(labels), dtype=bool), flagged)},
    }


def adjust_noise_rate(leak_safe: Mapping[str, Any], noise_calibration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the range of the share of wrong labels that explains the share q of flagged ones.

    Were a share x of the labels wrong, q = x r + (1 - x) f', with r the share of wrong labels that are flagged
    and f' that of right ones, so x = (q - f') / (r - f') (Rogan and Gladen 1978,
    doi:10.1093/oxfordjournals.aje.a112510). r and f are means over the calibration's seeds, at the level whose
    share of flipped images is nearest to q. f counts flags of wrong labels too, so f' lies in [0, f]; x is
    monotone in f', so its range is spanned by the ends. Clipped to [0, 1].

    Args:
        leak_safe: Its `estimated_noise_rate` is q.
        noise_calibration: Value of `training.noise_calibration`.

    Returns:
        `low`, `high` and `level`, of the kind of flip with the wider range, named by `kind`; and the same for
        each kind. Or `not_identifiable` with the reason: no leak-safe rate, no calibration, or
        r - f below `MIN_MARGIN` for a kind.
    """
    if "not_identifiable" in leak_safe:
        return {"not_identifiable": leak_safe["not_identifiable"]}
    if noise_calibration.get("skipped"):
        return {"not_identifiable": f"There is no calibration: {noise_calibration['reason']}"}
    q = leak_safe["estimated_noise_rate"]
    nearest = {kind: _nearest(noise_calibration[kind], noise_calibration["rows"], q) for kind in KINDS}
    ranges = {kind: {**_range(q, _means(each)), "level": each["level"]} for kind, each in nearest.items()}
    lost = [f"{k}: {found['not_identifiable']}" for k, found in ranges.items() if "not_identifiable" in found]
    if lost:
        return {"not_identifiable": " ".join(lost), **ranges}
    widest = max(ranges, key=lambda kind: ranges[kind]["high"] - ranges[kind]["low"])
    return {**ranges[widest], "kind": widest, **ranges}


def _range(q: float, means: Mapping[str, float | None]) -> dict[str, Any]:
    r, f = means["r"], means["f"]
    if r is None or f is None:
        return {"not_identifiable": "No flipped or no untouched label could be judged."}
    if r - f < MIN_MARGIN:
        return {
            "not_identifiable": f"{r:.0%} of the injected flips are flagged and {f:.0%} of the other labels; the "
            f"difference must be at least {MIN_MARGIN:.0%}."
        }
    ends = [min(1.0, max(0.0, (q - false) / (r - false))) for false in (0.0, f)]
    return {"low": round(min(ends), 4), "high": round(max(ends), 4)}


def _calibration(noise_calibration: Mapping[str, Any]) -> dict[str, Any]:
    if noise_calibration.get("skipped"):
        return dict(noise_calibration)
    facts = {key: noise_calibration[key] for key in ("seeds", "rows", "groups", "classes", "flagged")}
    means = {
        kind: [{"level": each["level"], **_means(each)} for each in noise_calibration[kind]] for kind in KINDS
    }
    rounded = {
        kind: [{k: None if v is None else round(v, 4) for k, v in each.items()} for each in levels]
        for kind, levels in means.items()
    }
    return {**facts, **rounded}


def _nearest(levels: list[dict[str, Any]], rows: int, q: float) -> dict[str, Any]:
    """Return the level whose share of flipped images is nearest to q; whole groups may miss the level itself."""
    return min(
        levels,
        key=lambda each: (round(abs(sum(each["injected"]) / len(each["injected"]) / rows - q), 9), each["level"]),
    )


def _means(measured: Mapping[str, Any]) -> dict[str, float | None]:
    known = {key: [value for value in measured[key] if value is not None] for key in ("r", "f")}
    return {key: sum(values) / len(values) if values else None for key, values in known.items()}


def _leak_safe(
    labels: Int[np.ndarray, " n"],
    probabilities: Float[np.ndarray, "n k"],
    duplicate_groups: pl.DataFrame,
    resamples: Resamples,
    names: list[str],
) -> dict[str, Any]:
    groups = duplicate_groups.sort("row")["joined"].to_numpy()
    per_class = count_class_groups(labels, groups, len(names))
    left_out = (per_class > 0) & (per_class < MIN_CLASS_GROUPS)
    judged = judged_rows(labels, probabilities) & ~left_out[labels]
    facts = {
        "n_total_samples": int(judged.sum()),
        "classes_left_out": [names[label] for label in np.flatnonzero(left_out)],
    }
    n_present, n_judged = int((per_class > 0).sum()), len(np.unique(labels[judged]))
    reason = None
    if len(probabilities) and np.ptp(probabilities, axis=0).max() == 0:
        reason = "All images lie in one fold, so no model is trained without copies of what it judges."
    elif 2 * n_judged < n_present:
        reason = f"{n_judged} of {n_present} classes occur in enough groups of copies; half are needed."
    elif n_judged < 2:
        reason = f"{n_judged} class occurs in enough groups of copies; two are needed."
    elif judged.sum() < MIN_JUDGED:
        reason = f"{judged.sum()} images can be judged; at least {MIN_JUDGED} are needed."
    if reason:
        return {"not_identifiable": reason, **facts}
    rows = np.flatnonzero(judged)
    flagged = rows[flag_labels(labels[rows], probabilities[rows])]
    return {
        "estimated_noise_rate": round(len(flagged) / len(rows), 4),
        "n_noisy_samples": len(flagged),
        **facts,
        "intervals": {"estimated_noise_rate": _interval(resamples, judged, flagged)},
    }


def _interval(
    resamples: Resamples, among: Bool[np.ndarray, " n"], flagged: Int[np.ndarray, " m"]
) -> dict[str, Any]:
    successes = np.zeros(len(among))
    successes[flagged] = 1
    return proportion_interval(resamples, np.flatnonzero(among), successes[among], given=_GIVEN)
