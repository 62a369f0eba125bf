"""The plots of a leaderboard of agents as PDF and SVG: success, improvement, tokens and time, by task and agent.

Files bear the names of MLAgentBench's plots. Error bars are those of the leaderboard: Wilson's intervals of rates,
standard errors of means.
"""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agml_assets.report.card_sections import printable

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
"""Of Okabe and Ito (2008), told apart with any colour vision; grey in place of black, on which no hatch shows."""

HATCHES = ("", "///", "...", "\\\\\\", "xx", "++", "oo", "---")
"""Agents differ in pattern as well as in colour."""

MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")
"""And in the mark, where they are points."""

FORMATS = ("pdf", "svg")

_LONGEST = 28  # letters of a name
_BAR, _LEAST, _MOST, _HEIGHT = 0.22, 6.4, 60.0, 4.6  # inches
_LEGEND = 3  # names in a row
_MOST_COUNTS = 60  # bars that have room for k/n above them
_MOST_IMPROVEMENT = 1000  # percent, beyond which the axis is logarithmic
_PERCENT = 100

_Values = Mapping[str, Any]


@dataclass(frozen=True)
class _Bar:
    """Height of a bar, the ends of its error bar (None without one), and what stands above it."""

    value: float
    ends: tuple[float, float] | None
    said: str = ""


@dataclass(frozen=True)
class _Plot:
    """What a plot of bars shows: its title, the name of its axis, and the bar of a cell, or None."""

    title: str
    axis: str
    bar: Callable[[_Values], _Bar | None]


def draw_plots(leaderboard: _Values, folder: Path) -> list[Path]:
    """Write every plot as PDF and SVG and return the files; the same leaderboard gives the same bytes.

    Args:
        leaderboard: `agents/leaderboard.json`.
        folder: Made where it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in PLOTS:
        for form in FORMATS:
            path = folder / f"{name}.{form}"
            path.write_bytes(draw_plot(leaderboard, name, form))
            written.append(path)
    return written


def draw_plot(leaderboard: _Values, name: str, form: str) -> bytes:
    """Return one plot as a file; one without anything to show says so.

    Args:
        leaderboard: `agents/leaderboard.json`.
        name: Of `PLOTS`.
        form: `pdf` or `svg`.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": name,
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "text.parse_math": False,  # names are no formulas
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "hatch.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    dates = {"pdf": ("CreationDate", "Creator", "Producer"), "svg": ("Date", "Creator")}[form]
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a box stands for it
        figure = Figure(layout="constrained")
        if name == "tradeoff":
            _draw_tradeoff(figure, leaderboard)
        else:
            _draw_bars(figure, leaderboard, _BARS[name])
        out = io.BytesIO()
        figure.savefig(out, format=form, metadata=dict.fromkeys(dates))
    return out.getvalue()


def _rate(of: str, threshold: str) -> Callable[[_Values], _Bar | None]:
    def bar(cell: _Values) -> _Bar | None:
        rates = cell[of]
        if rates is None:
            return None
        one = rates[threshold]
        ends = (_PERCENT * one["low"], _PERCENT * one["high"])
        return _Bar(_PERCENT * one["rate"], ends, f"{one['successes']}/{one['n']}")

    return bar


def _mean(of: str, factor: float = 1.0) -> Callable[[_Values], _Bar | None]:
    def bar(cell: _Values) -> _Bar | None:
        one = cell[of]
        if one["mean"] is None:
            return None
        value = factor * one["mean"]
        error = one["error"]
        return _Bar(value, None if error is None else (value - factor * error, value + factor * error))

    return bar


_SHARE = "Trials, %, with 95 % intervals"
_IMPROVED = "Improvement, %, with standard errors"
_BARS = {
    **{
        f"improve_{percent}": _Plot(
            f"Trials that improve on the starter code by more than {percent} % at any step",
            _SHARE,
            _rate("best_success_at", f"0.{percent:02}"),
        )
        for percent in (5, 10)
    },
    **{
        f"final_improve_{percent}": _Plot(
            f"Trials that improve on the starter code by more than {percent} % at the end",
            _SHARE,
            _rate("success_at", f"0.{percent:02}"),
        )
        for percent in (5, 10, 30)
    },
    "final_improve": _Plot(
        "Mean improvement on the starter code, of trials with a score", _IMPROVED, _mean("improvement", _PERCENT)
    ),
    "final_improve_submitted": _Plot(
        "Mean improvement on the starter code, of trials that submitted",
        _IMPROVED,
        _mean("improvement_submitted", _PERCENT),
    ),
    "total_tokens": _Plot("Tokens of a trial", "Tokens, with standard errors", _mean("tokens")),
    "total_time": _Plot("Time of a trial", "Minutes, with standard errors", _mean("minutes")),
}

PLOTS = (*_BARS, "tradeoff")
"""Names of the plots, which are those of their files."""


def _draw_bars(figure: Any, leaderboard: _Values, plot: _Plot) -> None:
    tasks, agents = leaderboard["tasks"], sorted(leaderboard["agents"], key=lambda one: one["agent"])
    bars = {(cell["task"], cell["agent"]): plot.bar(cell) for cell in leaderboard["cells"]}
    count = len(tasks) * (len(agents) + 1)
    figure.set_size_inches(min(_MOST, max(_LEAST, 1.2 + _BAR * count)), _HEIGHT + 0.2 * -(-len(agents) // _LEGEND))
    axes = figure.subplots()
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=10)
    axes.set_ylabel(plot.axis)
    width = 1 / (len(agents) + 1)
    for place, agent in enumerate(agents):
        own = [(at, bars.get((task["task"], agent["agent"]))) for at, task in enumerate(tasks)]
        found = [(at + width * (place - (len(agents) - 1) / 2), bar) for at, bar in own if bar is not None]
        drawn = axes.bar(
            [x for x, _ in found],
            [bar.value for _, bar in found],
            0.92 * width,
            label=_named(agent["agent_name"]),
            color=COLOURS[place % len(COLOURS)],
            hatch=HATCHES[(place + place // len(COLOURS)) % len(HATCHES)],
            edgecolor="#333333",
            linewidth=0.6,
        )
        for at, rectangle in zip((at for at, bar in own if bar is not None), drawn, strict=True):
            rectangle.set_gid(f"bar.{tasks[at]['task']}.{agent['agent']}")
        for x, bar in found:
            if bar.ends is not None:
                axes.plot([x, x], bar.ends, color="#333333", linewidth=1)
            if bar.said and count <= _MOST_COUNTS:
                top = max(bar.value, *(bar.ends or (bar.value,)))
                axes.annotate(bar.said, (x, top), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    _finish(axes, tasks, agents, bars)


def _finish(
    axes: Any, tasks: Sequence[_Values], agents: Sequence[_Values], bars: Mapping[Any, _Bar | None]
) -> None:
    values = [end for bar in bars.values() if bar for end in (bar.value, *(bar.ends or ()))]
    if not values:
        axes.text(0.5, 0.5, "Nothing to show yet", transform=axes.transAxes, ha="center")
    axes.set_xticks(range(len(tasks)), [_named(task["task_name"]) for task in tasks], rotation=30, ha="right")
    axes.set_xlim(-0.6, max(len(tasks) - 0.4, 0.6))
    axes.tick_params(axis="x", length=0)
    axes.axhline(0, color="#333333", linewidth=0.8)
    if values and max(map(abs, values)) > _MOST_IMPROVEMENT and "Improvement" in axes.get_ylabel():
        axes.set_yscale("symlog", linthresh=_PERCENT)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    elif "Trials" in axes.get_ylabel():
        axes.set_ylim(0, 108)
    elif values:
        low, high = min(0.0, *values), max(0.0, *values)
        room = 0.08 * (high - low) or 1.0
        axes.set_ylim(low - room if low < 0 else 0, high + room)
    if agents:
        axes.figure.legend(loc="outside upper left", ncols=_LEGEND, frameon=False)


def _draw_tradeoff(figure: Any, leaderboard: _Values) -> None:
    """Draw what agents succeed at against the tokens that they take, both in the mean over tasks."""
    figure.set_size_inches(_LEAST, _HEIGHT + 0.2 * -(-len(leaderboard["agents"]) // _LEGEND))
    axes = figure.subplots()
    figure.suptitle("Success against tokens, in the mean over tasks", x=0.01, ha="left", fontsize=10)
    axes.set_xlabel("Tokens of a trial")
    axes.set_ylabel("Successful trials, %, with 95 % intervals")
    placed = sorted(leaderboard["agents"], key=lambda one: one["agent"])
    ranked = [(place, one) for place, one in enumerate(placed) if one["success"]]
    for place, one in ranked:
        x, y = one["tokens"]["mean"], _PERCENT * one["success"]["value"]
        low, high = (_PERCENT * one["success"]["interval"][end] for end in ("low", "high"))
        colour = COLOURS[place % len(COLOURS)]
        axes.plot([x, x], [low, high], color=colour, linewidth=1.2)
        mark, name = MARKS[place % len(MARKS)], _named(one["agent_name"])
        (dot,) = axes.plot([x], [y], mark, color=colour, markeredgecolor="#333333", markersize=7, label=name)
        dot.set_gid(f"dot.{one['agent']}")
    if ranked:
        figure.legend(loc="outside upper left", ncols=_LEGEND, frameon=False)
    if not ranked:
        axes.text(0.5, 0.5, "Nothing to show yet", transform=axes.transAxes, ha="center")
    axes.set_ylim(0, 105)
    most = max((one["tokens"]["mean"] for _, one in ranked), default=0.0)
    axes.set_xlim(-0.05 * (most or 1), 1.05 * (most or 1))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _named(name: str) -> str:
    """Return a name in one line that is not too long; both of its ends, as alike ones often differ at the end."""
    name = " ".join(printable(name).split())
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[: half - 1]}…{name[-half:]}"
