"""What a trial is worth: its score against the starter code and a good solution, and what it took.

A trial becomes a record of JSON values, which has the fields of MLAgentBench's evaluation first and ours after
them. All trials of an agent on a task become one document; how documents compare is in `leaderboard`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, stdev
from typing import Any, Literal

from agml_assets.agents.error_kinds import FAILED, classify, flags_of
from agml_assets.agents.models import without_surrogates
from agml_assets.agents.trials import Trial
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, AgentTaskEntry

THRESHOLDS = (0.05, 0.10, 0.15, 0.20, 0.30)
"""Improvements that are asked about (Huang et al. 2024, MLAgentBench)."""

THRESHOLD = 0.10
"""The one that decides success."""

NEAR_ZERO = 1e-6
"""A baseline closer to 0 than this has no relative improvement: it would be a ratio to rounding."""

UNFINISHED = (*FAILED, "time_limit")
"""Endings that make a trial unsuccessful whatever stands in its submission."""

_EQUAL = 1e-9  # (0.55 - 0.5) / 0.5 is above 0.1 only by rounding
_MOST_STEPS, _NO_SCORE = 50, -1.0  # of MLAgentBench's evaluation
_TRACE_STEPS = 200  # of one trial, in the document
_NAME, _THOUGHT, _ARGUMENTS, _OBSERVATION, _ERROR, _PROBLEM = 100, 2_000, 1_000, 2_000, 20_000, 8_000  # characters
_MOST_ARGUMENTS = 20


@dataclass(frozen=True)
class Baseline:
    """Score of the starter code.

    Attributes:
        value: In the task's metric; None where there is none.
        source: Whether it was measured by trials of the starter code, is a guess's where that does not run, or
            stands in the task's manifest.
        n: Trials that it is the mean of.
        standard_deviation: Of their scores (with n - 1); None with fewer than two.
        note: What a reader must know of it: trials that gave no score, or why there is no baseline.
    """

    value: float | None
    source: Literal["measured", "guess", "manifest"] | None = None
    n: int = 0
    standard_deviation: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Yardstick:
    """What the scores of a task are held against.

    Attributes:
        direction: Whether a higher or a lower score is better.
        baseline: Score of the starter code; None where there is none.
        reference: Score of a good solution; None where there is none.
    """

    direction: Literal["higher", "lower"]
    baseline: float | None
    reference: float | None = None

    def improvement(self, score: float) -> tuple[float | None, str]:
        """Return the relative improvement over the baseline, or None and why.

        `(score - baseline) / |baseline|`, negated where lower is better: MLAgentBench's, and with a baseline below
        0 a better score is still an improvement.
        """
        if self.baseline is None:
            return None, "the starter code has no score"
        if abs(self.baseline) < NEAR_ZERO:
            return None, f"the starter code scores {self.baseline:g}: nothing can be said relative to about 0"
        gain = score - self.baseline if self.direction == "higher" else self.baseline - score
        return gain / abs(self.baseline), ""

    def normalised(self, score: float) -> tuple[float | None, str]:
        """Return the score on the scale on which the baseline is 0 and the reference 1, or None and why.

        `(score - baseline) / (reference - baseline)`, as in RE-Bench (Wijk et al. 2024, arXiv:2411.15114); above 1
        is better than the reference, below 0 worse than the starter code.
        """
        if self.baseline is None:
            return None, "the starter code has no score"
        if self.reference is None:
            return None, "the task has no reference score"
        span = self.reference - self.baseline
        if (span if self.direction == "higher" else -span) <= NEAR_ZERO * max(1.0, abs(self.baseline)):
            return None, "the reference is no better than the starter code"
        return (score - self.baseline) / span, ""

    @property
    def success_by(self) -> tuple[Literal["improvement", "normalised"] | None, str]:
        """What decides success on this task, or None and why nothing does.

        The relative improvement; where the starter code scores about 0 and has none, the same thresholds of the
        normalised score: at 0.10, a tenth of the way from the starter code to the reference.
        """
        if self.baseline is None:
            return None, "the starter code has no score"
        if self.improvement(self.baseline)[0] is not None:
            return "improvement", ""
        found, why = self.normalised(self.baseline)
        if found is not None:
            return "normalised", ""
        return None, f"{self.improvement(self.baseline)[1]}, and {why}"

    def better(self, scores: Sequence[float]) -> float:
        """Return the best of some scores."""
        return max(scores) if self.direction == "higher" else min(scores)


def baseline_of(task: AgentTaskEntry, task_digest: str, starter_trials: Sequence[Trial]) -> Baseline:
    """Return the score of the starter code: the mean of its trials, else what the manifest or a guess says.

    Args:
        task: The manifest, of the prepared task, which knows a guess's score.
        task_digest: Of the task as it is; trials on another state of it do not count.
        starter_trials: Trials of the starter code on the task.
    """
    own = [_finite(trial.score) for trial in starter_trials if trial.task_digest == task_digest]
    return baseline_of_scores(task, own, len(starter_trials) - len(own))


def baseline_of_scores(task: AgentTaskEntry, own: Sequence[float | None], others: int = 0) -> Baseline:
    """Return the score of the starter code: the mean of its scores, else what the manifest or a guess says.

    Args:
        task: The manifest.
        own: Score of every trial of the starter code; None of one without.
        others: Trials on another state of the task, which do not count.
    """
    scores = [score for score in own if score is not None]
    notes = []
    if others:
        notes.append(f"{others} trials of the starter code were on another state of the task")
    if len(scores) < len(own):
        notes.append(f"{len(own) - len(scores)} of {len(own)} trials of the starter code gave no score")
    if scores:
        spread = stdev(scores) if len(scores) > 1 else None
        return Baseline(fmean(scores), "measured", len(scores), spread, "; ".join(notes))
    if task.baseline is not None and task.baseline_guess:
        notes.append(f"the starter code does not run; its place is taken by a guess: {task.baseline_guess}")
        return Baseline(task.baseline, "guess", 0, None, "; ".join(notes))
    if task.baseline is not None:
        return Baseline(task.baseline, "manifest", 0, None, "; ".join(notes))
    notes.append("the starter code has not been measured, and the task's manifest has no `baseline`")
    return Baseline(None, None, 0, None, "; ".join(notes))


def evaluate(
    trials: Sequence[Trial],
    task: AgentTaskEntry,
    agent: AgentEntry,
    baseline: Baseline,
    reference: float | None = None,
) -> dict[str, Any]:
    """Return the evaluation of an agent on a task as JSON values.

    Args:
        trials: Its trials, at least one, all on the same state of the task.
        task: The manifest.
        agent: The agent.
        baseline: Score of the starter code.
        reference: Score of a good solution where it was measured; None means the manifest's.

    Raises:
        UserError: There is no trial, or they are not of one state of the task.
    """
    if not trials:
        raise UserError(f"Agent {agent.key!r} has no trial on task {task.key!r}: run `agml-assets agents run`.")
    digests = {trial.task_digest for trial in trials}
    if len(digests) > 1:
        raise UserError(
            f"The trials of agent {agent.key!r} on task {task.key!r} saw {len(digests)} different states of the "
            "task, which do not compare. Run it again from the start."
        )
    measured = reference is not None
    yardstick = Yardstick(task.direction, baseline.value, reference if measured else task.reference)
    success_by, undecidable = yardstick.success_by
    return {
        "task": task.key,
        "task_name": task.display_name,
        "task_digest": trials[0].task_digest,
        "metric": task.metric or task.goal or "eval.py",
        "direction": task.direction,
        "warnings": list(task.warnings),
        "exposed": task.exposed,
        "source": task.source,
        "problem": shorten(trials[0].problem, _PROBLEM),
        "agent": agent.key,
        "agent_name": agent.display_name,
        "kind": agent.kind,
        "model": agent.model,
        "baseline": vars(baseline),
        "reference": _told_reference(yardstick, measured=measured),
        "success_by": success_by,
        "undecidable": undecidable,
        "threshold": THRESHOLD,
        "thresholds": list(THRESHOLDS),
        "trials": [evaluate_trial(trial, yardstick) for trial in sorted(trials, key=lambda trial: trial.seed)],
    }


def _told_reference(yardstick: Yardstick, *, measured: bool) -> dict[str, Any]:
    source = None if yardstick.reference is None else "measured" if measured else "manifest"
    return {"value": yardstick.reference, "source": source}


def weigh_again(
    documents: Sequence[Mapping[str, Any]],
    task: AgentTaskEntry,
    agent: str,
    baseline: Baseline,
    reference: float | None = None,
) -> dict[str, Any]:
    """Return one evaluation of the trials of several, held against another baseline.

    Args:
        documents: Evaluations of one agent on one state of the task, at least one.
        task: The manifest.
        agent: What the agent is called.
        baseline: Score of the starter code.
        reference: Score of a good solution where it was measured; None means the manifest's.
    """
    first = documents[0]
    yardstick = Yardstick(task.direction, baseline.value, task.reference if reference is None else reference)
    success_by, undecidable = yardstick.success_by
    trials = [
        {
            **one,
            **_compared(one["raw"], yardstick, one["ending"]),
            "best": {**one["best"], **_compared(one["best"]["raw"], yardstick, one["ending"])},
        }
        for document in documents
        for one in document["trials"]
    ]
    return {
        **first,
        "task_name": task.display_name,
        "direction": task.direction,
        "warnings": list(dict.fromkeys((*task.warnings, *first["warnings"]))),  # some are found by preparing it
        "exposed": task.exposed,
        "agent": agent,
        "agent_name": agent,
        "baseline": vars(baseline),
        "reference": _told_reference(yardstick, measured=reference is not None),
        "success_by": success_by,
        "undecidable": undecidable,
        "trials": sorted(trials, key=lambda one: (one["seed"], one["path"])),
    }


def evaluate_trial(trial: Trial, yardstick: Yardstick, path: str | None = None) -> dict[str, Any]:
    """Return the record of a trial as JSON values.

    First the fields of MLAgentBench's evaluation: `path`, `summary` and `rubric_questions` (empty, as there),
    `score` (of the steps in `score_steps`, 0 where there is none, then the final one), `submitted_final_answer`,
    `final_score` (-1 without one), `total_time` in seconds, `error`, and the flags in `extra`. Then ours:

    `raw` (null without a score; `reason` says why, or what was wrong), `improvement` and `normalised` (null:
    `improvement_reason`, `normalised_reason`), `success` and `success_at` every threshold (null where nothing
    decides it, and false of a trial without a score or one that failed or ran out of time), `score_above` (what
    `success` would be by the score alone), the same of the `best` score at any step or the end, `step_scores`,
    `errors` by kind, `tokens`, `estimated_calls`, `tokens_by_model`, `seconds`, `steps`, and a `trace` to read,
    its texts and its length bounded.

    Args:
        trial: The trial.
        yardstick: Of its task.
        path: Where it lies; None means `agents/<task>/<agent>/seed_<seed>`.
    """
    raw = _finite(trial.score)
    reason = without_surrogates(trial.reason)
    if raw is None and trial.score is not None:
        reason = f"the score is {trial.score}, which is no number to compare"
    step_scores = [_finite(step.score) for step in trial.steps]
    scores, chosen = _old_scores(step_scores, raw)
    best = _best(step_scores, raw, yardstick)
    usage = trial.usage.values()
    return {
        "path": path if path is not None else f"agents/{trial.task}/{trial.agent}/seed_{trial.seed}",
        "summary": "",
        "rubric_questions": {},
        "score": scores,
        "score_steps": chosen,
        "submitted_final_answer": trial.submitted,
        "final_score": _NO_SCORE if raw is None else raw,
        "total_time": trial.seconds,
        "error": shorten(trial.error, _ERROR),
        "extra": flags_of(trial),
        "seed": trial.seed,
        "started_at": trial.started_at,
        "ending": trial.ending,
        "raw": raw,
        "reason": reason,
        **_compared(raw, yardstick, trial.ending),
        "best": {
            "raw": best[0],
            "step": best[1],
            **_compared(best[0], yardstick, trial.ending),
        },
        "step_scores": step_scores,
        "errors": {kind: vars(seen) for kind, seen in classify(trial).items()},
        "tokens": {
            "input": sum(one.input_tokens for one in usage),
            "output": sum(one.output_tokens for one in usage),
            "total": sum(one.total_tokens for one in usage),
        },
        # Of servers that do not tell their tokens, which are counted as one for four characters.
        "estimated_calls": sum(bool(call.get("estimated")) for call in trial.calls),
        "tokens_by_model": {
            without_surrogates(model): one.total_tokens for model, one in sorted(trial.usage.items())
        },
        "seconds": trial.seconds,
        "steps": len(trial.steps),
        "trace": _trace(trial),
        "trace_left_out": max(0, len(trial.steps) - _TRACE_STEPS),
    }


def chosen_steps(n: int) -> list[int]:
    """Return the steps that MLAgentBench's evaluation scores: all up to 50, else the first 50 of every n // 50."""
    return list(range(n)) if n <= _MOST_STEPS else list(range(n))[:: n // _MOST_STEPS][:_MOST_STEPS]


def shorten(text: str, limit: int) -> str:
    """Return a text of about at most `limit` characters, its middle left out and said to be; fit for UTF-8."""
    text = without_surrogates(text)
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 5, limit * 2 // 5  # errors stand at the end
    return f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[-tail:]}"


def _compared(score: float | None, yardstick: Yardstick, ending: str) -> dict[str, Any]:
    decided_by, _ = yardstick.success_by
    values: dict[str, tuple[float | None, str]] = dict.fromkeys(("improvement", "normalised"), (None, "no score"))
    if score is not None:
        values = {"improvement": yardstick.improvement(score), "normalised": yardstick.normalised(score)}
    at: dict[str, bool | None] = dict.fromkeys(map(threshold_name, THRESHOLDS))
    above: bool | None = None
    if decided_by is not None:
        gain = values[decided_by][0]
        finished = ending not in UNFINISHED
        at = {threshold_name(one): finished and _exceeds(gain, one) for one in THRESHOLDS}
        above = _exceeds(gain, THRESHOLD)
    return {
        "improvement": values["improvement"][0],
        "improvement_reason": values["improvement"][1],
        "normalised": values["normalised"][0],
        "normalised_reason": values["normalised"][1],
        "success": at[threshold_name(THRESHOLD)],
        "success_at": at,
        "score_above": above,
    }


def threshold_name(threshold: float) -> str:
    """Return a threshold as a key of JSON objects, such as `0.10`."""
    return f"{threshold:.2f}"


def _exceeds(gain: float | None, threshold: float) -> bool:
    return gain is not None and gain > threshold + _EQUAL


def _old_scores(step_scores: Sequence[float | None], raw: float | None) -> tuple[list[float], list[int]]:
    final = [] if raw is None else [raw]
    if all(score is None for score in step_scores):  # its steps were not scored
        return final, []
    chosen = chosen_steps(len(step_scores))
    return [*(step_scores[step] or 0.0 for step in chosen), *final], chosen


def _best(
    step_scores: Sequence[float | None], raw: float | None, yardstick: Yardstick
) -> tuple[float | None, int | None]:
    """Return the best score and the first step that has it; no step where it is the final one alone."""
    found = [score for score in (*step_scores, raw) if score is not None]
    if not found:
        return None, None
    best = yardstick.better(found)
    return best, step_scores.index(best) if best in step_scores else None


def _trace(trial: Trial) -> list[dict[str, Any]]:
    steps = trial.steps
    if len(steps) > _TRACE_STEPS:
        steps = (*steps[: _TRACE_STEPS // 2], *steps[-_TRACE_STEPS // 2 :])
    start = _start(trial)
    return [
        {
            "step": step.index,
            "action": shorten(step.action, _NAME),
            "arguments": _arguments(step.arguments),
            "thought": shorten(step.thought, _THOUGHT),
            "observation": shorten(step.observation, _OBSERVATION),
            "seconds": round(max(0.0, step.timestamp - start), 3),
            "score": _finite(step.score),
            "files": len(step.files),
        }
        for step in steps
    ]


def _start(trial: Trial) -> float:
    try:
        started = datetime.fromisoformat(trial.started_at)
    except ValueError:
        return trial.steps[0].timestamp if trial.steps else 0.0
    return (started if started.tzinfo else started.replace(tzinfo=UTC)).timestamp()


def _arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments to read, one below the other; texts as they are, without the escapes of JSON."""
    each = _ARGUMENTS // max(1, len(arguments))
    return "\n".join(
        f"{shorten(name, _NAME)}: {shorten(value if isinstance(value, str) else json.dumps(value), each)}"
        for name, value in list(arguments.items())[:_MOST_ARGUMENTS]
    )


def _finite(score: float | None) -> float | None:
    return float(score) if score is not None and math.isfinite(score) else None
