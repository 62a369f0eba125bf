"""Label-free ways to make embeddings smaller, each with the bytes that one embedding then takes.

All are fitted on the vectors that they compress, and give vectors back: what a code is decoded to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32
from threadpoolctl import threadpool_limits

from agml_assets.errors import UserError

_FLOAT32_BYTES = 4
_VECTORS_PER_CENTROID = 8  # product quantisation learns at most one centroid for so many vectors, and at most 256
_MOST_BITS = 8


@dataclass(frozen=True)
class Compressed:
    """Vectors after compression.

    Attributes:
        vectors: What is left of each, decoded, float32.
        bytes_per_embedding: What one takes as stored, without what all share (axes, codebooks).
    """

    vectors: Float32[np.ndarray, "n k"]
    bytes_per_embedding: float


def compress(
    vectors: Float32[np.ndarray, "n d"], method: str, size: int | None = None, seed: int = 0
) -> Compressed:
    """Compress vectors by a named method.

    Args:
        vectors: Finite.
        method: `none`; `truncation`, the first `size` values; `pca`, the `size` leading principal components;
            `random_projection` on `size` Gaussian directions; `product_quantisation` to `size` codes of up to one
            byte (Jegou, Douze and Schmid 2011, doi:10.1109/TPAMI.2010.57).
        size: Values that are kept, or codes; not for `none`.
        seed: Of what is drawn.

    Raises:
        UserError: Method or size cannot be.
    """
    if method not in METHODS:
        raise UserError(f"There is no compression {method!r}: choose {', '.join(METHODS)}.")
    n, dimensions = vectors.shape
    if method == "none":
        if size is not None:
            raise UserError("Compression 'none' keeps all values: leave `size` out.")
        return METHODS[method](vectors, dimensions, seed)
    most = min(n - 1, dimensions) if method == "pca" else dimensions
    if size is None or not 1 <= size <= most:
        raise UserError(
            f"Compression {method!r} of {n} embeddings of {dimensions} values needs `size` from 1 to {most}, not "
            f"{size}."
        )
    return METHODS[method](vectors, size, seed)


def _keep(vectors: Float32[np.ndarray, "n d"], size: int, _seed: int) -> Compressed:
    return Compressed(np.ascontiguousarray(vectors[:, :size], np.float32), size * _FLOAT32_BYTES)


def _project_on_principal_axes(vectors: Float32[np.ndarray, "n d"], size: int, _seed: int) -> Compressed:
    from sklearn.decomposition import PCA

    with threadpool_limits(1, user_api="blas"):  # the same bytes whatever runs beside
        found = PCA(size, svd_solver="full").fit_transform(vectors.astype(np.float64))
    return Compressed(found.astype(np.float32), size * _FLOAT32_BYTES)


def _project_at_random(vectors: Float32[np.ndarray, "n d"], size: int, seed: int) -> Compressed:
    directions = np.random.default_rng(seed).normal(size=(vectors.shape[1], size)) / np.sqrt(size)
    with threadpool_limits(1, user_api="blas"):
        found = vectors.astype(np.float64) @ directions
    return Compressed(found.astype(np.float32), size * _FLOAT32_BYTES)


def _quantise(vectors: Float32[np.ndarray, "n d"], size: int, seed: int) -> Compressed:
    """Code each of `size` parts of a vector by its nearest centroid; parts are of equal length, zeros fill up."""
    import faiss

    n, dimensions = vectors.shape
    bits = min(_MOST_BITS, int(np.log2(max(2, n // _VECTORS_PER_CENTROID))))
    length = -(-dimensions // size)
    filled = np.zeros((n, length * size), np.float32)
    filled[:, :dimensions] = vectors
    if n < 2:
        raise UserError("Product quantisation needs 2 embeddings or more: its centroids are learnt from them.")
    index = faiss.IndexPQ(filled.shape[1], size, bits)
    index.pq.cp.seed = seed
    index.pq.cp.min_points_per_centroid = 1
    with threadpool_limits(1):
        index.train(filled)
        index.add(filled)
        decoded = index.reconstruct_n(0, n)
    return Compressed(np.ascontiguousarray(decoded[:, :dimensions]), size * bits / 8)


METHODS: Mapping[str, Callable[[Float32[np.ndarray, "n d"], int, int], Compressed]] = {
    "none": _keep,
    "truncation": _keep,
    "pca": _project_on_principal_axes,
    "random_projection": _project_at_random,
    "product_quantisation": _quantise,
}
