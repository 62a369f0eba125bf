"""Which images lie near which: the k nearest of every image, and all pairs at or above the threshold.

One exact pass over all pairs of vectors, block by block. Whether near means duplicate is for others to say.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3
from jaxtyping import Bool, Float, Float32, Int64

from agml_assets.device import use_device
from agml_assets.errors import UserError

if TYPE_CHECKING:
    import torch

EXACT, IVF = "exact", "IndexIVFFlat"

# Similarities held at once, as a number of float32 values; a few temporary arrays of that shape come on top.
_BLOCK_CELLS = {"cpu": 1 << 24, "cuda": 1 << 27}
_BLOCK_ROWS = 1024  # more rows make the product no faster
_BORDER = 1e-5  # float32 products of unit vectors differ by less from one BLAS or block to the next
_TOLERANCE = 1e-12  # vectors that differ in length alone reach a threshold of 1, although float64 may give less
_UNIT_TOLERANCE = 1e-3  # vectors that were kept in half precision pass; they are brought to unit length
_FEW = 1 << 18  # up to so many pairs are cheaper one by one than as a whole block
_AT_ONCE_FLOAT64 = 4096  # vectors
_ROWS_READ = 65_536


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

    A pair counts when its cosine, in float64 to within 1e-12, is at or above the threshold: products in
    float32 that come close are computed again, so the verdict depends on neither block size nor BLAS.
    Equal vectors are always a pair. O(N^2 D) operations; beside the vectors and the result, memory holds
    one block of similarities, however many pairs there are.

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
    lengths = _lengths(embeddings)
    n = len(embeddings)
    k = min(k, n - 1)
    vectors = np.array(embeddings, dtype=np.float32)
    vectors /= lengths[:, None]
    if ivf_threshold is not None and n >= ivf_threshold and k > 0:
        return _find_by_ivf(vectors, threshold, max_pairs, k)
    with use_device("comparing images") as device:
        return _find_exact(embeddings, vectors, threshold, max_pairs, k, device, progress)


def _find_exact(
    embeddings: Float32[np.ndarray, "n d"],
    vectors: Float32[np.ndarray, "n d"],
    threshold: float,
    max_pairs: int,
    k: int,
    device: str,
    progress: Callable[[int, int], None] | None,
) -> Neighbors:
    import torch

    n = len(vectors)
    first = _first_equal_rows(vectors)
    distinct, column = np.unique(first, return_inverse=True)
    left = torch.from_numpy(vectors).to(device)
    copies = len(distinct) < n
    right = torch.from_numpy(vectors[distinct]).to(device) if copies else left
    spread = torch.from_numpy(column).to(device)
    pairs = _Pairs(embeddings, first, threshold, max_pairs, device)
    ids, cosines = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    rows_at_once = max(1, min(_BLOCK_ROWS, _BLOCK_CELLS[device] // n))
    with _full_precision():
        for start in range(0, n, rows_at_once):
            stop = min(start + rows_at_once, n)
            block = left[start:stop] @ right.T
            if copies:
                # Equal vectors share a column: a product may give them different last bits.
                block = block.index_select(1, spread)
            block.clamp_(-1, 1)
            inside = torch.arange(stop - start, device=device)
            block[inside, inside + start] = -torch.inf
            if k:
                nearest, similar = _nearest(block, k)
                ids[start:stop], cosines[start:stop] = nearest.cpu().numpy(), similar.cpu().numpy()
                hot = torch.nonzero(similar[:, 0] >= threshold - _BORDER)[:, 0]
                if len(hot):
                    pairs.add(block[:, start:].index_select(0, hot), hot + start, start)
            if progress:
                progress(stop, n)
    return pairs.result(ids, cosines, EXACT)


class _Pairs:
    """Collects pairs and components, block by block."""

    def __init__(
        self,
        embeddings: Float32[np.ndarray, "n d"],
        first_equal: Int64[np.ndarray, " n"],
        threshold: float,
        max_pairs: int,
        device: str,
    ) -> None:
        import torch

        self._embeddings, self._threshold, self._room, self._device = embeddings, threshold, max_pairs, device
        self._first_equal = torch.from_numpy(first_equal).to(device)
        self._group = torch.arange(len(embeddings), device=device)
        self._rows: list[Int64[np.ndarray, "p 2"]] = []
        self._cosines: list[Float32[np.ndarray, " p"]] = []
        self._counted = 0

    def add(
        self, similar: "Float[torch.Tensor, 'b m']", rows: "Int64[torch.Tensor, ' b']", first_column: int
    ) -> None:
        """Take the pairs i < j of some rows, in order, with all rows from `first_column` on."""
        import torch

        columns = torch.arange(first_column, len(self._embeddings), device=self._device)
        hits = similar >= self._threshold - _BORDER
        hits &= columns > rows[:, None]
        if torch.count_nonzero(hits) <= _FEW:
            i, j = torch.nonzero(hits, as_tuple=True)
            true = self._are_pairs(similar[i, j], rows[i], columns[j])
            i, j = i[true], j[true]
            self._counted += len(i)
            self._join(rows[i], columns[j])
        else:
            self._clear_border(hits, similar, rows, columns)
            self._counted += int(torch.count_nonzero(hits))
            self._join_many(hits, rows, columns)
            # Only as many rows are listed as fill the room.
            enough = int(torch.searchsorted(hits.sum(dim=1).cumsum(0), self._room)) + 1
            i, j = torch.nonzero(hits[:enough] if self._room else hits[:0], as_tuple=True)
        i, j = i[: self._room], j[: self._room]
        self._store(torch.stack([rows[i], columns[j]], dim=1).cpu().numpy(), similar[i, j].cpu().numpy())

    def add_all(self, pairs: Int64[np.ndarray, "p 2"], cosines: Float32[np.ndarray, " p"]) -> None:
        """Take all pairs at once, in lexicographic order."""
        import torch

        self._counted += len(pairs)
        self._store(pairs[: self._room], np.clip(cosines[: self._room], -1, 1))
        self._join(*torch.from_numpy(pairs).T)

    def result(
        self, ids: Int64[np.ndarray, "n k"], cosines: Float32[np.ndarray, "n k"], index_type: str
    ) -> Neighbors:
        return Neighbors(
            ids=ids,
            cosines=cosines,
            pair_rows=np.concatenate([np.empty((0, 2), np.int64), *self._rows]),
            pair_cosines=np.concatenate([np.empty(0, np.float32), *self._cosines]),
            n_pairs=self._counted,
            near_group=self._group.cpu().numpy(),
            threshold=self._threshold,
            index_type=index_type,
        )

    def _are_pairs(
        self,
        similar: "Float[torch.Tensor, ' e']",
        i: "Int64[torch.Tensor, ' e']",
        j: "Int64[torch.Tensor, ' e']",
    ) -> "Bool[torch.Tensor, ' e']":
        """Say which candidates are pairs; those on the border are computed again in float64."""
        import torch

        border = (similar < self._threshold + _BORDER) & (self._first_equal[i] != self._first_equal[j])
        pairs = ~border
        for some in torch.nonzero(border)[:, 0].split(_AT_ONCE_FLOAT64):
            products = self._float64(i[some]) * self._float64(j[some])
            pairs[some] = products.sum(dim=1) >= self._threshold - _TOLERANCE
        return pairs

    def _clear_border(
        self,
        hits: "Bool[torch.Tensor, 'b m']",
        similar: "Float[torch.Tensor, 'b m']",
        rows: "Int64[torch.Tensor, ' b']",
        columns: "Int64[torch.Tensor, ' m']",
    ) -> None:
        """Clear the candidates of a whole block that are no pairs."""
        import torch

        border = hits & (similar < self._threshold + _BORDER)
        border &= self._first_equal[rows][:, None] != self._first_equal[columns]
        if torch.count_nonzero(border) <= _FEW:
            i, j = torch.nonzero(border, as_tuple=True)
            hits[i, j] = self._are_pairs(similar[i, j], rows[i], columns[j])
            return
        left = self._float64(rows)
        for start in range(0, len(columns), _AT_ONCE_FLOAT64):
            some = slice(start, start + _AT_ONCE_FLOAT64)
            exact = left @ self._float64(columns[some]).T
            hits[:, some] &= ~border[:, some] | (exact >= self._threshold - _TOLERANCE)

    def _float64(self, rows: "Int64[torch.Tensor, ' b']") -> "Float[torch.Tensor, 'b d']":
        import torch

        exact = torch.from_numpy(self._embeddings[rows.cpu().numpy()]).to(self._device).double()
        return exact / exact.norm(dim=1, keepdim=True)

    def _store(self, pairs: Int64[np.ndarray, "p 2"], cosines: Float32[np.ndarray, " p"]) -> None:
        self._rows.append(pairs)
        self._cosines.append(cosines)
        self._room -= len(pairs)

    def _join_many(
        self,
        hits: "Bool[torch.Tensor, 'b m']",
        rows: "Int64[torch.Tensor, ' b']",
        columns: "Int64[torch.Tensor, ' m']",
    ) -> None:
        """Join without listing the pairs: Boruvka's way, one edge of every row and column at a time.

        Each round at least halves the number of components that have an edge left, so a few rounds do.
        """
        import torch

        while True:
            apart = hits & (self._group[rows][:, None] != self._group[columns])
            any_of_row, column = apart.to(torch.uint8).max(dim=1)
            if not any_of_row.any():
                return
            any_of_column, row = apart.to(torch.uint8).max(dim=0)
            i = torch.cat([rows[any_of_row > 0], rows[row[any_of_column > 0]]])
            j = torch.cat([columns[column[any_of_row > 0]], columns[any_of_column > 0]])
            self._join(i, j)

    def _join(self, i: "Int64[torch.Tensor, ' e']", j: "Int64[torch.Tensor, ' e']") -> None:
        """Join the components of the two rows of each edge."""
        import torch

        a, b = self._group[i], self._group[j]
        a, b = a[a != b], b[a != b]
        if not len(a):
            return
        roots, index = torch.unique(torch.cat([a, b]), return_inverse=True)
        index = index.cpu().numpy()
        smallest = torch.from_numpy(components(len(roots), index[: len(a)], index[len(a) :])).to(self._device)
        new = torch.arange(len(self._group), device=self._device)
        new[roots] = roots[smallest]
        self._group = new[self._group]


def components(n: int, i: Int64[np.ndarray, " e"], j: Int64[np.ndarray, " e"]) -> Int64[np.ndarray, " n"]:
    """Return the smallest row of each row's connected component, given the edges (i, j)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(coo_array((np.ones(len(i), bool), (i, j)), shape=(n, n)), directed=False)
    smallest = np.full(label.max() + 1 if n else 0, n, np.int64)
    np.minimum.at(smallest, label, np.arange(n))
    return smallest[label]


def _nearest(
    block: "Float[torch.Tensor, 'b n']", k: int
) -> "tuple[Int64[torch.Tensor, 'b k'], Float[torch.Tensor, 'b k']]":
    """Return columns and values of the k largest values of each row, ties by smaller column; k < n."""
    import torch

    values, found = block.topk(k + 1, dim=1)
    # Which of equal values topk takes is left open: where a tie is cut, the smallest columns are taken instead.
    cut = torch.nonzero(values[:, k - 1] == values[:, k])[:, 0]
    values, found = values[:, :k], found[:, :k]
    if len(cut):
        least = values[cut, -1:]
        above = values[cut] > least
        taken = block.index_select(0, cut) == least
        room = k - above.sum(dim=1, keepdim=True, dtype=torch.int32)
        taken &= taken.cumsum(dim=1, dtype=torch.int32) <= room
        taken.scatter_(1, found[cut], above | taken.gather(1, found[cut]))
        found[cut] = torch.nonzero(taken)[:, 1].view(-1, k)
    found = found.sort(dim=1).values
    values, order = block.gather(1, found).sort(dim=1, descending=True, stable=True)
    return found.gather(1, order), values


def _first_equal_rows(vectors: Float32[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
    """Return for each row the first row with the same bytes."""
    seen: dict[bytes, int] = {}
    return np.array(
        [seen.setdefault(blake3(vector).digest(), row) for row, vector in enumerate(vectors.view(np.uint8))],
        np.int64,
    )


@contextmanager
def _full_precision() -> Iterator[None]:
    """Multiply in float32 proper: TF32 and bfloat16 are wrong in the fourth decimal."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _find_by_ivf(vectors: Float32[np.ndarray, "n d"], threshold: float, max_pairs: int, k: int) -> Neighbors:
    """Search approximately with the index of the published pipeline: what it misses is missed."""
    import faiss

    n, dimensions = vectors.shape
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
    found_pairs = _Pairs(vectors, np.arange(n), threshold, max_pairs, "cpu")
    found_pairs.add_all(pairs[keep].astype(np.int64), distances[keep])
    return found_pairs.result(ids.astype(np.int64), np.clip(cosines, -1, 1), IVF)


def _lengths(embeddings: Float32[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Return the length of every row; refuse rows that are no unit vectors."""
    if embeddings.ndim != 2 or not len(embeddings):
        raise UserError("There are no embeddings to compare.")
    lengths = np.concatenate(
        [
            np.linalg.norm(embeddings[s : s + _ROWS_READ].astype(np.float64), axis=1)
            for s in range(0, len(embeddings), _ROWS_READ)
        ]
    )
    bad = np.flatnonzero(~(np.abs(lengths - 1) < _UNIT_TOLERANCE))
    if len(bad):
        shown = ", ".join(map(str, bad[:10])) + (" ..." if len(bad) > 10 else "")
        raise UserError(f"{len(bad)} embeddings are not finite unit vectors: rows {shown}.")
    return lengths
