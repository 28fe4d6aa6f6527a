"""The reports as files: whole, escaped, the same each time, and unbroken by odd runs."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import re
import zlib
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import torch
from markupsafe import Markup
from scipy.stats import t

from tests.report.results import PIXEL, SCRIPT, outcome, scored
from vicinal._atomic import DamagedFileError
from vicinal.calibrators import loss_parts
from vicinal.calibrators.parts import refined_losses
from vicinal.calibrators.validation import HeldOut
from vicinal.metrics import clopper_pearson
from vicinal.metrics.ood import ood_report
from vicinal.predictions import evaluate_file
from vicinal.probes import Attack, attack_errors, between_samples
from vicinal.report import ReportExtras, sections, write_comparison, write_predictions, write_run
from vicinal.report.formatting import from_here
from vicinal.report.plots import Drawing, Sheet
from vicinal.runs.grid_parts import grid_parts
from vicinal.runs.summary_table import GridResult

VOID = {"meta", "img", "br", "hr", "input", "link"}


class Page(HTMLParser):
    """Checks that elements close in order and collects names, texts and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.addresses: list[str] = []
        self.parts: list[str] = []
        self.svg_labels: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        if tag == "svg":
            self.svg_labels.append(given.get("aria-label", ""))
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("href", "xlink:href"):
            if name in given:
                self.addresses.append(given[name])
        if "src" in given:
            self.addresses.append(given["src"])
        for value in given.values():
            self.references += re.findall(r"url\(#([^)]+)\)", value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open and "script" not in self.open:
            self.parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).replace("\u00a0", " ").replace("\u2060", "").split())


def read(path) -> Page:
    page = Page(path.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    for script in re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL):  # the report's own, and no other
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'\"" in text
    assert page.tags.count("script") == 1
    assert len(page.ids) == len(set(page.ids)), "names must be unique, or one figure is clipped by another's frame"
    assert set(page.references) <= set(page.ids)
    for address in page.addresses:
        assert address.startswith("data:image/") or address.removeprefix("#") in page.ids, address
    assert all(page.svg_labels)
    assert page.tags.count("figcaption") == page.tags.count("figure") == page.tags.count("svg")
    for found in re.finditer(r"\bECE\b", page.text):
        # The number of bins stands with every ECE that has a value.
        around = page.text[found.start() : found.start() + 60]
        if re.match(r"ECE[^.]{0,12}\d", around):
            assert "bins" in around, around
    return page


@pytest.fixture
def no_figures(monkeypatch):
    """Leave the drawings empty, where they have no part in the test."""

    def draw(self, paint, size, title, caption, hover=()):
        return Drawing(Markup('<svg aria-label="x"></svg>'), title, caption)

    monkeypatch.setattr(Sheet, "draw", draw)


def usual(tmp_path, **options):
    sets = {"val": scored("val", 400, 4, seed=1), "test": scored("test", 500, 4, seed=2)}
    return outcome(tmp_path / "run", options.pop("sets", sets), **options)


def test_sections_come_in_the_order_of_a_readers_questions(tmp_path, no_figures):
    page = read(write_run(usual(tmp_path), tmp_path / "r.html"))
    order = ["metrics", "reliability", "risk", "sets", "classes", "learning", "trained", "rerun"]
    assert [name for name in page.ids if name in order] == order
    # The next step leads to the section that helps with it; then come all sections.
    assert [name for name in (a.removeprefix("#") for a in page.addresses) if name in order] == ["risk", *order]


def test_the_report_holds_everything(tmp_path):
    noise = {
        "corrupted": 200,
        "changed": 150,
        "best": {"train_real": 0.1, "train_corrupted": 0.25, "test": 0.2},
        "last": {"train_real": 0.2, "train_corrupted": 0.05, "test": 0.3},
    }
    sets = {
        "val": scored("val", 400, 4, seed=1, sharpness=2, temperature=2),
        "test": scored("test", 500, 4, seed=2, sharpness=2, temperature=2),
        "eval-1": scored("another.csv", 300, 4, seed=3, sharpness=2, temperature=2),
    }
    run = outcome(
        tmp_path / "run",
        sets,
        temperature=2.0,
        label_noise=noise,
        mistakes=[{"index": 3, "label": "class 1", "prediction": "class 2", "confidence": 0.97, "row": {"age": 31.5}}],
    )
    model = torch.nn.Linear(3, 4)
    x, y = torch.rand(20, 3), torch.randint(0, 4, (20,))
    path = write_run(
        run,
        tmp_path / "deep" / "report.html",
        ReportExtras(
            mc_dropout=run.test.before,
            between=between_samples(model, (x, y), pairs=5),
            ood=[("noise", ood_report([0.9, 0.8, 0.95], [0.4, 0.85]))],
            attacks=[("fgsm:4/255", attack_errors(model, (x, y), Attack("fgsm", 4 / 255)))],
            audit=[{"label": "class 0", "aum": -1.5, "threshold": -0.5, "picture": PIXEL, "origin": "a.png"}],
        ),
    )
    assert path == tmp_path / "deep" / "report.html"
    page = read(path)
    assert page.tags.count("svg") == 7 + 7 + 2 + 1 + 1 + 3  # main, other, learning, risk, OOD, between
    for expected in (
        "made up, 4 classes",
        "ERM()",
        "it says",
        "before calibration",
        "class 1 class 2 97.0 %",
        "age 31.5",
        "Extra evaluation set: another.csv",
        "AUROC",
        "fgsm:4/255",
        "Training error, corrupted labels",
        "−1.5 −0.5",
        "with MC dropout",
        "5 random pairs of training samples",
        run.experiment.command(run.out),
        "1,234 weights",
        f"{100 * run.test.after.accuracy.value:.1f} %",
        f"{run.test.before.nll.value:.4f}",
        f"{run.test.after.nll.value:.4f}",
    ):
        assert expected in page.text, expected


def test_sections_appear_only_when_asked_for(no_figures, tmp_path):
    page = read(write_run(usual(tmp_path), tmp_path / "r.html"))
    for id in ("ood", "attacks", "between", "noise", "audit", "mistakes", "eval-1"):
        assert id not in page.ids
    page = read(write_run(usual(tmp_path), tmp_path / "r.html", ReportExtras(audit=[])))
    assert "No sample looks mislabelled" in page.text


def test_what_users_wrote_is_escaped(tmp_path):
    names = [SCRIPT, '"><img src=x onerror=alert(1)>', "日本語 ümläut $x$ {{ 7 * 7 }}", "a" * 300]
    mistakes = [
        {
            "index": 1,
            "label": names[0],
            "prediction": names[1],
            "confidence": 0.99996,
            "label_probability": 1e-5,
            "text": [SCRIPT, "x" * 600, "two\nlines"],
        },
        {"index": 2, "label": names[2], "prediction": SCRIPT, "confidence": 0.9, "row": {SCRIPT: SCRIPT, "b": None}},
        {"index": 3, "label": names[2], "prediction": "b", "confidence": 0.9, "picture": "https://example.org/x.png"},
        {"index": 4, "label": names[2], "prediction": "b", "confidence": 0.9, "picture": 'data:image/png;base64,"><b>'},
        {"index": 5, "label": "a", "prediction": "b", "confidence": 0.9, "origin": "caf\\udce9.png"},
    ]
    sets = {
        "val": scored("val", 200, 4),
        "test": scored("test", 200, 4),
        "eval-1": scored(SCRIPT, 60, 4),
    }
    run = outcome(tmp_path / "run", sets, classes=names, mistakes=mistakes, notes=[SCRIPT])
    run.facts["data"]["notes"] = [SCRIPT]
    report = ood_report([0.9, 0.8], [0.3, 0.4])
    path = write_run(
        run, tmp_path / "r.html", ReportExtras(ood=[(SCRIPT, report)], audit=[{"label": SCRIPT, "text": SCRIPT}])
    )
    text = path.read_text(encoding="utf-8")
    page = read(path)  # also: no script but the report's own, and every address is in the file
    assert SCRIPT not in text
    assert page.text.count(SCRIPT) > 10
    assert names[1] in page.text
    assert names[2] in page.text
    assert "example.org" not in text
    assert f"{names[1]} over 99.9 %" in page.text
    assert "under 0.1 %" in page.text
    assert page.tags.count("b") == text.count("<b>")


def test_names_that_are_no_text_do_not_stop_it(no_figures, tmp_path):
    odd = [{"label": "a", "prediction": "b", "confidence": 0.9, "origin": "caf\udce9.png"}]
    assert "caf?.png" in read(write_run(usual(tmp_path), tmp_path / "r.html", ReportExtras(audit=odd))).text


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param({"val": scored("val", 300, 2), "test": scored("test", 300, 2)}, id="two classes"),
        pytest.param({"val": scored("val", 10, 3), "test": scored("test", 10, 3)}, id="ten samples"),
        pytest.param({"val": scored("val", 1, 3), "test": scored("test", 1, 3)}, id="one sample"),
        pytest.param({"test": scored("test", 300, 3)}, id="no validation set"),
        pytest.param({"val": scored("val", 300, 3)}, id="no test set"),
        pytest.param(
            {"val": scored("val", 300, 3, sharpness=np.inf), "test": scored("test", 300, 3, sharpness=np.inf)},
            id="perfect",
        ),
        pytest.param({}, id="nothing held out"),
    ],
)
def test_odd_runs(tmp_path, sets):
    run = outcome(tmp_path / "run", sets, mistakes=[])
    page = read(write_run(run, tmp_path / "r.html"))
    assert ("No samples were held out" in page.text) == (not sets)
    assert ("There is no test set" in page.text) == (list(sets) == ["val"])
    small = bool(sets) and next(iter(sets.values())).after.n < 50
    assert ("Too few samples" in page.text) == small
    if "val" not in sets and sets:
        assert "Looking back" in page.text
        assert "Calibration and error" not in page.text
    assert ("It made no mistakes" in page.text) == ("test" in sets)


@pytest.mark.parametrize("k", [100, 1000])
def test_many_classes(no_figures, tmp_path, k):
    sets = {"val": scored("val", 500, k), "test": scored("test", 2 * k, k)}
    path = write_run(outcome(tmp_path / "run", sets), tmp_path / "r.html")
    page = read(path)
    assert f"The 20 with the lowest recall of {k} classes" in page.text
    assert f"All {k} classes" in page.text
    assert page.tags.count("details") == 5  # of classes, of their prediction sets, of bins
    assert path.stat().st_size < 1_500_000


def test_the_class_table_counts_by_hand(no_figures, tmp_path):
    run = usual(tmp_path)
    page = read(write_run(run, tmp_path / "r.html"))
    samples = run.test.after.samples
    for c in range(4):
        n = sum(1 for label in samples.labels if label == c)
        found = sum(1 for a, b in zip(samples.labels, samples.predictions, strict=True) if a == b == c)
        named = [i for i, b in enumerate(samples.predictions) if b == c]
        right = sum(1 for i in named if samples.labels[i] == c)
        sure = sum(float(samples.confidence[i]) for i in named) / len(named)
        row = rf"class {c} {n} {100 * found / n:.1f} % [\d.]+–[\d.]+ % {len(named)} {100 * right / len(named):.1f} % "
        low, high = clopper_pearson(right, len(named))
        row += rf"{100 * float(low):.1f}–{100 * float(high):.1f} % "
        assert re.search(row + rf"{100 * sure:.1f} %", page.text), row


def test_calibration_and_refinement_are_shown_where_they_take_a_moment(no_figures, tmp_path, monkeypatch):
    run = usual(tmp_path)
    page = read(write_run(run, tmp_path / "r.html"))
    parts = loss_parts(run.test.labels, logits=run.test.logits)["nll"]
    row = " ".join(f"{one.value:.4f} {one.low:.4f}–{one.high:.4f}" for one in (parts.loss, parts.refinement))
    first, last = row[: len(row) // 2].strip(), row[len(row) // 2 :].strip()
    assert "Calibration and refinement Of the losses before calibration. Refinement is" in page.text
    assert f"loss calibration refinement NLL {first} " in page.text
    assert f" {last} Brier score" in page.text
    monkeypatch.setattr("vicinal.report.sections.FEW_SCORES", 1999)
    assert "refinement" not in read(write_run(run, tmp_path / "s.html")).text


def test_a_long_history_stays_small(tmp_path):
    lines = [
        {"epoch": i / 100, "loss": 1 / (i + 1), "val_nll": 1.0, "val_accuracy": 0.5, "val_ece": float("nan")}
        for i in range(20_000)
    ]
    path = write_run(usual(tmp_path, history=lines), tmp_path / "r.html")
    read(path)
    assert path.stat().st_size < 500_000


def test_a_note_of_the_run_stands_at_the_top(no_figures, tmp_path):
    run = usual(tmp_path, notes=["temperature left at 1: on the validation set it does not end"])
    assert "Temperature left at 1" in read(write_run(run, tmp_path / "r.html")).text


def test_the_same_outcome_gives_the_same_bytes_in_any_style(tmp_path, monkeypatch):
    monkeypatch.setattr("vicinal.report.page.now", lambda: "2026-11-18 09:00 UTC")
    run = usual(tmp_path)
    plain = write_run(run, tmp_path / "a.html").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "path"}):
        assert write_run(run, tmp_path / "b.html").read_bytes() == plain
        assert matplotlib.rcParams["font.size"] == 30


# Predictions files


def predictions_csv(path, scored_set, classes) -> None:
    probs = (scored_set.logits.double()).softmax(1).numpy()
    head = ",".join(["label", *(f"prob_{name}" for name in classes)])
    rows = [
        f"{classes[int(label)]}," + ",".join(f"{p:.12f}" for p in row)
        for label, row in zip(scored_set.labels, probs, strict=True)
    ]
    path.write_text("\n".join([head, *rows]), encoding="utf-8")


def test_predictions_file(tmp_path):
    made = scored("test", 800, 3, seed=5)
    predictions_csv(tmp_path / "p.csv", made, [SCRIPT, "ü", "c"])
    evaluation = evaluate_file(tmp_path / "p.csv")
    path = write_predictions(evaluation, tmp_path / "p.html")
    page = read(path)
    assert "it says" in page.text
    assert f"{made.after.nll.value:.4f}" in page.text
    assert page.tags.count("svg") == 4
    assert SCRIPT not in path.read_text(encoding="utf-8")
    assert SCRIPT in page.text
    worst = evaluation.worst[0]
    assert f"row {worst.row:,}" in page.text
    assert "rerun" in page.ids
    assert f"--bins 15 --report {tmp_path / 'p.html'}" in page.text
    assert str((tmp_path / "p.csv").resolve()) in page.text


def test_predictions_file_of_confidences_only(no_figures, tmp_path):
    made = scored("test", 200, 3)
    samples = made.after.samples
    rows = [
        f"{a},{b},{float(c):.9f}"
        for c, a, b in zip(samples.confidence, samples.labels, samples.predictions, strict=True)
    ]
    (tmp_path / "c.csv").write_text("\n".join(["label,prediction,confidence", *rows]))
    page = read(write_predictions(evaluate_file(tmp_path / "c.csv"), tmp_path / "c.html"))
    assert "classes" not in page.ids
    assert f"{100 * made.after.accuracy.value:.1f} %" in page.text


# Comparisons


def grid(tmp_path, *, seeds=(0, 1), temperature: float = 1.0) -> GridResult:
    methods = ("ERM()", "Mixup(alpha=0.2)", "CutMix()")
    outcomes = {}
    for sharpness, method in zip((4.0, 1.0, 1.1), methods, strict=True):
        for seed in seeds:
            made = scored("test", 400, 3, seed=7, sharpness=sharpness + 0.01 * seed, temperature=temperature)
            outcomes[method, seed] = outcome(tmp_path / f"{method}-{seed}", {"test": made})
    del outcomes["CutMix()", seeds[-1]]
    failures = {("CutMix()", seeds[-1]): f"OSError: {SCRIPT}"}
    return GridResult(tmp_path, methods, tuple(seeds), outcomes, failures)


def test_comparison(tmp_path):
    result = grid(tmp_path)
    path = write_comparison(result, tmp_path / "c.html")
    page = read(path)
    assert page.tags.count("svg") == 3  # no calibrator changes anything, so nothing is shown twice
    assert "No calibrator changes the probabilities" in page.text
    both = read(write_comparison(grid(tmp_path / "tempered", temperature=1.2), tmp_path / "both.html"))
    assert both.tags.count("svg") == 6
    assert "No calibrator changes the probabilities" not in both.text
    said = "better on NLL, Brier score, ECE and OE ; not significant on accuracy ."
    assert f"Mixup(alpha=0.2) : {said}" in page.text
    assert "1 of 6 runs failed" in page.text
    assert "1 of 2" in page.text  # seeds of CutMix
    assert SCRIPT not in path.read_text(encoding="utf-8")
    assert f"OSError: {SCRIPT}" in page.text
    difference = result.comparison("Mixup(alpha=0.2)")["nll"]
    assert f"{difference.value:+.4f}".replace("-", "−") in page.text
    assert f"{100 * result.rows()[1]['ece']['value']:.1f} %" in page.text


def test_calibration_and_refinement_of_a_comparison(tmp_path):
    result = grid(tmp_path)
    parts = grid_parts(result, method="temperature")
    first, second, third = parts
    assert (first.n_seeds, third.n_seeds, first.difference) == (2, 1, None)
    # Slowly: the refined losses of the seeds that both have, sample by sample.
    left = {
        cell: refined_losses(HeldOut.of(one.test.labels, one.test.logits), "temperature")["nll"][1]
        for cell, one in result.results.items()
    }
    gaps = [float(left["Mixup(alpha=0.2)", s][i] - left["ERM()", s][i]) for s in (0, 1) for i in range(400)]
    assert second.difference.value == pytest.approx(sum(gaps) / 800)
    assert first.nll.calibration.low > 0.1 > second.nll.calibration.high  # the first is made too confident
    assert abs(second.difference.value) < 0.01  # and nothing else
    assert first.nll.loss.value == pytest.approx(first.nll.calibration.value + first.nll.refinement.value)
    page = read(write_comparison(result, tmp_path / "c.html", parts=parts))
    assert "parts" in page.ids
    assert f"{first.nll.refinement.value:.4f}" in page.text


def test_comparison_on_further_sets_and_what_is_chosen(tmp_path):
    outcomes = {}
    for sharpness, method in ((4.0, "ERM()"), (1.0, "Mixup(alpha=0.2)")):
        tempered = {"sharpness": sharpness, "temperature": 1.2}
        sets = {key: scored(key, 200, 3, seed=3, **tempered) for key in ("val", "test")}
        far = scored(f"far-{SCRIPT}", 90, 3, seed=5, sharpness=sharpness)
        far = dataclasses.replace(far, notes=(f"left {SCRIPT}",))
        outcomes[method, 0] = outcome(tmp_path / method, {**sets, "eval-1": far})
    result = GridResult(tmp_path, ("ERM()", "Mixup(alpha=0.2)"), (0,), outcomes, {})
    page = read(write_comparison(result, tmp_path / "c.html", choose="ece"))
    assert page.tags.count("svg") == 8
    assert {"before", "after", "eval-1-before", "eval-1-after"} <= set(page.ids)
    assert page.text.count(f"left {SCRIPT}") == 1
    assert "Chosen by ECE (15 bins) of the validation set: Mixup(alpha=0.2)" in page.text.replace("\u00a0", " ")
    row = result.rows(on="eval-1")[1]
    assert f"{100 * row['ece']['value']:.1f} %" in page.text


def test_comparison_where_everything_failed(tmp_path):
    result = GridResult(tmp_path, ("ERM()",), (0,), {}, {("ERM()", 0): "MemoryError"})
    page = read(write_comparison(result, tmp_path / "c.html"))
    assert "1 of 1 runs failed" in page.text
    assert "MemoryError" in page.text


def test_one_method_one_seed(no_figures, tmp_path):
    made = {("ERM()", 0): outcome(tmp_path / "r", {"test": scored("test", 100, 3)})}
    page = read(write_comparison(GridResult(tmp_path, ("ERM()",), (0,), made, {}), tmp_path / "c.html"))
    assert "Differences" not in page.text


@pytest.mark.parametrize(
    ("n", "sharpness", "hint"),
    [
        (4000, (1.0, 1.9, 1.05), "About {seeds} seeds would decide the NLL."),
        (60, (1.02, 1.03, 1.02), "More test samples, not seeds, would decide the NLL."),
        (4000, (3.0, 3.1, 3.05), ""),
    ],
)
def test_a_hint_says_what_would_decide(no_figures, tmp_path, n, sharpness, hint):
    made = {}
    for seed, at in enumerate(sharpness):
        for method, sharp in (("ERM()", 1.0), ("Mixup(alpha=0.2)", at)):
            made[method, seed] = outcome(tmp_path / f"{method}{seed}", {"test": scored("test", n, 3, sharpness=sharp)})
    result = GridResult(tmp_path, ("ERM()", "Mixup(alpha=0.2)"), (0, 1, 2), made, {})
    page = read(write_comparison(result, tmp_path / "c.html", command="vicinal compare made-up.csv"))
    nll = [made["Mixup(alpha=0.2)", s].test.after.nll.value - made["ERM()", 0].test.after.nll.value for s in range(3)]
    said = re.search(r"About (\d+) seeds", page.text)
    if said is not None:
        # By Student's interval over seeds alone, which have nearly all of the spread here.
        halves = {s: t.ppf(0.975, s - 1) * np.std(nll, ddof=1) / math.sqrt(s) for s in range(2, 99)}
        assert abs(int(said[1]) - next(s for s, half in halves.items() if half < np.mean(nll))) <= 2
    assert hint.format(seeds="" if said is None else said[1]) in page.text
    assert bool(hint) == ("would decide" in page.text)
    assert "vicinal compare made-up.csv" in page.text


def test_the_pixel_is_a_picture():
    data = base64.b64decode(PIXEL.partition(",")[2])
    assert data.startswith(b"\x89PNG")
    assert zlib.decompress(data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8])


def test_confusions_are_counted_by_hand(no_figures, tmp_path):
    section = sections.confusion_section(["a", "b", "c"], np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 2, 2]))
    counts = [" ".join(cell["n"] for cell in row["cells"]) for row in section["rows"]]
    assert counts == ["1 2 0", "0 1 1", "0 0 1"]
    assert [cell["shade"] for cell in section["rows"][0]["cells"]] == [4, 7, 0]
    pairs = [(entry["label"], entry["taken_for"], entry["n"]) for entry in section["listed"]]
    assert pairs == [("a", "b", "2"), ("b", "c", "1")]
    many = sections.confusion_section([str(k) for k in range(40)], np.arange(40), (np.arange(40) + 1) % 40)
    assert many["rows"] == []
    assert len(many["listed"]) == 10


def test_what_mistakes_share_is_told(no_figures, tmp_path):
    shared = [{"property": "<b>age</b>", "n": 40, "wrong": 20, "n_elsewhere": 160, "wrong_elsewhere": 8}]
    made = outcome(tmp_path / "run", {"test": scored("test", 200, 3)}, classes=["a", "b", "c"], mistakes=[])
    made.run.write_mistakes("tabular", [], shared)
    page = write_run(made, tmp_path / "r.html").read_text()
    assert "Error slices" in page
    assert "&lt;b&gt;age&lt;/b&gt;" in page
    assert "50.0\xa0%" in page
    assert "5.0\xa0%" in page
    made.run.files.mistakes.write_text("{")
    with pytest.raises(DamagedFileError):
        made.run.error_slices()


def test_paths_below_the_working_directory_are_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert from_here(f"vicinal train {tmp_path}/a.csv --out {tmp_path}/runs/b") == "vicinal train a.csv --out runs/b"
    assert from_here("/elsewhere/a.csv") == "/elsewhere/a.csv"
