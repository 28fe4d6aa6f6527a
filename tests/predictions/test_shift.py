"""Predictions now and then: changes with their intervals, and the accuracy that confidences predict."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.running import vicinal as command
from vicinal import compare, evaluate
from vicinal.predictions import open_file
from vicinal.predictions.shift import independent_change, predicted_accuracy, shift_of_files


def _drawn(seed, n, scale=1.0, sharp=1.0):
    """Logits whose labels are drawn from them; `sharp` above 1 makes what is told over-confident."""
    draws = np.random.default_rng(seed)
    logits = draws.normal(size=(n, 3)) * scale
    return logits * sharp, (logits + draws.gumbel(size=(n, 3))).argmax(axis=1)


def _file(path, logits, labels=None):
    frame = pd.DataFrame({f"logit_{k}": logits[:, k] for k in range(3)})
    (frame if labels is None else frame.assign(label=labels)).to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_independent_changes_cover_the_truth():
    then = _drawn(10_000, 200_000)
    now = _drawn(10_001, 200_000, scale=0.5)
    truth = [evaluate(y, logits=z) for z, y in (then, now)]
    hits = dict.fromkeys(("accuracy", "nll"), 0)
    for seed in range(200):
        a, b = (evaluate(y, logits=z) for z, y in (_drawn(seed, 150), _drawn(500 + seed, 100, scale=0.5)))
        for name in hits:
            change = independent_change(a.metrics[name], b.metrics[name])
            true = truth[1].metrics[name].value - truth[0].metrics[name].value
            hits[name] += change.low <= true <= change.high
    assert min(hits.values()) / 200 > 0.95 - 3 * (0.95 * 0.05 / 200) ** 0.5, hits


@pytest.mark.slow
@pytest.mark.parametrize("sharp", [1.0, 3.0])
def test_the_predicted_accuracy_covers_that_of_shifted_rows(sharp):
    """Harder rows, of a model that is calibrated or as over-confident as before at each confidence."""
    hits, trials = 0, 200
    for seed in range(trials):
        logits, labels = _drawn(seed, 600, sharp=sharp)
        draws = np.random.default_rng(900 + seed)
        reference = evaluate(labels[:300], logits=logits[:300])
        # The new rows are the same kind, but those of low confidence come more often.
        rest = np.arange(300, 600)
        top = np.exp(logits[rest]).max(1) / np.exp(logits[rest]).sum(1)
        rows = rest[draws.random(300) < np.where(top < np.median(top), 1.0, 0.3)]
        z = logits[rows] - logits[rows].max(1, keepdims=True)
        confidence = (np.exp(z) / np.exp(z).sum(1, keepdims=True)).max(1)
        found = predicted_accuracy(reference, confidence)
        hits += found.low <= (logits[rows].argmax(1) == labels[rows]).mean() <= found.high
    assert hits / trials > 0.95 - 3 * (0.95 * 0.05 / trials) ** 0.5, hits


def test_files_with_and_without_labels(tmp_path):
    old = _file(tmp_path / "old.csv", *_drawn(0, 400))
    new = _drawn(1, 300, scale=0.4)
    labelled, plain = _file(tmp_path / "new.csv", *new), _file(tmp_path / "plain.csv", new[0])
    found = shift_of_files(open_file(labelled), open_file(old))
    assert found.changes["accuracy"].value == pytest.approx(found.now.accuracy.value - found.reference.accuracy.value)
    assert found.changes["accuracy"].high < 0
    alone = shift_of_files(open_file(plain), open_file(old))
    assert alone.now is None
    assert not alone.changes
    assert alone.predicted == found.predicted
    assert alone.predicted.low < found.now.accuracy.value < alone.predicted.high


def test_paired_changes_are_those_of_compare(tmp_path):
    logits, labels = _drawn(0, 300)
    later = logits + np.random.default_rng(5).normal(size=logits.shape)
    files = [_file(tmp_path / name, z, labels) for name, z in (("old.csv", logits), ("new.csv", later))]
    found = shift_of_files(open_file(files[1]), open_file(files[0]), paired=True)
    expected = compare(evaluate(labels, logits=logits), evaluate(labels, logits=later))["nll"]
    assert found.changes["nll"].low == pytest.approx(expected.low)
    apart = shift_of_files(open_file(files[1]), open_file(files[0]))
    assert found.changes["nll"].high - found.changes["nll"].low < apart.changes["nll"].high - apart.changes["nll"].low


def test_the_command(tmp_path):
    _file(tmp_path / "old.csv", *_drawn(0, 400))
    new = _drawn(1, 300, scale=0.4)
    _file(tmp_path / "new.csv", *new)
    _file(tmp_path / "plain.csv", new[0])
    said = command("evaluate", "new.csv", "--reference", "old.csv", cwd=tmp_path).out
    assert "then (n = 400)" in said
    assert "change" in said
    plain = command("evaluate", "plain.csv", "--reference", "old.csv", "--json", cwd=tmp_path).out
    record = json.loads(plain.splitlines()[-1])
    assert record["predicted_accuracy"]["low"] < record["predicted_accuracy"]["high"]
    assert record["assumption"].startswith("assumes that answers of equal confidence")
    assert (
        "leave --reference out"
        in command("evaluate", "new.csv", "--reference", "old.csv", "--parts", code=1, cwd=tmp_path).err
    )
    assert (
        "has none" in command("evaluate", "plain.csv", "--reference", "old.csv", "--paired", code=1, cwd=tmp_path).err
    )
