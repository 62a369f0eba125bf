"""The actions of MLAgentBench as tools: the same names in snake case, the same arguments, the same meaning."""

import difflib
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agml_assets.agents.actions import access
from agml_assets.agents.actions.modern import list_folder
from agml_assets.agents.asking import ask_fitting
from agml_assets.agents.recorder import PromptTooLongError, Role, TrialRecorder

if TYPE_CHECKING:
    from inspect_ai.tool import ToolDef

BACKUPS = "backup"
"""Folder of the versions that edits replaced, in the workspace."""

RESEARCH_LOG = "research_log"
"""Note of a trial: what was done so far, a list of texts."""

MOST_LINES = 100
"""That are inspected at once."""

LONGEST_BLOCK = 10_000
"""Characters of a file, or of an observation, that a model reads at once."""

MOST_READ = 20 * LONGEST_BLOCK
"""Characters of a file that a model reads within one action; of longer files the middle is left out."""

# It ends with a fence as far indented as its first: code may have others, in its docstrings.
_BLOCK = re.compile(r"^([ \t]*)```([\w+.-]*)[^\n]*\n(.*?)^\1```[ \t\r]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class _OldTools:
    """The tools of a trial, each by its method.

    Attributes:
        trial: Whose they are.
    """

    trial: TrialRecorder

    async def list_files(self, dir_path: str) -> str:
        return await list_folder(self.trial, dir_path)

    async def read_file(self, file_name: str) -> str:
        return access.shorten(await access.read_text(file_name))

    async def write_file(self, file_name: str, content: str) -> str:
        await access.write_text(self.trial, file_name, content)
        return f"File {file_name} written successfully."

    async def append_file(self, file_name: str, content: str) -> str:
        before = await access.read_text_or_none(access.writable(self.trial, file_name)) or ""
        await access.write_text(self.trial, file_name, before + content)
        return f"File {file_name} appended successfully."

    async def copy_file(self, source: str, destination: str) -> str:
        target = access.writable(self.trial, destination)
        done = await access.run(self.trial, ["cp", "--no-dereference", "--", access.inside(source), target])
        if not done.success:
            access.refuse(f"File {source} cannot be copied to {destination}: {done.stderr.strip()}")
        return f"File {source} copied to {destination}"

    async def undo_edit_script(self, script_name: str) -> str:
        script = access.writable(self.trial, script_name)
        backups = await _backups(self.trial, script)
        if not backups:
            access.refuse(f"There is no edit of {script_name} to undo.")
        newest = backups[max(backups)]
        before = await access.read_text(newest)
        await access.write_text(self.trial, script, before)
        await access.run(self.trial, ["rm", "-f", "--", newest])
        return f"Content of {script_name} before the last edit:\n{access.shorten(before)}"

    async def execute_script(self, script_name: str) -> str:
        script = access.inside(script_name)
        if await access.read_text_or_none(script) is None:
            access.refuse(f"The file {script_name} does not exist.")
        done = await access.run(self.trial, [self.trial.python, "-u", script])
        if done.success:
            said = access.shorten(done.stdout or done.stderr)
        elif done.returncode < 0:
            # It was ended from outside: its errors tell why, and not how far it came.
            said = access.describe_output(done)
        else:
            said = access.shorten((done.stderr or done.stdout).rstrip("\n"))
        return (
            f"The script has been executed. Here is the output:\n{said}{access.describe_status(self.trial, done)}"
        )

    async def inspect_script_lines(self, script_name: str, start_line_number: int, end_line_number: int) -> str:
        if end_line_number - max(start_line_number, 1) >= MOST_LINES:
            access.refuse(f"At most {MOST_LINES} lines can be inspected at once.")
        lines = (await access.read_text(script_name)).splitlines()
        start, end = max(start_line_number, 1), min(end_line_number, len(lines))
        if start > end and lines:
            access.refuse(
                f"There are no lines {start_line_number} to {end_line_number}: {script_name} has lines 1 to "
                f"{len(lines)}."
            )
        shown = "\n".join(lines[start - 1 : end])
        return access.shorten(
            f"Here are the lines (the file ends at line {len(lines)}):\n\n{shown}\n\n"
            f"Now showing lines {start} to {end} of {script_name}."
        )

    async def understand_file(self, file_name: str, things_to_look_for: str) -> str:
        blocks = blocks_of(access.shorten(await access.read_text(file_name), MOST_READ))
        found = []
        for place, block in enumerate(blocks, 1):

            def question(longest: int, place: int = place, block: str = block) -> str:
                return (
                    f"Here is part {place} of {len(blocks)} of the file {file_name}:\n\n```\n"
                    f"{access.shorten(block, longest)}\n```\n\n"
                    f"Describe it in detail, and above all what it tells about: {things_to_look_for}\n"
                    "Say only what can be seen in it; say so where something cannot be seen."
                )

            found.append(await _ask(self.trial, "fast", question, LONGEST_BLOCK))
        if len(found) == 1:
            return access.shorten(found[0])

        def merging(longest: int) -> str:
            parts = "\n\n".join(
                f"Part {place}: {access.shorten(one, longest)}" for place, one in enumerate(found, 1)
            )
            return (
                f"These are descriptions of the parts of the file {file_name}, in order:\n\n{parts}\n\n"
                f"Merge them into one description of the file, above all of: {things_to_look_for}"
            )

        return access.shorten(await _ask(self.trial, "fast", merging, LONGEST_BLOCK))

    async def edit_script(self, script_name: str, edit_instruction: str, save_name: str) -> str:
        target = access.writable(self.trial, save_name)
        before = await access.read_text_or_none(script_name) or ""
        answer = await _ask(
            self.trial,
            "edit",
            f"Here is the Python script {script_name}:\n\n```python\n{before}\n```\n\n"
            f"Change it as follows: {edit_instruction}\n\n"
            "Answer with the whole changed script in one block that begins with ```python and ends with ```.",
        )
        after = code_of(answer)
        if after is None:
            access.refuse(
                "The script was not changed: the model's answer had no whole block of code. Ask for a smaller "
                f"change, or write the file yourself. The answer was:\n{access.shorten(answer)}"
            )
        replaced = await access.read_text_or_none(target)
        if replaced is not None:
            number = max(await _backups(self.trial, target), default=0) + 1
            await access.write_text(self.trial, f"{BACKUPS}/{target}_{number:06}", replaced)
        await access.write_text(self.trial, target, after)
        changes = "".join(
            difflib.unified_diff(
                before.splitlines(keepends=True), after.splitlines(keepends=True), script_name, save_name
            )
        )
        return access.shorten(
            f"The edited file is saved to {save_name}. Here is the diff, check whether it is right:\n\n{changes}"
        )

    async def reflection(self, things_to_reflect_on: str) -> str:
        log = describe_log(self.trial)
        return access.shorten(
            await _ask(
                self.trial,
                "fast",
                lambda longest: (
                    f"The task:\n{self.trial.task.problem}\n\nWhat was done so far:\n"
                    f"{access.shorten(log, longest)}\n\n"
                    f"Reflect on: {things_to_reflect_on}\nBe concrete, and use nothing but what is written above."
                ),
                access.LONGEST_OBSERVATION,
            )
        )

    async def final_answer(self, final_answer: str) -> str:
        self.trial.submit()
        return "end"


def old_tools(trial: TrialRecorder) -> "list[ToolDef]":
    """Return the tools of a trial; those that ask models only where it has models."""
    tool, tools = access.tool, _OldTools(trial)
    name = "The file, relative to the workspace."
    without_models = [
        tool(tools.list_files, "List the files of a folder.", dir_path="The folder, such as . or data."),
        tool(tools.read_file, "Read a text file.", file_name=name),
        tool(
            tools.write_file,
            "Write a text file, in place of what was there.",
            file_name=name,
            content="All of its text.",
        ),
        tool(tools.append_file, "Append to a text file.", file_name=name, content="The text."),
        tool(tools.copy_file, "Copy a file.", source=name, destination=name),
        tool(tools.undo_edit_script, "Undo the last edit of a script.", script_name=name),
        tool(tools.execute_script, "Execute a Python script; it must be there.", script_name=name),
        tool(
            tools.inspect_script_lines,
            f"Show at most {MOST_LINES} lines of a file.",
            script_name=name,
            start_line_number="The first line, from 1.",
            end_line_number="The last line.",
        ),
        tool(
            tools.final_answer,
            "Give the final answer: the work is scored as it stands in the workspace. This ends the work.",
            final_answer="What you did and found, in a few sentences.",
        ),
    ]
    with_models = [
        tool(
            tools.understand_file,
            "Let a model read a whole file and tell what it says about something.",
            file_name=name,
            things_to_look_for="What to look for, in detail.",
        ),
        tool(
            tools.edit_script,
            "Let a model edit a script by an instruction. You see the difference.",
            script_name="The script; one that is not there is begun empty.",
            edit_instruction="What to change, step by step.",
            save_name="The file that the edited script is saved to.",
        ),
        tool(
            tools.reflection,
            "Look over all that was done so far and reflect on something.",
            things_to_reflect_on="What to reflect on, in detail.",
        ),
    ]
    return without_models + (with_models if trial.models else [])


def describe_log(trial: TrialRecorder) -> str:
    """Return the research log of a trial, the steps that are not yet in it appended in short."""
    log = trial.state.notes.get(RESEARCH_LOG, [])
    rest = [
        f"[Step {step['index']}] {step['action']}: {access.shorten(step['observation'], 500)}"
        for step in trial.state.steps[len(log) :]
    ]
    return access.shorten("\n\n".join([*log, *rest])) or "Nothing yet."


def blocks_of(text: str) -> list[str]:
    """Return a text in blocks of whole lines that a model can read at once; longer lines are cut."""
    blocks = [""]
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LONGEST_BLOCK):
            piece = line[start : start + LONGEST_BLOCK]
            if len(blocks[-1]) + len(piece) > LONGEST_BLOCK:
                blocks.append("")
            blocks[-1] += piece
    return blocks


def code_of(answer: str) -> str | None:
    """Return the first block of Python code in an answer, else the first one of no language; None without one."""
    blocks = [(language.lower(), code) for _, language, code in _BLOCK.findall(answer)]
    return next(
        (code for names in (("python", "py", "python3"), ("",)) for language, code in blocks if language in names),
        None,
    )


async def _ask(trial: TrialRecorder, role: Role, question: Callable[[int], str] | str, longest: int = 0) -> str:
    """Ask a model within an action; where it fails, the agent is told.

    Args:
        trial: Whose action it is.
        role: Which model.
        question: What to ask; or what makes it with parts of at most so many characters, so that it fits.
        longest: Characters of a part at first.
    """
    name = trial.models[role]
    try:
        if isinstance(question, str):
            output = await trial.ask(role, question, in_tool=True)
        else:
            output = await ask_fitting(trial, role, question, longest, in_tool=True)
    except PromptTooLongError as error:
        access.refuse(
            "EnvError: too long input for the tool; use it on less, or do without it. "
            f"{access.shorten(str(error), 2000)}"
        )
    except Exception as error:
        access.refuse(f"LLMError: the model {name} did not answer: {access.shorten(str(error), 2000)}")
    if not output.completion.strip():
        access.refuse(f"LLMError: the model {name} answered nothing ({output.stop_reason}).")
    return output.completion


async def _backups(trial: TrialRecorder, script: str) -> dict[int, str]:
    """Return the backups of a script by their number."""
    folder, base = posixpath.split(f"{BACKUPS}/{script}")
    listed = await access.run(trial, ["ls", "-1", "--", folder])
    pattern = re.compile(re.escape(base) + r"_(\d{6,})")
    found = (pattern.fullmatch(name) for name in listed.stdout.splitlines())
    return {int(match[1]): f"{folder}/{match[0]}" for match in found if match}
