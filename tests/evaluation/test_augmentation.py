"""Variations of training images: within the recipe's limits, and as torchvision documents them."""

import colorsys

import numpy as np
import pytest
from PIL import Image

from agml_assets.evaluation.augmentation import random_crop, squash, turn_hue, vary
from tests.evaluation.backbones.tiny_models import photograph


@pytest.mark.parametrize("size", [(300, 300), (320, 240), (200, 260)])
def test_crops_hold_80_to_100_percent_within_4_to_3(size):
    random = np.random.default_rng(0)
    crops = np.array([random_crop(*size, random) for _ in range(2000)])
    left, top, wide, high = crops.T
    assert (left >= 0).all() and (top >= 0).all()
    assert (left + wide <= size[0]).all() and (top + high <= size[1]).all()
    shares, ratios = wide * high / (size[0] * size[1]), wide / high
    assert shares.min() > 0.79 and shares.max() <= 1.0
    assert ratios.min() > 0.74 and ratios.max() < 1.35
    assert shares.max() - shares.min() > 0.15 and len(set(left)) > 20


def test_where_no_crop_fits_the_centre_is_taken():
    # 4:3 of a height of 10 is 13; nothing with 80 % of 100 x 10 is that narrow.
    assert random_crop(100, 10, np.random.default_rng(0)) == (43, 0, 13, 10)
    assert random_crop(10, 100, np.random.default_rng(0)) == (0, 43, 10, 13)


@pytest.mark.parametrize("turns", [-0.02, 0.01, 0.02, 0.25])
def test_hue_turns_as_in_the_standard_library(turns):
    colours = np.array([[200, 40, 40], [40, 180, 60], [30, 60, 210], [180, 170, 20]], np.uint8)
    turned = np.asarray(turn_hue(Image.fromarray(colours[None]), turns))[0]
    for before, after in zip(colours / 255, turned / 255, strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*before)
        expected = colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value)
        np.testing.assert_allclose(after, expected, atol=0.04)


def test_gray_has_no_hue_to_turn():
    gray = Image.new("RGB", (4, 4), (90, 90, 90))
    assert turn_hue(gray, 0.02).tobytes() == gray.tobytes()


def test_variations_are_drawn_from_the_seed_alone():
    image = photograph()
    first, again, other = (vary(image, 32, 32, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.shape == (32, 32, 3) and first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_half_are_flipped_and_colours_stay_within_a_fifth():
    left_dark = np.zeros((64, 64, 3), np.uint8) + np.linspace(60, 180, 64).astype(np.uint8)[None, :, None]
    image = Image.fromarray(left_dark)
    varied = np.array([vary(image, 16, 16, np.random.default_rng(seed)) for seed in range(400)], float)
    flipped = varied[:, :, 0].mean((1, 2)) > varied[:, :, -1].mean((1, 2))
    assert 0.42 < flipped.mean() < 0.58
    brightness = varied.mean((1, 2, 3)) / 120
    assert 0.75 < brightness.min() < 0.88 and 1.12 < brightness.max() < 1.25
    assert abs(brightness.mean() - 1) < 0.02


def test_judged_images_are_squashed_whole():
    image = photograph(size=(320, 200))
    expected = np.asarray(image.resize((24, 24), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(squash(image, 24, 24), expected)
