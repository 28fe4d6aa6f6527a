"""Several labels against loops over them, each measured alone."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from vicinal.calibrators import TemperatureScaling
from vicinal.calibrators.two_logits import two_logits
from vicinal.metrics import Tally, compare, evaluate, measure

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(200, 3)) * 2
TARGETS = (RNG.random((200, 3)) < 1 / (1 + np.exp(-LOGITS))).astype(int)
NAMES = ("wet", "cold", "windy")
of_labels = partial(evaluate, target_type="multilabel")


def test_each_label_is_a_question_of_two_classes():
    metrics = of_labels(TARGETS, logits=LOGITS, names=NAMES, n_bins=10)
    by_probs = of_labels(TARGETS, probs=1 / (1 + np.exp(-LOGITS)), names=NAMES, n_bins=10)
    for k, name in enumerate(NAMES):
        p = [1 / (1 + math.exp(-z)) for z in LOGITS[:, k]]
        alone = evaluate(TARGETS[:, k], probs=[[1 - one, one] for one in p], n_bins=10)
        right = sum((one > 0.5) == bool(y) for one, y in zip(p, TARGETS[:, k], strict=True)) / 200
        nll = sum(-math.log(one if y else 1 - one) for one, y in zip(p, TARGETS[:, k], strict=True)) / 200
        assert metrics.heads[name].accuracy.value == pytest.approx(right)
        assert metrics.heads[name].nll.value == pytest.approx(nll)
        for metric in alone.metrics:
            for each in (metrics, by_probs):
                assert each.heads[name].metrics[metric].value == pytest.approx(alone.metrics[metric].value, abs=1e-9)


def test_means_over_labels_have_the_interval_of_the_samples_means():
    metrics = of_labels(TARGETS, logits=LOGITS, names=NAMES)
    for name in ("accuracy", "nll", "brier", "ece"):
        assert metrics.metrics[name].value == pytest.approx(
            np.mean([e.metrics[name].value for e in metrics.heads.values()])
        )
    for end in ("low", "high"):
        ends = [getattr(evaluation.ece, end) for evaluation in metrics.heads.values()]
        assert getattr(metrics.metrics["ece"], end) == pytest.approx(np.mean(ends))
    assert metrics.table.n == 600
    rows = np.mean([np.logaddexp(0, LOGITS[:, k]) - TARGETS[:, k] * LOGITS[:, k] for k in range(3)], axis=0)
    assert metrics.metrics["nll"].value == pytest.approx(rows.mean())
    half = 1.97 * rows.std(ddof=1) / math.sqrt(200)
    assert metrics.metrics["nll"].low == pytest.approx(rows.mean() - half, abs=0.3 * half)
    assert metrics.metrics["nll"].high == pytest.approx(rows.mean() + half, abs=0.3 * half)
    assert "mean" in str(metrics)
    assert set(metrics.to_dict()["labels"]) == set(NAMES)


def test_without_mistakes_the_mean_accuracy_is_not_certain():
    targets = (LOGITS > 0).astype(int)
    accuracy = of_labels(targets, logits=LOGITS).accuracy
    assert accuracy.value == accuracy.high == 1
    assert 0.97 < accuracy.low < 1


def test_mean_accuracy_covers_what_it_says():
    rng, covered = np.random.default_rng(1), 0
    for _ in range(400):  # labels of a sample go wrong together, which intervals of labels alone would not see
        wrong = np.where(rng.random((100, 1)) < 0.5, rng.random((100, 4)) < 0.3, rng.random((100, 4)) < 0.05)
        targets = rng.integers(0, 2, (100, 4))
        probs = np.where((targets == 1) ^ wrong, 0.8, 0.2)
        accuracy = of_labels(targets, probs=probs, metrics=["accuracy"]).accuracy
        covered += accuracy.low <= 1 - (0.3 + 0.05) / 2 <= accuracy.high
    assert covered / 400 > 0.92


def test_models_are_compared_on_the_means_over_labels():
    other = LOGITS + RNG.normal(size=LOGITS.shape)
    a, b = (of_labels(TARGETS, logits=logits, names=NAMES) for logits in (LOGITS, other))
    both = compare(a, b, names=("plain", "noisy"))
    alone = [compare(a.heads[name], b.heads[name]) for name in NAMES]
    for metric in both.differences:
        assert both[metric].value == pytest.approx(np.mean([each[metric].value for each in alone]))
    costs = [np.logaddexp(0, z) - TARGETS * z for z in (LOGITS, other)]
    differences = (costs[1] - costs[0]).mean(axis=1)
    assert both["nll"].value == pytest.approx(differences.mean())
    half = 1.97 * differences.std(ddof=1) / math.sqrt(200)  # what few samples add makes it somewhat wider
    assert both["nll"].high - both["nll"].value == pytest.approx(half, rel=0.25)
    assert both["nll"].better == "a"
    assert both.n == 200
    same = compare(a, a)
    assert all(d.better is None and d.value == 0 for d in same.differences.values())
    with pytest.raises(ValueError, match="the same labels"):
        compare(a, a.heads["wet"])


@pytest.mark.slow
def test_two_models_that_are_equal_are_rarely_called_different():
    rng, called = np.random.default_rng(2), {"accuracy": 0, "ece": 0}
    for _ in range(300):  # the labels of a sample are hard together
        z = rng.normal(size=(100, 1)) + 0.5 * rng.normal(size=(100, 3))
        targets = (rng.random((100, 3)) < 1 / (1 + np.exp(-z))).astype(int)
        noisy = (z + 0.5 * rng.normal(size=z.shape) for _ in range(2))
        models = [of_labels(targets, logits=logits, metrics=list(called)) for logits in noisy]
        comparison = compare(*models)
        for metric in called:
            called[metric] += comparison[metric].better is not None
    assert max(called.values()) / 300 <= 0.055 + 1.645 * math.sqrt(0.05 * 0.95 / 300)


def test_a_planted_temperature_of_each_label_is_recovered():
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, 2, generator=generator, dtype=torch.float64)
    targets = (torch.rand(20_000, 2, generator=generator) < true.sigmoid()).long()
    for k, planted in enumerate((3.0, 0.5)):
        fitted = TemperatureScaling().fit(two_logits(planted * true[:, k]), targets[:, k])
        assert fitted.temperature_ == pytest.approx(planted, rel=0.06)
    torch.testing.assert_close(two_logits(true[:, 0]).softmax(1)[:, 1], true[:, 0].sigmoid())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"logits": LOGITS[:, :, None]}, r"logits must have shape \[N, L\]"),
        ({"logits": LOGITS[:, :2]}, r"must both be \[N, L\], got \[200, 3\] and \[200, 2\]"),
        ({"probs": LOGITS}, r"probs must be in \[0, 1\]"),
        ({"logits": LOGITS, "names": ["a", "b"]}, "3 different names"),
        ({}, "or logits"),
    ],
)
def test_what_cannot_be_measured_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        of_labels(TARGETS, **given)


def test_bad_targets_are_named():
    with pytest.raises(ValueError, match="targets must hold 0 and 1"):
        of_labels(TARGETS + 1, logits=LOGITS)


@pytest.mark.parametrize("target_type", ["multiclass", "binary", "multilabel", "regression"])
def test_a_stream_of_any_target_type_adds_up_to_what_is_measured_at_once(target_type):
    targets, logits = {
        "multiclass": (TARGETS[:, 0], np.stack([0 * LOGITS[:, 0], LOGITS[:, 0]], axis=1)),
        "binary": (TARGETS[:, 0], LOGITS[:, 0]),
        "multilabel": (TARGETS, LOGITS),
        "regression": (RNG.normal(size=200), LOGITS[:, :1]),
    }[target_type]
    whole = measure(targets, logits=logits, target_type=target_type)
    assert whole == pytest.approx(evaluate_values(targets, logits, target_type, whole))
    parts = [Tally(target_type=target_type, metrics=list(whole)) for _ in range(3)]
    for part, rows in zip(parts[:2], (slice(0, 70), slice(70, 200)), strict=True):  # the last process has no sample
        part.update(targets[rows], logits=logits[rows])
    assert sum(parts).values() == pytest.approx(whole)
    assert (parts[2] + parts[0] + parts[1]).values() == pytest.approx(whole)
    assert parts[0].n == 70, "adding leaves the parts alone"


def evaluate_values(targets, logits, target_type, names):
    found = evaluate(targets, logits=logits, target_type=target_type)
    return {name: found.metrics[name].value for name in names}


def test_a_binary_target_is_two_classes():
    both = np.stack([np.zeros(200), LOGITS[:, 0]], axis=1)
    classes = measure(TARGETS[:, 0], logits=both, target_type="multiclass")
    assert measure(TARGETS[:, 0], logits=LOGITS[:, 0], target_type="binary") == pytest.approx(classes)


def test_numbers_have_the_squared_error_and_the_rank_correlation_of_loops():
    truth = RNG.normal(size=50)
    guess = truth + RNG.normal(size=50)
    found = evaluate(truth, logits=guess[:, None], target_type="regression")
    assert set(found.metrics) == {"mse", "spearman"}
    assert found.mse.value == pytest.approx(sum((g - t) ** 2 for g, t in zip(guess, truth, strict=True)) / 50)
    ranks = [[sum(other < one for other in of) for one in of] for of in (truth, guess)]
    assert found.spearman.value == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert found.mse.low < found.mse.value < found.mse.high
    assert "mse" in str(found)


def test_tallies_of_other_targets_do_not_add_up():
    two, three = (Tally(target_type="multilabel").update(TARGETS[:, :k], logits=LOGITS[:, :k]) for k in (2, 3))
    with pytest.raises(ValueError, match="as many labels add up, got 2 and 3"):
        two + three
    with pytest.raises(ValueError, match="this tally has 2 labels, got 3"):
        two.update(TARGETS, logits=LOGITS)
    with pytest.raises(ValueError, match="same target type"):
        Tally(target_type="binary") + two
    with pytest.raises(ValueError, match="target_type must be"):
        Tally(target_type="classes")
    with pytest.raises(ValueError, match="predictions of a regression"):
        Tally(target_type="regression").update([1.0], probs=[0.5])
