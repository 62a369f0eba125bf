"""Embeddings that come with scikit-learn: the pixels of its handwritten digits, and four tasks for them."""

from functools import cache

import numpy as np
import polars as pl
from jaxtyping import Float32, Float64

_SIDE = 8


@cache
def load_digits() -> tuple[tuple[str, ...], Float32[np.ndarray, "1797 64"], dict[str, pl.DataFrame]]:
    """Return ids, the 64 pixels of each digit (0 to 16), and label tables by the names of their files.

    `digit` has ten classes and `even` two; `ink` is the mean pixel; `slant` is how far the digit leans, the
    covariance of the places of its ink across and down over the variance down.
    """
    from sklearn.datasets import load_digits as load

    found = load()
    ids = tuple(f"{place:04}" for place in range(len(found.data)))
    pixels = found.data.astype(np.float32)

    def table(labels: np.ndarray) -> pl.DataFrame:
        return pl.DataFrame({"id": ids, "label": labels})

    tables = {
        "digit__classification": table(found.target),
        "even__classification": table((found.target % 2 == 0).astype(int)),
        "ink__regression": table(found.data.mean(axis=1)),
        "slant__regression": table(_slant(found.data)),
    }
    return ids, pixels, tables


def _slant(pixels: Float64[np.ndarray, "n 64"]) -> Float64[np.ndarray, " n"]:
    images = pixels.reshape(-1, _SIDE, _SIDE) / pixels.sum(axis=1)[:, None, None]
    down, across = np.mgrid[:_SIDE, :_SIDE]
    down_from = down - (images * down).sum(axis=(1, 2))[:, None, None]
    across_from = across - (images * across).sum(axis=(1, 2))[:, None, None]
    slant: Float64[np.ndarray, " n"] = (images * down_from * across_from).sum(axis=(1, 2)) / (
        images * down_from**2
    ).sum(axis=(1, 2))
    return slant
