from math import log

import polars as pl

from agml_assets.quality.metadata_coverage import MAX_VALUES, metadata_coverage


def with_metadata(index, labels, names, **columns):
    return index(labels, names).with_columns(
        **{f"meta.{name}": pl.lit(pl.Series(values)) for name, values in columns.items()}
    )


def test_a_dataset_without_metadata_is_skipped_with_the_published_reason(index):
    assert metadata_coverage(image_index=index([0], ["a"])) == {
        "skipped": True,
        "reason": "No metadata columns detected in dataset schema.",
    }


def test_classes_and_values_appear_as_first_seen(index):
    images = with_metadata(index, [1, 1, 0, 0, 1, 0], ["a", "b"], site=["y", "x", "x", "y", "y", "x"])
    coverage = metadata_coverage(image_index=images)["coverage"]["site"]
    assert [(name, list(values.items())) for name, values in coverage.items()] == [
        ("b", [("y", 2), ("x", 1)]),
        ("a", [("x", 2), ("y", 1)]),
    ]


def test_a_class_seen_under_one_condition_is_perfect_as_published_and_uncovered_in_truth(index):
    images = with_metadata(index, [0, 0, 1, 1], ["a", "b"], site=["x", "x", "x", "y"])
    result = metadata_coverage(image_index=images)
    assert result["normalized_entropy"]["site"] == {"a": 1.0, "b": 1.0}
    assert result["normalized_entropy_dataset"]["site"] == {"a": 0.0, "b": 1.0}


def test_the_added_entropy_has_one_yardstick_for_all_classes(index):
    images = with_metadata(index, [0] * 2 + [1] * 6, ["a", "b"], site=["x", "y", "x", "y", "z", "x", "y", "z"])
    result = metadata_coverage(image_index=images)
    assert result["normalized_entropy"]["site"]["a"] == 1.0
    assert result["normalized_entropy_dataset"]["site"] == {"a": round(log(2) / log(3), 4), "b": 1.0}
    assert result["n_values"] == {"site": 3}


def test_class_labels_are_published_as_integers_and_named_beside(index):
    crop = pl.Series(["rice", "bean", "rice", "bean"], dtype=pl.Enum(["oat", "bean", "rice"]))
    result = metadata_coverage(image_index=with_metadata(index, [0, 0, 1, 1], ["a", "b"], crop=crop))
    assert result["coverage"]["crop"] == {"a": {"2": 1, "1": 1}, "b": {"2": 1, "1": 1}}
    assert result["value_names"] == {"crop": {"1": "bean", "2": "rice"}}


def test_a_missing_value_is_a_value(index):
    crop = pl.Series(["rice", None, None, None], dtype=pl.Enum(["rice"]))
    result = metadata_coverage(image_index=with_metadata(index, [0] * 4, ["a"], crop=crop))
    assert result["coverage"]["crop"] == {"a": {"0": 1, "None": 3}}


def test_a_column_of_identifiers_never_fills_the_report(index):
    n = 60
    images = with_metadata(
        index, [0] * n, ["a"], file=[f"img_{i}.jpg" for i in range(n)], site=["x", "y"] * (n // 2)
    )
    result = metadata_coverage(image_index=images)
    assert result["metadata_columns"] == ["file", "site"]
    assert list(result["coverage"]) == list(result["normalized_entropy"]) == ["site"]
    assert result["not_covered"]["file"]["n_values"] == n
    assert result["not_covered"]["file"]["skipped"] is True


def test_a_column_of_very_many_recurring_values_is_summarised_too(index):
    values = [str(i % (MAX_VALUES + 1)) for i in range(3 * (MAX_VALUES + 1))]
    images = with_metadata(index, [0] * len(values), ["a"], weight=values)
    assert metadata_coverage(image_index=images)["not_covered"]["weight"]["n_values"] == MAX_VALUES + 1


def test_very_many_combinations_of_class_and_value_are_summarised_too(index):
    classes, values, repeats = 150, 100, 2
    labels = [label for label in range(classes) for _ in range(values * repeats)]
    sites = [str(value) for _ in range(classes * repeats) for value in range(values)]
    images = with_metadata(index, labels, [f"class {i}" for i in range(classes)], site=sites)
    assert "combinations" in metadata_coverage(image_index=images)["not_covered"]["site"]["reason"]
