"""Agents that think, driven offline: by answers that are recited, and by a server on loopback."""

import json
import shutil
from pathlib import Path

import pytest
from blake3 import blake3

from agml_assets.agents.error_kinds import classify
from agml_assets.agents.evaluation import Yardstick, evaluate_trial
from agml_assets.agents.runs import read_trials, run_trials, score_as_it_stands
from agml_assets.agents.scoring import judge
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, Limits
from tests.agents.tiny_task import BEST, BETTER, PYTHON, STARTER, Answers, call, make_task, serving

SECRET = "sk-local-secret-000111"
SURE = {"max_retries": 0}
SECTIONS = ("reflection", "research_plan_and_status", "fact_check", "thought")
GIVEN = {"react": {}, "research": dict.fromkeys(SECTIONS, "as it is")}
LAST = {
    "react": call("submit", answer="x"),
    "research": call("final_answer", final_answer="x", **GIVEN["research"]),
}


@pytest.fixture
def task(tmp_path):
    return make_task(tmp_path / "task")


def run(task, agent, folder, seeds=(1,), **options):
    """Run trials and return them."""
    done = run_trials(task, agent, seeds, folder, judge=judge, python=PYTHON, **options)
    return read_trials(done.eval_file, done.workspaces)


def copy_of(folder):
    """A copy of a run's folder, which may be gone on with otherwise."""
    return Path(shutil.copytree(folder, folder.with_name("copy")))


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
    assert classify(trial)["json"].steps == 2
    said = [step.observation for step in trial.steps]
    assert "fly" in said[0]
    assert "The actions are: shell, python, " in said[0]
    assert '{"command": "The command, of one line or many."}' in said[1]
    assert '{"command": "The command, of one line or many."}' in said[2]
    assert "outside the workspace" in said[3]
    assert "exactly once" in said[4]
    assert "[exit status 3]" in said[5]
    assert (trial.ending, trial.score) == ("submitted", 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        (401, '{"error": {"message": "no such key"}}'),
        (500, '{"error": {"message": "boom"}}'),
        pytest.param((429, '{"error": {"message": "Rate limit reached"}}'), marks=pytest.mark.slow),
    ],
    ids=["401", "500", "429"],
)
@pytest.mark.parametrize("kind", ["react", "research"])
def test_a_service_that_fails_is_no_failure_of_the_agent_and_the_trial_goes_on_later(
    task, tmp_path, monkeypatch, answer, kind
):
    tool, name = ("write_file", "file") if kind == "react" else ("write_file", "file_name")
    first = call(tool, "Thought: I write.", **{name: "submission.csv", "content": BETTER}, **GIVEN[kind])
    with (
        serving(Answers(first, *[answer] * 9), monkeypatch) as model,
        pytest.raises(UserError, match="cannot be asked: .* run the same again when the model answers") as error,
    ):
        run(task, agent(kind, model), tmp_path / "run")
    assert SECRET not in error.value.message
    standing = score_as_it_stands(copy_of(tmp_path / "run"), task, judge=judge)
    (trial,) = read_trials(standing.eval_file, standing.workspaces)
    assert (trial.ending, trial.score) == ("killed", pytest.approx(2 / 3))
    with serving(Answers(LAST[kind]), monkeypatch) as model:
        (trial,) = run(task, agent(kind, model), tmp_path / "run")
    assert (trial.ending, trial.score, len(trial.steps)) == ("submitted", pytest.approx(2 / 3), 2)


@pytest.mark.parametrize(
    "answer",
    [
        (400, '{"error": {"message": "this conversation is not allowed"}}'),
        pytest.param((200, "{no json"), marks=pytest.mark.slow),
    ],
    ids=["400", "no JSON"],
)
def test_an_answer_that_the_conversation_has_earned_ends_the_trial_and_what_stands_is_scored(
    task, tmp_path, monkeypatch, answer
):
    answers = Answers(call("write_file", file="submission.csv", content=BETTER), *[answer] * 9)
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert (trial.ending, trial.score, len(trial.steps)) == ("error", pytest.approx(2 / 3), 1)
    assert "Error" in trial.error
    assert SECRET not in trial.error


@pytest.mark.parametrize("kind", ["react", "research"])
def test_half_a_character_in_an_answer_stops_nothing(task, tmp_path, monkeypatch, kind):
    tool = {"react": "shell", "research": "list_files"}[kind]
    argument = {"react": "command", "research": "dir_path"}[kind]
    odd = call(tool, "hm \ud800", **{argument: "echo \ud83d"}, **GIVEN[kind])
    with serving(Answers(odd, LAST[kind]), monkeypatch) as model:
        (trial,) = run(task, agent(kind, model), tmp_path / "run")
    assert trial.ending == "submitted"
    assert trial.steps[0].arguments == {argument: "echo ?"}


def test_tokens_that_a_server_does_not_tell_are_estimated_and_said_to_be(task, tmp_path, monkeypatch):
    answers = Answers(call("submit", "x" * 400, answer="y"))
    answers.usage = None
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    (usage,) = trial.usage.values()
    assert usage.output_tokens == (400 + len('\nsubmit({"answer": "y"})')) // 4
    assert usage.input_tokens == len(trial.calls[0]["input"]) // 4
    assert evaluate_trial(trial, Yardstick("higher", None, None))["estimated_calls"] == 1


def test_of_several_calls_in_one_answer_research_makes_the_first_and_says_so(task, tmp_path, monkeypatch):
    several = call("list_files", dir_path=".", **GIVEN["research"]) | {"also": 2}
    answers = Answers(several, call("final_answer", final_answer="x", **GIVEN["research"]))
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("research", model), tmp_path / "run")
    assert len(trial.steps) == 2
    assert "Only the first call of your answer was made, not 2 more" in trial.steps[0].observation
    assert "not 2 more" in answers.asked[1]["messages"][-1]["content"]


def test_arguments_of_the_wrong_type_are_malformed(task, tmp_path, monkeypatch):
    answers = Answers(call("shell", command=5), call("submit", answer="x"))
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert classify(trial)["json"].steps == 1


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
    assert again[0] == tried[0]
    assert again[1]["content"].startswith(tried[1]["content"])
    assert "left out here" in again[1]["content"]


TOO_LONG = (
    {
        "object": "error",
        "message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 "
        "in the messages, 1000 in the completion). Please reduce the length of the messages or completion.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    },
    {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
        }
    },
    {"error": {"message": "It is too long.", "code": "context_length_exceeded"}},
    {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}},
)
"""What vLLM, llama.cpp, OpenAI and Anthropic say."""


class NarrowAnswers(Answers):
    """Of a server that refuses long conversations, in ever other words; questions without tools are summaries."""

    def __init__(self, most: int, *answers) -> None:
        super().__init__(*answers)
        self.most = most
        self.refused = 0

    def next(self):
        if sum(len(message["content"] or "") for message in self.asked[-1]["messages"]) > self.most:
            self.refused += 1
            return 400, json.dumps(TOO_LONG[(self.refused - 1) % len(TOO_LONG)])
        return super().next() if "tools" in self.asked[-1] else "SUMMARY"


def test_a_conversation_that_a_server_refuses_in_any_words_is_shortened_until_it_fits(task, tmp_path, monkeypatch):
    answers = NarrowAnswers(
        4000,
        call("shell", "one", command="head -c 2000 /dev/zero | tr '\\0' a"),
        call("shell", "two", command="head -c 2000 /dev/zero | tr '\\0' b"),
        call("shell", "three", command="head -c 15000 /dev/zero | tr '\\0' c"),
        call("write_file", file="submission.csv", content=BEST),
        call("submit"),
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert (trial.error, trial.ending, trial.score) == ("", "submitted", 1.0)
    assert answers.refused >= len(TOO_LONG)
    assert "characters left out" in answers.asked[-2]["messages"][-1]["content"]
    assert len(trial.calls) == len(answers.asked)


def test_research_that_a_server_refuses_in_any_words_is_shortened_until_it_fits(task, tmp_path, monkeypatch):
    answers = NarrowAnswers(
        4500,
        call("write_file", PLAN, file_name="a.txt", content="a" * 2000),
        call("write_file", PLAN, file_name="b.txt", content="b" * 2000),
        call("write_file", PLAN, file_name="c.txt", content="c" * 9000),
        call("understand_file", PLAN, file_name="c.txt", things_to_look_for="all"),
        call("edit_script", PLAN, script_name="c.txt", edit_instruction="mend it", save_name="c.txt"),
        call("write_file", PLAN, file_name="submission.csv", content=BEST),
        call("final_answer", PLAN, final_answer="done"),
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("research", model), tmp_path / "run")
    assert (trial.error, trial.ending, trial.score) == ("", "submitted", 1.0)
    assert answers.refused >= len(TOO_LONG)
    assert trial.steps[3].observation == "SUMMARY"
    assert "EnvError: too long input for the tool" in trial.steps[4].observation
    assert not any("context size" in message["content"] for message in answers.asked[-1]["messages"])


@pytest.mark.parametrize("kind", ["react", "research"])
def test_a_prompt_that_never_fits_ends_the_trial_as_an_error(task, tmp_path, monkeypatch, kind):
    with serving(NarrowAnswers(0), monkeypatch) as model:
        (trial,) = run(task, agent(kind, model), tmp_path / "run")
    assert trial.ending == "error"
    assert "maximum context length is 8192" in trial.error or "available context size" in trial.error
    assert classify(trial)["prompt"].ended


def test_another_error_about_a_conversation_that_speaks_of_contexts_ends_the_trial(task, tmp_path, monkeypatch):
    answers = Answers(
        call("shell", command="echo maximum context length"), *[(400, '{"error": {"message": "bad"}}')] * 9
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert trial.ending == "error"
    assert len(answers.asked) == 2


def test_a_model_that_reasons_and_says_nothing_has_thought_what_it_reasoned(task, tmp_path, monkeypatch):
    answers = Answers(
        call("write_file", file="submission.csv", content=BEST) | {"reasoning": "It must be three."},
        call("submit", "Done."),
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert [step.thought for step in trial.steps] == ["It must be three.", "Done."]
    assert trial.calls[0]["output"].startswith("It must be three.")


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


FILLED = {
    "reflection": "I saw nothing.",
    "research_plan_and_status": "1. **look**",
    "fact_check": "Nothing is known.",
    "thought": "I look.",
}


def test_research_fills_its_sections_as_arguments_of_the_actions(task, tmp_path, monkeypatch):
    answers = Answers(
        call("list_files", dir_path=".", **FILLED), call("final_answer", final_answer="done", **FILLED)
    )
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("research", model), tmp_path / "run")
    first, last = trial.steps
    assert (first.arguments, last.arguments) == ({"dir_path": "."}, {"final_answer": "done"})
    assert first.thought == (
        "Reflection: I saw nothing.\nResearch Plan and Status: 1. **look**\nFact Check: Nothing is known.\n"
        "Thought: I look."
    )
    assert "train.py" in first.observation
    assert "as you last wrote it:\n1. look" in answers.asked[1]["messages"][-1]["content"]
    offered = {one["function"]["name"]: one["function"]["parameters"] for one in answers.asked[0]["tools"]}
    assert offered["list_files"]["required"] == [*FILLED, "dir_path"]
    assert len(answers.asked) == 2


def test_research_asks_for_missing_sections_a_few_times_and_then_acts(task, tmp_path, monkeypatch):
    silent = call("list_files", dir_path=".") | {"reasoning": "It is dark."}
    answers = Answers(silent, silent, silent, silent, silent, call("final_answer", final_answer="done", **FILLED))
    with serving(answers, monkeypatch) as model:
        (trial,) = run(task, agent("research", model), tmp_path / "run")
    assert [step.action for step in trial.steps] == ["list_files", "list_files", "final_answer"]
    assert "lacks reflection, research_plan_and_status, fact_check." in answers.asked[1]["messages"][-1]["content"]
    assert trial.steps[0].thought == "Thought: It is dark."


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

    answers = Answers(call("write_file", "I answer.", file="submission.csv", content=BETTER), call("submit"))
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
    assert trial.steps[0].thought == "I answer."
    assert len(answers.asked) == 2
    assert len(trial.calls) == 2
    assert (trial.ending, trial.score) == ("submitted", pytest.approx(2 / 3))


def test_an_answer_without_an_action_is_answered_once_when_the_trial_goes_on(task, tmp_path, monkeypatch):
    state = tmp_path / "run" / "state" / "seed_1.json"

    class Died(BaseException):
        pass

    def die(line):
        if "step 1 " in line:
            raise Died

    answers = Answers(call("shell", command="ls"), call("submit"))
    with serving(answers, monkeypatch) as model:
        with pytest.raises(BaseException):  # noqa: B017
            run(task, agent("react", model), tmp_path / "run", on_progress=die)
        found = json.loads(state.read_text())
        found["messages"].append({"role": "assistant", "content": "I have no action.", "source": "generate"})
        state.write_text(json.dumps(found))
        (trial,) = run(task, agent("react", model), tmp_path / "run")
    assert [message["role"] for message in answers.asked[-1]["messages"]][-2:] == ["assistant", "user"]
    assert trial.ending == "submitted"
