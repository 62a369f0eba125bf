"""Groups of images that are copies of one another: exact, near, and both joined."""

import numpy as np
import polars as pl
from jaxtyping import Int64

from agml_assets.embeddings.neighbors import components


def duplicate_groups(blake3_group: Int64[np.ndarray, " n"], near_group: Int64[np.ndarray, " n"]) -> pl.DataFrame:
    """Return the exact, near and joined group of every row; a group's id is its smallest row.

    Args:
        blake3_group: Group of rows with the same pixels, as the smallest row in it.
        near_group: Connected component of near-duplicates, as the smallest row in it.

    Returns:
        A frame with Int64 columns `row`, `exact`, `near`, `joined`.
    """
    rows = np.arange(len(near_group), dtype=np.int64)
    joined = components(len(rows), np.append(rows, rows), np.append(blake3_group, near_group))
    return pl.DataFrame({"row": rows, "exact": blake3_group, "near": near_group, "joined": joined})
