"""The batched linear probe: against PyTorch's own layers, loaders and optimizer, one fold at a time."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from agml_assets.compression.compatible import linear_probe
from agml_assets.compression.compatible.config import LinearParams
from agml_assets.compression.compatible.linear_probe import train_folds, train_on_all
from agml_assets.compression.compatible.scores import score_outputs
from agml_assets.compression.compatible.splits import draw_splits

LOSSES = {
    "regression": torch.nn.functional.mse_loss,
    "classification": torch.nn.functional.binary_cross_entropy_with_logits,
}
KINDS = list(LOSSES)


def draw(kind, n=150, d=8, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, d)).astype(np.float32)
    targets = vectors @ rng.standard_normal(d) / np.sqrt(d) + 0.5 * rng.standard_normal(n)
    if kind == "classification":
        targets = targets > 0
    return vectors, targets.astype(np.float32)


def plain(vectors, targets, kind, train, test, params, layer, order="random"):
    """One fold the plain way: best test score over epochs, and the losses of all epochs."""
    rows = torch.from_numpy(train)
    data = TensorDataset(torch.from_numpy(vectors), torch.from_numpy(targets))
    sampler = SubsetRandomSampler(rows) if order == "random" else rows.tolist()
    loader = DataLoader(data, batch_size=params.batch_size, sampler=sampler)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=params.learning_rate)
    scores, train_losses, test_losses = [], [], []
    for _ in range(params.epochs):
        batch_losses = []
        for some, goals in loader:
            optimizer.zero_grad()
            loss = LOSSES[kind](layer(some)[:, 0], goals)
            loss.backward()
            optimizer.step()
            batch_losses.append(loss.item())
        with torch.no_grad():
            outputs = layer(torch.from_numpy(vectors[test]))[:, 0]
            test_losses.append(LOSSES[kind](outputs, torch.from_numpy(targets[test])).item())
        scores.append(float(score_outputs(kind, outputs.numpy(), targets[test])))
        train_losses.append(np.mean(batch_losses))
    return np.array(scores), np.array(train_losses), np.array(test_losses)


@pytest.mark.parametrize("kind", KINDS)
def test_fold_scores_lie_within_the_spread_of_seeds_of_one_fold_at_a_time(kind):
    vectors, targets = draw(kind)
    splits, params, seeds = draw_splits(len(targets), 5), LinearParams(16, 4, 0.02), 12
    torch.manual_seed(0)
    theirs = np.array(
        [
            [
                plain(vectors, targets, kind, train, test, params, torch.nn.Linear(vectors.shape[1], 1))[0].max()
                for train, test in zip(splits.train, splits.test, strict=True)
            ]
            for _ in range(seeds)
        ]
    )
    ours = np.array(
        [train_folds(vectors, targets, kind, splits, params, f"task {seed}").fold_scores for seed in range(seeds)]
    )
    # Far from converged, so that start and order matter.
    assert theirs.std(axis=0, ddof=1).mean() > 0.005
    error = np.sqrt((theirs.var(axis=0, ddof=1) + ours.var(axis=0, ddof=1)) / seeds)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 3.5 * error + 1e-6).all()
    assert 0.6 < ours.std(axis=0, ddof=1).mean() / theirs.std(axis=0, ddof=1).mean() < 1.6


@pytest.mark.parametrize("kind", KINDS)
def test_from_the_same_start_and_order_every_epoch_is_pytorchs(kind):
    vectors, targets = draw(kind, n=61)
    splits = draw_splits(61, 3)
    # A rate that changes nothing shows where training starts; one batch of all has no order.
    start = train_folds(vectors, targets, kind, splits, LinearParams(100, 1, 1e-30), "t").best
    params = LinearParams(100, 30, 0.05)
    found = train_folds(vectors, targets, kind, splits, params, "t")
    for fold, (train, test) in enumerate(zip(splits.train, splits.test, strict=True)):
        layer = torch.nn.Linear(vectors.shape[1], 1)
        with torch.no_grad():
            layer.weight[:] = torch.from_numpy(start[fold].weight)
            layer.bias[:] = start[fold].bias
        scores, train_losses, test_losses = plain(vectors, targets, kind, train, test, params, layer)
        np.testing.assert_allclose(found.train_loss[:, fold], train_losses, rtol=1e-4)
        np.testing.assert_allclose(found.test_loss[:, fold], test_losses, rtol=1e-4)
        np.testing.assert_allclose(found.scores[:, fold], scores, atol=1e-4)
        assert found.fold_scores[fold] == pytest.approx(scores.max(), abs=1e-4)
        best = found.best[fold].outputs(vectors[test])
        assert score_outputs(kind, best, targets[test]) == pytest.approx(found.fold_scores[fold], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_of_all_rows_in_their_order_is_pytorchs(kind):
    vectors, targets = draw(kind, n=50)
    start = train_on_all(vectors, targets, kind, LinearParams(16, 1, 1e-30), "t")
    params = LinearParams(16, 5, 0.05)
    layer = torch.nn.Linear(vectors.shape[1], 1)
    with torch.no_grad():
        layer.weight[:] = torch.from_numpy(start.weight)
        layer.bias[:] = start.bias
    plain(vectors, targets, kind, np.arange(50), np.arange(50), params, layer, order="as they are")
    found = train_on_all(vectors, targets, kind, params, "t")
    np.testing.assert_allclose(found.weight, layer.weight.detach().numpy()[0], rtol=1e-3, atol=1e-5)
    assert found.bias == pytest.approx(layer.bias.item(), rel=1e-3)


def test_weights_start_as_pytorchs_do():
    vectors, targets = np.zeros((20, 400), np.float32), np.zeros(20, np.float32)
    start = train_folds(vectors, targets, "regression", draw_splits(20, 30), LinearParams(20, 1, 1e-30), "t").best
    torch.manual_seed(0)
    wanted = torch.cat([torch.nn.Linear(400, 1).weight[0].detach() for _ in range(30)]).numpy()
    found = np.concatenate([probe.weight for probe in start])
    assert np.abs(found).max() <= 1 / 20
    assert np.sort(found) == pytest.approx(np.sort(wanted), abs=0.002)
    biases = [probe.bias for probe in start]
    assert 0.03 < np.abs(biases).max() <= 1 / 20


def test_a_task_has_its_own_seeds_and_each_fold_as_well():
    vectors, targets = draw("regression")
    params = LinearParams(16, 2, 0.02)
    five, two = draw_splits(150, 5), draw_splits(150, 2)
    first = train_folds(vectors, targets, "regression", five, params, "a")
    again = train_folds(vectors, targets, "regression", five, params, "a")
    other = train_folds(vectors, targets, "regression", five, params, "b")
    np.testing.assert_array_equal(first.scores, again.scores)
    assert (first.scores != other.scores).all()
    fewer = train_folds(vectors, targets, "regression", two, params, "a")
    np.testing.assert_allclose(fewer.scores, first.scores[:, :2], rtol=1e-5)


def test_folds_in_blocks_are_folds_together(monkeypatch):
    vectors, targets = draw("classification")
    splits, params = draw_splits(150, 5), LinearParams(16, 2, 0.02)
    together = train_folds(vectors, targets, "classification", splits, params, "a")
    monkeypatch.setattr(linear_probe, "_BATCH_BYTES", 2 * 4 * 16 * 8)
    parted = train_folds(vectors, targets, "classification", splits, params, "a")
    np.testing.assert_allclose(parted.test_loss, together.test_loss, rtol=1e-5)
    assert len(parted.best) == 5


def test_a_probe_that_diverges_has_no_score():
    vectors, targets = draw("regression")
    found = train_folds(vectors, targets, "regression", draw_splits(150, 2), LinearParams(16, 3, 1e38), "a")
    assert np.isnan(found.fold_scores).all()
