"""Macro-F1 of many models in the same resamples of the test examples against scikit-learn's metric in a loop.

The loop takes minutes: it is timed for a few of the resamples, all models, and its seconds are scaled up.
Memory is that of a child process that does our way alone, interpreter and libraries with it.
"""

import datetime
import sys
from pathlib import Path
from statistics import median

import numpy as np
from measure import markdown_row, run_child, timed
from sklearn.metrics import f1_score

from agml_assets.evaluation.resamples import Bootstrap, Predictions, bootstrap
from agml_assets.evaluation.scores import MACRO_F1

MODELS, EXAMPLES, CLASSES, RESAMPLES = 50, 10_000, 100, 1000
LOOPED = 4
REPEATS = 3
AT_LEAST = 150
MOST_SECONDS, MOST_BYTES = 5, 2e9
TOLERANCE = 1e-9


def make_predictions() -> Predictions:
    """Return predictions of models that are right in 55 to 95 % of the examples."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, CLASSES, EXAMPLES)
    predicted = {
        f"model {number}": np.where(rng.random(EXAMPLES) < right, true, rng.integers(0, CLASSES, EXAMPLES))
        for number, right in enumerate(np.linspace(0.55, 0.95, MODELS))
    }
    return Predictions("bench", MACRO_F1, true, predicted)


def ours(predictions: Predictions) -> Bootstrap:
    """Score all models in all resamples."""
    return bootstrap(predictions, RESAMPLES)


def loop(predictions: Predictions, counts: np.ndarray) -> np.ndarray:
    """Score all models, one after the other, in some resamples."""
    values = []
    for count in counts:
        drawn = np.repeat(np.arange(EXAMPLES), count)
        true = predictions.true[drawn]
        values.append([f1_score(true, one[drawn], average="macro") for one in predictions.predicted.values()])
    return np.array(values)


def main() -> None:
    """Measure and print."""
    predictions = make_predictions()
    found, seconds = zip(*(timed(lambda: ours(predictions)) for _ in range(REPEATS)), strict=True)
    fast = median(seconds)
    counts = next(iter(found[0].resamples.counts()))[:LOOPED].astype(int)
    values, looped = timed(lambda: loop(predictions, counts))
    slow = looped * RESAMPLES / LOOPED
    difference = float(np.abs(found[0].replicates[:LOOPED] - values).max())
    if difference > TOLERANCE:
        raise SystemExit(f"macro-F1 differs by {difference}")
    peak = run_child([__file__, "--ours"]).peak_anonymous_bytes
    cells = (
        f"paired bootstrap of macro-F1, {MODELS} models, {RESAMPLES:,} resamples, n = {EXAMPLES:,}, K = {CLASSES}",
        f"scikit-learn `f1_score` in a loop; {LOOPED} of the resamples timed and scaled up",
        f"{slow:.3g}",
        f"{fast:.3g}",
        f"**{slow / fast:.0f}x**",
        f"{AT_LEAST}x",
        f"within {difference:.0e} in the {LOOPED} resamples; ours peaks at {peak / 1e6:.0f} MB",
        f"1 and {REPEATS}",
        datetime.datetime.now(datetime.UTC).date().isoformat(),
        f"`{Path(sys.argv[0]).name}`",
    )
    print(markdown_row(cells))
    if fast > MOST_SECONDS or peak > MOST_BYTES:
        raise SystemExit(f"{fast:.1f} s and {peak / 1e6:.0f} MB; {MOST_SECONDS} s and 2 GB are allowed")


if __name__ == "__main__":
    if sys.argv[1:] == ["--ours"]:
        ours(make_predictions())
    else:
        main()
