"""The pages of embeddings in a browser: phases, sorting, what cannot be told apart, figures of predictions."""

import re
from importlib.resources import files

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from agml_assets.site.pages import SiteData, build_pages
from tests.site import invented_embeddings as invented
from tests.site.test_pages_in_browser import (  # noqa: F401
    AXE,
    browser,
    column,
    folder,
    heading,
    look,
    problems,
    requests,
    sites,
)

pytestmark = pytest.mark.slow

SPOKEN = "document.querySelectorAll('.spoken').forEach(part => part.remove());"
POINTS = """
return [...document.querySelectorAll(arguments[0] + ' circle')].map(one =>
  [one.querySelector('title').textContent, Number(one.getAttribute('cx')), Number(one.getAttribute('cy'))]);
"""


@pytest.fixture(scope="module")
def place(folder):  # noqa: F811
    """A folder with the pages of invented submissions and of one alone."""
    for name, results in (("embeddings", invented.usual()), ("alone", invented.one_of_everything())):
        (folder / name).mkdir()
        for file, text in build_pages(SiteData(embeddings=results)).items():
            (folder / name / file).write_text(text, "utf-8")
    return folder / "embeddings"


@pytest.fixture
def opened(browser, place):  # noqa: F811
    """Return a function that opens a page."""

    def open_(fragment="", page="embeddings", folder=place, **options):  # noqa: F811
        look(browser, (folder / f"{page}.html").as_uri() + fragment, **options)
        browser.execute_script(SPOKEN)

    return open_


def said(browser, part):  # noqa: F811
    return browser.find_element(By.ID, part).text


def test_submissions_stand_with_rank_in_words_interval_and_size(browser, opened):  # noqa: F811
    opened()
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#standings tbody tr')].map(row => "
        "[...row.cells].map(cell => cell.innerText));"
    )
    assert [row[0] for row in cells] == ["Method raw-64\nraw-64", "Method pca-16\npca-16", "Method codes\ncodes"]
    assert [row[1] for row in cells] == ["1 of 3\nshared with 1 other", "1 of 3\nshared with 1 other", "3 of 3"]
    assert [row[2] for row in cells] == ["90.0 [88.0, 92.0]", "88.0 [86.0, 90.0]", "12.5 [10.5, 14.5]"]
    assert [row[4] for row in cells] == ["256", "64\n4 times smaller", "2.5\n102 times smaller"]
    assert [row[6] for row in cells] == [
        "95.0\n[93.0, 97.0]",
        "97.0\n[95.0, 99.0]",
        "40.0\n[38.0, 42.0]\nfloor 41.0",
    ]
    assert cells[2][7] == "-15.0\n[-17.0, -13.0]\nfloor 41.0"
    assert "half lacks yield" in said(browser, "note")


def test_a_heading_sorts_and_another_phase_brings_its_own_tasks(browser, opened):  # noqa: F811
    opened()
    head = heading(browser, "standings", "crop, macro F1 × 100")
    head.find_element(By.TAG_NAME, "button").click()
    names = [text.split("\n")[1] for text in column(browser, "standings", "Submission")]
    assert names == ["pca-16", "raw-64", "codes"]
    assert head.get_attribute("aria-sort") == "descending"
    WebDriverWait(browser, 10).until(lambda browser: "standings.sort=6d" in browser.current_url)
    Select(browser.find_element(By.ID, "phase")).select_by_value("alike")
    assert [text.split("\n")[1] for text in column(browser, "standings", "Submission")] == [
        "one",
        "other",
        "third",
    ]
    assert column(browser, "standings", "Rank") == ["1 of 3\nshared with 2 others"] * 3
    assert len(browser.find_elements(By.CSS_SELECTOR, "#standings thead th")) == 7
    assert "cannot be told apart from any of the 2 others" in said(browser, "pairs-said")
    assert column(browser, "other", "Kendall's tau") == ["not computable: all alike"]
    WebDriverWait(browser, 10).until(lambda browser: browser.current_url.endswith("#phase=alike"))
    assert problems(browser) == []


def test_what_cannot_be_told_apart_is_said_for_the_chosen_submission(browser, opened):  # noqa: F811
    opened("#of=pca-16")
    assert said(browser, "pairs-said").startswith(
        "Method pca-16 cannot be told apart from 1 of the 2 others: Method raw-64. Same samples and folds"
    )
    assert "over all 3 pairs" in said(browser, "pairs-said")
    assert [text.split("\n")[1] for text in column(browser, "pairs", "Other submission")] == ["codes", "raw-64"]
    assert column(browser, "pairs", "Keeps more than it, × 100") == ["+75.5", "-2.0"]
    assert column(browser, "pairs", "p, corrected") == ["< 0.001", "0.310"]
    assert column(browser, "pairs", "More than chance") == ["keeps more", "cannot be told apart"]
    Select(browser.find_element(By.ID, "of")).select_by_value("codes")
    assert column(browser, "pairs", "More than chance") == ["keeps less", "keeps less"]
    assert said(browser, "pairs-said").startswith("Method codes is told apart from all 2 others.")


def test_other_choices_say_whether_the_best_stays(browser, opened):  # noqa: F811
    opened()
    assert said(browser, "other-said").startswith("Under 1 of 2 other choices another submission is best.")
    assert column(browser, "other", "Kendall's tau") == ["1.00", "0.33"]
    assert column(browser, "other", "Best") == ["the same: Method raw-64", "another: Method pca-16"]


def test_the_chart_places_scores_by_the_logarithm_of_bytes(browser, opened):  # noqa: F811
    opened()
    for on, scores in (("", [90, 88, 12.5]), ("yield", [85, 79, -15])):
        Select(browser.find_element(By.ID, "on")).select_by_value(on)
        points = browser.execute_script(POINTS, "#sizes")
        assert [name for name, *_ in points] == ["raw-64", "pca-16", "codes"]
        x, y = np.array([point[1:] for point in points]).T
        for placed, values in ((x, np.log10([256, 64, 2.5])), (-y, scores)):
            slope, start = np.polyfit(values, placed, 1)
            np.testing.assert_allclose(placed, slope * np.array(values) + start, atol=0.1)
            assert slope > 0
        assert len(browser.find_elements(By.CSS_SELECTOR, "#sizes .whisker")) == 3
        svg = browser.find_element(By.CSS_SELECTOR, "#sizes svg")
        assert svg.get_attribute("aria-label") == said(browser, "size-said")
    browser.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true; });")
    browser.execute_script(SPOKEN)
    assert column(browser, "size-list", "R² on yield × 100 and 95 % interval")[0] == "85.0 [83.0, 87.0]"
    assert column(browser, "tasks", "Samples") == ["30", "1,200"]
    assert column(browser, "tasks", "Not scored on it") == ["none", "half"]
    assert (
        browser.find_element(By.LINK_TEXT, "Download as SVG")
        .get_attribute("href")
        .endswith("plots/embeddings_earth.svg")
    )


def test_a_submission_opens_with_its_matrix_in_numbers(browser, opened):  # noqa: F811
    opened()
    browser.find_element(By.LINK_TEXT, "Method raw-64").click()
    browser.execute_script(SPOKEN)
    assert said(browser, "lead") == (
        "Keeps 90.0 [88.0, 92.0] of 100, in the mean over 2 tasks. Rank 1 of 3, shared with 1 other."
    )
    assert said(browser, "figure-said").startswith(
        "26 of 30 samples are named right (86.7 %), out of fold, in the first repeat of the folds. "
        "Most often winter wheat is taken for rice: 3 of 8."
    )
    rows = browser.execute_script(
        "return [...document.querySelectorAll('.matrix tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText));"
    )
    assert rows == [
        ["True \\ predicted", "1", "2", "3"],
        ["1. maize", "9\n90 %", "1\n10 %", "0"],
        ["2. rice", "0", "12\n100 %", "0"],
        ["3. winter wheat", "0", "3\n38 %", "5\n63 %"],
    ]
    assert column(browser, "tasks", "Floor × 100") == ["-1.0", "-1.0"]
    assert column(browser, "tasks", "Samples") == ["30", "1,200\n600 groups"]
    assert column(browser, "left", "What") == [
        "30 of 31 labelled samples with an embedding.",
        "Output 7 is left out.",
        "30 of 31 labelled samples with an embedding.",
        "3 ids were cut.",
    ]


def test_numbers_are_drawn_against_the_line_on_which_they_are_true(browser, opened):  # noqa: F811
    opened("#submission=raw-64&task=yield", page="submission")
    points = browser.execute_script(POINTS, "#figures")
    assert len(points) == 500
    assert "500 of 1,200 samples, evenly spaced in the order of ids" in said(browser, "figure-said")
    values = [re.fullmatch(r"(\S+), predicted (\S+)", name).groups() for name, *_ in points]
    true, predicted = np.array(values, dtype=float).T
    x, y = np.array([point[1:] for point in points]).T
    line = browser.find_element(By.CSS_SELECTOR, "#figures .fit")
    x1, y1, x2, y2 = (float(line.get_attribute(name)) for name in ("x1", "y1", "x2", "y2"))
    slope, start = np.polyfit(true, x, 1)
    np.testing.assert_allclose(x, slope * true + start, atol=0.06)
    # What is predicted right lies on the line.
    on_line = y1 + (slope * predicted + start - x1) / (x2 - x1) * (y2 - y1)
    np.testing.assert_allclose(y, on_line, atol=0.12)
    assert "true 0 to 599.5" in browser.find_element(By.CSS_SELECTOR, "#figures svg").get_attribute("aria-label")
    browser.find_element(By.CSS_SELECTOR, "#points-part summary").click()
    assert column(browser, "points", "Predicted")[:2] == ["0.125", "1.125"]


def test_many_classes_and_several_outputs_have_their_own_figures(browser, opened):  # noqa: F811
    opened("#submission=alone", page="submission")
    assert "A matrix of 40 classes would not fit" in said(browser, "figure-said")
    assert column(browser, "confused", "Samples") == ["2", "2"]
    assert column(browser, "tasks", "Floor × 100")[0] == "not computable"
    assert (
        "no interval: fewer than 20 samples or groups"
        in column(browser, "tasks", "Score × 100 and 95 % interval")[0]
    )
    Select(browser.find_element(By.ID, "task")).select_by_value("soil")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#figures svg")) == 3
    assert not browser.find_element(By.ID, "confused-part").is_displayed()
    labels = [one.get_attribute("aria-label") for one in browser.find_elements(By.CSS_SELECTOR, "#figures svg")]
    assert [label.partition(":")[0] for label in labels] == ["output 0", "output 2", "output 3"]
    assert problems(browser) == []


def test_a_submission_that_lacks_a_task_or_its_scores_says_so(browser, opened):  # noqa: F811
    opened("#submission=half", page="submission")
    assert said(browser, "lead").startswith("It has no mean and no rank")
    assert "Not scored: All targets are equal: there is nothing to predict." in column(browser, "left", "What")
    opened("#submission=third", page="submission")
    assert said(browser, "tasks-note") == "Its scores are no longer stored: evaluate it again."
    assert not browser.find_element(By.ID, "figure-part").is_displayed()
    opened("#submission=nothing", page="submission")
    assert said(browser, "unknown") == "There is no submission called nothing."
    assert len(column(browser, "list", "Submission")) == 8
    assert problems(browser) == []


def test_one_submission_alone_has_no_pairs_and_no_other_order(browser, opened, place):  # noqa: F811
    opened(folder=place.parent / "alone")
    assert column(browser, "standings", "Rank") == ["1 of 1"]
    for part in ("pairs-part", "other-part", "phase"):
        assert not browser.find_element(By.ID, part).is_displayed()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#sizes circle")) == 1
    assert problems(browser) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(
    ("page", "fragment"),
    [
        ("embeddings", ""),
        ("embeddings", "#phase=single"),
        ("submission", "#submission=alone"),
        ("submission", "#submission=alone&task=soil"),
        ("submission", "#submission=raw-64"),
    ],
)
def test_every_view_is_without_barrier_error_request_or_scroll(
    browser,  # noqa: F811
    opened,
    place,
    page,
    fragment,
    width,
    theme,
):
    opened(fragment, page=page, width=width, theme=theme)
    browser.execute_script((files("axe_core_python") / "axe.min.js").read_text("utf-8"))
    assert browser.execute_async_script(AXE) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth;")
    assert problems(browser) == []
    assert [url.partition("#")[0] for url in requests(browser)] == [(place / f"{page}.html").as_uri()]


def test_36_submissions_on_4_tasks_answer_at_once(browser, sites):  # noqa: F811
    _, place = sites("large")
    look(browser, (place / "embeddings.html").as_uri())
    assert len(column(browser, "standings", "Rank")) == 30
    script = """
    const start = performance.now(), field = document.getElementById('on');
    field.value = 'yield';
    field.dispatchEvent(new Event('change'));
    document.body.getBoundingClientRect();
    return performance.now() - start;
    """
    assert browser.execute_script(script) < 500
    assert problems(browser) == []


@pytest.mark.parametrize("width", [1280, 360])
def test_a_matrix_of_30_classes_scrolls_in_its_box_and_the_page_does_not(browser, sites, width):  # noqa: F811
    _, place = sites("large")
    look(browser, (place / "submission.html").as_uri() + "#submission=method-3", width)
    assert len(browser.find_elements(By.CSS_SELECTOR, ".matrix td")) == 900
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth;")
