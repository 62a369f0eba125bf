"""NeuCo-Bench's leaderboard: runs ranked per task by Q, ranks weighted by how far Q differs between runs.

Weights and the tasks that count depend on which runs are in the folder, as published.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Float64, Int64

from agml_assets.compression.compatible.results import SUMMARY, leaderboard_path, require_phase, unfinished
from agml_assets.errors import UserError

logger = logging.getLogger(__name__)

_OLD_TASKS = ("task_results", "task_result")
_Q, _MEAN = "q::", "acc::"


@dataclass(frozen=True)
class Run:
    """One run's `results_summary.json`, of either format.

    Attributes:
        experiment: Its name.
        q: Q of each task that has one.
        means: Mean score of each task that has one; none in the old format.
        overall_q: Mean of Q over the tasks.
        overall_mean: Mean of the mean scores.
    """

    experiment: str
    q: Mapping[str, float]
    means: Mapping[str, float]
    overall_q: float | None
    overall_mean: float | None


@dataclass(frozen=True)
class Leaderboard:
    """A ranked phase.

    Attributes:
        path: The CSV.
        table: Its rows, best first.
        weights: Weight of each task, adding up to 1.
        left_out: Runs that are not ranked, and why.
    """

    path: Path
    table: pl.DataFrame
    weights: Mapping[str, float]
    left_out: Mapping[str, str]


def summarize_runs(output_dir: str | Path, phase: str = "results", now: datetime | None = None) -> Leaderboard:
    """Rank the runs of a phase and write the leaderboard.

    Tasks are those that any run has; a run without a Q for each of them is left out, and named.

    Args:
        output_dir: Folder that holds the phases.
        phase: Name of the phase.
        now: Time in the file's name; by default that of the clock.

    Raises:
        UserError: There is no such folder, no run in it, or no run with all tasks.
    """
    folder = Path(output_dir) / require_phase(phase)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder of runs.")
    runs, left_out = _read_runs(folder)
    if not runs and not left_out:
        raise UserError(f"{folder}: it has no run (<method>_<time>/{SUMMARY}).")
    tasks = sorted({task for run in runs for task in run.q})
    complete = []
    for run in runs:
        missing = [task for task in tasks if task not in run.q]
        if missing or not tasks:
            left_out[run.experiment] = f"it has no Q of {', '.join(missing)}" if tasks else "it has no task"
        else:
            complete.append(run)
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    if not complete:
        raise UserError(f"{folder}: no run can be ranked ({reasons}). Runs of a phase must share their tasks.")
    if left_out:
        logger.warning("Runs left out of the leaderboard of %s: %s.", phase, reasons)
    table, weights = rank_runs(complete, tasks)
    path = leaderboard_path(Path(output_dir), phase, now or datetime.now())
    with unfinished(path) as stage:
        table.write_csv(stage)
    return Leaderboard(path, table, weights, left_out)


def rank_runs(runs: list[Run], tasks: list[str]) -> tuple[pl.DataFrame, dict[str, float]]:
    """Return the table of the leaderboard and the weight of each task.

    Args:
        runs: One or more, each with a Q for every task.
        tasks: One or more.
    """
    q = np.array([[run.q[task] for task in tasks] for run in runs])
    weights = task_weights(q)
    weighted = np.column_stack([competition_ranks(column) for column in q.T]) @ weights
    # Sums of products in another order differ by rounding: equal ones are ties.
    ranks = competition_ranks(-np.round(weighted, 12))
    order = sorted(range(len(runs)), key=lambda row: (ranks[row], runs[row].experiment))
    columns: dict[str, list[Any]] = {
        "experiment": [run.experiment for run in runs],
        "mean_score": q.mean(axis=1).tolist(),
        "weighted_score": weighted.tolist(),
        "aggregated_rank": ranks.tolist(),
        **{f"{_Q}{task}": q[:, place].tolist() for place, task in enumerate(tasks)},
        **{f"{_MEAN}{task}": [run.means.get(task) for run in runs] for task in tasks},
        "overall_q_score": [run.overall_q for run in runs],
        "overall_acc_score": [run.overall_mean for run in runs],
    }
    known = {"experiment": pl.String(), "aggregated_rank": pl.Int64()}
    table = pl.DataFrame(columns, schema={name: known.get(name, pl.Float64()) for name in columns})
    return table[order], dict(zip(tasks, weights.tolist(), strict=True))


def competition_ranks(scores: Float[np.ndarray, " r"]) -> Int64[np.ndarray, " r"]:
    """Return 1 for the highest score; equal ones share the best of their ranks."""
    ascending = np.sort(scores)
    return len(scores) - np.searchsorted(ascending, scores, side="right") + 1


def task_weights(q: Float[np.ndarray, "r t"]) -> Float64[np.ndarray, " t"]:
    """Return weights of tasks, adding up to 1: the standard deviation of Q over runs (divisor r - 1).

    Equal where there is one run, or where all runs are equal on every task.
    """
    runs, tasks = q.shape
    spread = q.std(axis=0, ddof=1) if runs > 1 else np.zeros(tasks)
    # What is left by rounding of equal numbers is no spread.
    spread = np.where(np.ptp(q, axis=0) == 0, 0.0, spread)
    return spread / spread.sum() if spread.sum() > 0 else np.full(tasks, 1 / tasks)


def _read_runs(folder: Path) -> tuple[list[Run], dict[str, str]]:
    runs, left_out = [], {}
    for file in sorted(folder.glob(f"*/{SUMMARY}")):
        try:
            runs.append(read_run(file))
        except UserError as error:
            left_out[file.parent.name] = error.message
    return runs, left_out


def read_run(file: Path) -> Run:
    """Read one run's summary, of today's or the old format.

    The old one has `overall_score` and `task_results`: of each task its Q, or an object with `q_stat`.

    Raises:
        UserError: It cannot be read or holds something else.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise UserError(f"{file} is no summary of a run: it holds no object.")
    old: dict[str, Any] = next((document[key] for key in _OLD_TASKS if isinstance(document.get(key), dict)), {})
    q = document.get("task_q_scores", {task: _of(value, "q_stat") for task, value in old.items()})
    means = document.get(
        "task_acc_scores",
        {task: value.get("mean_score") for task, value in old.items() if isinstance(value, dict)},
    )
    if not isinstance(q, dict) or not isinstance(means, dict):
        raise UserError(f"{file} is no summary of a run: its scores of tasks are no objects.")
    return Run(
        experiment=str(document.get("experiment") or file.parent.name),
        q=_numbers(q),
        means=_numbers(means),
        overall_q=_number(document.get("overall_q_score", document.get("overall_score"))),
        overall_mean=_number(document.get("overall_acc_score")),
    )


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else value


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    found = {task: _number(value) for task, value in values.items()}
    return {task: value for task, value in found.items() if value is not None}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
