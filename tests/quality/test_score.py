import pytest

from agml_assets.quality.score import WEIGHTS, round_half_up, score


def complete():
    return {
        "class_imbalance": {"normalized_entropy": 1.0},
        "exact_duplicate": {"exact_duplicate_rate": 0.0, "cross_split_duplicates": 0, "total_images": 100},
        "near_duplicate": {"near_duplicate_rate": 0.0, "cross_split_near_duplicates": 0},
        "resolution_consistency": {"area_cv": 0.0},
        "feature_separability": {"silhouette_score": 0.5, "davies_bouldin_index": 1.0},
        "intra_class_diversity": {"mean_diversity": 0.2},
        "dataset_cartography": {"pct_hard": 10.0},
        "class_confusability": {"accuracy": 0.9},
        "label_noise": {"estimated_noise_rate": 0.05},
    }


def test_axes_of_a_made_up_report_computed_by_hand():
    result = score(complete(), [1, 2, 3])
    assert result["axes"] == {
        "structural": 10.0,
        "difficulty": 7.5,  # 0.4 * (5 + 7) / 2 + 0.3 * 8 + 0.3 * 9
        "diversity": 5.0,
        "annotation": 3.5,  # 10 * 0.5 ** 1.5 = 3.5355
    }
    assert result["overall"] == 6.8  # 3 + 1.875 + 1.25 + 0.7071
    assert result["weights"] == WEIGHTS
    assert result["unavailable"] == result["incomplete"] == {}


def test_exact_copies_count_twice_in_redundancy_as_published():
    metrics = complete()
    metrics["exact_duplicate"]["exact_duplicate_rate"] = 0.1
    metrics["near_duplicate"]["near_duplicate_rate"] = 0.1
    assert score(metrics, [1])["components"]["redundancy"] == 0.0


def test_the_leakage_penalty_ends_at_two_points():
    metrics = complete()
    metrics["exact_duplicate"]["cross_split_duplicates"] = 1
    assert score(metrics, [1])["axes"]["structural"] == 9.0
    metrics["near_duplicate"]["cross_split_near_duplicates"] = 50
    assert score(metrics, [1])["axes"]["structural"] == 8.0


@pytest.mark.parametrize(
    "lost", ["class_imbalance", "exact_duplicate", "near_duplicate", "resolution_consistency"]
)
def test_structure_needs_all_four_metrics_and_the_others_share_its_weight(lost):
    metrics = complete()
    del metrics[lost]
    result = score(metrics, [1, 2, 3])
    assert result["axes"]["structural"] is None
    assert result["unavailable"]["structural"] == f"{lost} is missing."
    assert result["weights"] == {"difficulty": 0.3571, "diversity": 0.3571, "annotation": 0.2857}
    assert result["overall"] == 5.5  # (0.25 * 7.5 + 0.25 * 5 + 0.2 * 3.5355) / 0.7


def test_an_unfinished_phase_takes_its_axes_away_even_if_the_metrics_are_there():
    assert [axis for axis, value in score(complete(), [1])["axes"].items() if value is not None] == ["structural"]
    result = score(complete(), [2])
    assert result["axes"] == {"structural": None, "difficulty": 6.0, "diversity": 5.0, "annotation": None}
    assert "phase 3" in result["incomplete"]["difficulty"]


def test_a_skipped_metric_is_not_a_number():
    metrics = complete()
    metrics["feature_separability"] = {"skipped": True, "reason": "one class"}
    metrics["label_noise"] = {"skipped": True, "reason": "one class"}
    result = score(metrics, [1, 2, 3])
    assert result["axes"]["difficulty"] is result["axes"]["annotation"] is None
    assert result["unavailable"]["difficulty"] == "feature_separability is skipped: one class"


def test_difficulty_falls_back_on_separability_and_says_so():
    metrics = complete()
    metrics["class_confusability"] = {"skipped": True, "reason": "one class"}
    result = score(metrics, [1, 2, 3])
    assert result["axes"]["difficulty"] == 6.0
    assert result["incomplete"] == {"difficulty": "Separability alone, without class_confusability."}


def test_a_value_that_is_not_a_number_makes_its_axis_unavailable():
    metrics = complete()
    metrics["resolution_consistency"]["area_cv"] = float("nan")
    metrics["intra_class_diversity"] = {"mean_diversity": None}
    result = score(metrics, [1, 2, 3])
    assert result["axes"]["structural"] is result["axes"]["diversity"] is None
    assert "area_cv" in result["unavailable"]["structural"]


def test_noise_above_ten_percent_is_zero():
    metrics = complete()
    metrics["label_noise"]["estimated_noise_rate"] = 0.4
    assert score(metrics, [3])["axes"]["annotation"] == 0.0


def test_nothing_measured_has_no_score():
    result = score({}, [])
    assert result["overall"] is None
    assert set(result["axes"].values()) == {None}
    assert set(result["unavailable"]) == set(WEIGHTS)


# Math.round(x * 10) / 10 of a JavaScript engine; Python's round differs in most of them.
@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.05, 0.1),
        (0.25, 0.3),
        (0.35, 0.4),
        (1.005, 1.0),
        (2.25, 2.3),
        (8.95, 9.0),
        (9.95, 10.0),
        (-0.05, 0.0),
        (-0.25, -0.2),
        (-2.5, -2.5),
        (0.049999999999999994, 0.0),
        (7, 7.0),
    ],
)
def test_halves_round_up_as_in_javascript(value, rounded):
    assert round_half_up(value) == rounded
