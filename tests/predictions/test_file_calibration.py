from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vicinal
from tests.predictions.samples import classifier, read_all, save
from vicinal.predictions import calibrate_file, evaluate_file, open_file


@pytest.fixture(scope="module")
def pair():
    return classifier(3000, 4, seed=0), classifier(500, 4, seed=1)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet", ".npz"])
@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_equals_the_calibrator_in_memory(tmp_path, pair, suffix, kind):
    (z0, p0, y0), (z1, p1, y1) = pair
    prefix = {"probs": "prob_", "logits": "logit_"}[kind]
    val, file = (
        save(tmp_path / f"{name}.parquet", y, z if kind == "logits" else p, prefix=prefix)
        for name, z, p, y in (("val", z0, p0, y0), ("test", z1, p1, y1))
    )
    done = calibrate_file(val, file, tmp_path / f"out{suffix}")
    expected = vicinal.TemperatureScaling().fit(z0, y0)
    assert done.calibrator.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)
    assert (done.n_fitted, done.n_rows) == (3000, 500)
    labels, probs = read_all(open_file(tmp_path / f"out{suffix}"))
    np.testing.assert_array_equal(labels, y1)
    np.testing.assert_allclose(probs, expected.predict_proba(z1), rtol=1e-5, atol=1e-12)
    assert evaluate_file(tmp_path / f"out{suffix}").ece.value < evaluate_file(file).ece.value


@pytest.mark.parametrize("name", ["temperature", "vector", "isotonic", "histogram"])
def test_every_calibrator(tmp_path, pair, name):
    (z0, _, y0), (z1, _, y1) = pair
    val = save(tmp_path / "val.npz", y0, z0, prefix="logit_")
    file = save(tmp_path / "test.npz", y1, z1, prefix="logit_")
    done = calibrate_file(val, file, tmp_path / "out.parquet", calibrator=name)
    expected = type(done.calibrator)().fit(z0, y0).predict_proba(z1)
    np.testing.assert_allclose(read_all(open_file(done.path))[1], expected)
    again = calibrate_file(val, file, tmp_path / "out.csv", calibrator=type(done.calibrator)())
    np.testing.assert_allclose(read_all(open_file(again.path))[1], expected)


def test_other_columns_are_kept_and_old_answers_replaced(tmp_path):
    (tmp_path / "val.csv").write_text("label,prob_a,prob_b\n" + "a,0.9,0.1\nb,0.1,0.9\na,0.1,0.9\n" * 5)
    content = 'id,prediction,confidence,prob_b,note,prob_a\n007,a,0.9,0.2,"x,\n""y""",0.8\n008,b,1,0.6,,0.4\n'
    (tmp_path / "test.csv").write_text(content)  # no labels, classes in another order
    done = calibrate_file(tmp_path / "val.csv", tmp_path / "test.csv", tmp_path / "out.csv")
    assert "2 rows written" in str(done)
    out = open_file(tmp_path / "out.csv")
    assert list(out.source.columns) == ["id", "note", "prediction", "confidence", "prob_a", "prob_b"]
    (chunk,) = out.chunks(labels=False, others=["id", "note", "prediction", "confidence"])
    assert chunk.others["id"].to_pylist() == ["007", "008"]
    assert chunk.others["note"].to_pylist() == ['x,\n"y"', ""]
    assert chunk.others["prediction"].to_pylist() == ["a", "b"]
    np.testing.assert_allclose(np.array(chunk.others["confidence"].cast(pa.float64())), chunk.scores.max(axis=1))
    odds = (chunk.scores[:, 0] / chunk.scores[:, 1]) ** done.calibrator.temperature_
    np.testing.assert_allclose(odds, [4, 2 / 3])


def test_the_file_itself_can_be_replaced(tmp_path, pair):
    (_, p0, y0), _ = pair
    path = save(tmp_path / "p.parquet", y0, p0)
    calibrate_file(path, path, path)
    assert evaluate_file(path).n == 3000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.parquet"]


def test_the_validation_file_is_not_lost(tmp_path, pair):
    (_, p0, y0), (_, p1, y1) = pair
    val, file = save(tmp_path / "val.csv", y0, p0), save(tmp_path / "test.csv", y1, p1)
    before = val.read_bytes()
    with pytest.raises(ValueError, match="out must not be the validation file"):
        calibrate_file(val, file, val)
    assert val.read_bytes() == before


def test_zero_probabilities(tmp_path):
    (tmp_path / "v.csv").write_text("label,prob_a,prob_b\n" + "a,1,0\nb,0.2,0.8\nb,0.7,0.3\na,0.6,0.4\n" * 5)
    done = calibrate_file(tmp_path / "v.csv", tmp_path / "v.csv", tmp_path / "out.csv")
    assert any("5 probabilities of v.csv are 0" in note for note in done.notes)
    assert np.isfinite(read_all(open_file(tmp_path / "out.csv"))[1]).all()


def test_numbers_of_classes_come_back_as_numbers(tmp_path, pair):
    (_, p0, y0), _ = pair
    path = save(tmp_path / "p.parquet", y0, p0)
    calibrate_file(path, path, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["prediction"].type == table["label"].type == pa.int64()
    file = open_file(tmp_path / "out.parquet", kind="confidence")
    assert evaluate_file(file).accuracy.value == pytest.approx((p0.argmax(axis=1) == y0).mean())


def test_npz_keeps_arrays_of_as_many_rows(tmp_path, pair):
    (_, p0, y0), _ = pair
    ids = np.array([f"id{i}" for i in range(3000)])
    np.savez(tmp_path / "p.npz", labels=y0, probs=p0, ids=ids, weights=np.arange(7))
    done = calibrate_file(tmp_path / "p.npz", tmp_path / "p.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as out:
        np.testing.assert_array_equal(out["ids"], ids)
        np.testing.assert_array_equal(out["prediction"], p0.argmax(axis=1))
        assert out["probs"].shape == (3000, 4)
        assert out["classes"].tolist() == list("0123")
        assert "weights" not in out
    assert any("another number of rows: 'weights'" in note for note in done.notes)


def test_what_does_not_fit(tmp_path, pair):
    (z0, p0, y0), _ = pair
    val = save(tmp_path / "val.csv", y0, p0)
    other = save(tmp_path / "other.csv", y0, p0, names=["0", "1", "2", "x"])
    with pytest.raises(ValueError, match="same classes, but '3' is in one of them only"):
        calibrate_file(val, other, tmp_path / "out.csv")
    logits = save(tmp_path / "logits.csv", y0, z0, prefix="logit_")
    with pytest.raises(ValueError, match="vector scaling needs the same"):
        calibrate_file(val, logits, tmp_path / "out.csv", calibrator="vector")
    calibrate_file(val, logits, tmp_path / "out.csv")
    with pytest.raises(ValueError, match="calibrator must be one of 'temperature'"):
        calibrate_file(val, val, tmp_path / "out.csv", calibrator="temprature")
    (tmp_path / "sure.csv").write_text("label,prediction,confidence\n0,0,0.5\n")
    with pytest.raises(ValueError, match="predictions and confidences only"):
        calibrate_file(val, tmp_path / "sure.csv", tmp_path / "out.csv")
    (tmp_path / "bare.csv").write_text("prob_0,prob_1\n0.5,0.5\n")
    with pytest.raises(ValueError, match="no column of labels"):
        calibrate_file(tmp_path / "bare.csv", val, tmp_path / "out.csv")
    (tmp_path / "empty.csv").write_text("label,prob_0,prob_1,prob_2,prob_3\n")
    with pytest.raises(ValueError, match="no rows to fit on"):
        calibrate_file(tmp_path / "empty.csv", val, tmp_path / "out.csv")
    with pytest.raises(ValueError, match="no rows to write"):
        calibrate_file(val, tmp_path / "empty.csv", tmp_path / "out2.csv")
    with pytest.raises(ValueError, match=r"must end in one of .csv"):
        calibrate_file(val, val, tmp_path / "out.xlsx")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        calibrate_file(val, val, tmp_path / "no" / "out.csv")
    assert not (tmp_path / "out2.csv").exists()


def test_a_failed_write_leaves_what_was_there(tmp_path, pair):
    (_, p0, y0), _ = pair
    val = save(tmp_path / "val.parquet", y0, p0)
    bad = p0.copy()
    bad[2500] = np.nan
    file = save(tmp_path / "bad.parquet", y0, bad)
    for name in ("out.csv", "out.parquet", "out.npz"):
        (tmp_path / name).write_text("old")
        with pytest.raises(ValueError, match="row 2,501"):
            calibrate_file(val, file, tmp_path / name)
        assert (tmp_path / name).read_text() == "old"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_calibrator_that_does_not_help_is_not_applied(tmp_path):
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(4), 80)
    labels = np.array([random.choice(4, p=p) for p in probs])
    path = save(tmp_path / "p.csv", labels, probs)
    done = calibrate_file(path, path, tmp_path / "out.csv", calibrator="histogram")
    assert not done.applied
    assert str(done).startswith("not calibrated; 80 rows written")
    assert "by cross-validation on 80 rows it does not help (NLL " in done.notes[0]
    np.testing.assert_allclose(read_all(open_file(tmp_path / "out.csv"))[1], probs, atol=1e-6)
    forced = calibrate_file(path, path, tmp_path / "forced.csv", calibrator="histogram", check=False)
    assert forced.applied
    assert (
        evaluate_file(tmp_path / "forced.csv").nll.value < evaluate_file(path).nll.value
    )  # on the rows it was fitted on
