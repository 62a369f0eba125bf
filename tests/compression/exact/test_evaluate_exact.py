"""Tasks in exact mode: right scores, floors near nothing, and never a number where there should be none."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, r2_score

from agml_assets.compression.exact.controls import deal_anew
from agml_assets.compression.exact.evaluate import ExactSettings, ExactTask, evaluate_exact, to_json
from agml_assets.errors import UserError

QUICK = ExactSettings(repeats=2, folds=5, logistic_penalties=(1e-2, 0.1, 1.0))


def ids_of(n):
    return [f"scene-{one:04d}" for one in range(n)]


def example(n=150, d=12):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n, d)).astype(np.float32)
    value = vectors[:, :3].sum(axis=1) + rng.normal(size=n)
    return vectors, value


def tasks_of(vectors, value, **more):
    n = len(vectors)
    two = np.c_[value, vectors[:, 4] + np.random.default_rng(1).normal(size=n)]
    return [
        ExactTask("biomass", "regression", ids_of(n), value, **more),
        ExactTask("heat", "regression", ids_of(n), two, **more),
        ExactTask("forest", "classification", ids_of(n), (value > 0.5).astype(int), **more),
        ExactTask("crop", "classification", ids_of(n), np.digitize(value, [-1, 1]), **more),
    ]


def only(result):
    (task,) = result.tasks
    assert not result.excluded
    return task


def test_the_published_linear_target_scores_above_0_8():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2000, 256))
    signal = vectors @ rng.normal(size=256) / 16
    target = signal + 0.35 * rng.normal(size=2000)
    settings = ExactSettings(repeats=1)
    score = only(
        evaluate_exact(vectors, [ExactTask("linear", "regression", ids_of(2000), target)], settings)
    ).score
    assert 0.8 < score.value < 1 / (1 + 0.35**2)  # the share that is not noise
    assert score.interval.low > 0.8


def test_scores_are_those_of_the_first_repeat_by_scikit_learn():
    settings = ExactSettings(repeats=1, folds=5, logistic_penalties=(0.1, 1.0))
    vectors, value = example()
    found = {one.task: one for one in evaluate_exact(vectors, tasks_of(vectors, value), settings).tasks}
    for name in ("biomass", "heat"):
        assert found[name].score.value == pytest.approx(r2_score(found[name].true, found[name].predicted))
    each = r2_score(found["heat"].true, found["heat"].predicted, multioutput="raw_values")
    assert [one.value for one in found["heat"].others.values()] == pytest.approx(each.tolist())
    for name in ("forest", "crop"):
        one = found[name]
        assert one.score.value == pytest.approx(f1_score(one.true, one.predicted, average="macro"))
        assert one.others["accuracy"].value == pytest.approx(accuracy_score(one.true, one.predicted))
    forest = found["forest"]
    assert forest.others["f1"].value == pytest.approx(f1_score(forest.true, forest.predicted))
    assert "f1" not in found["crop"].others


def test_results_do_not_depend_on_the_order_of_rows_or_on_other_tasks():
    vectors, value = example()
    together = {one.task: one for one in evaluate_exact(vectors, tasks_of(vectors, value), QUICK).tasks}
    order = np.random.default_rng(3).permutation(len(vectors))
    for task in tasks_of(vectors, value):
        ids, targets = [task.ids[place] for place in order], task.targets[order]
        alone = only(evaluate_exact(vectors, [ExactTask(task.name, task.kind, ids, targets, order)], QUICK))
        one = together[task.name]
        assert alone.examples == one.examples
        assert alone.ids == one.ids
        np.testing.assert_allclose(alone.predicted, one.predicted, rtol=1e-9)
        np.testing.assert_allclose(alone.penalties, one.penalties)
        assert alone.score.value == pytest.approx(one.score.value, rel=1e-12)
        assert alone.control.score.value == pytest.approx(one.control.score.value, rel=1e-9)


def test_units_of_features_do_not_matter():
    vectors, value = example()
    scaled = vectors.astype(np.float64) * np.geomspace(1e-3, 1e3, 12) + 7
    for task in tasks_of(vectors, value)[::2]:
        one, other = (only(evaluate_exact(some, [task], QUICK)) for some in (vectors, scaled))
        assert one.score.value == pytest.approx(other.score.value, rel=1e-6)


def test_dealt_anew_nothing_is_kept():
    vectors, value = example(400)
    for one in evaluate_exact(vectors, tasks_of(vectors, value), QUICK).tasks:
        floor = one.control.score
        assert one.score.value > floor.value + 0.1
        if one.kind == "regression":
            assert -0.1 < floor.value < 0.02
        else:
            assert abs(floor.value - one.reference) < 0.1
            assert floor.interval.low < one.reference + 0.02
        assert 0 < one.kept < 1


def test_a_control_has_the_same_targets_and_keeps_runs_in_groups():
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(40), 5))
    targets = groups * 10
    dealt = deal_anew("task", targets, 0, groups)
    np.testing.assert_array_equal(np.sort(dealt), np.sort(targets))
    assert all(len(np.unique(dealt[groups == one])) == 1 for one in range(40))
    assert (dealt != targets).mean() > 0.8
    columns = np.c_[targets, -targets]
    both = deal_anew("task", columns, 0)
    np.testing.assert_array_equal(both[:, 0], -both[:, 1])
    assert (deal_anew("task", targets, 1) != deal_anew("task", targets, 0)).any()
    assert (deal_anew("other", targets, 0) != deal_anew("task", targets, 0)).any()


def test_copies_in_groups_do_not_flatter():
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.normal(size=(60, 80)), 2, axis=0)
    target = np.repeat(rng.normal(size=60), 2)  # nothing to learn but the copies
    groups = np.repeat(np.arange(60), 2)
    apart = only(evaluate_exact(vectors, [ExactTask("t", "regression", ids_of(120), target)], QUICK))
    together = only(
        evaluate_exact(vectors, [ExactTask("t", "regression", ids_of(120), target, groups=groups)], QUICK)
    )
    assert apart.score.value > 0.3
    assert together.score.value < 0.05
    assert together.units == 60


def reasons(vectors, task, settings=QUICK):
    result = evaluate_exact(vectors, [task], settings)
    assert not result.tasks
    return result.excluded[0].reason


def test_what_cannot_be_scored_is_excluded_with_a_reason():
    vectors, value = example(60)
    labels = (value > 0).astype(int)
    rare = labels.copy()
    rare[:] = 0
    rare[:3] = 1

    def task(kind, targets, n=60, **more):
        return ExactTask("t", kind, ids_of(n), targets, **more)

    assert "All targets are equal" in reasons(vectors, task("regression", np.ones(60)))
    assert "Only class '1' is left" in reasons(vectors, task("classification", np.ones(60, int)))
    said = reasons(vectors, task("classification", rare, class_names=("no", "yes")))
    assert "Class 'yes' has 3 examples" in said
    assert "Only class 'no' is left" in said
    assert "4 examples; 5 folds" in reasons(vectors, task("regression", value[:4], 4))
    assert "1 examples" in reasons(vectors, task("regression", value[:1], 1))
    assert "0 examples" in reasons(vectors, task("regression", value[:0], 0))
    assert "No class is left" in reasons(vectors, task("classification", labels[:0], 0))
    assert "3 groups" in reasons(vectors, task("regression", value, groups=np.arange(60) % 3))
    assert "All vectors are equal" in reasons(np.ones((60, 4)), task("regression", value))
    assert "All vectors are equal" in reasons(np.ones((60, 0)), task("regression", value))
    # Five groups hold the second class, but as a minority of each, and all together in few folds.
    groups = np.where(np.arange(60) < 40, np.arange(60) // 8, np.arange(60))
    mixed = np.zeros(60, int)
    mixed[0:40:8] = 1
    one = evaluate_exact(vectors, [task("classification", mixed, groups=groups)], QUICK)
    assert one.tasks or "Some two folds" in one.excluded[0].reason


def test_an_output_that_is_constant_and_a_class_that_is_rare_are_left_out_and_named():
    vectors, value = example()
    result = only(
        evaluate_exact(vectors, [ExactTask("t", "regression", ids_of(150), np.c_[value, np.ones(150)])], QUICK)
    )
    assert result.exclusions == ("Output 1 is the same for all examples: left out.",)
    assert result.true.shape == (150,)
    codes = np.digitize(value, [-1, 1]) * 2
    codes[:2] = 1
    task = ExactTask("t", "classification", ids_of(150), codes, class_names=("a", "b", "c", "d", "e"))
    result = only(evaluate_exact(vectors, [task], QUICK))
    assert result.exclusions[0].startswith("Class 'b' has 2 examples")
    assert result.class_names == ("a", "c", "e")
    assert result.n == 148


def test_few_examples_have_a_score_without_an_interval():
    vectors, value = example(15)
    result = only(evaluate_exact(vectors, [ExactTask("t", "regression", ids_of(15), value)], QUICK))
    assert result.score.interval is None
    assert result.score.corrected_resampled is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "ranking"}, "kind is 'ranking'"),
        ({"targets": np.zeros(3)}, "60 ids, targets of shape"),
        ({"rows": np.arange(3)}, "rows of shape"),
        ({"rows": np.arange(60) + 1}, "there are 60 vectors"),
        ({"groups": np.arange(3)}, "groups of shape"),
        ({"ids": ["same"] * 60}, "'same' more than once"),
        ({"targets": np.r_[np.nan, np.arange(59)]}, "not a finite number: id 'scene-0000'"),
        ({"kind": "classification"}, "integers, 0 or more"),
        ({"kind": "classification", "targets": np.arange(60) - 1}, "integers, 0 or more"),
        ({"kind": "classification", "targets": np.arange(60), "class_names": ("a",)}, "1 class names"),
    ],
)
def test_malformed_tasks_are_refused(change, said):
    vectors, value = example(60)
    fields = {"name": "t", "kind": "regression", "ids": ids_of(60), "targets": value}
    with pytest.raises(UserError, match=f"Task t: .*{said}"):
        evaluate_exact(vectors, [ExactTask(**(fields | change))], QUICK)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused_by_id_where_a_task_needs_them(wrong):
    vectors, value = example(60)
    vectors[7, 2] = wrong
    with pytest.raises(UserError, match="vector is not finite: id 'scene-0007'"):
        evaluate_exact(vectors, [ExactTask("t", "regression", ids_of(60), value)], QUICK)
    rows = np.delete(np.arange(60), 7)
    only(evaluate_exact(vectors, [ExactTask("t", "regression", ids_of(59), value[rows], rows)], QUICK))


def test_other_mistakes_are_named():
    vectors, value = example(60)
    task = ExactTask("t", "regression", ids_of(60), value)
    with pytest.raises(UserError, match="same name: t"):
        evaluate_exact(vectors, [task, task], QUICK)
    with pytest.raises(UserError, match="array of shape"):
        evaluate_exact(vectors[:, 0], [task], QUICK)
    for wrong in (
        {"folds": 2},
        {"repeats": 0},
        {"level": 1.0},
        {"ridge_penalties": (0.0,)},
        {"ridge_penalties": ()},
    ):
        with pytest.raises(UserError, match="Exact mode"):
            ExactSettings(**wrong)


def test_a_result_is_strict_json():
    vectors, value = example()
    value[:40] = 0.0  # a fold of equal targets has no R2 of its own
    result = evaluate_exact(vectors, tasks_of(vectors, value), QUICK)
    written = json.loads(json.dumps(to_json(result), allow_nan=False))
    assert [one["task"] for one in written["tasks"]] == ["biomass", "crop", "forest", "heat"]
    assert written["tasks"][0]["score"]["interval"]["low"] == result.tasks[0].score.interval.low
    assert to_json(np.array([np.nan, 1.0])) == [None, 1.0]
