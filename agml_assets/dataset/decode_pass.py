"""The one pass that decodes a source: image index, pixel hashes and 256-pixel squares, resumable by blocks.

The policy for one image is in `decode`, the processes are in `decode_pool`. Stores and keys are the
caller's.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import PIL
import polars as pl
from blake3 import blake3

from agml_assets.dataset.decode import POLICY_VERSION, SIDE, Unreadable
from agml_assets.dataset.decode_pool import DecodeJob, Measured, measure_in_order
from agml_assets.disk import describe_bytes, named_when_full
from agml_assets.errors import UserError
from agml_assets.settings import Settings

if TYPE_CHECKING:
    from agml_assets.dataset.sources import Example, Source, SourceInfo

logger = logging.getLogger(__name__)

OUTPUTS = frozenset({"image_index", "pixel_hashes", "pixels"})

BLOCK_ROWS = 256  # source images; a killed pass loses at most one block
_SQUARE_BYTES = SIDE * SIDE * 3
_HEADER_BYTES = 128  # NumPy pads its header to a multiple of 64; this one holds any number of rows
_FEW_IMAGES = 64  # starting processes takes longer than decoding fewer images here

_FACTS = {
    "width": pl.Int32,
    "height": pl.Int32,
    "mode": pl.String,
    "format": pl.String,
    "bytes": pl.Int64,
    "exif_orientation": pl.Int32,
    "frames": pl.Int32,
    "transparent": pl.Boolean,
}

# The reasons in `excluded_reason`; the first is followed by what is wrong with the file.
_UNREADABLE, _NO_IMAGE, _UNLABELLED = "unreadable: ", "no image", "unlabelled"


@dataclass(frozen=True)
class DecodeResult:
    """What one pass over a source gives.

    Attributes:
        image_index: One row per source image.
        pixel_hashes: One row per usable image, or None where not asked for.
        pixels: Finished `.npy` file, uint8 (N, 256, 256, 3), in the work folder; None where not asked for.
    """

    image_index: pl.DataFrame
    pixel_hashes: pl.DataFrame | None
    pixels: Path | None


class UnreadableShare(NamedTuple):
    """How many source images give no pixels.

    Attributes:
        unreadable: Source rows whose file cannot be decoded or that have none; unlabelled ones do not count.
        total: Source rows.
        reasons: `source_row`, `file` and `reason` of each, in source order.
    """

    unreadable: int
    total: int
    reasons: pl.DataFrame


def decode_source(
    source: "Source",
    *,
    work_dir: Path,
    settings: Settings,
    outputs: frozenset[str] = OUTPUTS,
    progress: Callable[[int, int], None] | None = None,
) -> DecodeResult:
    """Decode every image of a source once, on all cores.

    Finished blocks lie in `work_dir`: the same call goes on where a killed one stopped, and answers from
    there when everything is done. It starts over when source, policy, limit or outputs are others. The
    result depends neither on the number of workers nor on interruptions, and memory does not grow with
    the number of images but for the tables. The caller removes `work_dir` once the results are stored.

    Args:
        source: Where the images come from.
        work_dir: Folder of this pass alone, on the disk where the pixels shall lie.
        settings: `max_image_pixels` and `decode_workers` are used.
        outputs: What to make, a subset of `OUTPUTS`; the image index is always made.
        progress: Called with the number of images done and their total.

    Raises:
        UserError: No image is usable, the disk is too small, the source does not hold what it announced, or
            the system kills the workers.
    """
    if unknown := outputs - OUTPUTS:
        raise ValueError(f"unknown outputs {sorted(unknown)}")
    info = source.info()
    work = _Work(work_dir, with_pixels="pixels" in outputs)
    work.keep_only(_identity(info, settings, outputs))
    blocks, usable = work.committed()
    if blocks * BLOCK_ROWS < info.num_rows:
        if work.with_pixels:
            work.require_space(info.num_rows)
        with named_when_full(work_dir, "the decoded images"), work.open_pixels(usable) as pixels:
            _decode_blocks(source, info, work, pixels, blocks, settings, outputs, progress)
    table = work.table(info)
    usable = table["row"].count()
    if usable == 0:
        raise UserError(_nothing_usable(table))
    _report_broken_exif(table)
    return DecodeResult(
        image_index=_image_index(table, info),
        pixel_hashes=_pixel_hashes(table) if "pixel_hashes" in outputs else None,
        pixels=work.finish_pixels(usable) if work.with_pixels else None,
    )


def unreadable_share(image_index: pl.DataFrame) -> UnreadableShare:
    """Return how many images of an image index give no pixels, of how many, and which with what reason."""
    reason = pl.col("excluded_reason")
    images = image_index.filter(reason.str.starts_with(_UNREADABLE) | (reason == _NO_IMAGE)).select(
        "source_row", "file", reason=reason.str.strip_prefix(_UNREADABLE)
    )
    return UnreadableShare(images.height, image_index.height, images)


def _decode_blocks(
    source: "Source",
    info: "SourceInfo",
    work: "_Work",
    pixels: BinaryIO | None,
    first_block: int,
    settings: Settings,
    outputs: frozenset[str],
    progress: Callable[[int, int], None] | None,
) -> None:
    """Decode from `first_block` on and commit block after block."""

    def job(example: "Example") -> DecodeJob | None:
        if example.image is None:
            return None
        labelled = example.label is not None
        return DecodeJob(
            name=example.file or f"image {example.source_row}",
            data=example.image,
            hashes=labelled and "pixel_hashes" in outputs,
            square=labelled and pixels is not None,
        )

    done = first_block * BLOCK_ROWS
    rows: list[dict[str, Any]] = []
    outcomes = measure_in_order(
        source.examples(start=done),
        job,
        workers=_workers(settings, info.num_rows - done),
        max_pixels=settings.max_image_pixels,
    )
    with closing(outcomes):
        for example, outcome in outcomes:
            if example.source_row != done:
                raise ValueError(f"the source gave row {example.source_row} where {done} was due")
            rows.append(_row(example, outcome, info))
            if pixels is not None and isinstance(outcome, Measured) and outcome.square is not None:
                pixels.write(outcome.square)
            done += 1
            if len(rows) == BLOCK_ROWS or done == info.num_rows:
                work.commit((done - 1) // BLOCK_ROWS, rows, info, pixels)
                rows = []
            if progress is not None:
                progress(done, info.num_rows)
    if done != info.num_rows:
        raise UserError(
            f"The source announced {info.num_rows} images and gave {done}. "
            "It is incomplete or changes while it is read; start again when it is at rest."
        )


def _row(example: "Example", outcome: Measured | Unreadable | None, info: "SourceInfo") -> dict[str, Any]:
    """Return one image as a row of a block table."""
    label = example.label
    if label is not None and not 0 <= label < len(info.class_names):
        raise ValueError(f"label {label} of image {example.source_row}, with {len(info.class_names)} classes")
    reason: str | None = None
    if outcome is None:
        reason = _NO_IMAGE
    elif isinstance(outcome, Unreadable):
        reason = _UNREADABLE + outcome.reason
    elif label is None:
        reason = _UNLABELLED
    measured = outcome if isinstance(outcome, Measured) else None
    return {
        "source_row": example.source_row,
        "excluded_reason": reason,
        "file": example.file,
        "label": label,
        "native_split": example.native_split,
        **(asdict(measured.facts) if measured else dict.fromkeys(_FACTS)),
        **{
            f"meta.{column}": _metadata(example.metadata.get(column), names)
            for column, names in info.metadata_columns.items()
        },
        "exif_error": measured.exif_error if measured else None,
        "md5_native": measured.md5_native if measured else None,
        "blake3": measured.blake3 if measured else None,
    }


def _metadata(value: Any, names: tuple[str, ...] | None) -> str | None:
    """Return a metadata value as text.

    AgML's published coverage counts a missing value of a plain column as "None". A missing value of a
    column with declared names is null: None, or an integer that names nothing, such as -1.
    """
    if names is None:
        return str(value)
    if isinstance(value, int | np.integer):
        return names[value] if 0 <= value < len(names) else None
    return value


def _block_schema(info: "SourceInfo") -> dict[str, Any]:
    return {
        "source_row": pl.Int64,
        "excluded_reason": pl.String,
        "file": pl.String,
        "label": pl.Int64,
        "native_split": pl.String,
        **_FACTS,
        **{f"meta.{column}": pl.String for column in info.metadata_columns},
        "exif_error": pl.String,
        "md5_native": pl.String,
        "blake3": pl.String,
    }


def _image_index(table: pl.DataFrame, info: "SourceInfo") -> pl.DataFrame:
    names = pl.Series(info.class_names, dtype=pl.Enum(info.class_names))
    enums = {f"meta.{column}": names for column, names in info.metadata_columns.items() if names is not None}
    return table.select(
        "source_row",
        "row",
        "excluded_reason",
        "file",
        "label",
        names.gather(table["label"]).alias("class_name"),
        "native_split",
        *_FACTS,
        *(
            pl.col(name).cast(pl.Enum(enums[name])) if name in enums else pl.col(name)
            for name in (f"meta.{column}" for column in info.metadata_columns)
        ),
    )


def _pixel_hashes(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("row").is_not_null()).select(
        "row",
        "md5_native",
        "blake3",
        md5_group=pl.col("row").min().over("md5_native"),
        blake3_group=pl.col("row").min().over("blake3"),
    )


def _nothing_usable(table: pl.DataFrame) -> str:
    if table.is_empty():
        return "The source holds no images."
    kind = pl.col("excluded_reason").str.replace("^unreadable: .*$", "unreadable")
    counts = table.group_by(kind, maintain_order=True).len().rows()
    first = table.row(0, named=True)
    return (
        f"None of the {table.height} images can be used: "
        + ", ".join(f"{count} {reason}" for reason, count in counts)
        + f". The first is {first['file'] or 'image 0'} ({first['excluded_reason']}). "
        "Check the image and label columns, or the files."
    )


def _report_broken_exif(table: pl.DataFrame) -> None:
    broken = table.filter(pl.col("exif_error").is_not_null())
    if broken.height:
        first = broken.row(0, named=True)
        logger.warning(
            "%d images have broken EXIF data; their pixels are used as stored. The first is %s (%s).",
            broken.height,
            first["file"] or f"image {first['source_row']}",
            first["exif_error"],
        )


def _identity(info: "SourceInfo", settings: Settings, outputs: frozenset[str]) -> str:
    """Return a digest of everything that the blocks depend on."""
    facts = {
        "fingerprint": info.fingerprint,
        "resolved": dict(info.resolved),  # other columns of the same data are other images and labels
        "num_rows": info.num_rows,
        "class_names": list(info.class_names),
        "metadata_columns": {column: names and list(names) for column, names in info.metadata_columns.items()},
        "max_image_pixels": settings.max_image_pixels,
        "outputs": sorted(outputs),
        "policy": POLICY_VERSION,
        "pillow": PIL.__version__,
        "block_rows": BLOCK_ROWS,
    }
    return blake3(json.dumps(facts).encode()).hexdigest()


def _workers(settings: Settings, images: int) -> int:
    """Return the number of processes for so many images; 0 means to decode in this one."""
    if images < _FEW_IMAGES:
        return 0
    if settings.decode_workers is not None:
        return settings.decode_workers
    # Slurm and containers allow a process fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Work:
    """The files of an unfinished pass: `identity`, `block-*.parquet`, `pixels.partial`, `pixels.npy`.

    A block counts once its table is in place, which happens after its pixels are on disk.
    """

    def __init__(self, folder: Path, with_pixels: bool) -> None:
        self.with_pixels = with_pixels
        self._folder = folder
        self._partial = folder / "pixels.partial"
        self._pixels = folder / "pixels.npy"
        self._folder.mkdir(parents=True, exist_ok=True)

    def keep_only(self, identity: str) -> None:
        """Remove what another pass left here."""
        note = self._folder / "identity"
        if note.exists() and note.read_text() == identity:
            if self._pixels.exists():
                self._pixels.replace(self._partial)
            return
        for path in [note, self._partial, self._pixels, *self._folder.glob("block-*")]:
            path.unlink(missing_ok=True)
        note.write_text(identity)

    def committed(self) -> tuple[int, int]:
        """Return the number of finished blocks and of the usable images in them."""
        held = (self._partial.stat().st_size - _HEADER_BYTES) // _SQUARE_BYTES if self._partial.exists() else 0
        blocks = usable = 0
        while (path := self._block(blocks)).exists():
            more = pl.read_parquet(path, columns=["excluded_reason"])["excluded_reason"].null_count()
            if self.with_pixels and usable + more > held:
                break
            blocks, usable = blocks + 1, usable + more
        return blocks, usable

    def require_space(self, num_rows: int) -> None:
        """Refuse to start what the disk cannot hold; what lies there already is not needed again."""
        held = self._partial.stat().st_size if self._partial.exists() else 0
        needed = _HEADER_BYTES + num_rows * _SQUARE_BYTES - held
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise UserError(
                f"The decoded pixels of {num_rows} images need {describe_bytes(needed)} more in {self._folder}, "
                f"where {describe_bytes(free)} are free. Free some, or set AGML_RESULTS (AGML_SCRATCH, where the "
                "results lie in a bucket) to a larger disk."
            )

    def open_pixels(self, usable: int) -> AbstractContextManager[BinaryIO | None]:
        """Open the file of pixels behind the last committed one; anything after it is dropped."""
        if not self.with_pixels:
            return nullcontext()
        self._partial.touch()
        pixels = self._partial.open("r+b")
        pixels.truncate(_HEADER_BYTES + usable * _SQUARE_BYTES)
        pixels.seek(0, os.SEEK_END)
        return pixels

    def commit(self, block: int, rows: list[dict[str, Any]], info: "SourceInfo", pixels: BinaryIO | None) -> None:
        """Put the pixels so far on disk, then the table of the block in place."""
        if pixels is not None:
            pixels.flush()
            os.fsync(pixels.fileno())
        new = self._folder / "block-new"
        with new.open("wb") as stream:
            pl.DataFrame(rows, schema=_block_schema(info), orient="row").write_parquet(stream)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(self._block(block))

    def table(self, info: "SourceInfo") -> pl.DataFrame:
        """Return all blocks as one table, with `row` numbering the usable images."""
        blocks = [pl.read_parquet(self._block(b)) for b in range(-(-info.num_rows // BLOCK_ROWS))]
        usable = pl.col("excluded_reason").is_null()
        return pl.concat([pl.DataFrame(schema=_block_schema(info)), *blocks]).with_columns(
            row=pl.when(usable).then(usable.cast(pl.Int64).cum_sum() - 1)
        )

    def finish_pixels(self, usable: int) -> Path:
        """Write the header of the array in the room left for it and give the file its final name."""
        with self._partial.open("r+b") as pixels:
            np.lib.format.write_array_header_1_0(
                pixels, {"descr": "|u1", "fortran_order": False, "shape": (usable, SIDE, SIDE, 3)}
            )
            if pixels.tell() != _HEADER_BYTES:
                raise RuntimeError(f"NumPy's header takes {pixels.tell()} bytes, not {_HEADER_BYTES}")
            pixels.flush()
            os.fsync(pixels.fileno())
        return self._partial.replace(self._pixels)

    def _block(self, block: int) -> Path:
        return self._folder / f"block-{block:06}.parquet"
