"""Images for the embedder: from `dataset/pixels`, or from the source again for models that resize otherwise."""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
from jaxtyping import Float, UInt8
from PIL import Image

from agml_assets.dataset.decode import decode_rgb
from agml_assets.dataset.image_index import usable_images
from agml_assets.dataset.sources import Source
from agml_assets.embeddings.cache import Encode
from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.errors import UserError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def encode_from_pixels(embedder: FrozenEncoder, pixels: UInt8[np.ndarray, "n 256 256 3"]) -> Encode:
    """Return a function that encodes rows of stored pixels."""

    def encode(rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        return embedder.encode_pixels(pixels, rows)

    return encode


def encode_from_source(
    embedder: FrozenEncoder, source: Source, image_index: pl.DataFrame, max_pixels: int
) -> Encode:
    """Return a function that decodes rows again, on all cores, and encodes them.

    At full size there are never more images in memory than cores.

    Args:
        embedder: A model whose resize rule is not that of the stored pixels.
        source: Where the images come from.
        image_index: Says which source rows are usable.
        max_pixels: Limit of the decode policy.

    Returns:
        The function; it raises `UserError` where the source no longer gives every usable image.
    """

    def encode(rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        return _encode_all(
            embedder, prepare_from_source(embedder.prepare_image, rows, source, image_index, max_pixels)
        )

    return encode


def prepare_from_source(
    prepare: Callable[[Image.Image], _Result],
    rows: Sequence[int],
    source: Source,
    image_index: pl.DataFrame,
    max_pixels: int,
) -> Iterator[_Result]:
    """Yield what `prepare` makes of each row's decoded RGB image, on all cores, in ascending order of the rows.

    Args:
        prepare: Called in threads.
        rows: Rows of the usable images.
        source: Where the images come from.
        image_index: Says which source rows are usable.
        max_pixels: Limit of the decode policy.

    Raises:
        UserError: The source no longer gives every usable image.
    """
    source_rows = usable_images(image_index)["source_row"].to_list()
    wanted = {source_rows[row] for row in rows}
    found = 0
    for prepared in side_by_side(
        lambda image: prepare(decode_rgb(image, max_pixels)), _images_of(source, wanted) if wanted else ()
    ):
        found += 1
        yield prepared
    if found != len(rows):
        raise UserError(
            f"The source gives {found} of the {len(rows)} images in its rows {min(wanted)} to "
            f"{max(wanted)} that dataset/image_index lists: it has changed since. "
            "Make dataset/image_index again, then the embeddings."
        )


def _images_of(source: Source, wanted: Collection[int]) -> Iterator[bytes | Path]:
    last = max(wanted)
    for example in source.examples(min(wanted)):
        if example.source_row in wanted and example.image is not None:
            yield example.image
        if example.source_row >= last:
            return


def encode_opened(embedder: FrozenEncoder, open_image: Callable[[int], bytes | Path], max_pixels: int) -> Encode:
    """Return a function that opens images by their places, decodes them on all cores, and encodes them.

    Args:
        embedder: The model.
        open_image: Gives an image file, or its content; called in order, never in threads.
        max_pixels: Limit of the decode policy.

    Returns:
        The function; it raises `UserError` where an image cannot be decoded.
    """

    def encode(rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        return _encode_all(embedder, prepare_opened(embedder.prepare_image, rows, open_image, max_pixels))

    return encode


def prepare_opened(
    prepare: Callable[[Image.Image], _Result],
    places: Sequence[int],
    open_image: Callable[[int], bytes | Path],
    max_pixels: int,
) -> Iterator[_Result]:
    """Yield what `prepare` makes, in threads, of the decoded RGB image in each place; else as `encode_opened`."""
    return side_by_side(lambda image: prepare(decode_rgb(image, max_pixels)), map(open_image, places))


def _encode_all(
    embedder: FrozenEncoder, prepared: Iterable[Float[np.ndarray, "3 h w"]]
) -> Float[np.ndarray, "n d"]:
    """Encode prepared images a batch at a time."""
    batch: list[Float[np.ndarray, "3 h w"]] = []
    vectors: list[Float[np.ndarray, "n d"]] = []
    for image in prepared:
        batch.append(image)
        if len(batch) >= embedder.batch_size:
            vectors.append(embedder.encode_prepared(np.stack(batch)))
            batch = []
    if batch:
        vectors.append(embedder.encode_prepared(np.stack(batch)))
    return np.concatenate(vectors) if vectors else np.empty((0, 0), np.float32)


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the results in the order of the items, a few of them made ahead."""
    cores = os.cpu_count() or 1
    ahead: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) > 2 * cores:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
