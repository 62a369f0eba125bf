"""R2, F1 and Q: against scikit-learn, and worked out by hand."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import f1_score, r2_score

from agml_assets.compression.compatible.scores import f1, q_statistic, r2, score_folds, score_outputs


def test_r2_is_scikit_learns():
    rng = np.random.default_rng(0)
    truth, said = rng.normal(size=(5, 20)), rng.normal(size=(5, 20))
    assert r2(said, truth) == pytest.approx([r2_score(one, other) for one, other in zip(truth, said, strict=True)])


def test_r2_of_nearly_constant_targets_is_by_convention():
    # The rules of torchmetrics: sums of squares up to 1e-4 count as 0.
    assert r2(np.array([0.5, 0.6]), np.array([0.5, 0.501])) == 0
    assert r2(np.array([0.5, 0.5]), np.array([0.5, 0.501])) == 1
    assert r2(np.array([0.0, 1.005]), np.array([0.0, 1.0])) == 1
    assert np.isnan(r2(np.array([np.nan, 1.0]), np.array([0.0, 1.0])))


def test_f1_is_scikit_learns_also_without_positives():
    rng = np.random.default_rng(0)
    truth, said = rng.random((30, 6)) < 0.3, rng.random((30, 6)) < 0.3
    truth[0], said[1] = False, False
    truth[2] = said[2] = False
    wanted = [f1_score(one, other, zero_division=0) for one, other in zip(truth, said, strict=True)]
    assert f1(said, truth) == pytest.approx(wanted)


def test_logits_are_positive_above_0_also_where_all_lie_between_0_and_1():
    truth = np.array([[1.0, 1, 1, 0]])
    assert score_outputs("classification", np.array([[0.2, 0.3, 0.4, -0.1]]), truth) == 1
    # Of three positives and one negative all are called positive: 2 * 3 / (2 * 3 + 1).
    assert score_outputs("classification", np.array([[0.2, 0.3, 0.4, 0.1]]), truth) == pytest.approx(6 / 7)


def test_q_is_twice_the_mean_over_deviation_and_noise_floor():
    # Mean 0.8, population deviation 0.1.
    found = score_folds(np.array([0.7, 0.9, np.nan]))
    assert (found.mean, found.std) == pytest.approx((0.8, 0.1))
    assert found.q == pytest.approx(1.6 / 0.12)
    assert q_statistic(1, 0) == pytest.approx(100)
    # Published example of a probe that has not converged: R2 -2.48 at a deviation of 0.88 is Q -5.5.
    assert q_statistic(-2.48, 0.88) == pytest.approx(-5.51, abs=0.005)


def test_no_scored_fold_gives_no_score():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = score_folds(np.array([np.nan, np.nan]))
    assert np.isnan([found.mean, found.std, found.q]).all()
