"""The catalogue of datasets as the pages show it: what each is, how good its data are, where its card lies.

Scores come from the reports as they are; a report without scores, such as the published ones, is scored here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agml_assets.leaderboard.catalogue import CatalogueEntry
from agml_assets.leaderboard.javascript import collation_key
from agml_assets.quality.calibrated_score import calibrated_score
from agml_assets.quality.score import WEIGHTS, score
from agml_assets.registry.datasets import default_key
from agml_assets.report.card_sections import bounds
from agml_assets.site.page_columns import lists, number, numbers, texts, web_address

_Values = Mapping[str, Any]
_NO_REPORT = "No report: its quality was not measured."


def catalogue_data(
    entries: Iterable[CatalogueEntry],
    reports: _Values,
    cards: Mapping[str, str],
    runs: Mapping[str, int],
) -> dict[str, Any]:
    """Return every dataset that anything is known of, by name.

    Args:
        entries: The catalogue; a dataset that only has a report, a card or runs is added to it.
        reports: Report by name, as in `results.json` of the site.
        cards: Address of the card by name, relative to the pages.
        runs: Number of runs by name.

    Returns:
        Columns of equal length. `published` and `calibrated` hold, for each dataset, the score and low and high of
        its interval or range, or a text that says why there is none; `axes` the published score of each axis in
        the order of `axis_names`, null where it is not measured.
    """
    known = {entry.name: entry for entry in entries}
    # Parts of a collection are called `iNatAg/maize` in the catalogue, and their files `iNatAg__maize`.
    of_files = {default_key(name): name for name in known if "/" in name}
    reports = {of_files.get(name, name): report for name, report in reports.items()}
    cards = {of_files.get(name, name): card for name, card in cards.items()}
    others = {*reports, *cards, *runs} - known.keys()
    known |= {name: CatalogueEntry(name, source="not in the catalogue") for name in others}
    listed = sorted(known.values(), key=lambda entry: collation_key(entry.name))
    scores = [_quality(reports.get(entry.name)) for entry in listed]
    return {
        "name": texts(entry.name for entry in listed)["texts"],
        "source": texts(entry.source for entry in listed),
        "task": texts(entry.machine_learning_task for entry in listed),
        "ag": texts(entry.agricultural_task for entry in listed),
        "crops": lists(entry.crop_types for entry in listed),
        "place": texts(", ".join(entry.locations) or None for entry in listed),
        "license": texts(entry.license for entry in listed),
        "images": numbers(entry.num_images for entry in listed),
        "parent": texts(entry.parent_dataset if entry.is_child else None for entry in listed),
        "hub": texts(web_address(entry.hf_link) for entry in listed),
        "more": texts(web_address(entry.documentation) for entry in listed),
        "runs": [runs.get(entry.name, 0) for entry in listed],
        "card": texts(cards.get(entry.name) for entry in listed),
        "date": texts(_text(reports.get(entry.name), "date") for entry in listed),
        "reasons": (reasons := _Reasons()).texts,
        "published": [reasons.place(published) for published, _, _ in scores],
        "calibrated": [reasons.place(calibrated) for _, calibrated, _ in scores],
        "axis_names": list(WEIGHTS),
        "axes": [axes for _, _, axes in scores],
    }


class _Reasons:
    """Reasons, each once; a score that cannot be given is the place of its reason."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def place(self, value: list[float | None] | str) -> list[float | None] | int:
        if not isinstance(value, str):
            return value
        if value not in self.texts:
            self.texts.append(value)
        return self.texts.index(value)


def _quality(report: Any) -> tuple[list[float | None] | str, list[float | None] | str, list[float | None]]:
    """Return the published and the calibrated score with their limits, or why not, and the published axes."""
    if not isinstance(report, Mapping):
        return _NO_REPORT, _NO_REPORT, []
    scored = _scored(report)
    intervals = scored.get("intervals") or {}
    of_axes = scored.get("axes") or {}
    own = scored.get("calibrated") or {}
    published = _published(scored, intervals.get(scored.get("formula")) or {})
    axes = [number(of_axes.get(axis), 1) for axis in WEIGHTS]
    return published, _calibrated(own, intervals.get(own.get("formula")) or {}), axes


def _scored(report: _Values) -> _Values:
    if isinstance(report.get("score"), Mapping):
        scored: _Values = report["score"]
        return scored
    given = report.get("metrics")
    metrics = {k: v for k, v in given.items() if isinstance(v, Mapping)} if isinstance(given, Mapping) else {}
    phases = report.get("phases_completed")
    completed: Sequence[Any] = phases if isinstance(phases, list) else ()
    return {**score(metrics, completed), "calibrated": calibrated_score(metrics, honest=True)}


def _published(scored: _Values, intervals: _Values) -> list[float | None] | str:
    overall = number(scored.get("overall"), 1)
    if overall is None:
        return _why(scored)
    limits = bounds(intervals.get("overall"))
    return [overall, *(number(limit, 1) for limit in limits)] if limits else [overall]


def _calibrated(own: _Values, intervals: _Values) -> list[float | None] | str:
    """Return the score, and its interval; or low and high of the range, where an axis is not measured."""
    whole = bounds(own.get("overall"))
    if whole is None or not any(value is not None for value in (own.get("axes") or {}).values()):
        return _why(own)
    low, high = whole
    if low != high:
        return [None, number(low, 1), number(high, 1)]
    limits = bounds(intervals.get("overall"))
    return [number(low, 1), *(number(limit, 1) for limit in limits)] if limits else [number(low, 1)]


def _why(scored: _Values) -> str:
    unavailable = scored.get("unavailable")
    reasons = dict.fromkeys(map(str, unavailable.values())) if isinstance(unavailable, Mapping) else {}
    return " ".join(reasons) or "The report does not say why."


def _text(report: Any, key: str) -> str | None:
    value = report.get(key) if isinstance(report, Mapping) else None
    return value if isinstance(value, str) else None
