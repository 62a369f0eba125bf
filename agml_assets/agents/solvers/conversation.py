"""What the thinking agents share: the words they are told a task with, and a conversation that fits the model."""

from typing import TYPE_CHECKING

from agml_assets.agents.recorder import TrialRecorder

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ModelOutput

MOST_EMPTY_ANSWERS = 3
"""Answers without an action, one after the other; then the agent has stopped."""


class PromptTooLongError(Exception):
    """The conversation does not fit the model, however much of it is left out."""


def describe_task(trial: TrialRecorder) -> str:
    """Return the task as an agent is told it."""
    declared = trial.task.entry.submission
    wanted = f" What is scored is the file {declared.file}." if declared else ""
    limits = trial.limits
    return (
        f"{trial.task.problem.strip()}\n\n"
        f"You work in a folder of your own, in which the files of the task lie; there is no network.{wanted} "
        f"You have {limits.steps} actions and {limits.seconds:,.0f} seconds in all, and "
        f"{limits.seconds_per_command:,.0f} seconds for each command. Nobody will answer questions. When you are "
        "done, submit: the work is scored as it stands then."
    )


async def converse(trial: TrialRecorder) -> "ModelOutput":
    """Continue the trial's conversation by an answer of the main model.

    Where the conversation does not fit the model, the older half of its turns is left out, again and again.

    Raises:
        PromptTooLongError: Nothing is left to be left out.
    """
    while True:
        left_out = int(trial.state.notes.get("left_out", 0))
        shown = _without(trial.messages, left_out)
        output = await trial.ask(
            "main", shown, with_tools=True, history=len(trial.messages) if not left_out else None
        )
        if output.stop_reason != "model_length" or output.message.tool_calls:
            trial.say(output.message)
            trial.save()
            return output
        turns = sum(message.role == "assistant" for message in trial.messages) - left_out
        if turns < 1:
            raise PromptTooLongError(f"The prompt is too long for {trial.models['main']}: {output.completion}")
        trial.state.notes["left_out"] = left_out + (turns + 1) // 2


def _without(messages: "list[ChatMessage]", turns: int) -> "list[ChatMessage]":
    """Return a conversation without its first turns; what stands before the first answer stays."""
    if not turns:
        return messages
    starts = [place for place, message in enumerate(messages) if message.role == "assistant"]
    resume = starts[turns] if turns < len(starts) else len(messages)
    return [*messages[: starts[0]], *messages[resume:]]
