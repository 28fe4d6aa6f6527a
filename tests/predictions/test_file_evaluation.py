from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vicinal
from tests.predictions.samples import classifier, save
from vicinal.metrics import Mistake, RiskCoverage, classwise_ece, tally
from vicinal.predictions import evaluate_file, open_file
from vicinal.predictions import predictions_file as file_module

METRICS = ("accuracy", "mcc", "nll", "brier", "ece", "ece_debiased", "oe", "mce", "rms", "rms_debiased")


def same(found, expected, metrics=METRICS):
    for name in metrics:
        ours, theirs = getattr(found, name), getattr(expected, name)
        for end in ("value", "low", "high"):
            assert getattr(ours, end) == pytest.approx(getattr(theirs, end), rel=1e-9, abs=1e-12), (name, end)


@pytest.fixture
def small_chunks(monkeypatch):
    """Many chunks even in a small file."""
    monkeypatch.setattr(file_module, "_rows_at_once", lambda n_classes: 37)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_streamed_is_in_memory(tmp_path, small_chunks, kind, suffix, dtype, threads):
    logits, probs, labels = classifier(500, 5, dtype=dtype)
    scores, prefix = (probs, "prob_") if kind == "probs" else (logits, "logit_")
    path = save(tmp_path / f"p{suffix}", labels, scores, prefix=prefix, row_group=100)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = evaluate_file(path, level=0.9)
    finally:
        torch.set_num_threads(before)
    expected = vicinal.evaluate(labels, **{kind: scores}, level=0.9)
    same(found, expected)
    assert (found.n, found.n_classes, found.n_bins, found.level) == (500, 5, 15, 0.9)
    np.testing.assert_array_equal(found.table.counts, expected.table.counts)
    assert found.classwise_ece.value == pytest.approx(classwise_ece(labels, **{kind: scores}), rel=1e-9)
    correct = expected.samples.labels == expected.samples.predictions
    np.testing.assert_array_equal(found.confusion.sum(axis=1), np.bincount(labels, minlength=5))
    assert np.trace(found.confusion) == correct.sum() == found.fine.counts[:, 1].sum()


@pytest.mark.parametrize(
    ("n_bins", "fine"), [(1, 10_000), (7, 10_000), (10, 10_000), (15, 10_000), (100, 10_000), (60, 50)]
)
def test_fine_bins_add_up_to_any_bins(tmp_path, monkeypatch, n_bins, fine):
    monkeypatch.setattr(tally, "FINE_BINS", fine)
    random = np.random.default_rng(0)
    # Confidences on edges of the bins: these must not change sides.
    sure = np.concatenate([random.random(300), np.arange(n_bins + 1)[:300] / n_bins, [0.0, 1.0, 0.6]])
    right = random.integers(0, 2, len(sure))
    table = pa.table({"label": right, "prediction": np.ones(len(sure), int), "confidence": sure})
    pq.write_table(table, tmp_path / "p.parquet")
    found = evaluate_file(tmp_path / "p.parquet", n_bins=n_bins)
    expected = vicinal.ReliabilityTable.from_confidences(sure, right == 1, n_bins=n_bins)
    np.testing.assert_array_equal(found.table.counts, expected.counts)
    np.testing.assert_allclose(found.table.sums, expected.sums, rtol=1e-12)
    assert found.ece.value == pytest.approx(expected.ece())
    assert found.fine.n == len(sure)
    assert found.fine.n_bins % n_bins == 0
    assert RiskCoverage.from_table(found.fine).n == len(sure)


def test_confidences_give_what_they_can(tmp_path, small_chunks):
    _, probs, labels = classifier(300, 4)
    names = np.array(["d", "c", "b", "a"])
    expected = vicinal.evaluate(labels, probs=probs)
    columns = {"label": names[labels], "prediction": names[probs.argmax(axis=1)], "confidence": probs.max(axis=1)}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    pa.table(columns).to_pandas().to_csv(tmp_path / "p.csv", index=False)
    for name in ("p.parquet", "p.csv"):
        found = evaluate_file(tmp_path / name)
        same(found, expected, [name for name in METRICS if name not in ("nll", "brier")])
        assert found.nll is found.brier is found.classwise_ece is found.classwise is None
        assert any("NLL" in note for note in found.notes)
        assert sorted(found.classes) == ["a", "b", "c", "d"]
        assert "–" in str(found)


def test_classes_written_in_two_ways_are_noticed(tmp_path):
    """Numbers in one column and names in the other would be an accuracy of 0 without a word."""
    (tmp_path / "p.csv").write_text("label,prediction,confidence\ncat,0,0.75\ndog,1,0.75\n")
    assert any("is ever in column 'prediction'" in note for note in evaluate_file(tmp_path / "p.csv").notes)
    (tmp_path / "p.csv").write_text("label,prediction,confidence\ncat,dog,0.75\ndog,cat,0.75\n")
    assert not any("is ever in" in note for note in evaluate_file(tmp_path / "p.csv").notes)


def test_the_worst_mistakes(tmp_path, small_chunks):
    _, probs, labels = classifier(400, 3)
    probs = probs.round(1)  # ties
    probs[:, 0] = 1 - probs[:, 1:].sum(axis=1)
    probs = probs.clip(0)
    found = evaluate_file(save(tmp_path / "p.csv", labels, probs), worst=25)
    guess, sure = probs.argmax(axis=1), probs.max(axis=1)
    rows = sorted((-sure[i], i + 1) for i in np.flatnonzero(guess != labels))[:25]
    expected = tuple(Mistake(r, str(labels[r - 1]), str(guess[r - 1]), -s) for s, r in rows)
    assert found.worst == expected
    assert evaluate_file(tmp_path / "p.csv", worst=0).worst == ()


def test_an_impossible_label_costs_infinitely(tmp_path, small_chunks):
    probs = np.tile([0.5, 0.5, 0.0], (100, 1))
    labels = np.zeros(100, int)
    labels[[3, 60]] = 2
    found = evaluate_file(save(tmp_path / "p.csv", labels, probs))
    assert found.nll.value == math.inf
    assert (found.nll.low, found.nll.high) == (0, math.inf)
    assert any("probability 0 in 2 samples" in note for note in found.notes)
    json.dumps(found.to_dict(), allow_nan=False)


def test_dropped_and_rescaled_rows_are_counted(tmp_path):
    (tmp_path / "p.csv").write_text("label,prob_a,prob_b\na,0.5,0.5\nb,,1\nb,1,3\n")
    found = evaluate_file(open_file(tmp_path / "p.csv", missing="drop", normalise=True))
    assert found.n == 2
    assert any("1 of 3 rows are left out" in note for note in found.notes)
    assert any("1 rows were rescaled" in note for note in found.notes)
    (tmp_path / "p.csv").write_text("label,prob_a,prob_b\na,,0.5\n")
    with pytest.raises(ValueError, match="no rows to measure: all 1 have a missing value"):
        evaluate_file(open_file(tmp_path / "p.csv", missing="drop"))


def test_errors_name_the_row(tmp_path, small_chunks):
    _, probs, labels = classifier(200, 3)
    for value, words in (
        (np.nan, "1 of 200 rows.*row 151"),
        (0.999, "row 151 .* sum to"),
        (-0.1, "row 151 .* has -0.1"),
    ):
        bad = probs.copy()
        bad[150, 1] = value
        bad[150, 0] += value == 0.999
        with pytest.raises(ValueError, match=words):
            evaluate_file(save(tmp_path / "p.parquet", labels, bad.clip(None, 1)))


def test_few_rows(tmp_path):
    _, probs, labels = classifier(10, 3)
    same(evaluate_file(save(tmp_path / "p.csv", labels, probs)), vicinal.evaluate(labels, probs=probs))
    one = evaluate_file(save(tmp_path / "p.csv", labels[:1], probs[:1]))
    same(one, vicinal.evaluate(labels[:1], probs=probs[:1]))
    (tmp_path / "p.csv").write_text("label,prob_a\n")
    with pytest.raises(ValueError, match="no rows to measure"):
        evaluate_file(tmp_path / "p.csv")


def test_one_class(tmp_path):
    found = evaluate_file(save(tmp_path / "p.csv", np.zeros(5, int), np.ones((5, 1))))
    assert (found.accuracy.value, found.ece.value, found.mcc.value, found.n_classes) == (1, 0, 0, 1)


def test_always_right(tmp_path):
    _, probs, _ = classifier(100, 3)
    labels = probs.argmax(axis=1)
    same(evaluate_file(save(tmp_path / "p.csv", labels, probs)), vicinal.evaluate(labels, probs=probs))


def test_very_many_classes(tmp_path):
    labels = np.arange(3000)
    table = pa.table({"label": labels, "prediction": labels[::-1], "confidence": np.full(3000, 0.5)})
    pq.write_table(table, tmp_path / "p.parquet")
    found = evaluate_file(tmp_path / "p.parquet")
    assert found.mcc is None
    assert found.confusion is None
    assert found.n_classes == 3000
    assert any("more than 2,000 classes" in note for note in found.notes)


def test_a_column_that_is_no_class(tmp_path, monkeypatch):
    monkeypatch.setattr("vicinal.predictions.class_names.MOST_CLASSES", 100)
    random = np.random.default_rng(0).random(200)
    pq.write_table(pa.table({"label": random, "prediction": random, "confidence": random}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"more than 100 different values.*with label$"):
        evaluate_file(tmp_path / "p.parquet")


def test_progress_and_json(tmp_path, small_chunks):
    _, probs, labels = classifier(100, 3)
    seen = []
    found = evaluate_file(save(tmp_path / "p.parquet", labels, probs), progress=lambda *state: seen.append(state))
    assert seen[-1] == (100, 100)
    assert [rows for rows, _ in seen] == sorted(rows for rows, _ in seen)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["ece"]["value"] == found.ece.value
    assert sum(b["count"] for b in told["bins"]) == 100
    assert told["worst"][0]["row"] == found.worst[0].row
    assert "ece" in str(found)


def test_arguments(tmp_path):
    path = save(tmp_path / "p.csv", [0], np.ones((1, 1)))
    for bad in ({"n_bins": 0}, {"level": 1.0}, {"worst": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            evaluate_file(path, **bad)


def test_few_chunks_are_held(tmp_path, small_chunks, monkeypatch):
    """Reading waits for measuring: what is read ahead does not pile up."""
    import weakref

    live, most = weakref.WeakSet(), [0]
    plain = file_module.PredictionsFile.unchecked_chunks

    def counted(self, *args, **kwargs):
        for chunk in plain(self, *args, **kwargs):
            live.add(chunk)
            most[0] = max(most[0], len(live))
            yield chunk

    monkeypatch.setattr(file_module.PredictionsFile, "unchecked_chunks", counted)
    _, probs, labels = classifier(3000, 3)
    path = save(tmp_path / "p.parquet", labels, probs)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        evaluate_file(path)
    finally:
        torch.set_num_threads(before)
    assert 1 <= most[0] <= 6  # of 82


@given(data=st.data())
def test_any_confusion_has_the_same_mcc(tmp_path_factory, data):
    k = data.draw(st.integers(1, 4))
    n = data.draw(st.integers(1, 30))
    classes = st.lists(st.integers(0, k - 1), min_size=n, max_size=n)
    labels, guess = (np.array(data.draw(classes)) for _ in range(2))
    probs = np.full((n, k), 0.1)
    probs[np.arange(n), guess] = 1 - 0.1 * (k - 1)
    path = tmp_path_factory.mktemp("mcc") / "p.npz"
    np.savez(path, labels=labels, probs=probs)
    same(evaluate_file(path), vicinal.evaluate(labels, probs=probs))


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_a_file_is_measured_without_torch_and_pandas(tmp_path, name):
    _, probs, labels = classifier(20, 7)
    path = save(tmp_path / name, labels, probs)
    code = (
        "import sys; from vicinal.predictions import evaluate_file; "
        f"print(evaluate_file({str(path)!r}).n, sorted({{'torch', 'pandas'}} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["20", "[]"]


def test_slices_of_a_file_are_those_of_its_columns(tmp_path, small_chunks):
    _, probs, labels = classifier(300, 2)
    path = save(tmp_path / "p.csv", labels, probs)
    frame = pd.read_csv(path).assign(city=["Rome", "Oslo", None] * 100, age=range(300), one="same")
    frame.to_csv(path, index=False)
    known = {"city": frame["city"], "age": frame["age"]}
    wanted = vicinal.evaluate(labels, probs=probs, slices=known).slices
    found = evaluate_file(path, slices=None).slices  # one value for all rows is no slice
    assert {one.name: one.n for one in found} == {one.name: one.n for one in wanted}
    assert len(found) == 7
    assert {one.name: one.nll.low for one in found} == pytest.approx({one.name: one.nll.low for one in wanted})
    assert [one.name for one in evaluate_file(path, slices=["one"]).slices] == ["one is 'same'"]
    assert evaluate_file(path).slices == ()
    with pytest.raises(ValueError, match="slice must be one of 'city', 'age', 'one'"):
        evaluate_file(path, slices=["town"])
