"""Which sandbox agents run in: the one asked for, or the best there is; never none unless told so."""

import logging
import shutil
import subprocess

from agml_assets.agents.sandbox.confinement import why_not
from agml_assets.agents.sandbox.container import IMAGE
from agml_assets.errors import UserError

logger = logging.getLogger(__name__)

KINDS = ("bubblewrap", "docker", "none")


def choose_sandbox(kind: str | None) -> str:
    """Return the kind of sandbox to use, one of `KINDS`.

    Args:
        kind: The one asked for; None means bubblewrap where it works, else Docker where its daemon answers.

    Raises:
        UserError: It cannot be had here, saying what to install; or there is none at all.
    """
    if kind not in (None, *KINDS):
        raise UserError(f"There is no sandbox {kind!r}. Sandboxes are: {', '.join(KINDS)}.")
    if kind == "none":
        logger.warning(
            "Agents run WITHOUT a sandbox, as the user you are, with your files and your network. Do this only "
            "inside a container or a machine that you can lose."
        )
        return "none"
    if kind != "docker" and not why_not():
        return "bubblewrap"
    if kind != "bubblewrap" and docker_answers():
        return "docker"
    if kind == "docker":
        raise UserError("Docker does not answer: start its daemon, or use bubblewrap: --sandbox bubblewrap.")
    raise UserError(why_not())


def image_for_scoring() -> str | None:
    """Return the image in which a task's own code runs where there is no bubblewrap; None means bubblewrap."""
    return IMAGE if why_not() and docker_answers() else None


def docker_answers() -> bool:
    """Return whether a Docker daemon can be reached."""
    program = shutil.which("docker")
    if program is None:
        return False
    try:
        done = subprocess.run([program, "info"], capture_output=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
