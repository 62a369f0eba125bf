from math import e, log

import polars as pl
import pytest
from scipy.stats import entropy as scipy_entropy

from agml_assets.quality.class_imbalance import class_imbalance
from agml_assets.quality.entropy import entropy


@pytest.mark.parametrize("counts", [[1], [5, 5], [700, 2, 39, 1], [0, 3, 0, 9]])
def test_entropy_is_that_of_scipy(counts):
    assert entropy(counts) == pytest.approx(scipy_entropy(counts), abs=1e-12)


def test_only_training_images_are_counted_and_totals_cover_all_splits(index, splits, settings):
    images = index([0, 0, 0, 1, 1, 0], ["a", "b"])
    result = class_imbalance(
        image_index=images,
        splits=splits(["train", "train", "train", "train", "val", "test"]),
        settings=settings,
    )
    assert result["counts"] == {"a": 3, "b": 1}
    assert result["imbalance_ratio"] == 3.0
    assert result["total_train_examples"] == 4
    assert result["class_totals"] == {"a": 4, "b": 2}
    assert result["total_images"] == 6


def test_a_declared_class_without_images_lowers_the_entropy_and_is_named(index, splits, settings):
    result = class_imbalance(
        image_index=index([0, 0, 2, 2], ["a", "b", "c"]), splits=splits(["train"] * 4), settings=settings
    )
    assert result["counts"] == {"a": 2, "c": 2}
    assert result["imbalance_ratio"] == 1.0
    assert result["normalized_entropy"] == round(log(2) / log(3), 4)
    assert result["least_frequent_class"] == "a"
    assert result["empty_classes"] == ["b"]
    assert result["imbalance_ratio_declared"] is None
    assert "no training image" in result["imbalance_ratio_declared_reason"]
    assert result["normalized_entropy_present"] == 1.0
    assert result["effective_classes"] == 2.0


def test_a_class_that_misses_only_the_training_split_is_told_from_an_empty_one(index, splits, settings):
    result = class_imbalance(
        image_index=index([0, 0, 1], ["a", "b", "c"]),
        splits=splits(["train", "train", "test"]),
        settings=settings,
    )
    assert result["untrained_classes"] == ["b"]
    assert result["empty_classes"] == ["c"]


def test_ties_go_to_the_first_label(index, splits, settings):
    result = class_imbalance(
        image_index=index([1, 0, 2], ["z", "m", "a"]), splits=splits(["train"] * 3), settings=settings
    )
    assert (result["most_frequent_class"], result["least_frequent_class"]) == ("z", "z")
    assert list(result["counts"]) == ["z", "m", "a"]


def test_one_class_keeps_the_published_entropy_and_the_added_one_says_why_it_has_none(index, splits, settings):
    result = class_imbalance(image_index=index([0, 0], ["weed"]), splits=splits(["train"] * 2), settings=settings)
    assert result["normalized_entropy"] == 1.0
    assert result["normalized_entropy_present"] is None
    assert result["normalized_entropy_present_reason"]
    assert result["effective_classes"] == 1.0


def test_all_images_of_one_of_several_classes_are_unbalanced(index, splits, settings):
    result = class_imbalance(
        image_index=index([1, 1, 1], ["a", "b"]), splits=splits(["train"] * 3), settings=settings
    )
    assert result["normalized_entropy"] == 0.0
    assert result["normalized_entropy_present"] is None


def test_effective_classes_of_uneven_counts(index, splits, settings):
    result = class_imbalance(
        image_index=index([0, 0, 0, 1], ["a", "b"]), splits=splits(["train"] * 4), settings=settings
    )
    assert result["effective_classes"] == round(e ** scipy_entropy([3, 1]), 4)


def test_a_recipe_without_training_images_is_skipped_with_its_name(index, splits, settings):
    result = class_imbalance(
        image_index=index([0, 1], ["a", "b"]),
        splits=splits(["train"] * 2),
        settings=settings.override({"split_recipe": "native"}, "test"),
    )
    assert result["skipped"] is True
    assert "native" in result["reason"]


def test_excluded_images_do_not_count(index, splits, settings):
    images = index([0, 0, 1, 1], ["a", "b"]).with_columns(row=pl.Series([0, None, 1, 2], dtype=pl.Int64))
    result = class_imbalance(image_index=images, splits=splits(["train"] * 3), settings=settings)
    assert result["class_totals"] == {"a": 1, "b": 2}


def test_splits_of_other_images_are_refused(index, splits, settings):
    with pytest.raises(ValueError, match="splits cover 3 rows"):
        class_imbalance(image_index=index([0, 1], ["a", "b"]), splits=splits(["train"] * 3), settings=settings)


def test_an_index_that_forgot_its_declared_classes_is_refused(index, splits, settings):
    images = index([0, 1], ["a", "b"]).with_columns(pl.col("class_name").cast(pl.String))
    with pytest.raises(TypeError, match="Enum"):
        class_imbalance(image_index=images, splits=splits(["train"] * 2), settings=settings)
