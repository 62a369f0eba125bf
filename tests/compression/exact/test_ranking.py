"""Methods compared: ties, a ranking that co-entrants do not move, and its sensitivity, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from agml_assets.compression.exact.evaluate import ExactSettings, ExactTask, evaluate_exact
from agml_assets.compression.exact.ranking import compare_methods
from agml_assets.errors import UserError

QUICK = ExactSettings(repeats=2, folds=5, logistic_penalties=(0.1, 1.0))


def evaluated(columns, n=300, drop=()):
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(n, 20))
    value, other = latent[:, :6].sum(axis=1) + rng.normal(size=n), latent[:, 3:9].sum(axis=1) + rng.normal(size=n)
    ids = [str(one) for one in range(n)]
    tasks = [
        ExactTask("a", "regression", ids, value),
        ExactTask("b", "regression", ids, other),
        ExactTask("c", "classification", ids, (value > 0).astype(int)),
    ]
    return evaluate_exact(latent[:, columns], [one for one in tasks if one.name not in drop], QUICK)


@pytest.fixture(scope="module")
def results():
    return {"all": evaluated(slice(0, 20)), "some": evaluated(slice(0, 5)), "none": evaluated(slice(12, 20))}


def test_methods_are_ranked_by_what_they_keep_and_told_apart(results):
    comparison = compare_methods(results)
    assert [(one.method, one.rank) for one in comparison.overall] == [("all", 1), ("some", 2), ("none", 3)]
    for one in comparison.overall:
        assert one.interval.low < one.value < one.interval.high
    for task in comparison.tasks:
        assert [one.method for one in task.ranks] == ["all", "some", "none"]
        assert all(one.floor < 0.6 for one in task.ranks)


def test_a_method_and_itself_are_tied(results):
    comparison = compare_methods({"all": results["all"], "again": results["all"], "none": results["none"]})
    assert [(one.method, one.rank) for one in comparison.overall] == [("again", 1), ("all", 1), ("none", 3)]
    assert comparison.pairs[0].p_value == 1


def test_what_a_method_keeps_does_not_depend_on_who_else_is_there(results):
    alone = compare_methods({"some": results["some"]}).overall[0]
    among = {one.method: one for one in compare_methods(results).overall}["some"]
    assert (alone.value, alone.interval) == (among.value, among.interval)
    assert alone.rank == 1
    expected = np.mean([one.kept for one in results["some"].tasks])
    assert alone.value == pytest.approx(expected)


def test_p_values_are_corrected_over_pairs(results):
    pairs = compare_methods(results).tasks[0].pairs
    plain = sorted(one.p_value for one in pairs)
    corrected = sorted(one.p_holm for one in pairs)
    expected = np.minimum(1, np.maximum.accumulate(np.array(plain) * [3, 2, 1]))
    np.testing.assert_allclose(corrected, expected)


def test_a_single_task_is_compared_alike_on_the_task_and_over_all(results):
    comparison = compare_methods(results, weights={"a": 2.0})
    on_task = comparison.tasks[0].pairs
    for one, over_all in zip(on_task, comparison.pairs, strict=True):
        assert (one.difference, one.error, one.p_value) == pytest.approx(
            (over_all.difference, over_all.error, over_all.p_value)
        )


def test_the_error_over_tasks_is_between_that_of_independent_and_of_one_and_the_same(results):
    comparison = compare_methods(results, weights={"a": 0.5, "b": 0.5})
    on_tasks = np.array([[one.error for one in task.pairs] for task in comparison.tasks[:2]]) / 2
    for place, pair in enumerate(comparison.pairs):
        assert abs(pair.error - np.hypot(*on_tasks[:, place])) < on_tasks[:, place].sum()
        assert pair.error <= on_tasks[:, place].sum() + 1e-12


def test_a_method_without_a_task_is_named_and_not_ranked(results):
    partial = evaluated(slice(0, 20), drop=("b",))
    comparison = compare_methods(results | {"partial": partial})
    assert comparison.incomplete == {"partial": ("b",)}
    assert "partial" not in [one.method for one in comparison.overall]
    assert comparison.tasks[1].missing == ("partial",)
    full = compare_methods(results)
    assert [one.value for one in comparison.overall] == [one.value for one in full.overall]


def test_the_published_weights_are_those_of_the_table_by_hand(results):
    comparison = compare_methods(results)
    methods = sorted(results)
    folds = {(m, t.task): t.fold_scores for m in methods for t in results[m].tasks}
    quality = np.array([[2 * folds[m, t].mean() / (0.02 + folds[m, t].std()) for t in "abc"] for m in methods])
    ranks = np.stack([stats.rankdata(-column, method="min") for column in quality.T], axis=1)
    weights = quality.std(axis=0, ddof=1) / quality.std(axis=0, ddof=1).sum()
    (published,) = [one for one in comparison.sensitivity if one.choice.startswith("published")]
    expected = dict(zip(methods, ranks @ weights, strict=True))
    assert dict(zip(published.order, published.values, strict=True)) == pytest.approx(expected)


def test_leaving_a_task_out_can_turn_the_order_and_is_shown(results):
    a, b = results["all"], results["some"]
    # "some" far ahead on one task only.
    lifted = replace(b, tasks=(replace(b.tasks[0], kept=3.0), *b.tasks[1:]))
    sensitivity = {one.choice: one for one in compare_methods({"all": a, "some": lifted}).sensitivity}
    assert sensitivity["without a"].order == ("all", "some")
    assert not sensitivity["without a"].same_best
    assert sensitivity["without b"].same_best
    assert sensitivity["without a"].tau == -1


def test_what_cannot_be_compared_is_refused(results):
    with pytest.raises(UserError, match=r"Task a: methods 'all' \(300 examples\) and 'few' \(200\)"):
        compare_methods(results | {"few": evaluated(slice(0, 20), 200)})
    with pytest.raises(UserError, match="No method"):
        compare_methods({})
    with pytest.raises(UserError, match="no.* number|number on any"):
        compare_methods({"m": replace(results["all"], tasks=())})
    with pytest.raises(UserError, match="unknown tasks: d"):
        compare_methods(results, {"d": 1.0})
    with pytest.raises(UserError, match="not negative"):
        compare_methods(results, {"a": -1.0})
