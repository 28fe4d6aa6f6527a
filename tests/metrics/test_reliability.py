from __future__ import annotations

import math
import pickle
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vicinal.metrics import ReliabilityTable, equal_mass_edges
from vicinal.metrics import chunks as passes
from vicinal.metrics.classwise import ClasswiseTable
from vicinal.metrics.reliability import (
    calibration_mse,
    calibration_mse_debiased,
    expected_error,
    overconfidence_error,
)

from . import reference

METRICS = ("ece", "ece_debiased", "mce", "oe", "rms", "rms_debiased")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def predictions(n, k, seed=0, scale=2.0):
    """Probabilities and labels of an overconfident model."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / 1.5).softmax(1), 1, generator=generator)[:, 0]
    return logits.softmax(1), labels


def confidences(n, seed=0, overconfident=0.05):
    random = np.random.default_rng(seed)
    confidence = 1 - random.beta(1, 5, n) * 0.8
    return confidence, random.random(n) < confidence - overconfident


def assert_same(a: ReliabilityTable, b: ReliabilityTable):
    assert np.array_equal(a.edges, b.edges)
    assert np.array_equal(a.counts, b.counts)
    np.testing.assert_allclose(a.sums, b.sums, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.squares, b.squares, rtol=1e-12, atol=1e-12)


# --- metrics --------------------------------------------------------------------------------------------------------


@given(
    arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1)),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_metrics_equal_loops_written_from_the_formulas(confidence, n_bins, random):
    correct = [random.random() < 0.6 for _ in confidence]
    table = ReliabilityTable.from_confidences(confidence, correct, n_bins=n_bins)
    expected = reference.errors(confidence, correct, table.edges)
    for name in METRICS:
        # The root turns rounding of 1e-16 in a square that should be 0 into 1e-8.
        assert getattr(table, name)() == pytest.approx(expected[name], abs=1e-7 if name.startswith("rms") else 1e-12)


@pytest.mark.parametrize("k", [2, 10, 32, 33, 100])
def test_probabilities_of_few_and_of_many_classes_equal_the_loops(k):
    probs, labels = predictions(300, k)
    confidence = probs.max(1).values
    correct = [reference.first_argmax(row) == label for row, label in zip(probs.tolist(), labels.tolist(), strict=True)]
    table = ReliabilityTable.from_probs(labels, probs)
    expected = reference.errors(confidence.tolist(), correct, table.edges)
    for name in METRICS:
        assert getattr(table, name)() == pytest.approx(expected[name], abs=1e-12)
    assert table.accuracy == pytest.approx(np.mean(correct))
    assert table.confidence == pytest.approx(float(confidence.mean()))


def test_two_samples_at_1_right_and_095_wrong():
    table = ReliabilityTable.from_probs([0, 1], [[1.0, 0.0], [0.95, 0.05]])
    assert table.ece() == pytest.approx(0.475, abs=1e-12)


def test_certainty_shares_the_last_bin():
    # Half at 1.0 with accuracy 0.9, half at 0.95 with accuracy 1.0: one bin, 0.975 against 0.95.
    confidence = np.repeat([1.0, 0.95], 100)
    correct = np.concatenate([np.arange(100) < 90, np.ones(100, bool)])
    assert ReliabilityTable.from_confidences(confidence, correct).ece() == pytest.approx(0.025, abs=1e-12)


def test_confidence_0_and_1_count():
    table = ReliabilityTable.from_confidences([0.0, 1.0], [True, False], n_bins=10)
    assert table.bin_count.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert table.ece() == table.mce() == 1


def test_debiased_error_of_a_calibrated_model_is_centred_on_zero():
    random = np.random.default_rng(0)
    squared = []
    for _ in range(300):
        confidence = 0.5 + 0.5 * random.random(200)
        table = ReliabilityTable.from_confidences(confidence, random.random(200) < confidence)
        squared.append(float(calibration_mse_debiased(table.bins)))
    error = np.std(squared) / math.sqrt(len(squared))
    assert abs(np.mean(squared)) < 4 * error
    assert np.mean(squared) < 0.1 * table.rms() ** 2


def test_per_bin_values_and_frame():
    table = ReliabilityTable.from_confidences([0.15, 0.85, 0.95], [False, True, False], n_bins=5)
    assert table.bin_count.tolist() == [1, 0, 0, 0, 2]
    np.testing.assert_allclose(table.bin_confidence, [0.15, np.nan, np.nan, np.nan, 0.9])
    np.testing.assert_allclose(table.bin_accuracy, [0, np.nan, np.nan, np.nan, 0.5])
    low, high = table.bin_interval()
    assert low[1] == 0
    assert high[1] == 1
    assert low[4] < 0.5 < high[4]
    frame = table.to_frame()
    assert list(frame.columns) == ["low", "high", "count", "confidence", "accuracy", "gap"]
    assert frame["gap"].iloc[4] == pytest.approx(0.4)


def test_the_number_of_bins_is_printed_with_the_error():
    table = ReliabilityTable.from_confidences([0.9], [True], n_bins=10)
    assert repr(table) == "ReliabilityTable(n=1, n_bins=10, ece=0.1)"
    assert repr(ReliabilityTable()) == "ReliabilityTable(n=0, n_bins=15)"


# --- exact bins and ties --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_bins", [1, 3, 7, 10, 15, 49, 100, 1000])
def test_bins_are_exact_at_and_beside_every_edge(n_bins, dtype):
    edges = np.arange(n_bins + 1) / n_bins
    near = edges.astype(dtype)
    below, above = np.nextafter(near, dtype(0)), np.nextafter(near, dtype(1))
    values = np.concatenate([near, below, above, np.array([0, 1, 5e-324, 1e-45], dtype)])
    index = ReliabilityTable(n_bins).bin_index(values)
    for value, got in zip(values, index, strict=True):
        exact = Fraction(float(value))
        # The bin whose (lo, hi] holds it, from the nearest edges; 0 belongs to the first.
        assert exact <= Fraction(float(edges[got + 1]))
        assert got == 0 or exact > Fraction(float(edges[got]))


def test_06_belongs_to_the_bin_its_own_value_says():
    # float64's 0.6 is the edge 9/15 itself; float32's is 0.60000002384, above it; a rounded 0.6 * 15 > 9 is neither.
    table = ReliabilityTable(15)
    assert table.bin_index(np.array([0.6])).tolist() == [8]
    assert table.bin_index(np.array([0.6], np.float32)).tolist() == [9]
    assert table.edges[9] == 0.6


@given(st.integers(1, 2000), st.data())
def test_float32_and_float64_agree_on_the_same_number(n_bins, data):
    value = data.draw(st.floats(0, 1, width=32))
    table = ReliabilityTable(n_bins)
    narrow, wide = (table.bin_index(np.array([value], dtype)) for dtype in (np.float32, np.float64))
    assert narrow[0] == wide[0] == reference.bin_of(value, table.edges)


@pytest.mark.parametrize("k", [2, 3, 40])
def test_only_the_first_of_equal_maxima_is_the_prediction(k):
    probs = np.full((k, k), 1 / k)
    table = ReliabilityTable.from_probs(np.arange(k), probs)
    assert table.counts[:, 1].sum() == 1  # p[label] == max(p) would count all k as right
    assert ReliabilityTable.from_logits(np.arange(k), np.zeros((k, k))).counts[:, 1].sum() == 1


def test_a_later_class_as_high_as_the_label_is_no_rival():
    probs = [[0.2, 0.4, 0.4], [0.4, 0.2, 0.4]]
    assert ReliabilityTable.from_probs([1, 2], probs).bins.correct.sum() == 1


def test_logits_decide_by_logits_not_by_rounded_probabilities():
    # exp rounds both to the same probability, but the second logit is higher.
    logits = np.array([[0.0, 5e-17]])
    assert ReliabilityTable.from_logits([1], logits).accuracy == 1
    assert ReliabilityTable.from_logits([0], logits).accuracy == 0


def test_logits_that_lie_in_0_1_are_still_logits():
    logits = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    table = ReliabilityTable.from_logits([0, 1], logits)
    assert table.confidence == pytest.approx(float(logits.double().softmax(1).max(1).values.mean()), abs=1e-7)
    assert table.confidence != pytest.approx(0.85, abs=0.1)


# --- streaming and merging ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [3, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_streamed_equals_at_once_equals_merged_in_any_order(k, dtype):
    probs, labels = predictions(1000, k)
    probs = probs.to(dtype)
    whole = ReliabilityTable.from_probs(labels, probs)
    for size in (1, 7, 256, 1000):
        streamed = ReliabilityTable()
        for p, y in zip(probs.split(size), labels.split(size), strict=True):
            streamed.update(y, probs=p)
        assert_same(streamed, whole)
    shards = [ReliabilityTable.from_probs(y, p) for p, y in zip(probs.split(97), labels.split(97), strict=True)]
    assert_same(sum(shards), whole)
    assert_same(sum(reversed(shards)), whole)


@pytest.mark.parametrize("k", [2, 9, 32, 33, 57, 300])
def test_the_confidence_of_logits_has_the_same_bits_in_any_batch(k):
    logits = np.random.default_rng(k).normal(0, 3, (200, k)).astype(np.float32)

    def confidence(part):
        labels = np.zeros(len(part), np.int64)
        return np.concatenate([chunk.confidence for chunk in passes.open_predictions(labels, part).chunks()])

    whole = confidence(logits)
    for size in (1, 2, 7, 64):
        parts = [confidence(logits[start : start + size]) for start in range(0, 200, size)]
        assert np.array_equal(np.concatenate(parts), whole), size


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=80), st.integers(0, 80), st.data())
def test_any_cut_and_any_order_give_the_same_table(samples, cut, data):
    confidence, correct = (np.array(column) for column in zip(*samples, strict=True))
    whole = ReliabilityTable.from_confidences(confidence, correct)
    order = np.array(data.draw(st.permutations(range(len(samples)))))
    assert_same(ReliabilityTable.from_confidences(confidence[order], correct[order]), whole)
    streamed = ReliabilityTable()
    for part in (slice(0, cut), slice(cut, None)):
        if len(confidence[part]):
            streamed.update_confidences(confidence[part], correct[part])
    assert_same(streamed, whole)


def test_threads_and_chunks_do_not_change_the_table(monkeypatch):
    probs, labels = predictions(5000, 5)
    whole = ReliabilityTable.from_probs(labels, probs)
    monkeypatch.setattr(passes, "CHUNK", 64)
    monkeypatch.setattr(passes, "BLOCK", 640)
    chunked = ReliabilityTable.from_probs(labels, probs)
    assert_same(chunked, whole)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    threaded = ReliabilityTable.from_probs(labels, probs)
    assert np.array_equal(threaded.sums, chunked.sums)  # to the last bit


def test_adding_leaves_the_parts_alone_and_refuses_other_bins():
    a = ReliabilityTable.from_confidences([0.9], [True])
    b = ReliabilityTable.from_confidences([0.5], [False])
    assert (a + b).n == 2
    assert (a.n, b.n) == (1, 1)
    with pytest.raises(ValueError, match="same edges"):
        a + ReliabilityTable(10)
    with pytest.raises(TypeError):
        a + 1


def test_a_table_survives_pickling():
    table = ReliabilityTable.from_confidences([0.9, 0.3], [True, False])
    assert_same(pickle.loads(pickle.dumps(table)), table)


def test_50_million_samples_by_merging():
    # torchmetrics sums bins in float32, where adding 0.9999 to 16 million changes nothing: its ECE is 0.0.
    part = ReliabilityTable.from_confidences(np.full(1000, 0.9999), np.arange(1000) < 600)
    total, power = ReliabilityTable(), part
    for bit in reversed(bin(50_000)[2:]):
        if bit == "1":
            total = total + power
        power = power + power
    assert total.n == 50_000_000
    assert total.ece() == pytest.approx(0.3999, abs=1e-12)


def test_50_million_calibrated_samples_by_streaming_merges():
    confidence, _ = confidences(1_000_000)
    correct = np.random.default_rng(1).random(1_000_000) < confidence
    part = ReliabilityTable.from_confidences(confidence, correct)
    total = sum([part] * 50)
    assert total.n == 50_000_000
    assert total.ece() == pytest.approx(part.ece(), rel=1e-11)
    assert total.ece() < 0.002


def test_memory_is_that_of_a_chunk():
    probs, labels = predictions(400_000, 10)
    probs, labels = probs.float().numpy(), labels.numpy()
    ReliabilityTable.from_probs(labels[:10], probs[:10])
    tracemalloc.start()
    table = ReliabilityTable()
    table.update(labels, probs=probs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.n == 400_000
    assert peak < 8e6 * max(1, torch.get_num_threads())  # the probabilities alone are 16 MB


def test_an_update_that_fails_changes_nothing(monkeypatch):
    monkeypatch.setattr(passes, "CHUNK", 4)
    table = ReliabilityTable.from_probs([1], [[0.3, 0.7]])
    bad = np.tile([0.3, 0.7], (100, 1))
    bad[-1] = [0.5, 0.9]
    with pytest.raises(ValueError, match="sum to one"):
        table.update(np.ones(100, int), probs=bad)
    assert table.n == 1


# --- equal mass -----------------------------------------------------------------------------------------------------


def test_equal_mass_bins_hold_equally_many():
    confidence, correct = confidences(1500)
    table = ReliabilityTable.from_confidences(confidence, correct, n_bins=15, equal_mass=True)
    assert table.bin_count.tolist() == [100] * 15
    expected = reference.errors(confidence, correct, table.edges)
    for name in METRICS:
        assert getattr(table, name)() == pytest.approx(expected[name], abs=1e-12)
    assert "equal_width=False" in repr(table)


@given(arrays(np.float32, st.integers(1, 50), elements=st.floats(0, 1, width=32)), st.integers(1, 10))
def test_equal_mass_edges_increase_and_hold_their_share(confidence, n_bins):
    edges = equal_mass_edges(confidence, n_bins)
    assert edges[0] == 0
    assert edges[-1] == 1
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= n_bins + 1
    ordered = np.sort(confidence).astype(float)
    for k in range(1, n_bins):
        share = ordered[math.ceil(k * len(ordered) / n_bins) - 1]
        assert share in edges or share == 0


def test_equal_mass_tables_stream_and_merge_by_their_edges():
    probs, labels = predictions(600, 4)
    whole = ReliabilityTable.from_probs(labels, probs, equal_mass=True)
    edges = equal_mass_edges(probs.max(1).values)
    shards = [
        ReliabilityTable.from_probs(y, p, edges=edges) for p, y in zip(probs.split(100), labels.split(100), strict=True)
    ]
    assert_same(sum(shards), whole)
    logits = probs.log()
    assert ReliabilityTable.from_logits(labels, logits, equal_mass=True).ece() == pytest.approx(whole.ece(), abs=1e-6)


def test_equal_confidences_merge_bins():
    table = ReliabilityTable.from_confidences(np.full(20, 0.8), np.arange(20) < 16, equal_mass=True)
    assert table.edges.tolist() == [0, 0.8, 1]
    assert table.ece() == pytest.approx(0, abs=1e-12)
    assert ReliabilityTable.from_confidences(np.ones(5), np.ones(5), equal_mass=True).n_bins == 1


# --- influence -----------------------------------------------------------------------------------------------------


def test_the_influence_of_samples_gives_the_spread_of_resamples():
    confidence, correct = confidences(10_000, overconfident=0.2)
    table = ReliabilityTable.from_confidences(confidence, correct)
    loop = reference.resampled(confidence, correct, 15, 400, seed=1)
    for name, function in (
        ("ece", expected_error),
        ("oe", overconfidence_error),
        ("rms", lambda bins: np.sqrt(calibration_mse(bins))),
    ):
        influence, counts = table.influence(function)
        assert counts @ influence / table.n == pytest.approx(0, abs=1e-5)
        spread = math.sqrt(counts @ influence**2) / table.n
        assert spread == pytest.approx(loop[name].std(), rel=0.15), name


def test_the_influence_on_a_share_is_that_of_a_share():
    table = ReliabilityTable.from_confidences(*confidences(500))
    influence, counts = table.influence(lambda bins: bins.correct.sum(axis=-1) / bins.count.sum(axis=-1))
    a = table.accuracy
    assert counts @ influence**2 / 500**2 == pytest.approx(a * (1 - a) / 500, rel=1e-4)


# --- what goes in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [5, 64])
def test_every_float_type_goes_in_and_counts_as_the_numbers_it_holds(dtype, k):
    probs, labels = predictions(200, k)
    held = probs.to(dtype)
    wide = held.double()
    table = ReliabilityTable.from_probs(labels.to(torch.int32), held)
    correct = [reference.first_argmax(row) == label for row, label in zip(wide.tolist(), labels.tolist(), strict=True)]
    expected = reference.errors(wide.max(1).values.tolist(), correct, table.edges)
    assert table.ece() == pytest.approx(expected["ece"], abs=1e-12)
    logits = probs.log().to(dtype)
    assert ReliabilityTable.from_logits(labels, logits).n == 200


def test_numpy_torch_lists_views_and_gradients_give_the_same_table():
    probs, labels = predictions(50, 4)
    whole = ReliabilityTable.from_probs(labels, probs)
    wide = np.zeros((50, 8))
    wide[:, ::2] = probs
    read_only = probs.numpy().copy()
    read_only.flags.writeable = False
    for given_probs in (
        probs.numpy(),
        probs.tolist(),
        wide[:, ::2],
        np.asfortranarray(probs.numpy()),
        read_only,
        probs.clone().requires_grad_(),
    ):
        assert_same(ReliabilityTable.from_probs(labels.numpy(), given_probs), whole)
    flipped = ReliabilityTable.from_probs(labels.numpy()[::-1], probs.numpy()[::-1])
    assert_same(flipped, whole)


def test_inputs_are_not_changed():
    probs, labels = predictions(50, 40)
    logits = probs.log()
    copies = probs.clone(), logits.clone(), labels.clone()
    ReliabilityTable.from_probs(labels, probs)
    ReliabilityTable.from_logits(labels, logits)
    ReliabilityTable.from_confidences(probs[:, 0], labels == 0)
    for held, copy in zip((probs, logits, labels), copies, strict=True):
        assert torch.equal(held, copy)


def test_huge_and_far_apart_logits_are_fine():
    table = ReliabilityTable.from_logits([0, 0], np.array([[1e30, -1e30], [-1e4, 1e4]]) / 4)
    assert table.confidence == 1
    assert table.accuracy == 0.5
    with pytest.raises(ValueError, match=r"logits must lie within ±1e\+30, got one of size 1e\+160"):
        ReliabilityTable.from_logits([0], np.array([[1e160, 0.0]]))


@pytest.mark.parametrize("k", [2, 40])
def test_minus_zero_is_zero(k):
    probs = np.zeros((3, k))
    probs[:, 1] = 1
    probs[1, 0] = -0.0
    assert ReliabilityTable.from_probs([1, 1, 0], probs).bins.correct.sum() == 2


def wrong(value, k):
    probs = np.full((4, k), 1 / k)
    probs[2, 1] = value
    return probs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 40])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"probs must be in \[0, 1\], got NaN"),
        (np.inf, r"probs must be in \[0, 1\], got inf"),
        (-np.inf, r"probs must be in \[0, 1\], got -inf"),
        (-1e-6, r"probs must be in \[0, 1\], got -1e-06"),
        (1.5, r"probs must be in \[0, 1\], got 1.5"),
        (0.9, r"probs must sum to one in each row \(within 0.001\), got a row with sum"),
    ],
)
def test_bad_probabilities_are_named(value, message, k, dtype):
    with pytest.raises(ValueError, match=message):
        ReliabilityTable.from_probs([0, 0, 0, 0], wrong(value, k).astype(dtype))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("k", [2, 40])
def test_bad_logits_are_named(value, k):
    with pytest.raises(ValueError, match="logits must be finite, got NaN or inf"):
        ReliabilityTable.from_logits([0, 0, 0, 0], wrong(value, k))


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([[0.5, 0.5]], [2], r"labels must be in \[0, 1\] for 2 classes, got 2"),
        ([[0.5, 0.5]], [-1], r"labels must be in \[0, 1\] for 2 classes, got -1"),
        ([[0.5, 0.5]], [0.0], "labels must be integer class numbers"),
        ([[0.5, 0.5]], [0, 1], "labels and probs must have the same length, got 2 and 1"),
        ([[0.5, 0.5]], [[0]], r"labels must have shape \[N\], got \[1, 1\]"),
        ([0.5, 0.5], [0, 1], r"probs must have shape \[N, K\], got \[2\]"),
        (np.zeros((0, 3)), np.zeros(0, int), "probs is empty"),
        (np.zeros((3, 0)), np.zeros(3, int), "probs is empty"),
    ],
)
def test_bad_shapes_and_labels_are_named(probs, labels, message):
    with pytest.raises(ValueError, match=message):
        ReliabilityTable.from_probs(labels, probs)


def test_exactly_one_of_logits_and_probs():
    with pytest.raises(ValueError, match="exactly one of logits= and probs=, got neither"):
        ReliabilityTable().update([0])
    with pytest.raises(ValueError, match="exactly one of logits= and probs=, got both"):
        ReliabilityTable().update([0], logits=[[0.0, 1.0]], probs=[[0.5, 0.5]])


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([1.1], [True], r"confidence must be in \[0, 1\], got 1.1"),
        ([-0.1], [True], r"confidence must be in \[0, 1\], got -0.1"),
        ([float("nan")], [True], r"confidence must be in \[0, 1\], got nan"),
        ([0.5], [2], "correct must be True or False .* got 2"),
        ([0.5], [0.5], "correct must be True or False .* got 0.5"),
        ([0.5], [True, False], "the same length"),
        ([], [], "N of at least 1"),
        ([[0.5]], [True], r"confidence must have shape \[N\]"),
    ],
)
def test_bad_confidences_are_named(confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        ReliabilityTable.from_confidences(confidence, correct)


@pytest.mark.parametrize("edges", [[0, 1, 0.5], [0.1, 1], [0, 0.9], [0, 0.5, 0.5, 1], [0], [[0, 1]], [0, np.nan, 1]])
def test_bad_edges_are_named(edges):
    with pytest.raises(ValueError, match="edges must"):
        ReliabilityTable(edges=edges)


def test_bad_numbers_of_bins_and_empty_tables_are_named():
    with pytest.raises(ValueError, match="n_bins must be an integer of at least 1, got 0"):
        ReliabilityTable(0)
    with pytest.raises(TypeError, match="n_bins"):
        ReliabilityTable(1.5)
    with pytest.raises(ValueError, match="not both"):
        ReliabilityTable.from_probs([0], [[1.0, 0.0]], edges=[0, 1], equal_mass=True)
    for name in METRICS:
        with pytest.raises(ValueError, match="the table is empty"):
            getattr(ReliabilityTable(), name)()


# --- outside implementations ----------------------------------------------------------------------------------------


def test_torchmetrics_agrees_where_it_is_right():
    functional = pytest.importorskip("torchmetrics.functional.classification")
    probs, labels = predictions(5000, 7)  # no confidence at an edge, few enough for its float32 sums
    table = ReliabilityTable.from_probs(labels, probs)
    for norm, name in (("l1", "ece"), ("l2", "rms"), ("max", "mce")):
        theirs = functional.multiclass_calibration_error(probs, labels, num_classes=7, n_bins=15, norm=norm)
        assert getattr(table, name)() == pytest.approx(float(theirs), abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_netcal_agrees_where_it_is_right():
    netcal = pytest.importorskip("netcal.metrics")
    probs, labels = predictions(2000, 5)
    table = ReliabilityTable.from_probs(labels, probs)
    assert table.ece() == pytest.approx(netcal.ECE(15).measure(probs.numpy(), labels.numpy()), abs=1e-6)
    assert table.mce() == pytest.approx(netcal.MCE(15).measure(probs.numpy(), labels.numpy()), abs=1e-6)


def test_bins_that_would_fill_memory_are_refused():
    with pytest.raises(ValueError, match=r"n_bins must be .*1,000,000, got 1000000000"):
        ReliabilityTable(10**9)
    with pytest.raises(ValueError, match=r"n_bins must be .* 100 for 1,000,000 classes, got 101"):
        ClasswiseTable(1_000_000, 101)


@pytest.mark.parametrize("n_classes", [2, 10, 100])
@pytest.mark.parametrize("n_bins", [10, 15, 1000])
def test_float32_logits_are_counted_as_float64_ones(n_bins, n_classes):
    random = np.random.default_rng(n_bins)
    logits = (3 * random.standard_normal((4_000, n_classes))).astype(np.float32)
    logits[:4] = 0  # whose confidence, 1 / K, is an edge where K divides the number of bins
    labels = random.integers(n_classes, size=4_000)
    quick, exact = (ReliabilityTable(n_bins).update(labels, logits=z) for z in (logits, logits.astype(np.float64)))
    assert np.array_equal(quick.counts, exact.counts)
    np.testing.assert_allclose(quick.sums, exact.sums, rtol=1e-7)
    np.testing.assert_allclose(quick.squares, exact.squares, rtol=2e-7)
    parts = [ReliabilityTable(n_bins).update(labels[i::7], logits=logits[i::7]) for i in range(7)]
    assert np.array_equal(sum(parts, ReliabilityTable(n_bins)).counts, quick.counts)


def test_the_debiased_error_of_few_samples_is_near_the_truth():
    """On 200 samples of a model with a true ECE of 1.4 % the plain one is twice as large."""
    random = np.random.default_rng(3)
    plain, debiased = [], []
    for _ in range(200):
        confidence = 1 - random.beta(1, 8, 200) / 2
        table = ReliabilityTable.from_confidences(confidence, random.random(200) < confidence - 0.014)
        plain.append(table.ece())
        debiased.append(table.ece_debiased())
    assert np.mean(plain) > 0.027
    assert 0.009 < np.mean(debiased) < 0.018
