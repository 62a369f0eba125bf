"""The plots of a report on models as SVG files, which stand alone: scores with intervals, means, ImageNet's part.

Of the models evaluated here; the plots in the pages, which follow filters, are drawn by the pages themselves.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from agml_assets.evaluation.report import IMAGENET
from agml_assets.evaluation.stored import model_and_kind, shown_contender
from agml_assets.evaluation.ways import FROZEN
from agml_assets.registry.yaml_files import is_key
from agml_assets.report.card_sections import bounds
from agml_assets.site.page_columns import shown

_Values = Mapping[str, Any]

FOLDER = "plots"
"""Folder of the plots, beside the pages."""

MEANS = {"mean_over_tasks": "task", "mean_over_datasets": "dataset"}
"""Means of the report that are drawn, and what they are over."""

_INK, _QUIET, _OWN, _GRID = "#1b1b1b", "#5c5c5c", "#1d5fa8", "#d9d9d9"
_WIDTH, _NAMES, _VALUES, _ROW, _TOP, _BOTTOM = 800, 270, 150, 22, 62, 44
_LONGEST = 38  # letters of a name
_LETTER = 6.6  # pixels of one, about


@dataclass(frozen=True)
class _Row:
    """A model in a list: score and limits in [0, 1]; limits are None where there is no interval."""

    name: str
    score: float
    tied: bool
    limits: tuple[float, float] | None


def plot_files(report: _Values | None) -> dict[str, str]:
    """Return the file of each plot that a report gives, relative to the pages.

    Scores are found by the key of their dataset or task; means by `*` and one of `MEANS`; ImageNet's part by
    `*imagenet`. No key of a dataset or task begins with `*`.
    """
    report = report or {}
    found = {key: f"{FOLDER}/scores_{key}.svg" for key, one in _subjects(report) if one["standings"]}
    found |= {f"*{name}": f"{FOLDER}/{name}.svg" for name in MEANS if _mean_rows(report, name)}
    return found | ({"*imagenet": f"{FOLDER}/imagenet.svg"} if _imagenet_points(report) else {})


def draw_plots(report: _Values | None) -> dict[str, str]:
    """Return the text of every plot by its file, relative to the pages; the same report gives the same bytes.

    Args:
        report: `evaluation/report.json`; None where it has not been made.
    """
    report = report or {}
    files = plot_files(report)
    drawn = {}
    for key, one in _subjects(report):
        if key in files:
            rows = _rows(report, one["standings"], {})
            said = f"{str(one['metric']).replace('_', ' ')}, {one['test_examples']:,} test examples"
            drawn[files[key]] = _dots(f"Scores on {one['display_name']}", said, rows)
    for name, kind in MEANS.items():
        if f"*{name}" in files:
            n = len(report[name][0]["tasks"]) + len(report[name][0]["missing"])
            said = f"unweighted, of the models that have {'it' if n == 1 else f'all {n}'}"
            title = f"Mean over {n} {kind}{'' if n == 1 else 's'}"
            drawn[files[f"*{name}"]] = _dots(title, said, _mean_rows(report, name))
    if "*imagenet" in files:
        drawn[files["*imagenet"]] = _scatter(_imagenet_points(report))
    return drawn


def _subjects(report: _Values) -> Iterable[tuple[str, _Values]]:
    """Return the subjects whose key can be part of a file's name, as those of the registries can."""
    return ((key, one) for key, one in (report.get("subjects") or {}).items() if is_key(key))


def _names(report: _Values) -> dict[str, str]:
    """Return the name of each model: its key where several bear one name, as they do at different resolutions."""
    models = report.get("models") or {}
    names = {name: str(one.get("display_name") or name) for name, one in models.items()}
    several = {name for name, n in Counter(names.values()).items() if n > 1}
    return {
        name: shown_contender(*model_and_kind(name)) if display in several else display
        for name, display in names.items()
    }


def _rows(report: _Values, standings: Sequence[_Values], intervals: _Values) -> list[_Row]:
    names = _names(report)
    rows = []
    for one in standings:
        limits = bounds(intervals.get(one["model"], one.get("interval")))
        name = names.get(one["model"]) or str(one["model"])
        rows.append(_Row(name, float(one["score"]), bool(one["tied"]), (limits[0], limits[1]) if limits else None))
    return rows


def _mean_rows(report: _Values, name: str) -> list[_Row]:
    means = [one for one in report.get(name) or () if one["standing"] is not None]
    standings = [{"model": one["model"], "score": one["score"], "tied": one["standing"]["tied"]} for one in means]
    return _rows(report, standings, {one["model"]: one["interval"] for one in means})


def _imagenet_points(report: _Values) -> list[tuple[str, float, float]]:
    """Return name, ImageNet accuracy and mean over tasks of every frozen model that has both."""
    names = _names(report)
    prior = (report.get("subjects") or {}).get(IMAGENET) or {"standings": ()}
    accuracy = {one["model"]: one["score"] for one in prior["standings"]}
    return [
        (names.get(one["model"]) or str(one["model"]), accuracy[one["model"]], one["score"])
        for one in report.get("mean_over_tasks") or ()
        if one["standing"] is not None and one["model"] in accuracy and model_and_kind(one["model"])[1] == FROZEN
    ]


def _dots(title: str, said: str, rows: Sequence[_Row]) -> str:
    """Draw a list of models, best first: a dot, its interval as a line, and both in numbers."""
    ends = [end for row in rows for end in (row.limits or (row.score, row.score))]
    low, high = np.floor(20 * min(ends)) / 20, np.ceil(20 * max(ends)) / 20
    low, high = (low, high) if high > low else (low - 0.05, high + 0.05)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    right = _WIDTH - _VALUES

    def at(score: float) -> str:
        return f"{_NAMES + (score - low) / (high - low) * (right - _NAMES):.1f}"

    bottom = height - _BOTTOM
    parts = []
    for tick in _ticks(low, high):
        parts.append(_line(at(tick), _TOP - 6, at(tick), bottom, _GRID))
        parts.append(_text(at(tick), bottom + 16, f"{100 * tick:g}", _QUIET, "middle"))
    legend = "Score × 100, with 95 % intervals; bold: may be as good as the best"
    parts.append(_text(_NAMES, bottom + 34, legend, _QUIET))
    for place, row in enumerate(rows):
        y = _TOP + _ROW * place + _ROW // 2
        value = f"{100 * row.score:.1f}"
        if row.limits:
            value += f" [{100 * row.limits[0]:.1f}, {100 * row.limits[1]:.1f}]"
            parts.append(_line(at(row.limits[0]), y, at(row.limits[1]), y, _OWN, 2))
        parts.append(_dot(at(row.score), y, row.name))
        parts.append(_text(_NAMES - 12, y + 4, _short(row.name), _INK, "end", bold=row.tied))
        parts.append(_text(right + 12, y + 4, value, _INK, bold=row.tied))
    return _svg(_WIDTH, height, title, said, parts)


def _scatter(points: Sequence[tuple[str, float, float]]) -> str:
    """Draw the mean over tasks against ImageNet accuracy, with the least-squares line and its R²."""
    x, y = (np.array([point[axis] for point in points]) for axis in (1, 2))
    left, right, top, bottom, height = 64, _WIDTH - 24, _TOP, 456, 500
    (x0, x1), (y0, y1) = _range(x), _range(y)

    def place(a: float, b: float) -> tuple[float, float]:
        return left + (a - x0) / (x1 - x0) * (right - left), bottom - (b - y0) / (y1 - y0) * (bottom - top)

    parts = [_line(left, bottom, right, bottom, _QUIET), _line(left, top, left, bottom, _QUIET)]
    for tick in _ticks(x0, x1):
        at = f"{place(tick, y0)[0]:.1f}"
        parts += [_line(at, bottom, at, bottom + 4, _QUIET)]
        parts += [_text(at, bottom + 18, f"{100 * tick:g}", _QUIET, "middle")]
    for tick in _ticks(y0, y1):
        y_at = place(x0, tick)[1]
        parts += [_line(left - 4, f"{y_at:.1f}", left, f"{y_at:.1f}", _QUIET)]
        parts += [_text(left - 8, f"{y_at + 4:.1f}", f"{100 * tick:g}", _QUIET, "end")]
    parts.append(_text(right, height - 8, "ImageNet-1K accuracy × 100", _INK, "end"))
    said = f"mean over tasks × 100 of {len(points)} model{'' if len(points) == 1 else 's'} on frozen features"
    if len(points) > 2 and np.ptp(x) > 1e-9 and np.ptp(y) > 1e-9:
        slope, intercept = np.polyfit(x, y, 1)
        ends = np.clip([x.min(), x.max()], x0, x1)
        if slope:  # the line ends at the frame
            ends = np.clip(ends, *sorted(((y0 - intercept) / slope, (y1 - intercept) / slope)))
        (a, b), (c, d) = (place(end, slope * end + intercept) for end in ends)
        parts.append(_line(f"{a:.1f}", f"{b:.1f}", f"{c:.1f}", f"{d:.1f}", _QUIET, 1.5))
        said += f"; least-squares line, R² = {np.corrcoef(x, y)[0, 1] ** 2:.2f}"
    places = [place(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    for (name, *_), (a, b) in zip(points, places, strict=True):
        parts.append(_dot(f"{a:.1f}", f"{b:.1f}", name))
    parts += _names_with_room([name for name, *_ in points], places, right)
    return _svg(_WIDTH, height, "ImageNet accuracy and mean over tasks", said, parts)


def _names_with_room(names: Sequence[str], places: Sequence[tuple[float, float]], right: float) -> Iterable[str]:
    """Return the names that have room beside their dots, in the order given, which is best first."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for name, (x, y) in zip(names, places, strict=True):
        text = _short(name)
        long = _LETTER * len(text)
        for start, anchor, at in ((x + 8, "start", x + 8), (x - 8 - long, "end", x - 8)):
            area = (start, y - 8, start + long, y + 7)
            inside = start >= 0 and start + long <= right
            if inside and all(
                area[2] < other[0] or area[0] > other[2] or area[3] < other[1] or area[1] > other[3]
                for other in taken
            ):
                taken.append(area)
                yield _text(f"{at:.1f}", f"{y + 4:.1f}", text, _INK, anchor)
                break


def _range(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low) or 0.05
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two ends."""
    step = 10.0 ** np.floor(np.log10((high - low) / 4))
    every = next(factor * step for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 6)
    first, last = int(np.ceil(low / every - 1e-9)), int(np.floor(high / every + 1e-9))
    return [round(number * every, 9) for number in range(first, last + 1)]


def _svg(width: int, height: int, title: str, said: str, parts: Iterable[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={quoteattr(shown(title))} '
        'font-family="sans-serif" font-size="12">',
        f"<title>{_shown(title)}</title><desc>{_shown(said)}</desc>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="16" font-weight="bold" fill="{_INK}">{_shown(title)}</text>',
        f'<text x="16" y="43" fill="{_QUIET}">{_shown(said[:1].upper() + said[1:])}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _dot(x: Any, y: Any, name: str) -> str:
    return f'<circle cx="{x}" cy="{y}" r="4.5" fill="{_OWN}"><title>{_shown(name)}</title></circle>'


def _line(x1: Any, y1: Any, x2: Any, y2: Any, colour: str, width: float = 1) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width:g}"/>'


def _text(x: Any, y: Any, text: str, colour: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}"{weight}>{_shown(text)}</text>'


def _short(name: str) -> str:
    name = shown(name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _shown(text: Any) -> str:
    return escape(shown(text))
