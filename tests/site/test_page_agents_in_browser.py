"""The pages of agents in a browser: who succeeds how often, on what, what a trial did; sorted, chosen, drawn."""

from importlib.resources import files

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from agml_assets.site.pages import SiteData, build_pages
from tests.site import invented_agents as invented
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
BARS = """
return [...document.querySelectorAll('#bars rect')].map(one =>
  [one.querySelector('title').textContent, Number(one.getAttribute('width'))]);
"""


@pytest.fixture(scope="module")
def place(folder):  # noqa: F811
    """A folder with the pages of invented agents; beside it those of hostile ones and of one alone."""
    made = {"agents": invented.usual(), "hostile_agents": invented.hostile("<b>\u202e long_" * 20)}
    for name, results in (made | {"one_agent": invented.alone()}).items():
        (folder / name).mkdir()
        for file, text in build_pages(SiteData(agents=results)).items():
            (folder / name / file).write_text(text, "utf-8")
    return folder / "agents"


@pytest.fixture
def opened(browser, place):  # noqa: F811
    """Return a function that opens a page."""

    def open_(page="agents", fragment="", folder=place, **options):  # noqa: F811
        look(browser, (folder / f"{page}.html").as_uri() + fragment, **options)
        browser.execute_script(SPOKEN)

    return open_


def said(browser, part):  # noqa: F811
    return browser.find_element(By.ID, part).text


def test_agents_stand_with_rate_interval_rank_and_what_was_lost(browser, opened):  # noqa: F811
    opened()
    names = [text.split("\n")[0] for text in column(browser, "standings", "Agent")]
    assert names == ["ReAct with a model", "starter", "lacking"]
    assert column(browser, "standings", "Rank") == ["1 of 2\nshared with 1 other"] * 2 + ["not ranked"]
    rates = column(browser, "standings", "Successful, % and 95 % interval")
    assert rates[0] == "33.3 [9.7, 70.0]\n2 of 6 trials"
    assert rates[1].startswith("0.0 [0.0, ") and rates[2] == "no mean: lacks soil"
    assert column(browser, "standings", "Trials")[0] == "7\n1 failed\n1 out of time\n1 without a submission"
    assert "on other tasks is not known: fewer than 5 tasks" in said(browser, "note")


def test_the_matrix_opens_the_trials_of_a_cell(browser, opened):  # noqa: F811
    opened()
    cells = column(browser, "matrix", "ReAct with a model")
    assert cells[0].split("\n") == [
        "1 of 3", "33 % [6, 79]", "+51.0 % ± 29.0", "1 failed", "1 out of time",
        "1 above 10 % but unfinished",
    ]  # fmt: skip
    assert column(browser, "matrix", "lacking")[1:] == ["not run", "not run"]
    assert "success not decided" in cells[2]
    heading(browser, "matrix", "ReAct with a model").find_element(By.TAG_NAME, "button").click()
    WebDriverWait(browser, 10).until(lambda browser: "matrix.sort=" in browser.current_url)
    browser.find_element(By.CSS_SELECTOR, "#matrix a[href='trials_crop.react.html']").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "ReAct with a model on Crop rows"
    assert problems(browser) == []


@pytest.mark.parametrize(("name", "values"), [
    ("More than 10 % better at the end", {"ReAct with a model on Crop rows": 100 / 3, "lacking on Crop rows": 50}),
    ("Mean improvement on the starter code", {"ReAct with a model on Crop rows": 51, "lacking on Crop rows": 80}),
    ("Minutes a trial", {"ReAct with a model on Crop rows": 3, "lacking on Crop rows": 2}),
])  # fmt: skip
def test_bars_are_as_long_as_what_is_chosen(browser, opened, name, values):  # noqa: F811
    opened()
    Select(browser.find_element(By.ID, "show")).select_by_visible_text(name)
    Select(browser.find_element(By.ID, "on")).select_by_value("crop")
    drawn = {title.partition(":")[0]: width for title, width in browser.execute_script(BARS)}
    assert len(drawn) == 3
    ratios = np.array([drawn[title] / value for title, value in values.items()])
    np.testing.assert_allclose(ratios, ratios[0], rtol=0.01)
    assert said(browser, "bars-said").startswith(name)
    browser.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true; });")
    assert len(column(browser, "bar-list", "Value")) == 3


def test_pairs_and_tasks_say_what_is_sure_and_what_scores_are_held_against(browser, opened):  # noqa: F811
    opened()
    assert said(browser, "pairs-said").startswith("ReAct with a model cannot be told apart from the other.")
    assert column(browser, "pairs", "More than chance") == ["cannot be told apart"]
    assert column(browser, "tasks", "Starter code")[0] == "0.5\nmeasured, 3 trials, SD 0.01"
    assert "nothing can be said relative to about 0" in column(browser, "tasks", "In the mean")[2]
    assert column(browser, "tasks", "Warnings and notes")[0] == "Labels are public.\n1 of 4 trials gave no score"
    assert column(browser, "left", "Why") == ["not evaluated yet"]


def test_a_trial_is_read_step_by_step(browser, opened):  # noqa: F811
    opened("trials_crop.react")
    assert said(browser, "lead") == "1 of 3 trials successful: 33 % [6, 79]. 2 with a score."
    assert column(browser, "trials", "Ended")[1] == "failed\nno submission.csv"
    assert column(browser, "trials", "Successful") == ["yes", "no", "no\nits score is, but it did not finish"]
    assert column(browser, "trials", "Best at any step")[0] == "0.7\nstep 4"
    assert column(browser, "trials", "Errors")[1] == "connection, which ended it"
    steps = browser.find_elements(By.CSS_SELECTOR, "#steps > li")
    assert len(steps) == 5
    assert steps[2].text.split("\n") == [
        "3. edit script 3.0 min · score 0.52 · 0 files", "A wider net.", "Did", "instruction: widen", "the net",
        "Was told", "+ width = 64",
    ]  # fmt: skip
    dots = browser.execute_script(
        "return [...document.querySelectorAll('#scores circle')].map(one => Number(one.getAttribute('cy')))"
    )
    slope, start = np.polyfit([0.52, 0.52, 0.7, 0.61], dots, 1)
    np.testing.assert_allclose(dots, slope * np.array([0.52, 0.52, 0.7, 0.61]) + start, atol=0.1)
    assert slope < 0
    Select(browser.find_element(By.ID, "seed")).select_by_value("2")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#steps > li")) == 2
    browser.find_element(By.CSS_SELECTOR, "#error-part summary").click()
    assert said(browser, "error").startswith("Traceback")
    WebDriverWait(browser, 10).until(lambda browser: browser.current_url.endswith("#seed=2"))
    assert problems(browser) == []


def test_a_long_trace_grows_when_asked(browser, sites):  # noqa: F811
    _, place = sites("large")
    look(browser, (place / "trials_task-0.agent-0.html").as_uri())
    assert len(browser.find_elements(By.CSS_SELECTOR, "#steps > li")) == 20
    browser.find_element(By.ID, "steps-more").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#steps > li")) == 50


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(
    ("name", "page", "fragment"),
    [
        ("agents", "agents", ""),
        ("agents", "agents", "#show=10"),
        ("agents", "trials_crop.react", "#seed=1"),
        ("agents", "trials_zero.react", ""),
        ("one_agent", "agents", ""),
        ("hostile_agents", "agents", ""),
        ("hostile_agents", "trials_crop.one", ""),
    ],
)
def test_every_view_is_without_barrier_error_request_or_scroll(
    browser,  # noqa: F811
    opened,
    place,
    name,
    page,
    fragment,
    width,
    theme,
):
    opened(page, fragment, folder=place.parent / name, width=width, theme=theme)
    browser.execute_script((files("axe_core_python") / "axe.min.js").read_text("utf-8"))
    assert browser.execute_async_script(AXE) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth;")
    assert problems(browser) == []
    assert [url.partition("#")[0] for url in requests(browser)] == [
        (place.parent / name / f"{page}.html").as_uri()
    ]
