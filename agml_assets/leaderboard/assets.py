"""The leaderboard in the graph: run records of any origin in, four files without partitions out."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from blake3 import blake3

from agml_assets.errors import UserError
from agml_assets.leaderboard.outputs import (
    Source,
    board_text,
    global_text,
    index_text,
    read_source,
    run_records_text,
)
from agml_assets.leaderboard.record_files import dataset_names, performance_folder
from agml_assets.leaderboard.run_records import RunRecords, count_records
from agml_assets.recording import OWNERS, table
from agml_assets.store import PLATFORM
from agml_assets.workspace import Workspace

GROUP = "leaderboard"
FILES_GROUP = "run_records"
"""Group of the files of run records, one external asset a dataset; no job makes them."""

_RECORDS = dg.AssetKey([GROUP, "run_records"])
_ACCEPTED, _QUIET = "every_record_is_accepted", "no_record_has_a_warning"


def build_assets() -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets of this room; the files of run records are those that there are when this is called."""
    files = [
        dg.AssetSpec(
            ["run_records", key],
            description=f"Run records on {name}.",
            group_name=FILES_GROUP,
            kinds={"json"},
            owners=OWNERS,
        )
        for name, key in external_keys(dataset_names(performance_folder())).items()
    ]

    @_leaderboard_asset(
        "run_records",
        "Every run record of the folder, accepted or refused, with what is odd about it.",
        deps=files,
        check_specs=[
            dg.AssetCheckSpec(_ACCEPTED, asset=_RECORDS, description="No run record and no file is refused."),
            dg.AssetCheckSpec(_QUIET, asset=_RECORDS, description="Nothing is odd about an accepted run record."),
        ],
    )
    def run_records(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Check every record of every file."""
        with _read(workspace) as source:
            counts = {f"{name}_count": float(n) for name, n in count_records(source.records).items()}
            facts = {"files_count": float(len(source.files)), **counts}
            return _written(workspace, "run_records", run_records_text(source), facts, _checks(source.records))

    @_leaderboard_asset("index", "The datasets that have run records, as the site reads them.", deps=[_RECORDS])
    def index(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Write the names byte for byte as the site's generator does."""
        with _read(workspace) as source:
            text = index_text(source)
            return _written(workspace, "index", text, _summarise_index(json.loads(text)))

    @_leaderboard_asset(
        "global", "The best runs of all models on all datasets, as the site reads them.", deps=[_RECORDS]
    )
    def global_board(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Write the entries byte for byte as the site's generator does."""
        with _read(workspace) as source:
            text = global_text(source)
            return _written(workspace, "global", text, _summarise_global(json.loads(text)))

    @_leaderboard_asset(
        "board",
        "Models ranked with ties, coverage, intervals and critical differences, zero-shot and fine-tuned apart.",
        deps=[_RECORDS],
    )
    def board(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Compare what may be compared, from the accepted records."""
        with _read(workspace) as source:
            text = board_text(source)
            return _written(workspace, "board", text, _summarise_board(json.loads(text)))

    return [*files, run_records, index, global_board, board]


def external_keys(names: Sequence[str]) -> dict[str, str]:
    """Return a key for each file: its name, with `_` for what Dagster does not take, and no two alike."""
    keys = {name: re.sub(r"[^A-Za-z0-9_-]", "_", name) for name in names}
    claims = Counter(_input_name(key) for key in keys.values())
    return {
        name: key
        if claims[_input_name(key)] == 1
        else f"{key}_{blake3(name.encode(errors='surrogateescape')).hexdigest()[:8]}"
        for name, key in keys.items()
    }


def _input_name(key: str) -> str:
    return key.replace("-", "_")  # as Dagster calls a dependency on it


def _leaderboard_asset(
    name: str, description: str, **others: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    return dg.asset(
        key=[GROUP, name],
        description=description,
        group_name=GROUP,
        code_version="2",
        kinds={"json"},
        owners=OWNERS,
        **others,
    )


@contextmanager
def _read(workspace: Workspace) -> Iterator[Source]:
    """Read the folder of run records and our own evaluations'; a user's mistake is a permanent failure."""
    try:
        yield read_source(store=workspace.store)
    except UserError as error:
        raise dg.Failure(error.message, allow_retries=False) from None


def _written(
    workspace: Workspace,
    name: str,
    text: str,
    facts: dict[str, Any],
    checks: Sequence[dg.AssetCheckResult] = (),
) -> dg.MaterializeResult:
    path = workspace.store.path(PLATFORM, f"leaderboard/{name}.json")
    workspace.store.write_text(path, text)
    return dg.MaterializeResult(
        metadata={
            **facts,
            "size_mb": round(len(text.encode()) / 1e6, 3),
            "path": dg.MetadataValue.path(str(path)),
        },
        data_version=dg.DataVersion(blake3(text.encode()).hexdigest()),
        check_results=checks,
    )


def _summarise_index(names: Sequence[str]) -> dict[str, Any]:
    return {"datasets_count": float(len(names)), "datasets": table(("dataset",), [(name,) for name in names])}


def _summarise_global(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [(one["dataset"], one["model"], one["variant"], one.get("scores")) for one in entries]
    return {"rows_count": float(len(rows)), "rows": table(("dataset", "model", "variant", "scores"), rows)}


def _summarise_board(board: Mapping[str, Any]) -> dict[str, Any]:
    headings = (
        "task",
        "variant",
        "metric",
        "shared datasets",
        "average rank of each model",
        "critical difference",
    )
    rows = []
    for one in board["comparisons"]:
        for ranking in one["rankings"]:
            ranks = ", ".join(f"{model} {rank:.2f}" for model, rank in ranking["average_ranks"].items())
            datasets, difference = len(ranking["datasets"]), ranking["critical_difference"]
            rows.append((one["task"], one["variant"], one["label"], datasets, ranks, difference))
    counts = {f"{name}_count": float(n) for name, n in board["counts"].items()}
    return {**counts, "rankings_count": float(len(rows)), "rankings": table(headings, rows)}


def _checks(records: RunRecords) -> list[dg.AssetCheckResult]:
    """Return a warning with the list for refused records, and one for accepted ones with warnings."""
    odd = [
        (f"{one.dataset}.json", one.position, w.name, w.message) for one in records.accepted for w in one.warnings
    ]
    kinds = Counter(name for _, _, name, _ in odd)
    refused = [(one.where, one.reason) for one in records.refused]
    return [
        _check(_ACCEPTED, "refused", refused, ("where", "why"), {}),
        _check(_QUIET, "warnings", odd, ("file", "record", "warning", "message"), {"kinds": dict(kinds)}),
    ]


def _check(
    name: str, what: str, rows: Sequence[tuple[Any, ...]], headings: tuple[str, ...], facts: dict[str, Any]
) -> dg.AssetCheckResult:
    listed = {what: table(headings, rows), **facts} if rows else {}
    return dg.AssetCheckResult(
        asset_key=_RECORDS,
        check_name=name,
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={f"{what}_count": float(len(rows)), **listed},
    )
