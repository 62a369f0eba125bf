"""timm up to its border, with a stand-in: what it is asked for, and how its features become one vector."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import BackboneEncoder, load_backbone
from agml_assets.registry.models import ModelEntry
from tests.evaluation.backbones.tiny_models import photograph


class Network(torch.nn.Module):
    """Gives the features that it was made with, whatever the image."""

    def __init__(self, features, **attributes):
        super().__init__()
        self.features = features
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward_features(self, batch):
        return self.features

    def forward_head(self, features, pre_logits=False):
        assert pre_logits
        return features.flatten(1)[:, :2]


@pytest.fixture
def library(monkeypatch):
    """timm with one network, which a test sets."""
    module = ModuleType("timm")
    module.__version__ = "1.0.20"
    module.asked = []

    def create_model(name, pretrained=False):
        module.asked.append((name, pretrained))
        if module.network is None:
            raise RuntimeError(f"Unknown model ({name})")
        return module.network

    def create_transform(*, is_training, **rule):
        assert not is_training
        return lambda image: torch.full((3, *rule["input_size"][1:]), image.width / 1000)

    module.create_model = create_model
    module.data = SimpleNamespace(
        create_transform=create_transform, resolve_model_data_config=lambda model: {"input_size": (3, 4, 4)}
    )
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def vectors_of(library, features, vector="class_token_or_max", **attributes):
    library.network = Network(features, **attributes)
    backbone = load_backbone(entry_of(vector=vector))
    backbone.load(torch.device("cpu"))
    return backbone.encode(torch.zeros(len(features), 3, 4, 4))


def entry_of(checkpoint="net.weights", vector="class_token_or_max", **fields):
    return ModelEntry(key="tiny", provider="timm", checkpoint=checkpoint, vector=vector, **fields)


MAP = torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(0))  # channels first
TOKENS = torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("features", "attributes"),
    [
        (MAP, {"num_features": 8}),
        (MAP.permute(0, 2, 3, 1), {"num_features": 8}),
        (MAP, {"num_features": 8, "output_fmt": "NCHW"}),
        (MAP.permute(0, 2, 3, 1), {"num_features": 5, "output_fmt": "NHWC"}),
        (MAP.permute(0, 2, 3, 1), {"num_features": 5, "output_fmt": SimpleNamespace(value="NHWC")}),
    ],
)
def test_of_a_map_the_maximum_over_all_positions_is_taken_in_the_layout_that_the_model_declares(
    library, features, attributes
):
    encoded = vectors_of(library, features, **attributes)
    np.testing.assert_array_equal(encoded.image_features, MAP.amax((2, 3)))
    np.testing.assert_array_equal(encoded.patch_features, MAP.flatten(2).transpose(1, 2))


def test_a_small_wide_map_is_not_mistaken_as_it_would_be_by_its_equal_sides(library):
    # Two sides are equal to the channels: only what the model says can tell which is which.
    square = torch.randn(1, 5, 5, 5)
    encoded = vectors_of(library, square, num_features=5, output_fmt="NHWC")
    np.testing.assert_array_equal(encoded.image_features, square.amax((1, 2)))


def test_a_map_whose_layout_is_not_certain_is_refused(library):
    for features in (torch.zeros(1, 5, 5, 5), torch.zeros(1, 4, 4, 4)):
        with pytest.raises(UserError, match="which axis they are is not certain"):
            vectors_of(library, features, num_features=5)


def test_of_tokens_the_class_token_is_taken_where_there_is_one(library):
    encoded = vectors_of(library, TOKENS, num_prefix_tokens=5, cls_token=torch.zeros(1, 1, 8))
    np.testing.assert_array_equal(encoded.image_features, TOKENS[:, 0])
    np.testing.assert_array_equal(encoded.patch_features, TOKENS[:, 5:])


@pytest.mark.parametrize("registers", [0, 4])
def test_else_the_maximum_over_the_patches_and_registers_are_neither(library, registers):
    encoded = vectors_of(library, TOKENS, num_prefix_tokens=registers, cls_token=None)
    np.testing.assert_array_equal(encoded.image_features, TOKENS[:, registers:].amax(1))


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        ("features", TOKENS.flatten(1)[:, :2]),
        ("class_token", TOKENS[:, 0]),
        ("max_patches", TOKENS[:, 1:].amax(1)),
        ("mean_patches", TOKENS[:, 1:].mean(1)),
    ],
)
def test_an_entry_can_ask_for_another_vector(library, vector, expected):
    encoded = vectors_of(library, TOKENS, vector, num_prefix_tokens=1, cls_token=torch.zeros(1, 1, 8))
    np.testing.assert_allclose(encoded.image_features, expected)


def test_a_class_token_that_is_not_there_is_refused(library):
    for features, attributes in ((TOKENS, {"cls_token": None}), (MAP, {"num_features": 8})):
        with pytest.raises(UserError, match="gives no class_token"):
            vectors_of(library, features, "class_token", **attributes)


def test_features_of_another_shape_are_refused(library):
    with pytest.raises(UserError, match=r"shape \(2, 8\), which are neither a map nor tokens"):
        vectors_of(library, TOKENS[:, 0])


@pytest.mark.parametrize(
    ("checkpoint", "revision", "asked"),
    [
        ("resnet18.a1_in1k", None, "resnet18.a1_in1k"),
        ("hf-hub:BVRA/MegaDescriptor-L-384", None, "hf-hub:BVRA/MegaDescriptor-L-384"),
        ("hf-hub:BVRA/MegaDescriptor-L-384", "abc", "hf-hub:BVRA/MegaDescriptor-L-384@abc"),
    ],
)
def test_pretrained_weights_are_asked_for_once_and_images_follow_their_own_rule(
    library, checkpoint, revision, asked
):
    library.network = Network(TOKENS[:1], cls_token=None)
    encoder = BackboneEncoder(entry_of(checkpoint, revision=revision))
    assert encoder.identity()["preprocessing"] == "timm 1.0.20"
    assert library.asked == []
    assert not encoder.serves_from_pixels
    prepared = encoder.prepare_image(photograph(size=(500, 300)))
    np.testing.assert_array_equal(prepared, np.full((3, 4, 4), 0.5, np.float32))
    assert encoder.encode_prepared(prepared[None]).shape == (1, 8)
    assert library.asked == [(asked, True)]


def test_what_timm_does_not_know_is_named(library):
    library.network = None
    with pytest.raises(UserError, match=r"'tiny' cannot be loaded: Unknown model \(net.weights\)"):
        load_backbone(entry_of()).load(torch.device("cpu"))
