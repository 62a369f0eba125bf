"""The SVM probe: against scikit-learn's machines with their own kernels, fitted one by one."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, mean_squared_error, r2_score
from sklearn.svm import SVC, SVR

from agml_assets.compression.compatible.config import SvmParams
from agml_assets.compression.compatible.splits import Splits, draw_splits
from agml_assets.compression.compatible.svm_probe import draw_settings, fit_on_all, predict_fold, search_folds

# Narrower than published: at C = 1000 machines take millions of iterations.
SPACE = SvmParams((1e-2, 3), (2, 3), (1e-2, 0.5), (-1, 2), (0.05, 0.1), n_iter=6)
SCALED = SvmParams((1e-2, 10), (1,), n_iter=4)


def draw(kind, n=80, d=5):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n, d)).astype(np.float32)
    targets = vectors[:, 0] * vectors[:, 1] + vectors[:, 2] + 0.2 * rng.standard_normal(n)
    return vectors, (targets > 0).astype(float) if kind == "classification" else targets


def refit(kind, setting, vectors, targets, train):
    """scikit-learn's machine with its own polynomial kernel."""
    gamma = "scale" if setting.gamma is None else setting.gamma
    shared = {"C": setting.C, "degree": setting.degree, "gamma": gamma, "coef0": setting.coef0, "kernel": "poly"}
    goals = targets if kind == "regression" else np.where(targets > 0, 1, -1)
    machine = SVR(epsilon=setting.epsilon, **shared) if kind == "regression" else SVC(**shared)
    return machine.fit(vectors[train].astype(np.float64), goals[train]), goals


@pytest.mark.parametrize("params", [SPACE, SCALED], ids=["all drawn", "defaults"])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_scores_are_those_of_scikit_learns_machines_refitted_on_each_fold(kind, params):
    vectors, targets = draw(kind)
    splits = draw_splits(80, 4)
    found = search_folds(vectors, targets, kind, splits, params)
    wide = vectors.astype(np.float64)
    for place, setting in enumerate(found.settings):
        for fold, (train, test) in enumerate(zip(splits.train, splits.test, strict=True)):
            machine, goals = refit(kind, setting, vectors, targets, train)
            said, said_train = machine.predict(wide[test]), machine.predict(wide[train])
            if kind == "regression":
                assert found.scores[place, fold] == pytest.approx(r2_score(goals[test], said), abs=1e-6)
                wanted = -mean_squared_error(goals[test], said), -mean_squared_error(goals[train], said_train)
            else:
                assert found.scores[place, fold] == f1_score(goals[test], said, zero_division=0)
                wanted = accuracy_score(goals[test], said), accuracy_score(goals[train], said_train)
            got = found.test_selection[place, fold], found.train_selection[place, fold]
            assert got == pytest.approx(wanted, abs=1e-6)
    np.testing.assert_array_equal(found.fold_scores, found.scores.max(axis=0))
    assert found.best == found.test_selection.mean(axis=1).argmax()


def test_the_machine_of_all_rows_and_those_of_folds_are_scikit_learns():
    vectors, targets = draw("classification")
    setting = draw_settings("classification", SPACE)[0]
    wanted, _ = refit("classification", setting, vectors, targets, np.arange(80))
    found = fit_on_all(vectors, targets, "classification", setting)
    np.testing.assert_allclose(found.decision_function(vectors), wanted.decision_function(vectors))
    assert found.get_params() == wanted.get_params()
    train = np.arange(60)
    wanted, _ = refit("classification", setting, vectors, targets, train)
    said = predict_fold(vectors, targets, "classification", setting, train)
    np.testing.assert_array_equal(said, wanted.predict(vectors.astype(float)) > 0)


def test_settings_are_drawn_from_the_published_distributions():
    params = SvmParams((1e-3, 1e3), (2, 3), (1e-4, 10), (-1, 2), (0.01, 0.05, 0.1, 0.5), n_iter=2000)
    found = draw_settings("regression", params)
    for values, distribution in (
        ([one.C for one in found], stats.loguniform(1e-3, 1e3)),
        ([one.gamma for one in found], stats.loguniform(1e-4, 10)),
        ([one.coef0 for one in found], stats.uniform(-1, 3)),
    ):
        assert stats.kstest(values, distribution.cdf).pvalue > 0.01
    for values in ([one.degree for one in found], [one.epsilon for one in found]):
        assert stats.chisquare(np.unique(values, return_counts=True)[1]).pvalue > 0.01
    assert {one.epsilon for one in draw_settings("classification", params)} == {None}


def test_settings_depend_on_the_seed_alone():
    first = draw_settings("regression", SPACE)
    assert draw_settings("regression", SPACE) == first
    longer = SvmParams(**{**SPACE.__dict__, "n_iter": 9})
    assert draw_settings("regression", longer)[:6] == first
    assert draw_settings("regression", SvmParams(**{**SPACE.__dict__, "random_state": 1})) != first


def test_folds_are_the_same_however_many_are_fitted_at_once():
    vectors, targets = draw("regression")
    splits = draw_splits(80, 4)
    one = search_folds(vectors, targets, "regression", splits, SPACE)
    several = search_folds(vectors, targets, "regression", splits, SvmParams(**{**SPACE.__dict__, "n_jobs": -1}))
    np.testing.assert_array_equal(one.scores, several.scores)


def test_a_fold_that_trains_on_one_class_has_no_score():
    vectors, targets = draw("classification")
    alone = np.flatnonzero(targets > 0)[:20]
    splits = Splits(np.stack([alone, np.arange(20)]), np.stack([np.arange(60, 80)] * 2))
    found = search_folds(vectors, targets, "classification", splits, SCALED)
    assert np.isnan(found.fold_scores).tolist() == [True, False]
