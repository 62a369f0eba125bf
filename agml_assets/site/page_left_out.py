"""What the pages leave out, and why: refused records, doubts about accepted ones, datasets without a report."""

from collections.abc import Mapping
from typing import Any

from agml_assets.site.page_columns import numbers, texts

_Values = Mapping[str, Any]


def left_out_data(
    board: _Values | None, run_records: _Values | None, missing: Mapping[str, str]
) -> dict[str, Any]:
    """Return four tables in columns: refused records, unranked ones, warnings, and what is missing.

    Args:
        board: `board.json` of the leaderboard, for accepted records that have no score.
        run_records: `run_records.json`.
        missing: Reason by dataset or file that the site could not show.
    """
    records = run_records or {}
    refused = records.get("refused") or ()
    unranked = (board or {}).get("unranked") or ()
    doubts = [
        (one["dataset"], one["position"], one["record"].get("model"), warning["name"], warning["message"])
        for one in records.get("accepted") or ()
        for warning in one["warnings"]
    ]
    files, positions, models, kinds, messages = zip(*doubts, strict=True) if doubts else ((),) * 5
    return {
        "refused": {
            "file": texts(f"{one['dataset']}.json" for one in refused),
            "record": numbers(one.get("position") for one in refused),
            "why": texts(one["reason"] for one in refused),
        },
        "unranked": {
            "file": texts(f"{one['dataset']}.json" for one in unranked),
            "record": numbers(one["position"] for one in unranked),
            "why": texts(one["reason"] for one in unranked),
        },
        "warnings": {
            "file": texts(f"{name}.json" for name in files),
            "record": numbers(positions),
            "model": texts(models),
            "kind": texts(kind.replace("_", " ") for kind in kinds),
            "why": texts(messages),
        },
        "missing": {"name": texts(missing), "why": texts(missing.values())},
    }
