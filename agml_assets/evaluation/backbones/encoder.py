"""Encodes images with a registered model: which device, which precision, and how many at a time."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.evaluation.backbones.base import VisionBackbone
from agml_assets.evaluation.backbones.batch_size import find_batch_size
from agml_assets.evaluation.backbones.providers import load_backbone
from agml_assets.registry.models import ModelEntry

logger = logging.getLogger(__name__)

_BATCH_ON_PROCESSOR = 16  # more images at a time are no faster there
_LARGEST_BATCH = 1024
_LARGEST_INPUT_BYTES = 2**30  # of prepared images that wait in memory for one forward pass


@dataclass
class BackboneEncoder(FrozenEncoder):
    """Encode images with a registered model; the vectors are float32, as the model gives them.

    The model loads when the first batch needs it and is freed by `close`. On a GPU, the batch size is found by
    trying; vectors do not depend on it by more than rounding, about 1e-5 of their length in float32.

    Args:
        entry: The model.
    """

    entry: ModelEntry
    batch_size: int = field(default=_BATCH_ON_PROCESSOR, init=False, compare=False)

    def __post_init__(self) -> None:
        """Set up without loading anything."""
        super().__init__()
        self.precision = self.entry.precision
        self._tried = 0  # for which loading the batch size was found

    @property
    def name(self) -> str:
        """The model's key."""
        return self.entry.key

    def open_backend(self) -> VisionBackbone:
        """Return the model, its weights not read."""
        return load_backbone(self.entry)

    def identity(self) -> dict[str, Any]:
        """Return what the vectors depend on; not that of the embedder, whose vectors have unit length."""
        return {**super().identity(), "length": "as the model gives it"}

    def choose_batch_size(self, one: np.ndarray, run: Callable[[int], object]) -> int:
        """Return the batch size: once for every loading on a GPU, by trying; on a processor it is fixed."""
        if self._tried == self.loads:
            return self.batch_size
        self._tried = self.loads
        if self.entry.resolution not in (None, one.shape[2]):
            logger.warning(
                "Model %r is registered with a resolution of %d, but its inputs have %d pixels.",
                self.entry.key, self.entry.resolution, one.shape[2],
            )  # fmt: skip
        if self.device == "cpu":
            return self.batch_size
        waiting = _LARGEST_INPUT_BYTES // one.nbytes

        def run_in_clean_memory(size: int) -> None:
            import torch

            torch.cuda.empty_cache()
            run(size)

        return find_batch_size(run_in_clean_memory, start=1, upper=max(1, min(_LARGEST_BATCH, waiting)))
