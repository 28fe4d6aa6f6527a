"""New data block by block, and features that lie in a file."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data import make
from vicinal import data
from vicinal._atomic import json_pieces, read_json, write_arrays
from vicinal.data import feature_matrix, streaming, tabular
from vicinal.runs import execute
from vicinal.training.batches import KeyedDataset


@pytest.fixture
def task():
    return data.load(make.people(), target="kind")


def with_bad_rows(path, n=100):
    frame = make.people(n)
    lines = frame.to_csv(index=False).splitlines()
    lines[30] += ",too,many"
    lines[31] += ",too,many"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("rows", [1, 16, 24, 1000])
def test_blocks_are_what_read_returns_at_once(tmp_path, task, monkeypatch, rows):
    monkeypatch.setattr(streaming, "_ROWS", rows)
    monkeypatch.setattr(tabular, "_ROWS", 7)
    path = with_bad_rows(tmp_path / "new.csv")
    whole = data.read(path, task.preprocessing)
    blocks = data.stream(path, task.preprocessing, batch_size=8)
    parts = list(blocks)
    assert [len(part) for _, part in parts[:-1]] == [max(rows // 8, 1) * 8] * (len(parts) - 1)
    assert np.concatenate([positions for positions, _ in parts]).tolist() == whole.indices
    x = torch.stack([part[i][0] for _, part in parts for i in range(len(part))])
    assert torch.equal(x, torch.stack([whole[i][0] for i in range(len(whole))]))
    assert sorted(blocks.notes) == sorted(whole.notes)


def test_texts_are_streamed_too(tmp_path):
    frame = make.reviews(40)
    task = data.load(frame, data.TextOptions(text="review", tokenizer="words"), target="mood")
    frame.to_csv(tmp_path / "new.csv", index=False)
    whole = data.read(tmp_path / "new.csv", task.preprocessing)
    ((positions, part),) = data.stream(tmp_path / "new.csv", task.preprocessing, batch_size=8)
    assert positions.tolist() == whole.indices
    for i in range(40):
        assert torch.equal(part[i][0]["input_ids"], whole[i][0]["input_ids"])


def test_rows_are_read_when_they_are_asked_for(tmp_path, task, monkeypatch):
    monkeypatch.setattr(streaming, "_ROWS", 8)
    monkeypatch.setattr(tabular, "_ROWS", 8)
    path = tmp_path / "new.csv"
    make.people(10_000).to_csv(path, index=False)
    taken = []
    encode = tabular.Number.encode
    monkeypatch.setattr(
        tabular.Number, "encode", lambda self, chunk, *rest: [taken.append(len(chunk)), encode(self, chunk, *rest)][1]
    )
    next(iter(data.stream(path, task.preprocessing, batch_size=8)))
    assert sum(taken) <= 8 * len(task.preprocessing.columns)


def test_too_many_bad_rows_are_an_error_at_the_end(tmp_path, task):
    path = with_bad_rows(tmp_path / "new.csv")
    with pytest.raises(ValueError, match="2 of 100 rows could not be read: row 30"):
        list(data.stream(path, task.preprocessing, batch_size=8, options=data.ReadOptions(max_bad=1)))


def test_other_sources_are_one_block(tmp_path):
    make.image_folder(tmp_path / "images", size=8)
    task = data.load(str(tmp_path / "images"), data.SplitOptions(val=0.2, test=0.2))
    ((positions, part),) = data.stream(str(tmp_path / "images"), task.preprocessing, batch_size=8)
    assert len(positions) == len(part) == len(data.read(str(tmp_path / "images"), task.preprocessing))


def test_features_that_would_fill_memory_lie_in_a_file(monkeypatch, task):
    monkeypatch.setattr(feature_matrix, "_IN_MEMORY", 0)
    mapped = data.load(make.people(), target="kind")
    for i in range(len(task.train)):
        assert torch.equal(mapped.train[i][0], task.train[i][0])


@pytest.mark.parametrize("in_memory", [0, 2**20])
def test_features_have_zeros_where_rows_could_not_be_read(monkeypatch, in_memory):
    monkeypatch.setattr(feature_matrix, "_IN_MEMORY", in_memory)
    matrix = feature_matrix.FeatureMatrix(9, 2)
    matrix.put(np.array([1, 2, 4, 7, 8]), np.arange(1, 11, dtype=np.float32).reshape(5, 2))
    want = [[1, 2], [3, 4], [0, 0], [5, 6], [0, 0], [0, 0], [7, 8], [9, 10], [0, 0]]
    assert matrix.tensor().tolist() == want


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited and measured as Linux does")
def test_a_matrix_in_a_file_takes_no_memory_of_the_process(monkeypatch):
    def data_segment():
        words = Path("/proc/self/status").read_text().split()
        return 1024 * int(words[words.index("VmData:") + 1])

    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data_segment() + 2**26, before[1]))
    try:
        with pytest.raises(MemoryError):
            feature_matrix.FeatureMatrix(2**22, 64)  # a gigabyte
        monkeypatch.setattr(feature_matrix, "_IN_MEMORY", 2**26)
        matrix = feature_matrix.FeatureMatrix(2**22, 64)
        matrix.put(np.array([2**22]), np.full((1, 64), 3.0, np.float32))
        features = matrix.tensor()
        assert (features.shape, float(features[-1].sum()), float(features[0].sum())) == ((2**22, 64), 192.0, 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_encoded_rows_are_taken_at_once_as_they_are_one_by_one(task):
    at_once = KeyedDataset(task.train, 0, purpose="train", collate_fn=task.collate_fn)
    rows = [5, 2, 2, 11]
    index, (x, y) = at_once.__getitems__((0, torch.tensor(rows)))
    slow_x, slow_y = task.collate_fn([task.train[i] for i in rows])
    assert index.tolist() == rows
    assert torch.equal(x, slow_x)
    assert torch.equal(y, slow_y)
    unlabelled = data.read(make.people(), task.preprocessing)
    assert unlabelled.take(torch.tensor([1, 0]))[1].tolist() == [-1, -1]


def test_splits_are_written_and_hashed_as_lists_would_be(tmp_path, task):
    text = "".join(json_pieces(task.positions, rows=7))
    assert text == json.dumps(task.splits)
    write_arrays(tmp_path / "splits.json", task.positions)
    assert read_json(tmp_path / "splits.json") == task.splits
    assert execute._splits_digest(task) == execute._digest(task.splits)
