"""How often intervals of exact mode cover, and its tests reject wrongly: the tables of docs/compression_exact.md.

`nice -n 10 python benchmarks/coverage_of_compression.py [cell ...]`: some minutes of one core a cell; all by
default. A latent vector z is normal with independent coordinates; what is to be predicted depends on b'z and
noise. Two compressed embeddings are projections of z to d dimensions, one the other turned about b: they are
different, and exactly as good, since (projection, target) has the same distribution for both. New data are drawn
again and again; each time both are evaluated by `evaluate_exact`, and compared. The truth is the mean, over the
data sets, of the score on 4,000 new examples of models trained on nine tenths of the examples, as those of the
folds are.
"""

import sys
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from agml_assets.compression.exact.evaluate import ExactSettings, ExactTask, TaskResult, evaluate_exact
from agml_assets.compression.exact.uncertainty import corrected_error, p_value

LATENT = 2
"""Times as many dimensions has the latent vector as its projections."""

NEW = 4_000
ALPHA = 0.05


@dataclass(frozen=True)
class Cell:
    """What is simulated: classes 0 are numbers; noise is the share of the target's variance that is noise."""

    classes: int
    n: int
    d: int
    noise: float
    data_sets: int
    group: int = 1


CELLS = (
    Cell(0, 200, 16, 0.3, 1000),
    Cell(0, 200, 128, 0.3, 400),
    Cell(0, 1000, 32, 0.3, 400),
    Cell(0, 1000, 256, 0.3, 100),
    Cell(0, 1000, 32, 0.3, 400, 5),
    Cell(2, 200, 16, 0.3, 400),
    Cell(2, 200, 128, 0.3, 300),
    Cell(2, 1000, 32, 0.3, 200),
    Cell(4, 200, 16, 0.3, 200),
    Cell(4, 1000, 32, 0.3, 100),
)


def turned(signal: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a projection to d dimensions, and the same after a rotation that leaves the signal where it is."""
    size = len(signal)
    rng = np.random.default_rng(7)
    basis = np.linalg.qr(np.c_[signal, rng.standard_normal((size, size - 1))])[0]
    inner = np.eye(size)
    inner[1:, 1:] = np.linalg.qr(rng.standard_normal((size - 1, size - 1)))[0]
    rotation = basis @ inner @ basis.T
    projection = np.eye(size)[:, :d]
    return projection, rotation.T @ projection


def draw(cell: Cell, signal: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return latent vectors and targets of n examples; those of a group share most of both."""
    groups = -(-n // cell.group)

    def normal(*shape: int) -> np.ndarray:
        own = rng.standard_normal((n, *shape))
        if cell.group == 1:
            return own
        shared = np.repeat(rng.standard_normal((groups, *shape)), cell.group, axis=0)[:n]
        return np.sqrt(0.8) * shared + np.sqrt(0.2) * own

    latent = normal(len(signal))
    value = np.sqrt(1 - cell.noise) * latent @ signal + np.sqrt(cell.noise) * normal()
    if not cell.classes:
        return latent, value
    # Cut where classes are about of shares 1, 1/2, ... over their sum.
    from scipy.stats import norm

    shares = 1 / np.arange(1, cell.classes + 1)
    return latent, np.digitize(value, norm.ppf(np.cumsum(shares / shares.sum())[:-1]))


def new_score(
    cell: Cell, result: TaskResult, old: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]
) -> float:
    """Return what a model of nine tenths of the old examples scores on new ones."""
    some = np.arange(len(old[1])) % (10 * cell.group) >= cell.group
    penalty = float(np.median(result.penalties)) * some.sum()
    if not cell.classes:
        model = make_pipeline(StandardScaler(), Ridge(alpha=penalty)).fit(old[0][some], old[1][some])
        return float(r2_score(new[1], model.predict(new[0])))
    regression = LogisticRegression(C=1 / penalty, class_weight="balanced", max_iter=1000)
    model = make_pipeline(StandardScaler(), regression).fit(old[0][some], old[1][some])
    return float(f1_score(new[1], model.predict(new[0]), average="macro"))


def simulate(cell: Cell, data_sets: range) -> np.ndarray:
    """Return for each data set: score, truth, error, freedom, corrected error; difference and likewise of it."""
    size = LATENT * cell.d
    signal = np.full(size, size**-0.5)
    projections = turned(signal, cell.d)
    settings = ExactSettings(
        ridge_penalties=tuple(np.geomspace(1e-3, 1e2, 10)), logistic_penalties=(1e-2, 1e-1, 1, 10)
    )
    kind = "classification" if cell.classes else "regression"
    found = []
    for number in data_sets:
        rng = np.random.default_rng((cell.n, cell.d, cell.classes, number))
        old, new = draw(cell, signal, cell.n, rng), draw(cell, signal, NEW, rng)
        ids = [f"{number}-{one}" for one in range(cell.n)]
        groups = np.arange(cell.n) // cell.group if cell.group > 1 else None
        task = ExactTask("t", kind, ids, old[1], groups=groups)
        both, truths = [], []
        order = np.argsort(np.asarray(ids, dtype=object), kind="stable")
        for projection in projections:
            (result,) = evaluate_exact(old[0] @ projection, [task], settings).tasks
            both.append(result)
            truths.append(new_score(cell, result, (old[0] @ projection, old[1]), (new[0] @ projection, new[1])))
        assert (both[0].true == old[1][order]).all()
        first, second = both
        apart = first.spread - second.spread
        row = [first.score.value, np.mean(truths), first.spread.error, first.spread.freedom]
        row += [corrected_error(first.spread.by_fold), first.score.value - second.score.value, apart.error]
        row += [apart.freedom, corrected_error(apart.by_fold)]
        found.append(row)
    return np.array(found)


def summarise(cell: Cell, rows: np.ndarray) -> str:
    """Return the row of the table."""
    score, truth, error, freedom, corrected, difference, apart, apart_freedom, apart_corrected = rows.T
    folds = 39

    def outside(values: np.ndarray, errors: np.ndarray, df: np.ndarray | int) -> float:
        df = np.broadcast_to(df, len(values))
        return 100 * float(np.mean([p_value(*one) < ALPHA for one in zip(values, errors, df, strict=True)]))

    off = score - truth.mean()
    kind = f"{cell.classes} classes" if cell.classes else "numbers"
    cells = [kind, cell.n, cell.group, cell.d, len(rows), f"{truth.mean():.3f}", f"{score.mean():.3f}"]
    cells += [f"{100 - outside(off, error, freedom):.1f}", f"{100 - outside(off, corrected, folds):.1f}"]
    cells += [
        f"{outside(difference, apart, apart_freedom):.1f}",
        f"{outside(difference, apart_corrected, folds):.1f}",
    ]
    cells += [
        f"{np.sqrt((error**2).mean()) / score.std():.2f}",
        f"{np.sqrt((apart**2).mean()) / difference.std():.2f}",
    ]
    return "| " + " | ".join(str(one) for one in cells) + " |"


def main() -> None:
    """Simulate and print."""
    for number in map(int, sys.argv[1:] or range(len(CELLS))):
        cell = CELLS[number]
        print(summarise(cell, simulate(cell, range(cell.data_sets))), flush=True)


if __name__ == "__main__":
    main()
