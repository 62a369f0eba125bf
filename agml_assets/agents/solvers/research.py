"""The agent that plans, acts and reflects: before every action it reviews its plan and what it knows for a fact.

Its prompt is made anew for every step: the last steps in full, the older ones as the fast model summed them up.
"""

import re
from typing import TYPE_CHECKING, Any

from agml_assets.agents.actions.access import shorten
from agml_assets.agents.actions.old import LONGEST_BLOCK, RESEARCH_LOG, blocks_of
from agml_assets.agents.recorder import TrialRecorder, json_line
from agml_assets.agents.solvers.conversation import PromptTooLongError, describe_task

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ChatMessageAssistant

STEPS_IN_FULL = 3
"""Of the past ones in the prompt."""

LONGEST_IN_FULL = 5_000
"""Characters of an observation; longer ones are summed up before they are shown."""

MOST_RETRIES = 5
"""Answers one after the other that name no action."""

SECTIONS = ("Reflection", "Research Plan and Status", "Fact Check", "Thought")

_SYSTEM = """\
You are a researcher in machine learning who works on a task alone, by calling tools. Every answer has these
sections, each on a new line and begun by its name and a colon, and then calls exactly one tool:

Reflection: what the last observation means, and what went wrong if something did.
Research Plan and Status: the whole plan as a numbered list, what is done, with numbers, and what comes next.
Fact Check: each statement of the last plan's status that an observation showed, and each that was only guessed.
Thought: what you do next and why."""


async def play_research(trial: TrialRecorder) -> None:
    """Plan, act and reflect until the work is submitted, or the model names no action any more."""
    while not trial.state.submitted:
        calls = trial.pending_calls()
        if calls:
            thought = trial.messages[-1].text
        else:
            await _sum_up(trial)
            answer = await _think(trial)
            if answer is None:
                return
            thought = answer.text
            calls = trial.pending_calls()
        await trial.act_on(calls[0], thought)


async def _think(trial: TrialRecorder) -> "ChatMessageAssistant | None":
    from inspect_ai.model import ChatMessageUser

    wrong: list[ChatMessage] = []
    for _ in range(MOST_RETRIES):
        output = await trial.ask("main", [*_prompt(trial), *wrong], with_tools=True)
        answer = output.message
        if output.stop_reason == "model_length" and not answer.tool_calls:
            if not trial.state.notes.get("steps_in_full", STEPS_IN_FULL):
                raise PromptTooLongError(f"The prompt is too long for {trial.models['main']}: {output.completion}")
            trial.state.notes["steps_in_full"] = trial.state.notes.get("steps_in_full", STEPS_IN_FULL) - 1
            await _sum_up(trial)
            continue
        if answer.tool_calls:
            answer = answer.model_copy(update={"tool_calls": answer.tool_calls[:1]})
            plan = section_of(answer.text, "Research Plan and Status")
            if plan:
                trial.state.notes["plan"] = plan.replace("**", "")
            trial.say(answer)
            trial.save()
            return answer
        wrong = [
            answer,
            ChatMessageUser(
                content="That answer called no tool. Answer again with all sections, and call exactly one tool; "
                "call final_answer if the work is done."
            ),
        ]
    return None


def _prompt(trial: TrialRecorder) -> "list[ChatMessage]":
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser

    log = trial.state.notes.get(RESEARCH_LOG, [])
    steps = trial.state.steps
    parts = [describe_task(trial)]
    if log:
        parts.append("Your research log, of what you did before:\n\n" + shorten("\n\n".join(log)))
    if plan := trial.state.notes.get("plan"):
        parts.append(f"Research Plan and Status, as you last wrote it:\n{plan}")
    for step in steps[len(log) :]:
        told = trial.state.notes.get("summed_up", {}).get(str(step["index"]), step["observation"])
        parts.append(
            f"Step {step['index']}:\n{shorten(step['thought'])}\nAction: {step['action']}\n"
            f"Action Input: {shorten(json_line(step['arguments']), LONGEST_BLOCK)}\nObservation:\n{told}"
        )
    return [ChatMessageSystem(content=_SYSTEM), ChatMessageUser(content="\n\n".join(parts))]


async def _sum_up(trial: TrialRecorder) -> None:
    """Let the fast model sum up long observations, and the steps that are no longer shown in full."""
    steps = trial.state.steps
    log: list[str] = trial.state.notes.setdefault(RESEARCH_LOG, [])
    summed_up: dict[str, str] = trial.state.notes.setdefault("summed_up", {})
    if steps and len(steps[-1]["observation"]) > LONGEST_IN_FULL and str(steps[-1]["index"]) not in summed_up:
        summed_up[str(steps[-1]["index"])] = await _sum_up_observation(trial, steps[-1])
    while len(log) < len(steps) - int(trial.state.notes.get("steps_in_full", STEPS_IN_FULL)):
        step = steps[len(log)]
        told = summed_up.pop(str(step["index"]), step["observation"])
        output = await trial.ask(
            "fast",
            f"A researcher did one step of a longer work.\n\n{shorten(step['thought'])}\nAction: "
            f"{step['action']}\n"
            f"Action Input: {shorten(json_line(step['arguments']), LONGEST_BLOCK)}\nObservation:\n{told}\n\n"
            "Sum the step up in a few sentences: what was done, why, and every finding with its numbers. "
            "Use nothing but "
            "what is written above.",
        )
        log.append(f"[Step {step['index']}] {output.completion.strip()}")


async def _sum_up_observation(trial: TrialRecorder, step: dict[str, Any]) -> str:
    blocks = blocks_of(step["observation"])
    found = []
    for place, block in enumerate(blocks, 1):
        output = await trial.ask(
            "fast",
            f"Part {place} of {len(blocks)} of what the action {step['action']} returned:\n\n```\n{block}\n```\n\n"
            f"The researcher's thought before it: {shorten(step['thought'], LONGEST_IN_FULL)}\n\n"
            "Sum it up for the researcher's next decision; keep every number and every error message.",
        )
        found.append(output.completion.strip())
    return "[Summed up] " + "\n".join(found)


def section_of(answer: str, name: str) -> str:
    """Return a section of an answer, without its name; empty where it is missing."""
    ends = "|".join(re.escape(one) for one in (*SECTIONS, "Action", "Action Input"))
    found = re.search(
        rf"^\W*{re.escape(name)}\W*?:\W*?(.*?)(?=^\W*(?:{ends})\W*?:|\Z)", answer, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() if found else ""
