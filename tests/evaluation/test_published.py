"""Our scores in the published shape."""

import json

import numpy as np
import pytest

from agml_assets.errors import UserError
from agml_assets.evaluation.published import Model, Task, make_results, read_results, results_text
from agml_assets.evaluation.scores import MACRO_F1
from agml_assets.evaluation.summary import score_task
from tests.evaluation.simulated import draw, prior

MODELS = [
    Model(ckpt=f"model{k}", display=f"Model {k}", family="CLIP", resolution=224, params=10**8, release_ms=None)
    for k in range(3)
]
RUN = {"generated": 1_773_334_719_825, "git_commit": "0" * 40, "seed": 17}


@pytest.fixture(scope="module")
def scored():
    rng = np.random.default_rng(0)
    return [
        score_task(draw(rng, name, MACRO_F1, 200, 3, prior(4), [0.5, 0.9, 0.9])) for name in ("bees", "imagenet1k")
    ]


@pytest.fixture(scope="module")
def results(scored):
    return make_results(
        MODELS,
        [Task(name="bees", display="Bees")],
        [Task(name="imagenet1k", display="ImageNet-1K")],
        scored,
        **RUN,
    )


def test_keys_are_in_the_published_order(results):
    found = json.loads(results_text(results))
    assert list(found) == ["meta", "models", "benchmark_tasks", "prior_work_tasks", "results", "bests"]
    assert list(found["meta"]) == ["schema", "generated", "git_commit", "seed", "alpha", "n_bootstraps"]
    assert list(found["models"][0]) == ["ckpt", "display", "family", "resolution", "params", "release_ms"]
    assert list(found["results"][0]) == ["task", "model", "mean", "bootstrap_mean", "ci_low", "ci_high"]
    assert list(found["bests"][0]) == ["task", "best", "ties"]
    assert found["meta"]["schema"] == 1
    assert found["meta"]["n_bootstraps"] == 1000


def test_every_point_lies_in_its_interval(results):
    assert len(results.results) == 6
    for result in results.results:
        assert result.ci_low <= result.mean <= result.ci_high


def test_the_best_is_among_its_ties_and_the_worst_is_not(results):
    for best in results.bests:
        assert best.best in best.ties
        assert "model0" not in best.ties


def test_what_was_written_is_read_back(results, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(results_text(results))
    assert read_results(path) == results
    assert read_results(path).scores()["bees", "model0"] == results.results[0].mean


def test_scores_of_what_is_not_listed_are_refused(scored):
    task = [Task(name="bees", display="Bees")]
    with pytest.raises(UserError, match="imagenet1k has scores and is not listed"):
        make_results(MODELS, task, [], scored, **RUN)
    with pytest.raises(UserError, match="model2 have scores"):
        make_results(MODELS[:2], task, [], scored[:1], **RUN)


def test_a_file_of_another_shape_is_named_with_its_first_difference(tmp_path):
    path = tmp_path / "results.json"
    with pytest.raises(UserError, match=r"results\.json cannot be read"):
        read_results(path)
    path.write_text('{"meta": {}}')
    with pytest.raises(UserError, match=r"meta\.schema: Field required"):
        read_results(path)
    path.write_text("[")
    with pytest.raises(UserError, match="Invalid JSON"):
        read_results(path)
