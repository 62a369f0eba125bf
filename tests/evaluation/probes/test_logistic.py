"""The logistic probe: scikit-learn's optimum at a penalty, and an honest choice of it."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from agml_assets.evaluation.probes.logistic import LogisticProbe
from agml_assets.training.out_of_fold import stratified_folds


def by_scikit_learn(C):
    regression = LogisticRegression(C=C, class_weight="balanced", solver="newton-cg", tol=1e-10)
    return make_pipeline(StandardScaler(), regression)


def uneven(digits, n_classes):
    """Digits of the first classes, with ever fewer of each."""
    X, y = digits
    keep = np.concatenate([np.flatnonzero(y == 10 + c)[: 55 // (c + 1)] for c in range(n_classes)])
    return X[keep], y[keep]


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_probabilities_at_a_penalty_are_those_of_scikit_learn(digits, n_classes, C):
    X, y = uneven(digits, n_classes)
    ours, theirs = LogisticProbe(Cs=[C]).fit(X, y), by_scikit_learn(C).fit(X, y)
    assert ours.C_ == C
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_penalty_is_the_one_with_the_best_macro_f1_over_folds(digits, n_classes):
    X, y = uneven(digits, n_classes)
    X = X + np.random.default_rng(0).normal(0, 20, X.shape)  # so that penalties matter
    Cs = [10.0, 1e-3, 0.1]
    probe = LogisticProbe(Cs=Cs, cv=4, random_state=3).fit(X, y)
    folds = PredefinedSplit(stratified_folds(y - 10, 4, 3))
    theirs = [
        f1_score(y, cross_val_predict(by_scikit_learn(C), X, y, cv=folds), average="macro") for C in sorted(Cs)
    ]
    np.testing.assert_allclose(probe.macro_f1_, theirs, atol=1e-12)
    chosen = sorted(Cs)[int(np.argmax(theirs))]
    assert chosen == probe.C_


def test_copies_never_straddle_folds():
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(100, 200)), 2, axis=0), np.repeat(rng.integers(0, 2, 100), 2)
    Cs = [1.0, 10.0]
    alone = LogisticProbe(Cs=Cs).fit(X, y).macro_f1_
    together = LogisticProbe(Cs=Cs).fit(X, y, groups=np.repeat(np.arange(100), 2)).macro_f1_
    assert alone.min() > 0.8  # labels are coin throws
    assert together.max() < 0.7


def test_a_class_of_one_example_is_no_obstacle(digits):
    X, y = uneven(digits, 3)
    X, y = np.r_[X, digits[0][digits[1] == 19][:1]], np.r_[y, 19]
    probe = LogisticProbe(Cs=[0.01, 1.0]).fit(X, y)
    assert probe.classes_.tolist() == [10, 11, 12, 19]
    np.testing.assert_allclose(
        probe.predict_proba(X), by_scikit_learn(probe.C_).fit(X, y).predict_proba(X), atol=2e-5
    )


def test_one_example_a_class_has_the_default_penalty(digits):
    X, y = digits
    first = [np.flatnonzero(y == c)[0] for c in (10, 11)]
    probe = LogisticProbe(Cs=[0.1, 0.2]).fit(X[first], y[first], groups=[7, 7])
    assert probe.C_ == 1.0
    assert np.isnan(probe.macro_f1_).all()


def test_wrong_parameters_are_refused(digits):
    X, y = digits
    with pytest.raises(ValueError, match="positive"):
        LogisticProbe(Cs=[]).fit(X, y)
    with pytest.raises(ValueError, match="2 folds"):
        LogisticProbe(cv=1).fit(X, y)
