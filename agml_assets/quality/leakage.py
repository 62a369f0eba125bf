"""What copies that lie in several splits do to measured accuracy, and what remains without them.

Splitting by groups of copies is the work of `training`, finding copies that of `embeddings`; here both models'
predictions are compared and the dataset's own splits are audited.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.quality.class_confusability import warn_of_small_classes
from agml_assets.quality.groups import label_conflicts, members, native_split_leaks
from agml_assets.quality.images import skipped, with_splits
from agml_assets.quality.intervals import (
    Resamples,
    class_counts,
    difference_interval,
    macro_f1,
    macro_f1_interval,
    no_interval,
    proportion_interval,
)
from agml_assets.settings import Settings
from agml_assets.training.grouped_splits import EXCEEDS_ROOM, MIN_CLASS_GROUPS, SPLITS

MIN_TEST_IMAGES = 30
"""Fewer test images without a copy in train identify no accuracy."""

_GIVEN = "the trained models"
_BLOCK = 2048  # rows of one block of cosines


def leakage(
    *,
    image_index: pl.DataFrame,
    splits: pl.DataFrame,
    duplicate_groups: pl.DataFrame,
    grouped_splits: pl.DataFrame,
    embeddings: Float[np.ndarray, "n d"],
    test_predictions: Mapping[str, np.ndarray],
    test_predictions_grouped: Mapping[str, np.ndarray],
    settings: Settings,
) -> dict[str, Any]:
    """Compare the accuracy on the published split with that where no test image has a copy in train.

    Copies are images of one joined group: exact and near duplicates, connected. A prediction is the most
    probable class, the first on ties; macro-F1 is the mean over the classes with test images of
    2 tp / (given + predicted), scikit-learn's `f1_score(labels=the given classes, average="macro")`.

    Args:
        image_index: Declares the classes; the given class of each image.
        splits: Split of each row; the column `settings.split_recipe` is the published one.
        duplicate_groups: `exact` and `joined` group of each row.
        grouped_splits: Leak-safe split of each row, and why a row was sent to train.
        embeddings: float32 rows of unit L2 norm.
        test_predictions: `rows` int64 (m,), `probabilities` float32 (m, declared classes), of the published split.
        test_predictions_grouped: The same, leak-safe: of a second model trained and tested on the grouped split
            (`retrain`), of the published model on published test images without a copy in published train
            (`subset`), or empty (`off`).
        settings: `split_recipe` and `leak_safe`.

    Returns:
        `published`: {`accuracy`, `macro_f1`, `n_test`}, over all test images.

        `leak_safe`: {`mode`, the setting; `accuracy`, `macro_f1`, `n_test`, `n_classes`, over the classes that are
        kept; `classes_left_out`, [{`class`, `groups`, `reason`}]; `sizes`, images of {`train`, `val`, `test`},
        those of classes left out among them}. Left out are, of the classes with images, those with fewer than
        three groups, those without a training or a test image and, but for `subset`, the main class of a group
        larger than the room left. Below half of the classes or 30 test images both figures are
        null and `reason` begins "not identifiable"; with `off`, it names the setting.

        `leakage_inflation`: published minus leak-safe accuracy, as a fraction; null, with
        `leakage_inflation_reason`, where one is missing. `leakage_inflation_kept_classes`: the same where the
        published accuracy is over the kept classes too, so that only copies differ.

        `paired`: {`with_copy`, `without_copy`: {`n`, `accuracy`}, `difference`}: published test images that have,
        and that have not, a copy in published train, and the accuracy of the former minus that of the
        latter; it holds easier classes with more copies to be leakage as well. Null where there are none.

        `images_sent_to_train`: {reason: images} that the grouped split did not draw. `largest_group`:
        {`images`, `share` of all, `lowest_cosine` of two images in it, null for one image}: far below the
        threshold, the group is a chain. `effective_sample_size`: {`overall`, `per_class`}, groups; one that
        holds several classes counts for each. `native_splits`: {`exact`, `joined`}, what each pair of the
        dataset's own splits shares, see `groups.native_split_leaks`; null without own splits.
        `label_conflicts`: {`groups`, `images`} of exact copies with different labels.

        `small_class_warning`: {`published`, `leak_safe`}, in words where a class has fewer than 30 test images.
        `intervals`, of the figures by their path.

        Skipped, but with all that needs no model, where nothing was predicted.
    """
    names = declared_classes(image_index)
    images = with_splits(usable_images(image_index), splits, settings.split_recipe)
    for facts in (
        duplicate_groups.select("row", "exact", "joined"),
        grouped_splits.select("row", "reason", grouped="split"),
    ):
        images = images.join(facts, on="row", how="left", validate="1:1", maintain_order="left")
    images = images.sort("row")
    audit = _audit(images, names, embeddings)
    if not len(test_predictions["rows"]):
        reason = "No test image was predicted: it needs a model of at least two classes and a test split."
        return skipped(reason, **audit)

    labels = images["label"].to_numpy()
    published = _tested(test_predictions, labels)
    safe = _tested(test_predictions_grouped, labels)
    subset = settings.leak_safe == "subset"
    parts = _without_copies(images, safe.rows) if subset else images["grouped"]
    left_out = _classes_left_out(images, parts, names, drawn_by_group=not subset)
    kept = np.bincount(labels, minlength=len(names)) > 0
    n_present = int(kept.sum())
    kept[list(left_out)] = False
    safe = safe.among(kept[safe.true])
    lack = _lack(settings.leak_safe, int(kept.sum()), n_present, len(safe.rows))
    of_kept = published.among(kept[published.true])
    in_train = images.filter(pl.col("split") == SPLITS[0])["joined"].to_numpy()
    with_copy = np.isin(images["joined"].to_numpy()[published.rows], in_train)
    pair = published.among(with_copy), published.among(~with_copy)

    resamples = Resamples.of(duplicate_groups)
    warnings = {"published": published.warning(names), "leak_safe": None if lack else safe.warning(names)}
    return {
        "published": {**published.figures(), "n_test": len(published.rows)},
        "leak_safe": {
            "mode": settings.leak_safe,
            **(safe.figures() if not lack else {"accuracy": None, "macro_f1": None, "reason": lack}),
            "n_test": len(safe.rows),
            "n_classes": int(kept.sum()),
            "classes_left_out": list(left_out.values()),
            "sizes": {split: int((parts == split).sum()) for split in SPLITS},
        },
        "leakage_inflation": None if lack else _difference(published, safe),
        "leakage_inflation_kept_classes": None if lack else _difference(of_kept, safe),
        **({"leakage_inflation_reason": lack} if lack else {}),
        "paired": {
            "with_copy": {"n": len(pair[0].rows), "accuracy": pair[0].accuracy},
            "without_copy": {"n": len(pair[1].rows), "accuracy": pair[1].accuracy},
            "difference": _difference(*pair),
        },
        **audit,
        "small_class_warning": warnings,
        "intervals": {
            "published.accuracy": _of_accuracy(resamples, published),
            "published.macro_f1": _of_macro_f1(resamples, published),
            "leak_safe.accuracy": no_interval(lack) if lack else _of_accuracy(resamples, safe),
            "leak_safe.macro_f1": no_interval(lack) if lack else _of_macro_f1(resamples, safe),
            "leakage_inflation": no_interval(lack) if lack else _of_difference(resamples, published, safe),
            "leakage_inflation_kept_classes": (
                no_interval(lack) if lack else _of_difference(resamples, of_kept, safe)
            ),
            "paired.with_copy.accuracy": _of_accuracy(resamples, pair[0]),
            "paired.without_copy.accuracy": _of_accuracy(resamples, pair[1]),
            "paired.difference": _of_difference(resamples, *pair),
        },
    }


@dataclass(frozen=True)
class _Tested:
    """Test images with their given and predicted classes."""

    rows: Int[np.ndarray, " m"]
    true: Int[np.ndarray, " m"]
    predicted: Int[np.ndarray, " m"]

    @property
    def correct(self) -> Bool[np.ndarray, " m"]:
        return self.true == self.predicted

    @property
    def accuracy(self) -> float | None:
        return round(float(self.correct.mean()), 4) if len(self.rows) else None

    def among(self, chosen: Bool[np.ndarray, " m"]) -> "_Tested":
        return _Tested(self.rows[chosen], self.true[chosen], self.predicted[chosen])

    def figures(self) -> dict[str, float | None]:
        sums = np.asarray(class_counts(self.true, self.predicted).sum(axis=0), np.float64)
        return {"accuracy": self.accuracy, "macro_f1": round(float(macro_f1(sums[None])[0]), 4)}

    def warning(self, names: list[str]) -> str | None:
        counts = np.bincount(self.true, minlength=len(names))
        tested = np.flatnonzero(counts)
        return warn_of_small_classes(counts[tested], [names[label] for label in tested])


def _tested(predictions: Mapping[str, np.ndarray], labels: Int[np.ndarray, " n"]) -> _Tested:
    rows = predictions["rows"]
    return _Tested(rows, labels[rows], predictions["probabilities"].argmax(axis=1))


def _difference(first: _Tested, second: _Tested) -> float | None:
    if not len(first.rows) or not len(second.rows):
        return None
    return round(float(first.correct.mean() - second.correct.mean()), 4)


def _of_accuracy(resamples: Resamples, tested: _Tested) -> dict[str, Any]:
    return proportion_interval(resamples, tested.rows, tested.correct, _GIVEN)


def _of_macro_f1(resamples: Resamples, tested: _Tested) -> dict[str, Any]:
    return macro_f1_interval(resamples, tested.rows, tested.true, tested.predicted, _GIVEN)


def _of_difference(resamples: Resamples, first: _Tested, second: _Tested) -> dict[str, Any]:
    return difference_interval(resamples, (first.rows, first.correct), (second.rows, second.correct), _GIVEN)


def _without_copies(images: pl.DataFrame, test_rows: Int[np.ndarray, " m"]) -> pl.Series:
    """Return the published split with no other test image than `test_rows`."""
    tested = np.zeros(images.height, bool)
    tested[test_rows] = True
    return images.select(
        pl.when((pl.col("split") != SPLITS[2]) | pl.Series(tested)).then(pl.col("split"))
    ).to_series()


def _classes_left_out(
    images: pl.DataFrame, parts: pl.Series, names: list[str], drawn_by_group: bool
) -> dict[int, dict[str, Any]]:
    """Return the classes that leak-safe figures leave out, by label, with the first reason that applies."""
    classes = (
        images.with_columns(part=parts)
        .group_by("label")
        .agg(
            groups=pl.col("joined").n_unique(),
            train=(pl.col("part") == SPLITS[0]).sum(),
            test=(pl.col("part") == SPLITS[2]).sum(),
        )
    )
    # Most images of a group decide which class it is of, the first of equals.
    large = (
        images.with_columns(size=pl.len().over("joined"))
        .filter(pl.col("reason").str.ends_with(EXCEEDS_ROOM))
        .group_by("joined", "label", "size")
        .len()
        .sort("joined", "len", "label", descending=[False, True, False])
        .unique("joined", keep="first", maintain_order=True)
    )
    room = dict(large.group_by("label").agg(pl.col("size").max()).iter_rows())
    left_out = {}
    for label, groups, train, test in classes.sort("label").iter_rows():
        if groups < MIN_CLASS_GROUPS:
            reason = f"class with {groups} {'group' if groups == 1 else 'groups'}"
        elif drawn_by_group and label in room:
            reason = f"group of {room[label]} images {EXCEEDS_ROOM}"
        elif not test:
            reason = "no test image that has no copy in train"
        elif not train:
            reason = "no training image"
        else:
            continue
        left_out[label] = {"class": names[label], "groups": groups, "reason": reason}
    return left_out


def _lack(mode: str, n_kept: int, n_present: int, n_test: int) -> str | None:
    """Return why there is no leak-safe figure, or null."""
    if mode == "off":
        return "The setting leak_safe is 'off'."
    if 2 * n_kept < n_present:
        return f"not identifiable: {n_kept} of {n_present} classes remain; at least half are needed"
    if n_test < MIN_TEST_IMAGES:
        return f"not identifiable: {n_test} test images remain; at least {MIN_TEST_IMAGES} are needed"
    return None


def _audit(images: pl.DataFrame, names: list[str], embeddings: Float[np.ndarray, "n d"]) -> dict[str, Any]:
    """Return what needs no model: who went to train, the largest group, groups, own splits, conflicts."""
    per_class = dict(images.group_by("label").agg(pl.col("joined").n_unique()).iter_rows())
    own_splits = images["native"].count() > 0
    conflicts = label_conflicts(members(images, "exact"))
    return {
        "images_sent_to_train": dict(
            images.drop_nulls("reason")
            .group_by("reason")
            .len()
            .sort("len", "reason", descending=[True, False])
            .iter_rows()
        ),
        "largest_group": _largest_group(images["joined"].to_numpy(), embeddings),
        "effective_sample_size": {
            "overall": images["joined"].n_unique(),
            "per_class": {name: per_class.get(label, 0) for label, name in enumerate(names)},
        },
        "native_splits": {
            kind: native_split_leaks(members(images, kind), own_splits) for kind in ("exact", "joined")
        }
        if own_splits
        else None,
        "label_conflicts": {"groups": conflicts["groups"], "images": conflicts["images"]},
    }


def _largest_group(
    joined: Int[np.ndarray, " n"], embeddings: Float[np.ndarray, "n d"]
) -> dict[str, int | float | None]:
    if not len(joined):
        return {"images": 0, "share": 0.0, "lowest_cosine": None}
    groups, sizes = np.unique(joined, return_counts=True)
    largest = groups[sizes.argmax()]
    vectors = np.asarray(embeddings[joined == largest])
    return {
        "images": int(sizes.max()),
        "share": round(float(sizes.max() / len(joined)), 4),
        "lowest_cosine": _lowest_cosine(vectors),
    }


def _lowest_cosine(vectors: Float[np.ndarray, "m d"]) -> float | None:
    """Return the least cosine of any two of the unit vectors, all pairs compared block by block."""
    if len(vectors) < 2 or not np.isfinite(vectors).all():
        return None
    starts = range(0, len(vectors), _BLOCK)
    lowest = min(
        (vectors[i : i + _BLOCK] @ vectors[j : j + _BLOCK].T).min() for i in starts for j in starts if i <= j
    )
    return round(float(np.clip(lowest, -1, 1)), 4)
