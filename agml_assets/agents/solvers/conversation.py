"""What the thinking agents share: the words they are told a task with, and a conversation that fits the model."""

from dataclasses import replace
from typing import TYPE_CHECKING

from agml_assets.agents.actions import access
from agml_assets.agents.asking import SHORTEST
from agml_assets.agents.recorder import PromptTooLongError, TrialRecorder, thought_of

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage

MOST_EMPTY_ANSWERS = 3
"""Answers without an action, one after the other; then the agent has stopped."""

_LEFT_OUT = "[You have worked on it for a while; the older part of this conversation is left out here.]"


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


async def converse(trial: TrialRecorder) -> None:
    """Continue the trial's conversation by an answer of the main model.

    Where the conversation does not fit the model, the older half of its turns is left out, again and again; what
    the last turn's actions returned is shortened before that turn is left out, too.

    Raises:
        PromptTooLongError: Nothing is left to be left out.
    """
    notes = trial.state.notes
    while True:
        left_out, longest = int(notes.get("left_out", 0)), int(notes.get("longest", access.LONGEST_OBSERVATION))
        whole = not left_out and longest == access.LONGEST_OBSERVATION
        shown = trial.messages if whole else _fitted(trial.messages, left_out, longest)
        try:
            output = await trial.ask(
                "main", shown, tools=trial.tools, history=len(trial.messages) if whole else None
            )
        except PromptTooLongError:
            turns = sum(message.role == "assistant" for message in trial.messages) - left_out
            if turns < 1:
                raise
            if turns == 1 and longest // 2 >= SHORTEST:
                notes["longest"] = longest // 2
            else:
                notes["left_out"] = left_out + (turns + 1) // 2
        else:
            trial.say(output.message)
            trial.save()
            return


def last_thought(trial: TrialRecorder) -> str:
    """Return what the model said with its last answer."""
    return next((thought_of(one) for one in reversed(trial.messages) if one.role == "assistant"), "")


def empty_answers(trial: TrialRecorder) -> int:
    """Return how many answers in a row, the last one included, called no tool."""
    count = 0
    for message in reversed(trial.messages):
        if message.role == "tool" or (message.role == "assistant" and message.tool_calls):
            break
        count += message.role == "assistant"
    return count


def _fitted(messages: "list[ChatMessage]", turns: int, longest: int) -> "list[ChatMessage]":
    """Return a conversation without its first turns; what stands before the first answer stays.

    Args:
        messages: The conversation.
        turns: So many are left out.
        longest: Characters of what an action returned.
    """
    starts = [place for place, message in enumerate(messages) if message.role == "assistant"]
    resume = starts[turns] if turns < len(starts) else len(messages)
    head = messages[: starts[0]]
    if turns:
        # Within the last message: some models' templates refuse two messages of one role in a row.
        head = [*head[:-1], head[-1].model_copy(update={"content": f"{head[-1].text}\n\n{_LEFT_OUT}"})]
    return [*head, *(_shortened(message, longest) for message in messages[resume:])]


def _shortened(message: "ChatMessage", longest: int) -> "ChatMessage":
    if message.role != "tool" or len(message.text) <= longest:
        return message
    told = access.shorten(message.text, longest)
    error = replace(message.error, message=told) if message.error else None
    return message.model_copy(update={"content": told, "error": error})
