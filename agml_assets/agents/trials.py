"""One trial: one agent, one task, one seed. What it did, step by step, and how it ended.

Trials are read from the `.eval` logs of runs; all that is computed from them (evaluation, leaderboard, plots, the
old log tree) takes them from here and knows nothing of the log's format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Ending = Literal["submitted", "no_submission", "step_limit", "time_limit", "token_limit", "error", "killed"]
"""How a trial ended: by the agent's final answer or submission, without one though the agent had stopped by
itself, at a limit, by an error, or with its process."""


@dataclass(frozen=True)
class Step:
    """One action and what came of it.

    Attributes:
        index: From 0.
        action: Name of the tool.
        arguments: Its arguments, JSON values.
        observation: What the agent was told.
        timestamp: Seconds since the epoch.
        thought: The agent's words beside the action.
        files: BLAKE3 of every file of the workspace after it that is no read-only one, by relative path; the
            contents are in the run's `workspaces.zip` under `blobs/<digest>`. Files above the cap are left out.
        score: Of the submission as it stood after this step; None where it was not scored or cannot be.
    """

    index: int
    action: str
    arguments: Mapping[str, Any]
    observation: str
    timestamp: float
    thought: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    score: float | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens of one model in a trial."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class Trial:
    """One agent on one task with one seed.

    Attributes:
        task: Key of the task.
        agent: Key of the agent.
        seed: From 1.
        task_digest: `AgentTask.digest` of the task it worked on.
        ending: How it ended.
        score: Final score; None where there is none.
        reason: Why there is none, or what was wrong with the submission.
        submitted: Whether the agent gave a final answer or submitted.
        steps: In order.
        seconds: By the clock, from its start to its end.
        usage: Tokens by model name.
        error: Message of the error that ended it, with the traceback where there is one; empty where none did.
        started_at: UTC time, ISO 8601.
        problem: What the agent was told to do.
        tools: Description of every tool the agent had, by name.
        final_files: As `Step.files`, at the end.
        left_out: Bytes of each file that was too large to be kept at the end.
        calls: Each call of a model, a mapping with `model`, `input`, `output`, `input_tokens`, `output_tokens`,
            `step`, the index of the step it led to or was made in, and `tool`, whether a tool made it.
    """

    task: str
    agent: str
    seed: int
    task_digest: str
    ending: Ending
    score: float | None
    reason: str
    submitted: bool
    steps: tuple[Step, ...]
    seconds: float
    usage: Mapping[str, Usage] = field(default_factory=dict)
    error: str = ""
    started_at: str = ""
    problem: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    final_files: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    calls: tuple[Mapping[str, Any], ...] = ()
