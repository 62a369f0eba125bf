"""Agents that think, driven offline: by answers that are recited, and by a server on loopback."""

import json

import pytest
from blake3 import blake3

from agml_assets.agents.runs import read_trials, run_trials
from agml_assets.agents.scoring import judge
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, Limits
from tests.agents.tiny_task import BEST, BETTER, PYTHON, STARTER, Answers, call, make_task, serving

SECRET = "sk-local-secret-000111"
SURE = {"max_retries": 0}


@pytest.fixture
def task(tmp_path):
    return make_task(tmp_path / "task")


def run(task, agent, folder, seeds=(1,), **options):
    """Run trials and return them."""
    done = run_trials(task, agent, seeds, folder, judge=judge, python=PYTHON, **options)
    return read_trials(done.eval_file, done.workspaces)


def agent(kind, model, **changes):
    return AgentEntry(**{"key": "thinker", "kind": kind, "model": model, "model_arguments": SURE, **changes})


def recited(kind, *outputs, **arguments):
    return agent(kind, "mockllm/model", model_arguments={"outputs": list(outputs), **arguments})


def test_react_thinks_calls_tools_and_submits(task, tmp_path):
    (trial,) = run(
        task,
        recited(
            "react",
            call("shell", "I look around.", command="ls data && cat rules.txt"),
            call("python", "I count.", code="print(6 * 7)"),
            "I have no action.",
            call("write_file", "I answer.", file="submission.csv", content=BETTER),
            call("edit", "I mend it.", file="submission.csv", old="c,0", new="c,3"),
            call("validate_submission"),
            call("submit", "Done.", answer="mended"),
        ),
        tmp_path / "run",
    )
    assert [step.action for step in trial.steps] == [
        "shell",
        "python",
        "write_file",
        "edit",
        "validate_submission",
        "submit",
    ]
    assert trial.steps[0].thought == "I look around."
    assert "train.csv" in trial.steps[0].observation
    assert "as they were" in trial.steps[0].observation
    assert trial.steps[1].observation == "42"
    assert "has the form" in trial.steps[4].observation
    assert (trial.ending, trial.score) == ("submitted", 1.0)
    assert [one["step"] for one in trial.calls] == [0, 1, 2, 2, 3, 4, 5]
    assert "Name the numbers." in trial.calls[0]["input"]
    assert "42" in trial.calls[2]["input"]
    assert "42" not in trial.calls[1]["input"]
    (usage,) = trial.usage.values()
    assert usage.total_tokens == sum(one["input_tokens"] + one["output_tokens"] for one in trial.calls)


def test_a_model_that_stops_acting_has_not_submitted_and_what_stands_is_scored(task, tmp_path):
    (trial,) = run(
        task,
        recited("react", call("write_file", file="submission.csv", content=BETTER), "I am done, I think."),
        tmp_path / "run",
    )
    assert (trial.ending, trial.submitted, trial.score) == ("no_submission", False, pytest.approx(2 / 3))


def test_tokens_are_limited(task, tmp_path):
    (trial,) = run(
        task,
        recited("react", call("write_file", file="submission.csv", content=BETTER), call("shell", command="ls")),
        tmp_path / "run",
        limits=Limits(steps=50, seconds=60, seconds_per_command=20, tokens=1500),
    )
    assert (trial.ending, trial.score) == ("token_limit", pytest.approx(2 / 3))
    assert sum(one.total_tokens for one in trial.usage.values()) >= 1500


def test_a_whole_task_through_an_openai_compatible_server(task, tmp_path, monkeypatch):
    answers = Answers(
        call("shell", "First I look.", command="cat train.py"),
        call("write_file", "Then I answer.", file="submission.csv", content=BEST),
        call("submit", "Done.", answer="all three"),
    )
    with serving(answers, monkeypatch) as model:
        done = run_trials(task, agent("react", model), (1,), tmp_path / "run", judge=judge, python=PYTHON)
    (trial,) = read_trials(done.eval_file, done.workspaces)
    assert (trial.ending, trial.score, len(trial.steps)) == ("submitted", 1.0, 3)
    assert answers.asked[0]["model"] == "test"
    assert {one["function"]["name"] for one in answers.asked[0]["tools"]} >= {"shell", "python", "edit", "submit"}
    assert answers.keys[0] == f"Bearer {SECRET}"
    (usage,) = trial.usage.values()
    assert (usage.input_tokens, usage.output_tokens) == (30, 15)
    from inspect_ai.log import read_eval_log

    assert SECRET not in read_eval_log(str(done.eval_file)).model_dump_json()
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_wrong_calls_are_told_to_the_model_and_the_trial_goes_on(task, tmp_path, monkeypatch):
    answers = Answers(
        call("fly", to="the moon"),
        call("shell", cmd="ls"),
        {"tool": "shell", "arguments": '{"command": "ls'},
        call("read_file", file="/etc/passwd"),
        call("edit", file="train.py", old="no such text", new=""),
        call("shell", command="exit 3"),
        call("write_file", file="submission.csv", content=BEST),
        call("submit"),
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert len(trial.steps) == 8
    said = [step.observation for step in trial.steps]
    assert "fly" in said[0]
    assert "command" in said[1]
    assert "outside the workspace" in said[3]
    assert "exactly once" in said[4]
    assert "[exit status 3]" in said[5]
    assert (trial.ending, trial.score) == ("submitted", 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        (500, '{"error": {"message": "boom"}}'),
        pytest.param((429, '{"error": {"message": "too many"}}'), marks=pytest.mark.slow),
        pytest.param((200, "{no json"), marks=pytest.mark.slow),
    ],
    ids=["500", "429", "no JSON"],
)
def test_a_model_that_fails_ends_the_trial_as_an_error_and_what_stands_is_scored(
    task, tmp_path, monkeypatch, answer
):
    answers = Answers(call("write_file", file="submission.csv", content=BETTER), *[answer] * 9)
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert (trial.ending, trial.score, len(trial.steps)) == ("error", pytest.approx(2 / 3), 1)
    assert "Error" in trial.error
    assert SECRET not in trial.error


def test_a_prompt_that_is_too_long_is_shortened_and_tried_again(task, tmp_path, monkeypatch):
    too_long = (
        400,
        '{"error": {"message": "maximum context length is 10", "code": "context_length_exceeded"}}',
    )
    answers = Answers(
        call("shell", "one", command="echo first"),
        call("shell", "two", command="echo second"),
        too_long,
        call("write_file", file="submission.csv", content=BEST),
        call("submit"),
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert (trial.ending, trial.score) == ("submitted", 1.0)
    tried, again = answers.asked[2]["messages"], answers.asked[3]["messages"]
    assert len(again) < len(tried)
    assert again[:2] == tried[:2]


def test_a_prompt_that_never_fits_ends_the_trial_as_an_error(task, tmp_path, monkeypatch):
    body = '{"error": {"message": "maximum context length", "code": "context_length_exceeded"}}'
    with serving(Answers(*[(400, body)] * 9), monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert trial.ending == "error"
    assert "too long" in trial.error


PLAN = """\
Reflection: nothing yet.
Research Plan and Status: **1. answer** (open)
Fact Check: nothing is known.
Thought: I begin.
"""


def test_research_plans_acts_and_keeps_older_steps_as_summaries_by_the_fast_model(task, tmp_path, monkeypatch):
    answers = Answers(
        call("list_files", PLAN, dir_path="."),
        call("write_file", PLAN, file_name="submission.csv", content=BETTER),
        call("inspect_script_lines", PLAN, script_name="train.py", start_line_number=1, end_line_number=9),
        call("read_file", PLAN, file_name="rules.txt"),
        "SUMMARY OF STEP ZERO",
        call("write_file", PLAN, file_name="submission.csv", content=BEST),
        "SUMMARY OF STEP ONE",
        call("final_answer", PLAN, final_answer="done"),
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("research", model), tmp_path / "run")
    assert (trial.ending, trial.score, len(trial.steps)) == ("submitted", 1.0, 6)
    last = answers.asked[-1]["messages"][-1]["content"]
    assert "SUMMARY OF STEP ZERO" in last
    assert "SUMMARY OF STEP ONE" in last
    assert "1. answer (open)" in last
    assert "Step 2:" in last  # in full
    assert "Step 1:" not in last
    assert "as they were" in last


def test_research_reads_long_observations_by_windows_and_asks_models_within_actions(task, tmp_path, monkeypatch):
    long = "x = 1\n" * 2500  # 15,000 characters: two windows
    edited = "Here it is:\n```python\nopen('submission.csv', 'w').write('id,label\\na,1\\nb,2\\nc,3\\n')\n```"
    answers = Answers(
        call("write_file", PLAN, file_name="long.py", content=long),
        call("read_file", PLAN, file_name="long.py"),
        "PART ONE",
        "PART TWO",
        call("understand_file", PLAN, file_name="rules.txt", things_to_look_for="rules"),
        "THERE ARE RULES",
        call("edit_script", PLAN, script_name="train.py", edit_instruction="be right", save_name="train.py"),
        edited,
        "SUMMARY",
        call("execute_script", PLAN, script_name="train.py"),
        "SUMMARY",
        call("undo_edit_script", PLAN, script_name="train.py"),
        "SUMMARY",
        call("reflection", PLAN, things_to_reflect_on="all"),
        "I REFLECT",
        "SUMMARY",
        call("final_answer", PLAN, final_answer="done"),
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("research", model), tmp_path / "run")
    assert trial.error == ""
    by_action = {step.action: step for step in trial.steps}
    assert "THERE ARE RULES" in by_action["understand_file"].observation
    assert "+open('submission.csv', 'w')" in by_action["edit_script"].observation
    assert "one of three is right" in by_action["undo_edit_script"].observation
    assert "I REFLECT" in by_action["reflection"].observation
    assert "[Summed up] PART ONE\nPART TWO" in answers.asked[4]["messages"][-1]["content"]
    assert [one["tool"] for one in trial.calls].count(True) == 3
    assert trial.score == 1.0
    before, after = by_action["edit_script"], by_action["undo_edit_script"]
    assert before.files["backup/train.py_000001"] == after.files["train.py"]
    assert "backup/train.py_000001" not in after.files


def test_edits_are_undone_from_the_newest_to_the_oldest(task, tmp_path, monkeypatch):
    edits = [f"```python\n# version {place}\n```" for place in range(1, 4)]
    edit = call("edit_script", PLAN, script_name="train.py", edit_instruction="change", save_name="train.py")
    undo = call("undo_edit_script", PLAN, script_name="train.py")
    turns = [[edit, edits[0]], [edit, edits[1]], [edit, edits[2]], [undo], [undo], [undo], [undo]]
    answers: list = []
    for place, turn in enumerate(turns):
        answers += (["SUMMARY"] if place > 3 else []) + turn
    with serving(Answers(*answers, "SUMMARY", call("final_answer", PLAN, final_answer="")), monkeypatch) as model:
        (trial,) = run(task, agent("research", model), tmp_path / "run")
    said = [step.observation for step in trial.steps]
    assert "# version 2" in said[3]
    assert "# version 1" in said[4]
    assert "one of three is right" in said[5]
    assert "no edit of train.py to undo" in said[6]
    assert trial.steps[6].files["train.py"] == blake3(STARTER.encode()).hexdigest()


def test_a_model_that_never_answers_ends_at_the_time_limit_and_what_stands_is_scored(task, tmp_path, monkeypatch):
    answers = Answers(call("write_file", file="submission.csv", content=BETTER), ("wait", 20))
    with serving(answers, monkeypatch) as model:
        (trial,) = run(
            task, agent("react", model), tmp_path / "run", limits=Limits(steps=9, seconds=5, seconds_per_command=9)
        )
    assert (trial.ending, trial.score) == ("time_limit", pytest.approx(2 / 3))
    assert trial.seconds < 19


def test_research_that_names_no_action_is_asked_again_and_then_ends(task, tmp_path):
    (trial,) = run(task, recited("research", "I only talk."), tmp_path / "run")
    assert (trial.ending, trial.steps, trial.score) == ("no_submission", (), None)
    assert len(trial.calls) == 5


def test_what_a_model_lacks_is_told_before_anything_runs(task, tmp_path, monkeypatch):
    monkeypatch.delenv("LOCAL_API_KEY", raising=False)
    monkeypatch.setenv("LOCAL_BASE_URL", "http://127.0.0.1:1/v1")
    with pytest.raises(UserError, match="LOCAL_API_KEY"):
        run(task, agent("react", "openai-api/local/test"), tmp_path / "run")
    assert not (tmp_path / "run" / "workspaces").exists()


def test_an_answer_that_was_not_acted_on_when_the_process_died_is_acted_on_and_not_asked_again(
    task, tmp_path, monkeypatch
):
    state = tmp_path / "run" / "state" / "seed_1.json"

    class Died(BaseException):
        pass

    def die(line):
        if "step 1 " in line:
            raise Died

    answers = Answers(call("write_file", file="submission.csv", content=BETTER), call("submit"))
    with serving(answers, monkeypatch) as model:
        with pytest.raises(BaseException):  # noqa: B017
            run(task, agent("react", model), tmp_path / "run", on_progress=die)
        found = json.loads(state.read_text())
        assert len(found["steps"]) == 1
        # As it was a moment before: the model had answered, nothing was done.
        while found["messages"][-1]["role"] == "tool":
            found["messages"].pop()
        found["steps"] = []
        state.write_text(json.dumps(found))
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert [step.action for step in trial.steps] == ["write_file", "submit"]
    assert len(answers.asked) == 2
    assert len(trial.calls) == 2
    assert (trial.ending, trial.score) == ("submitted", pytest.approx(2 / 3))
