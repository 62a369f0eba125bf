"""Scripts of Slurm jobs, and what the end of a job means, in words. Plain text in, plain text out.

Submitting and watching is in `resources.slurm_jobs` and `slurm`.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from agml_assets.errors import UserError
from agml_assets.settings import absolute_places
from agml_assets.slurm_profile import Profile, Sizing

LOST = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED")
"""Ends that say nothing of the job: the same may well succeed elsewhere."""

_FORWARDED = ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ENDPOINT")
# Libraries that bring threads of their own each look for their own variable.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
_LOG_LINES = 15
# Becomes part of shell commands and of lines for `sbatch`, which takes a blank as an end and % as a place holder.
_PLAIN_PATH = re.compile(r"[\w./+@=-]+")


def require_plain(folder: Path, what: str) -> None:
    """Refuse a folder whose name a cluster would not take as it is; `UserError` names it as `what`."""
    if not _PLAIN_PATH.fullmatch(str(folder)):
        raise UserError(
            f"The {what} {str(folder)!r} cannot be used with a cluster: its name holds a blank, or another "
            "character that shells or the scheduler treat as special. Use letters, digits and ./_+@=- only."
        )


def sbatch_lines(sizing: Sizing, *, requeue: bool) -> list[str]:
    """Return everything that a job asks for, as lines of its script."""
    options = [
        f"--cpus-per-task={sizing.cpus}",
        f"--mem={sizing.memory}",
        f"--time={sizing.time}",
        "--nodes=1",
        *(f"--{name}={value}" for name in ("partition", "account", "qos") if (value := getattr(sizing, name))),
        *([f"--gres=gpu:{sizing.gpus}"] if sizing.gpus else []),
    ]
    return [*(f"#SBATCH {option}" for option in options), *extra_lines(sizing, requeue=requeue)]


def extra_lines(sizing: Sizing, *, requeue: bool) -> list[str]:
    """Return what a job asks for beside size, place and account, as lines of its script."""
    options = [
        *(f"--{name}='{value}'" for name in ("constraint", "exclude") if (value := getattr(sizing, name))),
        *([] if sizing.gpus else ["--gres=none"]),
        "--requeue" if requeue else "--no-requeue",
        "--open-mode=append",  # a job that is started again keeps its log
    ]
    return [f"#SBATCH {option}" for option in options]


def job_script(
    profile: Profile,
    sizing: Sizing,
    arguments: Sequence[str],
    *,
    options: Sequence[str],
    env: Mapping[str, str],
    before: Sequence[str] = (),
) -> str:
    """Return the script of a job that runs the environment's Python.

    Args:
        profile: The cluster.
        sizing: What the job asks for; its processors are the threads of every library.
        arguments: Arguments of Python, taken as they are.
        options: Lines for `sbatch`.
        env: Environment variables beside the profile's and those that name places here.
        before: Lines of shell that come last before Python.
    """
    variables = {
        **{name: os.environ[name] for name in _FORWARDED if os.environ.get(name)},
        **absolute_places(os.environ),
        **profile.env,
        **({"HF_HUB_OFFLINE": "1"} if profile.offline else {}),
        **env,
    }
    binaries = profile.python_environment / "bin"
    modules = [
        "type module >/dev/null 2>&1 || . /etc/profile.d/modules.sh",
        f"module load {' '.join(sizing.modules)}",
    ]
    lines = [
        "#!/bin/bash",
        *options,
        "set -eo pipefail",
        *(modules if sizing.modules else []),
        'threads="${SLURM_CPUS_PER_TASK:-1}"',
        *(f'export {name}="$threads"' for name in _THREADS),
        f"export PATH={shlex.quote(str(binaries))}:$PATH PYTHONUNBUFFERED=1",
        *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        f"cd {shlex.quote(str(Path.cwd()))} 2>/dev/null || true  # where relative paths in settings start",
        *before,
        f"exec {shlex.quote(str(binaries / 'python'))} {' '.join(arguments)}",
    ]
    return "\n".join(lines) + "\n"


def describe_end(job_id: int, state: str, code: str, sizing: Sizing, log: str) -> str:
    """Return what a job's end without a result means, and what to do.

    Args:
        job_id: The scheduler's number.
        state: As `sacct` names it, without what follows the word.
        code: `status:signal`.
        sizing: What the job had asked for.
        log: The end of its log: a scheduler without control groups tells only there what it killed a job for.
    """
    job = f"job {job_id}"
    killed_for_memory = code.endswith(":9") and "memory limit" in log
    if state == "TIMEOUT":
        return (
            f"{job} was ended at its time limit of {sizing.time} (TIMEOUT). What it had finished is kept: give it "
            "more `time` in the profile, and run it again."
        )
    if state == "OUT_OF_MEMORY" or killed_for_memory:
        return (
            f"{job} was ended for using more than its memory of {sizing.memory} (OUT_OF_MEMORY). Give it more "
            "`memory` in the profile, and run it again."
        )
    if state == "PREEMPTED":
        return f"{job} had to give way to another (PREEMPTED). It goes on where it was when it is run again."
    if state in LOST:
        return f"{job} lost its node ({state}). It goes on where it was when it is run again."
    if state == "CANCELLED":
        return f"{job} was cancelled (CANCELLED). Run it again: it goes on where it was."
    if state == "DEADLINE":
        return f"{job} could not be finished before its deadline (DEADLINE)."
    if state == "COMPLETED":
        return f"{job} ended without telling what it has made."
    if state == "FAILED":
        status, _, signal = code.partition(":")
        how = f"signal {signal}" if signal not in ("", "0") else f"status {status}"
        return f"{job} failed with {how} (FAILED)."
    return f"{job} is {state}."


def end_of_log(folder: Path, job_id: int) -> str:
    """Return the last lines of a job's log; empty where it has none."""
    ends = []
    for stream in ("out", "err"):
        file = folder / f"slurm-{job_id}.{stream}"
        if file.is_file():
            ends += file.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join(ends)
