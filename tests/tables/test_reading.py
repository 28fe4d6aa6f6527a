"""One reader: every form of a table gives the same rows, with their numbers in the file."""

from __future__ import annotations

import gzip
import json
import os
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.tables import from_frame, from_rows, json_lines, open_table, read_arrays
from vicinal.tables.delimited import find_separator


def write(path: Path, content: str | bytes, encoding: str = "utf-8") -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


def rows(table, **options) -> tuple[list[dict], list[int], list[str]]:
    """All rows, their numbers, and the bad ones."""
    bad, every, numbers = [], [], []
    for chunk in table.chunks(bad=bad, **options):
        columns = {name: values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
                   for name, values in chunk.columns.items()}  # fmt: skip
        every += [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        numbers += chunk.rows.tolist()
    return every, numbers, [str(row) for row in bad]


class TestDelimited:
    def test_twenty_thousand_columns_of_one_name_are_numbered_at_once(self, tmp_path):
        path = write(tmp_path / "a.csv", ",".join(["x"] * 20_000) + "\n" + ",".join(["1"] * 20_000) + "\n")
        began = time.process_time()
        table = open_table(path)
        assert list(table.columns)[:3] + list(table.columns)[-1:] == ["x", "x.1", "x.2", "x.19999"]
        assert time.process_time() - began < 5  # some 20 s where each looks through all before it

    def test_bad_rows_are_skipped_and_all_others_keep_their_numbers(self, tmp_path):
        path = write(tmp_path / "a.csv", "\n\r\na,b\n1,2\n3\n\n4,5,6\n7,8\n")
        table = open_table(path)
        every, numbers, bad = rows(table)
        assert every == [{"a": "1", "b": "2"}, {"a": "7", "b": "8"}]
        assert numbers == [1, 4]
        assert bad == ["row 2 (Expected 2 columns, got 1)", "row 3 (Expected 2 columns, got 3)"]
        with pytest.raises(ValueError, match="cannot be read as a table: row 2: Expected 2 columns, got 1"):
            list(table.chunks())

    @settings(deadline=None, max_examples=25)
    @given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.integers(1, 7))
    def test_numbers_of_rows_by_counting(self, tmp_path_factory, widths, size):
        path = tmp_path_factory.mktemp("t") / "t.csv"
        path.write_text("a,b\n" + "".join(",".join([str(k)] * width) + "\n" for k, width in enumerate(widths, 1)))
        every, numbers, bad = rows(open_table(path), rows=size)
        assert numbers == [k for k, width in enumerate(widths, 1) if width == 2]
        assert [row["a"] for row in every] == [str(k) for k in numbers]
        assert len(bad) == len(widths) - len(numbers)

    def test_names_of_columns(self, tmp_path):
        table = open_table(write(tmp_path / "a.csv", " x ,,x,x.1\n1,2,3,4\n"))
        assert list(table.columns) == ["x", "Unnamed: 1", "x.2", "x.1"]
        assert table.repeated == ("x",)
        assert list(open_table(tmp_path / "a.csv", header=False).columns) == ["1", "2", "3", "4"]
        assert len(rows(open_table(tmp_path / "a.csv", header=False))[0]) == 2

    @pytest.mark.parametrize(
        ("text", "separator"),
        [
            ("label,prob_a|b|c|d,prob_e\na,0.5,0.5\n", ","),
            ("a;b\n0,5;1,5\n", ";"),
            ("a\tb, c\td\n1\t2, 3\t4\n", "\t"),
            ("a|b\n1|2\n", "|"),
            ('"a;b","c"\n1,2\n', ","),
            ("one\n1\n", ","),
        ],
    )
    def test_the_separator_is_what_splits_all_rows_alike(self, text, separator):
        assert find_separator(text) == separator

    def test_quotation_marks(self, tmp_path):
        spaced = open_table(write(tmp_path / "a.csv", 'a, "b, c", d\n1, "2, 3", 4\n5,6,7\n'))
        assert rows(spaced)[0] == [{"a": "1", "b, c": "2, 3", "d": " 4"}, {"a": "5", "b, c": "6", "d": "7"}]
        lone = open_table(write(tmp_path / "b.tsv", 'a\tb\n1\t5" pipe\n2\t"x\n'))
        assert [row["b"] for row in rows(lone)[0]] == ['5" pipe', '"x']
        assert "odd number" in lone.notes[0]
        spread = open_table(write(tmp_path / "c.tsv", 'a\tb\tc\n1\t"two\nlines"\tx\n2\tone\ty\n'))
        assert [row["b"] for row in rows(spread)[0]] == ["two\nlines", "one"]
        assert not spread.notes
        closed = write(tmp_path / "c.csv", 'a,b\n1,"closed\n3,4\n"\n')
        assert rows(open_table(closed))[0] == [{"a": "1", "b": "closed\n3,4\n"}]
        with pytest.raises(ValueError, match=r"a quotation mark before 'not.*' is not closed"):
            rows(open_table(write(tmp_path / "d.csv", 'a,b\n1,"not\n3,4\n')))

    def test_spaces_before_quotes_across_blocks(self, tmp_path):
        n = 200_000  # several blocks of 4 MB
        path = write(tmp_path / "a.csv", "a, b\n" + "".join(f'{k},   "x, {k} {"y" * 20}"\n' for k in range(n)))
        every, numbers, bad = rows(open_table(path))
        assert not bad
        assert numbers[-1] == n
        assert all(row["b"] == f"x, {k} {'y' * 20}" for k, row in enumerate(every))

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_line_ends(self, tmp_path, end):
        assert rows(open_table(write(tmp_path / "a.csv", f"a,b{end}1,2{end}")))[0] == [{"a": "1", "b": "2"}]

    def test_an_encoding_that_is_none_of_text(self, tmp_path, monkeypatch):
        path = write(tmp_path / "a.csv", "a,b\n1,2\n")
        for name in ("base64", "klingon", "rot13"):
            with pytest.raises(ValueError, match=f"encoding='{name}' is not known"):
                open_table(path, encoding=name)
        monkeypatch.setattr("vicinal.tables.file_access._BLOCKS_LOOKED_AT", 1)
        late = write(tmp_path / "b.csv", b"a,b\n" + b"x,1\n" * 500_000 + "Zoë,2\n".encode("cp1252"))
        with pytest.raises(ValueError, match="not UTF-8: line 500,002 holds the byte 0xeb"):
            rows(open_table(late))

    @pytest.mark.parametrize(
        ("encoding", "known"),
        [("cp1252", "Windows-1252"), ("utf-16", "UTF-16"), ("cp1251", None), ("shift_jis", None), ("cp1253", None)],
    )
    def test_plain_encodings_are_found_and_said(self, tmp_path, encoding, known):
        words = {"cp1251": "привет", "shift_jis": "日本語", "cp1253": "καλημέρα"}.get(encoding, "“Zoë” – café")
        path = write(tmp_path / "a.csv", f"a,{words}\n{words},2\n", encoding)
        if known is None:
            with pytest.raises(ValueError, match="is not UTF-8"):
                rows(open_table(path))
        else:
            table = open_table(path)
            assert rows(table)[0] == [{"a": words, words: "2"}]
            assert table.notes[0].startswith(f"it is not UTF-8 and is read as {known}")
        assert rows(open_table(path, encoding=encoding))[0] == [{"a": words, words: "2"}]
        assert not open_table(path, encoding=encoding).notes

    def test_an_encoding_is_found_beyond_the_first_block_and_across_two(self, tmp_path):
        ascii_rows = b"a,b\n" + b"x,1\n" * (2**18 - 2)
        for end, n in ((b"Zo\xeb,2\n", 1), (b"xx,Zo\xeb\n", 1), ("x,Zoë\n".encode(), 0)):
            assert len(open_table(write(tmp_path / "a.csv", ascii_rows + end)).notes) == n

    def test_a_stray_zero_byte_is_no_other_encoding(self, tmp_path):
        path = write(tmp_path / "a.csv", b"a,b\n1,2\n3,4\0\n")
        with pytest.raises(ValueError, match=r"holds a zero byte in line 3, which no text does: remove it"):
            open_table(path)
        wide = write(tmp_path / "b.csv", "a,b\n1,2\n".encode("utf-16-le"))
        table = open_table(wide)
        assert list(table.columns) == ["a", "b"]
        assert "read as UTF-16-LE" in str(table.notes[0])


class TestJsonLines:
    def test_mixed_types_missing_names_and_bad_lines(self, tmp_path):
        text = '{"a":1,"d":"2020-01-01"}\n{"a":"x"}\n[1]\n\n{"b":[1]}\n{bad\n'
        table = open_table(write(tmp_path / "a.jsonl", text))
        every, numbers, bad = rows(table)
        assert list(table.columns) == ["a", "d", "b"]
        assert [row["a"] for row in every] == ["1", "x", None]
        assert every[0]["d"] == "2020-01-01"
        assert numbers == [1, 2, 4]
        assert bad[0] == "row 3 (no object)"
        assert bad[1].startswith("row 5 (")
        with pytest.raises(ValueError, match=r"cannot be read as a table: row 3 \(no object\)"):
            list(table.chunks())

    def test_text_that_looks_like_a_date_stays_text(self, tmp_path):
        table = open_table(write(tmp_path / "a.jsonl", '{"a":1,"d":"2020-01-01","e":2}\n{"a":2.5,"d":null,"e":3}\n'))
        assert rows(table)[0] == [{"a": 1.0, "d": "2020-01-01", "e": 2}, {"a": 2.5, "d": None, "e": 3}]

    def test_other_encodings(self, tmp_path):
        path = write(tmp_path / "a.jsonl", '{"a": "Zoë"}\n', "latin-1")
        with pytest.raises(ValueError, match=r"line 1 holds the byte 0xeb.*probably encoding='cp1252'"):
            open_table(path)
        assert rows(open_table(path, encoding="latin-1"))[0] == [{"a": "Zoë"}]


class TestShards:
    def test_a_folder_and_a_pattern_are_one_table(self, tmp_path):
        (tmp_path / "s").mkdir()
        write(tmp_path / "s" / "1.csv", "a,b\n1,2\n3\n5,6\n")
        (tmp_path / "s" / "2.csv.gz").write_bytes(gzip.compress(b"b,a\n9,8\n"))
        (tmp_path / "s" / "3.csv").symlink_to(tmp_path / "s" / "1.csv")  # each real file once
        write(tmp_path / "s" / "README.txt", "about")
        table = open_table(tmp_path / "s")
        every, numbers, bad = rows(table)
        assert [row["a"] for row in every] == ["1", "5", "8"]
        assert numbers == [1, 3, 4]
        assert bad == ["row 2 (1.csv: Expected 2 columns, got 1)"]
        assert "2 files are read as one table" in table.notes
        again = open_table(tmp_path / "s" / "[12].csv*")
        assert rows(again)[0] == every
        assert again.fingerprint() == table.fingerprint() != open_table(tmp_path / "s" / "1.csv").fingerprint()

    def test_each_real_file_counts_once_whatever_links_lead_to_it(self, tmp_path):
        write(tmp_path / "1.csv", "a,b\n1,2\n3,4\n")
        alone = open_table(tmp_path)
        (tmp_path / "2.csv").hardlink_to(tmp_path / "1.csv")
        (tmp_path / "3.csv").symlink_to("2.csv")
        for place in (tmp_path, tmp_path / "*.csv", tmp_path / "[23].csv"):
            table = open_table(place)
            assert [row["a"] for row in rows(table)[0]] == ["1", "3"]
            assert table.fingerprint() == alone.fingerprint()
            assert table.notes[-1].startswith("left out: ")
        assert open_table(tmp_path).notes[-1] == "left out: 2 links to files that are here already"
        (tmp_path / "4.csv").symlink_to("nowhere.csv")
        with pytest.raises(FileNotFoundError, match=r"4\.csv"):
            open_table(tmp_path)

    def test_what_does_not_belong_together(self, tmp_path):
        write(tmp_path / "1.csv", "a,b\n1,2\n")
        write(tmp_path / "2.csv", "a,c\n1,2\n")
        with pytest.raises(ValueError, match=r"2.csv' lacks the column 'b' of '1.csv'"):
            open_table(tmp_path)
        pq.write_table(pa.table({"a": [1]}), tmp_path / "3.parquet")
        with pytest.raises(ValueError, match=r"several forms \(.csv, .parquet\): pass a pattern"):
            open_table(tmp_path)
        with pytest.raises(FileNotFoundError, match="holds no table"):
            open_table(tmp_path / "*.tsv")


class TestHostileFiles:
    def test_what_is_no_regular_file(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.csv")
        (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
        (tmp_path / "zero.csv").symlink_to("/dev/zero")
        for name, what in (("pipe", "a pipe"), ("loop", "leads back to itself"), ("zero", "a device")):
            with pytest.raises(ValueError, match=what):
                open_table(tmp_path / f"{name}.csv")

    def test_a_row_that_has_too_many_cells_and_is_no_text(self, tmp_path):
        # Arrow would print a traceback of its own, which pytest makes an error.
        (tmp_path / "a.csv").write_bytes(b"x,y\n" + b"1,2\n" * 20 + b"3,\xff\xfe,4\n" + b"1,2\n" * 20)
        with pytest.raises(ValueError, match="is not UTF-8: line 22 holds the byte 0xff"):
            list(open_table(tmp_path / "a.csv").chunks())

    def test_arrays_that_claim_more_than_the_file_holds(self, tmp_path):
        path = tmp_path / "a.npz"

        def claim(shape: tuple[int, ...], content: bytes = b"\0" * 64) -> None:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("probs.npy", "w") as file:
                np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
                file.write(content)

        claim((1, 10**12))
        for read in (lambda: open_table(path, arrays_too=True), lambda: read_arrays(path)):
            with pytest.raises(ValueError, match=r"takes 8,000,000,000,000 bytes, the file holds 64"):
                read()
        claim((10**12, 1))
        with pytest.raises(ValueError, match="the file holds 64"):
            open_table(path, arrays_too=True)
        claim((1, 2**25), bytes(2**28))  # a quarter of a megabyte that inflates a thousandfold
        with pytest.raises(ValueError, match=r"a row of the array 'probs'.* takes 268.5 MB of memory, and 134"):
            open_table(path, arrays_too=True)

    @pytest.mark.timeout(300)
    def test_zeros_are_no_compressed_file(self, tmp_path):
        for suffix in ("gz", "bz2", "xz", "zip"):
            path = tmp_path / f"a.csv.{suffix}"
            with path.open("wb") as file:
                file.truncate(2**40)  # of holes
            with pytest.raises(ValueError, match="cannot be unpacked"):
                open_table(path)

    def test_rows_are_few_at_a_time_where_they_are_long(self, tmp_path, monkeypatch):
        path, x = tmp_path / "a.npz", np.arange(800.0).reshape(100, 8)
        np.savez_compressed(path, logits=x)
        table = open_table(path, arrays_too=True)
        monkeypatch.setattr("vicinal.tables.npz._AT_ONCE", 1000)
        chunks = [chunk.columns["logits"] for chunk in table.chunks(["logits"])]
        assert {len(part) for part in chunks} == {15, 10}
        np.testing.assert_array_equal(np.concatenate(chunks), x)

    def test_arrays_whole(self, tmp_path):
        x = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
        np.savez_compressed(tmp_path / "a.npz", x=x, f=np.asfortranarray(x), n=np.array(3), names=np.array(["a", "b"]))
        found = read_arrays(tmp_path / "a.npz")
        np.testing.assert_array_equal(found["x"], x)
        np.testing.assert_array_equal(found["f"], x)
        assert (int(found["n"]), found["names"].tolist()) == (3, ["a", "b"])


class TestInMemory:
    def test_frames_and_rows(self):
        import pandas as pd

        frame = pd.DataFrame(
            {"a": [1, "x", None], "b": [1.5, np.nan, 2], "c": [[1], (2,), {3}], "d": pd.Categorical(list("aba"))}
        )
        every, numbers, _ = rows(from_frame(frame))
        assert [row["a"] for row in every] == ["1", "x", None]
        assert [row["b"] for row in every] == [1.5, None, 2.0]
        assert isinstance(every[0]["c"], list)
        assert [row["d"] for row in every] == ["a", "b", "a"]
        assert numbers == [1, 2, 3]
        assert rows(from_rows([{"a": 1}, {"b": "x"}]))[0] == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


@pytest.mark.parametrize("late", [False, True])
def test_json_lines_with_keys_of_their_own_are_refused_before_they_become_columns(tmp_path, monkeypatch, late):
    """Each key would be a column as long as the file: the cells grow with the square of the lines."""
    path = tmp_path / "keys.jsonl"
    rows = [{"x": k, "y": "a"} for k in range(4_000)] if late else []
    rows += [{f"k{k}": k, "y": "a"} for k in range(4_000)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    parsed = []
    monkeypatch.setattr(json_lines, "_by_arrow", parsed.append)
    with pytest.raises(ValueError, match=rf"4,00\d different keys in {len(rows):,} lines, but only 2\.0 values in"):
        open_table(path)
    assert not parsed


def test_json_lines_whose_keys_differ_from_block_to_block_are_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_BLOCK", 2**14)
    path = tmp_path / "keys.jsonl"
    path.write_text("".join(f"{json.dumps({f'k{k}': k})}\n" for k in range(4_000)))
    with pytest.raises(ValueError, match=r"different keys in 3,\d\d\d lines, but only 1\.0 values in each"):
        open_table(path)


def test_json_lines_of_few_words_among_many_are_a_table(tmp_path):
    path = tmp_path / "words.jsonl"
    rng = np.random.default_rng(0)
    rows = [{f"w{w}": 1 for w in rng.integers(2_000, size=20)} for _ in range(6_000)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert len(open_table(path).columns) == 2_000


def test_a_line_of_names_may_be_longer_than_what_is_looked_at_for_the_separator(tmp_path):
    names = [f"measurement_{k}_{'x' * 40}" for k in range(25_000)]
    (tmp_path / "wide.csv").write_text(";".join(names) + "\n" + ";".join(["1,5"] * len(names)) + "\n")
    table = open_table(tmp_path / "wide.csv")
    assert list(table.columns) == names
    assert len(next(table.chunks(names[-1:]))) == 1
