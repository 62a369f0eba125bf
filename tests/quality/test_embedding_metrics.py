import json

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import davies_bouldin_score, silhouette_samples, silhouette_score

from agml_assets.quality.feature_separability import (
    feature_separability,
    interpret_davies_bouldin,
    interpret_silhouette,
    published_sample,
)
from agml_assets.quality.intra_class_diversity import intra_class_diversity


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def alone(labels):
    """Groups of a dataset without copies."""
    rows = pl.Series(range(len(labels)), dtype=pl.Int64)
    return pl.DataFrame({"row": rows, "exact": rows, "near": rows, "joined": rows})


def blobs(n, n_classes, seed=0, dimension=24):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n)
    centers = rng.normal(size=(n_classes, dimension))
    return unit(rng.normal(size=(n, dimension)) + centers[labels]), labels


def test_all_images_are_used_up_to_the_sample_size(index, settings):
    vectors, labels = blobs(300, 4)
    result = feature_separability(
        image_index=index(labels.tolist(), list("abcd")),
        embeddings=vectors,
        labels=labels,
        duplicate_groups=alone(labels),
        settings=settings,
    )
    samples = silhouette_samples(vectors, labels, metric="cosine")
    assert result["n_silhouette_samples"] == result["n_total"] == 300
    assert result["silhouette_score"] == pytest.approx(samples.mean(), abs=6e-5)
    assert result["silhouette_score_all"] == result["silhouette_score"]
    assert result["davies_bouldin_index"] == pytest.approx(davies_bouldin_score(vectors, labels), abs=6e-5)
    for label, name in enumerate("abcd"):
        assert result["per_class_silhouette"][name] == pytest.approx(samples[labels == label].mean(), abs=6e-5)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_beyond_the_sample_size_the_published_score_is_of_the_sample_and_the_added_one_of_all(index, settings):
    vectors, labels = blobs(500, 3)
    result = feature_separability(
        image_index=index(labels.tolist(), list("abc")),
        embeddings=vectors,
        labels=labels,
        duplicate_groups=alone(labels),
        settings=settings.override({"max_silhouette_samples": 100}, "test"),
    )
    sample = published_sample(labels, 100)
    assert result["n_silhouette_samples"] == len(sample) < 110
    assert result["silhouette_score"] == pytest.approx(
        silhouette_score(vectors[sample], labels[sample], metric="cosine"), abs=6e-5
    )
    assert result["silhouette_score_all"] == pytest.approx(
        silhouette_score(vectors, labels, metric="cosine"), abs=6e-5
    )
    assert result["silhouette_score"] != result["silhouette_score_all"]


def test_the_published_sample_takes_each_class_by_its_share_and_at_least_one():
    labels = np.array([0] * 900 + [1] * 98 + [2] * 2)
    sample = published_sample(labels, 100)
    assert np.bincount(labels[sample]).tolist() == [90, 10, 1]
    assert len(set(sample.tolist())) == 101
    # The draw as specified: one generator seeded with 42, classes ascending, without replacement.
    assert sample[:90].tolist() == np.random.default_rng(42).choice(900, size=90, replace=False).tolist()


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (0.71, "strong separation"),
        (0.70, "reasonable separation"),
        (0.50, "moderate separation"),
        (0.25, "weak separation"),
        (0.0001, "weak separation"),
        (0.0, "overlapping or no separation"),
        (-1.0, "overlapping or no separation"),
    ],
)
def test_silhouette_cut_offs(score, text):
    assert interpret_silhouette(score) == text


@pytest.mark.parametrize(
    ("davies_bouldin", "text"),
    [
        (0.49, "well-separated clusters"),
        (0.5, "moderate separation"),
        (1.0, "some overlap between clusters"),
        (2.0, "high overlap — classes not well-separated"),
    ],
)
def test_davies_bouldin_cut_offs(davies_bouldin, text):
    assert interpret_davies_bouldin(davies_bouldin) == text


def measure(metric, index, vectors, labels, names, settings):
    return metric(
        image_index=index(list(labels), names),
        embeddings=unit(np.asarray(vectors, dtype=float)) if np.isfinite(vectors).all() else vectors,
        labels=np.asarray(labels),
        duplicate_groups=alone(labels),
        settings=settings,
    )


ANGLES = [[1, 0], [1, 0.2], [0, 1], [0.2, 1]]


@pytest.mark.parametrize(
    ("vectors", "labels", "names", "reason"),
    [
        (ANGLES, [0, 0, 0, 0], ["a"], "declares 1"),
        (ANGLES, [1, 1, 1, 1], ["a", "b"], "1 class only"),
        ([[1, 0]] * 4, [0, 0, 1, 1], ["a", "b"], "tells apart"),
        ([[1, 0], [1, 0], [0, 1], [0, 1]], [0, 0, 1, 1], ["a", "b"], "tells apart"),
        ([[1, 0], [0, 1]], [0, 1], ["a", "b"], "tells apart"),
        ([[1, 0], [0, 1], [1, 0], [0, 1]], [0, 0, 1, 1], ["a", "b"], "same centroid"),
    ],
    ids=[
        "one declared",
        "one present",
        "all identical",
        "copies only",
        "singletons only",
        "same images twice",
    ],
)
def test_degenerate_classes_are_skipped_although_scikit_learn_would_say_perfect(
    vectors, labels, names, reason, index, settings
):
    result = measure(feature_separability, index, vectors, labels, names, settings)
    assert result["skipped"] is True
    assert reason in result["reason"]
    assert result["embed_model"] == settings.embed_model


@pytest.mark.parametrize("metric", [feature_separability, intra_class_diversity])
def test_vectors_that_are_not_finite_are_skipped_with_their_rows(metric, index, settings):
    vectors = np.array(ANGLES, dtype=np.float32)
    vectors[2, 1] = np.nan
    result = measure(metric, index, vectors, [0, 0, 1, 1], ["a", "b"], settings)
    assert result["skipped"] is True
    assert "rows [2]" in result["reason"]


@pytest.mark.parametrize("metric", [feature_separability, intra_class_diversity])
def test_vectors_of_other_length_are_refused(metric, index, settings):
    with pytest.raises(ValueError, match="unit length"):
        metric(
            image_index=index([0, 0, 1, 1], ["a", "b"]),
            embeddings=np.array(ANGLES) * 3,
            labels=np.array([0, 0, 1, 1]),
            duplicate_groups=alone([0, 0, 1, 1]),
            settings=settings,
        )


def test_two_classes_of_the_same_images_are_named_among_others(index, settings):
    vectors = [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0.1, 0, 1]]
    result = measure(feature_separability, index, vectors, [0, 0, 1, 1, 2, 2], ["a", "b", "c"], settings)
    assert result["coincident_classes"] == ["a", "b"]


def test_an_empty_class_has_published_silhouette_zero_and_in_truth_none(index, settings):
    result = measure(feature_separability, index, ANGLES, [0, 0, 2, 2], ["a", "b", "c"], settings)
    assert result["per_class_silhouette"]["b"] == 0.0
    assert result["per_class_silhouette_all"]["b"] is None


def test_diversity_is_the_mean_l2_distance_to_the_plain_mean(index, settings):
    vectors, labels = blobs(200, 3)
    result = intra_class_diversity(
        image_index=index(labels.tolist(), ["c", "a", "b"]),
        embeddings=vectors,
        labels=labels,
        duplicate_groups=alone(labels),
        settings=settings,
    )
    assert list(result["per_class_diversity"]) == ["a", "b", "c"]
    for label, name in enumerate(["c", "a", "b"]):
        rows = vectors[labels == label].astype(float)
        expected = np.linalg.norm(rows - rows.mean(axis=0), axis=1).mean()
        assert result["per_class_diversity"][name] == pytest.approx(expected, abs=6e-5)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_an_empty_class_drags_the_published_mean_down_and_leaves_the_added_one_alone(index, settings):
    result = measure(intra_class_diversity, index, ANGLES, [0, 0, 2, 2], ["a", "b", "c"], settings)
    assert result["per_class_diversity"]["b"] == 0.0
    assert result["min_diversity_class"] == "b"
    assert result["mean_diversity_present"] == pytest.approx(1.5 * result["mean_diversity"], abs=2e-4)
    assert result["per_class_cosine_distance"]["b"] is None
    assert result["n_classes_measured"] == 2


def test_one_class_has_a_diversity(index, settings):
    result = measure(intra_class_diversity, index, ANGLES, [0, 0, 0, 0], ["weed"], settings)
    assert result["mean_diversity"] == result["mean_diversity_present"] > 0


def test_identical_images_are_named_and_have_no_diversity(index, settings):
    vectors = [[3, 4, 5]] * 3 + [[1, 0, 0], [0, 1, 0]]
    result = measure(intra_class_diversity, index, vectors, [0, 0, 0, 1, 1], ["a", "b"], settings)
    assert result["identical_classes"] == ["a"]
    assert result["per_class_diversity"]["a"] == 0.0
    assert result["per_class_cosine_distance"] == {"a": 0.0, "b": 1.0}


def test_singletons_only_have_no_diversity_to_average(index, settings):
    result = measure(intra_class_diversity, index, [[1, 0], [0, 1]], [0, 1], ["a", "b"], settings)
    assert result["mean_diversity"] == 0.0
    assert result["mean_diversity_present"] is None
    assert result["mean_cosine_distance"] is None


def test_intervals_of_silhouette_and_diversity_hold_the_centroids_and_hold_the_figures(index, settings):
    vectors, labels = blobs(300, 3)
    given = {"embeddings": vectors, "labels": labels, "duplicate_groups": alone(labels), "settings": settings}
    images = index(labels.tolist(), list("abc"))
    for metric, figure in (
        (feature_separability, "silhouette_score_all"),
        (intra_class_diversity, "mean_diversity"),
    ):
        value = metric(image_index=images, **given)
        interval = value["intervals"][figure]
        assert interval["kind"] == "sample"
        assert interval["low"] < value[figure] < interval["high"]
        assert "given the class centroids" in interval["method"]
    # Of a mean of independent values, the bootstrap's interval is about 1.96 standard errors to each side.
    samples = silhouette_samples(vectors, labels, metric="cosine")
    error = samples.std(ddof=1) / np.sqrt(len(samples))
    limits = feature_separability(image_index=images, **given)["intervals"]["silhouette_score_all"]
    assert limits["high"] - limits["low"] == pytest.approx(2 * 1.96 * error, rel=0.1)
