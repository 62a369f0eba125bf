"""How the training images behaved while the reference model learned them: easy, ambiguous, hard, forgotten.

Reads the recorded probabilities; no training here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Shaped

from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.quality.images import skipped
from agml_assets.quality.intervals import Resamples, proportion_interval

EASY_THRESHOLD, HARD_THRESHOLD, VARIABILITY_THRESHOLD = 0.7, 0.3, 0.1
"""Published borders of the categories."""

CATEGORIES = ("easy", "ambiguous", "hard")

_N_HARDEST = 20
_GIVEN = "the trained model"


def dataset_cartography(
    *, image_index: pl.DataFrame, dynamics: Mapping[str, np.ndarray], duplicate_groups: pl.DataFrame
) -> dict[str, Any]:
    """Map the training images by the confidence of the reference model over the epochs, and its variability.

    A published quirk is kept under the published keys: their confidence is the largest probability, whatever
    class it is for, in the training pass. So an image that is surely taken for another class counts as easy,
    and with three classes or fewer nothing can be hard. `true_label` is what the method was proposed as: the
    probability of the given label (Swayamdipta et al. 2020, doi:10.18653/v1/2020.emnlp-main.746), here
    measured in evaluation mode after each epoch.

    Args:
        image_index: Declares the classes; `source_row` and class of the training images.
        dynamics: `rows` int64 (n,), the training images; `max_train`, `true_eval`, `max_eval` float32 (n, epochs).
        duplicate_groups: Groups of copies, for the intervals.

    Returns:
        Published: `n_easy`, `n_ambiguous`, `n_hard` images; `pct_easy`, `pct_ambiguous`, `pct_hard`, percent of
        the training images, 2 decimals; `mean_confidence`, `mean_variability`; the borders `easy_threshold`,
        `hard_threshold`, `variability_threshold`; `n_epochs`. Categories by `categorize`.

        Added: `true_label`, of the same form and with the same borders, in [0, 1] where not a count or percent,
        with `mean_correctness`, share of epochs in which the given label was the most probable;
        `n_never_learned`, images for which it never was; `n_forgotten`, images with at least one forgetting
        event, and `mean_forgetting`, events an image (see `map_images`); `per_class_pct_hard`, percent of each
        class's training images that are hard by it, null without any. `hardest`, up to 20 training images of
        least confidence by it: `source_row`, `class`, `confidence`. `intervals` of all six percentages, in
        percent, those of `true_label` under `true_label.pct_...`.

        Skipped where no training was recorded.
    """
    if not dynamics["max_train"].size:
        return skipped("No training was recorded: it needs training images of at least two classes.")
    images = map_images(dynamics)
    total = images.height
    published = _shares(images["category"].to_numpy(), total)
    true_category = categorize(images["confidence"].to_numpy(), images["variability"].to_numpy())
    true = _shares(true_category, total)
    named = images.with_columns(is_hard=pl.Series(true_category == "hard")).join(
        usable_images(image_index).select("row", "source_row", "class_name"), on="row", validate="1:1"
    )
    if named.height != total:
        raise ValueError(f"{total - named.height} recorded training images are not in the image index")
    hard = dict(named.group_by(pl.col("class_name").cast(pl.String)).agg(pl.col("is_hard").mean()).iter_rows())
    resamples = Resamples.of(duplicate_groups)
    rows = images["row"].to_numpy()
    return {
        **published,
        # Published values are float32 throughout, the mean over the images included.
        "mean_confidence": round(float(_float32(images["published_confidence"]).mean()), 4),
        "mean_variability": round(float(_float32(images["published_variability"]).mean()), 4),
        "easy_threshold": EASY_THRESHOLD,
        "hard_threshold": HARD_THRESHOLD,
        "variability_threshold": VARIABILITY_THRESHOLD,
        "n_epochs": dynamics["max_train"].shape[1],
        "true_label": {
            **true,
            "mean_confidence": _mean(images["confidence"]),
            "mean_variability": _mean(images["variability"]),
            "mean_correctness": _mean(images["correctness"]),
            "n_never_learned": images.filter(pl.col("correctness") == 0).height,
            "n_forgotten": images.filter(pl.col("forgetting") > 0).height,
            "mean_forgetting": _mean(images["forgetting"]),
            "per_class_pct_hard": {
                name: round(100 * hard[name], 2) if name in hard else None
                for name in declared_classes(image_index)
            },
        },
        "hardest": [
            {"source_row": source_row, "class": name, "confidence": round(confidence, 4)}
            for source_row, name, confidence in named.sort("confidence", "source_row")
            .head(_N_HARDEST)
            .select("source_row", "class_name", "confidence")
            .iter_rows()
        ],
        "intervals": {
            f"{prefix}pct_{category}": _in_percent(
                proportion_interval(resamples, rows, members == category, _GIVEN)
            )
            for prefix, members in (("", images["category"].to_numpy()), ("true_label.", true_category))
            for category in CATEGORIES
        },
    }


def map_images(dynamics: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """Return where each training image lies on the map, in the order of `dynamics["rows"]`.

    Args:
        dynamics: `rows` int64 (n,); `max_train`, `true_eval`, `max_eval` float32 (n, epochs), at least one epoch.

    Returns:
        `row`; of the given label's probability in evaluation mode: `confidence`, its mean over the epochs, and
        `variability`, its standard deviation (divisor the number of epochs), Float64; `correctness`, share of
        epochs in which no class was more probable; `forgetting`, number of epochs after which that ceased to be
        so (Toneva et al. 2019, arXiv:1812.05159, who look at each image when its batch is trained, not at the
        end of the epoch); of the largest probability in the training pass, in float32: `published_confidence`,
        `published_variability`, and the `category` by them, `easy`, `ambiguous` or `hard`.
    """
    true = np.asarray(dynamics["true_eval"], dtype=np.float64)
    correct: Bool[np.ndarray, "n e"] = dynamics["true_eval"] >= dynamics["max_eval"]
    largest = np.asarray(dynamics["max_train"], dtype=np.float32)
    confidence, variability = largest.mean(axis=1), largest.std(axis=1)
    return pl.DataFrame(
        {
            "row": np.asarray(dynamics["rows"], dtype=np.int64),
            "confidence": true.mean(axis=1),
            "variability": true.std(axis=1),
            "correctness": correct.mean(axis=1),
            "forgetting": (correct[:, :-1] & ~correct[:, 1:]).sum(axis=1).astype(np.int64),
            "published_confidence": confidence,
            "published_variability": variability,
            "category": pl.Series(categorize(confidence, variability).tolist(), dtype=pl.String),
        }
    )


def categorize(
    confidence: Float[np.ndarray, " n"], variability: Float[np.ndarray, " n"]
) -> Shaped[np.ndarray, " n"]:
    """Return the category of each image; the first rule that holds counts.

    Variability above 0.1: ambiguous; confidence of at least 0.7: easy; confidence below 0.3: hard;
    else ambiguous. Compared in the precision of the arrays.
    """
    return np.select(
        [variability > VARIABILITY_THRESHOLD, confidence >= EASY_THRESHOLD, confidence < HARD_THRESHOLD],
        ["ambiguous", "easy", "hard"],
        default="ambiguous",
    )


def _shares(category: Shaped[np.ndarray, " n"], total: int) -> dict[str, int | float]:
    counts = {name: int((category == name).sum()) for name in CATEGORIES}
    return {
        **{f"n_{name}": count for name, count in counts.items()},
        **{f"pct_{name}": round(count / total * 100, 2) for name, count in counts.items()},
    }


def _float32(values: pl.Series) -> Float[np.ndarray, " n"]:
    return values.to_numpy().astype(np.float32)


def _mean(values: pl.Series) -> float:
    return round(float(values.to_numpy().mean()), 4)


def _in_percent(interval: dict[str, Any]) -> dict[str, Any]:
    if "low" not in interval:
        return interval
    low, high = (round(100 * interval[bound], 2) for bound in ("low", "high"))
    return {**interval, "low": low, "high": high, "unit": "percent"}
