"""Scores against scikit-learn's, their contributions against finite differences, errors against tables by hand."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from agml_assets.compression.exact import scores
from agml_assets.compression.exact.folds import make_folds
from agml_assets.compression.exact.uncertainty import (
    Spread,
    corrected_error,
    corrected_interval,
    interval_of,
    jackknife_error,
    p_value,
)


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    true = rng.normal(size=(50, 2))
    return true, true + rng.normal(size=(50, 2))


@pytest.fixture
def classes():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 60)
    return true, np.where(rng.random(60) < 0.6, true, rng.integers(0, 3, 60))


def test_scores_are_those_of_scikit_learn(numbers, classes):
    assert scores.mean_r2(*numbers).value == pytest.approx(metrics.r2_score(*numbers))
    assert scores.accuracy(*classes).value == metrics.accuracy_score(*classes)
    assert scores.macro_f1(*classes, 3).value == pytest.approx(metrics.f1_score(*classes, average="macro"))
    true, predicted = (one % 2 for one in classes)
    assert scores.f1(true, predicted, 1).value == pytest.approx(metrics.f1_score(true, predicted))
    assert scores.f1(np.zeros(3, int), np.zeros(3, int), 1).value == 0


@pytest.mark.parametrize("which", ["r2", "accuracy", "macro_f1"])
def test_contributions_are_what_a_little_more_weight_on_an_example_does(which, numbers, classes):
    pair = numbers if which == "r2" else classes
    ours = {"r2": scores.mean_r2, "accuracy": scores.accuracy, "macro_f1": lambda t, p: scores.macro_f1(t, p, 3)}
    theirs = {
        "r2": metrics.r2_score,
        "accuracy": metrics.accuracy_score,
        "macro_f1": lambda t, p, sample_weight: metrics.f1_score(
            t, p, average="macro", sample_weight=sample_weight
        ),
    }
    scored, n, step = ours[which](*pair), len(pair[0]), 1e-6
    assert scored.contributions.mean() == pytest.approx(0, abs=1e-12)
    for one in (0, 5, 11):
        weights = np.ones(n)
        weights[one] += step
        moved = theirs[which](*pair, sample_weight=weights)
        assert n * (moved - scored.value) / step == pytest.approx(scored.contributions[one], abs=1e-4)


def test_guessing_scores_what_the_reference_says():
    rng = np.random.default_rng(0)
    true = rng.choice(3, 200_000, p=[0.7, 0.2, 0.1])
    guessed = metrics.f1_score(true, rng.integers(0, 3, len(true)), average="macro")
    assert scores.guessing_f1(true, 3) == pytest.approx(guessed, abs=3e-3)


def test_parts_of_folds_average_to_the_score_of_their_repeat(numbers):
    true, predicted = numbers
    folds = make_folds([str(one) for one in range(50)], 3, 7, 0)
    repeated = scores.over_repeats(folds, lambda repeat: scores.mean_r2(true, predicted * (1 + repeat / 10)))
    np.testing.assert_allclose(repeated.by_fold.mean(axis=1), repeated.by_repeat)
    assert repeated.value == pytest.approx(repeated.by_repeat.mean())


def test_the_corrected_error_is_that_of_the_table():
    # Four folds, twice: 0.50 0.60 0.70 0.60 and 0.55 0.65 0.60 0.60. Mean 0.60; squared deviations 0.0100, 0,
    # 0.0100, 0, 0.0025, 0.0025, 0, 0, together 0.0250; s2 = 0.0250 / 7 = 0.0035714. Correction 1 / 8 + 1 / 3 =
    # 0.4583333. Error = sqrt(0.4583333 * 0.0035714) = sqrt(0.00163690) = 0.0404586. t(0.975; 7) = 2.364624.
    table = np.array([[0.50, 0.60, 0.70, 0.60], [0.55, 0.65, 0.60, 0.60]])
    assert corrected_error(table) == pytest.approx(0.0404586, abs=1e-7)
    interval = corrected_interval(0.6, table)
    assert (interval.low, interval.high) == pytest.approx((0.6 - 0.0956694, 0.6 + 0.0956694), abs=1e-6)
    assert interval.freedom == 7
    # A difference of 0.08 with this error: t = 1.977330, two-sided p of t(7) = 0.0885.
    assert p_value(0.08, corrected_error(table), 7) == pytest.approx(0.0885, abs=5e-5)


def test_the_jackknife_of_a_mean_is_its_textbook_error():
    values = np.random.default_rng(0).normal(size=40)
    influences = (values - values.mean()) / 40
    assert jackknife_error(influences, np.array([0.3])) == pytest.approx(stats.sem(values))
    # Repeats 0.1 apart add 0.005 / 2 to the square.
    both = jackknife_error(influences, np.array([0.3, 0.4]))
    assert both**2 == pytest.approx(stats.sem(values) ** 2 + 0.0025)


def test_without_influences_the_error_is_the_corrected_one_and_differences_are_paired():
    rng = np.random.default_rng(0)
    one, other = (Spread(None, rng.normal(size=2), rng.normal(size=(2, 5))) for _ in range(2))
    assert one.error == corrected_error(one.by_fold)
    assert interval_of(0.5, one).freedom == 9
    assert (one - one).error == 0
    assert (one - other).error == corrected_error(one.by_fold - other.by_fold)


def test_no_difference_at_all_is_no_evidence_and_a_certain_one_is():
    assert p_value(0.0, 0.0, 9) == 1
    assert p_value(0.1, 0.0, 9) == 0
    assert p_value(0.1, float("inf"), 9) == 1
