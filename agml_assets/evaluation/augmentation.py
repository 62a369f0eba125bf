"""How images are varied while a model is fine-tuned, and how they are prepared when it is judged.

As torchvision's RandomResizedCrop, RandomHorizontalFlip and ColorJitter do it to Pillow images (parameters as its
0.20 documents them), without torchvision, which does not load beside every build of torch.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageEnhance

SCALE = (0.8, 1.0)
"""Share of the image's area in a crop; this and the next of AgML's experiments."""
JITTER = 0.2
"""Largest change of brightness, contrast and saturation."""
HUE_JITTER = 0.02
"""Largest turn of the hue, in turns."""

_RATIO = (3 / 4, 4 / 3)  # width to height of a crop, torchvision's default
_TRIES = 10  # torchvision's, before it takes the centre


def squash(image: Image.Image, height: int, width: int) -> UInt8[np.ndarray, "h w 3"]:
    """Return the whole image at a size, whatever its proportions; bilinear."""
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def vary(image: Image.Image, height: int, width: int, random: np.random.Generator) -> UInt8[np.ndarray, "h w 3"]:
    """Return a random crop of the image at a size, flipped or not, its colours changed a little.

    Args:
        image: RGB.
        height: Of the result, in pixels.
        width: Of the result, in pixels.
        random: Draws everything.
    """
    left, top, wide, high = random_crop(*image.size, random)
    box = (left, top, left + wide, top + high)
    # Cut before it is resized, as torchvision does: no pixel beyond the crop bleeds in.
    varied = image.crop(box).resize((width, height), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        varied = varied.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(_jitter(varied, random))


def random_crop(width: int, height: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a crop, as torchvision's `RandomResizedCrop.get_params` draws them.

    Its area is uniform in `SCALE` of the image's, the logarithm of its proportions uniform between 3:4 and 4:3.
    After ten crops that would not fit, it is the largest one in the centre within these proportions.
    """
    for _ in range(_TRIES):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            top = int(random.integers(0, height - high + 1))
            return int(random.integers(0, width - wide + 1)), top, wide, high
    wide, high = width, height
    if width / height < _RATIO[0]:
        high = min(height, round(width / _RATIO[0]))
    elif width / height > _RATIO[1]:
        wide = min(width, round(height * _RATIO[1]))
    return (width - wide) // 2, (height - high) // 2, wide, high


def turn_hue(image: Image.Image, turns: float) -> Image.Image:
    """Return an RGB image with its hue turned, in [-0.5, 0.5] turns, in Pillow's 256 steps of hue."""
    hue, saturation, value = image.convert("HSV").split()
    steps = int(turns * 255)
    turned = hue.point([(level + steps) % 256 for level in range(256)])
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


def _jitter(image: Image.Image, random: np.random.Generator) -> Image.Image:
    brightness, contrast, saturation = random.uniform(1 - JITTER, 1 + JITTER, 3)
    turns = random.uniform(-HUE_JITTER, HUE_JITTER)
    changes: tuple[Callable[[Image.Image], Image.Image], ...] = (
        lambda one: ImageEnhance.Brightness(one).enhance(brightness),
        lambda one: ImageEnhance.Contrast(one).enhance(contrast),
        lambda one: ImageEnhance.Color(one).enhance(saturation),
        lambda one: turn_hue(one, turns),
    )
    for which in random.permutation(len(changes)):
        image = changes[which](image)
    return image
