"""Agreement of scores against SciPy, on the models themselves and in resamples with ties."""

from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from agml_assets.errors import UserError
from agml_assets.evaluation.imagenet import (
    STATISTICS,
    _replicate,
    measure_agreement,
    measure_agreement_with_mean,
    predict_from_imagenet,
    score_columns,
)
from agml_assets.store import dump_json


def scipys(x, y):
    return [stats.pearsonr(x, y)[0] ** 2, stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0]]


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 0.9, 30)
    return x, x + rng.normal(0, 0.1, 30)


def test_the_three_correlations_are_scipys(scores):
    found = measure_agreement(*scores)
    assert [found.r2, found.spearman, found.kendall] == pytest.approx(scipys(*scores), abs=1e-12)


def test_the_three_correlations_are_scipys_with_ties(scores):
    x, y = (values.round(1) for values in scores)
    found = measure_agreement(x, y)
    assert [found.r2, found.spearman, found.kendall] == pytest.approx(scipys(x, y), abs=1e-12)


def test_they_are_scipys_in_every_resample(scores):
    x, y = scores
    values = _replicate(x, y[:, None])[0, :, 1:]
    drawn = np.random.default_rng(0).integers(30, size=(5000, 30))
    for number in range(0, 5000, 100):
        expected = scipys(x[drawn[number]], y[drawn[number]])
        assert values[:3, number] == pytest.approx(expected, abs=1e-12)


def test_misordered_pairs_are_counted(scores):
    # Of the six pairs, (1, 2), (1, 3) and (2, 3) are reversed.
    assert measure_agreement(np.arange(4.0), np.array([0.0, 3, 2, 1])).misordered == pytest.approx(3 / 6)
    # Tied pairs are none: of the remaining four, two are reversed.
    assert measure_agreement(np.array([0.0, 0, 1, 2]), np.array([1.0, 2, 2, 1.5])).misordered == pytest.approx(
        2 / 4
    )
    found = measure_agreement(*scores)
    assert found.misordered == pytest.approx((1 - found.kendall) / 2)


def test_the_interval_of_r2_is_scipys_percentile_bootstrap(scores):
    expected = stats.bootstrap(
        scores,
        lambda x, y: stats.pearsonr(x, y)[0] ** 2,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    interval = measure_agreement(*scores).intervals["r2"]
    assert (interval["low"], interval["high"]) == pytest.approx((expected.low, expected.high), abs=0.03)


def test_models_without_all_scores_are_left_out(scores):
    x, y = scores
    gaps = y.copy()
    gaps[:5] = np.nan
    found = predict_from_imagenet(x, {"bees": y, "ferns": gaps})
    assert found.aggregate.n_models == 25
    assert found.by_task["bees"] == measure_agreement(x[5:], y[5:])
    assert found.aggregate == measure_agreement(x[5:], y[5:])
    high = x[5:] >= 0.75
    assert found.aggregate_high == measure_agreement(x[5:][high], y[5:][high])


def test_the_mean_of_tasks_is_the_mean_of_their_statistics(scores):
    x, y = scores
    other = np.random.default_rng(2).random(30)
    found = predict_from_imagenet(x, {"bees": y, "ferns": other})
    assert found.mean_of_tasks.r2 == pytest.approx(np.mean([one.r2 for one in found.by_task.values()]))
    assert found.aggregate.r2 == pytest.approx(stats.pearsonr(x, (y + other) / 2)[0] ** 2)


def test_the_agreement_with_the_own_mean_is_that_of_the_best_models():
    table = np.random.default_rng(3).random((40, 4))
    best = table[np.argsort(-table.mean(axis=1))[:12]]
    expected = np.mean([stats.kendalltau(best.mean(axis=1), column)[0] for column in best.T])
    assert measure_agreement_with_mean(table, 12).kendall == pytest.approx(expected)


def test_few_models_have_no_interval_and_fewer_no_agreement():
    found = measure_agreement(np.arange(5.0), np.arange(5.0))
    assert found.intervals["r2"]["kind"] == "none"
    with pytest.raises(UserError, match="at least 3"):
        measure_agreement(np.arange(2.0), np.arange(2.0))
    with pytest.raises(UserError, match="1 models have all"):
        predict_from_imagenet(np.array([0.5, np.nan]), {"bees": np.array([0.1, 0.2])})
    with pytest.raises(UserError, match="No task"):
        predict_from_imagenet(np.arange(5.0), {})


def test_absent_scores_are_nan():
    columns = score_columns({("bees", "a"): 0.5}, ["a", "b"], ["bees"])
    assert columns["bees"][0] == 0.5
    assert np.isnan(columns["bees"][1])


def test_scores_that_do_not_differ_have_no_agreement_and_the_rest_of_a_report_is_written():
    rising = np.linspace(0, 1, 12)
    for same in (np.full(12, 0.7), np.ones(12), np.zeros(12)):  # 0.7 leaves rounding behind
        for x, y in ((same, rising), (rising, same), (same, same)):
            found = measure_agreement(x, y)
            assert {getattr(found, name) for name in STATISTICS} == {None}
            dump_json(asdict(found))
    one_of_two = predict_from_imagenet(rising, {"told apart": rising, "all right": np.ones(12)})
    assert one_of_two.by_task["told apart"].r2 == pytest.approx(1)
    assert one_of_two.by_task["all right"].r2 is one_of_two.mean_of_tasks.r2 is None
