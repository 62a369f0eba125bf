"""The ridge probe: scikit-learn's weights at every penalty, and the penalty that leaving out in fact favours."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import LeaveOneGroupOut, LeaveOneOut, cross_val_predict

from agml_assets.evaluation.probes import axes
from agml_assets.evaluation.probes.ridge import RidgePath, RidgeProbe

ALPHAS = [1e-2, 1.0, 30.0, 1e4]


def two_classes(digits):
    X, y = digits
    return X[y < 12], y[y < 12]


def few(digits):
    X, y = digits
    return X[:40], y[:40]


@pytest.mark.parametrize("choose", [lambda digits: digits, two_classes, few], ids=["ten classes", "two", "n < d"])
def test_weights_at_each_penalty_are_those_of_scikit_learn(digits, choose):
    X, y = choose(digits)
    _, codes = np.unique(y, return_inverse=True)
    path = RidgePath(X, codes, codes.max() + 1)
    for alpha in ALPHAS:
        theirs = RidgeClassifier(alpha=alpha, solver="svd").fit(X, y)
        coef, intercept = path.coefficients(alpha)
        np.testing.assert_allclose(coef, np.atleast_2d(theirs.coef_), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(intercept, theirs.intercept_, rtol=1e-6, atol=1e-9)
        ours = RidgeProbe(alphas=[alpha]).fit(X, y)
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-6, atol=1e-8)
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("choose", [lambda digits: (digits[0][:100], digits[1][:100]), two_classes, few])
def test_leaving_one_out_predicts_what_fitting_without_it_predicts(digits, choose):
    X, y = choose(digits)
    classes, codes = np.unique(y, return_inverse=True)
    predicted = RidgePath(X, codes, len(classes)).predict_left_out(ALPHAS)
    for alpha, ours in zip(ALPHAS, predicted, strict=True):
        theirs = cross_val_predict(RidgeClassifier(alpha=alpha, solver="svd"), X, y, cv=LeaveOneOut())
        np.testing.assert_array_equal(classes[ours], theirs)


def test_leaving_a_group_out_predicts_what_fitting_without_it_predicts(digits, monkeypatch):
    X, y = digits[0][:200], digits[1][:200]
    groups = np.random.default_rng(1).integers(0, 60, 200)
    classes, codes = np.unique(y, return_inverse=True)
    whole = RidgePath(X, codes, len(classes)).predict_left_out(ALPHAS, groups)
    for alpha, ours in zip(ALPHAS, whole, strict=True):
        ridge = RidgeClassifier(alpha=alpha, solver="svd")
        theirs = cross_val_predict(ridge, X, y, groups=groups, cv=LeaveOneGroupOut())
        np.testing.assert_array_equal(classes[ours], theirs)
    monkeypatch.setattr(axes, "_BLOCK_VALUES", 64 * 7)  # groups stay whole where blocks are small
    np.testing.assert_array_equal(RidgePath(X, codes, len(classes)).predict_left_out(ALPHAS, groups), whole)


def test_the_penalty_is_the_one_with_the_best_macro_f1_left_out(digits):
    X, y = digits[0][:80], digits[1][:80]
    probe = RidgeProbe(alphas=ALPHAS).fit(X, y)
    theirs = [
        f1_score(
            y, cross_val_predict(RidgeClassifier(alpha=a, solver="svd"), X, y, cv=LeaveOneOut()), average="macro"
        )
        for a in ALPHAS
    ]
    np.testing.assert_allclose(probe.macro_f1_, theirs, rtol=1e-12)
    assert probe.alpha_ == ALPHAS[int(np.argmax(theirs))]


def test_a_validation_part_chooses_instead(digits):
    X, y = digits
    probe = RidgeProbe(alphas=ALPHAS).fit(X[:300], y[:300], validation=(X[300:], y[300:]))
    theirs = [
        f1_score(y[300:], RidgeClassifier(alpha=a).fit(X[:300], y[:300]).predict(X[300:]), average="macro")
        for a in ALPHAS
    ]
    np.testing.assert_allclose(probe.macro_f1_, theirs, rtol=1e-12)
    assert probe.alpha_ == ALPHAS[int(np.argmax(theirs))]


def test_of_equally_good_penalties_the_largest_is_taken():
    X = np.array([[-2.0], [-1.9], [1.9], [2.0]])
    assert RidgeProbe(alphas=[1.0, 0.1, 0.5]).fit(X, [0, 0, 1, 1]).alpha_ == 1.0


def test_copies_left_out_one_by_one_flatter_and_as_a_group_do_not():
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(100, 300)), 2, axis=0), np.repeat(rng.integers(0, 2, 100), 2)
    alone = RidgeProbe(alphas=[1.0]).fit(X, y).macro_f1_[0]
    together = RidgeProbe(alphas=[1.0]).fit(X, y, groups=np.repeat(np.arange(100), 2)).macro_f1_[0]
    assert alone > 0.95  # labels are coin throws
    assert 0.3 < together < 0.7


def test_wrong_penalties_and_a_single_group_are_refused(digits):
    X, y = digits
    with pytest.raises(ValueError, match="positive"):
        RidgeProbe(alphas=[0.0, 1.0]).fit(X, y)
    with pytest.raises(ValueError, match="one group"):
        RidgeProbe().fit(X, y, groups=np.zeros(len(y)))
    with pytest.raises(ValueError, match="of one class"):
        RidgeProbe().fit(X, np.zeros(len(y)))
