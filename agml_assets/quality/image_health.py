"""Which images look faulty or odd in themselves, and which image property gives the label away.

Reads measured values, sizes and neighbours; no pixel is looked at. Label errors and duplicates are elsewhere.
"""

from dataclasses import dataclass
from math import exp, log2
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from agml_assets.dataset.image_index import usable_images
from agml_assets.embeddings.neighbors import Neighbors
from agml_assets.quality.images import skipped

KINDS = ("dark", "light", "blurry", "low_information", "odd_size", "odd_aspect_ratio", "grayscale", "outlier")
"""Names of CleanVision and Datalab, so that their users find the columns."""

WIDESPREAD_RATE = 0.1
"""From this share of images on, a finding describes the dataset rather than faulty images
(Datalab's IMAGELAB_ISSUES_MAX_PREVALENCE)."""

# Scores below these are issues; absolute, from CleanVision 0.3.6, whose scores these kinds have.
_DARK, _LIGHT, _LOW_INFORMATION, _ODD_ASPECT_RATIO = 0.32, 0.05, 0.3, 0.35
# CleanVision divides the entropy of the histograms of all three channels by 10. For a grey picture that is the
# entropy of its levels and log2(3), which is how it is measured here.
_ENTROPY_OF_CHANNELS, _ENTROPY_SCALE = log2(3), 10.0
# A seed on white cardboard has few grey levels too, but it is not empty: an object on 1 % of the picture at half
# the range of brightness gives a deviation of 0.05, noise and compression of an empty picture less than 0.02.
_CONTRAST_OF_OBJECT = 0.05
# Ours: CleanVision's blur score misses two of three photographs after a Gaussian blur of radius 8 of 256 pixels.
# Sharp photographs and drawings have a sharpness of at least 0.37; after a blur of radius 6 it is at most 0.36 and
# nearly always below 0.25.
_BLURRY = 0.25
_LEAST_SIDE_PX = 128  # the size at which sharpness is measured; what was enlarged to it is smooth, not blurred
_ODD_SIZE = 0.5  # CleanVision's, and its factor of the interquartile range
_FENCE = 3.0  # Tukey 1977, Exploratory Data Analysis: "far out"
_SIZE_FACTOR = (
    2.0  # at least so many times the median's side, or as small a part of it: in sets of one size or two
)
_GRAYSCALE = 0.5
_NEIGHBOURS = 10  # Datalab's k
_DISTANCE_FACTOR = 1.5  # an outlier is at least so many times as far from its neighbours as is usual
_MIN_GROUPS = 20  # fewer different images have no usual distance
_TINY_DISTANCE = 1e-6  # float32 rounding of a cosine

_N_WORST = 20
_CORRELATED = 0.3  # Datalab's threshold for spurious correlations
_FOLDS = 5
_LEAST_BINS, _MOST_BINS, _BINS_PER_CLASS, _IMAGES_PER_BIN = 20, 256, 4, 10
_PROPERTIES = (
    "brightness_mean",
    "brightness_std",
    "sharpness",
    "entropy",
    "saturation_mean",
    "colourfulness",
    "is_grey",
    "red_mean",
    "green_mean",
    "blue_mean",
    "side_px",
    "aspect_ratio",
)


@dataclass(frozen=True)
class _Finding:
    """One kind of issue: the score of every image, the border below which it is one, and the rule in words."""

    scores: Float[np.ndarray, " n"]
    threshold: float | None
    rule: str

    @property
    def flags(self) -> Bool[np.ndarray, " n"]:
        return np.zeros(len(self.scores), dtype=bool) if self.threshold is None else self.scores < self.threshold


def image_health(
    *,
    image_index: pl.DataFrame,
    image_statistics: pl.DataFrame,
    neighbors: Neighbors,
    labels: Int[np.ndarray, " n"],
) -> dict[str, Any]:
    """Count the images that look faulty or odd, and find image properties that give the label away.

    A census of the images at hand: no intervals. Kinds, scores and thresholds: `health_issues`.

    Args:
        image_index: `source_row` and size of each image.
        image_statistics: Of the 256-pixel squares, see there.
        neighbors: Nearest neighbours in the embedding space, and groups of near-duplicates.
        labels: int64, the class of each row.

    Returns:
        `total_images`; `n_flagged`, `flagged_rate`: images with at least one issue. `issues`, for each kind:
        `count`; `rate`; `threshold` of the score, null where it cannot be judged; `rule` in words;
        `widespread`, at least 10 % of the images, so a trait of the dataset more than a fault of single images;
        `worst`, up to 20 flagged images of least score as {`source_row`, `score`}.

        `label_correlations`: how well the label can be guessed from one image property alone; see
        `correlate_with_labels`.

        Skipped where there is no image.
    """
    if image_statistics.is_empty():
        return skipped("The dataset has no usable image.")
    images = usable_images(image_index)
    findings = _find(images, image_statistics, neighbors)
    flagged = np.any([finding.flags for finding in findings.values()], axis=0)
    source_rows = images["source_row"].to_numpy()
    return {
        "total_images": images.height,
        "n_flagged": int(flagged.sum()),
        "flagged_rate": round(float(flagged.mean()), 4),
        "issues": {kind: _summarize(finding, source_rows) for kind, finding in findings.items()},
        "label_correlations": correlate_with_labels(_properties(images, image_statistics), labels),
    }


def health_issues(image_index: pl.DataFrame, image_statistics: pl.DataFrame, neighbors: Neighbors) -> pl.DataFrame:
    """Return for every image and kind of issue whether it has it, and a score.

    Scores are in [0, 1], lower is worse; an issue is a score below the threshold. All but the sizes are
    measured on the 256-pixel square, so what the centre crop leaves out is not seen.

    - `dark`: 99th percentile of the perceived brightness; below 0.32.
    - `light`: 1 - its 5th percentile; below 0.05.
    - `low_information`: (entropy of the grey levels + log2 3) / 10 bits; below 0.3, that is 1.42 bits. Where
      the brightness deviates by at least 0.05 there is an object on a plain ground: at least 0.3.
    - `odd_aspect_ratio`: shorter side / longer side; below 0.35.
    - `odd_size`: the side sqrt(width x height) lies outside Q1 - 3 IQR to Q3 + 3 IQR of all images', or, so that
      a set of one size is not odd as soon as one image is a little larger, outside half to twice the median,
      whichever is wider. Score 1 - |side - middle| / width of that range, below 0.5.
    - `blurry`: sharpness (see `image_statistics`); below 0.25. Images whose shorter side has fewer than 128
      pixels, or without contrast, are not judged: score 1.
    - `grayscale`: no colour, where more than half of the images have some: score 0, else 1.
    - `outlier`: exp(-d / u), d the mean cosine distance to the 10 nearest images that are no near-duplicates of
      it, u the larger of the median d and the mean d of those neighbours, so that a class which is more varied
      than the others is none. Below exp(-t), t = Q3 + 3 IQR of d / u over all images, near-duplicates
      counted once, at least 1.5. With fewer than 20 different images none is judged: score 1.

    Dark, light and aspect ratio are CleanVision's (0.3.6: scores and thresholds), low information too, with its
    measure of grey pictures and without objects on plain ground; odd size is CleanVision's with a least width;
    the rest is ours, outliers after Datalab's.

    Args:
        image_index: Sizes from the file headers.
        image_statistics: See there; aligned to `row`.
        neighbors: `ids`, `cosines` and `near_group` are used.

    Returns:
        `row`, and for each kind `is_<kind>_issue` Boolean and `<kind>_score` Float64.
    """
    if image_statistics.is_empty():
        flags = {
            name: t
            for kind in KINDS
            for name, t in ((f"is_{kind}_issue", pl.Boolean), (f"{kind}_score", pl.Float64))
        }
        return pl.DataFrame(schema={"row": pl.Int64, **flags})
    findings = _find(usable_images(image_index), image_statistics, neighbors)
    columns: dict[str, Any] = {"row": image_statistics["row"]}
    for kind, finding in findings.items():
        columns[f"is_{kind}_issue"] = finding.flags
        columns[f"{kind}_score"] = finding.scores
    return pl.DataFrame(columns)


def correlate_with_labels(properties: pl.DataFrame, labels: Int[np.ndarray, " n"]) -> dict[str, Any]:
    """Return how well each property alone predicts the label.

    Five folds, stratified by class; the values are cut into bins of equal numbers of images (as many as there are
    different values where those are few), and each bin predicts the class that is most frequent there in
    the other folds. The score is the share of the errors of always naming the largest class that remains,
    (1 - accuracy) / (1 - baseline), at most 1, as in Datalab's spurious correlations, and flagged as there
    below 0.3.
    A property can be the legitimate mark of a class; it can also be the camera.

    Args:
        properties: One column a property, no nulls.
        labels: int64, the class of each row.

    Returns:
        `threshold`; `baseline_accuracy`, share of the largest class; `correlated`, names of the properties
        flagged; `properties`, each {`property`, `accuracy`, `score`}, worst first. Skipped with fewer than two
        classes or 20 images.
    """
    n_images, n_classes = len(labels), int(np.count_nonzero(np.bincount(labels))) if len(labels) else 0
    if n_classes < 2 or n_images < _FOLDS * 4:
        return skipped(f"{n_images} images of {n_classes} classes; at least 20 images of two classes are needed.")
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    folds = _folds(classes, counts)
    n_bins = min(max(_BINS_PER_CLASS * n_classes, _LEAST_BINS), _MOST_BINS, max(2, n_images // _IMAGES_PER_BIN))
    baseline = float(counts.max()) / n_images
    found: list[dict[str, Any]] = []
    for column in properties.iter_columns():
        bins = _bins(column.to_numpy().astype(np.float64), n_bins)
        accuracy = _cross_validated_accuracy(bins, classes, folds)
        score = min(1.0, (1 - accuracy) / (1 - baseline))
        found.append({"property": column.name, "accuracy": round(accuracy, 4), "score": round(score, 4)})
    found.sort(key=lambda entry: entry["score"])
    return {
        "threshold": _CORRELATED,
        "baseline_accuracy": round(baseline, 4),
        "correlated": [entry["property"] for entry in found if entry["score"] < _CORRELATED],
        "properties": found,
    }


def _find(images: pl.DataFrame, statistics: pl.DataFrame, neighbors: Neighbors) -> dict[str, _Finding]:
    if not images.height == statistics.height == len(neighbors.ids):
        raise ValueError(
            f"{images.height} usable images, but {statistics.height} rows of statistics "
            f"and {len(neighbors.ids)} of neighbours"
        )
    width, height = images["width"].to_numpy(), images["height"].to_numpy()
    shorter, longer = np.minimum(width, height), np.maximum(width, height)
    sharpness = statistics["sharpness"].fill_null(1.0).to_numpy()
    information = np.minimum((statistics["entropy"].to_numpy() + _ENTROPY_OF_CHANNELS) / _ENTROPY_SCALE, 1.0)
    has_object = statistics["brightness_std"].to_numpy() >= _CONTRAST_OF_OBJECT
    return {
        "dark": _Finding(
            statistics["brightness_p99"].to_numpy(),
            _DARK,
            f"The 99th percentile of the brightness is below {_DARK}.",
        ),
        "light": _Finding(
            1 - statistics["brightness_p5"].to_numpy(),
            _LIGHT,
            f"The 5th percentile of the brightness is above {1 - _LIGHT}.",
        ),
        "blurry": _Finding(
            np.where(shorter < _LEAST_SIDE_PX, 1.0, np.minimum(sharpness, 1.0)),
            _BLURRY,
            f"The sharpness is below {_BLURRY}; images smaller than {_LEAST_SIDE_PX} pixels are not judged.",
        ),
        "low_information": _Finding(
            np.where(has_object, np.maximum(information, _LOW_INFORMATION), information),
            _LOW_INFORMATION,
            "The entropy of the grey levels is below "
            f"{_LOW_INFORMATION * _ENTROPY_SCALE - _ENTROPY_OF_CHANNELS:.2f} bits, "
            f"and the brightness deviates by less than {_CONTRAST_OF_OBJECT}.",
        ),
        "odd_size": _find_odd_sizes(np.sqrt(width.astype(np.float64) * height)),
        "odd_aspect_ratio": _Finding(
            shorter / longer,
            _ODD_ASPECT_RATIO,
            f"The shorter side is below {_ODD_ASPECT_RATIO} of the longer one.",
        ),
        "grayscale": _find_grey(statistics["is_grey"].to_numpy()),
        "outlier": _find_outliers(neighbors),
    }


def _find_odd_sizes(sides: Float[np.ndarray, " n"]) -> _Finding:
    q1, median, q3 = np.percentile(sides, [25, 50, 75])
    low = min(q1 - _FENCE * (q3 - q1), median / _SIZE_FACTOR)
    high = max(q3 + _FENCE * (q3 - q1), median * _SIZE_FACTOR)
    scores = 1 - np.clip(np.abs(sides - (low + high) / 2) / (high - low), 0, 1)
    bounds = f"above {high:.0f}" if low <= 0 else f"below {low:.0f} or above {high:.0f}"
    return _Finding(scores, _ODD_SIZE, f"The square root of width x height is {bounds} pixels.")


def _find_grey(is_grey: Bool[np.ndarray, " n"]) -> _Finding:
    share = float(is_grey.mean())
    if share >= 0.5:
        return _Finding(np.ones(len(is_grey)), None, f"{share:.0%} of the images are grey, so none is odd for it.")
    return _Finding(np.where(is_grey, 0.0, 1.0), _GRAYSCALE, "The image is grey, and most others are in colour.")


def _find_outliers(neighbors: Neighbors) -> _Finding:
    distances, used = _distances_to_others(neighbors)
    n_images = len(distances)
    known = np.isfinite(distances)
    first_of_group = known & (neighbors.near_group == np.arange(n_images))
    if first_of_group.sum() < _MIN_GROUPS:
        reason = f"{first_of_group.sum()} different images; at least {_MIN_GROUPS} are needed to know an outlier."
        return _Finding(np.ones(n_images), None, reason)
    median = max(float(np.median(distances[first_of_group])), _TINY_DISTANCE)
    around = used & known[neighbors.ids]
    sums = np.where(around, distances[neighbors.ids], 0.0).sum(axis=1)
    usual = np.maximum(median, sums / np.maximum(around.sum(axis=1), 1))
    ratios = np.where(known, distances / usual, 0.0)
    q1, q3 = np.percentile(ratios[first_of_group], [25, 75])
    limit = max(_DISTANCE_FACTOR, q3 + _FENCE * (q3 - q1))
    return _Finding(
        np.exp(-ratios),
        exp(-limit),
        f"The mean distance to the {_NEIGHBOURS} nearest other images is above {limit:.2f} times the usual one.",
    )


def _distances_to_others(neighbors: Neighbors) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, "n k"]]:
    """Return the mean cosine distance to the nearest images of other near-duplicate groups, and which they are.

    NaN where all neighbours are near-duplicates.
    """
    others = neighbors.near_group[neighbors.ids] != neighbors.near_group[:, None]
    used = others & (np.cumsum(others, axis=1) <= _NEIGHBOURS)
    n_used = used.sum(axis=1)
    cosines = np.where(used, neighbors.cosines.astype(np.float64), 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.maximum(1 - cosines / np.where(n_used > 0, n_used, np.nan), 0.0), used


def _summarize(finding: _Finding, source_rows: Int[np.ndarray, " n"]) -> dict[str, Any]:
    flagged = np.flatnonzero(finding.flags)
    worst = flagged[np.argsort(finding.scores[flagged], kind="stable")][:_N_WORST]
    rate = len(flagged) / len(source_rows)
    return {
        "count": len(flagged),
        "rate": round(rate, 4),
        "threshold": None if finding.threshold is None else round(finding.threshold, 4),
        "rule": finding.rule,
        "widespread": rate >= WIDESPREAD_RATE,
        "worst": [
            {"source_row": int(source_rows[row]), "score": round(float(finding.scores[row]), 4)} for row in worst
        ],
    }


def _properties(images: pl.DataFrame, statistics: pl.DataFrame) -> pl.DataFrame:
    width, height = images["width"].cast(pl.Float64), images["height"].cast(pl.Float64)
    sizes = [(width * height).sqrt().alias("side_px"), (width / height).alias("aspect_ratio")]
    return statistics.with_columns(pl.col("sharpness").fill_null(0.0), *sizes).select(_PROPERTIES)


def _folds(classes: Int[np.ndarray, " n"], counts: Int[np.ndarray, " k"]) -> Int[np.ndarray, " n"]:
    """Return a fold for each image: those of a class take turns."""
    order = np.argsort(classes, kind="stable")
    folds = np.empty(len(classes), dtype=np.int64)
    folds[order] = (np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)) % _FOLDS
    return folds


def _bins(values: Float[np.ndarray, " n"], n_bins: int) -> Int[np.ndarray, " n"]:
    different, position = np.unique(values, return_inverse=True)
    if len(different) <= n_bins:
        return position
    edges = np.unique(np.quantile(values, np.arange(1, n_bins) / n_bins))
    return np.searchsorted(edges, values, side="right")


def _cross_validated_accuracy(
    bins: Int[np.ndarray, " n"], classes: Int[np.ndarray, " n"], folds: Int[np.ndarray, " n"]
) -> float:
    n_bins, n_classes = int(bins.max()) + 1, int(classes.max()) + 1
    cells = bins * n_classes + classes

    def count(chosen: Bool[np.ndarray, " n"]) -> Int[np.ndarray, "b k"]:
        return np.bincount(cells[chosen], minlength=n_bins * n_classes).reshape(n_bins, n_classes)

    total = count(np.ones(len(cells), dtype=bool))
    right = 0
    for fold in range(_FOLDS):
        held_out = count(folds == fold)
        learned = total - held_out
        # A bin that the other folds leave empty names the class that is largest there.
        choice = np.where(learned.any(axis=1), learned.argmax(axis=1), learned.sum(axis=0).argmax())
        right += int(held_out[np.arange(n_bins), choice].sum())
    return right / len(cells)
