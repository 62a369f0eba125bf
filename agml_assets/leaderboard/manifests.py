"""`index.json` and `global.json` as the site's generator writes them, byte for byte.

Whatever it would take from the files is taken, whatever it would leave out is left out; what is wrong with
a record is told in `run_records`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.javascript import finite, trimmed
from agml_assets.leaderboard.metric_names import FAMILIES, Family, family_scores
from agml_assets.leaderboard.record_files import RecordFile
from agml_assets.leaderboard.site_rows import (
    VARIANTS,
    SiteRow,
    build_notes,
    dataset_config_of,
    in_rank_order,
    is_optimized,
    row_is_optimized,
    site_rows,
    split_breakdown,
)


def build_index(files: Iterable[RecordFile]) -> list[str]:
    """Return `index.json`: the datasets that have a file, in the site's order.

    A file that is not JSON would end the site's generator; here it is left out, and listed among what is refused.
    """
    return [file.dataset for file in files if file.problem is None]


def build_global(files: Iterable[RecordFile], catalogue: Catalogue) -> list[dict[str, Any]]:
    """Return `global.json`: the best run of each model and variant on each dataset, in the site's order."""
    return [
        entry
        for file in files
        for entry in _dataset_entries(file.dataset, _ready_entries(file.document), catalogue)
    ]


def _ready_entries(document: Any) -> list[dict[str, Any]]:
    """Return what the generator ranks: rows of run records, or those of a leaderboard that is ready."""
    if isinstance(document, list):
        return [_entry(row) for row in site_rows(document, metrics_may_be_lists=True)[1]]
    ready = document.get("leaderboard") if isinstance(document, Mapping) else None
    if not isinstance(ready, list):
        return []
    named = (entry for entry in ready if isinstance(entry, Mapping) and trimmed(entry.get("model")))
    return in_rank_order([dict(entry) for entry in named])


def _entry(row: SiteRow) -> dict[str, Any]:
    record = row.record
    return {
        "model": row.model,
        "categoryScores": family_scores(record["metrics"]),
        "benchmarkId": finite(record.get("benchmark_id")),
        "variant": row.variant,
        "optimized": row_is_optimized(record),
        "platform": record.get("device"),
        "splitBreakdown": split_breakdown(record),
        "datasetConfig": dataset_config_of(record),
        "notes": build_notes(row),
    }


def _dataset_entries(
    dataset: str, entries: Sequence[Mapping[str, Any]], catalogue: Catalogue
) -> Iterable[dict[str, Any]]:
    percentiles = {name: _percentiles(entries, name) for name in FAMILIES}
    facts = catalogue.facts(dataset)
    for place, entry in enumerate(entries):
        variant = entry.get("variant")
        scores = {"scores": entry["categoryScores"]} if "categoryScores" in entry else {}
        yield {
            "model": trimmed(entry["model"]),
            "dataset": dataset,
            "percentiles": {name: percentiles[name].get(place) for name in FAMILIES},
            **scores,
            "crop_types": facts.crop_types,
            "machine_learning_task": facts.machine_learning_task,
            "benchmarkId": entry.get("benchmarkId"),
            "variant": variant if variant in VARIANTS else None,
            "optimized": is_optimized(entry.get("optimized")),
            "platform": trimmed(entry.get("platform")),
            "splitBreakdown": trimmed(entry.get("splitBreakdown")),
            "datasetConfig": trimmed(entry.get("datasetConfig")),
            "notes": trimmed(entry.get("notes")),
        }


def _percentiles(entries: Sequence[Mapping[str, Any]], name: Family) -> dict[int, float]:
    """Return the percentile of each entry that has a score of the family, by its place among the entries."""
    scored = []
    for place, entry in enumerate(entries):
        scores = entry.get("categoryScores")
        score = finite(scores.get(name)) if isinstance(scores, Mapping) else None
        if score is not None:
            scored.append((place, score))
    scored.sort(key=lambda one: -one[1])
    n = len(scored)
    return {place: (n - rank) / (n - 1) * 100 if n > 1 else 100 for rank, (place, _) in enumerate(scored, start=1)}
