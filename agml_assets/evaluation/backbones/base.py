"""What a backbone is. Defined with the embedder, which feeds its model in the same way."""

from agml_assets.embeddings.backbone import EncodedImages, VisionBackbone

__all__ = ["EncodedImages", "VisionBackbone"]
