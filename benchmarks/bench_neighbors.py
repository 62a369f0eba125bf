"""Nearest neighbours and near-duplicate pairs in one pass, against FAISS's search and range search as shipped."""

import faiss
import numpy as np
from bench_pairs import pairs_agree, search_range
from measure import compare, near_copies

from agml_assets.embeddings.neighbors import Neighbors, find_neighbors

IMAGES, DIMENSIONS, THRESHOLD, K = 50_000, 768, 0.98, 50
AT_LEAST = 5
TOLERANCE = 1e-5


def search_twice(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids and cosines that FAISS finds, the image itself among them, and its pairs."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    cosines, ids = index.search(vectors, K + 1)
    return ids, cosines, search_range(vectors, THRESHOLD)


def agree(vectors: np.ndarray, obvious: tuple[np.ndarray, np.ndarray, np.ndarray], ours: Neighbors) -> str:
    """Compare pairs, and the cosines of the neighbours, which do not depend on the order of equal ones."""
    ids, cosines, pairs = obvious
    cosines[ids == np.arange(len(ids))[:, None]] = np.inf  # the image itself, wherever it was put
    theirs = -np.sort(-cosines, axis=1)[:, 1:]
    difference = float(np.abs(theirs - ours.cosines).max())
    if difference > TOLERANCE:
        raise SystemExit(f"cosines of neighbours differ by {difference}")
    return f"{pairs_agree(vectors, THRESHOLD, pairs, ours.pair_rows)}; neighbours' cosines within {difference:.0e}"


def main() -> None:
    """Measure and print."""
    vectors = near_copies(IMAGES, DIMENSIONS)
    print(
        compare(
            work=f"{K} neighbours and pairs >= {THRESHOLD} in one pass, N = {IMAGES:,}, d = {DIMENSIONS}",
            obvious_way="FAISS `IndexFlatIP.search` and `range_search`",
            obvious=lambda: search_twice(vectors),
            ours=lambda: find_neighbors(vectors, threshold=THRESHOLD, max_pairs=10_000_000, k=K),
            agree=lambda theirs, mine: agree(vectors, theirs, mine),
            at_least=AT_LEAST,
            obvious_repeats=1,
        )
    )


if __name__ == "__main__":
    main()
