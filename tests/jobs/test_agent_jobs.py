"""The jobs of agents, in this process: without a model, and with one that recites."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from agml_assets.agents.steps import AgentRun, make_run, rescore_run
from agml_assets.agents.tasks.prepare import prepare_task
from agml_assets.definitions import build_defs
from agml_assets.registry.agents import load_agents
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace
from resources.workspace import workspace_in_memory

ROOT = Path(__file__).parents[2]

BETTER = """
import numpy as np
from sklearn.svm import SVC
train, test = np.load("data/train.npz"), np.load("data/test.npz")
flat = lambda images: images.reshape(len(images), -1)
predicted = SVC(gamma=0.001).fit(flat(train["images"]), train["labels"]).predict(flat(test["images"]))
open("submission.csv", "w").write("id,label\\n" + "".join(f"{i},{p}\\n" for i, p in zip(test["ids"], predicted)))
"""

RECITED = [
    {"text": "First I look around.", "tool": "list_files", "arguments": {"folder": "."}},
    {"text": "A support vector machine will do better.", "tool": "python", "arguments": {"code": BETTER}},
    {"tool": "validate_submission"},
    {"tool": "submit", "arguments": {"answer": "An SVM in place of the tree."}},
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Give a workspace whose registry has three agents on the digits, prepared."""
    react = {"key": "react", "kind": "react", "model": "mockllm/model", "model_arguments": {"outputs": RECITED}}
    agents = [
        {"key": "starter", "kind": "starter", "seeds": 1},
        {"key": "majority", "kind": "majority", "seeds": 1},
        {**react, "seeds": 2},
    ]
    tasks = [{"key": "digits", "dataset": "digits", "goal": "classifier"}]
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump({"agents": agents, "tasks": tasks}))
    monkeypatch.setenv("AGML_AGENTS", str(tmp_path / "agents.yaml"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-in-the-environment")
    workspace = Workspace(DatasetRegistry(()), Settings(), ArtifactStore(tmp_path / "results"))
    prepare_task(load_agents().task("digits"), workspace, python=Path(sys.executable))
    return workspace


def run(workspace, job, agent=None):
    definitions = build_defs(registry=workspace.registry, resources={"workspace": workspace_in_memory(workspace)})
    partition = f"{agent}|digits" if agent else None
    return definitions.resolve_job_def(job).execute_in_process(partition_key=partition, raise_on_error=False)


def test_agents_are_run_judged_and_compared_and_no_key_is_kept(place):
    for agent in ("starter", "react", "majority"):
        done = run(place, "agents", agent)
        assert done.success
        made = [event.materialization for event in done.get_asset_materialization_events()]
        assert [one.asset_key.to_user_string() for one in made] == ["agents/run", "agents/evaluation"]
        assert made[0].metadata["trials_count"].value == {"react": 2}.get(agent, 1)
    done = run(place, "agents_leaderboard")
    assert done.success
    root = Path(str(place.store.root)) / "_platform/agents"
    board = json.loads((root / "leaderboard.json").read_text())
    cells = {cell["agent"]: cell for cell in board["cells"]}
    assert (cells["react"]["success"]["successes"], cells["react"]["n"]) == (2, 2)
    assert cells["majority"]["success"]["successes"] == cells["starter"]["success"]["successes"] == 0
    evaluation = json.loads((root / "digits/react/evaluation.json").read_text())
    [trial, _] = evaluation["trials"]
    assert trial["normalised"] == pytest.approx(1, abs=0.05)
    assert [step["action"] for step in trial["trace"]] == ["list_files", "python", "validate_submission", "submit"]
    assert trial["tokens"]["total"] > 0
    for file in root.rglob("*"):
        if file.is_file():
            assert b"sk-planted" not in file.read_bytes(), file


def test_a_log_beside_the_workspaces_of_another_try_is_out_of_date(place):
    registry = load_agents()
    pair = AgentRun(registry.task("digits"), registry.agent("majority"), place)
    make_run(pair)
    assert pair.is_current("run")
    rescore_run(pair)
    assert pair.is_current("run")
    other = Path(str(place.store.root)) / "other.zip"
    other.write_bytes(pair.local_file("workspaces").read_bytes() + b"of a try that died before its log was stored")
    pair.write("workspaces", other, 0.0)
    assert not pair.is_current("run")


def test_a_run_without_its_tags_names_them(place):
    done = run(place, "agents_leaderboard")
    assert done.success  # with nothing run yet
    definitions = build_defs(registry=place.registry, resources={"workspace": workspace_in_memory(place)})
    done = definitions.resolve_job_def("agents").execute_in_process(raise_on_error=False)
    [failure] = [event for event in done.all_events if event.is_step_failure]
    assert "Name the task and the agent" in str(failure.step_failure_data.error)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_that_is_killed_goes_on_with_the_same_command(place, tmp_path, steps):
    env = {**os.environ, "AGML_RESULTS": str(tmp_path / "results"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "agml_assets.cli", "agents", "run", "--task", "digits", "--agent", "react"]
    state = tmp_path / "results/_platform/.work/agents/digits/react/state/seed_1.json"
    killed = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (state.exists() and len(_steps(state)) >= steps):
            time.sleep(0.01)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    before = _steps(state)
    assert len(before) >= steps
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    pair = AgentRun(load_agents().task("digits"), load_agents().agent("react"), place)
    trials = pair.trials()
    assert [[step.action for step in trial.steps] for trial in trials] == [
        ["list_files", "python", "validate_submission", "submit"]
    ] * 2
    assert trials[0].steps[0].timestamp == before[0]["timestamp"]  # it was not done twice
    assert re.search(r"^2 +submitted +0\.9", done.stdout, re.M)
    assert not state.exists()


@pytest.mark.slow
def test_what_a_killed_run_has_left_can_be_scored_as_it_stands_and_again(place, tmp_path):
    env = {**os.environ, "AGML_RESULTS": str(tmp_path / "results"), "PYTHONPATH": str(ROOT)}
    agents = [sys.executable, "-m", "agml_assets.cli", "agents"]
    command = [*agents, "run", "--task", "digits", "--agent", "react"]
    state = tmp_path / "results/_platform/.work/agents/digits/react/state/seed_1.json"
    killed = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (state.exists() and len(_steps(state)) >= 2):
            time.sleep(0.01)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    done = subprocess.run([*command, "--as-it-stands"], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    pair = AgentRun(load_agents().task("digits"), load_agents().agent("react"), place)
    first, second = pair.trials()
    assert first.score > 0.95  # of the file that the second step had written
    assert first.ending in ("killed", "submitted")
    assert (second.ending, second.score, second.steps) == ("killed", None, ())
    assert pair.read("evaluation")["trials"][1]["success"] is not True
    done = subprocess.run(
        [*agents, "evaluate", "--rescore"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [trial.score for trial in pair.trials()] == [first.score, None]


def _steps(state):
    try:
        return json.loads(state.read_bytes())["steps"]
    except FileNotFoundError:
        return []
