"""What two benchmarks of the same images must have in common: everything but the day."""

import json
from pathlib import Path
from typing import Any

from upath import UPath


def artifacts(folder: UPath | Path) -> dict[str, Any]:
    """Return the content of every artifact of a dataset, by its place in the dataset's folder.

    Of `result.json` without its date, of the card, which shows it, the length; of sidecars no time.
    """
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*"), key=str):
        name = str(path).removeprefix(str(folder)).strip("/")
        if not path.is_file() or name.startswith(".work/"):
            continue
        content: Any = path.read_bytes()
        if name.endswith(".json"):
            content = json.loads(content)
        if name == "result.json":
            content["date"] = None
        if name.endswith(".meta.json"):
            of_day = {"result.json", "report/card.html"}
            dropped = {"finished_at", "duration_s"}
            if name.removesuffix(".meta.json") in of_day:
                dropped |= {"digest", "bytes"}
            content = {key: value for key, value in content.items() if key not in dropped}
        if name == "report/card.html":
            content = len(content)
        found[name] = content
    return found


def different(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of the artifacts that differ, for messages a person can read."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def unfinished(*roots: Path) -> list[str]:
    """Return temporary files below the roots."""
    return [str(path) for root in roots for path in root.rglob("*") if path.suffix in (".tmp", ".partial")]
