"""The sample: 300 files of drawn leaves in four classes, with planted faults that are all known.

Which file has which fault and label is decided here, and how it is encoded. Drawing is in `leaves`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO

import numpy as np
from PIL import ExifTags, Image, ImageEnhance

from agml_assets.dataset.leaves import CONDITIONS, Leaf, draw_leaf

CLASS_NAMES: tuple[str, ...] = CONDITIONS
"""In the order of their labels, which is alphabetical, as of any folder per class."""

NUM_IMAGES = 300

HIGHEST_UNPLANTED_COSINE = 0.83
"""No two readable images that are not planted copies of one another come closer than this in the embedding
of the packaged backbone."""

_SEED = 2026

# Files in each class folder: balanced enough to learn from, uneven enough to show.
_CLASS_SIZES = {"blight": 64, "healthy": 92, "leaf_spot": 70, "rust": 74}

_FAULT_COUNTS = {
    "exact_copy": 16,
    "near_copy": 20,
    "flipped_label": 18,
    "truncated": 2,  # 0.67 %, below the share of unreadable files at which a run stops
    "cmyk": 3,
    "16_bit": 3,
    "palette": 3,
    "alpha": 3,
    "exif_rotated": 3,
}
_COPIES = ("exact_copy", "near_copy")
_COPIES_ACROSS_CLASSES = 4  # of each of the two kinds

_EXTENSIONS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "TIFF": "tif"}
_FORMAT_SHARES = {"JPEG": 0.6, "PNG": 0.12, "WEBP": 0.1, "BMP": 0.08, "TIFF": 0.1}
_LOSSLESS = ("PNG", "WEBP", "BMP", "TIFF")
_FAULT_FORMATS = {"cmyk": "JPEG", "16_bit": "PNG", "palette": "PNG", "alpha": "PNG", "exif_rotated": "JPEG"}


@dataclass(frozen=True)
class SampleImage:
    """One file of the sample.

    Attributes:
        file: Path below the sample's folder, such as `rust/leaf_012.jpg`.
        data: Its content.
        label: Index of the given class in `CLASS_NAMES`, right or wrong.
    """

    file: str
    data: bytes
    label: int


@dataclass(frozen=True)
class Fault:
    """One planted fault. A file has at most one, and copies are made of files that have none.

    Attributes:
        kind: `exact_copy` (the same pixels, in the same bytes or another lossless format), `near_copy`
            (recompressed or a little brighter), `flipped_label` (another condition is drawn),
            `truncated` (unreadable), or what decodes but is unusual: `cmyk`, `16_bit`, `palette`,
            `alpha`, `exif_rotated`.
        source_row: Position of the file in `sample_images`.
        original: Position of the file that this one copies; None unless it is a copy.
        given: Name of the class it is filed under.
        true: Name of the class that is drawn. Differs for every flipped label, and for copies filed under
            another class than their original.
    """

    kind: str
    source_row: int
    original: int | None
    given: str
    true: str


def sample_images(start: int = 0) -> Iterator[SampleImage]:
    """Draw the files one by one, in the order of their names.

    Args:
        start: Position of the first one wanted; those before it cost nothing.

    Yields:
        The files. Bytes are the same on every call with the same versions of NumPy and Pillow.
    """
    faults = {fault.source_row: fault for fault in manifest()}
    for row in range(start, NUM_IMAGES):
        given = _given_class(row)
        yield SampleImage(_file(row), _content(row, faults.get(row)), CLASS_NAMES.index(given))


@cache
def manifest() -> tuple[Fault, ...]:
    """Return every planted fault, by position; draws nothing."""
    rng = np.random.default_rng(_SEED)
    rows = [int(row) for row in rng.permutation(NUM_IMAGES)]
    afflicted = {kind: [rows.pop() for _ in range(count)] for kind, count in _FAULT_COUNTS.items()}
    faults = []
    for kind, kind_rows in afflicted.items():
        for position, row in enumerate(kind_rows):
            given = _given_class(row)
            if kind in _COPIES:
                across = position < _COPIES_ACROSS_CLASSES
                original = next(other for other in rows if (_given_class(other) != given) == across)
                rows.remove(original)  # no file is copied twice
                faults.append(Fault(kind, row, original, given, _given_class(original)))
            elif kind == "flipped_label":
                true = str(rng.choice([name for name in CLASS_NAMES if name != given]))
                faults.append(Fault(kind, row, None, given, true))
            else:
                faults.append(Fault(kind, row, None, given, given))
    return tuple(sorted(faults, key=lambda fault: fault.source_row))


# --- Files ----------------------------------------------------------------------------------------


def _class_and_number(row: int) -> tuple[str, int]:
    number = row
    for name in CLASS_NAMES:
        if number < _CLASS_SIZES[name]:
            return name, number
        number -= _CLASS_SIZES[name]
    raise IndexError(row)


def _given_class(row: int) -> str:
    return _class_and_number(row)[0]


def _file(row: int) -> str:
    name, number = _class_and_number(row)
    return f"{name}/leaf_{number:03d}.{_EXTENSIONS[_formats()[row]]}"


@cache
def _formats() -> tuple[str, ...]:
    """Return the format of each file, in Pillow's names."""
    rng = np.random.default_rng([_SEED, 1])
    names, shares = list(_FORMAT_SHARES), list(_FORMAT_SHARES.values())
    formats = [str(name) for name in rng.choice(names, NUM_IMAGES, p=shares)]
    copies = truncated = 0
    for fault in manifest():
        row = fault.source_row
        if fault.kind == "exact_copy" and fault.original is not None:
            # Every second one is the same bytes; the others are stored in another format.
            same = copies % 2 == 0
            others = [name for name in _LOSSLESS if name != formats[fault.original]]
            formats[row] = formats[fault.original] if same else others[copies // 2 % len(others)]
            copies += 1
        elif fault.kind == "truncated":
            formats[row] = ("JPEG", "PNG")[truncated % 2]
            truncated += 1
        else:
            formats[row] = _FAULT_FORMATS.get(fault.kind, formats[row])
    return tuple(formats)


def _content(row: int, fault: Fault | None) -> bytes:
    if fault is None:
        return _original(row) if row in _originals() else _drawn(row, _given_class(row))
    if fault.original is not None:
        return _copied(row, fault.original, fault.kind)
    if fault.kind in _UNUSUAL:
        return _UNUSUAL[fault.kind](*_leaf(row, fault.true))
    content = _drawn(row, fault.true)
    return content[: int(len(content) * 0.6)] if fault.kind == "truncated" else content


@cache
def _originals() -> frozenset[int]:
    return frozenset(fault.original for fault in manifest() if fault.original is not None)


@cache  # the few files that are copied, so that none is drawn twice
def _original(row: int) -> bytes:
    return _drawn(row, _given_class(row))


def _drawn(row: int, condition: str) -> bytes:
    leaf, rng = _leaf(row, condition)
    return _encoded(leaf.image, _formats()[row], rng)


def _leaf(row: int, condition: str) -> tuple[Leaf, np.random.Generator]:
    rng = np.random.default_rng([_SEED, 2, row])
    long = int(rng.integers(200, 501))
    short = int(long * rng.uniform(0.6, 1))
    width, height = (long, short) if rng.random() < 0.6 else (short, long)
    return draw_leaf(rng, condition, width, height), rng


def _copied(row: int, original: int, kind: str) -> bytes:
    content = _original(original)
    if kind == "exact_copy" and _formats()[row] == _formats()[original]:
        return content
    rng = np.random.default_rng([_SEED, 3, row])
    with Image.open(BytesIO(content)) as image:
        picture = image.convert("RGB")
    if kind == "exact_copy":
        return _encoded(picture, _formats()[row], rng, lossless=True)
    if _formats()[row] == "JPEG":
        return _saved(picture, "JPEG", quality=int(rng.integers(93, 98)), subsampling=0)
    brighter = ImageEnhance.Brightness(picture).enhance(rng.uniform(1.02, 1.04))
    return _encoded(brighter, _formats()[row], rng, lossless=True)


def _encoded(picture: Image.Image, name: str, rng: np.random.Generator, lossless: bool = False) -> bytes:
    if name == "JPEG":
        return _saved(picture, name, quality=int(rng.integers(82, 96)))
    if name == "WEBP":
        return _saved(picture, name, lossless=lossless, quality=20 if lossless else 90, method=1)
    if name == "PNG":
        return _saved(picture, name, compress_level=1)
    return _saved(picture, name)


def _saved(picture: Image.Image, name: str, **options: object) -> bytes:
    stream = BytesIO()
    picture.save(stream, name, **options)
    return stream.getvalue()


# --- Files that decode but are unusual ------------------------------------------------------------


def _cmyk(leaf: Leaf, rng: np.random.Generator) -> bytes:
    return _saved(leaf.image.convert("CMYK"), "JPEG", quality=90)


def _16_bit(leaf: Leaf, rng: np.random.Generator) -> bytes:
    """Store grey values from 0 to 65535, whose low byte is noise, as a scanner's."""
    grey = np.asarray(leaf.image.convert("L")).astype(np.uint16)
    fine = grey * np.uint16(256) + rng.integers(256, size=grey.shape, dtype=np.uint16)
    return _saved(Image.fromarray(fine), "PNG", compress_level=1)


def _palette(leaf: Leaf, rng: np.random.Generator) -> bytes:
    return _saved(leaf.image.quantize(128), "PNG", compress_level=1)


def _alpha(leaf: Leaf, rng: np.random.Generator) -> bytes:
    """Cut the leaves out: transparent around them, and white below what is transparent."""
    cut = Image.composite(leaf.image, Image.new("RGB", leaf.image.size, "white"), leaf.mask)
    cut.putalpha(leaf.mask)
    return _saved(cut, "PNG", compress_level=1)


def _exif_rotated(leaf: Leaf, rng: np.random.Generator) -> bytes:
    """Store the pixels lying on their side or upside down, as a turned phone does, with a note which way."""
    orientation, turn = (
        (6, Image.Transpose.ROTATE_90),
        (8, Image.Transpose.ROTATE_270),
        (3, Image.Transpose.ROTATE_180),
    )[rng.integers(3)]
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return _saved(leaf.image.transpose(turn), "JPEG", quality=90, exif=exif)


_UNUSUAL: dict[str, Callable[[Leaf, np.random.Generator], bytes]] = {
    "cmyk": _cmyk,
    "16_bit": _16_bit,
    "palette": _palette,
    "alpha": _alpha,
    "exif_rotated": _exif_rotated,
}
