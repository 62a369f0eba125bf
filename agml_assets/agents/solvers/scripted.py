"""The agent that plays actions from a file: for checks of a whole pipeline, and to play a trial again."""

import json
from pathlib import Path
from typing import Any

from agml_assets.agents.recorder import TrialRecorder
from agml_assets.agents.task import AgentTask
from agml_assets.errors import UserError

SHIPPED = Path(__file__).with_name("scripts")


async def play_script(trial: TrialRecorder) -> None:
    """Play the actions that come after the steps that were made."""
    assert trial.agent.script is not None
    for one in read_script(trial.agent.script, trial.task)[len(trial.state.steps) :]:
        await trial.act(one["action"], one["arguments"])
        if trial.state.submitted:
            return


def script_file(script: str) -> Path:
    """Return the file of a script: one that comes with the package by its name, else the path itself."""
    shipped = SHIPPED / f"{script}.json"
    return shipped if shipped.is_file() else Path(script).expanduser()


def read_script(script: str, task: AgentTask) -> list[dict[str, Any]]:
    """Read the actions of a script for a task.

    The file holds a list of `{"action", "arguments"}`, or an object of such lists by the key or the goal of
    tasks. An argument `{"lines": [...]}` is a text, line by line.

    Args:
        script: A JSON file, or the name of one that comes with the package.
        task: The task.

    Raises:
        UserError: There is no such file, it is not as said, or it has nothing for the task.
    """
    file = script_file(script)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        names = ", ".join(sorted(path.stem for path in SHIPPED.glob("*.json")))
        raise UserError(
            f"No script {script!r} ({error.strerror}). Give a JSON file, or one that comes with the "
            f"package: {names}."
        ) from None
    except ValueError as error:
        raise UserError(f"The script {file} is no JSON: {error}.") from None
    if isinstance(found, dict):
        sections = [key for key in (task.key, task.entry.goal) if key in found]
        if not sections:
            raise UserError(
                f"The script {file} has nothing for task {task.key!r}; it has sections {', '.join(found)}."
            )
        found = found[sections[0]]
    if not isinstance(found, list) or not found:
        raise UserError(f"The script {file} is no list of actions.")
    return [_read_action(one, place, file) for place, one in enumerate(found, 1)]


def _read_action(one: Any, place: int, file: Path) -> dict[str, Any]:
    if (
        not isinstance(one, dict)
        or set(one) - {"action", "arguments"}
        or not isinstance(one.get("action"), str)
        or not isinstance(one.get("arguments", {}), dict)
    ):
        raise UserError(f'Script {file}, action {place}: write {{"action": NAME, "arguments": {{...}}}}.')
    arguments = dict(one.get("arguments", {}))
    for name, value in arguments.items():
        if isinstance(value, dict) and set(value) == {"lines"} and isinstance(value["lines"], list):
            arguments[name] = "".join(f"{line}\n" for line in value["lines"])
    return {"action": one["action"], "arguments": arguments}
