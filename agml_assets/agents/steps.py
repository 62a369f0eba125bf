"""One agent on one task: its run, what it is worth, and all agents compared, each stored.

Plain functions that assets and the command line share. Trials happen in `runs`, are judged in `scoring` and
weighed in `evaluation`; how agents compare is `leaderboard`'s business.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from blake3 import blake3
from upath import UPath

from agml_assets.agents.artifacts import CODE_VERSIONS, FILES, LEADERBOARD
from agml_assets.agents.evaluation import Baseline, baseline_of, evaluate
from agml_assets.agents.leaderboard import build_leaderboard
from agml_assets.agents.runs import (
    FinishedRun,
    read_trials,
    rescore,
    run_trials,
    score_as_it_stands,
    script_file,
)
from agml_assets.agents.sandbox.paths import remove_tree
from agml_assets.agents.scoring import judge
from agml_assets.agents.task import AgentTask, Verdict
from agml_assets.agents.tasks.prepare import open_task
from agml_assets.agents.trials import Trial
from agml_assets.errors import UserError
from agml_assets.locks import exclusive
from agml_assets.registry.agents import AgentEntry, AgentRegistry, AgentTaskEntry
from agml_assets.store import PLATFORM, Sidecar, dump_json, file_digest
from agml_assets.workspace import Workspace

STARTER = "starter"
"""The agent whose score is the baseline of all others."""


@dataclass(frozen=True)
class AgentRun:
    """An agent on a task, and where its artifacts lie.

    Attributes:
        task_entry: Manifest of the task.
        agent: The agent.
        workspace: Registry of datasets, settings and store.
        sandbox: `bubblewrap`, `docker` or `none`; None means the best there is, and never `none`.
        python: Interpreter of the agent's scripts, and of a task's own scorer.
        gpu: Number of the GPU that scripts see; None means none.
    """

    task_entry: AgentTaskEntry
    agent: AgentEntry
    workspace: Workspace
    sandbox: str | None = None
    python: Path = field(default_factory=lambda: Path(sys.executable))
    gpu: int | None = None

    def file(self, step: str) -> str:
        """Return the path of an artifact in the platform's folder."""
        return f"agents/{self.task_entry.key}/{self.agent.key}/{FILES[step]}"

    def sidecar(self, step: str) -> Sidecar | None:
        """Return the sidecar of an artifact, or None where it is not there."""
        return self.workspace.store.sidecar(PLATFORM, self.file(step))

    def digest_of(self, step: str) -> str:
        """Return the digest of an artifact; empty where it is not there."""
        made = self.sidecar(step)
        return made.digest if made else ""

    def read(self, step: str) -> Any:
        """Read an artifact of JSON values.

        Raises:
            UserError: It is not there.
        """
        self._require(step)
        return self.workspace.store.read(PLATFORM, self.file(step))

    def local_file(self, step: str) -> Path:
        """Return an artifact as a local file.

        Raises:
            UserError: It is not there.
        """
        self._require(step)
        return self.workspace.store.local_file(PLATFORM, self.file(step))

    def held(self, holder: str) -> AbstractContextManager[Any]:
        """Hold this pair against other runs; `holder` says who we are, for those who wait."""
        name = f"agents.{self.task_entry.key}.{self.agent.key}.lock"
        lock = self.workspace.store.local_folder(PLATFORM, "locks") / name
        return exclusive(lock, f"agent {self.agent.key} on task {self.task_entry.key}", holder)

    @cached_property
    def task(self) -> AgentTask:
        """The task with its files; one that is not prepared raises `UserError`."""
        return open_task(self.task_entry, self.workspace)

    def trials(self) -> list[Trial]:
        """Read the stored trials."""
        return read_trials(self.local_file("run"), self.local_file("workspaces"))

    @property
    def work_folder(self) -> Path:
        """Local folder of an unfinished run, kept between tries."""
        return self.workspace.store.local_folder(PLATFORM, f".work/agents/{self.task_entry.key}/{self.agent.key}")

    def judge(self, task: AgentTask, folder: Path) -> Verdict:
        """Return what a workspace is worth; a task's own scorer runs in the interpreter of the agent's scripts."""
        return judge(task, folder, python=self.python)

    def starter(self) -> "AgentRun":
        """Return the run of the starter code on the same task."""
        return starter_run(self.task_entry, self.workspace)

    def inputs(self, step: str) -> dict[str, str]:
        """Return the digests of all that a step is made from today."""
        if step == "evaluation":
            found = {f"agents/{name}": self.digest_of(name) for name in ("run", "workspaces")}
            return {**found, "baseline": self.starter().digest_of("run")}
        found = {"task": self.task.digest}
        if self.agent.script is not None:
            found["script"] = file_digest(script_file(self.agent.script))
        return found

    def used(self, step: str) -> dict[str, Any]:
        """Return what else changes the content of a step."""
        entry = self.task_entry.model_dump(mode="json")
        if step == "evaluation":
            return {
                name: entry[name]
                for name in (
                    *("direction", "baseline", "baseline_guess", "reference", "warnings", "exposed"),
                    "display_name",
                )
            }
        return {
            "agent": self.agent.model_dump(mode="json", exclude={"display_name"}),
            "limits": entry["limits"],
            "submission": entry["submission"],
            "starter": entry["starter"],
            "inspect_ai": version("inspect-ai"),
        }

    def is_current(self, step: str) -> bool:
        """Return whether a stored artifact is what today would make."""
        made = self.sidecar(step)
        return (
            made is not None
            and made.code_version == CODE_VERSIONS[step]
            and made.settings == self.used(step)
            and made.inputs == self.inputs(step)
            # A process may have died between log and workspaces.
            and (step != "run" or made.info.get("workspaces") == self.digest_of("workspaces"))
        )

    def write(self, step: str, value: Any, seconds: float, info: Mapping[str, Any] | None = None) -> Sidecar:
        """Store an artifact with its sidecar; a finished local file is moved into place."""
        facts = {
            "artifact": f"agents/{step}",
            "code_version": CODE_VERSIONS[step],
            "inputs": self.inputs(step),
            "settings": self.used(step),
            "info": dict(info or {}),
            "duration_s": round(seconds, 3),
        }
        return self.workspace.store.write(PLATFORM, self.file(step), value, facts)

    def _require(self, step: str) -> None:
        if self.sidecar(step) is None:
            raise UserError(
                f"Agent {self.agent.key!r} on task {self.task_entry.key!r}: agents/{step} is not in the store. "
                f"Make it first: agml-assets agents run --task {self.task_entry.key} --agent {self.agent.key}"
            )


def starter_run(task: AgentTaskEntry, workspace: Workspace) -> AgentRun:
    """Return the run of the starter code on a task."""
    return AgentRun(task, AgentEntry(key=STARTER, kind="starter"), workspace)


def make_run(
    run: AgentRun, on_progress: Callable[[str], None] | None = None, *, as_it_stands: bool = False
) -> Sidecar:
    """Run all seeds, going on where a killed run stopped, and store log and workspaces.

    Args:
        run: The agent and its task.
        on_progress: Is told in a line what was done.
        as_it_stands: Whether what a killed run has left is scored instead, without going on.
    """
    began = time.monotonic()
    seeds = range(1, run.agent.seeds + 1)
    if as_it_stands:
        log = score_as_it_stands(run.work_folder, run.task, judge=run.judge, seeds=seeds)
    else:
        log = run_trials(
            run.task,
            run.agent,
            seeds,
            run.work_folder,
            sandbox=run.sandbox,
            python=run.python,
            gpu=run.gpu,
            judge=run.judge,
            on_progress=on_progress,
        )
    seconds = time.monotonic() - began
    workspaces = run.write("workspaces", log.workspaces, seconds)
    made = run.write("run", log.eval_file, seconds, {"workspaces": workspaces.digest})
    remove_tree(run.work_folder)
    return made


def rescore_run(run: AgentRun) -> Sidecar:
    """Score the stored trials again from their stored files; no agent runs."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agml-rescore-") as folder:
        log = Path(folder) / FILES["run"]
        shutil.copyfile(run.local_file("run"), log)
        rescore(FinishedRun(log, run.local_file("workspaces")), run.task, judge=run.judge)
        info = {"workspaces": run.digest_of("workspaces")}
        return run.write("run", log, time.monotonic() - began, info)


def make_evaluation(run: AgentRun) -> Sidecar:
    """Weigh the stored trials against the baseline and store what comes of it; nothing runs again."""
    began = time.monotonic()
    return run.write("evaluation", evaluate_run(run), time.monotonic() - began)


def evaluate_run(run: AgentRun) -> dict[str, Any]:
    """Return the evaluation of the stored trials as JSON values."""
    return evaluate(run.trials(), run.task.entry, run.agent, baseline(run), run.task.reference)


def baseline(run: AgentRun) -> Baseline:
    """Return the score of the starter code on the run's task, measured where it was run."""
    return stored_baseline(run.task.entry, run.task.digest, run.workspace)


def stored_baseline(task: AgentTaskEntry, digest: str, workspace: Workspace) -> Baseline:
    """Return the score of the starter code on a state of a task, measured where it was run."""
    starter = starter_run(task, workspace)
    trials: Sequence[Trial] = starter.trials() if starter.sidecar("run") else ()
    return baseline_of(task, digest, trials)


@dataclass(frozen=True)
class Written:
    """A written leaderboard.

    Attributes:
        document: As in the file.
        path: Of the file.
        digest: Of its text.
    """

    document: dict[str, Any]
    path: UPath
    digest: str


def write_leaderboard(workspace: Workspace, registry: AgentRegistry) -> Written:
    """Compare all registered agents on all registered tasks and write `agents/leaderboard.json`.

    Of tasks that some agent was run on, it names the agents that were not. Of a stored run whose evaluation is not
    up to date, as when the starter code was measured later, one is made.
    """
    documents, missing = [], {}
    for task in registry.tasks:
        runs = [AgentRun(task, agent, workspace) for agent in registry.agents]
        if not any(run.sidecar("run") for run in runs):
            continue  # of the many tasks that there are, nobody misses those that no agent was tried on
        for run in runs:
            agent = run.agent
            try:
                if run.sidecar("run") is None:
                    missing[f"{task.key}/{agent.key}"] = "not run yet"
                elif not run.is_current("run"):
                    missing[f"{task.key}/{agent.key}"] = "the task or the agent has changed since: run it again"
                elif run.is_current("evaluation"):
                    documents.append(run.read("evaluation"))
                else:
                    make_evaluation(run)
                    documents.append(run.read("evaluation"))
            except UserError as error:
                missing[f"{task.key}/{agent.key}"] = error.message
    document = build_leaderboard(documents, missing)
    text = dump_json(document)
    path = workspace.store.path(PLATFORM, LEADERBOARD)
    workspace.store.write_text(path, text)
    return Written(document, path, blake3(text.encode()).hexdigest())
