"""Exact and near-duplicate groups, and what joins them."""

import numpy as np

from agml_assets.embeddings.duplicate_groups import duplicate_groups


def test_groups_that_share_an_image_become_one():
    exact = np.array([0, 1, 1, 3, 4, 3])
    near = np.array([0, 0, 2, 3, 4, 5])
    frame = duplicate_groups(exact, near)
    assert frame.columns == ["row", "exact", "near", "joined"]
    assert frame["joined"].to_list() == [0, 0, 0, 3, 4, 3]


def test_images_without_copies_stay_alone():
    rows = np.arange(5)
    assert duplicate_groups(rows, rows)["joined"].to_list() == [0, 1, 2, 3, 4]
