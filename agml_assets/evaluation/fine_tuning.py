"""A registered model trained on, all its layers, with a new head: AgML's recipe.

AdamW with a warm-up and a cosine, varied images, and the weights of the epoch with the lowest validation loss.
Which examples there are is the subject's; what becomes of the answers is in `evaluate`.
"""

import logging
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from blake3 import blake3
from jaxtyping import Float, Int64, UInt8
from PIL import Image

from agml_assets.device import feed, half_precision, mixed_precision
from agml_assets.embeddings.backbone import VisionBackbone
from agml_assets.embeddings.encoder import look_up
from agml_assets.embeddings.images import side_by_side
from agml_assets.errors import UserError
from agml_assets.evaluation.augmentation import squash, vary
from agml_assets.evaluation.backbones import load_backbone
from agml_assets.evaluation.predictions import MAX_CLASSES, Fitted
from agml_assets.evaluation.probes.few_shot import draw_few_shot
from agml_assets.evaluation.staged_images import StagedImages, stage_images
from agml_assets.evaluation.subjects import Subject
from agml_assets.registry.models import ModelEntry
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

_CHECKPOINT = "checkpoint.pt"
_PROVIDERS = ("packaged", "transformers")
_STAGED = 1.3  # times the input's side: no crop of 80 % of an image, 4:3 at most, is then smaller than the input
_LEAST_MOMENTUM = (
    0.1  # of batch norm; EfficientNet-Lite's 0.01 would not follow the weights in a few hundred steps
)
_HELD_OUT = 0.15  # of the training examples, where there is no validation split; the share of datasets' own
_IMAGE_SEED, _ORDER_SEED = 0, 1


@dataclass(frozen=True)
class Recipe:
    """How models are fine-tuned; the defaults are those of AgML's experiments.

    Attributes:
        lr: Largest learning rate of AdamW.
        weight_decay: Of tensors with more than one dimension; biases and scales have none.
        warmup_epochs: Epochs in which the rate grows from 0, step by step.
        max_epochs: Epochs after which it has fallen to 0 by a cosine.
        patience: Epochs without a lower validation loss after which training ends.
        batch_size: Images in one step.
        clip: Largest norm of the gradient.
        side: Pixels of the input's sides; None means the model's own.
        seed: Of the head, the order, the variations and dropout.
        precision: `float32`, `bfloat16`, `float16`; or `auto`: float32 on the processor, mixed on a GPU.
    """

    lr: float = 5e-5
    weight_decay: float = 0.05
    warmup_epochs: int = 2
    max_epochs: int = 50
    patience: int = 10
    batch_size: int = 64
    clip: float = 1.0
    side: int | None = None
    seed: int = 17
    precision: str = "auto"

    def rate(self, step: int, steps_per_epoch: int) -> float:
        """Return the factor of `lr` at a step, counted from 0, in [0, 1].

        (step + 1) / W in W warm-up steps, then (1 + cos(pi (step - W) / (T - W))) / 2, with T steps in all epochs.
        """
        warmup = self.warmup_epochs * steps_per_epoch
        if step < warmup:
            return (step + 1) / warmup
        rest = max(1, self.max_epochs * steps_per_epoch - warmup)
        return (1 + math.cos(math.pi * min(1.0, (step - warmup) / rest))) / 2


@dataclass(frozen=True)
class Parts:
    """Examples by what they are for; places in the staged images, int64."""

    train: Int64[np.ndarray, " n"]
    val: Int64[np.ndarray, " v"]
    test: Int64[np.ndarray, " m"]


@dataclass(frozen=True)
class FineTuned:
    """What a training gave.

    Attributes:
        probabilities: Of every class for each test example, float32 (m, k), by the best epoch's weights.
        history: A row per epoch: `epoch` (from 1), `train_loss`, `val_loss`, `train_accuracy`, `val_accuracy`,
            `learning_rate` of its last step.
        best_epoch: Whose weights counted, from 1.
        stopped_early: Whether it ended before `max_epochs`.
        train_s: Seconds of training, interrupted tries included.
        predict_s: Seconds to answer the test examples.
        device: `cpu` or `cuda`.
    """

    probabilities: Float[np.ndarray, "m k"]
    history: list[dict[str, Any]]
    best_epoch: int
    stopped_early: bool
    train_s: float
    predict_s: float
    device: str


def answer_fine_tuned(
    subject: Subject,
    model: ModelEntry,
    work_dir: Path,
    recipe: Recipe | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Fine-tune a model on a subject's training examples and return its answers to the test examples.

    An interrupted try goes on after its last finished epoch, to the same answers.

    Args:
        subject: One image and one class an example, with training and test examples. Without a `val` split,
            15 % of the training examples, whole groups, decide when to stop.
        model: Of a provider whose network can be trained.
        work_dir: Local folder of this pair alone; to be removed once the answers are stored.
        recipe: In place of AgML's with the protocol's seed.
        progress: Told the training images done and in all, were no epoch spared.

    Raises:
        UserError: Model or subject cannot be fine-tuned, or the training diverged.
    """
    _require_trainable(subject, model)
    recipe = recipe or Recipe(seed=subject.protocol.seed)
    labels = subject.examples["label"].to_numpy().astype(np.int64)
    parts = _parts_of(subject, labels)
    backbone = load_backbone(model)
    side = recipe.side or backbone.transform(Image.new("RGB", (256, 256))).shape[1]
    images = stage_images(
        work_dir / "images",
        {"inputs": subject.inputs, "images": _digest(subject.examples["first_image"].to_numpy())},
        math.ceil(_STAGED * side),
        lambda prepare: subject.prepare_images(prepare, subject.examples["first_image"].to_list()),
    )
    tuned = fine_tune(
        backbone, images, labels, parts, len(subject.class_names), recipe, side, work_dir, subject.inputs, progress
    )
    groups = subject.examples["group"].to_numpy()
    frame = pl.DataFrame(
        {
            "example": subject.examples["example"][parts.test],
            "true": labels[parts.test],
            "predicted": tuned.probabilities.argmax(axis=1),
            "group": groups[parts.test],
        }
    )
    if len(subject.class_names) <= MAX_CLASSES:
        shares = pl.Series(tuned.probabilities.tolist(), dtype=pl.List(pl.Float32))
        frame = frame.with_columns(probabilities=shares)
    training = {
        "n_val": len(parts.val),
        "epochs": len(tuned.history),
        "best_epoch": tuned.best_epoch,
        "stopped_early": tuned.stopped_early,
        "history": tuned.history,
    }
    settings = {"estimator": "FineTuned", **asdict(recipe), "side": side}
    return Fitted(frame, len(parts.train), tuned.train_s, tuned.predict_s, settings, training, tuned.device)


def fine_tune(
    backbone: VisionBackbone,
    images: StagedImages,
    labels: Int64[np.ndarray, " n"],
    parts: Parts,
    n_classes: int,
    recipe: Recipe,
    side: int,
    work_dir: Path,
    inputs: dict[str, str],
    progress: Callable[[int, int], None] | None = None,
) -> FineTuned:
    """Train backbone and head, going on where an interrupted try of the same inputs stopped; answer `parts.test`.

    Args:
        backbone: Its weights not read yet, or those of its checkpoint.
        images: One per example.
        labels: Class of each example, in [0, n_classes).
        parts: Examples to train on, to choose the epoch by, and to answer.
        n_classes: Outputs of the head.
        recipe: How to train.
        side: Pixels of the input's sides.
        work_dir: Keeps the state after the last finished epoch.
        inputs: Digests of what images and labels are made from.
        progress: Told the training images done and in all.
    """
    import torch

    with one_device(f"fine-tuning {backbone.checkpoint}") as device, reproducible(device):
        run = _Run(backbone, images, labels, n_classes, recipe, side, device)
        identity = {
            **asdict(recipe),
            "side": side,
            "model": backbone.identity(),
            "inputs": inputs,
            "parts": [_digest(getattr(parts, name)) for name in ("train", "val", "test")],
            "labels": _digest(labels),
            "n_classes": n_classes,
            "device": device.type,
            "precision": run.precision,
            "versions": {name: version(name) for name in ("torch", "transformers", "pillow")},
        }
        work_dir.mkdir(parents=True, exist_ok=True)
        file = work_dir / _CHECKPOINT
        run.resume(file, identity)
        with Checkpoint(file, identity) as checkpoint:
            while not run.is_over:
                started = time.monotonic()
                run.train_epoch(parts, progress)
                run.seconds += time.monotonic() - started
                checkpoint.write(run.state())
        started = time.monotonic()
        run.take_best()
        probabilities = run.predict(parts.test)
        return FineTuned(
            probabilities=probabilities,
            history=run.history,
            best_epoch=run.best_epoch,
            stopped_early=len(run.history) < recipe.max_epochs,
            train_s=run.seconds,
            predict_s=time.monotonic() - started,
            device=device.type if device.type == "cpu" else torch.cuda.get_device_name(device),
        )


class _Run:
    """A backbone and its head under training, on their device."""

    def __init__(
        self,
        backbone: VisionBackbone,
        images: StagedImages,
        labels: Int64[np.ndarray, " n"],
        n_classes: int,
        recipe: Recipe,
        side: int,
        device: "torch.device",
    ) -> None:
        import torch

        backbone.load(device)
        self._backbone, self._images, self._labels = backbone, images, labels
        self._recipe, self._side, self._device = recipe, side, device
        self._levels = backbone.levels
        self.precision = recipe.precision
        if self.precision == "auto":
            self.precision = "float32" if device.type == "cpu" else half_precision(device)
        width = self._prepare_network()
        torch.manual_seed(recipe.seed)
        self._head = torch.nn.Linear(width, n_classes).to(device)
        self._modules = torch.nn.ModuleDict({"backbone": backbone.network, "head": self._head})
        self._trained = [one for one in self._modules.parameters() if one.requires_grad]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [one for one in self._trained if one.ndim > 1], "weight_decay": recipe.weight_decay},
                {"params": [one for one in self._trained if one.ndim <= 1], "weight_decay": 0.0},
            ],
            lr=recipe.lr,
        )
        self._scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")
        self._in_parts = InParts(
            max(LEAST, recipe.batch_size),
            f"The GPU has no room to fine-tune {backbone.checkpoint!r} on two images at once. Free the GPU, or "
            "choose a smaller model.",
        )
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        self._best: dict[str, torch.Tensor] = {}

    def _prepare_network(self) -> int:
        """Let all layers be trained that the vector depends on; return the vector's length."""
        import torch

        network = self._backbone.network.requires_grad_(True).eval()
        for module in network.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.momentum is not None:
                module.momentum = max(module.momentum, _LEAST_MOMENTUM)
        try:
            vector = self._backbone.forward(torch.zeros(1, 3, self._side, self._side, device=self._device))
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"The model {self._backbone.checkpoint!r} does not take images of {self._side} pixels square: "
                f"{str(error).splitlines()[0]}"
            ) from None
        vector.sum().backward()
        for parameter in network.parameters():  # such as those of a text half
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None
        return int(vector.shape[1])

    @property
    def best_epoch(self) -> int:
        """The epoch with the lowest validation loss, from 1; the earliest of equals; 0 before any."""
        losses = [row["val_loss"] for row in self.history]
        return int(np.argmin(losses)) + 1 if losses else 0

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done, or the last ones brought nothing."""
        done = len(self.history)
        return done >= self._recipe.max_epochs or done - self.best_epoch >= self._recipe.patience

    def train_epoch(self, parts: Parts, progress: Callable[[int, int], None] | None) -> None:
        """Train on every training example once, judge the validation examples, and keep the weights if better."""
        import torch

        epoch, train = len(self.history), parts.train
        seed = self._recipe.seed
        order = train[np.random.default_rng([_ORDER_SEED, seed, epoch]).permutation(len(train))]
        torch.manual_seed(int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]))
        self._modules.train()
        batches = batches_of(order, self._recipe.batch_size)
        seen, right, rate = [], [], 0.0

        def load(batch: np.ndarray) -> UInt8[np.ndarray, "b s s 3"]:
            def one(place: int) -> np.ndarray:
                random = np.random.default_rng([_IMAGE_SEED, seed, epoch, place])
                return vary(self._images[place], self._side, self._side, random)

            return np.stack(list(side_by_side(one, batch.tolist())))

        with closing(feed(batches, load, self._device)) as fed:
            for number, (batch, crops) in enumerate(fed):
                rate = self._recipe.lr * self._recipe.rate(epoch * len(batches) + number, len(batches))
                for group in self._optimizer.param_groups:
                    group["lr"] = rate
                targets = torch.from_numpy(self._labels[batch]).to(self._device)
                attempt = partial(add_gradients, self._logits, self._optimizer, self._scaler, crops, targets)
                logits = self._in_parts.run(attempt, len(batch))
                self._scaler.unscale_(self._optimizer)
                torch.nn.utils.clip_grad_norm_(self._trained, self._recipe.clip)
                self._scaler.step(self._optimizer)
                self._scaler.update()
                seen.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
                right.append(logits.argmax(1) == targets)
                if progress:
                    done = epoch * len(train) + sum(map(len, batches[: number + 1]))
                    progress(done, self._recipe.max_epochs * len(train))
        val_loss, val_accuracy = self._judge(parts.val)
        row = {
            "epoch": epoch + 1,
            "train_loss": float(torch.cat(seen).double().mean()),
            "val_loss": val_loss,
            "train_accuracy": float(torch.cat(right).double().mean()),
            "val_accuracy": val_accuracy,
            "learning_rate": rate,
        }
        if not np.isfinite([row["train_loss"], val_loss]).all():
            raise UserError(
                f"Fine-tuning {self._backbone.checkpoint!r} diverged in epoch {epoch + 1}: its loss is no number. "
                "Another seed may do; if it happens again, this model is not fit for this recipe."
            )
        self.history.append(row)
        if self.best_epoch == len(self.history):
            self._best = {name: one.detach().cpu().clone() for name, one in self._state().items()}
        logger.info("Epoch %(epoch)d: loss %(train_loss).4f, on validation %(val_loss).4f.", row)

    def take_best(self) -> None:
        """Bring the best epoch's weights back."""
        self._modules.load_state_dict(self._best, strict=False)

    def predict(self, places: Int64[np.ndarray, " m"]) -> Float[np.ndarray, "m k"]:
        """Return probabilities of all classes, float32, in evaluation mode on the whole images, squashed."""
        import torch

        return torch.cat([logits.softmax(1) for _, logits in self._evaluate(places)]).cpu().numpy()

    def state(self) -> dict[str, Any]:
        """Return what a later try goes on from."""
        return {
            "weights": self._state(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            "best": self._best,
            "history": self.history,
            "seconds": self.seconds,
            "at_once": self._in_parts.at_once,
        }

    def resume(self, file: Path, identity: dict[str, Any]) -> None:
        """Take up the state in `file`, if there is one of these inputs."""
        state = read_checkpoint(file, identity, self._device, "fine-tuning")
        if state is None:
            return
        self._modules.load_state_dict(state["weights"], strict=False)
        self._optimizer.load_state_dict(state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        self._best = {name: one.cpu() for name, one in state["best"].items()}
        self.history, self.seconds, self._in_parts.at_once = state["history"], state["seconds"], state["at_once"]
        logger.info("Going on with fine-tuning after epoch %d.", len(self.history))

    def _state(self) -> "dict[str, torch.Tensor]":
        """Return the weights that are trained, and buffers such as the running means of batch norm."""
        fixed = {name for name, one in self._modules.named_parameters() if not one.requires_grad}
        return {name: one for name, one in self._modules.state_dict().items() if name not in fixed}

    def _judge(self, places: Int64[np.ndarray, " v"]) -> tuple[float, float]:
        """Return mean cross-entropy and accuracy in evaluation mode."""
        import torch

        losses, right = [], []
        for batch, logits in self._evaluate(places):
            targets = torch.from_numpy(self._labels[batch]).to(self._device)
            losses.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
            right.append(logits.argmax(1) == targets)
        return float(torch.cat(losses).double().mean()), float(torch.cat(right).double().mean())

    def _evaluate(
        self, places: Int64[np.ndarray, " m"]
    ) -> "Generator[tuple[np.ndarray, torch.Tensor], None, None]":
        import torch

        def load(batch: np.ndarray) -> UInt8[np.ndarray, "b s s 3"]:
            def one(place: int) -> np.ndarray:
                return squash(self._images[place], self._side, self._side)

            return np.stack(list(side_by_side(one, batch.tolist())))

        def answer(crops: "torch.Tensor", parts: Sequence[slice]) -> "torch.Tensor":
            with torch.no_grad():
                return torch.cat([self._logits(crops[part]) for part in parts])

        self._modules.eval()
        with closing(feed(batches_of(places, self._recipe.batch_size), load, self._device)) as fed:
            for batch, crops in fed:
                yield batch, self._in_parts.run(partial(answer, crops), len(batch))

    def _logits(self, crops: "torch.Tensor") -> "torch.Tensor":
        with mixed_precision(self._device, self.precision):
            logits: torch.Tensor = self._head(self._backbone.forward(look_up(self._levels, crops)))
        return logits.float()


def _require_trainable(subject: Subject, model: ModelEntry) -> None:
    if model.provider not in _PROVIDERS:
        raise UserError(
            f"Model {model.key!r} cannot be fine-tuned: its provider is {model.provider}, and that takes "
            f"{' or '.join(_PROVIDERS)}. Choose another model, or a probe."
        )
    examples = subject.examples
    if (
        examples.schema["label"].is_nested()
        or subject.protocol.by_subtask
        or (examples["n_images"] != 1).any()
        or (examples["split"] == "all").any()
    ):
        raise UserError(
            f"{subject.key!r} cannot be fine-tuned on: that takes one image and one class an example, and a "
            "training and a test split. Choose a probe."
        )


def _parts_of(subject: Subject, labels: Int64[np.ndarray, " n"]) -> Parts:
    split, protocol = subject.examples["split"].to_numpy(), subject.protocol
    train, val, test = (np.flatnonzero(split == name) for name in ("train", "val", "test"))
    if protocol.n_train is not None:
        train = train[draw_few_shot(labels[train], protocol.n_train, protocol.seed)]
    if not len(val):
        train, val = _hold_out(train, subject.examples["group"].to_numpy(), protocol.seed)
    for part, name in ((train, "training"), (val, "validation"), (test, "test")):
        if not len(part):
            raise UserError(f"{subject.key!r} has no {name} example. Choose another split, or add images.")
    known = labels[np.concatenate([train, val])]
    if known.min() < 0 or known.max() >= len(subject.class_names):
        raise UserError(
            f"{subject.key!r} has training or validation examples of no declared class: give each one. "
            "Choose a probe."
        )
    if len(np.unique(labels[train])) < 2:
        raise UserError(
            f"The training examples of {subject.key!r} are all of one class: there is nothing to learn."
        )
    return Parts(train, val, test)


def _hold_out(
    train: Int64[np.ndarray, " n"], groups: np.ndarray, seed: int
) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " v"]]:
    """Return training and validation examples, whole groups on one side, the groups drawn at random."""
    of_train = groups[train]
    names, counts = np.unique(of_train, return_counts=True)
    drawn = np.random.default_rng(seed).permutation(len(names))
    before = np.cumsum(counts[drawn]) - counts[drawn]
    held = np.isin(of_train, names[drawn[before < _HELD_OUT * len(train)]])
    return train[~held], train[held]


def _digest(array: np.ndarray) -> str:
    return blake3(np.ascontiguousarray(array).tobytes()).hexdigest()
