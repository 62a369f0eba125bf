"""Trials read from a finished run's log and its packed workspaces."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agml_assets.agents.recorder import describe_messages
from agml_assets.agents.snapshots import read_packed
from agml_assets.agents.trials import Step, Trial, Usage
from agml_assets.errors import UserError

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample

TRIAL = "trial"
"""In the metadata of a sample: the state of the trial at its end, without its conversation."""

SCORER = "judged"
"""Name of the scorer in the log."""


def read_trials(eval_file: Path, workspaces_zip: Path | None = None) -> list[Trial]:
    """Read the trials of a run.

    Args:
        eval_file: Inspect's log.
        workspaces_zip: The files behind the steps; without it steps name none.

    Returns:
        In the order of the seeds.

    Raises:
        UserError: The file is no log of such a run.
    """
    from inspect_ai.log import read_eval_log

    if not eval_file.is_file():
        raise UserError(f"{eval_file}: there is no such file.")
    try:
        log = read_eval_log(str(eval_file))
        samples = sorted(log.samples or [], key=lambda sample: sample.metadata[TRIAL]["seed"])
    except Exception as error:
        raise UserError(f"{eval_file}: it is no log of trials ({type(error).__name__}: {error}).") from None
    return [_read(sample, workspaces_zip) for sample in samples]


def _read(sample: "EvalSample", workspaces_zip: Path | None) -> Trial:
    found: dict[str, Any] = sample.metadata[TRIAL]
    packed = read_packed(workspaces_zip, found["seed"]) if workspaces_zip is not None else None
    steps = []
    for place, step in enumerate(found["steps"]):
        told = {name: value for name, value in step.items() if name != "snapshot"}
        steps.append(Step(**told, files=packed.steps[place].files if packed else {}))
    names = ("task", "agent", "seed", "task_digest", "ending", "score", "reason", "submitted", "seconds", "error")
    return Trial(
        **{name: found[name] for name in (*names, "started_at", "problem", "tools")},
        steps=tuple(steps),
        usage={model: Usage(**counts) for model, counts in found["usage"].items()},
        final_files=packed.final.files if packed else {},
        left_out=packed.final.left_out if packed else {},
        calls=tuple(_with_input(call, sample) for call in found["calls"]),
    )


def _with_input(call: dict[str, Any], sample: "EvalSample") -> dict[str, Any]:
    """Return a call with its input: the first messages of the conversation, where so it was noted."""
    if "history" not in call:
        return call
    told = {name: value for name, value in call.items() if name != "history"}
    return {**told, "input": describe_messages(sample.messages[: call["history"]])}
