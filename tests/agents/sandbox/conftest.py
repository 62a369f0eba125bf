"""A workspace, and commands confined to it: as root, and as a user of the machine without rights."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from agml_assets.agents.sandbox import confinement as walls
from agml_assets.agents.sandbox import execute
from agml_assets.agents.sandbox.confinement import Confinement
from agml_assets.agents.sandbox.execute import Finished, run_confined
from agml_assets.agents.sandbox.paths import remove_tree
from agml_assets.registry.agents import Limits

USER = 54_321  # nobody's
LIMITS = Limits(memory_mb=512, processes=40, file_mb=20, disk_mb=60, output_kb=64, seconds_per_command=20)


@dataclass
class Sandbox:
    """What a test works with."""

    folder: Path
    workspace: Path
    confinement: Confinement

    def run(self, command: str | list[str], timeout_s: float | None = None) -> Finished:
        """Run a command, a text by the shell."""
        words = ["/bin/bash", "-c", command] if isinstance(command, str) else command
        return run_confined(words, self.confinement, timeout_s=timeout_s)


def write(path: Path, text: str) -> Path:
    """Write a file that everybody may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(params=["root", "user"])
def sandbox(request, monkeypatch):
    """A sandbox with a read-only file at `data/labels.csv`; beside it lies what must stay out of reach."""
    if os.geteuid() != 0 and request.param == "root":
        pytest.skip("only root can be tried as root")
    folder = Path(tempfile.mkdtemp(prefix="sandbox-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        workspace = folder / "toy"
        workspace.mkdir()
        answers = write(folder / "private/answers.csv", "id,label\n1,the-answer\n")
        write(folder / "toy_evil/secret.txt", "of another workspace")
        public = write(folder / "public/labels.csv", "id,label\n1,cat\n")
        assert answers.read_text()  # the harness can, so that it counts when the agent cannot
        monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
        user = 200_001
        if request.param == "user" and os.geteuid() == 0:
            user = USER
            os.chown(workspace, USER, USER)
            started = subprocess.Popen

            class AsUser(started):  # type: ignore[misc,valid-type]
                def __init__(self, *arguments, **options):
                    super().__init__(*arguments, **options, user=USER, group=USER, extra_groups=[])

            monkeypatch.setattr(os, "geteuid", lambda: USER)
            monkeypatch.setattr(execute.subprocess, "Popen", AsUser)
            walls.why_not.cache_clear()
        elif os.geteuid() == 0:
            os.chown(workspace, user, user)
        yield Sandbox(
            folder,
            workspace,
            Confinement(workspace, Path("/usr/bin/python3"), LIMITS, {"data/labels.csv": public}, user=user),
        )
    finally:
        monkeypatch.undo()
        walls.why_not.cache_clear()
        remove_tree(folder)
