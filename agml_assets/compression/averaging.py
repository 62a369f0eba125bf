"""The averaging baseline: a satellite location as 4 averaged channels of 8 x 8 pixels in each season."""

import numpy as np
from jaxtyping import Float, Float32

from agml_assets.compression.satellite_images import MODALITIES, SatelliteImages

SIDE = 8
NEEDED = ("s2l1c", "s2l2a", "s1")


def average_location(
    bands: dict[str, Float32[np.ndarray, "t c h w"]],
) -> tuple[Float32[np.ndarray, " v"], int]:
    """Return one location as a vector of 256 values a season, and how many of its pixels were not finite.

    Each band is brought to mean 0 and deviation 1 and read at 8 x 8 points, bilinearly, corners on corners. Bands
    that go together are averaged: the first nine of both Sentinel-2 products; the band at place 9 of the first
    product alone; those from place 10 on of both; the two of Sentinel-1. It is the baseline of the Embed2Scale
    challenge (arXiv:2510.17914). Pixels that are not finite count as their band's mean.

    Args:
        bands: Of all three modalities, in the units of `MODALITIES`.
    """
    points, unfit = {}, 0
    for name in NEEDED:
        shape = (1, -1, 1, 1)
        means = np.reshape(np.asarray(MODALITIES[name].means, np.float32), shape)
        deviations = np.reshape(np.asarray(MODALITIES[name].deviations, np.float32), shape)
        normal = (bands[name] - means) / deviations
        finite = np.isfinite(normal)
        unfit += int(finite.size - np.count_nonzero(finite))
        points[name] = sample_corners(np.where(finite, normal, 0), SIDE)
    first, second, radar = (points[name] for name in NEEDED)
    channels = (
        np.concatenate([first[:, :9], second[:, :9]], axis=1).mean(axis=1),
        first[:, 9],
        np.concatenate([first[:, 10:], second[:, 10:]], axis=1).mean(axis=1),
        radar.mean(axis=1),
    )
    return np.stack(channels, axis=1).reshape(-1).astype(np.float32), unfit


def average_locations(images: SatelliteImages) -> tuple[Float32[np.ndarray, "n v"], dict[str, int]]:
    """Return the vectors of all locations in order, and the unfit pixels of those that have some."""
    vectors, unfit = [], {}
    for location in images.ids:
        vector, count = average_location(images.read(location))
        vectors.append(vector)
        if count:
            unfit[location] = count
    return np.stack(vectors), unfit


def sample_corners(image: Float[np.ndarray, "*c h w"], side: int) -> Float[np.ndarray, "*c side side"]:
    """Return an image at side x side points from corner to corner, bilinearly between its pixels."""
    for axis in (-2, -1):
        length = image.shape[axis]
        places = np.linspace(0, length - 1, side)
        below = np.minimum(places.astype(int), max(length - 2, 0))
        above = np.minimum(below + 1, length - 1)
        share = (places - below).astype(image.dtype)
        share = share[:, None] if axis == -2 else share
        image = np.take(image, below, axis) * (1 - share) + np.take(image, above, axis) * share
    return image
