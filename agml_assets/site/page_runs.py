"""Runs as the leaderboard and the page of a dataset show them: with rank, interval, number of samples and cost.

The ranks are those of the leaderboard's board; what the pages look like is in `templates`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agml_assets.leaderboard.javascript import collation_key
from agml_assets.leaderboard.metric_names import listed_metrics
from agml_assets.report.card_sections import bounds
from agml_assets.site.page_columns import lists, number, numbers, packed, shown, texts

_Values = Mapping[str, Any]


def runs_of_board(board: _Values) -> dict[str, Any]:
    """Return the ranked runs, by dataset and then by rank.

    Args:
        board: `board.json` of the leaderboard.

    Returns:
        Columns of equal length. `scores` holds, for each run, the metrics that it has, the one that ranks its
        task first: place of the metric in `metrics`, score, rank, number of runs ranked, number of others with the
        same score, and low and high of the interval, null without one. `no_interval` says why not, where
        predictions are stored. `datasets` are facts of each dataset in the order of the texts of `dataset`.
    """
    ordered = _ordered(board)
    runs = [run for run, _ in ordered]
    labels = {metric: place for place, metric in enumerate(sorted({s["label"] for _, ss in ordered for s in ss}))}
    columns = {name: texts(run[name] for run in runs) for name in ("model", "dataset", "task", "config")}
    facts = board.get("datasets") or {}
    names = list(dict.fromkeys(run["dataset"] for run in runs))
    return {
        **columns,
        "how": texts(run["variant"] for run in runs),
        "platform": texts(run.get("platform") for run in runs),
        "date": texts(run.get("date") for run in runs),
        "samples": numbers(run.get("samples") for run in runs),
        "skipped": numbers(run.get("skipped") for run in runs),
        "seconds": [_brief(run.get("inference_s")) for run in runs],
        "metrics": [shown(label) for label in labels],
        "scores": [[_packed_score(labels[s["label"]], s) for s in scores] for _, scores in ordered],
        "no_interval": texts(_reason(run, scores) for run, scores in ordered),
        "datasets": {
            "task": texts((facts.get(name) or {}).get("machine_learning_task") for name in names),
            "ag": texts((facts.get(name) or {}).get("agricultural_task") for name in names),
            "crops": lists((facts.get(name) or {}).get("crop_types") or () for name in names),
        },
    }


def details_of_board(board: _Values, run_records: _Values | None) -> dict[str, Any]:
    """Return what only the page of a dataset says of the runs, in the same order.

    Args:
        board: `board.json` of the leaderboard.
        run_records: `run_records.json`, for the notes; without it there are none.
    """
    runs = [run for run, _ in _ordered(board)]
    accepted = (run_records or {}).get("accepted") or ()
    # By content: the files that both were made from may have changed in between, and with them the positions.
    notes = {(one["dataset"], one["digest"]): one["record"].get("notes") for one in accepted}
    of_runs = texts(notes.get((run["dataset"], run["digest"])) or None for run in runs)
    return {
        "train_seconds": [_brief(run.get("train_s")) for run in runs],
        "train_samples": numbers(run.get("train_samples") for run in runs),
        "seed": numbers(run.get("seed") for run in runs),
        "split": texts(run.get("split") for run in runs),
        "shares": texts(run.get("split_breakdown") for run in runs),
        "optimized": [int(bool(run.get("optimized"))) for run in runs],
        "of_runs": [run.get("of_runs") or 1 for run in runs],
        "lowest": numbers(run.get("lowest_score") for run in runs),
        "position": [run["position"] for run in runs],
        "warnings": texts("; ".join(run.get("warnings") or ()).replace("_", " ") or None for run in runs),
        "note": of_runs["at"],
        "notes": packed(of_runs["texts"]),
    }


def _ordered(board: _Values) -> list[tuple[_Values, Sequence[_Values]]]:
    """Return each run with its scores, by dataset, task, variant, configuration, rank and model."""
    runs: Sequence[_Values] = board.get("runs") or ()
    scores: dict[int, list[_Values]] = {}
    for one in board.get("boards") or ():
        shared = {"metric": one["metric"], "label": one["label"], "of": len(one["entries"])}
        of_rank = Counter(entry["rank"] for entry in one["entries"])
        for entry in one["entries"]:
            interval = (runs[entry["run"]].get("intervals") or {}).get(one["metric"])
            tied = of_rank[entry["rank"]] - 1
            scores.setdefault(entry["run"], []).append({**entry, **shared, "tied": tied, "interval": interval})
    ranked = [(run, _main_first(run["task"], scores.get(place, []))) for place, run in enumerate(runs)]
    keys = {name: collation_key(name) for name in {run["dataset"] for run in runs}}

    def order(one: tuple[_Values, Sequence[_Values]]) -> tuple[Any, ...]:
        run, of_run = one
        rank = of_run[0]["rank"] if of_run else len(runs)
        return keys[run["dataset"]], run["task"], run["variant"], run["config"], rank, run["model"]

    return sorted((one for one in ranked if one[1]), key=order)


def _main_first(task: str, scores: Sequence[_Values]) -> list[_Values]:
    listed = {name: place for place, name in enumerate(listed_metrics(task))}
    return sorted(scores, key=lambda one: (listed.get(one["metric"], len(listed)), one["metric"]))


def _packed_score(label: int, score: _Values) -> list[float | None]:
    values = [label, number(score["score"]), score["rank"], score["of"], score["tied"]]
    limits = bounds(score["interval"])
    return [*values, *(number(limit) for limit in limits)] if limits else values


def _reason(run: _Values, scores: Sequence[_Values]) -> str | None:
    reasons = [one["interval"].get("reason") for one in scores if one["interval"] and not bounds(one["interval"])]
    return next((reason for reason in reasons if reason), None)


def _brief(seconds: Any) -> float | None:
    """Return a duration with four significant digits."""
    found = number(seconds, 12)
    return None if found is None else number(float(f"{found:.4g}"), 12)
