import json
import statistics

import numpy as np
import polars as pl
import pytest

from agml_assets.quality.resolution_consistency import resolution_consistency


def sized(index, widths, heights, **columns):
    n = len(widths)
    return index(
        [0] * n,
        ["a"],
        width=pl.Series(widths, dtype=pl.Int32),
        height=pl.Series(heights, dtype=pl.Int32),
        **columns,
    )


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_those_of_the_statistics_module(seed, index):
    rng = np.random.default_rng(seed)
    widths = rng.integers(20, 6000, 300).tolist()
    heights = rng.integers(20, 6000, 300).tolist()
    result = resolution_consistency(image_index=sized(index, widths, heights))
    aspects = [w / h for w, h in zip(widths, heights, strict=True)]
    areas = [w * h for w, h in zip(widths, heights, strict=True)]
    for key, values in (("width", widths), ("height", heights), ("aspect_ratio", aspects)):
        assert result[key] == {
            "mean": round(statistics.mean(values), 2),
            "std": round(statistics.stdev(values), 2),
            "min": min(values),
            "max": max(values),
        }
    assert result["area_cv"] == round(statistics.stdev(areas) / statistics.mean(areas), 4)


def test_a_whole_mean_of_whole_numbers_is_written_as_an_integer(index):
    result = resolution_consistency(image_index=sized(index, [224, 224], [200, 300]))
    assert json.dumps(result["width"]) == '{"mean": 224, "std": 0.0, "min": 224, "max": 224}'
    assert json.dumps(result["height"]["mean"]) == "250"
    result = resolution_consistency(image_index=sized(index, [224, 225], [224, 225]))
    assert json.dumps(result["width"]["mean"]) == "224.5"
    assert json.dumps(result["aspect_ratio"]) == '{"mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0}'


def test_one_image_has_no_spread(index):
    result = resolution_consistency(image_index=sized(index, [30], [40]))
    assert result["width"] == {"mean": 30, "std": 0.0, "min": 30, "max": 30}
    assert result["area_cv"] == 0.0


def test_photos_that_exif_rotates_are_upright_beside_the_published_header_sizes(index):
    result = resolution_consistency(
        image_index=sized(
            index, [400, 400, 400], [300, 300, 300], exif_orientation=pl.Series([1, 6, 3], dtype=pl.Int32)
        )
    )
    assert result["width"]["mean"] == 400
    assert result["upright"]["width"] == {"mean": 366.67, "std": 57.74, "min": 300, "max": 400}
    assert result["upright"]["aspect_ratio"]["min"] == 0.75
    assert result["rotated_images"] == 1
    assert result["area_cv"] == 0.0


def test_modes_are_listed_as_first_seen_and_oddities_are_counted(index):
    result = resolution_consistency(
        image_index=sized(
            index,
            [10] * 4,
            [10] * 4,
            mode=["RGB", "L", "RGBA", "L"],
            format=["JPEG", "PNG", None, "PNG"],
            transparent=[False, False, True, False],
            frames=pl.Series([1, 1, 1, 7], dtype=pl.Int32),
        )
    )
    assert list(result["mode_distribution"].items()) == [("RGB", 1), ("L", 2), ("RGBA", 1)]
    assert result["format_distribution"] == {"JPEG": 1, "PNG": 2, "unknown": 1}
    assert result["transparent_images"] == 1
    assert result["multi_frame_images"] == 1


def test_file_sizes_are_described_where_known(index):
    sizes = pl.Series([100, None, 200], dtype=pl.Int64)
    result = resolution_consistency(image_index=sized(index, [10] * 3, [10] * 3, bytes=sizes))
    assert result["file_bytes"] == {"mean": 150, "std": 70.71, "min": 100, "max": 200}
    unknown = pl.Series([None] * 3, dtype=pl.Int64)
    result = resolution_consistency(image_index=sized(index, [10] * 3, [10] * 3, bytes=unknown))
    assert result["file_bytes"] is None


def test_areas_of_large_images_do_not_overflow(index):
    result = resolution_consistency(image_index=sized(index, [60_000, 60_000], [50_000, 50_000]))
    assert result["area_cv"] == 0.0


def test_no_usable_image_is_skipped(index):
    images = sized(index, [10], [10]).with_columns(row=pl.lit(None, dtype=pl.Int64))
    assert resolution_consistency(image_index=images)["skipped"] is True
