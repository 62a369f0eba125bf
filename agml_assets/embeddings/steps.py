"""The heavy step of this room, wherever it runs: images become vectors."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS
from agml_assets.dataset.decode import POLICY_VERSION
from agml_assets.dataset.sources import open_source
from agml_assets.embeddings.artifacts import EMBEDDINGS
from agml_assets.embeddings.cache import EmbeddingCache, embed_in_shards
from agml_assets.embeddings.embedder import PACKAGED_MODELS, ImageEmbedder, local_model
from agml_assets.embeddings.images import encode_from_pixels, encode_from_source
from agml_assets.heavy import HeavyStep, Made, Work
from agml_assets.lineage import Artifact
from agml_assets.settings import Settings


def embed_images(works: Mapping[Artifact, Work], embedder: ImageEmbedder) -> Iterator[Made]:
    """Encode the images shard by shard through the cache: a killed step goes on at its next shard."""
    work = works[EMBEDDINGS]
    dataset, settings = work.dataset, work.dataset.settings
    index, hashes, pixels = work.read(IMAGE_INDEX), work.read(PIXEL_HASHES), work.read(PIXELS)
    if embedder.serves_from_pixels:
        encode = encode_from_pixels(embedder, pixels)
    else:
        source = open_source(dataset.entry)
        encode = encode_from_source(embedder, source, index, settings.max_image_pixels)
    out = dataset.work_folder("embeddings") / "embeddings.npy"
    use = embed_in_shards(
        encode,
        hashes["blake3"].to_list(),
        EmbeddingCache(dataset.store, {**embedder.identity(), "decode_policy": POLICY_VERSION}),
        out,
        settings.embed_shard_size,
        work.progress("images embedded"),
        device=lambda: embedder.device,
    )
    n, dimensions = np.load(out, mmap_mode="r", allow_pickle=False).shape
    facts = {
        "images_count": float(n),
        "dimensions_count": float(dimensions),
        "cache": use.verdict,
        "cached_images_count": float(use.hits),
        "encoded_images_count": float(use.misses),
        "model": settings.embed_model,
    }
    info = {"embedder": embedder.identity(), "device": use.device}
    yield Made(EMBEDDINGS, out, facts, info)


def _embed_with_own_model(works: Mapping[Artifact, Work]) -> Iterator[Made]:
    embedder = ImageEmbedder.from_settings(works[EMBEDDINGS].dataset.settings)
    try:
        yield from embed_images(works, embedder)
    finally:
        embedder.close()


def _model(settings: Settings) -> Sequence[tuple[str, str | None]]:
    here = settings.embed_model in PACKAGED_MODELS or local_model(settings.embed_model)
    return () if here else ((settings.embed_model, settings.embed_revision),)


EMBED = HeavyStep("embeddings", (EMBEDDINGS,), (IMAGE_INDEX, PIXEL_HASHES, PIXELS), _embed_with_own_model, _model)
STEPS = (EMBED,)
