"""NeuCo-Bench's splits: independent random 90/10 splits, the same for every submission with the same samples."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from agml_assets.compression.compatible.config import SEED

TEST_SHARE = 0.1


@dataclass(frozen=True)
class Splits:
    """Rows of each fold. Test splits of different folds overlap; they are no partition.

    Attributes:
        train: Rows trained on, floor(0.9 n) of each fold.
        test: Rows scored, ceil(0.1 n) of each fold.
    """

    train: Int64[np.ndarray, "f m"]
    test: Int64[np.ndarray, "f t"]


def draw_splits(n: int, k_folds: int) -> Splits:
    """Return scikit-learn's `ShuffleSplit(k_folds, test_size=0.1, random_state=42)` of n rows.

    Args:
        n: Rows, 2 or more; only their number and order matter.
        k_folds: Folds.
    """
    from sklearn.model_selection import ShuffleSplit

    drawn = list(ShuffleSplit(n_splits=k_folds, test_size=TEST_SHARE, random_state=SEED).split(np.empty((n, 0))))
    return Splits(
        np.stack([train for train, _ in drawn]).astype(np.int64),
        np.stack([test for _, test in drawn]).astype(np.int64),
    )
