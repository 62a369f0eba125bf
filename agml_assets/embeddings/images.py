"""Images for the embedder: from `dataset/pixels`, or from the source again for models that resize otherwise."""

from collections.abc import Callable

import numpy as np
import polars as pl
from jaxtyping import Float, UInt8
from PIL import Image

from agml_assets.dataset.decode import decode_rgb
from agml_assets.dataset.image_index import usable_images
from agml_assets.dataset.sources import Source
from agml_assets.embeddings.embedder import ImageEmbedder
from agml_assets.errors import UserError

Encode = Callable[[int, int], Float[np.ndarray, "n d"]]


def encode_from_pixels(embedder: ImageEmbedder, pixels: UInt8[np.ndarray, "n 256 256 3"]) -> Encode:
    """Return a function that encodes the rows `start` to `stop` of stored pixels."""
    return lambda start, stop: embedder.encode_pixels(pixels[start:stop])


def encode_from_source(
    embedder: ImageEmbedder, source: Source, image_index: pl.DataFrame, max_pixels: int
) -> Encode:
    """Return a function that decodes the rows `start` to `stop` again and encodes them.

    Args:
        embedder: A model whose resize rule is not that of the stored pixels.
        source: Where the images come from.
        image_index: Says which source rows are usable.
        max_pixels: Limit of the decode policy.

    Returns:
        The function; it raises `UserError` where the source no longer gives every usable image.
    """
    source_rows = usable_images(image_index)["source_row"].to_list()

    def encode(start: int, stop: int) -> Float[np.ndarray, "n d"]:
        wanted = set(source_rows[start:stop])
        batch: list[Image.Image] = []
        vectors: list[Float[np.ndarray, "n d"]] = []
        for example in source.examples(source_rows[start]):
            if example.source_row in wanted and example.image is not None:
                batch.append(decode_rgb(example.image, max_pixels))
            if len(batch) == embedder.batch_size or (batch and example.source_row == source_rows[stop - 1]):
                vectors.append(embedder.encode_images(batch))
                batch = []
            if example.source_row == source_rows[stop - 1]:
                break
        if (found := sum(map(len, vectors))) != stop - start:
            raise UserError(
                f"The source gives {found} of the {stop - start} images in its rows {source_rows[start]} to "
                f"{source_rows[stop - 1]} that dataset/image_index lists: it has changed since. "
                "Make dataset/image_index again, then the embeddings."
            )
        return np.concatenate(vectors)

    return encode
