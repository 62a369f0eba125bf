"""Agents as the pages show them: how often each succeeds on which task, and the trials of one agent on one task.

Every figure is computed by the leaderboard and the evaluations; here its parts become columns.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agml_assets.agents.plots import PLOTS, draw_plot
from agml_assets.registry.yaml_files import is_key
from agml_assets.report.card_sections import bounds
from agml_assets.site.page_columns import lists, number, numbers, shown, texts
from agml_assets.site.svg import FOLDER

_Values = Mapping[str, Any]

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COUNTS = ("n", "scored", "failed", "timed_out", "at_limit", "no_submission", "invalid")
_ERRORS = {
    "oom": "out of memory",
    "connection": "connection",
    "json": "malformed JSON",
    "prompt": "prompt too long",
    "time": "out of time",
}
_ENDINGS = {
    "submitted": "submitted",
    "no_submission": "stopped without a submission",
    "step_limit": "ended at its last step",
    "time_limit": "ran out of time",
    "token_limit": "ran out of tokens",
    "error": "failed",
    "killed": "was killed",
}


@dataclass(frozen=True)
class AgentResults:
    """What is known of agents.

    Attributes:
        leaderboard: `agents/leaderboard.json`; None where it has not been made.
        evaluations: By task and agent, of the pairs on the leaderboard.
    """

    leaderboard: _Values | None = None
    evaluations: Mapping[tuple[str, str], _Values] = field(default_factory=dict)


def pairs_of(leaderboard: _Values | None) -> list[tuple[str, str]]:
    """Return task and agent of every evaluation that the leaderboard speaks of."""
    return [(cell["task"], cell["agent"]) for cell in (leaderboard or {}).get("cells") or ()]


def trial_files(results: AgentResults) -> dict[tuple[str, str], str]:
    """Return the page of the trials of every pair that has one; keys hold no dot, so no two pairs share a file."""
    return {
        (task, agent): f"trials_{task}.{agent}.html"
        for task, agent in results.evaluations
        if is_key(task) and is_key(agent)
    }


def plot_files(leaderboard: _Values | None) -> dict[str, str]:
    """Return the file of each plot, relative to the pages; none where nothing has been compared."""
    return {name: f"{FOLDER}/agents_{name}.svg" for name in PLOTS} if pairs_of(leaderboard) else {}


def draw_plots(leaderboard: _Values | None) -> dict[str, str]:
    """Return the text of every plot by its file; the same leaderboard gives the same bytes."""
    if leaderboard is None:
        return {}
    return {file: draw_plot(leaderboard, name, "svg").decode() for name, file in plot_files(leaderboard).items()}


def missing_agents(results: AgentResults) -> dict[str, str]:
    """Return why evaluations are in no table, by the folder that holds them."""
    return {f"agents/{key}": why for key, why in ((results.leaderboard or {}).get("left_out") or {}).items()}


def agents_data(results: AgentResults) -> dict[str, Any]:
    """Return the standings and the table of tasks and agents, in columns.

    Returns:
        `tasks` and `agents`, in columns, rates and scores as they are stored; `success` of an agent: `[place,
        value, best, low, high]`, best being 1 where no other succeeds more often by more than chance, or null.
        `cells`: for each task a list over agents, of an object or null. `pairs`: `[first, second, difference, p]`.
        `left_out`: every other evaluation, and why. `plots`: file by name.
    """
    board = results.leaderboard or {}
    tasks, agents = board.get("tasks") or [], board.get("agents") or []
    places = {one["agent"]: place for place, one in enumerate(agents)}
    cells = {(cell["task"], cell["agent"]): cell for cell in board.get("cells") or ()}
    files = trial_files(results)
    left_out = board.get("left_out") or {}
    return {
        "threshold": number(board.get("threshold")),
        "thresholds": numbers(board.get("thresholds") or ()),
        "tasks": {
            "key": [shown(one["task"]) for one in tasks],
            "name": texts(one["task_name"] for one in tasks),
            **{
                name: texts(one[name] for one in tasks) for name in ("metric", "direction", "source", "success_by")
            },
            "undecidable": texts(one["undecidable"] for one in tasks),
            "baseline": numbers(one["baseline"]["value"] for one in tasks),
            "measured": numbers(one["baseline"]["n"] for one in tasks),
            "baseline_source": texts(one["baseline"]["source"] for one in tasks),
            "spread": numbers(one["baseline"]["standard_deviation"] for one in tasks),
            "baseline_note": texts(one["baseline"]["note"] or None for one in tasks),
            "reference": numbers(one["reference"]["value"] for one in tasks),
            "warnings": lists(one["warnings"] for one in tasks),
            "missing": lists(one["missing"] for one in tasks),
            "in_mean": [bool(one["in_mean"]) for one in tasks],
            "why_not_in_mean": texts(one["why_not_in_mean"] or None for one in tasks),
        },
        "agents": {
            "key": [shown(one["agent"]) for one in agents],
            "name": texts(one["agent_name"] for one in agents),
            **{name: texts(one[name] for one in agents) for name in ("kind", "model")},
            "rank": [one["rank"] for one in agents],
            "sharing": [one["sharing"] for one in agents],
            "success": [_success(place, one) for place, one in enumerate(agents)],
            "others": [_ends(one["success"]["other_tasks"]) if one["success"] else None for one in agents],
            "others_why": texts(
                one["success"]["other_tasks"].get("reason") if one["success"] else None for one in agents
            ),
            "successes": [
                [one["success"]["successes"], one["success"]["n"]] if one["success"] else None for one in agents
            ],
            **{name: [_mean(one[name]) for one in agents] for name in ("normalised", "tokens", "minutes")},
            **{name: numbers(one[name] for one in agents) for name in (*_COUNTS, "tasks")},
            "lacks": lists(one["lacks"] for one in agents),
        },
        "cells": [[_cell(cells.get((task["task"], agent["agent"])), files) for agent in agents] for task in tasks],
        "pairs": [
            [places[one["first"]], places[one["second"]], number(one["difference"]), number(one["p_holm"])]
            for one in board.get("pairs") or ()
        ],
        "left_out": {"what": texts(left_out), "why": texts(left_out.values())},
        "plots": plot_files(results.leaderboard),
    }


def trials_data(document: _Values) -> dict[str, Any]:
    """Return what the page of an agent's trials on a task says, in the words and numbers of its evaluation."""
    baseline, reference = document["baseline"], document["reference"]
    return {
        **{
            name: shown(document[name])
            for name in ("task", "task_name", "agent", "agent_name", "metric", "direction")
        },
        **{name: _text(document[name]) for name in ("kind", "model", "source", "success_by", "undecidable")},
        "problem": _lines(document["problem"]),
        "warnings": [shown(one) for one in (*document["warnings"], document["exposed"]) if one],
        "threshold": number(document["threshold"]),
        "baseline": number(baseline["value"]),
        "measured": baseline["n"],
        "spread": number(baseline["standard_deviation"]),
        "note": shown(baseline["note"]),
        "reference": number(reference["value"]),
        "trials": [_trial(one) for one in document["trials"]],
    }


def _success(place: int, one: _Values) -> list[Any] | None:
    if not one["success"]:
        return None
    ends = _ends(one["success"]["interval"]) or []
    return [place, number(one["success"]["value"]), int(one["rank"] == 1), *ends]


def _ends(interval: Any) -> list[float | None] | None:
    limits = bounds(interval)
    return [number(end) for end in limits] if limits else None


def _mean(one: _Values) -> list[float | None] | None:
    """Return mean, standard error and how many; null where there is no mean."""
    return None if one["mean"] is None else [number(one["mean"]), number(one["error"]), one.get("tasks", one["n"])]


def _rate(one: _Values | None) -> list[float | None] | None:
    return [one["successes"], one["n"], number(one["low"]), number(one["high"])] if one else None


def _cell(cell: _Values | None, files: Mapping[tuple[str, str], str]) -> dict[str, Any] | None:
    if cell is None:
        return None
    return {
        "file": files.get((cell["task"], cell["agent"])),
        "success": _rate(cell["success"]),
        "at": _rates(cell["success_at"]),
        "best_at": _rates(cell["best_success_at"]),
        **{name: _mean(cell[name]) for name in ("raw", "improvement", "normalised", "tokens", "minutes")},
        **{name: cell[name] for name in (*_COUNTS, "above_but_unfinished", "all_alike")},
        "errors": [[_ERRORS[kind], count] for kind, count in cell["errors"].items() if count],
    }


def _rates(rates: _Values | None) -> list[Any] | None:
    return [_rate(one) for one in rates.values()] if rates else None


def _trial(one: _Values) -> dict[str, Any]:
    return {
        **{name: one[name] for name in ("seed", "success", "score_above", "steps", "trace_left_out")},
        "submitted": one["submitted_final_answer"],
        "ending": _ENDINGS[one["ending"]],
        **{name: number(one[name]) for name in ("raw", "improvement", "normalised", "seconds")},
        **{name: shown(one[name]) for name in ("reason", "improvement_reason", "normalised_reason")},
        "best": [number(one["best"]["raw"]), one["best"]["step"]],
        "tokens": number(one["tokens"]["total"]),
        "models": [[shown(model), number(count)] for model, count in one["tokens_by_model"].items()],
        "started": shown(one["started_at"]),
        "error": _lines(one["error"]),
        "errors": [
            [_ERRORS[kind], seen["ended"], seen["steps"]]
            for kind, seen in one["errors"].items()
            if seen["ended"] or seen["steps"]
        ],
        "scores": [[place, number(score)] for place, score in enumerate(one["step_scores"]) if score is not None],
        "trace": [
            {
                **{name: step[name] for name in ("step", "files")},
                **{name: number(step[name]) for name in ("seconds", "score")},
                "action": shown(step["action"]),
                **{name: _lines(step[name]) for name in ("arguments", "thought", "observation")},
            }
            for step in one["trace"]
        ],
    }


def _text(value: Any) -> str | None:
    return None if value is None else shown(value)


def _lines(text: str) -> str:
    """Return a text of several lines fit to be shown; tabs become spaces, and colours of terminals go."""
    return "\n".join(map(shown, _COLOUR.sub("", text).expandtabs(4).splitlines()))


def trial_count(results: AgentResults) -> int:
    """Return how many trials the leaderboard counts."""
    cells: Iterable[_Values] = (results.leaderboard or {}).get("cells") or ()
    return sum(cell["n"] for cell in cells)
