"""Scores in resamples against scikit-learn on the same resamples, and what must hold of shared draws."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from agml_assets.errors import UserError
from agml_assets.evaluation.resamples import Predictions, bootstrap, count_resamples
from agml_assets.evaluation.scores import (
    ACCURACY,
    BALANCED_ACCURACY,
    MACRO_F1,
    TRAIT_MACRO_F1,
    user_loss_score,
)
from tests.evaluation.simulated import draw, prior


def simulated(score, groups=None, n=120):
    found = draw(np.random.default_rng(3), "bees", score, n, 3, prior(6, zipf=True), [0.5, 0.7, 0.9])
    return Predictions("bees", score, found.true, found.predicted, groups)


def drawn_rows(found):
    """Rows of each resample, each as often as it was drawn."""
    counts = np.concatenate(list(found.resamples.counts())).astype(int)
    dense = np.unique(found.resamples.joined, return_inverse=True)[1]
    return [np.repeat(np.arange(len(dense)), count[dense]) for count in counts]


@pytest.mark.parametrize("groups", [None, np.arange(120) // 4 * 7], ids=["alone", "in groups"])
@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (ACCURACY, accuracy_score),
        (MACRO_F1, lambda t, p: f1_score(t, p, labels=np.unique(t), average="macro", zero_division=0)),
        (BALANCED_ACCURACY, balanced_accuracy_score),
    ],
    ids=["accuracy", "macro-F1", "balanced accuracy"],
)
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_every_score_in_every_resample_is_scikit_learns(score, expected, groups):
    predictions = simulated(score, groups)
    found = bootstrap(predictions, 40)
    for number, rows in enumerate(drawn_rows(found)):
        for place, model in enumerate(found.models):
            value = expected(predictions.true[rows], predictions.predicted[model][rows])
            assert found.replicates[number, place] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("score", [user_loss_score([1, 3]), TRAIT_MACRO_F1], ids=["user loss", "traits"])
def test_domain_scores_of_a_resample_are_those_of_its_examples(score):
    rng = np.random.default_rng(4)
    shape = (90, 9) if score is TRAIT_MACRO_F1 else 90
    low, high = (0, 2) if score is TRAIT_MACRO_F1 else (-1, 5)
    predictions = Predictions("t", score, rng.integers(low, high, shape), {"a": rng.integers(low, high, shape)})
    found = bootstrap(predictions, 30)
    values = [score(predictions.true[rows], predictions.predicted["a"][rows]) for rows in drawn_rows(found)]
    assert found.replicates[:, 0] == pytest.approx(values, abs=1e-12)


def test_points_are_the_scores_of_all_examples():
    predictions = simulated(MACRO_F1)
    found = bootstrap(predictions, 20)
    assert found.points == pytest.approx([MACRO_F1(predictions.true, p) for p in predictions.predicted.values()])


def test_a_model_has_the_same_replicates_whoever_stands_beside_it():
    predictions = simulated(MACRO_F1)
    alone = Predictions(
        "bees", MACRO_F1, predictions.true, {"model1": predictions.predicted["model1"]}, predictions.groups
    )
    both = bootstrap(predictions, 60).replicates[:, 1]
    assert np.array_equal(bootstrap(alone, 60).replicates[:, 0], both)


def test_resamples_are_the_same_at_every_call_and_others_for_another_task():
    predictions = simulated(ACCURACY)
    other = Predictions("wasps", ACCURACY, predictions.true, predictions.predicted)
    first, again = bootstrap(predictions, 2000), bootstrap(predictions, 2000)
    assert np.array_equal(first.replicates, again.replicates)
    pair = first.replicates[:, 0], bootstrap(other, 2000).replicates[:, 0]
    assert abs(np.corrcoef(*pair)[0, 1]) < 0.1


def test_enough_resamples_are_drawn_for_holms_strictest_level():
    for n_models in (1, 2, 30, 85, 300):
        assert 1 / (count_resamples(n_models) + 1) <= 0.05 / n_models
    assert count_resamples(2) == 1000


def test_predictions_are_checked_and_the_model_named():
    true = np.arange(5)
    with pytest.raises(UserError, match="Task bees: model b has predictions of shape"):
        Predictions("bees", ACCURACY, true, {"a": true, "b": np.arange(4)})
    with pytest.raises(UserError, match="no model"):
        Predictions("bees", ACCURACY, true, {})
    with pytest.raises(UserError, match="4 group ids"):
        Predictions("bees", ACCURACY, true, {"a": true}, np.arange(4))
