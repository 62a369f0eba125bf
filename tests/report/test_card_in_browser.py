"""The card in a browser: no error, no request, every section; by mouse and by keyboard, in light and dark."""

import json
from importlib.resources import files

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from agml_assets.report.card import build_card
from tests.chromium import open_chromium
from tests.report.cards import CLASSES, invent_card
from tests.report.test_card import SECTIONS

pytestmark = pytest.mark.slow

LONG = tuple(f"</script><script>boom({i})</script> {'angular_leaf_spot_' * 6}{i}" for i in range(120))
CARDS = {
    "usual": {},
    "hostile": {
        "name": "<img src=x onerror=boom()>" * 4,
        "classes": LONG,
        "n": 700,
        "file": "<b onclick=boom()>{row}",
    },
    "one_class": {"classes": ("only",), "flips": 0},
    "clean": {"copies": 0, "flips": 0, "faults": False, "signal": 12.0},
    "all_wrong": {"n": 260, "copies": 110, "flips": 80, "signal": 1.0},
    "first_phase": {"phases": (1,)},
    "large": {"n": 5200},
}
CHARTS = "return [...document.querySelectorAll('[data-scatter]')].every(box => box.dataset.drawn === 'yes');"
SHOWN = "return Bokeh.documents[0].roots()[0].renderers[1].data_source.data.x.length;"
PAINTED = "return performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0];"
AXE = """
const done = arguments[arguments.length - 1];
document.querySelectorAll('details').forEach(part => { part.open = true; });
axe.run(document, {resultTypes: ['violations']}).then(found => done(found.violations.map(violation =>
  [violation.id, violation.help, violation.nodes.slice(0, 3).map(node => node.html.slice(0, 200))])),
  error => done([['axe', String(error), []]]));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cards")


@pytest.fixture(scope="module")
def browser(folder):
    with open_chromium(folder / "profile", loggingPrefs={"browser": "ALL", "performance": "ALL"}) as browser:
        yield browser


@pytest.fixture(scope="module")
def cards(folder, finished):
    """Addresses of the cards by name; `run` is the one that a benchmark left."""
    addresses = {"run": (finished / "results" / "tiny" / "report" / "card.html").as_uri()}
    for name, options in CARDS.items():
        file = folder / f"{name}.html"
        file.write_text(build_card(invent_card(**options)), "utf-8")
        addresses[name] = file.as_uri()
    return addresses


def look(browser, address, width=1280, theme="light"):
    """Open a page as a window of this width and theme shows it; wait until its charts are drawn."""
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(address)
    WebDriverWait(browser, 30).until(lambda browser: browser.execute_script(CHARTS), "a chart is not drawn")


def requests(browser):
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith("data:")]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", ["run", *CARDS])
def test_a_card_opens_without_an_error_a_request_or_a_sideways_scroll(browser, cards, folder, name, width, theme):
    look(browser, cards[name], width, theme)
    browser.save_screenshot(folder / f"{name}_{width}_{theme}.png")
    assert [e["message"] for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []
    assert requests(browser) == [cards[name]]
    sections = [s.get_attribute("id") for s in browser.find_elements(By.CSS_SELECTOR, "section.evidence")]
    assert [section for section in sections if section != "metadata"] == SECTIONS
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth;")
    assert browser.execute_script("return typeof boom") == "undefined"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["run", "usual", "hostile", "first_phase"])
def test_axe_finds_no_barrier(browser, cards, name, theme):
    look(browser, cards[name], 1280, theme)
    browser.execute_script((files("axe_core_python") / "axe.min.js").read_text("utf-8"))
    assert browser.execute_async_script(AXE) == []


def test_five_thousand_points_are_painted_within_a_second(browser, cards):
    look(browser, cards["large"])
    assert (
        browser.execute_script("return JSON.parse(document.getElementById('map-data').textContent).x.length")
        == 5000
    )
    assert browser.execute_script(PAINTED) < 1000


def test_the_map_is_filtered_by_class_and_split(browser, cards):
    look(browser, cards["usual"])
    everything = browser.execute_script(SHOWN)
    Select(browser.find_element(By.ID, "map-class")).select_by_visible_text(CLASSES[1])
    of_class = browser.execute_script(SHOWN)
    browser.find_elements(By.NAME, "map-group")[0].click()
    of_other_splits = browser.execute_script(SHOWN)
    assert everything == 240
    assert 0 < of_other_splits < of_class < everything
    assert f"{of_other_splits} of 240 points shown." in browser.find_element(By.ID, "map-said").text


def test_a_view_can_be_shared_by_its_address(browser, cards):
    look(browser, f"{cards['usual']}#map&map.class=healthy&map.without=train")
    assert Select(browser.find_element(By.ID, "map-class")).first_selected_option.text == "healthy"
    assert [check.is_selected() for check in browser.find_elements(By.NAME, "map-group")] == [False, True, True]
    top = browser.execute_script("return document.getElementById('map').getBoundingClientRect().top")
    assert abs(top) < 100
    browser.find_element(By.LINK_TEXT, "Which labels look wrong?").click()
    assert "map.class=healthy" in browser.current_url


def test_the_arrow_keys_walk_over_the_points(browser, cards):
    look(browser, cards["usual"])
    chart, said = browser.find_element(By.ID, "map-chart"), browser.find_element(By.ID, "map-said")
    browser.execute_script("arguments[0].focus()", chart)
    heard = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.ARROW_UP):
        browser.switch_to.active_element.send_keys(key)
        heard.append(said.text)
    assert all(text.startswith("Row ") for text in heard)
    assert len(set(heard)) > 1
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert said.text == "240 of 240 points shown."


def test_pointing_at_an_image_tells_its_row_and_class_as_text(browser, cards):
    look(browser, cards["hostile"])
    script = """
    document.getElementById('map-chart').scrollIntoView();
    const view = Bokeh.index.roots[0], data = view.model.renderers[1].data_source.data;
    const box = document.getElementById('map-chart').getBoundingClientRect(), frame = view.frame;
    return [box.x + frame.x_scale.compute(data.x[0]), box.y + frame.y_scale.compute(data.y[0])];
    """
    x, y = browser.execute_script(script)
    tip = browser.find_element(By.ID, "map-tip")
    assert not tip.is_displayed()
    for step in (3, 0):
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x - step, "y": y})
    WebDriverWait(browser, 10).until(lambda _: tip.is_displayed())
    assert tip.text.startswith("Row ")
    assert "</script><script>boom(" in tip.text
    assert browser.find_element(By.ID, "map-said").text == tip.text
    assert browser.execute_script("return typeof boom") == "undefined"


def test_a_heading_sorts_its_table_and_a_field_filters_it(browser, cards):
    look(browser, cards["hostile"])
    browser.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    table = browser.find_element(By.ID, "balance-table")

    def column(number):
        visible = "[...arguments[0].tBodies[0].rows].filter(row => !row.hidden)"
        cells = f"return {visible}.map(row => row.cells[arguments[1]].innerText)"
        return browser.execute_script(cells, table, number)

    counts = [int(text) for text in column(1)]
    assert counts == sorted(counts, reverse=True)
    table.find_elements(By.TAG_NAME, "button")[1].click()
    assert [int(text) for text in column(1)] == sorted(counts)
    assert table.find_elements(By.TAG_NAME, "th")[1].get_attribute("aria-sort") == "ascending"
    browser.find_element(By.CSS_SELECTOR, "input[data-for=balance-table]").send_keys("BOOM(7)")
    assert len(column(0)) == 1


def test_the_provenance_is_copied_or_selected(browser, cards):
    look(browser, cards["usual"])
    browser.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    button = browser.find_element(By.ID, "copy")
    button.click()
    WebDriverWait(browser, 10).until(lambda _: button.text in ("Copied", "Selected: press Ctrl+C"))
