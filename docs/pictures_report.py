"""Take the screenshot of `docs/start/csv.md`: train on its table, write the report, open it in a headless browser.

python docs/pictures_report.py

Needs selenium, chromium (or google-chrome) and chromedriver beside vicinal[train].
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

from vicinal.report import write_run
from vicinal.runs import Experiment, measure_baselines, run
from vicinal.runs.baselines import ALWAYS

HERE = Path(__file__).parent
WIDTH, HEIGHT = 980, 1370
EXPERIMENT = Experiment(source="customers.csv", data={"target": "left"})


def screenshot(page: Path) -> Image.Image:
    """Return the reliability section of a page, and what stands at its top, as a reader sees them."""
    options = webdriver.ChromeOptions()
    browsers = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    options.binary_location = next(path for path in browsers if path is not None)
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-sync"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.as_uri())
        # The picture is of the verdict and the diagrams; the sections between them are left out.
        driver.execute_script("for (const id of ['metrics', 'baselines']) document.getElementById(id).hidden = true")
        taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    finally:
        driver.quit()
    return Image.open(io.BytesIO(base64.b64decode(taken["data"])))


def draw(folder: Path) -> None:
    """Take the screenshot into `folder`."""
    first = re.search(r"^```python\n(.*?)^```", (HERE / "start" / "csv.md").read_text(), re.MULTILINE | re.DOTALL)
    assert first is not None  # the block that writes the table
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        exec(first[1], {})
        result = run(EXPERIMENT, "customers", progress=False)
        if result is None:
            raise RuntimeError("start this script as one process")
        measure_baselines(result, ALWAYS)
        image = screenshot(write_run(result, "report.html").absolute())
    small = image.convert("RGB").quantize(colors=64, dither=Image.Dither.NONE)
    small.save(folder / "report.png", optimize=True)


if __name__ == "__main__":
    draw(HERE / "img")
