import colorsys

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageStat
from scipy import ndimage

from agml_assets.dataset.image_statistics import image_statistics


def noise(seed=0, low=0, high=256):
    return np.random.default_rng(seed).integers(low, high, (256, 256, 3)).astype(np.uint8)


def scene(seed=0):
    """Blobs of colour of all sizes, with soft and hard edges."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3)).astype(np.uint8)).resize((256, 256), Image.BICUBIC)
    picture = np.array(coarse)
    picture[60:150, 90:200] = rng.integers(0, 256, 3)
    return picture


def plain(red, green, blue):
    return np.full((256, 256, 3), (red, green, blue), dtype=np.uint8)


IMAGES = np.stack([noise(), noise(1, 100, 140), scene(), scene(1), plain(200, 30, 90), plain(0, 0, 0)])


@pytest.fixture(scope="module")
def measured():
    return image_statistics(IMAGES)


def grey(picture):
    return np.asarray(Image.fromarray(picture).convert("L"))


def test_every_image_has_a_row_in_order(measured):
    assert measured["row"].to_list() == list(range(len(IMAGES)))
    assert measured.drop("sharpness").null_count().sum_horizontal().item() == 0


def test_brightness_is_that_of_the_formula_in_floating_point(measured):
    for picture, row in zip(IMAGES, measured.iter_rows(named=True), strict=True):
        red, green, blue = np.moveaxis(picture.astype(float), -1, 0)
        brightness = np.sqrt(0.241 * red**2 + 0.691 * green**2 + 0.068 * blue**2) / 255
        assert row["brightness_mean"] == pytest.approx(brightness.mean(), abs=1e-12)
        assert row["brightness_std"] == pytest.approx(brightness.std(), abs=1e-7)
        for percentile in (1, 5, 95, 99):
            expected = np.percentile(brightness, percentile)
            assert row[f"brightness_p{percentile}"] == pytest.approx(expected, abs=1e-12)


def test_channel_means_are_pillows(measured):
    for picture, row in zip(IMAGES, measured.iter_rows(named=True), strict=True):
        means = np.array(ImageStat.Stat(Image.fromarray(picture)).mean) / 255
        assert [row["red_mean"], row["green_mean"], row["blue_mean"]] == pytest.approx(means.tolist(), abs=1e-12)


def test_laplacian_variance_is_scipys_of_the_inner_pixels(measured):
    for picture, value in zip(IMAGES, measured["laplacian_variance"], strict=True):
        assert value == pytest.approx(ndimage.laplace(grey(picture).astype(float))[1:-1, 1:-1].var(), rel=1e-12)


def test_sharpness_is_an_edge_filter_over_contrast_at_half_the_size(measured):
    kernel = -np.ones((3, 3))
    kernel[1, 1] = 8
    for picture, value in zip(IMAGES[:4], measured["sharpness"], strict=False):
        half = grey(picture).astype(float).reshape(128, 2, 128, 2).mean(axis=(1, 3))
        edges = ndimage.convolve(half, kernel)[1:-1, 1:-1]
        assert value == pytest.approx(edges.std() / half.std(), rel=1e-12)


def test_a_plain_picture_has_no_sharpness_no_contrast_and_no_information(measured):
    for row in (4, 5):
        assert measured["sharpness"][row] is None
        assert measured["laplacian_variance"][row] == measured["entropy"][row] == 0
        assert measured["brightness_std"][row] == pytest.approx(0, abs=1e-7)


def test_blur_lowers_sharpness_whatever_the_contrast():
    sharp = Image.fromarray(scene())
    faint = Image.fromarray((np.array(sharp) // 4 + 96).astype(np.uint8))
    for picture in (sharp, faint):
        stack = [np.array(picture.filter(ImageFilter.GaussianBlur(radius))) for radius in (0, 2, 4, 8)]
        values = image_statistics(np.stack(stack))["sharpness"].to_list()
        assert values == sorted(values, reverse=True)
    both = image_statistics(np.stack([np.array(sharp), np.array(faint)]))
    assert both["sharpness"][0] == pytest.approx(both["sharpness"][1], rel=0.1)
    assert both["laplacian_variance"][0] > 10 * both["laplacian_variance"][1]


def test_entropy_is_pillows_of_the_grey_levels(measured):
    for picture, value in zip(IMAGES, measured["entropy"], strict=True):
        assert value == pytest.approx(Image.fromarray(grey(picture)).entropy(), abs=1e-6)


def test_saturation_is_that_of_hsv(measured):
    for picture, value in zip(IMAGES[2:], measured["saturation_mean"][2:], strict=True):
        sample = picture[::16, ::16].reshape(-1, 3) / 255
        part = np.repeat(np.repeat(picture[::16, ::16], 16, axis=0), 16, axis=1)
        expected = np.mean([colorsys.rgb_to_hsv(*pixel)[1] for pixel in sample])
        assert image_statistics(part[None])["saturation_mean"][0] == pytest.approx(expected, abs=1e-7)
        pillow = np.asarray(Image.fromarray(picture).convert("HSV"))[..., 1].mean() / 255
        assert value == pytest.approx(pillow, abs=1 / 255)


def test_colourfulness_is_that_of_the_formula(measured):
    for picture, value in zip(IMAGES, measured["colourfulness"], strict=True):
        red, green, blue = np.moveaxis(picture.astype(float), -1, 0)
        rg, yb = red - green, (red + green) / 2 - blue
        expected = np.hypot(rg.std(), yb.std()) + 0.3 * np.hypot(rg.mean(), yb.mean())
        assert value == pytest.approx(expected, abs=1e-4)


def test_grey_pictures_stay_grey_through_jpeg_and_coloured_ones_do_not_become_grey(tmp_path):
    lone = np.asarray(Image.fromarray(scene()).convert("L").convert("RGB"))
    Image.fromarray(lone).save(tmp_path / "grey.jpg", quality=60)
    stored = np.asarray(Image.open(tmp_path / "grey.jpg").convert("RGB"))
    spot = lone.copy()
    spot[100:110, 100:110] = (200, 60, 60)
    measured = image_statistics(np.stack([lone, stored, spot, scene()]))
    assert measured["is_grey"].to_list() == [True, True, False, False]
    assert measured["channel_difference"][0] == 0
    assert measured["channel_difference"][2] == 140


def test_many_images_are_measured_as_each_alone_and_progress_is_told():
    pixels = np.concatenate([IMAGES] * 13)  # more than one block
    calls = []
    measured = image_statistics(pixels, lambda done, total: calls.append((done, total)))
    for row in (0, 65, 77):
        alone = image_statistics(pixels[row : row + 1]).row(0)
        assert measured.row(row)[1:] == alone[1:]
    assert calls == [(64, 78), (78, 78)]


def test_no_images_give_no_rows():
    measured = image_statistics(np.empty((0, 256, 256, 3), dtype=np.uint8))
    assert measured.height == 0
    assert measured.schema == image_statistics(IMAGES[:1]).schema


@pytest.mark.parametrize("pixels", [np.zeros((2, 64, 64, 3), np.uint8), np.zeros((2, 256, 256, 3), np.float32)])
def test_other_shapes_and_types_are_refused(pixels):
    with pytest.raises(ValueError, match="uint8"):
        image_statistics(pixels)
