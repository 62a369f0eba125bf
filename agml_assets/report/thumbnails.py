"""Small pictures inside the page: JPEG as data addresses, within a budget of bytes.

Which images are worth a picture is the card's decision.
"""

from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO

import numpy as np
from jaxtyping import UInt8
from PIL import Image

SIDE = 128
"""Pixels of the longest side."""

_QUALITY = 72


class Thumbnails:
    """Makes pictures of images until a budget is spent.

    Attributes:
        bytes_left: What further pictures may still take, as text in the page.
    """

    def __init__(self, pixels: UInt8[np.ndarray, "n h w 3"] | None, rows: Mapping[int, int], budget: int) -> None:
        """Take the pixels (memory-mapped, or None), the row of each source row, and the budget in bytes."""
        self._pixels = pixels
        self._rows = rows
        self._addresses: dict[int, str] = {}
        self.bytes_left = budget

    def address(self, source_row: int) -> str | None:
        """Return the data address of an image's picture; None where there is none or the budget is spent."""
        row = self._rows.get(source_row)
        if self._pixels is None or row is None or not 0 <= row < len(self._pixels):
            return None
        if source_row not in self._addresses:
            self._addresses[source_row] = _encode(self._pixels[row])
        address = self._addresses[source_row]
        if len(address) > self.bytes_left:
            return None
        self.bytes_left -= len(address)
        return address


def _encode(picture: UInt8[np.ndarray, "h w 3"]) -> str:
    image = Image.fromarray(np.ascontiguousarray(picture))
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    file = BytesIO()
    image.save(file, "JPEG", quality=_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + b64encode(file.getvalue()).decode("ascii")
