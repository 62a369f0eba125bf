"""Rates of success and their intervals, against SciPy and by enumeration."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest, fisher_exact, t

from agml_assets.agents.success_rates import Count, difference_p_value, mean_rate, other_tasks


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 3), (2, 3), (3, 3), (7, 25), (25, 25)])
def test_limits_are_those_of_wilson(successes, n):
    reference = binomtest(successes, n).proportion_ci(0.95, "wilson")
    assert Count(successes, n).limits == pytest.approx((reference.low, reference.high), abs=1e-12)


def test_one_task_has_wilsons_interval_and_equal_tasks_that_of_all_their_trials():
    for counts, pooled in (([Count(2, 7)], (2, 7)), ([Count(0, 3), Count(3, 3), Count(1, 3)], (4, 9))):
        reference = binomtest(*pooled).proportion_ci(0.95, "wilson")
        value, low, high = mean_rate(counts)
        assert value == pytest.approx(pooled[0] / pooled[1])
        assert (low, high) == pytest.approx((reference.low, reference.high))


def test_tasks_count_alike_however_many_trials_they_have():
    value, low, high = mean_rate([Count(1, 1), Count(0, 99)])
    assert value == 0.5
    # 4 / (1 + 1/99) = 3.96 trials
    assert (low, high) == pytest.approx(tuple(binomtest(2, 4).proportion_ci(0.95, "wilson")), abs=0.01)


def test_the_interval_covers_where_rates_are_low_and_where_tasks_differ():
    rng = np.random.default_rng(3)
    for rates in (np.full(15, 0.05), np.linspace(0.1, 0.9, 15)):
        draws = rng.binomial(3, rates, (400, 15))
        ends = [mean_rate([Count(int(k), 3) for k in draw]) for draw in draws]
        covered = np.mean([low <= rates.mean() <= high for _, low, high in ends])
        assert covered > 0.94


def test_other_tasks_have_students_interval_of_the_rates():
    counts = [Count(k, 4) for k in (1, 2, 3, 2, 0)]
    rates = np.array([0.25, 0.5, 0.75, 0.5, 0])
    reference = t.interval(0.95, 4, rates.mean(), rates.std(ddof=1) / 5**0.5)
    assert other_tasks(counts) == pytest.approx(reference)


def test_few_tasks_or_equal_ones_say_nothing_of_others():
    assert "fewer than 5 tasks" in other_tasks([Count(1, 3)] * 4)
    assert "equal" in other_tasks([Count(0, 3)] * 6)


@pytest.mark.parametrize(("a", "b", "n"), [(0, 3, 3), (1, 7, 8), (5, 5, 6), (0, 0, 4), (2, 9, 10)])
def test_on_one_task_with_equal_trials_p_is_fishers(a, b, n):
    reference = fisher_exact([[a, n - a], [b, n - b]]).pvalue
    assert difference_p_value([Count(a, n)], [Count(b, n)]) == pytest.approx(reference)


def test_over_tasks_p_is_that_of_all_ways_to_deal_the_outcomes():
    first, second = [(1, 1, 0), (1, 1)], [(0, 0), (0, 1, 0)]
    observed = sum(np.mean(a) - np.mean(b) for a, b in zip(first, second, strict=True))
    ways = [0.0]
    for a, b in zip(first, second, strict=True):
        outcomes = (*a, *b)
        deals = [
            np.mean([outcomes[at] for at in own])
            - np.mean([one for at, one in enumerate(outcomes) if at not in own])
            for own in combinations(range(len(outcomes)), len(a))
        ]
        ways = [so_far + difference for so_far in ways for difference in deals]
    expected = np.mean([abs(way) >= abs(observed) - 1e-9 for way in ways])
    counts = [[Count(sum(one), len(one)) for one in own] for own in (first, second)]
    assert difference_p_value(*counts) == pytest.approx(expected)
    assert difference_p_value(*reversed(counts)) == pytest.approx(expected)


def test_equally_good_agents_are_rarely_told_apart():
    rng = np.random.default_rng(5)
    rates = np.array([0.1, 0.5, 0.8])
    draws = rng.binomial(8, rates, (400, 2, 3))
    p_values = [difference_p_value(*([Count(int(k), 8) for k in one] for one in draw)) for draw in draws]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.07
