"""All submissions compared, phase by phase: who keeps more, which ranks are ties, what other choices change.

Everything is computed again from the stored scores; what is stale, missing or not comparable is named.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blake3 import blake3
from upath import UPath

from agml_assets.compression.artifacts import FILES
from agml_assets.compression.exact.evaluate import ExactResult, to_json
from agml_assets.compression.exact.ranking import Comparison, compare_methods
from agml_assets.compression.steps import SubmissionRun
from agml_assets.compression.stored_scores import result_from_json
from agml_assets.errors import UserError
from agml_assets.registry.submissions import SubmissionRegistry
from agml_assets.store import PLATFORM, dump_json
from agml_assets.workspace import Workspace

FILE = "compression/leaderboard.json"


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


def write_leaderboard(workspace: Workspace, registry: SubmissionRegistry) -> Written:
    """Compare the stored scores of all registered submissions and write `compression/leaderboard.json`."""
    document = build_leaderboard(workspace, registry)
    text = dump_json(document)
    path = workspace.store.path(PLATFORM, FILE)
    workspace.store.write_text(path, text)
    return Written(document, path, blake3(text.encode()).hexdigest())


def build_leaderboard(workspace: Workspace, registry: SubmissionRegistry) -> dict[str, Any]:
    """Return the leaderboard as JSON values.

    `phases` holds, by phase, `tasks`, `standings` (best first), `pairs`, `weights`, `incomplete`, `sensitivity`,
    as in `exact.ranking`; a standing has no entry of a task of weight 0 that it lacks. `left_out`
    says of every other submission why it is not there.
    """
    phases: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for phase, entries in registry.phases().items():
        scores: dict[str, Mapping[str, Any]] = {}
        summaries: dict[str, Mapping[str, Any]] = {}
        for entry in entries:
            run = SubmissionRun(entry, workspace)
            if (reason := _unfit(run)) is not None:
                left_out[entry.key] = reason
                continue
            scores[entry.key], summaries[entry.key] = run.read("task_scores"), run.read("summary")
        left_out |= _on_other_samples(scores)
        results = {key: result_from_json(one) for key, one in scores.items() if key not in left_out}
        if not results:
            continue
        try:
            phases[phase] = _board(compare_methods(results, _weights(results)), results, summaries)
        except UserError as error:
            left_out |= dict.fromkeys(results, error.message)
    return {"phases": phases, "left_out": left_out}


def _unfit(run: SubmissionRun) -> str | None:
    """Return why stored scores cannot be taken, or None."""
    if any(run.sidecar(step) is None for step in FILES):
        return f"not evaluated yet: agml-assets compression evaluate {run.entry.key}"
    try:
        stale = [step for step in FILES if not run.is_current(step)]
    except UserError as error:
        return error.message
    if stale:
        return f"{', '.join(stale)} out of date: agml-assets compression evaluate {run.entry.key}"
    return None


def _on_other_samples(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Name the submissions that were evaluated on other samples of a task than most are."""
    reasons: dict[str, str] = {}
    names = dict.fromkeys(task["task"] for one in scores.values() for task in one["tasks"])
    for name in names:
        found = {key: task for key, one in scores.items() for task in one["tasks"] if task["task"] == name}
        # Of equally many, the ones with more samples; then the first of the registry.
        counts = Counter(task["examples"] for task in found.values())
        usual = max(found.values(), key=lambda task: (counts[task["examples"]], task["n"]))
        for key, task in found.items():
            if task["examples"] != usual["examples"]:
                reasons.setdefault(
                    key,
                    f"task {name!r}: evaluated on {task['n']:,} samples, others of its phase on {usual['n']:,}; "
                    "only the same samples, labels and folds compare",
                )
    return reasons


def _weights(results: Mapping[str, ExactResult]) -> dict[str, float] | None:
    """Return equal weights for the tasks that most submissions have, so that one with a task of its own ranks.

    None, which is all of them, where no task is of most.
    """
    having = Counter(task.task for result in results.values() for task in result.tasks)
    return {task: 1.0 for task, count in having.items() if 2 * count > len(results)} or None


def _board(
    compared: Comparison, results: Mapping[str, ExactResult], summaries: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    of_tasks = {one.task: {rank.method: rank for rank in one.ranks} for one in compared.tasks}
    first = {task.task: task for result in results.values() for task in result.tasks}
    standings = []
    for rank in compared.overall:
        summary = summaries[rank.method]
        kept = {task.task: task.kept for task in results[rank.method].tasks}
        standings.append(
            {
                "submission": rank.method,
                "display_name": summary["display_name"],
                "rank": rank.rank,
                "mean": {"value": rank.value, "interval": to_json(rank.interval)},
                **{
                    name: summary[name]
                    for name in ("bytes_per_embedding", "bytes_uncompressed", "dimensions", "embeddings")
                },
                "tasks": {
                    task: {
                        "score": places[rank.method].value,
                        "interval": to_json(places[rank.method].interval),
                        "rank": places[rank.method].rank,
                        "floor": places[rank.method].floor,
                        "kept": kept[task],
                    }
                    for task, places in of_tasks.items()
                    if rank.method in places
                },
            }
        )
    return {
        "tasks": [
            {
                "task": one.task,
                "metric": one.metric,
                **{name: getattr(first[one.task], name) for name in ("kind", "n", "units", "reference")},
                "missing": list(one.missing),
            }
            for one in compared.tasks
        ],
        "weights": {one.task: compared.weights.get(one.task, 0.0) for one in compared.tasks},
        "standings": standings,
        "pairs": to_json(compared.pairs),
        "incomplete": to_json(compared.incomplete),
        "sensitivity": to_json(compared.sensitivity),
    }
