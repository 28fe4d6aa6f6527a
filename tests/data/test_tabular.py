"""Tables of numbers and categories: what columns hold, how rows become features, new data."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch

from tests.data import make
from vicinal import data
from vicinal.data import Preprocessing, column_encoders
from vicinal.data.tabular import Category


def through_json(preprocessing: Preprocessing) -> Preprocessing:
    return Preprocessing.from_dict(json.loads(json.dumps(preprocessing.to_dict())))


@pytest.fixture
def task(tmp_path):
    make.people().to_csv(tmp_path / "people.csv", index=False)
    return data.load(tmp_path / "people.csv", target="kind")


def test_columns_are_inferred_and_said(task):
    assert task.kind == "tabular"
    assert task.classes == ("a", "b")
    said = "\n".join(task.notes)
    assert "2 numeric and 2 categorical columns, 1 of dates" in said
    assert "left out: 'planet' (the same in every row)" in said
    assert "left out: 'id' (identifiers" in said
    # age; height and its mark; three colours and missing; two of member; day, month and weekday of born
    trees = {"numbers": [0, 1, 2, 9, 10, 11], "categories": [(3, 7), (7, 9)]}
    assert task.spec == {"n_classes": 2, "kind": "tabular", "input_shape": (1 + 2 + 4 + 2 + 3,), **trees}


def test_what_each_number_is(task):
    names = task.preprocessing.feature_names
    assert len(names) == task.preprocessing.width
    assert names[:4] == ["age", "height cm", "height cm is missing", "colour = blue"]
    assert names[6] == "colour is missing"
    assert names[-1].startswith("born: ")
    row, x = task.train.original(0), task.train[0][0]
    assert x[names.index(f"member = {row['member']}")] == 1


def test_features_by_hand(task):
    frame = make.people()
    rows = task.splits["train"]
    ages, heights = frame["age"][rows], frame["height cm"][rows]
    born = pd.to_datetime(frame["born"])
    dates = pd.DataFrame(
        {"day": (born - pd.Timestamp(0)).dt.days, "month": born.dt.month, "weekday": born.dt.day_of_week}
    )
    dates = (dates - dates.loc[rows].mean()) / dates.loc[rows].std(ddof=0)
    lacking = "height cm" if frame["height cm"][rows].isna().any() else None
    for position in range(len(task.train)):
        x, y = task.train[position]
        row = frame.iloc[rows[position]]
        want = [(row["age"] - ages.mean()) / ages.std(ddof=0)]
        height = row["height cm"]
        want.append(0.0 if pd.isna(height) else (height - heights.mean()) / heights.std(ddof=0))
        if lacking:
            want.append(float(pd.isna(height)))
        want += [float(row["colour"] == c) for c in ("blue", "green", "red")]
        if frame["colour"][rows].isna().any():
            want.append(float(pd.isna(row["colour"])))
        want += [float(row["member"] == m) for m in (False, True)]
        want += dates.iloc[rows[position]].tolist()
        torch.testing.assert_close(x, torch.tensor(want, dtype=torch.float32))
        assert task.classes[y] == row["kind"]
        assert task.train.original(position)["age"] == str(row["age"])
        assert task.train.labels[position] == y


def test_csv_parquet_json_and_frame_are_the_same(tmp_path, task):
    frame = make.people()
    frame.to_parquet(tmp_path / "people.parquet")
    frame.to_csv(tmp_path / "people.csv.gz", index=False)
    frame.to_csv(tmp_path / "people.tsv", index=False, sep="\t")
    frame.to_csv(tmp_path / "semi.csv", index=False, sep=";", decimal=",")
    frame.to_csv(tmp_path / "utf16.csv", index=False, encoding="utf-16")
    frame.to_json(tmp_path / "people.jsonl", orient="records", lines=True)
    sources = [
        frame,
        *(tmp_path / f"people.{end}" for end in ("parquet", "csv.gz", "tsv", "jsonl")),
        tmp_path / "semi.csv",
    ]
    others = [data.load(source, target="kind") for source in sources]
    others.append(data.load(tmp_path / "utf16.csv", data.ReadOptions(encoding="utf-16"), target="kind"))
    for other in others:
        assert other.splits == task.splits
        for split, mine in ((other.train, task.train), (other.test, task.test)):
            torch.testing.assert_close(torch.stack([x for x, _ in split]), torch.stack([x for x, _ in mine]))
    assert others[2].fingerprint == task.fingerprint  # the same content, compressed
    assert others[3].fingerprint != task.fingerprint
    assert others[1].fingerprint == data.load(tmp_path / "people.parquet", target="kind").fingerprint


def test_preprocessing_through_json_gives_identical_tensors(tmp_path, task):
    again = through_json(task.preprocessing)
    assert again == task.preprocessing
    new = data.read(tmp_path / "people.csv", again)
    assert new.labels is None
    for split in (task.train, task.val, task.test):
        for position, index in enumerate(split.indices):
            assert torch.equal(new[index][0], split[position][0])
    assert new[0][1] == -1
    assert torch.equal(again(make.people().iloc[0].to_dict()), new[0][0])


@pytest.mark.parametrize("value", ["1e39", "-1e300", "inf", "-inf", "1e999"])
def test_a_number_that_float32_cannot_hold_counts_as_missing_and_is_said(tmp_path, task, value):
    frame = make.people().astype({"age": object})
    frame.iloc[3, frame.columns.get_loc("age")] = value
    frame.to_csv(tmp_path / "new.csv", index=False)
    new = data.read(tmp_path / "new.csv", task.preprocessing)
    assert any("counts as missing: row 4" in note for note in new.notes)
    assert new[3][0][0] == 0
    assert all(bool(torch.isfinite(new[i][0]).all()) for i in range(len(new)))


def test_a_value_that_standardising_makes_too_large_counts_as_missing(tmp_path):
    rows = [f"{1 + 1e-9 * (i % 7)},{'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "old.csv").write_text("\n".join(["x,y", *rows]))
    (tmp_path / "new.csv").write_text("x\n1e38\n1\n")
    task = data.load(tmp_path / "old.csv", target="y", kind="tabular")
    (column,) = task.preprocessing.columns
    limited = data.read(tmp_path / "new.csv", task.preprocessing)
    assert limited[0][0][0].item() == pytest.approx((column.limits[1] - column.mean) / column.std)
    without = dataclasses.replace(task.preprocessing, columns=(dataclasses.replace(column, limits=None),))
    new = data.read(tmp_path / "new.csv", without)
    assert any("counts as missing: row 1" in note for note in new.notes)
    assert new[0][0][0] == 0


def test_training_rows_with_numbers_beyond_float32_do_not_spoil_the_column(tmp_path):
    rows = [f"{'1e300' if i == 5 else i % 7},{'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "old.csv").write_text("\n".join(["x,y", *rows]))
    task = data.load(tmp_path / "old.csv", target="y", kind="tabular")
    assert any("no finite number " in note for note in task.notes)
    assert 0 < task.preprocessing.columns[0].std < 3


def test_new_data_with_other_columns_and_values(task):
    frame = make.people().drop(columns="kind")[::-1]
    frame["mood"], frame["weight"] = "fine", 70
    frame = frame.astype({"age": object})
    frame.iloc[0, frame.columns.get_loc("colour")] = "ultraviolet"
    frame.iloc[1, frame.columns.get_loc("age")] = "old"
    new = data.read(frame, task.preprocessing)
    assert len(new) == len(frame)
    said = "\n".join(new.notes)
    (unlike,) = [note for note in new.notes if note.startswith("unlike the training data: ")]
    assert "2 extra columns and 1 column with values not seen in training" in unlike
    assert "ignored: 'mood' and 'weight'" in unlike
    assert "not seen in training: 'ultraviolet'" in unlike
    assert "counts as missing: row 2 ('old')" in said
    offset = 3 if task.preprocessing.columns[1].missing else 2
    assert new[0][0][offset : offset + 3].sum() == 0
    assert new[1][0][0] == 0
    with pytest.raises(ValueError, match=r"'height cm'.*did you mean 'height' or"):
        data.read(frame.rename(columns={"height cm": "height"}), task.preprocessing)


def test_labelled_new_data(tmp_path, task):
    frame = make.people()
    frame.loc[0, "kind"] = "c"
    frame.loc[1, "kind"] = None
    other = data.read(frame, task.preprocessing, classes=task.classes)
    assert len(other) == len(frame) - 2
    assert "left out: 2 samples of 'c' and no class" in " ".join(other.notes)
    assert [task.classes[k] for k in other.labels] == frame["kind"][2:].tolist()
    with pytest.raises(ValueError, match="target='kind' is no column"):
        data.read(frame.drop(columns="kind"), task.preprocessing, classes=task.classes)
    with pytest.raises(ValueError, match=r"no sample of .* has a class of the model: 'x' and 'y'"):
        data.read(frame, task.preprocessing, classes=("x", "y"))


def test_bad_rows_are_named_counted_and_limited(tmp_path):
    lines = ["x,y,label", *(f"{k},{k * k % 7},{'ab'[k % 2]}" for k in range(60))]
    lines[3], lines[5], lines[9] = "oops,1,a", "1,2,a,b,c", "1,2,?"
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines))
    task = data.load(path)
    assert "target: 'label'" in task.notes
    (note,) = [note for note in task.notes if note.startswith("skipped")]
    assert note.endswith("row 5 (Expected 3 columns, got 5) and row 9 (no class)")
    with pytest.raises(ValueError, match=r"2 of 60 rows .* max_bad=1 allows"):
        data.load(path, data.ReadOptions(max_bad=1))
    assert data.load(path, data.ReadOptions(max_bad=2)).splits == task.splits
    # Positions are those of the file, and no row is dropped for a feature.
    positions = sorted(i for part in task.splits.values() for i in part)
    assert positions == [i for i in range(60) if i not in (4, 8)]
    for split in (task.train, task.val, task.test):
        for i, position in enumerate(split.indices):
            row = lines[position + 1].split(",")
            assert list(split.original(i).values()) == row
            assert task.classes[split[i][1]] == row[2]
    assert "column 'x': 1 value is no finite number and counts as missing: row 3 ('oops')" in task.notes


def test_saved_splits_that_name_a_skipped_row_belong_to_other_data(tmp_path):
    lines = ["x,label", *(f"{k % 9}.5,{'ab'[k % 2]}" for k in range(40))]
    lines[5] += ",surplus"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    splits = data.load(tmp_path / "a.csv").splits
    assert data.load(tmp_path / "a.csv", splits=splits).splits == splits
    counted_otherwise = {name: [i - (i > 4) for i in part] for name, part in splits.items()}
    with pytest.raises(ValueError, match="these belong to other data"):
        data.load(tmp_path / "a.csv", splits=counted_otherwise)


def test_what_is_missing_in_the_target(tmp_path):
    """A class may be called None; a question mark is missing there as in features."""
    text = "x,label\n" + "".join(f"{k % 7},{['None', 'x'][k % 2]}\n" for k in range(60)) + "1,?\n2,NA\n"
    (tmp_path / "a.csv").write_text(text)
    task = data.load(tmp_path / "a.csv")
    assert task.classes == ("None", "x")
    assert "skipped: 2 of 62 rows have no 'label': row 61 and row 62" in task.notes
    with pytest.raises(
        ValueError, match=r"'label' is missing in 2 of 62 rows \(row 61 and row 62\): fill it in"
    ) as said:
        data.load(tmp_path / "a.csv", data.ReadOptions(max_bad=0))
    assert str(said.value).endswith("or skip them with max_bad=2")


def test_numeric_classes_are_in_order():
    frame = pd.DataFrame({"x": np.arange(40) ** 1.5, "y": [float(k % 11) for k in range(40)]})
    assert data.load(frame).classes == tuple(str(k) for k in range(11))


def test_duplicates_are_mentioned():
    frame = pd.DataFrame({"x": [1.5, 2.5] * 20, "y": ["a", "b"] * 20})
    assert any("38 of 40 rows are duplicates" in note for note in data.load(frame).notes)
    many = pd.DataFrame({"x": [*range(1_999), 0], "y": ["a", "b"] * 1_000})
    assert any(note.startswith("1 of 2,000 rows is a duplicate") for note in data.load(many, target="y").notes)


def test_a_folder_of_split_tables(tmp_path):
    frame = make.people(90)
    folder = tmp_path / "mine"
    folder.mkdir()
    frame[:60].to_csv(folder / "train.csv", index=False)
    frame[60:].to_csv(folder / "test.csv", index=False)
    task = data.load(folder, target="kind")
    assert task.splits["test"] == list(range(60, 90))
    assert set(task.splits["train"]) | set(task.splits["val"]) == set(range(60))
    assert task.splits["val"]
    frame[60:].drop(columns="age").to_csv(folder / "test.csv", index=False)
    with pytest.raises(ValueError, match=r"test.csv' lacks the column 'age'"):
        data.load(folder, target="kind")


def test_many_categories_keep_the_frequent_and_pool_the_others(monkeypatch):
    values = [f"v{k % 150}" for k in range(450)] + ["common"] * 50
    frame = pd.DataFrame({"c": values, "x": np.arange(500) % 17, "y": ["a", "b"] * 250})
    task = data.load(frame, target="y")
    assert task.spec["input_shape"] == (103,)  # a hundred values, the others, what targets they had, and x
    assert task.spec["categories"] == [(0, 101)]
    assert any("the 100 most frequent" in note for note in task.notes)
    column = through_json(task.preprocessing).columns[0]
    assert column.pooled
    for split in (task.train, task.test):
        for i in range(len(split)):
            x = split[i][0]
            assert x[:101].sum() == 1
            assert bool(x[100]) == (split.original(i)["c"] not in column.values)
    seen = {task.train.original(i)["c"] for i in range(len(task.train))}
    assert {*column.values, *column.rarer} == seen
    known = frame[frame["c"].isin(seen)]
    assert not data.read(known, task.preprocessing).notes  # rare values were seen in training
    [note] = data.read(known.replace({"c": {"common": "Atlantis"}}), through_json(task.preprocessing)).notes
    assert "column 'c': 50 rows hold values not seen in training: 'Atlantis'" in note
    # Too many to remember: nothing is said rather than something wrong.
    monkeypatch.setattr(column_encoders, "_MAX_KNOWN", len(seen) - 1)
    forgetful = data.load(frame, target="y").preprocessing
    assert not forgetful.columns[0].rarer
    assert not data.read(known.replace({"c": {"common": "Atlantis"}}), forgetful).notes


def test_many_numbers_are_no_classes():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=3000), "price": rng.integers(300, 2000, 3000)})
    with pytest.raises(ValueError, match=r"'price' has \d+ different numbers"):
        data.load(frame, target="price")
    codes = pd.DataFrame({"x": rng.normal(size=3000), "y": np.arange(3000) % 300})
    assert len(data.load(codes, target="y").classes) == 300


def test_a_million_classes_are_refused_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{k % 7},c{k}\n" for k in range(200_000)))
    with pytest.raises(ValueError, match="target='y' has more than 100,000 different values"):
        data.load(tmp_path / "a.csv", target="y")


def test_a_nearly_empty_column_is_not_the_text(tmp_path, monkeypatch):
    """The form of a well-known file of text messages: unnamed columns with a few cells that overflowed."""
    messages = [f"this is the message number {k} with a number of words in it" for k in range(100)]
    more = ["and here is what came after the first comma of it"] * 2 + [""] * 98
    frame = pd.DataFrame(
        {"v1": ["ham", "spam"] * 50, "v2": messages, "": [f"{m} {k}" if m else m for k, m in enumerate(more)]}
    )
    frame.to_csv(tmp_path / "spam.csv", index=False)
    task = data.load(tmp_path / "spam.csv", data.TextOptions(tokenizer="words"), target="v1")
    assert "kind: text, from 'v2'" in task.notes
    assert sum(map(len, task.splits.values())) == 100
    # Nor do a few cells make a table of it, whose words would stand beside them.
    monkeypatch.setattr("vicinal.data.text.default_tokenizer", lambda: "words")
    few = frame.assign(v3=["GNT", "why", "GNT"] + [None] * 97)
    assert data.load(few, target="v1").kind == "text"
    assert data.load(few.assign(v3=["GNT", "why"] * 50), target="v1").kind == "tabular"


def test_shards_are_one_table(tmp_path, task):
    folder = tmp_path / "shards"
    folder.mkdir()
    frame = make.people()
    for k in range(3):
        frame[20 * k : 20 * k + 20].to_csv(folder / f"part-{k}.csv", index=False)
    for source in (folder, folder / "part-*.csv"):
        other = data.load(source, target="kind")
        assert other.splits == task.splits
        assert torch.equal(other.train[0][0], task.train[0][0])
        assert other.test.original(3) == task.test.original(3)
    new = data.read(folder, task.preprocessing, classes=task.classes)
    assert len(new) == 60


def test_chunks_of_any_size_give_the_same_features(tmp_path, task, monkeypatch):
    """What is fitted and encoded in one chunk, and in many: means and deviations merge."""
    frame = make.people()
    frame.to_parquet(tmp_path / "people.parquet")
    monkeypatch.setattr("vicinal.data.tabular._ROWS", 7)
    monkeypatch.setattr("vicinal.tables.parquet.Parquet.chunks.__defaults__", (None, 11))
    other = data.load(tmp_path / "people.parquet", target="kind")
    for mine, theirs in zip(other.preprocessing.columns, task.preprocessing.columns, strict=True):
        assert mine.name == theirs.name
        if isinstance(mine, Category):
            assert mine == theirs
            continue
        for one, other_one in zip(getattr(mine, "parts", [mine]), getattr(theirs, "parts", [theirs]), strict=True):
            assert one.mean == pytest.approx(other_one.mean, rel=1e-14)
            assert one.std == pytest.approx(other_one.std, rel=1e-12)
            assert one.limits == other_one.limits
    torch.testing.assert_close(torch.stack([x for x, _ in other.train]), torch.stack([x for x, _ in task.train]))
