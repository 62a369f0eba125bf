import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agml_assets.quality.calibrated_score import COMPONENTS, SOURCES, calibrated_score
from agml_assets.quality.score import WEIGHTS


def complete():
    return {
        "class_imbalance": {"normalized_entropy": 0.9, "counts": {"a": 30, "b": 10, "c": 10, "d": 10}},
        "exact_duplicate": {"exact_duplicate_rate": 0.1, "blake3": {"duplicate_rate": 0.3}},
        "near_duplicate": {"near_duplicate_rate": 0.2},
        "resolution_consistency": {"area_cv": 1.0},
        "feature_separability": {
            "silhouette_score": 0.5,
            "davies_bouldin_index": 1.0,
            "silhouette_score_all": 0.25,
            "coincident_classes": [],
        },
        "intra_class_diversity": {"mean_diversity": 0.4, "mean_diversity_present": 0.5},
        "dataset_cartography": {"mean_confidence": 0.9, "true_label": {"mean_confidence": 0.75}},
        "class_confusability": {"accuracy": 0.75},
        "leakage": {"leak_safe": {"accuracy": 0.25}},
        "label_noise": {"estimated_noise_rate": 0.02, "leak_safe": {"estimated_noise_rate": 0.125}},
    }


def test_a_made_up_report_computed_by_hand():
    result = calibrated_score(complete(), honest=False)
    assert result["chance"] == 0.5
    assert result["components"] == {
        "balance": 9.0,
        "redundancy": 8.0,
        "resolution": 5.0,
        "silhouette": 5.5,  # 1 + 9 * 0.5
        "davies_bouldin": 5.0,
        "cartography": 8.2,  # 1 + 9 * (0.9 - 0.5) / 0.5
        "confusability": 5.5,
        "diversity": 4.0,
        "annotation": 8.2,  # sqrt(0.02 / 0.5) = 0.2
    }
    assert result["axes"] == {
        "structural": 7.65,  # 3.6 + 2.8 + 1.25
        "difficulty": 6.21,  # 1.1 + 1.0 + 2.46 + 1.65
        "diversity": 4.0,
        "annotation": 8.2,
    }
    assert result["overall"] == {"low": 6.4875, "high": 6.4875}
    assert result["ranking_value"] == 6.4875
    assert result["unavailable"] == {}


def test_honest_figures_take_the_place_of_published_ones():
    result = calibrated_score(complete(), honest=True)
    assert result["components"] == {
        "balance": 9.0,
        "redundancy": 7.0,
        "resolution": 5.0,
        "silhouette": 3.25,
        "davies_bouldin": 5.0,
        "cartography": 5.5,
        "confusability": 0.5,  # half way between nothing right and chance
        "diversity": 5.0,
        "annotation": 5.5,  # sqrt(0.125 / 0.5) = 0.5
    }
    assert result["published_inputs"] == []


def test_a_published_figure_stands_in_for_an_honest_one_and_is_named():
    metrics = complete()
    del metrics["leakage"]
    del metrics["label_noise"]["leak_safe"]
    result = calibrated_score(metrics, honest=True)
    assert result["components"]["confusability"] == 5.5
    assert result["inputs"]["annotation"] == "label_noise.estimated_noise_rate"
    assert result["published_inputs"] == ["confusability", "annotation"]


def test_a_report_that_has_no_honest_figure_where_it_could_is_not_scored_by_the_flattering_one():
    metrics = complete()
    before = calibrated_score(metrics, honest=True)["ranking_value"]
    metrics["leakage"] = {"leak_safe": {"accuracy": None, "reason": "28 test images"}}
    metrics["label_noise"]["leak_safe"] = {"not_identifiable": "one fold"}
    result = calibrated_score(metrics, honest=True)
    assert result["axes"]["difficulty"] is None and result["axes"]["annotation"] is None
    assert result["ranking_value"] < before
    assert result["published_inputs"] == []


def test_classes_with_one_centroid_are_not_separated_at_all():
    metrics = complete()
    metrics["feature_separability"]["coincident_classes"] = ["a", "b"]
    assert calibrated_score(metrics, honest=True)["components"]["davies_bouldin"] == 0.0
    assert calibrated_score(metrics, honest=False)["components"]["davies_bouldin"] == 5.0


def test_copies_count_once():
    metrics = complete()
    metrics["exact_duplicate"]["exact_duplicate_rate"] = metrics["near_duplicate"]["near_duplicate_rate"] = 0.2
    both = calibrated_score(metrics, honest=False)
    metrics["exact_duplicate"]["exact_duplicate_rate"] = 0.0
    assert calibrated_score(metrics, honest=False)["axes"] == both["axes"]


@pytest.mark.parametrize(
    ("key", "worst", "chance", "ideal"),
    [
        ("feature_separability.silhouette_score", -1, 0, 1),
        ("class_confusability.accuracy", 0, 0.5, 1),
        ("dataset_cartography.mean_confidence", 0, 0.5, 1),
        ("label_noise.estimated_noise_rate", 1, 0.5, 0),
    ],
)
def test_worst_is_0_chance_1_and_ideal_10(key, worst, chance, ideal):
    component = next(name for name, (published, _) in SOURCES.items() if published == key)
    points = [
        calibrated_score(put(complete(), key, value), honest=False)["components"][component]
        for value in (worst, chance, ideal)
    ]
    assert points == [0.0, 1.0, 10.0]


def test_an_ideal_dataset_has_10_and_the_worst_nothing():
    ideal = {"balance": 1, "silhouette": 1, "cartography": 1, "confusability": 1, "diversity": 1}
    best, worst = complete(), complete()
    for name, (key, _) in SOURCES.items():
        put(best, key, ideal.get(name, 0))
        put(
            worst,
            key,
            {"silhouette": -1, "resolution": 1e9, "davies_bouldin": 1e9}.get(name, 1 - ideal.get(name, 0)),
        )
    best["near_duplicate"]["near_duplicate_rate"] = 0
    assert calibrated_score(best, honest=False)["overall"] == {"low": 10.0, "high": 10.0}
    assert calibrated_score(worst, honest=False)["overall"] == {"low": 0.0, "high": 0.0}


RANGES = {
    "class_imbalance.normalized_entropy": (0, 1, 1),
    "near_duplicate.near_duplicate_rate": (0.5, 1, -1),  # above the exact rate, which `RANGES` keeps below
    "exact_duplicate.exact_duplicate_rate": (0, 0.5, 0),
    "resolution_consistency.area_cv": (0, 5, -1),
    "feature_separability.silhouette_score": (-1, 1, 1),
    "feature_separability.davies_bouldin_index": (0, 30, -1),
    "intra_class_diversity.mean_diversity": (0, 1, 1),
    "dataset_cartography.mean_confidence": (0, 1, 1),
    "class_confusability.accuracy": (0, 1, 1),
    "label_noise.estimated_noise_rate": (0, 1, -1),
}
"""Range of each published figure, and whether more of it is better."""

REPORTS = st.builds(
    lambda figures, counts: build(figures, counts),
    st.tuples(*(st.floats(0.02, 0.98) for _ in RANGES)),
    st.lists(st.integers(1, 1000), min_size=2, max_size=30),
)


def build(fractions, counts):
    metrics = complete()
    metrics["class_imbalance"]["counts"] = {str(i): count for i, count in enumerate(counts)}
    for (key, (low, high, _)), fraction in zip(RANGES.items(), fractions, strict=True):
        put(metrics, key, low + fraction * (high - low))
    return metrics


def put(metrics, key, value):
    metric, figure = key.split(".")
    metrics[metric][figure] = value
    return metrics


@settings(max_examples=60, deadline=None)
@given(REPORTS)
def test_every_figure_moves_its_axis_and_the_score_strictly(metrics):
    before = calibrated_score(metrics, honest=False)
    for key, (low, high, direction) in RANGES.items():
        more = copy.deepcopy(metrics)
        metric, figure = key.split(".")
        more[metric][figure] += 0.019 * (high - low)
        after = calibrated_score(more, honest=False)
        change = after["ranking_value"] - before["ranking_value"]
        assert change * direction > 0 if direction else change == 0, key


@settings(max_examples=60, deadline=None)
@given(REPORTS, st.sets(st.sampled_from(sorted(complete())), min_size=1), st.booleans())
def test_leaving_metrics_out_never_helps(metrics, gone, skip):
    # Without a leak-safe figure the published one is read instead, which is not leaving an axis out.
    metrics = {name: value for name, value in metrics.items() if name != "leakage"}
    fewer = {name: value for name, value in metrics.items() if name not in gone}
    if skip:
        fewer |= {name: {"skipped": True, "reason": "left out"} for name in gone - {"leakage"}}
    for honest in (False, True):
        full, part = calibrated_score(metrics, honest=honest), calibrated_score(fewer, honest=honest)
        assert part["ranking_value"] <= full["ranking_value"]
        assert part["overall"]["low"] <= full["overall"]["low"] <= part["overall"]["high"] + 1e-4
        lost = sum(WEIGHTS[axis] for axis in part["unavailable"])
        assert part["overall"]["high"] - part["overall"]["low"] == pytest.approx(10 * lost, abs=2e-4)


def test_an_axis_that_was_not_measured_is_anything_from_0_to_10():
    metrics = complete()
    metrics["label_noise"] = {"skipped": True, "reason": "one class"}
    result = calibrated_score(metrics, honest=False)
    assert result["axes"]["annotation"] is None
    assert result["unavailable"] == {"annotation": "label_noise is skipped: one class"}
    assert result["overall"] == {"low": 4.8475, "high": 6.8475}  # 6.4875 - 0.2 * 8.2, and 2 more
    assert result["ranking_value"] == 4.8475


def test_without_class_counts_there_is_no_chance_to_compare_with():
    metrics = complete()
    metrics["class_imbalance"]["counts"] = {"a": 60}
    result = calibrated_score(metrics, honest=False)
    assert result["chance"] is None
    assert set(result["unavailable"]) == {"difficulty", "annotation"}
    assert "no level of chance" in result["unavailable"]["annotation"]


def test_nothing_measured_is_anything_from_0_to_10():
    result = calibrated_score({}, honest=True)
    assert result["overall"] == {"low": 0.0, "high": 10.0}
    assert set(result["axes"].values()) == {None}


def test_axes_and_weights_are_those_of_the_published_formula():
    assert list(COMPONENTS) == list(WEIGHTS)
    assert all(sum(parts.values()) == pytest.approx(1) for parts in COMPONENTS.values())
    assert {name for parts in COMPONENTS.values() for name in parts} == set(SOURCES)
