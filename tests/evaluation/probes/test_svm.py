"""The linear support vector machine is scikit-learn's, behind NeWT's three steps."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC

from agml_assets.evaluation.probes.svm import LinearSvm


@pytest.mark.parametrize("n_classes", [2, 10])
def test_answers_are_those_of_the_pipeline(digits, n_classes):
    X, y = digits
    X, y = X[y < 10 + n_classes], np.array([f"digit {label}" for label in y[y < 10 + n_classes]])
    theirs = make_pipeline(Normalizer(), StandardScaler(with_std=False), Normalizer(), SVC(kernel="linear", C=1.0))
    theirs.fit(X[::2], y[::2])
    ours = LinearSvm().fit(X[::2], y[::2])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-12)


def test_the_mean_is_that_of_the_training_vectors_alone(digits):
    X, y = digits
    ours = LinearSvm().fit(X[:300], y[:300])
    np.testing.assert_array_equal(ours.predict(X)[300:], ours.predict(X[300:]))
