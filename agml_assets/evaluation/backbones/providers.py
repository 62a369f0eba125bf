"""From an entry of the model registry to its backbone: our own providers, and entry points of users."""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from agml_assets.embeddings.frozen_models import PACKAGED_MODELS, EfficientNetLite, TransformersModel
from agml_assets.errors import UserError, did_you_mean
from agml_assets.evaluation.backbones.base import VisionBackbone
from agml_assets.evaluation.backbones.open_clip_models import OpenClipBackbone
from agml_assets.evaluation.backbones.timm_models import TimmBackbone
from agml_assets.registry.models import NO_PROVIDER, ModelEntry

GROUP = "agml_assets.backbones"
"""Entry points of this group take a `ModelEntry` and return a `VisionBackbone`; their name is the provider."""


def load_backbone(entry: ModelEntry) -> VisionBackbone:
    """Return the backbone of a registered model; its weights are read when it is first used.

    Raises:
        UserError: No provider loads it, the provider is not known or not installed, or it does not know the model.
    """
    if entry.provider == NO_PROVIDER:
        raise UserError(
            f"Model {entry.key!r} cannot be loaded: {entry.reason}. It is registered for its published results. "
            "A class of your own can load it: docs/models.md."
        )
    if entry.provider in _OUR_OWN:
        return _OUR_OWN[entry.provider](entry)
    return _by_entry_point(entry)


def _transformers(entry: ModelEntry) -> VisionBackbone:
    return TransformersModel(entry.checkpoint, entry.revision, entry.vector, entry.image)


def _packaged(entry: ModelEntry) -> VisionBackbone:
    if entry.checkpoint not in PACKAGED_MODELS:
        raise UserError(
            f"Model {entry.key!r}: there is no packaged {entry.checkpoint!r}. Packaged are "
            f"{', '.join(PACKAGED_MODELS)}.{did_you_mean(entry.checkpoint, PACKAGED_MODELS)}"
        )
    if entry.vector != "features":
        raise UserError(f"Model {entry.key!r}: packaged models give `vector: features` alone.")
    return EfficientNetLite(entry.checkpoint)


_OUR_OWN: Mapping[str, Callable[[ModelEntry], VisionBackbone]] = {
    "transformers": _transformers,
    "packaged": _packaged,
    "open_clip": OpenClipBackbone,
    "timm": TimmBackbone,
}


def _by_entry_point(entry: ModelEntry) -> VisionBackbone:
    points = {point.name: point for point in entry_points(group=GROUP)}
    where = f"Model {entry.key!r}: the provider {entry.provider!r}"
    if entry.provider not in points:
        known = (*_OUR_OWN, *points)
        raise UserError(
            f"{where} is not known.{did_you_mean(entry.provider, known)} Known are {', '.join(known)}; others "
            f"come from installed packages with an entry point in the group {GROUP}."
        )
    try:
        make = points[entry.provider].load()
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{where}, which is {points[entry.provider].value}, cannot be imported: {error}"
        ) from error
    backbone = make(entry)
    if not isinstance(backbone, VisionBackbone):
        raise UserError(
            f"{where}, which is {points[entry.provider].value}, returned a {type(backbone).__name__}, not a "
            "VisionBackbone of agml_assets.evaluation.backbones."
        )
    return backbone
