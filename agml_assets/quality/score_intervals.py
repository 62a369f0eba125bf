"""Intervals of both scores: every sampled figure recomputed in the same resamples, then scored again.

The formulas are those of `score.py` and `calibrated_score.py`, called once for each resample; here is no second
copy of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from agml_assets.quality.calibrated_score import COMPONENTS, calibrated_score, read_figure
from agml_assets.quality.calibrated_score import FORMULA as CALIBRATED
from agml_assets.quality.clusters import COPY_DISTANCE
from agml_assets.quality.image_values import ImageValues
from agml_assets.quality.intervals import (
    LEVEL,
    MIN_EVENT_GROUPS,
    MIN_GROUPS,
    RESAMPLES,
    Resamples,
    bootstrap_limits,
    census,
    few_events,
    no_interval,
)
from agml_assets.quality.score import FORMULA as PUBLISHED
from agml_assets.quality.score import Metrics, score

_COLUMN_OF = {
    "feature_separability.silhouette_score": "silhouette",
    "feature_separability.silhouette_score_all": "silhouette",
    "feature_separability.davies_bouldin_index": "centroid_distance",
    "intra_class_diversity.mean_diversity": "centroid_distance",
    "intra_class_diversity.mean_diversity_present": "centroid_distance",
    "dataset_cartography.pct_hard": "hard",
    "dataset_cartography.mean_confidence": "published_confidence",
    "dataset_cartography.true_label.mean_confidence": "true_confidence",
    "class_confusability.accuracy": "correct",
    "leakage.leak_safe.accuracy": "correct_grouped",
    "label_noise.estimated_noise_rate": "flagged",
    "label_noise.leak_safe.estimated_noise_rate": "flagged_grouped",
}
"""Sampled figures of both formulas, and the per-image value that each is made of."""

_SHARES = {"hard", "correct", "correct_grouped", "flagged", "flagged_grouped"}
"""Columns of 0 and 1."""

_PUBLISHED_KEYS = {
    "silhouette": "feature_separability.silhouette_score",
    "davies_bouldin": "feature_separability.davies_bouldin_index",
    "cartography": "dataset_cartography.pct_hard",
    "confusability": "class_confusability.accuracy",
    "diversity": "intra_class_diversity.mean_diversity",
    "annotation": "label_noise.estimated_noise_rate",
}
"""Sampled figure of each component of `agml-2026`."""


def score_intervals(
    metrics: Metrics,
    phases_completed: Collection[int],
    values: ImageValues,
    resamples: Resamples,
    *,
    honest: bool = True,
) -> dict[str, Any]:
    """Return the intervals of axes and overall score under both formulas.

    A resample draws groups of copies; the figures of all metrics are recomputed in the same resamples and put
    through each formula, so that what they have in common stays common. Held fixed are the models, the class
    centroids and splits, and whatever counts all images and is no sample (balance, duplicate rates,
    resolution, the level of chance). A class that a resample misses keeps its spread. The silhouette is resampled
    over all images even where the published one is that of a sample.

    Args:
        metrics: JSON value of each metric by name.
        phases_completed: Numbers of the completed phases.
        values: Per-image values of what is current.
        resamples: Of the dataset.
        honest: Which figures `calibrated-1` reads.

    Returns:
        For each formula `overall` and `axes` {name: interval}, an interval having the shape of
        `intervals.bootstrap_interval`, in points. Where `calibrated-1` lacks an axis, its overall interval runs
        from the low ends to the high ends of the resamples. Kind `none`, with the reason, where an axis is not
        measured, counts all images and is no sample, or has a figure without per-image values or from fewer than
        20 groups. The last two also leave overall without an interval. `warning` where a share is of few groups.
    """
    images = {name: found for name in set(_COLUMN_OF.values()) if len(found := _images(values, name))}
    figures = _replicate(metrics, values, resamples, images)
    finite = np.isfinite(np.array([*figures.values()])).all(axis=0) if figures else np.zeros(0, dtype=bool)
    scored = [
        _with_figures(metrics, {key: float(drawn[resample]) for key, drawn in figures.items()})
        for resample in np.flatnonzero(finite)
    ]

    published = score(metrics, phases_completed)
    published_scores = [score(one, phases_completed) for one in scored]
    calibrated = calibrated_score(metrics, honest=honest)
    calibrated_scores = [calibrated_score(one, honest=honest) for one in scored]
    return {
        PUBLISHED: _intervals(
            published["axes"],
            {part: key for part, key in _PUBLISHED_KEYS.items() if part in published["components"]},
            _Evidence(images, resamples),
            [one["axes"] for one in published_scores],
            [(one["overall"], one["overall"]) for one in published_scores],
            decimals=1,
        ),
        CALIBRATED: _intervals(
            calibrated["axes"],
            {part: key for part, key in calibrated["inputs"].items() if key in _COLUMN_OF},
            _Evidence(images, resamples),
            [one["axes"] for one in calibrated_scores],
            [(one["overall"]["low"], one["overall"]["high"]) for one in calibrated_scores],
            decimals=4,
        ),
    }


def _images(values: ImageValues, name: str) -> pl.DataFrame:
    """Return `row` and `value` of the images that have a value of that name."""
    return values.frame.select("row", value=pl.col(name)).drop_nulls()


@dataclass(frozen=True)
class _Evidence:
    """The images behind each column of values, and the groups that they come from."""

    images: Mapping[str, pl.DataFrame]
    resamples: Resamples

    def sizes(self, key: str) -> Int[np.ndarray, " g"]:
        """Return the number of images of each group behind a figure."""
        return self.resamples.group_sizes(self.images[_COLUMN_OF[key]]["row"].to_numpy())

    def lack(self, keys: Sequence[str]) -> str | None:
        """Return why an axis made of these figures has no interval, or null."""
        for key in keys:
            if _COLUMN_OF[key] not in self.images:
                return f"The values of single images behind {key} are not there."
            groups = len(self.sizes(key))
            if groups < MIN_GROUPS:
                return f"{key} is from {groups} independent groups; at least {MIN_GROUPS} are needed."
        return None

    def warn(self, keys: Sequence[str]) -> str | None:
        """Return which shares are of so few groups that resamples say too little of them, or null."""
        few = []
        for key in keys:
            images = self.images[_COLUMN_OF[key]]
            if _COLUMN_OF[key] in _SHARES:
                hits = self.resamples.group_sums(images["row"].to_numpy(), images["value"].to_numpy())
                if min(few_events(self.sizes(key), hits)) < MIN_EVENT_GROUPS:
                    few.append(key)
        if not few:
            return None
        return (
            f"Fewer than {MIN_EVENT_GROUPS} groups of copies hold images of the rarer kind, or hold none, in "
            f"{', '.join(few)}; the interval can cover less often than {LEVEL:.0%}."
        )


def _replicate(
    metrics: Metrics, values: ImageValues, resamples: Resamples, measured: Collection[str]
) -> dict[str, Float[np.ndarray, " b"]]:
    """Return the figures that `metrics` has and images have values for: of all images, then of each resample."""
    keys = [key for key, name in _COLUMN_OF.items() if name in measured and read_figure(metrics, key) is not None]
    names = sorted({_COLUMN_OF[key] for key in keys})
    if not names:
        return {}
    means, spreads = _replicate_means(values, resamples, names)
    figures = {
        key: means[_COLUMN_OF[key]] * (100 if key.endswith("pct_hard") else 1)
        for key in keys
        if _COLUMN_OF[key] in means
    }
    if spreads is not None and values.means is not None:
        counts = np.bincount(values.frame["label"].to_numpy(), minlength=values.n_classes)
        if "feature_separability.davies_bouldin_index" in keys:
            figures["feature_separability.davies_bouldin_index"] = _davies_bouldin(
                values.means[counts > 0], spreads[:, counts > 0]
            )
        if "intra_class_diversity.mean_diversity" in keys:
            figures["intra_class_diversity.mean_diversity"] = spreads.mean(axis=1)
        if "intra_class_diversity.mean_diversity_present" in keys:
            figures["intra_class_diversity.mean_diversity_present"] = spreads[:, counts > 1].mean(axis=1)
    return figures


def _replicate_means(
    values: ImageValues, resamples: Resamples, names: Sequence[str]
) -> tuple[dict[str, Float[np.ndarray, " b"]], Float[np.ndarray, "b k"] | None]:
    """Return column means and, by class, mean distances to the centroid: of all images, then of each resample.

    All columns go through one product, sparse because most images touch few: values and, for each set of images
    that a column is about, their number; distances and numbers by class.
    """
    from scipy.sparse import coo_array, csr_array, hstack

    frame = values.frame
    blocks: list[Any] = []
    sets: list[Float[np.ndarray, " n"]] = []
    set_of: dict[str, int] = {}
    plain = [name for name in names if name != "centroid_distance"]
    for name in plain:
        about = frame[name].is_not_null().to_numpy().astype(np.float64)
        known = next((i for i, other in enumerate(sets) if np.array_equal(other, about)), len(sets))
        if known == len(sets):
            sets.append(about)
        set_of[name] = known
        blocks.append(csr_array(frame[name].fill_null(0).to_numpy()[:, None]))
    blocks += [csr_array(about[:, None]) for about in sets]
    by_class = "centroid_distance" in names
    labels = frame["label"].to_numpy()
    if by_class:
        distances = frame["centroid_distance"].to_numpy()
        shape = (len(labels), values.n_classes)
        at = (np.arange(len(labels)), labels)
        blocks += [coo_array((distances, at), shape=shape), coo_array((np.ones(len(labels)), at), shape=shape)]
    columns = csr_array(hstack(blocks))
    drawn = resamples.sums(frame["row"].to_numpy(), columns)
    sums = np.vstack([np.asarray(columns.sum(axis=0))[None], drawn])

    n_plain, k = len(plain), values.n_classes
    with np.errstate(invalid="ignore", divide="ignore"):
        means = {name: sums[:, i] / sums[:, n_plain + set_of[name]] for i, name in enumerate(plain)}
    if not by_class:
        return means, None
    totals, counts = sums[:, -2 * k : -k], sums[:, -k:]
    images = np.bincount(labels, minlength=k)
    spread = np.bincount(labels, weights=distances, minlength=k) / np.maximum(images, 1)
    return means, np.where(counts > 0, totals / np.maximum(counts, 1), spread)


def _davies_bouldin(means: Float[np.ndarray, "k d"], spreads: Float[np.ndarray, "b k"]) -> Float[np.ndarray, " b"]:
    """Return the Davies-Bouldin index in each resample, centroids fixed; see `clusters.davies_bouldin`.

    Of each class only those partners are tried that can be its worst in some resample: that is, whose ratio with
    the largest spreads reaches the best ratio that is certain from the smallest ones.
    """
    least, most = spreads.min(axis=0), spreads.max(axis=0)
    squares = (means**2).sum(axis=1)
    total = np.zeros(len(spreads))
    for i in range(len(means)):
        distance = np.sqrt(np.maximum(squares[i] + squares - 2 * means @ means[i], 0))
        distance[i] = np.inf
        distance[distance <= COPY_DISTANCE] = np.inf
        certain = ((least[i] + least) / distance).max()
        possible = np.flatnonzero((most[i] + most) / distance >= certain)
        total += ((spreads[:, i, None] + spreads[:, possible]) / distance[possible]).max(axis=1)
    return total / len(means)


def _with_figures(metrics: Metrics, figures: Mapping[str, float]) -> dict[str, Any]:
    """Return the metrics with other numbers at some keys; nothing that was given is changed."""
    result: dict[str, Any] = dict(metrics)
    copied: set[tuple[str, ...]] = set()
    for key, value in figures.items():
        *path, last = key.split(".")
        target = result
        for depth, part in enumerate(path, start=1):
            if tuple(path[:depth]) not in copied:
                target[part] = dict(target[part])
                copied.add(tuple(path[:depth]))
            target = target[part]
        target[last] = value
    return result


def _intervals(
    axes: Mapping[str, float | None],
    inputs: Mapping[str, str],
    evidence: _Evidence,
    axis_scores: Sequence[Mapping[str, float]],
    overall_ends: Sequence[tuple[float, float]],
    decimals: int,
) -> dict[str, Any]:
    """Return the intervals of one formula.

    Args:
        axes: The score itself, null where an axis is not measured.
        inputs: Sampled figure of each component that entered the score.
        evidence: Behind the figures.
        axis_scores: Axes of all images and in each resample.
        overall_ends: Low and high end of the overall score, likewise.
        decimals: Of the score.
    """
    result: dict[str, Any] = {}
    without: dict[str, str] = {}
    behind: list[str] = []
    for axis, parts in COMPONENTS.items():
        keys = [inputs[part] for part in parts if part in inputs]
        if axes[axis] is None:
            result[axis] = no_interval("The axis is not measured.")
        elif not keys:
            result |= census(axis)
        elif lack := evidence.lack(keys):
            without[axis] = lack
            result[axis] = no_interval(lack)
        else:
            behind += keys
            drawn = [one[axis] for one in axis_scores]
            result[axis] = _interval(drawn, drawn, keys, evidence, decimals)
    if without:
        overall = no_interval(" ".join(f"{axis}: {reason}" for axis, reason in without.items()))
    elif not behind:
        overall = no_interval("No axis with a sampled figure is measured.")
    else:
        lows, highs = ([ends[side] for ends in overall_ends] for side in (0, 1))
        overall = _interval(lows, highs, behind, evidence, decimals)
    return {"overall": overall, "axes": result}


def _interval(
    lows: Sequence[float], highs: Sequence[float], keys: Sequence[str], evidence: _Evidence, decimals: int
) -> dict[str, Any]:
    if len(lows) < 2:
        return no_interval("The figures are defined together in no resample.")
    sizes = min((evidence.sizes(key) for key in keys), key=len)
    limits = []
    for side, ends in enumerate((lows, highs)):
        replicates = np.array(ends[1:])
        # One decimal is too coarse to tell by how much resamples are off on average.
        point = float(ends[0]) if decimals > 1 else float(replicates.mean())
        limits.append(round(float(bootstrap_limits(replicates, point, sizes)[side]), decimals))
    warning = evidence.warn(keys)
    return {
        "kind": "sample",
        "low": limits[0],
        "high": limits[1],
        "level": LEVEL,
        "groups": len(sizes),
        "method": (
            f"bootstrap over groups of copies, {RESAMPLES} resamples that all metrics share, given the models, "
            "the class centroids and everything that counts all images"
        ),
        **({"warning": warning} if warning else {}),
    }
