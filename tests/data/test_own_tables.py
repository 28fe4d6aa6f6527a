"""Tables of one's own: dates, limits, pieces, duplicates, groups, time, columns that leak the target."""

from __future__ import annotations

import datetime
import itertools
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vicinal.data import SplitOptions, TableOptions, TextOptions, load, read, table_samples, table_scan
from vicinal.data.dates import DateEvidence, date_parts
from vicinal.data.leakage import group_auroc
from vicinal.data.splitting import grouped_split, ordered_split, stratified_split
from vicinal.data.tabular import Number
from vicinal.tables import from_frame


def frame(n: int = 200) -> pd.DataFrame:
    random = np.random.default_rng(0)
    x = random.normal(size=n)
    noisy = np.where(x + random.normal(size=n) > 0, "up", "down")
    return pd.DataFrame({"x": x, "colour": random.choice(list("abc"), n), "y": noisy})


# Dates


@pytest.mark.parametrize(
    ("written", "day_first", "expected"),
    [
        ("2021-03-04", False, datetime.datetime(2021, 3, 4)),
        ("03/04/2021", False, datetime.datetime(2021, 3, 4)),
        ("03/04/2021", True, datetime.datetime(2021, 4, 3)),
        ("4 Mar 2021", False, datetime.datetime(2021, 3, 4)),
        ("2021-03-04T18:30:00Z", False, datetime.datetime(2021, 3, 4, 18, 30)),
    ],
)
def test_parts_of_a_date(written, day_first, expected):
    parts, odd, _ = date_parts(pa.array([written, None, "soon"]), day_first=day_first)
    since = expected - datetime.datetime(1970, 1, 1)
    wanted = {
        "day": since.total_seconds() / 86400,
        "year": expected.year,
        "month": expected.month,
        "weekday": expected.weekday(),
        "hour": expected.hour + expected.minute / 60,
    }
    assert {name: values[0] for name, values in parts.items()} == pytest.approx(wanted)
    assert all(np.isnan(values[1:]).all() for values in parts.values())
    assert odd.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("cells", "day_first"),
    [
        (["03/04/2021", "28/04/2021"], True),
        (["03/04/2021", "04/28/2021"], False),
        (["03.04.2021"], True),
        (["2021-04-03", "03/04/2021"], None),
    ],
)
def test_which_number_is_the_day(cells, day_first):
    evidence = DateEvidence()
    for cell in cells:
        evidence.add(cell, 1)
    assert evidence.own() is day_first


def test_dates_are_learned_from_and_new_ones_read():
    table = frame().assign(when=pd.date_range("2020-01-28", periods=200).strftime("%d.%m.%Y"), clock="08:15")
    table.loc[3, "when"] = None
    task = load(table, target="y")
    assert "kind: tabular, 1 numeric and 1 categorical columns, 1 of dates" in task.notes
    (date,) = [column for column in task.preprocessing.columns if column.name == "when"]
    assert [part.name for part in date.parts] == ["day", "month", "weekday"]  # all of 2020, no time of day
    assert type(task.preprocessing).from_dict(task.preprocessing.to_dict()) == task.preprocessing
    again = read(table.drop(columns="y"), task.preprocessing)
    assert again[task.train.indices[7]][0].equal(task.train[7][0])
    odd = read(table.drop(columns="y").assign(when="soon"), task.preprocessing)
    assert "column 'when': 200 values are no dates and count as missing" in " ".join(odd.notes)


# Numbers


def test_outliers_are_put_at_the_limits():
    table = frame()
    task = load(table, target="y")
    (number,) = [column for column in task.preprocessing.columns if column.name == "x"]
    train = table["x"][task.splits["train"]]
    assert number.limits == pytest.approx((train.min(), train.max()))
    far = read(pd.DataFrame({"x": [1e30, -1e30, None], "colour": "a"}), task.preprocessing)
    x = [far[i][0][0].item() for i in range(3)]
    assert x == pytest.approx([(train.max() - number.mean) / number.std, (train.min() - number.mean) / number.std, 0])


def test_pieces_by_the_formula():
    edges = (0.0, 1.0, 4.0, 6.0)
    number = Number("x", 2.0, 3.0, True, (-1.0, 7.0), edges)
    values = np.array([-5.0, 0.5, 3.0, 9.0, np.nan])
    out = np.zeros((5, number.width), np.float32)
    number.write(values, out)
    for row, value in zip(out, values, strict=True):
        missing = np.isnan(value)
        inside = 2.0 if missing else min(max(value, -1.0), 7.0)
        pieces = [min(1.0, max(0.0, (inside - a) / (b - a))) for a, b in itertools.pairwise(edges)]
        np.testing.assert_allclose(row, [(inside - 2) / 3, *pieces, missing], rtol=1e-6)


def test_pieces_are_quantiles_and_few_values_are_told_apart():
    table = frame().assign(few=np.arange(200) % 3)
    task = load(table, TableOptions(features="piecewise"), target="y")
    columns = {column.name: column for column in task.preprocessing.columns}
    train = table["x"][task.splits["train"]]
    pieces = min(16, len(train) // 20)
    np.testing.assert_allclose(columns["x"].edges, np.quantile(train, np.linspace(0, 1, pieces + 1)))
    assert columns["few"].edges == (0, 1, 2)
    assert type(task.preprocessing).from_dict(task.preprocessing.to_dict()) == task.preprocessing


def test_a_number_that_is_mostly_zero_has_pieces_for_the_other_rows():
    """As the gains of a census: quantiles of all rows are zero but for one or two."""
    rng = np.random.default_rng(0)
    often, seldom, once = (np.where(rng.random(4_000) < share, rng.random(4_000), 0) for share in (0.4, 0.05, 0.01))
    table = pd.DataFrame({"often": often, "seldom": seldom, "once": once, "y": rng.integers(0, 2, 4_000)})
    task = load(table, TableOptions(features="piecewise"), target="y")
    edges = {column.name: column.edges for column in task.preprocessing.columns}
    others = {name: np.sort(part[part > 0]) for name, part in table.iloc[task.splits["train"]].items() if name != "y"}
    np.testing.assert_allclose(edges["often"], [0, *np.quantile(others["often"], np.linspace(0, 1, 16))])
    pieces = len(others["seldom"]) // 50  # of at least 50 rows each
    np.testing.assert_allclose(edges["seldom"], [0, *np.quantile(others["seldom"], np.linspace(0, 1, pieces + 1))])
    np.testing.assert_allclose(edges["once"], [0, others["once"][0], others["once"][-1]])


def test_ranks_are_shares_of_lower_training_rows():
    rng = np.random.default_rng(0)
    x = np.exp(3 * rng.normal(size=400)).round(2)
    table = pd.DataFrame({"x": x, "two": np.arange(400) % 2, "few": np.arange(400) % 3, "y": (x > 1).astype(int)})
    table.loc[::7, "x"] = None
    task = load(table, TableOptions(features="ranked"), target="y")
    encoding = task.preprocessing
    names = encoding.feature_names
    assert [name for name in names if name.endswith("rank")] == [
        "x, rank",
        "few, rank",
    ]  # of two values it is nothing new
    place = names.index("x, rank")
    train = table["x"][task.splits["train"]].dropna().to_numpy()
    for part in ("train", "test"):
        rows = table["x"][task.splits[part]].to_numpy()
        exact = [np.mean(train < value) + np.mean(train == value) / 2 for value in rows]
        found = getattr(task, part).features()[:, place] * 12**-0.5 + 0.5
        missing = np.isnan(rows)
        np.testing.assert_allclose(found[~missing], np.array(exact)[~missing], atol=0.01)
        assert (getattr(task, part).features()[missing, place] == 0).all()
    assert set(encoding.plain) < set(task.spec["plain"])
    assert place in task.spec["plain"]
    assert not any("piece" in names[i] for i in task.spec["plain"])
    assert type(encoding).from_dict(encoding.to_dict()) == encoding


# What stays together


def test_duplicates_stay_on_one_side():
    table = frame(150)
    task = load(pd.concat([table, table[:50]], ignore_index=True), target="y")
    assert "50 of 200 rows are duplicates" in " ".join(task.notes)
    part = {i: name for name, rows in task.splits.items() for i in rows}
    assert all(part[i] == part[i + 150] for i in range(50))


def test_rows_that_differ_in_a_column_left_out_are_no_duplicates_and_few_combinations_are_split_freely():
    table = frame(100)
    table = pd.concat([table, table], ignore_index=True).assign(id=np.arange(200))
    assert not any("duplicates" in note for note in load(table, target="y").notes)
    few = pd.DataFrame({"a": np.arange(200) % 2, "b": np.arange(200) // 2 % 2, "y": np.arange(200) // 3 % 2})
    (said,) = [note for note in load(few, target="y").notes if "duplicates" in note]
    assert said.endswith("of only 4 different ones: they are split freely")


@pytest.mark.parametrize("many", [0, 2**20])
def test_different_rows_are_counted_in_parts(monkeypatch, many):
    monkeypatch.setattr(table_samples, "_MANY", many)
    random = np.random.default_rng(0)
    hashes = np.concatenate([random.integers(-(2**63), 2**63 - 1, 500), [-(2**63), 2**63 - 1, 0, 0, -1, 2**60]])
    hashes[::3] = hashes[1]
    usable = random.random(len(hashes)) < 0.8
    assert table_samples._n_distinct(hashes, usable) == len(set(hashes[usable].tolist()))
    assert table_samples._n_distinct(hashes, np.zeros(len(hashes), bool)) == 0
    first: dict[int, int] = {}
    want = [
        first.setdefault(h, i) if used else i for i, (h, used) in enumerate(zip(hashes.tolist(), usable, strict=True))
    ]
    assert table_samples._duplicates(hashes, usable).tolist() == want


def test_groups_are_never_divided():
    table = frame().assign(patient=np.arange(200) // 5)
    table.loc[199, "patient"] = None
    task = load(table, SplitOptions(group="patient"), target="y")
    sides = [set(table["patient"][rows].dropna()) for rows in task.splits.values()]
    assert not any(one & other for one, other in itertools.combinations(sides, 2))
    assert "left out: 'patient' (it groups the rows, group)" in task.notes
    assert "41 groups by 'patient', each on one side of the split" in task.notes
    with pytest.raises(ValueError, match="group='patient' and time='x' cannot both split"):
        load(table, SplitOptions(group="patient", time="x"), target="y")
    with pytest.raises(ValueError, match="group='y' is the target"):
        load(table, SplitOptions(group="y"), target="y")


def lists(parts: dict) -> dict:
    return {name: part.tolist() for name, part in parts.items()}


def test_a_split_of_groups_of_one_is_the_plain_split():
    labels = np.arange(60) % 3
    plain = stratified_split(labels, val=0.2, test=0.2, seed=3)
    assert lists(grouped_split(labels, np.arange(60) + 7, val=0.2, test=0.2, seed=3)) == plain
    pairs, names = np.arange(60) // 2, np.random.default_rng(0).permutation(30)
    numbered, renamed = (lists(grouped_split(labels, g, val=0.2, test=0.2)) for g in (pairs, names[pairs]))
    assert numbered == renamed


def test_a_split_by_time():
    table = frame().assign(day=pd.date_range("2021-01-01", periods=200)[::-1])
    task = load(table, SplitOptions(time="day", val=20, test=40), target="y")
    assert task.splits["test"] == list(range(40))
    assert task.splits["val"] == list(range(40, 60))
    assert "split by 'day': the latest rows are the test set" in task.notes
    assert lists(ordered_split([1, 1, 1, 2], val=0, test=0.5)) == {"train": [0, 1, 2], "val": [], "test": [3]}
    with pytest.raises(ValueError, match="time='colour' holds neither dates nor numbers"):
        load(table, SplitOptions(time="colour"), target="y")


def test_dates_are_no_classes_however_often_each_occurs():
    days = pd.date_range("2021-01-01", periods=25).strftime("%Y-%m-%d")
    with pytest.raises(ValueError, match="'day' has 25 different dates in 200 rows, so it cannot be a class"):
        load(frame().assign(day=np.resize(days, 200)), target="day")
    assert len(load(frame().assign(day=np.resize(days[:5], 200)), target="day").classes) == 5


# Size


def test_what_is_kept_of_each_row_is_small_and_in_its_place(tmp_path):
    """Bad rows, more classes as rows go on, files of a split: labels, hashes and parts are those of loops."""
    lines = {"train": ["x,y", *(f"{i % 50},c{i // 2}" for i in range(400))], "test": ["x,y", *["1,c0", "1,c1"] * 20]}
    lines["train"][7] = "1,2,3"
    for part, rows in lines.items():
        (tmp_path / f"{part}.csv").write_text("\n".join(rows) + "\n")
    scan = table_scan.scan_table(table_samples.open_split_tables(tmp_path), "y")
    assert (scan.labels.dtype, scan.parts.dtype, scan.n_rows) == (np.int16, np.int8, 440)
    every = [*lines["train"][1:], *lines["test"][1:]]
    for i, row in enumerate(every):
        assert scan.readable[i] == (i != 6)
        assert scan.labels[i] == (-1 if i == 6 else scan.names.index(row.split(",")[1]))
        assert scan.parts[i] == (-1 if i == 6 else 0 if i < 400 else 2)
    same = {(a.split(",")[0] == b.split(",")[0], scan.hashes[i] == scan.hashes[j])
            for i, a in enumerate(every) for j, b in enumerate(every) if 6 not in (i, j)}  # fmt: skip
    assert same == {(True, True), (False, False)}


def test_a_large_table_is_split_in_a_few_bytes_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(table_samples, "_MANY", 2**18)
    n, random = 800_000, np.random.default_rng(0)
    columns = {"x": random.standard_normal(n).astype(np.float32), "y": np.where(random.random(n) < 0.5, "a", "b")}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    del columns
    tracemalloc.start()
    task = load(tmp_path / "rows.parquet", target="y")
    peak = tracemalloc.get_traced_memory()[1] / n
    tracemalloc.stop()
    # Beside the features, of 4 bytes: a hash of 8, a class, a place of 4, and what a chunk takes. It was 128.
    assert peak < 45
    assert task.train.positions.dtype == np.int32
    assert task.train.take(torch.tensor([3, 5]))[1].dtype == torch.int64


def test_numbers_far_beyond_those_of_training_are_said_and_slightly_larger_ones_are_not():
    table = frame(300)
    task = load(table, target="y")
    assert not any("far beyond" in note for note in task.notes)
    (number,) = (column for column in task.preprocessing.columns if column.name == "x")
    new = table.drop(columns="y").iloc[:20].copy()
    new.loc[3, "x"] = number.limits[1] + 0.1
    assert not read(new, task.preprocessing).notes
    new.loc[5:9, "x"], new.loc[11, "x"] = 1e6, -1e9
    (said,) = read(new, task.preprocessing).notes
    assert said.startswith(
        "unlike the training data: 1 column with numbers far beyond those of training (column 'x': 6 "
    )
    assert "row 6 (1000000.0)" in said
    new.loc[5:9, "x"] = 0.0
    (said,) = read(new, task.preprocessing).notes
    assert "1 value lies far beyond" in said
    assert "and counts as the nearer: row 12" in said


# Target leakage


def test_a_column_that_gives_the_answer_away_is_named_and_can_be_left_out():
    table = frame()
    table["grade"] = table["y"].map({"up": "u", "down": "d"}) + (np.arange(200) % 4).astype(str)
    (said,) = load(table, target="y").warnings
    assert said.startswith("target leakage: the column 'grade' alone tells the classes apart (AUROC 1.0000)")
    task = load(table, TableOptions(drop="grade"), target="y")
    assert not task.warnings
    assert "left out: 'grade' (drop)" in task.notes
    with pytest.raises(ValueError, match="grad"):
        load(table, TableOptions(drop=["grad"]), target="y")


def test_a_column_that_is_missing_in_one_class_leaks_the_target():
    """As the date of an offence that only those have who offended again."""
    rng = np.random.default_rng(0)
    y, x = rng.integers(0, 2, 1_000), rng.normal(size=1_000)
    seldom = rng.random(1_000) < 0.005
    days = pd.Series(pd.date_range("2013-01-01", periods=1_000)).sample(frac=1, random_state=0).dt.strftime("%Y-%m-%d")
    table = pd.DataFrame({"x": x, "late": np.where(y == 1, x**2, np.nan), "again": days.to_numpy(), "y": y})
    table.loc[(y == 1) == seldom, "again"] = None
    late, again = load(table, target="y").warnings
    assert late.startswith("target leakage: the column 'late' alone tells the classes apart (AUROC 1.0000)")
    assert again.startswith("target leakage: the column 'again' alone almost tells the classes apart (AUROC 0.99")
    few = load(table.iloc[:300], target="y").warnings  # where the petals of iris would be named
    assert [str(one)[:36] for one in few] == ["target leakage: the column 'late' al"]


def test_names_of_rows_give_nothing_away_by_chance():
    labels = np.random.default_rng(0).integers(0, 2, 2000)
    assert group_auroc(np.arange(2000), labels) == pytest.approx(0.5)
    assert group_auroc(np.arange(2000) % 50, labels) < 0.6


def test_row_names_of_a_shuffled_table_are_identifiers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"rownames": rng.permutation(90), "x": rng.integers(5, size=90), "y": np.arange(90) % 2})
    assert "left out: 'rownames' (identifiers" in " ".join(load(frame, target="y").notes)


def test_an_identifier_that_repeats_is_pointed_out():
    table = frame().assign(customerId=np.arange(200) // 3)
    assert any(
        note.startswith("'customerId' may be an identifier that several rows share")
        for note in load(table, target="y").notes
    )


def test_an_identifier_that_many_rows_lack_tells_by_being_there():
    table = frame(2000)
    table["case"] = [f"C{k}" if up else None for k, up in enumerate(table["y"] == "up")]
    task = load(table, target="y")
    assert "column 'case': none of its" in " ".join(task.notes)
    assert "the column 'case' alone tells the classes apart" in " ".join(task.warnings)
    assert not task.preprocessing.encode(from_frame(table.assign(case="C5000"))).notes
    table["case"] = [f"C{k}" for k in range(2000)]
    assert "left out: 'case' (identifiers" in " ".join(load(table, target="y").notes)


def test_texts_that_repeat_are_texts():
    """More sentences than categories are told apart: those of a form, or of a chat."""
    said = [f"please tell me about the number {k % 150}" for k in range(900)]
    repeated = pd.DataFrame({"said": said, "y": np.arange(900) % 3})
    assert load(repeated, TextOptions(tokenizer=None), target="y").kind == "text"
    beside = load(repeated.assign(x=np.arange(900) % 7), target="y")
    assert "the words of 'said' count beside the other columns" in " ".join(beside.notes)
    few = pd.DataFrame({"said": said, "y": np.arange(900) % 3}).assign(said=[text[:-2] for text in said])
    assert load(few.assign(x=np.arange(900) % 7), target="y").kind == "tabular"


def test_a_table_is_read_as_its_model_was_fitted():
    """Whatever a column would be taken for today."""
    table = frame().assign(note=[f"number {k % 12} of all that was ever said" for k in range(200)])
    fitted = load(table, target="y").preprocessing
    more = table.assign(note=[f"number {k} of all that was ever said" for k in range(200)])
    assert load(more, target="y", fitted=fitted).preprocessing == fitted


# Numbers as people write them


def test_prices_and_shares_are_numbers(tmp_path):
    """A price of `$1,250.00` is no category, and as a target no class."""
    table = frame().assign(
        price=lambda f: [f"${1000 + 50 * x:,.2f}" for x in f["x"]], rate=lambda f: [f"{x:.1f}%" for x in f["x"]]
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    task = load(tmp_path / "a.csv", target="y")
    assert "kind: tabular, 3 numeric and 1 categorical columns" in task.notes
    (note,) = [note for note in task.notes if "'price'" in note]
    assert note.startswith("column 'price' is read as numbers, written like '$")
    columns = {column.name: column for column in task.preprocessing.columns}
    assert columns["price"].mean == pytest.approx(1000 + 50 * columns["x"].mean, abs=0.01)
    assert columns["rate"].mean == pytest.approx(columns["x"].mean / 100, abs=1e-3)
    with pytest.raises(ValueError, match="'price' has 198 different numbers in 200 rows, so it cannot be a class"):
        load(tmp_path / "a.csv", target="price")
    (tmp_path / "b.csv").write_text("x;y\n" + "".join(f"${k % 7},50;{'ab'[k % 2]}\n" for k in range(60)))
    task = load(tmp_path / "b.csv", target="y")
    assert [column.mean for column in task.preprocessing.columns] == pytest.approx([3.5], abs=0.3)


# Files that were put together


def test_the_line_of_names_again_is_no_row(tmp_path):
    """`cat a.csv b.csv` has it in the middle; a class that is called like its column stays one."""
    lines = frame().to_csv(index=False).splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join([*lines[:90], lines[0], *lines[90:]]))
    task = load(tmp_path / "a.csv", target="y")
    assert task.classes == ("down", "up")
    assert "skipped: 1 of 201 rows have no 'y': row 90" in task.notes
    assert 89 not in {i for part in task.splits.values() for i in part}
    table = frame().assign(up=lambda f: f["y"]).drop(columns="y")
    table.loc[:150, "up"] = "other"
    assert load(table, target="up").classes == ("down", "other", "up")


def test_classes_that_differ_in_capitals_are_pointed_out():
    table = frame()
    table.loc[::3, "y"] = table.loc[::3, "y"].str.capitalize()
    task = load(table, target="y")
    assert len(task.classes) == 4
    note = "classes 'Up' and 'up' differ in capitals or spaces only: if they are one, write them alike"
    assert note in task.notes
    assert not any("capitals" in note for note in load(frame(), target="y").notes)


def test_a_column_of_lists_can_be_left_out(tmp_path):
    table = frame(60).assign(tags=[["new", "sale"][: k % 3] for k in range(60)])
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    with pytest.raises(ValueError, match=r"'tags' of .*a.jsonl' holds lists.*drop='tags'"):
        load(tmp_path / "a.jsonl", target="y")
    task = load(tmp_path / "a.jsonl", TableOptions(drop="tags"), target="y")
    assert [column.name for column in task.preprocessing.columns] == ["x", "colour"]


def test_a_column_that_new_data_lack_is_missing_in_every_row():
    task = load(frame(), target="y")
    lacking = task.preprocessing.encode(from_frame(frame().drop(columns="colour")))
    assert lacking.notes == ["unlike the training data: 1 missing column (missing in every row: 'colour')"]
    known = task.preprocessing.encode(from_frame(frame().assign(colour=None)))
    assert torch.equal(lacking.features, known.features)
    assert torch.isfinite(known.features).all()


def test_a_column_that_new_data_lack_is_not_taken_for_one_the_model_knows():
    rng = np.random.default_rng(0)
    table = frame().assign(income=rng.normal(size=len(frame())), notes=rng.choice(list("abc"), len(frame())))
    names = load(table, target="y").preprocessing
    lacking = names.encode(from_frame(table.drop(columns="income")))  # 'notes' is there, and is 'notes'
    assert lacking.notes == ["unlike the training data: 1 missing column (missing in every row: 'income')"]
    with pytest.raises(ValueError, match=r"lack the column 'income' .*; did you mean 'INCOMES'\? If it is not known"):
        names.encode(from_frame(table.rename(columns={"income": "INCOMES"})))
