"""The small picture of points."""

import numpy as np
import pytest

from agml_assets.embeddings.scatter import draw_scatter


def colours(image):
    return {colour for _, colour in image.getcolors(maxcolors=100_000)} - {(255, 255, 255)}


@pytest.mark.parametrize("points", [[[0, 0]], [[1, 2], [1, 2]], [[0, 5], [0, 7]]])
def test_one_point_identical_points_and_a_line_are_drawn(points):
    image = draw_scatter(np.array(points, dtype=float), np.zeros(len(points), dtype=int))
    assert len(colours(image)) == 1


def test_each_class_has_its_colour_wherever_its_points_lie():
    corners = np.array([[0, 0], [0, 9], [9, 0]], dtype=float)
    image = draw_scatter(corners, np.array([3, 1, 7]))
    assert len(colours(image)) == 3
    assert len({image.getpixel(place) for place in ((16, 16), (16, 464), (464, 16))}) == 3


def test_with_many_classes_the_largest_are_coloured_and_the_rest_grey():
    labels = np.concatenate([np.arange(12), np.arange(4, 12)])
    points = np.stack([np.arange(20), np.arange(20)], axis=1).astype(float)
    image = draw_scatter(points, labels)
    assert len(colours(image)) == 9
    assert image.getpixel((16, 16)) == (0x9A, 0x9A, 0x9A)
