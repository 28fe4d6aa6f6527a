"""Values as people write them: dates, numbers, labels and missing markers, decided by all rows."""

from __future__ import annotations

import datetime
import unicodedata
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vicinal.data import ReadOptions, SplitOptions, load, read, stream
from vicinal.data.tabular import Date, Number
from vicinal.tables.number_format import NumberFormat, read_numbers

DAYS = pd.date_range("2019-01-01", periods=400)


def written(path: Path, columns: dict[str, object], sep: str = ",") -> Path:
    pd.DataFrame(columns).to_csv(path, index=False, sep=sep)
    return path


def column(task, name: str):
    return next(one for one in task.preprocessing.columns if one.name == name)


def label(n: int = 400) -> list[str]:
    return ["up" if k % 3 else "down" for k in range(n)]


# Dates


@pytest.fixture(scope="module")
def day_first(tmp_path_factory):
    path = tmp_path_factory.mktemp("dates") / "d.csv"
    return load(written(path, {"when": DAYS.strftime("%d/%m/%Y"), "x": np.arange(400) % 7, "label": label()}))


@pytest.mark.parametrize("form", ["iso", "parquet", "excel", "own", "compact"])
def test_a_date_has_one_meaning_in_every_form(day_first, tmp_path, form):
    base = pd.DataFrame({"when": DAYS, "x": np.arange(400) % 7})
    if form == "parquet":
        path = tmp_path / "new.parquet"
        base.to_parquet(path)
    elif form == "excel":
        path = tmp_path / "new.xlsx"
        base.to_excel(path, index=False)
    else:
        how = {"iso": "%Y-%m-%d", "own": "%d/%m/%Y", "compact": "%Y%m%d"}[form]
        path = written(tmp_path / "new.csv", {**base, "when": DAYS.strftime(how)})
    new = read(path, day_first.preprocessing)
    wanted = [day_first.train._items[i] for i in range(400)]
    assert all(new[i][0].equal(wanted[i]) for i in range(400))


def test_the_order_of_the_run_holds_and_what_contradicts_it_is_a_bad_row(day_first, tmp_path):
    few = DAYS[:12].strftime("%d/%m/%Y")  # 1 to 12 January: either way in this file
    new = read(written(tmp_path / "few.csv", {"when": few, "x": 1}), day_first.preprocessing)
    days = [float(new[i][0][0]) for i in range(12)]  # the column comes first, and its day
    assert (np.diff(days) >= 0).all()
    assert np.ptp(days) < 0.2
    mixed = [*DAYS[:99].strftime("%d/%m/%Y"), "01/31/2019"]
    path = written(tmp_path / "mixed.csv", {"when": mixed, "x": 1})
    kept = read(path, day_first.preprocessing)
    assert len(kept) == 99
    assert any("row 100" in note and "01/31/2019" in note for note in kept.notes)
    with pytest.raises(ValueError, match="1 of 100 rows could not be read"):
        read(path, day_first.preprocessing, options=ReadOptions(max_bad=0))
    blocks = stream(path, day_first.preprocessing, batch_size=16, options=ReadOptions(max_bad=0))
    with pytest.raises(ValueError, match="1 of 100 rows could not be read"):
        list(blocks)


def test_the_order_is_decided_on_all_rows(tmp_path, monkeypatch):
    """The first chunk has no day above 12."""
    monkeypatch.setattr("vicinal.tables.base.ROWS", 64)
    days = [datetime.date(2020, 1 + k % 12, 1 + k // 12 % 12) for k in range(700)] + [datetime.date(2020, 5, 31)] * 3
    frame = {"when": [day.strftime("%d/%m/%Y") for day in days], "x": np.arange(703) % 5, "label": label(703)}
    task = load(written(tmp_path / "d.csv", frame), SplitOptions(time="when"))
    at = np.array([day.toordinal() for day in days])
    assert at[task.splits["train"]].max() <= at[task.splits["val"]].min()
    assert at[task.splits["val"]].max() <= at[task.splits["test"]].min()


def test_an_order_that_nothing_tells_is_said_and_an_option_fixes_it(tmp_path):
    days = [datetime.date(2020, 1 + k % 12, 1 + k % 11) for k in range(120)]
    frame = {"when": [day.strftime("%d/%m/%Y") for day in days], "x": np.arange(120) % 5, "label": label(120)}
    path = written(tmp_path / "d.csv", frame)
    task = load(path)
    assert any("'02/02/2020'" in n or "begins with the day or the month" in n for n in task.notes)
    assert column(task, "when").day_first is False  # as it was read, which new data must agree with
    with pytest.raises(ValueError, match="no date in the order of the others: '31/07/2020'"):
        read(written(tmp_path / "n.csv", {"when": ["31/07/2020"] * 9, "x": 1}), task.preprocessing)
    fixed = load(path, ReadOptions(day_first=True))
    assert column(fixed, "when").day_first is True
    assert not any("begins with the day or the month" in note for note in fixed.notes)
    months = {datetime.date(2020, 1 + k % 12, 1 + k % 11).month for k in range(120)}
    assert len(months) == 12


def test_a_time_without_a_date(tmp_path, day_first):
    frame = {"when": ["09:30", "10:45", "23:10", "12:00"] * 30, "x": np.arange(120) % 5, "label": label(120)}
    path = written(tmp_path / "t.csv", frame)
    task = load(path)
    assert [part.name for part in column(task, "when").parts] == ["hour"]
    with pytest.raises(ValueError, match="times of day without a date"):
        load(path, SplitOptions(time="when"))
    some = [*DAYS[:99].strftime("%d/%m/%Y"), "09:30"]
    new = read(written(tmp_path / "n.csv", {"when": some, "x": 1}), day_first.preprocessing)
    assert len(new) == 99
    assert any("'09:30'" in note for note in new.notes)


@pytest.mark.parametrize("typed", [False, True])
def test_eight_digits_are_a_date_and_said(tmp_path, typed):
    frame = pd.DataFrame({"when": DAYS.strftime("%Y%m%d").astype(int), "x": np.arange(400) % 7, "label": label()})
    path = tmp_path / ("d.parquet" if typed else "d.csv")
    frame.to_parquet(path) if typed else frame.to_csv(path, index=False)
    task = load(path)
    assert isinstance(column(task, "when"), Date)
    assert any("20200131" in note for note in task.notes)


@pytest.mark.parametrize(
    "form",
    ["%a, %d %b %Y 00:00:00 GMT", "%A %d %B %Y", "%d.%m.%Y, %H:%M", "%Y-%m-%dT%H:%M:%S+00", "%b %d %Y", "milliseconds"],
)
def test_dates_of_mails_logs_and_json(tmp_path, form):
    days = DAYS.strftime(form) if form != "milliseconds" else DAYS.as_unit("ms").astype("int64")
    x = np.arange(400) % 7
    iso = load(written(tmp_path / "iso.csv", {"when": DAYS.strftime("%Y-%m-%d"), "x": x, "label": label()}))
    task = load(written(tmp_path / "d.csv", {"when": days, "x": x, "label": label()}))
    assert task.train._items.equal(iso.train._items)
    assert read(tmp_path / "d.csv", iso.preprocessing)._items.equal(iso.train._items)


def test_periods_of_pandas_are_dates():
    frame = pd.DataFrame({"when": DAYS, "x": np.arange(400) % 7, "label": label()})
    periods = frame.assign(when=frame["when"].dt.to_period("D"))
    assert load(periods).train._items.equal(load(frame).train._items)


def test_numbers_that_are_no_dates_stay_numbers(tmp_path):
    frame = {"code": 20190000 + np.arange(400) * 37 % 4000, "label": label()}
    assert isinstance(column(load(written(tmp_path / "d.csv", frame)), "code"), Number)


# Numbers


def test_thousands_beside_decimal_commas(tmp_path):
    revenue = [98765, 7921, 12345, 1234, 4321] * 20
    text = [f"{value:,}".replace(",", ".") for value in revenue]
    share = [f"{0.5 + k / 200:.2f}".replace(".", ",") for k in range(100)]
    path = written(tmp_path / "g.csv", {"revenue": text, "share": share, "label": label(100)}, sep=";")
    task = load(path)
    assert column(task, "revenue").seen == (1234, 98765)
    assert column(task, "share").seen == pytest.approx((0.5, 0.99))
    assert any("'revenue'" in note for note in task.notes)
    again = type(task.preprocessing).from_dict(task.preprocessing.to_dict())
    assert again == task.preprocessing
    new = read(written(tmp_path / "n.csv", {"revenue": ["98.765"], "share": ["1"]}, sep=";"), again)
    typed = read(pd.DataFrame({"revenue": [98765], "share": [1.0]}), again)
    assert new[0][0].equal(typed[0][0])


def test_a_quoted_decimal_comma(tmp_path):
    cells = [f"0,{913 - k}" for k in range(100)]
    path = written(tmp_path / "q.csv", {"share": cells, "label": label(100)})
    task = load(path)
    assert column(task, "share").seen == pytest.approx((0.814, 0.913))
    assert any("decimal commas" in note for note in task.notes)


def test_what_no_cell_tells_is_said_and_an_option_fixes_it(tmp_path):
    path = written(tmp_path / "q.csv", {"amount": [f"{k},{100 + k}" for k in range(1, 101)], "label": label(100)})
    task = load(path)
    assert column(task, "amount").seen == (1101, 100200)
    assert any("no cell tells" in note and "decimal=','" in note for note in task.notes)
    fixed = load(path, ReadOptions(decimal=","))
    assert column(fixed, "amount").seen == (1.101, 100.2)
    assert not any("no cell tells" in note for note in fixed.notes)


@pytest.mark.parametrize("mark", [",", "."])
@pytest.mark.parametrize("end", ["", " sq. ft."])
def test_whole_numbers_below_1000_tell_what_marks_are(tmp_path, mark, end):
    """Numbers with three decimals are hardly whole, and many of them do not all end in three digits."""
    values = [k * k for k in range(1, 101)]
    cells = [f"{value:,}".replace(",", mark) + end for value in values]
    task = load(written(tmp_path / "t.csv", {"v": cells, "label": label(100)}))
    assert column(task, "v").seen == (1, 10_000)
    assert any("below 1000 have no mark" in note and "decimal=" in note for note in task.notes)
    years = [*cells[50:], *["1987" + end] * 50]  # which speak against thousands
    task = load(written(tmp_path / "y.csv", {"v": years, "label": label(100)}))
    assert any("no cell tells" in note for note in task.notes)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["US$1,200.50", "R$ 12", "Rs. 3"], [1200.5, 12, 3]),
        (["5 EUR", "5 €", "€5"], [5, 5, 5]),
        (["–5.5", "‐2", "-1"], [-5.5, -2, -1]),
        (["3 sq. ft.", "4 sq. ft.", "5 sq ft"], [3, 4, np.nan]),
        (["2 lakh", "3 crore", "1.5K"], [2e5, 3e7, 1500]),
        (["1,234e3", "1,5e0", "2"], [np.nan, np.nan, 2]),
    ],
)
def test_signs_of_money_dashes_and_multiples(cells, values):
    unit = "sq. ft" if "sq" in cells[0] else ""
    np.testing.assert_allclose(read_numbers(pa.array(cells), NumberFormat(unit=unit)).values, values)


def test_a_number_before_an_exponent_has_decimals(tmp_path):
    cells = [f"{k + 1},234e2" for k in range(100)]
    task = load(written(tmp_path / "e.csv", {"v": cells, "label": label(100)}))
    assert column(task, "v").seen == pytest.approx((123.4, 10_023.4))


def test_the_last_rows_decide_too(tmp_path, monkeypatch):
    monkeypatch.setattr("vicinal.tables.base.ROWS", 64)
    cells = [f"{k % 900 + 1}.{100 + k % 800}" for k in range(500)] + ["1.234,5"]
    task = load(written(tmp_path / "g.csv", {"v": cells, "label": label(501)}, sep=";"))
    assert column(task, "v").format == NumberFormat(decimal=",")
    assert column(task, "v").seen[1] > 400_000


@pytest.mark.parametrize("share", [0.02, 0.09, 0.11, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("words", [("TBD",), ("unknown", "TBD"), ("wird nachgereicht",)])
def test_text_in_a_numeric_column_is_missing_whatever_its_share(tmp_path, share, words):
    random = np.random.default_rng(3)
    x = random.normal(size=600).round(3).astype(object)
    gone = random.random(600) < share
    x[gone] = random.choice(words, gone.sum())
    task = load(written(tmp_path / "t.csv", {"x": x, "z": np.arange(600) % 11, "label": label(600)}))
    found = column(task, "x")
    assert isinstance(found, Number)
    assert found.missing


@pytest.mark.parametrize("share", [0.08, 0.12, 0.4])
def test_comments_in_a_column_of_whole_numbers_are_missing_whatever_their_share(tmp_path, share):
    random = np.random.default_rng(0)
    x = random.permutation(2000)[:600].astype(object)
    gone = np.flatnonzero(random.random(600) < share)
    x[gone] = [f"see note {k}" for k in gone]
    task = load(written(tmp_path / "t.csv", {"x": x, "z": np.arange(600) % 11, "label": label(600)}))
    assert isinstance(column(task, "x"), Number)
    codes = [f"A/{k} {k * 37 % 977}" if k % 3 == 0 else str(k * 7919 % 100_003) for k in range(600)]
    task = load(written(tmp_path / "i.csv", {"ticket": codes, "z": np.arange(600) % 11, "label": label(600)}))
    assert any("left out: 'ticket' (identifiers" in note for note in task.notes)


def test_few_codes_of_letters_and_digits_are_categories(tmp_path):
    codes = np.random.default_rng(0).choice(["1", "2", "3", "A", "B"], 200)
    task = load(written(tmp_path / "c.csv", {"code": codes, "label": label(200)}))
    assert column(task, "code").kind == "category"


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["52.3 kg", "61 kg", "48,5 kg"], [52.3, 61, np.nan]),
        (["(1,200)", "1,300", "(12.5)"], [-1200, 1300, -12.5]),
        (["5.2M", "300K", "1.1B"], [5.2e6, 3e5, 1.1e9]),
    ],
)
def test_units_brackets_and_multiples(tmp_path, cells, values):
    unit = "kg" if "kg" in cells[0] else ""
    np.testing.assert_allclose(read_numbers(pa.array(cells), NumberFormat(unit=unit)).values, values)
    many = [cells[k % 2] for k in range(100)]
    task = load(written(tmp_path / "u.csv", {"v": many, "label": label(100)}))
    assert column(task, "v").seen == (min(values[:2]), max(values[:2]))
    assert column(task, "v").format.unit == unit
    assert any(f"{cells[0]!r}" in note or f"{cells[1]!r}" in note for note in task.notes)
    if unit:
        with pytest.raises(ValueError, match="'50 lb' in column 'v'"):
            read(written(tmp_path / "n.csv", {"v": ["50 lb"] * 3}), task.preprocessing)


def test_a_sentinel_is_named_and_an_option_makes_it_missing(tmp_path):
    x = np.arange(400) % 90
    x[::20] = -999
    path = written(tmp_path / "s.csv", {"x": x, "label": label()})
    task = load(path)
    assert any("-999" in note and "missing_values" in note for note in task.notes)
    fixed = load(path, ReadOptions(missing_values=["-999"]))
    assert column(fixed, "x").seen == (0, 89)
    assert column(fixed, "x").missing
    new = read(pd.DataFrame({"x": [-999, 5]}), fixed.preprocessing)
    assert new[0][0][-1] == 1
    assert new[1][0][-1] == 0


def test_cyrillic_is_not_taken_for_western(tmp_path):
    rows = "\n".join(f"{'мж'[k % 2]},{k % 7},{'да' if k % 3 else 'нет'}" for k in range(100))
    path = tmp_path / "r.csv"
    path.write_bytes(f"пол,x,label\n{rows}\n".encode("cp1251"))
    with pytest.raises(ValueError, match="cp1251"):
        load(path)
    single = "\n".join(f"{'МЖ'[k % 2]},{k % 7},{k % 3}" for k in range(100))
    path.write_bytes(f"sex,x,label\n{single}\n".encode("cp1251"))
    with pytest.raises(ValueError, match="cp1251"):
        load(path)
    assert load(path, ReadOptions(encoding="cp1251")).preprocessing.columns[0].values == ("Ж", "М")


# Labels


def test_one_name_for_a_class_however_it_is_written(tmp_path):
    shards = tmp_path / "shards"
    shards.mkdir()
    written(shards / "a.csv", {"x": np.arange(60), "label": [str(k % 2) for k in range(60)]})
    written(shards / "b.csv", {"x": np.arange(60), "label": [f"{k % 2}.0" for k in range(60)]})
    task = load(shards)
    assert task.classes == ("0", "1")
    assert any("'0' and '0.0' are one class" in note for note in task.notes)
    names = [unicodedata.normalize("NFD" if k % 4 else "NFC", "café" if k % 2 else "thé") for k in range(80)]
    task = load(written(tmp_path / "n.csv", {"x": np.arange(80) % 7, "label": names}))
    assert task.classes == ("café", "thé")
    assert sum("are one class" in note for note in task.notes) >= 1
    table = pa.table({"x": np.arange(80.0) % 7, "label": pa.array([b"high", b"low"] * 40, pa.binary())})
    pq.write_table(table, tmp_path / "b.parquet")
    assert load(tmp_path / "b.parquet").classes == ("high", "low")


def test_true_and_false_are_one_class_whoever_writes_them(tmp_path):
    names = ["TRUE", "true", "True", "FALSE", "false", "False"] * 20
    task = load(written(tmp_path / "b.csv", {"x": np.arange(120) % 7, "label": names}))
    assert task.classes == ("False", "True")
    assert any("are one class, 'True'" in note for note in task.notes)
    typed = pa.table({"x": np.arange(120) % 7, "label": [name.lower() == "true" for name in names]})
    assert load(typed).train.labels == task.train.labels
    exact = pa.table({"x": np.arange(80) % 7, "label": pa.array([Decimal("2.50"), Decimal("1.0")] * 40)})
    assert load(exact).classes == ("1", "2.5")


def test_large_integers_of_json_lines_stay_exact(tmp_path):
    big = 2**53
    lines = [f'{{"x": {k % 7}, "label": {big + k % 2}}}' for k in range(80)] + ['{"x": 0.5, "label": 1.5}'] * 2
    path = tmp_path / "j.jsonl"
    path.write_text("\n".join(lines))
    assert set(load(path).classes) == {str(big), str(big + 1), "1.5"}


# What is unlike the training data


def test_the_training_file_is_not_unlike_the_training_data(tmp_path):
    random = np.random.default_rng(1)
    x = random.normal(size=500)
    x[:5] = [400, -300, 250, 800, -900]  # beyond ten standard deviations
    path = written(tmp_path / "t.csv", {"x": x, "label": label(500)})
    task = load(path)
    assert not any("unlike" in note for note in read(path, task.preprocessing).notes)
    far = read(pd.DataFrame({"x": [1e5]}), task.preprocessing)
    assert any("far beyond -900 to 800" in note for note in far.notes)


# Hints


def test_a_copy_of_the_target_with_a_few_changes_is_named(tmp_path):
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 900)
    copy = np.where(random.random(900) < 0.03, random.integers(0, 3, 900), y)
    strong = y + random.normal(size=900) * 1.5
    frame = {"copy": [f"state {k}" for k in copy], "number": copy, "x": strong, "label": [f"c{k}" for k in y]}
    task = load(written(tmp_path / "c.csv", frame))
    assert [any(f"{name!r}" in text for text in task.warnings) for name in frame] == [True, True, False, False]


def test_dates_hint_at_time_and_repeated_entities_at_groups(tmp_path):
    random = np.random.default_rng(0)
    people = [f"person {k:03}" for k in random.integers(0, 80, 400)]
    frame = {"when": DAYS, "who": people, "colour": random.choice(list("abc"), 400), "label": label()}
    task = load(written(tmp_path / "h.csv", frame))
    notes = " ".join(task.notes)
    assert "time='when'" in notes
    assert "group='who'" in notes
    assert "group='colour'" not in notes
    assert "time=" not in " ".join(load(tmp_path / "h.csv", SplitOptions(group="who")).notes)


# Labels of unusual types


def labelled(path: Path, labels: object) -> Path:
    pq.write_table(pa.table({"x": np.arange(40.0) % 7, "y": labels}), path)
    return path


def test_labels_of_extension_types_are_what_they_say(tmp_path: Path) -> None:
    half = np.arange(40) % 2
    ids = [uuid.UUID(int=int(i) + 1) for i in half]
    made = {
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array(half.astype(np.int8))),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([i.bytes for i in ids], pa.binary(16))),
        "bytes": pa.array([bytes([254 + i]) for i in half.tolist()]),
    }
    wanted = {"bool8": ("False", "True"), "uuid": tuple(sorted({str(i) for i in ids})), "bytes": ("\\xfe", "\\xff")}
    for name, labels in made.items():
        assert load(labelled(tmp_path / f"{name}.parquet", labels), target="y").classes == wanted[name]


def test_labels_that_are_maps_are_one_sentence(tmp_path: Path) -> None:
    maps = pa.array([[("a", int(i) % 2)] for i in range(40)], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(ValueError, match=r"a label or category must be one value, got a column of type map<string"):
        load(labelled(tmp_path / "map.parquet", maps), target="y")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_label_of_5000_digits_is_a_name_that_notes_cut(tmp_path: Path, suffix: str) -> None:
    names = ["1" * 4999 + str(i % 2) for i in range(40)]
    lines = [f'{{"x": {i % 7}, "y": {name}}}' for i, name in enumerate(names)]
    text = "\n".join(lines if suffix == "jsonl" else ["x,y", *(f"{i % 7},{name}" for i, name in enumerate(names))])
    (tmp_path / f"t.{suffix}").write_text(text + "\n")
    task = load(tmp_path / f"t.{suffix}", target="y")
    assert task.classes == tuple(names[:2])
    assert max(map(len, task.notes)) < 500
