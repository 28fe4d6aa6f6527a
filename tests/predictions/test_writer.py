from __future__ import annotations

import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.predictions.samples import classifier
from vicinal.predictions import open_file, write

# Names as people give them: any text without the line ends that no CSV reader keeps, and something to see.
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    lambda name: name == name.strip() and name
)


@given(
    names=st.lists(NAMES, min_size=1, max_size=5, unique=True),
    n=st.integers(1, 20),
    suffix=st.sampled_from([".csv", ".csv.gz", ".tsv", ".parquet", ".npz"]),
    seed=st.integers(0, 1000),
    wide=st.booleans(),
    at=st.integers(1, 7),
)
def test_what_is_written_is_read(tmp_path_factory, names, n, suffix, seed, wide, at):
    path = tmp_path_factory.mktemp("round") / f"p{suffix}"
    _, probs, labels = classifier(n, len(names), seed=seed, dtype=np.float64 if wide else np.float32)
    told = [names[k] for k in labels]
    parts = range(0, n, at)
    chunks = (({"label": told[i : i + at], "id": list(range(n))[i : i + at]}, probs[i : i + at]) for i in parts)
    assert write(path, names, chunks) == n
    file = open_file(path)
    assert file.classes == tuple(names)
    chunks = list(file.chunks(others=["id", "prediction", "confidence"]))
    np.testing.assert_array_equal(np.concatenate([c.labels for c in chunks]), labels)
    found = np.concatenate([c.scores for c in chunks])
    np.testing.assert_array_equal(found.astype(probs.dtype), probs)
    guessed = [str(v) for c in chunks for v in c.others["prediction"].tolist()]
    assert guessed == [names[k] for k in probs.argmax(axis=1)]


def test_small_chunks_make_large_row_groups(tmp_path):
    probs = np.full((256, 2), 0.5, np.float32)
    write(tmp_path / "p.parquet", ["a", "b"], (({"row": np.arange(256)}, probs) for _ in range(40)))
    file = pq.ParquetFile(tmp_path / "p.parquet")
    assert (file.metadata.num_rows, file.num_row_groups) == (256 * 40, 1)


def test_work_grows_as_the_number_of_small_chunks(tmp_path):
    probs = np.full((1, 2), 0.5, np.float32)

    def calls(n):
        count = 0

        def seen(frame, event, argument):
            nonlocal count
            count += 1

        sys.setprofile(seen)
        try:
            write(tmp_path / "p.parquet", ["a", "b"], (({}, probs) for _ in range(n)))
        finally:
            sys.setprofile(None)
        return count

    few, more, most = calls(1), calls(200), calls(1000)
    assert most - few < 6 * (more - few)


def test_what_cannot_be_written(tmp_path):
    probs = np.full((1, 2), 0.5)
    path = tmp_path / "p.csv"
    with pytest.raises(ValueError, match="'prob_a' would be written twice"):
        write(path, ["a", "b"], [({"prob_a": [1]}, probs)])
    with pytest.raises(ValueError, match=r"shape \[M, 3\], got \[1, 2\]"):
        write(path, ["a", "b", "c"], [({}, probs)])
    with pytest.raises(ValueError, match="no rows to write"):
        write(path, ["a", "b"], [])
    for name in ("p.csv", "p.parquet", "p.npz"):
        with pytest.raises(ValueError, match="same columns"):
            write(tmp_path / name, ["a", "b"], [({"x": [1]}, probs), ({"y": [1]}, probs)])
    with pytest.raises(ValueError, match="which CSV cannot"):
        write(path, ["a", "b"], [({"x": [[1, 2]]}, probs)])
    with pytest.raises(ValueError, match="cannot be written to an NPZ file"):
        write(tmp_path / "p.npz", ["a", "b"], [({"x": np.array([{}], dtype=object)}, probs)])
    with pytest.raises(ValueError, match="'a' twice"):
        write(path, ["a", "a"], [({}, probs)])
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write(tmp_path / "d.csv", ["a", "b"], [({}, probs)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.csv"]


def test_the_first_of_equals_is_the_prediction(tmp_path):
    write(tmp_path / "p.csv", ["b", "a"], [({"id": ["x"]}, np.array([[0.5, 0.5]]))])
    assert (tmp_path / "p.csv").read_text().splitlines()[1] == '"x","b",0.5,0.5,0.5'
