"""SimpleShot and its open-set detector: scikit-learn's centroids, covariance and distances; labels of any kind."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from agml_assets.evaluation.probes.open_set import OpenSetDetector
from agml_assets.evaluation.probes.simple_shot import SimpleShot


@pytest.fixture
def reference(digits):
    """scikit-learn's discriminant analysis, and the distances by SciPy, of the digits 10..14."""
    X, y = digits
    known = y < 15
    analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(X[known], y[known])
    inverse = np.linalg.inv(analysis.covariance_)
    return analysis, cdist(X, analysis.means_, "mahalanobis", VI=inverse).min(axis=1) ** 2


def test_simple_shot_is_the_nearest_centroid_of_centred_unit_vectors(digits):
    X, y = digits
    theirs = make_pipeline(StandardScaler(with_std=False), Normalizer(), NearestCentroid()).fit(X[:300], y[:300])
    ours = SimpleShot().fit(X[:300], y[:300])
    np.testing.assert_allclose(ours.centroids_, theirs[-1].centroids_, atol=1e-12)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("names", [[3, 7, 40], ["oak", "elm", "ash"]])
def test_simple_shot_answers_with_labels_not_their_places(names):
    X = np.array([[0.0, 5.0], [5.0, 0.0], [-5.0, -5.0]])
    assert SimpleShot().fit(X, names).predict(X).tolist() == names


def test_means_covariance_and_distances_are_those_of_discriminant_analysis(digits, reference):
    X, y = digits
    analysis, distances = reference
    ours = OpenSetDetector().fit(X[y < 15], y[y < 15])
    np.testing.assert_allclose(ours.means_, analysis.means_, rtol=1e-12)
    np.testing.assert_allclose(ours.covariance_, analysis.covariance_, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(ours.mahalanobis(X), distances, rtol=1e-8)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3])
def test_alpha_is_the_share_of_training_examples_above_the_threshold(digits, reference, alpha):
    X, y = digits
    known = y < 15
    ours = OpenSetDetector(alpha=alpha).fit(X[known], y[known])
    assert ours.threshold_ == pytest.approx(np.quantile(reference[1][known], 1 - alpha), rel=1e-8)
    assert np.mean(ours.predict(X[known]) == -1) == pytest.approx(alpha, abs=1 / known.sum())


def test_unknown_digits_are_found_and_known_ones_classified(digits):
    X, y = digits
    train = (y < 15) & (np.arange(len(y)) < 400)
    ours = OpenSetDetector().fit(X[train], y[train])
    assert ours.unknown_label_ == -1
    predicted = ours.predict(X[400:])
    assert np.mean(predicted[y[400:] >= 15] == -1) > 0.8
    recognised = (y[400:] < 15) & (predicted != -1)
    np.testing.assert_array_equal(
        predicted[recognised], SimpleShot().fit(X[train], y[train]).predict(X[400:][recognised])
    )


def test_another_classifier_can_stand_in_for_simple_shot(digits):
    X, y = digits
    neighbors = KNeighborsClassifier(1)
    ours = OpenSetDetector(neighbors, alpha=0).fit(X, y)
    np.testing.assert_array_equal(ours.predict(X), y)
    assert not hasattr(neighbors, "classes_")  # what the caller gave is left as it was


@pytest.mark.parametrize(
    ("labels", "unknown"), [([0, 1], -1), ([-1, 1], -2), (["oak", "elm"], "unknown"), ([False, True], -1)]
)
def test_the_unknown_label_is_of_the_kind_of_the_labels_and_none_of_them(labels, unknown):
    rng = np.random.default_rng(0)
    X, y = np.r_[rng.normal(0, 1, (20, 2)), rng.normal(9, 1, (20, 2))], np.repeat(labels, 20)
    ours = OpenSetDetector().fit(X, y)
    assert ours.predict([[99.0, -99.0]]).tolist() == [unknown]
    assert ours.unknown_label_ not in labels


def test_a_feature_that_never_varies_is_no_obstacle(digits):
    X, y = digits
    with_dead = np.c_[X, np.zeros(len(X))]
    ours = OpenSetDetector().fit(with_dead, y)
    assert np.isfinite(ours.mahalanobis(with_dead)).all()


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="two different examples"):
        OpenSetDetector().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="alpha"):
        OpenSetDetector(alpha=1.0).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="rename"):
        OpenSetDetector().fit([[0.0], [1.0]], ["unknown", "oak"])
