"""Which numbers of a scorer are scores: those of a failure, or that no task can have, are none and say why."""

import dataclasses

import pytest

from agml_assets.agents import scoring
from agml_assets.agents.scoring import judge
from agml_assets.agents.task import Verdict
from agml_assets.registry.agents import load_agents
from tests.agents.tiny_task import BEST, make_task


@pytest.fixture
def vectorization(tmp_path):
    """The registered task that is scored by a time of the agent's own; its folder is never looked at."""
    return dataclasses.replace(make_task(tmp_path / "task"), entry=load_agents().task("vectorization"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (1e10, "eval.py gave 1e+10, which is no score: scores of this task are below 1e+10."),
        (2e10, "eval.py gave 2e+10, which is no score: scores of this task are below 1e+10."),
        (0.0, "eval.py gave 0, which is no score: scores of this task are above 0."),
        (-3.0, "eval.py gave -3, which is no score: scores of this task are above 0."),
    ],
)
def test_a_failure_and_an_impossible_time_are_no_score(vectorization, tmp_path, monkeypatch, given, said):
    monkeypatch.setattr(scoring, "evaluate", lambda *_: Verdict(given))
    assert judge(vectorization, tmp_path) == Verdict(None, said)


def test_other_times_and_reasons_stay_as_they_are(vectorization, tmp_path, monkeypatch):
    for verdict in (Verdict(5.5), Verdict(1e-9), Verdict(None, "eval.py gave no score.")):
        monkeypatch.setattr(scoring, "evaluate", lambda *_, verdict=verdict: verdict)
        assert judge(vectorization, tmp_path) == verdict


def test_limits_hold_for_declared_metrics_and_only_where_the_manifest_gives_them(tmp_path):
    (tmp_path / "submission.csv").write_text(BEST)
    assert judge(make_task(tmp_path / "a"), tmp_path).score == 1
    assert judge(make_task(tmp_path / "b", valid_below=1), tmp_path).reason == (
        "1, which is no score: scores of this task are below 1."
    )
