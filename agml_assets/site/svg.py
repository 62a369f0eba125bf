"""Plain SVG: axes, dots, lines and names that find room. What is drawn is told in the modules that call this one.

Files stand alone and are meant for paper: white, sans-serif, without scripts or styles.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from jaxtyping import Float

from agml_assets.site.page_columns import shown

FOLDER = "plots"
"""Folder of the plots, beside the pages."""

INK, QUIET, OWN, GRID = "#1b1b1b", "#5c5c5c", "#1d5fa8", "#d9d9d9"
WIDTH, TOP, LETTER = 800, 62, 6.6  # pixels; those of a letter about
_LONGEST = 38  # letters of a name

Place = Callable[[float, float], tuple[float, float]]


def frame(
    box: tuple[float, float, float, float],
    x: tuple[tuple[float, float], Iterable[tuple[float, str]]],
    y: tuple[tuple[float, float], Iterable[tuple[float, str]]],
) -> tuple[Place, list[str]]:
    """Return where a point lies, and two axes with their ticks.

    Args:
        box: Left, right, top and bottom, in pixels.
        x: Ends of the axis, and value and text of each tick.
        y: Likewise.
    """
    left, right, top, bottom = box
    ((x0, x1), x_ticks), ((y0, y1), y_ticks) = x, y

    def place(a: float, b: float) -> tuple[float, float]:
        return left + (a - x0) / (x1 - x0) * (right - left), bottom - (b - y0) / (y1 - y0) * (bottom - top)

    parts = [line(left, bottom, right, bottom, QUIET), line(left, top, left, bottom, QUIET)]
    for tick, said in x_ticks:
        at = f"{place(tick, y0)[0]:.1f}"
        parts += [line(at, bottom, at, bottom + 4, QUIET), text(at, bottom + 18, said, QUIET, "middle")]
    for tick, said in y_ticks:
        y_at = place(x0, tick)[1]
        parts += [line(left - 4, f"{y_at:.1f}", left, f"{y_at:.1f}", QUIET)]
        parts += [text(left - 8, f"{y_at + 4:.1f}", said, QUIET, "end")]
    return place, parts


def names_with_room(names: Sequence[str], places: Sequence[tuple[float, float]], right: float) -> Iterable[str]:
    """Return the names that have room beside their dots, in the order given, which is best first."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for name, (x, y) in zip(names, places, strict=True):
        said = short(name)
        long = LETTER * len(said)
        for start, anchor, at in ((x + 8, "start", x + 8), (x - 8 - long, "end", x - 8)):
            area = (start, y - 8, start + long, y + 7)
            inside = start >= 0 and start + long <= right
            if inside and all(
                area[2] < other[0] or area[0] > other[2] or area[3] < other[1] or area[1] > other[3]
                for other in taken
            ):
                taken.append(area)
                yield text(f"{at:.1f}", f"{y + 4:.1f}", said, INK, anchor)
                break


def limits(values: Float[np.ndarray, " n"], least: float = 0.0) -> tuple[float, float]:
    """Return ends of an axis with room around the values, at least so much."""
    low, high = float(values.min()), float(values.max())
    room = max(0.06 * (high - low), least) or 0.05
    return low - room, high + room


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two ends."""
    step = 10.0 ** np.floor(np.log10((high - low) / 4))
    every = next(factor * step for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 6)
    first, last = int(np.ceil(low / every - 1e-9)), int(np.floor(high / every + 1e-9))
    return [float(f"{number * every:.12g}") for number in range(first, last + 1)]


def drawing(width: int, height: int, title: str, said: str, parts: Iterable[str]) -> str:
    """Return the text of a file: title, what is shown in a sentence, and the parts."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={quoteattr(shown(title))} '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escaped(title)}</title><desc>{escaped(said)}</desc>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="16" font-weight="bold" fill="{INK}">{escaped(title)}</text>',
        f'<text x="16" y="43" fill="{QUIET}">{escaped(said[:1].upper() + said[1:])}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def dot(x: Any, y: Any, name: str, radius: float = 4.5) -> str:
    """Return a point that says its name."""
    return f'<circle cx="{x}" cy="{y}" r="{radius:g}" fill="{OWN}"><title>{escaped(name)}</title></circle>'


def line(x1: Any, y1: Any, x2: Any, y2: Any, colour: str, width: float = 1) -> str:
    """Return a line between two points."""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width:g}"/>'


def text(x: Any, y: Any, said: str, colour: str, anchor: str = "start", *, bold: bool = False) -> str:
    """Return a text; `anchor` is its start, middle or end."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}"{weight}>{escaped(said)}</text>'


def short(name: str) -> str:
    """Return a name that is not too long for a plot; alike ones often differ at the end, so both ends are kept."""
    name, half = shown(name), _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[: half - 1]}…{name[-half:]}"


def escaped(text: Any) -> str:
    """Return a text that is no markup and obeys no direction."""
    return escape(shown(text))
