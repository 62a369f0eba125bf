"""The compute resource: where heavy steps run. In this process, in a subprocess, or as jobs of a Slurm cluster.

Which one never changes what is made, and no artifact's lineage knows of it. What a job is on a cluster is in
`slurm_jobs`.
"""

import os
import shutil
import signal
import subprocess
import sys
import uuid
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import IO, Any, Literal, get_args

import dagster as dg

from agml_assets.errors import UserError, did_you_mean
from agml_assets.handover import (
    JOBS,
    Failed,
    Record,
    Request,
    clear_record,
    hold_step,
    identity_of,
    read_outcome,
    verified,
    write_record,
)
from agml_assets.heavy import HeavyStep, Made, Make
from agml_assets.hub_cache import is_cached
from agml_assets.lineage import Artifact
from agml_assets.recording import Step
from agml_assets.settings import absolute_places
from agml_assets.slurm_profile import Profile, load_profile
from agml_assets.workspace import DatasetWorkspace

Mode = Literal["in_process", "subprocess", "slurm"]

_SAID_LINES = 15
_GRACE_S = 20.0


@dataclass(frozen=True)
class Compute:
    """Runs heavy steps.

    Args:
        mode: Where.
        profile: Profile of the cluster; None means `$AGML_SLURM_PROFILE`.
        sizing: What jobs ask the cluster for where it differs from the profile: values by heavy step.
    """

    mode: Mode = "in_process"
    profile: str | None = None
    sizing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def make(
        self,
        context: dg.AssetExecutionContext,
        step: HeavyStep,
        works: Mapping[Artifact, Step],
        make: Make | None = None,
        *,
        heavy: bool = True,
    ) -> Iterator[Made]:
        """Make artifacts of a heavy step; yield each, stored already where another process has made it.

        Args:
            context: Of the asset.
            step: The heavy step.
            works: Which of its artifacts are wanted, and their work.
            make: In place of the step's own function, when it runs in this process.
            heavy: False where the step is light this time, and runs in this process whatever the mode.

        Raises:
            UserError: It failed, in words; another try is worth it where `faults.is_transient` says so.
        """
        dataset = next(iter(works.values())).dataset
        if self.mode == "in_process" or not heavy:
            # A job of a killed run would write the same artifact: it is given up, and its end waited for.
            clear_record(dataset, step.name)
            with hold_step(dataset, step.name, f"run {context.run_id}"):
                yield from (make or step.make)(works)
            return
        if not dataset.store.is_shared:
            raise UserError(
                "A results root memory:// is seen by its own process alone: compute in process, "
                f"not by {self.mode}, or name a folder or a bucket."
            )
        run = _run_subprocess
        if self.mode == "slurm":
            run = self._run_job
            _require_models(dataset, step, load_profile(self.profile))
        artifacts = list(works)
        request = Request(
            step=step.name,
            artifacts=tuple(artifact.key for artifact in artifacts),
            entry=dataset.entry,
            settings=dataset.settings,
            root=str(dataset.store.root),
            submission=uuid.uuid4().hex,
        )
        identity = identity_of(dataset, step, artifacts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.PreviewWarning)  # of Pipes itself, about its own readers
            submission, messages = run(context, request, identity, next(iter(works.values())))
        outcome = read_outcome(messages, submission)
        try:
            if outcome is None:
                raise UserError(
                    f"Dataset {dataset.key!r}: {step.name} ended without telling what it has made. Nothing was "
                    "recorded. Run it again."
                )
            if isinstance(outcome, Failed):
                raise _as_error(outcome)
            yield from verified(dataset, step, artifacts, outcome)
            shutil.rmtree(messages.parent, ignore_errors=True)
        finally:
            # Recorded, or not to be believed: neither is worth coming back to.
            clear_record(dataset, step.name)

    def record_only(
        self, context: dg.AssetExecutionContext, step: HeavyStep, work: Step, *, heavy: bool = True
    ) -> dg.MaterializeResult:
        """Make the only artifact of a heavy step, and return its materialisation."""
        works = {work.making.artifact: work}
        [result] = [work.record(made) for made in self.make(context, step, works, heavy=heavy)]
        return result

    def _run_job(
        self, context: dg.AssetExecutionContext, request: Request, identity: str, work: Step
    ) -> tuple[str, Path]:
        from resources.slurm_jobs import run_job  # the library behind it takes a second to load

        return run_job(context, request, identity, work, load_profile(self.profile), self.sizing)


def _run_subprocess(
    context: dg.AssetExecutionContext, request: Request, identity: str, work: Step
) -> tuple[str, Path]:
    """Run the payload in a process that ends with this one; return its submission and its messages."""
    dataset = work.dataset
    messages = dataset.store.local_folder(dataset.key, f"{JOBS}/{request.step}") / "messages.jsonl"
    write_record(dataset, request.step, Record(request.submission, identity))
    reader = dg.PipesFileMessageReader(str(messages), cleanup_file=False)
    request = request.model_copy(update={"parent": os.getpid()})
    try:
        status, said = _run_payload(context, request, reader)
    except dg.DagsterExecutionInterruptedError:
        clear_record(dataset, request.step)
        raise
    if status and read_outcome(messages, request.submission) is None:
        clear_record(dataset, request.step)
        raise UserError(
            f"Dataset {dataset.key!r}: the subprocess of {request.step} {_describe_exit(status)}. What it had "
            "finished is kept: run it again." + (f"\nThe end of what it said:\n{said}" if said else "")
        )
    return request.submission, messages


def _run_payload(
    context: dg.AssetExecutionContext, request: Request, reader: dg.PipesMessageReader
) -> tuple[int, str]:
    """Run the payload to its end; return its exit status, negative for a signal, and the end of its errors.

    As `dg.PipesSubprocessClient` does, which keeps nothing of what its process says.
    """
    injector, extras = dg.PipesTempFileContextInjector(), request.model_dump(mode="json")
    with dg.open_pipes_session(context, injector, reader, extras=extras) as session:
        process = subprocess.Popen(  # noqa: S603 - our own module
            # Without -P a yaml.py in the working directory, which may be a dataset's, would be run.
            [sys.executable, "-P", "-m", "agml_assets.payload", request.step],
            env={**os.environ, **absolute_places(os.environ), **session.get_bootstrap_env_vars()},
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        said: deque[str] = deque(maxlen=_SAID_LINES)
        teller = Thread(target=_pass_on, args=(process.stderr, said), daemon=True)
        teller.start()
        try:
            process.wait()
        except dg.DagsterExecutionInterruptedError:
            process.send_signal(signal.SIGINT)
            process.wait(_GRACE_S)
            raise
        teller.join(timeout=1.0)  # a process that it has left behind may keep its end open
        return process.returncode, "".join(tuple(said))


def _pass_on(errors: IO[str], said: deque[str]) -> None:
    for line in errors:
        sys.stderr.write(line)
        said.append(line)


def _describe_exit(status: int) -> str:
    number = -status if status < 0 else status - 128  # a shell's word for a signal
    if number == signal.SIGKILL:
        return f"was ended from outside, perhaps for want of memory (exit status {status})"
    if status < 0:
        return f"was ended by signal {number} (exit status {status})"
    return f"ended with exit status {status}"


def _require_models(dataset: DatasetWorkspace, step: HeavyStep, profile: Profile) -> None:
    """Name a model that a job without network would look for in vain, before it waits in the queue."""
    if not profile.offline:
        return
    home = profile.env.get("HF_HOME")
    cache = profile.env.get("HF_HUB_CACHE") or (home and str(Path(home) / "hub"))
    for model, revision in step.models(dataset.settings):
        if not is_cached(model, revision, Path(cache) if cache else None):
            raise UserError(
                f"Dataset {dataset.key!r}: {step.name} needs the model {model!r}, which is not in the cache "
                f"{cache or 'of the Hugging Face hub'}, and jobs have no network. Run `agml-assets prefetch "
                f"{dataset.key}` where there is network; or say `offline: false` in the profile."
            )


def _as_error(failed: Failed) -> Exception:
    error: Exception = UserError(failed.message) if failed.by_user else RuntimeError(failed.message)
    if failed.passes:
        error.__cause__ = TimeoutError()  # tells `faults.is_transient` what the payload's own error told it
    return error


class ComputeResource(dg.ConfigurableResource[Compute]):
    """Says where heavy steps run, in the launchpad or by the environment.

    Attributes:
        mode: `in_process`, `subprocess` or `slurm`; null means `$AGML_COMPUTE`, then `in_process`.
        profile: Profile of the cluster, a YAML file or the name of a ready one; null means `$AGML_SLURM_PROFILE`.
        sizing: For this run, what jobs ask for where it differs from the profile, by heavy step, such as
            `{reference_training: {time: "12:00:00", memory: 128G}}`.
    """

    mode: str | None = None
    profile: str | None = None
    sizing: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - pydantic copies it

    def create_resource(self, context: dg.InitResourceContext) -> Compute:
        """Return the plain object; a mode, a profile or a size that is not valid fails the run in words."""
        try:
            return open_compute(self.mode, self.profile, self.sizing)
        except UserError as error:
            raise dg.Failure(error.message, allow_retries=False) from None


def open_compute(
    mode: str | None = None, profile: str | None = None, sizing: Mapping[str, Mapping[str, Any]] | None = None
) -> Compute:
    """Return where heavy steps run: `mode`, else `$AGML_COMPUTE`, else in this process.

    Raises:
        UserError: There is no such mode; or, for `slurm`, no profile, or one that is not valid.
    """
    modes = get_args(Mode)
    named = mode or os.environ.get("AGML_COMPUTE") or "in_process"
    if named not in modes:
        raise UserError(
            f"$AGML_COMPUTE, or the mode of the resource 'compute', is {named!r}; it is one of {', '.join(modes)}."
            f"{did_you_mean(named, modes)}"
        )
    compute = Compute(named, profile, sizing or {})  # type: ignore[arg-type]
    if named == "slurm":
        load_profile(profile).check_sizing(compute.sizing)
    return compute
