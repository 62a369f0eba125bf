"""Which family a metric belongs to, and how the site calls it, beyond the published list."""

import pytest

from agml_assets.leaderboard.metric_names import family, family_scores, label_category, metric_label


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("F1-score", "f1"), ("f1score", None), ("prec@1", "precision"), ("PRECISION", "precision"),
        ("recall_x", "recall"), ("", None),
        ("MAP", "map"), ("ap-75", "map"), ("map50", None), ("AP50", None), ("map\n", None), ("accuracy", None),
    ],
)  # fmt: skip
def test_a_family_is_told_by_the_beginning_of_the_name(name, expected):
    assert family(name) == expected


def test_the_largest_number_of_a_family_counts():
    scores = family_scores(
        {"f1": 0.2, "F1_micro": 0.6, "map_50": 0.7, "map_75": 0.1, "recall": "0.9", "prec": True}
    )
    assert scores == {"f1": 0.6, "map": 0.7, "precision": None, "recall": None}


@pytest.mark.parametrize(
    ("name", "label", "category"),
    [("F1@iou_50", "F1@.5", "other"), ("recall@iou75", "Recall@.75", "other"), ("MAP_60", "mAP@0.60", "map")],
)
def test_labels_name_the_threshold(name, label, category):
    assert metric_label(name) == label
    assert label_category(label) == category
