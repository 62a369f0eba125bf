"""Labels of any type as numbers 0..K-1 and back, and how well such numbers are predicted."""

import numpy as np
from jaxtyping import Int, Shaped
from sklearn.metrics import f1_score
from sklearn.utils.multiclass import check_classification_targets


def encode_labels(
    y: Shaped[np.ndarray, " n"], least: int = 1
) -> tuple[Shaped[np.ndarray, " k"], Int[np.ndarray, " n"]]:
    """Return the classes that occur, sorted, and the place of each label among them.

    Raises:
        ValueError: The labels are no classes (real numbers, several columns), or there are fewer than `least`.
    """
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < least:
        raise ValueError(f"All {len(y)} training examples are of one class, {classes[0]!r}; give two or more.")
    return classes, codes


def macro_f1(codes: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], n_classes: int) -> float:
    """Return the mean over classes 0..n_classes-1 of 2 tp / (given + predicted), 0 where that is 0 / 0."""
    return float(f1_score(codes, predicted, labels=np.arange(n_classes), average="macro", zero_division=0))
