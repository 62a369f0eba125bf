"""The decode pass against Pillow and hashlib in a loop: MD5, BLAKE3 and a 256-pixel square of every photograph.

`python benchmarks/bench_decode.py [--images N] [--repeats R]`
"""

import argparse
import hashlib
import io
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from blake3 import blake3
from measure import compare
from photographs import Photographs
from PIL import Image, ImageOps

from agml_assets.dataset.decode_pass import decode_source
from agml_assets.settings import Settings


class Decoded(NamedTuple):
    """What both ways give: hexadecimal hashes, and squares uint8 (n, 256, 256, 3)."""

    md5: list[str]
    blake3: list[str]
    squares: np.ndarray


def obvious(source: Photographs) -> Decoded:
    """Do it image by image with Pillow and hashlib."""
    md5, blake, squares = [], [], []
    for file in source.files:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
        md5.append(hashlib.md5(image.tobytes()).hexdigest())
        image = image.convert("RGB")
        pixels = np.asarray(image)
        blake.append(
            blake3(f"uint8 {pixels.shape[0]} {pixels.shape[1]} 3\n".encode() + pixels.tobytes()).hexdigest()
        )
        short = min(image.size)
        width, height = (int(256 * side / short) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - 256) // 2, (height - 256) // 2
        squares.append(np.asarray(image.crop((left, top, left + 256, top + 256))))
    return Decoded(md5, blake, np.stack(squares))


def ours(source: Photographs) -> Decoded:
    """Do it with the decode pass, its files included."""
    with tempfile.TemporaryDirectory() as folder:
        found = decode_source(source, work_dir=Path(folder), settings=Settings())
        hashes, squares = found.pixel_hashes, np.load(found.pixels, mmap_mode="r")  # as its readers do
    return Decoded(hashes["md5_native"].to_list(), hashes["blake3"].to_list(), squares)


def agree(theirs: Decoded, mine: Decoded) -> str:
    """Compare hashes and squares, to the bit."""
    assert theirs.md5 == mine.md5
    assert theirs.blake3 == mine.blake3
    assert np.array_equal(theirs.squares, mine.squares)
    return "identical bytes"


def main() -> None:
    """Print the row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    source = Photographs(options.images, (1.0, 2.0))
    row = compare(
        work=f"decode, MD5, BLAKE3, 256 pixels bicubic: {options.images:,} JPEGs of 1 to 2 megapixels",
        obvious_way="Pillow and hashlib in a loop",
        obvious=partial(obvious, source),
        ours=partial(ours, source),
        agree=agree,
        at_least=4,
        repeats=options.repeats,
    )
    print(row, flush=True)


if __name__ == "__main__":
    main()
