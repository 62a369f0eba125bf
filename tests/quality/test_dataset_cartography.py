import json

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest

from agml_assets.quality.dataset_cartography import categorize, dataset_cartography, map_images

NAMES = ["a", "b", "c"]
EASY, AMBIGUOUS, HARD = [0.9] * 6, [0.5] * 6, [0.1] * 6
SWINGING = [0.6, 1.0] * 3


def groups(joined):
    rows = pl.Series(range(len(joined)), dtype=pl.Int64)
    return pl.DataFrame({"row": rows, "exact": rows, "near": rows, "joined": pl.Series(joined, dtype=pl.Int64)})


def recorded(max_train, true_eval=None, max_eval=None, rows=None):
    """Dynamics from lists of epochs; the evaluation pass defaults to the training pass, always right."""
    train = np.array(max_train, dtype=np.float32)
    true = train if true_eval is None else np.array(true_eval, dtype=np.float32)
    return {
        "rows": np.arange(len(train)) if rows is None else np.array(rows, dtype=np.int64),
        "true_train": true,
        "max_train": train,
        "true_eval": true,
        "max_eval": true if max_eval is None else np.array(max_eval, dtype=np.float32),
    }


def measure(index, dynamics, labels=None, joined=None):
    labels = [0] * (int(dynamics["rows"].max()) + 1) if labels is None else labels
    value = dataset_cartography(
        image_index=index(labels, NAMES),
        dynamics=dynamics,
        duplicate_groups=groups(range(len(labels)) if joined is None else joined),
    )
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    return value


def test_images_are_sorted_into_categories_by_the_largest_probability(index):
    value = measure(index, recorded([EASY, EASY, EASY, AMBIGUOUS, HARD, SWINGING, SWINGING]))
    assert list(value)[:12] == [
        "n_easy",
        "n_ambiguous",
        "n_hard",
        "pct_easy",
        "pct_ambiguous",
        "pct_hard",
        "mean_confidence",
        "mean_variability",
        "easy_threshold",
        "hard_threshold",
        "variability_threshold",
        "n_epochs",
    ]
    assert [value[f"n_{name}"] for name in ("easy", "ambiguous", "hard")] == [3, 3, 1]
    assert [value[f"pct_{name}"] for name in ("easy", "ambiguous", "hard")] == [42.86, 42.86, 14.29]
    assert value["n_epochs"] == 6
    assert value["mean_confidence"] == pytest.approx((3 * 0.9 + 0.5 + 0.1 + 2 * 0.8) / 7, abs=6e-5)
    assert value["mean_variability"] == pytest.approx(2 * 0.2 / 7, abs=6e-5)


def test_the_borders_of_the_categories_are_compared_in_float32():
    confidence = np.array([0.7, 0.7, 0.3, np.nextafter(np.float32(0.3), np.float32(0))], dtype=np.float32)
    variability = np.array([0.1, np.nextafter(np.float32(0.1), np.float32(1)), 0, 0], dtype=np.float32)
    assert categorize(confidence, variability).tolist() == ["easy", "ambiguous", "ambiguous", "hard"]


def test_the_deviation_has_the_number_of_epochs_as_divisor():
    mapped = map_images(recorded([[0.2, 0.4]]))
    assert mapped["variability"][0] == pytest.approx(0.1)
    assert mapped["published_variability"][0] == pytest.approx(0.1)


def test_a_wrong_but_sure_image_is_easy_as_published_and_hard_by_its_label(index):
    sure = [0.99] * 5
    value = measure(index, recorded([sure, sure], true_eval=[[0.01] * 5, sure], max_eval=[sure, sure]))
    assert value["n_easy"] == 2
    assert (value["true_label"]["n_easy"], value["true_label"]["n_hard"]) == (1, 1)
    assert value["true_label"]["pct_hard"] == 50.0
    assert value["true_label"]["n_never_learned"] == 1
    assert value["hardest"][0] == {"source_row": 0, "class": "a", "confidence": 0.01}


def test_forgetting_events_are_epochs_after_which_a_learned_image_is_wrong_again(index):
    # Right where the true label's probability is the largest one.
    right = np.array(
        [
            [0, 0, 1, 1, 1],  # learned and kept
            [1, 0, 1, 0, 1],  # forgotten twice
            [0, 0, 0, 0, 0],  # never learned
            [1, 1, 1, 1, 0],  # forgotten once, at the end
        ]
    )
    largest = np.full(right.shape, 0.6)
    dynamics = recorded(largest, true_eval=np.where(right, 0.6, 0.3), max_eval=largest)
    assert map_images(dynamics)["forgetting"].to_list() == [0, 2, 0, 1]
    assert map_images(dynamics)["correctness"].to_list() == pytest.approx([0.6, 0.6, 0.0, 0.8])
    true = measure(index, dynamics)["true_label"]
    assert (true["n_never_learned"], true["n_forgotten"], true["mean_forgetting"]) == (1, 2, 0.75)
    assert true["mean_correctness"] == 0.5


def test_classes_have_their_own_share_of_hard_images(index):
    value = measure(index, recorded([EASY, HARD, HARD, EASY, EASY]), labels=[0, 0, 1, 0, 0])
    assert value["true_label"]["per_class_pct_hard"] == {"a": 25.0, "b": 100.0, "c": None}


def test_rows_are_those_of_the_training_split(index):
    labels = [0, 1, 2, 1, 0, 2]
    value = measure(index, recorded([HARD, EASY, AMBIGUOUS], rows=[1, 3, 5]), labels=labels)
    assert [image["source_row"] for image in value["hardest"]] == [1, 5, 3]
    assert [image["class"] for image in value["hardest"]] == ["b", "c", "b"]


def test_at_most_twenty_hardest_images_are_listed_the_worst_first(index):
    confidences = np.random.default_rng(0).permutation(np.linspace(0.01, 0.99, 50))
    value = measure(index, recorded(np.repeat(confidences[:, None], 4, axis=1)))
    assert [image["source_row"] for image in value["hardest"]] == np.argsort(confidences)[:20].tolist()


def test_shares_of_independent_images_have_wilsons_interval_in_percent(index):
    value = measure(index, recorded([EASY] * 30 + [AMBIGUOUS] * 8 + [HARD] * 2))
    for key, hits in (("pct_easy", 30), ("pct_ambiguous", 8), ("true_label.pct_hard", 2)):
        wilson = binomtest(hits, 40).proportion_ci(method="wilson")
        interval = value["intervals"][key]
        assert (interval["kind"], interval["unit"]) == ("proportion", "percent")
        assert (interval["low"], interval["high"]) == pytest.approx(
            (100 * wilson.low, 100 * wilson.high), abs=0.02
        )
        assert "given the trained model" in interval["method"]


def test_copies_widen_the_interval_of_a_share(index):
    dynamics = recorded(([EASY] * 4 + [HARD] * 4) * 30)
    alone = measure(index, dynamics)["intervals"]["pct_hard"]
    copies = measure(index, dynamics, joined=[row - row % 4 for row in range(240)])["intervals"]["pct_hard"]
    assert copies["kind"] == "sample"
    assert copies["high"] - copies["low"] > 1.5 * (alone["high"] - alone["low"])


def test_few_groups_give_no_interval(index):
    value = measure(index, recorded([EASY] * 10))
    assert value["intervals"]["pct_easy"]["kind"] == "none"


@pytest.mark.parametrize("shape", [(0, 30), (0, 0), (5, 0)])
def test_without_training_the_metric_is_skipped(index, shape):
    empty = np.empty(shape, dtype=np.float32)
    dynamics = {
        "rows": np.arange(shape[0]),
        **dict.fromkeys(("true_train", "max_train", "true_eval", "max_eval"), empty),
    }
    value = dataset_cartography(
        image_index=index([0] * 5, NAMES), dynamics=dynamics, duplicate_groups=groups(range(5))
    )
    assert value["skipped"] is True
    assert "training" in value["reason"]
