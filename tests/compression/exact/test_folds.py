"""Folds: stratified and grouped as scikit-learn's, and the same whatever the order of rows."""

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold

from agml_assets.compression.exact.folds import make_folds


def named(n):
    return [f"scene-{one}" for one in range(n)]


def counts(folds, codes, n_folds=10):
    return np.stack([np.bincount(codes[folds == fold], minlength=codes.max() + 1) for fold in range(n_folds)])


def of_splitter(splitter, codes, groups=None):
    folds = np.empty(len(codes), np.int64)
    for fold, (_, held_out) in enumerate(splitter.split(np.zeros((len(codes), 1)), codes, groups)):
        folds[held_out] = fold
    return folds


def test_each_class_is_spread_as_evenly_as_by_stratified_k_fold():
    codes = np.random.default_rng(0).choice(4, 437, p=[0.6, 0.2, 0.15, 0.05])
    theirs = np.sort(counts(of_splitter(StratifiedKFold(10, shuffle=True, random_state=0), codes), codes), axis=0)
    for folds in make_folds(named(437), 4, 10, 0, codes):
        ours = counts(folds, codes)
        np.testing.assert_array_equal(np.sort(ours, axis=0), theirs)
        assert np.ptp(ours.sum(axis=1)) <= 1


def test_repeats_are_different_folds():
    first, second = make_folds(named(200), 2, 10, 0)
    together = np.bincount(first * 10 + second, minlength=100)  # two to each pair of folds, by chance
    assert together.max() < 10


def test_folds_do_not_depend_on_the_order_of_rows_or_on_the_names_of_groups():
    rng = np.random.default_rng(0)
    ids, codes, groups = np.array(named(300)), rng.integers(0, 3, 300), rng.integers(0, 60, 300)
    order = rng.permutation(300)
    renamed = rng.permutation(60)[groups]
    for own, other in (({}, {}), ({"groups": groups}, {"groups": renamed[order]})):
        one = make_folds(ids.tolist(), 3, 5, 7, codes, **own)
        np.testing.assert_array_equal(
            one[:, order], make_folds(ids[order].tolist(), 3, 5, 7, codes[order], **other)
        )


def test_another_seed_gives_other_folds():
    assert (make_folds(named(100), 1, 5, 1) != make_folds(named(100), 1, 5, 2)).any()


def test_groups_never_straddle_and_are_as_balanced_as_by_group_k_fold():
    rng = np.random.default_rng(1)
    groups = rng.choice(np.repeat(np.arange(80), rng.geometric(0.2, 80)), 600)
    ones = np.zeros(600, np.int64)
    theirs = np.ptp(np.bincount(of_splitter(GroupKFold(10), ones, groups)))
    repeats = make_folds(named(600), 4, 10, 0, groups=groups)
    for folds in repeats:
        assert all(len(np.unique(folds[groups == one])) == 1 for one in np.unique(groups))
        assert np.ptp(np.bincount(folds)) <= theirs + np.bincount(groups).max() / 2
    assert len(np.unique(repeats, axis=0)) == 4


def test_classes_in_groups_are_spread_as_evenly_as_by_stratified_group_k_fold():
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(200), rng.integers(1, 6, 200))
    codes = rng.choice(3, 200, p=[0.5, 0.3, 0.2])[groups]
    theirs = counts(of_splitter(StratifiedGroupKFold(10, shuffle=True, random_state=0), codes, groups), codes)
    for folds in make_folds(named(len(groups)), 4, 10, 0, codes, groups):
        assert counts(folds, codes).std(axis=0).sum() <= 1.05 * theirs.std(axis=0).sum()


def test_fewer_groups_than_folds_are_refused():
    with pytest.raises(ValueError, match="3 examples or groups"):
        make_folds(named(30), 1, 5, 0, groups=np.arange(30) % 3)
