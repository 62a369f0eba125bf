"""`results.json` of the AgML site: the reports of all datasets in one object, keyed by short name.

A report is written as it is. Merging knows nothing of stores and datasets; the text is laid out as the published
file is, so that a merge changes no line of the reports that it keeps.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry, default_key
from agml_assets.report.artifacts import RESULT
from agml_assets.store import ArtifactStore

_INDENT, _WIDTH = 4, 80  # of the published file, which is laid out by Prettier


@dataclass(frozen=True)
class SiteResults:
    """The reports of a site.

    Attributes:
        results: Report by short name, in the published order.
        missing: Keys of registered datasets, not retired, that have no report yet.
    """

    results: dict[str, Any]
    missing: tuple[str, ...]


def build_site_results(
    registry: DatasetRegistry, store: ArtifactStore, existing: Mapping[str, Any] | None = None
) -> SiteResults:
    """Return the reports of all registered datasets that have one, merged into those of `existing`.

    Args:
        registry: The datasets, retired ones too: what was published stays.
        store: Where `result.json` of each lies, or does not yet.
        existing: A published `results.json`; reports of datasets that are not registered are kept.

    Raises:
        UserError: See `merge_results`.
    """
    names = site_names(registry)
    done = [entry for entry in registry.entries if store.sidecar(entry.key, RESULT.file) is not None]
    reports = {names[entry.key]: store.read(entry.key, RESULT.file) for entry in done}
    missing = tuple(entry.key for entry in registry.entries if entry not in done and not entry.retired)
    return SiteResults(merge_results(existing or {}, reports), missing)


def merge_results(existing: Mapping[str, Any], reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the existing reports with ours put in, or in the place of older ones of the same datasets.

    Args:
        existing: Reports by short name.
        reports: Our reports by short name.

    Returns:
        Reports by short name, ascending without regard to case.

    Raises:
        UserError: Under a short name of ours stands the dataset of another owner.
    """
    for name, report in reports.items():
        theirs, ours = existing.get(name, {}).get("dataset", name), report["dataset"]
        if theirs != ours and "/" in theirs and "/" in ours:
            raise UserError(
                f"The results hold {theirs!r} under {name!r}, which is the short name of {ours!r} too. Remove "
                "that entry, or merge into another file."
            )
    merged = {**existing, **reports}
    return {name: merged[name] for name in sorted(merged, key=lambda name: (name.lower(), name))}


def site_names(registry: DatasetRegistry) -> dict[str, str]:
    """Return, for the key of each dataset, retired ones too, the name by which the site knows it.

    That is the part of its name after the last `/`, for AgML's collections with their prefix; the key where no
    file can be called so, or another dataset goes by that, also if only the case differs.
    """
    short = {entry.key: _short_name(entry) for entry in registry.entries}
    claims = Counter(name for key, own in short.items() for name in {key.lower(), own.lower()})
    return {key: name if claims[name.lower()] == 1 else key for key, name in short.items()}


def _short_name(entry: DatasetEntry) -> str:
    name = default_key(entry.name) if entry.source == "agml" else entry.name.rpartition("/")[2]
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) else entry.key


def dump_results(results: Mapping[str, Any]) -> str:
    """Return strict JSON, laid out as the published file: indented by four, short lists on one line.

    Objects take a line for each entry. Lists take one line where they fit into 80 columns, else as many
    numbers as fit on each line, or one line for each element; lists of lists are never on one line.

    Raises:
        ValueError: A number is not finite.
    """
    return _lay_out(results, 0, 0, 0) + "\n"


def _lay_out(value: Any, level: int, before: int, after: int) -> str:
    """Return the text of a value that has `before` characters before it in its line, and `after` behind it."""
    flat = json.dumps(value, allow_nan=False)
    inner, outer = "\n" + " " * _INDENT * (level + 1), "\n" + " " * _INDENT * level
    start = _INDENT * (level + 1)
    if isinstance(value, Mapping) and value:
        last = len(value) - 1
        entries = []
        for place, (key, entry) in enumerate(value.items()):
            named = f"{json.dumps(key)}: "
            entries.append(named + _lay_out(entry, level + 1, start + len(named), place < last))
        return "{" + inner + f",{inner}".join(entries) + outer + "}"
    if not isinstance(value, list) or not value:
        return flat
    if before + len(flat) + after <= _WIDTH and not _is_broken(value):
        return flat
    if len(value) > 1 and all(isinstance(entry, int | float) and not isinstance(entry, bool) for entry in value):
        return "[" + inner + inner.join(_fill(value, _WIDTH - start)) + outer + "]"
    last = len(value) - 1
    elements = [_lay_out(entry, level + 1, start, place < last) for place, entry in enumerate(value)]
    return "[" + inner + f",{inner}".join(elements) + outer + "]"


def _is_broken(value: list[Any]) -> bool:
    """Return whether a list takes several lines whatever its length."""
    if any(isinstance(entry, Mapping) and entry for entry in value):
        return True
    if len(value) > 1 and all(isinstance(entry, list) and len(entry) > 1 for entry in value):
        return True
    return any(isinstance(entry, list) and _is_broken(entry) for entry in value)


def _fill(numbers: list[float], width: int) -> list[str]:
    """Return lines of numbers, as many on each as fit."""
    words = [json.dumps(number) + "," for number in numbers[:-1]] + [json.dumps(numbers[-1])]
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
