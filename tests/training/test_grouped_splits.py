"""Grouped splits and folds: copies stay together, sizes come near the ratios, what cannot be drawn is listed."""

import time

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agml_assets.settings import Settings
from agml_assets.training.grouped_splits import EXCEEDS_ROOM, grouped_splits

SETTINGS = Settings()


def split(labels, groups, n_classes, settings=SETTINGS):
    return grouped_splits(np.asarray(labels, np.int64), np.asarray(groups, np.int64), n_classes, settings)


def shares(frame):
    return {name: n / frame.height for name, n in frame["split"].value_counts().iter_rows()}


@st.composite
def datasets(draw):
    """Labels and groups of up to 200 images; a group may hold several classes."""
    n = draw(st.integers(0, 200))
    n_classes = draw(st.integers(1, 8))
    labels = draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n))
    groups = draw(st.lists(st.integers(0, max(1, draw(st.integers(1, 200)))), min_size=n, max_size=n))
    return np.array(labels, np.int64), np.array(groups, np.int64), n_classes


@hypothesis_settings(deadline=None, max_examples=150)
@given(datasets(), st.integers(2, 6), st.integers(0, 5))
def test_copies_of_an_image_never_straddle_splits_or_folds(dataset, n_folds, seed):
    labels, groups, n_classes = dataset
    settings = SETTINGS.override({"cv_folds": n_folds, "split_seed": seed}, "test")
    frame = split(labels, groups, n_classes, settings).with_columns(group=pl.Series(groups, dtype=pl.Int64))
    assert frame["row"].to_list() == list(range(len(labels)))
    assert (
        frame.group_by("group")
        .agg(pl.col("split", "fold").n_unique())
        .filter((pl.col("split") > 1) | (pl.col("fold") > 1))
        .is_empty()
    )
    assert frame["split"].is_in(["train", "val", "test"]).all()
    assert frame["fold"].is_between(0, n_folds - 1).all()


@hypothesis_settings(deadline=None, max_examples=150)
@given(datasets())
def test_every_image_that_was_not_drawn_is_in_train_with_a_reason_that_is_true(dataset):
    labels, groups, n_classes = dataset
    frame = split(labels, groups, n_classes)
    assert (frame.filter(pl.col("reason").is_not_null())["split"] == "train").all()
    room = max(1, round(0.15 * len(labels)))
    for row, reason in enumerate(frame["reason"]):
        n_groups = len(set(groups[labels == labels[row]]))
        size = int((groups == groups[row]).sum())
        if n_groups < 3:
            assert reason == f"class with {n_groups} group{'' if n_groups == 1 else 's'}"
        elif size > room:
            assert reason == f"group of {size} images {EXCEEDS_ROOM}"
        elif reason is not None:
            of_group = set(labels[groups == groups[row]])
            assert reason.startswith("copy of")
            assert any(len(set(groups[labels == label])) < 3 for label in of_group)


@pytest.mark.parametrize("n_classes", [2, 20])
def test_without_copies_each_class_reaches_its_sizes_to_within_two_images(n_classes):
    labels = np.random.default_rng(0).integers(0, n_classes, 3000)
    frame = split(labels, np.arange(3000), n_classes).with_columns(label=pl.Series(labels))
    for ratio, name in ((0.7, "train"), (0.15, "val"), (0.15, "test")):
        counts = frame.group_by("label").agg(n=pl.len(), got=(pl.col("split") == name).sum())
        assert (counts["got"] - counts["n"] * ratio).abs().max() <= 2
        assert shares(frame)[name] == pytest.approx(ratio, abs=0.005)


def test_with_copies_each_class_reaches_its_sizes_to_within_its_largest_group():
    rng = np.random.default_rng(1)
    sizes = rng.geometric(0.3, 1500)
    groups = np.repeat(np.arange(1500), sizes)
    labels = np.repeat(rng.integers(0, 12, 1500), sizes)
    frame = split(labels, groups, 12).with_columns(label=pl.Series(labels))
    for ratio, name in ((0.7, "train"), (0.15, "val"), (0.15, "test")):
        counts = frame.group_by("label").agg(n=pl.len(), got=(pl.col("split") == name).sum())
        assert (counts["got"] - counts["n"] * ratio).abs().max() <= sizes.max()
        assert shares(frame)[name] == pytest.approx(ratio, abs=0.01)


def test_small_groups_are_not_the_only_ones_that_are_tested():
    """A test split of single images alone would be no sample of the dataset."""
    sizes = np.tile([1, 6], 600)
    frame = split(np.zeros(sizes.sum()), np.repeat(np.arange(1200), sizes), 1)
    group = frame.with_columns(size=pl.Series(np.repeat(sizes, sizes))).filter(pl.col("split") == "test")
    assert (group["size"] == 6).mean() == pytest.approx(6 / 7, abs=0.06)


def test_a_class_of_three_groups_is_in_every_split():
    labels = np.repeat(np.arange(50), 3)
    frame = split(labels, np.arange(150), 50).with_columns(label=pl.Series(labels))
    assert (frame.group_by("label").agg(pl.col("split").n_unique())["split"] == 3).all()


def test_a_class_of_two_groups_goes_to_train_with_its_copies_in_other_classes():
    labels = np.array([0] * 40 + [1, 1, 1] + [0])
    groups = np.append(np.arange(40), [40, 40, 41, 41])  # the last image, of class 0, is a copy of one of class 1
    frame = split(labels, groups, 2)
    assert frame["split"].to_list()[40:] == ["train"] * 4
    assert frame["reason"].to_list()[40:43] == ["class with 2 groups"] * 3
    assert frame["reason"][43] == "copy of an image of a class with fewer than 3 groups"


def test_a_dataset_like_agarwood_is_split_and_what_did_not_fit_is_listed():
    """92 % of the images in groups of near-duplicates, the largest of 20 % of all; 14 classes of unequal size."""
    rng = np.random.default_rng(2)
    n = 5000
    groups = np.arange(n)
    groups[:1000] = 0
    groups[1000:4600] = 1000 + rng.integers(0, 900, 3600)
    class_of_group = rng.choice(14, n, p=1 / np.arange(1, 15) / (1 / np.arange(1, 15)).sum())
    labels = class_of_group[groups]
    frame = split(labels, groups, 14).with_columns(group=pl.Series(groups), label=pl.Series(labels))
    large = frame.filter(pl.col("group") == 0)
    assert set(large["split"]) == {"train"}
    assert set(large["reason"]) == {"group of 1000 images exceeds the room left"}
    assert frame.filter(pl.col("group") != 0)["reason"].null_count() == n - 1000
    assert (frame.group_by("group").agg(pl.col("split").n_unique())["split"] == 1).all()
    for name, ratio in (("train", 0.7), ("val", 0.15), ("test", 0.15)):
        # The large group is more than the training share of its class.
        assert shares(frame)[name] == pytest.approx(ratio, abs=0.03)
    others = frame.filter(pl.col("label") != class_of_group[0])
    in_folds = others.group_by("label").agg((pl.col("fold") == fold).sum().alias(str(fold)) for fold in range(5))
    spread = in_folds.select(pl.max_horizontal(*"01234") - pl.min_horizontal(*"01234")).to_series()
    assert spread.max() <= frame.filter(pl.col("group") != 0).group_by("group").len()["len"].max()


def test_folds_are_stratified_as_well_as_those_of_scikit_learn():
    from sklearn.model_selection import StratifiedGroupKFold

    rng = np.random.default_rng(3)
    groups = rng.integers(0, 300, 1200)
    labels = rng.integers(0, 4, 300)[groups]
    ours = split(labels, groups, 4)["fold"].to_numpy()
    theirs = np.empty(1200, int)
    for fold, (_, held_out) in enumerate(StratifiedGroupKFold(5).split(np.zeros(1200), labels, groups)):
        theirs[held_out] = fold

    def unevenness(folds):
        counts = np.zeros((4, 5))
        np.add.at(counts, (labels, folds), 1)
        return (counts / counts.sum(axis=1, keepdims=True)).std(axis=1).mean()

    assert unevenness(ours) <= unevenness(theirs) * 1.05


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_a_handful_of_images_is_split_without_a_crash(n):
    frame = split([0] * n, range(n), 1)
    assert frame.height == n
    assert frame.schema == {"row": pl.Int64, "split": pl.String, "fold": pl.Int64, "reason": pl.String}
    expected = {0: set(), 1: {"train"}, 2: {"train"}, 3: {"train", "val", "test"}}[n]
    assert set(frame["split"]) == expected


def test_declared_classes_without_images_change_nothing():
    labels, groups = np.arange(60) % 3, np.arange(60) // 2
    assert split(labels, groups, 3).equals(split(labels, groups, 50))


def test_the_seed_and_nothing_else_decides_the_draw():
    labels = np.arange(300) % 5
    first = split(labels, np.arange(300), 5)
    assert first.equals(split(labels, np.arange(300), 5))
    assert first.equals(split(labels, np.arange(300) * 7 + 3, 5))
    other = split(labels, np.arange(300), 5, SETTINGS.override({"split_seed": 43}, "test"))
    assert not first["split"].equals(other["split"])
    assert shares(first) == pytest.approx(shares(other), abs=0.03)


def test_labels_and_groups_of_different_length_are_refused():
    with pytest.raises(ValueError, match="3 labels and 2 groups"):
        split([0, 0, 0], [0, 1], 1)


def test_a_hundred_thousand_images_of_a_thousand_classes_take_seconds():
    """The bound is ten times what it takes, so that a busy machine passes and a quadratic way does not."""
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 80_000, 100_000)
    start = time.process_time()
    split(rng.integers(0, 1000, 80_000)[groups], groups, 1000)
    assert time.process_time() - start < 10
