"""How evenly the training images are spread over the classes. Labels only; no image is looked at."""

from math import exp, log
from typing import Any

import polars as pl

from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.quality.class_names import alike_class_names, classes_called_like_splits
from agml_assets.quality.entropy import entropy
from agml_assets.quality.images import skipped, with_splits
from agml_assets.quality.intervals import census
from agml_assets.settings import Settings


def class_imbalance(*, image_index: pl.DataFrame, splits: pl.DataFrame, settings: Settings) -> dict[str, Any]:
    """Measure class balance of the training split, and say which classes are empty.

    With n_c training images of class c, p_c = n_c / sum(n), K declared and P present classes:
    entropy H = -sum(p_c ln p_c), normalised H / ln K (Pielou's evenness over the declared classes).

    Args:
        image_index: Images with `row`, `label`, `class_name`.
        splits: Split of each row; the column `settings.split_recipe` is used.
        settings: Names the split recipe.

    Returns:
        Published: `counts` {class: training images}, classes without any left out, in label order;
        `imbalance_ratio` largest / smallest count among those; `normalized_entropy` H / ln K in
        [0, 1], and 1.0 where only one class is declared; `most_frequent_class`,
        `least_frequent_class`, the first in label order on ties; `total_train_examples`.

        Added: `n_declared_classes`; `empty_classes`, declared classes without a single usable
        image; `untrained_classes`, classes with images but none in the training split;
        `total_images`; `class_totals` {class: images in all splits} for every declared class;
        `imbalance_ratio_declared`, the ratio over all declared classes, null with
        `imbalance_ratio_declared_reason` where one has no training image; `normalized_entropy_present`
        H / ln P, null with a reason where P = 1; `effective_classes` exp(H), the number of
        equally frequent classes with the same entropy (Hill number of order 1, Hill 1973); `alike_class_names`,
        names that may mean one class, see there; `classes_called_like_splits`; `intervals`, which name the
        figures as a census.

        Skipped where the recipe puts no image into the training split.
    """
    names = declared_classes(image_index)
    images = with_splits(usable_images(image_index), splits, settings.split_recipe)
    totals = _counts_by_class(images, len(names))
    train = _counts_by_class(images.filter(pl.col("split") == "train"), len(names))
    present = {name: n for name, n in zip(names, train, strict=True) if n}
    if not present:
        return skipped(f"The split recipe {settings.split_recipe!r} puts no image into the training split.")

    nats = entropy(present.values())
    result: dict[str, Any] = {
        "counts": present,
        "imbalance_ratio": round(max(present.values()) / min(present.values()), 4),
        "normalized_entropy": round(nats / log(len(names)) if len(names) > 1 else 1.0, 4),
        "most_frequent_class": max(present, key=present.__getitem__),
        "least_frequent_class": min(present, key=present.__getitem__),
        "total_train_examples": sum(train),
        "n_declared_classes": len(names),
        "empty_classes": [name for name, n in zip(names, totals, strict=True) if not n],
        "untrained_classes": [name for name, n, t in zip(names, totals, train, strict=True) if n and not t],
        "total_images": sum(totals),
        "class_totals": dict(zip(names, totals, strict=True)),
    }
    without = len(names) - len(present)
    result["imbalance_ratio_declared"] = None if without else result["imbalance_ratio"]
    if without:
        result["imbalance_ratio_declared_reason"] = f"{without} declared classes have no training image."
    result["normalized_entropy_present"] = round(nats / log(len(present)), 4) if len(present) > 1 else None
    if len(present) == 1:
        result["normalized_entropy_present_reason"] = "All training images are of one class."
    result["effective_classes"] = round(exp(nats), 4)
    result["alike_class_names"] = alike_class_names(names)
    result["classes_called_like_splits"] = classes_called_like_splits(names)
    result["intervals"] = census(
        "imbalance_ratio", "normalized_entropy", "normalized_entropy_present", "effective_classes"
    )
    return result


def _counts_by_class(images: pl.DataFrame, n_classes: int) -> list[int]:
    counts = dict(images.group_by("label").len().iter_rows())
    return [counts.get(label, 0) for label in range(n_classes)]
