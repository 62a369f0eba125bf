"""The plots of a report as files: every score and its interval where they belong, and nothing but a picture."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from scipy.stats import linregress

from agml_assets.site.page_models import models_data
from agml_assets.site.page_sources import remove_old_plots
from agml_assets.site.plots import draw_plots, plot_files
from agml_assets.store import ArtifactStore
from tests.site import invented_models

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report():
    return invented_models.results().report


@pytest.fixture(scope="module")
def plots(report):
    return {file: ET.fromstring(text) for file, text in draw_plots(report).items()}


def texts(plot):
    return [element.text for element in plot.iter(f"{SVG}text")]


def values(plot):
    """Return score and limits × 100 of each row, as written, best first."""
    found = (re.fullmatch(r"(\d+\.\d) \[(\d+\.\d), (\d+\.\d)\]", text) for text in texts(plot))
    return [tuple(map(float, one.groups())) for one in found if one]


def dots(plot):
    return np.array([[float(dot.get("cx")), float(dot.get("cy"))] for dot in plot.iter(f"{SVG}circle")])


def names(plot):
    return [dot.find(f"{SVG}title").text for dot in plot.iter(f"{SVG}circle")]


def shown_name(report, model):
    """Return the name of a model, or its key where another bears the name."""
    display = [one["display_name"] for one in report["models"].values()]
    name = report["models"][model]["display_name"]
    return model if display.count(name) > 1 else name


def test_each_task_and_dataset_each_mean_and_imagenet_have_a_file(report, plots):
    expected = {f"plots/scores_{key}.svg" for key in report["subjects"]}
    means = {"plots/mean_over_tasks.svg", "plots/mean_over_datasets.svg"}
    assert set(plots) == set(plot_files(report).values()) == expected | means | {"plots/imagenet.svg"}
    assert draw_plots(None) == draw_plots({}) == {}


def test_scores_are_written_and_stand_with_their_intervals_where_the_scale_says(report, plots):
    for key, subject in report["subjects"].items():
        plot = plots[f"plots/scores_{key}.svg"]
        shown = [(100 * one["score"], 100 * one["interval"]["low"], 100 * one["interval"]["high"]) for one in
                 subject["standings"]]  # fmt: skip
        np.testing.assert_allclose(values(plot), shown, atol=0.0501)
        assert len(set(names(plot))) == len(subject["standings"])
        assert names(plot) == [shown_name(report, one["model"]) for one in subject["standings"]]
        # Dots and ends of lines lie on the one line from scores to places that the ticks give.
        ticks = [(float(t.get("x")), float(t.text)) for t in plot.iter(f"{SVG}text") if t.text.isdigit()]
        (x0, s0), (x1, s1) = ticks[0], ticks[-1]
        reach = [line for line in plot.iter(f"{SVG}line") if line.get("stroke-width") == "2"]
        assert len(reach) == len(shown)
        ends = [[float(line.get(end)) for end in ("x1", "x2")] for line in reach]
        placed = np.column_stack([dots(plot)[:, 0], ends])
        scores = s0 + (placed - x0) / (x1 - x0) * (s1 - s0)
        np.testing.assert_allclose(scores, shown, atol=0.02)


def test_bold_names_are_the_tied_models(report, plots):
    subject = report["subjects"]["beluga"]
    bold = {t.text for t in plots["plots/scores_beluga.svg"].iter(f"{SVG}text") if t.get("text-anchor") == "end"
            and t.get("font-weight") == "bold"}  # fmt: skip
    expected = {shown_name(report, one["model"]) for one in subject["standings"] if one["tied"]}
    assert bold == expected and len(bold) >= 2


def test_the_mean_is_of_models_that_lack_nothing(report, plots):
    complete = [one for one in report["mean_over_tasks"] if not one["missing"]]
    shown = [(100 * one["score"], 100 * one["interval"]["low"], 100 * one["interval"]["high"]) for one in complete]
    assert len(shown) == 11
    np.testing.assert_allclose(values(plots["plots/mean_over_tasks.svg"]), shown, atol=0.0501)


def test_imagenets_line_and_r2_are_those_of_least_squares_and_of_the_report(report, plots):
    plot = plots["plots/imagenet.svg"]
    accuracy = {one["model"]: one["score"] for one in report["subjects"]["imagenet1k"]["standings"]}
    points = [(accuracy[one["model"]], one["score"]) for one in report["mean_over_tasks"] if not one["missing"]]
    x, y = np.array(points).T
    fit = linregress(x, y)
    assert f"R² = {fit.rvalue**2:.2f}" in " ".join(texts(plot))
    assert report["imagenet"]["aggregate"]["r2"] == pytest.approx(fit.rvalue**2)
    placed = dots(plot)
    assert np.corrcoef(placed[:, 0], x)[0, 1] == pytest.approx(1, abs=1e-6)
    assert np.corrcoef(placed[:, 1], -y)[0, 1] == pytest.approx(1, abs=1e-6)
    [line] = [line for line in plot.iter(f"{SVG}line") if line.get("stroke-width") == "1.5"]
    slope = (float(line.get("y2")) - float(line.get("y1"))) / (float(line.get("x2")) - float(line.get("x1")))
    assert slope == pytest.approx(linregress(placed[:, 0], placed[:, 1]).slope, rel=0.01)


def test_zero_shot_models_are_in_the_lists_and_not_in_imagenets_plot():
    report = invented_models.results(also=("zero_shot", "fine_tune")).report
    plots = {file: ET.fromstring(text) for file, text in draw_plots(report).items()}
    assert any(name.endswith(" (zero-shot)") for name in names(plots["plots/scores_beluga.svg"]))
    assert any(name.endswith(" (fine-tuned)") for name in names(plots["plots/mean_over_tasks.svg"]))
    assert len(dots(plots["plots/imagenet.svg"])) == report["imagenet"]["aggregate"]["n_models"] == 11


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"/><a href="x">', "../../up", "\x00\x1b[31m", "\u202eevil"]
)
def test_hostile_names_stay_text_and_lead_nowhere(text):
    report = invented_models.hostile(text).report
    for file, drawn in draw_plots(report).items():
        assert re.fullmatch(r"plots/[A-Za-z0-9_-]+\.svg", file)
        tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(drawn).iter()}
        assert tags <= {"svg", "title", "desc", "rect", "text", "line", "circle"}
        assert "\u202e" not in drawn


def test_two_hundred_models_and_scores_that_are_all_alike_are_drawn():
    report = invented_models.large(subjects=2).report
    assert len(dots(ET.fromstring(draw_plots(report)["plots/scores_dataset_0.svg"]))) == 200
    for one in report["subjects"]["dataset_1"]["standings"]:
        one |= {"score": 1.0, "interval": {"kind": "none", "reason": "few"}}
    plot = ET.fromstring(draw_plots(report)["plots/scores_dataset_1.svg"])
    assert np.isfinite(dots(plot)).all()
    assert "100.0" in texts(plot)


def test_pages_know_the_files_and_old_ones_are_removed(report, tmp_path):
    results = invented_models.results()
    assert models_data(results, [], {})["plots"] == plot_files(report)
    store = ArtifactStore(tmp_path)
    for name in ("plots/scores_gone.svg", "plots/imagenet.svg"):
        store.write_text(store.root / name, "<svg/>")
    remove_old_plots(store.root, draw_plots(report))
    assert [path.name for path in (store.root / "plots").iterdir()] == ["imagenet.svg"]
