"""Codecs against scikit-learn and FAISS."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from agml_assets.compression.codecs import METHODS, compress
from agml_assets.errors import UserError


@pytest.fixture(scope="module")
def digits():
    return load_digits().data[:400].astype(np.float32)


def test_all_components_give_back_the_distances(digits):
    full = compress(digits, "none")
    assert np.array_equal(full.vectors, digits)
    assert full.bytes_per_embedding == 64 * 4


def test_principal_components_are_those_of_scikit_learn(digits):
    ours = compress(digits, "pca", 8)
    theirs = PCA(8, svd_solver="covariance_eigh").fit_transform(digits.astype(np.float64))
    assert ours.bytes_per_embedding == 32
    assert np.abs(np.abs(ours.vectors) - np.abs(theirs)).max() < 1e-4


def test_random_projection_keeps_squared_lengths_on_average(digits):
    ratios = [
        (compress(digits, "random_projection", 16, seed).vectors.astype(float) ** 2).sum() / (digits**2).sum()
        for seed in range(60)
    ]
    # Each is a mean of 16 scaled chi-squares, of one degree each at worst: deviation sqrt(2/16).
    assert abs(np.mean(ratios) - 1) < 4 * np.sqrt(2 / 16 / 60)


def test_truncation_keeps_the_first_values(digits):
    assert np.array_equal(compress(digits, "truncation", 5).vectors, digits[:, :5])


def test_codes_are_decoded_to_a_few_centroids_of_each_part(digits):
    ours = compress(digits, "product_quantisation", 4)
    bits = 5  # 400 vectors, at least 8 a centroid
    assert ours.bytes_per_embedding == 4 * bits / 8
    for part in np.split(ours.vectors, 4, axis=1):
        assert len(np.unique(part, axis=0)) <= 2**bits
    lost = ((ours.vectors - digits) ** 2).mean()
    assert lost < 0.7 * digits.var(axis=0).mean()  # the mean alone would lose the variance


def test_more_codes_lose_less(digits):
    lost = [((compress(digits, "product_quantisation", m).vectors - digits) ** 2).mean() for m in (1, 4, 16, 64)]
    assert lost == sorted(lost, reverse=True)


def test_parts_that_do_not_divide_the_vector_are_filled_up(digits):
    assert compress(digits, "product_quantisation", 7).vectors.shape == digits.shape


@pytest.mark.parametrize("method", [name for name in METHODS if name != "none"])
def test_the_same_seed_gives_the_same_bytes(digits, method):
    first, second = (compress(digits, method, 8, seed=3).vectors for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert first.dtype == np.float32


@pytest.mark.parametrize(
    ("method", "size", "told"),
    [
        ("gzip", 4, "choose none, truncation"),
        ("none", 4, "leave `size` out"),
        ("pca", None, "from 1 to 64"),
        ("pca", 65, "from 1 to 64"),
        ("truncation", 0, "from 1 to 64"),
    ],
)
def test_what_cannot_be_is_said(digits, method, size, told):
    with pytest.raises(UserError, match=told):
        compress(digits, method, size)


def test_few_vectors_have_few_components():
    with pytest.raises(UserError, match="from 1 to 2"):
        compress(np.eye(3, 5, dtype=np.float32), "pca", 3)
