"""Feeds images to a frozen model: on which device, in what precision, how many at a time.

Models are in `frozen_models`; what becomes of the vectors is up to the class that inherits.
"""

import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from agml_assets.device import feed, kept_memory, mixed_precision, use_device
from agml_assets.embeddings.backbone import VisionBackbone
from agml_assets.embeddings.frozen_models import centre_crop

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


class FrozenEncoder(ABC):
    """Encodes images with one frozen model, which loads when the first batch needs it and is freed by `close`.

    Attributes:
        name: Of the model, for messages and for those who wait for the GPU.
        precision: `float32`, or `bfloat16` or `float16` for the multiplications of the forward pass.
        batch_size: Images in one forward pass; halved when the GPU runs out of memory.
        device: `cpu` or `cuda`; None while nothing is loaded.
        loads: How often the weights were read.
    """

    precision: str
    batch_size: int

    def __init__(self) -> None:
        self.device: str | None = None
        self.loads = 0
        self._backend: VisionBackbone | None = None
        self._held = ExitStack()

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's name."""

    @abstractmethod
    def open_backend(self) -> VisionBackbone:
        """Return the model; its configuration may be read, its weights not yet."""

    @property
    def backend(self) -> VisionBackbone:
        """The model, opened on first use."""
        if self._backend is None:
            self._backend = self.open_backend()
        return self._backend

    def identity(self) -> dict[str, Any]:
        """Return what the vectors depend on: model, resolved revision or weights, preprocessing, precision."""
        precision = self.precision if self.precision == "float32" else f"{self.precision} (autocast)"
        return {**self.backend.identity(), "precision": precision}

    @property
    def serves_from_pixels(self) -> bool:
        """Whether `dataset/pixels` serve: a crop of at most 256 after a bicubic resize to 256."""
        return self.backend.serves_from_pixels

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "all 256 256 3"], rows: Sequence[int] | None = None
    ) -> Float[np.ndarray, "n d"]:
        """Return float32 vectors of the given rows of stored pixels, or of all, in order.

        Pixels may be mapped from a file; they are read a batch at a time and normalised on the device.
        """
        wanted = np.arange(len(pixels)) if rows is None else np.asarray(rows)
        height, width = self.backend.crop
        return self._encode(
            len(wanted),
            lambda part: centre_crop(pixels[wanted[part]], height, width),
            self._look_up,
        )

    def prepare_image(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return what the model is fed for a decoded RGB image, resized by the model's own rule."""
        return self.backend.transform(image)

    def encode_prepared(self, inputs: Float[np.ndarray, "n 3 h w"]) -> Float[np.ndarray, "n d"]:
        """Return float32 vectors of prepared images, in row order."""
        return self._encode(len(inputs), lambda part: inputs[part], lambda batch: batch)

    def close(self) -> None:
        """Free the model, the GPU's memory and its lock."""
        if self.device is not None:
            self._backend = None
            gc.collect()
            if self.device.startswith("cuda"):
                import torch

                torch.cuda.empty_cache()
            self.device = None
        self._held.close()

    def finish(self, raw: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return what becomes of the model's vectors: by default they stay as they are."""
        return raw

    def _encode(
        self,
        n: int,
        load: Callable[[slice], np.ndarray],
        prepare: "Callable[[torch.Tensor], torch.Tensor]",
    ) -> Float[np.ndarray, "n d"]:
        """Encode n images in batches: `load` gives the array of one, `prepare` makes the model's input of it."""
        import torch

        self._load()
        device = torch.device(self.device or "cpu")
        one = load(slice(0, 1))
        self.batch_size = self.choose_batch_size(
            one, lambda size: self._forward(prepare(_repeated(one, size, device)), device)
        )
        vectors: list[Float[np.ndarray, "n d"]] = []
        done = 0
        while done < n:
            batches = [slice(at, at + self.batch_size) for at in range(done, n, self.batch_size)]
            try:
                with kept_memory(device), closing(feed(batches, load, device)) as fed:
                    for part, batch in fed:
                        vectors.append(self._forward(prepare(batch), device))
                        done = min(part.stop, n)
            except torch.cuda.OutOfMemoryError:
                if self.batch_size == 1:
                    raise
                self.batch_size //= 2
                logger.warning("The GPU is out of memory; going on with batches of %d.", self.batch_size)
            if done < n:  # outside of the handler, whose error keeps the failed batch alive
                torch.cuda.empty_cache()
        return self.finish(np.concatenate(vectors))

    def choose_batch_size(self, one: np.ndarray, run: Callable[[int], object]) -> int:
        """Return how many images go into one forward pass: by default as many as were asked for.

        Args:
            one: One image as it waits in memory, (1, ...).
            run: Tries so many.
        """
        return self.batch_size

    def _forward(self, inputs: "torch.Tensor", device: "torch.device") -> Float[np.ndarray, "n d"]:
        import torch

        with torch.inference_mode(), mixed_precision(device, self.precision):
            return self.backend.forward(inputs).float().cpu().numpy()

    def _look_up(self, crops: "torch.Tensor") -> "torch.Tensor":
        return look_up(self.backend.levels, crops)

    def _load(self) -> None:
        if self.device is not None:
            return
        import torch

        device = self._held.enter_context(use_device(self._purpose))
        try:
            self.backend.load(torch.device(device))
        except BaseException:
            self._held.close()  # else the next try in this process would wait for itself
            raise
        self.device = device
        self.loads += 1
        logger.info("Loaded %s on %s.", self.name, device)

    @property
    def _purpose(self) -> str:
        return f"embedding with {self.name}"


def look_up(levels: Float[np.ndarray, "3 256"], crops: "torch.Tensor") -> "torch.Tensor":
    """Return normalised pixels, float32 (n, 3, h, w), of uint8 (n, h, w, 3): each becomes its channel's level."""
    import torch

    table = torch.from_numpy(levels).to(crops.device)
    return torch.stack([table[channel][crops[..., channel].int()] for channel in range(3)], dim=1)


def _repeated(image: np.ndarray, size: int, device: "torch.device") -> "torch.Tensor":
    """Return one image, (1, ...), `size` times on the device."""
    import torch

    return torch.from_numpy(image).to(device).expand(size, *image.shape[1:]).contiguous()
