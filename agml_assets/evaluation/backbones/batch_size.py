"""How many images fit into one forward pass. Which model and which images is up to the caller."""

import logging
from collections.abc import Callable, Iterator

from agml_assets.errors import UserError

logger = logging.getLogger(__name__)

# What PyTorch says, beside its own error class, when the memory of a device ends.
_SAYS_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cublas_status_alloc_failed",
    "cudnn_status_not_supported",
)


def find_batch_size(probe: Callable[[int], object], start: int = 8, upper: int = 4096) -> int:
    """Return the largest batch that fits, of sizes that grow by about 3/2 and 4/3 in turn.

    From 8 these are 8, 12, 16, 24, 32, 48 and so on, and at last `upper` itself; from 1 they are 1, 2, 3, 4, 6, 8.
    The size found is tried once more, as the first success may have been luck with scattered memory; where it
    fails, the next smaller one is tried, and so on.

    Args:
        probe: Does the work with so many images; runs out of memory where they are too many.
        start: The first size, at least 1.
        upper: The largest size, at least `start`; no more than there are images, and than shall wait in memory.

    Returns:
        The batch size, in [start, upper].

    Raises:
        UserError: Not even the first size fits.
        ValueError: `start` is below 1, or `upper` below `start`.
        Exception: Whatever else `probe` raises.
    """
    if start < 1 or upper < start:
        raise ValueError(f"start={start} and upper={upper} must be 1 <= start <= upper")
    fitting: list[int] = []
    for size in _growing(start, upper):
        if not _fits(probe, size):
            break
        fitting.append(size)
    while fitting:
        if _fits(probe, fitting[-1]):
            logger.info("Batches of %d images fit.", fitting[-1])
            return fitting[-1]
        fitting.pop()
    raise UserError(
        f"Not even a batch of {start} fits into the memory of the device. Free the device of other programs, set "
        "`precision` to bfloat16 or float16 in the entry of the model registry, or choose a smaller model."
    )


def _growing(start: int, upper: int) -> Iterator[int]:
    size, by_half = start, True
    while size < upper:
        yield size
        grown = size + 1 if size < 2 else (size * 3 // 2 if by_half else size * 4 // 3)
        by_half = by_half if size < 2 else not by_half
        size = max(grown, size + 1)
    yield upper


def _fits(probe: Callable[[int], object], size: int) -> bool:
    try:
        probe(size)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or any(text in str(error).lower() for text in _SAYS_OUT_OF_MEMORY):
            return False
        raise
    return True
