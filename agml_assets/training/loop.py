"""What every training needs: batches, one device, the same bytes each time, and checkpoints that survive a kill.

What is trained, and how, is in `reference_trainer` and in `evaluation.fine_tuning`.
"""

import gc
import io
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from blake3 import blake3
from jaxtyping import Int64

from agml_assets.device import use_device
from agml_assets.disk import named_when_full
from agml_assets.errors import UserError
from agml_assets.locks import Unfinished

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

LEAST = 2
"""Images at once: batch norm cannot tell one image from its own mean."""

_DIGEST = 32  # bytes; a checkpoint opens with the digests of its inputs and of its content


def batches_of(order: Int64[np.ndarray, " n"], size: int) -> list[Int64[np.ndarray, " b"]]:
    """Cut `order` into batches of `size`, the last one smaller; one image alone joins the batch before it."""
    starts = list(range(0, len(order), size))
    if len(starts) > 1 and len(order) - starts[-1] < LEAST:
        starts.pop()
    return np.split(order, starts[1:]) if starts else []


class InParts:
    """Gives batches to work in parts that the GPU has room for; smaller ones once it had none.

    Args:
        at_once: Images in one part to begin with.
        no_room: What to tell the user where not even `LEAST` images have room.
    """

    def __init__(self, at_once: int, no_room: str) -> None:
        self.at_once = at_once
        self._no_room = no_room

    def run(self, attempt: "Callable[[Sequence[slice]], torch.Tensor]", n_images: int) -> "torch.Tensor":
        """Return what `attempt` makes of a batch, given its parts."""
        import torch

        while True:
            try:
                parts = np.array_split(np.arange(n_images), max(1, n_images // self.at_once))
                return attempt([slice(int(part[0]), int(part[-1]) + 1) for part in parts])
            except torch.cuda.OutOfMemoryError:
                if self.at_once <= LEAST:
                    raise UserError(self._no_room) from None
            self.at_once = max(LEAST, self.at_once // 2)
            logger.warning("The GPU is out of memory; going on with %d images at once.", self.at_once)
            torch.cuda.empty_cache()


def add_gradients(
    logits_of: "Callable[[torch.Tensor], torch.Tensor]",
    optimizer: "torch.optim.Optimizer",
    scaler: "torch.amp.GradScaler",
    crops: "torch.Tensor",
    targets: "torch.Tensor",
    parts: Sequence[slice],
) -> "torch.Tensor":
    """Compute the gradient of a batch's mean cross-entropy part by part; return the logits seen on the way."""
    import torch

    optimizer.zero_grad()
    seen = []
    for part in parts:
        logits = logits_of(crops[part])
        share = (part.stop - part.start) / len(crops)
        loss = torch.nn.functional.cross_entropy(logits, targets[part]) * share
        scaler.scale(loss).backward()
        seen.append(logits.detach())
    return torch.cat(seen)


class Checkpoint:
    """Writes the state of a training, whole or not at all, while the training goes on.

    Args:
        file: Where; its folder is there.
        identity: All that the training depends on, as JSON values.
    """

    def __init__(self, file: Path, identity: dict[str, Any]) -> None:
        self._file = file
        self._identity = _digest(identity)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self.wait()

    def write(self, state: dict[str, Any]) -> None:
        """Take a state of tensors and plain values as it is now; it is on disk by the next call, or by `wait`."""
        import torch

        payload = io.BytesIO()
        torch.save(state, payload)
        self.wait()
        self._writing = self._thread.submit(self._put, payload.getbuffer())

    def wait(self) -> None:
        """Wait for what is being written; raise what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _put(self, payload: memoryview) -> None:
        with (
            named_when_full(self._file.parent, "the checkpoint"),
            Unfinished(self._file.parent, self._file.name) as stage,
        ):
            with stage.open("wb") as handle:
                handle.write(self._identity + blake3(payload).digest())
                handle.write(payload)
                handle.flush()
                os.fsync(handle.fileno())
            stage.replace(self._file)


def read_checkpoint(
    file: Path, identity: dict[str, Any], device: "torch.device", what: str
) -> dict[str, Any] | None:
    """Return the state in `file` if it is whole and of this identity; else None, and the log says why.

    Args:
        file: As written by `Checkpoint`; need not be there.
        identity: All that the training depends on.
        device: Where the tensors shall be.
        what: Names the training, such as `reference training`.
    """
    import torch

    if not file.is_file():
        return None
    content = memoryview(file.read_bytes())
    of_inputs, of_payload, payload = content[:_DIGEST], content[_DIGEST : 2 * _DIGEST], content[2 * _DIGEST :]
    if of_payload != blake3(payload).digest():  # torch itself would read flipped bits as weights
        logger.warning("The checkpoint %s is damaged; the %s starts anew.", file, what)
        return None
    if of_inputs != _digest(identity):
        logger.info("The checkpoint %s is of other inputs; the %s starts anew.", file, what)
        return None
    state: dict[str, Any] = torch.load(io.BytesIO(payload), map_location=device, weights_only=True)
    return state


@contextmanager
def one_device(purpose: str) -> "Iterator[torch.device]":
    """Give the GPU, held against all others and freed afterwards, or the CPU where there is none."""
    import torch

    with use_device(purpose) as name:
        try:
            yield torch.device(name)
        finally:
            gc.collect()
            if name == "cuda":
                torch.cuda.empty_cache()


@contextmanager
def reproducible(device: "torch.device") -> Iterator[None]:
    """Ask PyTorch for the same bytes each time; leave its global state and its random numbers as they were."""
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic  # its one property is unknown to type checkers
    filled = memory.fill_uninitialized_memory
    gpus = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    if gpus:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what PyTorch asks for
    with torch.random.fork_rng(devices=gpus):
        # Some layers have no deterministic form on CUDA; those still run.
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Else every new tensor is filled once before it is computed, for programs that read what nobody wrote.
        memory.fill_uninitialized_memory = False
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            memory.fill_uninitialized_memory = filled


def _digest(identity: dict[str, Any]) -> bytes:
    return blake3(json.dumps(identity, sort_keys=True).encode()).digest()
