"""Scores against scikit-learn and tables worked out by hand."""

import numpy as np
import pytest
from sklearn import metrics

from agml_assets.errors import UserError
from agml_assets.evaluation.scores import (
    ACCURACY,
    ALL_TRAITS,
    BALANCED_ACCURACY,
    MACRO_F1,
    TRAIT_MACRO_F1,
    macro_f1_score,
    published_macro_f1,
    user_loss_score,
)


@pytest.fixture(params=[(40, 3), (500, 12), (2000, 100)], ids=str)
def labels(request):
    n, k = request.param
    rng = np.random.default_rng(n)
    true = rng.zipf(1.5, n) % k
    return true, np.where(rng.random(n) < 0.6, true, rng.integers(0, k + 2, n))


def test_macro_f1_is_scikit_learns_over_the_classes_of_the_truth(labels):
    true, predicted = labels
    expected = metrics.f1_score(true, predicted, labels=np.unique(true), average="macro", zero_division=0)
    assert MACRO_F1(true, predicted) == pytest.approx(expected, abs=1e-12)


def test_a_declared_class_without_test_examples_counts_as_scikit_learns_labels_do(labels):
    true, predicted = labels
    declared = [0, 1, 2, 500]
    expected = metrics.f1_score(
        true, predicted, labels=np.union1d(true, declared), average="macro", zero_division=0
    )
    assert macro_f1_score(declared)(true, predicted) == pytest.approx(expected, abs=1e-12)


def test_balanced_accuracy_and_accuracy_are_scikit_learns(labels):
    true, predicted = labels
    assert BALANCED_ACCURACY(true, predicted) == pytest.approx(
        metrics.recall_score(true, predicted, labels=np.unique(true), average="macro", zero_division=0), abs=1e-12
    )
    assert ACCURACY(true, predicted) == pytest.approx(metrics.accuracy_score(true, predicted), abs=1e-12)


def test_balanced_accuracy_is_balanced_accuracy_score():
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 5, 300), rng.integers(0, 5, 300)
    assert BALANCED_ACCURACY(true, predicted) == pytest.approx(metrics.balanced_accuracy_score(true, predicted))


def test_the_published_macro_f1_counts_every_id_up_to_the_largest_seen(labels):
    true, predicted = labels
    last = max(true.max(), predicted.max())
    expected = metrics.f1_score(true, predicted, labels=range(last + 1), average="macro", zero_division=0)
    assert published_macro_f1(true, predicted) == pytest.approx(expected, abs=1e-12)


def test_a_gap_in_the_numbering_lowers_the_published_macro_f1_alone():
    true = np.array([0, 0, 4, 4])
    assert MACRO_F1(true, true) == 1
    assert published_macro_f1(true, true) == pytest.approx(2 / 5)


def test_a_class_that_is_only_predicted_is_a_miss_and_no_class():
    # Class 0: TP 1, FN 1, FP 0: 2 / 3. Class 1: 1.
    assert MACRO_F1(np.array([0, 0, 1]), np.array([0, 7, 1])) == pytest.approx((2 / 3 + 1) / 2)


def test_fishnets_score_is_the_mean_over_nine_traits_of_scikit_learns_macro_f1():
    rng = np.random.default_rng(1)
    true = (rng.random((400, 9)) < np.linspace(0.02, 0.9, 9)).astype(int)
    predicted = np.where(rng.random(true.shape) < 0.8, true, 1 - true)
    expected = np.mean(
        [
            metrics.f1_score(true[:, trait], predicted[:, trait], labels=[0, 1], average="macro", zero_division=0)
            for trait in range(9)
        ]
    )
    assert TRAIT_MACRO_F1(true, predicted) == pytest.approx(expected, abs=1e-12)


def test_every_trait_counts_in_fishnets_score():
    true = np.tile([[0], [1]], (10, 9))
    for trait in range(9):
        predicted = true.copy()
        predicted[:, trait] = 1 - predicted[:, trait]
        assert TRAIT_MACRO_F1(true, predicted) == pytest.approx(8 / 9)


def test_all_traits_correct_is_scikit_learns_subset_accuracy():
    rng = np.random.default_rng(2)
    true = rng.integers(0, 2, (200, 9))
    predicted = np.where(rng.random(true.shape) < 0.9, true, 1 - true)
    assert ALL_TRAITS(true, predicted) == pytest.approx(metrics.accuracy_score(true, predicted))


def test_a_truth_that_is_not_nine_traits_is_named():
    with pytest.raises(UserError, match="9 traits"):
        TRAIT_MACRO_F1(np.zeros((4, 8), int), np.zeros((4, 8), int))


# Truth, prediction, cost of naming, cost of poisoning, worst cost; poisonous are 3 and 4.
COSTS = [
    (1, 1, 0, 0, 2),
    (1, 2, 1, 0, 2),
    (1, -1, 0.1, 0, 2),
    (1, 3, 1, 1, 2),
    (-1, -1, 0, 0, 11),
    (-1, 1, 10, 0, 11),
    (-1, 4, 10, 1, 11),
    (3, 3, 0, 0, 101),
    (3, 4, 1, 0, 101),
    (3, 1, 1, 100, 101),
    (4, -1, 0.1, 100, 101),
]


@pytest.mark.parametrize("row", COSTS)
def test_the_user_loss_of_one_example_is_the_tables(row):
    true, predicted, naming, poisoning, worst = row
    score = user_loss_score({3, 4})(np.array([true]), np.array([predicted]))
    assert score == pytest.approx(1 - (naming + poisoning) / worst)


def test_the_user_loss_is_the_challenges_formula():
    table = np.array(COSTS)
    n, unknown, poisonous = len(COSTS), 3, 4
    loss = table[:, 2].sum() / n + table[:, 3].sum() / n
    worst = 9 * unknown / n + 1 + (100 * poisonous + (n - poisonous)) / n
    true, predicted = table[:, 0].astype(int), table[:, 1].astype(int)
    assert user_loss_score([3, 4])(true, predicted) == pytest.approx(1 - loss / worst, abs=1e-12)


def test_the_user_loss_reaches_0_and_1():
    true = np.array([1, -1, 3])
    assert user_loss_score([3])(true, true) == 1
    assert user_loss_score([3])(true, np.array([3, 3, 1])) == 0


@pytest.mark.parametrize(
    ("true", "predicted", "words"),
    [
        (np.arange(3), np.arange(4), "one for each test example"),
        (np.zeros(0, int), np.zeros(0, int), "nothing to score"),
        (np.arange(3), np.array([0.1, 0.9, 2]), "no integers"),
    ],
)
def test_predictions_that_do_not_fit_the_truth_are_named(true, predicted, words):
    with pytest.raises(UserError, match=words):
        MACRO_F1(true, predicted)


def test_the_published_macro_f1_knows_no_unknown_class():
    with pytest.raises(UserError, match="negative"):
        published_macro_f1(np.array([0, -1]), np.array([0, 1]))


def test_an_unknown_species_cannot_be_poisonous():
    with pytest.raises(UserError, match="known species only"):
        user_loss_score([-1, 3])
