"""Exact logistic regression: scikit-learn's converged classifier on every fold, penalties by nested validation."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from agml_assets.compression.exact import logistic
from agml_assets.compression.exact.folds import make_folds
from agml_assets.compression.exact.logistic import predict_out_of_fold

PENALTIES = [1e-3, 1e-2, 0.1, 1.0]


def data(n, d, n_classes):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    value = features[:, :2] @ rng.normal(size=2) / 5 + rng.normal(size=n)
    codes = np.digitize(value, np.quantile(value, np.linspace(0, 1, n_classes + 1)[1:-1] + 0.1))
    return features, codes, make_folds([str(one) for one in range(n)], 1, 5, 0, codes)


def theirs(penalty, n):
    regression = LogisticRegression(
        C=1 / (penalty * n), class_weight="balanced", solver="newton-cg", tol=1e-10, max_iter=10_000
    )
    return make_pipeline(StandardScaler(), regression)


CASES = pytest.mark.parametrize(("n", "d", "n_classes"), [(200, 15, 2), (200, 15, 3), (70, 100, 2), (70, 100, 4)])


@CASES
def test_probabilities_and_classes_are_those_of_scikit_learn_at_its_optimum(n, d, n_classes):
    features, codes, folds = data(n, d, n_classes)
    ours = predict_out_of_fold(features, codes, n_classes, folds, PENALTIES)
    problem = logistic._Problem(features, codes, n_classes)
    inside = np.stack([folds[0] != fold for fold in range(5)])
    models = logistic._Models(problem, inside, np.float64)
    logits = models.logits(models.fit(ours.penalties[0], logistic.TOLERANCE, None))
    for fold in range(5):
        model = theirs(ours.penalties[0, fold], inside[fold].sum()).fit(
            features[inside[fold]], codes[inside[fold]]
        )
        out = ~inside[fold]
        np.testing.assert_array_equal(ours.predicted[0, out], model.predict(features[out]))
        own = logits[out, fold]
        own = np.c_[np.zeros(len(own)), own] if n_classes == 2 else own
        own = own - np.log(np.exp(own).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(own, model.predict_log_proba(features[out]), atol=2e-6)


@CASES
def test_the_penalty_is_the_one_that_folds_inside_the_training_part_favour(n, d, n_classes):
    features, codes, folds = data(n, d, n_classes)
    ours = predict_out_of_fold(features, codes, n_classes, folds, PENALTIES)
    for outer in range(5):
        losses = np.zeros(len(PENALTIES))
        counts = np.bincount(codes[folds[0] != outer], minlength=n_classes)
        for inner in set(range(5)) - {outer}:
            inside, out = (folds[0] != outer) & (folds[0] != inner), folds[0] == inner
            for place, penalty in enumerate(PENALTIES):
                model = theirs(penalty, inside.sum()).fit(features[inside], codes[inside])
                losses[place] += log_loss(
                    codes[out],
                    model.predict_proba(features[out]),
                    labels=range(n_classes),
                    sample_weight=1 / counts[codes[out]],
                    normalize=False,
                )
        assert ours.penalties[0, outer] == PENALTIES[int(losses.argmin())]


@pytest.mark.parametrize(("folds", "partners"), [(3, 2), (4, 3), (5, 4), (6, 4), (10, 4)])
def test_a_fold_chooses_its_penalty_on_the_two_before_and_behind_or_on_all_that_there_are(folds, partners):
    pairs = logistic._neighbours(folds)
    assert len(set(pairs)) == len(pairs)
    for fold in range(folds):
        near = {(fold + step) % folds for step in (-2, -1, 1, 2)} - {fold}
        assert {one for pair in pairs if fold in pair for one in pair} - {fold} == near
        assert len(near) == partners


def test_classes_that_no_line_can_divide_wrongly_are_fitted_as_well():
    features = np.r_[np.full((40, 1), -1.0), np.full((40, 1), 1.0)] + 0.01 * np.arange(80)[:, None] / 80
    codes = np.repeat([0, 1], 40)
    folds = make_folds([str(one) for one in range(80)], 1, 5, 0, codes)
    assert (predict_out_of_fold(features, codes, 2, folds).predicted == codes).all()


def test_classes_missing_outside_of_two_folds_are_refused():
    folds = np.array([[0, 0, 1, 1, 2, 2]])
    codes = np.array([1, 0, 1, 0, 0, 0])
    assert logistic.lacks_class(codes, 2, folds)
    assert not logistic.lacks_class(np.array([1, 0, 1, 0, 0, 1]), 2, folds)
    with pytest.raises(ValueError, match="no example of a class"):
        predict_out_of_fold(np.zeros((6, 1)), codes, 2, folds)
