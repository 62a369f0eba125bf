"""What the page that compares models computes with: the best runs of all models, and quantiles.

The page's own script does what `leaderboard.comparison` and `leaderboard.ranking` do, for whatever is selected.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.comparison import SiteRecord, read_site_records
from agml_assets.leaderboard.javascript import finite, trimmed
from agml_assets.leaderboard.manifests import build_global
from agml_assets.leaderboard.metric_names import FAMILIES, is_score
from agml_assets.leaderboard.ranking import FEWEST_DATASETS, LEVEL, critical_difference
from agml_assets.leaderboard.record_files import RecordFile
from agml_assets.site.page_columns import lists, number, texts

MOST_MODELS = 30
"""Models up to which the page knows the critical difference; more are hardly read."""


def compared_entries(run_records: Mapping[str, Any] | None, catalogue: Catalogue) -> list[dict[str, Any]]:
    """Return the entries of the site's manifest, of accepted records and of scores between 0 and 1 alone.

    Args:
        run_records: `run_records.json` of the leaderboard; without it there are none.
        catalogue: Tells task and crops.
    """
    records: dict[str, list[Any]] = {}
    for one in (run_records or {}).get("accepted") or ():
        records.setdefault(one["dataset"], []).append(_in_range(one["record"]))
    return build_global((RecordFile(*one) for one in records.items()), catalogue)


def _in_range(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without metrics that should be scores and do not lie between 0 and 1."""
    task = trimmed(record.get("task"))
    metrics = {
        name: value
        for name, value in record["metrics"].items()
        if (number := finite(value)) is None or not is_score(task, name) or 0 <= number <= 1
    }
    return {**record, "metrics": metrics}


def comparison_data(
    entries: Sequence[Mapping[str, Any]], agricultural_tasks: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the entries in columns, and what the page needs to tell difference from noise.

    Args:
        entries: As `compared_entries`.
        agricultural_tasks: Agricultural task by dataset, for the filter.

    Returns:
        The columns of a record, a list of scores in each of `FAMILIES`; `ag`, the agricultural task of each
        dataset in the order of the texts of `dataset`; `critical`: Nemenyi's critical difference for 2, 3 ...
        models on one dataset, to be divided by the square root of their number; `t`: 97.5 % quantiles of
        Student's t for `fewest` datasets and each more, of which there are as many as any pair can share.
    """
    records = read_site_records(entries)
    names = list(dict.fromkeys(record.dataset for record in records))
    most = range(FEWEST_DATASETS, len(names) + 1)
    return {
        "model": texts(record.model for record in records),
        "dataset": texts(record.dataset for record in records),
        "task": texts(record.task for record in records),
        "crops": lists(record.crop_types for record in records),
        "how": texts(record.variant for record in records),
        "optimized": [int(record.optimized) for record in records],
        "platform": texts(record.platform for record in records),
        "scores": [[_exact(record, name) for record in records] for name in FAMILIES],
        "ag": texts(agricultural_tasks.get(name) for name in names),
        "critical": [number(critical_difference(n, 1), 9) for n in range(2, MOST_MODELS + 1)] if records else [],
        "fewest": FEWEST_DATASETS,
        "t": [number(value, 9) for value in _quantiles(most)],
    }


def _exact(record: SiteRecord, family: Any) -> float | None:
    """Return a score with all its digits: what differs in the last one has another rank."""
    score = record.scores[family]
    return int(score) if score is not None and score.is_integer() and abs(score) < 2**53 else score


def _quantiles(datasets: range) -> list[float]:
    if not datasets:
        return []
    from scipy.special import stdtrit

    return [float(t) for t in stdtrit(np.arange(datasets.start, datasets.stop) - 1, (1 + LEVEL) / 2)]
