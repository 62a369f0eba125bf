import json

import numpy as np
import polars as pl
import pytest
from cleanlab.filter import find_label_issues
from scipy.stats import binomtest
from sklearn.datasets import load_digits

from agml_assets.quality.label_noise import adjust_noise_rate, label_issues, label_noise
from agml_assets.training.noise_calibration import noise_calibration
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds

DIGITS = [f"digit {i}" for i in range(10)]
NO_CALIBRATION = {"skipped": True, "reason": "not asked for"}


def flipped_digits(n=600, share=0.08):
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = rng.choice(n, int(share * n), replace=False)
    given = y[:n].copy()
    given[rows] = (given[rows] + rng.integers(1, 10, len(rows))) % 10
    return (x[:n] / 16).astype(np.float32), given, y[:n], rows


def probabilities_like(labels, n_classes, wrong=(), sure=0.9):
    """Probabilities of a model that is `sure` of each label, but of the next class for the rows in `wrong`."""
    believed = labels.copy()
    believed[list(wrong)] = (labels[list(wrong)] + 1) % n_classes
    p = np.full((len(labels), n_classes), (1 - sure) / (n_classes - 1), dtype=np.float32)
    p[np.arange(len(labels)), believed] = sure
    return p


def groups_of(joined):
    joined = np.asarray(joined, dtype=np.int64)
    return pl.DataFrame({"row": np.arange(len(joined)), "exact": joined, "near": joined, "joined": joined})


def calibration(r, f, levels=(0.01, 0.05, 0.10), by_confusion=None):
    """A calibration whose seeds scatter around `r` and `f` at every level."""

    def kind(r, f):
        scatter = np.array([-0.02, -0.01, 0, 0.01, 0.02])
        return [
            {"level": level, "injected": [round(100 * level)] * 5, "r": (r_ + scatter).tolist(), "f": [f_] * 5}
            for level, r_, f_ in zip(levels, np.broadcast_to(r, 3), np.broadcast_to(f, 3), strict=True)
        ]

    facts = {"levels": list(levels), "seeds": 5, "rows": 100, "groups": 100, "classes": 2, "flagged": 0.0}
    return {**facts, "uniform": kind(r, f), "by_confusion": kind(*(by_confusion or (r, f)))}


@pytest.fixture
def measure(index, settings):
    def run(labels, out_of_fold, names, grouped=None, joined=None, calibration=NO_CALIBRATION, **columns):
        return label_noise(
            image_index=index(labels.tolist(), names, **columns),
            labels=labels,
            out_of_fold=out_of_fold,
            out_of_fold_grouped=out_of_fold if grouped is None else grouped,
            duplicate_groups=groups_of(range(len(labels)) if joined is None else joined),
            noise_calibration=calibration,
            settings=settings,
        )

    return run


def test_published_keys_are_cleanlabs_ranked_by_self_confidence(measure):
    x, given, _, _ = flipped_digits()
    probabilities = out_of_fold(x, given, stratified_folds(given, 5), 10)
    # The source also holds images that cannot be used, so its rows are other numbers.
    result = measure(given, probabilities, DIGITS, source_row=[10 + 2 * row for row in range(len(given))])
    theirs = find_label_issues(given, probabilities, return_indices_ranked_by="self_confidence", n_jobs=1)
    assert list(result)[:6] == [
        "estimated_noise_rate",
        "n_noisy_samples",
        "n_total_samples",
        "flagged_orig_indices",
        "per_class_noise_counts",
        "cv_folds",
    ]
    assert len(theirs) > 30
    assert result["flagged_orig_indices"] == (10 + 2 * theirs).tolist()
    assert result["n_noisy_samples"] == len(theirs)
    assert result["n_total_samples"] == 600
    assert result["estimated_noise_rate"] == round(len(theirs) / 600, 4)
    assert result["per_class_noise_counts"] == {
        name: int((given[theirs] == label).sum()) for label, name in enumerate(DIGITS)
    }
    assert result["cv_folds"] == 5
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_most_flipped_labels_are_found_and_the_true_class_is_suggested(measure):
    x, given, true, rows = flipped_digits()
    result = measure(given, out_of_fold(x, given, stratified_folds(given, 5), 10), DIGITS)
    flagged = set(result["flagged_orig_indices"])
    assert len(flagged & set(rows.tolist())) >= 0.8 * len(rows)
    assert len(flagged & set(rows.tolist())) >= 0.6 * len(flagged)
    hits = [each for each in result["suggested_labels"] if each["source_row"] in set(rows.tolist())]
    right = [each["suggested"] == DIGITS[true[each["source_row"]]] for each in hits]
    assert np.mean(right) > 0.9


def test_suggestions_follow_the_flagged_images_up_to_the_cap(measure, monkeypatch):
    monkeypatch.setattr("agml_assets.quality.label_noise.MAX_SUGGESTIONS", 3)
    labels = np.arange(200) % 2
    probabilities = probabilities_like(labels, 2, wrong=[4, 5, 30, 31, 70])
    probabilities[30] = [0.02, 0.98]
    result = measure(labels, probabilities, ["a", "b"])
    assert result["n_noisy_samples"] == len(result["flagged_orig_indices"]) > 3
    assert len(result["suggested_labels"]) == 3
    assert result["suggested_labels"][0] == {
        "source_row": 30,
        "given": "a",
        "suggested": "b",
        "self_confidence": 0.02,
    }
    assert [each["source_row"] for each in result["suggested_labels"]] == result["flagged_orig_indices"][:3]


def test_flipped_labels_of_copies_are_missed_in_published_folds_and_found_in_grouped_ones(measure):
    x, given, _, rows = flipped_digits(n=300)
    x, given, group = np.repeat(x, 4, axis=0), np.repeat(given, 4), np.repeat(np.arange(300), 4)
    # Three more features that identify an image, as those of a large model do: what is learnt on copies.
    own = np.random.default_rng(1).normal(size=(300, 60))[group]
    x = np.hstack([x, 2 * own]).astype(np.float32)
    published = out_of_fold(x, given, stratified_folds(given, 5), 10)
    grouped = out_of_fold(x, given, group % 5, 10)
    result = measure(given, published, DIGITS, grouped, joined=4 * group)
    planted = 4 * len(rows)
    assert result["n_noisy_samples"] < 0.2 * planted
    assert result["leak_safe"]["n_noisy_samples"] > 0.5 * planted
    assert result["leak_safe"]["estimated_noise_rate"] > result["estimated_noise_rate"]


def test_the_interval_is_wilsons_for_images_without_copies_and_counts_groups_otherwise(measure):
    labels = np.arange(200) % 2
    probabilities = probabilities_like(labels, 2, wrong=range(20, 44))
    alone = measure(labels, probabilities, ["a", "b"])
    expected = binomtest(alone["n_noisy_samples"], 200).proportion_ci(method="wilson")
    for interval in (alone["intervals"], alone["leak_safe"]["intervals"]):
        found = interval["estimated_noise_rate"]
        assert (found["low"], found["high"]) == (round(expected.low, 4), round(expected.high, 4))
        assert found["method"].endswith("given the trained model")
    pairs = measure(labels, probabilities, ["a", "b"], joined=np.arange(200) // 4 * 4)
    found = pairs["intervals"]["estimated_noise_rate"]
    assert found["groups"] == 50
    assert found["high"] - found["low"] > expected.high - expected.low


def test_classes_in_fewer_than_three_groups_are_left_out_of_leak_safe_figures(measure):
    labels = np.append(np.arange(90) % 3, [3] * 10)
    joined = np.append(np.arange(90), [90] * 5 + [95] * 5)
    probabilities = probabilities_like(labels, 4, wrong=[*range(12), *range(90, 100)])
    result = measure(labels, probabilities, list("abcd"), joined=joined)
    assert result["leak_safe"]["classes_left_out"] == ["d"]
    assert result["leak_safe"]["n_total_samples"] == 90
    theirs = find_label_issues(labels[:90], probabilities[:90, :3], n_jobs=1)
    assert result["leak_safe"]["n_noisy_samples"] == theirs.sum() > 0


def test_a_class_that_its_fold_alone_holds_is_not_called_noise(measure):
    x, given, _, _ = flipped_digits(n=300)
    given = np.where(np.arange(300) < 30, 10, given)
    folds = np.where(given == 10, 0, np.arange(300) % 5)
    result = measure(given, out_of_fold(x, given, folds, 11), [*DIGITS, "mine"])
    assert result["per_class_noise_counts"]["mine"] == 0
    assert result["not_judged"] == 30
    assert result["leak_safe"]["n_total_samples"] == 270


@pytest.mark.parametrize(
    ("joined", "reason"),
    [
        # Only classes a and b of five occur in three groups.
        (lambda label, row: row if label < 2 else 1000 + label, "2 of 5 classes"),
        (lambda label, row: row if label == 0 else 1000 + label, "1 of 5 classes"),
    ],
)
def test_leak_safe_figures_of_less_than_half_the_classes_are_not_identifiable(measure, joined, reason):
    labels = np.arange(100) % 5
    groups = [joined(label, row) for row, label in enumerate(labels)]
    result = measure(labels, probabilities_like(labels, 5), list("abcde"), joined=groups)
    assert reason in result["leak_safe"]["not_identifiable"]
    assert result["adjusted_noise_rate"] == {"not_identifiable": result["leak_safe"]["not_identifiable"]}
    assert result["estimated_noise_rate"] == 0


def test_leak_safe_figures_of_few_images_or_one_fold_are_not_identifiable(measure):
    labels = np.arange(20) % 2
    few = measure(labels, probabilities_like(labels, 2), ["a", "b"])
    assert "20 images can be judged; at least 30" in few["leak_safe"]["not_identifiable"]
    labels = np.arange(60) % 2
    one_fold = out_of_fold(np.random.default_rng(0).normal(size=(60, 3)), labels, np.zeros(60, dtype=int), 2)
    result = measure(labels, probabilities_like(labels, 2), ["a", "b"], grouped=one_fold)
    assert "one fold" in result["leak_safe"]["not_identifiable"]


@pytest.mark.parametrize(
    ("q", "r", "f", "low", "high"),
    [
        # (q - 0) / (r - 0) and (q - f) / (r - f):
        (0.10, 0.80, 0.02, 0.1026, 0.125),  # 0.08 / 0.78 and 0.10 / 0.80
        (0.05, 0.50, 0.00, 0.1, 0.1),
        (0.01, 0.90, 0.02, 0.0, 0.0111),  # -0.01 / 0.88, clipped, and 0.01 / 0.90
        (0.70, 0.60, 0.20, 1.0, 1.0),  # 1.25 and 1.1667, clipped
        (0.50, 0.50, 0.20, 1.0, 1.0),
    ],
)
def test_the_adjusted_rate_is_the_range_over_false_alarms_from_none_to_f(q, r, f, low, high):
    result = adjust_noise_rate({"estimated_noise_rate": q}, calibration(r, f))
    assert (result["low"], result["high"]) == (low, high)


def test_the_level_nearest_to_the_flagged_share_counts_the_lower_of_two_equally_near():
    by_level = calibration(r=(0.5, 0.8, 1.0), f=0.0)
    for q, level, rate in [(0.0, 0.01, 0.0), (0.02, 0.01, 0.04), (0.06, 0.05, 0.075), (0.4, 0.1, 0.4)]:
        result = adjust_noise_rate({"estimated_noise_rate": q}, by_level)
        assert (result["level"], result["high"]) == (level, rate)
    assert adjust_noise_rate({"estimated_noise_rate": 0.03}, by_level)["level"] == 0.01


def test_what_was_flipped_counts_not_what_was_meant_where_whole_groups_miss_the_level():
    coarse = calibration(r=(0.5, 0.8, 1.0), f=0.0)
    for kind in ("uniform", "by_confusion"):
        for each in coarse[kind]:
            each["injected"] = [5 if each["level"] < 0.1 else 10] * 5
    assert adjust_noise_rate({"estimated_noise_rate": 0.06}, coarse)["level"] == 0.01
    assert adjust_noise_rate({"estimated_noise_rate": 0.09}, coarse)["level"] == 0.1


def test_the_kind_of_flip_with_the_wider_range_is_reported():
    result = adjust_noise_rate({"estimated_noise_rate": 0.1}, calibration(0.8, 0.02, by_confusion=(0.5, 0.04)))
    assert result["uniform"] == {"low": 0.1026, "high": 0.125, "level": 0.1}
    assert result["by_confusion"] == {"low": 0.1304, "high": 0.2, "level": 0.1}  # 0.06 / 0.46 and 0.1 / 0.5
    assert (result["kind"], result["low"], result["high"]) == ("by_confusion", 0.1304, 0.2)


def test_the_adjusted_rate_is_not_identifiable_where_flags_hardly_tell_flips_from_others():
    result = adjust_noise_rate({"estimated_noise_rate": 0.3}, calibration(0.8, 0.1, by_confusion=(0.35, 0.1)))
    assert "by_confusion: 35% of the injected flips" in result["not_identifiable"]
    assert result["uniform"]["high"] == 0.375
    assert "low" not in result
    none_judged = calibration(0.8, 0.1)
    none_judged["uniform"][2]["r"] = [None] * 5
    assert "could be judged" in adjust_noise_rate({"estimated_noise_rate": 0.3}, none_judged)["not_identifiable"]


def test_seeds_without_a_judged_flip_do_not_count():
    sparse = calibration(0.8, 0.0)
    for kind in ("uniform", "by_confusion"):
        sparse[kind][0]["r"] = [None, 0.5, None, 0.5, None]
    assert adjust_noise_rate({"estimated_noise_rate": 0.01}, sparse)["high"] == 0.02


def test_the_calibration_is_reported_as_means_and_recovers_the_noise_planted(measure):
    x, given, _, rows = flipped_digits(n=600, share=0.1)
    folds = stratified_folds(given, 5)
    measured = noise_calibration(x, given, np.arange(600), folds, 10)
    result = measure(given, out_of_fold(x, given, folds, 10), DIGITS, calibration=measured)
    assert result["calibration"]["rows"] == 600
    last = result["calibration"]["uniform"][-1]
    assert last["level"] == 0.1
    assert last["r"] == pytest.approx(np.mean(measured["uniform"][-1]["r"]), abs=1e-4)
    assert last["f"] == pytest.approx(np.mean(measured["uniform"][-1]["f"]), abs=1e-4)
    adjusted = result["adjusted_noise_rate"]
    assert adjusted["low"] <= len(rows) / 600 <= adjusted["high"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_without_a_calibration_the_reason_stands_in_its_place(measure):
    labels = np.arange(60) % 2
    result = measure(labels, probabilities_like(labels, 2, wrong=[4]), ["a", "b"])
    assert result["calibration"] == NO_CALIBRATION
    assert "not asked for" in result["adjusted_noise_rate"]["not_identifiable"]


def test_empty_classes_have_no_noise(measure):
    labels = np.array([0, 2] * 40)
    result = measure(
        labels, np.insert(probabilities_like(labels // 2, 2, wrong=range(8)), 1, 0, axis=1), list("abc")
    )
    assert result["per_class_noise_counts"]["b"] == 0
    assert result["n_noisy_samples"] > 0
    assert {each["suggested"] for each in result["suggested_labels"]} <= {"a", "c"}


@pytest.mark.parametrize(
    ("labels", "names", "reason"),
    [([0, 0, 0], ["a"], "declares 1"), ([1, 1, 1], ["a", "b"], "1 class only"), ([], ["a", "b"], "0 class only")],
)
def test_fewer_than_two_classes_are_skipped_with_the_reason(measure, labels, names, reason):
    labels = np.array(labels, dtype=np.int64)
    nothing = np.zeros((0, len(names)), dtype=np.float32)
    result = measure(labels, nothing, names)
    assert result["skipped"]
    assert reason in result["reason"]


def test_issues_of_each_image_carry_flag_score_and_suggestion():
    labels = np.arange(100) % 2
    probabilities = probabilities_like(labels, 2, wrong=range(10))
    issues = label_issues(labels, probabilities)
    assert issues.schema == {
        "row": pl.Int64,
        "is_label_issue": pl.Boolean,
        "label_score": pl.Float64,
        "suggested_label": pl.Int64,
    }
    theirs = find_label_issues(labels, probabilities, n_jobs=1)
    assert issues["row"].to_list() == list(range(100))
    assert issues["is_label_issue"].to_list() == theirs.tolist()
    assert issues["label_score"].to_numpy() == pytest.approx(np.where(np.arange(100) < 10, 0.1, 0.9))
    assert issues["suggested_label"].to_list() == [*(1 - labels[:10]), *labels[10:]]


def test_an_image_whose_class_no_model_has_seen_has_neither_score_nor_suggestion():
    labels = np.append(np.arange(60) % 2, 2)
    probabilities = np.hstack(
        [probabilities_like(np.append(np.arange(60) % 2, 0), 2), np.zeros((61, 1), np.float32)]
    )
    last = label_issues(labels, probabilities).row(60, named=True)
    assert last == {"row": 60, "is_label_issue": False, "label_score": None, "suggested_label": None}


def test_a_single_class_has_no_issues():
    issues = label_issues(np.zeros(5, dtype=np.int64), np.ones((5, 1), dtype=np.float32))
    assert issues["is_label_issue"].sum() == 0
    assert issues["label_score"].to_list() == [1.0] * 5
