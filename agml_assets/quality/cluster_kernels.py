"""Loop over labelled vectors that Numba compiles: their lengths and the sums of their classes in one reading.

Importing this module takes half a second, and a second of compiling where Numba finds no cache; only what measures
clusters does it.
"""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def add_up(vectors, labels, unit, lengths, sums):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Write the length of every vector to `lengths` and add it to the row of its class in `sums`.

    Vectors are (n, d), labels and lengths (n,), sums (k, d); everything is added up in float64. Where `unit`, each
    vector is added divided by its length.
    """
    for row in range(len(vectors)):
        square = 0.0
        for column in range(vectors.shape[1]):
            value = np.float64(vectors[row, column])
            square += value * value
        lengths[row] = np.sqrt(square)
        weight = 1 / lengths[row] if unit else 1.0
        total = sums[labels[row]]
        for column in range(vectors.shape[1]):
            total[column] += weight * np.float64(vectors[row, column])
