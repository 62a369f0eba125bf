"""What Docker is told of a command that it confines: a container for each, with the walls of bubblewrap.

The image is built from `docker/agents/Dockerfile`. How commands are started, watched and ended is in `execute`.
"""

import csv
import io
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agml_assets.agents.sandbox.confinement import (
    OPEN_FILES,
    TMP_MB,
    WORKSPACE,
    Confinement,
    common_environment,
)
from agml_assets.errors import UserError

IMAGE = "agml-assets-agents"
"""Built by `docker build -t agml-assets-agents docker/agents`."""

_LABEL = "agml-assets-workspace"
_ANSWERS_WITHIN_S = 30.0
_GRACE_S = 5  # after which a command ends by itself, should nobody be left to end it


def container_command(
    one: Confinement, name: str, command: Sequence[str], *, env: Mapping[str, str], seconds: float
) -> list[str]:
    """Return the command line that runs a command in a container of its own.

    Args:
        one: What it may see and use up; its `image` is given.
        name: Of the container.
        command: Program and arguments, looked up inside.
        env: Variables beside those that all commands have.
        seconds: After which it is ended from without.
    """
    assert one.image is not None
    limits = one.limits
    found = ["docker", "run", "--rm", "--interactive", "--init", "--pull", "never", "--log-driver", "none"]
    found += ["--name", name, "--label", f"{_LABEL}={one.workspace}", "--entrypoint", ""]
    found += ["--network", "bridge" if one.network else "none", "--user", _user(one)]
    found += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"]
    found += ["--tmpfs", f"/tmp:exec,mode=1777,size={TMP_MB}m", "--shm-size", f"{TMP_MB}m"]  # noqa: S108
    found += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
    found += ["--pids-limit", str(limits.processes), "--ulimit", f"fsize={limits.file_mb << 20}"]
    found += ["--ulimit", "core=0", "--ulimit", f"nofile={OPEN_FILES}"]
    found += _mount(one.workspace, str(WORKSPACE), read_only=not one.writable)
    for relative, path in sorted(one.read_only.items()):
        found += _mount(path, str(WORKSPACE / relative), read_only=True)
    for target, path in sorted(one.bound.items()):
        found += _mount(path, target, read_only=True)
    if one.gpu is not None:
        found += ["--gpus", f"device={one.gpu}"]
    for key, value in (common_environment(one.gpu) | dict(env)).items():
        found += ["--env", f"{key}={value}"]
    found += ["--workdir", str(WORKSPACE), one.image]
    return [*found, "timeout", "--kill-after", str(_GRACE_S), f"{seconds + _GRACE_S:g}", *command]


def end_container(name: str) -> None:
    """End a container with all its processes; one that is gone is none."""
    _docker("rm", "--force", name)


def end_others(workspace: Path) -> None:
    """End what still runs in a workspace because whoever started it died."""
    found = _docker("ps", "--all", "--quiet", "--filter", f"label={_LABEL}={workspace}")
    if found:
        _docker("rm", "--force", *found.split())


def why_not_started(stderr: bytes) -> UserError:
    """Return the error of a container that Docker could not start."""
    said = stderr.decode(errors="replace").strip().removeprefix("docker: ")
    return UserError(
        f"Docker could not start a container: {said[:500]} The image is built by: "
        f"docker build -t {IMAGE} docker/agents"
    )


def _docker(*words: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            ["docker", *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=_ANSWERS_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"Docker does not answer ({error}): start its daemon, and run the same again.") from None
    return done.stdout


def _user(one: Confinement) -> str:
    """Return who owns the workspace: the sandbox's own user where we could give it away, else we."""
    return f"{one.user}:{one.user}" if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}"


def _mount(source: Path, target: str, *, read_only: bool) -> list[str]:
    fields = ["type=bind", f"source={source}", f"target={target}", *(["readonly"] if read_only else [])]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)  # as Docker reads it: paths may hold commas
    return ["--mount", line.getvalue()]
