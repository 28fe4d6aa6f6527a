from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import brentq

from vicinal.metrics import (
    METRICS,
    Estimate,
    Evaluation,
    ReliabilityTable,
    Tally,
    accuracy,
    brier,
    clopper_pearson,
    error_estimates,
    evaluate,
    mcc,
    nll,
)
from vicinal.metrics import chunks as passes
from vicinal.metrics.intervals import Moments, mean_interval
from vicinal.metrics.registry import metrics_named

#: What is measured of few classes unless something is asked for.
DEFAULT = tuple(metric.name for metric in metrics_named() if metric.more_classes_than < 5)


def predictions(n, k=5, seed=0, temperature=1.5):
    random = np.random.default_rng(seed)
    logits = 2 * random.standard_normal((n, k))
    true = np.exp(logits / temperature)
    true /= true.sum(1, keepdims=True)
    labels = (true.cumsum(1) > random.random((n, 1))).argmax(1)
    return logits, labels


def test_metrics_are_those_of_the_functions():
    logits, labels = predictions(1000)
    result = evaluate(labels, logits=logits)
    table = ReliabilityTable.from_logits(labels, logits)
    for name, function in (("accuracy", accuracy), ("mcc", mcc), ("nll", nll), ("brier", brier)):
        assert getattr(result, name).value == pytest.approx(function(labels, logits=logits), abs=1e-12)
    for name in ("ece", "ece_debiased", "oe", "mce", "rms", "rms_debiased"):
        assert getattr(result, name).value == pytest.approx(getattr(table, name)(), abs=1e-12)
    assert np.array_equal(result.table.counts, table.counts)
    assert (result.n, result.n_classes, result.n_bins) == (1000, 5, 15)


def test_logits_and_their_softmax_agree_in_any_chunks(monkeypatch):
    logits, labels = predictions(300)
    a = evaluate(labels, logits=logits)
    monkeypatch.setattr(passes, "CHUNK", 35)
    monkeypatch.setattr(passes, "BLOCK", 350)
    b = evaluate(torch.tensor(labels), probs=torch.tensor(logits).softmax(1))
    for name in DEFAULT:
        assert getattr(a, name).value == pytest.approx(getattr(b, name).value, abs=1e-9)


def test_order_of_the_samples_does_not_matter():
    logits, labels = predictions(400)
    order = np.random.default_rng(0).permutation(400)
    a, b = evaluate(labels, logits=logits), evaluate(labels[order], logits=logits[order])
    for name in DEFAULT:
        assert vars(getattr(a, name)) == pytest.approx(vars(getattr(b, name)), abs=1e-9)


def test_every_metric_has_an_interval_around_it():
    for n in (2, 20, 2000):
        logits, labels = predictions(n)
        result = evaluate(labels, logits=logits)
        assert tuple(result.metrics) == DEFAULT
        for name, metric in result.metrics.items():
            assert metric.low <= metric.value <= metric.high, name
            assert math.isfinite(metric.low)
            assert math.isfinite(metric.high)


def test_wider_for_more_confidence_and_fewer_samples():
    logits, labels = predictions(4000)
    full = evaluate(labels, logits=logits)
    sure = evaluate(labels, logits=logits, level=0.999)
    few = evaluate(labels[:400], logits=logits[:400])
    for name in ("accuracy", "mcc", "nll", "brier", "ece", "rms"):
        widths = [getattr(e, name).high - getattr(e, name).low for e in (full, sure, few)]
        assert widths[0] < widths[1]
        assert widths[0] < widths[2]


def test_same_arguments_same_numbers_and_no_global_state():
    logits, labels = predictions(200)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    a, b = evaluate(labels, logits=logits), evaluate(labels, logits=logits)
    assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])
    assert a == b
    assert a.to_dict() == b.to_dict()


def test_prints_as_a_table_and_goes_to_json():
    logits, labels = predictions(1200)
    result = evaluate(labels, logits=logits, n_bins=10, level=0.9)
    lines = str(result).splitlines()
    assert lines[0] == "1,200 samples, 5 classes, 10 bins; 90 % intervals"
    assert [line.split()[0] for line in lines[1:]] == list(DEFAULT)
    held = json.loads(json.dumps(result.to_dict()))
    assert held["n_bins"] == 10
    assert held["ece"] == {"value": result.ece.value, "low": result.ece.low, "high": result.ece.high}
    assert "samples" not in held
    assert "array" not in repr(result)
    with pytest.raises(AttributeError):
        result.n = 3


def test_one_sample_tells_nothing_and_says_so():
    result = evaluate([0], probs=[[0.7, 0.3]])
    assert result.accuracy.low < 0.3
    for name in ("ece", "oe", "rms"):
        assert getattr(result, name).low == 0
        assert getattr(result, name).high > 0.6  # the confidence alone allows 0.7
    assert (result.nll.low, result.nll.high) == (0, math.inf)


def test_infinite_nll_is_reported_without_warnings():
    result = evaluate([0, 1], probs=[[0.7, 0.3], [1.0, 0.0]])
    assert result.nll.value == result.nll.high == math.inf
    assert "inf" in str(result)


def test_all_right_is_not_certain():
    result = evaluate([0] * 50, probs=[[1.0, 0.0]] * 50)
    assert result.accuracy.value == result.accuracy.high == 1
    assert 0.9 < result.accuracy.low < 1
    assert result.ece.value == 0
    assert result.mce.high > 0.05
    assert (result.mcc.value, result.mcc.low, result.mcc.high) == (0, -1, 1)  # one class: nothing is known


def test_mcc_without_spread_takes_the_ends_of_the_accuracy():
    right = evaluate([0, 1] * 25, probs=[[1.0, 0.0], [0.0, 1.0]] * 25)
    low = 2 * right.accuracy.low - 1  # for two classes of one size
    assert (right.mcc.value, right.mcc.high) == (1, 1)
    assert right.mcc.low == pytest.approx(low)
    wrong = evaluate([1, 0] * 25, probs=[[1.0, 0.0], [0.0, 1.0]] * 25)
    assert (wrong.mcc.value, wrong.mcc.low) == (-1, -1)
    assert wrong.mcc.high == pytest.approx(-low)


@pytest.mark.parametrize("shift", [0.0, 0.03, 0.1])
def test_intervals_cover_the_truth(shift):
    random = np.random.default_rng(5)

    def draw(n):
        confidence = 1 - random.beta(1, 5, n) * 0.6
        return confidence, np.where(confidence > 0.7, confidence - shift, confidence)

    confidence, chance = draw(1_000_000)
    edges = np.arange(16) / 15
    index = np.searchsorted(edges, confidence, side="left") - 1
    gap = np.bincount(index, confidence, 15) - np.bincount(index, chance, 15)
    count = np.maximum(np.bincount(index, minlength=15), 1)
    truth = {
        "ece": np.abs(gap).sum() / 1e6,
        "rms": math.sqrt((gap**2 / count).sum() / 1e6),
        "rms_debiased": math.sqrt((gap**2 / count).sum() / 1e6),
        "mce": np.abs(gap / count).max(),
    }
    hits = dict.fromkeys(truth, 0)
    for _ in range(200):
        confidence, chance = draw(1000)
        table = ReliabilityTable.from_confidences(confidence, random.random(1000) < chance)
        estimates = error_estimates(table)
        for name, value in truth.items():
            hits[name] += estimates[name].low - 1e-12 <= value <= estimates[name].high + 1e-12
    assert min(hits.values()) >= 0.94 * 200, hits


def test_interval_of_mcc_covers_the_truth():
    random = np.random.default_rng(6)
    joint = np.array([[0.3, 0.05, 0.05], [0.1, 0.2, 0.0], [0.05, 0.05, 0.2]])

    def draw(n):
        return np.divmod(random.choice(9, size=n, p=joint.ravel()), 3)

    labels, guess = draw(1_000_000)
    truth = mcc(labels, predictions=guess)
    hits = 0
    for _ in range(200):
        labels, guess = draw(300)
        metric = evaluate(labels, probs=np.eye(3)[guess], metrics=["mcc"]).mcc
        hits += metric.low <= truth <= metric.high
    assert 0.9 * 200 <= hits <= 0.99 * 200


def test_clopper_pearson_and_mean_intervals_by_hand():
    low, high = clopper_pearson([0, 5, 10, 0], [10, 10, 10, 0])
    np.testing.assert_allclose(low, [0, 0.187086, 0.025**0.1, 0], atol=1e-6)
    np.testing.assert_allclose(high, [1 - 0.025**0.1, 0.812914, 1, 1], atol=1e-6)
    metric = mean_interval(np.array([1.0, 3.0]), 0.95, low=-99.0, high=99.0)
    assert metric == Estimate(2.0, pytest.approx(2 - 12.706205, abs=1e-5), pytest.approx(2 + 12.706205, abs=1e-5))


@pytest.mark.parametrize("n", [50, 77, 300, 1000])
def test_the_interval_of_an_accuracy_covers_what_it_says_whatever_the_accuracy(n):
    # Exactly, by the binomial distribution; Wilson's covers 84 % near 0 and 1.
    right, rates = np.arange(n + 1), np.concatenate([np.geomspace(1e-5, 0.1, 200), np.linspace(0.1, 0.9, 200)])
    low, high = clopper_pearson(right, n)
    for rate in (*rates, *(1 - rates)):
        assert stats.binom.pmf(right, n, rate) @ ((low <= rate) & (rate <= high)) >= 0.95 - 1e-9


def slow_end(values, sign, mistake=None):
    """The mean μ at which the sample's is t standard deviations away, the spread being that of mean μ, by bisection."""
    n, mean = len(values), np.mean(values)
    held = [*values, mistake] if mistake is not None and (mistake - mean) * sign > 0 else list(values)
    variance = np.var(held, ddof=1)
    skew = max(sign * np.mean((held - np.mean(held)) ** 3) / variance, 0)
    t = stats.t.ppf(0.975, n - 1)

    def off(away):
        return away - t * math.sqrt((variance + skew * away) / n)

    return mean + sign * brentq(off, 0, 1e6, xtol=1e-13)


@pytest.mark.parametrize("mistake", [None, 4.0])
def test_the_interval_of_a_skewed_mean_is_the_root_of_its_equation(mistake):
    values = np.random.default_rng(0).exponential(1, 40) ** 2
    found = mean_interval(values, 0.95, low=-99.0, high=99.0, mistake=mistake)
    assert found.high == pytest.approx(slow_end(values, 1, mistake), rel=1e-9)
    assert found.low == pytest.approx(slow_end(values, -1, mistake), rel=1e-9)
    assert found.high - found.value > found.value - found.low
    turned = mean_interval(-values, 0.95, low=-99.0, high=99.0)
    plain = mean_interval(values, 0.95, low=-99.0, high=99.0)
    assert (-turned.high, -turned.low) == pytest.approx((plain.low, plain.high))


def test_moments_add_up_to_those_of_all():
    values = np.random.default_rng(1).exponential(2, 100)
    parts = sum((Moments.of(part) for part in (values[:7], values[7:60], values[60:])), Moments())
    whole = Moments.of(values)
    assert (parts.n, parts.mean, parts.squares, parts.cubes) == pytest.approx(
        (100, values.mean(), ((values - values.mean()) ** 2).sum(), ((values - values.mean()) ** 3).sum())
    )
    assert parts.cubes == pytest.approx(whole.cubes)


def test_a_loss_that_is_rarely_large_is_covered():
    # 2 % of predictions are wrong and cost 4; of 50 samples a third holds none.
    random, truth, held = np.random.default_rng(2), 0.02 * 4 + 0.98 * 0.02, 0
    for _ in range(1000):
        found = mean_interval(np.where(random.random(50) < 0.02, 4, 0.02), 0.95, low=0.0, high=np.inf, mistake=4.0)
        held += found.low <= truth <= found.high
    assert held >= 940


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_goes_in(dtype):
    logits, labels = predictions(200)
    held = torch.tensor(logits).to(dtype)
    assert isinstance(evaluate(labels, logits=held), Evaluation)
    assert evaluate(labels, probs=held.double().softmax(1).to(dtype)).ece.value == pytest.approx(
        evaluate(labels, logits=logits).ece.value, abs=0.02
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "got neither"),
        ({"logits": [[0.0, 1.0]], "probs": [[0.0, 1.0]]}, "got both"),
        ({"probs": [[0.0, 1.0]], "level": 1.0}, r"level must be a number in \(0, 1\), got 1.0"),
        ({"probs": [[0.0, 1.0]], "level": 95}, r"level must be a number in \(0, 1\), got 95"),
        ({"probs": [[0.0, 1.0]], "n_bins": 0}, "n_bins must be an integer of at least 1"),
        ({"logits": [[math.inf, 1.0]]}, "logits must be finite"),
        ({"probs": [[0.0, 0.5]]}, "sum to one"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate([0], **arguments)


# --- the tally ------------------------------------------------------------------------------------------------------


def same(found, expected):
    assert list(found.metrics) == list(expected.metrics)
    for name, metric in expected.metrics.items():
        assert vars(found.metrics[name]) == pytest.approx(vars(metric), rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("kind", ["logits", "probs"])
@pytest.mark.parametrize("k", [2, 7, 40])
def test_streamed_merged_and_pickled_tallies_are_the_whole(kind, k):
    logits, labels = predictions(300, k)
    scores = logits if kind == "logits" else torch.tensor(logits).softmax(1).numpy()
    expected = evaluate(labels, **{kind: scores})
    streamed = Tally()
    shards = []
    for start in range(0, 300, 70):
        part = slice(start, start + 70)
        streamed.update(labels[part], **{kind: scores[part]})
        shards.append(Tally().update(labels[part], **{kind: scores[part]}))
    same(streamed.evaluation(), expected)
    same(sum(pickle.loads(pickle.dumps(shards))).evaluation(), expected)
    np.testing.assert_array_equal(streamed.confusion, expected.confusion)
    assert expected.confusion.sum() == 300
    assert streamed.evaluation().samples is None
    assert streamed.values() == {name: metric.value for name, metric in streamed.evaluation().metrics.items()}


def test_a_tally_keeps_bins_and_classes_not_samples():
    logits, labels = predictions(20_000, 10)
    tally = Tally(metrics=list(METRICS), fine=True, worst=5)
    sizes = []
    for start in range(0, 20_000, 2_000):
        tally.update(labels[start : start + 2_000], logits=logits[start : start + 2_000])
        tally.evaluation()
        sizes.append(len(pickle.dumps(tally)))
    assert max(sizes) < sizes[0] + 1_000


def test_samples_are_kept_in_order():
    logits, labels = predictions(100, 4)
    a = Tally(keep_samples=True).update(labels[:60], logits=logits[:60])
    b = Tally(keep_samples=True).update(labels[60:], logits=logits[60:])
    kept, expected = (a + b).evaluation().samples, evaluate(labels, logits=logits).samples
    np.testing.assert_array_equal(kept.labels, labels)
    np.testing.assert_array_equal(kept.predictions, logits.argmax(1))
    np.testing.assert_array_equal(kept.correct, kept.labels == kept.predictions)
    for name, values in expected.values.items():
        np.testing.assert_array_equal(kept.values[name], values)


def test_confidences_tell_what_they_can():
    logits, labels = predictions(200, 7)
    expected = evaluate(labels, logits=logits)
    samples = expected.samples
    with_classes = Tally(worst=3).update_confidences(
        samples.confidence, labels=samples.labels, predictions=samples.predictions
    )
    found = with_classes.evaluation()
    unknown = [name for name in found.metrics if METRICS[name].per_sample is not None]
    assert {"nll", "brier", "top5_error"} <= set(unknown)
    for name, metric in found.metrics.items():
        if name in unknown:
            assert metric is None
        else:
            assert vars(metric) == pytest.approx(vars(getattr(expected, name)), rel=1e-9, abs=1e-12)
    titles = ", ".join(METRICS[name].title for name in unknown)
    assert found.notes == (f"{titles} unknown: the probabilities of all classes are needed",)
    assert "nll          –" in str(found)
    only = Tally().update_confidences(samples.confidence, samples.correct).evaluation()
    assert only.mcc is only.nll is only.confusion is None
    assert only.ece == expected.ece
    assert "MCC unknown: labels and predicted classes are needed" in only.notes
    assert only.n_classes == 0
    with pytest.raises(AttributeError, match="'rmse' was not measured: there are accuracy, "):
        only.rmse


def test_what_some_samples_lack_cannot_be_told_of_all():
    logits, labels = predictions(100, 3)
    tally = Tally(keep_samples=True).update(labels, logits=logits)
    tally.update_confidences([0.5, 0.75], labels=[0, 1], predictions=[0, 2])
    found = tally.evaluation()
    assert found.n == 102
    assert found.nll is None
    assert found.mcc is not None
    assert list(found.samples.values) == []
    tally.update_confidences([0.5], [True])
    assert tally.evaluation().mcc is None


def test_the_worst_mistakes_of_any_division():
    logits, labels = predictions(300, 4)
    whole = Tally(worst=10).update(labels, logits=logits).evaluation().worst
    parts = Tally(worst=10)
    for start in range(0, 300, 50):
        parts.update(labels[start : start + 50], logits=logits[start : start + 50])
    assert parts.evaluation().worst == whole
    samples = evaluate(labels, logits=logits).samples
    order = sorted((-samples.confidence[i], i + 1) for i in np.flatnonzero(~samples.correct))[:10]
    assert [mistake.row for mistake in whole] == [row for _, row in order]
    numbered = Tally(worst=1).update(labels, logits=logits, rows=np.arange(300) * 2).evaluation().worst
    assert numbered[0].row == 2 * (whole[0].row - 1)


def test_a_failed_update_changes_nothing_and_tallies_must_measure_the_same():
    logits, labels = predictions(100, 3)
    tally = Tally().update(labels, logits=logits)
    before = tally.values()
    for bad in ({"logits": logits * np.nan}, {"probs": np.abs(logits)}):
        with pytest.raises(ValueError, match="must"):
            tally.update(labels, **bad)
    assert tally.values() == before
    with pytest.raises(ValueError, match="only tallies of the same metrics add up"):
        tally + Tally(metrics=["ece"])
    with pytest.raises(ValueError, match="same edges"):
        tally + Tally(10)
    with pytest.raises(ValueError, match="the tally is empty"):
        Tally().evaluation()
    for arguments in ({}, {"correct": [True], "labels": [0]}, {"labels": [0]}):
        with pytest.raises(ValueError, match="correct must be"):
            Tally().update_confidences([0.5], **arguments)
    with pytest.raises(ValueError, match="the same length"):
        Tally().update_confidences([0.5, 0.5], labels=[0, 1], predictions=[0])


def test_threads_do_not_change_a_digit(monkeypatch):
    logits, labels = predictions(3000, 5)
    monkeypatch.setattr(passes, "CHUNK", 64)
    monkeypatch.setattr(passes, "BLOCK", 640)
    values = []
    for threads in (1, 3):
        monkeypatch.setattr(passes, "n_threads", lambda n=threads: n)
        values.append(Tally(metrics=list(METRICS)).update(labels, logits=logits).values())
    assert values[0] == values[1]


def test_an_infinite_nll_is_explained():
    found = evaluate([0, 1, 1], probs=[[0.7, 0.3], [1.0, 0.0], [1.0, 0.0]])
    assert found.notes == ("NLL is infinite: the true class has probability 0 in 2 samples",)


def test_moments_add_up():
    values = np.random.default_rng(0).normal(1e6, 1, 1000)
    parts = [Moments.of(part) for part in np.split(values, [1, 10, 500])]
    total = sum(parts, Moments())
    assert (total.n, total.mean) == (1000, pytest.approx(values.mean(), rel=1e-14))
    assert total.squares / 999 == pytest.approx(values.var(ddof=1), rel=1e-9)
    infinite = total + Moments.of(np.array([np.inf, 1.0]))
    assert (infinite.n, infinite.mean, infinite.n_infinite) == (1002, math.inf, 1)
