"""The 27 published reports: whatever is a function of other published values, recomputed by our metrics.

Inputs are rebuilt from a report (as many images of each class as it counts, groups of the sizes it
implies ...) and handed to the metric; the report's own keys must come back equal, in order and type.
"""

import json
from itertools import zip_longest
from math import asin, cos, sin
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from agml_assets.quality.class_imbalance import class_imbalance
from agml_assets.quality.exact_duplicate import exact_duplicate
from agml_assets.quality.feature_separability import interpret_davies_bouldin, interpret_silhouette
from agml_assets.quality.intra_class_diversity import intra_class_diversity
from agml_assets.quality.invariants import check_invariants
from agml_assets.quality.metadata_coverage import metadata_coverage
from agml_assets.quality.near_duplicate import near_duplicate
from agml_assets.quality.resolution_consistency import resolution_consistency
from agml_assets.settings import Settings

N_REPORTS = 27
SETTINGS = Settings()


@pytest.fixture(scope="module")
def reports(conformance):
    published = json.loads((conformance / "agml_site" / "results.json").read_text())
    assert len(published) == N_REPORTS
    return {name: report["metrics"] for name, report in published.items()}


def image_index(labels, names, **columns):
    n = len(labels)
    return pl.DataFrame(
        {
            "source_row": pl.Series(range(n), dtype=pl.Int64),
            "row": pl.Series(range(n), dtype=pl.Int64),
            "label": pl.Series(list(labels), dtype=pl.Int64),
            "class_name": pl.Series([names[label] for label in labels], dtype=pl.Enum(names)),
            **columns,
        }
    )


def splits(values):
    return pl.DataFrame(
        {
            "row": pl.Series(range(len(values)), dtype=pl.Int64),
            "hf": pl.Series(list(values), dtype=pl.String),
            "native": pl.Series([None] * len(values), dtype=pl.String),
        }
    )


def assert_published_first(ours, published):
    """The published keys lead, in their order, with equal values of the same JSON type and key order."""
    leading = {key: ours[key] for key in list(ours)[: len(published)]}
    assert json.dumps(leading) == json.dumps(published)
    assert json.loads(json.dumps(ours, allow_nan=False)) == ours


def test_class_imbalance(reports):
    for metrics in reports.values():
        published = metrics["class_imbalance"]
        names = list(metrics["feature_separability"]["per_class_silhouette"])
        labels = [names.index(name) for name, count in published["counts"].items() for _ in range(count)]
        ours = class_imbalance(
            image_index=image_index(labels, names), splits=splits(["train"] * len(labels)), settings=SETTINGS
        )
        assert_published_first(ours, published)


def test_class_imbalance_of_the_published_splits(conformance, reports):
    files = sorted((conformance / "agml_site" / "umap").glob("*_umap_2[Dd].json"))
    assert len(files) == 12
    for file in files:
        metrics = reports[file.name[: -len("_umap_2D.json")]]
        points = json.loads(file.read_text())
        names = list(metrics["feature_separability"]["per_class_silhouette"])
        ours = class_imbalance(
            image_index=image_index([names.index(point["label"]) for point in points], names),
            splits=splits([point["split"] for point in points]),
            settings=SETTINGS,
        )
        assert_published_first(ours, metrics["class_imbalance"])
        assert ours["total_images"] == metrics["exact_duplicate"]["total_images"]


def rebuild_groups(total, count, n_groups, n_crossing):
    """Return a group of each image and its split, with these many copies, groups and cross-split copies.

    Groups are pairs but for the first crossing and the first other one, which take what is left over.
    """
    crossing_groups = next(
        n
        for n in range(n_groups + 1)
        if (n > 0) == (n_crossing > 0)
        and 2 * n <= n_crossing
        and 2 * (n_groups - n) <= count - n_crossing
        and (n_groups - n > 0) == (count - n_crossing > 0)
    )
    sizes, crosses = [], []
    for images, groups, crossing in (
        (n_crossing, crossing_groups, True),
        (count - n_crossing, n_groups - crossing_groups, False),
    ):
        if groups:
            sizes += [images - 2 * (groups - 1)] + [2] * (groups - 1)
            crosses += [crossing] * groups
    group, split = [], []
    for size, crossing in zip(sizes, crosses, strict=True):
        group += [len(group)] * size
        split += ["train"] * (size - 1) + ["test" if crossing else "train"]
    group += range(len(group), total)
    split += ["val"] * (total - len(split))
    return pl.Series(group, dtype=pl.Int64), split


def test_exact_duplicate(reports):
    for metrics in reports.values():
        published = metrics["exact_duplicate"]
        total = published["total_images"]
        group, split = rebuild_groups(
            total,
            published["exact_duplicate_count"],
            published["duplicate_groups"],
            published["cross_split_duplicates"],
        )
        rows = pl.Series(range(total), dtype=pl.Int64)
        ours = exact_duplicate(
            image_index=image_index([0] * total, ["any"]),
            pixel_hashes=pl.DataFrame({"row": rows, "md5_group": group, "blake3_group": rows}),
            splits=splits(split),
            settings=SETTINGS,
        )
        assert_published_first(ours, published)


def test_near_duplicate(reports):
    for metrics in reports.values():
        published = metrics["near_duplicate"]
        total = published["total_images"]
        group, split = rebuild_groups(
            total,
            published["near_duplicate_count"],
            published["near_duplicate_groups"],
            published["cross_split_near_duplicates"],
        )
        rows = pl.Series(range(total), dtype=pl.Int64)
        ours = near_duplicate(
            image_index=image_index([0] * total, ["any"]),
            splits=splits(split),
            neighbors=SimpleNamespace(
                threshold=0.98, index_type="exact", n_pairs=total, pair_rows=np.empty((0, 2), dtype=np.int64)
            ),
            duplicate_groups=pl.DataFrame({"row": rows, "exact": rows, "near": group, "joined": group}),
            settings=SETTINGS,
        )
        assert_published_first(ours, published)


def sized(sizes):
    """An image index with `count` images of each (width, height)."""
    widths = [width for (width, _), count in sizes.items() for _ in range(count)]
    heights = [height for (_, height), count in sizes.items() for _ in range(count)]
    n = len(widths)
    return image_index(
        [0] * n,
        ["any"],
        width=pl.Series(widths, dtype=pl.Int32),
        height=pl.Series(heights, dtype=pl.Int32),
        mode=["RGB"] * n,
        format=["JPEG"] * n,
        bytes=pl.Series([1] * n, dtype=pl.Int64),
        exif_orientation=pl.Series([1] * n, dtype=pl.Int32),
        frames=pl.Series([1] * n, dtype=pl.Int32),
        transparent=[False] * n,
    )


def test_resolution_consistency_of_datasets_with_one_image_size(reports):
    rebuilt = 0
    for metrics in reports.values():
        published = metrics["resolution_consistency"]
        width, height = published["width"], published["height"]
        if width["min"] == width["max"] and height["min"] == height["max"]:
            images = sized({(width["min"], height["min"]): published["total_images"]})
            assert_published_first(resolution_consistency(image_index=images), published)
            rebuilt += 1
    assert rebuilt == 10


# Two sizes only, as minima, maxima and means show: a photo format in both orientations, and a square and a
# portrait one.
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("agarwood_leaf_disease_classification", {(5472, 3648): 3191, (3648, 5472): 2281}),
        ("watermelon_disease_classification", {(3024, 3024): 1078, (3024, 4032): 77}),
    ],
)
def test_resolution_consistency_of_datasets_with_two_image_sizes(reports, name, sizes):
    ours = resolution_consistency(image_index=sized(sizes))
    assert_published_first(ours, reports[name]["resolution_consistency"])


def test_metadata_coverage(reports):
    measured = 0
    for metrics in reports.values():
        published = metrics["metadata_coverage"]
        if published["skipped"]:
            images = sized({(1, 1): 1})
        else:
            images = with_metadata(published["coverage"])
            measured += 1
        assert_published_first(metadata_coverage(image_index=images), published)
    assert measured == 6


def with_metadata(coverage):
    """Rebuild images from counts by class and value; a column of integers was a class label."""
    seen = list(next(iter(coverage.values())))
    labels, values = [], {column: [] for column in coverage}
    names = sorted(seen)
    for class_name in seen:
        per_column = [
            [value for value, count in coverage[column][class_name].items() for _ in range(count)]
            for column in coverage
        ]
        for row in zip_longest(*per_column):
            labels.append(names.index(class_name))
            for column, value in zip(coverage, row, strict=True):
                values[column].append(value)
    return image_index(labels, names, **{f"meta.{column}": as_column(values[column]) for column in coverage})


def as_column(values):
    if not all(value.isdigit() for value in values):
        return pl.Series(values, dtype=pl.String)
    names = [f"name of {code}" for code in range(1 + max(map(int, values)))]
    return pl.Series([names[int(value)] for value in values], dtype=pl.Enum(names))


def test_separability_is_read_as_published(reports):
    for metrics in reports.values():
        published = metrics["feature_separability"]
        assert interpret_silhouette(published["silhouette_score"]) == published["silhouette_interpretation"]
        assert (
            interpret_davies_bouldin(published["davies_bouldin_index"])
            == published["davies_bouldin_interpretation"]
        )


def test_intra_class_diversity(reports):
    # Two unit vectors at an angle of 2a have their mean on the bisector, at distance sin(a) from both.
    for metrics in reports.values():
        published = metrics["intra_class_diversity"]
        names = list(metrics["feature_separability"]["per_class_silhouette"])
        angles = [asin(published["per_class_diversity"][name]) for name in names]
        ours = intra_class_diversity(
            image_index=image_index([label for label in range(len(names)) for _ in range(2)], names),
            embeddings=np.array([[cos(a), side * sin(a)] for a in angles for side in (1, -1)]),
            labels=np.repeat(np.arange(len(names)), 2),
            duplicate_groups=pl.DataFrame({"row": range(2 * len(names)), "joined": range(2 * len(names))}),
            settings=SETTINGS,
        )
        assert_published_first(ours, published)


def test_the_only_breach_is_the_duplicate_search_that_missed_exact_copies(reports):
    breaches = {name: found for name, metrics in reports.items() if (found := check_invariants(metrics))}
    assert list(breaches) == ["african_plum_grading_classification"]
    assert len(breaches["african_plum_grading_classification"]) == 2
    assert (
        "2886 near-duplicate images, fewer than the 2957 exact"
        in breaches["african_plum_grading_classification"][0]
    )
