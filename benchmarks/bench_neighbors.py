"""Neighbours and near-duplicate pairs in one pass, against the obvious way: FAISS searches and a Python loop.

Prints ratios of medians measured in one run, for a dataset with few near-copies and for two with many.
"""

import argparse
import time
from statistics import median

import numpy as np

from agml_assets.embeddings.neighbors import find_neighbors

THRESHOLD, K = 0.98, 50


def obvious(vectors: np.ndarray) -> tuple[int, np.ndarray]:
    """Search k neighbours and a range with FAISS, then count pairs and join groups in Python."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    index.search(vectors, K + 1)
    limits, _, found = index.range_search(vectors, THRESHOLD)
    parent = list(range(len(vectors)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    n_pairs = 0
    for i in range(len(vectors)):
        for j in found[int(limits[i]) : int(limits[i + 1])]:
            if i < j:
                n_pairs += 1
                a, b = root(i), root(int(j))
                parent[max(a, b)] = min(a, b)
    return n_pairs, np.array([root(i) for i in range(len(vectors))])


def ours(vectors: np.ndarray) -> tuple[int, np.ndarray]:
    """Find the same in one pass."""
    found = find_neighbors(vectors, threshold=THRESHOLD, max_pairs=10_000_000, k=K)
    return found.n_pairs, found.near_group


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for share in (0.9, 1 / 18, 1 / 500):
        compare(options.images, round(options.images * share), options.repeats)


def compare(n: int, n_different: int, repeats: int) -> None:
    """Time both ways on images of which so many are different and the others near-copies of them."""
    rng = np.random.default_rng(0)
    different = rng.normal(size=(n_different, 768)).astype(np.float32)
    vectors = different[np.arange(n) % n_different] + rng.normal(scale=0.1, size=(n, 768)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    seconds: dict[str, list[float]] = {"obvious": [], "ours": []}
    results = {}
    for _ in range(repeats):
        for name, run in (("obvious", obvious), ("ours", ours)):
            start = time.perf_counter()
            results[name] = run(vectors)
            seconds[name].append(time.perf_counter() - start)
    assert results["obvious"][0] == results["ours"][0], (results["obvious"][0], results["ours"][0])
    assert np.array_equal(results["obvious"][1], results["ours"][1])
    medians = {name: median(values) for name, values in seconds.items()}
    print(
        f"{n} images, {n_different} different, {results['ours'][0]} pairs: obvious {medians['obvious']:.2f} s, "
        f"ours {medians['ours']:.2f} s, ratio {medians['obvious'] / medians['ours']:.1f}"
    )


if __name__ == "__main__":
    main()
