"""Exact ridge: scikit-learn's predictions refitted fold by fold, and the penalties of its leave-one-out search."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from agml_assets.compression.exact.folds import make_folds
from agml_assets.compression.exact.ridge import PENALTIES, predict_out_of_fold


def data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    targets = features[:, :3] @ rng.normal(size=(3, 2)) / 5 + rng.normal(size=(n, 2))
    return features, targets


def folds_of(n, repeats=2, groups=None):
    return make_folds([str(one) for one in range(n)], repeats, 10, 0, groups=groups)


def refitted(features, targets, folds, penalties):
    predicted = np.empty((len(folds), *targets.shape))
    for repeat, row in enumerate(folds):
        for fold in range(10):
            inside = row != fold
            for target in range(targets.shape[1]):
                alpha = penalties[repeat, fold, target] * inside.sum()
                model = make_pipeline(StandardScaler(), Ridge(alpha=alpha, solver="svd"))
                model.fit(features[inside], targets[inside, target])
                predicted[repeat, ~inside, target] = model.predict(features[~inside])
    return predicted


@pytest.mark.parametrize(("n", "d"), [(300, 40), (60, 200), (67, 60)], ids=["n > d", "n < d", "n about d"])
def test_predictions_are_those_of_refitting_and_penalties_those_of_ridge_cv(n, d):
    features, targets = data(n, d)
    folds = folds_of(n)
    ours = predict_out_of_fold(features, targets, folds)
    np.testing.assert_allclose(
        ours.predicted, refitted(features, targets, folds, ours.penalties), rtol=0, atol=1e-8 * targets.std()
    )
    for repeat, row in enumerate(folds):
        for fold in range(10):
            inside = row != fold
            scaled = StandardScaler().fit_transform(features[inside])
            search = RidgeCV(np.array(PENALTIES) * inside.sum(), alpha_per_target=True)
            found = search.fit(scaled, targets[inside]).alpha_ / inside.sum()
            np.testing.assert_allclose(ours.penalties[repeat, fold], found, rtol=1e-12)


def test_features_that_hardly_vary_or_not_at_all_in_a_training_part_are_treated_as_by_scikit_learn():
    features, targets = data(100, 8)
    folds = folds_of(100, 1)
    features[:, 0] = 5.0  # nowhere
    features[:, 1] = np.where(np.arange(100) == np.flatnonzero(folds[0] == 2)[0], 4.0, 1.0)  # not without fold 2
    features[:, 2] = np.where(folds[0] == 4, 1e6, 1.0) + 1e-3 * np.arange(100)  # hardly without fold 4
    ours = predict_out_of_fold(features, targets, folds)
    theirs = refitted(features, targets, folds, ours.penalties)
    np.testing.assert_allclose(ours.predicted, theirs, rtol=1e-7, atol=1e-8)


def test_with_groups_the_penalty_is_the_one_that_leaving_groups_out_favours():
    features, targets = data(120, 15)
    groups = np.random.default_rng(3).integers(0, 40, 120)
    folds = folds_of(120, 1, groups)
    penalties = [1e-3, 1e-2, 0.1, 1.0, 10.0]
    ours = predict_out_of_fold(features, targets, folds, penalties, groups)
    for fold in (0, 5):
        inside = folds[0] != fold
        scaled = StandardScaler().fit_transform(features[inside])
        errors = []
        for penalty in penalties:
            ridge = Ridge(alpha=penalty * inside.sum(), solver="svd")
            left_out = cross_val_predict(
                ridge, scaled, targets[inside], groups=groups[inside], cv=LeaveOneGroupOut()
            )
            errors.append(((left_out - targets[inside]) ** 2).mean(axis=0))
        np.testing.assert_allclose(ours.penalties[0, fold], np.array(penalties)[np.argmin(errors, axis=0)])


@pytest.mark.parametrize(("n", "d", "grouped"), [(80, 10, False), (40, 60, False), (80, 10, True)])
def test_what_an_example_takes_off_is_what_refitting_without_it_does_to_first_order(n, d, grouped):
    features, targets = data(n, d)
    groups = np.arange(n) // 2 if grouped else None
    folds = folds_of(n, 1, groups)
    penalty = 0.3
    ours = predict_out_of_fold(features, targets, folds, [penalty], groups)
    row = folds[0]
    unit = np.arange(n) if groups is None else groups
    for one in (0, 7, 19):
        left_out = unit == one
        expected = np.zeros(2)
        for fold in set(range(10)) - set(row[left_out].tolist()):
            inside, out = row != fold, row == fold
            # At the scale and penalty of the whole training part.
            scaler = StandardScaler().fit(features[inside])
            scaled = scaler.transform(features)
            ridge = Ridge(alpha=penalty * inside.sum(), solver="svd")
            whole = ridge.fit(scaled[inside], targets[inside]).predict(scaled[out])
            less = ridge.fit(scaled[inside & ~left_out], targets[inside & ~left_out]).predict(scaled[out])
            expected += (2 * (targets[out] - whole) * (whole - less)).sum(axis=0)
        np.testing.assert_allclose(ours.pulls[0, left_out].sum(axis=0), expected, rtol=1e-7)


def test_penalties_that_are_not_positive_are_refused():
    features, targets = data(20, 3)
    with pytest.raises(ValueError, match="positive"):
        predict_out_of_fold(features, targets, folds_of(20), [0.0])
