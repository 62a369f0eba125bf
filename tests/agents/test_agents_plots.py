"""The plots of agents: the old files' names, bars as high as the figures, the same bytes, names that stay text."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from agml_assets.agents.leaderboard import build_leaderboard
from agml_assets.agents.plots import PLOTS, draw_plot, draw_plots
from tests.agents.invented_trials import document

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def board():
    return build_leaderboard(
        [
            document([0.6, 0.6, 0.6, 0.5], of="crop", by="a"),
            document([0.6, 0.5, 0.5, "error"], of="crop", by="b"),
            document([0.9, "error", "error", "error"], of="soil", by="a"),
            document([0.5], of="none", by="b", baseline=0.0),
        ]
    )


def bars(text):
    """Return the height in points of every bar by its name, as it is drawn."""
    heights = {}
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        if group.get("id", "").startswith("bar."):
            path = group.find(f"{SVG}path").get("d")
            ys = [float(y) for _, y in re.findall(r"[ML] (\S+) (\S+)", path)]
            heights[group.get("id").removeprefix("bar.")] = max(ys) - min(ys)
    return heights


def texts(text):
    return ["".join(one.itertext()) for one in ET.fromstring(text).iter(f"{SVG}text")]


def test_the_files_bear_the_old_names_in_both_formats(board, tmp_path):
    written = draw_plots(build_leaderboard([]), tmp_path / "plots")
    old = {
        "improve_5", "improve_10", "final_improve_5", "final_improve_10", "final_improve_30", "final_improve",
        "final_improve_submitted", "total_tokens", "total_time", "tradeoff",
    }  # fmt: skip
    assert set(PLOTS) == old
    assert {path.name for path in written} == {f"{name}.{form}" for name in old for form in ("pdf", "svg")}
    assert all("Nothing to show yet" in texts(path.read_text()) for path in written if path.suffix == ".svg")


def test_bars_are_as_high_as_the_rates_and_say_how_many(board):
    drawn = draw_plot(board, "final_improve_10", "svg")
    heights = bars(drawn)
    assert set(heights) == {"crop.a", "crop.b", "soil.a"}, "nothing decides success on the last task"
    assert np.array([heights["crop.b"], heights["soil.a"]]) / heights["crop.a"] == pytest.approx(1 / 3, abs=1e-3)
    assert {"3/4", "1/4"} <= set(texts(drawn))


def test_bars_of_means_are_as_high_as_the_improvements(board):
    heights = bars(draw_plot(board, "final_improve", "svg"))
    # 15 %, 20 % of three that have a score, 80 %.
    assert heights["crop.a"] / heights["soil.a"] == pytest.approx(15 / 80, abs=1e-3)
    assert heights["crop.b"] / heights["soil.a"] == pytest.approx(20 / 3 / 80, abs=1e-3)


@pytest.mark.parametrize(("name", "form"), [("improve_5", "svg"), ("total_time", "pdf"), ("tradeoff", "svg")])
def test_the_same_leaderboard_gives_the_same_bytes(board, name, form):
    first = draw_plot(board, name, form)
    assert first == draw_plot(board, name, form)
    assert not re.search(rb"20\d\d-\d\d-\d\dT|CreationDate", first)


def test_names_stay_text_and_long_ones_are_cut():
    text = "</text><script>boom()</script>$\\frac{1}{2}$\u202e\x00"
    made = document([0.9], by="a") | {"agent_name": text, "task_name": "long_" * 40 + "end"}
    for name in ("final_improve_10", "tradeoff"):
        drawn = draw_plot(build_leaderboard([made]), name, "svg").decode()
        assert "<script" not in drawn and "\u202e" not in drawn
        assert any("…" in one and len(one) <= 28 for one in texts(drawn))
    assert draw_plot(build_leaderboard([made]), "tradeoff", "pdf").startswith(b"%PDF")


def test_an_improvement_without_measure_gets_an_axis_of_powers():
    made = [document([0.9, 0.8], by=by, baseline=1e-5) for by in ("a", "b")]
    drawn = draw_plot(build_leaderboard(made), "final_improve", "svg")
    assert "1,000,000" in texts(drawn) and not any("mathdefault" in one for one in texts(drawn))
