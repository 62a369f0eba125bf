"""What a trial is worth: improvements worked out by hand, what counts as success, and what errors are called."""

import json
import math

import pytest

from agml_assets.agents.error_kinds import classify, flags_of
from agml_assets.agents.evaluation import (
    Baseline,
    Yardstick,
    baseline_of,
    chosen_steps,
    evaluate,
    evaluate_trial,
    shorten,
)
from agml_assets.errors import UserError
from agml_assets.store import dump_json
from tests.agents.invented_trials import agent, document, step, task, trial

OLD_FIELDS = [
    "path", "summary", "rubric_questions", "score", "score_steps", "submitted_final_answer", "final_score",
    "total_time", "error", "extra",
]  # fmt: skip


def record(score, direction="higher", baseline=0.5, reference=None, **others):
    return evaluate_trial(trial(score, **others), Yardstick(direction, baseline, reference))


# --- Improvement, success, the normalised score


@pytest.mark.parametrize(
    ("direction", "baseline", "score", "improvement"),
    [
        ("higher", 0.5, 0.6, 0.2),
        ("higher", 0.5, 0.4, -0.2),
        ("lower", 20.0, 15.0, 0.25),
        ("lower", 20.0, 30.0, -0.5),
        ("higher", -0.5, -0.4, 0.2),  # the old formula would call it a loss
        ("higher", -0.5, 0.5, 2.0),
        ("lower", -2.0, -3.0, 0.5),
    ],
)
def test_improvement_is_relative_to_the_size_of_the_baseline(direction, baseline, score, improvement):
    assert record(score, direction, baseline)["improvement"] == pytest.approx(improvement)


def test_success_is_strictly_more_than_ten_percent_and_rounding_does_not_decide():
    assert (0.55 - 0.5) / 0.5 > 0.1, "so in doubles"
    assert record(0.55)["success"] is False
    assert record(0.5501)["success"] is True
    assert record(18.0, "lower", 20.0)["success"] is False
    assert record(17.99, "lower", 20.0)["success"] is True


def test_success_is_told_at_every_threshold():
    at = record(0.59)["success_at"]
    assert at == {"0.05": True, "0.10": True, "0.15": True, "0.20": False, "0.30": False}


@pytest.mark.parametrize(
    ("direction", "baseline", "reference", "score", "normalised"),
    [
        ("higher", 0.5, 0.9, 0.7, 0.5),
        ("higher", 0.5, 0.9, 0.5, 0.0),
        ("higher", 0.5, 0.9, 1.1, 1.5),
        ("lower", 20.0, 10.0, 15.0, 0.5),
        ("lower", 20.0, 10.0, 25.0, -0.5),
        ("higher", 0.0, 0.8, 0.2, 0.25),
    ],
)
def test_the_starter_is_0_and_the_reference_1(direction, baseline, reference, score, normalised):
    assert record(score, direction, baseline, reference)["normalised"] == pytest.approx(normalised)


@pytest.mark.parametrize(
    ("baseline", "reference", "why"),
    [
        (0.5, None, "no reference score"),
        (0.5, 0.5, "no better than the starter"),
        (0.5, 0.4, "no better than the starter"),
        (None, 0.9, "the starter code has no score"),
    ],
)
def test_what_cannot_be_normalised_says_why(baseline, reference, why):
    found = record(0.7, "higher", baseline, reference)
    assert found["normalised"] is None and why in found["normalised_reason"]


def test_at_a_baseline_of_about_0_the_normalised_score_decides():
    found = record(0.09, "higher", 1e-10, 0.8)
    assert found["improvement"] is None and "about 0" in found["improvement_reason"]
    assert (found["success"], found["success_at"]["0.05"], found["success_at"]["0.15"]) == (True, True, False)
    assert record(0.08, "higher", 0.0, 0.8)["success"] is False
    assert document([0.09], baseline=0.0, reference=0.8)["success_by"] == "normalised"


def test_where_nothing_decides_success_it_is_neither_true_nor_false():
    for score in (0.7, None):
        found = record(score, baseline=0.0)
        assert found["success"] is None and set(found["success_at"].values()) == {None}
    made = document([0.7], baseline=0.0)
    assert made["success_by"] is None
    assert made["undecidable"] == (
        "the starter code scores 0: nothing can be said relative to about 0, and the task has no reference score"
    )


@pytest.mark.parametrize("ending", ["error", "killed", "time_limit"])
def test_a_trial_that_failed_or_ran_out_of_time_keeps_its_score_and_is_not_successful(ending):
    found = record(0.9, ending=ending)
    assert (found["raw"], found["improvement"], found["final_score"]) == (0.9, pytest.approx(0.8), 0.9)
    assert (found["success"], found["best"]["success"], found["score_above"]) == (False, False, True)


def test_no_submission_is_not_successful():
    found = record(None, ending="no_submission")
    assert (found["raw"], found["final_score"], found["score"], found["success"]) == (None, -1, [], False)
    assert (found["improvement"], found["improvement_reason"]) == (None, "no score")
    assert found["reason"] == "no submission.csv"


@pytest.mark.parametrize("score", [math.inf, -math.inf, math.nan])
def test_a_score_that_is_no_number_is_none(score):
    found = record(score, steps=[step(0, score=score)])
    assert found["raw"] is None and "no number" in found["reason"] and found["step_scores"] == [None]
    dump_json(found)


# --- Steps


def test_the_best_at_any_step_follows_the_direction():
    steps = [step(n, score=score) for n, score in enumerate([18.0, 15.0, None, 15.0])]
    best = record(19.0, "lower", 20.0, steps=steps)["best"]
    assert (best["raw"], best["step"], best["improvement"], best["success"]) == (15.0, 1, 0.25, True)
    best = record(21.0, "higher", 20.0, steps=steps)["best"]
    assert (best["raw"], best["step"], best["success"]) == (21.0, None, False)


def test_the_old_fields_come_first_with_the_scores_of_the_old_selection():
    steps = [step(n, score=None if n == 1 else n / 10) for n in range(3)]
    found = record(0.7, steps=steps)
    assert list(found)[: len(OLD_FIELDS)] == OLD_FIELDS
    assert (found["score"], found["score_steps"]) == ([0.0, 0.0, 0.2, 0.7], [0, 1, 2])
    assert (found["summary"], found["rubric_questions"]) == ("", {})
    assert found["step_scores"] == [0.0, None, 0.2]


def test_without_scores_of_steps_the_final_one_stands_alone():
    found = record(0.7, steps=[step(0), step(1)])
    assert (found["score"], found["score_steps"]) == ([0.7], [])


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, []),
        (50, list(range(50))),
        (51, list(range(50))),
        (99, list(range(50))),
        (100, list(range(0, 100, 2))),
        (160, list(range(0, 150, 3))),
    ],
)
def test_of_many_steps_the_first_50_of_every_so_many_are_chosen(n, expected):
    assert chosen_steps(n) == expected


# --- Errors


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        ("oom", "MemoryError"),
        ("oom", "Stopped: its processes used more than 8192 MB of memory."),
        ("connection", "openai.APIConnectionError: Connection error."),
        ("connection", "You exceeded your current quota, please check your plan and billing details."),
        ("connection", "openai.RateLimitError: 429"),
        ("json", "json.decoder.JSONDecodeError: Expecting value"),
        ("prompt", "EnvError: too long input for the tool"),
        ("prompt", "This model's maximum context length is 8192 tokens"),
        ("prompt", "the request exceeds the available context size, try increasing it"),
        ("prompt", "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
        ("prompt", "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
        ("prompt", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        ("prompt", "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."),
        ("json", 'Error parsing the following tool call arguments:\n\n{"a\n\nError details: Unterminated string'),
        ("time", "Command timed out before completing."),
        ("time", "Stopped: the command took longer than 60 s."),
    ],
)
def test_errors_have_a_kind_whether_they_ended_the_trial_or_were_seen(kind, text):
    seen = classify(trial(0.5, steps=[step(0), step(1, observation=text), step(2, observation=text)]))
    assert (seen.pop(kind).ended, {one.steps for one in seen.values()}) == (False, {0})
    assert classify(trial(steps=[step(0, observation=text)]))[kind].steps == 1
    ended = classify(trial(ending="error", error=f"Traceback\n{text}"))
    assert {name for name, one in ended.items() if one.ended} == {kind}


def test_the_limit_of_time_is_an_error_of_time():
    assert classify(trial(ending="time_limit"))["time"].ended


def test_usual_output_shows_no_error():
    text = "epoch 3 accuracy 0.91, 12 timesteps, memory 512 MB, connection_layer, context"
    assert not any(
        seen.steps or seen.ended for seen in classify(trial(0.9, steps=[step(0, observation=text)])).values()
    )


def test_the_old_flags_follow_the_old_rules():
    clean = dict.fromkeys(("oom_error", "connection_error", "error", "json_error", "long_prompt_error"), False)
    assert flags_of(trial(0.5, steps=[step(0)])) == clean
    twice = [step(n, observation="JSONDecodeError") for n in range(2)]
    assert flags_of(trial(steps=twice)) == clean
    assert flags_of(trial(steps=[*twice, step(2, observation="JSONDecodeError")])) == clean | {"json_error": True}
    assert flags_of(trial(ending="killed")) == clean | {"error": True}
    assert flags_of(trial(ending="error", error="Connection aborted.")) == clean | {
        "error": True,
        "connection_error": True,
    }
    assert flags_of(trial(steps=[step(0, observation="x CUDA out of memory y")]))["oom_error"]
    assert flags_of(trial(steps=[step(0, observation="EnvError: too long input for the tool")]))[
        "long_prompt_error"
    ]


# --- The baseline


def test_the_baseline_is_the_mean_of_the_measured_starter():
    found = baseline_of(task(baseline=0.1), "d1", [trial(0.5), trial(0.6, seed=2), trial(seed=3, ending="error")])
    assert (found.value, found.source, found.n) == (pytest.approx(0.55), "measured", 2)
    assert found.standard_deviation == pytest.approx(0.0707106781)
    assert found.note == "1 of 3 trials of the starter code gave no score"


def test_without_a_measured_score_the_manifest_has_the_baseline():
    found = baseline_of(task(baseline=0.1), "d1", [trial(0.9, digest="before"), trial(ending="error")])
    assert (found.value, found.source, found.n) == (0.1, "manifest", 0)
    assert "1 trials of the starter code were on another state" in found.note
    none = baseline_of(task(), "d1", [])
    assert (none.value, none.source) == (None, None) and "has not been measured" in none.note


def test_where_the_starter_code_does_not_run_the_score_of_a_guess_is_the_baseline_and_says_so():
    guessed = task(baseline=0.25, baseline_guess="the commonest class for all")
    found = baseline_of(guessed, "d1", [trial(ending="error")])
    assert (found.value, found.source, found.n) == (0.25, "guess", 0)
    assert found.note == (
        "1 of 1 trials of the starter code gave no score; the starter code does not run; its place is taken by a "
        "guess: the commonest class for all"
    )
    assert baseline_of(guessed, "d1", [trial(0.5)]).source == "measured"


# --- The document


def test_an_evaluation_is_strict_json_in_the_order_of_seeds():
    trials = [trial(0.7, seed=2), trial(0.6, seed=1, steps=[step(0, observation="\ud800 lone")])]
    made = evaluate(trials, task(reference=0.9), agent(), Baseline(0.5, "manifest"))
    assert json.loads(dump_json(made)) == made
    dump_json(made).encode()
    assert [one["seed"] for one in made["trials"]] == [1, 2]
    assert made["reference"] == {"value": 0.9, "source": "manifest"}
    assert evaluate(trials, task(reference=0.9), agent(), Baseline(0.5), 0.8)["reference"]["source"] == "measured"
    first = made["trials"][0]
    assert (first["tokens"], first["seconds"], first["steps"]) == (
        {"input": 1000, "output": 100, "total": 1100},
        120,
        1,
    )
    assert first["trace"][0]["seconds"] == 60


def test_a_trace_is_bounded_in_length_and_says_what_it_leaves_out():
    steps = [step(n, observation="x" * 100_000, thought="y" * 100_000, code="z" * 100_000) for n in range(500)]
    found = record(0.5, steps=steps)
    assert len(dump_json(found)) < 1_300_000
    assert [found["trace"][at]["step"] for at in (0, 99, 100, 199)] == [0, 99, 400, 499]
    assert found["trace_left_out"] == 300
    assert "[… 98,000 characters left out …]" in found["trace"][0]["observation"]


def test_both_ends_of_a_long_text_are_kept():
    assert shorten("a" * 50 + "b" * 50, 20) == f"{'a' * 12}\n[… 80 characters left out …]\n{'b' * 8}"
    assert shorten("short", 20) == "short"


@pytest.mark.parametrize(
    ("trials", "said"),
    [([], "has no trial"), ([trial(0.5), trial(0.5, seed=2, digest="d2")], "2 different states")],
)
def test_trials_that_are_no_evaluation_are_refused(trials, said):
    with pytest.raises(UserError, match=said):
        evaluate(trials, task(), agent(), Baseline(0.5))
