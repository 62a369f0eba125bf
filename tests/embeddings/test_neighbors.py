"""Neighbours and pairs agree with scikit-learn and brute force, whatever the block size."""

import numpy as np
import pytest

from agml_assets.embeddings import nearest
from agml_assets.embeddings import neighbors as module
from agml_assets.embeddings.neighbors import components, find_neighbors, from_arrays, to_arrays
from agml_assets.errors import UserError


@pytest.fixture(params=["by blocks", "by bounds"], autouse=True)
def way(request, monkeypatch):
    """Both ways to compare: block by block, and the one that many vectors take on a processor."""
    if request.param == "by bounds":
        monkeypatch.setattr(module, "_MANY", 2)
        monkeypatch.setattr(nearest, "_TILE", 32)
        monkeypatch.setattr(nearest, "_WIDE", 96)
        monkeypatch.setattr(nearest, "_AXES", (8, 16, 32))
    return request.param


def unit(vectors):
    vectors = np.asarray(vectors, dtype=np.float64)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def brute_pairs(vectors, threshold):
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    i, j = np.nonzero(np.triu(exact @ exact.T >= threshold - 1e-12, 1))
    return np.stack([i, j], axis=1)


def with_planted_pairs(rng, n=400, d=48, planted=120):
    """Vectors with partners whose cosine lies around the threshold of 0.98, and with some exact copies."""
    base = unit(rng.normal(size=(n, d)))
    noise = rng.normal(size=(planted, d))
    noise -= (noise * base[:planted]).sum(1, keepdims=True) * base[:planted]
    noise = unit(noise)
    cosine = rng.uniform(0.975, 0.985, size=(planted, 1))
    near = unit(cosine * base[:planted] + np.sqrt(1 - cosine**2) * noise)
    return np.concatenate([base, near, base[5:15], base[5:10]])


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    return unit(load_digits().data)


def test_nearest_and_their_cosines_are_those_of_scikit_learn(digits):
    from sklearn.neighbors import NearestNeighbors

    found = find_neighbors(digits, threshold=0.98, max_pairs=10_000)
    reference = NearestNeighbors(n_neighbors=50, metric="cosine", algorithm="brute").fit(digits.astype(np.float64))
    distances, ids = reference.kneighbors()
    np.testing.assert_allclose(found.cosines, 1 - distances, atol=1e-6)
    # Neighbours at the same distance to within float32 may change places.
    clear = np.abs(np.diff(distances, axis=1)).min(axis=1) > 1e-6
    assert clear.sum() > 1000
    np.testing.assert_array_equal(found.ids[clear][:, :49], ids[clear][:, :49])


@pytest.mark.parametrize("threshold", [0.9, 0.95, 0.98])
def test_pairs_of_digits_are_those_of_brute_force(digits, threshold):
    found = find_neighbors(digits, threshold=threshold, max_pairs=10**7)
    np.testing.assert_array_equal(found.pair_rows, brute_pairs(digits, threshold))
    assert found.n_pairs == len(found.pair_rows)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_close_to_the_threshold_are_decided_exactly(seed):
    vectors = with_planted_pairs(np.random.default_rng(seed))
    found = find_neighbors(vectors, threshold=0.98, max_pairs=10**6)
    np.testing.assert_array_equal(found.pair_rows, brute_pairs(vectors, 0.98))


def test_every_copy_is_found_and_no_image_is_its_own_neighbour():
    vectors = with_planted_pairs(np.random.default_rng(7))
    found = find_neighbors(vectors, threshold=1.0, max_pairs=10**6)
    copies = {(5 + k, 520 + k) for k in range(10)} | {(5 + k, 530 + k) for k in range(5)}
    copies |= {(520 + k, 530 + k) for k in range(5)}
    assert {tuple(pair) for pair in found.pair_rows.tolist()} == copies
    assert not (found.ids == np.arange(len(vectors))[:, None]).any()


def test_the_block_size_changes_no_pair_and_no_group(monkeypatch):
    vectors = with_planted_pairs(np.random.default_rng(3))
    whole = find_neighbors(vectors, threshold=0.98, max_pairs=10**6)
    monkeypatch.setattr(module, "_BLOCK", {"cpu": (32, 48)})
    blocks = find_neighbors(vectors, threshold=0.98, max_pairs=10**6)
    np.testing.assert_array_equal(whole.pair_rows, blocks.pair_rows)
    np.testing.assert_array_equal(whole.near_group, blocks.near_group)
    np.testing.assert_allclose(whole.cosines, blocks.cosines, atol=1e-6)


@pytest.mark.parametrize("max_pairs", [0, 1, 50, 10**6])
def test_many_pairs_at_once_give_what_single_ones_give(monkeypatch, max_pairs):
    vectors = with_planted_pairs(np.random.default_rng(5))
    single = find_neighbors(vectors, threshold=0.98, max_pairs=max_pairs)
    monkeypatch.setattr(module, "_FEW", 0)
    monkeypatch.setattr(module, "_AT_ONCE_FLOAT64", 100)
    many = find_neighbors(vectors, threshold=0.98, max_pairs=max_pairs)
    np.testing.assert_array_equal(many.pair_rows, brute_pairs(vectors, 0.98)[:max_pairs])
    np.testing.assert_array_equal(many.pair_rows, single.pair_rows)
    np.testing.assert_array_equal(many.near_group, single.near_group)
    assert many.n_pairs == single.n_pairs == len(brute_pairs(vectors, 0.98))


@pytest.mark.parametrize("few", [0, 1 << 18])
@pytest.mark.parametrize("threshold", [0.8, 0.95, 0.98, 1.0])
def test_pairs_sought_alone_are_those_found_beside_neighbours(digits, monkeypatch, threshold, few):
    monkeypatch.setattr(module, "_FEW", few)
    monkeypatch.setattr(module, "_BLOCK", {"cpu": (64, 208)})
    vectors = np.concatenate([digits[:600], with_planted_pairs(np.random.default_rng(2), d=64), digits[:40]])
    alone = find_neighbors(vectors, threshold=threshold, max_pairs=10**7, k=0)
    beside = find_neighbors(vectors, threshold=threshold, max_pairs=10**7)
    np.testing.assert_array_equal(alone.pair_rows, brute_pairs(vectors, threshold))
    np.testing.assert_array_equal(alone.pair_rows, beside.pair_rows)
    np.testing.assert_array_equal(alone.near_group, beside.near_group)
    np.testing.assert_allclose(alone.pair_cosines, beside.pair_cosines, atol=1e-6)
    assert alone.n_pairs == beside.n_pairs == len(alone.pair_rows)
    assert alone.ids.shape == alone.cosines.shape == (len(vectors), 0)


def test_the_screen_judges_few_pairs_and_misses_none(monkeypatch):
    rng = np.random.default_rng(0)
    base = unit(rng.normal(size=(3000, 256)) * np.arange(1, 257) ** -0.5)
    vectors = np.concatenate([base, unit(base[:300] + rng.normal(scale=0.012, size=(300, 256)))])
    judged = []
    original = module._Pairs._cosines_of
    monkeypatch.setattr(
        module._Pairs, "_cosines_of", lambda self, i, j: judged.append(len(i)) or original(self, i, j)
    )
    found = find_neighbors(vectors, threshold=0.98, max_pairs=10**7, k=0)
    np.testing.assert_array_equal(found.pair_rows, brute_pairs(vectors, 0.98))
    assert 100 < found.n_pairs <= sum(judged) < 2000 < len(vectors) ** 2 / 2


@pytest.mark.parametrize("max_pairs", [0, 1, 37, 1000, 10**6])
@pytest.mark.parametrize("k", [0, 50])
def test_pairs_of_copies_are_listed_in_order_up_to_the_limit(k, max_pairs):
    rng = np.random.default_rng(3)
    base = with_planted_pairs(rng, n=60, d=32, planted=40)
    vectors = base[rng.integers(0, len(base), size=400)]
    found = find_neighbors(vectors, threshold=0.98, max_pairs=max_pairs, k=k)
    expected = brute_pairs(vectors, 0.98)
    np.testing.assert_array_equal(found.pair_rows, expected[:max_pairs])
    assert found.n_pairs == len(expected) > 1000
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    i, j = found.pair_rows.T
    np.testing.assert_allclose(found.pair_cosines, (exact[i] * exact[j]).sum(axis=1), atol=1e-6)


@pytest.mark.parametrize("copies", [0, 300])
@pytest.mark.parametrize("k", [1, 7, 50])
def test_equally_near_rows_are_taken_by_row(monkeypatch, copies, k):
    monkeypatch.setattr(module, "_BLOCK", {"cpu": (48, 80)})
    rng = np.random.default_rng(4)
    # Halves: every product is exact, and most are equal to many others.
    corners = np.zeros((500, 9), np.float32)
    for row in corners:
        row[rng.choice(9, 4, replace=False)] = rng.choice([-0.5, 0.5], 4)
    corners = rng.permutation(np.unique(corners, axis=0))
    vectors = corners[np.r_[np.arange(len(corners)), rng.integers(0, len(corners), copies)]]
    similar = vectors @ vectors.T
    np.fill_diagonal(similar, -2)
    found = find_neighbors(vectors, threshold=0.98, max_pairs=10**6, k=k)
    expected = np.argsort(-similar, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found.ids, expected)
    np.testing.assert_array_equal(found.cosines, np.take_along_axis(similar, expected, axis=1))


def test_copies_reach_a_threshold_of_one_and_are_listed_by_row():
    base = unit(np.random.default_rng(1).normal(size=(90, 768)))
    vectors = base[np.random.default_rng(2).integers(0, 90, size=1500)]
    found = find_neighbors(vectors, threshold=1.0, max_pairs=10**6)
    equal = (vectors[:, None, :8] == vectors[None, :, :8]).all(axis=2)
    np.testing.assert_array_equal(found.pair_rows, np.argwhere(np.triu(equal, 1)))
    np.testing.assert_array_equal(found.near_group, equal.argmax(axis=1))
    for row in range(0, 1500, 50):
        copies = np.flatnonzero(equal[row] & (np.arange(1500) != row))
        np.testing.assert_array_equal(found.ids[row, : len(copies)], copies)
        # Copies of another image stand together, by row as well.
        other = equal[found.ids[row, len(copies)]].nonzero()[0]
        last = min(len(copies) + len(other), 50)
        np.testing.assert_array_equal(found.ids[row, len(copies) : last], other[: last - len(copies)])
    assert found.cosines.max() <= 1


def test_vectors_may_be_mapped_from_a_file_and_progress_is_told(tmp_path):
    vectors = with_planted_pairs(np.random.default_rng(9), n=1200)
    np.save(tmp_path / "v.npy", vectors)
    told = []
    found = find_neighbors(
        np.load(tmp_path / "v.npy", mmap_mode="r"),
        threshold=0.98,
        max_pairs=10**6,
        progress=lambda *counts: told.append(counts),
    )
    np.testing.assert_array_equal(found.pair_rows, brute_pairs(vectors, 0.98))
    assert told[-1] == (len(vectors), len(vectors))
    assert len(told) > 1


def test_a_lowered_matmul_precision_is_neither_used_nor_changed(digits):
    import torch

    torch.set_float32_matmul_precision("medium")
    try:
        found = find_neighbors(digits, threshold=0.98, max_pairs=10**6)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    np.testing.assert_array_equal(found.pair_rows, brute_pairs(digits, 0.98))


def test_groups_are_the_connected_components_of_all_pairs():
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import connected_components

    vectors = with_planted_pairs(np.random.default_rng(11))
    found = find_neighbors(vectors, threshold=0.98, max_pairs=0)
    pairs = brute_pairs(vectors, 0.98)
    n = len(vectors)
    _, label = connected_components(
        sparse.coo_matrix((np.ones(len(pairs)), pairs.T), shape=(n, n)), directed=False
    )
    smallest = {component: np.flatnonzero(label == component)[0] for component in set(label.tolist())}
    np.testing.assert_array_equal(found.near_group, [smallest[component] for component in label])


@pytest.mark.parametrize("n", [3000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_identical_images_are_all_counted_and_grouped_and_only_max_pairs_stored(n):
    vectors = np.tile(unit(np.random.default_rng(0).normal(size=(1, 16))), (n, 1))
    found = find_neighbors(vectors, threshold=0.98, max_pairs=1000)
    assert found.n_pairs == n * (n - 1) // 2
    assert (found.near_group == 0).all()
    np.testing.assert_array_equal(found.pair_rows, [(0, j) for j in range(1, 1001)])
    np.testing.assert_array_equal(found.ids[100, :3], [0, 1, 2])
    assert found.ids.shape == (n, 50)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_few_images_have_as_many_neighbours_as_there_are_others(n):
    found = find_neighbors(unit(np.eye(4)[:n]), threshold=0.98, max_pairs=10)
    assert found.ids.shape == found.cosines.shape == (n, n - 1)
    assert found.n_pairs == 0


def test_rows_that_are_no_unit_vectors_are_named():
    vectors = unit(np.random.default_rng(0).normal(size=(20, 8)))
    vectors[4] = np.nan
    vectors[9] *= 2
    with pytest.raises(UserError, match="rows 4, 9"):
        find_neighbors(vectors, threshold=0.98, max_pairs=10)


def test_an_approximate_index_is_used_only_when_asked_for(digits):
    exact = find_neighbors(digits, threshold=0.98, max_pairs=10**6)
    approximate = find_neighbors(digits, threshold=0.98, max_pairs=10**6, ivf_threshold=1000)
    assert (exact.index_type, approximate.index_type) == ("exact", "IndexIVFFlat")
    assert not (approximate.ids == np.arange(len(digits))[:, None]).any()
    pairs = {tuple(pair) for pair in exact.pair_rows.tolist()}
    found = {tuple(pair) for pair in approximate.pair_rows.tolist()}
    assert len(found & pairs) > 0.9 * len(pairs)
    assert find_neighbors(digits, threshold=0.98, max_pairs=1, ivf_threshold=5000).index_type == "exact"


def test_neighbours_survive_being_stored(digits, tmp_path):
    found = find_neighbors(digits[:100], threshold=0.95, max_pairs=50)
    np.savez(tmp_path / "n.npz", **to_arrays(found))
    with np.load(tmp_path / "n.npz", allow_pickle=False) as arrays:
        loaded = from_arrays(dict(arrays))
    np.testing.assert_array_equal(found.pair_rows, loaded.pair_rows)
    assert (loaded.n_pairs, loaded.threshold, loaded.index_type) == (found.n_pairs, 0.95, "exact")


def test_components_of_no_edges_are_the_rows_themselves():
    np.testing.assert_array_equal(components(3, np.empty(0, int), np.empty(0, int)), [0, 1, 2])


def clustered(rng, n=6000, d=96, classes=12):
    centres = 2 * rng.normal(size=(classes, d))
    return unit(centres[rng.integers(0, classes, n)] + rng.normal(size=(n, d)))


def test_bounds_spare_most_products_and_change_no_neighbour(monkeypatch):
    monkeypatch.setattr(module, "_MANY", 2)
    monkeypatch.setattr(nearest, "_TILE", 64)
    vectors = clustered(np.random.default_rng(6), n=3000)
    made = []
    original = nearest._Search._compare

    def counted(self, rows, columns):
        made.append(len(columns))
        original(self, rows, columns)

    monkeypatch.setattr(nearest._Search, "_compare", counted)
    spared = find_neighbors(vectors, threshold=0.98, max_pairs=10**6)
    n_spared = sum(made)
    monkeypatch.setattr(nearest, "_AXES", ())
    every = find_neighbors(vectors, threshold=0.98, max_pairs=10**6)
    assert n_spared < (sum(made) - n_spared) / 3
    np.testing.assert_array_equal(spared.ids, every.ids)
    similar = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(similar, -2)
    np.testing.assert_allclose(spared.cosines, -np.sort(-similar, axis=1)[:, :50], atol=1e-6)


def test_the_same_bytes_come_out_again_on_any_number_of_cores(monkeypatch):
    vectors = clustered(np.random.default_rng(8))
    first = find_neighbors(vectors, threshold=0.9, max_pairs=10**6)
    for cores in (1, 3):
        monkeypatch.setattr(nearest, "_cores", lambda cores=cores: cores)
        again = find_neighbors(vectors, threshold=0.9, max_pairs=10**6)
        for name, array in to_arrays(first).items():
            assert array.tobytes() == to_arrays(again)[name].tobytes(), name


@pytest.mark.parametrize("max_pairs", [0, 50, 10**6])
def test_more_pairs_than_are_listed_beside_neighbours_are_sought_alone(monkeypatch, max_pairs):
    vectors = with_planted_pairs(np.random.default_rng(5))
    monkeypatch.setattr(nearest, "_MOST_PAIRS", 20)
    found = find_neighbors(vectors, threshold=0.98, max_pairs=max_pairs)
    expected = brute_pairs(vectors, 0.98)
    np.testing.assert_array_equal(found.pair_rows, expected[:max_pairs])
    assert found.n_pairs == len(expected) > 20
