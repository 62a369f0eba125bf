"""The board that corrects the site's: what may be compared is compared, with ties, coverage and noise stated.

One board for each dataset, configuration, task, variant and metric; models that were run on several datasets are
compared on those that they share. The site's own files are in `manifests`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from upath import UPath

from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.javascript import dump_json, trimmed
from agml_assets.leaderboard.metric_names import listed_metrics, metric_label
from agml_assets.leaderboard.predictions import prediction_intervals
from agml_assets.leaderboard.ranking import compare_pairs, rank_nested
from agml_assets.leaderboard.run_records import AcceptedRecord, RunRecords, count_records, describe_beyond
from agml_assets.leaderboard.site_rows import (
    dataset_config_of,
    date_of,
    inference_seconds_per_image,
    row_is_optimized,
    split_breakdown,
    train_seconds_per_image,
)

_Setting = tuple[str, str, str]
"""Configuration, task and variant: runs are compared within one."""


@dataclass(frozen=True)
class Run:
    """The best run of a model in one setting on one dataset, and how many runs it is the best of."""

    accepted: AcceptedRecord
    model: str
    setting: _Setting
    scores: Mapping[str, float]
    of_runs: int
    lowest: float | None


def build_board(records: RunRecords, catalogue: Catalogue, predictions: Sequence[UPath]) -> dict[str, Any]:
    """Return the board as JSON values; the order of the records does not matter.

    Args:
        records: What there is.
        catalogue: Tells tasks and crops of the datasets.
        predictions: Folders of stored predictions.

    Returns:
        `counts`; `datasets`, what the catalogue knows of each; `runs`, each with its facts; `boards`, of which the
        entries point to runs by their place; `comparisons`, models over shared datasets; `unranked`, records
        that are ranked by none or not by all of their metrics, and why.
    """
    runs, unranked = _best_runs(records.accepted)
    boards = _boards(runs)
    names = sorted({one.dataset for one in records.accepted})
    return {
        "counts": {"datasets": len(names), "models": len({run.model for run in runs}), **count_records(records)},
        "datasets": {name: _dataset(name, catalogue) for name in names},
        "runs": [_run(run, predictions) for run in runs],
        "boards": boards,
        "comparisons": _comparisons(runs),
        "unranked": unranked,
    }


def _dataset(name: str, catalogue: Catalogue) -> dict[str, Any]:
    entry = catalogue.entry(name)
    return {
        "known": entry is not None,
        "machine_learning_task": entry.machine_learning_task if entry else None,
        "agricultural_task": entry.agricultural_task if entry else None,
        "crop_types": list(entry.crop_types) if entry else [],
    }


def _best_runs(records: Iterable[AcceptedRecord]) -> tuple[list[Run], list[dict[str, Any]]]:
    """Return the best run of each model, setting and dataset, and what is not ranked.

    The best is that with the highest score by the first metric of the task that any of them has; of equal ones
    the latest. Not ranked are scores outside their range, records without any score, and other runs of a model
    that are not compared with its best, as they lack that metric.
    """
    groups: dict[tuple[str, _Setting, str], list[AcceptedRecord]] = {}
    reasons: dict[tuple[str, int], list[str]] = {}
    for one in records:
        beyond = one.record.beyond_scores()
        if beyond:
            reasons[one.dataset, one.position] = [describe_beyond(beyond)]
        if one.record.scores():
            setting = dataset_config_of(one.raw), trimmed(one.record.task) or "", one.record.variant
            groups.setdefault((one.dataset, setting, trimmed(one.record.model) or ""), []).append(one)
        elif not beyond:
            reason = f"none of its metrics is a score: {', '.join(one.record.numbers())}"
            reasons[one.dataset, one.position] = [reason]
    runs = []
    for key in sorted(groups):
        metric = _metric(key[1][1], groups[key])
        with_metric = [one for one in groups[key] if metric in one.record.scores()]
        runs.append(_best(key[2], key[1], metric, with_metric, len(groups[key])))
        for one in groups[key]:
            if metric not in one.record.scores():
                reason = f"it has no {metric}, by which another run of the model is its best here"
                reasons.setdefault((one.dataset, one.position), []).append(reason)
    return runs, [
        {"dataset": dataset, "position": position, "reason": "; ".join(reasons[dataset, position])}
        for dataset, position in sorted(reasons)
    ]


def _metric(task: str, runs: Sequence[AcceptedRecord]) -> str:
    """Return the metric that tells which run of a model is the best."""
    names = {name for one in runs for name in one.record.scores()}
    return next((name for name in listed_metrics(task) if name in names), None) or min(names)


def _best(model: str, setting: _Setting, metric: str, runs: Sequence[AcceptedRecord], of_runs: int) -> Run:
    """Return the best of the runs that have the metric, of so many in all."""

    def order(one: AcceptedRecord) -> tuple[float, float]:
        time = one.record.time()
        return one.record.scores()[metric], time.timestamp() if time else 0.0

    highest = max(map(order, runs))
    tied = [one for one in runs if order(one) == highest]
    best = tied[0] if len(tied) == 1 else max(tied, key=lambda one: dump_json(one.raw))
    lowest = min(one.record.scores()[metric] for one in runs) if of_runs > 1 else None
    return Run(best, model, setting, best.record.scores(), of_runs, lowest)


def _run(run: Run, predictions: Sequence[UPath]) -> dict[str, Any]:
    """Return what is known of a run; times are in s an image, what is not known is null."""
    record, raw = run.accepted.record, run.accepted.raw
    samples, skipped = record.num_samples, record.numbers().get("skipped_samples")
    tuned = record.finetune
    return {
        "model": run.model,
        "dataset": run.accepted.dataset,
        "position": run.accepted.position,
        "digest": run.accepted.digest,
        "config": run.setting[0],
        "task": run.setting[1],
        "variant": run.setting[2],
        "scores": dict(run.scores),
        "intervals": prediction_intervals(record, predictions),
        "samples": samples,
        "skipped": skipped,
        "skip_rate": skipped / samples if skipped is not None and samples else None,
        "of_runs": run.of_runs,
        "lowest_score": run.lowest,
        "split": record.split,
        "split_breakdown": split_breakdown(raw),
        "optimized": row_is_optimized(raw),
        "platform": trimmed(record.device),
        "date": date_of(raw),
        "benchmark_id": record.benchmark_id,
        "inference_s": inference_seconds_per_image(raw),
        "train_s": train_seconds_per_image(raw),
        "train_samples": tuned.train_samples if tuned else None,
        "seed": tuned.split_seed if tuned else None,
        "warnings": [warning.name for warning in run.accepted.warnings],
    }


def _boards(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return a board for each dataset, setting and metric; entries point to runs by their place."""
    groups: dict[tuple[str, _Setting, str], list[int]] = {}
    for place, run in enumerate(runs):
        for metric in run.scores:
            groups.setdefault((run.accepted.dataset, run.setting, metric), []).append(place)
    return [_board(*key, [(place, runs[place]) for place in groups[key]]) for key in sorted(groups)]


def _board(dataset: str, setting: _Setting, metric: str, placed: Sequence[tuple[int, Run]]) -> dict[str, Any]:
    scores = [run.scores[metric] for _, run in placed]
    entries = [
        {"run": place, "score": score, "rank": rank(score, scores), "percentile": percentile(score, scores)}
        for (place, _), score in zip(placed, scores, strict=True)
    ]
    entries.sort(key=lambda entry: (entry["rank"], entry["run"]))
    config, task, variant = setting
    return {
        "dataset": dataset,
        "config": config,
        "task": task,
        "variant": variant,
        "metric": metric,
        "label": metric_label(metric) or metric,
        "same_samples": _same_samples([run for _, run in placed]),
        "entries": entries,
    }


def _same_samples(runs: Sequence[Run]) -> bool | None:
    """Return whether runs saw the same images, by split and number; None where they do not say."""
    said = [(trimmed(run.accepted.record.split), run.accepted.record.num_samples) for run in runs]
    columns = [{value for value in column if value is not None} for column in zip(*said, strict=True)]
    if any(len(values) > 1 for values in columns):
        return False
    return None if any(None in one for one in said) else True


def rank(score: float, scores: Sequence[float]) -> int:
    """Return the rank of a score among all, 1 being the best; equal scores share the better rank."""
    return 1 + sum(other > score for other in scores)


def percentile(score: float, scores: Sequence[float]) -> float | None:
    """Return the percentage of the other scores that a score beats, equal ones half; None without others."""
    if len(scores) < 2:
        return None
    beaten, equal = sum(other < score for other in scores), sum(other == score for other in scores) - 1
    return 100 * (beaten + equal / 2) / (len(scores) - 1)


def _comparisons(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return, for each setting and metric, the coverage of the models, their rankings and every pair."""
    groups: dict[tuple[_Setting, str], dict[str, dict[str, float]]] = {}
    for run in runs:
        for metric, score in run.scores.items():
            models = groups.setdefault((run.setting, metric), {})
            models.setdefault(run.model, {})[run.accepted.dataset] = score
    return [_comparison(setting, metric, groups[setting, metric]) for setting, metric in sorted(groups)]


def _comparison(setting: _Setting, metric: str, scores: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    config, task, variant = setting
    datasets = {name for of_model in scores.values() for name in of_model}
    coverage = sorted(scores, key=lambda model: (-len(scores[model]), model))
    return {
        "config": config,
        "task": task,
        "variant": variant,
        "metric": metric,
        "label": metric_label(metric) or metric,
        "datasets": len(datasets),
        "coverage": {model: len(scores[model]) for model in coverage},
        "rankings": [asdict(ranking) for ranking in rank_nested(scores)],
        "pairs": [asdict(pair) for pair in compare_pairs(scores)],
    }
