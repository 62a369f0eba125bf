"""Models of `transformers`: the vectors are those of the library's own calls on its own processor."""

import io

import numpy as np
import polars as pl
import pytest

from agml_assets.dataset.decode import to_square_256
from agml_assets.dataset.sources.base import Example
from agml_assets.embeddings.images import encode_from_pixels, encode_from_source
from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import BackboneEncoder, VisionBackbone, load_backbone
from agml_assets.registry.models import ImageRule, ModelEntry
from tests.evaluation.backbones import tiny_models
from tests.evaluation.backbones.tiny_models import photograph

SAVE = {
    "clip": tiny_models.save_clip,
    "siglip": tiny_models.save_siglip,
    "registers": tiny_models.save_dinov2_with_registers,
    "dinov3": tiny_models.save_dinov3,
    "aimv2": tiny_models.save_aimv2,
}
IMAGENET = ImageRule(resize=256, crop=32, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each tiny model, and the folder where it is saved."""
    folders = {name: tmp_path_factory.mktemp(name) for name in SAVE}
    return {name: (save(folders[name]), folders[name]) for name, save in SAVE.items()}


def entry_of(folder, **fields):
    return ModelEntry(key="tiny", provider="transformers", checkpoint=str(folder), **fields)


def processed(folder, images):
    from transformers import AutoImageProcessor

    return AutoImageProcessor.from_pretrained(folder, backend="pil")(images=images, return_tensors="pt")


def encode(entry, images):
    encoder = BackboneEncoder(entry)
    return encoder.encode_prepared(np.stack([encoder.prepare_image(image) for image in images]))


def expect(model, call, folder, images):
    import torch

    with torch.no_grad():
        return call(model, processed(folder, images)["pixel_values"])


IMAGES = [photograph(seed) for seed in range(3)]


@pytest.mark.parametrize(("name", "width"), [("clip", 24), ("siglip", 32)])
def test_features_of_a_model_with_two_towers_are_its_own_image_features(saved, name, width):
    model, folder = saved[name]
    expected = expect(model, lambda m, x: m.get_image_features(pixel_values=x).pooler_output, folder, IMAGES)
    vectors = encode(entry_of(folder), IMAGES)
    assert (vectors.shape, vectors.dtype) == ((3, width), np.float32)
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)


def test_features_of_one_tower_are_its_pooled_output(saved):
    model, folder = saved["registers"]
    expected = expect(model, lambda m, x: m(x).pooler_output, folder, IMAGES)
    np.testing.assert_allclose(encode(entry_of(folder), IMAGES), expected, rtol=1e-5, atol=1e-6)


RULES = {
    "class_token": lambda tokens, before: tokens[:, 0],
    "class_token_or_max": lambda tokens, before: tokens[:, 0] if before else tokens.amax(1),
    "max_patches": lambda tokens, before: tokens[:, before:].amax(1),
    "mean_patches": lambda tokens, before: tokens[:, before:].mean(1),
}


@pytest.mark.parametrize(("name", "vector", "before"), [
    *[("registers", rule, 5) for rule in RULES],
    *[("clip", rule, 1) for rule in RULES],
    *[("aimv2", rule, 0) for rule in RULES if rule != "class_token"],
])  # fmt: skip
def test_other_vectors_are_made_of_the_last_hidden_state_without_class_token_and_registers(
    saved, name, vector, before
):
    model, folder = saved[name]
    model = getattr(model, "vision_model", model)
    tokens = expect(model, lambda m, x: m(x).last_hidden_state, folder, IMAGES)
    assert tokens.shape[1] == before + 16
    expected = RULES[vector](tokens, before)
    np.testing.assert_allclose(encode(entry_of(folder, vector=vector), IMAGES), expected, rtol=1e-5, atol=1e-6)


def test_patch_features_are_the_tokens_of_the_patches(saved):
    import torch

    model, folder = saved["registers"]
    backbone = load_backbone(entry_of(folder, vector="class_token"))
    backbone.load(torch.device("cpu"))
    batch = torch.from_numpy(np.stack([backbone.transform(image) for image in IMAGES]))
    with torch.inference_mode():
        encoded = backbone.encode(batch)
        expected = model(batch).last_hidden_state
    assert encoded.image_features.dtype == torch.float32
    assert encoded.patch_features.shape == (3, 16, 32)
    np.testing.assert_allclose(encoded.patch_features, expected[:, 5:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(encoded.image_features, expected[:, 0], rtol=1e-5, atol=1e-6)


def test_a_rule_for_images_takes_the_place_of_a_processor_that_needs_torchvision(saved):
    import torch

    model, folder = saved["dinov3"]
    entry = entry_of(folder, vector="class_token", image=IMAGENET)
    squares = np.stack([to_square_256(image) for image in IMAGES])
    centre = squares[:, 112:144, 112:144].astype(np.float64) / 255
    inputs = ((centre - IMAGENET.mean) / IMAGENET.std).transpose(0, 3, 1, 2).astype(np.float32)
    backbone = load_backbone(entry)
    np.testing.assert_array_equal(np.stack([backbone.transform(image) for image in IMAGES]), inputs)
    with torch.no_grad():
        expected = model(torch.from_numpy(inputs)).pooler_output
    np.testing.assert_allclose(encode(entry, IMAGES), expected, rtol=1e-5, atol=1e-6)
    assert backbone.serves_from_pixels
    np.testing.assert_allclose(BackboneEncoder(entry).encode_pixels(squares), expected, rtol=1e-5, atol=1e-6)


def test_without_that_rule_the_missing_torchvision_is_named_with_what_to_do(saved, tmp_path):
    import json
    import shutil

    folder = shutil.copytree(saved["dinov3"][1], tmp_path / "dinov3")
    rules = {"image_processor_type": "DINOv3ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(rules))
    with pytest.raises(UserError, match="(?i)torchvision.*under `image`"):
        load_backbone(entry_of(folder))


def test_images_as_large_as_pixels_hold_them_are_read_from_pixels_and_others_from_the_source(saved):
    served, folder = entry_of(saved["registers"][1], vector="class_token"), saved["clip"][1]
    from_pixels, from_source = BackboneEncoder(served), BackboneEncoder(entry_of(folder))
    assert (from_pixels.serves_from_pixels, from_source.serves_from_pixels) == (True, False)

    squares = np.stack([to_square_256(image) for image in IMAGES])
    vectors = encode_from_pixels(from_pixels, squares)([0, 1, 2])
    np.testing.assert_allclose(vectors, encode(served, IMAGES), rtol=1e-5, atol=1e-6)

    index = pl.DataFrame({"source_row": range(3), "row": range(3)})
    vectors = encode_from_source(from_source, PngSource(IMAGES), index, max_pixels=10**6)([0, 1, 2])
    np.testing.assert_allclose(vectors, encode(entry_of(folder), IMAGES), rtol=1e-5, atol=1e-6)


class PngSource:
    def __init__(self, images):
        self.files = []
        for image in images:
            file = io.BytesIO()
            image.save(file, "PNG")
            self.files.append(file.getvalue())

    def examples(self, start=0):
        for row in range(start, len(self.files)):
            yield Example(row, self.files[row], None, 0, None)


def test_vectors_do_not_depend_on_the_batch_size(saved):
    images = [photograph(seed) for seed in range(13)]
    for name in SAVE:
        entry = entry_of(saved[name][1], image=IMAGENET if name == "dinov3" else None, vector="class_token_or_max")
        encoder = BackboneEncoder(entry)
        inputs = np.stack([encoder.prepare_image(image) for image in images])
        of_size = {}
        for size in (1, 4, 13):
            encoder.batch_size = size
            of_size[size] = encoder.encode_prepared(inputs)
        lengths = np.linalg.norm(of_size[13], axis=1)
        for size in (1, 4):
            assert (np.linalg.norm(of_size[size] - of_size[13], axis=1) <= 1e-5 * lengths).all(), name


def test_a_model_without_what_the_vector_is_made_of_is_named(saved):
    with pytest.raises(UserError, match="gives no class_token.*`vector`"):
        encode(entry_of(saved["aimv2"][1], vector="class_token"), IMAGES)
    with pytest.raises(UserError, match="gives no features.*`vector`"):
        encode(entry_of(saved["aimv2"][1]), IMAGES)


def test_the_query_of_a_pooling_head_is_no_class_token(tmp_path):
    model = tiny_models.save_aimv2(tmp_path, use_head=True)
    tokens = expect(model, lambda m, x: m(x).last_hidden_state, tmp_path, IMAGES)
    vectors = encode(entry_of(tmp_path, vector="class_token_or_max"), IMAGES)
    np.testing.assert_allclose(vectors, tokens.amax(1), rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="gives no class_token"):
        encode(entry_of(tmp_path, vector="class_token"), IMAGES)


def without(folder, key, to):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(folder, to)
    weights = load_file(folder / "model.safetensors")
    del weights[key]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights_that_are_missing_are_never_replaced_by_random_ones(saved, tmp_path):
    folder = without(saved["clip"][1], "visual_projection.weight", tmp_path / "clip")
    with pytest.raises(UserError, match="lack 1 of its weights, such as visual_projection.weight"):
        encode(entry_of(folder), IMAGES)
    encode(entry_of(folder, vector="class_token"), IMAGES)  # made before the projection


def test_a_pooling_that_is_missing_is_refused_where_the_features_are_its_output(tmp_path):
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    whole = tmp_path / "whole"
    ViTModel(ViTConfig(**tiny_models.HALF, **tiny_models.PATCHES)).save_pretrained(whole)
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(whole)
    folder = without(whole, "pooler.dense.weight", tmp_path / "vit")
    with pytest.raises(UserError, match="such as pooler.dense.weight"):
        encode(entry_of(folder), IMAGES)
    encode(entry_of(folder, vector="class_token"), IMAGES)


def test_a_model_that_cannot_be_had_is_named_with_the_fields_to_check(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    entry = ModelEntry(key="x", provider="transformers", checkpoint="nobody/nothing")
    with pytest.raises(UserError, match="'nobody/nothing' cannot be loaded.*\n.*`checkpoint` and `revision`"):
        load_backbone(entry)


def test_identity_tells_vector_rule_precision_and_scale_apart(saved):
    from agml_assets.embeddings.embedder import ImageEmbedder

    folder = saved["registers"][1]
    entries = [
        entry_of(folder),
        entry_of(folder, vector="class_token"),
        entry_of(folder, vector="class_token", precision="bfloat16"),
        entry_of(folder, vector="class_token", image=IMAGENET),
    ]
    identities = [BackboneEncoder(entry).identity() for entry in entries]
    identities.append(ImageEmbedder(str(folder)).identity())
    assert all(a != b for i, a in enumerate(identities) for b in identities[:i])
    assert all(identity["model"] == folder.name for identity in identities)
    assert load_backbone(entries[0]).checkpoint == folder.name


def test_a_folder_s_vectors_depend_on_its_weights_and_not_on_where_it_lies(saved, tmp_path):
    import shutil

    folder = saved["aimv2"][1]
    moved = shutil.copytree(folder, tmp_path / "elsewhere" / folder.name)
    assert load_backbone(entry_of(folder)).identity() == load_backbone(entry_of(moved)).identity()


def test_a_loaded_model_is_a_backbone_whose_weights_are_read_once_and_freed(saved):
    encoder = BackboneEncoder(entry_of(saved["clip"][1]))
    assert isinstance(encoder.backend, VisionBackbone)
    encoder.identity()
    assert (encoder.loads, encoder.device) == (0, None)
    inputs = np.stack([encoder.prepare_image(IMAGES[0])])
    first = encoder.encode_prepared(inputs)
    np.testing.assert_array_equal(encoder.encode_prepared(inputs), first)
    assert encoder.loads == 1
    encoder.close()
    assert encoder.device is None


def test_inputs_of_another_size_than_the_registered_one_are_told_once(saved, caplog):
    encoder = BackboneEncoder(entry_of(saved["clip"][1], resolution=224))
    inputs = np.stack([encoder.prepare_image(IMAGES[0])])
    for _ in range(2):
        encoder.encode_prepared(inputs)
    told = [record.getMessage() for record in caplog.records if "resolution" in record.getMessage()]
    assert told == ["Model 'tiny' is registered with a resolution of 224, but its inputs have 32 pixels."]


def test_on_a_gpu_the_batch_size_is_found_once_for_every_loading(saved):
    encoder = BackboneEncoder(entry_of(saved["clip"][1]))
    one, tried = np.zeros((1, 3, 32, 32), np.float32), []

    def run(size):
        tried.append(size)
        if size > 20:
            raise RuntimeError("CUDA out of memory")

    encoder.device, encoder.loads = "cuda", 1
    encoder.batch_size = encoder.choose_batch_size(one, run)
    assert (encoder.batch_size, tried[-1]) == (16, 16)
    n = len(tried)
    assert encoder.choose_batch_size(one, run) == 16
    assert len(tried) == n


def test_no_more_prepared_images_wait_than_memory_has_room_for(saved):
    encoder = BackboneEncoder(entry_of(saved["clip"][1]))
    encoder.device, encoder.loads = "cuda", 1
    one = np.broadcast_to(np.float32(0), (1, 3, 1024, 1024))
    assert encoder.choose_batch_size(one, lambda size: None) * one.nbytes <= 2**30
