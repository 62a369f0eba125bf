"""Run records of this platform's own model evaluations: they take the same road as everybody's."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agml_assets.evaluation.stored import file_of, find_results
from agml_assets.leaderboard.javascript import code_units, parse_json
from agml_assets.leaderboard.record_files import RecordFile
from agml_assets.store import ArtifactStore

logger = logging.getLogger(__name__)

_PLACES = (("*/evaluation/*/run_record.json", 2), ("*/evaluation/*/*/run_record.json", 3))
"""Where records lie, and which part of the path, from its end, is the model."""


def read_own_records(store: ArtifactStore) -> dict[str, list[Any]]:
    """Return the records of all evaluations by dataset, each pointing to its predictions in the store."""
    found: dict[str, list[Any]] = {}
    for dataset, model in _pairs(store):
        # Without its sidecar an artifact counts as absent: it is not finished.
        for place in find_results(store, dataset, model, "run_record").values():
            path = store.path(dataset, file_of(place, "run_record"))
            record = parse_json(path.read_text(encoding="utf-8"))
            predictions = f"{dataset}/{file_of(place, 'predictions')}"
            found.setdefault(dataset, []).append({**record, "predictions": predictions})
    return found


def _pairs(store: ArtifactStore) -> list[tuple[str, str]]:
    """Return every dataset and model of which a run record is stored, of any kind."""
    places = (
        (path.parts[-model - 2], path.parts[-model])
        for pattern, model in _PLACES
        for path in store.root.glob(pattern)
    )
    return sorted(set(places))


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
