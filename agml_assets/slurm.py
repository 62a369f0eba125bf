"""Submit whole benchmarks to a Slurm cluster: the registry in one job, or an array with a dataset a task.

What happens in the job is `agml-assets run`, as anywhere. Single heavy steps as jobs are `resources.slurm_jobs`.
"""

import argparse
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from agml_assets.errors import UserError
from agml_assets.settings import PLACES
from agml_assets.slurm_profile import WHOLE, Profile, load_profile
from agml_assets.slurm_script import job_script, require_plain, sbatch_lines
from agml_assets.store import PLATFORM, ArtifactStore

logger = logging.getLogger(__name__)

_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS", re.IGNORECASE)


def whole_script(
    profile: Profile,
    keys: Sequence[str],
    *,
    array: bool,
    env: Mapping[str, str],
    logs: Path,
    force: bool = False,
) -> str:
    """Return the script of a job that benchmarks datasets, doing only what is not up to date.

    Args:
        profile: The cluster; the job asks for what it says of `whole`.
        keys: Registry keys.
        array: A task for each dataset, in place of one job for all, one after another.
        env: Environment with the places of results, registry and settings, absolute.
        logs: Folder of the scheduler's logs.
        force: Count nothing as current.
    """
    sizing = profile.sizing(WHOLE)
    log = logs / ("agml-%A_%a" if array else "agml-%j")
    options = [
        "#SBATCH --job-name=agml-assets",
        f"#SBATCH --output={log}.out",
        f"#SBATCH --error={log}.err",
        *([f"#SBATCH --array=0-{len(keys) - 1}"] if array else []),
        *sbatch_lines(sizing, requeue=profile.requeue),
    ]
    which = ['"${keys[SLURM_ARRAY_TASK_ID]}"'] if array else list(keys)
    return job_script(
        profile,
        sizing,
        ["-P", "-m", "agml_assets.cli", "run", *which, *(["--force"] if force else [])],
        options=options,
        # The job is on the cluster already: its heavy steps are no jobs of their own. And it keeps no history of
        # runs: SQLite on a shared file system does not bear writers on several nodes.
        env={**{n: env[n] for n in PLACES if env.get(n)}, "AGML_COMPUTE": "in_process", "DAGSTER_HOME": ""},
        before=[f"keys=({' '.join(keys)})"] if array else [],
    )


def submit(script: str) -> int:
    """Hand a script to `sbatch` and return the number of the job.

    Raises:
        UserError: There is no `sbatch` here, or it refuses the job.
    """
    if shutil.which("sbatch") is None:
        raise UserError("There is no `sbatch` here. Run this on a login node of the cluster.")
    done = subprocess.run(["sbatch", "--parsable"], input=script, capture_output=True, text=True)  # noqa: S607
    number = re.match(r"(\d+)", done.stdout)
    if done.returncode or number is None:
        raise UserError(f"The cluster refuses the job: {(done.stderr or done.stdout).strip()}")
    return int(number[1])


def log_folder(store: ArtifactStore) -> Path:
    """Return today's folder of the scheduler's logs, made by nobody yet.

    Raises:
        UserError: The results root is not on a file system that nodes share, or has a name that a line of a script
            cannot hold.
    """
    if not store.is_local:
        raise UserError(f"The scheduler cannot write its logs to {store.root}: let --results name a folder.")
    require_plain(Path(store.root.path), "results root")
    return Path(store.path(PLATFORM, f"slurm/{datetime.now().astimezone():%Y-%m-%d}").path)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the `slurm` command."""
    slurm = commands.add_parser("slurm", help="run whole benchmarks as jobs of a cluster")
    verbs = slurm.add_subparsers(required=True, metavar="VERB")
    command = verbs.add_parser(
        "submit",
        help="submit the registry, or some of it",
        description="Submit registered datasets to a Slurm cluster: one job, or an array with a dataset a task.",
    )
    command.add_argument("keys", nargs="*", metavar="KEY", help="registered keys; all if none is given")
    command.add_argument(
        "--array", action="store_true", help="a task for each dataset, in place of one job for all"
    )
    command.add_argument("--dry-run", action="store_true", help="show the script and submit nothing")
    command.add_argument("--profile", metavar="FILE", help="the cluster, in place of $AGML_SLURM_PROFILE")
    command.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    command.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")
    command.add_argument("--force", action="store_true", help="make everything again, also what is up to date")
    command.add_argument("--unchecked", action="store_true", help="submit also where something to read is missing")
    command.set_defaults(call=_submit)


def _submit(options: argparse.Namespace) -> int:
    from agml_assets.batch import absolute_environment, choose_keys
    from agml_assets.todo import open_workspace

    profile = load_profile(options.profile)
    profile.require_environment()
    workspace = open_workspace(options.results, options.config)
    keys = choose_keys(workspace.registry, options.keys)
    logs = log_folder(workspace.store)
    env = absolute_environment(workspace, options.config)
    shown = _without_secrets(profile) if options.dry_run else profile
    script = whole_script(shown, keys, array=options.array, env=env, logs=logs, force=options.force)
    if options.dry_run:
        sys.stdout.write(script)
        return 0
    if profile.offline and not options.unchecked:
        _require_everything(profile, keys, env)
    logs.mkdir(parents=True, exist_ok=True)
    number = submit(script)
    many = "dataset" if len(keys) == 1 else "datasets"
    sys.stdout.write(f"Submitted job {number}: {len(keys)} {many}. Logs: {logs}\n")
    return 0


def _without_secrets(profile: Profile) -> Profile:
    """Return a profile to be shown: what is shown is pasted into tickets."""
    env = {name: "***" if _SECRET.search(name) else value for name, value in profile.env.items()}
    return profile.model_copy(update={"env": env})


def _require_everything(profile: Profile, keys: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse to submit what a node without network could not read; the check names every missing piece."""
    command = [str(profile.python_environment / "bin" / "python"), "-P", "-m", "agml_assets.cli", "prefetch"]
    environment = {**os.environ, **env, **profile.env}
    done = subprocess.run([*command, "--check", *keys], env=environment, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("Missing: ", "Error: "))]
        raise UserError(
            "Nothing was submitted, because nodes without network could not read everything:\n"
            + "\n".join(f"  {line}" for line in lines or done.stderr.splitlines()[-5:])
            + "\nRun `agml-assets prefetch` where there is network, or submit with --unchecked."
        )
