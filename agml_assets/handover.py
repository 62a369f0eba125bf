"""What a submitting process and the payload of a heavy step hand to each other, through Pipes and the store.

A request says what to make; a record beside the artifact says which request may write it; a result echoes what was
made, and is believed only where the store agrees. No Dagster, and no scheduler, here.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from upath import UPath

from agml_assets.errors import UserError
from agml_assets.heavy import HeavyStep, Made
from agml_assets.lineage import Artifact
from agml_assets.locks import exclusive, is_held
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.settings import Settings
from agml_assets.store import PLATFORM, Sidecar, dump_json
from agml_assets.workspace import DatasetWorkspace

JOBS = ".work/jobs"
"""Folder of a dataset for records, locks and messages of its jobs."""

_SETTLE_S = 60.0  # NFS clients keep what they know of a folder for up to a minute (acdirmax)


class Request(BaseModel):
    """What the payload is asked to make.

    Attributes:
        step: Name of the heavy step.
        artifacts: Keys of the artifacts that are wanted of it.
        entry: The dataset's registry entry, resolved; the payload reads no registry.
        settings: The dataset's settings.
        root: Results root.
        submission: Told to nobody else; who holds it in the record may write.
        parent: Process that the payload shall not outlive; None for a job of a cluster.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    step: str
    artifacts: tuple[str, ...]
    entry: DatasetEntry
    settings: Settings
    root: str
    submission: str
    parent: int | None = None


class Result(BaseModel):
    """What the payload says it has made; `outcome` tells it from a failure among the messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    outcome: Literal["made"] = "made"
    submission: str
    dataset: str
    step: str
    digests: dict[str, str]
    facts: dict[str, dict[str, Any]]
    host: str
    job: str | None
    peak_memory_mb: float


class Failed(BaseModel):
    """Why the payload has made nothing.

    Attributes:
        message: For people.
        passes: Whether the same may succeed when it is tried again.
        by_user: Whether the message says all, so that no stack trace is needed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    outcome: Literal["failed"] = "failed"
    submission: str
    message: str
    passes: bool
    by_user: bool


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Record:
    """Who may write the artifacts of one step of one dataset.

    It lies in a folder that others may write to, and what it says becomes commands: nothing else is a record.

    Attributes:
        submission: The request's secret.
        identity: What the request depends on, as `identity_of` gives it.
        folder: Folder of the job, with its messages and logs; None for a subprocess.
        job_id: The scheduler's number; None until the scheduler has given it.
    """

    submission: str
    identity: str
    folder: str | None = None
    job_id: Annotated[int, Field(ge=1)] | None = None


_RECORD = TypeAdapter(Record)


def identity_of(dataset: DatasetWorkspace, step: HeavyStep, artifacts: Sequence[Artifact]) -> str:
    """Return 16 hexadecimal digits of everything that the step's result depends on.

    Raises:
        UserError: An input is not in the store, or was removed to save space.
    """
    facts = {
        "root": str(dataset.store.root),
        "dataset": dataset.key,
        "step": step.name,
        "artifacts": [
            {
                "key": artifact.key,
                "code_version": artifact.code_version,
                "settings": dataset.settings.used(artifact.settings),
                "inputs": _inputs_today(dataset, step, artifact),
            }
            for artifact in artifacts
        ],
    }
    return blake3(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def read_record(dataset: DatasetWorkspace, step: str) -> Record | None:
    """Return the record of a step; None where no request is under way, or what is there is no record."""
    try:
        return _RECORD.validate_json(_record_file(dataset, step).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def write_record(dataset: DatasetWorkspace, step: str, record: Record) -> None:
    """Let a request be the one that may write; any other is given up by that."""
    dataset.store.write_text(_record_file(dataset, step), dump_json(asdict(record)))


def clear_record(dataset: DatasetWorkspace, step: str) -> None:
    """Let no request write; what was under way is given up."""
    _record_file(dataset, step).unlink(missing_ok=True)


def hold_step(dataset: DatasetWorkspace, step: str, holder: str) -> AbstractContextManager[str | None]:
    """Hold a step of a dataset, so that one process works at it; wait for whoever does, naming it."""
    return exclusive(_lock_file(dataset, step), f"{step} of dataset {dataset.key!r}", holder)


def may_be_at_work(dataset: DatasetWorkspace, step: str) -> bool:
    """Return whether a process that outlives the run that started it may be at work on a step."""
    record = read_record(dataset, step)
    # A subprocess has no folder, and ends with its run: while it lives, it holds the lock.
    return (record is not None and record.folder is not None) or is_held(_lock_file(dataset, step))


def require_ours(dataset: DatasetWorkspace, request: Request) -> None:
    """Refuse to go on with a request that another one, or nobody, has taken the place of."""
    record = read_record(dataset, request.step)
    if record is None or record.submission != request.submission:
        raise UserError(
            f"Dataset {dataset.key!r}: this request for {request.step} was given up; what it would make is, or "
            "was, made by another run. Nothing was written."
        )


def read_outcome(messages: Path, submission: str) -> Result | Failed | None:
    """Return the last outcome that the payload of this submission has told; None where it told none."""
    try:
        lines = messages.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    told = [outcome for line in lines if (outcome := _outcome_of(line)) and outcome.submission == submission]
    return told[-1] if told else None


def verified(
    dataset: DatasetWorkspace, step: HeavyStep, artifacts: Sequence[Artifact], result: Result
) -> Iterator[Made]:
    """Yield what the payload has made, each checked against the request, the store and today's inputs.

    Raises:
        UserError: The result is another dataset's or step's, or the store holds something else.
    """
    asked = {artifact.key for artifact in artifacts}
    made = (result.dataset, result.step, set(result.digests), set(result.facts))
    if made != (dataset.key, step.name, asked, asked):
        raise UserError(
            f"Dataset {dataset.key!r}: the result of {step.name} is that of {result.step} of {result.dataset!r} "
            f"({', '.join(sorted({*result.digests, *result.facts}))}), or does not tell of each. Nothing was "
            "recorded. Run it again."
        )
    for artifact in artifacts:
        sidecar = _settled(dataset, artifact, result.digests[artifact.key])
        expected = (
            artifact.code_version,
            dataset.settings.used(artifact.settings),
            _inputs_today(dataset, step, artifact),
        )
        if sidecar is None or (sidecar.code_version, sidecar.settings, sidecar.inputs) != expected:
            raise UserError(
                f"Dataset {dataset.key!r}: {artifact.key} in the store is not what the result of {step.name} "
                "names, or was made from other inputs, settings or code than today's. Nothing was recorded. Run "
                "it again."
            )
        facts = {**result.facts[artifact.key], "host": result.host, "peak_memory_mb": result.peak_memory_mb}
        if result.job is not None:
            facts["slurm_job"] = result.job
        yield Made(artifact, None, facts, sidecar=sidecar)


def _settled(dataset: DatasetWorkspace, artifact: Artifact, digest: str) -> Sidecar | None:
    """Return the sidecar with this digest, once this machine sees what another has written: it, and its file."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        sidecar = dataset.store.sidecar(dataset.key, artifact.file)
        # A machine that has cached the folder may see an old file of the same size beside the new sidecar.
        if (
            sidecar is not None
            and sidecar.digest == digest
            and dataset.store.is_intact(dataset.key, artifact.file)
        ):
            return sidecar
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.5)


def _inputs_today(dataset: DatasetWorkspace, step: HeavyStep, artifact: Artifact) -> dict[str, str]:
    inputs = {}
    for upstream in step.reads:
        if upstream.key in artifact.inputs:
            sidecar = dataset.sidecar(upstream)
            if sidecar.removed:
                raise UserError(
                    f"Dataset {dataset.key!r}: {upstream.key} was removed to save space. Materialize it again."
                )
            inputs[upstream.key] = sidecar.digest
    return inputs


def _record_file(dataset: DatasetWorkspace, step: str) -> UPath:
    return dataset.store.path(dataset.key, f"{JOBS}/{step}.json")


def _lock_file(dataset: DatasetWorkspace, step: str) -> Path:
    return dataset.store.local_folder(PLATFORM, "locks") / f"{dataset.key}.{step}.lock"


def _outcome_of(line: str) -> Result | Failed | None:
    try:
        message = json.loads(line)
        if message["method"] != "report_custom_message":
            return None
        told = message["params"]["payload"]
        text = json.dumps(told)
        if told["outcome"] == "made":
            return Result.model_validate_json(text)
        return Failed.model_validate_json(text)
    except (ValueError, KeyError, TypeError, ValidationError):  # another message, or half a line
        return None
