"""The columns of the pages of embeddings, and the figures of predictions: what was stored, and no more of it."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from agml_assets.site.embedding_plots import draw_plots, plot_files, powers
from agml_assets.site.page_embeddings import EmbeddingResults, embeddings_data, submissions_data, submissions_of
from agml_assets.site.page_sources import read_embeddings
from agml_assets.site.pages import SiteData, build_pages
from agml_assets.site.prediction_figures import Confused, Parity, predictions_of
from agml_assets.store import PLATFORM, ArtifactStore, dump_json
from tests.site import invented_embeddings as invented
from tests.site.test_pages import data_of, unpack

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def results():
    return invented.usual()


@pytest.fixture(scope="module")
def phases(results):
    return {one["phase"]: one for one in embeddings_data(results)["phases"]}


@pytest.fixture(scope="module")
def submissions(results):
    return submissions_data(results)


# --- The comparison


def test_every_place_is_carried_with_size_mean_interval_and_scores(phases):
    earth = phases["earth"]
    assert earth["submissions"]["key"] == ["raw-64", "pca-16", "codes"]
    assert unpack(earth["submissions"]["name"]) == ["Method raw-64", "Method pca-16", "Method codes"]
    assert earth["submissions"]["rank"] == [1, 1, 3]
    assert earth["submissions"]["bytes"] == [256, 64, 2.5]
    assert earth["submissions"]["uncompressed"] == [256, 256, 256]
    assert earth["means"] == [[0, 0.9, 1, 0.88, 0.92], [1, 0.88, 1, 0.86, 0.9], [2, 0.125, 0, 0.105, 0.145]]
    assert earth["tasks"]["name"] == ["crop", "yield"]
    assert earth["scores"][1] == [[0, 0.85, 1, 0.83, 0.87], [1, 0.79, 0, 0.77, 0.81], [2, -0.15, 0, -0.17, -0.13]]
    assert earth["floors"] == [[0.41] * 3] * 2
    assert (earth["tasks"]["n"], earth["tasks"]["units"]) == ([30, 1200], [30, 600])


def test_pairs_and_other_choices_name_submissions_by_their_place(phases):
    earth = phases["earth"]
    assert earth["pairs"] == [[2, 1, -0.755, 0.0002], [2, 0, -0.775, 0.0001], [1, 0, -0.02, 0.31]]
    assert [(one["best"], one["same"], one["tau"]) for one in earth["sensitivity"]] == [
        (0, True, 1),
        (1, False, 0.333333),
    ]
    assert phases["alike"]["sensitivity"][0]["tau"] is None


def test_a_score_without_an_interval_names_the_reason(results, phases):
    assert phases["single"]["means"] == [[0, 0.5, 1, 0]]
    assert embeddings_data(results)["reasons"][0] == "fewer than 20 samples or groups"


def test_what_is_left_out_or_lacks_a_task_is_told(results, phases):
    left_out = embeddings_data(results)["left_out"]
    assert unpack(left_out["submission"]) == ["never"]
    assert unpack(left_out["why"]) == ["not evaluated yet: agml-assets compression evaluate never"]
    incomplete = phases["earth"]["incomplete"]
    assert (unpack(incomplete["submission"]), incomplete["tasks"]["texts"]) == (["half"], ["yield"])


def test_a_submission_that_is_left_out_is_so_of_the_whole_site(results):
    pages = build_pages(SiteData(embeddings=results, missing={"beans": "no report yet"}))
    missing = data_of(pages["left_out.html"])["missing"]
    assert unpack(missing["name"]) == ["beans", "compression/never"]
    assert all("Left out (2)" in page for page in pages.values())
    assert "2 datasets, submissions or files are missing." in pages["left_out.html"]


# --- A submission


def test_every_submission_with_scores_has_a_page_also_one_that_lacks_a_task(results, submissions):
    assert list(submissions_of(results.leaderboard)) == submissions["submissions"]["key"] == [
        "raw-64", "pca-16", "codes", "half", "alone", "one", "other", "third",
    ]  # fmt: skip
    half = submissions["submissions"]["key"].index("half")
    assert (submissions["submissions"]["rank"][half], submissions["submissions"]["mean"][half]) == (None, None)
    assert submissions["left_out"][half] == [["yield", "All targets are equal: there is nothing to predict."]]


def test_ranks_say_of_how_many_and_with_how_many_they_are_shared(submissions):
    columns = submissions["submissions"]
    assert columns["of"] == [3, 3, 3, 3, 1, 3, 3, 3]
    assert columns["sharing"] == [1, 1, 0, 0, 0, 2, 2, 2]


def test_a_task_has_floor_other_scores_units_and_notes(submissions):
    crop, yields = submissions["tasks"][0]
    assert crop["score"] == [0, 0.86, 1, 0.84, 0.88]
    assert (crop["floor"], crop["others"]) == ([-0.01], [["accuracy", 0.866667, 0.846667, 0.886667]])
    assert (yields["n"], yields["units"], yields["exclusions"]) == (1200, 600, ["Output 7 is left out."])
    assert crop["notes"] == ["30 of 31 labelled samples with an embedding."]
    assert unpack({**submissions["submissions"]["notes"], "at": submissions["submissions"]["notes"]["at"][0]}) == [
        "3 ids were cut."
    ]
    alone = submissions["submissions"]["key"].index("alone")
    assert submissions["tasks"][alone][0]["floor"] is None


def test_scores_that_are_gone_since_leave_a_page_without_tasks(submissions):
    third = submissions["submissions"]["key"].index("third")
    assert submissions["tasks"][third] == []
    assert unpack(submissions["submissions"]["name"])[third] == "third"


# --- Figures


def test_the_matrix_is_that_of_scikit_learn_rows_true():
    figure = predictions_of(invented.crop_task())
    np.testing.assert_array_equal(figure.counts, confusion_matrix(invented.TRUE, invented.PREDICTED))
    assert figure.counts == ((9, 1, 0), (0, 12, 0), (0, 3, 5))
    assert figure.classes == invented.CROPS


def test_a_class_without_a_prediction_keeps_its_column():
    figure = predictions_of({**invented.crop_task(), "predicted": [0] * 30})
    assert figure.counts == ((10, 0, 0), (12, 0, 0), (8, 0, 0))


def test_of_many_classes_only_the_most_confused_pairs_are_carried():
    figure = predictions_of(invented.species_task())
    assert isinstance(figure, Confused)
    assert (figure.n, figure.classes, figure.wrong, figure.pairs_in_all) == (80, 40, 4, 2)
    assert [(a.split()[2], b.split()[2], n, of) for a, b, n, of in figure.pairs] == [
        ("38", "0", 2, 2),
        ("39", "0", 2, 2),
    ]


def test_no_more_than_500_points_evenly_spaced_at_4_digits():
    figure = predictions_of(invented.yield_task())
    (points,) = figure.points
    assert (figure.n, len(points), figure.outputs) == (1200, 500, ())
    assert points[0] == (0, 0.125) and points[-1] == (599.5, 599.4)
    steps = np.diff([2 * true for true, _ in points])
    assert set(np.round(steps).astype(int)) == {2, 3}
    few = predictions_of({**invented.yield_task(), "true": [1.0, 2.0], "predicted": [1.23456, 2.0]})
    assert few.points == (((1.0, 1.235), (2.0, 2.0)),)


def test_several_outputs_keep_their_place_among_the_labels():
    figure = predictions_of(invented.soil_task())
    assert isinstance(figure, Parity)
    assert (figure.outputs, figure.more, [len(one) for one in figure.points]) == ((0, 2, 3), 0, [24] * 3)
    assert figure.points[1][3] == (3e6, 3.3e6)
    wide = {"kind": "regression", "true": [[0.0] * 20] * 3, "predicted": [[1.0] * 20] * 3}
    many = predictions_of({**wide, "others": {f"r2[{place}]": None for place in range(20)}})
    assert (many.outputs, many.more) == (tuple(range(8)), 12)


def test_36_submissions_on_4_tasks_stay_below_2_megabytes():
    page = build_pages(SiteData(embeddings=invented.large()))["submission.html"]
    assert 500_000 < len(page.encode()) < 2_000_000


# --- The pages as text


def test_without_a_leaderboard_the_page_says_what_to_run():
    pages = build_pages(SiteData())
    for command in (
        "agml-assets compression evaluate --phase digits", "compression_leaderboard", "site_files",
    ):  # fmt: skip
        assert f"<code>{command}</code>" in pages["embeddings.html"]
    assert data_of(pages["embeddings.html"])["phases"] == data_of(pages["submission.html"])["tasks"] == []


def test_where_nothing_can_be_compared_the_reasons_are_still_shown():
    board = {"phases": {}, "left_out": {"never": "not evaluated yet"}}
    page = build_pages(SiteData(embeddings=EmbeddingResults(board)))["embeddings.html"]
    assert "No submission has been compared yet." in page and 'id="left"' in page


def test_one_submission_on_one_task_is_a_comparison_without_pairs():
    page = build_pages(SiteData(embeddings=invented.one_of_everything()))["embeddings.html"]
    (phase,) = data_of(page)["phases"]
    assert (phase["pairs"], phase["sensitivity"], phase["means"]) == ([], [], [[0, 0.9, 1, 0.88, 0.92]])
    assert "1 submission of fixed-size embeddings in 1 phase" in page


@pytest.mark.parametrize(
    "text", ["</script><script>boom()</script>", '"><img src=x onerror=boom()>', "\u202eevil"]
)
def test_hostile_names_stay_text(text):
    results = invented.hostile(text)
    pages = build_pages(SiteData(embeddings=results))
    for name in ("embeddings.html", "submission.html"):
        assert pages[name].count("<script") == 3
        assert "<img" not in pages[name] and "\u202e" not in pages[name] and text not in pages[name]
    for file, drawn in draw_plots(results.leaderboard, results.runs).items():
        assert re.fullmatch(r"plots/[A-Za-z0-9_.-]+\.svg", file) and ".." not in file
        tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(drawn).iter()}
        assert tags <= {"svg", "title", "desc", "rect", "text", "line", "circle"}
        assert "\u202e" not in drawn


# --- Plots as files


@pytest.fixture(scope="module")
def plots(results):
    return {file: ET.fromstring(text) for file, text in draw_plots(results.leaderboard, results.runs).items()}


def test_each_phase_and_each_figure_of_predictions_has_a_file(results, phases, submissions, plots):
    assert {file for file in plots if "embeddings_" in file} == {phases[name]["plot"] for name in phases}
    carried = {task["file"] for tasks in submissions["tasks"] for task in tasks}
    assert carried - {None} == {file for file in plots if "predictions_" in file}
    assert None in carried, "forty classes have no matrix"
    assert set(plot_files(results.leaderboard, results.runs).values()) == set(plots)
    assert draw_plots(None, {}) == {}


def test_scores_stand_against_the_logarithm_of_bytes(plots):
    plot = plots["plots/embeddings_earth.svg"]
    dots = np.array([[float(dot.get("cx")), float(dot.get("cy"))] for dot in plot.iter(f"{SVG}circle")])
    sizes, means = np.log10([256, 64, 2.5]), np.array([0.9, 0.88, 0.125])
    for placed, values in ((dots[:, 0], sizes), (-dots[:, 1], means)):
        slope, start = np.polyfit(values, placed, 1)
        np.testing.assert_allclose(placed, slope * values + start, atol=0.06)
        assert slope > 0
    names = [dot.find(f"{SVG}title").text for dot in plot.iter(f"{SVG}circle")]
    assert names == ["Method raw-64", "Method pca-16", "Method codes"]


def test_points_and_counts_are_in_the_files(plots):
    assert len(list(plots["plots/predictions_raw-64.yield.svg"].iter(f"{SVG}circle"))) == 500
    said = [element.text for element in plots["plots/predictions_raw-64.crop.svg"].iter(f"{SVG}text")]
    assert [one for one in said if one.isdigit()] == ["1", "2", "3", "9", "1", "12", "3", "5"]
    assert "3. winter wheat" in said and "38 %" in said
    assert len(list(plots["plots/predictions_alone.soil.svg"].iter(f"{SVG}circle"))) == 72


def test_an_axis_of_bytes_has_round_numbers():
    assert [round(10**tick, 9) for tick in powers(0.2, 3.1)] == [10, 100, 1000]
    assert [round(10**tick, 9) for tick in powers(1.6, 2.4)] == [50, 100, 200]


# --- Where it comes from


def test_scores_are_read_of_every_submission_that_is_named(results, tmp_path):
    store = ArtifactStore(tmp_path)
    assert read_embeddings(store, None) == EmbeddingResults(None, {})
    for key, documents in results.runs.items():
        for step, document in zip(("summary", "task_scores"), documents, strict=True):
            if document:
                store.write_text(store.path(PLATFORM, f"compression/{key}/{step}.json"), dump_json(document))
    assert read_embeddings(store, results.leaderboard) == results
