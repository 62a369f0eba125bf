"""Vectors of a subject's examples: encoded once per image content and model, then brought together per example."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float

from agml_assets.dataset.decode import POLICY_VERSION
from agml_assets.embeddings.cache import CacheUse, EmbeddingCache, embed_in_shards
from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.evaluation.subjects import Subject
from agml_assets.store import ArtifactStore

SHARD = 1024
"""Images in one shard: what a killed run loses at most."""


def encode_images(
    subject: Subject,
    encoder: FrozenEncoder,
    store: ArtifactStore,
    out: Path,
    progress: Callable[[int, int], None] | None = None,
) -> CacheUse:
    """Write the vectors of all images to `out`, float32 (images, D), encoding those that the cache lacks.

    The cache knows images by content and the model by weights, transform and precision. With every image in
    it, the model is never loaded.

    Args:
        subject: Whose images.
        encoder: The frozen model.
        store: Holds the cache.
        out: Local file.
        progress: Told images done and in all.
    """
    return embed_in_shards(
        subject.encode_with(encoder),
        subject.digests(),
        _cache(encoder, store),
        out,
        SHARD,
        progress,
        device=lambda: encoder.device,
    )


def count_missing(subject: Subject, encoder: FrozenEncoder, store: ArtifactStore) -> int:
    """Return how many different images of the subject the cache lacks."""
    missing = set(subject.digests())
    for _, images in _cache(encoder, store).shards():
        missing -= set(images)
    return len(missing)


def _cache(encoder: FrozenEncoder, store: ArtifactStore) -> EmbeddingCache:
    return EmbeddingCache(store, {**encoder.identity(), "decode_policy": POLICY_VERSION})


def combine_images(subject: Subject, vectors: Float[np.ndarray, "i d"]) -> Float[np.ndarray, "e d"]:
    """Return one float32 vector per example: its image's, or the mean or largest value over its images'."""
    first = subject.examples["first_image"].to_numpy()
    count = subject.examples["n_images"].to_numpy()
    if (count == 1).all():
        return np.asarray(vectors[first], np.float32)
    combined = np.empty((len(first), vectors.shape[1]), np.float32)
    for place, (start, n) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        images = np.asarray(vectors[start : start + n])
        combined[place] = images.max(axis=0) if subject.protocol.aggregate == "max" else images.mean(axis=0)
    return combined
