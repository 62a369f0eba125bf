"""The site's UMAP files have the names that its pages ask for and the published text."""

import json

import pytest
from numpy import array, float32

from agml_assets.embeddings.artifacts import UMAP_3D, UMAP_PROJECTION
from agml_assets.embeddings.umap_projection import umap_records
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.site.umap import dump_points, find_projections
from agml_assets.store import ArtifactStore
from agml_assets.workspace import DatasetWorkspace, Making


def store_points(store, entry, artifact, n_axes):
    points = array([[0.12345, 1, 2], [-3, 4, 5]], dtype=float32)[:, :n_axes]
    records = umap_records(points, ["rust", "blight"], ["train", "unknown"], [0, 7])
    Making(DatasetWorkspace(entry, Settings(), store), artifact).write(records)


@pytest.fixture
def registry():
    return DatasetRegistry((DatasetEntry(name="owner/Rice_Leaves"), DatasetEntry(name="owner/beans")))


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path)


def test_files_are_called_after_the_dataset_with_a_small_d(registry, store):
    for entry in registry.entries:
        store_points(store, entry, UMAP_PROJECTION, 2)
        store_points(store, entry, UMAP_3D, 3)
    found = find_projections(registry, store)
    assert found.files == {
        "Rice_Leaves_umap_2d.json": ("Rice_Leaves", UMAP_PROJECTION),
        "Rice_Leaves_umap_3d.json": ("Rice_Leaves", UMAP_3D),
        "beans_umap_2d.json": ("beans", UMAP_PROJECTION),
        "beans_umap_3d.json": ("beans", UMAP_3D),
    }
    assert found.missing == ()


def test_projections_that_are_not_there_are_named(registry, store):
    store_points(store, registry.entries[1], UMAP_PROJECTION, 2)
    found = find_projections(registry, store)
    assert list(found.files) == ["beans_umap_2d.json"]
    assert found.missing == ("Rice_Leaves_umap_2d.json", "Rice_Leaves_umap_3d.json", "beans_umap_3d.json")


def test_without_datasets_there_is_nothing(store):
    found = find_projections(DatasetRegistry(()), store)
    assert (found.files, found.missing) == ({}, ())


def test_retired_datasets_are_not_missed(store):
    registry = DatasetRegistry((DatasetEntry(name="owner/old", retired=True),))
    assert find_projections(registry, store).missing == ()


def test_points_take_one_line_without_white_space(registry, store):
    store_points(store, registry.entries[1], UMAP_3D, 3)
    text = dump_points(store.read("beans", UMAP_3D.file))
    assert text == (
        '[{"x":0.1235,"y":1.0,"z":2.0,"label":"rust","split":"train","index":0},'
        '{"x":-3.0,"y":4.0,"z":5.0,"label":"blight","split":"unknown","index":7}]'
    )
    assert dump_points([]) == "[]"


def test_text_is_strict_json():
    assert json.loads(dump_points([{"label": 'é"\n'}])) == [{"label": 'é"\n'}]
    with pytest.raises(ValueError, match="Out of range"):
        dump_points([{"x": float("nan")}])
