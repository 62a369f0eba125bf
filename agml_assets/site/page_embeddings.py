"""Compressed embeddings as the pages show them: standings of each phase, and what one submission scores.

Every figure is computed by the leaderboard or with the scores; here its parts become columns. What is drawn of
predictions is in `prediction_figures`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agml_assets.report.card_sections import bounds, cividis
from agml_assets.site.embedding_plots import plot_files
from agml_assets.site.page_columns import lists, number, numbers, shown, texts
from agml_assets.site.prediction_figures import Figure, predictions_of

_Values = Mapping[str, Any]
_FEW = "fewer than 20 samples or groups"
"""The one reason for a score without an interval (`MIN_UNITS` of compression/exact/evaluate.py)."""
_SHADES = 20


@dataclass(frozen=True)
class EmbeddingResults:
    """What is known of compressed embeddings.

    Attributes:
        leaderboard: `compression/leaderboard.json`; None where it has not been made.
        runs: By submission: what `summary` and `task_scores` hold, both empty where they are gone.
    """

    leaderboard: _Values | None = None
    runs: Mapping[str, tuple[_Values, _Values]] = field(default_factory=dict)


def submissions_of(leaderboard: _Values | None) -> dict[str, str]:
    """Return the phase of every submission that the leaderboard speaks of and that has scores."""
    return {
        key: phase
        for phase, board in ((leaderboard or {}).get("phases") or {}).items()
        for key in (*(one["submission"] for one in board["standings"]), *board["incomplete"])
    }


def embeddings_data(results: EmbeddingResults) -> dict[str, Any]:
    """Return the standings of every phase, in columns.

    Returns:
        `phases`: of each, `tasks` and `submissions` in columns; `means`: of each submission, and `scores`: for
        each task of each, `[submission, value, best, low, high]`, or `[submission, value, best, reason]` without
        an interval. Values lie at or below 1; best is 1 where no other is better by more than chance. `floors` and
        `kept` are shaped as `scores`. `pairs`: `[first, second, difference, p]` of what is kept. `sensitivity`:
        the order under other choices. `plot`: the file of the chart.
        `left_out`: every other submission, and why. `reasons`: texts that scores name by their place.
    """
    board = results.leaderboard or {}
    files = plot_files(results.leaderboard)
    left_out = board.get("left_out") or {}
    return {
        "phases": [
            {"phase": shown(phase), "plot": files.get(phase), **_phase(one)}
            for phase, one in (board.get("phases") or {}).items()
        ],
        "left_out": {"submission": texts(left_out), "why": texts(left_out.values())},
        "reasons": [_FEW],
    }


def submissions_data(results: EmbeddingResults) -> dict[str, Any]:
    """Return what the page of a submission says, for each of them.

    Returns:
        `submissions` in columns, and for each a list of its tasks in `tasks`. A task's `score` is as in
        `embeddings_data`; `floor` and the scores in `others` are `[value, low, high]` or `[value]`; `figure` is
        that of `prediction_figures`, or null. `left_out`: for each, `[task, why]`.
    """
    phases = submissions_of(results.leaderboard)
    places = _standings(results.leaderboard)
    runs = [results.runs.get(key, ({}, {})) for key in phases]
    names = [summary.get("display_name") or key for key, (summary, _) in zip(phases, runs, strict=True)]
    ranks = {key: places[key]["rank"] if key in places else None for key in phases}
    of = Counter(phases[key] for key in places)
    sharing = Counter((phases[key], ranks[key]) for key in places)
    notes = [_own_notes(summary, scores) for summary, scores in runs]
    files = plot_files(results.leaderboard, results.runs)
    tasks = [
        [_task(place, key, task, scores, places, files) for task in scores.get("tasks") or ()]
        for place, (key, (_, scores)) in enumerate(zip(phases, runs, strict=True))
    ]
    return {
        "submissions": {
            "key": [shown(key) for key in phases],
            "name": texts(names),
            "phase": texts(phases.values()),
            "bytes": numbers(summary.get("bytes_per_embedding") for summary, _ in runs),
            "uncompressed": numbers(summary.get("bytes_uncompressed") for summary, _ in runs),
            **{name: numbers(summary.get(name) for summary, _ in runs) for name in ("dimensions", "embeddings")},
            "rank": [ranks[key] for key in phases],
            "of": [of[phase] for phase in phases.values()],
            "sharing": [sharing[phase, ranks[key]] - 1 if ranks[key] else 0 for key, phase in phases.items()],
            "mean": [
                _entry(place, places[key]["mean"], places[key]["rank"]) if key in places else None
                for place, key in enumerate(phases)
            ],
            "notes": lists(notes),
        },
        "tasks": tasks,
        "left_out": [
            [[shown(task), shown(why)] for task, why in (summary.get("left_out") or {}).items()]
            for summary, _ in runs
        ],
        "shades": [cividis(step / _SHADES) for step in range(_SHADES + 1)],
        "reasons": [_FEW],
    }


def missing_submissions(results: EmbeddingResults) -> dict[str, str]:
    """Return why submissions are in no table, by the folder that holds them."""
    return {f"compression/{key}": why for key, why in ((results.leaderboard or {}).get("left_out") or {}).items()}


def _phase(board: _Values) -> dict[str, Any]:
    standings, tasks = board["standings"], board["tasks"]
    places = {one["submission"]: place for place, one in enumerate(standings)}
    cells = [[one["tasks"].get(task["task"]) for one in standings] for task in tasks]
    return {
        "tasks": {
            "name": [shown(task["task"]) for task in tasks],
            **{name: texts(task[name] for task in tasks) for name in ("metric", "kind")},
            **{name: numbers(task[name] for task in tasks) for name in ("n", "units", "reference")},
            "weight": numbers(board["weights"].get(task["task"]) for task in tasks),
            "missing": lists(task["missing"] for task in tasks),
        },
        "submissions": {
            "key": [shown(one["submission"]) for one in standings],
            "name": texts(one["display_name"] for one in standings),
            "rank": [one["rank"] for one in standings],
            "bytes": numbers(one["bytes_per_embedding"] for one in standings),
            "uncompressed": numbers(one["bytes_uncompressed"] for one in standings),
            **{name: numbers(one[name] for one in standings) for name in ("dimensions", "embeddings")},
        },
        "means": [_entry(place, one["mean"], one["rank"]) for place, one in enumerate(standings)],
        "scores": [
            [
                _entry(place, {"value": one["score"], "interval": one["interval"]}, one["rank"]) if one else None
                for place, one in enumerate(of_task)
            ]
            for of_task in cells
        ],
        **{
            name: [numbers(one and one[key] for one in of_task) for of_task in cells]
            for name, key in (("floors", "floor"), ("kept", "kept"))
        },
        "pairs": [
            [places[one["first"]], places[one["second"]], number(one["difference"]), number(one["p_holm"])]
            for one in board["pairs"]
        ],
        "incomplete": {
            "submission": texts(board["incomplete"]),
            "tasks": lists(board["incomplete"].values()),
        },
        "sensitivity": [
            {
                "choice": shown(one["choice"]),
                "best": places[one["order"][0]],
                "tau": number(one["tau"]),
                "same": bool(one["same_best"]),
            }
            for one in board["sensitivity"]
        ],
    }


def _entry(place: int, estimate: _Values, rank: int) -> list[float | None]:
    limits = bounds(estimate["interval"])
    return [
        place,
        number(estimate["value"]),
        int(rank == 1),
        *([number(end) for end in limits] if limits else [0]),
    ]


def _standings(leaderboard: _Values | None) -> dict[str, _Values]:
    phases = (leaderboard or {}).get("phases") or {}
    return {one["submission"]: one for board in phases.values() for one in board["standings"]}


def _own_notes(summary: _Values, scores: _Values) -> Sequence[str]:
    """Return what is said of the embeddings themselves: a summary's notes without those of its tasks."""
    of_tasks = {note for notes in (scores.get("notes") or {}).values() for note in notes}
    return [note for note in summary.get("notes") or () if note not in of_tasks]


def _task(
    place: int, key: str, task: _Values, scores: _Values, places: Mapping[str, _Values], files: Mapping[Any, str]
) -> dict[str, Any]:
    name, control = task["task"], task["control"]
    ranked = (places[key]["tasks"].get(name) or {}) if key in places else {}
    return {
        "task": shown(name),
        **{of: shown(task[of]) for of in ("kind", "metric")},
        "score": _entry(place, task["score"], ranked.get("rank", 0)),
        "rank": ranked.get("rank"),
        "floor": _ends(control["score"]) if control else None,
        "others": [[shown(other), *_ends(one)] for other, one in task["others"].items()],
        **{of: number(task[of]) for of in ("reference", "kept", "n", "units", "dimensions")},
        "notes": [shown(note) for note in (scores.get("notes") or {}).get(name, ())],
        "exclusions": [shown(one) for one in task["exclusions"]],
        "figure": _carried(predictions_of(task)),
        "file": files.get((key, name)),
    }


def _ends(estimate: _Values) -> list[float | None]:
    return [number(estimate["value"]), *(number(end) for end in bounds(estimate["interval"]) or ())]


def _carried(figure: Figure) -> dict[str, Any]:
    return {name: _plain(value) for name, value in vars(figure).items()} | {"kind": figure.kind}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {shown(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, Iterable) else value
