from collections import defaultdict
from itertools import combinations

import numpy as np
import polars as pl
import pytest

from agml_assets.quality.exact_duplicate import exact_duplicate
from agml_assets.quality.groups import MAX_EXAMPLE_IMAGES, MAX_EXAMPLES
from agml_assets.quality.invariants import check_invariants
from agml_assets.quality.near_duplicate import near_duplicate


def hashes(md5, blake3=None):
    return pl.DataFrame(
        {
            "row": pl.Series(range(len(md5)), dtype=pl.Int64),
            "md5_group": pl.Series(list(md5), dtype=pl.Int64),
            "blake3_group": pl.Series(list(blake3 if blake3 is not None else md5), dtype=pl.Int64),
        }
    )


def duplicate_groups(exact, near, joined=None):
    return pl.DataFrame(
        {
            "row": pl.Series(range(len(exact)), dtype=pl.Int64),
            "exact": pl.Series(list(exact), dtype=pl.Int64),
            "near": pl.Series(list(near), dtype=pl.Int64),
            "joined": pl.Series(list(near if joined is None else joined), dtype=pl.Int64),
        }
    )


def test_every_member_of_a_group_counts_and_val_test_pairs_cross_too(index, splits, settings):
    result = exact_duplicate(
        image_index=index([0] * 7, ["a"]),
        pixel_hashes=hashes([0, 0, 0, 3, 4, 4, 6]),
        splits=splits(["train", "train", "train", "train", "val", "test", "test"]),
        settings=settings,
    )
    published = {key: result[key] for key in list(result)[:5]}
    assert published == {
        "total_images": 7,
        "exact_duplicate_count": 5,
        "exact_duplicate_rate": 0.7143,
        "duplicate_groups": 2,
        "cross_split_duplicates": 2,
    }
    assert result["blake3"]["redundant_images"] == 3
    assert result["blake3"]["largest_group"] == 3


def test_published_and_strict_hash_are_counted_apart(index, splits, settings):
    result = exact_duplicate(
        image_index=index([0] * 4, ["a"]),
        pixel_hashes=hashes([0, 0, 2, 3], blake3=[0, 1, 2, 2]),
        splits=splits(["train", "val", "train", "train"]),
        settings=settings,
    )
    assert result["cross_split_duplicates"] == 2
    assert result["blake3"]["cross_split_duplicates"] == 0
    assert result["blake3"]["duplicate_count"] == 2


def test_leaks_between_the_datasets_own_splits_are_told_pair_by_pair(index, splits, settings):
    # One group spans all three native splits, one train and test, one lies in train alone.
    result = exact_duplicate(
        image_index=index([0] * 9, ["a"]),
        pixel_hashes=hashes([0, 0, 0, 3, 3, 3, 6, 6, 8]),
        splits=splits(
            ["train"] * 9, native=["train", "val", "test", "train", "test", "test", "train", "train", None]
        ),
        settings=settings,
    )
    assert result["cross_split_duplicates"] == 0
    assert result["blake3"]["native_split_leaks"] == {
        "train-val": {"groups": 1, "train_images": 1, "val_images": 1},
        "train-test": {"groups": 2, "train_images": 2, "test_images": 3},
        "val-test": {"groups": 1, "val_images": 1, "test_images": 1},
    }


def test_a_dataset_without_its_own_splits_has_no_leak_table_rather_than_a_clean_one(index, splits, settings):
    result = exact_duplicate(
        image_index=index([0, 0], ["a"]),
        pixel_hashes=hashes([0, 0]),
        splits=splits(["train", "val"]),
        settings=settings,
    )
    assert result["blake3"]["native_split_leaks"] is None


def test_copies_with_different_labels_are_listed_by_source_row(index, splits, settings):
    images = index([0, 1, 0, 0, 1, 1, 0], ["a", "b"], source_row=pl.Series([3, 5, 8, 9, 10, 11, 20]))
    result = exact_duplicate(
        image_index=images,
        pixel_hashes=hashes([0, 0, 2, 2, 4, 4, 0]),
        splits=splits(["train"] * 7),
        settings=settings,
    )
    assert result["blake3"]["label_conflicts"] == {
        "groups": 1,
        "images": 3,
        "examples": [{"size": 3, "classes": {"a": 2, "b": 1}, "source_rows": [3, 5, 20]}],
    }


def test_long_lists_of_conflicts_are_cut_and_still_counted_in_full(index, splits, settings):
    n_groups, size = MAX_EXAMPLES + 7, MAX_EXAMPLE_IMAGES + 2
    group = np.repeat(np.arange(n_groups) * size, size)
    labels = np.tile([0, 1], n_groups * size // 2)
    conflicts = exact_duplicate(
        image_index=index(labels.tolist(), ["a", "b"]),
        pixel_hashes=hashes(group.tolist()),
        splits=splits(["train"] * len(group)),
        settings=settings,
    )["blake3"]["label_conflicts"]
    assert (conflicts["groups"], conflicts["images"]) == (n_groups, len(group))
    assert len(conflicts["examples"]) == MAX_EXAMPLES
    assert conflicts["examples"][1]["source_rows"] == list(range(size, size + MAX_EXAMPLE_IMAGES))
    assert conflicts["examples"][0]["size"] == size


def test_no_duplicates_are_zeros(index, splits, settings):
    result = exact_duplicate(
        image_index=index([0, 1], ["a", "b"]),
        pixel_hashes=hashes([0, 1]),
        splits=splits(["train", "test"]),
        settings=settings,
    )
    assert result["exact_duplicate_count"] == result["duplicate_groups"] == result["cross_split_duplicates"] == 0
    assert result["exact_duplicate_rate"] == 0.0
    assert result["blake3"]["largest_group"] == 1
    assert result["blake3"]["label_conflicts"] == {"groups": 0, "images": 0, "examples": []}


@pytest.mark.parametrize("metric", ["exact", "near"])
def test_a_recipe_that_splits_nothing_is_skipped_rather_than_free_of_leaks(
    metric, index, splits, neighbors, settings
):
    native = settings.override({"split_recipe": "native"}, "test")
    images, no_native = index([0, 0], ["a"]), splits(["train", "val"])
    if metric == "exact":
        result = exact_duplicate(
            image_index=images, pixel_hashes=hashes([0, 0]), splits=no_native, settings=native
        )
    else:
        result = near_duplicate(
            image_index=images,
            splits=no_native,
            neighbors=neighbors([(0, 1)]),
            duplicate_groups=duplicate_groups([0, 1], [0, 0]),
            settings=native,
        )
    assert result["skipped"] is True
    assert "native" in result["reason"]


def test_near_duplicates_are_told_with_and_without_exact_copies(index, splits, neighbors, settings):
    # 0 and 1 are exact copies, 2 looks like them; 3 and 4 are exact copies of each other only.
    result = near_duplicate(
        image_index=index([0, 0, 0, 1, 1, 1], ["a", "b"]),
        splits=splits(["train", "train", "test", "train", "train", "val"]),
        neighbors=neighbors([(0, 1), (0, 2), (1, 2), (3, 4)]),
        duplicate_groups=duplicate_groups([0, 0, 2, 3, 3, 5], [0, 0, 0, 3, 3, 5]),
        settings=settings,
    )
    assert {key: result[key] for key in list(result)[:8]} == {
        "total_images": 6,
        "embed_model": "facebook/dinov2-base",
        "threshold": 0.98,
        "near_duplicate_count": 5,
        "near_duplicate_rate": 0.8333,
        "near_duplicate_groups": 2,
        "cross_split_near_duplicates": 3,
        "faiss_index_type": "IndexFlatIP",
    }
    assert result["without_exact_copies"] == {
        "near_duplicate_count": 2,
        "near_duplicate_rate": 0.5,
        "near_duplicate_groups": 1,
    }
    assert result["effective_images"] == 3
    assert result["joined_groups"] == 2
    assert result["exact_search"] is True


def test_an_approximate_search_says_so(index, splits, neighbors, settings):
    result = near_duplicate(
        image_index=index([0, 0], ["a"]),
        splits=splits(["train", "val"]),
        neighbors=neighbors([], kind="IndexIVFFlat"),
        duplicate_groups=duplicate_groups([0, 1], [0, 1]),
        settings=settings,
    )
    assert result["exact_search"] is False
    assert result["faiss_index_type"] == "IndexIVFFlat"


def test_an_image_outside_the_datasets_own_splits_leaks_nothing(index, splits, settings):
    result = exact_duplicate(
        image_index=index([0] * 4, ["a"]),
        pixel_hashes=hashes([0, 0, 2, 2]),
        splits=splits(["train"] * 4, native=["train", None, "train", "test"]),
        settings=settings.override({"split_recipe": "native"}, "test"),
    )
    assert result["cross_split_duplicates"] == result["blake3"]["cross_split_duplicates"] == 2


def test_effective_images_take_exact_and_near_copies_together(index, splits, neighbors, settings):
    result = near_duplicate(
        image_index=index([0] * 3, ["a"]),
        splits=splits(["train"] * 3),
        neighbors=neighbors([(1, 2)]),
        duplicate_groups=duplicate_groups(exact=[0, 0, 2], near=[0, 1, 1], joined=[0, 0, 0]),
        settings=settings,
    )
    assert result["effective_images"] == result["joined_groups"] == 1


def components(n, pairs):
    """Smallest member of each connected component, by spreading the smaller id until nothing changes."""
    group = list(range(n))
    changed = True
    while changed:
        changed = False
        for i, j in pairs:
            low = min(group[i], group[j])
            if (group[i], group[j]) != (low, low):
                group[i] = group[j] = low
                changed = True
    return group


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_those_of_brute_force_on_random_data(seed, index, splits, neighbors, settings):
    rng = np.random.default_rng(seed)
    n = 60
    labels = rng.integers(0, 3, n)
    recipe = rng.choice(["train", "val", "test"], n, p=[0.6, 0.2, 0.2])
    native = rng.choice(["train", "test", None], n)
    pixels = rng.integers(0, 40, n)
    exact_pairs = [(i, j) for i, j in combinations(range(n), 2) if pixels[i] == pixels[j]]
    alike = [pair for pair in combinations(range(n), 2) if rng.random() < 0.01]
    near_pairs = sorted({*exact_pairs, *alike})
    exact, near = components(n, exact_pairs), components(n, near_pairs)

    images, split_frame = index(labels.tolist(), ["a", "b", "c"]), splits(recipe.tolist(), native.tolist())
    by_exact = exact_duplicate(
        image_index=images, pixel_hashes=hashes(exact), splits=split_frame, settings=settings
    )
    by_near = near_duplicate(
        image_index=images,
        splits=split_frame,
        neighbors=neighbors(near_pairs),
        duplicate_groups=duplicate_groups(exact, near),
        settings=settings,
    )

    for pairs, group, counted in (
        (exact_pairs, exact, by_exact["blake3"]),
        (near_pairs, near, by_near),
    ):
        prefix = "" if counted is not by_near else "near_"
        partners = {i for pair in pairs for i in pair}
        gathered = defaultdict(list)
        for i in sorted(partners):
            gathered[group[i]].append(i)
        crossing = [g for g in gathered.values() if len({recipe[i] for i in g}) > 1]
        at_odds = [g for g in gathered.values() if len({labels[i] for i in g}) > 1]
        assert counted[f"{prefix}duplicate_count"] == len(partners)
        assert counted[f"{prefix}duplicate_groups"] == len(gathered)
        assert counted["largest_group"] == max(map(len, gathered.values()))
        crossing_key = "cross_split_near_duplicates" if prefix else "cross_split_duplicates"
        assert counted[crossing_key] == sum(map(len, crossing))
        assert counted["label_conflicts"]["groups"] == len(at_odds)
        assert [g["source_rows"] for g in counted["label_conflicts"]["examples"]] == [
            g[:MAX_EXAMPLE_IMAGES] for g in sorted(at_odds)
        ]
        leaky = [g for g in gathered.values() if {"train", "test"} <= {native[i] for i in g}]
        assert counted["native_split_leaks"]["train-test"] == {
            "groups": len(leaky),
            "train_images": sum(native[i] == "train" for g in leaky for i in g),
            "test_images": sum(native[i] == "test" for g in leaky for i in g),
        }

    first_of_exact = [i for i in range(n) if exact[i] == i]
    partners_kept = [i for i in first_of_exact if any(near[i] == near[j] for j in first_of_exact if j != i)]
    assert by_near["without_exact_copies"]["near_duplicate_count"] == len(partners_kept)
    assert by_near["effective_images"] == len(set(near))
    assert check_invariants({"exact_duplicate": by_exact, "near_duplicate": by_near}) == []
