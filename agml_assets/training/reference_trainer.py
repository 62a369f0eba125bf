"""The reference model: trained on one split's images, watched at every epoch, then asked for the test images.

Images come from `dataset/pixels`; which rows are train and test is the caller's. Networks load in `backbones`;
what the dynamics mean is measured in `quality`.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3
from jaxtyping import Float32, Int64, UInt8

from agml_assets.device import feed, half_precision, mixed_precision
from agml_assets.errors import UserError
from agml_assets.settings import Settings
from agml_assets.training.backbones import Backbone, open_backbone
from agml_assets.training.loop import (
    LEAST,
    Checkpoint,
    InParts,
    add_gradients,
    batches_of,
    one_device,
    read_checkpoint,
    reproducible,
)

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

_CROP = 224  # of 256, the published rule
_CHECKPOINT = "checkpoint.pt"
_HISTORY = ("true_train", "max_train", "true_eval", "max_eval")

History = dict[str, list[Float32[np.ndarray, " n"]]]


@dataclass(frozen=True)
class Training:
    """What a reference training showed.

    Attributes:
        rows: Train rows in the order given; int64 (n,). Empty when there were not two classes to learn.
        true_train: Probability of the true label, per image and epoch, in the training pass: in train mode and
            before the update by the image's own batch; float32 (n, epochs) in [0, 1].
        max_train: Highest probability of any class in the same pass; float32 (n, epochs).
        true_eval: Probability of the true label in an evaluation-mode pass after each epoch; float32 (n, epochs).
        max_eval: Highest probability of any class in that pass; float32 (n, epochs).
        test_rows: Rows that the final model was asked for, in the order given; int64 (m,).
        probabilities: The final model's probabilities of the test rows in evaluation mode; float32 (m, k).
        identity: What the numbers depend on beside the thread count, for the record.
        resumed_epochs: Epochs that earlier, interrupted tries had finished.
        images_at_once: Fewer than a batch only where the GPU ran out of memory.
        checkpoint: File of the final state, to be removed once the results are stored; None without training.
    """

    rows: Int64[np.ndarray, " n"]
    true_train: Float32[np.ndarray, "n e"]
    max_train: Float32[np.ndarray, "n e"]
    true_eval: Float32[np.ndarray, "n e"]
    max_eval: Float32[np.ndarray, "n e"]
    test_rows: Int64[np.ndarray, " m"]
    probabilities: Float32[np.ndarray, "m k"]
    identity: dict[str, Any]
    resumed_epochs: int
    images_at_once: int
    checkpoint: Path | None


def dynamics_arrays(training: Training) -> dict[str, np.ndarray]:
    """Return the arrays of `training/dynamics`: rows, and per image and epoch the four probabilities."""
    return {"rows": training.rows} | {name: getattr(training, name) for name in _HISTORY}


def prediction_arrays(training: Training) -> dict[str, np.ndarray]:
    """Return the arrays of `training/test_predictions`: rows, and the final model's probabilities."""
    return {"rows": training.test_rows, "probabilities": training.probabilities}


@dataclass(frozen=True)
class ReferenceTrainer:
    """Train a pretrained network to tell the classes apart, as a yardstick of how hard a dataset is.

    All layers are trained by Adam, without weight decay, at a constant rate, on cross-entropy; no augmentation, no
    use of a validation split, the last epoch counts. An image is the centre 224 x 224 of its stored 256 x 256
    pixels, scaled down (bilinear, antialiased) where `image_size` is below 224, and normalised as the checkpoint
    asks, in the memory layout channels last. Where the GPU has no room for a batch, its gradient is summed over
    smaller parts; batch norm then sees the parts, not the batch.

    On one machine, two trainings of the same inputs give the same bytes on the CPU, interrupted or not: the head,
    the order of each epoch and its dropout are functions of the seed and the epoch alone.

    Args:
        backbone: `resnet18`, `efficientnet_lite0`, or a `transformers` image classifier by name or local path.
        epochs: Passes over the train rows.
        learning_rate: Adam's.
        batch_size: Images in one step, at least two; a last batch of one image joins the one before it.
        image_size: Side in pixels of the network's input, at most 224.
        seed: Of all that is random.
        precision: `float32`; `bfloat16` for mixed precision; or `auto`: float32 on the processor, mixed precision
            on GPUs (float16 with scaled gradients before Ampere).
    """

    backbone: str = "resnet18"
    epochs: int = 30
    learning_rate: float = 1e-3
    batch_size: int = 64
    image_size: int = _CROP
    seed: int = 42
    precision: str = "auto"

    @classmethod
    def from_settings(cls, settings: Settings) -> "ReferenceTrainer":
        """Return the trainer that the settings ask for."""
        return cls(
            settings.backbone,
            settings.cartography_epochs,
            settings.cartography_lr,
            settings.embed_batch_size,
            settings.train_image_size,
            settings.split_seed,
            settings.train_precision,
        )

    def train(
        self,
        pixels: UInt8[np.ndarray, "all 256 256 3"],
        rows: Int64[np.ndarray, " n"],
        labels: Int64[np.ndarray, " all"],
        n_classes: int,
        work_dir: Path,
        test_rows: Int64[np.ndarray, " m"],
        progress: Callable[[int, int], None] | None = None,
        *,
        pixels_digest: str,
    ) -> Training:
        """Train on `rows`, going on where an interrupted try of the same inputs stopped; predict `test_rows`.

        Args:
            pixels: The stored images, memory-mapped or not; only one batch at a time becomes floating point.
            rows: Rows of `pixels` to train on.
            labels: Class of every row of `pixels`, in [0, n_classes).
            n_classes: Declared classes, with images or without; the network has an output for each.
            work_dir: Local folder of this training alone; it keeps the state after the last finished epoch.
            test_rows: Rows of `pixels` to predict; may be none.
            progress: Told the images trained so far and in all, after each batch.
            pixels_digest: Digest of `pixels`, so that no training of other images is gone on with.

        Returns:
            Dynamics and predictions; without rows and epochs when `rows` hold fewer than two classes.

        Raises:
            UserError: The backbone cannot be had or does not take such images, the training diverged, or the GPU
                has no room for two images.
        """
        rows, test_rows = np.asarray(rows, dtype=np.int64), np.asarray(test_rows, dtype=np.int64)
        given = np.asarray(labels, dtype=np.int64)[rows]
        if len(np.unique(given)) < LEAST:
            return _nothing_to_learn(n_classes)
        if given.min() < 0 or given.max() >= n_classes:
            raise ValueError(f"labels must lie in [0, {n_classes}), found {given.min()} to {given.max()}")
        backbone = open_backbone(self.backbone)
        with one_device(f"training {self.backbone}") as device, reproducible(device):
            identity = {
                **self._identity(backbone, device),
                "pixels": pixels_digest,
                "rows": blake3(rows.tobytes()).hexdigest(),
                "labels": blake3(given.tobytes()).hexdigest(),
                "n_classes": n_classes,
            }
            network = _build(backbone, n_classes, self)
            run = _Run(network, backbone, device, self, pixels)
            work_dir.mkdir(parents=True, exist_ok=True)
            file = work_dir / _CHECKPOINT
            history = run.resume(file, identity)
            resumed = len(history["true_train"])
            with Checkpoint(file, identity) as checkpoint:
                for epoch in range(resumed, self.epochs):
                    seen = (*run.train_epoch(rows, given, epoch, progress), *run.watch(rows, given))
                    self._refuse_no_numbers(seen, f"in epoch {epoch + 1} of {self.epochs}")
                    for name, values in zip(_HISTORY, seen, strict=True):
                        history[name].append(values)
                    checkpoint.write(run.state(history))
                probabilities, at_once = run.predict(test_rows, n_classes), run.at_once
            self._refuse_no_numbers([probabilities], "on the test images")
            del network, run
        return Training(
            rows=rows,
            **{name: np.stack(history[name], axis=1) for name in _HISTORY},
            test_rows=test_rows,
            probabilities=probabilities,
            identity=identity,
            resumed_epochs=resumed,
            images_at_once=at_once,
            checkpoint=file,
        )

    def precision_on(self, device: "torch.device") -> str:
        """Return the floating-point type of the forward pass on a device."""
        if self.precision == "auto":
            return "float32" if device.type == "cpu" else half_precision(device)
        return self.precision

    def _refuse_no_numbers(self, seen: Iterable[np.ndarray], where: str) -> None:
        if not all(np.isfinite(values).all() for values in seen):
            raise UserError(
                f"The reference training diverged {where}: its probabilities are no longer numbers. "
                f"Lower cartography_lr (now {self.learning_rate:g})."
            )

    def _identity(self, backbone: Backbone, device: "torch.device") -> dict[str, Any]:
        return {
            "backbone": backbone.identity,
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "batch_size": self.batch_size,
            "image_size": self.image_size,
            "seed": self.seed,
            "device": device.type,
            "precision": self.precision_on(device),
            "torch": version("torch"),
            "transformers": version("transformers"),
        }


class _Run:
    """A network under training, on its device, with its optimizer."""

    def __init__(
        self,
        network: "torch.nn.Module",
        backbone: Backbone,
        device: "torch.device",
        trainer: ReferenceTrainer,
        pixels: UInt8[np.ndarray, "all 256 256 3"],
    ) -> None:
        import torch

        self._network = network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._mean, self._std = (
            torch.tensor(values, device=device).repeat(trainer.image_size)
            for values in (backbone.mean, backbone.std)
        )
        self._device = device
        self._trainer = trainer
        self._pixels = pixels
        self._precision = trainer.precision_on(device)
        self._optimizer = torch.optim.Adam(network.parameters(), lr=trainer.learning_rate)
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._precision == "float16")
        self._batch_size = max(LEAST, trainer.batch_size)
        self._in_parts = InParts(
            self._batch_size,
            f"The GPU has no room to train {trainer.backbone} on two images at once. Choose a smaller backbone or "
            "train_image_size, or free the GPU.",
        )
        width = 3 * trainer.image_size
        self._lines = torch.empty(self._batch_size + 1, trainer.image_size, width, device=device)

    def train_epoch(
        self,
        rows: Int64[np.ndarray, " n"],
        labels: Int64[np.ndarray, " n"],
        epoch: int,
        progress: Callable[[int, int], None] | None,
    ) -> tuple[Float32[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
        """Update the network once per batch; return each image's true-label and highest probability before it."""
        import torch

        seeds = [self._trainer.seed, epoch]
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]))
        order = np.random.default_rng(seeds).permutation(len(rows))
        self._network.train()
        true, highest = np.empty((2, len(rows)), dtype=np.float32)
        watched, done = [], epoch * len(rows)
        with closing(self._crops_of(rows, order)) as fed:
            for batch, crops in fed:
                targets = torch.from_numpy(labels[batch]).to(self._device)
                attempt = partial(add_gradients, self._logits, self._optimizer, self._scaler, crops, targets)
                probabilities = self._in_parts.run(attempt, len(batch)).softmax(1)
                self._scaler.step(self._optimizer)
                self._scaler.update()
                # Brought to the host only after the epoch: the GPU need not be waited for at each batch.
                watched.append(self._true_and_highest(probabilities, targets))
                done += len(batch)
                if progress:
                    progress(done, self._trainer.epochs * len(rows))
        true[order], highest[order] = torch.cat(watched, dim=1).cpu().numpy()
        return true, highest

    def watch(
        self, rows: Int64[np.ndarray, " n"], labels: Int64[np.ndarray, " n"]
    ) -> tuple[Float32[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
        """Return each image's true-label and highest probability in evaluation mode."""
        import torch

        watched = [
            self._true_and_highest(probabilities, torch.from_numpy(labels[batch]).to(self._device))
            for batch, probabilities in self._evaluate(rows)
        ]
        true, highest = torch.cat(watched, dim=1).cpu().numpy()
        return true, highest

    def predict(self, rows: Int64[np.ndarray, " m"], n_classes: int) -> Float32[np.ndarray, "m k"]:
        """Return the probabilities of all classes in evaluation mode."""
        found = np.empty((len(rows), n_classes), dtype=np.float32)
        for batch, probabilities in self._evaluate(rows):
            found[batch] = probabilities.cpu().numpy()
        return found

    @property
    def at_once(self) -> int:
        """Images that go through the network at once."""
        return self._in_parts.at_once

    def state(self, history: History) -> dict[str, Any]:
        """Return what a later try goes on from."""
        import torch

        return {
            "history": {name: torch.from_numpy(np.stack(values)) for name, values in history.items()},
            "network": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            "at_once": self._in_parts.at_once,
        }

    def resume(self, file: Path, identity: dict[str, Any]) -> History:
        """Take up the state in `file` if it is whole and of these inputs; return the history so far, or none."""
        nothing: History = {name: [] for name in _HISTORY}
        state = read_checkpoint(file, identity, self._device, "reference training")
        if state is None:
            return nothing
        self._network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        self._in_parts.at_once = state["at_once"]
        history = {name: list(values.cpu().numpy()) for name, values in state["history"].items()}
        done = len(history[_HISTORY[0]])
        logger.info("Going on with the reference training after epoch %d of %d.", done, self._trainer.epochs)
        return history

    def _evaluate(self, rows: Int64[np.ndarray, " n"]) -> "Iterator[tuple[np.ndarray, torch.Tensor]]":
        import torch

        def probabilities(crops: "torch.Tensor", parts: Sequence[slice]) -> "torch.Tensor":
            with torch.inference_mode():
                return torch.cat([self._logits(crops[part]).softmax(1) for part in parts])

        self._network.eval()
        with closing(self._crops_of(rows, np.arange(len(rows)))) as fed:
            for batch, crops in fed:
                yield batch, self._in_parts.run(partial(probabilities, crops), len(batch))

    def _crops_of(
        self, rows: Int64[np.ndarray, " n"], order: Int64[np.ndarray, " n"]
    ) -> "Generator[tuple[np.ndarray, torch.Tensor], None, None]":
        """Yield batches of places in `rows`, with their centre pixels on the device; uint8 (b, 224, 224, 3)."""
        edge = (self._pixels.shape[1] - _CROP) // 2
        centre = slice(edge, edge + _CROP)

        def load(batch: np.ndarray) -> np.ndarray:
            return self._pixels[rows[batch], centre, centre]

        return feed(batches_of(order, self._batch_size), load, self._device)

    def _logits(self, crops: "torch.Tensor") -> "torch.Tensor":
        with mixed_precision(self._device, self._precision):
            return _logits(self._network, self._images(crops)).float()

    def _images(self, crops: "torch.Tensor") -> "torch.Tensor":
        """Return scaled and normalised images; float32 (b, 3, image_size, image_size), channels last.

        They are valid until the next call.
        """
        import torch

        size = self._trainer.image_size
        if size < _CROP:
            # Twice as fast from this layout, and the same bytes.
            images = crops.permute(0, 3, 1, 2).float().contiguous(memory_format=torch.channels_last)
            images = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
            crops = images.permute(0, 2, 3, 1).contiguous()
        # By whole lines of pixels, in memory that is used again: ten times faster on the processor than channel by
        # channel in new memory.
        lines = self._lines[: len(crops)].copy_(crops.reshape(len(crops), size, size * 3))
        lines.sub_(self._mean).div_(self._std)
        return lines.view(len(crops), size, size, 3).permute(0, 3, 1, 2)

    @staticmethod
    def _true_and_highest(probabilities: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        import torch

        return torch.stack([probabilities.gather(1, targets[:, None])[:, 0], probabilities.amax(1)])


def _nothing_to_learn(n_classes: int) -> Training:
    no_rows, no_epochs = np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.float32)
    return Training(
        rows=no_rows,
        **dict.fromkeys(_HISTORY, no_epochs),
        test_rows=no_rows,
        probabilities=np.empty((0, n_classes), dtype=np.float32),
        identity={},
        resumed_epochs=0,
        images_at_once=0,
        checkpoint=None,
    )


def _build(backbone: Backbone, n_classes: int, trainer: ReferenceTrainer) -> "torch.nn.Module":
    """Return the network with its new head, having seen that it takes images of this size."""
    import torch

    network, size = backbone.build(n_classes, trainer.seed), trainer.image_size
    try:
        with torch.inference_mode():
            _logits(network.eval(), torch.zeros(1, 3, size, size))
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"The backbone {trainer.backbone!r} does not take images of {size} x {size} pixels: "
            f"{str(error).splitlines()[0]}\nSet train_image_size to the model's own size, or choose resnet18."
        ) from None
    return network


def _logits(network: "torch.nn.Module", images: "torch.Tensor") -> "torch.Tensor":
    outputs = network(images)
    return getattr(outputs, "logits", outputs)
