"""The frozen model that turns images into unit vectors: any `transformers` vision model, or an EfficientNet-Lite.

The model loads when the first batch needs it and is freed by `close`. Caching is in `cache`.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from agml_assets.embeddings.backbone import VisionBackbone
from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.embeddings.frozen_models import (
    PACKAGED_MODEL,
    PACKAGED_MODELS,
    EfficientNetLite,
    TransformersModel,
    digest_weights,
    local_model,
)
from agml_assets.settings import Settings

__all__ = ["PACKAGED_MODEL", "PACKAGED_MODELS", "ImageEmbedder", "digest_weights", "local_model"]


@dataclass
class ImageEmbedder(FrozenEncoder):
    """Encode images as unit vectors with a frozen model.

    Args:
        model: `efficientnet_lite0`, `efficientnet_lite1`, `efficientnet_lite2`, or the name or local path of a
            `transformers` vision model.
        revision: Revision on the hub; None means the default branch.
        precision: `float32`, or `bfloat16` or `float16` for the multiplications of the forward pass (autocast);
            weights and vectors are float32.
        batch_size: Images in one forward pass; halved when the GPU runs out of memory.
    """

    model: str
    revision: str | None = None
    precision: str = "float32"
    batch_size: int = field(default=64, compare=False)  # halved where memory is short: still the same model

    def __post_init__(self) -> None:
        """Set up without loading anything."""
        super().__init__()

    @classmethod
    def from_settings(cls, settings: Settings) -> "ImageEmbedder":
        """Return the embedder that the settings ask for."""
        return cls(
            settings.embed_model, settings.embed_revision, settings.embed_precision, settings.embed_batch_size
        )

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model

    def open_backend(self) -> VisionBackbone:
        """Return the model family; its configuration is read, its weights are not."""
        if self.model in PACKAGED_MODELS:
            return EfficientNetLite(self.model)
        return TransformersModel(self.model, self.revision)

    def finish(self, raw: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return unit vectors."""
        # Rows of zeros or NaN stay what they are: a check names them, a made-up direction would hide them.
        with np.errstate(invalid="ignore", divide="ignore"):
            return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
