"""The one list of metrics: an entry is all it takes for a metric to come out everywhere."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.predictions.samples import classifier, save
from tests.report.results import outcome, scored
from vicinal.metrics import METRICS, Estimate, Metric, ReliabilityTable, Tally, clopper_pearson, compare, evaluate
from vicinal.metrics.registry import columns, metrics_named, watched
from vicinal.predictions import evaluate_file
from vicinal.report import write_comparison, write_predictions, write_run
from vicinal.runs import GridResult


def spherical(chunk):
    """The spherical score: the probability of the label over the length of all probabilities."""
    probs = chunk.probs()
    return probs[np.arange(len(chunk)), chunk.labels] / np.sqrt((probs**2).sum(axis=1))


def spherical_slowly(labels, probs):
    return sum(
        float(p[y]) / math.sqrt(sum(float(q) ** 2 for q in p)) for y, p in zip(labels, probs, strict=True)
    ) / len(labels)


def underconfidence(bins):
    return np.maximum(bins.correct - bins.confidence, 0).sum(axis=-1) / bins.count.sum(axis=-1)


@pytest.fixture
def spherical_score(monkeypatch):
    metric = Metric(
        name="spherical",
        title="spherical score",
        about="a proper score",
        higher_is_better=True,
        column=True,
        per_sample=spherical,
    )
    monkeypatch.setitem(METRICS, metric.name, metric)
    return metric


def grid(tmp_path):
    methods, outcomes = ("ERM()", "Mixup(alpha=0.2)"), {}
    for sharpness, method in zip((4.0, 1.0), methods, strict=True):
        made = scored("test", 300, 3, seed=7, sharpness=sharpness)
        outcomes[method, 0] = outcome(tmp_path / method[:3], {"test": made})
    return GridResult(tmp_path, methods, (0,), outcomes, {})


def test_an_entry_is_all_it_takes(spherical_score, tmp_path):
    _, probs, labels = classifier(200, 3)
    expected = spherical_slowly(labels, probs)
    # Arrays
    found = evaluate(labels, probs=probs)
    assert found.spherical.value == pytest.approx(expected, rel=1e-12)
    assert found.spherical.low < expected < found.spherical.high
    assert "spherical    " in str(found)
    # A file, and its page
    of_file = evaluate_file(save(tmp_path / "p.csv", labels, probs))
    assert of_file.spherical.value == pytest.approx(expected, rel=1e-9)
    assert json.loads(json.dumps(of_file.to_dict()))["spherical"]["value"] == of_file.spherical.value
    assert "Spherical score" in write_predictions(of_file, tmp_path / "p.html").read_text(encoding="utf-8")
    # While a model trains
    assert Tally(metrics=watched()).update(labels, probs=probs).values()["spherical"] == pytest.approx(expected)
    # A grid: rows, table, paired difference, page; and the page of a run
    result = grid(tmp_path)
    assert "| spherical score |" in result.table()
    assert set(result.rows()[0]["spherical"]) == {"value", "low", "high", "sd", "se"}
    assert result.comparison("Mixup(alpha=0.2)")["spherical"].better in ("a", "b", None)
    assert "Spherical score" in write_comparison(result, tmp_path / "c.html").read_text(encoding="utf-8")
    run = result.results["ERM()", 0]
    assert "Spherical score" in write_run(run, tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_metric_of_the_bins(monkeypatch):
    """Without an interval of its own it has that of the delta method, and it is not compared."""
    metric = Metric(name="under", title="underconfidence", about="", percent=True, binned=True, of_bins=underconfidence)
    monkeypatch.setitem(METRICS, "under", metric)
    labels, probs = np.array([0, 1] * 100), np.tile([[0.6, 0.4], [0.3, 0.7]], (100, 1))
    found = evaluate(labels, probs=probs)
    assert found.under.value == pytest.approx(0.35)
    assert found.under.low <= 0.35 <= found.under.high
    assert metric.heading(15) == "underconfidence (15 bins)"
    assert "under" not in compare(found, found).differences


def test_a_metric_has_one_source():
    with pytest.raises(ValueError, match="exactly one of per_sample="):
        Metric(name="x", title="x", about="")
    with pytest.raises(ValueError, match="exactly one of per_sample="):
        Metric(name="x", title="x", about="", per_sample=spherical, of_bins=underconfidence)


def test_every_entry_is_complete():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.title
        assert metric.about
        assert metric.limits[0] < metric.limits[1]
        assert not (metric.binned and metric.per_sample), name
        assert ("bins" in metric.heading(15)) == metric.binned


def test_names_are_checked():
    with pytest.raises(ValueError, match=r"metrics must be some of accuracy, .*, got 'acuracy'"):
        evaluate([0], probs=[[1.0]], metrics=["acuracy"])
    assert [metric.name for metric in metrics_named(["ece", "accuracy"])] == ["accuracy", "ece"]


def test_how_estimates_are_written():
    assert METRICS["accuracy"].text(Estimate(0.5, 0.25, 1.0)) == "50.0 % (25.0–100.0)"
    assert METRICS["mcc"].text(Estimate(0.5, -0.25, 1.0)) == "0.500 (-0.250 to 1.000)"
    assert METRICS["nll"].text(Estimate(math.inf, 0.0, math.inf)) == "∞ (0.000–∞)"
    assert METRICS["classwise_ece"].text(Estimate(0.5, math.nan, math.nan)) == "50.0 %"
    assert METRICS["nll"].text(None) == "–"


@pytest.mark.parametrize(("counts", "shown"), [((50, 50), False), ((60, 40), False), ((80, 20), True), ((95, 5), True)])
def test_mcc_has_a_column_where_classes_are_unbalanced(counts, shown):
    labels = np.repeat([0, 1], counts)
    found = evaluate(labels, probs=np.tile([0.6, 0.4], (100, 1)))
    usual = ["accuracy", "nll", "brier", "ece", "ece_debiased", "oe"]  # the debiased one below 1,000 samples
    assert [metric.name for metric in columns(found)] == (["accuracy", "mcc", *usual[1:]] if shown else usual)
    assert [metric.name for metric in columns(found, ["mcc"])] == ["accuracy", "mcc", *usual[1:]]


@pytest.mark.parametrize("k", [3, 5, 6, 40])
def test_top_5_error_where_there_are_more_than_five_classes(k):
    random = np.random.default_rng(0)
    logits = random.integers(0, 4, (200, k)).astype(float)  # ties
    labels = random.integers(0, k, 200)
    found = evaluate(labels, logits=logits)
    if k <= 5:
        assert "top5_error" not in found.metrics
        return
    missed = 0
    for z, y in zip(logits, labels, strict=True):
        first = sorted(range(k), key=lambda c: (-z[c], c))[:5]
        missed += y not in first
    assert found.top5_error.value == pytest.approx(missed / 200)
    low, high = (float(end) for end in clopper_pearson(missed, 200))
    assert (found.top5_error.low, found.top5_error.high) == (low, high)


def test_the_table_of_a_grid_shows_what_is_asked_for(tmp_path):
    result = grid(tmp_path)
    assert "MCC" not in result.table()
    assert "| MCC |" in result.table(metrics=["mcc"])
    assert "classwise" not in result.table(metrics=["classwise_ece"])  # a run does not measure it


def test_contributions_have_the_metric_as_their_mean():
    random = np.random.default_rng(1)
    confidence = random.random(500)
    correct = random.random(500) < confidence**2
    table = ReliabilityTable.from_confidences(confidence, correct)
    for metric in METRICS.values():
        if metric.contributions is not None:
            each = metric.contributions(table.bins, table.bin_index(confidence), confidence, correct)
            assert each.mean() == pytest.approx(float(metric.of_bins(table.bins)), abs=1e-12), metric.name
