"""Which test predictions count as leak-safe without a second training."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int64


def predictions_without_copies(
    predictions: Mapping[str, np.ndarray], groups: Int64[np.ndarray, " n"], known: Int64[np.ndarray, " m"]
) -> dict[str, np.ndarray]:
    """Return the predictions of the test images that have no copy in the groups a model knows.

    Args:
        predictions: `rows` int64 (t,) and `probabilities` float32 (t, k) of the test images.
        groups: Group of copies of every row of the dataset.
        known: Groups of which the model has seen an image.
    """
    kept = ~np.isin(groups[predictions["rows"]], known)
    return {name: values[kept] for name, values in predictions.items()}
