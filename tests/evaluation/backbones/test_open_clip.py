"""open_clip up to its border, with a stand-in: what it is asked for, and what is made of what it gives."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import BackboneEncoder, load_backbone
from agml_assets.registry.models import ModelEntry
from tests.evaluation.backbones.tiny_models import photograph


class Tower(torch.nn.Module):
    """Pools colours; gives patches only where they are asked for."""

    output_tokens = False

    def __init__(self):
        super().__init__()
        self.projection = torch.nn.Linear(3, 4)

    def forward(self, batch):
        tokens = batch.flatten(2).transpose(1, 2)
        pooled = self.projection(tokens.mean(1))
        return (pooled, tokens) if self.output_tokens else pooled


class Clip(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = Tower()
        self.transformer = torch.nn.Linear(2, 2)


@pytest.fixture
def library(monkeypatch):
    module = ModuleType("open_clip")
    module.__version__ = "3.0.0"
    module.asked = []

    def create_model_and_transforms(name, pretrained=None):
        module.asked.append((name, pretrained))
        if pretrained == "unknown":
            raise RuntimeError("Pretrained weights (unknown) not found for model ARCH.")
        torch.manual_seed(0)
        module.model = Clip()
        return module.model, "of training", lambda image: torch.full((3, 4, 4), image.width / 1000)

    module.create_model_and_transforms = create_model_and_transforms
    monkeypatch.setitem(sys.modules, "open_clip", module)
    return module


def entry_of(checkpoint, **fields):
    return ModelEntry(key="tiny", provider="open_clip", checkpoint=checkpoint, **fields)


def encode(entry, images):
    encoder = BackboneEncoder(entry)
    return encoder.encode_prepared(np.stack([encoder.prepare_image(image) for image in images]))


@pytest.mark.parametrize(
    ("checkpoint", "fields", "asked"),
    [
        ("ViT-B-32/openai", {}, ("ViT-B-32", "openai")),
        ("hf-hub:imageomics/bioclip", {}, ("hf-hub:imageomics/bioclip", None)),
        ("hf-hub:imageomics/bioclip", {"revision": "abc"}, ("hf-hub:imageomics/bioclip@abc", None)),
    ],
)
def test_each_form_of_checkpoint_asks_for_its_pretrained_weights_once(library, checkpoint, fields, asked):
    encode(entry_of(checkpoint, **fields), [photograph()])
    assert library.asked == [asked]


def test_vectors_are_the_projected_output_of_the_image_tower_on_the_evaluation_transform(library):
    vectors = encode(entry_of("ViT-B-32/openai"), [photograph(size=(300, 300)), photograph(size=(500, 300))])
    with torch.no_grad():
        expected = library.model.visual.projection(torch.tensor([[0.3] * 3, [0.5] * 3]))
    np.testing.assert_allclose(vectors, expected, rtol=1e-6, atol=1e-7)
    assert vectors.dtype == np.float32


def test_patches_are_asked_for_and_can_be_pooled(library):
    backbone = load_backbone(entry_of("ViT-B-32/openai"))
    backbone.load(torch.device("cpu"))
    batch = torch.arange(96.0).reshape(2, 3, 4, 4)
    encoded = backbone.encode(batch)
    np.testing.assert_array_equal(encoded.patch_features, batch.flatten(2).transpose(1, 2))
    for vector, expected in (("max_patches", batch.amax((2, 3))), ("mean_patches", batch.mean((2, 3)))):
        backbone = load_backbone(entry_of("ViT-B-32/openai", vector=vector))
        backbone.load(torch.device("cpu"))
        np.testing.assert_allclose(backbone.encode(batch).image_features, expected)


def test_a_tower_without_patches_gives_none_and_pools_none(library, monkeypatch):
    monkeypatch.setattr(Tower, "forward", lambda tower, batch: tower.projection(batch.mean((2, 3))))
    backbone = load_backbone(entry_of("ViT-B-32/openai"))
    backbone.load(torch.device("cpu"))
    assert backbone.encode(torch.ones(1, 3, 4, 4)).patch_features is None
    with pytest.raises(UserError, match="gives no max_patches"):
        encode(entry_of("ViT-B-32/openai", vector="max_patches"), [photograph()])


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_local_file_is_read_without_the_prefix_of_parallel_training_and_dropped_keys(
    library, tmp_path, suffix, wrapped
):
    torch.manual_seed(7)
    trained = Clip()
    state = {f"module.{name}": tensor for name, tensor in trained.state_dict().items()}
    state["module.extra"] = torch.ones(1)
    file = tmp_path / f"epoch_9{suffix}"
    if suffix == ".pt":
        torch.save({"state_dict": state} if wrapped else state, file)
    else:
        from safetensors.torch import save_file

        save_file(state, file)
    entry = entry_of(f"local:ViT-B-32/{file}", drop_keys=("extra",))
    backbone = load_backbone(entry)
    backbone.load(torch.device("cpu"))
    assert library.asked == [("ViT-B-32", None)]
    batch = torch.rand(2, 3, 4, 4)
    expected = trained.visual.projection(batch.mean((2, 3)))
    np.testing.assert_allclose(backbone.encode(batch).image_features.detach(), expected.detach(), rtol=1e-5)
    assert backbone.checkpoint == "ViT-B-32/epoch_9"


def test_local_weights_that_do_not_fit_are_refused(library, tmp_path):
    file = tmp_path / "w.pt"
    torch.save({"visual.projection.weight": torch.ones(4, 3)}, file)
    with pytest.raises(UserError, match="'tiny' cannot be loaded: Error.* in loading state_dict"):
        encode(entry_of(f"local:ViT-B-32/{file}"), [photograph()])
    with pytest.raises(UserError, match="the file of weights .*none.pt does not exist"):
        load_backbone(entry_of(f"local:ViT-B-32/{tmp_path}/none.pt")).identity()


def test_identity_holds_what_vectors_depend_on(library, tmp_path):
    def identity(entry):
        return load_backbone(entry).identity()

    assert identity(entry_of("ViT-B-32/openai")) == {
        "model": "ViT-B-32/openai", "revision": None, "vector": "features", "preprocessing": "open_clip 3.0.0",
    }  # fmt: skip
    files = []
    for folder, weight in (("a", 1), ("b", 2), ("c", 1)):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "w.pt")
        torch.save({"x": torch.tensor(weight)}, files[-1])
    first, second, same = (identity(entry_of(f"local:ARCH/{file}")) for file in files)
    assert first == same != second
    assert library.asked == []  # nothing is read for it


@pytest.mark.parametrize("checkpoint", ["ViT-B-32", "ViT-B-32/", "/openai", "local:ViT-B-32", "local:/x"])
def test_other_forms_are_refused_so_that_no_model_has_random_weights(library, checkpoint):
    with pytest.raises(UserError, match="no checkpoint of open_clip; give `ARCH/PRETRAINED`"):
        load_backbone(entry_of(checkpoint))


def test_what_open_clip_does_not_know_is_named(library):
    with pytest.raises(UserError, match=r"'tiny' cannot be loaded: Pretrained weights \(unknown\) not found"):
        encode(entry_of("ARCH/unknown"), [photograph()])


@pytest.mark.parametrize("provider", ["open_clip", "timm"])
def test_where_the_library_is_absent_the_extra_and_torchvision_are_named(monkeypatch, provider):
    monkeypatch.setitem(sys.modules, provider, None)
    with pytest.raises(UserError, match=rf"'tiny' needs {provider}.*torchvision(.|\n)*agml-assets\[models\]"):
        load_backbone(ModelEntry(key="tiny", provider=provider, checkpoint="A/b"))


def test_a_torchvision_of_another_build_is_told_the_same_way(monkeypatch, tmp_path):
    (tmp_path / "open_clip.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "open_clip", raising=False)
    with pytest.raises(UserError, match="operator torchvision::nms does not exist(.|\n)*same index of PyTorch"):
        load_backbone(entry_of("A/b"))
