"""What single recipes compute by themselves, against slow versions."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

from vicinal.calibrators import TemperatureScaling
from vicinal.recipes import get, p22_vanilla


@pytest.fixture
def predictions():
    draw = np.random.default_rng(0)
    labels = draw.integers(3, size=60)
    return 4 * (np.eye(3)[labels] + draw.normal(size=(60, 3))), labels


def test_a_temperature_for_smoothed_targets(predictions):
    logits, labels = predictions

    def cost(t):
        total = 0.0
        for z, y in zip(logits, labels, strict=True):
            normaliser = sum(math.exp(v / t) for v in z)
            for k in range(3):
                total -= (0.8 if k == y else 0.1) * math.log(math.exp(z[k] / t) / normaliser)
        return total

    best = min((k / 100 for k in range(100, 501)), key=cost)
    assert p22_vanilla.fit_smoothed(logits, labels, 0.2) == pytest.approx(best)
    hard = TemperatureScaling(search="grid").fit(logits, labels).temperature_
    assert p22_vanilla.fit_smoothed(logits, labels, 0.0) == hard < best


def test_stored_logits_are_read_and_missing_ones_named(predictions, tmp_path, monkeypatch):
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    recipe = get("p22-vanilla")
    with pytest.raises(FileNotFoundError, match=r"p22-vanilla needs logits/nli_baan2022/SNLI_dev_bert"):
        recipe.check(recipe.scales["cpu"])
    logits, labels = predictions
    lines = [json.dumps({"logits": z.tolist(), "true": int(y)}) for z, y in zip(logits, labels, strict=True)]
    for part in ("dev", "test"):
        with gzip.open(tmp_path / f"a_{part}.jsonl.gz", "wt") as file:
            file.write("\n".join(lines))
    measured = recipe.measure([], {"file": "a_{part}.jsonl.gz", "n_bins": 10, "smoothing": 0.1}, 0)
    assert measured["fall"].value == pytest.approx(measured["ece"].value - measured["after"].value)
    assert measured["temperature"] < measured["temperature smoothed"]
