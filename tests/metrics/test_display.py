"""What a notebook shows."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from vicinal.metrics import ReliabilityTable, compare, evaluate


def shown(thing: object) -> ET.Element:
    """Return the HTML as a tree: it is whole, and loads nothing."""
    page: str = thing._repr_html_()  # type: ignore[attr-defined]
    assert "http" not in page
    assert "<script" not in page
    return ET.fromstring(page)


def models() -> list:
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(3), 80)
    labels = random.integers(0, 3, 80)
    return [evaluate(labels, probs=p) for p in (probs, probs[::-1])]


def test_an_evaluation_has_its_metrics_and_a_diagram():
    first, _ = models()
    page = shown(first)
    cells = [cell.text for cell in page.iter("td")]
    assert cells[:2] == [
        "accuracy",
        f"{100 * first.accuracy.value:.1f} % ({100 * first.accuracy.low:.1f}–{100 * first.accuracy.high:.1f})",
    ]
    assert "ECE (15 bins)" in cells
    bars = [rect for rect in page.iter("rect") if rect.get("fill") == "#0072B2"]
    assert len(bars) == int((first.table.bin_count > 0).sum())


def test_a_bar_is_as_high_as_its_bin_is_accurate():
    table = ReliabilityTable.from_confidences([0.9, 0.9, 0.9, 0.9], [True, True, True, False], n_bins=10)
    (bar,) = [rect for rect in shown(table).iter("rect") if rect.get("fill") == "#0072B2"]
    assert float(bar.get("height") or 0) == 0.75 * 220
    assert float(bar.get("width") or 0) == 22
    assert ReliabilityTable()._repr_html_() == "no samples"


def test_a_comparison_names_its_models_as_text():
    a, b = models()
    page = shown(compare(a, b, names=("<b>old</b>", "new")))
    assert [cell.text for cell in page.iter("th")] == [None, "<b>old</b>", "new", "difference", "better"]
    assert not list(page.iter("b"))


def test_a_notebook_shows_them(tmp_path):
    """What a notebook holds once it ran: tables and diagrams, not the text of their objects."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [
        "from vicinal.metrics import ReliabilityTable, compare, evaluate\n"
        "labels, probs = [0, 1] * 40, [[0.8, 0.2]] * 80\n"
        "evaluate(labels, probs=probs)",
        "compare(evaluate(labels, probs=probs), evaluate(labels, probs=[[0.5, 0.5]] * 80))",
        "ReliabilityTable.from_confidences([0.9, 0.6], [True, False])",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    ran = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, has in zip(ran.cells, ("<svg", "<table", "<svg"), strict=True):
        (output,) = cell.outputs
        assert has in output.data["text/html"]
        assert "http" not in output.data["text/html"]
