"""The compiled loops give the very bytes of Pillow and hashlib, and so do workers that use them."""

import hashlib
import io
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image, ImageFilter

from agml_assets.dataset import decode_pool, pixel_kernels
from agml_assets.dataset.decode import decode_image, decode_plain_jpeg, to_square_256
from agml_assets.dataset.decode_pool import DecodeJob, measure, measure_chunk

LIMIT = 10**8


def photograph(name="china.jpg"):
    return Image.open(io.BytesIO((files("sklearn.datasets") / "images" / name).read_bytes()))


def noise(width, height, seed=0, hard=False):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2, (height, width, 3)) * 255 if hard else rng.integers(0, 256, (height, width, 3))
    return Image.fromarray(values.astype(np.uint8))


def encode(image, fmt="JPEG", **options):
    stream = io.BytesIO()
    image.save(stream, fmt, **options)
    return stream.getvalue()


def assert_same_square(image):
    assert np.array_equal(pixel_kernels.square_256(np.asarray(image)), to_square_256(image))


@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
@pytest.mark.parametrize("size", [(640, 427), (427, 640), (1400, 1050), (1237, 1999), (2000, 1000), (4000, 3000)])
def test_photographs_are_resized_as_pillow_does_to_the_bit(name, size):
    assert_same_square(photograph(name).resize(size))


@pytest.mark.parametrize("seed", range(40))
def test_any_shape_up_to_two_to_one_is_resized_as_pillow_does_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    short = int(rng.integers(100, 900))
    long = int(short * rng.uniform(1, pixel_kernels.MAX_ASPECT))
    width, height = (short, long) if seed % 2 else (long, short)
    assert_same_square(noise(width, height, seed, hard=seed % 4 < 2))


@pytest.mark.parametrize("cell", [1, 5, 16])
def test_checkerboards_are_resized_as_pillow_does_to_the_bit(cell):
    rows, columns = np.mgrid[:613, :811] // cell
    assert_same_square(Image.fromarray(((rows + columns) % 2 * 255).astype(np.uint8)).convert("RGB"))


LENGTHS = [0, 1, 55, 56, 63, 64, 65, 119, 120, 127, 128, 129, 1000, 5000, 77_777, 3]


@pytest.mark.parametrize("count", [1, 5, 6, 15, 16, 17, 37])
def test_messages_hashed_side_by_side_get_the_md5_of_hashlib(count):
    rng = np.random.default_rng(count)
    messages = [rng.integers(0, 256, LENGTHS[i % 16] + i // 16, dtype=np.uint8) for i in range(count)]
    assert pixel_kernels.md5_of_each(messages) == [hashlib.md5(m.tobytes()).hexdigest() for m in messages]


def jobs(hashes=True, square=True):
    """Nineteen files: large photographs with some in between that the loops are not for."""
    turned = Image.Exif()
    turned[0x0112] = 6
    images = [encode(noise(640 + 10 * i, 500, seed=i).convert("RGB")) for i in range(12)]
    images += [
        encode(noise(700, 500, seed=12), exif=turned),
        encode(noise(700, 500, seed=13).convert("L")),
        encode(noise(700, 500, seed=14).convert("RGBA"), "PNG"),
        encode(noise(400, 1300, seed=15)),
        encode(noise(100, 80, seed=16)),
        b"no image",
        encode(noise(700, 500, seed=17).convert("CMYK")),
    ]
    return [DecodeJob(f"{i}.jpg", image, hashes, square) for i, image in enumerate(images)]


@pytest.mark.parametrize("waiting", [2**20, 2**27])
def test_a_worker_measures_what_pillow_and_hashlib_measure(waiting, monkeypatch):
    monkeypatch.setattr(decode_pool, "_WAITING_BYTES", waiting)
    assert decode_pool._kernels() is pixel_kernels
    together = []
    real = pixel_kernels.md5_of_each
    monkeypatch.setattr(pixel_kernels, "md5_of_each", lambda m: together.append(len(m)) or real(m))
    assert measure_chunk(jobs(), LIMIT) == [measure(job, LIMIT) for job in jobs()]
    assert sum(together) == 13
    assert max(together) == (13 if waiting == 2**27 else 2)


@pytest.mark.parametrize(("hashes", "square"), [(True, False), (False, True), (False, False)])
def test_a_worker_measures_only_what_is_asked_for(hashes, square):
    assert measure_chunk(jobs(hashes, square), LIMIT) == [measure(job, LIMIT) for job in jobs(hashes, square)]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_files_that_pillow_judges_differently_are_left_to_it():
    image = noise(900, 700, seed=3).filter(ImageFilter.GaussianBlur(3))
    whole = encode(image)
    assert decode_plain_jpeg(whole, LIMIT) is not None
    turned = Image.Exif()
    turned[0x0112] = 3
    for other in (
        encode(image, exif=turned),
        encode(image.convert("L")),
        encode(image.convert("CMYK")),
        encode(image, "PNG"),
        whole[:-2],
        whole[: len(whole) // 2] + b"\xff\xd9",
        whole[:900] + b"\x00" * 40 + whole[940:],
        b"",
    ):
        assert decode_plain_jpeg(other, LIMIT) is None
        job = DecodeJob("x", other, True, True)
        assert measure_chunk([job], LIMIT) == [measure(job, LIMIT)]
    assert decode_plain_jpeg(whole, 900 * 700 - 1) is None


@pytest.mark.parametrize("seed", range(6))
def test_damaged_jpegs_are_measured_as_pillow_measures_them(seed):
    rng = np.random.default_rng(seed)
    image = noise(700, 500, seed).filter(ImageFilter.GaussianBlur(2))
    options = {"subsampling": ("4:4:4", "4:2:2", "4:2:0")[seed % 3], "progressive": seed % 2 == 0}
    whole = encode(image, quality=int(rng.integers(30, 96)), **options)
    damaged = []
    for _ in range(12):
        file = bytearray(whole)
        for place in rng.integers(0, len(file), rng.integers(1, 6)):
            file[place] = rng.integers(0, 256)
        damaged.append(DecodeJob("x", bytes(file[: rng.integers(len(file) // 2, len(file) + 1)]), True, True))
        damaged.append(DecodeJob("x", bytes(file), True, True))
    assert measure_chunk(damaged, LIMIT) == [measure(job, LIMIT) for job in damaged]


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_plain_jpeg_has_the_pixels_of_pillow_to_the_bit(subsampling, progressive):
    for seed, size in enumerate([(640, 480), (641, 479), (1017, 733)]):
        soft = noise(*size, seed).filter(ImageFilter.GaussianBlur(1))
        # Pure noise is more than Pillow's encoder has room for in progressive files.
        for image in (photograph().resize(size), soft if progressive else noise(*size, seed, hard=True)):
            file = encode(image, subsampling=subsampling, progressive=progressive, quality=60 + 13 * seed)
            plain = decode_plain_jpeg(file, LIMIT)
            assert np.array_equal(plain.rgb, np.asarray(Image.open(io.BytesIO(file))))
            assert plain.facts == decode_image(file, LIMIT).facts


def test_loops_that_give_other_bytes_than_pillow_are_not_used(monkeypatch, caplog):
    monkeypatch.setattr(pixel_kernels, "square_256", lambda pixels: np.zeros((256, 256, 3), np.uint8))
    decode_pool._kernels.cache_clear()
    try:
        assert measure_chunk(jobs(), LIMIT) == [measure(job, LIMIT) for job in jobs()]
        assert "the fast one does not give what Pillow gives" in caplog.text
    finally:
        decode_pool._kernels.cache_clear()


def test_a_worker_loads_no_file_systems_and_its_loops_do_without_scipy():
    code = (
        "import sys, agml_assets.dataset.decode_pool\n"
        "assert not {'fsspec', 'scipy', 'torch', 'upath'} & set(sys.modules)\n"
        "sys.modules['scipy'] = None\n"
        "from agml_assets.dataset.pixel_kernels import agree_with_pillow_and_hashlib\n"
        "assert agree_with_pillow_and_hashlib()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_numba_images_are_decoded_all_the_same(monkeypatch, caplog):
    monkeypatch.setitem(__import__("sys").modules, "agml_assets.dataset.pixel_kernels", None)
    monkeypatch.delattr("agml_assets.dataset.pixel_kernels")
    decode_pool._kernels.cache_clear()
    try:
        assert measure_chunk(jobs(), LIMIT) == [measure(job, LIMIT) for job in jobs()]
        assert "decoded the slow way" in caplog.text
    finally:
        decode_pool._kernels.cache_clear()
