"""What a terminal shows of a finished benchmark: score, axes, counts, and where the report lies; and of many."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from upath import UPath

from agml_assets.batch import FAILED, Outcome, clock
from agml_assets.quality.summary import asked_for, judge_dataset
from agml_assets.report.artifacts import CARD, RESULT
from agml_assets.report.files import left_out
from agml_assets.workspace import DatasetWorkspace


def describe_result(bench: DatasetWorkspace, path: UPath) -> str:
    """Return the summary of a dataset's `result.json` as lines of text."""
    report = bench.read(RESULT)
    score, metrics, facts = report["score"], report["metrics"], report["reproducibility"]
    lines = [
        "",
        f"{report['dataset']}: {facts.get('num_images', 0)} images, {facts.get('num_classes', 0)} classes, "
        f"{facts.get('source_images', 0) - facts.get('num_images', 0)} left out",
        "",
        f"  {'overall score':<18}{_out_of_ten(score['overall'])}",
    ]
    for axis, value in score["axes"].items():
        note = score["unavailable"].get(axis) or score["incomplete"].get(axis) or ""
        lines.append(f"  {axis:<18}{_out_of_ten(value)}{'   ' + note if note else ''}")
    lines.append("")
    for label, metric, *keys in _COUNTS:
        lines.append(f"  {label:<40}{_figure(metrics.get(metric, {}), keys)}")
    missing = left_out(judge_dataset(bench))
    waiting = [artifact.key for artifact in asked_for(bench) if artifact.key in missing]
    if waiting:
        lines += ["", "  Not current: " + ", ".join(waiting)]
    if report["breaches"]:
        lines += ["", "  The numbers contradict one another:", *(f"    {b}" for b in report["breaches"])]
    card = path.parent / CARD.file
    return "\n".join([*lines, "", f"  report  {path}", f"  card    {card}"])


def describe_batch(outcomes: Sequence[Outcome], asked: int, logs: Path) -> str:
    """Return what became of many datasets as a table, and how many fared how."""
    rows = [("dataset", "state", "score", "time", "reason")]
    for outcome in outcomes:
        score = "" if outcome.score is None else f"{outcome.score:.1f}"
        rows.append((outcome.dataset, outcome.state, score, clock(outcome.seconds), _shortened(outcome.reason)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    counts = Counter(outcome.state for outcome in outcomes)
    told = [f"{count} {state}" for state, count in sorted(counts.items(), key=lambda item: item[0] in FAILED)]
    if asked > len(outcomes):
        told.append(f"{asked - len(outcomes)} not reached")
    took = clock(sum(outcome.seconds for outcome in outcomes))
    return "\n".join(["", *lines, "", f"{asked} datasets: {', '.join(told)}; {took}. Logs: {logs}"])


def _shortened(reason: str) -> str:
    """Return a reason that fits into a line of a table; the log has all of it."""
    return reason if len(reason) <= _REASON_WIDTH else reason[: _REASON_WIDTH - 3] + "..."


_REASON_WIDTH = 200

_COUNTS = (
    ("images with an exact copy", "exact_duplicate", "blake3", "duplicate_count"),
    ("images with a near-duplicate", "near_duplicate", "near_duplicate_count"),
    ("near-duplicates across splits", "near_duplicate", "cross_split_near_duplicates"),
    ("labels that look wrong", "label_noise", "leak_safe", "n_noisy_samples"),
    ("accuracy added by copies across splits", "leakage", "leakage_inflation"),
    ("images that look faulty or odd", "image_health", "n_flagged"),
    ("silhouette, -1 to 1", "feature_separability", "silhouette_score_all"),
    ("largest class / smallest class", "class_imbalance", "imbalance_ratio"),
)


def _figure(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the figure below these keys, or why there is none."""
    *path, name = keys
    if not value.get("skipped"):
        for key in path:
            value = value.get(key, {})
    if value.get(name) is not None:
        return value[name]
    reasons = (value.get(key) for key in ("reason", "not_identifiable", f"{name}_reason"))
    return next(filter(None, reasons), "not computed")


def _out_of_ten(value: float | None) -> str:
    return "not measured" if value is None else f"{value:>4.1f} of 10"
