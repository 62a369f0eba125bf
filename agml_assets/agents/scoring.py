"""What a workspace is worth: by the declared metric from its validated values, or by the task's own `eval.py`."""

import math
import sys
from pathlib import Path

from agml_assets.agents.submission import InvalidSubmission, measure
from agml_assets.agents.task import AgentTask, Verdict
from agml_assets.agents.tasks.folder import evaluate


def judge(task: AgentTask, folder: Path, *, python: Path | None = None) -> Verdict:
    """Return what the submission in a workspace is worth.

    Nothing of the workspace is imported, unpickled or followed as a link here; a task's `eval.py` runs in a
    sandbox of its own, without network, and sees a copy.

    Args:
        task: The task.
        folder: The workspace, or what is left of it.
        python: Interpreter for `eval.py`; by default this one.

    Returns:
        A finite score that the task can have, or why there is none.
    """
    if not task.entry.scored:
        return Verdict(None, "Nothing scores this task.")
    if task.entry.metric is None:
        verdict = evaluate(task, folder, python or Path(sys.executable))
        problem = "" if verdict.score is None else task.entry.invalid(verdict.score)
        return Verdict(None, f"eval.py gave {problem}") if problem else verdict
    try:
        score = measure(task, folder)
    except InvalidSubmission as error:
        return Verdict(None, str(error))
    if not math.isfinite(score):
        return Verdict(None, f"The score is no finite number ({score}): values of the submission are too large.")
    if problem := task.entry.invalid(score):
        return Verdict(None, problem)
    return Verdict(score)
