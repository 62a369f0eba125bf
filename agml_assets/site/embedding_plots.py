"""The plots of compressed embeddings as SVG files: score against bytes, and the predictions of each submission.

The same figures as on the pages, which draw them anew for what is chosen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agml_assets.registry.yaml_files import is_key
from agml_assets.report.card_sections import bounds, cividis
from agml_assets.site import svg
from agml_assets.site.prediction_figures import MOST_CLASSES, Confusion, Parity, predictions_of

_Values = Mapping[str, Any]
_CELL, _MARGIN, _LEAST = 46, 180, 0.35  # pixels; pixels; powers of ten beside a value


def plot_files(
    leaderboard: _Values | None, runs: Mapping[str, tuple[_Values, _Values]] | None = None
) -> dict[Any, str]:
    """Return the file of each plot, relative to the pages: by phase, and by submission and task.

    A task whose name cannot be part of a file's name, or whose matrix would not fit, has none.
    """
    files: dict[Any, str] = {
        phase: f"{svg.FOLDER}/embeddings_{phase}.svg"
        for phase, board in ((leaderboard or {}).get("phases") or {}).items()
        if board["standings"] and is_key(phase)
    }
    for key, (_, scores) in (runs or {}).items():
        for task in scores.get("tasks") or ():
            if is_key(key) and is_key(task["task"]) and len(task["class_names"]) <= MOST_CLASSES:
                files[key, task["task"]] = f"{svg.FOLDER}/predictions_{key}.{task['task']}.svg"
    return files


def draw_plots(leaderboard: _Values | None, runs: Mapping[str, tuple[_Values, _Values]]) -> dict[str, str]:
    """Return the text of every plot by its file; the same documents give the same bytes.

    Args:
        leaderboard: `compression/leaderboard.json`; None where it has not been made.
        runs: By submission: what `summary` and `task_scores` hold.
    """
    files = plot_files(leaderboard, runs)
    drawn = {}
    for phase, board in ((leaderboard or {}).get("phases") or {}).items():
        if phase in files:
            drawn[files[phase]] = _sizes(phase, board)
    for key, (summary, scores) in runs.items():
        for task in scores.get("tasks") or ():
            if (key, task["task"]) in files:
                title = f"{svg.short(summary.get('display_name') or key)}: {svg.short(task['task'])}"
                drawn[files[key, task["task"]]] = _predictions(title, task)
    return drawn


def _sizes(phase: str, board: _Values) -> str:
    """Draw what is kept against the bytes of an embedding, on a logarithmic axis."""
    standings = board["standings"]
    x = np.log10([one["bytes_per_embedding"] for one in standings])
    y = np.array([one["mean"]["value"] for one in standings])
    reach = [bounds(one["mean"]["interval"]) for one in standings]
    ends = np.array([*y, *(end for one in reach if one for end in one)])
    (x0, x1), (y0, y1) = svg.limits(x, _LEAST), svg.limits(ends)
    place, parts = svg.frame(
        (64, svg.WIDTH - 24, svg.TOP, 456),
        ((x0, x1), [(tick, f"{10**tick:,.4g}") for tick in powers(x0, x1)]),
        ((y0, y1), [(tick, f"{100 * tick:g}") for tick in svg.ticks(y0, y1)]),
    )
    parts.append(svg.text(svg.WIDTH - 24, 492, "Bytes per embedding, log scale", svg.INK, "end"))
    places = [place(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    for one, (a, _) in zip(reach, places, strict=True):
        if one:
            low, high = (f"{place(0, end)[1]:.1f}" for end in one)
            parts.append(svg.line(f"{a:.1f}", low, f"{a:.1f}", high, svg.OWN))
    names = [one["display_name"] for one in standings]
    parts += [svg.dot(f"{a:.1f}", f"{b:.1f}", name) for name, (a, b) in zip(names, places, strict=True)]
    parts += svg.names_with_room(names, places, svg.WIDTH - 24)
    n = len(board["weights"])
    said = f"mean kept × 100 over {n} task{'' if n == 1 else 's'}, with 95 % intervals"
    return svg.drawing(svg.WIDTH, 500, f"What embeddings keep: {phase}", said, parts)


def powers(low: float, high: float) -> list[float]:
    """Return logarithms of round numbers between two logarithms: powers of ten, and 2, 5 where these are few."""
    factors = (1,) if high - low > 1.5 else (1, 2, 5)
    found = [
        power + float(np.log10(factor))
        for power in range(int(np.floor(low)), int(np.ceil(high)) + 1)
        for factor in factors
    ]
    return [one for one in found if low <= one <= high]


def _predictions(title: str, task: _Values) -> str:
    figure = predictions_of(task)
    if isinstance(figure, Confusion):
        return _matrix(title, figure)
    assert isinstance(figure, Parity), "only these have a file"
    return _parity(title, figure)


def _parity(title: str, figure: Parity) -> str:
    """Draw predictions against true values, an output a panel, with the line on which both are equal."""
    side, parts = 420, []
    for number, points in enumerate(figure.points):
        values = np.array(points)
        low, high = svg.limits(values.ravel())
        ticks = [(tick, f"{tick:g}") for tick in svg.ticks(low, high)]
        left, top = 84 + (number % 2) * (side + 84), svg.TOP + (number // 2) * (side + 70)
        box = (left, left + side, top, top + side)
        place, axes = svg.frame(box, ((low, high), ticks), ((low, high), ticks))
        (a, b), (c, d) = place(low, low), place(high, high)
        parts += [*axes, svg.line(f"{a:.1f}", f"{b:.1f}", f"{c:.1f}", f"{d:.1f}", svg.QUIET)]
        for true, predicted in points:
            x, y = place(true, predicted)
            parts.append(svg.dot(f"{x:.1f}", f"{y:.1f}", f"{true:g}, predicted {predicted:g}", 2.5))
        of = f", output {figure.outputs[number]}" if figure.outputs else ""
        parts.append(svg.text(left + side, top + side + 38, f"True{of}", svg.INK, "end"))
        parts.append(svg.text(left + 6, top + 10, "Predicted, out of fold", svg.INK))
    said = f"{_some(figure)}; line: predicted = true"
    columns, rows = min(2, len(figure.points)), (len(figure.points) + 1) // 2
    return svg.drawing(84 + columns * (side + 84), svg.TOP + rows * (side + 70), title, said, parts)


def _some(figure: Parity) -> str:
    drawn = len(figure.points[0])
    return f"{drawn:,} of {figure.n:,} samples, evenly spaced" if drawn < figure.n else f"{figure.n:,} samples"


def _matrix(title: str, figure: Confusion) -> str:
    """Draw counts by true and predicted class, shaded by the share of the row."""
    top, parts = svg.TOP + 60, []
    for column, name in enumerate(_labels(figure.classes)):
        parts.append(svg.text(_MARGIN + _CELL * column + _CELL / 2, top - 8, name, svg.INK, "middle"))
    parts.append(svg.text(_MARGIN, top - 28, "Predicted, out of fold", svg.QUIET))
    for row, (name, counts) in enumerate(zip(figure.classes, figure.counts, strict=True)):
        y, total = top + _CELL * row, max(sum(counts), 1)
        number = "" if _labels(figure.classes) == figure.classes else f"{row + 1}. "
        label = f"{number}{name}"
        label = label if len(label) <= 26 else f"{label[:25]}…"
        parts.append(svg.text(_MARGIN - 10, y + _CELL / 2 + 4, label, svg.INK, "end"))
        for column, count in enumerate(counts):
            back, ink = cividis(count / total)
            x = _MARGIN + _CELL * column
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" fill="{back if count else "#fff"}"/>'
            )
            if count:
                parts.append(svg.text(x + _CELL / 2, y + _CELL / 2, f"{count:,}", ink, "middle"))
                share = f"{100 * count / total:.0f} %" if count / total >= 0.01 else "< 1 %"
                parts.append(svg.text(x + _CELL / 2, y + _CELL / 2 + 14, share, ink, "middle"))
    side = _CELL * len(figure.classes)
    parts += [svg.line(_MARGIN, top + end, _MARGIN + side, top + end, svg.QUIET) for end in (0, side)]
    parts += [svg.line(_MARGIN + end, top, _MARGIN + end, top + side, svg.QUIET) for end in (0, side)]
    said = f"{figure.n:,} samples; rows: true class; counts, and share of the row"
    return svg.drawing(max(_MARGIN + side + 24, 480), top + side + 24, title, said, parts)


def _labels(classes: Sequence[str]) -> tuple[str, ...]:
    """Return what stands above the columns: the names where all are short, else the numbers of the rows."""
    short = all(len(name) <= 5 for name in classes)
    return tuple(classes) if short else tuple(str(place + 1) for place in range(len(classes)))
