"""Frozen models whose features are evaluated: a class per provider, and classes of users by entry point.

Which models there are is in `agml_assets.registry.models`; what is made of their features is elsewhere here.
"""

from agml_assets.evaluation.backbones.base import EncodedImages, VisionBackbone
from agml_assets.evaluation.backbones.batch_size import find_batch_size
from agml_assets.evaluation.backbones.encoder import BackboneEncoder
from agml_assets.evaluation.backbones.providers import load_backbone

__all__ = ["BackboneEncoder", "EncodedImages", "VisionBackbone", "find_batch_size", "load_backbone"]
