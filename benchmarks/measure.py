"""How every benchmark here measures: two ways in turn in one run, peak memory of a child process, the machine.

A script `bench_<name>.py` prints the rows that `compare` returns; `make_table.py` collects them.
"""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np

T = TypeVar("T")

COLUMNS = (
    "work",
    "obvious way",
    "its s",
    "our s",
    "ratio",
    "at least",
    "results",
    "repeats",
    "measured",
    "script",
)
_PACKAGES = ("numpy", "scipy", "torch", "scikit-learn", "faiss-cpu", "polars", "pillow")
_SAMPLING_S = 0.005
_LOOK_FOR_CHILDREN = 20  # samples


def compare(
    *,
    work: str,
    obvious_way: str,
    obvious: Callable[[], T],
    ours: Callable[[], T],
    agree: Callable[[T, T], str],
    at_least: float,
    repeats: int = 3,
    obvious_repeats: int | None = None,
) -> str:
    """Time both ways in turn, compare their results, and return the ratio of medians as a Markdown row.

    Imports, data and what compiles itself at the first call are the script's to do before.

    Args:
        work: What is done, with its sizes.
        obvious_way: How it is usually done, in a few words.
        obvious: Does it the usual way.
        ours: Does it with this project's functions.
        agree: Takes both results, the usual one first; says in a few words how they agree, or raises.
        at_least: The ratio that shall be reached.
        repeats: Timed calls of `ours`.
        obvious_repeats: Timed calls of `obvious`, where it is too slow for as many.
    """
    obvious_repeats = min(repeats, obvious_repeats or repeats)
    obvious_s: list[float] = []
    our_s: list[float] = []
    verdict = ""
    for turn in range(repeats):
        if turn < obvious_repeats:
            theirs, seconds = timed(obvious)
            obvious_s.append(seconds)
        result, seconds = timed(ours)
        our_s.append(seconds)
        verdict = agree(theirs, result)
    slow, fast = median(obvious_s), median(our_s)
    cells = (
        work,
        obvious_way,
        f"{slow:.3g}",
        f"{fast:.3g}",
        f"**{slow / fast:.1f}x**",
        f"{at_least:g}x",
        verdict,
        f"{obvious_repeats} and {repeats}",
        datetime.datetime.now(datetime.UTC).date().isoformat(),
        f"`{Path(sys.argv[0]).name}`",
    )
    return markdown_row(cells)


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call and its seconds by the clock."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def markdown_row(cells: Iterable[object]) -> str:
    """Return one row of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


@dataclass(frozen=True)
class Child:
    """What became of a child process.

    Attributes:
        seconds: From start to end by the clock, the interpreter's start included.
        peak_anonymous_bytes: Largest sum of the anonymous memory of the process and its descendants; pages of
            mapped files do not count, since the kernel can drop them.
        output: What it printed.
    """

    seconds: float
    peak_anonymous_bytes: int
    output: str


def run_child(arguments: Sequence[str], environment: dict[str, str] | None = None) -> Child:
    """Run `python <arguments>` to its end, looking at its memory some hundred times a second.

    Args:
        arguments: Such as a script and its options.
        environment: Variables to set on top of this process's.

    Raises:
        RuntimeError: It failed; with the end of what it wrote.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=out,
            stderr=err,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        peak, turns, pids = 0, 0, [process.pid]
        while process.poll() is None:
            if turns % _LOOK_FOR_CHILDREN == 0:
                pids = [process.pid, *_descendants(process.pid)]
            peak, turns = max(peak, sum(map(anonymous_bytes, pids))), turns + 1
            time.sleep(_SAMPLING_S)
        seconds = time.perf_counter() - start
        for stream in (out, err):
            stream.seek(0)
        output = out.read()
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}: {err.read()[-3000:]}")
    return Child(seconds, peak, output)


def anonymous_bytes(pid: int) -> int:
    """Return the resident anonymous memory of a process; 0 for one that is gone."""
    try:
        lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def _descendants(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line fitted to log(value) over log(size): 1 is linear growth, 2 quadratic."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def machine() -> list[str]:
    """Return the processor, the kernels of linear algebra, the threads and the versions, a line each."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return [
        f"Processor: {processor()}, {os.cpu_count()} cores",
        f"Linear algebra: {blas_kernels()}",
        f"Versions: Python {platform.python_version()}, {versions}",
    ]


def processor() -> str:
    """Return the processor's name with its widest vector instructions, which say more than many a name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    flags = fields.get("flags", "").split()
    wide = [name for name in ("amx_bf16", "amx_tile", "avx512_bf16", "avx512f", "avx2") if name in flags][:1]
    family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    return f"{fields.get('model name', platform.machine())} ({', '.join([family, *wide])})"


def blas_kernels() -> str:
    """Return the kernel and threads of every library of linear algebra that the benchmarks use."""
    import faiss  # noqa: F401
    import scipy.linalg  # noqa: F401
    import torch
    from threadpoolctl import threadpool_info

    found = []
    for library in threadpool_info():
        if library["user_api"] == "blas":
            owner = Path(library["filepath"]).parent.name.removesuffix(".libs")
            found.append(
                f"{owner}: {library['internal_api']} {library['version']} {library['architecture']}, "
                f"{library['num_threads']} threads"
            )
    maths = "MKL" if torch.backends.mkl.is_available() else "no MKL"
    found.append(f"torch: {maths}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads")
    return "; ".join(sorted(found))


def labelled_vectors(
    n: int, dimensions: int, n_classes: int, separation: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 unit vectors around random class centres, as embeddings are, and their labels.

    Args:
        n: Vectors.
        dimensions: Of each.
        n_classes: Classes, of about equal size.
        separation: Length of the centres over that of the deviations from them.
    """
    rng = np.random.default_rng(0)
    centres = separation * rng.standard_normal((n_classes, dimensions), dtype=np.float32)
    labels = rng.integers(0, n_classes, n)
    vectors = np.empty((n, dimensions), np.float32)
    for start in range(0, n, 65_536):
        rows = slice(start, start + 65_536)
        rng.standard_normal(out=vectors[rows], dtype=np.float32)
        vectors[rows] += centres[labels[rows]]
        vectors[rows] /= np.linalg.norm(vectors[rows], axis=1, keepdims=True)
    return vectors, labels


def near_copies(n: int, dimensions: int, share: float = 0.05) -> np.ndarray:
    """Return the vectors of `labelled_vectors`, 50 classes, the last copies of the first, exact to 0.97."""
    vectors, _ = labelled_vectors(n, dimensions, 50)
    rng = np.random.default_rng(1)
    copies = round(n * share)
    cosines = np.minimum(rng.uniform(0.97, 1.005, size=(copies, 1)), 1).astype(np.float32)
    noise = rng.standard_normal((copies, dimensions), dtype=np.float32)
    originals = vectors[:copies]
    noise -= (noise * originals).sum(axis=1, keepdims=True) * originals
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    vectors[n - copies :] = cosines * originals + np.sqrt(1 - cosines**2) * noise
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
