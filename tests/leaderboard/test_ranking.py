"""Average ranks, Friedman, Nemenyi and Wilcoxon, against the worked example of Demšar 2006."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, wilcoxon

from agml_assets.leaderboard.ranking import (
    FEWEST_DATASETS,
    average_ranks,
    compare_pairs,
    critical_difference,
    friedman_p,
    rank_models,
    rank_nested,
)

# Demšar 2006, JMLR 7, table 6: area under the ROC curve of C4.5 and three variants on 14 data sets. The paper
# ranks unrounded values: of the two printed as 0.975 the first is the better.
AREAS = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.97501, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)
MODELS = ("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf")
SCORES = {model: {f"d{n:02}": float(v) for n, v in enumerate(AREAS[:, k])} for k, model in enumerate(MODELS)}


def test_average_ranks_are_those_of_the_paper():
    assert average_ranks(AREAS) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)


def test_friedmans_statistic_is_that_of_the_paper_but_for_its_correction_for_ties():
    ranks, n, k = average_ranks(AREAS), 14, 4
    uncorrected = 12 * n / (k * (k + 1)) * ((ranks**2).sum() - k * (k + 1) ** 2 / 4)
    assert uncorrected == pytest.approx(9.28, abs=5e-3)
    # Without ties the P value of 9.28 with 3 degrees of freedom is 0.0258; the correction makes it smaller.
    assert 0.01 < friedman_p(AREAS) < 0.0258


def test_friedmans_p_is_exact_for_a_perfect_order():
    # Rank sums 4, 8 and 12: 12 (16 + 64 + 144) / (4 * 3 * 4) - 3 * 4 * 4 = 8; with two degrees P = exp(-8 / 2).
    table = np.array([[3.0, 2.0, 1.0]] * 4) + np.arange(4)[:, None]
    assert friedman_p(table) == pytest.approx(np.exp(-4))


@pytest.mark.parametrize(
    ("k", "q"),
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_the_critical_values_are_those_of_the_papers_table_5(k, q):
    # 2.949 in the paper for k = 7, 2.9483 computed: the table's last digit is not always rounded.
    assert critical_difference(k, 1) / np.sqrt(k * (k + 1) / 6) == pytest.approx(q, abs=1e-3)


def test_the_critical_difference_is_that_of_the_paper():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


def test_models_that_do_not_differ_are_grouped():
    ranking = rank_models(SCORES, MODELS)
    assert list(ranking.average_ranks) == ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    # 3.143 - 1.964 = 1.18 is below 1.25: by Nemenyi's test none of the four differs, as the paper finds.
    assert ranking.not_distinguished == (("C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"),)


def test_groups_overlap_where_the_ends_differ():
    ranks = {"a": 3.0, "b": 2.0, "c": 1.0}
    scores = {m: {f"d{n}": top for n in range(8)} for m, top in ranks.items()}
    ranking = rank_models(scores, list(scores))
    assert ranking.critical_difference == pytest.approx(2.343 * np.sqrt(3 * 4 / 48), abs=2e-3)
    assert ranking.not_distinguished == (("a", "b"), ("b", "c"))


def test_a_pair_has_the_papers_wilcoxon_test():
    pairs = {(one.first, one.second): one for one in compare_pairs(SCORES)}
    pair = pairs["C4.5", "C4.5+m"]
    # Section 3.1.3: the smaller sum of ranks is 12; z = (12 - 52.5) / 15.93 = -2.54, so P = 0.011.
    assert pair.p == pytest.approx(0.011, abs=5e-4)
    assert (pair.datasets, pair.wins, pair.losses) == (14, 2, 10)
    assert pair.mean_difference == pytest.approx(float((AREAS[:, 0] - AREAS[:, 1]).mean()))


@pytest.mark.parametrize("decimals", [1, 2, 9])
def test_every_pair_has_scipys_test_of_the_datasets_that_it_shares(decimals):
    rng = np.random.default_rng(decimals)
    scores = {
        f"m{k}": {f"d{n}": round(float(v), decimals) for n, v in enumerate(rng.random(60)) if rng.random() < share}
        for k, share in enumerate((1, 1, 0.9, 0.5, 0.2, 0.15))
    }
    for pair in compare_pairs(scores):
        first, second = scores[pair.first], scores[pair.second]
        scale = 10**decimals
        whole = np.array([round(first[d] * scale) - round(second[d] * scale) for d in first if d in second])
        assert (pair.datasets, pair.wins, pair.losses) == (len(whole), (whole > 0).sum(), (whole < 0).sum())
        assert pair.mean_difference == pytest.approx(whole.mean() / scale)
        if len(whole) >= FEWEST_DATASETS:
            tied = len({0, *map(abs, whole.tolist())}) <= len(whole)
            method = "asymptotic" if tied else "auto"
            assert pair.p == pytest.approx(wilcoxon(whole, zero_method="zsplit", method=method).pvalue)
            limits = ttest_1samp(whole / scale, 0).confidence_interval(0.95)
            assert (pair.low, pair.high) == pytest.approx(tuple(limits))
        else:
            assert pair.p is pair.low is None


def test_equal_differences_are_equal_whatever_floating_point_makes_of_them():
    # Differences of 0.1, all of them, and as many the other way: no model is the better.
    first = {f"d{n}": value for n, value in enumerate((0.3, 0.4, 0.8, 0.1, 0.2, 0.6))}
    second = {f"d{n}": value for n, value in enumerate((0.2, 0.3, 0.7, 0.2, 0.3, 0.7))}
    (pair,) = compare_pairs({"a": first, "b": second})
    assert pair.p == 1.0
    (pair,) = compare_pairs({"a": {**first, "d6": 0.1 + 0.2}, "b": {**second, "d6": 0.3}})
    assert (pair.wins, pair.losses) == (3, 3)


def test_hundreds_of_models_are_compared_in_seconds():
    rng = np.random.default_rng(0)
    scores = {f"m{k}": {f"d{n}": float(v) for n, v in enumerate(rng.random(8))} for k in range(250)}
    start = time.process_time()
    assert len(compare_pairs(scores)) == 250 * 249 // 2
    rank_nested(scores)
    assert time.process_time() - start < 5


def test_the_interval_of_a_difference_is_students():
    # Five differences of 0.1 and one of 0.4: mean 0.15, standard error 0.05, t(5, 0.975) = 2.5706.
    first = {f"d{n}": 0.5 for n in range(6)}
    second = {f"d{n}": 0.4 for n in range(5)} | {"d5": 0.1}
    (pair,) = compare_pairs({"a": first, "b": second})
    assert (pair.low, pair.high) == pytest.approx((0.15 - 2.5706 * 0.05, 0.15 + 2.5706 * 0.05), abs=1e-5)


def test_few_datasets_give_no_test_and_equal_models_no_difference():
    few = {model: {f"d{n}": value for n in range(5)} for model, value in (("a", 1.0), ("b", 0.0))}
    assert compare_pairs(few)[0].p is None
    same = {model: {f"d{n}": 0.5 for n in range(8)} for model in "abc"}
    assert [pair.p for pair in compare_pairs(same)] == [1.0, 1.0, 1.0]
    ranking = rank_models(same, "abc")
    assert ranking.friedman_p is None
    assert ranking.not_distinguished == (("a", "b", "c"),)


def test_a_narrow_model_shrinks_only_its_own_ranking():
    wide = {f"d{n}": n / 10 for n in range(8)}
    scores = {"a": wide, "b": dict(wide), "narrow": {"d1": 0.9}, "apart": {"x": 0.1}}
    rankings = rank_nested(scores)
    assert [(list(one.average_ranks), len(one.datasets)) for one in rankings] == [
        (["a", "b"], 8),
        (["narrow", "a", "b"], 1),
    ]
    assert rankings[1].average_ranks == {"narrow": 1.0, "a": 2.5, "b": 2.5}


def test_models_without_a_shared_dataset_are_not_ranked():
    assert rank_models({"a": {"x": 1.0}, "b": {"y": 1.0}}, ["a", "b"]) is None
    assert rank_nested({"a": {"x": 1.0}, "b": {"y": 1.0}}) == []
    assert rank_nested({}) == []


score_tables = st.dictionaries(
    st.sampled_from("abcde"),
    st.dictionaries(st.sampled_from("uvwxyz"), st.sampled_from([0.0, 0.5, 1.0]), min_size=1),
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(score_tables, st.randoms(use_true_random=False))
def test_the_order_of_models_and_datasets_does_not_matter(scores, random):
    def shuffled(values):
        items = list(values.items())
        random.shuffle(items)
        return dict(items)

    other = shuffled({model: shuffled(datasets) for model, datasets in scores.items()})
    assert rank_nested(other) == rank_nested(scores)
    assert compare_pairs(other) == compare_pairs(scores)


@settings(max_examples=40, deadline=None)
@given(score_tables)
def test_ranks_sum_to_what_they_must(scores):
    for ranking in rank_nested(scores):
        k = len(ranking.average_ranks)
        assert sum(ranking.average_ranks.values()) == pytest.approx(k * (k + 1) / 2)
        assert all(set(ranking.datasets) <= set(scores[model]) for model in ranking.average_ranks)
