"""Scores with intervals, and means over tasks: what is in them, and how often intervals hold the true score."""

import numpy as np
import pytest
from scipy import stats

from agml_assets.errors import UserError
from agml_assets.evaluation.resamples import Predictions, bootstrap
from agml_assets.evaluation.scores import ACCURACY, BALANCED_ACCURACY, MACRO_F1, TRAIT_MACRO_F1, user_loss_score
from agml_assets.evaluation.summary import average_kinds, average_tasks, score_task
from agml_assets.quality.intervals import Resamples, macro_f1, macro_f1_interval, wilson
from tests.evaluation.simulated import confusion, draw, prior

RECALLS = [0.6, 0.75, 0.9]


def task(name, score=MACRO_F1, n=300, seed=0, recalls=RECALLS):
    rng = np.random.default_rng([seed, *name.encode()])
    return draw(rng, name, score, n, len(recalls), prior(5), recalls)


def scored(name, *args, **kwargs):
    return score_task(task(name, *args, **kwargs), 1000)


def test_accuracy_has_wilsons_interval():
    predictions = task("t", ACCURACY)
    result = score_task(predictions).results[0]
    hits = (predictions.true == predictions.predicted["model0"]).sum()
    assert result.interval["kind"] == "proportion"
    assert (result.interval["low"], result.interval["high"]) == pytest.approx(wilson(hits, 300), abs=5e-5)
    expected = stats.binomtest(int(hits), 300).proportion_ci(method="wilson")
    assert result.interval["low"] == pytest.approx(expected.low, abs=5e-5)


def test_macro_f1_has_the_interval_of_the_dataset_metrics():
    predictions = task("t")
    found = score_task(predictions)
    rows = np.arange(300)
    resamples = bootstrap(predictions).resamples
    for result in found.results:
        again = macro_f1_interval(
            resamples, rows, predictions.true, predictions.predicted[result.model], "the trained models"
        )
        assert result.interval == again
    usual = macro_f1_interval(Resamples(rows), rows, predictions.true, predictions.predicted["model0"])
    assert found.results[0].interval["low"] == pytest.approx(usual["low"], abs=0.005)


def test_rare_classes_give_a_warning():
    rng = np.random.default_rng(1)
    found = score_task(draw(rng, "t", MACRO_F1, 300, 1, prior(30, zipf=True), [0.8]))
    assert "cover less often" in found.results[0].interval["warning"]


def test_macro_f1_of_resamples_is_lower_and_the_interval_is_moved_back():
    rng = np.random.default_rng(2)
    (result,) = score_task(draw(rng, "t", MACRO_F1, 400, 1, prior(40), [0.8])).results
    assert result.bootstrap_mean < result.score
    middle = (result.interval["low"] + result.interval["high"]) / 2
    assert middle > result.bootstrap_mean


def test_frames_of_one_video_are_drawn_together_and_widen_the_interval():
    alone = task("t", BALANCED_ACCURACY)
    repeated = Predictions(
        "t",
        BALANCED_ACCURACY,
        np.repeat(alone.true, 4),
        {model: np.repeat(predicted, 4) for model, predicted in alone.predicted.items()},
        np.repeat(np.arange(300), 4),
    )
    single, frames = (score_task(one).results[0] for one in (alone, repeated))
    assert frames.score == pytest.approx(single.score)
    assert frames.interval["groups"] == 300
    assert frames.interval == single.interval


def test_too_few_groups_give_no_interval_but_a_reason():
    found = score_task(task("t", n=15))
    assert found.results[0].interval["kind"] == "none"
    (mean, *_) = average_tasks([found])
    assert mean.interval == {"kind": "none", "reason": f"Task t has none: {found.results[0].interval['reason']}"}


def test_a_score_that_no_resample_changes_is_not_called_certain():
    true = np.arange(60) % 3
    for score in (BALANCED_ACCURACY, user_loss_score([])):
        [found] = score_task(Predictions("t", score, true, {"right": true})).results
        assert found.score == 1
        assert found.interval["kind"] == "none" and "every resample" in found.interval["reason"]
    tasks = [score_task(Predictions(name, MACRO_F1, true, {"right": true})) for name in "ab"]
    assert tasks[0].results[0].interval["low"] < 1  # Wilson's
    [mean] = average_tasks(tasks)
    assert mean.score == 1
    assert mean.interval["kind"] == "none"


def test_the_mean_over_tasks_is_that_of_its_points_and_narrower():
    tasks = [scored(name) for name in ("bees", "fish", "ferns", "fungi")]
    for mean in average_tasks(tasks):
        points = [result.score for one in tasks for result in one.results if result.model == mean.model]
        widths = [
            result.interval["high"] - result.interval["low"]
            for one in tasks
            for result in one.results
            if result.model == mean.model
        ]
        assert mean.score == pytest.approx(np.mean(points))
        # Independent tasks: the root of the summed squares, over their number.
        expected = np.sqrt(np.square(widths).sum()) / 4
        assert mean.interval["high"] - mean.interval["low"] == pytest.approx(expected, rel=0.12)
        assert not mean.missing


def test_means_are_ranked_and_compared_in_pairs():
    tasks = [scored(name) for name in ("bees", "fish")]
    means = average_tasks(tasks)
    assert [mean.model for mean in means] == ["model2", "model1", "model0"]
    assert [mean.standing.tied for mean in means] == [True, False, False]


def test_a_model_that_lacks_a_task_says_so_and_is_not_ranked():
    whole = scored("bees")
    part = score_task(
        Predictions(
            "fish", MACRO_F1, *(lambda one: (one.true, {"model2": one.predicted["model2"]}))(task("fish"))
        ),
        1000,
    )
    means = average_tasks([whole, part])
    assert means[0].model == "model2"
    assert means[0].standing is not None
    assert [(mean.model, mean.tasks, mean.missing) for mean in means[1:]] == [
        ("model0", ("bees",), ("fish",)),
        ("model1", ("bees",), ("fish",)),
    ]
    assert all(mean.standing is None for mean in means[1:])


def test_means_by_kingdom_are_those_of_its_tasks():
    tasks = [scored(name) for name in ("bees", "fish", "ferns")]
    found = average_kinds(tasks, {"bees": "animal", "fish": "animal", "ferns": "plant"})
    assert list(found) == ["animal", "plant"]
    assert found["animal"] == average_tasks(tasks[:2])
    assert found["plant"][0].score == pytest.approx(max(result.score for result in tasks[2].results))
    with pytest.raises(UserError, match="ferns: no kind"):
        average_kinds(tasks, {"bees": "animal", "fish": "animal"})


def test_tasks_that_do_not_go_together_are_named():
    with pytest.raises(UserError, match="at least one task"):
        average_tasks([])
    with pytest.raises(UserError, match="each once: bees, bees"):
        average_tasks([scored("bees"), scored("bees")])
    with pytest.raises(UserError, match="different numbers"):
        average_tasks([scored("bees"), score_task(task("fish"), 1200)])


def true_macro_f1(shares, recall):
    taken = confusion(len(shares), recall)
    return float(macro_f1(np.concatenate([shares * np.diag(taken), shares, shares @ taken])[None])[0])


def covered(truths, tasks_of, n_sets):
    """Share of test sets whose interval holds the true score; for the mean where there is more than one task."""
    held = 0
    for number in range(n_sets):
        found = [score_task(one, 1000) for one in tasks_of(number)]
        interval = (found[0].results[0] if len(found) == 1 else average_tasks(found)[0]).interval
        held += interval["low"] <= np.mean(truths) <= interval["high"]
    return held / n_sets


@pytest.mark.slow
@pytest.mark.parametrize("recall", [0.7, 0.95])
@pytest.mark.parametrize(
    ("score", "zipf"),
    [(MACRO_F1, False), (ACCURACY, True), (BALANCED_ACCURACY, False)],
    ids=["macro-F1", "accuracy", "balanced accuracy"],
)
def test_intervals_of_a_task_cover_the_truth(score, zipf, recall):
    shares = prior(10, zipf)
    truth = recall + (1 - recall) / 10 if score is not MACRO_F1 else true_macro_f1(shares, recall)
    rng = np.random.default_rng(5)
    share = covered([truth], lambda k: [draw(rng, f"t{k}", score, 1000, 1, shares, [recall])], 500)
    assert 0.92 <= share <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [10, 60])
def test_intervals_of_the_mean_over_nine_tasks_cover_the_truth(n_classes):
    rng = np.random.default_rng(6)
    recalls = np.linspace(0.3, 0.95, 9)
    shares = prior(n_classes)
    truths = [true_macro_f1(shares, recall) for recall in recalls]

    def tasks_of(number):
        return [draw(rng, f"t{number}.{recall}", MACRO_F1, 600, 1, shares, [recall]) for recall in recalls]

    assert 0.92 <= covered(truths, tasks_of, 200) <= 0.985


@pytest.mark.slow
def test_intervals_of_fishnets_score_and_of_the_user_loss_cover_the_truth():
    rng = np.random.default_rng(7)
    rates = np.linspace(0.1, 0.8, 9)

    def traits(number):
        true = (rng.random((800, 9)) < rates).astype(int)
        predicted = np.where(rng.random(true.shape) < 0.85, true, 1 - true)
        return [Predictions(f"t{number}", TRAIT_MACRO_F1, true, {"a": predicted})]

    sums = [
        np.array([[(1 - q) * 0.85, q * 0.85, 1 - q, q, *taken]])
        for q, taken in ((q, ((1 - q) * 0.85 + q * 0.15, q * 0.85 + (1 - q) * 0.15)) for q in rates)
    ]
    assert 0.92 <= covered([np.mean([macro_f1(one)[0] for one in sums])], traits, 400) <= 0.98

    # Truth -1, 0 .. 8 alike often, 8 is poisonous; 70 % right, else one of the ten alike often.
    labels = np.arange(-1, 9)
    score = user_loss_score([8])
    true, taken = (grid.ravel() for grid in np.meshgrid(labels, labels))
    sums = score.columns(true, taken)
    right = true == taken
    mean = 0.7 * sums[right].sum(axis=0) / 10 + 0.3 * sums.sum(axis=0) / 100

    def fungi(number):
        true = rng.choice(labels, 1000)
        predicted = np.where(rng.random(1000) < 0.7, true, rng.choice(labels, 1000))
        return [Predictions(f"t{number}", score, true, {"a": predicted})]

    assert 0.92 <= covered([float(score.figure(mean[None])[0])], fungi, 400) <= 0.98
