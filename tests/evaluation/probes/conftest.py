import numpy as np
import pytest
from sklearn.datasets import load_digits


@pytest.fixture(scope="session")
def digits():
    """600 of scikit-learn's handwritten digits, jittered so that no two distances are the same; labels 10..19."""
    X, y = load_digits(return_X_y=True)
    return X[:600] + np.random.default_rng(0).normal(0, 0.01, (600, 64)), y[:600] + 10
