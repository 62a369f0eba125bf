"""Models whose true scores are known: how they take each class for each is fixed, test sets are drawn anew."""

import numpy as np

from agml_assets.evaluation.resamples import Predictions


def prior(n_classes, zipf=False):
    """Return the share of each class."""
    shares = 1 / np.arange(1, n_classes + 1) if zipf else np.ones(n_classes)
    return shares / shares.sum()


def confusion(n_classes, recall):
    """Return how often each class is taken for each; errors go to all classes alike."""
    return recall * np.eye(n_classes) + (1 - recall) / n_classes


def draw(rng, task, score, n, n_models, shares, recalls, shared=0.5):
    """Return predictions of models that agree by more than chance.

    Args:
        recalls: Of each model: probability to know the class; otherwise it guesses any.
        shared: Probability that models see the same difficulty and guess in an example.
    """
    n_classes = len(shares)
    true = rng.choice(n_classes, n, p=shares)
    difficulty, guess = rng.random(n), rng.integers(0, n_classes, n)
    predicted = {}
    for number, recall in zip(range(n_models), recalls, strict=True):
        common = rng.random(n) < shared
        own = np.where(common, difficulty, rng.random(n))
        guessed = np.where(common, guess, rng.integers(0, n_classes, n))
        predicted[f"model{number}"] = np.where(own < recall, true, guessed)
    return Predictions(task, score, true, predicted)
