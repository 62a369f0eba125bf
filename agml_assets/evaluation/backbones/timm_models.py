"""Models of timm: the features before its head, reduced to one vector, and its own preprocessing.

timm is an optional extra, because it needs torchvision.
"""

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.evaluation.backbones.base import EncodedImages, VisionBackbone
from agml_assets.evaluation.backbones.extras import cannot_load, hub_name, identity_of, import_extra, no_vector
from agml_assets.registry.models import ModelEntry

if TYPE_CHECKING:
    import torch


class TimmBackbone(VisionBackbone):
    """A model of timm.

    Args:
        entry: Its checkpoint is a name that timm knows, with the tag of its weights, or `hf-hub:owner/name`.

    Raises:
        UserError: timm is not installed.
    """

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._library = import_extra(entry, "timm", "timm")
        self._opening = threading.Lock()
        self._opened: tuple[Any, Any] | None = None

    @property
    def checkpoint(self) -> str:
        """The name that timm knows it by."""
        return self._entry.checkpoint

    def identity(self) -> dict[str, Any]:
        """Return checkpoint, version of the library, and vector."""
        return identity_of(self._entry, self._library, self.checkpoint)

    def load(self, device: "torch.device") -> None:
        """Read the weights, ready for evaluation on the device."""
        self._model = self._open()[0].eval().to(device)

    def transform(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return the float32 input for one decoded RGB image of any size, by the weights' own configuration."""
        return np.ascontiguousarray(self._open()[1](image).numpy(), dtype=np.float32)

    def encode(self, batch: "Float[torch.Tensor, 'b 3 h w']") -> EncodedImages:
        """Return the vectors by the entry's rule, and the patches or positions."""
        features = self._model.forward_features(batch)
        token, patches = self._token_and_patches(features)
        match self._entry.vector:
            case "features":
                vectors = self._model.forward_head(features, pre_logits=True)
            case "class_token" | "class_token_or_max" if token is not None:
                vectors = token
            case "max_patches" | "class_token_or_max":
                vectors = patches.amax(1)
            case "mean_patches":
                vectors = patches.mean(1)
            case _:
                raise no_vector(self._entry, "it has no class token")
        return EncodedImages(vectors.float(), patches)

    def _token_and_patches(self, features: "torch.Tensor") -> "tuple[torch.Tensor | None, torch.Tensor]":
        """Return the class token (b, p), None without one, and the patches (b, n, p)."""
        if features.ndim == 4:
            patches = features if self._channels_last(features) else features.permute(0, 2, 3, 1)
            return None, patches.flatten(1, 2)
        if features.ndim != 3:
            raise UserError(
                f"Model {self._entry.key!r} gives features of shape {tuple(features.shape)}, which are neither a "
                "map nor tokens. Load it with a class of your own: docs/models.md."
            )
        # Registers stand before the patches too, and are no class token.
        before = getattr(self._model, "num_prefix_tokens", 0)
        has_token = before > 0 and getattr(self._model, "cls_token", None) is not None
        return (features[:, 0] if has_token else None), features[:, before:]

    def _channels_last(self, features: "torch.Tensor") -> bool:
        """Tell the layout of a map from what the model says of itself, never from which sides are equal."""
        declared = getattr(self._model, "output_fmt", None)
        if declared is not None:
            return str(getattr(declared, "value", declared)) == "NHWC"
        channels = self._model.num_features
        first, last = features.shape[1] == channels, features.shape[3] == channels
        if first == last:
            raise UserError(
                f"Model {self._entry.key!r} gives maps of shape {tuple(features.shape)} and says that it has "
                f"{channels} features: which axis they are is not certain. Load it with a class of your own: "
                "docs/models.md."
            )
        return bool(last)

    def _open(self) -> tuple[Any, Any]:
        """Return the model and its preprocessing, once."""
        with self._opening:  # images are prepared in threads
            if self._opened is None:
                self._opened = self._read()
            return self._opened

    def _read(self) -> tuple[Any, Any]:
        timm = self._library
        try:
            model = timm.create_model(hub_name(self._entry), pretrained=True)
            rule = timm.data.resolve_model_data_config(model)
            preprocess = timm.data.create_transform(**rule, is_training=False)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise cannot_load(self._entry, error) from error
        return model, preprocess
