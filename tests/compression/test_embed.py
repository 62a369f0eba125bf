"""Images become submissions by a real packaged model; satellite images by their true colours."""

import numpy as np
import polars as pl
import pytest
from PIL import Image

from agml_assets.compression.embed import (
    embed_photographs,
    embed_satellite_images,
    true_colour,
    write_submission,
)
from agml_assets.compression.satellite_images import MODALITIES, find_satellite_images
from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import BackboneEncoder
from agml_assets.registry.models import load_models

from .test_satellite_images import draw, write_archive


@pytest.fixture(scope="module")
def encoder():
    encoder = BackboneEncoder(load_models().get("efficientnet_lite0"))
    yield encoder
    encoder.close()


def paint(file, colour):
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(0, 60, (64, 80, 3))
    Image.fromarray((noise + colour).astype(np.uint8)).save(file)


def test_photographs_are_named_by_their_paths_and_equal_ones_have_equal_vectors(tmp_path, encoder):
    paint(tmp_path / "b" / "1.png", (150, 20, 20))
    paint(tmp_path / "a" / "2.PNG", (150, 20, 20))
    paint(tmp_path / "c.png", (20, 150, 20))
    paint(tmp_path / ".hidden" / "d.png", (0, 0, 0))
    (tmp_path / "notes.txt").write_text("no image")
    ids, vectors = embed_photographs(tmp_path, encoder, 10**7)
    assert ids == ("a/2.PNG", "b/1.png", "c.png")
    assert vectors.shape == (3, 1280)
    assert np.array_equal(vectors[0], vectors[1])
    assert np.abs(vectors[0] - vectors[2]).max() > 0.1


def test_a_folder_without_images_is_told(tmp_path, encoder):
    with pytest.raises(UserError, match="no image file"):
        embed_photographs(tmp_path, encoder, 10**7)


def test_true_colours_are_red_green_blue_of_the_bands_4_3_2(tmp_path):
    bands = np.zeros((1, 4, 12, 4, 4), np.int16)
    names = MODALITIES["s2l2a"].bands
    bands[:, :, names.index("B04")] = 3000
    bands[:, :, names.index("B03")] = 1500
    bands[:, :, names.index("B02")] = -200
    write_archive(tmp_path / "s2l2a" / "0" / "a.zarr.zip", bands)
    for shift in (True, False):
        images = find_satellite_images(tmp_path, ["s2l2a"], shift=shift)
        colours = true_colour(images, "a", "s2l2a")
        assert colours.shape == (4, 4, 4, 3)
        assert colours.reshape(-1, 3).tolist() == [[255, 128, 0]] * 64


def test_a_location_is_the_mean_of_its_seasons(tmp_path, encoder):
    write_archive(tmp_path / "s2l2a" / "0" / "a.zarr.zip", draw("s2l2a", np.random.default_rng(3)))
    ids, both = embed_satellite_images(tmp_path, encoder, seasons=(0, 2))
    each = [embed_satellite_images(tmp_path, encoder, seasons=(season,))[1] for season in (0, 2)]
    assert ids == ("a",)
    np.testing.assert_allclose(both, np.mean(each, axis=0), atol=1e-5)
    assert np.abs(each[0] - each[1]).max() > 1e-3


def test_radar_has_no_colours(tmp_path, encoder):
    with pytest.raises(UserError, match="no true colours"):
        embed_satellite_images(tmp_path, encoder, modality="s1")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_submission_reads_back_as_it_was(tmp_path, ending):
    vectors = np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32)
    file = write_submission(tmp_path / f"made.{ending}", ["x", "y", "001"], vectors)
    frame = pl.read_csv(file, schema_overrides={"id": pl.String}) if ending == "csv" else pl.read_parquet(file)
    assert frame.columns == ["id", *(str(i) for i in range(12))]
    assert frame["id"].to_list() == ["x", "y", "001"]
    assert np.array_equal(frame.drop("id").to_numpy().astype(np.float32), vectors)
    assert list(tmp_path.iterdir()) == [file]


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"\.csv or \.parquet"):
        write_submission(tmp_path / "made.npy", ["x"], np.zeros((1, 2), np.float32))
