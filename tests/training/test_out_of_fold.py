import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from agml_assets.errors import UserError
from agml_assets.training.out_of_fold import CrossFittedRegression, out_of_fold, stratified_folds


def digits():
    x, y = load_digits(return_X_y=True)
    return (x[:600] / 16).astype(np.float32), y[:600]


def wine():
    x, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(x).astype(np.float32), y


def two_classes():
    x, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(x).astype(np.float32), y


def wide(n=60, dimension=200, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    x = rng.normal(size=(n, dimension)) + rng.normal(size=(n_classes, dimension))[labels]
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


def converged(x, y):
    return LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(x.astype(np.float64), y)


def objective(weights, intercept, x, y):
    """Mean cross-entropy plus the penalty, as scikit-learn documents it; one weight vector for two classes."""
    logits = x.astype(np.float64) @ weights.T + intercept
    if len(weights) == 1:
        logits = np.hstack([np.zeros_like(logits), logits])
    logits -= logits.max(axis=1, keepdims=True)
    log_likelihood = logits[np.arange(len(y)), y] - np.log(np.exp(logits).sum(axis=1))
    return -log_likelihood.mean() + 0.5 * (weights**2).sum() / len(y)


def weights_from_probabilities(x, y, n_classes):
    """Read a model's weights off its predictions at the origin and at the unit vectors, left out as one fold."""
    probes = np.vstack([np.zeros(x.shape[1]), np.eye(x.shape[1])]).astype(np.float32)
    p = out_of_fold(
        np.vstack([x, probes]),
        np.append(y, np.zeros(len(probes), dtype=int)),
        np.repeat([0, 1], [len(x), len(probes)]),
        n_classes,
    )[len(x) :]
    logits = np.log(p.astype(np.float64))
    if n_classes == 2:
        logits = logits[:, 1:] - logits[:, :1]
    else:
        logits -= logits.mean(axis=1, keepdims=True)
    return (logits[1:] - logits[0]).T, logits[0]


@pytest.mark.parametrize("dataset", [digits, wine, two_classes, wide])
def test_probabilities_are_those_of_scikit_learn_run_to_convergence(dataset):
    x, y = dataset()
    folds = stratified_folds(y, 3)
    ours = out_of_fold(x, y, folds, y.max() + 1)
    for fold in range(3):
        model = converged(x[folds != fold], y[folds != fold])
        theirs = model.predict_proba(x[folds == fold].astype(np.float64))
        assert np.abs(ours[folds == fold] - theirs).max() < 1e-4
    assert ours.dtype == np.float32
    assert np.abs(ours.sum(axis=1) - 1).max() < 1e-6


@pytest.mark.parametrize("dataset", [digits, wine, two_classes, wide])
def test_the_objective_is_that_of_scikit_learn_run_to_convergence(dataset):
    x, y = dataset()
    model = converged(x, y)
    theirs = objective(model.coef_, model.intercept_, x, y)
    ours = objective(*weights_from_probabilities(x, y, y.max() + 1), x, y)
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")  # theirs, not ours
def test_features_of_very_different_scale_reach_an_objective_at_least_as_good():
    x, y = load_wine(return_X_y=True)  # variances from 0.01 to 100,000
    x = x.astype(np.float32)
    model = converged(x, y)
    ours = objective(*weights_from_probabilities(x, y, 3), x, y)
    assert ours <= objective(model.coef_, model.intercept_, x, y) * (1 + 1e-6)


def test_labellings_fitted_side_by_side_are_those_fitted_alone():
    x, y = wine()
    folds = stratified_folds(y, 3)
    rng = np.random.default_rng(0)
    # One without class 2, so that it is binomial beside multinomial ones.
    labellings = np.stack([y, rng.permutation(y), np.where(y == 2, 0, y)])
    regression = CrossFittedRegression(x, folds, 3, "cpu")
    together = regression.fit(labellings)
    warm = regression.fit(labellings, regression.fit(y[None]).weights)
    for given, beside, started in zip(labellings, together.probabilities, warm.probabilities, strict=True):
        alone = out_of_fold(x, given, folds, 3)
        assert np.abs(beside - alone).max() < 1e-4
        assert np.abs(started - alone).max() < 1e-4


def test_declared_classes_without_images_keep_a_column_of_zeros():
    x, y = wine()
    sparse = np.array([1, 4, 5])[y]
    folds = stratified_folds(y, 3)
    probabilities = out_of_fold(x, sparse, folds, 7)
    assert probabilities.shape == (len(y), 7)
    assert not probabilities[:, [0, 2, 3, 6]].any()
    assert np.array_equal(probabilities[:, [1, 4, 5]], out_of_fold(x, y, folds, 3))


def test_a_class_is_exactly_zero_where_it_has_no_image_in_the_other_folds():
    x, y = wine()
    y = y.copy()
    y[10] = 3
    folds = stratified_folds(y, 3)
    probabilities = out_of_fold(x, y, folds, 4)
    own = folds == folds[10]
    assert not probabilities[own, 3].any()
    assert (probabilities[~own, 3] > 0).all()
    model = converged(x[~own], y[~own])
    assert np.abs(probabilities[own, :3] - model.predict_proba(x[own].astype(np.float64))).max() < 1e-4


def test_hopeless_labels_of_a_learnt_class_are_small_but_never_zero():
    # Far beyond what the model was trained on; float32 alone would call it 0, which means never seen.
    x = np.array([[-1.0], [-1], [1], [1], [-1e5], [1e5]])
    y = np.array([0, 0, 1, 1, 1, 0])
    probabilities = out_of_fold(x, y, np.array([0, 0, 0, 0, 1, 1]), 2)
    assert (probabilities[[4, 5], [1, 0]] > 0).all()
    assert (probabilities[[4, 5], [1, 0]] < 1e-30).all()


def test_the_only_class_in_the_other_folds_is_certain():
    x = np.random.default_rng(0).normal(size=(6, 4))
    y = np.array([0, 0, 0, 1, 1, 1])
    probabilities = out_of_fold(x, y, y, 2)
    assert probabilities.tolist() == [[0, 1]] * 3 + [[1, 0]] * 3


def test_without_other_folds_the_class_shares_stand_in():
    x = np.random.default_rng(0).normal(size=(4, 3))
    probabilities = out_of_fold(x, np.array([0, 0, 0, 2]), np.zeros(4, dtype=int), 3)
    assert probabilities.tolist() == [[0.75, 0, 0.25]] * 4
    assert out_of_fold(x[:1], np.array([1]), np.array([0]), 2).tolist() == [[0, 1]]
    assert out_of_fold(x[:0], np.zeros(0, dtype=int), np.zeros(0, dtype=int), 2).shape == (0, 2)


def test_images_that_are_all_alike_give_the_class_shares_of_the_other_folds():
    y = np.array([0, 0, 0, 1] * 2)
    folds = np.repeat([0, 1], 4)
    assert out_of_fold(np.ones((8, 5)), y, folds, 2) == pytest.approx(np.tile([0.75, 0.25], (8, 1)), abs=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_named(bad):
    x, y = wine()
    x[3, 2] = bad
    x[17, 0] = bad
    with pytest.raises(UserError, match=r"2 of 178 embeddings .* rows \[3, 17\]"):
        out_of_fold(x, y, stratified_folds(y, 3), 3)


def test_labels_beyond_the_declared_classes_are_refused():
    x, y = wine()
    with pytest.raises(ValueError, match="labels run from 0 to 2, with 2 classes"):
        out_of_fold(x, y, stratified_folds(y, 3), 2)


def test_every_fold_is_reported():
    x, y = wine()
    seen = []
    out_of_fold(x, y, stratified_folds(y, 4), 3, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_same_inputs_give_the_same_bytes():
    x, y = digits()
    folds = stratified_folds(y, 3)
    assert out_of_fold(x, y, folds, 10).tobytes() == out_of_fold(x, y, folds, 10).tobytes()


@pytest.mark.parametrize("dataset", [digits, wine])
def test_folds_are_those_of_scikit_learn(dataset):
    x, y = dataset()
    theirs = np.empty_like(y)
    for fold, (_, rows) in enumerate(StratifiedKFold(5, shuffle=True, random_state=42).split(x, y)):
        theirs[rows] = fold
    assert np.array_equal(stratified_folds(y, 5), theirs)


def test_classes_smaller_than_the_number_of_folds_are_spread():
    y = np.array([0] * 20 + [1] * 3 + [2])
    folds = stratified_folds(y, 5)
    assert np.bincount(folds[y == 0]).tolist() == [4] * 5
    assert len(set(folds[y == 1].tolist())) == 3


def test_where_all_classes_are_smaller_the_images_of_each_still_lie_in_different_folds():
    y = np.repeat(np.arange(7), 3)
    folds = stratified_folds(y, 5)
    assert all(len(set(folds[y == label].tolist())) == 3 for label in range(7))
    assert sorted(np.bincount(folds).tolist()) == [4, 4, 4, 4, 5]
    assert stratified_folds(y, 5).tolist() == folds.tolist()


@pytest.mark.parametrize(
    ("labels", "n_folds"), [([], 0), ([3], 1), ([0, 1], 2), ([0, 0, 0], 3), ([2, 2, 0, 1], 4)]
)
def test_fewer_images_than_folds_make_as_many_folds_as_images(labels, n_folds):
    assert sorted(stratified_folds(np.array(labels, dtype=np.int64), 5).tolist()) == list(range(n_folds))
