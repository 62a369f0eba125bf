"""Where tensors are computed, the processor or the GPU held against other processes, and how images get there."""

import ctypes
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agml_assets.locks import exclusive

if TYPE_CHECKING:
    import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # glibc's malloc.h
_LARGEST_INT = 2**31 - 1

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_held_here: set[str] = set()
"""GPUs that this process holds already; the kernel's lock would make it wait for itself."""


@contextmanager
def use_device(holder: str) -> Iterator[str]:
    """Yield `cuda`, with nobody else on the GPU until the end, or `cpu` where there is none.

    Args:
        holder: Who we are, for the log of those who wait, such as `embedding with efficientnet_lite0`.
    """
    import torch

    if torch.cuda.is_available():
        with hold_gpu(0, holder):
            yield "cuda"
    else:
        yield "cpu"


@contextmanager
def hold_gpu(number: int, holder: str) -> Iterator[None]:
    """Keep a GPU from other processes until the end; one that this process holds already stays held.

    Args:
        number: As CUDA counts them; one that there is not is not held.
        holder: As for `use_device`.
    """
    import torch

    if number >= torch.cuda.device_count():
        yield
        return
    name = str(torch.cuda.get_device_properties(number).uuid)
    if name in _held_here:
        yield
        return
    lock = Path(tempfile.gettempdir()) / "agml-assets-locks" / f"gpu-{name}.lock"
    with suppress(FileExistsError):
        lock.parent.mkdir()
        lock.parent.chmod(0o777)  # the GPU is shared by all users of the machine
    with exclusive(lock, f"GPU {name}", holder):
        _held_here.add(name)
        try:
            yield
        finally:
            _held_here.discard(name)


@contextmanager
def kept_memory(device: "torch.device") -> Iterator[None]:
    """Let the C library keep what one batch frees for the next; on the processor, and where it is glibc.

    Otherwise it gives every large tensor back to the system, which clears it page by page when it is asked for
    again: up to two thirds of the time of a forward pass. Afterwards all is given back.
    """
    library = ctypes.CDLL(None) if device.type == "cpu" and sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    library.mallopt(_M_MMAP_MAX, 0)
    library.mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT)
    try:
        yield
    finally:
        # A first call of mallopt ends glibc's own tuning; these are the values that it would have come to.
        library.mallopt(_M_MMAP_MAX, 65536)
        library.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)
        library.mallopt(_M_TRIM_THRESHOLD, 64 * 2**20)
        library.malloc_trim(0)


def mixed_precision(device: "torch.device", precision: str) -> "torch.autocast":
    """Return the context of a forward pass: `bfloat16` or `float16` where it is safe, or `float32` throughout.

    Weights, sums and norms stay float32; multiplications of matrices and convolutions take the shorter type.
    """
    import torch

    mixed = precision != "float32"
    return torch.autocast(device.type, dtype=getattr(torch, precision) if mixed else None, enabled=mixed)


def half_precision(device: "torch.device") -> str:
    """Return the shorter type that the device multiplies fast: `bfloat16`, or `float16` on GPUs before Ampere."""
    import torch

    if device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    return "float16"


def feed(
    batches: Iterable[_Item], load: Callable[[_Item], np.ndarray], device: "torch.device"
) -> "Generator[tuple[_Item, torch.Tensor], None, None]":
    """Yield every batch and its array as a tensor on the device.

    While the caller computes on one batch on a GPU, the next is loaded in a thread, pinned and copied there. On
    the processor each is loaded when it is asked for.

    Args:
        batches: What to load, in order.
        load: Returns the array of a batch.
        device: Where the tensors shall be.
    """
    import torch

    if device.type == "cpu":
        for batch in batches:
            yield batch, torch.from_numpy(load(batch))
        return
    copying = torch.cuda.Stream(device)

    def bring(batch: _Item) -> "tuple[_Item, torch.Tensor, torch.cuda.Event]":
        pinned = torch.from_numpy(load(batch)).pin_memory()
        with torch.cuda.stream(copying):
            tensor = pinned.to(device, non_blocking=True)
            return batch, tensor, copying.record_event()

    for batch, tensor, copied in one_ahead(batches, bring):
        computing = torch.cuda.current_stream(device)
        computing.wait_event(copied)
        tensor.record_stream(computing)  # else its memory could be given away while it is still read
        yield batch, tensor


def one_ahead(items: Iterable[_Item], work: Callable[[_Item], _Result]) -> Generator[_Result, None, None]:
    """Yield the result of `work` for each item, in order; the next one is made in a thread meanwhile."""
    waiting: Future[_Result] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="feed") as thread:
        for item in items:
            following = thread.submit(work, item)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()
