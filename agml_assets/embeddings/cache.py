"""Vectors by content, so that no image is encoded twice by the same model.

A vector belongs to the image's pixels, the model with its revision or weights, the preprocessing and the
precision. Vectors are kept in shards, a file each: a killed run finds its finished shards here, and any
dataset finds the images that it shares with another.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from jaxtyping import Float

from agml_assets.disk import named_when_full
from agml_assets.errors import UserError
from agml_assets.store import PLATFORM, ArtifactStore

Encode = Callable[[Sequence[int]], Float[np.ndarray, "n d"]]
"""Returns the float32 vectors of the given rows, which ascend."""


@dataclass(frozen=True)
class CacheUse:
    """Where the vectors of a dataset came from.

    Attributes:
        hits: Rows found in the cache.
        misses: Rows that were not.
        devices: Kinds of device that encoded them, now or when they were cached.
    """

    hits: int
    misses: int
    devices: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        """`hit`, `miss` or `partial`."""
        return "hit" if self.misses == 0 else "miss" if self.hits == 0 else "partial"

    @property
    def device(self) -> str:
        """The devices in words, the same whether a vector was cached or not."""
        return ", ".join(sorted(self.devices)) or "unknown"


class EmbeddingCache:
    """The vectors of one model in the artifact store, verified when read.

    Args:
        store: Where shards lie, shared by all datasets of the results root.
        identity: What vectors depend on beside the pixels; JSON values.
    """

    def __init__(self, store: ArtifactStore, identity: Mapping[str, Any]) -> None:
        self._store = store
        self._folder = f"embeddings/cache/{_digest(json.dumps(identity, sort_keys=True))}"

    def shards(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the file of each shard, sorted by name, and the images that it holds."""
        folder = self._store.path(PLATFORM, self._folder)
        names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        for file in (f"{self._folder}/{name}" for name in names if name.endswith(".npy")):
            sidecar = self._store.sidecar(PLATFORM, file)
            if sidecar is not None:
                yield file, sidecar.info["images"]

    def get(self, file: str) -> Float[np.ndarray, "n d"] | None:
        """Return the vectors of a shard, or None when it is damaged."""
        vectors: np.ndarray | None = self._store.read_intact(PLATFORM, file)
        return vectors

    def device(self, file: str) -> str | None:
        """Return the kind of device that encoded a shard, None where nobody noted it."""
        sidecar = self._store.sidecar(PLATFORM, file)
        return sidecar.info.get("device") if sidecar else None

    def put(self, images: Sequence[str], vectors: Float[np.ndarray, "n d"], device: str | None = None) -> str:
        """Store the vectors of images, given by their pixel hashes, as a shard; return its file."""
        file = f"{self._folder}/{_digest(*images)}.npy"
        facts = {"artifact": "embeddings/cache", "code_version": "2", "inputs": {}, "settings": {}}
        self._store.write(PLATFORM, file, vectors, {**facts, "info": {"images": list(images), "device": device}})
        return file


def embed_in_shards(
    encode: Encode,
    images: Sequence[str],
    cache: EmbeddingCache,
    out: Path,
    shard_size: int,
    progress: Callable[[int, int], None] | None = None,
    device: Callable[[], str | None] = lambda: None,
) -> CacheUse:
    """Write the vectors of all images to the .npy file `out`, encoding those that the cache lacks, each once.

    Args:
        encode: Encodes rows; called for one shard at a time.
        images: Pixel hash of every row, in row order.
        cache: Where vectors are kept; a shard is stored as soon as it is there, if it is finite.
        out: Local file to write; float32 (N, D).
        shard_size: Images in a shard.
        progress: Told the rows done and in all, after those from the cache and after each shard.
        device: Tells, after `encode` was called, on what kind of device.

    Returns:
        How many rows came from the cache, and what encoded them.
    """
    if not images:
        raise ValueError("no images to embed")
    lacking: dict[str, list[int]] = {}
    for row, image in enumerate(images):
        lacking.setdefault(image, []).append(row)
    writer = _Writer(out, len(images))
    tell = progress or (lambda done, total: None)

    devices = _fill_from(cache, lacking, writer)
    hits = writer.done
    if hits:
        tell(hits, len(images))

    missing = list(lacking)
    for start in range(0, len(missing), shard_size):
        chunk = missing[start : start + shard_size]
        shard = encode([lacking[image][0] for image in chunk])
        # A passing fault of the GPU shall not come back from the cache.
        if np.isfinite(shard).all():
            cache.put(chunk, shard, device())
        devices.add(device())
        for image, vector in zip(chunk, shard, strict=True):
            writer.fill(lacking[image], vector)
        tell(writer.done, len(images))
    writer.close()
    return CacheUse(hits, len(images) - hits, frozenset(name for name in devices if name))


def _fill_from(cache: EmbeddingCache, lacking: dict[str, list[int]], writer: "_Writer") -> set[str | None]:
    """Write the vectors that the cache holds, take their images out of `lacking`, and return what encoded them."""
    devices: set[str | None] = set()
    for file, kept in cache.shards():
        wanted = [place for place, image in enumerate(kept) if image in lacking]
        shard = cache.get(file) if wanted else None
        if shard is not None:
            devices.add(cache.device(file))
            for place in wanted:
                writer.fill(lacking.pop(kept[place]), shard[place])
    return devices


class _Writer:
    """The output file, made when the first vector tells its dimension."""

    def __init__(self, out: Path, n: int) -> None:
        self._out, self._n = out, n
        self._vectors: np.memmap | None = None
        self.done = 0

    def fill(self, rows: Sequence[int], vector: Float[np.ndarray, " d"]) -> None:
        if self._vectors is None:
            shape = (self._n, len(vector))
            try:
                with named_when_full(self._out.parent, f"{self._n} vectors of {shape[1]} numbers"):
                    self._vectors = np.lib.format.open_memmap(self._out, "w+", dtype=np.float32, shape=shape)
                    _reserve(self._out)
            except UserError:
                self._out.unlink(missing_ok=True)  # gives back what it did get
                raise
        self._vectors[rows] = vector
        self.done += len(rows)

    def close(self) -> None:
        if self._vectors is not None:
            self._vectors.flush()


def _reserve(file: Path) -> None:
    """Take the file's room on the disk now: writing to a mapped file on a full disk kills the process."""
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as handle:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)


def _digest(*texts: str) -> str:
    return blake3("\n".join(texts).encode()).hexdigest()[:32]
