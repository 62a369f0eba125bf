"""What every frozen image model is to those who feed it, whoever wrote it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from PIL import Image

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class EncodedImages:
    """What a model says of a batch of images; tensors on the model's device.

    Attributes:
        image_features: float32 (b, d), one vector an image.
        patch_features: float (b, n, p), one vector a patch, left to right from the top; None where there are none.
    """

    image_features: "Float[torch.Tensor, 'b d']"
    patch_features: "Float[torch.Tensor, 'b n p'] | None" = None


class VisionBackbone(ABC):
    """A frozen image model, and how it wants its images.

    It is made without reading weights; `load` reads them. Implementations say nothing of batches, devices or
    precision: `embeddings.encoder.FrozenEncoder` takes care of these.

    Attributes:
        serves_from_pixels: Whether `dataset/pixels` serve: its input is a crop of at most 256, cut from the centre
            after a bicubic resize of the shortest side to 256. Then `crop` and `levels` must be there as well.
        crop: Height and width of that crop.
    """

    serves_from_pixels: bool = False
    crop: tuple[int, int] = (0, 0)

    @property
    def levels(self) -> Float[np.ndarray, "3 256"]:
        """What each gray level becomes, float32 by channel; asked only where stored pixels serve."""
        raise NotImplementedError(f"{type(self).__name__} serves from pixels, but has no `levels`.")

    @property
    @abstractmethod
    def checkpoint(self) -> str:
        """The canonical name of the weights, the same wherever they lie."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return all that vectors depend on, as JSON values: a cache finds them by it. Reads no weights."""

    @abstractmethod
    def load(self, device: "torch.device") -> None:
        """Read the weights, ready for evaluation on the device."""

    @abstractmethod
    def transform(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return the float32 input for one decoded RGB image of any size. May be called from threads."""

    @abstractmethod
    def encode(self, batch: "Float[torch.Tensor, 'b 3 h w']") -> EncodedImages:
        """Return the features of a batch of inputs on the device; called after `load`, without gradients."""

    @property
    def network(self) -> "torch.nn.Module":
        """The loaded network that `encode` runs, for those who train it; asked only after `load`."""
        raise NotImplementedError(f"{type(self).__name__} has no `network` that could be trained.")

    def forward(self, batch: "Float[torch.Tensor, 'b 3 h w']") -> "Float[torch.Tensor, 'b d']":
        """Return the vectors alone."""
        return self.encode(batch).image_features
