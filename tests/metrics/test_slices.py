"""Slices: intervals by hand, the correction, what is worst, hostile input."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from vicinal.metrics import Slice, clopper_pearson, evaluate, evaluate_slices


def made(n: int = 900, seed: int = 0):
    """Return an evaluation in which every third sample has random labels, and the number of each sample's third."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(n, 3))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    third = np.arange(n) % 3
    return evaluate(np.where(third == 1, rng.integers(0, 3, n), labels), probs=probs), third


def test_metrics_of_slices_by_hand() -> None:
    evaluation, third = made()
    found = {one.name: one for one in evaluate_slices(evaluation, third)}
    samples = evaluation.samples
    for k in range(3):
        rows = [i for i in range(900) if third[i] == k]
        right = sum(samples.predictions[i] == samples.labels[i] for i in rows)
        one = found[str(k)]
        assert (one.n, one.accuracy.value) == (300, right / 300)
        low, high = clopper_pearson(right, 300, 1 - 0.05 / 3)
        assert (one.accuracy.low, one.accuracy.high) == (float(low), float(high))
        assert one.gap.value == pytest.approx(sum(samples.confidence[i] for i in rows) / 300 - right / 300)
        assert one.nll.value == pytest.approx(sum(samples.values["nll"][i] for i in rows) / 300)


def test_the_worst_slice_comes_first_and_is_significant() -> None:
    evaluation, third = made()
    found = evaluate_slices(evaluation, {f"third {k}": third == k for k in range(3)})
    assert (found[0].name, found[0].status) == ("third 1", "worse")
    assert found[0].gap.low > 0
    assert all(one.status != "worse" for one in found[1:])


def test_slices_of_a_calibrated_model_are_seldom_significant() -> None:
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet(np.ones(3), 400)
        labels = (probs.cumsum(axis=1) < rng.random((400, 1))).sum(axis=1)
        found = evaluate_slices(evaluate(labels, probs=probs), rng.integers(0, 8, 400))
        alarms += any(one.status for one in found)
    assert alarms <= 12  # each of three intervals is corrected for eight slices


def test_a_slice_is_json() -> None:
    evaluation, third = made(60)
    for one in evaluate_slices(evaluation, third):
        again = Slice.from_dict(json.loads(json.dumps(one.to_dict())))
        assert again.to_dict() == one.to_dict()


def test_hostile_slices() -> None:
    evaluation, third = made(60)
    with pytest.raises(ValueError, match="must be 60 bools, one for each sample"):
        evaluate_slices(evaluation, {"a": [True, False]})
    with pytest.raises(ValueError, match="must be 60 bools"):
        evaluate_slices(evaluation, {"a": third})
    assert evaluate_slices(evaluation, {"none": np.zeros(60, bool)}) == []
    single = evaluate_slices(evaluation, {"one": np.arange(60) == 0})[0]
    assert single.n == 1
    assert math.isfinite(single.gap.high)
