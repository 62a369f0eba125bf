"""A small picture of points for the Dagster UI."""

import numpy as np
from jaxtyping import Float, Int
from PIL import Image, ImageDraw

_OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_GREY = "#9a9a9a"
_SIDE, _MARGIN, _RADIUS = 480, 16, 2


def draw_scatter(points: Float[np.ndarray, "n 2"], labels: Int[np.ndarray, " n"]) -> Image.Image:
    """Draw points coloured by class; where there are more classes than colours, the largest are coloured."""
    image = Image.new("RGB", (_SIDE, _SIDE), "white")
    draw = ImageDraw.Draw(image)
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.where(high > low, high - low, 1) * (_SIDE - 2 * _MARGIN) + _MARGIN
    present, counts = np.unique(labels, return_counts=True)
    largest = present[np.argsort(-counts, kind="stable")][: len(_OKABE_ITO)]
    colours = dict(zip(sorted(largest.tolist()), _OKABE_ITO, strict=False))
    for (x, y), label in zip(scaled.tolist(), labels.tolist(), strict=True):
        box = (x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS)
        draw.ellipse(box, fill=colours.get(label, _GREY))
    return image
