"""Archives as zarr 2 wrote them, made here in that format; the averaging baseline against SciPy's zoom."""

import json
import pickle
from zipfile import ZipFile

import numpy as np
import pytest
import zarr
from numcodecs import LZ4, Blosc, Zlib, Zstd
from scipy.ndimage import zoom
from zarr.storage import ZipStore

from agml_assets.compression.averaging import average_location, average_locations, sample_corners
from agml_assets.compression.embed import embed_satellite_images
from agml_assets.compression.satellite_images import MODALITIES, find_satellite_images
from agml_assets.errors import UserError

SIDE = 24


def write_archive(file, bands, attributes=(), name="bands", **codecs):
    file.parent.mkdir(parents=True, exist_ok=True)
    with ZipStore(file, mode="w") as store:
        group = zarr.open_group(store, mode="w", zarr_format=2)
        chunks = (1, 1, *bands.shape[2:])
        array = group.create_array(name, shape=bands.shape, dtype=bands.dtype, chunks=chunks, **codecs)
        array[:] = bands
        array.attrs.update(dict(attributes))


def draw(name, rng):
    bands = len(MODALITIES[name].bands)
    if name == "s1":
        return rng.normal(-15, 5, (1, 4, bands, SIDE, SIDE)).astype(np.float16)
    return rng.integers(0, 8000, (1, 4, bands, SIDE, SIDE)).astype(np.int16)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in MODALITIES:
        for part, location in (("000", "abc"), ("001", "abd")):
            write_archive(tmp_path / name / part / f"{location}.zarr.zip", draw(name, rng))
    return tmp_path


def raw(folder, name, location):
    (file,) = (folder / name).glob(f"*/{location}.zarr.zip")
    return np.asarray(zarr.open_group(ZipStore(file, mode="r"), mode="r")["bands"])[0]


def test_locations_are_sorted_and_read_in_all_modalities(folder):
    images = find_satellite_images(folder, ["s2l1c", "s1"])
    assert images.ids == ("abc", "abd")
    bands = images.read("abd")
    assert list(bands) == ["s2l1c", "s1"]
    assert np.array_equal(bands["s2l1c"], raw(folder, "s2l1c", "abd").astype(np.float32) + 1000)
    assert np.array_equal(bands["s1"], raw(folder, "s1", "abd").astype(np.float32))


def test_seasons_come_in_the_order_asked_for_and_the_shift_can_be_left_out(folder):
    images = find_satellite_images(folder, ["s2l2a"], [3, 1], shift=False)
    assert np.array_equal(images.read("abc")["s2l2a"], raw(folder, "s2l2a", "abc")[[3, 1]])


def test_scale_and_offset_of_an_archive_are_applied(tmp_path):
    bands = np.full((1, 4, 2, 4, 4), 50, np.int16)
    write_archive(tmp_path / "s1" / "0" / "a.zarr.zip", bands, {"scale_factor": 0.5, "add_offset": -40.0}.items())
    assert (find_satellite_images(tmp_path, ["s1"]).read("a")["s1"] == -15).all()


def test_the_baseline_is_that_of_scipys_zoom(folder):
    bands = find_satellite_images(folder, list(MODALITIES)).read("abc")
    normal = {}
    for name, modality in MODALITIES.items():
        each = zip(bands[name].swapaxes(0, 1).astype(float), modality.means, modality.deviations, strict=True)
        normal[name] = np.stack([(band - mean) / deviation for band, mean, deviation in each], axis=1)
    small = {name: zoom(image, (1, 1, 8 / SIDE, 8 / SIDE), order=1) for name, image in normal.items()}
    expected = np.empty((4, 4, 8, 8))
    for season in range(4):
        first, second, radar = (small[name][season] for name in ("s2l1c", "s2l2a", "s1"))
        expected[season, 0] = np.mean([*first[:9], *second[:9]], axis=0)
        expected[season, 1] = first[9]
        expected[season, 2] = np.mean([first[10], first[11], first[12], second[10], second[11]], axis=0)
        expected[season, 3] = radar.mean(axis=0)
    vector, unfit = average_location(bands)
    assert vector.shape == (1024,)
    assert unfit == 0
    np.testing.assert_allclose(vector, expected.ravel(), atol=2e-5)


def test_pixels_that_are_not_finite_count_as_their_bands_mean_and_are_counted(folder):
    images = find_satellite_images(folder, list(MODALITIES))
    bands = images.read("abc")
    bands["s1"][:] = np.nan
    vector, unfit = average_location(bands)
    assert unfit == 4 * 2 * SIDE * SIDE
    assert (vector.reshape(4, 4, 64)[:, 3] == 0).all()
    vectors, by_location = average_locations(images)
    assert vectors.shape == (2, 1024)
    assert by_location == {}


def test_pixels_that_are_not_finite_are_told_where_a_folder_is_embedded(folder, monkeypatch, caplog):
    monkeypatch.setattr(
        "agml_assets.compression.embed.average_locations", lambda _: (np.zeros((2, 4)), {"abd": 7})
    )
    embed_satellite_images(folder, None)
    assert "7 pixels of 1 of 2 locations are no finite numbers" in caplog.text
    assert "abd" in caplog.text


def test_a_single_pixel_is_everywhere():
    assert (sample_corners(np.full((1, 1), 3.0), 8) == 3).all()


def test_a_location_without_a_modality_is_named(folder):
    next((folder / "s1").glob("*/abd.zarr.zip")).unlink()
    with pytest.raises(UserError, match=r"1 locations have no archive in .*s1.*abd"):
        find_satellite_images(folder, ["s2l1c", "s1"])


@pytest.mark.parametrize(
    ("modalities", "seasons", "told"),
    [
        ([], range(4), "no modality"),
        (["s3"], range(4), "no modality s3"),
        (["s1"], [4], "some of 0 to 3"),
        (["s1"], [], "some of 0 to 3"),
        (["s1"], [1, 1], "each once"),
    ],
)
def test_what_cannot_be_read_is_said(folder, modalities, seasons, told):
    with pytest.raises(UserError, match=told):
        find_satellite_images(folder, modalities, seasons)


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(UserError, match="no archive"):
        find_satellite_images(tmp_path, ["s1"])


def test_two_archives_of_a_location_are_told(folder):
    write_archive(folder / "s1" / "999" / "abc.zarr.zip", draw("s1", np.random.default_rng(1)))
    with pytest.raises(UserError, match="two archives"):
        find_satellite_images(folder, ["s1"])


@pytest.mark.parametrize("damage", ["no zip", "other array", "other shape"])
def test_a_damaged_archive_is_named(tmp_path, damage):
    file = tmp_path / "s1" / "0" / "a.zarr.zip"
    shape = (1, 4, 3, 4, 4) if damage == "other shape" else (1, 4, 2, 4, 4)
    write_archive(file, np.zeros(shape, np.int16), name="mask" if damage == "other array" else "bands")
    if damage == "no zip":
        file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UserError, match=r"a\.zarr\.zip"):
        find_satellite_images(tmp_path, ["s1"]).read("a")


class Malicious:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return open, (str(self.file), "w")


@pytest.mark.parametrize("filters", [[{"id": "pickle"}], [{"id": "pickle"}, {"id": "delta", "dtype": "<i2"}]])
@pytest.mark.parametrize("dtype", ["<i2", "|O"])
def test_nothing_of_an_archive_is_unpickled(tmp_path, filters, dtype):
    file, written = tmp_path / "s1" / "0" / "a.zarr.zip", tmp_path / "written"
    file.parent.mkdir(parents=True)
    shape = [1, 4, 2, 4, 4]
    array = {"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype, "fill_value": 0, "order": "C"}
    with ZipFile(file, "w") as archive:
        archive.writestr(".zgroup", json.dumps({"zarr_format": 2}))
        archive.writestr("bands/.zarray", json.dumps(array | {"compressor": None, "filters": filters}))
        archive.writestr("bands/0.0.0.0.0", pickle.dumps(Malicious(written)))
    with pytest.raises(UserError, match=r"a\.zarr\.zip"):
        find_satellite_images(tmp_path, ["s1"]).read("a")
    assert not written.exists()


@pytest.mark.parametrize("codec", [Zstd(), Zlib(), LZ4(), Blosc()])
def test_usual_codecs_are_read(tmp_path, codec):
    bands = draw("s1", np.random.default_rng(2))
    write_archive(tmp_path / "s1" / "0" / "a.zarr.zip", bands, compressors=codec)
    assert np.array_equal(find_satellite_images(tmp_path, ["s1"]).read("a")["s1"], bands[0].astype(np.float32))
