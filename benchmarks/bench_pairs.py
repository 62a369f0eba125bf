"""All pairs of near-duplicates, exactly, against a range search with FAISS's flat index as shipped."""

import faiss
import numpy as np
from measure import compare, near_copies

from agml_assets.embeddings.neighbors import find_neighbors

IMAGES, DIMENSIONS, THRESHOLD = 50_000, 768, 0.98
AT_LEAST = 10


def search_range(vectors: np.ndarray, threshold: float) -> np.ndarray:
    """Return the pairs i < j that FAISS finds, in order."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    limits, _, found = index.range_search(vectors, threshold)
    i = np.repeat(np.arange(len(vectors)), np.diff(limits.astype(np.int64)))
    pairs = np.column_stack([i, found])[i < found]
    return pairs[np.lexsort(pairs.T[::-1])]


def our_pairs(vectors: np.ndarray) -> np.ndarray:
    """Return the pairs that this project finds when it looks for nothing else."""
    return find_neighbors(vectors, threshold=THRESHOLD, max_pairs=10_000_000, k=0).pair_rows


def pairs_agree(vectors: np.ndarray, threshold: float, obvious: np.ndarray, ours: np.ndarray) -> str:
    """Compare pairs; where only one way has a pair, the cosine in float64 says which is right."""
    n = len(vectors)
    differ = np.setxor1d(obvious @ [n, 1], ours @ [n, 1])
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    cosines = (exact[differ // n] * exact[differ % n]).sum(axis=1)
    wrong = np.isin(differ, ours @ [n, 1]) != (cosines >= threshold)
    if wrong.any() or (np.abs(cosines - threshold) > 1e-6).any():
        raise SystemExit(f"wrong pairs: {np.column_stack([differ // n, differ % n])[wrong]}")
    rounding = f", {len(differ)} of which float32 rounds to the other side" if len(differ) else ""
    return f"the same {len(ours):,} pairs{rounding}"


def main() -> None:
    """Measure and print."""
    vectors = near_copies(IMAGES, DIMENSIONS)
    print(
        compare(
            work=f"exact pairs >= {THRESHOLD}, N = {IMAGES:,}, d = {DIMENSIONS}",
            obvious_way="FAISS `IndexFlatIP.range_search`",
            obvious=lambda: search_range(vectors, THRESHOLD),
            ours=lambda: our_pairs(vectors),
            agree=lambda theirs, mine: pairs_agree(vectors, THRESHOLD, theirs, mine),
            at_least=AT_LEAST,
            obvious_repeats=1,
        )
    )


if __name__ == "__main__":
    main()
