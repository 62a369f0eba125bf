"""All runs below a folder of logs compared, as stored ones are: their evaluations, over seeds and folders.

Every trial is held against one baseline, whatever the evaluation in its own folder took for it. What has not come
to its end is named.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agml_assets.agents.artifacts import FILES
from agml_assets.agents.described import PLAN_FILES, read_described, read_mapping, read_plan, slug
from agml_assets.agents.evaluation import Baseline, baseline_of_scores, weigh_again
from agml_assets.agents.leaderboard import build_leaderboard
from agml_assets.agents.old_logs import RUN_FILE
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentTaskEntry

_OF_TREE = {"env_log", "agent_log"}
_FROM_FILE = ("task", "task_digest", "agent", "kind", "direction", "reference", "trials")
_OF_AGENT = ("kind", "model", "fast_model", "edit_model", "script", "model_arguments")
_TELLING = ("fast_model", "edit_model", "script", "steps", "seconds", "tokens")


@dataclass(frozen=True)
class _Run:
    """A finished run: what was asked for, and its evaluation."""

    place: str
    described: Mapping[str, Any]
    evaluation: Mapping[str, Any]

    @property
    def way(self) -> str:
        """What makes its agent another than others: all that was asked for, but task, seed and place."""
        agent = {name: self.described["agent"].get(name) for name in _OF_AGENT}
        limits = {name: value for name, value in self.described["limits"].items() if value is not None}
        return json.dumps([agent, limits], sort_keys=True)


def compare_below(
    root: Path,
    task_of: Callable[[str], AgentTaskEntry],
    stored_baseline: Callable[[AgentTaskEntry, str], Baseline],
) -> dict[str, Any]:
    """Return the leaderboard (`leaderboard.build_leaderboard`) of all described runs below a folder.

    The baseline of a task is the mean of the starter code's trials below the folder; where none has a score, what
    `stored_baseline` says. Agents that differ in model, script or limits are told apart. `left_out` names runs by
    their folders.

    Args:
        root: The folder.
        task_of: Returns the manifest of a task, or raises `UserError`.
        stored_baseline: Returns the baseline of a state of a task by its digest.

    Raises:
        UserError: There is no such folder, or no run below it.
    """
    if not root.is_dir():
        raise UserError(f"{root} is no folder: name the one that holds the logs.")
    runs, left_out = _read_all(root)
    if not runs and not left_out:
        raise UserError(
            f"No run of `agml-assets agents run` or `run-all` lies below {root}. Logs of MLAgentBench, and of "
            "registered agents, are read with --log-folder and --task."
        )
    names = _names(runs)
    documents = []
    of_task: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        of_task[run.evaluation["task"]].append(run)
    for key, found in of_task.items():
        try:
            entry = task_of(key)
        except UserError as error:
            left_out |= {run.place: error.message for run in found}
            continue
        digest = _usual_state(found, names)
        for run in found:
            if run.evaluation["task_digest"] != digest:
                left_out[run.place] = "worked on another state of the task than most: run it again"
        same = [run for run in found if run.evaluation["task_digest"] == digest]
        baseline = _baseline(same, entry) or stored_baseline(entry, digest)
        if baseline.value is None:
            baseline = _guessed(same) or baseline
        for name in dict.fromkeys(names[run.way] for run in same):
            own = [run for run in same if names[run.way] == name]
            placed = [_with_places(run) for run in own]
            documents.append(weigh_again(placed, entry, name, baseline, _measured_reference(same)))
    return build_leaderboard(documents, left_out)


def _read_all(root: Path) -> tuple[list[_Run], dict[str, str]]:
    """Return the finished runs, and why others are not among them."""
    runs: list[_Run] = []
    left_out: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for folder in _folders(root):
        place = str(folder.relative_to(root)) if folder != root else folder.absolute().name
        if not (folder / RUN_FILE).exists():
            left_out[place] = "not begun, or ended before its first trial began: see its `log`"
            continue
        try:
            described = read_described(folder)
        except UserError:
            left_out[place] = f"{RUN_FILE} is damaged"
            continue
        file = folder / FILES["evaluation"]
        if not file.exists():
            left_out[place] = f"not finished: agml-assets agents run --resume {folder}"
            continue
        evaluation = _read_evaluation(file)
        if evaluation is None:
            left_out[place] = f"{file.name} is damaged"
            continue
        trials = tuple((one["seed"], one["started_at"]) for one in evaluation["trials"])
        mark = (evaluation["task"], json.dumps(described["agent"], sort_keys=True), trials)
        if mark in seen:
            left_out[place] = f"a copy of {seen[mark]}"
            continue
        seen[mark] = place
        runs.append(_Run(place, described, evaluation))
    return runs, left_out


def _folders(root: Path) -> Iterator[Path]:
    """Yield the log folders of described runs, also of those that were planned and have not begun, by path.

    What agents made is not looked into: neither snapshots nor folders of trials.
    """
    found: set[Path] = set()
    for name, folders, files in os.walk(root):
        folder = Path(name)
        folders[:] = sorted(set(folders) - _OF_TREE)
        for file in folder.glob(PLAN_FILES):
            try:
                found |= {folder / run.place for run in read_plan(file).runs()}
            except UserError:
                continue  # what it had begun is found by itself
        if RUN_FILE in files:
            if _is_of_trials(folder / RUN_FILE):
                folders.clear()
            else:
                found.add(folder)
    yield from sorted(found)


def _is_of_trials(file: Path) -> bool:
    """Return whether a file of this name is the one that a folder of unfinished trials has."""
    return "task_digest" in (read_mapping(file) or {})


def _read_evaluation(file: Path) -> dict[str, Any] | None:
    found = read_mapping(file)
    whole = found is not None and all(name in found for name in _FROM_FILE) and found["trials"]
    return found if whole else None


def _names(runs: Sequence[_Run]) -> dict[str, str]:
    """Return a name for every way of working: the agent's key, with what tells it from others of the same key."""
    ways = {run.way: run.described for run in reversed(runs)}
    keys = Counter(described["agent"]["key"] for described in ways.values())
    names: dict[str, str] = {}
    for way, described in sorted(ways.items()):
        name = str(described["agent"]["key"])
        if keys[name] > 1:
            given = {**described["agent"], **described["limits"]}
            name += "".join(f"-{one}-{_short(given[one])}" for one in _TELLING if given.get(one) is not None)
        taken = sum(other == name or other.startswith(f"{name}~") for other in names.values())
        names[way] = name if not taken else f"{name}~{taken + 1}"
    return names


def _short(value: Any) -> str:
    return slug(Path(value).stem if isinstance(value, str) else f"{value:g}")


def _usual_state(runs: Sequence[_Run], names: Mapping[str, str]) -> str:
    """Return the state of a task that most agents, then most runs, worked on."""
    agents: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        agents[run.evaluation["task_digest"]].add(names[run.way])
    count = Counter(run.evaluation["task_digest"] for run in runs)
    return max(agents, key=lambda digest: (len(agents[digest]), count[digest], digest))


def _baseline(runs: Sequence[_Run], entry: AgentTaskEntry) -> Baseline | None:
    """Return the mean of the starter code's trials; None where none has a score."""
    starters = [run.evaluation for run in runs if run.evaluation["kind"] == "starter"]
    scores = [one["raw"] for document in starters for one in document["trials"]]
    return baseline_of_scores(entry, scores) if any(score is not None for score in scores) else None


def _guessed(runs: Sequence[_Run]) -> Baseline | None:
    """Return the baseline of a guess that was measured when the task was prepared, where some run knew it."""
    baselines = [run.evaluation["baseline"] for run in runs]
    return next((Baseline(**one) for one in baselines if one["source"] == "guess"), None)


def _measured_reference(runs: Sequence[_Run]) -> float | None:
    """Return the reference that was measured when the task was prepared, where some run knew it."""
    references = [run.evaluation["reference"] for run in runs]
    return next((one["value"] for one in references if one["source"] == "measured"), None)


def _with_places(run: _Run) -> dict[str, Any]:
    trials = [{**one, "path": run.place} for one in run.evaluation["trials"]]
    return {**run.evaluation, "trials": trials}
