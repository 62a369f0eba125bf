"""Metrics of agents' tasks against scikit-learn, SciPy and sums done by hand."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import mannwhitneyu
from sklearn import metrics as reference

from agml_assets.agents.metrics import (
    METRICS,
    NotMeasurable,
    accuracy,
    area_under_curve,
    average_precision,
    fathomnet_score,
    find_metric,
    macro_f1,
    mean_absolute_error,
    mean_average_precision_at,
    mean_columnwise_rmse,
    mean_dice,
    probability_accuracy,
    read_categories,
    read_mask,
    smape_plus_one,
    write_mask,
)
from agml_assets.errors import UserError

RNG = np.random.default_rng(0)
TRUE, PREDICTED = RNG.integers(0, 5, 200), RNG.integers(0, 7, 200)
VALUES, GUESSES = RNG.normal(size=(50, 6)), RNG.normal(size=(50, 6))


def test_accuracy_and_macro_f1_are_scikit_learns():
    assert accuracy(TRUE, PREDICTED) == reference.accuracy_score(TRUE, PREDICTED)
    expected = reference.f1_score(TRUE, PREDICTED, labels=np.unique(TRUE), average="macro", zero_division=0)
    assert macro_f1(TRUE, PREDICTED) == pytest.approx(expected, abs=1e-12)


def test_a_class_that_is_only_predicted_has_no_f1_of_its_own():
    # Class 0: 1 hit of 2, nothing wrongly called 0: 2/3. Class 1: 1.
    assert macro_f1(np.array([0, 0, 1]), np.array([0, 9, 1])) == pytest.approx((2 / 3 + 1) / 2)


def test_probabilities_count_by_their_largest():
    probabilities = RNG.random((200, 5))
    expected = reference.accuracy_score(TRUE, probabilities.argmax(axis=1))
    assert probability_accuracy(TRUE, probabilities) == expected


@pytest.mark.parametrize("decimals", [8, 1, 0])
def test_average_precision_is_scikit_learns_with_ties_too(decimals):
    positive, scores = RNG.random(300) < 0.1, np.round(RNG.random(300), decimals)
    expected = reference.average_precision_score(positive, scores)
    assert average_precision(positive, scores) == pytest.approx(expected, abs=1e-12)


def test_one_score_for_all_has_the_average_precision_of_guessing():
    positive = np.arange(100) < 8
    assert average_precision(positive, np.zeros(100)) == pytest.approx(0.08)


def test_errors_of_numbers_are_scikit_learns():
    assert mean_absolute_error(VALUES[:, 0], GUESSES[:, 0]) == pytest.approx(
        reference.mean_absolute_error(VALUES[:, 0], GUESSES[:, 0])
    )
    expected = reference.root_mean_squared_error(VALUES, GUESSES, multioutput="raw_values").mean()
    assert mean_columnwise_rmse(VALUES, GUESSES) == pytest.approx(expected)


def test_smape_by_hand():
    # Values plus one are 1 and 1, 1 and 2, 5 and 3: 0, 2 * 1 / 3, 2 * 2 / 8.
    expected = 100 * (0 + 2 / 3 + 4 / 8) / 3
    assert smape_plus_one(np.array([0.0, 0, 4]), np.array([0.0, 1, 2])) == pytest.approx(expected)
    assert smape_plus_one(np.array([-1.0]), np.array([-1.0])) == 0
    assert smape_plus_one(np.array([3.0]), np.array([-9.0])) <= 200


def test_the_area_under_the_curve_is_scipys_and_scikit_learns():
    positive, scores = RNG.random(200) < 0.3, np.round(RNG.random(200), 1)
    u = mannwhitneyu(scores[positive], scores[~positive]).statistic
    assert area_under_curve(positive, scores) == pytest.approx(u / positive.sum() / (~positive).sum())
    assert area_under_curve(positive, scores) == pytest.approx(reference.roc_auc_score(positive, scores))


def test_map_counts_a_guess_once_and_twenty_at_most():
    # The page of the competition: the right label 1 first, and anything after it, scores 1.
    for guesses in ([1, 2, 3, 4, 5], [1, 1, 1, 1, 1], [1, 2, 1, 3, 1]):
        assert mean_average_precision_at([[1]], [guesses]) == 1
    # Right at the second and third place, of two right ones: (1/2 + 2/3) / 2.
    assert mean_average_precision_at([[4, 5]], [[9, 4, 5]]) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert mean_average_precision_at([[21]], [list(range(1, 30))]) == 0
    assert mean_average_precision_at([[], [1]], [[1], [1]]) == 0.5


def test_fathomnet_without_out_of_sample_images_is_the_map_alone():
    true, guesses = [[1], [2]], [[1], [3]]
    assert fathomnet_score(true, guesses, np.array([False, False]), np.array([0.3, 0.1])) == 0.5
    # AUC 1 becomes 2 * 1 - 1.
    assert fathomnet_score(true, guesses, np.array([True, False]), np.array([0.3, 0.1])) == (1 + 0.5) / 2


def test_dice_is_the_f1_of_pixels():
    masks = RNG.random((3, 65536)) < 0.3
    other = RNG.random((3, 65536)) < 0.3
    expected = np.mean([reference.f1_score(a, b) for a, b in zip(masks, other, strict=True)])
    assert mean_dice(list(masks), list(other)) == pytest.approx(expected, abs=1e-9)
    empty = np.zeros(65536, bool)
    assert mean_dice([empty], [empty]) == 1


def test_masks_survive_their_encoding():
    mask = RNG.random(65536) < 0.4
    assert (read_mask(write_mask(mask)) == mask).all()
    assert write_mask(np.zeros(65536, bool)) == "-"
    assert read_mask("3 2").nonzero()[0].tolist() == [2, 3]
    assert read_mask("65536 1")[-1]
    assert not read_mask("-").any()


@pytest.mark.parametrize("text", ["1", "0 3", "65536 2", "a b", "1 99999999", "-1 2", "1.5 2", "1 2 3", "²  1"])
def test_what_is_no_mask_is_refused(text):
    with pytest.raises(NotMeasurable):
        read_mask(text)


def test_categories_are_read_as_starters_write_them():
    assert read_categories("[1.0, 20]") == [1, 20]
    assert read_categories("") == []
    with pytest.raises(NotMeasurable):
        read_categories("1 cat")


def test_tables_give_their_columns():
    true = pl.DataFrame({"categories": ["[1]", "[2]"], "osd": [0.0, 0.0]})
    given = pl.DataFrame({"categories": ["1 3", "5"], "osd": [0.1, 0.2]})
    assert METRICS["fathomnet_score"].measure(true, given) == 0.5
    with pytest.raises(NotMeasurable, match="row 2, column 'categories'"):
        METRICS["fathomnet_score"].measure(true, given.with_columns(categories=pl.Series(["1", "x"])))


def test_an_unknown_metric_is_named_with_those_like_it():
    with pytest.raises(UserError, match="Task 'beans'.*Did you mean 'macro_f1'"):
        find_metric("macrof1", "beans")
