"""The decode policy for one image: from the bytes of a file to pixels, hashes and header facts.

`docs/decoding.md` states the policy for readers. Nothing here knows datasets, rows or labels.
"""

import hashlib
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL
from blake3 import blake3
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError, features

from agml_assets.errors import UserError

# Raise it whenever a rule below changes pixels, hashes or facts: all that was decoded before is then stale.
POLICY_VERSION = "2"

SIDE = 256  # pixels; DINOv2's processor resizes to it before its crop to 224

# A strip longer than this many times its width keeps only its centre: resized whole, it could
# take gigabytes for 256 columns. The longest published image has an aspect ratio of about 20.
_MAX_ASPECT = 64

# EXIF 2.32, tag 0x0112. 1 is upright; anything unknown is taken as upright.
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAPS_SIDES = (5, 6, 7, 8)

# libjpeg paints what was never stored in the middle of the range, 127 or 128 once CMYK is inverted.
_NEVER_STORED = (127, 128)
_FILLER = bytes(range(1, 255)) * 4  # stands for any picture data: no byte of it begins a marker


@dataclass(frozen=True)
class Unreadable:
    """Why a file gives no pixels.

    Attributes:
        reason: For people; the same for the same bytes, without addresses or absolute paths.
    """

    reason: str


@dataclass(frozen=True)
class ImageFacts:
    """What is known of a decodable file beside its pixels.

    Attributes:
        width: Pixels as stored, before the EXIF orientation is applied.
        height: Pixels as stored, before the EXIF orientation is applied.
        mode: Pillow's mode in the file, such as `RGB`, `P`, `CMYK`, `I;16`.
        format: Pillow's name of the format, such as `JPEG`.
        bytes: Size of the file.
        exif_orientation: 1 to 8; 1 when absent, unknown or unreadable.
        frames: Frames or pages in the file; only the first is decoded.
        transparent: Whether any pixel is not opaque.
    """

    width: int
    height: int
    mode: str
    format: str
    bytes: int
    exif_orientation: int
    frames: int
    transparent: bool


@dataclass(frozen=True)
class DecodedImage:
    """The first frame of a file, upright.

    Attributes:
        facts: What its header says.
        exif_error: Why its EXIF data could not be read, or None.
        native: The frame in its own mode.
        image: The frame in RGB; alpha is dropped, not blended.
        alpha: Opacity in mode `L` where any pixel is not opaque; else None.
    """

    facts: ImageFacts
    exif_error: str | None
    native: Image.Image
    image: Image.Image
    alpha: Image.Image | None

    @cached_property
    def rgb(self) -> UInt8[np.ndarray, "h w 3"]:
        """RGB pixels, 0 to 255, read-only."""
        return np.asarray(self.image)

    @cached_property
    def md5_native(self) -> str:
        """Hexadecimal MD5 of the upright pixels in their own mode: AgML's published definition.

        Size, mode and palette are not part of it, so different images may share it.
        """
        # In mode RGB the array holds exactly these bytes already.
        pixels = self.rgb.reshape(-1).data if self.native.mode == "RGB" else self.native.tobytes()
        return hashlib.md5(pixels, usedforsecurity=False).hexdigest()

    @cached_property
    def blake3(self) -> str:
        """Hexadecimal BLAKE3 of dtype, shape and pixels in RGB, or in RGBA where not all are opaque.

        Equal for two files exactly when they show the same picture, whatever their formats.
        """
        return hash_pixels(self.rgb if self.alpha is None else np.dstack([self.rgb, np.asarray(self.alpha)]))


def decoder() -> str:
    """Return what decodes, with versions: other ones may give other pixels, and so other hashes."""
    return f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo') or 'not used'}"


@dataclass(frozen=True)
class PlainJpeg:
    """An RGB JPEG that needs no turning; fields as in `DecodedImage`.

    Attributes:
        facts: What its header says.
        exif_error: Why its EXIF data could not be read, or None.
        rgb: RGB pixels, 0 to 255.
    """

    facts: ImageFacts
    exif_error: str | None
    rgb: UInt8[np.ndarray, "h w 3"]

    @property
    def blake3(self) -> str:
        """As `DecodedImage.blake3`."""
        return hash_pixels(self.rgb)


def hash_pixels(pixels: UInt8[np.ndarray, "h w c"]) -> str:
    """Return the hexadecimal BLAKE3 of dtype, shape and pixels."""
    digest = blake3(f"{pixels.dtype} {' '.join(map(str, pixels.shape))}\n".encode())
    digest.update(pixels.reshape(-1).data)
    return digest.hexdigest()


def decode_image(data: bytes | Path, max_pixels: int) -> DecodedImage | Unreadable:
    """Decode one image file by the policy of `docs/decoding.md`.

    Args:
        data: Content of the file, or where it lies.
        max_pixels: Files whose header announces more pixels are refused before they are decoded.

    Returns:
        The decoded image, or the reason why there is none. Nothing that a file contains raises.
    """
    try:
        content = data.read_bytes() if isinstance(data, Path) else data
        if not content:
            return Unreadable("the file is empty")
        with _strict_pillow(max_pixels):
            return _decode(content, max_pixels)
    except Exception as error:
        return Unreadable(_reason(error, max_pixels))


def read_header(data: bytes | Path, max_pixels: int) -> tuple[str, tuple[int, int]] | None:
    """Return Pillow's mode and the width and height that a file announces; None where it is not to be decoded."""
    try:
        with _strict_pillow(max_pixels), Image.open(BytesIO(data) if isinstance(data, bytes) else data) as image:
            return image.mode, image.size
    except Exception:
        return None


def decode_plain_jpeg(data: bytes | Path, max_pixels: int) -> PlainJpeg | None:
    """Read an upright RGB JPEG of a usual kind without Pillow's detours, to the same pixels.

    Returns:
        None for every other file, and for one with the slightest fault: `decode_image` is to judge it.
    """
    import simplejpeg  # type: ignore[import-untyped]

    try:
        content = data.read_bytes() if isinstance(data, Path) else data
        with _strict_pillow(max_pixels):
            image = Image.open(BytesIO(content))
            mode, size, sampling = image.mode, image.size, getattr(image, "layer", [])
            if (
                (image.format, mode) != ("JPEG", "RGB")
                or size[0] * size[1] > max_pixels
                or not _is_usual(sampling)
            ):
                return None
            orientation, exif_error = _orientation(image)
        if orientation != 1:
            return None
        pixels = simplejpeg.decode_jpeg(content, strict=True)
    except Exception:
        return None
    if pixels.shape != (size[1], size[0], 3):
        return None
    return PlainJpeg(ImageFacts(*size, mode, "JPEG", len(content), 1, 1, transparent=False), exif_error, pixels)


def _is_usual(sampling: Sequence[tuple[int, int, int, int]]) -> bool:
    """Tell whether colour has the resolution of brightness, half of it across, or half of it both ways."""
    (_, across, down, _), *colour = sampling
    usual = (across, down) in ((1, 1), (2, 1), (2, 2))
    return usual and len(colour) == 2 and all(layer[1:3] == (1, 1) for layer in colour)


def decode_rgb(data: bytes | Path, max_pixels: int) -> Image.Image:
    """Return the upright RGB image of a file, by the same policy, at full size.

    Raises:
        UserError: The file cannot be decoded (any more).
    """
    decoded = decode_image(data, max_pixels)
    if isinstance(decoded, Unreadable):
        name = data if isinstance(data, Path) else f"image of {len(data)} bytes"
        raise UserError(f"{name} cannot be decoded: {decoded.reason}. Restore it, or decode the dataset again.")
    return decoded.image


def to_square_256(image: Image.Image) -> UInt8[np.ndarray, "256 256 3"]:
    """Resize the shortest side of an RGB image to 256 and crop the centre, as `to_square`."""
    return to_square(image, SIDE)


def to_square(image: Image.Image, side: int) -> UInt8[np.ndarray, "side side 3"]:
    """Resize the shortest side of an RGB image to `side` pixels (bicubic) and crop the centre.

    The long side becomes `int(side * long / short)` and the crop starts at `(length - side) // 2`, as in
    the image processors of `transformers`. Strips longer than 64 times their width are cropped
    to that about their centre first.
    """
    width, height = image.size
    longest = _MAX_ASPECT * min(width, height)
    if max(width, height) > longest:
        image = _crop_centre(image, min(width, longest), min(height, longest))
        width, height = image.size
    size = resized_size(width, height, side)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(_crop_centre(image, side, side))


def resized_size(width: int, height: int, side: int = SIDE) -> tuple[int, int]:
    """Return width and height of an image whose shortest side has become `side`, 256 by default."""
    short = min(width, height)
    return int(side * width / short), int(side * height / short)


def _crop_centre(image: Image.Image, width: int, height: int) -> Image.Image:
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


class _TooLargeError(Exception):
    """The image has more pixels than allowed; the message says how many."""


def _decode(content: bytes, max_pixels: int) -> DecodedImage:
    image = Image.open(BytesIO(content))
    width, height = image.size
    mode, kind = image.mode, image.format or ""
    if kind == "EPS":
        raise ValueError("EPS is a program to run, not an image")
    if width * height > max_pixels:
        raise _TooLargeError(f"{width * height} pixels")
    if kind == "TIFF":
        # Pillow itself turns a TIFF upright while loading it and swaps the sides beforehand.
        orientation, exif_error = _orientation(image)
        if orientation in _SWAPS_SIDES:
            width, height = height, width
        image.load()
    else:
        image.load()
        if kind == "JPEG" and _ends_early(content, image):
            raise OSError("image file is truncated (its end mark comes before the last of the picture)")
        orientation, exif_error = _orientation(image)
    if image.width * image.height > max_pixels:  # an icon may hold a larger image than it announces
        raise _TooLargeError(f"{image.width * image.height} pixels")
    native: Image.Image = image
    if kind != "TIFF" and orientation in _TRANSPOSE:
        native = image.transpose(_TRANSPOSE[orientation])
    rgb, alpha = _rgb_and_alpha(native, kind)
    facts = ImageFacts(
        width=width,
        height=height,
        mode=mode,
        format=kind,
        bytes=len(content),
        exif_orientation=orientation,
        frames=1 if kind == "JPEG" else _count_frames(content),
        transparent=alpha is not None,
    )
    return DecodedImage(facts, exif_error, native, rgb, alpha)


def _ends_early(content: bytes, image: Image.Image) -> bool:
    """Tell whether the data of a JPEG stop before its picture does, although it has an end mark.

    Pillow says nothing then, and the rest of the picture is gray. Asked only of images that end in that gray: data
    added before the end mark are passed over where the picture is complete, and drawn where it is not.
    """
    last = image.getpixel((image.width - 1, image.height - 1))
    if not set(last if isinstance(last, tuple) else (last,)) <= set(_NEVER_STORED):
        return False
    body, end_mark, rest = content.rpartition(b"\xff\xd9")
    if not end_mark:
        return False
    with Image.open(BytesIO(body + _FILLER + end_mark + rest)) as longer:
        return longer.tobytes() != image.tobytes()


def _orientation(image: Image.Image) -> tuple[int, str | None]:
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception as error:
        return 1, _describe(error)
    orientation = value if isinstance(value, int) and 1 <= value <= 8 else 1
    return orientation, _exif_error(image.info.get("exif"))


def _exif_error(exif: bytes | None) -> str | None:
    # Parsed once more, as Pillow swallows some errors and turns others into warnings.
    if not exif:
        return None
    with _strict_lock, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            Image.Exif().load(exif)
        except Exception as error:
            return _describe(error)
    return str(caught[0].message).strip() if caught else None


def _count_frames(content: bytes) -> int:
    # On an image of its own, as counting moves to the last frame. Broken later frames do not
    # matter: only the first is used.
    try:
        with Image.open(BytesIO(content)) as image:
            return int(getattr(image, "n_frames", 1))
    except Exception:
        return 1


def _rgb_and_alpha(native: Image.Image, kind: str) -> tuple[Image.Image, Image.Image | None]:
    if native.mode.startswith("I;16") or (native.mode == "I" and kind in ("PNG", "PPM")):
        # PNG and PPM have at most 16 bits; Pillow scales PPM's own maximum to 65535.
        return _gray_from_16_bit(np.asarray(native)).convert("RGB"), None
    if native.mode in ("I", "F"):
        return _gray_from_unbounded(np.asarray(native)).convert("RGB"), None
    if native.mode == "La":  # which Pillow converts to nothing else
        native = native.convert("LA")
    if not native.has_transparency_data:
        return (native if native.mode == "RGB" else native.convert("RGB")), None
    rgba = native.convert("RGBA")
    alpha = rgba.getchannel("A")
    transparent = alpha.histogram()[255] < alpha.width * alpha.height
    return rgba.convert("RGB"), alpha if transparent else None


def _gray_from_16_bit(values: np.ndarray) -> Image.Image:
    # 65535 / 257 = 255, so 0 to 65535 becomes 0 to 255, rounded; Pillow's own conversion clips at 255.
    wide = np.clip(values, 0, 65535).astype(np.uint32)
    return Image.fromarray(((wide + 128) // 257).astype(np.uint8))


def _gray_from_unbounded(values: np.ndarray) -> Image.Image:
    # 32-bit integers and floats declare no range: each image's own finite minimum and maximum become 0 and
    # 255. What is not finite, and an image of one value, becomes 0.
    finite = np.isfinite(values)
    if not finite.any():
        return Image.fromarray(np.zeros(values.shape, np.uint8))
    wide = np.where(finite, values, values[finite].min()).astype(np.float64)
    low, high = wide.min(), wide.max()
    scaled = (wide - low) / (high - low if high > low else 1.0) * 255.0
    return Image.fromarray(np.rint(scaled).astype(np.uint8))


_strict_lock = threading.Lock()
_strict_limits: list[int] = []
_pillow_defaults: tuple[int | None, bool] = (Image.MAX_IMAGE_PIXELS, False)


@contextmanager
def _strict_pillow(max_pixels: int) -> Iterator[None]:
    """Make Pillow judge sizes by `max_pixels` and refuse truncated files, for as long as anyone decodes here.

    Both switches are global in Pillow; they are put back when the last decoding thread leaves.
    """
    global _pillow_defaults
    with _strict_lock:
        if not _strict_limits:
            _pillow_defaults = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
        _strict_limits.append(max_pixels)
        Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = max(_strict_limits), False
    try:
        yield
    finally:
        with _strict_lock:
            _strict_limits.remove(max_pixels)
            if _strict_limits:
                Image.MAX_IMAGE_PIXELS = max(_strict_limits)
            else:
                Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = _pillow_defaults


def _reason(error: Exception, max_pixels: int) -> str:
    if isinstance(error, _TooLargeError | Image.DecompressionBombError | Image.DecompressionBombWarning):
        size = re.search(r"\d+ pixels", str(error))
        return f"{size[0] if size else 'too many pixels'}, above the limit max_image_pixels = {max_pixels}"
    if isinstance(error, UnidentifiedImageError):
        return "not an image in a format that Pillow knows"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _describe(error)


def _describe(error: Exception) -> str:
    message = re.sub(r" at 0x[0-9a-fA-F]+", "", str(error)).strip()
    if isinstance(error, OSError) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
