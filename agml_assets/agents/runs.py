"""Trials of an agent on a task: run by Inspect, one sample a seed, resumed where they died, scored in any case.

Inspect makes the log of each trial; what must survive a death is in the state file of `trial_state`. Trials are
read from the finished log by `trials_file`.
"""

import asyncio
import copy
import json
import logging
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agml_assets.agents.models import check_model, open_model, redact, redact_json, secrets_of_environment
from agml_assets.agents.recorder import (
    Judge,
    LimitReachedError,
    ModelUnreachableError,
    Role,
    TrialPlace,
    TrialRecorder,
    Validate,
)
from agml_assets.agents.sandbox.choose import choose_sandbox
from agml_assets.agents.sandbox.container import IMAGE
from agml_assets.agents.sandbox.paths import remove_tree
from agml_assets.agents.snapshots import (
    ReadOnly,
    Snapshot,
    SnapshotStore,
    hand_over,
    lay_out,
    lay_public,
    lay_read_only,
    pack,
    read_packed,
    unpack,
    write_whole,
)
from agml_assets.agents.solvers import SOLVERS, tools_of
from agml_assets.agents.solvers.majority import require_table
from agml_assets.agents.solvers.scripted import read_script, script_file
from agml_assets.agents.submission import validate as check_form
from agml_assets.agents.task import AgentTask, Verdict
from agml_assets.agents.tasks.prepare import answers_beside
from agml_assets.agents.trial_state import TrialState, read_state
from agml_assets.agents.trials_file import SCORER, TRIAL, read_trials
from agml_assets.device import hold_gpu
from agml_assets.errors import UserError
from agml_assets.locks import UNFINISHED, exclusive, remove_unfinished
from agml_assets.registry.agents import AgentEntry, Limits

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.model import Model
    from inspect_ai.solver import Solver
    from inspect_ai.util import SandboxEnvironmentSpec

__all__ = ["FinishedRun", "read_trials", "rescore", "run_trials", "score_as_it_stands", "script_file"]

logger = logging.getLogger(__name__)

RUN_FILE = "run.eval"
WORKSPACES_FILE = "workspaces.zip"
_DESCRIPTION = "run.json"
_OF_LOCK = {"run.lock", "run.holder.json"}

_SCRATCH = ".inspect-"
_ENVIRONMENTS = {"bubblewrap": "bubblewrap", "docker": "container", "none": "unconfined"}

_NEVER_BEGUN = "The trial had not begun."
_ONE_AT_A_TIME = threading.Lock()  # Inspect runs one evaluation at a time in a process


@dataclass(frozen=True)
class FinishedRun:
    """What the trials of an agent on a task left.

    Attributes:
        eval_file: Inspect's log, one sample a seed.
        workspaces: The files behind their steps, see `snapshots.pack`.
    """

    eval_file: Path
    workspaces: Path


@dataclass(frozen=True)
class _Run:
    """A run and where its parts lie.

    Attributes:
        task: What is to be done.
        agent: Who does it.
        limits: What each trial may use up.
        folder: Its folder.
    """

    task: AgentTask
    agent: AgentEntry
    limits: Limits
    folder: Path

    def place(self, seed: int) -> TrialPlace:
        """Return where a trial keeps what is its own."""
        return TrialPlace(
            self.folder / "workspaces" / f"seed_{seed}", self.folder / "state" / f"seed_{seed}.json", self.store
        )

    def log(self, seed: int) -> Path:
        """Return the log of a finished trial."""
        return self.folder / "logs" / f"seed_{seed}.eval"

    @property
    def store(self) -> SnapshotStore:
        """Contents of files of all trials."""
        return SnapshotStore(self.folder / "blobs")

    def describe(self) -> dict[str, Any]:
        """Return what a run must agree in to be gone on with."""
        return {
            "task": self.task.key,
            "task_digest": self.task.digest,
            "agent": self.agent.model_dump(mode="json", exclude={"display_name", "seeds"}),
            "limits": self.limits.model_dump(mode="json"),
        }


def run_trials(
    task: AgentTask,
    agent: AgentEntry,
    seeds: Sequence[int],
    folder: Path,
    *,
    judge: Judge,
    validate: Validate | None = None,
    limits: Limits | None = None,
    sandbox: str | None = None,
    python: Path | None = None,
    gpu: int | None = None,
    on_progress: Callable[[str], None] | None = None,
    resume: bool = True,
) -> FinishedRun:
    """Let an agent work on a task, once a seed, and pack what comes of it.

    Called again after any death of the process, finished trials are kept and an unfinished one goes on after its
    last
    step: files, conversation, steps and time used are as they were.

    Args:
        task: The task.
        agent: The agent.
        seeds: Of the trials, from 1.
        folder: Where all of it is kept; the run's own.
        judge: Scores a workspace; asked at the end of every trial, however it ended, and, where that is cheap,
            after
            steps that changed the submission.
        validate: Checks the form of a submission for the agent; None means the package's own check.
        limits: In place of the task's.
        sandbox: `bubblewrap`, `docker` or `none`; None means the best there is, and never `none`.
        python: Interpreter of the agent's scripts; None means this one.
        gpu: Number of the GPU that scripts see, held against other processes while they may use it.
        on_progress: Is told in a line what was done.
        resume: False: what is in the folder is thrown away first.

    Returns:
        The log and the workspaces.

    Raises:
        UserError: The agent cannot work on the task, a model cannot be asked, or the folder holds another run.
    """
    _require_inspect()
    run = _Run(task, agent, limits or task.entry.limits, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / "run.lock", f"the run in {folder}", f"process {os.getpid()}"):
        if not resume:
            _clear(folder)
        _sweep(folder)
        _claim(run)
        names: dict[Role, str] | None = None  # found out when the first trial needs them
        kind = ""
        for seed in seeds:
            if run.log(seed).exists():
                continue
            if names is None:
                kind = choose_sandbox(sandbox)
                if kind == "docker" and python not in (None, Path(sys.executable)):
                    raise UserError("--python does not go with Docker: scripts have the Python of its image.")
                names = _require_able(task, agent)
            trial = _open(run, seed, judge, validate, names, on_progress)
            trial.python = "python" if kind == "docker" else str(python or sys.executable)
            where = _sandbox(run, seed, kind, Path(python or sys.executable), gpu)
            with nullcontext() if gpu is None else hold_gpu(gpu, f"agent {agent.key} on task {task.key}"):
                _play(run, trial, where)
        return _finish(run, seeds)


def score_as_it_stands(
    folder: Path, task: AgentTask, *, judge: Judge, seeds: Sequence[int] | None = None
) -> FinishedRun:
    """Score the unfinished trials of a run as they stand, with the ending `killed`; no agent runs.

    Args:
        folder: The run's.
        task: Its task.
        judge: Scores a workspace.
        seeds: Of the trials that there should be; None means those that have begun.

    Raises:
        UserError: The folder holds no run of this task.
    """
    _require_inspect()
    try:
        found = json.loads((folder / _DESCRIPTION).read_bytes())
        agent, limits = AgentEntry.model_validate(found["agent"]), Limits.model_validate(found["limits"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder} holds no run of an agent ({error}).") from None
    run = _Run(task, agent, limits, folder)
    with exclusive(folder / "run.lock", f"the run in {folder}", f"process {os.getpid()}"):
        _claim(run)
        begun = {int(path.stem.removeprefix("seed_")) for path in (folder / "state").glob("seed_*.json")}
        begun |= {int(path.stem.removeprefix("seed_")) for path in (folder / "logs").glob("seed_*.eval")}
        for seed in seeds if seeds is not None else sorted(begun):
            if not run.log(seed).exists():
                trial = _open(run, seed, judge, None, {}, None, killed=True)
                _play(run, trial, None)
        if seeds is None and not begun:
            raise UserError(f"No trial has begun in {folder}; there is nothing to score.")
        return _finish(run, sorted(begun) if seeds is None else seeds)


def rescore(done: FinishedRun, task: AgentTask, *, judge: Judge) -> None:
    """Score finished trials again from their packed files, in place; no agent runs.

    Each trial is still of the task's version that it worked on. One whose files were too large to be kept keeps
    its score.

    Raises:
        UserError: The log is of another task, or the files are not in the zip.
    """
    from inspect_ai.log import read_eval_log, recompute_metrics

    log = read_eval_log(str(done.eval_file))
    read_only = ReadOnly.of(task)
    for sample in log.samples or []:
        state = sample.metadata[TRIAL]
        if state["task"] != task.key:
            raise UserError(f"{done.eval_file}: its trials are of task {state['task']!r}, not {task.key!r}.")
        packed = read_packed(done.workspaces, state["seed"])
        if lacking := packed.final.lacking(task):
            logger.warning(
                "Task %s, agent %s, seed %d keeps its score: %s.", task.key, state["agent"], state["seed"], lacking
            )
            continue
        with tempfile.TemporaryDirectory(prefix="agml-rescore-") as place:
            scores = _step_scores(task, judge, done.workspaces, packed.steps, Path(place))
            for step, score in zip(state["steps"], scores, strict=True):
                step["score"] = score
            workspace = Path(place) / "final"
            unpack(done.workspaces, packed.final, workspace)
            lay_read_only(task, read_only, workspace)
            verdict = _judged(task, workspace, judge)
        state |= {"score": verdict.score, "reason": verdict.reason}
        sample.scores = {SCORER: _score_of(verdict)}
    recompute_metrics(log)
    _write_log(log, done.eval_file)


def _require_inspect() -> None:
    try:
        import inspect_ai  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("Agents need the package inspect-ai: pip install 'agml-assets[agents]'") from None


def _clear(folder: Path) -> None:
    """Throw away what is in a run's folder; one that holds other things is refused."""
    found = {path.name for path in folder.iterdir()} - _OF_LOCK
    if found and _DESCRIPTION not in found:
        raise UserError(f"{folder} holds other files than those of a run: name another folder for workspaces.")
    for path in folder.iterdir():
        if path.name in _OF_LOCK:
            continue
        remove_tree(path)


def _sweep(folder: Path) -> None:
    """Remove what a process that died was about to write."""
    for scratch in (*folder.glob(f"{_SCRATCH}*"), *folder.glob(".log-*"), *folder.glob("logs/.log-*")):
        remove_tree(scratch)
    for place in (folder, folder / "state", folder / "blobs"):
        for _ in remove_unfinished(place.glob(UNFINISHED)):
            continue


def _claim(run: _Run) -> None:
    """Make the folder this run's, or refuse it."""
    file, told = run.folder / _DESCRIPTION, run.describe()
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        write_whole(file, json.dumps(told, indent=1).encode())
        return
    except ValueError:
        found = {}
    differ = [key for key in told if found.get(key) != told[key]]
    if differ:
        raise UserError(
            f"{run.folder} holds trials of another run, which differs in {', '.join(differ)}. Begin anew without "
            "resuming, or name another folder."
        )


def _require_able(task: AgentTask, agent: AgentEntry) -> dict[Role, str]:
    """Return the names of an agent's models, having found out that it can work on the task.

    Raises:
        UserError: It cannot, saying what is missing.
    """
    if agent.kind == "majority":
        require_table(task)
    if agent.script is not None:
        read_script(agent.script, task)
    if agent.model is None:
        return {}
    main = check_model(agent.model, agent.model_arguments)
    return {
        "main": main,
        "fast": check_model(agent.fast_model, agent.model_arguments) if agent.fast_model else main,
        "edit": check_model(agent.edit_model, agent.model_arguments) if agent.edit_model else main,
    }


def _open(
    run: _Run,
    seed: int,
    judge: Judge,
    validate: Validate | None,
    names: dict[Role, str],
    on_progress: Callable[[str], None] | None,
    *,
    killed: bool = False,
) -> TrialRecorder:
    """Open a trial: a new one, or one that was begun, its workspace as after its last step."""
    place = run.place(seed)
    state = read_state(place.state)
    read_only = ReadOnly.of(run.task)
    if state is None:
        state = TrialState(run.task.key, run.task.digest, run.agent.key, seed, datetime.now(UTC).isoformat())
        lay_out(run.task, place.workspace)
        if killed:
            state.ending, state.reason, state.judged = "killed", _NEVER_BEGUN, True
    else:
        _count_lost_time(state, place)
        if killed and state.ending is None:
            state.ending = "submitted" if state.submitted else "killed"
        if state.ending is None or state.ending == "killed":
            last = state.steps[-1]["snapshot"] if state.steps else state.notes["start"]
            run.store.restore(run.store.read_snapshot(last), place.workspace, read_only)
            lay_read_only(run.task, read_only, place.workspace)
    models = _open_models(run.agent, names, seed) if state.ending is None else {}

    def tell(seed: int, steps: int) -> None:
        if on_progress is not None:
            action = state.steps[-1]["action"]
            on_progress(
                f"{run.task.key}, {run.agent.key}, seed {seed}: step {steps} of {run.limits.steps} ({action})"
            )

    trial = TrialRecorder(
        run.task,
        run.agent,
        run.limits,
        place,
        state,
        judge,
        validate or check_form,
        models=models,
        on_progress=tell,
    )
    if not state.problem:
        state.problem = run.task.problem
        # What a trial begins with is kept, so that one which dies in its first step goes on from there.
        state.notes["start"] = trial.snapshot()[1]
    trial.tools = tools_of(trial)
    state.tools = {tool.name: tool.description or "" for tool in trial.tools}
    trial.save()
    return trial


def _open_models(agent: AgentEntry, names: dict[Role, str], seed: int) -> "dict[Role, Model]":
    """Open the models of an agent, each once."""
    opened = {name: open_model(name, agent.model_arguments, seed) for name in dict.fromkeys(names.values())}
    return {role: opened[name] for role, name in names.items()}


def _count_lost_time(state: TrialState, place: TrialPlace) -> None:
    """Add the time between the last step and the death of the process."""
    try:
        state.seconds = max(state.seconds, float(place.clock.read_text()))
    except (OSError, ValueError):
        return


def _sandbox(run: _Run, seed: int, kind: str, python: Path, gpu: int | None) -> "SandboxEnvironmentSpec":
    """Return the sandbox of a trial, its workspace handed over to the sandbox's user."""
    from inspect_ai.util import SandboxEnvironmentSpec

    from agml_assets.agents import inspect_registry  # noqa: F401  (makes the types known)
    from agml_assets.agents.sandbox.confinement import free_user
    from agml_assets.agents.sandbox.environments import WorkspaceConfig

    place, read_only = run.place(seed), ReadOnly.of(run.task)
    user = free_user(seed)
    if kind == "none":
        # Nothing is mounted there.
        lay_public(run.task, place.workspace)
    elif os.geteuid() == 0:
        hand_over(place.workspace, read_only, user)
    config = WorkspaceConfig(
        workspace=place.workspace.resolve(),
        python=python,
        limits=run.limits,
        read_only=tuple(sorted(read_only.mounts(run.task).items())),
        bound=tuple(sorted(run.task.mounts.items())),
        hidden=(*run.task.hidden, *answers_beside(run.task.entry, python)),
        gpu=gpu,
        user=user,
        image=IMAGE if kind == "docker" else None,
    )
    return SandboxEnvironmentSpec(_ENVIRONMENTS[kind], config)


def _play(run: _Run, trial: TrialRecorder, where: "SandboxEnvironmentSpec | None") -> None:
    """Play a trial to its end, score it, and write its log."""
    from inspect_ai.dataset import Sample

    state = trial.state
    sample = Sample(
        id=f"seed_{state.seed}",
        input=state.problem,
        metadata={"seed": state.seed},
        sandbox=where if state.ending is None else None,
    )
    log = _evaluate(run, trial, sample)
    if log.status == "cancelled":
        raise KeyboardInterrupt
    if trial.unreachable:
        raise UserError(
            f"Task {run.task.key!r}, agent {run.agent.key!r}, seed {state.seed}: {trial.unreachable} What was "
            "done is kept: run the same again when the model answers, or score it as it stands."
        )
    found = log.samples[0] if log.samples else None
    error = log.error or (found.error if found is not None else None)
    if log.status != "success" or found is None or error is not None:
        raise UserError(
            f"Task {run.task.key!r}, agent {run.agent.key!r}, seed {state.seed}: the trial could not be run: "
            f"{redact(error.message if error else log.status)}"
        )
    told = asdict(state)
    del told["messages"]
    found.metadata[TRIAL] = told
    _write_log(log, run.log(state.seed))
    if trial.on_progress is not None and not state.steps:
        logger.debug("Seed %d ended without a step.", state.seed)


def _evaluate(run: _Run, trial: TrialRecorder, sample: Any) -> "EvalLog":
    """Let Inspect run one sample, and return its log."""
    import inspect_ai
    from inspect_ai.log import read_eval_log
    from inspect_ai.scorer import Score, Target, mean, scorer
    from inspect_ai.solver import Generate, TaskState, solver

    @solver(name="agent")
    def play() -> "Solver":
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            try:
                await _sit(trial)
            finally:
                state.messages = trial.messages
                state.completed = True
            return state

        return solve

    @scorer(metrics=[mean()], name=SCORER)
    def judged() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            return _score_of(_settle(trial))

        return score

    task = inspect_ai.Task(
        dataset=[sample], solver=play(), scorer=judged(), name=run.task.key, metadata=run.describe()
    )
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=run.folder) as scratch:

        def call() -> "EvalLog":
            with _quiet_inspect(Path(scratch)):
                (log,) = inspect_ai.eval(
                    task,
                    model=trial.models.get("main"),
                    model_roles={role: model for role, model in trial.models.items() if role != "main"},
                    display="none",
                    log_dir=f"{scratch}/logs",
                    log_format="eval",
                    log_level="critical",
                    log_level_transcript="warning",
                    log_realtime=False,
                    log_images=False,
                    ctl_server=False,
                    acp_server=False,
                    fail_on_error=True,
                    score_display=False,
                    max_samples=1,
                    max_subprocesses=1,
                )
                # What it returns would be read when it is used; the folder is gone then.
                return read_eval_log(log.location)

        return _outside_any_loop(call)


async def _sit(trial: TrialRecorder) -> None:
    """Let the agent of a trial act until the trial has ended; how it did is in its state.

    Raises:
        LimitExceededError: It ended at a limit; for Inspect's log.
    """
    import anyio
    from inspect_ai.util import LimitExceededError, time_limit

    state = trial.state
    if state.ending is not None:
        return
    reached: LimitExceededError | None = None
    trial.sit_down()
    async with anyio.create_task_group() as beside:
        beside.start_soon(trial.write_clock)
        try:
            with time_limit(max(trial.limits.seconds - trial.seconds(), 0.001)):
                if not state.submitted:
                    await SOLVERS[trial.agent.kind](trial)
            state.ending = "submitted" if state.submitted else "no_submission"
        except LimitExceededError as error:
            reached = error
            state.ending = "submitted" if state.submitted else "time_limit"
        except LimitReachedError as error:
            state.ending = error.ending
            tokens = error.ending == "token_limit"
            limit = (trial.limits.tokens or 0) if tokens else trial.limits.steps
            reached = LimitExceededError(
                "token" if tokens else "custom", value=limit, limit=limit, message=str(error)
            )
        except ModelUnreachableError as error:
            trial.unreachable = str(error)
            trial.save()
            trial.note_time()
            raise
        except Exception as error:
            state.ending = "error"
            state.error = redact("".join(traceback.format_exception(error)))
        finally:
            beside.cancel_scope.cancel()
    trial.save()
    if reached is not None:
        raise reached


def _settle(trial: TrialRecorder) -> Verdict:
    """Score a trial that has ended, keep its last snapshot, and return what it is worth."""
    state = trial.state
    if not state.judged:
        lay_read_only(trial.task, trial.read_only, trial.place.workspace)
        verdict = _judged(trial.task, trial.place.workspace, trial.judge)
        state.score, state.reason, state.judged = verdict.score, redact(verdict.reason), True
    state.final = trial.snapshot()[1]
    # The seconds of a trial end with it, not with its scoring.
    state.save(trial.place.state)
    return Verdict(state.score, state.reason)


def _judged(task: AgentTask, workspace: Path, judge: Judge) -> Verdict:
    if not task.entry.scored:
        return Verdict(None, "Nothing scores this task.")
    try:
        return judge(task, workspace)
    except UserError:
        raise
    except Exception as error:
        # A submission may trip up what scores it; the trial stands, without a score.
        logger.warning("Task %s: scoring failed", task.key, exc_info=True)
        return Verdict(None, f"Scoring failed: {type(error).__name__}: {error}")


def _score_of(verdict: Verdict) -> Any:
    from inspect_ai.scorer import Score

    if verdict.score is None:
        return Score.unscored(explanation=verdict.reason)
    return Score(value=verdict.score)


def _step_scores(
    task: AgentTask, judge: Judge, packed: Path, steps: Sequence[Snapshot], place: Path
) -> list[float | None]:
    """Score the submission after each step again, each content once; None where that is not done along the run."""
    declared = task.entry.submission
    if declared is None or task.entry.metric is None or not task.entry.scored:
        return [None] * len(steps)
    known: dict[str | None, float | None] = {None: None}
    for step in steps:
        digest = step.files.get(declared.file)
        if digest is not None and digest not in known:
            folder = place / digest
            unpack(packed, Snapshot({declared.file: digest}), folder)
            known[digest] = _judged(task, folder, judge).score
    return [known[step.files.get(declared.file)] for step in steps]


def _finish(run: _Run, seeds: Sequence[int]) -> FinishedRun:
    """Join the logs of all trials, and pack their files."""
    from inspect_ai.log import EvalStats, read_eval_log, recompute_metrics
    from inspect_ai.model import ModelUsage

    logs = [read_eval_log(str(run.log(seed))) for seed in seeds]
    samples = [sample for log in logs for sample in log.samples or []]
    joined = copy.copy(logs[-1])
    joined.samples = samples
    joined.eval = joined.eval.model_copy(deep=True)
    joined.eval.dataset.samples = len(samples)
    joined.eval.dataset.sample_ids = [sample.id for sample in samples]
    trials = {sample.metadata[TRIAL]["seed"]: sample.metadata[TRIAL] for sample in samples}
    usage: dict[str, ModelUsage] = {}
    for trial in trials.values():
        for model, counts in trial["usage"].items():
            usage[model] = usage.get(model, ModelUsage()) + ModelUsage(**counts)
    joined.stats = EvalStats(
        started_at=min(log.stats.started_at for log in logs),
        completed_at=max(log.stats.completed_at for log in logs),
        model_usage=usage,
    )
    if joined.results is not None:
        joined.results.total_samples = joined.results.completed_samples = len(samples)
    recompute_metrics(joined)
    store = run.store
    files = {
        seed: (
            [store.read_snapshot(step["snapshot"]) for step in trial["steps"]],
            store.read_snapshot(trial["final"]),
        )
        for seed, trial in trials.items()
    }
    done = FinishedRun(run.folder / RUN_FILE, run.folder / WORKSPACES_FILE)
    pack(store, files, done.workspaces)
    _write_log(joined, done.eval_file)
    return done


def _write_log(log: "EvalLog", file: Path) -> None:
    """Write a log as a whole or not at all, without the value of any key."""
    from inspect_ai.log import EvalLog, write_eval_log

    secrets = secrets_of_environment()
    text = log.model_dump_json()
    clean = redact_json(text, secrets)
    if clean != text:
        log = EvalLog.model_validate_json(clean)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".log-", dir=file.parent) as place:
        unfinished = Path(place) / file.name
        write_eval_log(log, str(unfinished), format="eval")
        unfinished.replace(file)


@contextmanager
def _quiet_inspect(scratch: Path) -> Iterator[None]:
    """Keep Inspect from the terminal, from its data folder and from the environment; leave all as it was."""
    root = logging.getLogger()
    others = [logging.getLogger(name) for name in ("httpx", "httpx2")]
    level, handlers, levels = root.level, list(root.handlers), [one.level for one in others]
    environment = dict(os.environ)
    with _ONE_AT_A_TIME:
        try:
            for name in [name for name in os.environ if name.startswith("INSPECT_")]:
                del os.environ[name]
            # Its traces would hold prompts, and lie where the next run does not look.
            os.environ |= {"XDG_DATA_HOME": str(scratch), "INSPECT_TRACE_LEVEL": "CRITICAL"}
            yield
        finally:
            # Also what it read from a file .env: keys come from the environment alone.
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            os.environ |= environment
            root.setLevel(level)
            root.handlers[:] = handlers
            for one, before in zip(others, levels, strict=True):
                one.setLevel(before)


def _outside_any_loop(call: "Callable[[], EvalLog]") -> "EvalLog":
    """Call something that runs an event loop of its own; in another thread where this one has a loop."""
    if not _has_loop():
        return call()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="inspect") as pool:
        return pool.submit(call).result()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
