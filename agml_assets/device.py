"""Where tensors are computed: the GPU, held against other processes, or the processor."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agml_assets.locks import exclusive

_held_here = False
"""Whether this process holds the GPU already; the kernel's lock would make it wait for itself."""


@contextmanager
def use_device(holder: str) -> Iterator[str]:
    """Yield `cuda`, with nobody else on the GPU until the end, or `cpu` where there is none.

    Args:
        holder: Who we are, for the log of those who wait, such as `embedding with efficientnet_lite0`.
    """
    global _held_here
    import torch

    if not torch.cuda.is_available():
        yield "cpu"
    elif _held_here:
        yield "cuda"
    else:
        name = str(torch.cuda.get_device_properties(0).uuid)
        lock = Path(tempfile.gettempdir()) / "agml-assets-locks" / f"gpu-{name}.lock"
        with suppress(FileExistsError):
            lock.parent.mkdir()
            lock.parent.chmod(0o777)  # the GPU is shared by all users of the machine
        with exclusive(lock, f"GPU {name}", holder):
            _held_here = True
            try:
                yield "cuda"
            finally:
                _held_here = False
