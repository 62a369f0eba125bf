"""A linear probe on forty splits, all trained as one, against PyTorch's layer trained on one after another."""

import numpy as np
import torch
from measure import compare

from agml_assets.compression.compatible.config import LinearParams
from agml_assets.compression.compatible.linear_probe import train_folds
from agml_assets.compression.compatible.scores import r2
from agml_assets.compression.compatible.splits import draw_splits

SAMPLES, DIMENSIONS, FOLDS = 2_000, 256, 40
PARAMS = LinearParams(batch_size=64, epochs=10, learning_rate=1e-3)
NOISE = 0.4  # deviation of the target about what is linear in the embedding, over that of the whole
SEEDS = 6
AT_LEAST = 15


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings and a target that is linear in them and noisy, in [0, 1]."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((SAMPLES, DIMENSIONS), dtype=np.float32)
    target = vectors @ rng.standard_normal(DIMENSIONS) / np.sqrt(DIMENSIONS) + NOISE * rng.standard_normal(SAMPLES)
    return vectors, ((target - target.min()) / np.ptp(target)).astype(np.float32)


def one_by_one(vectors: np.ndarray, target: np.ndarray, folds: int = FOLDS) -> np.ndarray:
    """Return the scores of folds trained one after another, batches taken from one tensor."""
    inputs, goals = torch.from_numpy(vectors), torch.from_numpy(target)
    splits = draw_splits(SAMPLES, FOLDS)
    scores = []
    for train, test in zip(splits.train[:folds], splits.test[:folds], strict=True):
        rows = torch.from_numpy(train)
        layer = torch.nn.Linear(DIMENSIONS, 1)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=PARAMS.learning_rate)
        best = -np.inf
        for _ in range(PARAMS.epochs):
            for batch in rows[torch.randperm(len(rows))].split(PARAMS.batch_size):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(layer(inputs[batch])[:, 0], goals[batch]).backward()
                optimizer.step()
            with torch.no_grad():
                best = max(best, float(r2(layer(inputs[test])[:, 0].numpy(), target[test])))
        scores.append(best)
    return np.array(scores)


def together(vectors: np.ndarray, target: np.ndarray, task: str = "task") -> np.ndarray:
    """Return ours."""
    splits = draw_splits(SAMPLES, FOLDS)
    return train_folds(vectors, target, "regression", splits, PARAMS, task).fold_scores


def agree(obvious: np.ndarray, ours: np.ndarray, spread: np.ndarray) -> str:
    """Compare the scores, in units of the deviation over seeds of each fold's score."""
    # Two seeds of a fold differ by sqrt(2) deviations on average; a mean over folds by that over sqrt(folds).
    units = (ours - obvious) / (np.sqrt(2) * spread)
    mean, size = float(units.mean() * np.sqrt(FOLDS)), float(np.sqrt((units**2).mean()))
    if abs(mean) > 4 or size > 1.6:
        raise SystemExit(f"scores differ: {mean} standard errors in the mean, {size} deviations of seeds a fold")
    return f"R2 {ours.mean():.2f} and {obvious.mean():.2f}: folds differ by {size:.2f} of what two seeds do"


def main() -> None:
    """Measure and print."""
    vectors, target = data()
    torch.manual_seed(0)
    seeds = np.stack([together(vectors, target, f"seed {seed}") for seed in range(SEEDS)])
    spread = np.sqrt(seeds.var(axis=0, ddof=1).mean()) * np.ones(FOLDS)
    one_by_one(vectors, target, folds=1)
    print(
        compare(
            work=f"linear probe, {FOLDS} splits, {PARAMS.epochs} epochs, N = {SAMPLES:,}, d = {DIMENSIONS:,}",
            obvious_way="`nn.Linear`, one split after another, batches from a tensor",
            obvious=lambda: one_by_one(vectors, target),
            ours=lambda: together(vectors, target),
            agree=lambda obvious, ours: agree(obvious, ours, spread),
            at_least=AT_LEAST,
            obvious_repeats=1,
        )
    )


if __name__ == "__main__":
    main()
