import polars as pl
import pytest

from agml_assets.quality.invariants import check_group_invariants, check_invariants


def sound():
    return {
        "class_imbalance": {
            "counts": {"a": 4, "b": 3},
            "imbalance_ratio": 1.3333,
            "normalized_entropy": 0.9852,
            "total_train_examples": 7,
            "class_totals": {"a": 5, "b": 5},
            "total_images": 10,
        },
        "exact_duplicate": {
            "total_images": 10,
            "exact_duplicate_count": 2,
            "exact_duplicate_rate": 0.2,
            "duplicate_groups": 1,
            "cross_split_duplicates": 2,
            "blake3": {
                "duplicate_count": 2,
                "duplicate_rate": 0.2,
                "duplicate_groups": 1,
                "cross_split_duplicates": 2,
                "redundant_images": 1,
                "label_conflicts": {"groups": 0, "images": 0},
            },
        },
        "near_duplicate": {
            "total_images": 10,
            "near_duplicate_count": 5,
            "near_duplicate_rate": 0.5,
            "near_duplicate_groups": 2,
            "cross_split_near_duplicates": 2,
            "n_pairs": 3,
            "pairs_stored": 3,
            "effective_images": 7,
            "without_exact_copies": {"near_duplicate_count": 3},
            "label_conflicts": {"groups": 1, "images": 2},
        },
        "metadata_coverage": {"skipped": True, "reason": "none"},
        "feature_separability": {
            "n_total": 10,
            "n_silhouette_samples": 10,
            "silhouette_score": 0.1,
            "davies_bouldin_index": 2.0,
        },
        "intra_class_diversity": {"per_class_diversity": {"a": 0.2, "b": 0.4}, "mean_diversity": 0.3},
        "dataset_cartography": {
            "n_easy": 3,
            "n_ambiguous": 2,
            "n_hard": 2,
            "mean_confidence": 0.8,
            "mean_variability": 0.1,
            "pct_easy": 42.86,
            "pct_ambiguous": 28.57,
            "pct_hard": 28.57,
            "true_label": {
                "n_easy": 1,
                "n_ambiguous": 0,
                "n_hard": 6,
                "mean_confidence": 0.3,
                "mean_variability": 0.2,
                "pct_easy": 14.29,
                "pct_ambiguous": 0.0,
                "pct_hard": 85.71,
                "mean_correctness": 0.5,
                "n_never_learned": 2,
                "n_forgotten": 7,
            },
            "intervals": {"pct_hard": {"kind": "sample", "low": 10.0, "high": 40.0}},
        },
        "class_confusability": {
            "accuracy": 0.6667,
            "per_class_accuracy": {"a": 1.0, "b": 0.5},
            "confusion_matrix": [[1.0, 0.0], [0.5, 0.5]],
            "top_confused_pairs": [{"true_class": "b", "predicted_as": "a", "confusion_rate": 0.5}],
            "n_top_pairs": 1,
            "n_test_samples": 3,
            "confusion_counts": [[0, 0, 1], [1, 0, 1], [1, 1, 1]],
            "macro_f1": 0.6667,
            "balanced_accuracy": 0.75,
            "n_test_per_class": {"a": 1, "b": 2},
        },
        "label_noise": {
            "estimated_noise_rate": 0.2,
            "n_noisy_samples": 2,
            "n_total_samples": 10,
            "flagged_orig_indices": [7, 3],
            "per_class_noise_counts": {"a": 0, "b": 2},
            "leak_safe": {"estimated_noise_rate": 0.3333, "n_noisy_samples": 3, "n_total_samples": 9},
            "adjusted_noise_rate": {"kind": "uniform", "low": 0.1, "high": 0.4},
        },
        "image_health": {
            "total_images": 10,
            "n_flagged": 3,
            "flagged_rate": 0.3,
            "issues": {"dark": {"count": 2, "rate": 0.2}, "blurry": {"count": 2, "rate": 0.2}},
        },
        "leakage": {"leak_safe": {"accuracy": 0.5}},
    }


def test_a_sound_report_has_no_breach():
    assert check_invariants(sound()) == []


@pytest.mark.parametrize(
    ("metric", "key", "value", "words"),
    [
        ("class_imbalance", "total_train_examples", 8, "counts add up to 7"),
        ("class_imbalance", "normalized_entropy", 1.2, "leaves the range"),
        ("class_imbalance", "class_totals", {"a": 3, "b": 7}, "more training images than images"),
        ("class_imbalance", "total_images", 11, "different numbers of images"),
        ("exact_duplicate", "duplicate_groups", 2, "cannot make 2 groups"),
        ("exact_duplicate", "exact_duplicate_rate", 0.3, "is not 2 / 10"),
        ("exact_duplicate", "cross_split_duplicates", 3, "exceeds exact_duplicate_count"),
        ("near_duplicate", "near_duplicate_count", 1, "fewer than the 2 exact"),
        ("near_duplicate", "cross_split_near_duplicates", 0, "fewer than the 2 of the exact"),
        ("near_duplicate", "cross_split_near_duplicates", 6, "exceeds near_duplicate_count"),
        ("near_duplicate", "total_images", 11, "different numbers of images"),
        ("near_duplicate", "effective_images", 8, "8 effective images"),
        ("near_duplicate", "n_pairs", 2, "2 pairs cannot join"),
        ("near_duplicate", "label_conflicts", {"groups": 2, "images": 3}, "conflicting labels"),
        ("feature_separability", "silhouette_score", -1.5, "leaves the range"),
        ("feature_separability", "davies_bouldin_index", -0.1, "leaves the range"),
        ("intra_class_diversity", "mean_diversity", 0.5, "outside the classes' values"),
        ("intra_class_diversity", "per_class_diversity", {"a": 0.2, "b": 1.4}, "leaves [0, 1]"),
        ("dataset_cartography", "n_easy", 4, "8 images on the map, 7 in training"),
        ("dataset_cartography", "pct_hard", 28.5, "pct_hard 28.5 is not 2 / 7"),
        ("dataset_cartography", "mean_confidence", 1.1, "leaves the range"),
        ("dataset_cartography", "mean_variability", 0.6, "leaves the range"),
        ("dataset_cartography", "true_label.n_hard", 5, "categories add up to 6, not 7"),
        ("dataset_cartography", "true_label.n_forgotten", 8, "exceeds the 7 training images"),
        ("dataset_cartography", "intervals.pct_hard.low", 50.0, "interval of pct_hard runs from 50.0 to 40.0"),
        ("class_confusability", "accuracy", 0.5, "is not 2 / 3"),
        ("class_confusability", "macro_f1", 1.5, "leaves the range"),
        ("class_confusability", "confusion_matrix", [[1.0]], "not 2 x 2"),
        ("class_confusability", "confusion_matrix", [[1.0, 0.0], [0.6, 0.5]], "does not add up to 1"),
        ("class_confusability", "confusion_matrix", [[1.0, 0.0], [0.4, 0.6]], "not the diagonal"),
        ("class_confusability", "n_top_pairs", 2, "1 confused pairs, not 2"),
        ("class_confusability", "confusion_counts", [[0, 0, 1], [1, 1, 1]], "confusions add up to 2, not 3"),
        ("class_confusability", "n_test_per_class", {"a": 1, "b": 1}, "add up to 2, not 3"),
        ("class_confusability", "n_test_samples", 4, "7 training and 4 test images of 10"),
        ("label_noise", "estimated_noise_rate", 0.1, "is not 2 / 10"),
        ("label_noise", "flagged_orig_indices", [7, 7], "1 different images of 2"),
        ("label_noise", "per_class_noise_counts", {"a": 0, "b": 1}, "add up to 1, not 2"),
        ("label_noise", "n_total_samples", 11, "different numbers of images"),
        ("label_noise", "leak_safe.n_noisy_samples", 2, "leak_safe: estimated_noise_rate 0.3333 is not 2 / 9"),
        ("label_noise", "leak_safe.n_total_samples", 11, "leak_safe: 11 images of 10"),
        ("label_noise", "adjusted_noise_rate.low", 0.5, "runs from 0.5 to 0.4"),
        ("label_noise", "adjusted_noise_rate.high", 1.2, "leaves the range"),
        ("image_health", "n_flagged", 5, "do not fit the counts"),
        ("image_health", "flagged_rate", 0.2, "flagged_rate 0.2 is not 3 / 10"),
        ("image_health", "issues.dark.rate", 0.3, "rate of dark 0.3 is not 2 / 10"),
        ("leakage", "leak_safe.accuracy", 1.5, "leaves the range"),
    ],
)
def test_each_breach_is_named_with_its_metric(metric, key, value, words):
    metrics = sound()
    *path, last = key.split(".")
    part = metrics[metric]
    for name in path:
        part = part[name]
    part[last] = value
    assert any(words in breach and metric in breach for breach in check_invariants(metrics))


def test_classes_named_low_and_high_are_no_interval():
    metrics = sound()
    metrics["class_imbalance"]["counts"] = {"low": 4, "high": 3, "kind": 0}
    metrics["class_imbalance"]["class_totals"] = {"low": 5, "high": 5, "kind": 0}
    assert check_invariants(metrics) == []


def test_the_strict_hash_decides_what_must_be_contained_in_near_duplicates():
    metrics = sound()
    metrics["exact_duplicate"] |= {"exact_duplicate_count": 8, "exact_duplicate_rate": 0.8}
    assert check_invariants(metrics) == []
    metrics["exact_duplicate"]["blake3"] |= {
        "duplicate_count": 8,
        "duplicate_rate": 0.8,
        "redundant_images": 7,
    }
    assert any("fewer than the 8 exact" in breach for breach in check_invariants(metrics))


def groups(exact, near, joined):
    return pl.DataFrame({"row": range(len(exact)), "exact": exact, "near": near, "joined": joined})


def test_exact_groups_lie_inside_near_groups():
    assert check_group_invariants(groups([0, 0, 2, 3], [0, 0, 0, 3], [0, 0, 0, 3])) == []
    breaches = check_group_invariants(groups([0, 1, 2, 2], [0, 0, 0, 3], [0, 0, 0, 0]))
    assert len(breaches) == 1
    assert "1 exact groups lie in several near groups, the first is that of row 2" in breaches[0]


def test_groups_are_named_by_their_smallest_row():
    breaches = check_group_invariants(groups([1, 1, 2], [0, 0, 2], [0, 0, 2]))
    assert breaches == ["duplicate_groups: 1 exact groups are not named by their smallest row."]
