"""A heavy step in a process of its own: `python -m agml_assets.payload STEP`, started by a run through Pipes.

Takes the resolved registry entry and the settings, works on the artifact store, writes the artifacts with their
sidecars, and tells progress and result. The registry is never read, and Dagster never imported.
"""

import argparse
import json
import logging
import os
import re
import resource
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster_pipes import (
    PipesContext,
    PipesDefaultMessageWriter,
    PipesEnvVarParamsLoader,
    PipesParams,
    open_dagster_pipes,
)
from pydantic import ValidationError

from agml_assets.embeddings.steps import STEPS as EMBEDDINGS_STEPS
from agml_assets.errors import UserError
from agml_assets.faults import is_transient
from agml_assets.handover import Failed, Request, Result, hold_step, require_ours
from agml_assets.heavy import HeavyStep
from agml_assets.lineage import Artifact
from agml_assets.progress import Progress, show_log
from agml_assets.store import ArtifactStore
from agml_assets.training.steps import STEPS as TRAINING_STEPS
from agml_assets.workspace import DatasetWorkspace, Making

logger = logging.getLogger(__name__)

STEPS: dict[str, HeavyStep] = {step.name: step for step in (*EMBEDDINGS_STEPS, *TRAINING_STEPS)}
"""Every heavy step by its name."""


@dataclass
class _Work:
    """One artifact being made for a request, whose progress goes to the run's log."""

    request: Request
    making: Making
    pipes: PipesContext

    @property
    def dataset(self) -> DatasetWorkspace:
        return self.making.dataset

    def read(self, upstream: Artifact) -> Any:
        return self.making.read(upstream)

    def progress(self, what: str) -> Progress:
        return Progress(what, self.say)

    def say(self, line: str) -> None:
        require_ours(self.dataset, self.request)  # a step that was given up ends here, not hours later
        self.pipes.log.info(line)
        logger.info(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what the run asks for; return 0, or 1 after telling the run why not."""
    parser = argparse.ArgumentParser("python -m agml_assets.payload", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    options = parser.parse_args(arguments)
    if not PipesEnvVarParamsLoader().is_dagster_pipes_process():
        parser.error("this is started by a run: use `agml-assets run`, with AGML_COMPUTE=subprocess or slurm")
    show_log()
    with open_dagster_pipes(message_writer=_Writer()) as pipes:
        try:
            request = Request.model_validate_json(json.dumps(dict(pipes.extras)))
        except ValidationError as error:
            parser.error(f"the request is not valid: {error}")
        if request.parent is not None:
            _end_with(request.parent)
        try:
            told: Result | Failed = make(request, options.step, pipes)
        except Exception as error:
            told = _failure(error, request.submission)
        pipes.report_custom_message(told.model_dump(mode="json"))
    return 0 if isinstance(told, Result) else 1


def make(request: Request, name: str, pipes: PipesContext) -> Result:
    """Make and store the artifacts of a request.

    Args:
        request: What is wanted.
        name: The heavy step that was named on the command line.
        pipes: Where progress is told.

    Raises:
        UserError: The request is of another step, was given up, or cannot be met.
    """
    step = STEPS[name]
    wanted = [artifact for artifact in step.artifacts if artifact.key in request.artifacts]
    if not wanted or request.step != name or {artifact.key for artifact in wanted} != set(request.artifacts):
        asked = f"{', '.join(request.artifacts) or 'nothing'} of {request.step}"
        raise UserError(f"Dataset {request.entry.key!r}: asked for {asked}, but started as {name}.")
    dataset = DatasetWorkspace(request.entry, request.settings, ArtifactStore(request.root))
    holder = f"job {job}" if (job := os.environ.get("SLURM_JOB_ID")) else f"subprocess {os.getpid()}"
    with hold_step(dataset, name, holder):
        require_ours(dataset, request)
        works = {artifact: _Work(request, Making(dataset, artifact), pipes) for artifact in wanted}
        digests: dict[str, str] = {}
        facts: dict[str, dict[str, Any]] = {}
        for made in step.make(works):
            require_ours(dataset, request)
            key = made.artifact.key
            digests[key] = works[made.artifact].making.write(made.value, info=made.info).digest
            facts[key] = dict(made.facts)
    return Result(
        submission=request.submission,
        dataset=dataset.key,
        step=name,
        digests=digests,
        facts=facts,
        host=socket.gethostname(),
        job=job,
        peak_memory_mb=_peak_memory_mb(),
    )


def _peak_memory_mb() -> float:
    """Return the most memory that this process has used, in MB of 10**6 bytes."""
    status = Path("/proc/self/status")
    if status.is_file():
        # getrusage would give the parent's where that was more.
        found = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), re.MULTILINE)
        if found:
            return round(int(found[1]) * 1024 / 1e6, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 1)  # bytes, outside Linux


def _failure(error: Exception, submission: str) -> Failed:
    by_user = isinstance(error, UserError)
    if by_user:
        message = str(error.message)  # type: ignore[attr-defined]
        logger.error("%s", message)
    else:
        message = traceback.format_exception_only(error)[-1].strip()
        logger.error("%s", "".join(traceback.format_exception(error)))
    return Failed(submission=submission, message=message, passes=is_transient(error), by_user=by_user)


def _end_with(parent: int) -> None:
    """End this process when its parent dies, however it dies: an orphan would go on writing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Writer(PipesDefaultMessageWriter):
    """Messages without what is printed: that is in a log already, and copying it takes seconds."""

    def open(self, params: PipesParams) -> Any:
        return super().open({**params, self.INCLUDE_STDIO_IN_MESSAGES_KEY: False})


if __name__ == "__main__":
    sys.exit(main())
