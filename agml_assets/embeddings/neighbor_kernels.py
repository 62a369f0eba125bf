"""Loops over blocks of similarities that Numba compiles: which cells matter, and the k best of every row.

What is multiplied, and in which order, is for `nearest.py` to say. Importing this module takes half a second, and
a second of compiling where Numba finds no cache; only searches among many vectors do it.
"""

import numba
import numpy as np

MASKED, NONE_YET = -2.0, -1.5
"""A cell that is not to be looked at, and the similarity that a row without k entries stands at."""

_LOOK = 64  # cells judged at once


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz"})
def largest_excess(block, least_of_row, least_of_column, excess):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Write to `excess`, for every column, by how much a cell tops what its row or its column stands at, at most.

    The block is (r, c), the others are (r,), (c,) and (c,); all float32.
    """
    excess[:] = -np.float32(4)
    for row in range(block.shape[0]):
        of_row, cells = least_of_row[row], block[row]
        for column in range(block.shape[1]):
            least = min(of_row, least_of_column[column])
            excess[column] = max(excess[column], cells[column] - least)


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz"})
def list_hits(block, least_of_row, least_of_column, hits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Write to `hits` the cells that reach what their row or their column stands at; return how many.

    A cell of the (r, c) block is numbered row * c + column; `hits`, int32, has room for all.
    """
    n_hits, width = 0, block.shape[1]
    for row in range(block.shape[0]):
        of_row, cells = least_of_row[row], block[row]
        for start in range(0, width, _LOOK):
            stop = min(start + _LOOK, width)
            most = -np.float32(4)
            for column in range(start, stop):
                most = max(most, cells[column] - min(of_row, least_of_column[column]))
            if most >= 0:
                for column in range(start, stop):
                    if cells[column] >= min(of_row, least_of_column[column]):
                        hits[n_hits] = row * width + column
                        n_hits += 1
    return n_hits


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _insert(values, ids, value, new):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Put one entry among the best of a row, best first, equal ones by smaller id, where it belongs there."""
    place = len(values) - 1
    if value < values[place] or (value == values[place] and new > ids[place]):
        return
    while place > 0 and (value > values[place - 1] or (value == values[place - 1] and new < ids[place - 1])):
        values[place], ids[place] = values[place - 1], ids[place - 1]
        place -= 1
    values[place], ids[place] = value, new


@numba.njit(cache=True, nogil=True, error_model="numpy")
def take_hits(  # type: ignore[no-untyped-def]  # noqa: ANN201
    block,  # noqa: ANN001
    hits,  # noqa: ANN001
    rows,  # noqa: ANN001
    columns,  # noqa: ANN001
    id_of,  # noqa: ANN001
    values,  # noqa: ANN001
    ids,  # noqa: ANN001
    least,  # noqa: ANN001
    border,  # noqa: ANN001
    pairs,  # noqa: ANN001
    pair_values,  # noqa: ANN001
    n_pairs,  # noqa: ANN001
):
    """Enter the cells of a block that were listed with both their rows, and among the pairs from the border on.

    Cell (r, c) compares the vectors at the places rows[r] and columns[c], whose ids are id_of[...]. `values` and
    `ids`, (n, k), are the best of every place, `least`, (n,), the last of these values. n_pairs[0] counts the
    pairs, those beyond the room of `pairs`, (p, 2), as well.
    """
    for hit in hits:
        row, column = rows[hit // block.shape[1]], columns[hit % block.shape[1]]
        similar = block[hit // block.shape[1], hit % block.shape[1]]
        value = min(max(similar, np.float32(-1)), np.float32(1))
        _insert(values[row], ids[row], value, id_of[column])
        _insert(values[column], ids[column], value, id_of[row])
        least[row], least[column] = values[row, -1], values[column, -1]
        if similar >= border:
            if n_pairs[0] < len(pairs):
                pairs[n_pairs[0], 0] = min(id_of[row], id_of[column])
                pairs[n_pairs[0], 1] = max(id_of[row], id_of[column])
                pair_values[n_pairs[0]] = similar
            n_pairs[0] += 1
