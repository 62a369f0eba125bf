"""Splits: against scikit-learn."""

import numpy as np
import pytest
from sklearn.model_selection import ShuffleSplit

from agml_assets.compression.compatible.splits import draw_splits


@pytest.mark.parametrize(("n", "folds"), [(2, 3), (10, 40), (11, 5), (137, 40), (1999, 2)])
def test_splits_are_those_of_scikit_learns_shuffle_split(n, folds):
    found = draw_splits(n, folds)
    wanted = ShuffleSplit(n_splits=folds, test_size=0.1, random_state=42).split(np.zeros((n, 3)))
    for train, test, (wanted_train, wanted_test) in zip(found.train, found.test, wanted, strict=True):
        np.testing.assert_array_equal(train, wanted_train)
        np.testing.assert_array_equal(test, wanted_test)
    assert found.test.shape == (folds, -(-n // 10))
