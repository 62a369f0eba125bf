"""The k nearest of every vector, and the pairs from a border on, among many vectors on the processor.

Similar vectors are brought together first; then few products decide most rows, and a short sketch of the vectors
rules out most of the others. How products are judged and what becomes of copies is in `neighbors.py`.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64
from threadpoolctl import threadpool_limits

from agml_assets.embeddings import neighbor_kernels

_TILE = 512  # rows of a block
_WIDE = 2048  # columns of a block of bounds
_DENSE = 3  # tiles beside its own that each tile is compared with in full
_AXES = (32, 64, 128, 192, 256, 384)  # numbers of them to choose from
_SAMPLE = 4096  # vectors from which the principal axes are taken
_OF_CLUSTER = 256  # vectors, on average
_MOST_CLUSTERS = 1024
_ROUNDS = 5  # of k-means: the order is to be good, not the best
_ORDERED_BY = 64  # principal components
_CHUNK = 4096  # vectors read at once
_TRIED = 8  # tiles that are compared with a sample to choose the number of axes
_MOST_PAIRS = 1 << 20  # that are listed: some 20 MB
_COST_OF_NEEDED = 1.3  # of a multiplication of vectors that are picked out, in those of bounds


@dataclass(frozen=True)
class Nearest:
    """Neighbours and pairs by products in float32.

    Attributes:
        ids: The k nearest others, nearest first, ties by smaller id; (n, k).
        cosines: Their products, within [-1, 1].
        pairs: All pairs i < j whose product reaches the border, in lexicographic order; None where there are
            more than a million.
        pair_cosines: The product of each.
    """

    ids: Int64[np.ndarray, "n k"]
    cosines: Float32[np.ndarray, "n k"]
    pairs: Int64[np.ndarray, "p 2"] | None
    pair_cosines: Float32[np.ndarray, " p"]


def find_nearest(
    read: Callable[[Int64[np.ndarray, " r"]], Float32[np.ndarray, "r d"]],
    n: int,
    k: int,
    border: float,
    slack: float,
    progress: Callable[[int], None],
) -> Nearest:
    """Compare every vector with every other, in float32; the result depends neither on threads nor on luck.

    A pair's product x . y is that of the leading principal components plus that of the rests, which is at most
    the product of the rests' lengths (Cauchy and Schwarz). Where this bound is below the k-th best of both that
    are known so far, and below the border, the product is not needed. What is known is what earlier stages found,
    each of which ends before the next begins: so the same products are made, in the same blocks, every time.

    Args:
        read: Returns some of the unit vectors.
        n: How many there are.
        k: Neighbours of each, fewer than n.
        border: Product from which two vectors are listed as a pair.
        slack: What float32 may err by in a product.
        progress: Told the rows done.
    """
    axes = _principal_axes(read(np.arange(0, n, -(-n // _SAMPLE))))
    id_of = _bring_together(read, n, axes[:, :_ORDERED_BY])
    search = _Search(read(id_of), id_of, k, border)
    near = range(0, min((_DENSE + 1) * _TILE, n), _TILE)
    for offset in near:
        search.compare_all(offset, _TILE)
    progress(near.stop)
    if near.stop < n:
        search.sketch(axes, slack)
    for offset in range(near.stop, n, _WIDE):
        search.compare_needed(offset, _WIDE)
        progress(min(offset + _WIDE, n))
    return search.result()


class _Search:
    """The vectors in their order, and what is known of each so far."""

    def __init__(
        self, vectors: Float32[np.ndarray, "n d"], id_of: Int64[np.ndarray, " n"], k: int, border: float
    ) -> None:
        n = len(vectors)
        self._vectors, self._id_of, self._border = vectors, id_of, np.float32(border)
        self._values = np.full((n, k), neighbor_kernels.NONE_YET, np.float32)
        self._ids = np.full((n, k), n, np.int64)
        self._least = np.full(n, neighbor_kernels.NONE_YET, np.float32)
        """Similarity of the last of the k, of every vector."""
        self._pairs = np.empty((_MOST_PAIRS, 2), np.int64)
        self._pair_values = np.empty(_MOST_PAIRS, np.float32)
        self._n_pairs = np.zeros(1, np.int64)
        self._taking = threading.Lock()
        self._bounds = np.empty((n, 0), np.float32)
        self._slack = np.float32(0)

    def compare_all(self, offset: int, width: int) -> None:
        """Compare each tile with the columns from the offset behind its start on."""
        self._for_each_tile(offset, width, self._compare)

    def compare_needed(self, offset: int, width: int) -> None:
        """Do the same where bounds do not rule it out by what is known before."""
        if not self._bounds.shape[1]:
            self.compare_all(offset, width)
            return
        known = np.minimum(self._least, self._border)  # a copy: it stands still while tiles are compared

        def compare(rows: slice, columns: Int64[np.ndarray, " c"]) -> None:
            needed = self._reach(known[rows], known[columns], self._bounds[rows], self._bounds[columns])
            self._compare(rows, columns[needed])

        self._for_each_tile(offset, width, compare)

    def sketch(self, axes: Float32[np.ndarray, "d d"], slack: float) -> None:
        """Make bounds of as many axes as promise the least work, or none where that is least."""
        n, d = self._vectors.shape
        self._slack = np.float32(slack)
        known = np.minimum(self._least, self._border)
        columns = np.arange(0, n, -(-n // _WIDE))
        tiles = [slice(start, start + _TILE) for start in np.linspace(0, n - _TILE, _TRIED).astype(int).tolist()]
        chosen, least = 0, 1.0
        for m in (m for m in _AXES if m < d):
            bounds = _bounds(self._vectors[columns], axes[:, :m], slack)
            needed = [
                self._reach(known[rows], known[columns], _bounds(self._vectors[rows], axes[:, :m], slack), bounds)
                for rows in tiles
            ]
            cost = m / d + _COST_OF_NEEDED * float(np.mean(needed))
            if cost < least:
                chosen, least = m, cost
        if chosen:
            self._bounds = _bounds(self._vectors, axes[:, :chosen], slack)

    def result(self) -> Nearest:
        """Return what was found, by id."""
        place_of = np.argsort(self._id_of)
        n_pairs = int(self._n_pairs[0])
        order = np.lexsort(self._pairs[:n_pairs].T[::-1])
        return Nearest(
            ids=self._ids[place_of],
            cosines=self._values[place_of] + np.float32(0),  # -0.0 and 0.0 are one
            pairs=self._pairs[order] if n_pairs <= _MOST_PAIRS else None,
            pair_cosines=self._pair_values[order],
        )

    def _for_each_tile(
        self, offset: int, width: int, compare: Callable[[slice, Int64[np.ndarray, " c"]], None]
    ) -> None:
        """Give every tile and its columns to `compare`, on all cores, one product of matrices on each."""
        n = len(self._vectors)
        tiles = [slice(start, min(start + _TILE, n)) for start in range(0, n - offset, _TILE)]
        columns = [np.arange(rows.start + offset, min(rows.start + offset + width, n)) for rows in tiles]
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(_cores()) as pool:
            list(pool.map(compare, tiles, columns))
        if self._n_pairs[0] > len(self._pairs):
            self._border = np.float32(np.inf)  # pairs are sought elsewhere: let nothing be done for them

    def _reach(
        self,
        known_of_rows: Float32[np.ndarray, " r"],
        known_of_columns: Float32[np.ndarray, " c"],
        bounds_of_rows: Float32[np.ndarray, "r m"],
        bounds_of_columns: Float32[np.ndarray, "c m"],
    ) -> Bool[np.ndarray, " c"]:
        """Say which columns have a bound that reaches what is known of the row or of the column."""
        excess = np.empty(len(bounds_of_columns), np.float32)
        neighbor_kernels.largest_excess(
            bounds_of_rows @ bounds_of_columns.T, known_of_rows, known_of_columns, excess
        )
        return excess >= -self._slack

    def _compare(self, rows: slice, columns: Int64[np.ndarray, " c"]) -> None:
        """Make the products of a tile with some columns, and take what matters."""
        for first in range(0, len(columns), _TILE):
            some = columns[first : first + _TILE]
            block = self._vectors[rows] @ self._vectors[some].T
            if some[0] == rows.start:
                block[np.tril_indices(len(block))] = neighbor_kernels.MASKED
            known = np.minimum(self._least[rows], self._border), np.minimum(self._least[some], self._border)
            hits = np.empty(block.size, np.int32)
            n_hits = neighbor_kernels.list_hits(block, *known, hits)
            with self._taking:
                neighbor_kernels.take_hits(
                    block,
                    hits[:n_hits],
                    np.arange(rows.start, rows.stop),
                    some,
                    self._id_of,
                    self._values,
                    self._ids,
                    self._least,
                    self._border,
                    self._pairs,
                    self._pair_values,
                    self._n_pairs,
                )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _principal_axes(sample: Float32[np.ndarray, "s d"]) -> Float32[np.ndarray, "d d"]:
    """Return orthonormal axes, those along which the vectors are longest first."""
    _, axes = np.linalg.eigh((sample.T @ sample).astype(np.float64))
    return np.ascontiguousarray(axes[:, ::-1].astype(np.float32))


def _bounds(
    vectors: Float32[np.ndarray, "b d"], axes: Float32[np.ndarray, "d m"], slack: float
) -> Float32[np.ndarray, "b m+1"]:
    """Return the components along the axes and an upper bound of the length of the rest."""
    bounds = np.empty((len(vectors), axes.shape[1] + 1), np.float32)
    leading = np.matmul(vectors, axes, out=bounds[:, :-1])
    bounds[:, -1] = np.sqrt(np.maximum(1 - np.einsum("bm,bm->b", leading, leading), 0) + np.float32(slack))
    return bounds


def _bring_together(
    read: Callable[[Int64[np.ndarray, " r"]], Float32[np.ndarray, "r d"]],
    n: int,
    axes: Float32[np.ndarray, "d m"],
) -> Int64[np.ndarray, " n"]:
    """Return an order of the vectors that puts similar ones side by side: spherical k-means, centre by centre."""
    leading = np.concatenate([read(np.arange(i, min(i + _CHUNK, n))) @ axes for i in range(0, n, _CHUNK)])
    n_clusters = min(max(1, n // _OF_CLUSTER), _MOST_CLUSTERS)
    centres = leading[:: n // n_clusters][:n_clusters].copy()
    for _ in range(_ROUNDS):
        centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        nearest = np.concatenate(
            [(leading[i : i + _CHUNK] @ centres.T).argmax(axis=1) for i in range(0, n, _CHUNK)]
        )
        order = np.argsort(nearest, kind="stable")
        used, begin = np.unique(nearest[order], return_index=True)
        centres[used] = np.add.reduceat(leading[order], begin, axis=0)
    place = np.empty(n_clusters, np.int64)
    place[_chain(centres)] = np.arange(n_clusters)
    return np.argsort(place[nearest], kind="stable")


def _chain(centres: Float32[np.ndarray, "c m"]) -> Int64[np.ndarray, " c"]:
    """Return an order of the centres, each followed by the most similar of those left."""
    similar = centres @ centres.T
    chain = [0]
    for _ in range(len(centres) - 1):
        similar[:, chain[-1]] = -np.inf
        chain.append(int(similar[chain[-1]].argmax()))
    return np.array(chain)
