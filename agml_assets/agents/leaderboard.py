"""All agents on all tasks compared: how often each succeeds, by how much, at what cost, and which ranks are ties.

From stored evaluations alone; those that do not compare are named and left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

import numpy as np

from agml_assets.agents.error_kinds import FAILED, KINDS
from agml_assets.agents.evaluation import THRESHOLD, THRESHOLDS, UNFINISHED, threshold_name
from agml_assets.agents.success_rates import Count, difference_p_value, mean_rate, other_tasks
from agml_assets.evaluation.comparison import holm
from agml_assets.quality.intervals import no_interval

ALPHA = 0.05
"""Level of the family of all pairs of agents."""

_Values = Mapping[str, Any]
_OF_TASK = (
    *("task", "task_name", "task_digest", "metric", "direction", "baseline", "reference"),
    *("success_by", "undecidable", "warnings", "exposed", "source"),
)


def build_leaderboard(documents: Iterable[_Values], missing: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the leaderboard as JSON values; the same documents give the same, in whatever order they come.

    Args:
        documents: Evaluations (`evaluation.evaluate`), one for a task and an agent.
        missing: Why others are not among them, by `<task>/<agent>`.

    Returns:
        `tasks` (`in_mean`, else `why_not_in_mean`), `agents` (best first), `cells` (one for a task and an
        agent), `pairs` of agents, `left_out` (reason by `<task>/<agent>`), and the `threshold` and `thresholds`
        of success. A `mean` is `{"mean", "error", "n"}`, error its standard error (null with fewer than two); a
        `rate` is `{"successes", "n", "rate", "low", "high"}`, the limits Wilson's of all trials; those of an agent
        without a model that all came to the same (`all_alike`) are one. Of the counts of a cell, `failed`,
        `timed_out`, `no_submission` and `invalid` (submitted, without a score) share no trial; `at_limit` (of
        steps or tokens) may have been successful.
    """
    ordered = sorted(documents, key=lambda one: (one["task"], one["agent"]))
    compared, differing = _comparable(ordered)
    cells = {(one["task"], one["agent"]): _cell(one) for one in compared}
    agents = {one["agent"]: one for one in compared}
    of_task: dict[str, list[_Values]] = defaultdict(list)
    for one in compared:
        of_task[one["task"]].append(one)
    why_not = {task: _why_not_in_mean(found, len(agents)) for task, found in of_task.items()}
    common = [task for task, why in why_not.items() if not why]
    ranked = [agent for agent in agents if common and all((task, agent) in cells for task in common)]
    counts = {agent: [_count(cells[task, agent]) for task in common] for agent in ranked}
    pairs = _pairs(counts)
    return {
        "threshold": THRESHOLD,
        "thresholds": list(THRESHOLDS),
        "tasks": [_task(found, why_not[task], agents) for task, found in of_task.items()],
        "agents": _standings(agents, counts, pairs, cells, common),
        "cells": list(cells.values()),
        "pairs": pairs,
        "left_out": dict(sorted({**(missing or {}), **differing}.items())),
    }


def _comparable(documents: Sequence[_Values]) -> tuple[list[_Values], dict[str, str]]:
    """Return the evaluations that compare, and why others of their tasks do not."""
    kept, left_out = [], {}
    of_task: dict[str, list[_Values]] = defaultdict(list)
    for one in documents:
        of_task[one["task"]].append(one)
    for task, found in of_task.items():
        agents, trials = Counter(map(_held_against, found)), Counter[tuple[Any, ...]]()
        for one in found:
            trials[_held_against(one)] += len(one["trials"])
        usual = max(agents, key=lambda way: (agents[way], trials[way], str(way)))
        for one in found:
            if _held_against(one) == usual:
                kept.append(one)
            elif one["task_digest"] != usual[0]:
                left_out[f"{task}/{one['agent']}"] = "worked on another state of the task than most: run it again"
            else:
                left_out[f"{task}/{one['agent']}"] = (
                    "held against another baseline or reference than most: evaluate it again"
                )
    return kept, left_out


def _held_against(one: _Values) -> tuple[Any, ...]:
    return one["task_digest"], one["direction"], one["baseline"]["value"], one["reference"]["value"]


def _why_not_in_mean(found: Sequence[_Values], n_agents: int) -> str:
    """Return why a task is in no mean; an empty text where it is."""
    first = found[0]
    if first["exposed"]:
        return str(first["exposed"])
    if first["success_by"] is None:
        return str(first["undecidable"])
    return "" if 2 * len(found) > n_agents else "few agents have it"


def _task(found: Sequence[_Values], why_not: str, agents: Iterable[str]) -> dict[str, Any]:
    first = found[0]
    having = {one["agent"] for one in found}
    return {
        **{name: first[name] for name in _OF_TASK},
        "in_mean": not why_not,
        "why_not_in_mean": why_not,
        "missing": [agent for agent in agents if agent not in having],
    }


def _cell(document: _Values) -> dict[str, Any]:
    trials = document["trials"]
    endings = Counter(one["ending"] for one in trials)
    raw = [one["raw"] for one in trials if one["raw"] is not None]
    decidable = document["success_by"] is not None
    alike = len(raw) == len(trials) > 1 and len({(one["raw"], one["success"]) for one in trials}) == 1
    # Repeats of an agent without chance are one trial: their number proves nothing.
    independent = trials[:1] if alike and document["model"] is None else trials
    return {
        "task": document["task"],
        "agent": document["agent"],
        "n": len(trials),
        "submitted": sum(one["submitted_final_answer"] for one in trials),
        "scored": len(raw),
        "failed": sum(endings[ending] for ending in FAILED),
        "timed_out": endings["time_limit"],
        "at_limit": endings["step_limit"] + endings["token_limit"],
        **_without_score(trials),
        "above_but_unfinished": sum(bool(one["score_above"]) and not one["success"] for one in trials),
        "endings": dict(sorted(endings.items())),
        "errors": {kind: sum(_showed(one["errors"][kind]) for one in trials) for kind in KINDS},
        "raw": _mean(_found(independent, "raw")),
        "improvement": _mean(_found(independent, "improvement")),
        "improvement_submitted": _mean(
            _found([one for one in independent if one["submitted_final_answer"]], "improvement")
        ),
        "normalised": _mean(_found(independent, "normalised")),
        "best_improvement": _mean(_found([one["best"] for one in independent], "improvement")),
        "success": _rate([one["success"] for one in independent]) if decidable else None,
        "success_at": _rates(independent) if decidable else None,
        "best_success_at": _rates([one["best"] for one in independent]) if decidable else None,
        "why_no_success": document["undecidable"],
        "tokens": _mean([one["tokens"]["total"] for one in trials]),
        "minutes": _mean([one["seconds"] / 60 for one in trials]),
        "steps": _mean([one["steps"] for one in trials]),
        "all_alike": alike,
    }


def _without_score(trials: Iterable[_Values]) -> dict[str, int]:
    """Return how many trials that came to an end have no score, as they submitted nothing, or nothing valid."""
    found = [
        one["submitted_final_answer"] for one in trials if one["raw"] is None and one["ending"] not in UNFINISHED
    ]
    return {"no_submission": found.count(False), "invalid": found.count(True)}


def _showed(seen: _Values) -> bool:
    return bool(seen["ended"] or seen["steps"])


def _found(trials: Iterable[_Values], name: str) -> list[float]:
    return [one[name] for one in trials if one[name] is not None]


def _rates(trials: Sequence[_Values]) -> dict[str, Any]:
    return {name: _rate([one["success_at"][name] for one in trials]) for name in map(threshold_name, THRESHOLDS)}


def _rate(successes: Sequence[bool]) -> dict[str, Any]:
    count = Count(sum(successes), len(successes))
    low, high = count.limits
    return {"successes": count.successes, "n": count.n, "rate": count.rate, "low": low, "high": high}


def _count(cell: _Values) -> Count:
    return Count(cell["success"]["successes"], cell["success"]["n"])


def _mean(values: Sequence[float]) -> dict[str, Any]:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {"mean": fmean(values) if values else None, "error": error, "n": len(values)}


def _pairs(counts: Mapping[str, Sequence[Count]]) -> list[dict[str, Any]]:
    """Return every pair of ranked agents: the difference of their mean rates, and its p-value, Holm's over all."""
    pairs = list(combinations(sorted(counts), 2))
    p_values = np.array([difference_p_value(counts[first], counts[second]) for first, second in pairs])
    corrected = holm(p_values) if pairs else p_values
    return [
        {
            "first": first,
            "second": second,
            "difference": mean_rate(counts[first])[0] - mean_rate(counts[second])[0],
            "p_value": float(p),
            "p_holm": float(p_holm),
        }
        for (first, second), p, p_holm in zip(pairs, p_values, corrected, strict=True)
    ]


def _standings(
    agents: Mapping[str, _Values],
    counts: Mapping[str, Sequence[Count]],
    pairs: Iterable[_Values],
    cells: Mapping[tuple[str, str], _Values],
    common: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the place of every agent: 1 plus the number of those that succeed more often by more than chance."""
    ahead: Counter[str] = Counter()
    for pair in pairs:
        if pair["p_holm"] <= ALPHA and pair["difference"]:
            ahead[pair["second"] if pair["difference"] > 0 else pair["first"]] += 1
    means = {agent: mean_rate(of_agent)[0] for agent, of_agent in counts.items()}
    ranks = {agent: 1 + ahead[agent] for agent in counts}
    sharing = Counter(ranks.values())
    order = sorted(agents, key=lambda agent: (agent not in means, -means.get(agent, 0.0), agent))
    standings = []
    for agent in order:
        own = [cell for (_, other), cell in cells.items() if other == agent]
        in_mean = [cells[task, agent] for task in common if (task, agent) in cells]
        standings.append(
            {
                "agent": agent,
                **{name: agents[agent][name] for name in ("agent_name", "kind", "model")},
                "rank": ranks.get(agent),
                "sharing": sharing[ranks[agent]] - 1 if agent in ranks else 0,
                "success": _success(counts[agent]) if agent in counts else None,
                "lacks": [task for task in common if (task, agent) not in cells],
                "normalised": _over_tasks([cell["normalised"] for cell in in_mean]),
                "tokens": _over_tasks([cell["tokens"] for cell in in_mean]),
                "minutes": _over_tasks([cell["minutes"] for cell in in_mean]),
                "tasks": len(own),
                **{
                    name: sum(cell[name] for cell in own)
                    for name in ("n", "scored", "failed", "timed_out", "at_limit", "no_submission", "invalid")
                },
            }
        )
    return standings


def _success(counts: Sequence[Count]) -> dict[str, Any]:
    value, low, high = mean_rate(counts)
    others = other_tasks(counts)
    return {
        "value": value,
        "interval": {"low": low, "high": high},
        "other_tasks": no_interval(others) if isinstance(others, str) else {"low": others[0], "high": others[1]},
        "tasks": len(counts),
        "successes": sum(one.successes for one in counts),
        "n": sum(one.n for one in counts),
    }


def _over_tasks(means: Sequence[_Values]) -> dict[str, Any]:
    """Return the unweighted mean of the means of tasks, its standard error for these tasks and other trials."""
    found = [one for one in means if one["mean"] is not None]
    errors = [one["error"] for one in found]
    known = bool(found) and all(error is not None for error in errors)
    return {
        "mean": fmean(one["mean"] for one in found) if found else None,
        "error": sum(error**2 for error in errors) ** 0.5 / len(found) if known else None,
        "tasks": len(found),
        "of": len(means),
        "n": sum(one["n"] for one in found),
    }
