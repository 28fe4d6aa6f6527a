"""The site in a browser, from `file://`: search finds guides first, nothing is wider than the page, images load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="the browser test needs selenium")
pytest.importorskip("mkdocs", reason="needs vicinal[docs]")
ROOT = Path(__file__).parents[1]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="needs chromium and chromedriver"),
]
TOO_WIDE = """
const width = document.documentElement.clientWidth, shown = '.md-content table, .md-content .language-output code';
return [...document.querySelectorAll(width < 1000 ? '.md-content table' : shown)]
  .filter(e => e.getBoundingClientRect().right > width + 1 || e.tagName === 'CODE' && e.scrollWidth > e.clientWidth + 1)
  .map(e => e.textContent.trim().slice(0, 80));
"""
BROKEN = "return [...document.images].filter(e => !e.complete || !e.naturalWidth).map(e => e.src)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", profile):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


@pytest.mark.parametrize("width", [1280, 400])
def test_tables_and_images_fit(site, browser, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    wide = {}
    pages = [str(path.relative_to(site).with_suffix("")) for path in sorted(site.rglob("*.html"))]
    for page in pages:
        if page == "404":
            continue
        browser.get(f"file://{site}/{page}.html")
        assert browser.execute_script(BROKEN) == [], page
        found = browser.execute_script(TOO_WIDE)
        if found:
            wide[page] = found
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
    assert wide == {}


@pytest.mark.parametrize("words", ["temperature", "abstain", "csv", "mixup"])
def test_the_search_works_offline_and_finds_guides_first(site, browser, words):
    browser.get(f"file://{site}/index.html")
    box = browser.find_element("css selector", "[data-md-component=search-query]")
    browser.execute_script("arguments[0].focus()", box)
    box.send_keys(words)
    links: list[str] = []
    for _ in range(100):
        links = browser.execute_script(
            "return [...document.querySelectorAll('.md-search-result__item > a')].map(e => e.href)"
        )
        if links:
            break
        time.sleep(0.1)
    assert links
    places = [link.split(f"{site}/")[1] for link in links[:3]]
    assert not any(place.startswith(("evidence", "gallery", "project")) for place in places), places
    browser.get(links[0])
    assert words in browser.page_source.lower()
