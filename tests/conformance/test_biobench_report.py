"""Of the published BioBench results: the file byte for byte, and the statistics on ImageNet known of it.

The expected numbers were computed independently from that file, with SciPy, and rounded to three digits.
"""

import numpy as np
import pytest

from agml_assets.evaluation.imagenet import measure_agreement_with_mean, predict_from_imagenet, score_columns
from agml_assets.evaluation.published import read_results, results_text

ROUNDED = 5.5e-4
ADDED_LATER = "ecdysis"
"""The paper has nine tasks, the file this one too."""


@pytest.fixture(scope="module")
def path(conformance):
    return conformance / "biobench" / "results.json"


@pytest.fixture(scope="module")
def results(path):
    return read_results(path)


@pytest.fixture(scope="module")
def tasks(results):
    return [task.name for task in results.benchmark_tasks if task.name != ADDED_LATER]


@pytest.fixture(scope="module")
def predict(results):
    def _predict(tasks, without=()):
        models = [model.ckpt for model in results.models if model.family not in without]
        columns = score_columns(results.scores(), models, ["imagenet1k", *tasks])
        return predict_from_imagenet(columns.pop("imagenet1k"), columns)

    return _predict


@pytest.fixture(scope="module")
def all_models(predict, tasks):
    return predict(tasks)


def test_the_file_is_written_as_it_was_read(path, results):
    assert results_text(results).encode() == path.read_bytes()


def test_its_tables_have_the_published_sizes(results):
    assert (len(results.models), len(results.results), len(results.bests)) == (85, 1096, 13)
    ties = {best.task: len(best.ties) for best in results.bests}
    assert {task: n for task, n in ties.items() if n > 1} == {
        "imagenet1k": 2, "fishnet": 2, "kabr": 4, "plankton": 27
    }  # fmt: skip


def test_imagenet_predicts_the_mean_of_nine_tasks_as_known(all_models):
    found, high = all_models.aggregate, all_models.aggregate_high
    assert (found.n_models, high.n_models) == (84, 63)
    assert (found.r2, found.spearman, found.kendall) == pytest.approx((0.555, 0.858, 0.685), abs=ROUNDED)
    assert (high.r2, high.misordered) == pytest.approx((0.579, 0.192), abs=ROUNDED)


def test_the_intervals_over_models_are_as_known(all_models):
    def limits(agreement, name):
        return agreement.intervals[name]["low"], agreement.intervals[name]["high"]

    # Of other resamples than those known.
    assert limits(all_models.aggregate, "r2") == pytest.approx((0.435, 0.683), abs=0.01)
    assert limits(all_models.aggregate_high, "misordered") == pytest.approx((0.13, 0.26), abs=0.01)


def test_imagenet_predicts_the_tasks_on_average_as_known(all_models):
    found = all_models.mean_of_tasks
    assert (found.r2, found.spearman) == pytest.approx((0.379, 0.658), abs=ROUNDED)
    assert all_models.mean_of_tasks_high.misordered == pytest.approx(0.283, abs=ROUNDED)


def test_without_models_trained_for_ecology_it_predicts_better(predict, tasks):
    found = predict(tasks, without=("cv4ecology",))
    aggregate, high = found.aggregate, found.aggregate_high
    assert (aggregate.n_models, high.n_models) == (78, 61)
    assert (aggregate.r2, aggregate.spearman, aggregate.kendall) == pytest.approx(
        (0.602, 0.924, 0.758), abs=ROUNDED
    )
    assert (high.r2, high.misordered) == pytest.approx((0.732, 0.151), abs=ROUNDED)
    assert (found.mean_of_tasks.r2, found.mean_of_tasks.spearman) == pytest.approx((0.432, 0.726), abs=ROUNDED)
    assert found.mean_of_tasks_high.misordered == pytest.approx(0.262, abs=ROUNDED)


def test_it_predicts_the_mean_of_ten_tasks_as_known(predict, tasks):
    found = predict([*tasks, ADDED_LATER])
    aggregate, high = found.aggregate, found.aggregate_high
    assert (aggregate.n_models, high.n_models) == (81, 60)
    assert (aggregate.r2, aggregate.spearman, aggregate.kendall) == pytest.approx(
        (0.544, 0.840, 0.672), abs=ROUNDED
    )
    assert (high.r2, high.misordered) == pytest.approx((0.546, 0.198), abs=ROUNDED)


PER_TASK = {
    "beluga": (0.016, 0.098, 0.459),
    "fishnet": (0.478, 0.765, 0.270),
    "fungiclef": (0.395, 0.686, 0.243),
    "herbarium19": (0.431, 0.730, 0.289),
    "iwildcam": (0.525, 0.843, 0.218),
    "kabr": (0.380, 0.825, 0.231),
    "mammalnet": (0.623, 0.926, 0.140),
    "plankton": (0.065, 0.368, 0.430),
    "plantnet": (0.499, 0.680, 0.270),
}
ALONE = {
    "ecdysis": (0.412, 0.620, 0.328),
    "newt": (0.629, 0.821, 0.196),
    "inat21": (0.585, 0.730, 0.210),
}


def test_imagenet_predicts_each_task_as_known(all_models):
    found = {
        task: (one.r2, one.spearman, all_models.by_task_high[task].misordered)
        for task, one in all_models.by_task.items()
    }
    assert found == {task: pytest.approx(values, abs=ROUNDED) for task, values in PER_TASK.items()}


@pytest.mark.parametrize("task", ALONE)
def test_imagenet_predicts_tasks_outside_the_nine_as_known(predict, task):
    found = predict([task])
    assert (found.aggregate.r2, found.aggregate.spearman, found.aggregate_high.misordered) == pytest.approx(
        ALONE[task], abs=ROUNDED
    )


def test_tasks_agree_with_their_mean_as_known(results, tasks):
    models = [model.ckpt for model in results.models if model.family != "cv4ecology"]
    table = np.column_stack(list(score_columns(results.scores(), models, tasks).values()))
    table = table[np.isfinite(table).all(axis=1)]
    found, best = measure_agreement_with_mean(table), measure_agreement_with_mean(table, 10)
    assert (found.n_models, best.n_models) == (78, 10)
    assert (found.kendall, found.spearman) == pytest.approx((0.669, 0.820), abs=ROUNDED)
    assert (best.kendall, best.spearman) == pytest.approx((0.299, 0.387), abs=ROUNDED)
