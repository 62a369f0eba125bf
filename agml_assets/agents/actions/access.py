"""Files and commands of a workspace as tools reach them: by the sandbox alone, whatever kind it is of.

Which tools there are is in `old` and `modern`.
"""

import math
import posixpath
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from agml_assets.agents.recorder import TrialRecorder

if TYPE_CHECKING:
    from inspect_ai.tool import ToolDef
    from inspect_ai.util import ExecResult

WORKSPACE = "/workspace"

LONGEST_OBSERVATION = 20_000
"""Characters; of longer ones the middle is left out."""


def tool(function: Any, description: str, **parameters: str) -> "ToolDef":
    """Make a tool of a coroutine function; its name is the function's."""
    from inspect_ai.tool import ToolDef

    return ToolDef(function, name=function.__name__, description=description, parameters=parameters)


def refuse(message: str) -> NoReturn:
    """Tell the agent that something cannot be done."""
    from inspect_ai.tool import ToolError

    raise ToolError(message)


def shorten(text: str, longest: int = LONGEST_OBSERVATION) -> str:
    """Return a text whose middle is left out, visibly, where it is longer than so many characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def inside(path: str) -> str:
    """Return a path relative to the workspace.

    Raises:
        ToolError: It leads out of the workspace.
    """
    full = posixpath.normpath(posixpath.join(WORKSPACE, path))
    if full != WORKSPACE and not full.startswith(f"{WORKSPACE}/"):
        refuse(f"{path} is outside the workspace; only files in it can be used.")
    if "\0" in path:
        refuse("A path cannot hold a null character.")
    return posixpath.relpath(full, WORKSPACE)


def writable(trial: TrialRecorder, path: str) -> str:
    """Return a path relative to the workspace that may be written.

    Raises:
        ToolError: It leads out of the workspace, or is read-only.
    """
    here = inside(path)
    if here == ".":
        refuse(f"{path} is a folder.")
    if here in trial.read_only:
        refuse(f"{path} is read-only and cannot be changed.")
    return here


async def read_text(path: str) -> str:
    """Return the text of a file.

    Raises:
        ToolError: There is none, or it is no text.
    """
    from inspect_ai.util import OutputLimitExceededError, sandbox

    here = inside(path)
    try:
        return await sandbox().read_file(here)
    except FileNotFoundError:
        refuse(f"There is no file {path}.")
    except IsADirectoryError:
        refuse(f"{path} is a folder.")
    except (PermissionError, ValueError) as error:
        refuse(f"{path} cannot be read as text: {getattr(error, 'strerror', None) or error}")
    except OutputLimitExceededError as error:
        refuse(f"{path} is too large to be read: the limit is {error.limit_str}.")


async def write_text(trial: TrialRecorder, path: str, text: str) -> None:
    """Write the text of a file, folders included.

    Raises:
        ToolError: It may not be written, or cannot be.
    """
    from inspect_ai.util import sandbox

    here = writable(trial, path)
    try:
        await sandbox().write_file(here, text)
    except IsADirectoryError:
        refuse(f"{path} is a folder.")
    except (OSError, ValueError) as error:
        refuse(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}")


async def read_text_or_none(path: str) -> str | None:
    """Return the text of a file; None where there is no file."""
    from inspect_ai.tool import ToolError
    from inspect_ai.util import sandbox

    try:
        return await sandbox().read_file(inside(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ToolError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


async def run(trial: TrialRecorder, command: list[str], stdin: str | None = None) -> "ExecResult[str]":
    """Run a command in the workspace.

    Raises:
        ToolError: It took longer than a command may; its processes were ended.
    """
    from inspect_ai.util import OutputLimitExceededError, sandbox

    seconds = trial.limits.seconds_per_command
    try:
        return await sandbox().exec(command, input=stdin, timeout=math.ceil(seconds), timeout_retry=False)
    except TimeoutError as error:
        partial = shorten(getattr(error, "truncated_output", None) or "")
        refuse(
            f"The command took longer than {seconds:,.0f} seconds and was ended, with all its processes."
            + (f" It had written:\n{partial}" if partial else "")
        )
    except OutputLimitExceededError as error:
        refuse(
            f"The command wrote more than {error.limit_str} and was ended. It "
            f"began:\n{shorten(error.truncated_output or '')}"
        )
    except (PermissionError, UnicodeDecodeError) as error:
        refuse(f"The command could not be run: {error}")


def describe_output(done: "ExecResult[str]") -> str:
    """Return what a command wrote: its output, then its errors."""
    parts = (shorten(done.stdout.rstrip("\n")), shorten(done.stderr.rstrip("\n")))
    return "\n".join(part for part in parts if part)


def describe_status(trial: TrialRecorder, done: "ExecResult[str]") -> str:
    """Return how a command failed, as a line to append to its output; empty where it did not."""
    if done.success:
        return ""
    # A shell, and whatever else starts a program, tells of a signal by a status above 128.
    number = -done.returncode if done.returncode < 0 else done.returncode - 128
    told = {
        signal.SIGKILL: f"killed, as at the limit of {trial.limits.memory_mb} MB of memory",
        signal.SIGXFSZ: f"a file grew above the limit of {trial.limits.file_mb} MB",
        signal.SIGSEGV: "a segmentation fault",
        signal.SIGABRT: "aborted",
    }
    # Where the sandbox stopped it, it has said why.
    known = "" if "\nStopped: " in f"\n{done.stderr}" else told.get(number, "")  # type: ignore[call-overload]
    return f"\n[exit status {done.returncode}{known and ': '}{known}]"
