"""Vectors and probabilities that are wrong, alike, few, or not quite of unit length."""

import numpy as np
import pytest

from agml_assets.embeddings import neighbors
from agml_assets.embeddings.neighbors import find_neighbors
from agml_assets.errors import UserError
from agml_assets.quality.feature_separability import feature_separability
from agml_assets.quality.intra_class_diversity import intra_class_diversity
from agml_assets.settings import Settings
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds
from tests.hostile.faked import Faked, unit_vectors


@pytest.mark.parametrize("n", [1, 2, 5, 38, 39, 40, 77, 79])
def test_an_approximate_index_of_too_few_points_still_searches_or_says_how_to_do_without(n):
    vectors = np.repeat(unit_vectors(-(-n // 2), 16), 2, axis=0)[:n]
    found = find_neighbors(vectors, threshold=0.98, max_pairs=1000, ivf_threshold=1)
    assert found.ids.shape == (n, min(50, n - 1))
    assert found.n_pairs == n // 2


def test_more_pairs_than_an_approximate_index_can_hold_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(neighbors, "_MOST_RANGE", 2000)
    vectors = np.repeat(unit_vectors(1, 16), 600, axis=0)
    with pytest.raises(UserError, match="more than 1000 pairs.*faiss_ivf_threshold to null"):
        find_neighbors(vectors, threshold=0.98, max_pairs=10, ivf_threshold=1)
    exact = find_neighbors(vectors, threshold=0.98, max_pairs=10)
    assert (exact.n_pairs, len(exact.pair_rows)) == (600 * 599 // 2, 10)


def test_cosines_never_exceed_one_though_half_precision_makes_vectors_too_long():
    vectors = unit_vectors(500, 64).astype(np.float16).astype(np.float32)
    vectors = np.concatenate([vectors, vectors[:100] * np.float32(1.0004)])
    assert (np.linalg.norm(vectors, axis=1) > 1).any()
    found = find_neighbors(vectors, threshold=0.98, max_pairs=1000)
    assert found.n_pairs == 100
    for cosines in (found.cosines, found.pair_cosines):
        assert cosines.max() <= 1
        assert cosines.min() >= -1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 2.0])
def test_a_row_that_is_no_unit_vector_is_refused_by_its_number(value):
    vectors = unit_vectors(50, 8)
    vectors[7] = value
    with pytest.raises(UserError, match="rows 7"):
        find_neighbors(vectors, threshold=0.98, max_pairs=10)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_metric_and_no_probability_comes_of_vectors_that_are_not_finite(value):
    labels = np.arange(60) % 3
    faked = Faked(labels, ("a", "b", "c"), unit_vectors(60, 8))
    faked.vectors[11, 3] = value
    given = {
        "image_index": faked._index(),
        "embeddings": faked.vectors,
        "labels": labels,
        "duplicate_groups": faked._hashes().rename({"blake3_group": "joined"}),
        "settings": Settings(),
    }
    for metric in (feature_separability, intra_class_diversity):
        result = metric(**given)
        assert result["skipped"]
        assert "rows [11]" in result["reason"]
    with pytest.raises(UserError, match=r"rows \[11\]"):
        out_of_fold(faked.vectors, labels, stratified_folds(labels, 5), 3)


def test_identical_images_are_no_perfectly_separated_classes(tmp_path):
    n = 60
    labels = np.arange(n) % 3
    faked = Faked(labels, ("a", "b", "c"), np.repeat(unit_vectors(1, 8), n, axis=0), np.zeros(n, np.int64))
    dataset = faked.report(tmp_path)
    metrics = dataset.store.read(dataset.key, "result.json")["metrics"]
    # scikit-learn's index of them is 0.0, which reads as perfect.
    assert metrics["feature_separability"] == {
        "skipped": True,
        "reason": "No class holds two images that the embedding model tells apart.",
        "embed_model": Settings().embed_model,
    }
    assert metrics["intra_class_diversity"]["mean_diversity"] == 0
    assert metrics["near_duplicate"]["effective_images"] == 1
    assert metrics["near_duplicate"]["label_conflicts"]["images"] == n
    assert metrics["leakage"]["leak_safe"]["accuracy"] is None
    assert "not_identifiable" in metrics["label_noise"]["leak_safe"]
    page = dataset.store.read(dataset.key, "report/card.html")
    assert "Not ready to publish as it is." in page
