"""`agml-assets agents` as people type it: what it says of mistakes, and whole runs by the old runner's options."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agml_assets import agents_by_options
from agml_assets.agents.described import Plan, find_plan, write_plan
from agml_assets.agents_by_options import DROPPED
from agml_assets.cli import main

ROOT = Path(__file__).parents[2]
OLD_FIELDS = [
    *("path", "summary", "rubric_questions", "score", "score_steps", "submitted_final_answer", "final_score"),
    *("total_time", "error", "extra"),
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGML_RESULTS", str(tmp_path / "results"))
    for name in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY", "LOCAL_BASE_URL", "LOCAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def said(capsys, *words):
    """Return the exit status of a command that ends in words, and these."""
    try:
        status = main(["agents", *words])
    except SystemExit as end:
        status = end.code
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["run", "--task", "digit", "--agent", "starter"], "Did you mean 'digits'"),
        (["run", "--task", "digits", "--agent", "startr"], "Did you mean 'starter'"),
        (["run", "--agent", "starter", "--max-steps", "3"], "--max-steps does not go with --agent"),
        (["run", "--task", "digits"], "needs --llm-name"),
        (["run", "--llm-name", "claude-v1"], "switched off"),
        (["run", "--llm-name", "gpt-4"], "OPENAI_API_KEY"),
        (["run", "--llm-name", "openai-api/local/llama"], "LOCAL_BASE_URL"),
        (["run", "--llm-name", "someone/model"], "CRFM"),
        (["run", "--agent-type", "AutoGPTAgent", "--llm-name", "openai/x"], "kind research"),
        (["run", "--agent-type", "starter", "--python", "no-such-python"], "there is no program"),
        (["run", "--resume", "nowhere"], "no run to go on with"),
        (["prepare", "house-price"], "KAGGLE_CONFIG_DIR"),
        (["prepare", "fathomnet"], "AGML_AGENT_TASKS"),
        (["evaluate", "--log-folder", "."], "--log-folder needs --task"),
        (["evaluate", "--task", "digits"], "--task goes with --log-folder"),
        (["evaluate", "--log-root", ".", "--log-folder", "."], "not allowed with"),
        (["evaluate", "--log-root", ".", "--rescore"], "--rescore goes with stored runs"),
        (["evaluate", "--output-file", "x"], "--output-file goes with --log-root"),
        (["evaluate", "--log-root", "."], "No run of"),
        (["evaluate"], "No stored run can be compared"),
        (["plot"], "No stored run can be compared"),
        (["plot", "--log-root", "nowhere"], "is no folder"),
        (["run", "--agent-type", "scripted", "--script", "nope"], "There is no script"),
        (["run", "--agent-type", "starter", "--script", "improve"], "--script goes with --agent-type scripted"),
        (["run", "--agent-type", "starter", "--max-steps", "0"], "a number above 0"),
        (["run", "--agent-type", "starter", "--max-time", "nan"], "a number of seconds above 0"),
        (["run", "--agent", "starter", "--resume", "."], "--resume does not go with --agent"),
        (["run", "--force"], "go with --agent"),
        (["run-all"], "Say which tasks"),
        (["run-all", "--task", "digits"], "needs --llm-name"),
        (["run-all", "--resume", "."], "nothing to go on with"),
        (["run-all", "--max-retries", "3", "--task", "digits"], "max_retries: N"),
    ],
)
def test_a_mistake_is_told_in_words_and_leaves_nothing(capsys, tmp_path, words, wanted):
    status, text = said(capsys, *words)
    assert status in (1, 2)
    assert wanted in " ".join(text.split())
    assert "Traceback" not in text
    assert not (tmp_path / "logs" / "run.json").exists()


def test_a_key_in_a_file_is_refused(capsys, tmp_path):
    (tmp_path / "openai_api_key.txt").write_text("org:sk-1")
    status, text = said(capsys, "run", "--llm-name", "openai/gpt-5")
    assert status == 1
    assert "OPENAI_API_KEY" in text
    assert "sk-1" not in text


def test_a_folder_of_others_is_never_cleared_for_a_workspace(capsys, tmp_path):
    (tmp_path / "work/digits").mkdir(parents=True)
    (tmp_path / "work/digits/precious").write_text("x")
    status, text = said(capsys, "run", "--agent-type", "starter", "--work-dir", "work", "--log-dir", "logs")
    assert status == 1
    assert "holds other files" in text
    assert (tmp_path / "work/digits/precious").read_text() == "x"
    assert not (tmp_path / "logs/run.json").exists()


@pytest.mark.parametrize("option", DROPPED)
def test_an_option_of_the_old_runner_that_is_no_more_says_what_is_in_its_place(capsys, option):
    status, text = said(capsys, "run", "--agent-type", "starter", option, "3")
    assert status == 2
    assert f"{option} is no more: {DROPPED[option]}" in " ".join(text.split())


@pytest.fixture
def begun(monkeypatch):
    """Let described runs begin, and end at once as if their process were killed; return what they were told."""
    told = []

    def die(folder, described, workspace, *, resume):
        told.append((described, resume))
        work = Path(described["work"])
        (work / "state").mkdir(parents=True, exist_ok=True)
        (work / "run.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(agents_by_options, "_run_described", die)
    return told


RUN = ["run", "--agent-type", "scripted", "--log-dir", "one", "--max-steps", "5", "--max-tokens", "70"]


@pytest.mark.usefixtures("capsys")
def test_the_same_command_goes_on_with_what_it_began(begun):
    assert main(["agents", *RUN]) == main(["agents", *RUN]) == 130
    [(first, anew), (second, again)] = begun
    assert (anew, again) == (False, True)
    assert first == second
    assert first["agent"]["script"] == "improve"
    assert first["limits"] == {"steps": 5, "seconds": None, "tokens": 70}


@pytest.mark.usefixtures("begun")
def test_another_command_is_refused_with_what_differs_and_so_is_a_finished_run(capsys, tmp_path):
    main(["agents", *RUN])
    status, text = said(capsys, *RUN[:-3], "6", "--seed", "2")
    assert status == 1
    for part in (
        "--max-steps is 5 there, 6 here",
        "--max-tokens is 70 there, not given here",
        "--seed is 1 there",
    ):
        assert part in text
    (tmp_path / "one/evaluation.json").write_text("{}")
    status, text = said(capsys, *RUN)
    assert status == 1
    assert "has come to its end" in text


@pytest.mark.usefixtures("capsys")
def test_a_workspace_that_another_run_left_is_not_gone_on_with(begun, tmp_path):
    main(["agents", *RUN])
    work = tmp_path / "workspace/digits/run.json"
    os.utime(work, (1, 1))
    main(["agents", *RUN])
    assert [resumed for _, resumed in begun] == [False, False]


def test_beside_resume_only_what_is_stored_may_be_said(capsys, begun):
    main(["agents", *RUN])
    status, text = said(capsys, "run", "--resume", "one", "--max-steps", "6", "--llm-name", "gpt-4")
    assert status == 1
    assert "--max-steps is 5 there, 6 here" in text
    assert "--llm-name is not given there, openai/gpt-4 here" in text
    status, text = said(capsys, "run", "--resume", "one", "--log-dir", "two")
    assert "leave --log-dir out" in text
    assert main(["agents", "run", "--resume", "one", "--max-steps", "5", "--results", "results"]) == 130
    assert [resumed for _, resumed in begun] == [False, True]


def test_beside_resume_of_many_only_what_is_stored_may_be_said(capsys, tmp_path):
    options = {"--agent-type": "starter", "--max-steps": 5}
    write_plan(Plan("now", ("digits",), (None,), 2, options), tmp_path / "logs")
    status, text = said(capsys, "run-all", "--resume", "logs", "--seeds", "3", "--max-steps", "6", "--jobs", "2")
    assert status == 1
    assert "--seeds is 2 there, 3 here" in text
    assert "--max-steps is 5 there, 6 here" in text
    assert "--jobs" not in text


def test_of_several_the_one_that_is_unfinished_is_gone_on_with(capsys, tmp_path):
    for stamp in ("first", "second"):
        write_plan(Plan(stamp, ("digits",), (None,), 1, {"--agent-type": "starter"}), tmp_path)
    status, text = said(capsys, "run-all", "--resume", ".")
    assert status == 1
    assert "run_all.first.json, run_all.second.json" in text
    for stamp in ("first", "second"):
        done = tmp_path / "starter" / stamp / "digits/seed_1"
        done.mkdir(parents=True)
        (done / "evaluation.json").write_text('{"trials": []}')
        if stamp == "first":
            assert find_plan(tmp_path).name == "run_all.second.json"
    status, text = said(capsys, "run-all", "--resume", ".")
    assert "come to its end" in text


def test_a_script_that_has_nothing_for_the_task_is_refused_before_anything_runs(capsys, tmp_path):
    (tmp_path / "mine.json").write_text('{"elsewhere": []}')
    status, text = said(capsys, "run", "--agent-type", "scripted", "--script", "mine.json")
    assert status == 1
    assert "nothing for task 'digits'" in text
    assert "--script NAME_OR_FILE" in text
    assert not (tmp_path / "logs/run.json").exists()


def test_the_list_of_an_empty_store_is_a_list(capsys):
    assert main(["agents", "list"]) == 0
    assert "digits" in capsys.readouterr().out


@pytest.mark.slow
def test_the_old_runners_options_leave_the_old_log_tree_and_its_evaluation(tmp_path, capsys):
    words = ["--agent-type", "Agent", "--max-steps", "50", "--max-time", "600", "--python", sys.executable]
    assert main(["agents", "run", "--task", "digits", *words, "--log-dir", "logs/one", "--work-dir", "w"]) == 0
    tree = tmp_path / "logs/one"
    for name in ("log", "agent_log/main_log", "env_log/trace.json", "env_log/overall_time.txt"):
        assert (tree / name).is_file(), name
    assert (tree / "env_log/traces/step_0_files/submission.csv").is_file()
    assert (tree / "env_log/traces/step_final_files/submission.csv").is_file()
    assert not (tree / "env_log/error.txt").exists()
    trace = json.loads((tree / "env_log/trace.json").read_text())
    assert [step["action"]["name"] for step in trace["steps"]] == ["Execute Script", "Final Answer"]
    assert main(["agents", "evaluate", "--log-folder", "logs", "--task", "digits", "--output-file", "r.json"]) == 0
    [(path, record)] = json.loads((tmp_path / "r.json").read_text()).items()
    assert path.endswith("logs/one/env_log/trace.json")
    assert list(record)[:10] == OLD_FIELDS
    assert record["submitted_final_answer"] is True
    assert 0.7 < record["final_score"] < 0.9
    status, text = said(capsys, "run", "--agent-type", "majority", "--log-dir", "logs/one")
    assert status == 1
    assert "--agent-type is starter there, majority here" in text
    status, text = said(capsys, "run", "--resume", "logs/one")
    assert status == 1
    assert "has come to its end" in text


@pytest.mark.slow
def test_models_tasks_and_seeds_run_beside_one_another_each_with_its_folder(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "agml_assets.cli", "agents", "run-all", "--task", "digits"]
    command += ["--agent-type", "majority", "--seeds", "3", "--jobs", "2", "--log-root", "logs"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    [stamp] = (tmp_path / "logs/majority").iterdir()
    assert sorted(one.name for one in (stamp / "digits").iterdir()) == ["seed_1", "seed_2", "seed_3"]
    seeds = [
        json.loads((one / "evaluation.json").read_text())["trials"][0]["seed"]
        for one in (stamp / "digits").iterdir()
    ]
    assert sorted(seeds) == [1, 2, 3]
    assert done.stdout.count("done") == 3


@pytest.mark.slow
def test_many_that_were_killed_go_on_and_are_compared(tmp_path, capsys):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "agml_assets.cli", "agents", "run-all", "--task", "digits"]
    command += ["--agent-type", "starter", "--seeds", "2", "--log-root", "logs"]
    many = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while not list((tmp_path / "logs").glob("starter/*/digits/seed_1/workspace/digits/state/*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    many.kill()
    many.wait()
    assert len(list((tmp_path / "logs").glob("run_all.*.json"))) == 1
    assert main(["agents", "run-all", "--resume", "logs"]) == 0
    assert "come to its end" in said(capsys, "run-all", "--resume", "logs")[1]
    assert main(["agents", "run", "--agent-type", "scripted", "--log-dir", "logs/mine"]) == 0
    assert main(["agents", "evaluate", "--log-root", "logs", "--output-file", "all.json"]) == 0
    board = json.loads((tmp_path / "all.json").read_text())
    assert {cell["agent"]: cell["n"] for cell in board["cells"]} == {"starter": 2, "scripted": 1}
    assert board["tasks"][0]["baseline"]["n"] == 2
    assert not board["left_out"]
    assert main(["agents", "plot", "--log-root", "logs", "--output-dir", "drawn"]) == 0
    assert len(list((tmp_path / "drawn").glob("*.pdf"))) == 10
