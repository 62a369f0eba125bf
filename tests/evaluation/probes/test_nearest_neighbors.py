"""k nearest neighbours: scikit-learn's answers, ties by rule, memory bounded by blocks."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from agml_assets.errors import UserError
from agml_assets.evaluation.probes import axes
from agml_assets.evaluation.probes.nearest_neighbors import NearestNeighborsProbe


@pytest.mark.parametrize("k", [1, 2, 5])
def test_neighbours_votes_and_classes_are_those_of_scikit_learn(digits, k):
    X, y = digits
    ours = NearestNeighborsProbe(n_neighbors=k).fit(X[:400], y[:400])
    theirs = KNeighborsClassifier(n_neighbors=k, algorithm="brute").fit(X[:400], y[:400])
    for queries in (X[400:], None):
        for mine, other in zip(ours.kneighbors(queries), theirs.kneighbors(queries), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9)
        np.testing.assert_allclose(ours.predict_proba(queries), theirs.predict_proba(queries))
        np.testing.assert_array_equal(ours.predict(queries), theirs.predict(queries))
    np.testing.assert_array_equal(ours.predict_leave_one_out(), theirs.predict(None))


def test_blocks_change_nothing(digits, monkeypatch):
    X, y = digits
    probe = NearestNeighborsProbe().fit(X, y)
    whole = probe.kneighbors()
    monkeypatch.setattr(axes, "_BLOCK_VALUES", 600 * 7)
    for mine, other in zip(probe.kneighbors(), whole, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_of_examples_at_the_same_distance_the_earlier_is_nearer():
    X = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [9.0, 9.0]])
    _, neighbors = NearestNeighborsProbe(n_neighbors=3).fit(X, [4, 3, 2, 1, 0]).kneighbors([[0.0, 0.0]])
    assert neighbors.tolist() == [[0, 1, 2]]


def test_copies_far_from_the_origin_are_told_from_near_misses():
    """Squares of 1e16 leave nothing of a distance of 1 in the expanded form |x|^2 - 2xy + |y|^2."""
    X = np.array([[1e8, 1.0], [1e8, 0.5], [1e8, 0.0], [1e8, 0.25]])
    distances, neighbors = NearestNeighborsProbe(n_neighbors=4).fit(X, [0, 1, 0, 1]).kneighbors([[1e8, 0.0]])
    assert neighbors.tolist() == [[2, 3, 1, 0]]
    assert distances.tolist() == [[0.0, 0.25, 0.5, 1.0]]


def test_of_classes_with_as_many_votes_the_first_wins():
    probe = NearestNeighborsProbe(n_neighbors=4).fit([[0.0], [1.0], [2.0], [3.0]], ["b", "a", "b", "a"])
    assert probe.predict([[-1.0]]).tolist() == ["a"]


def test_a_copy_is_a_neighbour_where_the_example_itself_is_not():
    probe = NearestNeighborsProbe(n_neighbors=1).fit([[0.0], [0.0], [5.0]], [0, 1, 1])
    assert probe.kneighbors()[1].tolist() == [[1], [0], [0]]
    assert probe.predict_leave_one_out().tolist() == [1, 0, 0]


def test_fewer_examples_than_neighbours_are_refused_in_words():
    probe = NearestNeighborsProbe(n_neighbors=3).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    assert probe.predict([[0.1]]).tolist() == [1]
    with pytest.raises(UserError, match="2 training examples to choose 3 neighbours"):
        probe.predict_leave_one_out()
