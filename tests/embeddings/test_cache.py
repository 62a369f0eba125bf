"""Shards are found by content, and a killed run goes on at its next one."""

import numpy as np
import pytest

from agml_assets.embeddings.cache import EmbeddingCache, embed_in_shards
from agml_assets.store import ArtifactStore

IMAGES = [f"hash{i}" for i in range(10)]
IDENTITY = {"model": "m", "preprocessing": "p", "precision": "float32"}


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(ArtifactStore(tmp_path / "results"))


def run(cache, out, images=IMAGES, identity=IDENTITY, stop_after=99):
    calls = []

    def encode(start, stop):
        if len(calls) == stop_after:
            raise KeyboardInterrupt
        calls.append((start, stop))
        return np.arange(start, stop, dtype=np.float32)[:, None] * np.ones(3, np.float32)

    use = embed_in_shards(encode, images, identity, cache, out, shard_size=4)
    return use, calls


def test_a_second_run_over_the_same_images_encodes_nothing(cache, tmp_path):
    use, calls = run(cache, tmp_path / "a.npy")
    assert (use.verdict, use.misses, calls) == ("miss", 10, [(0, 4), (4, 8), (8, 10)])
    use, calls = run(cache, tmp_path / "b.npy")
    assert (use.verdict, use.hits, calls) == ("hit", 10, [])
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy")[:, 0], np.arange(10))


def test_a_killed_run_goes_on_at_its_next_shard(cache, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(cache, tmp_path / "a.npy", stop_after=2)
    use, calls = run(cache, tmp_path / "a.npy")
    assert calls == [(8, 10)]
    assert (use.verdict, use.hits, use.misses) == ("partial", 8, 2)


def test_other_images_models_preprocessing_or_precision_are_encoded_again(cache, tmp_path):
    run(cache, tmp_path / "a.npy")
    for change in ({"model": "n"}, {"preprocessing": "q"}, {"precision": "bfloat16"}):
        assert run(cache, tmp_path / "b.npy", identity={**IDENTITY, **change})[0].verdict == "miss"
    changed = [*IMAGES[:5], "other", *IMAGES[6:]]
    assert run(cache, tmp_path / "b.npy", images=changed)[1] == [(4, 8)]
    assert run(cache, tmp_path / "b.npy", images=IMAGES[::-1])[0].verdict == "miss"


def test_a_damaged_shard_is_encoded_again(cache, tmp_path):
    run(cache, tmp_path / "a.npy")
    shard = sorted((tmp_path / "results").rglob("*.npy"))[0]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    use, calls = run(cache, tmp_path / "b.npy")
    assert len(calls) == 1
    assert use.verdict == "partial"
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_shard_damaged_anywhere_is_never_used(cache, tmp_path):
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    cache.put("ab", vectors)
    shard = next((tmp_path / "results").rglob("ab.npy"))
    whole = shard.read_bytes()
    for place in range(len(whole)):
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert cache.get("ab") is None
    shard.write_bytes(whole)
    np.testing.assert_array_equal(cache.get("ab"), vectors)


def test_vectors_that_are_not_finite_pass_through_as_they_are(cache, tmp_path):
    raw = np.array([[np.nan, 1], [0.6, 0.8], [np.inf, 0]], dtype=np.float32)
    for name in ("encoded.npy", "cached.npy"):
        out = tmp_path / name
        embed_in_shards(lambda start, stop: raw[start:stop], IMAGES[:3], IDENTITY, cache, out, shard_size=2)
        np.testing.assert_array_equal(np.load(out), raw)


def test_another_dataset_with_the_same_images_shares_shards(tmp_path):
    store = ArtifactStore(tmp_path / "results")
    run(EmbeddingCache(store), tmp_path / "a.npy")
    assert run(EmbeddingCache(ArtifactStore(store.root)), tmp_path / "b.npy")[0].verdict == "hit"


def test_progress_counts_every_image_cached_or_not(cache, tmp_path):
    for _ in range(2):
        told = []
        embed_in_shards(
            lambda start, stop: np.ones((stop - start, 2), np.float32),
            IMAGES,
            IDENTITY,
            cache,
            tmp_path / "a.npy",
            shard_size=4,
            progress=lambda *counts: told.append(counts),
        )
        assert told == [(4, 10), (8, 10), (10, 10)]


def test_vectors_that_are_no_numbers_are_not_kept(cache, tmp_path):
    def encode(start, stop):
        return np.full((stop - start, 3), np.nan if start == 4 else 1.0, np.float32)

    for expected in ("miss", "partial"):
        use = embed_in_shards(encode, IMAGES, IDENTITY, cache, tmp_path / "a.npy", shard_size=4)
        assert use.verdict == expected
    assert use.misses == 4
