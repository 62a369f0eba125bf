"""Exact cluster statistics of labelled vectors, by blocks: centroids, spread, silhouette, Davies-Bouldin.

Time grows as N x K x D, memory as K x D plus one block; no pair of images is ever compared. All sums
run in float64. What the numbers mean for a dataset is said by the metrics that use them.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits

T = TypeVar("T")
Blocks = Iterator[tuple[slice, Float[np.ndarray, "b d"]]]

COPY_DISTANCE = 1e-5
"""L2 distance up to which two unit vectors are the same image: float32 rounding of some hundred components
(each at most 6e-8) stays well below it."""

_BLOCK_VALUES = 1 << 18
"""Vector components in one block, 2 MiB of float64: they stay in the cache."""

_SPANS = 4
"""Threads at most: more would wait for the memory."""

_BLOCK_DISTANCES = 1 << 22
"""Distances to classes or between them in one block, 32 MiB of float64."""


def unfit_vectors(vectors: Float[np.ndarray, "n d"]) -> str | None:
    """Return why `vectors` cannot be measured (some are not finite), or null.

    Raises:
        ValueError: Vectors are not of unit L2 norm within 1e-3; whoever made them broke the contract.
    """
    norms = _all_lengths(vectors)
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        more = " and more" if len(bad) > 10 else ""
        return f"{len(bad)} embeddings are not finite: rows {bad[:10].tolist()}{more}."
    if np.abs(norms - 1).max() > 1e-3:
        raise ValueError(f"embeddings must have unit length; lengths run from {norms.min()} to {norms.max()}")
    return None


def count_classes(labels: Int[np.ndarray, " n"], n_classes: int) -> Int[np.ndarray, " k"]:
    """Return the number of vectors of each of `n_classes` classes."""
    return np.bincount(labels, minlength=n_classes)


def centroids(
    vectors: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], n_classes: int
) -> Float[np.ndarray, "k d"]:
    """Return the mean vector of each class, float64; zeros for a class without vectors."""
    counts = count_classes(labels, n_classes)
    return _class_sums(vectors, labels, n_classes, unit=False)[0] / _at_least_one(counts)


def centroid_distances(
    vectors: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], means: Float[np.ndarray, "k d"]
) -> Float[np.ndarray, " n"]:
    """Return the L2 distance of every vector to the mean of its class, float64."""
    distances = np.empty(len(labels))
    for rows, block in _blocks(vectors, len(means)):
        deviations = means[labels[rows]]
        np.subtract(block, deviations, out=deviations)
        distances[rows] = _lengths(deviations)
    return distances


def distances_to_centroid(
    vectors: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], means: Float[np.ndarray, "k d"]
) -> Float[np.ndarray, " k"]:
    """Return the mean L2 distance of each class's vectors to `means`; 0.0 for a class without vectors."""
    total = np.bincount(labels, weights=centroid_distances(vectors, labels, means), minlength=len(means))
    return total / _at_least_one(count_classes(labels, len(means)))[:, 0]


def mean_cosine_distances(
    vectors: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], n_classes: int
) -> Float[np.ndarray, " k"]:
    """Return the mean cosine distance over all pairs of different vectors within each class, in [0, 2].

    For n unit vectors with sum S it is 1 - (|S|^2 - n) / (n (n - 1)): |S|^2 adds up the cosines of all
    ordered pairs, those of each vector with itself included. NaN for a class with fewer than two vectors.
    """
    counts = count_classes(labels, n_classes)
    sums, _ = _class_sums(vectors, labels, n_classes, unit=True)
    pairs = np.where(counts > 1, counts * (counts - 1.0), np.nan)
    return np.clip(1 - ((sums**2).sum(axis=1) - counts) / pairs, 0, 2)


def cosine_silhouettes(
    vectors: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], n_classes: int
) -> Float[np.ndarray, " n"]:
    """Return the silhouette of every vector under cosine distance, in [-1, 1], exact in O(N K D).

    s = (b - a) / max(a, b), with a the mean distance to the other vectors of the class and b the least mean
    distance to another class (Rousseeuw 1987, doi:10.1016/0377-0427(87)90125-7). The mean cosine distance
    of a unit vector x to a class is 1 - x . m, m being the mean of the class's unit vectors, so no pair is
    needed. A vector alone in its class has 0, as have vectors at distance 0 of both classes. Equal to
    `sklearn.metrics.silhouette_samples(metric="cosine")` up to rounding.

    Args:
        vectors: Any length but 0; they are brought to unit length.
        labels: Class of each vector, 0 to n_classes - 1; at least two classes occur.
        n_classes: Declared classes; those without vectors play no part.

    Raises:
        ValueError: Fewer than two classes occur.
    """
    counts = count_classes(labels, n_classes)
    present = np.flatnonzero(counts)
    if len(present) < 2:
        raise ValueError("a silhouette needs at least two classes with vectors")
    sums, lengths = _class_sums(vectors, labels, n_classes, unit=True)
    means = (sums[present] / counts[present, None]).T
    position = np.cumsum(counts > 0) - 1
    result = np.empty(len(labels))

    def measure(span: slice) -> None:
        for rows, block in _blocks(vectors, n_classes, span):
            distance = block @ means
            distance /= -lengths[rows, None]
            distance += 1
            own = (np.arange(len(distance)), position[labels[rows]])
            n = counts[labels[rows]]
            # The class mean includes the vector itself, at distance 0; the mean over the others does not.
            within = np.maximum(distance[own], 0) * n / np.maximum(n - 1, 1)
            distance[own] = np.inf
            between = np.maximum(distance.min(axis=1), 0)
            larger = np.maximum(within, between)
            defined = (n > 1) & (larger > COPY_DISTANCE**2 / 2)  # cosine distance = (L2 distance)^2 / 2
            result[rows] = np.where(defined, (between - within) / np.where(defined, larger, 1), 0)

    _in_spans(len(vectors), measure)
    return result


def davies_bouldin(
    means: Float[np.ndarray, "k d"], spreads: Float[np.ndarray, " k"]
) -> tuple[float, Bool[np.ndarray, " k"]]:
    """Return the Davies-Bouldin index and which classes share their centroid with another.

    The mean over classes i of the largest (s_i + s_j) / |m_i - m_j| over the other classes j, with s the
    mean L2 distance to the centroid m (Davies and Bouldin 1979, doi:10.1109/TPAMI.1979.4766909). Pairs with
    the same centroid are left out, as in `sklearn.metrics.davies_bouldin_score`, although the
    ratio of such a pair is infinite; hence the second value, by which a reader is warned.

    Args:
        means: Centroids of the classes that have vectors, at least two.
        spreads: Mean L2 distance of each class's vectors to its centroid.
    """
    squares = (means**2).sum(axis=1)
    worst = np.empty(len(means))
    coincident = np.zeros(len(means), dtype=bool)
    step = max(1, _BLOCK_DISTANCES // len(means))
    for start in range(0, len(means), step):
        rows = np.arange(start, min(start + step, len(means)))
        squared = squares[rows, None] + squares - 2 * means[rows] @ means.T
        distance = np.sqrt(np.maximum(squared, 0))
        distance[np.arange(len(rows)), rows] = np.inf
        coincident[rows] = (distance <= COPY_DISTANCE).any(axis=1)
        distance[distance <= COPY_DISTANCE] = np.inf
        worst[rows] = ((spreads[rows, None] + spreads) / distance).max(axis=1)
    return float(worst.mean()), coincident


def _class_sums(
    vectors: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], n_classes: int, *, unit: bool
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " n"]]:
    """Return the sum of the vectors of each class, at unit length where `unit`, and all lengths; float64."""
    from agml_assets.quality.cluster_kernels import add_up

    lengths = np.empty(len(vectors))

    def add(rows: slice) -> Float[np.ndarray, "k d"]:
        sums = np.zeros((n_classes, vectors.shape[1]))
        add_up(np.asarray(vectors[rows]), labels[rows], unit, lengths[rows], sums)
        return sums

    return sum(_in_spans(len(vectors), add), np.zeros((n_classes, vectors.shape[1]))), lengths


def _in_spans(n: int, work: Callable[[slice], T]) -> list[T]:
    """Do the work on each of a few spans of the rows, in threads; results in order of rows.

    The number of spans does not depend on the machine, so that sums have the same rounding everywhere.
    """
    bounds = np.linspace(0, n, _SPANS + 1).astype(int).tolist()
    spans = [slice(first, last) for first, last in pairwise(bounds)]
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(min(_SPANS, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, spans))


def _blocks(vectors: Float[np.ndarray, "n d"], n_classes: int, span: slice | None = None) -> Blocks:
    """Give rows and their vectors in float64, a block at a time; the next block overwrites the last."""
    first, last = (0, len(vectors)) if span is None else (span.start, span.stop)
    step = max(1, min(_BLOCK_VALUES // vectors.shape[1], _BLOCK_DISTANCES // n_classes, last - first))
    buffer = np.empty((step, vectors.shape[1]))
    for start in range(first, last, step):
        rows = slice(start, min(start + step, last))
        block = buffer[: rows.stop - rows.start]
        np.copyto(block, vectors[rows])
        yield rows, block


def _all_lengths(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    lengths = np.empty(len(vectors))

    def measure(span: slice) -> None:
        for rows, block in _blocks(vectors, 1, span):
            lengths[rows] = _lengths(block)

    _in_spans(len(vectors), measure)
    return lengths


def _lengths(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    return np.sqrt(np.einsum("nd,nd->n", vectors, vectors))


def _at_least_one(counts: Int[np.ndarray, " k"]) -> Int[np.ndarray, "k 1"]:
    return np.maximum(counts, 1)[:, None]
