"""Tools of today's agents: a shell, Python, files, a check of the submission's form, and its submission."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from agml_assets.agents.actions import access
from agml_assets.agents.recorder import TrialRecorder

if TYPE_CHECKING:
    from inspect_ai.tool import ToolDef
    from inspect_ai.util import ExecResult


@dataclass(frozen=True)
class _ModernTools:
    """The tools of a trial, each by its method.

    Attributes:
        trial: Whose they are.
    """

    trial: TrialRecorder

    async def shell(self, command: str) -> str:
        return self._describe(await access.run(self.trial, ["bash", "-c", command]))

    async def python(self, code: str) -> str:
        return self._describe(await access.run(self.trial, [self.trial.python, "-u", "-"], code))

    async def list_files(self, folder: str = ".") -> str:
        return await list_folder(self.trial, folder)

    async def read_file(self, file: str, first_line: int = 1, last_line: int = 0) -> str:
        lines = (await access.read_text(file)).splitlines(keepends=True)
        end = last_line if last_line > 0 else len(lines)
        return access.shorten("".join(lines[max(first_line - 1, 0) : end]))

    async def write_file(self, file: str, content: str) -> str:
        await access.write_text(self.trial, file, content)
        return f"{file} was written: {len(content):,} characters."

    async def edit(self, file: str, old: str, new: str) -> str:
        text = await access.read_text(file)
        found = text.count(old) if old else 0
        if found != 1:
            why = "`old` is empty" if not old else "it is not there" if not found else f"it is there {found} times"
            access.refuse(f"{file} was not changed: `old` must be in it exactly once, and {why}.")
        await access.write_text(self.trial, file, text.replace(old, new))
        return f"{file} was changed."

    async def insert(self, file: str, after_line: int, text: str) -> str:
        lines = (await access.read_text(file)).splitlines(keepends=True)
        if not 0 <= after_line <= len(lines):
            access.refuse(f"{file} has {len(lines):,} lines; `after_line` must be between 0 and that.")
        if after_line and not lines[after_line - 1].endswith("\n"):
            lines[after_line - 1] += "\n"
        ending = "" if text.endswith("\n") or not text else "\n"
        await access.write_text(
            self.trial, file, "".join([*lines[:after_line], text + ending, *lines[after_line:]])
        )
        return f"{file} was changed."

    async def validate_submission(self) -> str:
        problems = await anyio.to_thread.run_sync(self.trial.validate, self.trial.task, self.trial.place.workspace)
        if not problems:
            return "The submission has the form that is asked for. This says nothing of its score."
        return access.shorten("The submission cannot be scored:\n- " + "\n- ".join(problems))

    async def submit(self, answer: str = "") -> str:
        self.trial.submit()
        return "The work was submitted as it stands."

    def _describe(self, done: "ExecResult[str]") -> str:
        return (access.describe_output(done) or "There was no output.") + access.describe_status(self.trial, done)


def modern_tools(trial: TrialRecorder) -> "list[ToolDef]":
    """Return the tools of a trial."""
    tool, tools = access.tool, _ModernTools(trial)
    seconds = f"{trial.limits.seconds_per_command:,.0f}"
    return [
        tool(
            tools.shell,
            f"Run a command with bash in the workspace. There is no network. It may take {seconds} seconds.",
            command="The command, of one line or many.",
        ),
        tool(
            tools.python,
            f"Run Python code in a new process in the workspace; print what you want to see. It may take "
            f"{seconds} seconds.",
            code="The code.",
        ),
        tool(tools.list_files, "List the files of a folder.", folder="The folder, relative to the workspace."),
        tool(
            tools.read_file,
            "Read a text file, or some of its lines.",
            file="The file, relative to the workspace.",
            first_line="The first line, from 1.",
            last_line="The last line; 0 means the end of the file.",
        ),
        tool(
            tools.write_file,
            "Write a text file, in place of what was there.",
            file="The file, relative to the workspace.",
            content="All of its text.",
        ),
        tool(
            tools.edit,
            "Replace a piece of a text file.",
            file="The file, relative to the workspace.",
            old="The piece, exactly as it is in the file, where it must be exactly once.",
            new="What takes its place.",
        ),
        tool(
            tools.insert,
            "Insert text into a text file.",
            file="The file, relative to the workspace.",
            after_line="The line after which it goes; 0 means before the first one.",
            text="The text.",
        ),
        tool(tools.validate_submission, "Check the form of the submission; tells nothing of its score."),
        tool(
            tools.submit,
            "Submit the work as it stands in the workspace. This ends the work.",
            answer="What you did and found, in a few sentences.",
        ),
    ]


async def list_folder(trial: TrialRecorder, folder: str) -> str:
    """Return the names in a folder, marked as `ls -F` does."""
    done = await access.run(trial, ["ls", "-F", "--", access.inside(folder)])
    if not done.success:
        access.refuse(f"{folder} cannot be listed: {done.stderr.strip()}")
    return access.shorten(done.stdout) or "The folder is empty."
