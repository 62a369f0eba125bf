"""The reference training: what it learns, what it records, and that a kill changes nothing."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from agml_assets.errors import UserError
from agml_assets.settings import Settings
from agml_assets.training.backbones import open_backbone
from agml_assets.training.reference_trainer import ReferenceTrainer, dynamics_arrays, prediction_arrays

ARRAYS = ("rows", "true_train", "max_train", "true_eval", "max_eval", "test_rows", "probabilities")


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A tiny ResNet with random weights and seven classes of its own, as a local folder."""
    import torch
    from transformers import ConvNextImageProcessorPil, ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("resnet")
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=7)
    ResNetForImageClassification(config).save_pretrained(folder)
    ConvNextImageProcessorPil(image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.4]).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A tiny vision transformer: no batch norm, no dropout, made for 32 x 32 pixels."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("vit")
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    ViTForImageClassification(config).save_pretrained(folder)
    return folder


def images(n, n_classes=2, seed=0):
    """Noisy images with a colour for each class, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    colours = np.random.default_rng(1).integers(40, 216, size=(n_classes, 3))
    noise = rng.integers(-40, 41, size=(n, 256, 256, 3), dtype=np.int16)
    return (colours[labels][:, None, None] + noise).clip(0, 255).astype(np.uint8), labels.astype(np.int64)


PIXELS, LABELS = images(37, n_classes=3)
TRAIN, TEST = np.arange(0, 25), np.arange(25, 37)


def small(backbone, **other):
    return ReferenceTrainer(**{"backbone": str(backbone), "epochs": 3, "batch_size": 8, "image_size": 32} | other)


def train(trainer, work_dir, *, pixels=PIXELS, rows=TRAIN, labels=LABELS, n_classes=3, test_rows=TEST, **other):
    return trainer.train(pixels, rows, labels, n_classes, work_dir, test_rows, pixels_digest="p", **other)


def assert_same(one, other):
    for name in ARRAYS:
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def test_two_colours_are_told_apart_within_a_few_epochs(resnet, tmp_path):
    pixels = np.zeros((40, 256, 256, 3), dtype=np.uint8)
    labels = np.arange(40) % 2
    pixels[labels == 0], pixels[labels == 1] = (200, 40, 40), (40, 200, 40)
    training = train(
        small(resnet, epochs=5, learning_rate=1e-2),
        tmp_path,
        pixels=pixels,
        rows=np.arange(0, 30),
        labels=labels,
        n_classes=2,
        test_rows=np.arange(30, 40),
    )
    assert (training.probabilities.argmax(1) == labels[30:]).all()
    assert training.true_eval[:, -1].min() > 0.9
    assert training.true_eval[:, -1].mean() > training.true_eval[:, 0].mean()


def test_dynamics_hold_a_probability_per_image_and_epoch_aligned_to_the_rows(resnet, tmp_path):
    rows = TRAIN[::-1].copy()
    training = train(small(resnet), tmp_path, rows=rows)
    dynamics, predictions = dynamics_arrays(training), prediction_arrays(training)
    assert list(dynamics) == ["rows", "true_train", "max_train", "true_eval", "max_eval"]
    assert list(predictions) == ["rows", "probabilities"]
    np.testing.assert_array_equal(dynamics["rows"], rows)
    for kind in ("train", "eval"):
        true, highest = dynamics[f"true_{kind}"], dynamics[f"max_{kind}"]
        assert true.shape == highest.shape == (25, 3)
        assert true.dtype == highest.dtype == np.float32
        assert (true >= 0).all()
        assert (highest >= true).all()
        assert (highest <= 1 + 1e-6).all()
        assert (highest >= 1 / 3 - 1e-6).all()
    np.testing.assert_array_equal(predictions["rows"], TEST)
    assert predictions["probabilities"].shape == (12, 3)
    assert predictions["probabilities"].dtype == np.float32
    np.testing.assert_allclose(predictions["probabilities"].sum(1), 1, atol=1e-6)


def test_probabilities_are_those_of_plain_pytorch_on_the_same_order(vit, tmp_path):
    """The recipe written out: centre crop, ImageNet normalisation, Adam, cross-entropy, no tricks."""
    import torch
    from transformers import ViTForImageClassification

    trainer = small(vit, epochs=2, image_size=32)
    training = train(trainer, tmp_path)
    model = ViTForImageClassification.from_pretrained(vit)
    torch.manual_seed(trainer.seed)
    model.classifier = torch.nn.Linear(16, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    crop = torch.from_numpy(PIXELS[:, 16:240, 16:240]).permute(0, 3, 1, 2).float() / 255
    crop = torch.nn.functional.interpolate(crop, (32, 32), mode="bilinear", antialias=True)
    inputs = (crop - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[
        :, None, None
    ]
    targets = torch.from_numpy(LABELS)
    for epoch in range(2):
        order = np.random.default_rng([trainer.seed, epoch]).permutation(25)
        for batch in (order[:8], order[8:16], order[16:]):  # the 25th image joins the third batch
            logits = model(inputs[batch]).logits
            loss = torch.nn.functional.cross_entropy(logits, targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen = logits.detach().softmax(1).numpy()
            np.testing.assert_allclose(training.max_train[batch, epoch], seen.max(1), atol=2e-5)
            np.testing.assert_allclose(
                training.true_train[batch, epoch], seen[range(len(batch)), LABELS[batch]], atol=2e-5
            )
        with torch.no_grad():
            after = model.eval()(inputs).logits.softmax(1).numpy()
        model.train()
        np.testing.assert_allclose(training.true_eval[:, epoch], after[range(25), LABELS[:25]], atol=2e-5)
        np.testing.assert_allclose(training.max_eval[:, epoch], after[:25].max(1), atol=2e-5)
    np.testing.assert_allclose(training.probabilities, after[25:], atol=2e-5)


def test_images_are_normalised_as_the_checkpoint_asks(resnet, vit):
    own = open_backbone(str(resnet))
    np.testing.assert_allclose(own.mean, np.array([0.4, 0.5, 0.6]) * 255)
    np.testing.assert_allclose(own.std, np.array([0.2, 0.3, 0.4]) * 255)
    without = open_backbone(str(vit))
    np.testing.assert_allclose(without.mean, np.array([0.485, 0.456, 0.406]) * 255)
    assert without.identity["weights"]


def test_all_layers_are_trained_and_the_head_fits_the_classes(resnet):
    from transformers import ResNetForImageClassification

    network = open_backbone(str(resnet)).build(3, seed=42)
    assert all(weights.requires_grad for weights in network.parameters())
    assert network.classifier[1].out_features == 3
    before = ResNetForImageClassification.from_pretrained(resnet).state_dict()
    for name, values in network.state_dict().items():
        assert name.startswith("classifier.1.") or values.equal(before[name]), name


def test_two_trainings_give_the_same_bytes_and_another_seed_others(resnet, tmp_path):
    first, second = (train(small(resnet), tmp_path / name) for name in "ab")
    assert_same(first, second)
    assert first.resumed_epochs == second.resumed_epochs == 0
    other = train(small(resnet, seed=7), tmp_path / "c")
    assert not np.array_equal(other.true_train, first.true_train)


def test_the_global_random_state_and_modes_stay_as_they_were(resnet, tmp_path):
    import torch

    torch.manual_seed(5)
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    train(small(resnet, epochs=1), tmp_path)
    assert torch.get_rng_state().equal(state)
    assert np.random.get_state()[1].tolist() == legacy  # noqa: NPY002
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


class StoppedError(Exception):
    """A stop in the middle of a training."""


def stop_at(images_done):
    def progress(done, total):
        if done >= images_done:
            raise StoppedError

    return progress


@pytest.mark.parametrize("images_done", [25, 40, 75])
def test_an_interrupted_training_goes_on_to_the_same_bytes(resnet, tmp_path, images_done):
    whole = train(small(resnet), tmp_path / "whole")
    with pytest.raises(StoppedError):
        train(small(resnet), tmp_path / "work", progress=stop_at(images_done))
    counts = []
    resumed = train(small(resnet), tmp_path / "work", progress=lambda *count: counts.append(count))
    finished = (images_done - 1) // 25
    assert resumed.resumed_epochs == finished
    assert counts[0] == (25 * finished + 8, 75)
    assert counts[-1] == (75, 75)
    assert_same(resumed, whole)


@pytest.mark.slow
def test_a_killed_training_goes_on_at_its_epoch_to_the_same_bytes(vit, tmp_path):
    """Dropout, order and Adam's moments after a SIGKILL are those of a training that was never killed."""
    folder = shutil.copytree(vit, tmp_path / "vit")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"hidden_dropout_prob": 0.0', '"hidden_dropout_prob": 0.2'))
    assert "0.2" in config.read_text()
    np.savez(tmp_path / "images.npz", pixels=PIXELS, labels=LABELS)
    code = f"""
import os, signal
from pathlib import Path
import numpy as np
from agml_assets.training.reference_trainer import ReferenceTrainer
def progress(done, total):
    if done > 2 * 25:
        os.kill(os.getpid(), signal.SIGKILL)
images = np.load({str(tmp_path / "images.npz")!r})
ReferenceTrainer({str(folder)!r}, epochs=4, batch_size=8, image_size=32).train(
    images["pixels"], np.arange(25), images["labels"], 3, Path({str(tmp_path / "killed")!r}), np.arange(25, 37),
    progress, pixels_digest="p")
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = train(small(folder, epochs=4), tmp_path / "killed")
    whole = train(small(folder, epochs=4), tmp_path / "whole")
    assert (resumed.resumed_epochs, whole.resumed_epochs) == (2, 0)
    assert_same(resumed, whole)


def test_a_finished_training_is_not_done_twice(resnet, tmp_path):
    first = train(small(resnet), tmp_path)
    again = train(small(resnet), tmp_path, progress=stop_at(0))
    assert again.resumed_epochs == 3
    assert_same(again, first)
    assert first.checkpoint.is_file()
    assert [file.name for file in tmp_path.iterdir()] == [first.checkpoint.name]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": TRAIN[1:]},
        {"labels": (LABELS + 1) % 3},
        {"n_classes": 4},
        {"trainer": {"epochs": 2}},
        {"trainer": {"learning_rate": 1e-4}},
        {"trainer": {"batch_size": 9}},
        {"trainer": {"image_size": 33}},
        {"trainer": {"seed": 1}},
        {"pixels_digest": "q"},
    ],
)
def test_a_checkpoint_of_other_inputs_is_never_gone_on_with(resnet, tmp_path, change):
    train(small(resnet, epochs=1), tmp_path)
    change = dict(change)
    trainer = replace(small(resnet, epochs=1), **change.pop("trainer", {}))
    arguments = {"rows": TRAIN, "labels": LABELS, "n_classes": 3, "test_rows": TEST, "pixels_digest": "p"} | change
    assert trainer.train(PIXELS, work_dir=tmp_path, **arguments).resumed_epochs == 0


def test_a_checkpoint_of_other_weights_is_never_gone_on_with(resnet, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(resnet, tmp_path / "resnet")
    train(small(folder, epochs=1), tmp_path / "work")
    weights = load_file(folder / "model.safetensors")
    changed = {name: 2 * values for name, values in weights.items()}
    save_file(changed, folder / "model.safetensors", {"format": "pt"})
    assert train(small(folder, epochs=1), tmp_path / "work").resumed_epochs == 0


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_checkpoint_costs_time_never_a_wrong_number(resnet, tmp_path, damage, caplog):
    first = train(small(resnet), tmp_path)
    content = bytearray(first.checkpoint.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = {"flip": bytes(content), "cut": bytes(content[:-100]), "empty": b""}
    first.checkpoint.write_bytes(damaged[damage])
    again = train(small(resnet), tmp_path)
    assert "is damaged; the reference training starts anew" in caplog.text
    assert again.resumed_epochs == 0
    assert_same(again, first)


@pytest.mark.parametrize("n_images", [2, 9, 17])
def test_one_image_left_over_joins_the_batch_before_it(resnet, tmp_path, n_images):
    """At 32 pixels the last feature map of some networks is one pixel: batch norm fails on one image."""
    counts = []
    training = train(
        small(resnet, epochs=1), tmp_path, rows=np.arange(n_images), progress=lambda done, _: counts.append(done)
    )
    assert counts[-1] == n_images
    assert min(np.diff([0, *counts])) >= 2
    assert training.true_train.shape == (n_images, 1)


def test_a_batch_size_of_one_means_two(resnet, tmp_path):
    counts = []
    train(
        small(resnet, epochs=1, batch_size=1),
        tmp_path,
        rows=np.arange(5),
        progress=lambda done, _: counts.append(done),
    )
    assert counts == [2, 5]


def test_when_the_gpu_is_full_the_gradient_of_the_same_batch_comes_in_parts(vit, tmp_path, monkeypatch, caplog):
    import torch
    from transformers import ViTForImageClassification

    whole = train(small(vit), tmp_path / "whole")
    forward = ViTForImageClassification.forward

    def with_little_room(self, pixel_values, **other):
        if len(pixel_values) > 4:
            raise torch.cuda.OutOfMemoryError("full")
        return forward(self, pixel_values, **other)

    monkeypatch.setattr(ViTForImageClassification, "forward", with_little_room)
    parts = train(small(vit), tmp_path / "parts")
    assert "going on with 4 images at once" in caplog.text
    assert (whole.images_at_once, parts.images_at_once) == (8, 2)  # the last batch is of nine
    for name in ("true_train", "max_train", "true_eval", "max_eval", "probabilities"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-4)


def test_a_gpu_without_room_for_two_images_is_an_error_in_words(vit, tmp_path, monkeypatch):
    import torch
    from transformers import ViTForImageClassification

    forward = ViTForImageClassification.forward

    def with_no_room(self, pixel_values, **other):
        if len(pixel_values) > 1:
            raise torch.cuda.OutOfMemoryError("full")
        return forward(self, pixel_values, **other)

    monkeypatch.setattr(ViTForImageClassification, "forward", with_no_room)
    with pytest.raises(UserError, match="no room.*\\btrain_image_size"):
        train(small(vit), tmp_path)


@pytest.mark.parametrize("rows", [np.arange(0), np.array([0]), np.array([0, 3, 6])])
def test_without_two_classes_nothing_is_trained(tmp_path, rows):
    training = train(small("there/is/none"), tmp_path / "work", rows=rows)
    dynamics, predictions = dynamics_arrays(training), prediction_arrays(training)
    assert dynamics["rows"].shape == (0,)
    assert dynamics["rows"].dtype == np.int64
    assert all(dynamics[name].shape == (0, 0) for name in ("true_train", "max_train", "true_eval", "max_eval"))
    assert predictions["rows"].shape == (0,)
    assert predictions["probabilities"].shape == (0, 3)
    assert training.checkpoint is None
    assert not (tmp_path / "work").exists()


def test_a_class_without_images_keeps_its_column(resnet, tmp_path):
    training = train(small(resnet, epochs=1), tmp_path, n_classes=5)
    assert training.probabilities.shape == (12, 5)


def test_without_test_rows_there_are_no_predictions(resnet, tmp_path):
    training = train(small(resnet, epochs=1), tmp_path, test_rows=np.arange(0))
    assert training.probabilities.shape == (0, 3)
    assert training.true_eval.shape == (25, 1)


def test_labels_outside_the_classes_are_refused(resnet, tmp_path):
    with pytest.raises(ValueError, match=r"\[0, 2\)"):
        train(small(resnet), tmp_path, n_classes=2)


def test_a_training_that_diverges_says_what_to_lower(resnet, tmp_path):
    with pytest.raises(UserError, match=r"diverged in epoch \d of 3.*Lower cartography_lr \(now 1e\+30\)"):
        train(small(resnet, learning_rate=1e30), tmp_path)
    assert train(small(resnet), tmp_path).resumed_epochs == 0


@pytest.mark.parametrize("name", ["resnet81", "nobody/nothing", "./no/such/folder", "resnet18"])
def test_a_backbone_that_cannot_be_had_is_named_with_what_is_possible(name, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=f"The backbone '{name}'.*cannot be loaded") as caught:
        train(small(name), tmp_path / "work")
    assert "backbone may be resnet18, the packaged efficientnet_lite0" in caught.value.message
    assert "Without network" in caught.value.message
    if name == "resnet81":
        assert "Did you mean 'resnet18'?" in caught.value.message
    if name == "resnet18":
        assert "'microsoft/resnet-18' on the hub" in caught.value.message


def test_weights_that_are_missing_are_never_replaced_by_random_ones(resnet, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(resnet, tmp_path / "resnet")
    weights = load_file(folder / "model.safetensors")
    gone = [name for name in weights if "encoder.stages.1" in name and name.endswith("convolution.weight")]
    save_file({k: v for k, v in weights.items() if k not in gone}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=f"lack {len(gone)} of its weights, such as {gone[0][:20]}"):
        train(small(folder), tmp_path / "work")


def test_of_a_checkpoint_without_a_head_all_the_rest_is_used(resnet, tmp_path):
    from transformers import ResNetModel

    ResNetModel.from_pretrained(resnet).save_pretrained(tmp_path / "headless")
    network, before = (open_backbone(str(folder)).build(3, seed=1) for folder in (tmp_path / "headless", resnet))
    for name, values in network.state_dict().items():
        assert values.equal(before.state_dict()[name]), name


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", bytes(1000)])
def test_damaged_weights_are_named_with_what_to_do(resnet, tmp_path, content):
    folder = shutil.copytree(resnet, tmp_path / "resnet")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="resnet' cannot be loaded.*\nbackbone may be"):
        train(small(folder), tmp_path / "work")


def test_a_folder_without_weights_is_named(resnet, tmp_path):
    folder = shutil.copytree(resnet, tmp_path / "resnet")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="resnet' holds no weights"):
        train(small(folder), tmp_path / "work")


def test_a_model_that_does_not_classify_images_is_refused(tmp_path):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match="bert' cannot be loaded"):
        train(small(tmp_path / "bert"), tmp_path / "work")


def test_a_model_of_another_input_size_says_which_setting_to_change(vit, tmp_path):
    with pytest.raises(UserError, match="does not take images of 64 x 64 pixels.*\nSet train_image_size"):
        train(small(vit, image_size=64), tmp_path)


def test_settings_say_how_to_train():
    settings = Settings(
        backbone="efficientnet_lite0",
        cartography_epochs=4,
        cartography_lr=0.01,
        embed_batch_size=16,
        train_image_size=96,
        split_seed=7,
    )
    assert ReferenceTrainer.from_settings(settings) == ReferenceTrainer("efficientnet_lite0", 4, 0.01, 16, 96, 7)
    assert ReferenceTrainer.from_settings(Settings()) == ReferenceTrainer()


@pytest.mark.slow
def test_the_packaged_network_keeps_in_evaluation_mode_what_it_learns(tmp_path):
    """With the running statistics of long trainings it would not: they would not follow the weights."""
    pixels, labels = images(60, n_classes=3, seed=4)
    training = train(
        small("efficientnet_lite0", epochs=8, batch_size=6),
        tmp_path,
        pixels=pixels,
        rows=np.arange(48),
        labels=labels,
        test_rows=np.arange(48, 60),
    )
    assert training.true_train[:, 4:].mean() > 0.6
    assert training.true_eval[:, 4:].mean() > 0.6
    assert (training.probabilities.argmax(1) == labels[48:]).mean() > 0.6


def test_the_packaged_network_trains(tmp_path):
    training = train(small("efficientnet_lite0", epochs=1), tmp_path)
    assert training.true_train.shape == (25, 1)
    np.testing.assert_allclose(training.probabilities.sum(1), 1, atol=1e-6)


def test_nothing_heavy_is_imported_before_a_training():
    code = (
        "import sys; from agml_assets.training.reference_trainer import ReferenceTrainer;"
        "ReferenceTrainer(); print({'torch', 'transformers', 'dagster'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_settings_name_the_fast_ways_to_train():
    settings = Settings(train_image_size=96, train_precision="bfloat16")
    trainer = ReferenceTrainer.from_settings(settings)
    assert (trainer.image_size, trainer.precision) == (96, "bfloat16")


@pytest.mark.parametrize(
    ("precision", "on_cpu", "on_gpu"),
    [
        ("auto", "float32", "float16"),
        ("float32", "float32", "float32"),
        ("bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_auto_is_full_precision_on_the_processor_and_mixed_on_a_gpu(precision, on_cpu, on_gpu, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    trainer = ReferenceTrainer(precision=precision)
    assert trainer.precision_on(torch.device("cpu")) == on_cpu
    assert trainer.precision_on(torch.device("cuda")) == on_gpu


def test_mixed_precision_is_recorded_and_near_the_full_one(resnet, tmp_path):
    full = train(small(resnet), tmp_path / "full")
    mixed = train(small(resnet, precision="bfloat16"), tmp_path / "mixed")
    assert (full.identity["precision"], mixed.identity["precision"]) == ("float32", "bfloat16")
    difference = np.abs(mixed.true_eval - full.true_eval).max()
    assert 0 < difference < 0.05


def test_a_checkpoint_of_another_precision_is_not_gone_on_with(resnet, tmp_path):
    train(small(resnet), tmp_path)
    assert train(small(resnet, precision="bfloat16"), tmp_path).resumed_epochs == 0


@pytest.mark.parametrize("size", [224, 96])
def test_the_network_is_fed_normalised_pixels_to_rounding(resnet, size, monkeypatch, tmp_path):
    import torch
    from transformers import AutoImageProcessor, ResNetForImageClassification

    fed = []
    forward = ResNetForImageClassification.forward

    def noted(self, pixel_values, **other):
        fed.append(pixel_values.clone())
        return forward(self, pixel_values, **other)

    monkeypatch.setattr(ResNetForImageClassification, "forward", noted)
    train(small(resnet, epochs=1, image_size=size), tmp_path)
    crops = torch.from_numpy(PIXELS[TEST, 16:240, 16:240]).permute(0, 3, 1, 2).float()
    if size < 224:
        crops = torch.nn.functional.interpolate(crops, (size, size), mode="bilinear", antialias=True)
    rules = AutoImageProcessor.from_pretrained(resnet, backend="pil")
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) * 255 for v in (rules.image_mean, rules.image_std))
    torch.testing.assert_close(torch.cat(fed[-2:]), (crops - mean) / std, rtol=1e-6, atol=1e-6)
    assert fed[-1].is_contiguous(memory_format=torch.channels_last)
