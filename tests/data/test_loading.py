"""A first user's mistakes, saved splits, and what a task promises whatever it came from."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

from tests.data import make
from vicinal import data, models


def table(**changes) -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(40) % 13 + 0.5, "label": ["a", "b"] * 20, **changes})


@pytest.fixture(params=["tabular", "text", "image", "audio", "digits"])
def task(request, tmp_path):
    match request.param:
        case "tabular":
            return data.load(make.people(), target="kind")
        case "text":
            return data.load(make.reviews(), data.TextOptions(tokenizer="words"), target="mood")
        case "image":
            return data.load(make.image_folder(tmp_path, n=10))
        case "audio":
            return data.load(make.sound_folder(tmp_path, n=10))
        case _:
            return data.load("digits", data.SplitOptions(train_size=100))


def test_every_task_trains_the_usual_network(task):
    model = models.build(**task.spec)
    x, y = next(iter(DataLoader(task.train, batch_size=4, collate_fn=task.collate_fn)))
    logits = model(**x) if isinstance(x, dict) else model(x)
    assert logits.shape == (4, len(task.classes))
    assert y.dtype == torch.int64
    torch.nn.functional.cross_entropy(logits, y).backward()


def test_every_task_is_split_recorded_and_shown(task):
    parts = task.splits
    indices = [i for part in parts.values() for i in part]
    assert len(set(indices)) == len(indices)
    assert all(parts.values())
    for split in (task.train, task.val, task.test):
        assert split.labels == [split[i][1] for i in range(len(split))]
        assert split.original(0) is not None
    assert sum(task.counts()["train"]) == len(task.train)
    assert task.fingerprint.startswith("sha256:")
    assert json.loads(json.dumps([parts, task.summary(), task.preprocessing.to_dict()]))
    assert task.kind in repr(task)


def test_every_task_reaches_workers(task):
    again = pickle.loads(pickle.dumps(task.train))
    first, second = again[0][0], task.train[0][0]
    if isinstance(first, dict):
        first, second = first["input_ids"], second["input_ids"]
    assert torch.equal(first, second)


def test_seeds_and_saved_splits():
    frame = table()
    first, again, other = (data.load(frame, data.SplitOptions(seed=seed)) for seed in (0, 0, 1))
    assert first.splits == again.splits != other.splits
    saved = json.loads(json.dumps(other.splits))
    assert data.load(frame, splits=saved).splits == other.splits
    with pytest.raises(ValueError, match=r"different positions in \[0, 39\]: these belong to other data"):
        data.load(frame, splits={**saved, "val": [40]})
    with pytest.raises(ValueError, match="different positions"):
        data.load(frame, splits={**saved, "val": saved["train"]})
    with pytest.raises(ValueError, match="splits must hold 'train', 'val' and 'test'"):
        data.load(frame, splits={"training": [0]})
    few = data.load(frame, data.SplitOptions(train_size=4))
    assert sorted(few.train.labels) == [0, 0, 1, 1]
    assert few.splits["test"] == first.splits["test"]
    assert set(few.splits["train"]) <= set(first.splits["train"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (table(label="a"), "there is only one class, 'a': a classifier needs at least two"),
        (table(label=["a", "b"] * 19 + ["a", "c"]), "class 'c' with only one sample cannot be both learned and tested"),
        (table(label=["a", "b"] * 19 + ["d", "c"]), "remove them or merge them with other classes"),
        (
            table(label=["a", None] * 20),
            r"'label' is missing in 20 of 40 rows \(row 2, row 4, row 6 and 17 more\): fill",
        ),
        (table(label=["a", ""] * 20), "'label' is missing in 20 of 40 rows"),
        (table(label=np.linspace(0, 1, 40)), "'label' has 40 different numbers in 40 rows, so it cannot be a class"),
        (table(label=[f"name {k}" for k in range(40)]), "'label' has 40 different values in 40 rows"),
        (table().rename(columns={"label": "lable"}), "pass target, the column of .* one of 'x' and 'lable'"),
        (table(x=1), r"no column to learn from \(left out: 'x' \(the same in every row\)\)"),
        (table()[["label"]], "no column to learn from"),
        (table()[:0], "has no rows"),
    ],
)
def test_tables_that_cannot_be_learned(source, message):
    with pytest.raises(ValueError, match=message):
        data.load(source)


def test_a_single_sample_can_stay_in_training():
    task = data.load(table(label=["a", "b"] * 19 + ["a", "c"]), data.SplitOptions(rare="train"))
    assert task.counts()["train"][2] == 1
    said = "'c' has one sample, kept in the training set and not evaluated"
    assert said in task.notes


def test_a_single_sample_of_many_stops_nobody():
    many = pd.DataFrame({"x": np.sin(np.arange(300)), "label": ["a", "b"] * 149 + ["c", "d"]})
    task = data.load(many)
    assert list(task.counts()["train"][2:]) == [1, 1]
    assert any(note.startswith("'c' and 'd' have one sample each, kept in the training set") for note in task.notes)
    with pytest.raises(ValueError, match="with only one sample cannot be both learned and tested"):
        data.load(many, data.SplitOptions(rare="error"))


def test_what_files_have_in_common_makes_them_no_more_alike(tmp_path):
    """Their folder and ending had made any of them look like any other."""
    for name in ("mails.csv", "houses.csv", "wine.csv"):
        table().to_csv(tmp_path / name, index=False)
    with pytest.raises(FileNotFoundError, match=r"'.*nofile.csv', and no data set of that name; there are "):
        data.load(tmp_path / "nofile.csv")
    with pytest.raises(FileNotFoundError, match=r"did you mean '[^']*wine.csv'"):
        data.load(tmp_path / "wnie.cvs")


def test_no_such_column_file_or_folder(tmp_path):
    table().to_csv(tmp_path / "measurements.csv", index=False)
    with pytest.raises(ValueError, match=r"target='lable' is no column of .*; did you mean 'label'\?"):
        data.load(tmp_path / "measurements.csv", target="lable")
    with pytest.raises(FileNotFoundError, match=r"mesurements.csv.*did you mean .*measurements.csv"):
        data.load(tmp_path / "mesurements.csv")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'cifar10' or 'cifar100'"):
        data.load("cifar")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match="holds no class folders of images or of sounds"):
        data.load(tmp_path / "nothing")
    with pytest.raises(TypeError, match="source must be a path, a name or a DataFrame, got 3"):
        data.load(3)
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"a.docx' is no table that can be read: pass a .csv"):
        data.load(tmp_path / "a.docx")
    with pytest.raises(ValueError, match="target='x' names a column, but 'digits' is not a table"):
        data.load("digits", target="x")
    with pytest.raises(ValueError, match="kind='audio' does not fit 'digits': leave it out"):
        data.load("digits", kind="audio")
    with pytest.raises(ValueError, match=r"kind='tabular' does not fit .*pets': leave it out"):
        data.load(make.image_folder(tmp_path / "pets"), kind="tabular")


def test_encodings(tmp_path):
    text = "name,label\n" + "".join(f"{name} {k},{'ab'[k % 2]}\n" for k in range(20) for name in ("café", "Zoë"))
    path = tmp_path / "latin.csv"
    path.write_bytes(text.encode("latin-1"))
    task = data.load(path, data.TextOptions(tokenizer="words"))
    assert task.train.original(0).split()[0] in ("café", "Zoë")
    assert any("read as Windows-1252" in note for note in task.notes)
    assert data.load(path, data.ReadOptions(encoding="latin-1"), data.TextOptions(tokenizer="words")).train.original(
        0
    ).split()[0] in ("café", "Zoë")
    with pytest.raises(ValueError, match="encoding='latin-99' is not known"):
        data.load(path, data.ReadOptions(encoding="latin-99"))
    path.write_bytes(text.encode("utf-16"))
    assert any("read as UTF-16" in note for note in data.load(path, data.TextOptions(tokenizer="words")).notes)
    path.write_bytes(text.encode("utf-8-sig"))
    assert data.load(path, data.TextOptions(text="name", tokenizer="words")).kind == "text"


def test_broken_files(tmp_path):
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ValueError, match=r"empty.csv' is empty"):
        data.load(tmp_path / "empty.csv")
    (tmp_path / "cut.csv.gz").write_bytes(b"\x1f\x8b\x08 not really")
    with pytest.raises(ValueError, match="cannot be unpacked"):
        data.load(tmp_path / "cut.csv.gz")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="is no readable Parquet file"):
        data.load(tmp_path / "a.parquet")
    (tmp_path / "twice.csv").write_text("label,x,x\na,1,2\n")
    with pytest.raises(ValueError, match=r"there are 'label', 'x', 'x\.1'"):
        data.load(tmp_path / "twice.csv", target="z")
    (tmp_path / "bad.jsonl").write_text('{"x": 1, "label": "a"}\n{"x": 2, \n[1]\n{"x": 3, "label": "b"}')
    with pytest.raises(ValueError, match=r"row 2 \(.*row 3 \(no object\)"):
        data.load(tmp_path / "bad.jsonl", data.SplitOptions(rare="train"), target="label")


def test_files_without_a_header(tmp_path):
    path = tmp_path / "iris.data"
    path.write_text("".join(f"{k % 7}.5,{k % 5}.1,{'ab'[k % 2]}\n" for k in range(40)))
    with pytest.raises(ValueError, match="If its first line holds data, not names, pass header=False"):
        data.load(path, target="species")
    task = data.load(path, data.ReadOptions(header=False), target="3")
    assert task.spec["input_shape"] == (2,)
    assert sum(map(len, task.splits.values())) == 40


def test_hostile_columns_and_classes(tmp_path):
    column = '<b>"x", y</b>'
    frame = pd.DataFrame({column: np.arange(45) % 7, "ziel": make.HOSTILE * 15})
    path = tmp_path / 'an "odd" name\'s.csv'
    frame.to_csv(path, index=False)
    task = data.load(path, target="ziel")
    assert task.classes == tuple(sorted(make.HOSTILE))
    assert task.preprocessing.columns[0].name == column
    assert data.read(frame, task.preprocessing, classes=task.classes).labels


def test_a_preprocessing_for_other_data(tmp_path):
    digits = data.load("digits", data.SplitOptions(train_size=50)).preprocessing
    rows = data.load(table()).preprocessing
    with pytest.raises(ValueError, match=r"the model takes image data, but .* is a table"):
        data.read(table(), digits)
    with pytest.raises(ValueError, match="the model takes tabular data, but 'digits' holds images"):
        data.read("digits", rows)
    with pytest.raises(ValueError, match="there is no preprocessing of kind 'video'; there are 'audio'"):
        data.Preprocessing.from_dict({"kind": "video"})
    assert data.read("digits", digits).labels is None


def test_each_real_file_counts_once(tmp_path):
    """Links to a parent, to another class, to a file: no loop, no sample twice, the class of the file itself."""
    root = make.image_folder(tmp_path / "pets")
    plain = data.load(root)
    (root / "cat" / "all").symlink_to(root)
    (root / "cat" / "again").symlink_to(root / "dog")
    (root / "cat" / "a dog.png").symlink_to(root / "dog" / "picture 0.png")
    (root / "ape").symlink_to(root / "dog")
    (root / "cat" / "round").symlink_to(root / "cat" / "round")
    os.link(root / "dog" / "picture 1.png", root / "dog" / "the same.png")
    linked = data.load(root)
    assert linked.classes == ("cat", "dog")
    assert linked.splits == plain.splits
    assert [linked.train.original(i) for i in range(len(linked.train))] == [
        plain.train.original(i) for i in range(len(plain.train))
    ]
    assert "left out: 16 links to files that are here already" in linked.notes
    outside = make.image_folder(tmp_path / "other", classes=("x",)) / "x"
    (root / "owl").symlink_to(outside)
    assert data.load(root).classes == ("cat", "dog", "owl")


def test_special_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="is a pipe, not a regular file"):
        data.load(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="is a device, not a regular file"):
        data.load("/dev/zero")


def test_fewer_held_out_samples():
    distinct = table(x=np.arange(40) + 0.5)  # duplicates stay together, which changes the numbers a little
    whole = data.load(distinct, data.SplitOptions(val=12, test=12))
    some = data.load(distinct, data.SplitOptions(val=12, test=12, max_held_out=4))
    assert {name: len(part) for name, part in some.splits.items()} == {"train": 16, "val": 4, "test": 4}
    assert some.splits["train"] == whole.splits["train"]
    assert set(some.splits["test"]) < set(whole.splits["test"])
    assert sorted(some.test.labels) == [0, 0, 1, 1]
    assert "max_held_out: 4 validation and 4 test samples" in some.notes
    assert data.load(distinct, data.SplitOptions(val=12, test=12, max_held_out=12)).splits == whole.splits
    with pytest.raises(ValueError, match=r"max_held_out must be at least 2, .*got 1"):
        data.load(distinct, data.SplitOptions(max_held_out=1))


def test_an_oracle_chooses_on_the_test_set():
    """`val="test"` trains on all that is not tested, and a note calls it an oracle; the command has no such value."""
    whole = data.load("digits", data.SplitOptions(val=0))
    task = data.load("digits", data.SplitOptions(val="test"))
    assert task.splits == {**whole.splits, "val": whole.splits["test"]}
    assert any("oracle: the test set is the validation set too" in note for note in task.notes)
    assert data.load("digits", splits=task.splits).splits == task.splits
    with pytest.raises(ValueError, match="val must be"):
        data.SplitOptions(val="train")
