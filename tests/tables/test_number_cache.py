"""A table of text that is parsed once: what is learned from it is the same as if it were parsed each time."""

from __future__ import annotations

import errno
import random

import pytest

from vicinal import data
from vicinal.tables import delimited, number_cache, open_table


@pytest.fixture
def small_blocks(monkeypatch):
    """Many chunks of a small file, kept however small it is."""
    monkeypatch.setattr(delimited, "text_block", lambda: 2**12)
    monkeypatch.setattr(number_cache, "_SMALL", 0)


def write(path, *, separator=",", rows=600, code="{:02d}", odd="many"):
    """Numbers, codes that look like numbers until late, missing ones, odd ones, bad rows."""
    draw = random.Random(0)
    lines = [separator.join(["x", "y", "z", "w", "code", "colour", "label"])]
    for i in range(rows):
        x, y = f"{draw.gauss(0, 1):.17g}", draw.choice(["1e3", " 7 ", "-0", "NA", "", "?"])
        z = odd if i > rows - 20 and i % 5 == 0 else f"{draw.random():.3f}"
        kind = code.format(i % 7) if i < rows - 100 else draw.choice("ABC")
        cells = [x, y, z, str(i * 3 % 11), kind, draw.choice(["red", "blue", ""]), draw.choice(["yes", "no"])]
        if separator == ";":
            cells[0] = cells[0].replace(".", ",")
        lines.append(separator.join([*cells, "more"] if i in (50, 51, 400) else cells))
    path.write_text("\n".join(lines) + "\n")
    return path


def loaded(path, monkeypatch, *, kept):
    if not kept:
        monkeypatch.setattr(number_cache, "_SMALL", 2**60)
    task = data.load(path, target="label")
    return task.preprocessing.to_dict(), task.train.features(), task.test.features(), task.notes, task.splits


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize(("code", "odd"), [("{:02d}", "many"), ("c{}", "1e39"), ("c{}", "0.5")])
def test_the_same_is_learned(tmp_path, monkeypatch, small_blocks, separator, code, odd):
    path = write(tmp_path / "t.csv", separator=separator, code=code, odd=odd)
    again = []
    monkeypatch.setattr(
        number_cache.CachedTable,
        "chunks",
        lambda *a, _of=number_cache.CachedTable.chunks, **k: again.append(1) or _of(*a, **k),
    )
    once = loaded(path, monkeypatch, kept=True)
    # "01" is a class written as a number, which the copy does not have: then the file is parsed again
    assert bool(again) is not code.startswith("{")
    each_time = loaded(path, monkeypatch, kept=False)
    for a, b in zip(once, each_time, strict=True):
        assert (a == b) if not hasattr(a, "shape") else (a == b).all()


def test_rows_keep_their_numbers(tmp_path, small_blocks):
    table = open_table(write(tmp_path / "t.csv"))
    parsing, bad = number_cache.NumberCache(table), []
    for chunk in table.chunks(["x", "colour"], bad=bad):
        parsing.add(chunk, {"x": chunk["x"].cast("float64").to_numpy(), "colour": None})
    copy = parsing.table(["x", "colour"], {"x": "number", "colour": "category"}, bad)
    assert isinstance(copy, number_cache.CachedTable)
    skipped = []
    rows = [int(row) for chunk in copy.chunks(["colour", "x"], 37, bad=skipped) for row in chunk.rows]
    assert skipped == bad
    assert [row.row for row in bad] == [51, 52, 401]
    assert rows == [row for row in range(1, 601) if row not in (51, 52, 401)]
    cells = [cell for chunk in copy.chunks(["colour"]) for cell in chunk["colour"].to_pylist()]
    assert cells == [cell for chunk in table.chunks(["colour"], bad=[]) for cell in chunk["colour"].to_pylist()]


def test_a_full_disk_is_no_error(tmp_path, monkeypatch, small_blocks):
    class Full:
        def tell(self):
            return 0

        def flush(self):
            pass

        def close(self):
            pass

        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(number_cache.tempfile, "TemporaryFile", lambda **options: Full())
    path = write(tmp_path / "t.csv", code="c{}")
    features = data.load(path, target="label").train.features()
    monkeypatch.undo()
    assert (features == data.load(path, target="label").train.features()).all()


def test_text_is_not_copied(tmp_path, small_blocks):
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n" + "".join(f"word{i % 9},other {i % 5},{i % 2}\n" for i in range(50)))
    table = open_table(path)
    parsing = number_cache.NumberCache(table)
    for chunk in table.chunks(["a", "b"]):
        parsing.add(chunk, {"a": None, "b": None})
    assert parsing.table(["a", "b"], {"a": "category", "b": "category"}, []) is table


def test_a_small_table_of_many_columns_is_kept(tmp_path, monkeypatch):
    """Each column takes time of its own: 100,000 of them must not be parsed three times."""
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(f"x{k}" for k in range(50)), *[",".join(map(str, range(50)))] * 4]) + "\n")
    assert number_cache.NumberCache(open_table(path))._scratch is None
    monkeypatch.setattr(number_cache, "_WIDE", 50)
    assert number_cache.NumberCache(open_table(path))._scratch is not None
