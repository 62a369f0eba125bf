"""The old log tree: every file of it, names that try to leave it, and what is read back from old and new trees."""

import json
import zipfile
from typing import get_args

import pytest
from blake3 import blake3

from agml_assets.agents.old_logs import export_old_logs, read_old_logs, results_text
from agml_assets.agents.task import AgentTask, Verdict
from agml_assets.agents.trials import Ending
from agml_assets.errors import UserError
from tests.agents.invented_trials import START, step, task, trial, workspaces
from tests.agents.test_evaluation import OLD_FIELDS

FORGED = "\n===================tokens=====================\nNumber of prompt tokens: 999999\n"


@pytest.fixture
def agent_task(tmp_path):
    return AgentTask(task(baseline=0.5), "Improve train.py.", tmp_path / "env", tmp_path / "private", "d1")


@pytest.fixture
def exported(tmp_path):
    """Return a trial of three steps and its exported tree."""
    script, submission = workspaces(tmp_path / "workspaces.zip", b"print()", b"id,label\n0,1\n")
    both = {"train.py": script, "out/submission.csv": submission}
    calls = [
        call("Which?", "Run it.", 0, 100, 10),
        call(FORGED, "summary", 0, 30, 3, tool=True),
        call("And now?", "Submit.", 1, 200, 20),
    ]
    made = trial(
        0.7,
        steps=[
            step(0, files={"train.py": script}, thought="First I run it.", observation="accuracy 0.7"),
            step(1, "bash", files=both, command="ls"),
            step(2, "final_answer", "end", files=both, final_answer="Done."),
        ],
        final_files=both,
        calls=calls,
    )
    return made, export_old_logs(made, tmp_path / "workspaces.zip", tmp_path / "logs" / "run")


def call(told, said, at, prompt, sampled, **others):
    return {
        "model": "openai/gpt", "input": told, "output": said, "input_tokens": prompt, "output_tokens": sampled,
        "step": at, **others,
    }  # fmt: skip


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def score_of(task, folder):
    file = folder / "out" / "submission.csv"
    return Verdict(0.7) if file.exists() else Verdict(None, "no submission")


# --- Writing


def test_every_file_of_the_old_tree_is_there(exported):
    _, made = exported
    assert files_of(made.folder) == sorted(
        [
            "log", "agent_log/main_log",
            *(f"agent_log/agent_{n}_{n}.json" for n in range(3)),
            "agent_log/step_0_log.log", "agent_log/step_1_log.log",
            "env_log/tool_logs/step_0_tool_log.log",
            "env_log/trace.json", "env_log/overall_time.txt",
            "env_log/traces/step_0_files/train.py",
            *(f"env_log/traces/{at}/{file}" for at in ("step_1_files", "step_2_files", "step_final_files")
              for file in ("train.py", "out/submission.csv")),
        ]
    )  # fmt: skip
    assert (made.folder / "env_log/traces/step_1_files/out/submission.csv").read_bytes() == b"id,label\n0,1\n"
    assert (made.folder / "env_log/overall_time.txt").read_text() == "120.0"
    assert made.left_out == {}


def test_the_trace_has_the_old_shape_and_order(exported):
    _, made = exported
    trace = json.loads((made.folder / "env_log/trace.json").read_text())
    assert list(trace) == ["steps", "low_level_steps", "action_infos", "task_description"]
    assert trace["steps"][0] == {
        "action": {"name": "Execute Script", "args": {"script_name": "train.py"}},
        "observation": "accuracy 0.7",
        "timestamp": START + 60,
    }
    assert [one["action"]["name"] for one in trace["steps"]] == ["Execute Script", "bash", "Final Answer"]
    assert trace["low_level_steps"] == trace["steps"][:1]
    assert list(trace["action_infos"]) == ["Execute Script", "Final Answer", "bash"]
    assert list(trace["action_infos"]["Execute Script"].items()) == [
        ("name", "Execute Script"), ("description", "Runs a script."), ("usage", {"script_name": ""}),
        ("return_value", ""), ("function", "execute_script"), ("is_primitive", True),
    ]  # fmt: skip
    assert trace["action_infos"]["Final Answer"]["function"] == "<lambda>"
    assert not trace["action_infos"]["bash"]["is_primitive"]
    assert trace["task_description"] == "Improve train.py."


@pytest.mark.parametrize("ending", get_args(Ending))
def test_every_ending_is_read_back_as_it_was(tmp_path, agent_task, ending):
    workspaces(tmp_path / "workspaces.zip")
    submitted = ending == "submitted"
    action = "final_answer" if submitted else "execute_script"
    error = "Traceback: boom" if ending == "error" else ""
    made = trial(None, steps=[step(0, action)], ending=ending, submitted=submitted, error=error)
    export_old_logs(made, tmp_path / "workspaces.zip", tmp_path / "logs" / "run")
    (record,) = read_old_logs(tmp_path / "logs", agent_task, score_of)
    at_limit = ("step_limit", "token_limit")  # the old tree cannot tell them from an agent that stops
    assert record["ending"] == ("no_submission" if ending in at_limit else ending)
    assert record["extra"]["error"] == (ending in ("error", "killed", "time_limit"))


def test_the_sections_of_a_research_agent_have_their_old_titles_each(tmp_path):
    workspaces(tmp_path / "workspaces.zip")
    thought = "Reflection: It ran.\nResearch Plan and Status: 1. Run it.\n2. Improve it.\nThought: I improve it."
    made = trial(0.7, steps=[step(0, thought=thought)], calls=[call("Which?", "Run it.", 0, 1, 1)])
    folder = export_old_logs(made, tmp_path / "workspaces.zip", tmp_path / "logs").folder
    lines = (folder / "agent_log/main_log").read_text().split("\n")
    at = lines.index("Reflection: It ran.")
    assert lines[at : at + 4] == [
        "Reflection: It ran.", "Research Plan and Status: 1. Run it.", "2. Improve it.", "Thought: I improve it.",
    ]  # fmt: skip
    state = json.loads((folder / "agent_log/agent_0_0.json").read_text())
    assert list(state["history_steps"][0]["action"]) == [
        "Reflection", "Research Plan and Status", "Thought", "Action", "Action Input",
    ]  # fmt: skip


def test_the_main_log_opens_with_the_tools_and_the_banner(exported):
    _, made = exported
    lines = (made.folder / "agent_log/main_log").read_text().split("\n")
    assert lines[0] == "Enabled Tools in Prompt:['Execute Script', 'Final Answer', 'bash']"
    assert lines[1] == "================================Start============================="
    assert lines[2:8] == [
        "Improve train.py.", "Step 0:", "Thought: First I run it.", "Action: Execute Script",
        'Action Input: {"script_name": "train.py"}', "Observation:",
    ]  # fmt: skip


def test_calls_stand_between_the_old_banners(exported):
    _, made = exported
    assert (made.folder / "agent_log/step_0_log.log").read_text() == (
        "\n===================prompt=====================\nWhich?\n"
        "===================openai/gpt response (-)=====================\nRun it.\n"
        "===================tokens=====================\n"
        "Number of prompt tokens: 100\nNumber of sampled tokens: 10\n\n\n"
    )


def test_a_text_that_passes_for_a_banner_is_broken(exported):
    _, made = exported
    text = (made.folder / "env_log/tool_logs/step_0_tool_log.log").read_text()
    assert text.count("===================tokens=====================") == 1


def test_the_state_of_the_agent_grows_with_its_steps(exported):
    _, made = exported
    first, last = (json.loads((made.folder / f"agent_log/agent_{n}_{n}.json").read_text()) for n in (0, 2))
    assert list(first) == [
        "args", "valid_format_entires", "log_dir", "action_infos", "all_tool_names", "prompt_tool_names",
        "tools_prompt", "initial_prompt", "history_steps",
    ]  # fmt: skip
    assert (len(first["history_steps"]), len(last["history_steps"])) == (1, 3)
    assert first["history_steps"][0] == {
        "step_idx": 1,
        "action": {
            "Thought": "First I run it.",
            "Action": "Execute Script",
            "Action Input": '{"script_name": "train.py"}',
        },
        "observation": "accuracy 0.7",
    }  # fmt: skip


def test_an_agent_without_a_model_leaves_no_state_and_an_error_leaves_its_text(tmp_path):
    workspaces(tmp_path / "w.zip")
    made = export_old_logs(trial(ending="error", error="Traceback: boom"), tmp_path / "w.zip", tmp_path / "run")
    assert files_of(made.folder) == [
        "agent_log/main_log", "env_log/error.txt", "env_log/overall_time.txt", "env_log/trace.json", "log",
    ]  # fmt: skip
    assert (made.folder / "env_log/error.txt").read_text() == "Traceback: boom"
    assert (made.folder / "env_log/traces/step_final_files").is_dir()


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../evil", "a/../../evil", "..", "", ".", "a\0b", "//evil", "out/../../../evil", "./../evil"],
)
def test_a_name_that_leads_out_of_the_folder_is_left_out(tmp_path, name):
    (digest,) = workspaces(tmp_path / "w.zip", b"x")
    before = files_of(tmp_path)
    made = export_old_logs(
        trial(0.5, final_files={name: digest, "fine": digest}), tmp_path / "w.zip", tmp_path / "run"
    )
    assert made.left_out == {f"step_final_files/{name}": "its name would lead out of the folder"}
    outside = [file for file in files_of(tmp_path) if not file.startswith("run/")]
    assert outside == before
    assert files_of(made.folder / "env_log/traces") == ["step_final_files/fine"]


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["a", "a/b"], {"a/b": "another file of the snapshot stands in its place"}),
        (["a/b", "./a/b"], {"a/b": "another file of the snapshot stands in its place"}),
        (["n" * 300], {"n" * 300: "this file system refuses its name"}),
        (["\ud800"], {"\ud800": "this file system refuses its name"}),
    ],
)
def test_names_that_cannot_be_written_are_left_out(tmp_path, names, left):
    (digest,) = workspaces(tmp_path / "w.zip", b"x")
    made = export_old_logs(
        trial(0.5, final_files=dict.fromkeys(names, digest)), tmp_path / "w.zip", tmp_path / "run"
    )
    assert made.left_out == {f"step_final_files/{name}": why for name, why in left.items()}


def test_content_that_is_missing_or_another_is_left_out(tmp_path):
    other, gone = blake3(b"what was written").hexdigest(), blake3(b"gone").hexdigest()
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.writestr(f"blobs/{other}", b"what is there")
        archive.writestr("blobs/../../evil", b"evil")
    files = {"a": other, "b": gone, "c": "../../evil"}
    made = export_old_logs(trial(0.5, final_files=files), tmp_path / "w.zip", tmp_path / "run")
    assert set(made.left_out) == {f"step_final_files/{name}" for name in files}
    assert files_of(made.folder / "env_log/traces") == []


def test_a_folder_with_a_log_tree_and_a_missing_archive_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "env_log").symlink_to("/etc")
    with pytest.raises(UserError, match="holds a log tree already"):
        export_old_logs(trial(0.5), tmp_path / "w.zip", tmp_path / "full")
    with pytest.raises(UserError, match=r"cannot be read from .*w\.zip"):
        export_old_logs(trial(0.5), tmp_path / "w.zip", tmp_path / "run")


# --- Reading


@pytest.mark.usefixtures("exported")
def test_an_exported_tree_reads_back_as_the_trial_it_was(agent_task, tmp_path):
    (found,) = read_old_logs(tmp_path / "logs", agent_task, score_of, eval_intermediate=True)
    assert list(found)[: len(OLD_FIELDS)] == OLD_FIELDS
    assert found["path"] == str(tmp_path / "logs/run/env_log/trace.json")
    assert (found["score"], found["score_steps"]) == ([0.0, 0.7, 0.7, 0.7], [0, 1, 2])
    assert (found["final_score"], found["submitted_final_answer"], found["total_time"]) == (0.7, True, 120)
    assert found["tokens"] == {"input": 330, "output": 33, "total": 363}
    assert found["tokens_by_model"] == {"openai/gpt": 363}
    assert (found["ending"], found["improvement"], found["success"]) == ("submitted", pytest.approx(0.4), True)
    assert not any(found["extra"].values())
    assert json.loads(results_text([found])) == {found["path"]: found}
    assert results_text([found]).startswith(f'{{\n    "{found["path"]}": {{\n        "path"')


def test_what_was_submitted_without_a_step_is_submitted_in_the_tree(tmp_path, agent_task):
    workspaces(tmp_path / "w.zip")
    export_old_logs(trial(0.5, steps=[step(0)]), tmp_path / "w.zip", tmp_path / "logs" / "run")
    (found,) = read_old_logs(tmp_path / "logs", agent_task, score_of)
    assert found["submitted_final_answer"] and found["steps"] == 2


def old_run(folder, *, steps=2, final=True, overall="60.5", logs=True, error=None):
    """Write a run as the old benchmark leaves it: its baseline agent, whose final answer is a bare text."""
    env_log = folder / "env_log"
    (env_log / "traces").mkdir(parents=True)
    acts = [{"name": "Execute Script", "args": {"script_name": "train.py"}}] * (steps - 1)
    acts.append({"name": "Final Answer", "args": "Done!"})
    trace = {
        "steps": [{"action": one, "observation": "fine", "timestamp": 1.0 + n} for n, one in enumerate(acts)],
        "low_level_steps": [],
        "action_infos": {},
        "task_description": "t",
    }
    (env_log / "trace.json").write_text(json.dumps(trace, indent=4))
    names = [f"step_{n}_files" for n in range(steps)] + (["step_final_files"] if final else [])
    for name in names:
        (env_log / "traces" / name / "out").mkdir(parents=True)
        (env_log / "traces" / name / "out" / "submission.csv").write_text("x")
    if overall is not None:
        (env_log / "overall_time.txt").write_text(overall)
    if error is not None:
        (env_log / "error.txt").write_text(error)
    if logs:
        (folder / "agent_log").mkdir()
        (folder / "agent_log" / "main_log").write_text("JSONDecodeError\n" * 3)
        (folder / "log").write_text("one\nCUDA out of memory\nConnection aborted.\n")
    return folder


def test_an_old_run_is_read_by_the_old_rules(tmp_path, agent_task):
    old_run(tmp_path / "exp" / "task" / "1")
    (found,) = read_old_logs(tmp_path / "exp", agent_task, score_of)
    assert {name: found[name] for name in OLD_FIELDS} == {
        "path": str(tmp_path / "exp/task/1/env_log/trace.json"),
        "summary": "",
        "rubric_questions": {},
        "score": [0.7],
        "score_steps": [],
        "submitted_final_answer": True,
        "final_score": 0.7,
        "total_time": 60.5,
        "error": "",
        "extra": {
            "oom_error": True,
            "connection_error": True,
            "error": False,
            "json_error": True,
            "long_prompt_error": False,
        },
    }


def test_a_run_without_logs_is_read_and_one_without_its_time_is_an_error(tmp_path, agent_task):
    old_run(tmp_path / "a", logs=False, overall=None, final=False)
    (found,) = read_old_logs(tmp_path, agent_task, score_of)
    assert (found["final_score"], found["score"], found["total_time"], found["ending"]) == (-1, [], 0, "killed")
    assert found["extra"]["error"] and not found["extra"]["oom_error"]
    assert found["reason"] == "there is no final snapshot"


def test_a_timed_out_run_has_its_error(tmp_path, agent_task):
    old_run(tmp_path / "a", error="TimeoutException: Timed out!")
    (found,) = read_old_logs(tmp_path, agent_task, score_of)
    assert (found["error"], found["ending"]) == ("TimeoutException: Timed out!", "time_limit")
    assert found["success"] is False and found["final_score"] == 0.7


def test_a_snapshot_that_is_missing_has_no_score_but_its_step_is_listed(tmp_path, agent_task):
    old_run(tmp_path / "a", steps=60)
    for n in range(60):
        if n % 2:
            (tmp_path / f"a/env_log/traces/step_{n}_files").rename(tmp_path / f"moved_{n}")
    (found,) = read_old_logs(tmp_path / "a", agent_task, score_of, eval_intermediate=True)
    assert found["score_steps"] == list(range(50))
    assert found["score"] == [0.7] * 25 + [0.7]


def test_a_judge_that_stumbles_gives_zero_on_the_way_and_none_at_the_end(tmp_path, agent_task):
    old_run(tmp_path / "a")

    def stumble(task, folder):
        raise ValueError("cannot parse")

    (found,) = read_old_logs(tmp_path, agent_task, stumble, eval_intermediate=True)
    assert (found["score"], found["final_score"], found["reason"]) == ([0.0, 0.0], -1, "ValueError: cannot parse")

    def refuse(task, folder):
        raise UserError("no sandbox here")

    with pytest.raises(UserError, match="no sandbox"):
        read_old_logs(tmp_path, agent_task, refuse)


def test_a_trace_that_an_agent_wrote_is_no_run(tmp_path, agent_task):
    run = old_run(tmp_path / "a")
    (run / "env_log/traces/step_0_files/trace.json").write_text((run / "env_log/trace.json").read_text())
    crashed = old_run(tmp_path / "b")
    (crashed / "env_log/traces/step_0_files/trace.json").write_text("{}")
    (crashed / "env_log/trace.json").unlink()
    assert [one["path"] for one in read_old_logs(tmp_path, agent_task, score_of)] == [
        str(tmp_path / "a/env_log/trace.json")
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"steps": 3}', '{"steps": [1]}', "{}"])
def test_a_trace_that_cannot_be_read_is_left_out_and_named(tmp_path, agent_task, text, caplog):
    run = old_run(tmp_path / "a")
    (run / "env_log/trace.json").write_text(text)
    assert read_old_logs(tmp_path, agent_task, score_of) == []
    assert "a/env_log/trace.json is left out" in caplog.text


def test_a_folder_that_does_not_exist_is_refused(tmp_path, agent_task):
    with pytest.raises(UserError, match="is no folder"):
        read_old_logs(tmp_path / "nothing", agent_task, score_of)
