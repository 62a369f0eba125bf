"""UMAP lays out the graph that it is given, and survives what has no shape."""

import dataclasses
import os

import numpy as np
import pytest

from agml_assets.embeddings.neighbors import find_neighbors
from agml_assets.embeddings.umap_projection import principal_components, project_umap, umap_records


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def clusters(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.eye(16)[:3] * 6
    return unit(centres[np.arange(n) % 3] + rng.normal(size=(n, 16)))


def neighbours(vectors):
    return find_neighbors(vectors, threshold=0.98, max_pairs=0)


def test_a_layout_leaves_the_number_of_threads_as_it_was():
    import torch

    # The first test to lay anything out: numba sets the threads when it starts its own.
    before, other = torch.get_num_threads(), (os.cpu_count() or 1) + 1
    torch.set_num_threads(other)
    try:
        vectors = clusters(30)
        project_umap(vectors, neighbours(vectors), n_components=2, seed=0)
        assert torch.get_num_threads() == other
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n", [60, 600])
def test_the_layout_follows_the_given_graph_and_no_other_is_computed(n, monkeypatch):
    import sklearn.metrics
    import umap.umap_

    def refuse(*_, **__):
        raise AssertionError("neighbours were computed again")

    monkeypatch.setattr(umap.umap_, "nearest_neighbors", refuse)
    monkeypatch.setattr(umap.umap_, "pairwise_distances", refuse)
    monkeypatch.setattr(sklearn.metrics, "pairwise_distances", refuse)
    vectors = clusters(n)
    found = neighbours(vectors)
    # A graph that says of every third image that it is near the next two: clusters of consecutive rows.
    rows = np.arange(n)
    block = rows // (n // 3)
    others = np.stack([[r for r in rows[block == b] if r != i][:14] for i, b in enumerate(block)])
    false = dataclasses.replace(found, ids=others, cosines=np.full(others.shape, 0.9, np.float32))
    true_points = project_umap(vectors, found, n_components=2, seed=42)
    false_points = project_umap(vectors, false, n_components=2, seed=42)
    assert separation(true_points, rows % 3) > 0.6
    assert separation(false_points, block) > 0.6
    assert separation(false_points, rows % 3) < 0.1


def separation(points, labels):
    from sklearn.metrics import silhouette_score

    return silhouette_score(points.astype(np.float64), labels)


def test_the_layout_is_the_same_every_time():
    vectors = clusters(90)
    found = neighbours(vectors)
    first = project_umap(vectors, found, n_components=3, seed=42)
    np.testing.assert_array_equal(first, project_umap(vectors, found, n_components=3, seed=42))
    assert not np.array_equal(first, project_umap(vectors, found, n_components=3, seed=43))


@pytest.mark.parametrize("n_components", [2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16])
def test_a_few_images_have_finite_coordinates(n, n_components):
    vectors = clusters(n)
    points = project_umap(vectors, neighbours(vectors), n_components=n_components, seed=42)
    assert points.shape == (n, n_components)
    assert np.isfinite(points).all()


def test_identical_images_have_finite_coordinates():
    vectors = np.tile(clusters(1), (40, 1))
    assert np.isfinite(project_umap(vectors, neighbours(vectors), n_components=2, seed=42)).all()


def test_principal_components_are_those_of_scikit_learn_up_to_scale_and_sign():
    from sklearn.decomposition import PCA

    vectors = clusters(50)
    ours = principal_components(vectors, 2)
    theirs = PCA(2, svd_solver="full").fit_transform(vectors.astype(np.float64))
    for axis in range(2):
        assert abs(np.corrcoef(ours[:, axis], theirs[:, axis])[0, 1]) == pytest.approx(1, abs=1e-6)
    assert np.ptp(ours, axis=0).max() == pytest.approx(10, rel=1e-5)


def test_records_have_the_published_keys_and_rounding():
    points = np.array([[1.234567, -2.0, 0.5]], np.float32)
    assert umap_records(points, ["rust"], ["train"], [7]) == [
        {"x": 1.2346, "y": -2.0, "z": 0.5, "label": "rust", "split": "train", "index": 7}
    ]
    assert list(umap_records(points[:, :2], ["rust"], ["train"], [7])[0]) == ["x", "y", "label", "split", "index"]
