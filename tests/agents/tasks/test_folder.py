"""Tasks in the old benchmark's folder format: loaded unchanged, prepared on a copy, scored in a sandbox."""

import sys
from pathlib import Path
from venv import EnvBuilder

import polars as pl
import pytest

from agml_assets.agents import snapshots
from agml_assets.agents.old_logs import export_old_logs, read_old_logs
from agml_assets.agents.scoring import judge
from agml_assets.agents.steps import AgentRun, make_run, rescore_run
from agml_assets.agents.submission import read_answers, validate
from agml_assets.agents.tasks.folder import is_read_only, protected_parts
from agml_assets.agents.tasks.prepare import open_task, prepare_task
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, AgentTaskEntry
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace
from tests.tiny import contents

PYTHON = Path(sys.executable)
LIMITS = {"seconds": 20, "seconds_per_command": 10, "memory_mb": 1024}

EVAL = """
import csv, os
print("reading the answer")
def get_score(folder="../env"):
    print("a word of warning")
    with open(os.path.join(folder, "submission.csv")) as file:
        given = [float(row[0]) for row in csv.reader(file)]
    with open(os.path.join(os.path.dirname(__file__), "answer.csv")) as file:
        true = [float(line) for line in file]
    return sum(abs(a - b) for a, b in zip(given, true)) / len(true)
"""

PREPARE = """
input("Press any key")
with open("../env/train.csv", "w") as file:
    file.write("made by prepare.py")
with open("answer.csv", "w") as file:
    file.write("1\\n2\\n")
"""


@pytest.fixture
def workspace(tmp_path):
    return Workspace(DatasetRegistry(()), Settings(), ArtifactStore(tmp_path / "results"))


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "old"
    files = {
        "env/train.py": "print('training')",
        "env/data/a.txt": "a",
        "env/data/b.txt": "b",
        "env/notes/c.txt": "c",
        "env/notes/d.md": "d",
        "scripts/research_problem.txt": "Improve the model.",
        "scripts/read_only_files.txt": "./train.csv\ndata/*\nnotes/*.txt\n",
        "scripts/eval.py": EVAL,
        "scripts/prepare.py": PREPARE,
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def entry_of(folder, **manifest):
    described = {"key": "old", "folder": str(folder), "direction": "lower", "limits": LIMITS, **manifest}
    return AgentTaskEntry.model_validate(described)


def prepare(folder, workspace, **manifest):
    return prepare_task(entry_of(folder, **manifest), workspace, python=PYTHON)


def answer(tmp_path, text="1\n4\n"):
    place = tmp_path / "submitted"
    place.mkdir(exist_ok=True)
    (place / "submission.csv").write_text(text)
    return place


def test_a_folder_is_prepared_on_a_copy_and_scored_by_its_own_script(folder, workspace, tmp_path):
    before = contents(folder)
    task = prepare(folder, workspace)
    assert contents(folder) == before
    assert task.problem == "Improve the model."
    assert sorted(task.public) == ["data", "notes/c.txt", "train.csv"]
    assert task.public["train.csv"].read_text() == "made by prepare.py"
    assert not (task.env / "train.csv").exists()
    assert not list(task.env.rglob("answer.csv"))
    # (|1 - 1| + |4 - 2|) / 2, whatever the script prints.
    assert judge(task, answer(tmp_path)).score == 1
    assert validate(task, answer(tmp_path)) == []
    assert open_task(entry_of(folder), workspace) == task
    assert judge(task, answer(tmp_path, "1\nx\n")).reason.startswith(
        "eval.py failed: ValueError: could not convert"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('no such luck')", "RuntimeError: no such luck"),
        ("return float('nan')", "no finite number"),
        ("return float('inf')", "no finite number"),
        ("return 'good'", "ValueError"),
        ("return None", "TypeError"),
        ("import os; os._exit(0)", "gave no score"),
        ("open('answer.csv', 'w')", "Error"),
        ("open(folder + '/submission.csv', 'a')", "Error"),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)", "Error"),
    ],
)
def test_a_script_that_fails_gives_a_reason(folder, workspace, tmp_path, body, said):
    (folder / "scripts" / "eval.py").write_text(f"def get_score(folder):\n    {body}\n")
    (folder / "scripts" / "prepare.py").unlink()
    verdict = judge(prepare(folder, workspace), answer(tmp_path))
    assert verdict.score is None
    assert said in verdict.reason


def test_a_script_that_hangs_is_stopped(folder, workspace, tmp_path):
    (folder / "scripts" / "eval.py").write_text("import time\ndef get_score(folder):\n    time.sleep(60)\n")
    (folder / "scripts" / "prepare.py").unlink()
    task = prepare(folder, workspace, limits={**LIMITS, "seconds_per_command": 1})
    assert judge(task, answer(tmp_path)).reason == "eval.py failed: it was stopped (time)."


def test_a_link_to_the_answers_is_not_scored(folder, workspace, tmp_path):
    task = prepare(folder, workspace)
    place = answer(tmp_path)
    (place / "submission.csv").unlink()
    answers = task.private / "scripts" / "answer.csv"
    for target in ("../task/scripts/answer.csv", "/workspace/task/scripts/answer.csv", answers):
        (place / "submission.csv").symlink_to(target)
        assert "FileNotFoundError" in judge(task, place).reason
        (place / "submission.csv").unlink()


def test_a_prepare_script_that_fails_is_told_and_tried_again(folder, workspace):
    (folder / "scripts" / "prepare.py").write_text("raise SystemExit('the server is gone')")
    with pytest.raises(UserError, match=r"'old': its prepare.py failed: the server is gone. Read the page"):
        prepare(folder, workspace, preparation={"note": "Read the page."})
    with pytest.raises(UserError, match="agml-assets agents prepare old"):
        open_task(entry_of(folder), workspace)
    (folder / "scripts" / "prepare.py").write_text(PREPARE)
    assert prepare(folder, workspace).public["train.csv"].is_file()


def test_a_prepare_script_sees_the_account_and_cannot_change_it(folder, workspace, tmp_path, monkeypatch):
    account = tmp_path / "account"
    account.mkdir(mode=0o700)
    (account / "kaggle.json").write_text("the key")
    (account / "kaggle.json").chmod(0o600)
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(account))
    (folder / "scripts" / "prepare.py").write_text(
        "import os, pathlib\n"
        "file = pathlib.Path(os.environ['KAGGLE_CONFIG_DIR'], 'kaggle.json')\n"
        "pathlib.Path('../env/train.csv').write_text(str(len(file.read_text())))\n"
        "try:\n    file.write_text('')\nexcept OSError:\n    pathlib.Path('../env/safe').touch()\n"
    )
    task = prepare(folder, workspace)
    assert task.public["train.csv"].read_text() == "7"
    assert (task.env / "safe").exists()
    assert (account / "kaggle.json").read_text() == "the key"


def test_what_was_prepared_by_the_old_benchmark_is_not_prepared_again(folder, workspace):
    (folder / "scripts" / "prepared").write_text("success")
    (folder / "scripts" / "prepare.py").write_text("raise SystemExit('again')")
    assert sorted(prepare(folder, workspace).public) == ["data", "notes/c.txt"]


@pytest.mark.parametrize("target", ["../../elsewhere.txt", "/etc/hostname", "{env}/data/a.txt"])
def test_links_that_leave_the_folder_are_refused(folder, workspace, target):
    (folder / "env" / "link").symlink_to(target.format(env=folder / "env"))
    with pytest.raises(UserError, match="is a link to"):
        prepare(folder, workspace)


def test_links_inside_the_folder_stay_links(folder, workspace):
    (folder / "env" / "link").symlink_to("data/a.txt")
    task = prepare(folder, workspace)
    assert (task.env / "link").readlink() == Path("data/a.txt")


def test_a_changed_source_asks_for_another_preparation(folder, workspace):
    task = prepare(folder, workspace)
    (folder / "env" / "train.py").write_text("print('another')")
    with pytest.raises(UserError, match="'old': its source or its manifest has changed since"):
        open_task(entry_of(folder), workspace)
    assert prepare(folder, workspace).digest != task.digest


def test_a_touched_source_is_the_same(folder, workspace):
    task = prepare(folder, workspace)
    for file in folder.rglob("*"):
        file.touch()
    for file in task.env.parent.rglob("*"):
        file.touch()
    assert open_task(entry_of(folder), workspace) == task


def test_what_python_leaves_behind_is_no_change(folder, workspace):
    task = prepare(folder, workspace)
    (folder / "scripts" / "__pycache__").mkdir()
    (folder / "scripts" / "__pycache__" / "eval.cpython-311.pyc").write_bytes(b"x")
    assert open_task(entry_of(folder), workspace) == task


def test_files_that_were_changed_afterwards_are_noticed(folder, workspace):
    task = prepare(folder, workspace)
    (task.private / "scripts" / "answer.csv").write_text("9\n9\n")
    with pytest.raises(UserError, match="were changed since it was prepared"):
        open_task(entry_of(folder), workspace)
    again = prepare(folder, workspace)
    assert (again.private / "scripts" / "answer.csv").read_text() == "1\n2\n"
    assert again.digest == task.digest


def test_a_manifest_with_a_metric_takes_the_folders_answers(folder, workspace, tmp_path):
    (folder / "scripts" / "prepare.py").unlink()
    (folder / "scripts" / "answers.csv").write_text("id,x\n007,1.5\n8,2\n")
    manifest = {
        "metric": "mean_absolute_error",
        "submission": {"id_column": "id", "columns": {"x": "number"}},
    }
    task = prepare(folder, workspace, **manifest)
    assert read_answers(task).equals(pl.DataFrame({"id": ["007", "8"], "x": [1.5, 2.0]}))
    assert not (task.private / "scripts").exists()
    assert judge(task, answer(tmp_path, "id,x\n8,2\n007,2.5\n")).score == 0.5
    (folder / "scripts" / "answers.csv").write_text("id,x\na,1\nb,two\n")
    with pytest.raises(UserError, match=r"answers.csv, row 2: x 'two' is no number"):
        prepare(folder, workspace, **manifest)


def test_a_task_without_any_scorer_is_refused_unless_it_says_so(folder, workspace, tmp_path):
    (folder / "scripts" / "eval.py").unlink()
    with pytest.raises(UserError, match="has no scripts/eval.py"):
        prepare(folder, workspace)
    task = prepare(folder, workspace, scored=False)
    assert judge(task, answer(tmp_path)).reason == "Nothing scores this task."


def test_a_folder_of_another_format_is_named(tmp_path, workspace):
    with pytest.raises(UserError, match=r"env does not exist. A task's folder has `env/`"):
        prepare(tmp_path, workspace)


def test_patterns_match_as_in_the_old_benchmark():
    patterns = ("./labels.csv", "data/*", "*.npy")
    assert is_read_only("labels.csv", patterns)
    assert is_read_only("data/deep/a.txt", patterns)
    assert is_read_only("x/a.npy", patterns)
    assert not is_read_only("more/labels.csv", patterns)
    assert not is_read_only("datax/a.txt", patterns)
    assert is_read_only("top.npy", patterns)


def test_a_folder_is_protected_as_a_whole_where_all_in_it_is(tmp_path):
    for name in ("data/a", "data/deep/b", "mixed/a.txt", "mixed/b.py", "top.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert protected_parts(tmp_path, ("data/*", "mixed/*.txt", "./top.txt")) == ["data", "mixed/a.txt", "top.txt"]
    assert protected_parts(tmp_path, ()) == []


def test_the_scorer_runs_in_the_interpreter_of_the_agents_scripts_and_again_when_scored_anew(
    folder, workspace, tmp_path
):
    other = tmp_path / "venv"
    EnvBuilder(symlinks=True).create(other)
    packages = other / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (packages / "only_there.py").write_text("SCORE = 0.25")
    (folder / "scripts" / "eval.py").write_text("import only_there\ndef get_score(_): return only_there.SCORE")
    prepare(folder, workspace)
    agent = AgentEntry(key="starter", kind="starter", seeds=1)
    run = AgentRun(entry_of(folder), agent, workspace, python=other / "bin" / "python")
    make_run(run)
    assert run.trials()[0].score == 0.25
    rescore_run(run)
    assert run.trials()[0].score == 0.25
    rescore_run(AgentRun(entry_of(folder), agent, workspace, python=PYTHON))
    assert "only_there" in run.trials()[0].reason


def test_scoring_anew_keeps_a_score_whose_files_were_too_large_to_be_kept(folder, workspace, monkeypatch, caplog):
    monkeypatch.setattr(snapshots, "LARGEST_FILE", 100)
    model = "import os\ndef get_score(folder): return os.path.getsize(os.path.join(folder, 'model.bin'))"
    (folder / "scripts" / "eval.py").write_text(model)
    (folder / "env" / "train.py").write_text("open('model.bin', 'wb').write(b'x' * 101)")
    prepare(folder, workspace)
    run = AgentRun(entry_of(folder), AgentEntry(key="starter", kind="starter", seeds=1), workspace)
    make_run(run)
    rescore_run(run)
    (trial,) = run.trials()
    assert trial.score == 101
    assert "model.bin" in caplog.text
    assert trial.left_out == {"model.bin": 101}
    logs = export_old_logs(trial, run.local_file("workspaces"), folder.parent / "logs").folder
    (record,) = read_old_logs(logs, run.task, run.judge)
    assert record["raw"] is None
    assert "too large to be kept (model.bin; 1 in all)" in record["reason"]


def test_folders_are_where_scripts_and_scorer_look_for_them_and_missed_before_anything_runs(folder, workspace):
    manifest = {"preparation": {"mounts": {"/tmp/data/set": "set"}, "note": "Unpack it there."}}
    with pytest.raises(UserError, match=r"set does not exist. Unpack it there."):
        prepare(folder, workspace, **manifest)
    (folder / "set").mkdir()
    (folder / "set" / "test.txt").write_text("0.5")
    read = "open('/tmp/data/set/test.txt').read()"
    (folder / "env" / "train.py").write_text(f"print('seen', {read})")
    (folder / "scripts" / "eval.py").write_text(f"def get_score(_): return float({read})")
    prepare(folder, workspace, **manifest)
    agent = AgentEntry(key="starter", kind="starter", seeds=1)
    run = AgentRun(entry_of(folder, **manifest), agent, workspace)
    make_run(run)
    (trial,) = run.trials()
    assert trial.score == 0.5
    assert "seen 0.5" in trial.steps[0].observation
    (folder / "set" / "test.txt").write_text("0.75")
    with pytest.raises(UserError, match="its source or its manifest has changed"):
        open_task(entry_of(folder, **manifest), workspace)


@pytest.mark.parametrize(
    ("target", "name"), [("data", "set"), ("/tmp/../etc", "set"), ("/x", "../set"), ("/x", "/set")]
)
def test_a_mount_stays_inside_the_tasks_folder(folder, target, name):
    with pytest.raises(ValueError, match="leads out of|no absolute path"):
        entry_of(folder, preparation={"mounts": {target: name}})
