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
    ],
)
def test_each_breach_is_named_with_its_metric(metric, key, value, words):
    metrics = sound()
    metrics[metric][key] = value
    assert any(words in breach and metric in breach for breach in check_invariants(metrics))


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
