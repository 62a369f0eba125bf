"""What the pixels of each image say about it: brightness, contrast, sharpness, information, colour.

One pass over the 256-pixel squares. Which of the values is a fault is decided by the metric `image_health`.
"""

from collections.abc import Callable
from math import log2, sqrt

import numpy as np
import polars as pl
from jaxtyping import Int32, UInt8

GREY_TOLERANCE = 2
"""Difference of the channels, of 255, that rounding leaves in a grey picture stored in colour."""

_PERCENTILES = (1, 5, 95, 99)
_BLOCK_ROWS = 64  # images read at once, 12 MiB
_LEVELS = 256

# Perceived brightness (D. R. Finley, "HSP color model", 2006), as CleanVision weighs the squared channels; in
# thousandths, so that it is a whole number and its order statistics are the same on every machine.
_BRIGHTNESS_WEIGHTS = (241, 691, 68)
_BRIGHTEST = sqrt(1000) * 255
# ITU-R BT.601 luma in 2**-16, rounded half up: the grey levels of Pillow's conversion to mode L.
_LUMA_WEIGHTS = (19595, 38470, 7471)

_SCHEMA = {
    "row": pl.Int64,
    "brightness_mean": pl.Float64,
    "brightness_std": pl.Float64,
    **{f"brightness_p{percentile}": pl.Float64 for percentile in _PERCENTILES},
    "laplacian_variance": pl.Float64,
    "sharpness": pl.Float64,
    "entropy": pl.Float64,
    "saturation_mean": pl.Float64,
    "colourfulness": pl.Float64,
    "channel_difference": pl.Int64,
    "is_grey": pl.Boolean,
    "red_mean": pl.Float64,
    "green_mean": pl.Float64,
    "blue_mean": pl.Float64,
}


def image_statistics(
    pixels: UInt8[np.ndarray, "n 256 256 3"], progress: Callable[[int, int], None] | None = None
) -> pl.DataFrame:
    """Measure every image by its 256-pixel square.

    All values are of the square (shortest side 256, centre crop), not of the file: what is cropped away is
    not seen, a small image was enlarged, a large one reduced. Images are measured one by one, so memory does
    not grow with their number; `pixels` may be memory-mapped.

    Args:
        pixels: RGB, aligned to `row`.
        progress: Called with the number of images done and of all.

    Returns:
        One row an image, in order, with `row` and:

        - `brightness_mean`, `brightness_std`, `brightness_p1`, `_p5`, `_p95`, `_p99`, in [0, 1]: mean, standard
          deviation (contrast) and percentiles (linear interpolation) over the pixels of the perceived brightness
          sqrt(0.241 R^2 + 0.691 G^2 + 0.068 B^2) / 255 (Finley 2006, "HSP color model", as in CleanVision).
        - `laplacian_variance`: variance over the inner pixels of the grey picture's Laplacian, the sum of the four
          neighbours minus four times the pixel (Pech-Pacheco et al. 2000, doi:10.1109/ICPR.2000.903548). At
          least 0; grows with sharpness, and with contrast, noise and fine structure as well.
        - `sharpness`: standard deviation of the Laplacian with eight neighbours, divided by that of the grey
          levels, both of the picture reduced to 128 pixels by means of 2 x 2. Filter and reduction are after
          CleanVision's (FIND_EDGES at 64 pixels); the division makes it independent of contrast. At least 0;
          null where the grey levels deviate by less than one, since such a picture has nothing to be sharp.
        - `entropy`: Shannon entropy of the histogram of the 256 grey levels, in bits, 0 to 8.
        - `saturation_mean`: mean over the pixels of (max - min) / max of the channels (HSV's saturation), in
          [0, 1].
        - `colourfulness`: Hasler and Suesstrunk 2003, doi:10.1117/12.477378: sqrt(s_rg^2 + s_yb^2) +
          0.3 sqrt(m_rg^2 + m_yb^2), s and m the standard deviations and means of rg = R - G and
          yb = (R + G) / 2 - B over the pixels. At least 0; 109 is "extremely colourful".
        - `channel_difference`: largest max - min of a pixel's channels, 0 to 255; `is_grey`: it is at most 2.
        - `red_mean`, `green_mean`, `blue_mean`: in [0, 1].

        Grey levels are Pillow's (ITU-R BT.601 luma, rounded to 8 bits). Standard deviations and variances have
        the divisor n.

    Raises:
        ValueError: `pixels` have another shape or type.
    """
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (256, 256, 3):
        raise ValueError(f"pixels must be uint8 (n, 256, 256, 3), not {pixels.dtype} {pixels.shape}")
    rows: list[tuple[float | int | bool | None, ...]] = []
    for start in range(0, len(pixels), _BLOCK_ROWS):
        for image in np.asarray(pixels[start : start + _BLOCK_ROWS]):
            rows.append((len(rows), *_measure(image)))
        if progress is not None:
            progress(len(rows), len(pixels))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _measure(image: UInt8[np.ndarray, "256 256 3"]) -> tuple[float | int | bool | None, ...]:
    bytewise = np.ascontiguousarray(image.reshape(-1, 3).T)
    largest, smallest = bytewise.max(axis=0), bytewise.min(axis=0)
    difference = largest - smallest
    # Where black has no saturation, 0 / 1 gives none.
    saturation = difference / np.maximum(largest, 1).astype(np.float32)
    channels = bytewise.astype(np.int32)
    grey = (_weigh(channels, _LUMA_WEIGHTS) + 0x8000) >> 16
    picture = grey.reshape(image.shape[:2])
    spread = int(difference.max())
    return (
        *_brightness(channels),
        _laplacian_variance(picture),
        _sharpness(picture),
        _entropy(grey),
        float(saturation.mean(dtype=np.float64)),
        _colourfulness(channels),
        spread,
        spread <= GREY_TOLERANCE,
        *(_mean(channel) / 255 for channel in channels),
    )


def _weigh(channels: Int32[np.ndarray, "3 p"], weights: tuple[int, int, int]) -> Int32[np.ndarray, " p"]:
    red, green, blue = channels
    return red * weights[0] + green * weights[1] + blue * weights[2]


def _mean(numbers: Int32[np.ndarray, " p"]) -> float:
    return int(numbers.sum(dtype=np.int64)) / len(numbers)


def _brightness(channels: Int32[np.ndarray, "3 p"]) -> tuple[float, ...]:
    squared = _weigh(channels * channels, _BRIGHTNESS_WEIGHTS)
    squared.sort()
    brightness = np.sqrt(squared, dtype=np.float64)
    mean = float(brightness.mean())
    std = sqrt(max(0.0, _mean(squared) - mean * mean))
    positions = np.array(_PERCENTILES) / 100 * (len(brightness) - 1)
    below = positions.astype(np.int64)
    low, high = brightness[below], brightness[below + 1]
    percentiles = low + (positions - below) * (high - low)
    return tuple(value / _BRIGHTEST for value in (mean, std, *percentiles.tolist()))


def _laplacian_variance(picture: Int32[np.ndarray, "h w"]) -> float:
    neighbours = picture[:-2, 1:-1] + picture[2:, 1:-1] + picture[1:-1, :-2] + picture[1:-1, 2:]
    return float((neighbours - 4 * picture[1:-1, 1:-1]).var())


def _sharpness(picture: Int32[np.ndarray, "h w"]) -> float | None:
    # Sums of 2 x 2 rather than means: the factor of four cancels, and whole numbers stay exact.
    reduced = picture[::2] + picture[1::2]
    reduced = reduced[:, ::2] + reduced[:, 1::2]
    contrast = float(reduced.std())
    if contrast < 4:
        return None
    rows = reduced[:-2] + reduced[1:-1] + reduced[2:]
    nine = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    return float((9 * reduced[1:-1, 1:-1] - nine).std()) / contrast


def _entropy(grey: Int32[np.ndarray, " p"]) -> float:
    counts = np.bincount(grey, minlength=_LEVELS)
    counts = counts[counts > 0]
    return max(0.0, log2(len(grey)) - float((counts * np.log2(counts)).sum()) / len(grey))


def _colourfulness(channels: Int32[np.ndarray, "3 p"]) -> float:
    red, green, blue = channels
    variance, mean_squared = 0.0, 0.0
    for opponent, scale in ((red - green, 1), (red + green - 2 * blue, 2)):
        mean = _mean(opponent)
        variance += max(0.0, _mean(opponent * opponent) - mean * mean) / scale**2
        mean_squared += (mean / scale) ** 2
    return sqrt(variance) + 0.3 * sqrt(mean_squared)
