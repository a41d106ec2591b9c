"""A real browser for the report's pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps"),
    *("--disable-extensions", "--metrics-recording-only", "--force-device-scale-factor=1"),
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory) -> Iterator[object]:
    """One headless Chromium for all tests, driven by its own driver and without any network use of its own."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER, env={**os.environ, "SE_OFFLINE": "true"}))
    driver.set_window_size(1280, 900)
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium) -> Iterator[object]:
    """The browser, as a person with no preferences finds it; at the end no page may have complained."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    chromium.set_window_size(1280, 900)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    yield chromium
    complaints = [entry["message"] for entry in chromium.get_log("browser")]
    assert complaints == []


def address(path: Path, fragment: str = "") -> str:
    return path.as_uri() + (f"#{fragment}" if fragment else "")
