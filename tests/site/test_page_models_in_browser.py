"""The pages of models in a browser: sorted, filtered, means of what is shown, plots, ties that can be heard."""

import re

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from agml_assets.site.pages import SiteData, build_pages
from tests.site.invented_models import TASKS_RUN, results
from tests.site.test_pages_in_browser import TYPED, browser, column, folder, look, problems, sites  # noqa: F401

pytestmark = pytest.mark.slow

HEADINGS = "return [...document.querySelectorAll('#scores thead button')].map(button => button.textContent);"
FIRST = TASKS_RUN[:4]


@pytest.fixture
def opened(browser, sites):  # noqa: F811
    """Return a function that opens the page of models, and the report behind it."""
    data, place = sites("usual")

    def open_(fragment="", page="models", **options):
        look(browser, (place / f"{page}.html").as_uri() + fragment, **options)
        return data.models.report

    return open_


def cells(browser, name):  # noqa: F811
    """Return the first lines of a column of the table of scores, as they are seen."""
    return [text.split("\n")[0].strip() for text in seen(browser, "scores", name)]


def seen(browser, table, name):  # noqa: F811
    """Return the texts of a column, without what only a screen reader hears."""
    browser.execute_script(f"document.querySelectorAll('#{table} .spoken').forEach(part => part.remove());")
    return column(browser, table, name)


def own(browser):  # noqa: F811
    """Show our own rows alone."""
    Select(browser.find_element(By.ID, "source")).select_by_value("evaluated here")


def hide(browser, *keys):  # noqa: F811
    browser.find_element(By.CSS_SELECTOR, "#columns-part summary").click()
    for key in keys:
        browser.find_element(By.CSS_SELECTOR, f"#columns input[value='{key}']").click()


def test_scores_and_means_are_those_of_the_report_times_100(browser, opened):  # noqa: F811
    report = opened()
    own(browser)
    models = report["models"]
    assert len(cells(browser, "Model")) == len(models) == 12
    means = [one for one in report["mean_over_tasks"] if not one["missing"]]
    expected = [
        f"{100 * one['score']:.1f} [{100 * one['interval']['low']:.1f}, {100 * one['interval']['high']:.1f}]"
        for one in sorted(means, key=lambda one: -one["score"])
    ]
    assert cells(browser, "Mean over tasks") == [*expected, "–"]
    last = column(browser, "scores", "Mean over tasks")[-1]
    assert last.split() == ["–", "3", "of", "4"]
    beluga = {one["model"]: one["score"] for one in report["subjects"]["beluga"]["standings"]}
    order = [one["model"] for one in sorted(means, key=lambda one: -one["score"])]
    assert cells(browser, "Beluga")[:-1] == [f"{100 * beluga[model]:.1f}" for model in order]
    assert cells(browser, "Pl@ntNet")[-1] == "–"
    assert browser.find_element(By.ID, "said").text.startswith(
        "12 rows of 23; 11 have a mean over all 4 tasks shown"
    )


def test_ties_are_bold_and_heard(browser, opened):  # noqa: F811
    report = opened()
    own(browser)
    standings = report["subjects"]["iwildcam"]["standings"]
    tied = {f"{100 * one['score']:.1f}" for one in standings if one["tied"]}
    script = """
    const heads = [...document.querySelectorAll('#scores thead th')].map(head => head.textContent);
    return [...document.querySelectorAll('#scores tbody tr')].map(row => row.cells[heads.indexOf('iWildCam')])
      .filter(cell => cell.querySelector('b'))
      .map(cell => [cell.querySelector('b').textContent, cell.textContent]);
    """
    marked = browser.execute_script(script)
    assert {bold for bold, _ in marked} == tied
    assert all(text.endswith("may be as good as the best") for _, text in marked)
    assert len(tied) == 2


def test_a_mean_is_recomputed_over_the_tasks_that_are_shown(browser, opened):  # noqa: F811
    report = opened()
    own(browser)
    hide(browser, "s:plantnet", "s:beluga")
    shown = [{one["model"]: one["score"] for one in report["subjects"][key]["standings"]} for key in FIRST[1:3]]
    expected = sorted((np.mean([of[model] for of in shown]) for model in report["models"]), reverse=True)
    assert cells(browser, "Mean over tasks") == [f"{100 * mean:.1f}" for mean in expected]
    assert (
        "recomputed for the chosen columns; it has no interval and no ties"
        in browser.find_element(By.ID, "note").text
    )
    WebDriverWait(browser, 10).until(lambda browser: browser.current_url.count("hide=") == 2)
    look(browser, browser.current_url)
    assert cells(browser, "Mean over tasks")[0] == f"{100 * expected[0]:.1f}"


def test_the_mean_of_a_kingdom_is_that_of_the_report(browser, opened):  # noqa: F811
    report = opened()
    own(browser)
    Select(browser.find_element(By.ID, "kingdom")).select_by_value("animal")
    headings = browser.execute_script(HEADINGS)
    assert "Beluga" in headings and "iWildCam" in headings
    assert not {"Herbarium 2019", "Pl@ntNet", "beans"} & set(headings)
    best = report["by_kingdom"]["animal"][0]
    interval = best["interval"]
    assert cells(browser, "Mean over tasks")[0] == (
        f"{100 * best['score']:.1f} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"
    )


def test_rows_are_filtered_by_family_size_resolution_and_words(browser, opened):  # noqa: F811
    report = opened()
    own(browser)
    for field, value, keep in (
        ("family", "SigLIP", lambda one: one["family"] == "SigLIP"),
        ("size", "50-100", lambda one: 50e6 <= one["parameters"] < 100e6),
        ("resolution", "384", lambda one: one["resolution"] == 384),
    ):
        choice = Select(browser.find_element(By.ID, field))
        choice.select_by_value(value)
        expected = sorted(one["display_name"] for one in report["models"].values() if keep(one))
        assert expected and sorted(cells(browser, "Model")) == expected
        choice.select_by_value("")
    browser.find_element(By.ID, "q").send_keys("siglip patch16-512")
    assert cells(browser, "Resolution, px") == ["512"]


def test_a_heading_sorts_says_so_and_keeps_the_focus(browser, opened):  # noqa: F811
    opened()
    own(browser)
    button = browser.find_element(By.CSS_SELECTOR, "#scores thead [data-column='s:newt']")
    button.click()
    for way in ("descending", "ascending"):
        focused = browser.switch_to.active_element
        assert focused.get_attribute("data-column") == "s:newt"
        assert focused.find_element(By.XPATH, "..").get_attribute("aria-sort") == way
        scores = [float(text) for text in cells(browser, "NeWT")]
        assert scores == sorted(scores, reverse=way == "descending")
        focused.send_keys(Keys.ENTER)


def test_on_a_narrow_screen_the_means_come_first(browser, opened):  # noqa: F811
    opened(width=360)
    assert browser.execute_script(HEADINGS)[:3] == ["Model", "Mean over tasks", "Mean over datasets"]


def test_the_chosen_score_stands_with_its_interval(browser, opened):  # noqa: F811
    report = opened("#source=evaluated+here&on=s:iwildcam")
    expected = [
        f"{100 * one['score']:.1f} [{100 * one['interval']['low']:.1f}, {100 * one['interval']['high']:.1f}]"
        for one in report["subjects"]["iwildcam"]["standings"]
    ]
    assert seen(browser, "one", "Score × 100 and 95 % interval") == expected
    assert browser.find_element(By.ID, "one-note").text.startswith(
        "Macro f1, 400 test examples in 200 independent groups, animal, camera trap."
    )


def test_a_model_leads_to_its_page_and_to_its_published_row(browser, opened):  # noqa: F811
    report = opened("#q=siglip-base-patch16-224")
    browser.find_element(By.CSS_SELECTOR, "#scores tbody a").click()
    model = "siglip-base-patch16-224"
    assert browser.find_element(By.ID, "name").text == report["models"][model]["display_name"]
    scores = column(browser, "scores", "Score × 100 and 95 % interval")
    assert len(scores) == len(report["subjects"]) and all("[" in text for text in scores)
    places = [text.split("\n")[0] for text in column(browser, "scores", "Place")]
    standings = report["subjects"]["imagenet1k"]["standings"]
    scores = {one["model"]: one["score"] for one in standings}
    better = sum(score > scores[model] for score in scores.values())
    assert places[0] == f"{better + 1} of 12"
    assert (
        "leak safe split · RidgeProbe (alpha 1.0) · cpu · 2026-08-13"
        in column(browser, "runs", "How it was run")[0]
    )
    assert browser.find_element(By.LINK_TEXT, "card").get_attribute("href").endswith("cards/first.html")
    browser.find_element(By.LINK_TEXT, "as published").click()
    assert "published results" in browser.find_element(By.ID, "facts").text
    assert not browser.find_element(By.ID, "runs-part").is_displayed()


def test_an_unknown_model_is_told_and_others_are_offered(browser, opened):  # noqa: F811
    opened("#model=nothing", page="model")
    assert browser.find_element(By.ID, "unknown").text == "There is no model called nothing."
    assert len(column(browser, "list", "Model")) == 23


def test_lines_and_r2_are_those_of_least_squares(browser, opened):  # noqa: F811
    opened()
    rng = np.random.default_rng(1)
    for n in (3, 10, 200):
        x, y = rng.normal(80, 5, n), rng.normal(40, 9, n)
        points = [{"x": a, "y": b} for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        fit = browser.execute_script("return bestFit(arguments[0])", points)
        assert [fit["slope"], fit["intercept"]] == pytest.approx(np.polyfit(x, y, 1))
        assert fit["r2"] == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    assert browser.execute_script("return bestFit([{x: 1, y: 1}, {x: 2, y: 2}])") is None
    assert browser.execute_script("return bestFit([1, 2, 3].map(y => ({x: 0.1, y})))") is None


def test_the_plots_show_the_models_that_are_shown_and_say_what_they_show(browser, opened):  # noqa: F811
    opened()
    own(browser)
    for drawing, said in (("imagenet", "imagenet-said"), ("sizes", "size-said")):
        svg = browser.find_element(By.CSS_SELECTOR, f"#{drawing} svg")
        assert len(svg.find_elements(By.TAG_NAME, "circle")) == 11
        assert svg.get_attribute("aria-label") == browser.find_element(By.ID, said).text
        assert re.search(
            r"11 models evaluated here \(dots, solid line\): R² = 0\.\d\d\.$", svg.get_attribute("aria-label")
        )
    browser.find_element(By.ID, "q").send_keys("patch32")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#imagenet circle")) == 1
    assert "no line, as that needs at least 3" in browser.find_element(By.ID, "imagenet-said").text


def test_two_hundred_models_on_a_hundred_datasets_answer_at_once(browser, sites):  # noqa: F811
    _, place = sites("large")
    look(browser, (place / "models.html").as_uri())
    assert len(browser.execute_script(HEADINGS)) == 106
    times = browser.execute_script(TYPED, "q", ["m", "mo", "model_1", "model_17", "", "zzz", ""] * 2)
    print(f"models, q: median {sorted(times)[len(times) // 2]:.0f} ms, slowest {max(times):.0f} ms")  # noqa: T201
    assert sorted(times)[len(times) // 2] < 250
    assert problems(browser) == []


def test_other_ways_of_answering_are_rows_of_their_own_and_in_no_line(browser, folder):  # noqa: F811
    place = folder / "kinds"
    place.mkdir()
    models = results(also=("zero_shot", "fine_tune"), models=4)
    for file, text in build_pages(SiteData(models=models)).items():
        (place / file).write_text(text, "utf-8")
    look(browser, (place / "models.html").as_uri())
    own(browser)
    assert "4 models evaluated here" in browser.find_element(By.CSS_SELECTOR, ".lead").text
    assert "2 rows of models that answered otherwise" in browser.find_element(By.CSS_SELECTOR, ".lead").text
    [name] = {one["display_name"] for one in models.report["models"].values() if one["kind"] == "zero_shot"}
    assert name in cells(browser, "Model") and len(cells(browser, "Model")) == 6
    assert len(browser.find_elements(By.CSS_SELECTOR, "#imagenet circle")) == 3  # one model lacks a task
    assert "frozen features alone" in browser.find_element(By.ID, "imagenet-said").text
    links = [one.get_attribute("href") for one in browser.find_elements(By.LINK_TEXT, "Download as SVG")]
    assert [link.rpartition("/pages/")[2].rpartition("/kinds/")[2] for link in links] == [
        "plots/mean_over_tasks.svg",
        "plots/imagenet.svg",
    ]
    Select(browser.find_element(By.ID, "how")).select_by_value("zero-shot")
    assert cells(browser, "Model") == [name]
    browser.find_element(By.CSS_SELECTOR, "#scores tbody a").click()
    assert "evaluated here · zero-shot" in browser.find_element(By.ID, "facts").text
    browser.find_element(By.LINK_TEXT, "frozen features").click()
    assert browser.find_element(By.ID, "name").text == name.removesuffix(" (zero-shot)")
    assert problems(browser) == []
