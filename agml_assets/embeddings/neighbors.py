"""Which images lie near which: the k nearest of every image, and all pairs at or above the threshold.

One exact pass over all pairs of vectors, block by block. Whether near means duplicate is for others to say.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3
from jaxtyping import Bool, Float, Float32, Int64

from agml_assets.device import use_device
from agml_assets.errors import UserError

if TYPE_CHECKING:
    import torch

EXACT, IVF = "exact", "IndexIVFFlat"

# Rows and columns of a block of similarities; on a processor it stays in the cache.
_BLOCK = {"cpu": (1024, 1024), "cuda": (4096, 1 << 15)}
_WIDE_CELLS = {"cpu": 1 << 24, "cuda": 1 << 27}  # similarities at once where most pairs of some rows are pairs
_STRIP = 16  # similarities that are looked at by their largest
_BORDER = 1e-5  # float32 products of unit vectors differ by less from one BLAS or block to the next
_TOLERANCE = 1e-12  # vectors that differ in length alone reach a threshold of 1, although float64 may give less
_UNIT_TOLERANCE = 1e-3  # vectors that were kept in half precision pass; they are brought to unit length
_FEW = 1 << 18  # up to so many pairs are cheaper one by one than as a whole block
_AT_ONCE_FLOAT64 = 4096  # vectors
_AT_ONCE_ENTRIES = 1 << 20  # pairs or neighbours of copies listed at once
_AT_ONCE_RANGE = 256  # rows whose pairs the approximate index lists at once
_MOST_RANGE = 50_000_000  # entries of its list, each pair twice: some 2 GB with their sorting
_ROWS_READ = 512  # copies of so many rows stay in the cache
_SAMPLE = 4096  # vectors from which the principal axes of the screen are taken
_AXES = (16, 32, 64, 128, 256)  # numbers of them to choose from
_COST_OF_CANDIDATE = 300_000  # of judging one candidate, in multiplications of a screening product
_MOST_ROWS = (1 << 32) - 1
_MANY = 4096  # different vectors from which compiled loops are worth their loading


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
    Equal vectors are always a pair, of cosine 1, and compared once. O(N^2 D) operations, each product serving
    both its rows; beside the vectors and the result, memory holds some blocks of similarities, a few hundred
    bytes for each row, however many pairs there are, and the bounds, which are shorter than the vectors.

    Where no neighbours are asked for, the vectors' leading principal components rule out most pairs first
    (`_Pairs.bounds`): the same pairs, several times faster. Of many vectors on a processor, they rule out most
    that are not among the neighbours as well (`find_nearest`).

    Args:
        embeddings: Unit vectors; may be memory-mapped.
        threshold: Cosine at or above which two rows are a pair, in (0, 1].
        max_pairs: Pairs that are stored; those after them are counted and joined into groups all the same.
        k: Nearest rows of each row; 0 for the pairs alone.
        ivf_threshold: Number of rows from which an approximate index is used; None means never.
        progress: Told the rows done and in all.

    Raises:
        UserError: Rows are not finite or not of unit length; they are named.
    """
    lengths = _lengths(embeddings)
    n = len(embeddings)
    k = min(k, n - 1)
    if ivf_threshold is not None and n >= ivf_threshold and k > 0:
        return _find_by_ivf(_unit_vectors(embeddings, lengths), threshold, max_pairs, k)
    with use_device("comparing images") as device, _full_precision():
        copies = _Copies.of(embeddings, lengths)
        pairs = _Pairs(embeddings, lengths, copies, threshold, max_pairs, device)
        if k and device == "cpu" and pairs.n >= _MANY:
            ids, cosines = copies.spread_nearest(*_find_among_many(pairs, min(k, pairs.n - 1), progress), k)
        elif k:
            nearest = _Nearest(len(pairs.vectors), min(k, len(copies.first) - 1), device)
            _scan(pairs.vectors, pairs.border, pairs, nearest, progress)
            ids, cosines = copies.spread_nearest(*nearest.result(pairs.n), k)
        else:
            ids, cosines = np.empty((n, 0), np.int64), np.empty((n, 0), np.float32)
            _scan(pairs.bounds(), pairs.border - _BORDER, pairs, None, progress)
    return pairs.result(ids, cosines, EXACT)


def _find_among_many(
    pairs: "_Pairs", k: int, progress: Callable[[int, int], None] | None
) -> tuple[Int64[np.ndarray, "u k"], Float32[np.ndarray, "u k"]]:
    """Return the nearest of all different vectors, and offer the pairs, where the processor compares many."""
    import torch

    from agml_assets.embeddings.nearest import find_nearest

    found = find_nearest(
        pairs.unit,
        pairs.n,
        k,
        pairs.border,
        2 * _BORDER,
        lambda done: progress(len(pairs) * done // pairs.n, len(pairs)) if progress else None,
    )
    if found.pairs is None:
        _scan(pairs.bounds(), pairs.border - _BORDER, pairs, None, None)
    else:
        i, j = torch.from_numpy(found.pairs).T
        pairs.add(i, j, torch.from_numpy(found.pair_cosines))
    return found.ids, found.cosines


def _scan(
    vectors: "Float[torch.Tensor, 'u m']",
    border: float,
    pairs: "_Pairs",
    nearest: "_Nearest | None",
    progress: Callable[[int, int], None] | None,
) -> None:
    """Offer every product of two vectors to `nearest`, and those from the border on to `pairs`, row by row.

    Blocks reach from the diagonal to the right edge; what is below the diagonal is read off the columns. The
    vectors are filled up with zero vectors, so that every block is made of whole strips.
    """
    import torch

    n, filled = pairs.n, len(vectors)
    height, width = (max(1, size // _STRIP) * _STRIP for size in _BLOCK[vectors.device.type])
    buffer = torch.empty(height * width, device=vectors.device)
    for start in range(0, filled, height):
        stop = min(start + height, filled)
        found: list[tuple[torch.Tensor, ...]] | None = []
        n_found = 0
        for first in range(start, filled, width):
            last = min(first + width, filled)
            block = buffer[: (stop - start) * (last - first)].view(stop - start, -1)
            torch.mm(vectors[start:stop], vectors[first:last].T, out=block)
            if first == start:
                block.diagonal().fill_(-torch.inf)
            block[:, max(n - first, 0) :] = -torch.inf
            block[max(n - start, 0) :] = -torch.inf
            if nearest:
                nearest.offer_rows(block, start, first)
                # The square on the diagonal is its own mirror image.
                columns = max(first, stop)
                nearest.offer_columns(block[:, columns - first :], columns, start)
            if found is None:
                continue
            rows = torch.nonzero(block.amax(1) >= border)[:, 0]
            similar = block.index_select(0, rows)
            hits = similar >= border
            hits &= torch.arange(first, last, device=block.device) > rows[:, None] + start
            n_found += int(torch.count_nonzero(hits))
            if n_found <= _FEW:
                i, j = torch.nonzero(hits, as_tuple=True)
                found.append((rows[i] + start, j + first, similar[i, j]))
                continue
            found = None
            pairs.add_rows(start, min(stop, n))
            if not nearest:
                break
        if found:
            i, j, values = (torch.cat(parts) for parts in zip(*found, strict=True))
            order = torch.argsort(i, stable=True)
            pairs.add(i[order], j[order], values[order] if nearest else None)
        if progress:
            progress(len(pairs) * min(stop, n) // n, len(pairs))


class _Nearest:
    """Keeps the k most similar of what each row is offered, ties by smaller id; ids come in ascending order.

    A similarity and its id are one integer, the larger the better: order-preserving bits of the float, then the
    id counted downwards. So the k largest integers are the answer, and no order of sorting is left open.
    """

    def __init__(self, n: int, k: int, device: str) -> None:
        import torch

        self._k, self._device = k, device
        self._keys = torch.full((n, max(3 * k, _STRIP)), torch.iinfo(torch.int64).min, device=device)
        self._used = torch.zeros(n, dtype=torch.int64, device=device)
        # Only what is above it can be among the k.
        self._least = torch.full((n,), -torch.inf, device=device)

    def offer_rows(self, block: "Float[torch.Tensor, 'r c']", first_row: int, first_id: int) -> None:
        """Take the similarities of rows with ids, r x c; c a multiple of the strip."""
        strips = block.unflatten(1, (_STRIP, -1))
        self._offer(block, strips, strips.amax(1), first_row, first_id)

    def offer_columns(self, block: "Float[torch.Tensor, 'c r']", first_row: int, first_id: int) -> None:
        """Take the similarities of ids with rows, c x r; c a multiple of the strip."""
        if block.numel():
            strips = block.unflatten(0, (_STRIP, -1))
            # The largest are found before the axes are exchanged, in the order of memory: far faster.
            self._offer(block.T, strips.permute(2, 0, 1), strips.amax(0).T, first_row, first_id)

    def _offer(
        self,
        block: "Float[torch.Tensor, 'r c']",
        strips: "Float[torch.Tensor, 'r s g']",
        best: "Float[torch.Tensor, 'r g']",
        first_row: int,
        first_id: int,
    ) -> None:
        import torch

        if not self._k:
            return
        least = self._least[first_row : first_row + len(block)]
        sample = best if best.shape[1] > self._k else block
        if sample.shape[1] > self._k and torch.isinf(least[0]):
            # k of these are at least as large, so k of all are.
            seed = sample.topk(self._k, dim=1).values[:, -1]
            least.copy_(torch.maximum(least, torch.nextafter(seed, seed.new_tensor(-torch.inf))))
        row, strip = torch.nonzero(best > least[:, None], as_tuple=True)
        values = strips[row, :, strip]
        kept, place = torch.nonzero(values > least[row][:, None], as_tuple=True)
        self._add(
            row[kept] + first_row, place * best.shape[1] + strip[kept] + first_id, values[kept, place], first_row
        )

    def result(self, n: int) -> tuple[Int64[np.ndarray, "n k"], Float32[np.ndarray, "n k"]]:
        """Return ids and similarities of the first n rows, best first."""
        ids, values = [], []
        for keys in self._keys[:n].split(_ROWS_READ):
            best = keys.topk(self._k, dim=1).values.cpu().numpy()
            ids.append(_MOST_ROWS - (best & _MOST_ROWS))
            values.append(_from_order(best >> 32))
        return np.concatenate(ids), np.concatenate(values)

    def _add(
        self,
        rows: "Int64[torch.Tensor, ' e']",
        ids: "Int64[torch.Tensor, ' e']",
        values: "Float[torch.Tensor, ' e']",
        first_row: int,
    ) -> None:
        """Put entries, in order of rows, behind what their rows hold; make room where it is short."""
        import torch

        bits = (values.clamp(-1, 1) + 0.0).view(torch.int32)  # the sum makes -0.0 and 0.0 one
        bits = bits.to(torch.int64)
        keys = (torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits) << 32) | (_MOST_ROWS - ids)
        while len(rows):
            counts = torch.bincount(rows - first_row)
            before = torch.cumsum(counts, 0) - counts
            held = self._used[first_row : first_row + len(counts)]
            place = torch.arange(len(rows), device=self._device) - (before - held)[rows - first_row]
            fits = place < self._keys.shape[1]
            self._keys[rows[fits], place[fits]] = keys[fits]
            held.copy_((held + counts).clamp(max=self._keys.shape[1]))
            self._reduce(torch.nonzero(held >= 2 * self._k)[:, 0] + first_row)
            rows, keys, values = rows[~fits], keys[~fits], values[~fits]
            better = values >= self._least[rows]  # of equal ones the smaller id is yet to be found
            rows, keys, values = rows[better], keys[better], values[better]

    def _reduce(self, rows: "Int64[torch.Tensor, ' r']") -> None:
        """Leave these rows their k best."""
        import torch

        best = self._keys[rows].topk(self._k, dim=1).values
        self._keys[rows] = torch.iinfo(torch.int64).min
        self._keys[rows, : self._k] = best
        self._used[rows] = self._k
        least = _from_order((best[:, -1] >> 32).cpu().numpy())
        self._least[rows] = torch.from_numpy(least).to(self._device)


@dataclass(frozen=True)
class _Copies:
    """Equal vectors: work is done on the first of each, and spread to all.

    Attributes:
        first: First row of each different vector, ascending.
        column: Place in `first` of every row's vector.
    """

    first: Int64[np.ndarray, " u"]
    column: Int64[np.ndarray, " n"]

    @classmethod
    def of(cls, embeddings: Float32[np.ndarray, "n d"], lengths: Float[np.ndarray, " n"]) -> "_Copies":
        """Find the rows with the same bytes after scaling to unit length."""
        seen: dict[bytes, int] = {}
        first = np.empty(len(embeddings), np.int64)
        for start in range(0, len(embeddings), _ROWS_READ):
            rows = np.arange(start, min(start + _ROWS_READ, len(embeddings)))
            for row, vector in zip(rows.tolist(), _unit_vectors(embeddings, lengths, rows), strict=True):
                first[row] = seen.setdefault(blake3(vector.view(np.uint8)).digest(), row)
        return cls(*np.unique(first, return_inverse=True))

    @classmethod
    def none(cls, n: int) -> "_Copies":
        """Take all rows for different."""
        return cls(np.arange(n), np.arange(n))

    @cached_property
    def counts(self) -> Int64[np.ndarray, " u"]:
        """How many rows have each vector."""
        return np.bincount(self.column, minlength=len(self.first))

    @cached_property
    def _members(self) -> Int64[np.ndarray, " n"]:
        """Rows by vector, ascending within."""
        return np.argsort(self.column, kind="stable")

    @cached_property
    def _begin(self) -> Int64[np.ndarray, " u+1"]:
        return np.append(0, np.cumsum(self.counts))

    def spread_nearest(
        self, ids: Int64[np.ndarray, "u k"], cosines: Float32[np.ndarray, "u k"], k: int
    ) -> tuple[Int64[np.ndarray, "n k"], Float32[np.ndarray, "n k"]]:
        """Return the k nearest rows of every row from the nearest vectors of every vector."""
        if len(self.first) == len(self.column):
            return ids, cosines
        ids = np.column_stack([np.arange(len(ids)), ids])
        cosines = np.column_stack([np.ones(len(cosines), np.float32), cosines])
        rows_of_all, cosines_of_all = (
            np.empty((len(ids), k + 1), np.int64),
            np.empty((len(ids), k + 1), np.float32),
        )
        at_once = max(1, _AT_ONCE_ENTRIES // (4 * k))
        for start in range(0, len(ids), at_once):
            part = slice(start, start + at_once)
            rows_of_all[part], cosines_of_all[part] = self._first_members(ids[part], cosines[part], k + 1)
        others = rows_of_all[self.column] != np.arange(len(self.column))[:, None]
        others[others.all(axis=1), -1] = False
        return (
            rows_of_all[self.column][others].reshape(-1, k),
            cosines_of_all[self.column][others].reshape(-1, k),
        )

    def _first_members(
        self, ids: Int64[np.ndarray, "r c"], cosines: Float32[np.ndarray, "r c"], k: int
    ) -> tuple[Int64[np.ndarray, "r k"], Float32[np.ndarray, "r k"]]:
        """Return the k nearest rows that have one of some vectors, given nearest first; ties by smaller row."""
        taken = np.minimum(self.counts[ids], k)
        before = np.cumsum(taken, axis=1) - taken
        last = np.count_nonzero(before < k, axis=1) - 1
        # Of those as near as the last that is needed, any may hold a smaller row.
        taken[(before >= k) & (cosines < np.take_along_axis(cosines, last[:, None], 1))] = 0
        line = np.repeat(np.arange(len(ids)), taken.sum(axis=1))
        entry = np.repeat(np.arange(taken.size), taken.ravel())
        place = np.arange(len(entry)) - np.repeat(np.cumsum(taken.ravel()) - taken.ravel(), taken.ravel())
        rows = self._members[self._begin[ids.ravel()[entry]] + place]
        values = cosines.ravel()[entry]
        order = np.lexsort((rows, -values, line))
        starts = np.cumsum(taken.sum(axis=1)) - taken.sum(axis=1)
        chosen = order[starts[:, None] + np.arange(k)]
        return rows[chosen], values[chosen]

    def spread_pairs(
        self, pairs: Int64[np.ndarray, "p 2"], cosines: Float32[np.ndarray, " p"], room: int
    ) -> tuple[Int64[np.ndarray, "q 2"], Float32[np.ndarray, " q"]]:
        """Return the first pairs of rows, at most `room`, from the first pairs of vectors, as many if there are.

        That many are enough: vectors are numbered by first row, so each listed pair gives a pair of rows that
        comes before every one that only an unlisted pair could give.
        """
        if len(self.first) == len(self.column):
            return pairs, cosines
        own = np.arange(len(self.first))
        source = np.concatenate([pairs[:, 0], pairs[:, 1], own])
        order = np.argsort(source, kind="stable")
        target = np.concatenate([pairs[:, 1], pairs[:, 0], own])[order]
        cosine = np.concatenate([cosines, cosines, np.ones(len(own), np.float32)])[order]
        degree = np.bincount(source, minlength=len(own))
        begin = np.cumsum(degree) - degree
        n = len(self.column)
        keys = self.column[self._members] * n + self._members
        found: list[tuple[np.ndarray, np.ndarray]] = [(np.empty((0, 2), np.int64), np.empty(0, np.float32))]
        for rows in _split_by_size(np.arange(n), degree[self.column]):
            row = np.repeat(rows, degree[self.column[rows]])
            edge = _ranges(begin[self.column[rows]], degree[self.column[rows]])
            after = np.searchsorted(keys, target[edge] * n + row, side="right")
            count = self._begin[target[edge] + 1] - after
            of_row = np.bincount(row - rows[0], weights=count, minlength=len(rows)).astype(np.int64)
            for some in _split_by_size(rows, of_row):
                if room <= 0:
                    return np.concatenate([part for part, _ in found]), np.concatenate([part for _, part in found])
                chosen = (row >= some[0]) & (row <= some[-1])
                i = np.repeat(row[chosen], count[chosen])
                j = self._members[_ranges(after[chosen], count[chosen])]
                listed = np.lexsort((j, i))[:room]
                value = np.repeat(cosine[edge[chosen]], count[chosen])
                found.append((np.column_stack([i, j])[listed], value[listed]))
                room -= len(listed)
        return np.concatenate([part for part, _ in found]), np.concatenate([part for _, part in found])


class _Pairs:
    """Collects pairs of different vectors and their components, block by block."""

    def __init__(
        self,
        embeddings: Float32[np.ndarray, "n d"],
        lengths: Float[np.ndarray, " n"],
        copies: _Copies,
        threshold: float,
        max_pairs: int,
        device: str,
    ) -> None:
        import torch

        self._embeddings, self._lengths, self._copies = embeddings, lengths, copies
        self._threshold, self._device = threshold, device
        self.n = len(copies.first)
        self._max_pairs = self._room = max_pairs
        self.border = threshold - _BORDER
        """Products in float32 below this are no pairs."""
        self._weights = torch.from_numpy(copies.counts).to(device)
        self._weighted = len(copies.first) < len(copies.column)
        self._group = torch.arange(len(copies.first), device=device)
        self._rows: list[Int64[np.ndarray, "p 2"]] = []
        self._cosines: list[Float32[np.ndarray, " p"]] = []
        self._counted = int((copies.counts * (copies.counts - 1) // 2).sum())

    def __len__(self) -> int:
        return len(self._copies.column)

    @cached_property
    def vectors(self) -> "Float[torch.Tensor, 'f d']":
        """The different vectors at unit length, filled up to whole strips."""
        return self._unit(self._copies.first, -(-self.n // _STRIP) * _STRIP)

    def bounds(self) -> "Float[torch.Tensor, 'f m+1']":
        """Return few numbers for each vector whose products are upper bounds of the cosines, filled up likewise.

        Turned onto orthonormal axes, x . y is the product of the leading components and that of the rest, which
        is at most the product of the lengths of both rests (Cauchy and Schwarz). Principal axes make the rests
        short, so that few pairs but the true ones have a bound that reaches the threshold.
        """
        import torch

        step = -(-self.n // _SAMPLE)
        sample, others = (self._unit(self._copies.first[first::step]) for first in (0, step // 2))
        _, found = torch.linalg.eigh((sample.T @ sample).double())
        # On the vectors that they were taken from, axes look better than they are.
        axes = self._choose_axes(others, found.flip(1).float())
        bounds = torch.zeros(-(-self.n // _STRIP) * _STRIP, axes.shape[1] + 1, device=self._device)
        for start in range(0, self.n, _ROWS_READ):
            rows = self._copies.first[start : start + _ROWS_READ]
            bounds[start : start + len(rows)] = _project(self._unit(rows), axes)
        return bounds

    def _choose_axes(
        self, sample: "Float[torch.Tensor, 's d']", axes: "Float[torch.Tensor, 'd d']"
    ) -> "Float[torch.Tensor, 'd m']":
        """Return as many axes as make bounding and judging cheapest for the sample."""
        import torch

        cheapest, least = axes, float("inf")
        for m in (*(m for m in _AXES if m < len(axes)), len(axes)):
            if m >= least:
                break  # more axes cost more, however few candidates they leave
            bounds = _project(sample, axes[:, :m])
            candidates = int(torch.count_nonzero(bounds @ bounds.T >= self.border)) - len(sample)
            cost = m + _COST_OF_CANDIDATE * candidates / len(sample) ** 2
            if cost < least:
                cheapest, least = axes[:, :m], cost
        return cheapest.contiguous()

    def unit(self, some: Int64[np.ndarray, " r"]) -> Float32[np.ndarray, "r d"]:
        """Return some of the different vectors at unit length."""
        return _unit_vectors(self._embeddings, self._lengths, self._copies.first[some])

    def _unit(self, rows: Int64[np.ndarray, " r"], filled: int = 0) -> "Float[torch.Tensor, 'f d']":
        import torch

        return torch.from_numpy(_unit_vectors(self._embeddings, self._lengths, rows, filled)).to(self._device)

    def add(
        self,
        i: "Int64[torch.Tensor, ' e']",
        j: "Int64[torch.Tensor, ' e']",
        similar: "Float[torch.Tensor, ' e'] | None",
    ) -> None:
        """Take those of some candidates i < j, in lexicographic order, that are pairs; products where known."""
        if similar is None:
            similar = self._cosines_of(i, j)
            pairs = similar >= self._threshold - _TOLERANCE
        else:
            pairs = self._are_pairs(similar, i, j)
        i, j, similar = i[pairs], j[pairs], similar[pairs]
        self._count(i, j)
        self._join(i, j)
        self._store(i[: self._room], j[: self._room], similar[: self._room])

    def add_rows(self, start: int, stop: int) -> None:
        """Take all pairs of some rows i with j > i, however many they are, by products."""
        import torch

        at_once = max(1, _WIDE_CELLS[self._device] // (self.n - start))
        for first in range(start, stop, at_once):
            rows = torch.arange(first, min(first + at_once, stop), device=self._device)
            columns = torch.arange(first, self.n, device=self._device)
            similar = self.vectors[first : first + len(rows)] @ self.vectors[first : self.n].T
            hits = similar >= self.border
            hits &= columns > rows[:, None]
            self._clear_border(hits, similar, rows, columns)
            self._count_many(hits, rows, columns)
            self._join_many(hits, rows, columns)
            # Only as many rows are listed as fill the room.
            enough = int(torch.searchsorted(hits.sum(dim=1).cumsum(0), self._room)) + 1
            i, j = torch.nonzero(hits[:enough] if self._room else hits[:0], as_tuple=True)
            i, j = i[: self._room], j[: self._room]
            self._store(rows[i], columns[j], similar[i, j])

    def add_all(self, pairs: Int64[np.ndarray, "p 2"], cosines: Float32[np.ndarray, " p"]) -> None:
        """Take all pairs at once, in lexicographic order."""
        import torch

        i, j = torch.from_numpy(pairs).T
        self._count(i, j)
        self._join(i, j)
        self._store(i[: self._room], j[: self._room], torch.from_numpy(cosines[: self._room]))

    def result(
        self, ids: Int64[np.ndarray, "n k"], cosines: Float32[np.ndarray, "n k"], index_type: str
    ) -> Neighbors:
        """Return the pairs of rows, with the neighbours."""
        pairs, pair_cosines = self._copies.spread_pairs(
            np.concatenate([np.empty((0, 2), np.int64), *self._rows]),
            np.concatenate([np.empty(0, np.float32), *self._cosines]),
            self._max_pairs,
        )
        first = self._copies.first
        return Neighbors(
            ids=ids,
            cosines=cosines,
            pair_rows=pairs,
            pair_cosines=pair_cosines,
            n_pairs=self._counted,
            near_group=first[self._group.cpu().numpy()][self._copies.column],
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

        pairs = similar >= self._threshold + _BORDER
        border = torch.nonzero(~pairs)[:, 0]
        pairs[border] = self._cosines_of(i[border], j[border]) >= self._threshold - _TOLERANCE
        return pairs

    def _cosines_of(
        self, i: "Int64[torch.Tensor, ' e']", j: "Int64[torch.Tensor, ' e']"
    ) -> "Float[torch.Tensor, ' e']":
        import torch

        parts = zip(i.split(_AT_ONCE_FLOAT64), j.split(_AT_ONCE_FLOAT64), strict=True)
        return torch.cat([(self._float64(a) * self._float64(b)).sum(dim=1) for a, b in parts])

    def _count(self, i: "Int64[torch.Tensor, ' e']", j: "Int64[torch.Tensor, ' e']") -> None:
        self._counted += int((self._weights[i] * self._weights[j]).sum())

    def _count_many(
        self,
        hits: "Bool[torch.Tensor, 'b m']",
        rows: "Int64[torch.Tensor, ' b']",
        columns: "Int64[torch.Tensor, ' m']",
    ) -> None:
        import torch

        if not self._weighted:
            self._counted += int(torch.count_nonzero(hits))
            return
        for some, row in zip(hits, rows, strict=True):
            self._counted += int(self._weights[row] * self._weights[columns][some].sum())

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

        chosen = self._copies.first[rows.cpu().numpy()]
        exact = torch.from_numpy(self._embeddings[chosen]).to(self._device).double()
        return exact.div_(torch.from_numpy(self._lengths[chosen, None]).to(self._device))

    def _store(
        self,
        i: "Int64[torch.Tensor, ' p']",
        j: "Int64[torch.Tensor, ' p']",
        cosines: "Float[torch.Tensor, ' p']",
    ) -> None:
        import torch

        self._rows.append(torch.stack([i, j], dim=1).cpu().numpy())
        self._cosines.append(cosines.clamp(-1, 1).float().cpu().numpy())
        self._room -= len(i)

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


def _from_order(bits: Int64[np.ndarray, "*n"]) -> Float32[np.ndarray, "*n"]:
    """Return the floats whose order-preserving bits these are."""
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int32).view(np.float32)


def _project(
    vectors: "Float[torch.Tensor, 'b d']", axes: "Float[torch.Tensor, 'd m']"
) -> "Float[torch.Tensor, 'b m+1']":
    """Return the components along the axes and an upper bound of the length of the rest."""
    import torch

    leading = vectors @ axes
    rest = torch.sqrt((1 - leading.square().sum(1)).clamp(min=0) + _BORDER)
    return torch.cat([leading, rest[:, None]], dim=1)


def _ranges(start: Int64[np.ndarray, " r"], size: Int64[np.ndarray, " r"]) -> Int64[np.ndarray, " e"]:
    """Return start, start + 1, ... of every range, one after the other."""
    return np.repeat(start - np.cumsum(size) + size, size) + np.arange(size.sum())


def _split_by_size(
    items: Int64[np.ndarray, " n"], sizes: Int64[np.ndarray, " n"]
) -> "Iterator[Int64[np.ndarray, ' m']]":
    """Yield runs of items of about `_AT_ONCE_ENTRIES` in all; one item may be larger."""
    part = np.cumsum(sizes) // _AT_ONCE_ENTRIES
    bounds = np.flatnonzero(np.diff(part, prepend=-1, append=-1))
    for first, last in pairwise(bounds.tolist()):
        yield items[first:last]


def _unit_vectors(
    embeddings: Float32[np.ndarray, "n d"],
    lengths: Float[np.ndarray, " n"],
    rows: Int64[np.ndarray, " r"] | None = None,
    filled: int = 0,
) -> Float32[np.ndarray, "f d"]:
    """Return some rows, or all, of unit length, followed by zero rows up to a number of `filled`."""
    rows = np.arange(len(embeddings)) if rows is None else rows
    vectors = np.zeros((max(len(rows), filled), embeddings.shape[1]), np.float32)
    for start in range(0, len(rows), _ROWS_READ):
        some = rows[start : start + _ROWS_READ]
        np.divide(
            embeddings[some], lengths[some, None], out=vectors[start : start + len(some)], casting="same_kind"
        )
    return vectors


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
    parts: list[tuple[np.ndarray, ...]] = []
    n_found = 0
    for start in range(0, n, _AT_ONCE_RANGE):
        limits, distances, others = index.range_search(vectors[start : start + _AT_ONCE_RANGE], threshold)
        n_found += len(others)
        if n_found > _MOST_RANGE:
            raise UserError(
                f"The approximate index finds more than {_MOST_RANGE // 2} pairs, all of which it would hold. Set "
                "faiss_ivf_threshold to null: the exact search counts and groups any number of them."
            )
        counts = limits[1:].astype(np.int64) - limits[:-1].astype(np.int64)
        parts.append((np.repeat(np.arange(start, start + len(counts)), counts), distances, others))
    rows, distances, others = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    pairs = np.stack([np.minimum(rows, others), np.maximum(rows, others)], axis=1)
    keys, first = np.unique(pairs[:, 0] * n + pairs[:, 1], return_index=True)
    keep = first[keys // n != keys % n]
    found_pairs = _Pairs(vectors, np.ones(n), _Copies.none(n), threshold, max_pairs, "cpu")
    found_pairs.add_all(pairs[keep].astype(np.int64), distances[keep])
    return found_pairs.result(ids.astype(np.int64), np.clip(cosines, -1, 1), IVF)


def _lengths(embeddings: Float32[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Return the length of every row; refuse rows that are no unit vectors."""
    if embeddings.ndim != 2 or not len(embeddings):
        raise UserError("There are no embeddings to compare.")
    lengths = np.empty(len(embeddings))
    for start in range(0, len(embeddings), _ROWS_READ):
        rows = embeddings[start : start + _ROWS_READ].astype(np.float64)
        lengths[start : start + len(rows)] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    bad = np.flatnonzero(~(np.abs(lengths - 1) < _UNIT_TOLERANCE))
    if len(bad):
        shown = ", ".join(map(str, bad[:10])) + (" ..." if len(bad) > 10 else "")
        raise UserError(f"{len(bad)} embeddings are not finite unit vectors: rows {shown}.")
    return lengths
