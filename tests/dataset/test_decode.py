"""The decode policy, format by format, against NumPy, the `datasets` library and published pixel hashes."""

import hashlib
import io
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from agml_assets.dataset.decode import DecodedImage, Unreadable, decode_image, decode_rgb, to_square_256
from agml_assets.errors import UserError

LIMIT = 1_000_000


def encode(image, fmt, **options):
    stream = io.BytesIO()
    image.save(stream, fmt, **options)
    return stream.getvalue()


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, bits, color, raw, *extra):
    """A PNG written by hand, for what Pillow reads but does not write."""
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    body = b"".join(extra) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body


def decoded(data, limit=LIMIT):
    result = decode_image(data, limit)
    assert isinstance(result, DecodedImage), result
    return result


def reason(data, limit=LIMIT):
    result = decode_image(data, limit)
    assert isinstance(result, Unreadable), result
    return result.reason


@pytest.fixture(scope="module")
def photo():
    """Sixty by forty pixels, no two alike and no symmetry."""
    y, x = np.mgrid[0:40, 0:60]
    pixels = np.stack([x * 4, y * 6, (x * y) % 251], axis=2).astype(np.uint8)
    return Image.fromarray(pixels)


def oriented(image, orientation, fmt="JPEG"):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(image, fmt, exif=exif)


# --- orientation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rotated_by_exif_and_rotated_in_fact_are_the_same_picture(photo, fmt, orientation):
    lossless = {"JPEG": {}, "PNG": {}, "WEBP": {"lossless": True}, "TIFF": {}}[fmt]
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.open(io.BytesIO(encode(photo, fmt, **lossless))).convert("RGB")
    upright = ImageOps.exif_transpose(stored_with(stored, exif))
    result = decoded(encode(photo, fmt, exif=exif, **lossless))
    assert np.array_equal(result.rgb, np.asarray(upright))
    assert result.facts.exif_orientation == orientation
    assert (result.facts.width, result.facts.height) == (60, 40)
    assert result.blake3 == decoded(encode(upright, "PNG")).blake3


def stored_with(image, exif):
    copy = image.copy()
    copy.info["exif"] = exif.tobytes()
    return copy


@pytest.mark.parametrize("value", [0, 9, 77])
def test_an_unknown_orientation_is_upright(photo, value):
    result = decoded(oriented(photo, value))
    assert result.facts.exif_orientation == 1
    assert result.rgb.shape == (40, 60, 3)


# A count of entries that are not there, a pointer past the end, no TIFF header at all.
BROKEN_EXIF = [b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 30, b"II*\0\xff\x0f\0\0", b"not a TIFF header"]


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", BROKEN_EXIF)
@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_is_reported_and_the_pixels_are_used_as_stored(photo, fmt, exif):
    result = decoded(encode(photo, fmt, exif=b"Exif\0\0" + exif))
    assert result.exif_error
    assert result.facts.exif_orientation == 1
    assert np.array_equal(result.rgb, decoded(encode(photo, fmt)).rgb)


def test_a_rational_over_zero_in_exif_does_no_harm(photo):
    entries = struct.pack("<HHHIIHHIHH", 2, 0x011A, 5, 1, 38, 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0II*\0\x08\0\0\0" + entries + b"\0" * 4 + struct.pack("<II", 1, 0)
    result = decoded(encode(photo, "JPEG", exif=exif))
    assert result.facts.exif_orientation == 6
    assert result.rgb.shape == (60, 40, 3)


def test_broken_xmp_does_no_harm(photo):
    xmp = b'\xff\xfe<x:xmpmeta \x80\x81 tiff:Orientation="6"'
    assert decoded(encode(photo, "JPEG", xmp=xmp)).rgb.shape == (60, 40, 3)


# --- modes ---------------------------------------------------------------------------------------


def test_sixteen_bits_are_rescaled_and_never_clipped():
    values = np.array([[0, 128, 129, 257, 25700, 65280, 65534, 65535]], np.uint16)
    expected = np.rint(values / 257).astype(np.uint8)  # 65535 / 255
    big_endian = encode(Image.fromarray(values.astype(">u2")), "TIFF")
    pgm = b"P5 8 1 65535\n" + values.astype(">u2").tobytes()
    for data, mode in [
        (encode(Image.fromarray(values), "PNG"), "I;16"),
        (encode(Image.fromarray(values), "TIFF"), "I;16"),
        (big_endian, "I;16B"),
        (pgm, "I"),
    ]:
        result = decoded(data)
        assert result.facts.mode == mode
        assert np.array_equal(result.rgb, np.dstack([expected] * 3))
        assert result.blake3 == decoded(encode(Image.fromarray(expected), "PNG")).blake3


def test_twelve_bit_gray_maps_its_own_maximum_to_white():
    pgm = b"P5 3 1 4095\n" + np.array([0, 2048, 4095], ">u2").tobytes()
    assert decoded(pgm).rgb[0, :, 0].tolist() == [0, 128, 255]


def test_sixteen_bit_colour_keeps_its_high_bytes():
    raw = b"\0" + np.array([0, 255, 256, 257, 65280, 65535], ">u2").tobytes()
    assert decoded(png(2, 1, 16, 2, raw)).rgb.tolist() == [[[0, 0, 1], [1, 255, 255]]]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_images_without_a_declared_range_are_stretched_to_their_own(dtype):
    values = np.array([[-1000, 0, 1000, 250_000]], dtype)
    expected = np.rint((values + 1000) / 251_000 * 255)
    assert np.array_equal(decoded(encode(Image.fromarray(values), "TIFF")).rgb[..., 0], expected)


def test_floats_that_are_not_finite_become_black():
    values = np.array([[np.nan, np.inf, 1.0, 3.0]], np.float32)
    assert decoded(encode(Image.fromarray(values), "TIFF")).rgb[0, :, 0].tolist() == [0, 0, 0, 255]
    nothing = np.full((2, 2), np.nan, np.float32)
    assert not decoded(encode(Image.fromarray(nothing), "TIFF")).rgb.any()
    assert not decoded(encode(Image.fromarray(np.full((2, 2), 0.5, np.float32)), "TIFF")).rgb.any()


def test_palettes_are_resolved_to_their_colours():
    red, blue = Image.new("P", (8, 8), 0), Image.new("P", (8, 8), 0)
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    a, b = decoded(encode(red, "PNG")), decoded(encode(blue, "PNG"))
    assert a.rgb[0, 0].tolist() == [255, 0, 0]
    assert a.blake3 == decoded(encode(Image.new("RGB", (8, 8), "red"), "PNG")).blake3 != b.blake3
    assert a.md5_native == b.md5_native  # as published: indices alone


def test_cmyk_becomes_rgb_as_pillow_does(photo):
    cmyk = photo.convert("CMYK")
    result = decoded(encode(cmyk, "TIFF"))
    assert result.facts.mode == "CMYK"
    assert np.array_equal(result.rgb, np.asarray(cmyk.convert("RGB")))
    assert decoded(encode(cmyk, "JPEG")).facts.mode == "CMYK"


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "YCbCr", "LAB", "RGBX"])
def test_every_mode_without_alpha_gives_opaque_rgb(mode):
    image = Image.new(mode, (5, 4))
    result = decoded(encode(image, "TIFF"))
    assert result.rgb.shape == (4, 5, 3)
    assert result.rgb.dtype == np.uint8
    assert not result.facts.transparent


# --- alpha ---------------------------------------------------------------------------------------


def with_alpha(photo, alpha):
    rgba = photo.convert("RGBA")
    rgba.putalpha(alpha)
    return rgba


def test_alpha_is_dropped_for_models_and_not_blended(photo):
    result = decoded(encode(with_alpha(photo, 7), "PNG"))
    assert np.array_equal(result.rgb, np.asarray(photo))
    assert result.facts.transparent
    assert result.facts.mode == "RGBA"


def test_an_opaque_alpha_channel_changes_no_hash(photo):
    plain, opaque = decoded(encode(photo, "PNG")), decoded(encode(with_alpha(photo, 255), "PNG"))
    assert not opaque.facts.transparent
    assert opaque.blake3 == plain.blake3
    assert opaque.md5_native != plain.md5_native  # as published: the native bytes


def test_images_that_differ_in_alpha_alone_hash_differently(photo):
    hashes = {decoded(encode(with_alpha(photo, alpha), "PNG")).blake3 for alpha in (255, 254, 7)}
    assert len(hashes) == 3


def transparent_files(photo):
    palette = photo.quantize(16)
    yield "a palette with one transparent colour", encode(palette, "PNG", transparency=3), palette
    opacity = bytes(range(0, 256, 16))
    yield "a palette with an opacity for each colour", encode(palette, "PNG", transparency=opacity), palette
    yield "a colour key", encode(photo, "PNG", transparency=(0, 0, 0)), photo
    gray = photo.convert("L")
    yield "a gray key", encode(gray, "PNG", transparency=gray.getpixel((0, 0))), gray
    gray_alpha = with_alpha(photo, 9).convert("LA")
    yield "gray and alpha", encode(gray_alpha, "PNG"), gray_alpha
    yield "a GIF", encode(palette, "GIF", transparency=3), palette


def test_every_kind_of_transparency_is_seen_and_leaves_the_colours(photo):
    for kind, data, image in transparent_files(photo):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = decoded(data)
        assert result.facts.transparent, kind
        assert np.array_equal(result.rgb, np.asarray(image.convert("RGB"))), kind


# --- frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["GIF", "TIFF", "PNG", "WEBP"])
def test_the_first_frame_is_used_and_all_are_counted(fmt):
    frames = [Image.new("RGB", (9, 7), color) for color in ("red", "lime", "blue")]
    options = {"lossless": True} if fmt == "WEBP" else {}
    result = decoded(encode(frames[0], fmt, save_all=True, append_images=frames[1:], **options))
    assert result.facts.frames == 3
    assert (result.rgb == [255, 0, 0]).all()
    assert decoded(encode(frames[0], fmt, **options)).facts.frames == 1


def test_broken_later_frames_do_not_matter():
    frames = [Image.effect_noise((64, 64), 90 + i) for i in range(3)]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    result = decoded(data[: len(data) // 2])
    assert result.facts.frames >= 1
    assert result.md5_native == decoded(data).md5_native


# --- hashes --------------------------------------------------------------------------------------


def test_the_shape_is_part_of_the_content_hash_but_not_of_the_published_one():
    wide = decoded(encode(Image.new("L", (200, 100)), "PNG"))
    tall = decoded(encode(Image.new("L", (100, 200)), "PNG"))
    assert wide.md5_native == tall.md5_native
    assert wide.blake3 != tall.blake3


def test_a_lossless_copy_in_another_format_has_the_same_content_hash(photo):
    files = [encode(photo, fmt) for fmt in ("PNG", "BMP", "TIFF", "PPM", "TGA")]
    assert len({decoded(file).blake3 for file in files}) == 1


def test_md5_is_that_of_the_image_as_the_datasets_library_decodes_it(photo):
    from datasets import Image as ImageFeature

    files = [encode(photo.convert(mode), "TIFF") for mode in ("1", "L", "RGB", "RGBA", "CMYK", "F", "I")]
    files += [oriented(photo, orientation, "TIFF") for orientation in range(1, 9)]
    files += [oriented(photo, orientation) for orientation in range(1, 9)]
    files += [oriented(photo.quantize(8), 6, "PNG"), encode(photo.convert("CMYK"), "JPEG")]
    files += [data for _, data, _ in transparent_files(photo)]
    feature = ImageFeature()
    for file in files:
        image = feature.decode_example({"bytes": file, "path": None})
        assert decoded(file).md5_native == hashlib.md5(image.tobytes()).hexdigest()


# Pixel hashes of the two photographs that scikit-learn ships, measured with other code.
@pytest.mark.parametrize(
    ("name", "expected"),
    [("china.jpg", "81aa95e2b220ce2959edcc5bd7a7a8e4"), ("flower.jpg", "350830d869026f10813e782130de4d00")],
)
def test_md5_of_photographs_is_the_known_one(name, expected):
    from importlib.resources import files

    result = decoded((files("sklearn.datasets") / "images" / name).read_bytes())
    assert result.rgb.shape == (427, 640, 3)
    assert result.md5_native == expected


# --- files that give nothing ---------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP", "PPM"])
def test_truncated_files_fail_with_a_reason(photo, fmt, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)  # as some libraries set it
    data = encode(photo.resize((300, 200)), fmt)
    assert reason(data[: len(data) // 2])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_reasons_name_what_is_wrong_and_are_the_same_every_time(tmp_path):
    assert reason(b"") == "the file is empty"
    assert reason(b"no image at all") == reason(b"no image at all") == "not an image in a format that Pillow knows"
    assert reason(tmp_path / "gone.jpg") == "No such file or directory"
    assert "Is a directory" in reason(tmp_path)
    assert "EPS" in reason(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("seed", range(5))
def test_no_damage_to_a_file_raises(photo, seed):
    rng = np.random.default_rng(seed)
    for fmt in ("JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP", "JPEG2000"):
        data = bytearray(oriented(photo, 6, fmt) if fmt in ("JPEG", "PNG", "TIFF", "WEBP") else encode(photo, fmt))
        for _ in range(20):
            damaged = bytearray(data)
            for place in rng.integers(0, len(data), 12):
                damaged[place] = rng.integers(0, 256)
            result = decode_image(bytes(damaged), LIMIT)
            if isinstance(result, DecodedImage):
                assert len(result.blake3) == 64
                assert to_square_256(result.image).shape == (256, 256, 3)


def bomb(width, height):
    return png(width, height, 8, 0, b"\0")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused_by_their_header_whatever_pillow_thinks(monkeypatch):
    assert reason(bomb(1001, 1000)) == "1001000 pixels, above the limit max_image_pixels = 1000000"
    assert reason(bomb(60_000, 60_000)) == "3600000000 pixels, above the limit max_image_pixels = 1000000"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # far below: must not interfere
    assert decoded(encode(Image.new("L", (1000, 1000)), "TIFF")).rgb.shape == (1000, 1000, 3)
    assert Image.MAX_IMAGE_PIXELS == 10


def test_an_icon_may_not_hide_a_larger_image():
    inner = encode(Image.new("RGB", (2000, 2000)), "PNG")
    header = struct.pack("<HHH", 0, 1, 1) + struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inner), 22)
    assert "above the limit" in reason(header + inner)


def test_paths_may_hold_any_characters(photo, tmp_path):
    path = tmp_path / "été 🍃 叶.png"
    path.write_bytes(encode(photo, "PNG"))
    result = decoded(path)
    assert result.facts.bytes == path.stat().st_size
    assert result.facts.format == "PNG"
    assert np.array_equal(np.asarray(decode_rgb(path, LIMIT)), np.asarray(photo))


def test_decode_rgb_names_the_file_that_fails(tmp_path):
    path = tmp_path / "broken.jpg"
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"broken\.jpg cannot be decoded: not an image"):
        decode_rgb(path, LIMIT)


# --- squares -------------------------------------------------------------------------------------


def reference_square(image):
    """The same by the image processor that published embeddings were made with."""
    from transformers import BitImageProcessorPil

    processor = BitImageProcessorPil(
        size={"shortest_edge": 256},
        crop_size={"height": 256, "width": 256},
        resample=Image.Resampling.BICUBIC,
        do_rescale=False,
        do_normalize=False,
    )
    return np.asarray(processor(image, return_tensors="np")["pixel_values"][0]).transpose(1, 2, 0)


@pytest.mark.parametrize(
    "size", [(256, 256), (400, 300), (300, 401), (1000, 333), (257, 256), (90, 61), (31, 500)]
)
def test_squares_equal_those_of_the_transformers_image_processor(photo, size):
    image = photo.resize(size, Image.Resampling.BICUBIC)
    square = to_square_256(image)
    assert square.dtype == np.uint8
    assert np.array_equal(square, reference_square(image))


def test_a_very_long_strip_keeps_its_centre_without_being_resized_whole():
    strip = np.zeros((1, 300_000, 3), np.uint8)
    strip[:, 150_000:] = 255
    square = to_square_256(Image.fromarray(strip))
    assert square[:, 0].max() < 10
    assert square[:, -1].min() > 245


# --- Pillow's global state -----------------------------------------------------------------------


def test_threads_that_decode_together_leave_pillow_as_it_was(photo):
    before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    file, limits = encode(photo, "PNG"), [LIMIT + i % 3 for i in range(60)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda limit: decode_image(file, limit), limits))
    assert all(isinstance(result, DecodedImage) for result in results)
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
