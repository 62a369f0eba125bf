"""Which images lie near which: the k nearest of every image, and all pairs at or above the threshold.

One exact pass over all pairs of vectors, block by block. Whether near means duplicate is for others to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64

from agml_assets.errors import UserError

EXACT, IVF = "exact", "IndexIVFFlat"

_BLOCK_CELLS = 1 << 24  # similarities held at once: 64 MB in float32
_BORDER = 1e-5  # float32 products of unit vectors differ by less from one BLAS or block to the next
_TOLERANCE = 1e-9  # copies reach a threshold of 1 although float64 gives 0.9999999999999998
_UNIT_TOLERANCE = 1e-3
_GATHER_LIMIT = 1 << 16  # up to so many single pairs are cheaper one by one than as a whole block


@dataclass(frozen=True)
class Neighbors:
    """Neighbours of every image.

    Attributes:
        ids: The k = min(50, N - 1) nearest other rows, nearest first, ties by smaller row; (N, k).
        cosines: Their cosine similarity, in [-1, 1].
        pair_rows: Pairs i < j with cosine >= threshold, in lexicographic order; the first `max_pairs` of them.
        pair_cosines: Cosine of each stored pair.
        n_pairs: Number of all such pairs, stored or not.
        near_group: Smallest row of each row's connected component over all such pairs, stored or not.
        threshold: The threshold, inclusive.
        index_type: `exact`, or `IndexIVFFlat` for an approximate search, which may miss pairs.
    """

    ids: Int64[np.ndarray, "n k"]
    cosines: Float32[np.ndarray, "n k"]
    pair_rows: Int64[np.ndarray, "p 2"]
    pair_cosines: Float32[np.ndarray, " p"]
    n_pairs: int
    near_group: Int64[np.ndarray, " n"]
    threshold: float
    index_type: str


def to_arrays(neighbors: Neighbors) -> dict[str, np.ndarray]:
    """Return the neighbours as named arrays, to be stored."""
    return {name: np.asarray(value) for name, value in asdict(neighbors).items()}


def from_arrays(arrays: Mapping[str, Any]) -> Neighbors:
    """Return the neighbours from stored arrays."""
    values = {name: arrays[name] for name in Neighbors.__dataclass_fields__}
    scalars = {"n_pairs": int, "threshold": float, "index_type": str}
    return Neighbors(**values | {name: kind(values[name]) for name, kind in scalars.items()})


def find_neighbors(
    embeddings: Float32[np.ndarray, "n d"],
    *,
    threshold: float,
    max_pairs: int,
    k: int = 50,
    ivf_threshold: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Neighbors:
    """Compare every vector with every other.

    A pair counts when its cosine, in float64 to within 1e-9, is at or above the threshold: products in
    float32 that come close are computed again, so the verdict depends on neither block size nor BLAS.

    Args:
        embeddings: Unit vectors; may be memory-mapped.
        threshold: Cosine at or above which two rows are a pair, in (0, 1].
        max_pairs: Pairs that are stored; those after them are counted and joined into groups all the same.
        k: Nearest rows of each row.
        ivf_threshold: Number of rows from which an approximate index is used; None means never.
        progress: Told the rows done and in all.

    Raises:
        UserError: Rows are not finite or not of unit length; they are named.
    """
    _require_unit_rows(embeddings)
    n = len(embeddings)
    k = min(k, n - 1)
    if ivf_threshold is not None and n >= ivf_threshold and k > 0:
        return _find_by_ivf(embeddings, threshold, max_pairs, k)
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vectors = torch.from_numpy(np.array(embeddings, dtype=np.float32)).to(device)
    found = _Found(n, threshold, max_pairs)
    ids, cosines = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    rows_at_once = max(1, min(1024, _BLOCK_CELLS // n))
    for start in range(0, n, rows_at_once):
        stop = min(start + rows_at_once, n)
        block = vectors[start:stop] @ vectors.T
        inside = torch.arange(stop - start, device=device)
        block[inside, inside + start] = -torch.inf
        top = block.topk(k, dim=1).values[:, -1].cpu().numpy() if k else None
        similar = block.cpu().numpy()
        if top is not None:
            for row, kth in enumerate(top):
                ids[start + row], cosines[start + row] = _nearest(similar[row], kth, k)
        found.add(similar, start, embeddings)
        if progress:
            progress(stop, n)
    return found.finish(ids, cosines, EXACT)


class _Found:
    """Collects pairs and components, block by block."""

    def __init__(self, n: int, threshold: float, max_pairs: int) -> None:
        self._threshold, self._max_pairs = threshold, max_pairs
        self._rows: list[Int64[np.ndarray, "p 2"]] = []
        self._cosines: list[Float32[np.ndarray, " p"]] = []
        self._stored = self._counted = 0
        self._group = np.arange(n, dtype=np.int64)

    def add(self, similar: Float32[np.ndarray, "b n"], start: int, embeddings: Float32[np.ndarray, "n d"]) -> None:
        """Take the pairs (i, j), i < j, of a block of rows that begins at `start`."""
        rows = start + np.arange(len(similar))
        hits = self._hits(similar[:, start:], start, embeddings)
        hits &= np.arange(start, similar.shape[1])[None, :] > rows[:, None]
        per_row = hits.sum(axis=1)
        self._counted += int(per_row.sum())
        room = self._max_pairs - self._stored
        if room > 0 and per_row.any():
            enough = int(np.searchsorted(np.cumsum(per_row), room)) + 1
            i, j = np.nonzero(hits[:enough])
            i, j = i[:room], j[:room] + start
            self.store(np.stack([i + start, j], axis=1), similar[i, j])
        # What is joined already needs no edge; a block of copies gives few.
        hits &= self._group[None, start:] != self._group[rows][:, None]
        i, j = np.nonzero(hits)
        self.join(i + start, j + start)

    def store(self, pairs: Int64[np.ndarray, "p 2"], cosines: Float32[np.ndarray, " p"]) -> None:
        self._rows.append(pairs)
        self._cosines.append(np.clip(cosines, -1, 1))
        self._stored += len(pairs)

    def join(self, i: Int64[np.ndarray, " e"], j: Int64[np.ndarray, " e"]) -> None:
        """Join the components of the rows of each edge."""
        if not len(i):
            return
        n = len(self._group)
        edges = np.unique(self._group[i] * n + self._group[j])
        self._group = components(n, np.append(edges // n, self._group), np.append(edges % n, np.arange(n)))

    def finish(
        self, ids: Int64[np.ndarray, "n k"], cosines: Float32[np.ndarray, "n k"], index_type: str
    ) -> Neighbors:
        return Neighbors(
            ids=ids,
            cosines=np.clip(cosines, -1, 1),
            pair_rows=np.concatenate([np.empty((0, 2), np.int64), *self._rows]),
            pair_cosines=np.concatenate([np.empty(0, np.float32), *self._cosines]),
            n_pairs=self._counted,
            near_group=self._group,
            threshold=self._threshold,
            index_type=index_type,
        )

    def add_pairs(self, pairs: Int64[np.ndarray, "p 2"], cosines: Float32[np.ndarray, " p"]) -> None:
        """Take single pairs, in lexicographic order."""
        self._counted += len(pairs)
        self.store(pairs[: self._max_pairs], cosines[: self._max_pairs])
        self.join(pairs[:, 0], pairs[:, 1])

    def _hits(
        self, similar: Float32[np.ndarray, "b m"], start: int, embeddings: Float32[np.ndarray, "n d"]
    ) -> Bool[np.ndarray, "b m"]:
        hits: Bool[np.ndarray, "b m"] = similar >= self._threshold
        i, j = np.nonzero(np.abs(similar - self._threshold) < _BORDER)
        if len(i) > _GATHER_LIMIT:
            left = _float64(embeddings[start : start + len(similar)])
            exact = np.concatenate(
                [left @ _float64(embeddings[s : s + 8192]).T for s in range(start, len(embeddings), 8192)], axis=1
            )
            near = np.abs(similar - self._threshold) < _BORDER
            hits[near] = exact[near] >= self._threshold - _TOLERANCE
        elif len(i):
            products = _float64(embeddings[i + start]) * _float64(embeddings[j + start])
            hits[i, j] = products.sum(axis=1) >= self._threshold - _TOLERANCE
        return hits


def components(n: int, i: Int64[np.ndarray, " e"], j: Int64[np.ndarray, " e"]) -> Int64[np.ndarray, " n"]:
    """Return the smallest row of each row's connected component, given the edges (i, j)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(coo_array((np.ones(len(i), bool), (i, j)), shape=(n, n)), directed=False)
    smallest = np.full(label.max() + 1 if n else 0, n, np.int64)
    np.minimum.at(smallest, label, np.arange(n))
    return smallest[label]


def _nearest(
    similar: Float32[np.ndarray, " n"], kth: float, k: int
) -> tuple[Int64[np.ndarray, " k"], Float32[np.ndarray, " k"]]:
    above, equal = np.flatnonzero(similar > kth), np.flatnonzero(similar == kth)
    chosen = np.concatenate([above, equal[: k - len(above)]])
    chosen = chosen[np.lexsort((chosen, -similar[chosen]))]
    return chosen, similar[chosen]


def _find_by_ivf(embeddings: Float32[np.ndarray, "n d"], threshold: float, max_pairs: int, k: int) -> Neighbors:
    """Search approximately with the index of the published pipeline: what it misses is missed."""
    import faiss

    n, dimensions = embeddings.shape
    vectors = np.ascontiguousarray(embeddings, dtype=np.float32)
    n_lists = max(1, min(max(int(np.sqrt(n)), 64), n // 39))
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, n_lists, faiss.METRIC_INNER_PRODUCT)
    index.nprobe = min(n_lists, 64)
    index.train(vectors)
    index.add(vectors)
    similar, found = index.search(vectors, k + 1)
    similar[(found == np.arange(n)[:, None]) | (found < 0)] = -np.inf
    order = np.argsort(-similar, axis=1, kind="stable")[:, :k]
    ids, cosines = np.take_along_axis(found, order, 1), np.take_along_axis(similar, order, 1)
    missing = np.isinf(cosines)
    if missing.any():
        raise UserError(
            f"The approximate index finds fewer than {k} neighbours for {int(missing.any(axis=1).sum())} images. "
            "Set faiss_ivf_threshold to null for an exact search."
        )
    limits, distances, others = index.range_search(vectors, threshold)
    rows = np.repeat(np.arange(n), limits[1:].astype(np.int64) - limits[:-1].astype(np.int64))
    pairs = np.stack([np.minimum(rows, others), np.maximum(rows, others)], axis=1)
    keys, first = np.unique(pairs[:, 0] * n + pairs[:, 1], return_index=True)
    keep = first[keys // n != keys % n]
    result = _Found(n, threshold, max_pairs)
    result.add_pairs(pairs[keep].astype(np.int64), distances[keep])
    return result.finish(ids.astype(np.int64), cosines, IVF)


def _float64(vectors: Float32[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    exact = np.asarray(vectors, dtype=np.float64)
    return exact / np.linalg.norm(exact, axis=1, keepdims=True)


def _require_unit_rows(embeddings: Float32[np.ndarray, "n d"]) -> None:
    if embeddings.ndim != 2 or not len(embeddings):
        raise UserError("There are no embeddings to compare.")
    lengths = np.concatenate(
        [
            np.linalg.norm(embeddings[s : s + 65_536].astype(np.float64), axis=1)
            for s in range(0, len(embeddings), 65_536)
        ]
    )
    bad = np.flatnonzero(~(np.abs(lengths - 1) < _UNIT_TOLERANCE))
    if len(bad):
        shown = ", ".join(map(str, bad[:10])) + (" ..." if len(bad) > 10 else "")
        raise UserError(f"{len(bad)} embeddings are not finite unit vectors: rows {shown}.")
