import json

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score

from agml_assets.quality.class_confusability import class_confusability

NAMES = list("abcde")


def groups(joined):
    rows = pl.Series(range(len(joined)), dtype=pl.Int64)
    return pl.DataFrame({"row": rows, "exact": rows, "near": rows, "joined": pl.Series(joined, dtype=pl.Int64)})


def certain(predicted, n_classes):
    return np.eye(n_classes, dtype=np.float32)[np.asarray(predicted)]


def measure(index, true, predicted, names=NAMES, joined=None, rows=None):
    """Measure the predictions for images of these classes; `rows` are the tested ones, all by default."""
    value = class_confusability(
        image_index=index(list(true), names),
        test_predictions={
            "rows": np.arange(len(true)) if rows is None else np.asarray(rows),
            "probabilities": certain(predicted, len(names)) if len(predicted) else np.empty((0, len(names))),
        },
        duplicate_groups=groups(range(len(true)) if joined is None else joined),
    )
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    return value


def drawn(n, n_classes, error, seed=0):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, n_classes, n)
    return true, np.where(rng.random(n) < error, rng.integers(0, n_classes, n), true)


def test_figures_are_those_of_scikit_learn(index):
    true, predicted = drawn(400, 5, 0.4)
    value = measure(index, true, predicted)
    assert value["accuracy"] == pytest.approx((true == predicted).mean(), abs=6e-5)
    assert value["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"), abs=6e-5)
    assert value["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(true, predicted), abs=6e-5)
    normalised = confusion_matrix(true, predicted, normalize="true")
    assert value["confusion_matrix"] == pytest.approx(normalised, abs=6e-5)
    assert list(value["per_class_accuracy"]) == NAMES
    assert list(value["per_class_accuracy"].values()) == [value["confusion_matrix"][i][i] for i in range(5)]
    assert value["n_test_samples"] == 400
    counts = np.zeros((5, 5), dtype=int)
    for given, taken, count in value["confusion_counts"]:
        counts[given, taken] = count
    assert counts.tolist() == confusion_matrix(true, predicted).tolist()


def test_classes_without_test_images_have_empty_rows_and_no_part_in_macro_figures(index):
    true = np.array([0] * 10 + [1] * 10 + [3] * 10)
    predicted = true.copy()
    predicted[:4] = 2  # a class that no test image has
    predicted[12] = 0
    value = measure(index, true, predicted)
    assert value["confusion_matrix"][2] == value["confusion_matrix"][4] == [0.0] * 5
    assert value["per_class_accuracy"]["e"] == 0.0
    assert value["macro_f1"] == pytest.approx(
        f1_score(true, predicted, labels=[0, 1, 3], average="macro"), abs=6e-5
    )
    assert value["balanced_accuracy"] == pytest.approx((0.6 + 0.9 + 1) / 3, abs=6e-5)
    assert value["n_test_per_class"] == {"a": 10, "b": 10, "c": 0, "d": 10, "e": 0}


def test_pairs_come_by_rate_and_ties_in_the_order_of_the_matrix(index):
    true = [0] * 4 + [1] * 4 + [2] * 4
    predicted = [0, 0, 2, 1, 1, 0, 0, 0, 2, 2, 2, 0]
    value = measure(index, true, predicted, names=list("abc"))
    assert [
        (pair["true_class"], pair["predicted_as"], pair["confusion_rate"]) for pair in value["top_confused_pairs"]
    ] == [
        ("b", "a", 0.75),
        ("a", "b", 0.25),
        ("a", "c", 0.25),
        ("c", "a", 0.25),
    ]
    assert value["n_top_pairs"] == 4


def test_at_most_ten_pairs_are_listed(index):
    value = measure(index, *drawn(600, 5, 0.9))
    assert value["n_top_pairs"] == len(value["top_confused_pairs"]) == 10


def test_a_perfect_model_confuses_nothing(index):
    value = measure(index, [0, 1, 2, 3, 4] * 8, [0, 1, 2, 3, 4] * 8)
    assert value["accuracy"] == value["macro_f1"] == value["balanced_accuracy"] == 1.0
    assert value["top_confused_pairs"] == []


def test_predictions_are_the_most_probable_class_and_the_first_on_ties(index):
    value = class_confusability(
        image_index=index([0, 1], list("ab")),
        test_predictions={
            "rows": np.array([0, 1]),
            "probabilities": np.array([[0.5, 0.5], [0.4, 0.6]], dtype=np.float32),
        },
        duplicate_groups=groups(range(2)),
    )
    assert value["accuracy"] == 1.0


def test_only_tested_rows_count(index):
    value = measure(index, [0, 1, 2, 3, 4, 0], [4, 0], rows=[4, 5])
    assert (value["accuracy"], value["n_test_samples"]) == (1.0, 2)
    assert value["n_test_per_class"] == {"a": 1, "b": 0, "c": 0, "d": 0, "e": 1}


def test_the_accuracy_of_independent_images_has_wilsons_interval(index):
    true, predicted = drawn(300, 5, 0.3)
    interval = measure(index, true, predicted)["intervals"]["accuracy"]
    wilson = binomtest(int((true == predicted).sum()), 300).proportion_ci(method="wilson")
    assert (interval["low"], interval["high"]) == pytest.approx((wilson.low, wilson.high), abs=6e-5)


def test_macro_figures_have_the_interval_of_resampled_scikit_learn_figures(index):
    true, predicted = drawn(250, 5, 0.4)
    intervals = measure(index, true, predicted)["intervals"]
    rng = np.random.default_rng(1)
    draws = rng.integers(0, 250, (200, 250))
    for key, figure in (
        ("macro_f1", lambda rows: f1_score(true[rows], predicted[rows], average="macro")),
        ("balanced_accuracy", lambda rows: balanced_accuracy_score(true[rows], predicted[rows])),
    ):
        low, high = np.quantile([figure(rows) for rows in draws], [0.025, 0.975])
        assert (intervals[key]["low"], intervals[key]["high"]) == pytest.approx((low, high), abs=0.02)
        assert "given the trained model" in intervals[key]["method"]


def test_copies_widen_the_intervals(index):
    true, predicted = drawn(100, 5, 0.4)
    copied, doubled = np.repeat(true, 4), np.repeat(predicted, 4)
    alone = measure(index, copied, doubled)["intervals"]
    joined = measure(index, copied, doubled, joined=[row - row % 4 for row in range(400)])["intervals"]
    for key in ("accuracy", "macro_f1", "balanced_accuracy"):
        assert joined[key]["groups"] == 100
        width = {name: value[key]["high"] - value[key]["low"] for name, value in (("a", alone), ("j", joined))}
        assert width["j"] > 1.6 * width["a"]


def test_classes_with_fewer_than_thirty_test_images_are_warned_of(index):
    enough = [0] * 30 + [1] * 30
    assert measure(index, enough, enough, names=list("ab"))["small_class_warning"] is None
    warning = measure(index, enough[:-1], enough[:-1], names=list("ab"))["small_class_warning"]
    assert "1 of 2 classes" in warning
    assert "b, 29" in warning


def test_many_classes_have_no_full_matrix_but_every_non_zero_cell(index):
    names = [f"class {number}" for number in range(1200)]
    true = np.arange(1200).repeat(2)
    predicted = true.copy()
    predicted[::4] = (true[::4] + 1) % 1200
    value = measure(index, true, predicted, names=names)
    assert value["confusion_matrix"] is None
    assert sum(count for _, _, count in value["confusion_counts"]) == 2400
    assert len(value["confusion_counts"]) == 1800
    assert value["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"), abs=6e-5)
    assert value["top_confused_pairs"][0] == {
        "true_class": "class 0",
        "predicted_as": "class 1",
        "confusion_rate": 0.5,
    }
    assert len(json.dumps(value)) < 500_000


def test_without_predictions_the_metric_is_skipped(index):
    value = measure(index, [0, 1, 2], [], rows=[])
    assert value["skipped"] is True
    assert "test" in value["reason"]


def test_probabilities_of_other_classes_are_refused(index):
    with pytest.raises(ValueError, match=r"must be \(2, 5\)"):
        class_confusability(
            image_index=index([0, 1], NAMES),
            test_predictions={"rows": np.array([0, 1]), "probabilities": certain([0, 1], 2)},
            duplicate_groups=groups(range(2)),
        )
