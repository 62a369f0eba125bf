"""The sample, materialised in the Dagster UI by a browser, and what a person then sees on the assets."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.chromium import open_chromium

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
# The planted copies of the sample: 16 exact and 20 near ones, each of another image; two files are truncated.
SOURCE, USABLE, EXACT_PAIRS, NEAR_PAIRS = 300, 298, 16, 16 + 20
# Pairs, for the driver sorts the keys of an object.
READ_TABLE = """
return [...document.querySelectorAll('tr')].map(row => row.querySelectorAll(':scope > td'))
  .filter(cells => cells.length > 1).map(cells => [cells[0].innerText.trim(), cells[1].innerText.trim()]);
"""
# Any picture on the page with content; one that failed to load has no natural width.
READ_PICTURES = """
return [...document.images].filter(image => image.src.startsWith('data:image/'))
  .map(image => ({natural: image.naturalWidth, shown: image.getBoundingClientRect().width}));
"""
ASK = """
const done = arguments[arguments.length - 1];
fetch('/graphql', {method: 'POST', headers: {'content-type': 'application/json'},
  body: JSON.stringify({query: '{runsOrError {... on Runs {results {status jobName tags {key value}}}}}'})})
  .then(answer => answer.json()).then(answer => done(answer.data.runsOrError.results), () => done([]));
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("ui")


@pytest.fixture(scope="module")
def address(root):
    """Address of the UI, started as `make ui` starts it, but for its port and its folders."""
    home = root / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").symlink_to(REPOSITORY / "dagster.yaml")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AGML_", "DAGSTER_"))}
    env |= {"DAGSTER_HOME": str(home), "AGML_RESULTS": str(root / "results")}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = root / "dagster_dev.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [BIN / "dagster", "dev", "-w", "workspace.yaml", "-p", str(port)],
            cwd=REPOSITORY,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Dagster keeps an ignored SIGINT, which background shells hand down, and then can't be stopped.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        _await_port(port, server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(server)


def _await_port(port, server, log):
    for _ in range(120):
        assert server.poll() is None, log.read_text()[-3000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(1)
    pytest.fail(f"No answer on port {port}:\n{log.read_text()[-3000:]}")


def _stop(server):
    """End the server and the code servers and runs in its process group."""
    os.killpg(server.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        server.wait(30)
        time.sleep(5)  # code servers notice seconds later that their parent is gone
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait(30)


@pytest.fixture(scope="module")
def browser(root):
    with open_chromium(root / "profile", "--window-size=1500,1300") as browser:
        yield browser


@pytest.fixture(scope="module")
def finished_run(browser, address, root):
    """The run of the sample, launched with the buttons of the job's page."""
    browser.get(f"{address}/locations/agml_assets/jobs/benchmark")
    press(browser, "//button[contains(., 'Materialize all')]")
    press(browser, "//*[text()='Select a partition or create one']")
    press(browser, "//input[@placeholder='Filter partitions']").send_keys("sample")
    press(browser, "//*[text()='sample']")
    press(browser, "//*[text()='Partition selection']")  # closes the list of partitions, which hides the button
    browser.save_screenshot(root / "launch.png")
    press(browser, "//button[contains(., 'Launch 1 run')]")

    def ended(browser):
        runs = browser.execute_async_script(ASK)
        return [run for run in runs if run["status"] in ("SUCCESS", "FAILURE", "CANCELED")]

    runs = WebDriverWait(browser, 420, poll_frequency=3).until(ended, "the run does not end")
    assert len(runs) == 1
    return runs[0]


def press(browser, xpath):
    """Click what a person would click, once it is there and nothing covers it; return it."""

    def clicked(browser):
        for skip in browser.find_elements(By.XPATH, "//button[.='Skip']"):  # Dagster's greeting on a first visit
            skip.click()
        element = browser.find_element(By.XPATH, xpath)
        element.click()
        return element

    return WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException]).until(clicked, xpath)


def open_asset(browser, address, asset):
    """Open the page of an asset's `sample` and return what its metadata table shows, key by key."""
    browser.get(f"{address}/assets/{asset}?view=partitions&partition=sample")
    return WebDriverWait(browser, 60).until(
        lambda browser: shown if "path" in (shown := dict(browser.execute_script(READ_TABLE))) else None,
        f"{asset} shows no metadata",
    )


def test_the_sample_launched_by_the_buttons_succeeds(finished_run, root):
    assert (finished_run["jobName"], finished_run["status"]) == ("benchmark", "SUCCESS")
    assert {"key": "dagster/partition", "value": "sample"} in finished_run["tags"]
    assert [file.name for file in (root / "results").glob("*/result.json")] == ["result.json"]


@pytest.mark.parametrize(
    ("asset", "numbers"),
    [
        (
            "dataset/image_index",
            {"source_images_count": SOURCE, "usable_images_count": USABLE, "classes_count": 4},
        ),
        ("dataset/pixels", {"images_count": USABLE}),
        ("embeddings/umap_projection", {"points_count": USABLE}),
        ("embeddings/neighbors", {"near_pairs_count": NEAR_PAIRS}),
        ("quality/exact_duplicate", {"exact_duplicate_pct": 100 * 2 * EXACT_PAIRS / USABLE}),
        (
            "quality/near_duplicate",
            {
                "near_duplicate_pct": 100 * 2 * NEAR_PAIRS / USABLE,
                "effective_images_count": USABLE - NEAR_PAIRS,
            },
        ),
    ],
)
def test_an_asset_shows_its_headline_numbers(finished_run, browser, address, root, asset, numbers):
    shown = open_asset(browser, address, asset)
    browser.save_screenshot(root / f"{asset.replace('/', '_')}.png")
    assert {key: float(shown[key].replace(",", "")) for key in numbers} == pytest.approx(numbers, abs=0.01)


@pytest.mark.parametrize("asset", ["quality/score", "result"])
def test_the_score_shown_is_the_score_of_the_report(finished_run, browser, address, root, asset):
    shown = open_asset(browser, address, asset)
    browser.save_screenshot(root / f"{asset.replace('/', '_')}.png")
    report = json.loads((root / "results" / "sample" / "result.json").read_text())
    assert float(shown["overall_0_to_10"]) == report["score"]["overall"]


@pytest.mark.parametrize(
    ("asset", "headline"), [("quality/near_duplicate", "near_duplicate_pct"), ("result", "overall_0_to_10")]
)
def test_an_asset_shows_its_headline_number_first(finished_run, browser, address, asset, headline):
    assert next(iter(open_asset(browser, address, asset))) == headline


@pytest.mark.parametrize("asset", ["dataset/pixels", "embeddings/umap_projection", "embeddings/umap_3d"])
def test_an_asset_shows_a_picture(finished_run, browser, address, root, asset):
    assert "preview" in open_asset(browser, address, asset)
    press(browser, "//tr[td[1][normalize-space()='preview']]//a")
    # The data address is in the page before the picture is decoded.
    pictures = WebDriverWait(browser, 30).until(
        lambda browser: [p for p in browser.execute_script(READ_PICTURES) if p["natural"] > 0], "no picture"
    )
    browser.save_screenshot(root / f"{asset.replace('/', '_')}_preview.png")
    assert len(pictures) == 1
    assert pictures[0]["natural"] >= 400
    assert pictures[0]["shown"] >= 400
