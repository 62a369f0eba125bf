"""Cosine silhouette and Davies-Bouldin index by class sums against scikit-learn's silhouette of all pairs.

`python benchmarks/bench_silhouette.py [N ...]`: time and memory with 10,000 classes, where one distance
for each image and class would take 4.8 GB; then time, ratio and largest difference at each N.
"""

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import davies_bouldin_score, silhouette_samples

from agml_assets.quality.clusters import (
    centroids,
    cosine_silhouettes,
    davies_bouldin,
    distances_to_centroid,
)

DIMENSION = 768
CLASSES = 10
MANY_CLASSES, MANY_IMAGES = 10_000, 60_000


def make_data(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors around random class centres, and their labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, n_classes, n)
    vectors = rng.standard_normal((n, DIMENSION), dtype=np.float32)
    vectors += rng.standard_normal((n_classes, DIMENSION), dtype=np.float32)[labels]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, labels


def index_by_centroids(vectors: np.ndarray, labels: np.ndarray, n_classes: int) -> float:
    """Return the Davies-Bouldin index."""
    means = centroids(vectors, labels, n_classes)
    present = np.bincount(labels, minlength=n_classes) > 0
    return davies_bouldin(means[present], distances_to_centroid(vectors, labels, means)[present])[0]


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of a call and its seconds."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def main(sizes: list[int]) -> None:
    """Print both tables."""
    vectors, labels = make_data(MANY_IMAGES, MANY_CLASSES)
    tracemalloc.start()
    _, silhouette_time = timed(cosine_silhouettes, vectors, labels, MANY_CLASSES)
    _, index_time = timed(index_by_centroids, vectors, labels, MANY_CLASSES)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    print(
        f"N {MANY_IMAGES}, {MANY_CLASSES} classes: silhouette {silhouette_time:.1f} s, Davies-Bouldin "
        f"{index_time:.1f} s, at most {peak:.0f} MiB beside the data"
    )

    print(f"{'N':>8} {'what':<16} {'ours s':>8} {'sklearn s':>10} {'ratio':>7} {'max diff':>9}")
    for n in sizes:
        vectors, labels = make_data(n, CLASSES)
        for what, ours, theirs in (
            (
                "silhouette",
                lambda v, y: cosine_silhouettes(v, y, CLASSES),
                lambda v, y: silhouette_samples(v, y, metric="cosine"),
            ),
            ("Davies-Bouldin", lambda v, y: index_by_centroids(v, y, CLASSES), davies_bouldin_score),
        ):
            mine, own_time = timed(ours, vectors, labels)
            other, other_time = timed(theirs, vectors, labels)
            difference = np.abs(np.subtract(mine, other)).max()
            print(
                f"{n:>8} {what:<16} {own_time:>8.2f} {other_time:>10.2f} "
                f"{other_time / own_time:>6.1f}x {difference:>9.1e}"
            )


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [2000, 5000, 10_000])
