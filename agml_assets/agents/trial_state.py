"""What a trial has done so far, in one small file that is rewritten after every step: what survives any death.

How it is filled is in `recorder`; what becomes of it at the end is in `runs`.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agml_assets.agents.snapshots import write_whole
from agml_assets.errors import UserError


@dataclass
class TrialState:
    """A trial so far. All values are JSON values.

    Attributes:
        task: Key of the task.
        task_digest: Identity of the task.
        agent: Key of the agent.
        seed: From 1.
        started_at: UTC time, ISO 8601.
        seconds: By the clock until now, over all sittings.
        steps: As `trials.Step`, with `snapshot` (a digest in the store) in place of `files`.
        calls: As `trials.Trial.calls`, or with `history` in place of `input`: so many of `messages` were the
            input.
        usage: Input, output and total tokens by model.
        messages: The conversation, as Inspect writes it.
        notes: What an agent remembers beside the conversation.
        submitted: Whether it gave a final answer or submitted.
        ending: How it ended; None while it has not.
        error: Message of the error that ended it, with the traceback.
        final: Digest of the last snapshot; None before the end.
        score: Final score.
        reason: Why there is none, or what was wrong.
        judged: Whether the score stands.
        problem: What the agent was told.
        tools: Description of each tool by name.
    """

    task: str
    task_digest: str
    agent: str
    seed: int
    started_at: str = ""
    seconds: float = 0.0
    steps: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    submitted: bool = False
    ending: str | None = None
    error: str = ""
    final: str | None = None
    score: float | None = None
    reason: str = ""
    judged: bool = False
    problem: str = ""
    tools: dict[str, str] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Write it; a death in between leaves the file as it was."""
        write_whole(file, json.dumps(asdict(self)).encode())


def read_state(file: Path) -> TrialState | None:
    """Return the state of a trial; None where it has not begun.

    Raises:
        UserError: The file is damaged.
    """
    try:
        return TrialState(**json.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{file}: the state of a trial is damaged ({error}). Remove the folder and run it anew."
        ) from None
