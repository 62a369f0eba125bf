"""A heavy step as one job of a Slurm cluster, through `dagster-slurm`: submitted, watched, found again, judged.

The library carries the job over SSH and follows its messages. Five of its hooks are replaced, because it knows
jobs by asset alone: where a job lives and so what it is called, which job is taken up again and is waited for,
where that is kept, and what cancels it. Jobs are taken up by dataset, step and the digests of all inputs; the
record is a file beside the artifact, so that neither a process killed without a word nor a lost history of runs
loses a job.
"""

import logging
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_slurm import SlurmPipesClient, SlurmQueueConfig, SlurmResource, SSHConnectionResource
from dagster_slurm.config.runtime import RuntimeVariant
from dagster_slurm.helpers.ssh_helpers import TERMINAL_STATES, normalize_slurm_state
from dagster_slurm.helpers.ssh_pool import SSHConnectionPool
from dagster_slurm.launchers.base import ExecutionPlan

from agml_assets.errors import UserError
from agml_assets.handover import JOBS, Record, Request, clear_record, read_outcome, read_record, write_record
from agml_assets.recording import Step
from agml_assets.slurm_profile import Login, Profile, Sizing, time_seconds
from agml_assets.slurm_script import LOST, describe_end, end_of_log, extra_lines, job_script, require_plain
from agml_assets.workspace import DatasetWorkspace

logger = logging.getLogger(__name__)

MESSAGES = "messages.jsonl"
"""File of the Pipes messages in a job's folder, as the library calls it."""

_ENDED = TERMINAL_STATES - {"COMPLETED"}


def run_job(
    context: dg.AssetExecutionContext,
    request: Request,
    identity: str,
    work: Step,
    profile: Profile,
    changes: Mapping[str, Mapping[str, Any]],
) -> tuple[str, Path]:
    """Run a request as a job, or take up the job that already does the same.

    Args:
        context: Of the asset.
        request: What is to be made.
        identity: What that depends on; a job of the same identity is the same job.
        work: The work that the job does, for its dataset and its log.
        profile: The cluster.
        changes: What this run asks for where it differs from the profile.

    Returns:
        The submission that was answered, and the file with its messages.

    Raises:
        UserError: The job failed, was ended by the scheduler, or could not be submitted. Caused by a
            `ConnectionAbortedError` where the cluster lost it and another try is worth it.
    """
    dataset = work.dataset
    if not dataset.store.is_local:
        raise UserError(
            "Jobs of a cluster need the results on a file system that its nodes share, not in "
            f"{dataset.store.root}."
        )
    require_plain(profile.python_environment, "environment of the profile")
    sizing = profile.sizing(request.step, changes)
    job = _Job(dataset, request, identity, _folder_of(dataset, request.step, identity))
    slurm = _slurm_resource(profile, sizing, job.folder.parent)
    client = _Client(
        slurm_resource=slurm,
        launcher=_Launcher(profile, sizing, request.step),  # type: ignore[arg-type]
        pre_deployed_env_path=str(profile.python_environment),
        debug_mode=True,  # the job's folder stays: its log is read after a failure
    )
    client.job = job
    work.say(f"{request.step} as a job of the cluster at {profile.login.host}")
    patience = sizing.seconds + time_seconds(profile.queue_allowance)
    started = time.monotonic()
    try:
        with redirect_stdout(sys.stderr):  # a command's own output is its result
            client.run(
                context=context,
                payload_path="payload",  # nothing is uploaded: the script names the environment's own module
                skip_payload_upload=True,
                remote_payload_path=str(profile.python_environment / "bin" / "python"),
                extras=request.model_dump(mode="json"),
                extra_slurm_opts={"gpus_per_node": sizing.gpus, "mem": sizing.memory},
                poll_timeout=patience,
                slurm_metrics=[],
            )
    except Exception as error:
        if job.interrupted:
            clear_record(dataset, request.step)
            raise dg.DagsterExecutionInterruptedError from None
        if job.told() is None:
            late = time.monotonic() - started >= patience
            raise _explain(job, slurm, sizing, error, late=late)  # noqa: B904 - its cause is chosen there
    return job.submission, job.folder / MESSAGES


@dataclass
class _Job:
    """The job of a request: its folder and its record, and what became of it."""

    dataset: DatasetWorkspace
    request: Request
    identity: str
    folder: Path
    job_id: int | None = None
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.submission = self.request.submission

    def record(self, job_id: int | None) -> None:
        """Note that this request is the one that may write, and its number once it has one."""
        self.job_id = job_id
        write_record(
            self.dataset, self.request.step, Record(self.submission, self.identity, str(self.folder), job_id)
        )

    def told(self) -> Any:
        """Return what the payload has told, or None."""
        return read_outcome(self.folder / MESSAGES, self.submission)


class _Client(SlurmPipesClient):
    """The library's client, whose jobs are known by what they make."""

    job: _Job

    def _get_remote_run_dir(self, remote_base: str, run_id: str, op_context: Any) -> str:
        return str(self.job.folder)

    def _find_reattachable_job(self, op_context: Any, ssh_pool: Any, asset_key: Any) -> dict[str, str] | None:
        job = self.job
        record = read_record(job.dataset, job.request.step)
        if record is not None and record.folder is not None:
            # Killed between `sbatch` and its answer, a process knows only the name of its job.
            name = shlex.quote(_name_in_queue(Path(record.folder)))
            job_id = record.job_id or _newest(ssh_pool.run(f"squeue -h --me -n {name} -o %i"))
            state = _state(job_id, ssh_pool) if job_id is not None else ""
            if state and state not in _ENDED and record.identity == job.identity:
                logger.info("Taking up job %s, which makes the same and is %s.", job_id, state)
                job.submission = record.submission
                job.job_id = job_id
                return {"job_id": str(job_id), "run_dir": str(job.folder)}
            if state and state not in TERMINAL_STATES:
                logger.info("Cancelling job %s, which would make the same from what is no longer today's.", job_id)
                ssh_pool.run(f"scancel {job_id} || true")
        shutil.rmtree(job.folder, ignore_errors=True)
        job.folder.mkdir(parents=True)
        job.record(None)
        return None

    def _is_job_still_running(self, job_id: int, ssh_pool: Any) -> bool:
        # Asked of a job that has just been taken up. The library would submit another beside one that is
        # suspended, held or resized, or that ends between two of its questions; but it waits for any, up to our
        # patience.
        return True

    def _store_job_tags(self, op_context: Any, job_id: int, run_dir: str, asset_key: str | None) -> None:
        if run_dir:  # the library clears the tags of a finished job; ours lasts until the result is recorded
            self.job.job_id = job_id
            write_record(
                self.job.dataset,
                self.job.request.step,
                Record(self.job.submission, self.job.identity, run_dir, job_id),
            )

    def _is_run_canceling(self, op_context: Any) -> bool:
        # A signal ends the run, so it ends the job: nobody would be there to record what it makes. Only a process
        # that is killed leaves its job, for the next one to take up.
        self.job.interrupted = self._sigterm_received or super()._is_run_canceling(op_context)
        return self.job.interrupted


@dataclass(frozen=True)
class _Launcher:
    """Gives the script of a job to the library; what its command line of `sbatch` cannot say is in there."""

    profile: Profile
    sizing: Sizing
    step: str

    def prepare_execution(
        self, *, working_dir: str, pipes_context: dict[str, str], **_unused: Any
    ) -> ExecutionPlan:
        script = job_script(
            self.profile,
            self.sizing,
            ["-P", "-m", "agml_assets.payload", self.step],
            options=extra_lines(self.sizing, requeue=self.profile.requeue),
            env=pipes_context,
            before=[f": > {working_dir}/{MESSAGES}"],  # a job that is started again tells everything again
        )
        return ExecutionPlan(RuntimeVariant.SHELL, script.splitlines(), {}, {})


def _folder_of(dataset: DatasetWorkspace, step: str, identity: str) -> Path:
    folder = dataset.store.local_folder(dataset.key, JOBS) / f"{dataset.key}-{step}-{identity}"
    require_plain(Path(dataset.store.root.path), "results root")
    return folder


def _slurm_resource(profile: Profile, sizing: Sizing, base: Path) -> SlurmResource:
    return SlurmResource(
        ssh=_ssh(profile.login),
        queue=SlurmQueueConfig(
            partition=sizing.partition or "",
            time_limit=sizing.time,
            cpus=sizing.cpus,
            mem=sizing.memory,
            qos=sizing.qos,
            account=sizing.account,
        ),
        remote_base=str(base),
    )


def _ssh(login: Login) -> SSHConnectionResource:
    try:
        return SSHConnectionResource(
            host=login.host,
            port=login.port,
            user=login.user or getuser(),
            key_path=login.key,
            known_hosts_file=login.known_hosts,
        )
    except ValueError as error:
        raise UserError(f"The login of the cluster's profile is not valid: {error}") from None


def _name_in_queue(folder: Path) -> str:
    """Return a job's name, which the library takes from its folder."""
    return f"dagster_{folder.name}"


def _state(job_id: int, ssh_pool: Any) -> str:
    """Return the state of a job by the scheduler, then by its accounts; empty where neither knows it.

    A connection that fails is an error: "unknown" would be taken for leave to submit another.
    """
    queued = ssh_pool.run(f"squeue -h -j {job_id} -o %T 2>/dev/null || true").split()
    words = queued or ssh_pool.run(f"sacct -X -n -P -j {job_id} -o State").split()
    return normalize_slurm_state(words[0]) if words else ""


def _newest(numbers: str) -> int | None:
    return max((int(number) for number in numbers.split() if number.isdigit()), default=None)


def _explain(job: _Job, slurm: SlurmResource, sizing: Sizing, error: Exception, *, late: bool) -> UserError:
    """Return why there is no result, in words, from the scheduler's account and the end of the job's log.

    Its cause is a `ConnectionAbortedError` where another try is worth it.
    """
    where = f"Dataset {job.dataset.key!r}: {job.request.step}"
    if job.job_id is None:
        record = read_record(job.dataset, job.request.step)
        if (
            record is not None and record.submission == job.submission
        ):  # else a job's that could not be asked after
            clear_record(job.dataset, job.request.step)
        return UserError(f"{where} could not be submitted to the cluster: {error}")
    try:
        with SSHConnectionPool(slurm.ssh) as pool:
            rows = pool.run(f"sacct -X -n -P -j {job.job_id} -o State,ExitCode").strip().split("\n")
    except Exception:  # the connection is what failed; the job may be well
        message = (
            f"{where}: job {job.job_id} was lost from sight ({error}). Run it again: it is taken up where it is."
        )
        return _caused(UserError(message), ConnectionAbortedError("connection to the cluster"))
    state, _, code = rows[-1].strip().partition("|")
    state = (state.split() or ["UNKNOWN"])[0]  # `CANCELLED by 1000`
    clear_record(job.dataset, job.request.step)
    log = end_of_log(job.folder, job.job_id)
    message = f"{where}: {describe_end(job.job_id, state, code, sizing, log)}"
    if late:
        message = (
            f"{where}: job {job.job_id} was given up: it was neither started nor finished in its time limit of "
            f"{sizing.time} and the profile's `queue_allowance`. What it had finished is kept: run it again."
        )
    if log:
        message += f"\nThe end of its log:\n{log}"
    return _caused(UserError(message), ConnectionAbortedError(state) if state in LOST else None)


def _caused(error: UserError, cause: Exception | None) -> UserError:
    error.__cause__ = cause
    return error
