"""Models of open_clip: the image tower of a CLIP-type model, its projected output, its own preprocessing.

open_clip is an optional extra, because it needs torchvision.
"""

import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.evaluation.backbones.base import EncodedImages, VisionBackbone
from agml_assets.evaluation.backbones.extras import cannot_load, hub_name, identity_of, import_extra, no_vector
from agml_assets.registry.models import ModelEntry
from agml_assets.settings import expand_path
from agml_assets.store import file_digest

if TYPE_CHECKING:
    import torch


class OpenClipBackbone(VisionBackbone):
    """The image tower of an open_clip model.

    Args:
        entry: Its checkpoint is `ARCH/PRETRAINED`, a name and weights that open_clip knows; `hf-hub:owner/name`;
            or `local:ARCH/PATH`, a file of weights, without the `module.` of parallel training and `drop_keys`.

    Raises:
        UserError: open_clip is not installed, or the checkpoint has none of these forms.
    """

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._name, self._pretrained, self._file = _parse(entry)
        self._library = import_extra(entry, "open_clip", "open_clip")
        self._opening = threading.Lock()
        self._opened: tuple[Any, Any] | None = None

    @property
    def checkpoint(self) -> str:
        """`ARCH/PRETRAINED`, `hf-hub:owner/name`, or `ARCH/STEM` of a local file."""
        return f"{self._name}/{self._file.stem}" if self._file else self._entry.checkpoint

    def identity(self) -> dict[str, Any]:
        """Return checkpoint, version of the library, vector, and a digest of local weights."""
        identity = identity_of(self._entry, self._library, self.checkpoint)
        return identity | (
            {"weights": self._digest, "drop_keys": list(self._entry.drop_keys)} if self._file else {}
        )

    @cached_property
    def _digest(self) -> str:
        if self._file is None or not self._file.is_file():
            raise UserError(f"Model {self._entry.key!r}: the file of weights {self._file} does not exist.")
        return file_digest(self._file)

    def load(self, device: "torch.device") -> None:
        """Read the weights, ready for evaluation on the device."""
        self._visual = self._open()[0].eval().to(device)

    def transform(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return the float32 input for one decoded RGB image of any size, as open_clip evaluates it."""
        return np.ascontiguousarray(self._open()[1](image).numpy(), dtype=np.float32)

    def encode(self, batch: "Float[torch.Tensor, 'b 3 h w']") -> EncodedImages:
        """Return the pooled and projected features, and the tokens of patches where the tower gives them."""
        outputs = self._visual(batch)
        pooled, patches = outputs if isinstance(outputs, tuple) else (outputs, None)
        if self._entry.vector == "features":
            return EncodedImages(pooled.float(), patches)
        if patches is not None and self._entry.vector in ("max_patches", "mean_patches"):
            vectors = patches.amax(1) if self._entry.vector == "max_patches" else patches.mean(1)
            return EncodedImages(vectors.float(), patches)
        others = "" if patches is None else ", max_patches and mean_patches"
        raise no_vector(self._entry, f"open_clip gives features{others} of it")

    def _open(self) -> tuple[Any, Any]:
        """Return the image tower and its preprocessing, once."""
        with self._opening:  # images are prepared in threads
            if self._opened is None:
                self._opened = self._read()
            return self._opened

    def _read(self) -> tuple[Any, Any]:
        name = self._name if self._file or self._pretrained else hub_name(self._entry)
        try:
            model, _, preprocess = self._library.create_model_and_transforms(name, pretrained=self._pretrained)
            if self._file is not None:
                model.load_state_dict(_weights(self._file, self._entry.drop_keys), strict=True)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise cannot_load(self._entry, error) from error
        visual = model.visual
        if hasattr(visual, "output_tokens"):
            visual.output_tokens = True
        return visual, preprocess


def _parse(entry: ModelEntry) -> tuple[str, str | None, Path | None]:
    """Return architecture or name on the hub, name of pretrained weights, and local file."""
    if entry.checkpoint.startswith("hf-hub:"):
        return entry.checkpoint, None, None
    architecture, _, weights = entry.checkpoint.removeprefix("local:").partition("/")
    if not architecture or not weights:
        raise UserError(
            f"Model {entry.key!r}: {entry.checkpoint!r} is no checkpoint of open_clip; give `ARCH/PRETRAINED`, "
            "`hf-hub:owner/name` or `local:ARCH/PATH`."
        )
    if entry.checkpoint.startswith("local:"):
        return architecture, None, expand_path(weights).absolute()
    return architecture, weights, None


def _weights(file: Path, drop_keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the weights in a file, without the prefix of parallel training and the keys to drop."""
    import torch

    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        state: Any = load_file(file)
    else:
        state = torch.load(file, map_location="cpu", weights_only=True)
    state = state.get("state_dict", state)  # training programs keep the weights beside their own state
    plain = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    return {name: tensor for name, tensor in plain.items() if name not in drop_keys}
