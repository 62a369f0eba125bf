"""Runs that options describe, as MLAgentBench's runner was told: the files that say so, and how a run stands.

`run.json` is one run, beside its log tree. `run_all.<stamp>.json` is many, in the root of their logs. Nothing here
runs an agent.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agml_assets.agents.artifacts import FILES
from agml_assets.agents.old_logs import RUN_FILE
from agml_assets.agents.snapshots import write_whole
from agml_assets.errors import UserError
from agml_assets.store import dump_json

PLAN_FILES = "run_all.*.json"
"""Pattern of the files that describe what `agml-assets agents run-all` was asked for."""

_OF_RUN = ("task", "agent", "seed", "limits", "work", "sandbox", "python", "device")
_OF_PLAN = ("stamp", "tasks", "models", "seeds", "options")


def read_described(folder: Path) -> dict[str, Any]:
    """Return what a run in a log folder was asked for.

    Raises:
        UserError: There is none, or its file is damaged.
    """
    found = read_mapping(folder / RUN_FILE)
    if found is None or not all(name in found for name in _OF_RUN):
        raise UserError(
            f"There is no run to go on with in {folder}: {RUN_FILE} is missing or damaged. Name the "
            "--log-dir of a run of `agml-assets agents run`."
        )
    return found


def write_described(folder: Path, described: Mapping[str, Any]) -> None:
    """Write what a run is asked for into its log folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RUN_FILE, dump_json(dict(described)).encode())


def is_finished(folder: Path) -> bool:
    """Return whether the run in a log folder has come to its end: its evaluation is written last."""
    return (folder / FILES["evaluation"]).exists()


def options_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run was asked for by the options that say it; None is an option that was not given."""
    agent, limits = described["agent"], described["limits"]
    return {
        "--task": described["task"],
        "--agent-type": agent["kind"],
        "--llm-name": agent["model"],
        "--fast-llm-name": agent["fast_model"],
        "--edit-script-llm-name": agent["edit_model"],
        "--script": agent["script"],
        "--seed": described["seed"],
        "--max-steps": limits.get("steps"),
        "--max-time": limits.get("seconds"),
        "--max-tokens": limits.get("tokens"),
        "--work-dir": described["work"],
        **{f"--{name}": described[name] for name in ("sandbox", "python", "device")},
    }


def require_same(stored: Mapping[str, Any], told: Mapping[str, Any], where: Path, advice: str) -> None:
    """Refuse options that say other than what is stored.

    Args:
        stored: Values by option.
        told: Those that were given now.
        where: What holds the stored ones.
        advice: What to do, a sentence.

    Raises:
        UserError: Some differ; every one is named.
    """
    differ = [
        f"{name} is {_say(stored.get(name))} there, {_say(value)} here"
        for name, value in told.items()
        if stored.get(name) != value
    ]
    if differ:
        raise UserError(f"{where} holds another run: {'; '.join(differ)}. {advice}")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan.

    Attributes:
        model: As it was named; None of agents without one.
        task: Key of the task.
        seed: From 1.
        place: Its log folder, relative to the root of logs.
    """

    model: str | None
    task: str
    seed: int
    place: Path


@dataclass(frozen=True)
class Plan:
    """Models on tasks, some seeds each.

    Attributes:
        stamp: UTC time at which it began; in the place of every run.
        tasks: Keys.
        models: As they were named; one None for agents without.
        seeds: Trials of each task and model.
        options: The others by the names of `agml-assets agents run`, without those that were not given.
    """

    stamp: str
    tasks: tuple[str, ...]
    models: tuple[str | None, ...]
    seeds: int
    options: Mapping[str, Any]

    @property
    def agent(self) -> str:
        """What agents without a model are called."""
        return str(self.options.get("--agent-type", "research"))

    def runs(self) -> Iterator[PlannedRun]:
        """Yield every run, in the order in which they begin."""
        for model in self.models:
            for task in self.tasks:
                for seed in range(1, self.seeds + 1):
                    place = Path(slug(model or self.agent), self.stamp, task, f"seed_{seed}")
                    yield PlannedRun(model, task, seed, place)

    def by_option(self) -> dict[str, Any]:
        """Return all that was asked for, by the options of `agml-assets agents run-all`."""
        models = [model for model in self.models if model is not None] or None
        return {**self.options, "--task": list(self.tasks), "--llm-name": models, "--seeds": self.seeds}


def free_stamp(now: str, log_root: Path) -> str:
    """Return a time as a stamp that no other plan in the root of logs has."""
    stamps = [now, *(f"{now}-{number}" for number in range(2, 100))]
    return next(stamp for stamp in stamps if not (log_root / PLAN_FILES.replace("*", stamp)).exists())


def plan_file(plan: Plan, log_root: Path) -> Path:
    """Return the file of a plan in the root of its logs."""
    return log_root / PLAN_FILES.replace("*", plan.stamp)


def write_plan(plan: Plan, log_root: Path) -> None:
    """Write a plan into the root of its logs."""
    log_root.mkdir(parents=True, exist_ok=True)
    write_whole(plan_file(plan, log_root), dump_json(vars(plan)).encode())


def read_plan(file: Path) -> Plan:
    """Read a plan.

    Raises:
        UserError: The file is damaged.
    """
    found = read_mapping(file)
    try:
        assert found is not None
        stamp, tasks, models, seeds, options = (found[name] for name in _OF_PLAN)
        return Plan(str(stamp), tuple(tasks), tuple(models), int(seeds), dict(options))
    except (AssertionError, KeyError, TypeError, ValueError):
        raise UserError(f"{file} is damaged, or no file of `agml-assets agents run-all`.") from None


def find_plan(place: Path) -> Path:
    """Return the file of the plan that a person names: the file itself, or a root of logs with one to go on with.

    Raises:
        UserError: There is none, or there are several.
    """
    if place.is_file():
        return place
    found = sorted(place.glob(PLAN_FILES))
    if not found:
        raise UserError(
            f"There is nothing to go on with in {place}: `agml-assets agents run-all` leaves a file {PLAN_FILES} "
            "in its --log-root. Name the file, or the folder that holds it."
        )
    unfinished = [
        file for file in found if not all(is_finished(place / run.place) for run in read_plan(file).runs())
    ]
    if len(unfinished) > 1:
        names = ", ".join(file.name for file in unfinished)
        raise UserError(f"{place} holds several that are unfinished: name one of {names}.")
    if not unfinished:
        raise UserError(f"All in {place} has come to its end; there is nothing to go on with.")
    return unfinished[0]


def slug(name: str) -> str:
    """Return a name as one of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "model"


def read_mapping(file: Path) -> dict[str, Any] | None:
    """Return the object that a JSON file holds; None where it is missing, damaged or holds something else."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _say(value: Any) -> str:
    if value is None:
        return "not given"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
