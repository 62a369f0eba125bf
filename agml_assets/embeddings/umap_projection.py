"""UMAP in two and three dimensions over the exact neighbours that are known already.

Uses umap-learn's graph and layout functions: its `UMAP` class sets given neighbours aside where they are fewer
than it wants, with no more than a warning, and compiles more.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Float32

from agml_assets.embeddings.neighbors import Neighbors

_N_NEIGHBORS = 15  # the image itself included; this and the following as published by AgML
_MIN_DIST = 0.1
_SPREAD = 1.0
_ALPHA = _GAMMA = 1.0  # umap-learn's defaults
_NEGATIVE_SAMPLE_RATE = 5
_INIT_SIDE = 10.0  # umap-learn scales its own initial layouts so
_ROWS_READ = 16_384
_TOO_FEW = 4  # fewer points have no neighbourhoods to lay out


def project_umap(
    embeddings: Float32[np.ndarray, "n d"], neighbors: Neighbors, *, n_components: int, seed: int
) -> Float32[np.ndarray, "n c"]:
    """Lay out the graph of nearest neighbours with UMAP, starting from principal components.

    McInnes, Healy and Melville 2018, with 15 neighbours, minimum distance 0.1 and cosine distance. One
    thread: a seeded layout is the same every time. Fewer than four points are shown by their principal
    components.

    Args:
        embeddings: Unit vectors; only the initial layout is taken from them.
        neighbors: Gives the graph.
        n_components: Dimensions of the layout, 2 or 3.
        seed: Seed of the layout.

    Returns:
        Finite coordinates.
    """
    start = principal_components(embeddings, n_components)
    n = len(start)
    if n < _TOO_FEW:
        return start
    from sklearn.utils import check_random_state
    from umap.umap_ import find_ab_params, fuzzy_simplicial_set, simplicial_set_embedding

    n_others = min(_N_NEIGHBORS - 1, neighbors.ids.shape[1])
    ids = np.concatenate([np.arange(n)[:, None], neighbors.ids[:, :n_others]], axis=1)
    distances = np.concatenate([np.zeros((n, 1)), 1 - neighbors.cosines[:, :n_others]], axis=1)
    random_state = check_random_state(seed)
    with _number_of_threads_kept():
        graph, _, _ = fuzzy_simplicial_set(
            start,  # only its length matters: neighbours and distances are given
            n_neighbors=n_others + 1,
            random_state=random_state,
            metric="cosine",
            knn_indices=ids,
            knn_dists=np.maximum(distances, 0).astype(np.float32),
        )
        a, b = find_ab_params(_SPREAD, _MIN_DIST)
        points, _ = simplicial_set_embedding(
            start,
            graph,
            n_components=n_components,
            initial_alpha=_ALPHA,
            a=a,
            b=b,
            gamma=_GAMMA,
            negative_sample_rate=_NEGATIVE_SAMPLE_RATE,
            n_epochs=None,
            # Identical points need room to move apart in.
            init=start + random_state.normal(scale=1e-4, size=start.shape).astype(np.float32),
            random_state=random_state,
            metric="euclidean",
            metric_kwds={},
            densmap=False,
            densmap_kwds={},
            output_dens=False,
        )
    return np.asarray(points, dtype=np.float32)


@contextmanager
def _number_of_threads_kept() -> Iterator[None]:
    """Undo that numba sets OpenMP's threads for the whole process: what PyTorch trains later depends on them."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def umap_records(
    points: Float32[np.ndarray, "n c"], class_names: Sequence[str], split: Sequence[str], index: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the published form: `x`, `y` (and `z`) to 4 decimals, `label`, `split` and `index` of every image."""
    axes = ("x", "y", "z")[: points.shape[1]]
    rounded = np.round(points.astype(np.float64), 4).tolist()
    return [
        {**dict(zip(axes, point, strict=True)), "label": label, "split": part, "index": row}
        for point, label, part, row in zip(rounded, class_names, split, index, strict=True)
    ]


def principal_components(embeddings: Float32[np.ndarray, "n d"], n_components: int) -> Float32[np.ndarray, "n c"]:
    """Return the leading principal components, the widest scaled to a side of 10; zeros where there are none."""
    # In float64 block by block: the vectors may be larger than memory.
    mean = embeddings.mean(axis=0, dtype=np.float64)
    blocks = [slice(start, start + _ROWS_READ) for start in range(0, len(embeddings), _ROWS_READ)]
    scatter = np.zeros((len(mean), len(mean)))
    for block in blocks:
        centred = embeddings[block] - mean
        scatter += centred.T @ centred
    _, axes = np.linalg.eigh(scatter)
    axes = axes[:, ::-1][:, :n_components]
    # An eigenvector's sign is arbitrary; its largest entry is made positive.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    points = np.concatenate([(embeddings[block] - mean) @ axes for block in blocks])
    points = np.pad(points, ((0, 0), (0, n_components - points.shape[1])))
    side = np.ptp(points, axis=0).max()
    scale = _INIT_SIDE / side if side > 1e-9 else 0.0
    return (points * scale).astype(np.float32)
