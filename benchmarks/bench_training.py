"""The reference training against a DataLoader that decodes every epoch, and against a loop on tensors in memory.

`python benchmarks/bench_training.py [--images N] [--size PIXELS] [--precision P] [--repeats R]`. Network, head,
order, size and precision are the same; the network is a ResNet-18 with random weights, which costs what a trained
one does.
"""

import argparse
import io
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measure import compare
from photographs import Photographs
from PIL import Image

from agml_assets.dataset.decode_pass import decode_source
from agml_assets.settings import Settings
from agml_assets.training.backbones import open_backbone
from agml_assets.training.reference_trainer import ReferenceTrainer

CLASSES, EPOCHS, BATCH = 8, 2, 64
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


class Seen(NamedTuple):
    """Probability of the true label after each epoch; float32 (n, epochs)."""

    true: np.ndarray


class Plan(NamedTuple):
    """What all ways have in common."""

    trainer: ReferenceTrainer
    source: Photographs
    pixels: np.ndarray
    labels: np.ndarray
    mean: torch.Tensor
    std: torch.Tensor


def save_resnet18(folder: Path) -> str:
    """Write a ResNet-18 with random weights, and return its name for the setting `backbone`."""
    from transformers import ConvNextImageProcessorPil, ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    ResNetForImageClassification(config).save_pretrained(folder)
    ConvNextImageProcessorPil().save_pretrained(folder)
    return str(folder)


def prepare(crops: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Return network inputs of centre crops, uint8 (n, 224, 224, 3)."""
    size = plan.trainer.image_size
    images = crops.permute(0, 3, 1, 2).float()
    if size < 224:
        images = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return ((images - plan.mean) / plan.std).contiguous(memory_format=torch.channels_last)


class DecodedEveryTime(torch.utils.data.Dataset):
    """Files that are decoded whenever they are asked for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __len__(self) -> int:
        return len(self.plan.labels)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        image = Image.open(io.BytesIO(self.plan.source.files[row])).convert("RGB")
        short = min(image.size)
        width, height = (int(256 * side / short) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - 256) // 2 + 16, (height - 256) // 2 + 16
        crop = torch.from_numpy(np.array(image.crop((left, top, left + 224, top + 224))))
        return prepare(crop[None], self.plan)[0], int(self.plan.labels[row])


def from_files(plan: Plan) -> Callable[[np.ndarray], Batches]:
    """Return what decodes the images of an order on all cores."""
    dataset = DecodedEveryTime(plan)

    def batches(order: np.ndarray) -> Batches:
        return torch.utils.data.DataLoader(dataset, BATCH, sampler=order.tolist(), num_workers=2)

    return batches


def from_memory(plan: Plan) -> Callable[[np.ndarray], Batches]:
    """Return what takes the images of an order from tensors that are ready for the network."""
    inputs = prepare(torch.from_numpy(plan.pixels[:, 16:240, 16:240]), plan)
    labels = torch.from_numpy(plan.labels)

    def batches(order: np.ndarray) -> Batches:
        return ((inputs[part], labels[part]) for part in torch.from_numpy(order).split(BATCH))

    return batches


def plain_training(plan: Plan, batches: Callable[[np.ndarray], Batches]) -> Seen:
    """Train as textbooks do, with a pass in evaluation mode after each epoch."""
    network = open_backbone(plan.trainer.backbone).build(CLASSES, plan.trainer.seed)
    network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), lr=plan.trainer.learning_rate)
    half = plan.trainer.precision == "bfloat16"
    true = []
    for epoch in range(EPOCHS):
        network.train()
        order = np.random.default_rng([plan.trainer.seed, epoch]).permutation(len(plan.labels))
        for images, labels in batches(order):
            images = images.contiguous(memory_format=torch.channels_last)
            with torch.autocast("cpu", dtype=torch.bfloat16 if half else None, enabled=half):
                logits = network(images).logits.float()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
        network.eval()
        seen = []
        with torch.inference_mode():
            for images, labels in batches(np.arange(len(plan.labels))):
                images = images.contiguous(memory_format=torch.channels_last)
                with torch.autocast("cpu", dtype=torch.bfloat16 if half else None, enabled=half):
                    probabilities = network(images).logits.float().softmax(1)
                seen.append(probabilities.gather(1, labels[:, None])[:, 0])
        true.append(torch.cat(seen).numpy())
    return Seen(np.stack(true, axis=1))


def our_training(plan: Plan) -> Seen:
    """Train with the project's trainer on the stored squares."""
    with tempfile.TemporaryDirectory() as folder:
        training = plan.trainer.train(
            plan.pixels,
            np.arange(len(plan.labels)),
            plan.labels,
            CLASSES,
            Path(folder),
            np.arange(0),
            pixels_digest="",
        )
    return Seen(training.true_eval)


def agree(theirs: Seen, mine: Seen) -> str:
    """Compare the probabilities of the first epoch; later ones amplify what rounding began."""
    apart = float(np.abs(theirs.true[:, 0] - mine.true[:, 0]).max())
    assert apart < 0.02, apart
    return f"probabilities after an epoch within {apart:.0e}"


def main() -> None:
    """Print two rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=800)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    source = Photographs(options.images, (0.5, 0.5), CLASSES)
    with tempfile.TemporaryDirectory() as root:
        decoded = decode_source(source, work_dir=Path(root) / "decode", settings=Settings())
        network = save_resnet18(Path(root) / "resnet18")
        backbone = open_backbone(network)
        plan = Plan(
            ReferenceTrainer(
                network,
                EPOCHS,
                1e-4,
                BATCH,
                image_size=options.size,
                precision=options.precision,
            ),
            source,
            np.load(decoded.pixels, mmap_mode="r"),
            np.array(source.labels),
            *(torch.tensor(values).view(1, 3, 1, 1) for values in (backbone.mean, backbone.std)),
        )
        our_training(plan)
        what = f"reference training, {options.images} images, {options.size} pixels, {options.precision}"
        for way, batches_of, at_least in (
            ("DataLoader, 2 workers, decoding every epoch", from_files, 1.0),
            ("the same loop on tensors in memory", from_memory, 0.91),
        ):
            row = compare(
                work=what,
                obvious_way=way,
                obvious=partial(plain_training, plan, batches_of(plan)),
                ours=partial(our_training, plan),
                agree=agree,
                at_least=at_least,
                repeats=options.repeats,
            )
            print(row, flush=True)


if __name__ == "__main__":
    main()
