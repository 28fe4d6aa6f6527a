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
        low, high = clopper_pearson(right, 300, 1 - 0.05 / 9)  # three slices, three metrics
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
    assert alarms <= 9  # 5 % of 60 but for chance: 24 intervals together


def test_a_slice_is_json() -> None:
    evaluation, third = made(60)
    for one in evaluate_slices(evaluation, third):
        again = Slice.from_dict(json.loads(json.dumps(one.to_dict())))
        assert again.to_dict() == one.to_dict()


def test_hostile_slices() -> None:
    evaluation, third = made(60)
    with pytest.raises(ValueError, match="must be 60 values, one for each sample"):
        evaluate_slices(evaluation, {"a": [True, False]})
    with pytest.raises(ValueError, match="must be 60 values"):
        evaluate_slices(evaluation, third[:, None])
    assert evaluate_slices(evaluation, {"none": np.zeros(60, bool)}) == []
    single = evaluate_slices(evaluation, {"one": np.arange(60) == 0})[0]
    assert single.n == 1
    assert math.isfinite(single.gap.high)


def test_groups_of_an_evaluation_are_slices_and_clusters() -> None:
    rng = np.random.default_rng(0)
    probs, labels, sex = rng.dirichlet(np.ones(2), 300), rng.integers(0, 2, 300), np.array(["f", "m", "x"] * 100)
    found = evaluate(labels, probs=probs, groups=sex)
    plain = evaluate(labels, probs=probs, slices={"sex": sex})
    assert [one.name for one in plain.slices] == [f"sex is {one.name!r}" for one in found.slices]
    assert [one.nll for one in plain.slices] == [one.nll for one in found.slices]
    assert found.accuracy.high - found.accuracy.low > plain.accuracy.high - plain.accuracy.low
    assert [one["name"] for one in plain.to_dict()["slices"]] == [one.name for one in plain.slices]
    assert evaluate(labels, probs=probs).slices == evaluate(labels, probs=probs, groups=np.arange(300)).slices == ()


def test_columns_are_cut_by_value_quartile_and_length() -> None:
    rng = np.random.default_rng(0)
    cells = {
        "age": [*range(79), None],
        "text": [" ".join(["word"] * (3 + i % 9)) + f" {i}" for i in range(80)],
        "city": ["Rome", "Oslo"] * 40,
        "old": np.arange(80) > 60,
    }
    evaluation = evaluate(rng.integers(0, 2, 80), probs=rng.dirichlet(np.ones(2), 80), slices=cells)
    counts = {one.name: one.n for one in evaluation.slices}
    assert counts["age missing"] == 1
    assert sum(n for name, n in counts.items() if name.startswith("age") and "missing" not in name) == 79
    assert sum(n for name, n in counts.items() if name.startswith("words in text")) == 80
    assert (counts["city is 'Rome'"], counts["old"], len(counts)) == (40, 19, 12)
