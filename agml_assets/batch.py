"""Walk the registry without a daemon: one dataset after another, each in a process of its own.

A crash, a lack of memory or a time-out of one dataset is its own affair. Nothing here loads a heavy library or
Dagster; what a dataset needs is the business of the command that is started for it.
"""

import logging
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Literal

from agml_assets.errors import UserError
from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from agml_assets.quality.metrics import METRICS
from agml_assets.quality.summary import judge_dataset
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.report.artifacts import RESULT
from agml_assets.settings import absolute_places
from agml_assets.store import PLATFORM, ArtifactStore
from agml_assets.todo import find_dataset, to_make
from agml_assets.workspace import DatasetWorkspace, Workspace

logger = logging.getLogger(__name__)

State = Literal["scored", "not scored", "up to date", "failed", "timed out", "interrupted"]

FAILED: frozenset[State] = frozenset({"failed", "timed out", "interrupted"})

_GRACE_S = 20.0  # below the 30 s that Slurm leaves between SIGTERM and SIGKILL
_ASK_AGAIN_S = 4.0
_LOG_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class Outcome:
    """What became of one dataset.

    Attributes:
        dataset: Registry key.
        state: `scored` and `not scored` were run to their end now; `up to date` needed nothing.
        score: Overall score, 0 to 10; None where there is none.
        seconds: Wall time.
        reason: Why it failed or has no score; else empty.
    """

    dataset: str
    state: State
    score: float | None
    seconds: float
    reason: str = ""


def choose_keys(registry: DatasetRegistry, asked: Sequence[str]) -> list[str]:
    """Return the keys of the datasets asked for, all if none is, in the order of the partitions.

    Raises:
        UserError: Names every one that is unknown or retired, with what looks like it.
    """
    if not asked:
        if not registry.keys():
            raise UserError(f"No dataset is registered in {registry.where}, or all are retired.")
        return registry.keys()
    wanted, problems = set(), []
    for text in asked:
        try:
            wanted.add(registry.get(text).key)
        except UserError as error:
            problems.append(error.message)
    if problems:
        raise UserError("\n".join(problems))
    return [key for key in registry.keys() if key in wanted]  # noqa: SIM118 - a method of ours, in its own order


def absolute_environment(workspace: Workspace, config: str | None) -> dict[str, str]:
    """Return the environment of the processes: this one's, every place in it by its absolute path."""
    environment = {**os.environ, **({"AGML_CONFIG": config} if config else {})}
    environment |= absolute_places(environment)
    environment["AGML_REGISTRY"] = workspace.registry.where
    environment["AGML_RESULTS"] = str(workspace.store.root)
    return environment


def log_folder(store: ArtifactStore) -> Path:
    """Return today's folder of logs, created.

    Raises:
        UserError: The results root cannot be written to.
    """
    try:
        return store.local_folder(PLATFORM, f"logs/{datetime.now().astimezone():%Y-%m-%d}")
    except OSError as error:
        raise store.refusal(error) from None


def run_batch(
    workspace: Workspace,
    keys: Sequence[str],
    command: Callable[[str], Sequence[str]],
    *,
    environment: Mapping[str, str],
    logs: Path,
    phases: Sequence[int] | None = None,
    force: bool = False,
    time_limit_s: float | None = None,
) -> Iterator[Outcome]:
    """Run datasets one after another and yield what became of each; a failure ends nothing but itself.

    Args:
        workspace: Where the datasets and their results are.
        keys: Registry keys.
        command: Gives the command that benchmarks one dataset: exit status 0, or not.
        environment: Environment of the processes.
        logs: Folder of the log files, one a dataset.
        phases: Phases in place of the registry's.
        force: Start a process also for what is current.
        time_limit_s: Seconds after which the process of a dataset is ended; None means never.
    """
    for number, key in enumerate(keys, start=1):
        started, log = monotonic(), logs / f"{key}.log"
        outcome = None if force else _up_to_date(workspace, key, phases)
        if outcome is None:
            logger.info("[%d of %d] %s: started, log %s", number, len(keys), key, log)
            score, (state, reason) = None, _run_one(command(key), environment, log, time_limit_s)
            if state == "scored":
                state, score, reason = _read_score(workspace, key, phases)
            outcome = Outcome(key, state, score, monotonic() - started, reason)
        logger.info("[%d of %d] %s", number, len(keys), describe_outcome(outcome))
        yield outcome
        if outcome.state == "interrupted":
            return


def describe_outcome(outcome: Outcome) -> str:
    """Return one line on a dataset."""
    score = "" if outcome.score is None else f", {outcome.score:.1f} of 10"
    time = "" if outcome.state == "up to date" else f" after {clock(outcome.seconds)}"
    return f"{outcome.dataset}: {outcome.state}{time}{score}{'. ' if outcome.reason else ''}{outcome.reason}"


def clock(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def overall_score(bench: DatasetWorkspace) -> tuple[float | None, str]:
    """Return the overall score in a dataset's report, or None and why there is none."""
    report = bench.read(RESULT)["score"]
    if report["overall"] is not None:
        return float(report["overall"]), ""
    why = next(iter(report["unavailable"].values()))
    lacking = next((metric for metric in METRICS if why.startswith(f"{metric.name} is ")), None)
    if lacking is not None:
        verdict = judge_dataset(bench)[METRIC_ARTIFACTS[lacking.name].key]
        if verdict.state == "missing" or lacking.phase not in bench.entry.phases:
            why = f"{lacking.name} was not run"
        elif verdict.state != "current":
            why = f"{lacking.name} is {verdict.state}: {verdict.reason}"
    return None, f"score not computable: {why}"


def _bench(workspace: Workspace, key: str, phases: Sequence[int] | None) -> DatasetWorkspace:
    return find_dataset(workspace, key, phases=tuple(phases) if phases else None)[1]


def _up_to_date(workspace: Workspace, key: str, phases: Sequence[int] | None) -> Outcome | None:
    """Return the outcome of a dataset of which everything is current, else None."""
    started = monotonic()
    try:
        bench = _bench(workspace, key, phases)
        if to_make(bench):
            return None
        score, reason = overall_score(bench)
    except Exception:
        return None  # the process started for it says what is wrong, in its log; the others are tried all the same
    return Outcome(key, "up to date", score, monotonic() - started, reason)


def _read_score(workspace: Workspace, key: str, phases: Sequence[int] | None) -> tuple[State, float | None, str]:
    """Return how a dataset stands whose process says that it is done."""
    try:
        score, reason = overall_score(_bench(workspace, key, phases))
    except Exception as error:  # whatever a damaged report leads to, the next dataset is tried
        why = error.message if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return "failed", None, f"its report cannot be read: {why}"
    return "not scored" if score is None else "scored", score, reason


def _run_one(
    command: Sequence[str], environment: Mapping[str, str], log: Path, time_limit_s: float | None
) -> tuple[State, str]:
    """Run one command to its end, or to the time limit, with its output appended to `log`; say how it ended."""
    try:
        with log.open("ab") as out:
            out.write(f"--- {datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z} {' '.join(command)}\n".encode())
            out.flush()
            begin = out.tell()
            # Its standard input ends when this process does, however it dies. In a session of its own, so that
            # all that it starts can be ended with it.
            process = subprocess.Popen(  # noqa: S603 - the caller's own command
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, start_new_session=True
            )
            try:
                status = process.wait(time_limit_s)
            except subprocess.TimeoutExpired:
                return "timed out", f"ended after {clock(time_limit_s or 0)}, the time limit"
            except KeyboardInterrupt:
                return "interrupted", ""
            finally:
                _end(process)
    except OSError as error:
        return "failed", f"could not be started: {error}"
    if status == 0:
        return "scored", ""
    return "failed", _describe_signal(-status) if status < 0 else _reason_in(log, begin)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that it started: asked first, killed after a while."""
    deadline = monotonic() + _GRACE_S
    try:
        while process.poll() is None and monotonic() < deadline:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ASK_AGAIN_S)  # Dagster loses a signal that comes between two steps
    except KeyboardInterrupt:
        pass  # a second Ctrl-C cuts it short
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _describe_signal(number: int) -> str:
    words = signal.strsignal(number) or f"signal {number}"
    memory = ", as the system does when memory runs out" if number == signal.SIGKILL else ""
    return f"ended by signal {number} ({words}){memory}"


def _reason_in(log: Path, begin: int) -> str:
    """Return in one line what a failed process said last: its error message, or else its last line."""
    with log.open("rb") as handle:
        handle.seek(max(begin, handle.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        lines = [line.strip() for line in handle.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
    if not errors:
        return lines[-1] if lines else "failed without a word"
    told = [lines[errors[-1]].removeprefix("Error: "), *lines[errors[-1] + 1 :]]
    return next((line for line in told if not _HEADING.fullmatch(line)), told[0])


_HEADING = re.compile(r"The benchmark of '[^']*' failed\.")
