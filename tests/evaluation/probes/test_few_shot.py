"""Few-shot draws: class-balanced, as many as asked for, and the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agml_assets.errors import UserError
from agml_assets.evaluation.probes.few_shot import draw_few_shot


def drawn_per_class(labels, n_train, seed=0):
    return np.unique(np.asarray(labels)[draw_few_shot(np.asarray(labels), n_train, seed)], return_counts=True)[1]


@hypothesis_settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=80), st.integers(0, 1000), st.data())
def test_a_draw_is_as_balanced_as_the_classes_allow(labels, seed, data):
    labels = np.array(labels)
    n_train = data.draw(st.integers(1, len(labels)))
    drawn = draw_few_shot(labels, n_train, seed)
    assert drawn.dtype == np.int64
    assert len(drawn) == n_train == len(np.unique(drawn))
    assert (np.diff(drawn) > 0).all()
    classes, sizes = np.unique(labels, return_counts=True)
    counts = np.array([(labels[drawn] == c).sum() for c in classes])
    share = n_train // len(classes)
    assert (counts >= np.minimum(sizes, share)).all()
    if (sizes > share).all():
        assert counts.max() <= share + 1
    np.testing.assert_array_equal(drawn, draw_few_shot(labels, n_train, seed))


def test_small_classes_give_all_and_the_rest_makes_up():
    labels = np.repeat(["rare", "common", "frequent"], [2, 50, 50])
    counts = dict(zip(["common", "frequent", "rare"], drawn_per_class(labels, 30), strict=True))
    assert counts["rare"] == 2
    assert counts["common"] >= 10
    assert counts["frequent"] >= 10
    assert sum(counts.values()) == 30


def test_what_does_not_divide_goes_to_classes_at_random_one_each():
    labels = np.repeat(np.arange(4), 20)
    extra = {tuple(drawn_per_class(labels, 10, seed)) for seed in range(60)}
    assert all(sorted(counts) == [2, 2, 3, 3] for counts in extra)
    assert len(extra) == 6  # every pair of classes


def test_fewer_than_classes_take_one_each_of_some():
    labels = np.repeat(np.arange(10), 5)
    assert drawn_per_class(labels, 3).tolist() == [1, 1, 1]
    assert len({tuple(labels[draw_few_shot(labels, 3, seed)]) for seed in range(20)}) > 10


def test_every_example_has_the_same_chance_within_its_class():
    labels = np.repeat([0, 1], [10, 40])
    times = sum(np.bincount(draw_few_shot(labels, 10, seed), minlength=50) for seed in range(2_000))
    assert np.abs(times[:10] / 2_000 - 0.5).max() < 0.06  # 5 standard errors of a half
    assert np.abs(times[10:] / 2_000 - 0.125).max() < 0.04


@pytest.mark.parametrize("n_train", [0, -1, 4])
def test_numbers_that_cannot_be_drawn_are_refused(n_train):
    with pytest.raises(UserError, match=f"n_train = {n_train} examples cannot be drawn from the 3"):
        draw_few_shot(np.array([0, 0, 1]), n_train, 0)
