"""The reports in a real browser: nothing is fetched, nothing complains, everything is seen, on a phone and on paper."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.papers.test_report import recipe_page
from tests.report.results import PIXEL, SCRIPT, outcome, scored
from tests.report.test_report import grid, predictions_csv
from vicinal.metrics import Estimate, evaluate_slices
from vicinal.metrics.ood import max_probability, ood_report
from vicinal.papers.report import write_recipe
from vicinal.predictions import evaluate_file
from vicinal.probes import Attack, attack_errors, between_samples
from vicinal.report import ReportExtras, write_comparison, write_predictions, write_run
from vicinal.runs import Experiment, Importance, run
from vicinal.runs.bundle import load

Keys = pytest.importorskip("selenium.webdriver.common.keys", reason="the browser test needs selenium").Keys
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
webdriver = pytest.importorskip("selenium.webdriver", reason="the browser test needs selenium")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="the browser test needs chromium (or google-chrome) and chromedriver"
)

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: All that is drawn and can be seen without opening anything has a size, and lies within the page.
UNSEEN = """
return [...document.querySelectorAll('svg, img')].filter(e => e.checkVisibility()).filter(e => {
  const box = e.getBoundingClientRect();
  return !(box.width > 20 && box.height > 20) || box.right > document.documentElement.clientWidth + 1 || box.left < 0;
}).map(e => e.outerHTML.slice(0, 200));
"""
#: Text of a figure that is drawn outside its frame is cut off.
CUT_OFF = """
return [...document.querySelectorAll('svg text')].filter(e => e.checkVisibility()).filter(e => {
  const box = e.getBoundingClientRect(), frame = e.closest('svg').getBoundingClientRect();
  return box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2;
}).map(e => e.textContent);
"""

#: A table that is wider than its place hides its last columns, and paper cannot be scrolled.
TOO_WIDE = """
return [...document.querySelectorAll('.scroll')].filter(e => e.checkVisibility())
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => [e.getAttribute('aria-label'), e.scrollWidth]);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One report of each kind, of a real run with every section, and of a hostile one."""
    folder = tmp_path_factory.mktemp("reports")
    experiment = Experiment(
        source="digits", training={"epochs": 2}, model_options={"width": 4}, corrupt=0.2, eval_data=("digits",)
    )
    real = run(experiment, folder / "run", progress=False)
    bundle = load(folder / "run")
    generator = torch.Generator().manual_seed(0)
    foreign = bundle.calibrated(bundle.module(torch.randn(100, 1, 8, 8, generator=generator)).detach())
    familiar = bundle.calibrated(real.test.logits)
    x, y = torch.rand(64, 1, 8, 8, generator=generator), torch.randint(0, 10, (64,), generator=generator)
    mistakes = json.loads((folder / "run" / "mistakes.json").read_text())["mistakes"]
    found = {
        "run": write_run(
            real,
            folder / "run.html",
            ReportExtras(
                ood=[("noise", ood_report(max_probability(probs=familiar), max_probability(probs=foreign)))],
                attacks=[(str(a), attack_errors(bundle.module, (x, y), a)) for a in (Attack("fgsm", 4 / 255),)],
                mc_dropout=real.test.before,
                between=between_samples(bundle.module, (x, y), pairs=10, generator=generator),
                audit=[{**mistake, "aum": -1.5, "threshold": -0.5} for mistake in mistakes[:3]],
            ),
        )
    }
    names = [SCRIPT, '"><img src="https://example.org/x.png">', "日本語", *(f"{'long' * 40} {i}" for i in range(97))]
    hostile = outcome(
        folder / "hostile",
        {
            "val": scored("val", 300, 100),
            "test": scored("test", 300, 100),
            "eval-1": scored("http://example.org/" + "a" * 200, 9, 100),
        },
        classes=names,
        mistakes=[
            {"label": SCRIPT, "prediction": "w" * 500, "confidence": 0.9, "text": [SCRIPT, "w" * 600]},
            {
                "label": "a",
                "prediction": "b",
                "confidence": 0.9,
                "row": {"n" * 90: "v" * 300, **dict.fromkeys("abc", 1)},
            },
            {"label": "a", "prediction": "b", "confidence": 0.9, "picture": PIXEL, "origin": "/" + "deep/" * 60},
        ],
        notes=["a note of " + "w" * 400],
    )
    found["hostile"] = write_run(hostile, folder / "hostile.html")
    two = scored("test", 600, 2)
    made = outcome(folder / "two", {"val": scored("val", 600, 2, seed=1), "test": two}, classes=["no", "yes"])
    colours = {f"colour is {name!r}": np.arange(600) % 7 == k for k, name in enumerate(("red", "green", "blue"))}
    sizes = {f"size is {k}": np.arange(600) < 100 * k for k in range(1, 5)}
    row = {"confidence": 0.9, "label_probability": 0.1, "row": {f"column {c}": 1.5 * c for c in range(50)}}
    both = [("no", "yes") if i % 3 else ("yes", "no") for i in range(20)]
    wrong = [{"index": i, "label": a, "prediction": b, **row} for i, (a, b) in enumerate(both)]
    made.run.write_mistakes("tabular", wrong, [])
    columns = {f"column {c}": np.random.default_rng(c).normal(size=600) for c in range(50)}
    slices = evaluate_slices(two.after, {**colours, **sizes, **columns})
    importance = [Importance(name, Estimate(1 / (3 + c), 0.01, 0.5)) for c, name in enumerate(columns)]
    command = "vicinal train made-up.csv --report two.html"
    extras = ReportExtras(slices=slices, importance=importance, command=command)
    found["binary"] = write_run(made, folder / "two.html", extras)
    predictions_csv(folder / "predictions.csv", scored("test", 500, 3), ["a", "b", "c"])
    found["predictions"] = write_predictions(evaluate_file(folder / "predictions.csv"), folder / "predictions.html")
    found["comparison"] = write_comparison(grid(folder / "grid"), folder / "comparison.html")
    found["recipe"] = write_recipe(recipe_page(name=SCRIPT, long="w" * 200), folder / "recipe.html")
    return found


def resized(browser, width: int) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("kind", ["run", "binary", "hostile", "predictions", "comparison", "recipe"])
def test_report_in_the_browser(browser, pages, kind):
    path = pages[kind]
    assert path.stat().st_size < 1_500_000
    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")  # what came before
    resized(browser, 400)
    browser.get(path.as_uri())
    for width in (400, 1200):
        resized(browser, width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        drawings, least = ("img", 1) if kind == "recipe" else ("svg", 3)
        assert browser.execute_script(f"return document.querySelectorAll('{drawings}').length") >= least
        assert browser.execute_script(UNSEEN) == []
        assert browser.execute_script(CUT_OFF) == []
        assert browser.execute_script(TOO_WIDE) == []
    time.sleep(0.1)  # let a late request show up
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert path.as_uri() in asked
    assert [url for url in asked if url != path.as_uri() and not url.startswith("data:image/")] == []
    assert browser.execute_script("return document.scripts.length") == 1


def test_a_threshold_is_dragged_by_keys_and_read_aloud(browser, pages):
    browser.get(pages["run"].as_uri())
    box = browser.find_element("css selector", ".threshold")
    assert box.is_displayed()
    slider, said = box.find_element("tag name", "input"), box.find_element("tag name", "output")
    seen = []
    for keys in ("", Keys.HOME, Keys.END, Keys.ARROW_LEFT):
        slider.send_keys(keys)
        seen.append(said.text.replace("\u00a0", " "))
        assert slider.get_attribute("aria-valuetext").replace("\u00a0", " ") == seen[-1]
    assert seen[1].startswith("Above 0 %: 100 % of cases answered")
    assert [text[:13] for text in seen[2:]] == ["Above 100 %: ", "Above 99.99 %"]
    assert seen[2].endswith("no case is answered.")
    assert len(set(seen[1:])) == 3


def settled(browser, path, width: int = 1200) -> None:
    """Open a page and drop what the log held before."""
    browser.get("about:blank")
    browser.get_log("browser")
    resized(browser, width)
    browser.get(path.as_uri())


#: The text that a button offers for download.
DOWNLOADED = """
const [selector, done] = arguments, make = URL.createObjectURL;
URL.createObjectURL = blob => { blob.text().then(done); return make.call(URL, blob); };
document.querySelector(selector).click();
"""


def texts(browser, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())"
    return [text.replace("\u00a0", " ") for text in browser.execute_script(script, selector)]


def test_a_threshold_of_two_classes_is_chosen_by_its_cost(browser, pages):
    settled(browser, pages["binary"])
    box = browser.find_element("css selector", ".cut")
    assert box.is_displayed()
    cuts = json.loads(box.get_attribute("data-cuts"))
    slider = box.find_element("css selector", "[type=range]")
    for keys in (Keys.HOME, Keys.END, Keys.ARROW_LEFT * 60):
        slider.send_keys(keys)
        i = int(slider.get_attribute("value"))
        tp, fp, positives, n = cuts["tp"][i], cuts["fp"][i], cuts["positives"], cuts["n"]
        wanted = [tp, positives - tp, fp, n - positives - fp]
        assert [int(text) for text in texts(browser, ".cut .counts td")] == wanted
        if tp + fp:
            assert texts(browser, ".cut .precision")[0].startswith(f"{100 * tp / (tp + fp):.1f} %")
    chosen = {}
    for price in ("1", "20"):
        field = box.find_element("css selector", "input.fn")
        field.clear()
        field.send_keys(price)
        chosen[price] = int(slider.get_attribute("value"))
        costs = [fp + float(price) * (cuts["positives"] - tp) for tp, fp in zip(cuts["tp"], cuts["fp"], strict=True)]
        assert costs[chosen[price]] == min(costs)
    assert chosen["20"] < chosen["1"]  # a missed positive costs more, so more is called positive
    assert texts(browser, ".cut output")[0].endswith("the best threshold for these costs is 4.8 %.")  # 1 / (1 + 20)
    assert browser.get_log("browser") == []


def test_tables_are_sorted_and_slices_filtered(browser, pages):
    settled(browser, pages["binary"])
    column = "#slices tbody td:nth-child(2)"
    browser.execute_script("document.querySelectorAll('#slices .sort')[1].click()")
    counts = [int(text.replace(",", "")) for text in texts(browser, column)]
    assert counts == sorted(counts)
    browser.execute_script("document.querySelectorAll('#slices .sort')[1].click()")
    assert [int(text.replace(",", "")) for text in texts(browser, column)] == counts[::-1]
    field = browser.find_element("css selector", "#slices .filter input")
    field.send_keys("colour is 'red'")
    assert texts(browser, "#slices tbody tr:not([hidden]) th") == ["colour is 'red'"]
    assert len(texts(browser, "#slices tbody tr")) == len(counts)
    rows = list(csv.reader(io.StringIO(browser.execute_async_script(DOWNLOADED, "#slices .csv"))))
    intervals = [f"{name}{end}" for name in ("accuracy", "gap", "NLL") for end in ("", ", interval")]
    assert rows[0] == ["slice", "samples", *intervals, "significant"]
    assert [int(row[1].replace(",", "")) for row in rows[1:]] == counts[::-1]
    shown = texts(browser, "#slices tbody td:nth-child(3) .ci")
    assert [row[3].replace("\u00a0", " ") for row in rows[1:]] == shown
    assert browser.get_log("browser") == []


def test_mistakes_are_a_table_with_a_class_filter(browser, pages):
    settled(browser, pages["binary"])
    every = texts(browser, "#mistakes tbody tr td:nth-child(2)")
    assert (len(every), set(every)) == (20, {"no", "yes"})
    heads = texts(browser, "#mistakes thead th")
    assert heads == ["sample", "label", "prediction", "confidence", "P(label)", "what it is"]
    assert texts(browser, "#mistakes option")[1:] == ["label no", "label yes", "prediction no", "prediction yes"]
    browser.execute_script("document.querySelectorAll('#mistakes .sort')[1].click()")
    assert texts(browser, "#mistakes tbody tr td:nth-child(2)") == sorted(every)
    settled(browser, pages["run"])
    select = browser.find_element("css selector", "#mistakes select")
    shown = "#mistakes tbody tr:not([hidden])"
    for what, column in (("label", 2), ("prediction", 3)):
        name = texts(browser, f"#mistakes tbody tr td:nth-child({column})")[0]
        wanted = texts(browser, f"#mistakes tbody tr td:nth-child({column})").count(name)
        choose = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        browser.execute_script(choose, select, f"|{what} {name}|")
        assert select.get_attribute("value") == f"|{what} {name}|"
        found = texts(browser, f"{shown} td:nth-child({column})")
        assert set(found) == {name}
        assert len(found) == wanted < len(texts(browser, "#mistakes tbody tr"))


def test_bins_have_counts_hover_values_and_a_toggle(browser, pages):
    settled(browser, pages["binary"])
    titles = texts(browser, "#reliability .width svg title")
    counts = [int(title.partition(": ")[2].partition(" ")[0].replace(",", "")) for title in titles]
    assert sum(counts) == 2 * 600  # of the diagram and of the histogram
    assert all("observed" in title for title in titles)
    drawn = texts(browser, "#reliability .width svg text")
    assert all(str(n) in drawn for n in counts)
    width, mass = (browser.find_element("css selector", f"#reliability .{name}") for name in ("width", "mass"))
    assert (width.is_displayed(), mass.is_displayed()) == (True, False)
    browser.find_element("css selector", "#mass-main").click()
    assert (width.is_displayed(), mass.is_displayed()) == (False, True)
    even = texts(browser, "#reliability .mass tbody td:nth-child(2)")
    assert len(even) == 15
    assert {int(n) for n in even} == {40}
    assert browser.get_log("browser") == []


def test_a_table_of_fifty_columns_is_small_and_says_how_to_make_it_again(browser, pages):
    assert pages["binary"].stat().st_size < 500_000
    settled(browser, pages["binary"])
    assert texts(browser, "#rerun pre") == ["vicinal train made-up.csv --report two.html"]
    (footer,) = texts(browser, "footer")
    assert "Made by Vicinal" in footer
    assert time.strftime("%Y-%m-", time.gmtime()) in footer
    assert len(texts(browser, "#slices tbody tr")) == 207
    assert len(texts(browser, "#importance tbody tr")) == 30


def test_every_section_is_seen(browser, pages):
    browser.get(pages["run"].as_uri())
    resized(browser, 400)
    ids = ["metrics", "reliability", "risk", "sets", "classes", "mistakes", "eval-1", "ood", "attacks", "between"]
    ids += ["noise", "audit", "learning", "trained", "rerun"]
    for id in ids:
        box = browser.execute_script(
            "return document.getElementById(arguments[0]).getBoundingClientRect().toJSON()", id
        )
        assert box["height"] > 50, id
    linked = browser.execute_script("return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))")
    assert linked == [f"#{id}" for id in ids]
    pictures = browser.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth)")
    assert pictures
    assert all(width >= 90 for width in pictures)
    text = browser.execute_script("return document.body.innerText")
    assert "vicinal train digits" in text
    for expected in ("AUROC", "fgsm:4/255", "Training error, corrupted labels", "AUM", "MC dropout"):
        assert expected in text


def test_an_option_of_the_command_is_not_broken_in_two(browser, pages):
    """A line may end after a hyphen, but `-` and `-out` on two lines are no option."""
    browser.get(pages["run"].as_uri())
    resized(browser, 400)
    heights = browser.execute_script(
        "return [...document.querySelectorAll('#rerun pre span')].filter(e => e.textContent.length < 30)"
        ".map(e => e.getBoundingClientRect().height)"
    )
    assert len(heights) > 5
    assert max(heights) == min(heights)


def test_figures_are_inked(browser, pages):
    """A figure whose parts are clipped away by another's frame would be blank."""
    image = pytest.importorskip("PIL.Image")
    browser.get(pages["run"].as_uri())
    resized(browser, 1200)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('svg')].filter(e => e.checkVisibility()).map(e => {"
        "const b = e.getBoundingClientRect();"
        "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height, scale: 0.5}})"
    )
    for box in boxes:
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": box, "captureBeyondViewport": True})
        pixels = np.asarray(image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")).astype(int)
        coloured = pixels.max(axis=2) - pixels.min(axis=2) > 40
        assert coloured.mean() > 0.001, box


#: Texts whose colour is hard to read on what lies below them, by the ratio of WCAG 2.1 (4.5 is its least).
HARD_TO_READ = r"""
const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = c => { const [r, g, b] = c.map(v => linear(v / 255)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const parts = text => { const p = text.match(/[\d.]+/g).map(Number); return [p.slice(0, 3), p.length > 3 ? p[3] : 1]; };
const below = e => { const layers = [];
  for (; e; e = e.parentElement) layers.push(parts(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((c, [l, a]) => c.map((v, i) => v * (1 - a) + l[i] * a), [255, 255, 255]); };
return [...document.querySelectorAll('main *, footer')].filter(e => !e.closest('svg') && e.getClientRects().length)
  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
  .map(e => { const [a, b] = [light(parts(getComputedStyle(e).color)[0]), light(below(e))];
    return [e.className || e.tagName, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]; })
  .filter(([, ratio]) => ratio < 4.5);
"""


@pytest.mark.parametrize("kind", ["run", "binary", "hostile", "predictions", "comparison"])
def test_it_can_be_read_in_light_and_dark(browser, pages, kind):
    browser.get(pages[kind].as_uri())
    resized(browser, 400)
    try:
        for media, scheme, colour in (
            ("screen", "dark", "rgb(20, 24, 29)"),
            ("screen", "light", "rgb(255, 255, 255)"),
            ("print", "dark", "rgb(255, 255, 255)"),
        ):
            wanted = {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
            assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == colour
            assert browser.execute_script(HARD_TO_READ) == []
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("kind", ["run", "binary", "hostile", "comparison", "recipe"])
def test_it_prints(browser, pages, kind):
    browser.get(pages[kind].as_uri())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    resized(browser, 680)  # A4 within its margins
    assert browser.execute_script(TOO_WIDE) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 680
    folded = "return [...document.querySelectorAll('details table')].filter(e => !e.checkVisibility()).length"
    if browser.execute_script("return CSS.supports('selector(::details-content)')"):
        assert browser.execute_script(folded) == 0  # paper cannot be unfolded
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000


#: Words of code in tables that stand on two lines.
BROKEN = """
const words = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walk.nextNode(); node; node = walk.nextNode())
  for (const word of node.parentElement.closest('td code') ? node.data.matchAll(/\\S+/g) : []) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) words.push(word[0]);
  }
return words;
"""


def test_code_in_tables_of_the_site_breaks_at_spaces_only(browser, tmp_path):
    theme = Path(pytest.importorskip("material", reason="the site needs mkdocs-material").__path__[0])
    (main,) = (theme / "templates" / "assets" / "stylesheets").glob("main.*.min.css")
    own = Path(__file__).parents[2] / "docs" / "css" / "site.css"
    assert "extra_css: [css/site.css]" in (own.parents[2] / "mkdocs.yml").read_text(encoding="utf-8")
    cells = "".join(
        f"<td><code>{code}</code></td>" for code in ("LogitMix(Mixup(alpha=3.0))", "models/specification.py")
    )
    page = tmp_path / "page.html"
    head = '<!doctype html><meta name="viewport" content="width=device-width">'
    head += "".join(f'<link rel="stylesheet" href="{style.as_uri()}">' for style in (main, own))
    table = f'<div class="md-typeset__table"><table><tr>{cells}<td>{"and words " * 30}</td></tr></table></div>'
    page.write_text(
        f'{head}<div class="md-typeset" style="margin: 2rem"><div class="md-typeset__scrollwrap">{table}</div></div>'
    )
    resized(browser, 400)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    resized(browser, 600)  # on a phone, below 480 px, code may break anywhere, so that tables fit
    assert browser.execute_script(BROKEN) == []
    browser.execute_script("document.querySelectorAll('link')[1].disabled = true")
    assert browser.execute_script(BROKEN)  # the theme alone breaks them


def test_the_claims_of_the_evidence_can_be_filtered(browser, tmp_path):
    heads = ["recipe", "paper", "family", "claim", "in the paper", "here", "seeds", "cost", "verdict"]
    rows = [["z18-tab2", "Z18", family, claim, "–", "–", "5", "1 min", verdict] for family, claim, verdict in (
        ("primary", "mixup is better", "holds"), ("secondary", "mixup is worse", "undecided, needs 10 seeds"),
        ("secondary", "ERM is better", "holds"))]  # fmt: skip
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    table = f"<thead><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead><tbody>"
    table += "".join(f"<tr>{row}</tr>" for row in cells)
    script = (Path(__file__).parents[2] / "docs" / "js" / "evidence.js").read_text()
    page = tmp_path / "evidence.html"
    page.write_text(f"<meta charset=utf-8><table>{table}</tbody></table><script>{script}</script>", encoding="utf-8")
    browser.get(page.as_uri())

    def shown() -> list[str]:
        return [row.text.split("Z18 ")[1] for row in browser.find_elements("css selector", "tbody tr") if row.text]

    assert len(shown()) == 3
    search, *lists = browser.find_elements("css selector", ".claim-filters input, .claim-filters select")
    search.send_keys("mixup")
    assert len(shown()) == 2
    assert [option.text for option in lists[2].find_elements("tag name", "option")] == [
        "every verdict",
        "holds",
        "undecided",
    ]
    lists[2].send_keys("undecided")
    assert len(shown()) == 1
    assert "1 of 3 claims" in browser.find_element("css selector", ".claim-filters").text
