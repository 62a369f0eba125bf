"""`agml-assets agents` as people type it: what it says of mistakes, and whole runs by the old runner's options."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    status, text = said(capsys, "run", "--agent-type", "starter", "--log-dir", "logs/one")
    assert status == 2
    assert "--resume" in text
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
