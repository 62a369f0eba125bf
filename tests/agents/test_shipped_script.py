"""The script that comes with the package improves the starter code of the offline tasks by more than a tenth."""

import subprocess
import sys
from pathlib import Path

import pytest

from agml_assets.agents.runs import read_trials, run_trials
from agml_assets.agents.scoring import judge
from agml_assets.agents.tasks.prepare import prepare_task
from agml_assets.registry.agents import AgentEntry, load_agents
from agml_assets.todo import open_workspace

PYTHON = Path(sys.executable)
STARTER = AgentEntry(key="starter", kind="starter")
IMPROVE = AgentEntry(key="scripted", kind="scripted", script="improve")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


def scores(results, key):
    """Return what the starter code and the script reach."""
    task = prepare_task(load_agents().task(key), open_workspace(str(results), None), python=PYTHON)
    found = []
    for agent in (STARTER, IMPROVE):
        done = run_trials(task, agent, (1,), results / f"{key}_{agent.key}", judge=judge, python=PYTHON)
        (trial,) = read_trials(done.eval_file, done.workspaces)
        assert (trial.ending, trial.error, trial.reason) == ("submitted", "", "")
        found.append(trial.score)
    return found


@pytest.mark.slow
def test_digits(results):
    before, after = scores(results, "digits")
    assert after > 1.1 * before


@pytest.mark.slow
def test_the_sample_of_leaves(results):
    command = ("agml_assets.cli", "run", "--dataset", "sample", "--phases", "1", "2", "--results", str(results))
    made = subprocess.run([sys.executable, "-P", "-m", *command], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    for key in ("sample", "sample__classifier"):
        before, after = scores(results, key)
        assert after > 1.1 * before, key
