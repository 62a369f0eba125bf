import json

import numpy as np
import polars as pl
import pytest
from PIL import Image, ImageFilter
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestNeighbors

from agml_assets.dataset.image_statistics import image_statistics
from agml_assets.embeddings.neighbors import find_neighbors
from agml_assets.quality.image_health import KINDS, correlate_with_labels, health_issues, image_health

N_CLEAN = 40
SIDE = 256


def scene(seed):
    """A coloured scene with soft and hard edges and some grain, neither dark nor bright."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(20, 236, (10, 10, 3)).astype(np.uint8)
    picture = np.array(Image.fromarray(coarse).resize((SIDE, SIDE), Image.BICUBIC)).astype(int)
    for _ in range(6):
        top, left = rng.integers(0, 200, 2)
        picture[top : top + 50, left : left + 50] = rng.integers(20, 236, 3)
    return np.clip(picture + rng.normal(0, 3, picture.shape), 0, 255).astype(np.uint8)


def plain(level):
    return np.full((SIDE, SIDE, 3), level, dtype=np.uint8)


def blurred(picture, radius):
    return np.array(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)))


def without_colour(picture):
    return np.array(Image.fromarray(picture).convert("L").convert("RGB"))


def vectors(n, seed=0, outliers=(), dimension=32):
    """Unit vectors around two centres; the outliers point elsewhere."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(2, dimension))
    points = centres[np.arange(n) % 2] + 0.5 * rng.normal(size=(n, dimension))
    for row in outliers:
        points[row] = rng.normal(size=dimension) * 3
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def neighbors_of(points, threshold=0.98):
    return find_neighbors(points, threshold=threshold, max_pairs=10_000)


@pytest.fixture(scope="module")
def clean():
    return [scene(seed) for seed in range(N_CLEAN)]


@pytest.fixture
def check(index):
    """Look at pictures of these sizes and vectors; return the metric and the frame of issues by kind."""

    def run(pictures, sizes=None, points=None, labels=None, **columns):
        n = len(pictures)
        labels = np.arange(n) % 2 if labels is None else np.asarray(labels)
        widths, heights = zip(*(sizes or [(640, 480)] * n), strict=True)
        images = index(
            labels.tolist(),
            [f"class {label}" for label in range(labels.max() + 1)],
            width=pl.Series(widths, dtype=pl.Int32),
            height=pl.Series(heights, dtype=pl.Int32),
            **columns,
        )
        statistics = image_statistics(np.stack(pictures))
        neighbors = neighbors_of(vectors(n) if points is None else points)
        value = image_health(image_index=images, image_statistics=statistics, neighbors=neighbors, labels=labels)
        assert json.loads(json.dumps(value, allow_nan=False)) == value
        frame = health_issues(images, statistics, neighbors)
        flagged = {kind: frame.filter(f"is_{kind}_issue")["row"].to_list() for kind in KINDS}
        assert {kind: issue["count"] for kind, issue in value["issues"].items()} == {
            kind: len(rows) for kind, rows in flagged.items()
        }
        return value, frame, flagged

    return run


def test_a_clean_dataset_has_no_issue(check, clean):
    value, frame, flagged = check(clean)
    assert flagged == {kind: [] for kind in KINDS}
    assert (value["n_flagged"], value["flagged_rate"], value["total_images"]) == (0, 0.0, N_CLEAN)
    assert value["label_correlations"]["correlated"] == []
    assert frame.columns == ["row"] + [name for kind in KINDS for name in (f"is_{kind}_issue", f"{kind}_score")]
    scores = frame.select(f"{kind}_score" for kind in KINDS).to_numpy()
    assert scores.min() >= 0
    assert scores.max() <= 1


def test_planted_faults_are_found_and_nothing_else_is(check, clean):
    pictures = [*clean, plain(2), plain(254), plain(128), blurred(scene(90), 8), without_colour(scene(91))]
    black, white, empty, soft, grey = range(N_CLEAN, N_CLEAN + 5)
    value, _, flagged = check(pictures)
    assert flagged["dark"] == [black]
    assert flagged["light"] == [white]
    assert flagged["low_information"] == [black, white, empty]
    assert flagged["blurry"] == [soft]
    assert flagged["grayscale"] == [black, white, empty, grey]
    assert flagged["odd_size"] == flagged["odd_aspect_ratio"] == flagged["outlier"] == []
    assert value["n_flagged"] == 5


def test_an_empty_picture_with_noise_is_low_on_information_and_a_small_object_on_white_is_not(check, clean):
    noisy = (plain(128) + np.random.default_rng(0).integers(0, 2, (SIDE, SIDE, 1))).astype(np.uint8)
    seed_on_white = plain(255)
    seed_on_white[120:150, 120:160] = scene(70)[120:150, 120:160]
    _, _, flagged = check([*clean, noisy, seed_on_white])
    assert flagged["low_information"] == [N_CLEAN]
    assert Image.fromarray(seed_on_white).convert("L").entropy() < Image.fromarray(noisy).convert("L").entropy()


def test_a_faint_but_sharp_picture_is_not_blurred_and_a_blurred_rich_one_is(check, clean):
    faint = (scene(80) // 5 + 100).astype(np.uint8)
    _, _, flagged = check([*clean, faint, blurred(scene(81), 6)])
    assert flagged["blurry"] == [N_CLEAN + 1]


def test_small_images_are_not_called_blurred_for_being_enlarged(check, clean):
    enlarged = [np.array(Image.fromarray(picture).resize((32, 32)).resize((SIDE, SIDE))) for picture in clean]
    _, frame, flagged = check(enlarged, sizes=[(32, 40)] * N_CLEAN)
    assert flagged["blurry"] == []
    assert frame["blurry_score"].to_list() == [1.0] * N_CLEAN


def test_giants_thumbnails_and_panoramas_are_odd(check, clean):
    sizes = [(640, 480), (480, 640), (600, 500), (700, 500)] * (N_CLEAN // 4)
    sizes[3], sizes[8], sizes[13] = (8000, 6000), (3000, 700), (40, 30)
    value, frame, flagged = check(clean, sizes=sizes)
    assert flagged["odd_size"] == [3, 8, 13]
    assert flagged["odd_aspect_ratio"] == [8]
    assert frame["odd_aspect_ratio_score"][8] == pytest.approx(700 / 3000)
    assert frame["odd_aspect_ratio_score"][0] == frame["odd_aspect_ratio_score"][1] == 0.75
    assert value["issues"]["odd_size"]["worst"][0] == {"source_row": 3, "score": 0.0}


def test_a_second_usual_size_is_not_odd_in_a_dataset_of_one_size(check, clean):
    _, _, flagged = check(clean, sizes=[(3024, 3024)] * 37 + [(3024, 4032)] * 3)
    assert flagged["odd_size"] == []


def test_odd_sizes_lie_three_interquartile_ranges_out(check, clean):
    sides = np.concatenate([np.linspace(100, 1100, N_CLEAN - 2), [1000, 1000]]).astype(int)
    for side, is_odd in ((2400, False), (2600, True)):
        sides[-1] = side
        q1, q3 = np.percentile(sides, [25, 75])
        assert (side > q3 + 3 * (q3 - q1)) == is_odd
        _, _, flagged = check(clean, sizes=[(side, side) for side in sides])
        assert flagged["odd_size"] == ([N_CLEAN - 1] if is_odd else [])


def test_grey_pictures_are_no_issue_where_most_are_grey(check, clean):
    pictures = [without_colour(picture) for picture in clean[:30]] + clean[30:]
    value, frame, flagged = check(pictures)
    assert flagged["grayscale"] == []
    assert frame["grayscale_score"].to_list() == [1.0] * N_CLEAN
    assert value["issues"]["grayscale"]["threshold"] is None
    assert "75%" in value["issues"]["grayscale"]["rule"]


def test_outliers_are_found_by_their_distance_to_the_nearest(check, clean):
    points = vectors(N_CLEAN, outliers=[7, 22])
    value, frame, flagged = check(clean, points=points)
    assert flagged["outlier"] == [7, 22]
    assert value["issues"]["outlier"]["count"] == 2
    # The distance is the mean over ten neighbours, by scikit-learn.
    found = NearestNeighbors(n_neighbors=11, metric="cosine").fit(points).kneighbors(points)[0][:, 1:]
    farthest = np.argsort(found.mean(axis=1))[-2:]
    assert sorted(farthest.tolist()) == [7, 22]
    usual = np.median(found.mean(axis=1))
    alone = int(np.argmax(found.mean(axis=1)))
    assert frame["outlier_score"][alone] <= np.exp(-found.mean(axis=1)[alone] / usual) * 1.6


def test_copies_of_an_outlier_do_not_hide_it_nor_do_copies_of_the_others_make_outliers(check, clean):
    points = np.repeat(vectors(N_CLEAN, outliers=[5]), 12, axis=0)
    _, _, flagged = check([picture for picture in clean for _ in range(12)], points=points)
    assert flagged["outlier"] == list(range(60, 72))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.1, 0.5, 2.0])
def test_normal_datasets_have_next_to_no_outliers(index, clean, seed, spread):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(4, 64))[rng.integers(0, 4, 600)] + spread * rng.normal(size=(600, 64))
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    frame = health_issues(*repeated(index, clean, 600), neighbors_of(points))
    assert frame["is_outlier_issue"].sum() <= 3


def test_a_class_that_is_more_varied_than_the_others_is_no_outlier(index, clean):
    rng = np.random.default_rng(0)
    tight = rng.normal(size=64) + 0.05 * rng.normal(size=(540, 64))
    varied = rng.normal(size=64) + 0.8 * rng.normal(size=(60, 64))
    points = np.concatenate([tight, varied])
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    frame = health_issues(*repeated(index, clean, 600), neighbors_of(points, threshold=0.9999))
    assert frame["is_outlier_issue"].sum() <= 3


def repeated(index, pictures, n):
    statistics = image_statistics(np.stack(pictures))
    repeats = pl.concat([statistics] * (n // len(pictures))).with_columns(row=pl.int_range(n, dtype=pl.Int64))
    return index([0] * n, ["any"]), repeats


def test_few_images_have_no_outliers(check, clean):
    value, _, flagged = check(clean[:15], points=vectors(15, outliers=[3]))
    assert flagged["outlier"] == []
    assert value["issues"]["outlier"]["threshold"] is None
    assert "15 different images" in value["issues"]["outlier"]["rule"]


def test_worst_images_are_named_by_their_source_row_and_at_most_twenty(check, clean):
    pictures = [plain(level) for level in range(30)] + clean
    n = len(pictures)
    value, _, _ = check(pictures, source_row=pl.Series(range(100, 100 + n), dtype=pl.Int64))
    dark = value["issues"]["dark"]
    assert (dark["count"], dark["rate"], dark["threshold"]) == (30, 0.4286, 0.32)
    assert dark["widespread"] is True
    assert [image["source_row"] for image in dark["worst"]] == list(range(100, 120))
    assert value["issues"]["light"]["widespread"] is False


def test_a_property_that_gives_the_label_away_is_named(check, clean):
    labels = np.arange(N_CLEAN) % 4
    pictures = [np.clip(clean[row] * 0.4 + 45 * labels[row], 0, 255).astype(np.uint8) for row in range(N_CLEAN)]
    value, _, _ = check(pictures, labels=labels)
    found = value["label_correlations"]
    assert "brightness_mean" in found["correlated"]
    assert "aspect_ratio" not in found["correlated"]
    assert found["baseline_accuracy"] == 0.25
    scores = [entry["score"] for entry in found["properties"]]
    assert scores == sorted(scores)


def test_image_size_can_give_the_label_away(check, clean):
    labels = np.arange(N_CLEAN) % 2
    value, _, _ = check(clean, labels=labels, sizes=[(640, 480) if label else (600, 600) for label in labels])
    assert set(value["label_correlations"]["correlated"]) == {"side_px", "aspect_ratio"}


def test_accuracy_from_one_property_is_that_of_another_classifier():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000)
    properties = pl.DataFrame({"telling": labels + rng.normal(0, 0.4, 3000), "idle": rng.normal(size=3000)})
    found = {entry["property"]: entry for entry in correlate_with_labels(properties, labels)["properties"]}
    values = properties["telling"].to_numpy()[:, None]
    reference = GaussianNB().fit(values[::2], labels[::2]).score(values[1::2], labels[1::2])
    assert found["telling"]["accuracy"] == pytest.approx(reference, abs=0.02)
    baseline = np.bincount(labels).max() / 3000
    assert found["telling"]["score"] == pytest.approx(
        (1 - found["telling"]["accuracy"]) / (1 - baseline), abs=2e-4
    )
    assert found["idle"]["accuracy"] == pytest.approx(1 / 3, abs=0.04)
    assert found["idle"]["score"] > 0.95


def test_labels_of_one_class_or_of_few_images_correlate_with_nothing(check, clean):
    value, _, _ = check(clean, labels=np.zeros(N_CLEAN, dtype=int))
    assert value["label_correlations"]["skipped"] is True
    value, _, _ = check(clean[:19])
    assert value["label_correlations"]["skipped"] is True


def test_one_image_can_be_looked_at(check, clean):
    value, _, flagged = check(clean[:1])
    assert value["total_images"] == 1
    assert flagged == {kind: [] for kind in KINDS}


def test_no_image_is_skipped(index):
    value = image_health(
        image_index=index([], ["a"]),
        image_statistics=image_statistics(np.empty((0, SIDE, SIDE, 3), dtype=np.uint8)),
        neighbors=None,
        labels=np.empty(0, dtype=np.int64),
    )
    assert value["skipped"] is True


def test_artifacts_of_different_lengths_are_refused(index, clean):
    statistics = image_statistics(np.stack(clean[:3]))
    with pytest.raises(ValueError, match="4 usable images, but 3"):
        health_issues(index([0] * 4, ["a"]), statistics, neighbors_of(vectors(4)))
