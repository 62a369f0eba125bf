"""A headless Chromium for the tests that look at pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def open_chromium(profile: Path, *flags: str, **capabilities: object) -> Iterator[webdriver.Chrome]:
    """Open a browser that keeps its profile in the given folder, and close it at the end."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium and driver, (
        "This test drives a browser: install Debian's packages `chromium` and `chromium-driver`."
    )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    for name, value in capabilities.items():
        options.set_capability(f"goog:{name}", value)
    with webdriver.Chrome(options=options, service=Service(driver)) as browser:
        yield browser
