"""The plots of a report on models as SVG files, which stand alone: scores with intervals, means, ImageNet's part.

Of the models evaluated here; the plots in the pages, which follow filters, are drawn by the pages themselves.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agml_assets.evaluation.report import IMAGENET
from agml_assets.evaluation.stored import model_and_kind, shown_contender
from agml_assets.evaluation.ways import FROZEN
from agml_assets.registry.yaml_files import is_key
from agml_assets.report.card_sections import bounds
from agml_assets.site import svg

_Values = Mapping[str, Any]

MEANS = {"mean_over_tasks": "task", "mean_over_datasets": "dataset"}
"""Means of the report that are drawn, and what they are over."""

_NAMES, _VALUES, _ROW, _BOTTOM = 270, 150, 22, 44  # pixels


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
    found = {key: f"{svg.FOLDER}/scores_{key}.svg" for key, one in _subjects(report) if one["standings"]}
    found |= {f"*{name}": f"{svg.FOLDER}/{name}.svg" for name in MEANS if _mean_rows(report, name)}
    return found | ({"*imagenet": f"{svg.FOLDER}/imagenet.svg"} if _imagenet_points(report) else {})


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
    height = svg.TOP + _ROW * len(rows) + _BOTTOM
    right = svg.WIDTH - _VALUES

    def at(score: float) -> str:
        return f"{_NAMES + (score - low) / (high - low) * (right - _NAMES):.1f}"

    bottom = height - _BOTTOM
    parts = []
    for tick in svg.ticks(low, high):
        parts.append(svg.line(at(tick), svg.TOP - 6, at(tick), bottom, svg.GRID))
        parts.append(svg.text(at(tick), bottom + 16, f"{100 * tick:g}", svg.QUIET, "middle"))
    legend = "Score × 100, with 95 % intervals; bold: may be as good as the best"
    parts.append(svg.text(_NAMES, bottom + 34, legend, svg.QUIET))
    for place, row in enumerate(rows):
        y = svg.TOP + _ROW * place + _ROW // 2
        value = f"{100 * row.score:.1f}"
        if row.limits:
            value += f" [{100 * row.limits[0]:.1f}, {100 * row.limits[1]:.1f}]"
            parts.append(svg.line(at(row.limits[0]), y, at(row.limits[1]), y, svg.OWN, 2))
        parts.append(svg.dot(at(row.score), y, row.name))
        parts.append(svg.text(_NAMES - 12, y + 4, svg.short(row.name), svg.INK, "end", bold=row.tied))
        parts.append(svg.text(right + 12, y + 4, value, svg.INK, bold=row.tied))
    return svg.drawing(svg.WIDTH, height, title, said, parts)


def _scatter(points: Sequence[tuple[str, float, float]]) -> str:
    """Draw the mean over tasks against ImageNet accuracy, with the least-squares line and its R²."""
    x, y = (np.array([point[axis] for point in points]) for axis in (1, 2))
    left, right, top, bottom, height = 64, svg.WIDTH - 24, svg.TOP, 456, 500
    (x0, x1), (y0, y1) = svg.limits(x), svg.limits(y)
    axes = [((low, high), [(tick, f"{100 * tick:g}") for tick in svg.ticks(low, high)]) for low, high in
            ((x0, x1), (y0, y1))]  # fmt: skip
    place, parts = svg.frame((left, right, top, bottom), *axes)
    parts.append(svg.text(right, height - 8, "ImageNet-1K accuracy × 100", svg.INK, "end"))
    said = f"mean over tasks × 100 of {len(points)} model{'' if len(points) == 1 else 's'} on frozen features"
    if len(points) > 2 and np.ptp(x) > 1e-9 and np.ptp(y) > 1e-9:
        slope, intercept = np.polyfit(x, y, 1)
        ends = np.clip([x.min(), x.max()], x0, x1)
        if slope:  # the line ends at the frame
            ends = np.clip(ends, *sorted(((y0 - intercept) / slope, (y1 - intercept) / slope)))
        (a, b), (c, d) = (place(end, slope * end + intercept) for end in ends)
        parts.append(svg.line(f"{a:.1f}", f"{b:.1f}", f"{c:.1f}", f"{d:.1f}", svg.QUIET, 1.5))
        said += f"; least-squares line, R² = {np.corrcoef(x, y)[0, 1] ** 2:.2f}"
    places = [place(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    for (name, *_), (a, b) in zip(points, places, strict=True):
        parts.append(svg.dot(f"{a:.1f}", f"{b:.1f}", name))
    parts += svg.names_with_room([name for name, *_ in points], places, right)
    return svg.drawing(svg.WIDTH, height, "ImageNet accuracy and mean over tasks", said, parts)
