"""The digits' tasks against what can be worked out by hand."""

import numpy as np
from sklearn.datasets import load_digits as load

from agml_assets.compression.digits import _slant, load_digits


def test_vectors_are_the_pixels_and_labels_the_digits():
    ids, vectors, tables = load_digits()
    assert vectors.shape == (1797, 64)
    assert len(set(ids)) == 1797
    assert tables["digit__classification"]["label"].to_list() == load().target.tolist()
    assert tables["even__classification"]["label"].to_list() == [int(d % 2 == 0) for d in load().target]
    assert all(table["id"].to_list() == list(ids) for table in tables.values())


def test_an_upright_stroke_does_not_lean_and_a_diagonal_one_leans_by_one():
    upright = np.zeros((8, 8))
    upright[:, 3:5] = 16
    diagonal = np.eye(8) * 16
    other = np.fliplr(diagonal)
    np.testing.assert_allclose(_slant(np.stack([upright, diagonal, other]).reshape(3, 64)), [0, 1, -1], atol=1e-12)
