"""Processes that decode images side by side, and the loop that each of them runs.

Each worker is a fresh interpreter (never a fork, and it never imports the caller's script) that reads
work from a pipe and ends when the pipe does: however the parent dies, no worker outlives it by
more than the chunk in its hands. Nothing here knows sources, rows or files on disk.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, TypeVar

import numpy as np
from jaxtyping import UInt8

from agml_assets.dataset.decode import (
    DecodedImage,
    ImageFacts,
    Unreadable,
    decode_image,
    decode_plain_jpeg,
    read_header,
    to_square_256,
)
from agml_assets.errors import UserError

logger = logging.getLogger(__name__)

# What one message to a worker holds at most; two messages a worker are in flight.
_CHUNK_IMAGES = 16
_CHUNK_BYTES = 8 * 2**20

# Below this many pixels, the compiled loops gain less than it takes to load them.
_LARGE = 512 * 512
_WAITING_BYTES = 128 * 2**20  # pixels that a worker keeps at most, until their MD5 is computed side by side

# Has glibc use the memory of one image again for the next, instead of giving it back and having it cleared anew,
# which takes as long as hashing the image. In bytes; 32 MiB is the most that it accepts.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(512 * 2**20)}

Item = TypeVar("Item")


@dataclass(frozen=True)
class DecodeJob:
    """One image to decode.

    Attributes:
        name: What messages call it.
        data: Content of the file, or where it lies.
        hashes: Whether its hashes are wanted.
        square: Whether its 256 x 256 pixels are wanted.
    """

    name: str
    data: bytes | Path
    hashes: bool
    square: bool


@dataclass(frozen=True)
class Measured:
    """What a worker sends back of an image; fields are those of `DecodedImage`, None where not asked for.

    Attributes:
        facts: What the header says.
        exif_error: Why the EXIF data could not be read, or None.
        md5_native: See `DecodedImage.md5_native`.
        blake3: See `DecodedImage.blake3`.
        square: The 256 x 256 x 3 pixels of `to_square_256`, row by row.
    """

    facts: ImageFacts
    exif_error: str | None
    md5_native: str | None
    blake3: str | None
    square: bytes | None


def measure_in_order(
    items: Iterable[Item], job_of: Callable[[Item], DecodeJob | None], workers: int, max_pixels: int
) -> Generator[tuple[Item, Measured | Unreadable | None], None, None]:
    """Decode the image of every item, in `workers` processes; yield in the order of `items`.

    Args:
        items: Whatever the caller wants back beside the outcome; read only a few chunks ahead.
        job_of: The image of an item, or None, whose outcome is None.
        workers: Processes; 0 decodes in this one.
        max_pixels: See `decode_image`.

    Raises:
        UserError: The system killed the worker twice at one image, which is no fault of the file.
    """
    if workers == 0:
        for item in items:
            job = job_of(item)
            yield item, measure(job, max_pixels) if job else None
        return
    with _Pool(workers, max_pixels) as pool:
        in_flight: deque[tuple[list[tuple[Item, bool]], Future[list[Measured | Unreadable]]]] = deque()
        for pairs in _chunks(items, job_of):
            jobs = [job for _, job in pairs if job]
            in_flight.append(([(item, job is not None) for item, job in pairs], pool.submit(jobs)))
            if len(in_flight) >= 2 * workers:
                yield from _outcomes(*in_flight.popleft())
        while in_flight:
            yield from _outcomes(*in_flight.popleft())


def measure(job: DecodeJob, max_pixels: int) -> Measured | Unreadable:
    """Decode one image and compute what the job asks for; like `decode_image`, it never raises."""
    decoded = decode_image(job.data, max_pixels)
    if isinstance(decoded, Unreadable):
        return decoded
    try:
        return _measure_decoded(decoded, job)
    except MemoryError:
        return Unreadable("not enough memory")


def _measure_decoded(decoded: DecodedImage, job: DecodeJob) -> Measured:
    return Measured(
        facts=decoded.facts,
        exif_error=decoded.exif_error,
        md5_native=decoded.md5_native if job.hashes else None,
        blake3=decoded.blake3 if job.hashes else None,
        square=to_square_256(decoded.image).tobytes() if job.square else None,
    )


def measure_chunk(jobs: list[DecodeJob], max_pixels: int) -> list[Measured | Unreadable]:
    """Return what `measure` gives for each job; large photographs take faster ways, to the same bytes."""
    outcomes: list[Measured | Unreadable] = []
    waiting: dict[int, UInt8[np.ndarray, " bytes"]] = {}
    for place, job in enumerate(jobs):
        kernels = _kernels() if _is_large_photograph(job, max_pixels) else None
        if kernels is None:
            outcomes.append(measure(job, max_pixels))
            continue
        try:
            decoded = decode_plain_jpeg(job.data, max_pixels) or decode_image(job.data, max_pixels)
            if isinstance(decoded, Unreadable):
                outcomes.append(decoded)
            elif isinstance(decoded, DecodedImage) and (decoded.native.mode != "RGB" or decoded.alpha is not None):
                outcomes.append(_measure_decoded(decoded, job))
            else:
                square = kernels.square_256(decoded.rgb).tobytes() if job.square else None
                blake3 = decoded.blake3 if job.hashes else None
                outcomes.append(Measured(decoded.facts, decoded.exif_error, None, blake3, square))
                if job.hashes:
                    waiting[place] = decoded.rgb.reshape(-1)
        except MemoryError:
            outcomes.append(Unreadable("not enough memory"))
        if sum(map(len, waiting.values())) >= _WAITING_BYTES:
            _add_md5(outcomes, waiting)
    _add_md5(outcomes, waiting)
    return outcomes


def _add_md5(outcomes: list[Measured | Unreadable], waiting: dict[int, UInt8[np.ndarray, " bytes"]]) -> None:
    """Compute the MD5 of the waiting pixels, put each in the outcome at its place, and let go of the pixels."""
    kernels = _kernels() if waiting else None
    if kernels is not None:
        for place, md5 in zip(waiting, kernels.md5_of_each(list(waiting.values())), strict=True):
            outcome = outcomes[place]
            assert isinstance(outcome, Measured)
            outcomes[place] = replace(outcome, md5_native=md5)
        waiting.clear()


def _is_large_photograph(job: DecodeJob, max_pixels: int) -> bool:
    header = read_header(job.data, max_pixels)
    if header is None:
        return False
    mode, (width, height) = header
    return mode == "RGB" and width * height >= _LARGE and max(width, height) <= 2 * min(width, height)


@cache
def _kernels() -> ModuleType | None:
    """Return the compiled loops, or None where a faster way cannot be had or does not give what Pillow gives."""
    try:
        from agml_assets.dataset import pixel_kernels

        agree = pixel_kernels.agree_with_pillow_and_hashlib()
    except Exception as error:  # no place for Numba's cache, or a processor that it cannot compile for
        logger.warning("Large images are decoded the slow way: %s", error)
        return None
    if not agree:
        logger.warning("Large images are decoded the slow way: the fast one does not give what Pillow gives.")
        return None
    return pixel_kernels


def _chunks(
    items: Iterable[Item], job_of: Callable[[Item], DecodeJob | None]
) -> Iterator[list[tuple[Item, DecodeJob | None]]]:
    chunk: list[tuple[Item, DecodeJob | None]] = []
    size = 0
    for item in items:
        job = job_of(item)
        chunk.append((item, job))
        size += len(job.data) if job and isinstance(job.data, bytes) else 0
        if len(chunk) == _CHUNK_IMAGES or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _outcomes(
    items: list[tuple[Item, bool]], future: Future[list[Measured | Unreadable]]
) -> Iterator[tuple[Item, Measured | Unreadable | None]]:
    results = iter(future.result())
    for item, has_image in items:
        yield item, next(results) if has_image else None


class _WorkerDiedError(Exception):
    """The worker ended with work in its hands; `code` is its exit status, negative for a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return signal.Signals(-self.code).name if self.code < 0 else f"exit status {self.code}"


class _Worker:
    """One child process, ready for use after `wait_until_ready`."""

    def __init__(self, max_pixels: int) -> None:
        # By a command and not `-m`: classes that are pickled must not be `__main__`'s.
        command = f"from {__name__} import serve; serve({max_pixels})"
        self._process = subprocess.Popen(  # noqa: S603 - nothing of the command comes from outside
            [sys.executable, "-P", "-W", "ignore", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_KEEP_MEMORY, **os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def wait_until_ready(self) -> None:
        try:
            self._receive()
        except _WorkerDiedError as died:
            raise RuntimeError(f"A process for decoding images did not start ({died}).") from None

    def exchange(self, jobs: list[DecodeJob]) -> list[Measured | Unreadable]:
        assert self._process.stdin is not None
        try:
            pickle.dump(jobs, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except OSError:
            raise _WorkerDiedError(self._process.wait()) from None
        return self._receive()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)  # noqa: S301 - our own child wrote it
        except (EOFError, pickle.UnpicklingError):
            raise _WorkerDiedError(self._process.wait()) from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class _Pool:
    """One thread a worker: each sends a chunk to its own process and waits for the outcomes."""

    def __init__(self, workers: int, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._started: list[_Worker] = []
        self._closed = False

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
        for worker in self._started:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def submit(self, jobs: list[DecodeJob]) -> Future[list[Measured | Unreadable]]:
        return self._threads.submit(self._run, jobs)

    def _run(self, jobs: list[DecodeJob]) -> list[Measured | Unreadable]:
        try:
            return self._worker().exchange(jobs)
        except _WorkerDiedError as died:
            self._mine.worker = None
            if self._closed:
                raise
            names = ", ".join(job.name for job in jobs)
            if len(jobs) > 1:
                logger.warning("A decoding process died (%s); decoding one by one: %s.", died, names)
                return [outcome for job in jobs for outcome in self._run([job])]
            if -died.code == signal.SIGKILL:
                raise UserError(
                    f"The system killed the process that decoded {names}, probably for want of memory. Lower "
                    "the setting decode_workers or max_image_pixels and start again; what is decoded is kept."
                ) from None
            return [Unreadable(f"the decoder crashed ({died})")]

    def _worker(self) -> _Worker:
        worker: _Worker | None = getattr(self._mine, "worker", None)
        if worker is None:
            with self._lock:
                if self._closed:
                    raise RuntimeError("The pool of decoding processes is closed.")
                worker = _Worker(self._max_pixels)
                self._started.append(worker)
            worker.wait_until_ready()
            self._mine.worker = worker
        return worker


def serve(max_pixels: int) -> None:
    """Be a worker: measure the jobs that arrive on standard input until it ends, then exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    jobs_in = sys.stdin.buffer
    results_out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with results
    # Numba would load SciPy's linear algebra, which takes a fifth of a second and which no loop here needs.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    try:
        _send(results_out, None)
        while True:
            jobs = pickle.load(jobs_in)  # noqa: S301 - our own parent wrote it
            _send(results_out, measure_chunk(jobs, max_pixels))
    except (EOFError, pickle.UnpicklingError, BrokenPipeError):
        os._exit(0)  # the parent has finished or died


def _send(stream: IO[bytes], value: object) -> None:
    pickle.dump(value, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()
