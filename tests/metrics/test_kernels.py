"""The compiled loops against numpy: the same bits, and the same errors."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.metrics import ReliabilityTable, Tally, chunks, kernels

pytest.importorskip("numba", reason="vicinal[speed] is not installed")


@pytest.fixture(scope="module")
def compiled():
    return kernels._compiled()


@pytest.fixture
def use(monkeypatch, compiled):
    """Switch the compiled loops on and off."""
    return lambda on: monkeypatch.setattr(kernels, "_loaded", [compiled if on else None])


def draw(n, n_classes, dtype, seed=0):
    random = np.random.default_rng(seed)
    scores = random.integers(1, 5, size=(n, n_classes)).astype(dtype)  # few values, so that ties abound
    return scores / scores.sum(1, keepdims=True), random.integers(n_classes, size=n)


def read_every_way(compiled, probs, labels, tolerance):
    """Whether each of the loops that read probabilities is certain of them."""
    ways = ((probs, True), (np.asfortranarray(probs), True), (probs, False))
    return [compiled.read_probs(p, labels, tolerance, few=few) is not None for p, few in ways]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [1, 2, 10, 40])
def test_rows_are_read_alike(use, compiled, n_classes, dtype):
    probs, labels = draw(500, n_classes, dtype)
    probs[0] = np.eye(n_classes)[-1]
    use(False)
    top, correct, guess = chunks._read_probs(probs, labels, 1e-3)
    assert guess is None
    for few, order in ((True, "C"), (True, "F"), (False, "C"), (False, "F")):
        quick = compiled.read_probs(np.asarray(probs, order=order), labels, 1e-3, few=few)
        assert quick is not None
        assert quick[0].dtype == dtype
        np.testing.assert_array_equal(quick[0], top)
        np.testing.assert_array_equal(quick[1], correct)
        if few:
            np.testing.assert_array_equal(quick[2], probs.argmax(1))
    np.testing.assert_array_equal(correct, probs.argmax(1) == labels)


@pytest.mark.parametrize("n_bins", [1, 15, 10_005])
def test_tables_have_the_same_bits(use, n_bins):
    probs, labels = draw(5_000, 3, np.float32)
    probs[:3] = np.eye(3)
    tables = []
    for on in (True, False):
        use(on)
        tables.append(ReliabilityTable(n_bins).update(labels, probs=probs))
    for name in ("counts", "sums", "squares"):
        np.testing.assert_array_equal(*(getattr(table, name) for table in tables))


@pytest.mark.parametrize("order", ["C", "F"])
def test_classes_and_ranks_have_the_same_bits(use, order):
    probs, labels = draw(5_000, 7, np.float32)
    probs[:7] = np.eye(7)
    tallies = []
    for on in (True, False):
        use(on)
        tally = Tally(metrics=["top5_error", "nll", "brier", "classwise_ece"])
        tallies.append(tally.update(labels, probs=np.asarray(probs, order=order)))
    assert tallies[0].moments == tallies[1].moments
    for name in ("counts", "sums", "correct"):
        np.testing.assert_array_equal(*(getattr(tally.classwise, name) for tally in tallies))


@pytest.mark.parametrize("kind", ["probs", "logits"])
@pytest.mark.parametrize("n_classes", [1, 2, 7, 40])
def test_predictions_are_the_first_of_the_highest(use, kind, n_classes):
    probs, labels = draw(500, n_classes, np.float32)
    scores = probs if kind == "probs" else np.log(probs)
    use(True)
    (chunk,) = chunks.open_predictions(labels, **{kind: scores}).chunks()
    np.testing.assert_array_equal(chunk.predictions, scores.argmax(1))


@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (-0.1, "-0.1"), (1.5, "1.5")])
def test_what_is_wrong_is_left_to_numpy(use, compiled, value, message):
    probs, labels = draw(50, 3, np.float32)
    probs[7, 1] = value
    assert not any(read_every_way(compiled, probs, labels, 1e-3))
    use(True)
    with pytest.raises(ValueError, match=rf"probs must be in \[0, 1\], got {message}"):
        Tally().update(labels, probs=probs)


def test_sums_near_the_tolerance_are_left_to_numpy(compiled):
    probs, labels = draw(50, 3, np.float64)
    for factor, certain in ((1 + 0.0098, True), (1 + 0.00995, False), (1 - 0.02, False)):
        changed = probs.copy()
        changed[3] *= factor
        assert read_every_way(compiled, changed, labels, 0.01) == [certain] * 3


def test_a_zero_with_a_sign_is_a_zero(use, compiled):
    probs = np.array([[1.0, -0.0]], np.float32)
    assert not any(read_every_way(compiled, probs, np.array([0]), 1e-3))  # numpy clears the sign
    use(True)
    assert ReliabilityTable(2).update([0], probs=probs).n == 1


def test_only_large_inputs_compile(monkeypatch):
    monkeypatch.setattr(kernels, "_loaded", [])
    probs, labels = draw(100, 2, np.float32)
    Tally().update(labels, probs=probs)
    assert kernels.loaded() is None
    monkeypatch.setattr(chunks, "BLOCK", 64)
    whole = Tally(metrics=["ece"]).update(labels, probs=probs)
    assert kernels.loaded() is not None
    monkeypatch.setattr(kernels, "_loaded", [None])
    np.testing.assert_array_equal(whole.fine.sums, Tally(metrics=["ece"]).update(labels, probs=probs).fine.sums)


@pytest.mark.parametrize("error", [ImportError("Numba needs NumPy 2.3 or less"), RuntimeError("cannot cache function")])
def test_a_numba_that_does_not_work_leaves_everything_to_numpy(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(kernels, "_loaded", [])
    monkeypatch.setattr(kernels, "_compiled", fail)
    monkeypatch.setattr(chunks, "BLOCK", 64)
    probs, labels = draw(100, 2, np.float32)
    with pytest.warns(UserWarning, match=f"without vicinal.speed.*{error}"):
        assert Tally().update(labels, probs=probs).n == 100
    assert Tally().update(labels, probs=probs).n == 100  # which is said once
