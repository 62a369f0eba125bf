"""The task that needs nothing but scikit-learn, prepared, started and judged."""

import json
import runpy
import shutil
import sys
from pathlib import Path
from venv import EnvBuilder

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_digits

from agml_assets.agents.runs import read_trials, run_trials
from agml_assets.agents.scoring import judge
from agml_assets.agents.submission import read_answers
from agml_assets.agents.tasks.digits import answers_below, installed_digits
from agml_assets.agents.tasks.prepare import open_task, prepare_task
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, load_agents
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace

ENTRY = load_agents().task("digits")
PYTHON = Path(sys.executable)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    root = tmp_path_factory.mktemp("digits")
    return Workspace(DatasetRegistry(()), Settings(), ArtifactStore(root))


@pytest.fixture(scope="module")
def task(workspace):
    return prepare_task(ENTRY, workspace, python=PYTHON)


@pytest.fixture
def place(task, tmp_path, monkeypatch):
    """Give a folder as a run would see it, and be in it."""
    (tmp_path / "data").symlink_to(task.public["data"])
    (tmp_path / "train.py").write_bytes((task.env / "train.py").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_digit_is_in_one_part_and_no_label_of_the_test_part_is_public(task):
    train, test = np.load(task.public["data"] / "train.npz"), np.load(task.public["data"] / "test.npz")
    assert set(test.files) == {"images", "ids"}
    images = np.concatenate([train["images"], test["images"]]).reshape(-1, 64)
    labels = np.concatenate([train["labels"], read_answers(task)["label"].to_numpy()])
    known = load_digits()
    expected = sorted(map(tuple, np.column_stack([known.data.astype(int), known.target]).tolist()))
    assert sorted(map(tuple, np.column_stack([images, labels]).tolist())) == expected
    assert read_answers(task)["id"].to_list() == test["ids"].tolist()
    # The order is not that of the source.
    assert (images[: len(train["images"])] != known.data[: len(train["images"])]).any()


def test_the_starter_is_well_below_what_a_good_model_reaches(task, place):
    runpy.run_path("train.py", run_name="__main__")
    score = judge(task, place).score
    # More than a tenth better is a success, and must be possible.
    assert score > 0.7
    assert score * 1.1 < task.reference < 1


def test_better_predictions_score_higher(task, place):
    from sklearn.svm import SVC

    train, test = np.load("data/train.npz"), np.load("data/test.npz")
    model = SVC(C=10, gamma=0.001).fit(train["images"].reshape(-1, 64), train["labels"])
    predicted = model.predict(test["images"].reshape(-1, 64))
    pl.DataFrame({"id": test["ids"], "label": predicted}).write_csv("submission.csv")
    assert judge(task, place).score == pytest.approx(task.reference)


def test_the_answers_that_are_installed_are_empty_for_whatever_interpreter_an_agent_has(task, tmp_path):
    other = tmp_path / "venv"
    EnvBuilder(symlinks=True).create(other)
    packages = other / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    copied = packages / "sklearn/datasets/data/digits.csv.gz"
    copied.parent.mkdir(parents=True)
    shutil.copyfile(installed_digits(), copied)
    for python, answers in ((PYTHON, installed_digits()), (other / "bin/python", copied)):
        look = f"import os; print(os.path.exists({str(answers)!r}), os.path.getsize({str(answers)!r}))"
        script = tmp_path / "script.json"
        actions = [("write_file", {"file_name": "look.py", "content": look})]
        actions += [("execute_script", {"script_name": "look.py"}), ("final_answer", {"final_answer": ""})]
        script.write_text(json.dumps([{"action": name, "arguments": given} for name, given in actions]))
        agent = AgentEntry(key="curious", kind="scripted", script=str(script))
        folder = tmp_path / python.parents[1].name
        done = run_trials(task, agent, (1,), folder, judge=judge, python=python)
        (trial,) = read_trials(done.eval_file, done.workspaces)
        assert "True 0" in trial.steps[1].observation


def test_answers_are_found_in_every_place_where_an_installation_keeps_packages(tmp_path):
    places = [
        "lib/python3.12/site-packages",
        "lib64/python3.9/site-packages",
        "local/lib/python3.11/dist-packages",
    ]
    places += ["lib/python3/dist-packages", "envs/x/lib/python3.10/site-packages"]
    places += ["pkgs/scikit-learn-1.5/lib/python3.12/site-packages"]
    files = [tmp_path / place / "sklearn/datasets/data/digits.csv.gz" for place in places]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    assert set(answers_below([tmp_path])) == set(files)


def test_it_is_made_once_and_the_same_everywhere(task, workspace, tmp_path):
    made = (task.private / "answers.parquet").stat().st_mtime_ns
    assert prepare_task(ENTRY, workspace, python=PYTHON) == task == open_task(ENTRY, workspace)
    assert (task.private / "answers.parquet").stat().st_mtime_ns == made
    elsewhere = Workspace(DatasetRegistry(()), Settings(), ArtifactStore(tmp_path))
    with pytest.raises(UserError, match="'digits' is not prepared. Run: agml-assets agents prepare digits"):
        open_task(ENTRY, elsewhere)
    assert prepare_task(ENTRY, elsewhere, python=PYTHON).digest == task.digest


def test_another_direction_or_metric_in_the_manifest_is_another_task(workspace, task):
    with pytest.raises(UserError, match="source or its manifest has changed"):
        open_task(ENTRY.model_copy(update={"scored": False}), workspace)


def test_a_preparation_that_was_killed_is_begun_again(tmp_path, task):
    workspace = Workspace(DatasetRegistry(()), Settings(), ArtifactStore(tmp_path))
    done = prepare_task(ENTRY, workspace, python=PYTHON)
    (done.env.parent / "prepared.json").unlink()
    (done.env.parent / "making" / "env").mkdir(parents=True)
    (done.env / "train.py").write_text("half of it")
    assert prepare_task(ENTRY, workspace, python=PYTHON).digest == task.digest
    assert not (done.env.parent / "making").exists()
