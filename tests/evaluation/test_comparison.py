"""Ties with the best: against published values and SciPy, and by simulation of equally good models."""

import numpy as np
import pytest
from scipy import stats

from agml_assets.errors import UserError
from agml_assets.evaluation.comparison import compare_with_best, holm
from agml_assets.evaluation.resamples import Predictions, bootstrap
from agml_assets.evaluation.scores import ACCURACY, MACRO_F1
from tests.evaluation.simulated import draw, prior

ALPHA = 0.05


def compared(predictions, n_resamples=1000):
    found = bootstrap(predictions, n_resamples)
    return compare_with_best(found.models, found.points, found.replicates, len(predictions.true), ALPHA)


def test_holm_corrects_as_worked_out_by_hand():
    # Sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and no less than the one before.
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.4, 0.9])) == pytest.approx([0.8, 0.9])


def test_two_models_are_compared_as_by_mcnemars_z():
    n = 1000
    true = np.zeros(n, int)
    first, second = true.copy(), true.copy()
    first[:300], second[200:560] = 1, 1  # only the first is wrong in 200, only the second in 260
    best, other = compared(Predictions("t", ACCURACY, true, {"a": first, "b": second}), 10_000)
    z = (260 - 200) / np.sqrt(200 + 260 - (260 - 200) ** 2 / n)
    assert best.model == "a"
    assert other.behind == pytest.approx(60 / n)
    assert other.p_value == pytest.approx(stats.norm.sf(z), abs=0.002)
    assert other.p_holm == pytest.approx(2 * other.p_value)


def test_a_p_value_is_that_of_the_largest_of_correlated_normal_differences():
    rng = np.random.default_rng(0)
    replicates = 0.5 + 0.01 * rng.standard_normal((100_000, 4))
    points = np.array([0.520, 0.512, 0.505, 0.490])
    found = {standing.model: standing for standing in compare_with_best("abcd", points, replicates, 1e9)}
    equal = stats.multivariate_normal(np.zeros(3), np.full((3, 3), 0.5) + 0.5 * np.eye(3))
    for model, point in zip("bcd", points[1:], strict=True):
        reached = (0.520 - point) / (0.01 * np.sqrt(2))
        assert found[model].p_value == pytest.approx(1 - equal.cdf(np.full(3, reached)), abs=0.006)


def test_equal_predictions_tie_and_clear_differences_do_not():
    rng = np.random.default_rng(1)
    predictions = draw(rng, "t", MACRO_F1, 800, 3, prior(5), [0.9, 0.9, 0.6])
    predicted = {**predictions.predicted, "copy": predictions.predicted["model0"]}
    found = compared(Predictions("t", MACRO_F1, predictions.true, predicted))
    by_name = {standing.model: standing for standing in found}
    assert by_name["copy"].tied == by_name["model0"].tied
    assert not by_name["model2"].tied
    assert found[0].tied
    assert found[0].behind == 0


def test_two_copies_are_the_best_and_certain():
    true = np.arange(40) % 2
    found = compared(Predictions("t", ACCURACY, true, {"b": true, "a": true, "c": 1 - true}))
    assert [(standing.model, standing.tied) for standing in found] == [("a", True), ("b", True), ("c", False)]
    assert found[2].p_value == pytest.approx(1 / 1001)


def test_with_few_groups_no_model_is_told_from_another():
    true = np.arange(19) % 2
    found = compared(Predictions("t", ACCURACY, true, {"a": true, "b": 1 - true}))
    assert all(standing.tied and standing.p_value == 1 for standing in found)


def test_one_model_is_the_best():
    true = np.arange(40) % 2
    (alone,) = compared(Predictions("t", ACCURACY, true, {"a": true}))
    assert alone.tied


def test_too_few_resamples_for_so_many_models_are_refused():
    with pytest.raises(UserError, match="cannot tell 85 models apart"):
        compare_with_best([str(k) for k in range(85)], np.zeros(85), np.zeros((1000, 85)), 100)


def share_rejected(score, n_sets, n_models, n_classes, zipf, recall, shared, n=1000):
    """Share of test sets in which any of equally good models is called worse."""
    rng = np.random.default_rng(7)
    shares = prior(n_classes, zipf)
    wrong = 0
    for number in range(n_sets):
        predictions = draw(rng, f"t{number}", score, n, n_models, shares, [recall] * n_models, shared)
        wrong += not all(standing.tied for standing in compared(predictions, 500))
    return wrong / n_sets


def test_ten_equally_good_models_mostly_tie_in_a_small_simulation():
    # Of 100 test sets at 5 %, 14 or more have a probability of 0.05 %; tests against the best alone take 21.
    assert share_rejected(ACCURACY, 100, 10, 10, False, 0.7, 0.5, n=300) <= 13 / 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "n_classes", "zipf", "recall", "shared"),
    [(ACCURACY, 10, False, 0.7, 0.5), (MACRO_F1, 10, False, 0.7, 0.5), (MACRO_F1, 20, True, 0.8, 0.8)],
    ids=["accuracy", "macro-F1", "macro-F1, rare classes"],
)
def test_of_2000_equally_good_pairs_at_most_6_percent_are_told_apart(score, n_classes, zipf, recall, shared):
    assert share_rejected(score, 2000, 2, n_classes, zipf, recall, shared) <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize("score", [ACCURACY, MACRO_F1], ids=["accuracy", "macro-F1"])
def test_of_ten_equally_good_models_any_is_called_worse_in_at_most_alpha(score):
    # The standard error of the share over 1,000 test sets is 0.7 points.
    assert share_rejected(score, 1000, 10, 10, False, 0.7, 0.5) <= ALPHA + 2 * 0.007


@pytest.mark.slow
def test_a_model_that_is_worse_by_four_standard_errors_is_found_among_ten():
    rng = np.random.default_rng(8)
    found = 0
    for number in range(50):
        recalls = [0.70] * 9 + [0.60]
        predictions = draw(rng, f"t{number}", ACCURACY, 1000, 10, prior(10), recalls, 0.5)
        found += not next(one for one in compared(predictions) if one.model == "model9").tied
    assert found >= 45
