"""Shards of embeddings by content, so that the same images are never encoded twice.

A shard's key covers the images' pixels, the model with its revision or weights, the preprocessing and
the precision. A killed run finds its finished shards here; so does another dataset with the same images.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from jaxtyping import Float

from agml_assets.store import PLATFORM, ArtifactStore


@dataclass(frozen=True)
class CacheUse:
    """How many images were found in the cache, and how many had to be encoded."""

    hits: int
    misses: int

    @property
    def verdict(self) -> str:
        """`hit`, `miss` or `partial`."""
        return "hit" if self.misses == 0 else "miss" if self.hits == 0 else "partial"


class EmbeddingCache:
    """Stored shards of vectors, in the artifact store, verified when read."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    def key(self, identity: dict[str, Any], images: Sequence[str]) -> str:
        """Return the key of a shard: a digest over the embedder's identity and the images' pixel hashes."""
        text = json.dumps(identity, sort_keys=True) + "\n" + "\n".join(images)
        return blake3(text.encode()).hexdigest()[:32]

    def get(self, key: str) -> Float[np.ndarray, "n d"] | None:
        """Return the shard, or None when it is absent or damaged."""
        if not self._store.is_intact(PLATFORM, _file(key)):
            return None
        return np.array(self._store.read(PLATFORM, _file(key)))

    def put(self, key: str, vectors: Float[np.ndarray, "n d"]) -> None:
        """Store a shard."""
        self._store.write(
            PLATFORM,
            _file(key),
            vectors,
            {
                "artifact": "embeddings/cache",
                "code_version": "1",
                "inputs": {},
                "settings": {},
            },
        )


def embed_in_shards(
    encode: Callable[[int, int], Float[np.ndarray, "n d"]],
    images: Sequence[str],
    identity: dict[str, Any],
    cache: EmbeddingCache,
    out: Path,
    shard_size: int,
    progress: Callable[[int, int], None] | None = None,
) -> CacheUse:
    """Encode all images shard by shard through the cache, and write them to the .npy file `out`.

    Args:
        encode: Returns the float32 vectors of rows `start` to `stop`.
        images: Pixel hash of every row, in row order.
        identity: What the vectors depend on beside the pixels.
        cache: Where finished shards are kept; each is stored as soon as it is there, if it is finite.
        out: Local file to write; float32 (N, D).
        shard_size: Rows in a shard.
        progress: Told the rows done and in all after each shard.

    Returns:
        How many rows came from the cache.
    """
    hits, vectors = 0, None
    for start in range(0, len(images), shard_size):
        stop = min(start + shard_size, len(images))
        key = cache.key(identity, images[start:stop])
        shard = cache.get(key)
        if shard is None:
            shard = encode(start, stop)
            # A passing fault of the GPU shall not come back from the cache.
            if np.isfinite(shard).all():
                cache.put(key, shard)
        else:
            hits += stop - start
        if vectors is None:
            shape = (len(images), shard.shape[1])
            vectors = np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=shape)
        vectors[start:stop] = shard
        if progress:
            progress(stop, len(images))
    if vectors is None:
        raise ValueError("no images to embed")
    vectors.flush()
    return CacheUse(hits, len(images) - hits)


def _file(key: str) -> str:
    return f"embeddings/cache/{key[:2]}/{key}.npy"
