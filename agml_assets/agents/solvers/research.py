"""The agent that plans, acts and reflects: before every action it reviews its plan and what it knows for a fact.

Its prompt is made anew for every step: the last steps in full, the older ones as the fast model summed them up.
"""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agml_assets.agents.actions.access import LONGEST_OBSERVATION, shorten
from agml_assets.agents.actions.old import LONGEST_BLOCK, RESEARCH_LOG, blocks_of
from agml_assets.agents.asking import SHORTEST, ask_fitting
from agml_assets.agents.recorder import (
    PromptTooLongError,
    TrialRecorder,
    describe_answer,
    json_line,
    thought_of,
)
from agml_assets.agents.solvers.conversation import describe_task, last_thought

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ChatMessageAssistant, ModelOutput
    from inspect_ai.tool import ToolInfo

STEPS_IN_FULL = 3
"""Of the past ones in the prompt."""

LONGEST_IN_FULL = 5_000
"""Characters of an observation; longer ones are summed up before they are shown."""

MOST_RETRIES = 5
"""Answers one after the other that name no action."""

MOST_REMINDERS = 3
"""Answers of a trial that are asked for again because sections are missing; then the model has none to give."""


@dataclass(frozen=True)
class _Section:
    title: str
    asks: str


SECTIONS = {
    "reflection": _Section("Reflection", "What the last observation means, and what went wrong if something did."),
    "research_plan_and_status": _Section(
        "Research Plan and Status",
        "The whole plan as a numbered list, what is done, with numbers, and what comes next.",
    ),
    "fact_check": _Section(
        "Fact Check",
        "Each statement of the last plan's status that an observation showed, and each that was only guessed.",
    ),
    "thought": _Section("Thought", "What you do next and why."),
}
"""What every answer has, by the argument that it is given as: models that call tools often say nothing else."""

_SYSTEM = f"""\
You are a researcher in machine learning who works on a task alone, by calling tools. Every answer calls exactly
one tool. Its first arguments are your sections, all of which you fill in:

{chr(10).join(f"{name}: {section.asks}" for name, section in SECTIONS.items())}"""


async def play_research(trial: TrialRecorder) -> None:
    """Plan, act and reflect until the work is submitted, or the model names no action any more."""
    while not trial.state.submitted:
        if not trial.pending_calls():
            await _sum_up(trial)
            if not await _think(trial):
                return
        await trial.act_on(trial.pending_calls()[0], last_thought(trial))
        if dropped := trial.state.notes.pop("dropped_calls", 0):
            told = f"\n(Only the first call of your answer was made, not {dropped} more.)"
            trial.state.steps[-1]["observation"] += told
            trial.save()


async def _think(trial: TrialRecorder) -> bool:
    """Let the main model decide on an action; return whether it did."""
    notes = trial.state.notes
    wrong: tuple[ModelOutput, str] | None = None
    silent = 0
    while silent < MOST_RETRIES:
        output = await _ask(trial, wrong)
        if not output.message.tool_calls:
            silent += 1
            wrong = (
                output,
                "That answer called no tool. Answer again with all sections, and call exactly one tool; call "
                "final_answer if the work is done.",
            )
            continue
        answer, sections = read_answer(output.message)
        missing = [name for name, text in sections.items() if not text]
        if missing and notes.get("reminders", 0) < MOST_REMINDERS:
            notes["reminders"] = notes.get("reminders", 0) + 1
            wrong = (
                output,
                f"That call was not made yet: it lacks {', '.join(missing)}. Call the tool again with all "
                "sections filled in.",
            )
            continue
        notes["dropped_calls"] = len(output.message.tool_calls) - 1
        if plan := sections["research_plan_and_status"]:
            notes["plan"] = plan.replace("**", "")
        trial.say(answer)
        trial.save()
        return True
    return False


async def _ask(trial: TrialRecorder, wrong: "tuple[ModelOutput, str] | None") -> "ModelOutput":
    """Ask the main model; where the prompt does not fit, steps are summed up, then all of it is shortened."""
    notes = trial.state.notes
    tools = _offered(trial)
    while True:
        in_full = len(trial.state.steps) - len(notes.get(RESEARCH_LOG, []))
        try:
            if in_full > 1:
                return await trial.ask("main", _prompt(trial, wrong, LONGEST_OBSERVATION), tools=tools)
            return await ask_fitting(
                trial,
                "main",
                lambda longest: _prompt(trial, wrong, longest),
                LONGEST_OBSERVATION,
                tools=tools,
            )
        except PromptTooLongError:
            if in_full <= 1:
                raise
            notes["steps_in_full"] = in_full - 1
            await _sum_up(trial)


def _offered(trial: TrialRecorder) -> "list[ToolInfo]":
    """Return the trial's tools with the sections as their first arguments."""
    from inspect_ai.tool import ToolInfo, ToolParam, ToolParams

    asked = {name: ToolParam(type="string", description=section.asks) for name, section in SECTIONS.items()}
    return [
        ToolInfo(
            name=tool.name,
            description=tool.description or "",
            parameters=ToolParams(
                properties={**asked, **tool.parameters.properties}, required=[*asked, *tool.parameters.required]
            ),
        )
        for tool in trial.tools
    ]


def read_answer(answer: "ChatMessageAssistant") -> "tuple[ChatMessageAssistant, dict[str, str]]":
    """Take the sections out of an answer that calls tools.

    Sections that are no arguments are looked for in its text. One without any is a thought as a whole.

    Returns:
        The answer with its first call alone, without the sections among its arguments but with all of them as its
        text; and the sections, empty where they are missing.
    """
    call = (answer.tool_calls or [])[0]
    given = {name: call.arguments[name] for name in SECTIONS if name in call.arguments}
    written = {name: section_of(answer.text, section.title) for name, section in SECTIONS.items()}
    sections = {name: _as_text(given.get(name)) or written[name] for name in SECTIONS}
    if not sections["thought"] and not any(written.values()):
        sections["thought"] = thought_of(answer).strip()
    text = "\n".join(f"{SECTIONS[name].title}: {text}" for name, text in sections.items() if text)
    arguments = {name: value for name, value in call.arguments.items() if name not in SECTIONS}
    called = replace(call, arguments=arguments)
    return answer.model_copy(update={"content": text, "tool_calls": [called]}), sections


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return json_line(value)


def _prompt(trial: TrialRecorder, wrong: "tuple[ModelOutput, str] | None", longest: int) -> "list[ChatMessage]":
    """Return what the main model is asked.

    Args:
        trial: The trial.
        wrong: Its last answer where nothing could be done with it, and why.
        longest: Characters of each part.
    """
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    log = trial.state.notes.get(RESEARCH_LOG, [])
    parts = [describe_task(trial)]
    if log:
        parts.append("Your research log, of what you did before:\n\n" + shorten("\n\n".join(log), longest))
    if plan := trial.state.notes.get("plan"):
        parts.append(f"Research Plan and Status, as you last wrote it:\n{shorten(plan, longest)}")
    for step in trial.state.steps[len(log) :]:
        told = trial.state.notes.get("summed_up", {}).get(str(step["index"]), step["observation"])
        parts.append(f"Step {step['index']}:\n{_describe(step, told, longest)}")
    asked: list[ChatMessage] = [
        ChatMessageSystem(content=_SYSTEM),
        ChatMessageUser(content="\n\n".join(parts)),
    ]
    if wrong is not None:
        output, why = wrong
        said = shorten(describe_answer(output), min(longest, LONGEST_IN_FULL)) or "(nothing)"
        asked += [ChatMessageAssistant(content=said), ChatMessageUser(content=why)]
    return asked


def _describe(step: dict[str, Any], told: str, longest: int) -> str:
    return (
        f"{shorten(step['thought'], longest)}\nAction: {step['action']}\n"
        f"Action Input: {shorten(json_line(step['arguments']), min(longest, LONGEST_BLOCK))}\n"
        f"Observation:\n{shorten(told, longest)}"
    )


async def _sum_up(trial: TrialRecorder) -> None:
    """Let the fast model sum up long observations, and the steps that are no longer shown in full."""
    steps = trial.state.steps
    log: list[str] = trial.state.notes.setdefault(RESEARCH_LOG, [])
    summed_up: dict[str, str] = trial.state.notes.setdefault("summed_up", {})
    if steps and len(steps[-1]["observation"]) > LONGEST_IN_FULL and str(steps[-1]["index"]) not in summed_up:
        summed_up[str(steps[-1]["index"])] = await _sum_up_observation(trial, steps[-1])
    while len(log) < len(steps) - int(trial.state.notes.get("steps_in_full", STEPS_IN_FULL)):
        step = steps[len(log)]
        told = summed_up.get(str(step["index"]), step["observation"])
        log.append(f"[Step {step['index']}] {await _sum_up_step(trial, step, told)}")
        summed_up.pop(str(step["index"]), None)


async def _sum_up_step(trial: TrialRecorder, step: dict[str, Any], told: str) -> str:
    output = await ask_fitting(
        trial,
        "fast",
        lambda longest: (
            f"A researcher did one step of a longer work.\n\n{_describe(step, told, longest)}\n\n"
            "Sum the step up in a few sentences: what was done, why, and every finding with its numbers. "
            "Use nothing but what is written above."
        ),
        LONGEST_OBSERVATION,
    )
    return output.completion.strip() or f"{step['action']}: {shorten(told, SHORTEST)}"


async def _sum_up_observation(trial: TrialRecorder, step: dict[str, Any]) -> str:
    blocks = blocks_of(step["observation"])
    found = []
    for place, block in enumerate(blocks, 1):

        def question(longest: int, place: int = place, block: str = block) -> str:
            return (
                f"Part {place} of {len(blocks)} of what the action {step['action']} returned:\n\n```\n"
                f"{shorten(block, longest)}\n```\n\n"
                f"The researcher's thought before it: {shorten(step['thought'], min(longest, LONGEST_IN_FULL))}"
                "\n\nSum it up for the researcher's next decision; keep every number and every error message."
            )

        output = await ask_fitting(trial, "fast", question, LONGEST_BLOCK)
        found.append(output.completion.strip() or shorten(block, SHORTEST))
    return shorten("[Summed up] " + "\n".join(found), LONGEST_IN_FULL)


def section_of(answer: str, name: str) -> str:
    """Return a section of an answer, without its name; empty where it is missing."""
    ends = "|".join(
        re.escape(one) for one in (*(section.title for section in SECTIONS.values()), "Action", "Action Input")
    )
    found = re.search(
        rf"^\W*{re.escape(name)}\W*?:\W*?(.*?)(?=^\W*(?:{ends})\W*?:|\Z)",
        answer,
        re.MULTILINE | re.DOTALL | re.IGNORECASE,
    )
    return found[1].strip() if found else ""
