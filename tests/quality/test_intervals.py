"""Intervals against published values, SciPy, and what must hold of groups of copies."""

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.sparse import csr_array
from sklearn.metrics import f1_score

from agml_assets.quality.intervals import (
    RESAMPLES,
    Resamples,
    bootstrap_interval,
    bootstrap_limits,
    class_counts,
    difference_interval,
    effective_size,
    macro_f1,
    macro_f1_interval,
    proportion_interval,
    wilson,
)


def mean_of(sums):
    return sums[:, 0] / sums[:, 1]


def with_ones(values):
    return np.column_stack([values, np.ones(len(values))])


def share(n, successes):
    return np.arange(n), (np.arange(n) < successes).astype(float)


# Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3: the score interval, not corrected.
@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_newcombes_published_intervals(successes, n, low, high):
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("successes", "n"), [(0, 40), (1, 40), (37, 40), (40, 40), (123, 4567)])
def test_wilson_equals_scipys(successes, n):
    expected = stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


# Newcombe 1998 (Statistics in Medicine 17:873), table II, method 10.
@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [((56, 70), (48, 80), 0.0524, 0.3339), ((18, 40), (0, 30), 0.2775, 0.6018)],
)
def test_the_difference_of_unpaired_shares_is_newcombes_or_scipys(first, second, low, high):
    (x, m), (y, n) = first, second
    rows = np.arange(m + n)
    result = difference_interval(Resamples(rows), (rows[:m], np.arange(m) < x), (rows[m:], np.arange(n) < y))
    z = stats.norm.ppf(0.975)
    limits = [stats.binomtest(k, size).proportion_ci(method="wilson") for k, size in (first, second)]
    p, q = x / m, y / n
    by_hand = (
        p - q - np.hypot(p - limits[0].low, limits[1].high - q),
        p - q + np.hypot(limits[0].high - p, q - limits[1].low),
    )
    assert z == pytest.approx(1.96, abs=1e-4)
    assert (result["low"], result["high"]) == pytest.approx(by_hand, abs=1e-4)
    if first == (56, 70):
        assert (result["low"], result["high"]) == pytest.approx((low, high), abs=1e-4)


def test_the_difference_of_a_share_and_itself_is_nothing():
    rows, successes = share(200, 130)
    result = difference_interval(Resamples(rows), (rows, successes), (rows, successes))
    assert abs(result["low"]) < 0.01
    assert abs(result["high"]) < 0.01


def test_the_difference_of_the_same_images_is_narrower_than_that_of_others():
    rng = np.random.default_rng(0)
    first = rng.random(400) < 0.7
    second = np.where(rng.random(400) < 0.9, first, ~first)
    rows = np.arange(400)
    paired = difference_interval(Resamples(rows), (rows, first), (rows, second))
    apart = difference_interval(Resamples(np.arange(800)), (rows, first), (rows + 400, second))
    assert paired["high"] - paired["low"] < 0.7 * (apart["high"] - apart["low"])


def test_the_bootstrap_of_a_mean_is_scipys_for_images_without_copies():
    values = np.random.default_rng(1).gamma(2.0, size=400)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    result = bootstrap_interval(Resamples(np.arange(400)), np.arange(400), with_ones(values), mean_of)
    width = expected.high - expected.low
    assert result["low"] == pytest.approx(expected.low, abs=0.06 * width)
    assert result["high"] == pytest.approx(expected.high, abs=0.06 * width)
    assert result["kind"] == "sample"


def test_the_bootstrap_of_the_mean_of_few_images_is_the_t_interval():
    values = np.random.default_rng(3).normal(size=25)
    expected = stats.t.interval(0.95, 24, values.mean(), stats.sem(values))
    result = bootstrap_interval(Resamples(np.arange(25)), np.arange(25), with_ones(values), mean_of)
    width = expected[1] - expected[0]
    assert (result["low"], result["high"]) == pytest.approx(expected, abs=0.08 * width)


def test_a_biased_figure_is_shifted_back():
    replicates = np.random.default_rng(4).normal(0.80, 0.01, 4000)
    low, high = bootstrap_limits(replicates, 0.82, np.ones(1000, int))
    assert (low + high) / 2 == pytest.approx(0.84, abs=0.002)
    assert high - low == pytest.approx(2 * 1.96 * 0.01, rel=0.05)
    low, high = bootstrap_limits(replicates - 0.05, 0.82, np.ones(1000, int))
    assert low == 0.82
    assert high == pytest.approx(0.82 + 0.07 + 1.96 * 0.01, abs=0.002)


def test_the_interval_of_macro_f1_never_leaves_zero_to_one():
    rows = np.arange(60)
    true = rows % 20
    predicted = np.where(rows == 0, 1, true)
    result = macro_f1_interval(Resamples(rows), rows, true, predicted)
    assert 0 <= result["low"] < result["high"] <= 1


def test_every_image_twice_widens_an_interval_by_the_root_of_two():
    values = np.random.default_rng(5).normal(size=300)
    once = bootstrap_interval(Resamples(np.arange(600)), np.arange(600), with_ones(np.tile(values, 2)), mean_of)
    twice = bootstrap_interval(
        Resamples(np.tile(np.arange(300), 2)), np.arange(600), with_ones(np.tile(values, 2)), mean_of
    )
    ratio = (twice["high"] - twice["low"]) / (once["high"] - once["low"])
    assert ratio == pytest.approx(np.sqrt(2), rel=0.06)
    assert twice["groups"] == 300


def test_a_share_of_images_that_each_occur_twice_is_wilsons_of_half_as_many():
    successes = np.arange(300) < 210
    doubled = proportion_interval(Resamples(np.tile(np.arange(300), 2)), np.arange(600), np.tile(successes, 2))
    assert (doubled["low"], doubled["high"]) == pytest.approx(wilson(210, 300), abs=0.002)
    assert doubled["kind"] == "sample"
    single = proportion_interval(Resamples(np.arange(300)), np.arange(300), successes)
    assert single["kind"] == "proportion"
    assert (single["low"], single["high"]) == pytest.approx(wilson(210, 300), abs=5e-5)


def test_copies_that_agree_no_more_than_strangers_count_nearly_in_full():
    rng = np.random.default_rng(6)
    sizes = np.full(1000, 3)
    hits = rng.binomial(3, 0.8, (1000, 50))
    assert effective_size(sizes, hits).mean() == pytest.approx(3000, rel=0.06)


def test_where_all_images_are_right_a_group_counts_once():
    assert effective_size(np.full(50, 4), np.full((50, 1), 4.0))[0] == pytest.approx(50)


def test_one_large_group_is_not_taken_for_many_images():
    sizes = np.append(np.ones(100, int), 900)
    hits = np.append(np.arange(100) < 80, 900.0)[:, None]
    assert effective_size(sizes, hits)[0] < 5


@pytest.mark.parametrize("method", ["bootstrap", "proportion", "difference", "macro_f1"])
def test_fewer_than_twenty_groups_have_no_interval_but_a_reason(method):
    resamples, rows = Resamples(np.arange(400) % 19), np.arange(400)
    successes = (rows % 3 > 0).astype(float)
    result = {
        "bootstrap": lambda: bootstrap_interval(resamples, rows, with_ones(successes), mean_of),
        "proportion": lambda: proportion_interval(resamples, rows, successes),
        "difference": lambda: difference_interval(resamples, (rows, successes), (rows, successes)),
        "macro_f1": lambda: macro_f1_interval(resamples, rows, rows % 2, rows % 3 % 2),
    }[method]()
    assert result == {"kind": "none", "reason": "19 independent groups; at least 20 are needed."}


def test_a_share_with_few_groups_in_error_warns():
    resamples, rows = Resamples(np.arange(400) // 2), np.arange(400)
    few = proportion_interval(resamples, rows, rows >= 18)
    enough = proportion_interval(resamples, rows, rows >= 20)
    assert "9 groups of copies hold images of the rarer kind, 191 hold none" in few["warning"]
    assert "warning" not in enough
    mirrored = proportion_interval(resamples, rows, rows < 18)
    assert mirrored["warning"] == few["warning"]


def test_a_group_that_holds_more_than_15_percent_of_the_images_warns():
    rows, correct = np.arange(1000), np.arange(1000) % 3 > 0
    just = proportion_interval(Resamples(np.where(rows < 150, 0, rows)), rows, correct)
    more = proportion_interval(Resamples(np.where(rows < 160, 0, rows)), rows, correct)
    assert "warning" not in just
    assert "One group of copies holds 16% of the images" in more["warning"]


def test_macro_f1_warns_of_a_class_with_fewer_than_thirty_groups():
    rows = np.arange(120)
    true = (rows < 29).astype(int)
    assert "29 independent" in macro_f1_interval(Resamples(rows), rows, true, true)["warning"]
    true = (rows < 30).astype(int)
    assert "warning" not in macro_f1_interval(Resamples(rows), rows, true, true)
    pairs = macro_f1_interval(Resamples(rows // 2), rows, true, true)
    assert "15 independent" in pairs["warning"]


def test_macro_f1_of_images_with_copies_warns_of_few_groups_in_error():
    rows = np.arange(400)
    true, resamples = rows % 2, Resamples(rows // 2)
    few = macro_f1_interval(resamples, rows, true, np.where(rows < 18, 0, true))
    enough = macro_f1_interval(resamples, rows, true, np.where(rows < 20, 0, true))
    assert "9 groups of copies" in few["warning"]
    assert "warning" not in enough


def test_the_interval_of_macro_f1_is_scipys_bootstrap_of_scikit_learns_figure():
    rng = np.random.default_rng(10)
    true = rng.integers(0, 3, 1500)
    predicted = np.where(rng.random(1500) < 0.7, true, rng.integers(0, 3, 1500))
    expected = stats.bootstrap(
        (true, predicted),
        lambda given, taken: f1_score(given, taken, average="macro"),
        paired=True,
        vectorized=False,
        n_resamples=600,
        method="percentile",
        rng=np.random.default_rng(11),
    ).confidence_interval
    result = macro_f1_interval(Resamples(np.arange(1500)), np.arange(1500), true, predicted)
    width = expected.high - expected.low
    assert (result["low"], result["high"]) == pytest.approx(expected, abs=0.08 * width)


def test_macro_f1_of_a_perfect_model_is_as_uncertain_as_its_smallest_classes():
    rows = np.arange(400)
    even, uneven = rows % 2, (rows < 40).astype(int)
    lows = [macro_f1_interval(Resamples(rows), rows, true, true)["low"] for true in (even, uneven)]
    assert lows[0] == pytest.approx(wilson(400, 400)[0], abs=0.001)
    assert lows[1] < lows[0]
    doubled = macro_f1_interval(Resamples(rows // 2), rows, rows // 2 % 2, rows // 2 % 2)
    assert doubled["low"] == pytest.approx(wilson(200, 200)[0], abs=0.001)


def test_macro_f1_is_scikit_learns_over_the_classes_that_are_given():
    rng = np.random.default_rng(7)
    for _ in range(20):
        true = rng.choice([0, 2, 3, 7], 60)
        predicted = np.where(rng.random(60) < 0.6, true, rng.integers(0, 9, 60))
        sums = np.asarray(class_counts(true, predicted).sum(axis=0), float)[None]
        expected = f1_score(true, predicted, labels=np.unique(true), average="macro")
        assert macro_f1(sums)[0] == pytest.approx(expected, abs=1e-12)


def test_all_figures_of_a_dataset_share_their_resamples():
    resamples = Resamples(np.random.default_rng(8).integers(0, 50, 200))
    values = np.random.default_rng(9).normal(size=(200, 2))
    together = resamples.sums(np.arange(200), values)
    apart = np.column_stack([resamples.sums(np.arange(200), values[:, [c]]) for c in (0, 1)])
    assert together.shape == (RESAMPLES, 2)
    np.testing.assert_allclose(together, apart)
    parts = resamples.sums(np.arange(100), values[:100]) + resamples.sums(np.arange(100, 200), values[100:])
    np.testing.assert_allclose(parts, together, atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_sums_of_a_resample_are_those_of_the_images_drawn(sparse):
    joined = np.array([3, 3, 7, 1, 1, 1, 0, 9, 9, 4])
    rows, values = np.array([0, 1, 2, 4, 5, 6, 9]), np.random.default_rng(0).normal(size=(7, 3))
    sums = Resamples(joined).sums(rows, csr_array(values) if sparse else values)
    groups = np.unique(joined, return_inverse=True)[1]
    rng = np.random.default_rng(42)
    for drawn in sums:
        counts = np.bincount(rng.integers(6, size=6), minlength=6)
        np.testing.assert_allclose(drawn, (counts[groups[rows]][:, None] * values).sum(axis=0), atol=1e-12)


def test_resamples_come_from_the_joined_groups_by_row():
    frame = pl.DataFrame({"row": [2, 0, 1], "joined": [2, 0, 0], "exact": [2, 0, 1], "near": [2, 0, 0]})
    assert Resamples.of(frame).joined.tolist() == [0, 0, 2]
    assert Resamples.of(frame).count_groups(np.array([0, 1])) == 1
