"""Checks of this room: are the vectors numbers."""

import dagster as dg
import numpy as np
from jaxtyping import Float

from agml_assets.embeddings.artifacts import EMBEDDINGS
from agml_assets.recording import check, check_spec

FINITE = "embeddings_are_finite"
_SHOWN = 20
_BLOCK = 65_536


def finite_spec(datasets: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
    """Return the spec of the finiteness check, which stops everything that would use the vectors."""
    return check_spec(
        EMBEDDINGS,
        FINITE,
        "ERROR, and the run stops, when a vector holds NaN or infinity.",
        datasets,
        blocking=True,
    )


def finite_check(embeddings: Float[np.ndarray, "n d"]) -> dg.AssetCheckResult:
    """Name the rows whose vector is not finite."""
    bad = [
        int(start + row)
        for start in range(0, len(embeddings), _BLOCK)
        for row in np.flatnonzero(~np.isfinite(embeddings[start : start + _BLOCK]).all(axis=1))
    ]
    return check(
        EMBEDDINGS,
        FINITE,
        passed=not bad,
        error=True,
        non_finite_count=float(len(bad)),
        rows=[str(row) for row in bad[:_SHOWN]],
    )
