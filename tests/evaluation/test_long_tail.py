"""Descriptors of the tail against values worked out by hand."""

import numpy as np
import pytest

from agml_assets.errors import UserError
from agml_assets.evaluation.long_tail import describe_long_tail


def test_equal_classes_have_no_tail():
    found = describe_long_tail(np.full(10, 7))
    assert found.n_classes == 10
    assert found.zipf_exponent == pytest.approx(0, abs=1e-12)
    assert found.effective_classes == pytest.approx(10)
    assert found.imbalance == 1
    assert found.gini == pytest.approx(0, abs=1e-12)
    assert found.tail_mass == 0.9


def test_counts_by_zipfs_law_have_its_exponent():
    ranks = np.arange(1, 7)
    assert describe_long_tail(3600 // ranks).zipf_exponent == pytest.approx(1, abs=1e-12)
    assert describe_long_tail(3600 // ranks**2).zipf_exponent == pytest.approx(2, abs=1e-12)


def test_three_classes_give_the_values_worked_out_by_hand():
    # Shares 1/2, 3/8, 1/8; smallest first they add up to 1/8, 1/2, 1.
    found = describe_long_tail(np.array([3, 1, 4, 0]))
    assert found.n_classes == 3
    assert found.effective_classes == pytest.approx(2 ** (1 / 2) * (8 / 3) ** (3 / 8) * 8 ** (1 / 8))
    assert found.imbalance == 4
    assert found.gini == pytest.approx(1 - 2 * 1.625 / 4)
    assert found.tail_mass == 1  # the two largest hold 7 of 8


def test_the_gini_coefficient_is_the_mean_difference_of_textbooks_but_for_its_factor():
    counts = np.random.default_rng(0).integers(1, 100, 25)
    textbook = np.abs(counts[:, None] - counts).sum() / (2 * 25**2 * counts.mean())
    assert describe_long_tail(counts).gini == pytest.approx(textbook * 25 / 26)


def test_the_tail_mass_counts_the_largest_classes_up_to_exactly_90_percent():
    assert describe_long_tail(np.array([50, 40, 5, 5])).tail_mass == 0.5
    assert describe_long_tail(np.array([50, 39, 6, 5])).tail_mass == 0.75


def test_one_class_has_no_slope():
    found = describe_long_tail(np.array([0, 9]))
    assert found.zipf_exponent is None
    assert (found.effective_classes, found.imbalance, found.gini, found.tail_mass) == (1, 1, 0, 1)


@pytest.mark.parametrize("counts", [[0, 0], [3, -1], []])
def test_counts_of_nothing_are_refused(counts):
    with pytest.raises(UserError, match="at least 0"):
        describe_long_tail(np.array(counts, int))
