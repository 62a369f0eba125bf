"""Inspect's sandbox types `bubblewrap`, `container` and `unconfined`: a workspace here, with and without walls.

The workspace is the harness's: it is there before a trial begins and stays when it ends.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    sandboxenv,
    subprocess,
)
from pydantic import BaseModel, ConfigDict, field_validator

from agml_assets.agents.sandbox.confinement import WORKSPACE, Confinement
from agml_assets.agents.sandbox.execute import run_confined_async
from agml_assets.agents.sandbox.paths import PathRefusedError, read_bytes, write_bytes
from agml_assets.registry.agents import Limits

_MOST_READ = 100 << 20  # bytes; as Inspect says


class WorkspaceConfig(BaseModel):
    """A `Confinement` as a log can hold it.

    Attributes:
        workspace: Folder of the host.
        python: Interpreter of the agent's scripts.
        limits: What may be used up.
        read_only: Files and folders of the host with their path relative to the workspace; a mapping will do.
        bound: Further files and folders, read-only, with the absolute path at which they appear; likewise.
        hidden: Files and folders that are empty in the sandbox.
        gpu: Number of the GPU that is seen; None means none.
        user: Number of the user that commands run as, where we may choose.
        image: Docker's image; None means bubblewrap.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: Path
    python: Path
    limits: Limits
    read_only: tuple[tuple[str, Path], ...] = ()
    bound: tuple[tuple[str, Path], ...] = ()
    hidden: tuple[Path, ...] = ()
    gpu: int | None = None
    user: int = 200_000
    image: str | None = None

    @field_validator("read_only", "bound", mode="before")
    @classmethod
    def _hashable(cls, value: Any) -> Any:  # as Inspect asks of a configuration
        return tuple(sorted(value.items())) if isinstance(value, Mapping) else value

    def confinement(self) -> Confinement:
        """Return the confinement that is meant."""
        return Confinement(
            self.workspace,
            self.python,
            self.limits,
            read_only=dict(self.read_only),
            bound=dict(self.bound),
            hidden=self.hidden,
            gpu=self.gpu,
            user=self.user,
            image=self.image,
        )


class _WorkspaceEnvironment(SandboxEnvironment):
    """Files of a workspace on this machine."""

    def __init__(self, config: WorkspaceConfig) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Return the configuration that a log holds."""
        return WorkspaceConfig.model_validate(config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Open the workspace of a sample."""
        if not isinstance(config, WorkspaceConfig):
            raise ValueError("the sandbox needs a WorkspaceConfig")
        return {"default": cls(config)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Leave the workspace as it is: every command has ended with all its processes."""

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file of the workspace."""
        content = contents.encode() if isinstance(contents, str) else contents
        owner = self.config.user if os.geteuid() == 0 else None
        try:
            write_bytes(self.config.workspace, self._relative(file), content, owner)
        except PathRefusedError as error:
            raise PermissionError(str(error)) from None

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file of the workspace, or one that appears there read-only."""
        relative = self._relative(file)
        try:
            content = self._read(relative)
        except PathRefusedError as error:
            if "There is no file" in str(error):
                raise FileNotFoundError(str(error)) from None
            if "larger than" in str(error):
                raise OutputLimitExceededError("100 MiB", None) from None
            raise PermissionError(str(error)) from None
        return content.decode() if text else content

    def _read(self, relative: str) -> bytes:
        for place, path in self.config.read_only:
            if relative == place:
                return read_bytes(path.parent, path.name, _MOST_READ)
            if relative.startswith(f"{place}/"):
                return read_bytes(path, relative.removeprefix(f"{place}/"), _MOST_READ)
        return read_bytes(self.config.workspace, relative, _MOST_READ)

    def _relative(self, file: str) -> str:
        inside = os.path.normpath(WORKSPACE / file)
        if inside != str(WORKSPACE) and not inside.startswith(f"{WORKSPACE}/"):
            raise PermissionError(f"{file!r} is not in the workspace")
        return os.path.relpath(inside, WORKSPACE)


@sandboxenv(name="bubblewrap")
class BubblewrapEnvironment(_WorkspaceEnvironment):
    """Commands run confined, see `confinement`."""

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command; one that is stopped at a limit returns what it wrote, and says so at its end."""
        if cwd is not None:
            cmd = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', cwd, *cmd]
        done = await run_confined_async(
            cmd,
            self.config.confinement(),
            timeout_s=timeout,
            stdin=input.encode() if isinstance(input, str) else input,
            env=env,
        )
        stdout, stderr = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        if done.stopped == "time" and timeout is not None:
            error = TimeoutError(f"The command took longer than {timeout} s and was stopped.")
            error.truncated_output = stdout + stderr  # type: ignore[attr-defined]  # where Inspect looks for it
            raise error
        return ExecResult(done.returncode == 0, done.returncode, stdout, stderr)


@sandboxenv(name="container")
class ContainerEnvironment(BubblewrapEnvironment):
    """Commands run confined by Docker, a container for each, see `sandbox.container`; files are opened as here."""


@sandboxenv(name="unconfined")
class UnconfinedEnvironment(_WorkspaceEnvironment):
    """Commands run as we do, with our files and our network: only for use inside another sandbox."""

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command in the workspace, without our environment: keys are there."""
        config = self.config
        path = f"{config.python.parent}:/usr/local/bin:/usr/bin:/bin"
        gpu = "" if config.gpu is None else str(config.gpu)
        own = {"PATH": path, "HOME": str(config.workspace), "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": gpu}
        return await subprocess(
            ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in (own | (env or {})).items()), *cmd],
            input=input,
            cwd=config.workspace / (cwd or ""),
            timeout=timeout,
            output_limit=config.limits.output_kb << 10,
            concurrency=concurrency,
        )
