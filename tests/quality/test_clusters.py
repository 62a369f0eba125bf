"""Cluster statistics against scikit-learn, on the data it ships and on random data."""

import tracemalloc

import numpy as np
import pytest
from sklearn import datasets
from sklearn.metrics import davies_bouldin_score, silhouette_samples
from sklearn.metrics.pairwise import cosine_distances

from agml_assets.quality import clusters


def statistics(vectors, labels):
    n_classes = int(labels.max()) + 1
    means = clusters.centroids(vectors, labels, n_classes)
    spreads = clusters.distances_to_centroid(vectors, labels, means)
    present = np.bincount(labels) > 0
    index, _ = clusters.davies_bouldin(means[present], spreads[present])
    return clusters.cosine_silhouettes(vectors, labels, n_classes), index


# Cosine silhouette and Davies-Bouldin index of scikit-learn 1.9.1 with the true labels.
@pytest.mark.parametrize(
    ("load", "silhouette", "davies_bouldin"),
    [
        (datasets.load_iris, 0.722294, 0.751371),
        (datasets.load_wine, 0.190625, 1.515486),
        (datasets.load_breast_cancer, 0.553191, 0.720645),
        (datasets.load_digits, 0.266544, 2.151710),
    ],
)
def test_reference_values_of_scikit_learns_own_data(load, silhouette, davies_bouldin):
    vectors, labels = load(return_X_y=True)
    silhouettes, index = statistics(vectors, labels)
    assert silhouettes.mean() == pytest.approx(silhouette, abs=1e-6)
    assert index == pytest.approx(davies_bouldin, abs=1e-6)
    assert silhouettes == pytest.approx(silhouette_samples(vectors, labels, metric="cosine"), abs=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 7, 60])
def test_random_unit_vectors_agree_with_scikit_learn(dtype, n_classes):
    rng = np.random.default_rng(n_classes)
    labels = rng.integers(0, n_classes, 400)
    vectors = rng.normal(size=(400, 32)) + 0.5 * rng.normal(size=(n_classes, 32))[labels]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(dtype)
    silhouettes, index = statistics(vectors, labels)
    exact = vectors.astype(np.float64)
    assert silhouettes == pytest.approx(silhouette_samples(exact, labels, metric="cosine"), abs=1e-7)
    assert index == pytest.approx(davies_bouldin_score(exact, labels), rel=1e-9)


def test_singletons_and_empty_classes_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 8))
    labels = np.array([0, 3, 9] + [1] * 17 + [5] * 20)
    silhouettes, index = statistics(vectors, labels)
    assert silhouettes == pytest.approx(silhouette_samples(vectors, labels, metric="cosine"), abs=1e-7)
    assert silhouettes[:3].tolist() == [0, 0, 0]
    assert index == pytest.approx(davies_bouldin_score(vectors, labels), rel=1e-9)


def test_results_do_not_depend_on_the_size_of_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    vectors, labels = rng.normal(size=(97, 5)), rng.integers(0, 11, 97)
    whole = statistics(vectors, labels)
    monkeypatch.setattr(clusters, "_BLOCK_VALUES", 40)
    blocked = statistics(vectors, labels)
    assert blocked[0] == pytest.approx(whole[0], abs=1e-12)
    assert blocked[1] == pytest.approx(whole[1], rel=1e-12)


def test_memory_holds_a_few_numbers_for_each_vector_not_its_components():
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(20_000, 256)).astype(np.float32)
    labels = rng.integers(0, 5, 20_000)
    statistics(vectors[:100], labels[:100])  # what is imported at first use
    tracemalloc.start()
    try:
        statistics(vectors, labels)
        assert tracemalloc.get_traced_memory()[1] < vectors.nbytes
    finally:
        tracemalloc.stop()


def test_copies_in_both_classes_have_silhouette_zero_not_rounding_noise():
    rng = np.random.default_rng(2)
    vector = rng.normal(size=768)
    vectors = np.tile((vector / np.linalg.norm(vector)).astype(np.float32), (20, 1))
    vectors += rng.choice([-1, 0, 1], vectors.shape).astype(np.float32) * np.finfo(np.float32).eps / 16
    assert len(np.unique(vectors, axis=0)) > 1
    silhouettes = clusters.cosine_silhouettes(vectors, np.arange(20) % 2, 2)
    assert silhouettes.tolist() == [0.0] * 20


def test_mean_cosine_distance_is_that_over_all_pairs():
    rng = np.random.default_rng(3)
    vectors, labels = rng.normal(size=(90, 16)), rng.integers(0, 4, 90)
    distances = clusters.mean_cosine_distances(vectors, labels, 4)
    for label in range(4):
        pairs = cosine_distances(vectors[labels == label])
        assert distances[label] == pytest.approx(pairs[np.triu_indices_from(pairs, 1)].mean(), abs=1e-12)


def test_mean_cosine_distance_of_fewer_than_two_vectors_is_undefined():
    assert np.isnan(clusters.mean_cosine_distances(np.ones((1, 3)), np.array([1]), 3)).all()


def test_one_class_has_no_silhouette():
    with pytest.raises(ValueError, match="two classes"):
        clusters.cosine_silhouettes(np.ones((3, 2)), np.array([1, 1, 1]), 2)


def test_classes_that_share_a_centroid_are_told_and_left_out_as_in_scikit_learn():
    vectors = np.array([[0, 0], [2, 0], [0, 0], [2, 0], [9, 1], [9, 3.0]])
    labels = np.array([0, 0, 1, 1, 2, 2])
    means = clusters.centroids(vectors, labels, 3)
    index, coincident = clusters.davies_bouldin(means, clusters.distances_to_centroid(vectors, labels, means))
    assert coincident.tolist() == [True, True, False]
    assert index == pytest.approx(davies_bouldin_score(vectors, labels))
