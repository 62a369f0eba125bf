"""Vectors are found by content, and a killed run goes on at its next shard."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from agml_assets.embeddings.cache import EmbeddingCache, embed_in_shards
from agml_assets.errors import UserError
from agml_assets.store import ArtifactStore

IMAGES = [f"hash{i}" for i in range(10)]
IDENTITY = {"model": "m", "preprocessing": "p", "precision": "float32"}


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "results")


def vector(image):
    return np.full(3, int(image.removeprefix("hash")), np.float32)


def run(store, out, images=IMAGES, identity=IDENTITY, stop_after=99):
    calls = []

    def encode(rows):
        if len(calls) == stop_after:
            raise KeyboardInterrupt
        calls.append(list(rows))
        return np.stack([vector(images[row]) for row in rows])

    use = embed_in_shards(encode, images, EmbeddingCache(store, identity), out, shard_size=4)
    np.testing.assert_array_equal(np.load(out), [vector(image) for image in images])
    return use, calls


def test_a_second_run_over_the_same_images_encodes_nothing(store, tmp_path):
    use, calls = run(store, tmp_path / "a.npy")
    assert (use.verdict, use.misses, calls) == ("miss", 10, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
    use, calls = run(store, tmp_path / "b.npy")
    assert (use.verdict, use.hits, calls) == ("hit", 10, [])
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_killed_run_goes_on_at_its_next_shard(store, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(store, tmp_path / "a.npy", stop_after=2)
    use, calls = run(store, tmp_path / "a.npy")
    assert calls == [[8, 9]]
    assert (use.verdict, use.hits, use.misses) == ("partial", 8, 2)


def test_another_model_preprocessing_or_precision_encodes_again(store, tmp_path):
    run(store, tmp_path / "a.npy")
    for change in ({"model": "n"}, {"preprocessing": "q"}, {"precision": "bfloat16"}):
        assert run(store, tmp_path / "b.npy", identity={**IDENTITY, **change})[0].verdict == "miss"


def test_only_images_that_are_new_are_encoded_wherever_they_lie(store, tmp_path):
    run(store, tmp_path / "a.npy")
    assert run(store, tmp_path / "b.npy", images=["hash77", *IMAGES])[1] == [[0]]
    assert run(store, tmp_path / "b.npy", images=IMAGES[::-1])[0].verdict == "hit"
    assert run(store, tmp_path / "b.npy", images=[*IMAGES[:5], "hash55", *IMAGES[6:]])[1] == [[5]]


def test_copies_are_encoded_once(store, tmp_path):
    use, calls = run(store, tmp_path / "a.npy", images=["hash1", "hash2", "hash1", "hash1", "hash3"])
    assert calls == [[0, 1, 4]]
    assert use.misses == 5


def test_a_damaged_shard_is_encoded_again(store, tmp_path):
    run(store, tmp_path / "a.npy")
    shard = sorted((tmp_path / "results").rglob("*.npy"))[0]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    use, calls = run(store, tmp_path / "b.npy")
    assert len(calls) == 1
    assert use.verdict == "partial"
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_shard_damaged_anywhere_is_never_used(store):
    cache = EmbeddingCache(store, IDENTITY)
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    file = cache.put(IMAGES[:4], vectors)
    shard = Path(store.path("_platform", file).path)
    whole = shard.read_bytes()
    for place in range(len(whole)):
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert cache.get(file) is None
    shard.write_bytes(whole)
    np.testing.assert_array_equal(cache.get(file), vectors)
    assert list(cache.shards()) == [(file, IMAGES[:4])]


def test_vectors_that_are_not_finite_pass_through_and_are_not_kept(store, tmp_path):
    raw = np.array([[np.nan, 1], [0.6, 0.8], [np.inf, 0]], dtype=np.float32)
    for _ in range(2):
        out = tmp_path / "a.npy"
        cache = EmbeddingCache(store, IDENTITY)
        use = embed_in_shards(lambda rows: raw[list(rows)], IMAGES[:3], cache, out, shard_size=2)
        np.testing.assert_array_equal(np.load(out), raw)
        assert use.verdict == "miss"


def test_another_dataset_finds_the_images_that_it_shares(store, tmp_path):
    run(store, tmp_path / "a.npy")
    other = ["hash90", *IMAGES[3:6], "hash91"]
    use, calls = run(ArtifactStore(store.root), tmp_path / "b.npy", images=other)
    assert (use.hits, calls) == (3, [[0, 4]])


def test_progress_counts_every_image_cached_or_not(store, tmp_path):
    expected = ([(4, 10), (8, 10), (10, 10)], [(10, 10)])
    for counts in expected:
        told = []
        embed_in_shards(
            lambda rows: np.ones((len(rows), 2), np.float32),
            IMAGES,
            EmbeddingCache(store, IDENTITY),
            tmp_path / "a.npy",
            shard_size=4,
            progress=lambda *done: told.append(done),
        )
        assert told == counts


def test_a_full_disk_is_an_error_not_the_end_of_the_process(store, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match="10 vectors of 3 numbers could not be written"):
        run(store, tmp_path / "a.npy")
    assert not (tmp_path / "a.npy").exists()


def test_what_encoded_a_vector_is_known_when_it_comes_from_the_cache(store, tmp_path):
    def embed(images, device):
        cache, out = EmbeddingCache(store, IDENTITY), tmp_path / "a.npy"
        ones = lambda rows: np.ones((len(rows), 2), np.float32)  # noqa: E731
        return embed_in_shards(ones, images, cache, out, 4, device=lambda: device).device

    assert embed(IMAGES[:6], "cpu") == "cpu"
    assert embed(IMAGES[:6], "never asked") == "cpu"
    assert embed(IMAGES, "cuda") == "cpu, cuda"
