"""Made-up JPEG photographs: detail at every scale and the noise of a sensor, so that they cost as much."""

import io
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from agml_assets.dataset.sources.base import Example, SourceInfo

_SCENES, _SCENE_SIDE = 6, 2400  # pixels; every photograph is a window of one of these
_SCALES = ((4, 50.0), (16, 30.0), (64, 18.0), (256, 10.0))  # cells across, standard deviation in gray levels
_NOISE = 4.0  # gray levels, the same in all channels


class Photographs:
    """A source of JPEG files in memory, the classes in turn.

    Args:
        n: How many.
        megapixels: Smallest and largest.
        n_classes: Classes; each has a hue of its own, so that something can be learnt.
        seed: Of all that is random.
    """

    def __init__(self, n: int, megapixels: tuple[float, float], n_classes: int = 2, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        scenes = [_scene(rng) for _ in range(_SCENES)]
        tints = rng.uniform(0.8, 1.2, size=(n_classes, 3))
        self.labels = [i % n_classes for i in range(n)]
        self.files: Sequence[bytes] = [
            _photograph(rng, scenes[i % _SCENES], rng.uniform(*megapixels), tints[label])
            for i, label in enumerate(self.labels)
        ]
        self._n_classes, self._seed = n_classes, seed

    def info(self) -> SourceInfo:
        """Return the facts about the source."""
        names = tuple(f"class {label}" for label in range(self._n_classes))
        return SourceInfo(names, {}, (), len(self.files), f"photographs {self._seed}", {})

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Stream the files."""
        for row in range(start, len(self.files)):
            yield Example(row, self.files[row], f"{row}.jpg", self.labels[row], None)


def _scene(rng: np.random.Generator) -> np.ndarray:
    scene = np.full((_SCENE_SIDE, _SCENE_SIDE, 3), 120, np.float32)
    size = (_SCENE_SIDE, _SCENE_SIDE)
    for cells, deviation in _SCALES:
        for channel in range(3):
            field = Image.fromarray(rng.normal(scale=deviation, size=(cells, cells)).astype(np.float32))
            scene[..., channel] += np.asarray(field.resize(size, Image.Resampling.BICUBIC))
    scene += rng.normal(scale=_NOISE, size=(*size, 1)).astype(np.float32)
    return scene


def _photograph(rng: np.random.Generator, scene: np.ndarray, megapixels: float, tint: np.ndarray) -> bytes:
    ratio = rng.choice([4 / 3, 3 / 2, 3 / 4])
    height = round((megapixels * 1e6 / ratio) ** 0.5)
    width = round(height * ratio)
    top, left = rng.integers(0, _SCENE_SIDE - height), rng.integers(0, _SCENE_SIDE - width)
    pixels = np.clip(scene[top : top + height, left : left + width] * tint, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=90)
    return stream.getvalue()
