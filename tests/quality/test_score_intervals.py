import numpy as np
import polars as pl
import pytest
from sklearn.metrics import davies_bouldin_score, silhouette_samples
from sklearn.preprocessing import normalize

from agml_assets.quality.calibrated_score import calibrated_score
from agml_assets.quality.dataset_cartography import dataset_cartography
from agml_assets.quality.image_values import VALUES, ImageValues, image_values
from agml_assets.quality.intervals import Resamples, bootstrap_limits
from agml_assets.quality.label_noise import label_noise
from agml_assets.quality.score import score
from agml_assets.quality.score_intervals import _davies_bouldin, score_intervals
from agml_assets.settings import Settings

CLASSES = 4
PHASES = [1, 2, 3]


def make_embeddings(labels, spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(labels) + 1, 16))
    return normalize(centres[labels] + spread * rng.standard_normal((len(labels), 16)))


def make_values(n=400, n_classes=CLASSES, seed=0):
    """Values of every kind: the first 70 % were trained on, the last 15 % tested."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    vectors = make_embeddings(labels)
    means = np.stack([vectors[labels == c].mean(axis=0) for c in range(n_classes)])
    trained, tested = np.arange(n) < 0.7 * n, np.arange(n) >= 0.85 * n
    columns = {
        "silhouette": rng.uniform(-0.5, 0.9, n),
        "centroid_distance": np.linalg.norm(vectors - means[labels], axis=1),
        "hard": np.where(trained, rng.random(n) < 0.1, np.nan),
        "published_confidence": np.where(trained, rng.uniform(0.4, 1, n), np.nan),
        "true_confidence": np.where(trained, rng.uniform(0.3, 1, n), np.nan),
        "correct": np.where(tested, rng.random(n) < 0.8, np.nan),
        "correct_grouped": np.where(tested, rng.random(n) < 0.7, np.nan),
        "flagged": (rng.permutation(n) < 0.05 * n).astype(float),
        "flagged_grouped": (rng.permutation(n) < 0.08 * n).astype(float),
    }
    frame = pl.DataFrame({"row": np.arange(n), "label": labels, **columns}).fill_nan(None)
    return ImageValues(frame, means, n_classes)


def with_means(metrics, means, spreads, davies_bouldin):
    """Put column means into the places of a report that they are published under."""
    return {
        **metrics,
        "feature_separability": {
            "silhouette_score": means["silhouette"],
            "davies_bouldin_index": davies_bouldin,
            "silhouette_score_all": means["silhouette"],
            "coincident_classes": [],
        },
        "intra_class_diversity": {"mean_diversity": spreads.mean(), "mean_diversity_present": spreads.mean()},
        "dataset_cartography": {
            "pct_hard": 100 * means["hard"],
            "mean_confidence": means["published_confidence"],
            "true_label": {"mean_confidence": means["true_confidence"]},
        },
        "class_confusability": {"accuracy": means["correct"]},
        "leakage": {"leak_safe": {"accuracy": means["correct_grouped"]}},
        "label_noise": {
            "estimated_noise_rate": means["flagged"],
            "leak_safe": {"estimated_noise_rate": means["flagged_grouped"]},
        },
    }


CENSUS = {
    "class_imbalance": {"normalized_entropy": 1.0, "counts": dict.fromkeys("abcd", 70)},
    "exact_duplicate": {"exact_duplicate_rate": 0.05, "cross_split_duplicates": 2, "total_images": 400},
    "near_duplicate": {"near_duplicate_rate": 0.1, "cross_split_near_duplicates": 2},
    "resolution_consistency": {"area_cv": 0.1},
}


def index_of(means, spreads):
    """The Davies-Bouldin index spelt out, for one resample."""
    ratios = [
        max((s + t) / np.linalg.norm(m - w) for j, (t, w) in enumerate(zip(spreads, means, strict=True)) if j != i)
        for i, (s, m) in enumerate(zip(spreads, means, strict=True))
    ]
    return float(np.mean(ratios))


def summarise(values, rows):
    """Figures of the images in `rows`, copies and all, centroids fixed."""
    frame = values.frame[rows]
    spreads = frame.group_by("label").agg(pl.col("centroid_distance").mean()).sort("label")["centroid_distance"]
    means = {name: frame[name].mean() for name in VALUES}
    return with_means(CENSUS, means, spreads.to_numpy(), index_of(values.means, spreads.to_numpy()))


def test_intervals_are_those_of_scoring_each_resample_by_itself():
    values = make_values()
    resamples = Resamples(np.arange(400) // 2)
    metrics = summarise(values, np.arange(400))
    result = score_intervals(metrics, PHASES, values, resamples)

    # How often each image came in each resample, and every figure and score from scratch.
    drawn = resamples.sums(np.arange(400), np.eye(400)).astype(int)
    resampled = [summarise(values, np.repeat(np.arange(400), counts)) for counts in drawn]
    published = [score(one, PHASES) for one in resampled]
    calibrated = [calibrated_score(one, honest=True) for one in resampled]
    point = calibrated_score(metrics, honest=True)
    sizes = {"difficulty": np.full(30, 2), "diversity": np.full(200, 2), "annotation": np.full(200, 2)}
    for axis, behind in sizes.items():
        drawn_axis = np.array([one["axes"][axis] for one in published])
        expected = bootstrap_limits(drawn_axis, drawn_axis.mean(), behind)
        assert ends(result["agml-2026"]["axes"][axis]) == pytest.approx(expected, abs=0.051)
        expected = bootstrap_limits(
            np.array([one["axes"][axis] for one in calibrated]), point["axes"][axis], behind
        )
        assert ends(result["calibrated-1"]["axes"][axis]) == pytest.approx(expected, abs=4e-4)
    drawn_overall = np.array([one["ranking_value"] for one in calibrated])
    expected = bootstrap_limits(drawn_overall, point["ranking_value"], sizes["difficulty"])
    assert ends(result["calibrated-1"]["overall"]) == pytest.approx(expected, abs=4e-4)


def ends(interval):
    return interval["low"], interval["high"]


def test_an_interval_holds_the_score_and_says_what_it_is():
    values, resamples = make_values(), Resamples(np.arange(400))
    metrics = summarise(values, np.arange(400))
    result = score_intervals(metrics, PHASES, values, resamples)
    overall = result["calibrated-1"]["overall"]
    assert overall["low"] < calibrated_score(metrics, honest=True)["ranking_value"] < overall["high"]
    assert overall["kind"] == "sample"
    assert overall["groups"] == 60  # the test images are the fewest
    assert "1000 resamples that all metrics share" in overall["method"]
    assert "given the models" in overall["method"]


def test_published_and_honest_intervals_read_their_own_images():
    values, resamples = make_values(), Resamples(np.arange(400))
    metrics = summarise(values, np.arange(400))
    honest = score_intervals(metrics, PHASES, values, resamples)["calibrated-1"]["axes"]["annotation"]
    published = score_intervals(metrics, PHASES, values, resamples, honest=False)["calibrated-1"]["axes"][
        "annotation"
    ]
    for interval, flag in ((honest, True), (published, False)):
        assert interval["low"] < calibrated_score(metrics, honest=flag)["axes"]["annotation"] < interval["high"]
    assert honest["low"] < published["low"]


def test_copies_that_come_together_make_intervals_wider():
    values = make_values()
    metrics = summarise(values, np.arange(400))
    twins = {name: np.repeat(values.frame[name].to_numpy()[::2], 2) for name in VALUES}
    values = ImageValues(
        values.frame.with_columns(**{name: pl.Series(v).fill_nan(None) for name, v in twins.items()}),
        values.means,
        4,
    )

    def width(resamples):
        interval = score_intervals(metrics, PHASES, values, resamples)["calibrated-1"]["overall"]
        return interval["high"] - interval["low"]

    assert width(Resamples(np.arange(400) // 2)) > 1.25 * width(Resamples(np.arange(400)))


def test_a_share_of_few_groups_comes_with_a_warning():
    values = make_values()
    clean = values.frame.with_columns(flagged_grouped=pl.lit(0.0))
    values = ImageValues(clean, values.means, values.n_classes)
    result = score_intervals(summarise(values, np.arange(400)), PHASES, values, Resamples(np.arange(400)))
    annotation = result["calibrated-1"]["axes"]["annotation"]
    assert ends(annotation) == (10.0, 10.0)
    assert "label_noise.leak_safe.estimated_noise_rate" in annotation["warning"]
    assert "warning" in result["calibrated-1"]["overall"]
    assert "warning" not in result["calibrated-1"]["axes"]["diversity"]


def test_what_counts_all_images_has_no_interval():
    values = make_values()
    result = score_intervals(summarise(values, np.arange(400)), PHASES, values, Resamples(np.arange(400)))
    for formula in result.values():
        assert formula["axes"]["structural"]["kind"] == "census"
        assert "no sampling error" in formula["axes"]["structural"]["reason"]


def test_fewer_than_twenty_groups_give_none_with_the_reason():
    values = make_values()
    groups = np.arange(400)
    groups[340:] = 340 + np.arange(60) % 19  # the test images
    result = score_intervals(summarise(values, np.arange(400)), PHASES, values, Resamples(groups))
    for formula in result.values():
        assert formula["axes"]["difficulty"]["kind"] == formula["overall"]["kind"] == "none"
        assert "19 independent groups; at least 20" in formula["axes"]["difficulty"]["reason"]
        assert formula["overall"]["reason"].startswith("difficulty: ")
        assert formula["axes"]["diversity"]["kind"] == "sample"


def test_without_values_of_single_images_there_is_no_interval():
    values = make_values()
    bare = ImageValues(
        values.frame.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in VALUES), None, 4
    )
    result = score_intervals(summarise(values, np.arange(400)), PHASES, bare, Resamples(np.arange(400)))
    reason = result["calibrated-1"]["axes"]["annotation"]["reason"]
    assert reason == "The values of single images behind label_noise.leak_safe.estimated_noise_rate are not there."
    assert result["agml-2026"]["overall"]["kind"] == "none"


def test_an_axis_that_was_not_measured_widens_the_overall_interval_and_not_the_others():
    values = make_values()
    metrics = summarise(values, np.arange(400))
    full = score_intervals(metrics, PHASES, values, Resamples(np.arange(400)))["calibrated-1"]
    metrics["intra_class_diversity"] = {"skipped": True, "reason": "not finite"}
    part = score_intervals(metrics, PHASES, values, Resamples(np.arange(400)))["calibrated-1"]
    assert part["axes"]["diversity"] == {"kind": "none", "reason": "The axis is not measured."}
    assert part["axes"]["difficulty"] == full["axes"]["difficulty"]
    assert part["overall"]["high"] - part["overall"]["low"] > 2.5  # the weight of diversity, times 10


def test_a_dataset_after_its_first_phase_has_no_interval_and_a_reason():
    values = make_values()
    result = score_intervals(CENSUS, [1], values, Resamples(np.arange(400)))
    assert result["calibrated-1"]["overall"] == {
        "kind": "none",
        "reason": "No axis with a sampled figure is measured.",
    }


def test_the_metrics_given_are_left_as_they_are():
    values = make_values()
    metrics = summarise(values, np.arange(400))
    before = repr(metrics)
    score_intervals(metrics, PHASES, values, Resamples(np.arange(400)))
    assert repr(metrics) == before


def test_the_davies_bouldin_index_of_every_resample_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    means = rng.standard_normal((30, 4))
    means[7] = means[3]  # a pair with one centroid is passed over
    spreads = rng.uniform(0, 3, (50, 30)) ** 2
    distances = np.linalg.norm(means[:, None] - means, axis=2)
    distances[distances == 0] = np.inf
    expected = ((spreads[:, :, None] + spreads[:, None]) / distances).max(axis=2).mean(axis=1)
    np.testing.assert_allclose(_davies_bouldin(means, spreads), expected, rtol=1e-12)


def test_distances_and_silhouettes_of_images_are_scikit_learns(index):
    labels = np.arange(60) % 3
    embeddings = make_embeddings(labels).astype(np.float32)
    values = image_values(
        metrics={}, image_index=index(labels.tolist(), ["a", "b", "empty", "c"][:3]), embeddings=embeddings
    )
    np.testing.assert_allclose(
        values.frame["silhouette"], silhouette_samples(embeddings, labels, metric="cosine"), atol=1e-6
    )
    spreads = values.frame.group_by("label").agg(pl.col("centroid_distance").mean()).sort("label")
    ours = _davies_bouldin(values.means, spreads["centroid_distance"].to_numpy()[None])
    assert ours[0] == pytest.approx(davies_bouldin_score(embeddings, labels), abs=1e-5)
    assert values.frame["correct"].null_count() == 60


def test_test_images_are_right_where_the_largest_probability_is_that_of_their_label(index):
    tested = {"rows": np.array([1, 3]), "probabilities": np.array([[0.9, 0.1], [0.4, 0.6]], dtype=np.float32)}
    none = {"rows": np.zeros(0, dtype=np.int64), "probabilities": np.zeros((0, 2), dtype=np.float32)}
    values = image_values(
        metrics={},
        image_index=index([0, 1, 0, 1], ["a", "b"]),
        test_predictions=tested,
        test_predictions_grouped=none,
    )
    assert values.frame["correct"].to_list() == [None, 0.0, None, 1.0]
    assert values.frame["correct_grouped"].null_count() == 4


def test_values_average_to_the_figures_that_the_metrics_report(index):
    # Twelve images of a class with two groups of copies only: left out of the leak-safe rate.
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    labels = np.r_[np.arange(240) % 2, np.full(12, 2)]
    groups = np.r_[np.arange(240) // 2, 240 + np.arange(12) % 2]
    seen = [np.where(rng.random(252) < 0.1, (labels + 1) % 3, labels) for _ in range(2)]
    probabilities = [normalize(5 * np.eye(3)[other] + rng.uniform(0.1, 1, (252, 3)), norm="l1") for other in seen]
    dynamics = {
        "rows": np.arange(0, 252, 2),
        "true_train": rng.uniform(0, 0.5, (126, 4)).astype(np.float32),
        "max_train": rng.uniform(0.1, 0.5, (126, 1)).repeat(4, axis=1).astype(np.float32),
        "true_eval": rng.uniform(0, 0.5, (126, 4)).astype(np.float32),
        "max_eval": rng.uniform(0.5, 1, (126, 4)).astype(np.float32),
    }
    image_index = index(labels.tolist(), names)
    duplicate_groups = pl.DataFrame({"row": np.arange(252), "joined": groups})
    cartography = dataset_cartography(
        image_index=image_index, dynamics=dynamics, duplicate_groups=duplicate_groups
    )
    noise = label_noise(
        image_index=image_index,
        labels=labels,
        out_of_fold=probabilities[0],
        out_of_fold_grouped=probabilities[1],
        duplicate_groups=duplicate_groups,
        noise_calibration={"skipped": True, "reason": "not needed"},
        settings=Settings(),
    )
    tested = {"rows": np.arange(252), "probabilities": probabilities[0]}
    left_out = [{"class": "c", "groups": 2, "reason": "class with 2 groups"}]
    frame = image_values(
        metrics={"label_noise": noise, "leakage": {"leak_safe": {"classes_left_out": left_out}}},
        image_index=image_index,
        dynamics=dynamics,
        test_predictions=tested,
        test_predictions_grouped=tested,
        out_of_fold=probabilities[0],
        out_of_fold_grouped=probabilities[1],
    ).frame
    means = {name: frame[name].mean() for name in VALUES}
    assert 0 < cartography["pct_hard"] == pytest.approx(100 * means["hard"], abs=0.01)
    assert cartography["mean_confidence"] == pytest.approx(means["published_confidence"], abs=1e-4)
    assert cartography["true_label"]["mean_confidence"] == pytest.approx(means["true_confidence"], abs=1e-4)
    assert 0 < noise["estimated_noise_rate"] == pytest.approx(means["flagged"], abs=1e-4)
    assert noise["leak_safe"]["classes_left_out"] == ["c"]
    assert 0 < noise["leak_safe"]["estimated_noise_rate"] == pytest.approx(means["flagged_grouped"], abs=1e-4)
    assert frame["flagged_grouped"].null_count() == frame["correct_grouped"].null_count() == 12
    assert frame["correct"].null_count() == 0


def test_one_class_or_broken_vectors_are_not_measured(index):
    one = image_values(metrics={}, image_index=index([0] * 5, ["a", "b"]), embeddings=make_embeddings([0] * 5))
    broken = make_embeddings([0, 1, 0, 1, 1])
    broken[2] = np.nan
    other = image_values(metrics={}, image_index=index([0, 1, 0, 1, 1], ["a", "b"]), embeddings=broken)
    for values in (one, other):
        assert values.means is None
        assert values.frame["silhouette"].null_count() == 5
