"""Decoded images on the local disk, in their own proportions, in any order as often as wanted.

Fine-tuning sees every image dozens of times, and sources give theirs once, in order, at any size.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import Image

from agml_assets.disk import named_when_full
from agml_assets.locks import Unfinished

_PIXELS, _LIST = "pixels.bin", "images.json"


@dataclass(frozen=True)
class StagedImages:
    """Images in one file, mapped to memory.

    Attributes:
        pixels: All images, one after the other.
        sizes: Height and width of each, int64 (n, 2).
        starts: Where each begins in `pixels`, int64 (n,).
    """

    pixels: UInt8[np.ndarray, " all"]
    sizes: Int64[np.ndarray, "n 2"]
    starts: Int64[np.ndarray, " n"]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.sizes)

    def __getitem__(self, place: int) -> Image.Image:
        """Return an RGB image."""
        height, width = self.sizes[place]
        start = self.starts[place]
        return Image.fromarray(np.array(self.pixels[start : start + height * width * 3]).reshape(height, width, 3))


def stage_images(
    folder: Path,
    identity: dict[str, Any],
    shortest: int,
    prepare: Callable[[Callable[[Image.Image], Any]], Iterator[UInt8[np.ndarray, "h w 3"]]],
) -> StagedImages:
    """Return the images in `folder`, put there now unless those of the same identity are.

    Args:
        folder: Local folder of these images alone.
        identity: What they depend on, as JSON values.
        shortest: Pixels of the shortest side, to which larger images are scaled down (bilinear, antialiased).
        prepare: Takes a function of an image; yields what it makes of each image in turn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pixels, listed = folder / _PIXELS, folder / _LIST
    wanted = json.loads(json.dumps({**identity, "shortest": shortest}))
    found = json.loads(listed.read_text()) if listed.is_file() else {}
    if found.get("identity") != wanted or not pixels.is_file():
        listed.unlink(missing_ok=True)
        sizes = []
        with named_when_full(folder, "the decoded images"), Unfinished(folder, _PIXELS) as stage:
            with stage.open("wb") as file:
                for image in prepare(lambda one: np.asarray(_scaled_down(one, shortest))):
                    sizes.append(image.shape[:2])
                    file.write(image.tobytes())
            stage.replace(pixels)
        found = {"identity": wanted, "sizes": sizes}
        with Unfinished(folder, _LIST) as stage:
            stage.write_text(json.dumps(found))
            stage.replace(listed)
    shapes = np.array(found["sizes"], np.int64).reshape(-1, 2)
    bytes_each = shapes.prod(axis=1) * 3
    return StagedImages(np.memmap(pixels, np.uint8, mode="r"), shapes, np.cumsum(bytes_each) - bytes_each)


def _scaled_down(image: Image.Image, shortest: int) -> Image.Image:
    factor = shortest / min(image.size)
    if factor >= 1:
        return image
    width, height = (max(shortest, round(side * factor)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)
