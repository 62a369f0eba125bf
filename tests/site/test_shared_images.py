"""Images that several datasets share are found by their pixels, whatever else is missing."""

from dataclasses import replace

import polars as pl
import pytest

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, SPLITS
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.site.shared_images import IMAGES_SCHEMA, PAIRS_SCHEMA, find_shared_images
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Making, Workspace
from tests.report.measured import measure


@pytest.fixture
def workspace(tmp_path):
    """Three registered datasets of which nothing is in the store."""
    entries = tuple(DatasetEntry(name=f"owner/{name}") for name in ("rice", "beans", "maize"))
    return Workspace(DatasetRegistry(entries), Settings(), ArtifactStore(tmp_path))


def read_images(workspace, key, hashes, *, splits=True):
    """Let a dataset have read images with these pixels, the first in source row 0."""
    dataset = workspace.dataset(key)
    measure(dataset, IMAGE_INDEX, PIXEL_HASHES)
    n = len(hashes)
    values = {
        IMAGE_INDEX: dataset.read(IMAGE_INDEX).head(n),
        PIXEL_HASHES: dataset.read(PIXEL_HASHES).head(n).with_columns(blake3=pl.Series(hashes)),
    }
    for artifact, value in values.items():
        Making(dataset, artifact).write(value, source_digest="today")
    if splits:
        measure(dataset, SPLITS)


def pixels(name):
    return name.encode().hex().ljust(64, "0")


def test_images_in_two_datasets_are_listed_with_their_class_and_split(workspace):
    read_images(workspace, "rice", [pixels(name) for name in "abcd"])
    read_images(workspace, "beans", [pixels(name) for name in "xcya"])
    shared = find_shared_images(workspace)
    rows = shared.images.select("blake3", "dataset", "source_row", "class_name").rows()
    assert rows == [
        (pixels("a"), "beans", 3, "blight"),
        (pixels("a"), "rice", 0, "blight"),
        (pixels("c"), "beans", 1, "healthy"),
        (pixels("c"), "rice", 2, "rust"),
    ]
    splits = workspace.dataset("rice").read(SPLITS)["hf"]
    assert shared.images.filter(pl.col("dataset") == "rice")["split"].to_list() == [splits[0], splits[2]]
    assert shared.pairs.rows() == [("beans", "rice", 2, 2, 2)]
    assert shared.missing == {"maize": "not read yet"}


def test_copies_within_one_dataset_alone_are_not_shared(workspace):
    read_images(workspace, "rice", [pixels("a"), pixels("a")])
    read_images(workspace, "beans", [pixels("b")])
    shared = find_shared_images(workspace)
    assert shared.images.is_empty()
    assert shared.pairs.is_empty()


def test_each_pair_counts_different_pictures_and_the_images_that_show_them(workspace):
    read_images(workspace, "rice", [pixels(name) for name in "aab"])
    read_images(workspace, "beans", [pixels(name) for name in "abbb"])
    read_images(workspace, "maize", [pixels(name) for name in "bz"])
    shared = find_shared_images(workspace)
    assert shared.pairs.rows(named=True) == [
        {"dataset": "beans", "other": "maize", "shared": 1, "dataset_images": 3, "other_images": 1},
        {"dataset": "beans", "other": "rice", "shared": 2, "dataset_images": 4, "other_images": 3},
        {"dataset": "maize", "other": "rice", "shared": 1, "dataset_images": 1, "other_images": 1},
    ]
    assert shared.images.height == 8
    assert shared.missing == {}


def test_hashes_that_begin_alike_are_not_taken_for_the_same(workspace):
    read_images(workspace, "rice", ["0" * 63 + "1", "0" * 63 + "2"])
    read_images(workspace, "beans", ["0" * 63 + "2", "0" * 63 + "3"])
    shared = find_shared_images(workspace)
    assert shared.images["blake3"].unique().to_list() == ["0" * 63 + "2"]


@pytest.mark.parametrize("n", [0, 1])
def test_no_or_one_dataset_shares_nothing(workspace, n):
    for key in ("rice", "beans")[:n]:
        read_images(workspace, key, [pixels("a")])
    shared = find_shared_images(workspace)
    assert shared.images.schema == pl.Schema(IMAGES_SCHEMA)
    assert shared.pairs.schema == pl.Schema(PAIRS_SCHEMA)
    assert shared.images.is_empty()
    assert len(shared.missing) == 3 - n


def test_an_empty_registry_shares_nothing(tmp_path):
    shared = find_shared_images(Workspace(DatasetRegistry(()), Settings(), ArtifactStore(tmp_path)))
    assert (shared.images.height, shared.pairs.height, shared.missing) == (0, 0, {})


def test_without_splits_the_split_is_null(workspace):
    read_images(workspace, "rice", [pixels("a")], splits=False)
    read_images(workspace, "beans", [pixels("a")], splits=False)
    assert find_shared_images(workspace).images["split"].null_count() == 2


def test_splits_of_another_state_of_the_images_are_not_told(workspace):
    read_images(workspace, "rice", [pixels("a"), pixels("b")])
    read_images(workspace, "beans", [pixels("a")])
    dataset = workspace.dataset("rice")
    changed = dataset.read(IMAGE_INDEX).with_columns(bytes=pl.lit(7, pl.Int64))
    Making(dataset, IMAGE_INDEX).write(changed, source_digest="today")
    images = find_shared_images(workspace).images
    assert dict(images.select("dataset", pl.col("split").is_null()).iter_rows()) == {"beans": False, "rice": True}


def test_hashes_of_another_state_of_the_source_are_not_compared(workspace):
    read_images(workspace, "rice", [pixels("a")])
    read_images(workspace, "beans", [pixels("a")])
    dataset = workspace.dataset("rice")
    Making(dataset, IMAGE_INDEX).write(dataset.read(IMAGE_INDEX), source_digest="tomorrow")
    shared = find_shared_images(workspace)
    assert shared.images.is_empty()
    assert "different states" in shared.missing["rice"]


def test_hashes_of_another_definition_are_not_compared(workspace):
    read_images(workspace, "rice", [pixels("a")])
    dataset = workspace.dataset("rice")
    old = replace(PIXEL_HASHES, code_version="old")
    Making(dataset, old).write(dataset.read(PIXEL_HASHES), source_digest="today")
    assert find_shared_images(workspace).missing["rice"].startswith("hashed by code version old")


def test_retired_datasets_are_left_out(tmp_path):
    entries = (DatasetEntry(name="o/old", retired=True), DatasetEntry(name="o/new"))
    shared = find_shared_images(Workspace(DatasetRegistry(entries), Settings(), ArtifactStore(tmp_path)))
    assert shared.missing == {"new": "not read yet"}
