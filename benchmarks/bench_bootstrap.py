"""Bootstrap of macro-F1 by sums over images against scikit-learn's metric in a loop, on the same resamples."""

import numpy as np
from measure import compare
from sklearn.metrics import f1_score

from agml_assets.quality.intervals import RESAMPLES, Resamples, class_counts, macro_f1

IMAGES, CLASSES = 10_000, 100
SEED = 42  # of the resamples of `Resamples`, so that both ways see the same ones
AT_LEAST = 25
TOLERANCE = 1e-9


def loop(true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Draw, and compute macro-F1, once for each resample."""
    rng = np.random.default_rng(SEED)
    values = []
    for _ in range(RESAMPLES):
        drawn = rng.integers(len(true), size=len(true))
        values.append(f1_score(true[drawn], predicted[drawn], average="macro"))
    return np.array(values)


def ours(true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Compute macro-F1 of all resamples, every image a group of its own."""
    rows = np.arange(len(true))
    return macro_f1(Resamples(rows).sums(rows, class_counts(true, predicted)))


def agree(obvious: np.ndarray, mine: np.ndarray) -> str:
    """Compare the figure in every resample."""
    difference = float(np.abs(obvious - mine).max())
    if difference > TOLERANCE:
        raise SystemExit(f"macro-F1 differs by {difference}")
    return f"within {difference:.0e} in every resample"


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, CLASSES, IMAGES)
    predicted = np.where(rng.random(IMAGES) < 0.85, true, rng.integers(0, CLASSES, IMAGES))
    print(
        compare(
            work=f"bootstrap of macro-F1, {RESAMPLES:,} resamples, n = {IMAGES:,}, K = {CLASSES}",
            obvious_way="scikit-learn `f1_score` in a loop",
            obvious=lambda: loop(true, predicted),
            ours=lambda: ours(true, predicted),
            agree=agree,
            at_least=AT_LEAST,
        )
    )


if __name__ == "__main__":
    main()
