"""Run records of this platform's own model evaluations: they take the same road as everybody's."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agml_assets.leaderboard.javascript import code_units, parse_json
from agml_assets.leaderboard.record_files import RecordFile
from agml_assets.store import ArtifactStore

logger = logging.getLogger(__name__)

_PLACE = "*/evaluation/*/run_record.json"


def read_own_records(store: ArtifactStore) -> dict[str, list[Any]]:
    """Return the records of all evaluations by dataset, each pointing to its predictions in the store."""
    found: dict[str, list[Any]] = {}
    for path in sorted(store.root.glob(_PLACE), key=str):
        dataset, model = path.parts[-4], path.parts[-2]
        if store.sidecar(dataset, f"evaluation/{model}/run_record.json") is None:
            continue  # unfinished: without its sidecar an artifact counts as absent
        record = parse_json(path.read_text(encoding="utf-8"))
        predictions = f"{dataset}/evaluation/{model}/predictions.parquet"
        found.setdefault(dataset, []).append({**record, "predictions": predictions})
    return found


def add_records(files: Sequence[RecordFile], own: Mapping[str, list[Any]]) -> list[RecordFile]:
    """Return the files with our own records behind theirs, in the site's order; nothing is written."""
    merged = {file.dataset: file for file in files}
    for dataset, records in own.items():
        there = merged.get(dataset, RecordFile(dataset, []))
        if isinstance(there.document, list):
            merged[dataset] = replace(there, document=[*there.document, *records])
        else:
            logger.warning(
                "%s.json holds no list of run records: %d of our own are left out until it does.",
                dataset,
                len(records),
            )
    return sorted(merged.values(), key=lambda file: code_units(file.dataset))
