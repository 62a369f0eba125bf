"""The split recipes against the libraries that define them, golden vectors and published sizes."""

from collections import Counter

import numpy as np
import pytest

from agml_assets.dataset.splits import make_splits, split_hf, split_native, split_sklearn
from agml_assets.errors import UserError
from agml_assets.settings import Settings

RATIOS = 0.70, 0.15, 42
CYCLE = np.arange(100) % 3


def rows(result, part):
    return [row for row, name in enumerate(result.assignment) if name == part]


def sizes(result):
    counts = Counter(result.assignment)
    return counts["train"], counts["val"], counts["test"]


# Drawn once with datasets 5.2 and scikit-learn 1.9 from labels i mod 3, N = 100, seed 42.
GOLDEN = {
    split_hf: (
        [0, 3, 6, 13, 33, 40, 46, 49, 51, 62, 65, 83, 86, 94, 95],
        [5, 28, 32, 36, 39, 42, 45, 63, 70, 71, 79, 80, 85, 89, 91, 93],
    ),
    split_sklearn: (
        [7, 11, 21, 29, 34, 41, 42, 53, 55, 58, 66, 67, 92, 93, 99],
        [5, 17, 18, 23, 30, 43, 46, 50, 54, 60, 65, 75, 82, 84, 88, 97],
    ),
}


@pytest.mark.parametrize("split", GOLDEN)
def test_known_labels_fall_in_the_known_parts(split):
    result = split(CYCLE, *RATIOS)
    assert (rows(result, "val"), rows(result, "test")) == GOLDEN[split]
    assert result.fallback == ()


# 566 and 27030 are published sizes of bacterial_grain_rot and ACHENY_variety.
@pytest.mark.parametrize("split", [split_hf, split_sklearn])
@pytest.mark.parametrize(
    ("n", "expected"),
    [(100, (69, 15, 16)), (1000, (699, 150, 151)), (566, (396, 84, 86)), (27030, (18920, 4054, 4056))],
)
def test_part_sizes_keep_the_rounding_errors_of_the_published_ones(split, n, expected):
    assert sizes(split(np.arange(n) % 2, *RATIOS)) == expected


def test_ten_images_split_into_six_one_and_three():
    assert sizes(split_hf(np.zeros(10, int), *RATIOS)) == (6, 1, 3)


def reference_hf(labels, seed):
    """The published recipe with the library itself: without stratification where that fails."""
    import datasets

    datasets.disable_progress_bars()
    classes = sorted(set(labels.tolist()))
    features = datasets.Features(
        {"label": datasets.ClassLabel(names=[str(c) for c in classes]), "id": datasets.Value("int64")}
    )
    columns = {"label": np.searchsorted(classes, labels).tolist(), "id": list(range(len(labels)))}
    whole = datasets.Dataset.from_dict(columns, features=features)

    def halve(part, share):
        try:
            return part.train_test_split(test_size=share, stratify_by_column="label", seed=seed)
        except ValueError:
            return part.train_test_split(test_size=share, seed=seed)

    rest = 1.0 - 0.70
    outer = halve(whole, rest)
    inner = halve(outer["test"], 1.0 - 0.15 / rest)
    return sorted(outer["train"]["id"]), sorted(inner["train"]["id"]), sorted(inner["test"]["id"])


def label_sets():
    rng = np.random.default_rng(7)
    yield "many classes, the second draw fails", np.repeat(np.arange(30), 2)
    yield "a class of one image, both draws fail", np.r_[np.zeros(20, int), 1]
    yield "more classes than places", np.repeat(np.arange(40), 2)
    yield "one class", np.zeros(23, int)
    yield "labels with gaps", rng.choice([0, 5, 9, -3], 200)
    for n, k in [(7, 2), (12, 3), (57, 4), (101, 7), (500, 3), (873, 38), (1500, 11)]:
        weights = rng.dirichlet(np.full(k, 0.7))
        yield f"{n} images of {k} uneven classes", rng.choice(k, n, p=weights)


@pytest.mark.parametrize(
    ("labels", "seed"),
    [pytest.param(labels, seed, id=f"{name}, seed {seed}") for name, labels in label_sets() for seed in (42, 3)],
)
def test_recipe_hf_equals_the_datasets_library(labels, seed):
    result = split_hf(labels, 0.70, 0.15, seed)
    assert (rows(result, "train"), rows(result, "val"), rows(result, "test")) == reference_hf(labels, seed)


def test_a_failed_stratification_of_recipe_hf_is_recorded():
    lonely = split_hf(np.r_[np.zeros(20, int), 1], *RATIOS)
    assert "1 of 2 classes have a single image (the first is label 1)" in lonely.fallback[0]
    crowded = split_hf(np.repeat(np.arange(30), 4), *RATIOS)
    assert [sentence.split(":")[0] for sentence in crowded.fallback] == ["Drawing validation against test"]


def test_recipe_sklearn_falls_back_to_its_two_permutations():
    labels = np.r_[np.zeros(20, int), 1]
    result = split_sklearn(labels, *RATIOS)
    outer = np.random.default_rng(42).permutation(21)
    train, rest = outer[:15], outer[15:]  # 21 * 0.7 = 14.7
    if (labels[rest] == 1).any():
        pytest.fail("the lonely image must be in train for this test to see one fallback only")
    assert rows(result, "train") == sorted(train)
    assert len(result.fallback) == 1

    pairs = np.repeat(np.arange(2), 4)  # the rest holds 3 images, so one class has a single one
    result = split_sklearn(pairs, *RATIOS)
    rest = np.setdiff1d(np.arange(8), rows(result, "train"))
    assert sizes(result) == (5, 1, 2)  # int(round(3 * 0.4999...)) = 1
    assert "Drawing validation against test" in result.fallback[0]
    assert set(rest) == {*rows(result, "val"), *rows(result, "test")}


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6])
def test_what_recipe_hf_cannot_divide_goes_to_train_and_says_so(n):
    result = split_hf(np.zeros(n, int), *RATIOS)
    assert sizes(result) == (n, 0, 0)
    assert ("too few" in " ".join(result.fallback)) == (n > 0)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6])
def test_recipe_sklearn_survives_tiny_datasets(n):
    result = split_sklearn(np.zeros(n, int), *RATIOS)
    assert len(result.assignment) == n
    assert None not in result.assignment


def test_native_names_become_train_val_and_test():
    result = split_native(["train", "Validation", "dev", "test", None, "extra", "extra"])
    assert result.assignment == ("train", "val", "val", "test", None, None, None)
    assert result.fallback == ("2 images of the dataset's own split 'extra' are in neither train, val nor test.",)


def test_splits_hold_a_column_for_each_recipe():
    frame, fallback = make_splits(CYCLE, [None] * 100, Settings())
    assert frame.columns == ["row", "hf", "sklearn", "native"]
    assert frame["row"].to_list() == list(range(100))
    assert frame.filter(frame["hf"] == "test")["row"].to_list() == GOLDEN[split_hf][1]
    assert frame["native"].null_count() == 100
    assert fallback == {"hf": (), "sklearn": (), "native": ()}


def test_settings_move_the_split():
    frame, _ = make_splits(CYCLE, [None] * 100, Settings(train_ratio=0.5, val_ratio=0.25, split_seed=1))
    assert frame["hf"].value_counts().sort("hf").rows() == [("test", 25), ("train", 50), ("val", 25)]


def test_the_native_recipe_needs_native_splits():
    with pytest.raises(UserError, match="no train, val or test split of its own"):
        make_splits(CYCLE, [None] * 100, Settings(split_recipe="native"))
    make_splits(CYCLE, ["train", "test"] * 50, Settings(split_recipe="native"))
