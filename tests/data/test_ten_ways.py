"""A table that is written in many ways is the same task, and one model predicts the same from each."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from vicinal.data import load, read

N = 120


def table() -> pd.DataFrame:
    random = np.random.default_rng(0)
    x = random.normal(size=N).round(4)
    x[5] = np.nan
    return pd.DataFrame(
        {
            "x": x,
            "count": random.integers(0, 2000, N),
            "colour": random.choice(["red", "green", "blue"], N),
            "when": pd.date_range("2021-03-01", periods=N, freq="D"),
            "done": random.random(N) < 0.5,
            "label": random.integers(0, 2, N),
        }
    )


class Stream:
    """What polars and others hand out."""

    def __init__(self, source: pa.Table) -> None:
        self._source = source

    def __arrow_c_stream__(self, requested_schema=None):
        return self._source.__arrow_c_stream__(requested_schema)


def ways(folder: Path) -> dict[str, object]:
    frame = table()
    text = frame.assign(when=frame["when"].dt.strftime("%Y-%m-%d"))
    frame.to_csv(folder / "comma.csv", index=False)
    frame.to_csv(folder / "german.csv", index=False, sep=";", decimal=",")
    frame.to_csv(folder / "tabs.tsv.gz", index=False, sep="\t")
    pq.write_table(pa.Table.from_pandas(frame), folder / "typed.parquet")
    frame.astype({"colour": "category", "label": "category"}).to_parquet(folder / "dictionary.parquet")
    frame.to_excel(folder / "book.xlsx", index=False)
    text.to_json(folder / "lines.jsonl", orient="records", lines=True)
    columns = {name: text[name].to_numpy() for name in text}
    np.savez(folder / "arrays.npz", **{k: v.astype(str) if v.dtype == object else v for k, v in columns.items()})
    (folder / "shards").mkdir()
    for k in range(3):
        frame[40 * k : 40 * k + 40].to_csv(folder / "shards" / f"{k}.csv", index=False)
    orc.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "stripes.orc")
    feather.write_feather(frame, folder / "frame.feather")
    shuffled = frame.set_index(pd.Index(np.arange(N)[::-1]))  # Arrow stores such an index as a column without a name
    for name, writer in (("file.arrow", ipc.new_file), ("stream.arrows", ipc.new_stream)):
        arrow = pa.Table.from_pandas(shuffled)
        with writer(str(folder / name), arrow.schema) as sink:
            sink.write_table(arrow, max_chunksize=50)
    frame.to_csv(folder / "zipped.csv.zip", index=False)
    frame.to_csv(folder / "utf16.tsv", index=False, sep="\t", encoding="utf-16")
    frame.to_csv(folder / "utf32.csv", index=False, encoding="utf-32")
    frame.to_csv(folder / "unmarked.csv", index=False, encoding="utf-16-le")
    (folder / "big-endian.csv").write_bytes(frame.to_csv(index=False, sep="|").encode("utf-16-be"))
    views = pa.Table.from_pandas(frame, preserve_index=False)
    views = views.set_column(2, "colour", views["colour"].cast(pa.string_view()))
    pq.write_table(views, folder / "views.parquet")
    (folder / "excel.csv").write_text("sep=;\r\n" + frame.to_csv(index=False, sep=";"))
    text.to_excel(folder / "text-dates.xlsx", index=False)
    frame.to_csv(folder / "hive.csv", index=False, na_rep="\\N")
    flags = frame["done"].map({True: "TRUE", False: "FALSE"})
    frame.assign(done=flags).to_csv(folder / "r.csv", index=False, date_format="%d/%m/%Y")
    stamps = frame["when"].astype("datetime64[ms]").astype("int64")
    frame.assign(when=stamps).to_json(folder / "epoch.jsonl", orient="records", lines=True)
    made = ["hive.csv", "r.csv", "epoch.jsonl", "unmarked.csv", "big-endian.csv", "views.parquet"]
    made += ["stripes.orc", "frame.feather", "file.arrow", "stream.arrows", "zipped.csv.zip", "utf16.tsv", "utf32.csv"]
    made += [
        "excel.csv",
        "text-dates.xlsx",
        "comma.csv",
        "german.csv",
        "tabs.tsv.gz",
        "typed.parquet",
        "dictionary.parquet",
        "book.xlsx",
        "lines.jsonl",
    ]
    paths: dict[str, object] = {name: folder / name for name in [*made, "arrays.npz", "shards"]}
    arrow = pa.Table.from_pandas(frame)
    others = {"nullable": frame.convert_dtypes(), "arrow-backed": frame.convert_dtypes(dtype_backend="pyarrow")}
    codes = views["colour"].combine_chunks().cast(pa.string()).dictionary_encode()
    codes = pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary.cast(pa.string_view()))  # as polars has it
    others |= {"data set": dataset(folder / "typed.parquet")}
    others |= {"views": views, "view categories": views.set_column(2, "colour", codes)}
    return {**paths, **others, "frame": frame, "index": shuffled, "arrow": arrow, "stream": Stream(arrow)}


def test_what_is_no_such_table_is_refused_in_one_sentence(tmp_path):
    frame = table()
    for colour, part in frame.groupby("colour"):
        (tmp_path / "split" / f"colour={colour}").mkdir(parents=True)
        part.drop(columns="colour").to_parquet(tmp_path / "split" / f"colour={colour}" / "0.parquet")
    (tmp_path / "deep" / "2021").mkdir(parents=True)
    frame.to_csv(tmp_path / "deep" / "2021" / "a.csv", index=False)
    frame.to_parquet(tmp_path / "lie.csv")
    (tmp_path / "packed.csv").write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    (tmp_path / "old.csv").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 9)
    frame.drop(columns="when").to_json(tmp_path / "rows.json", orient="records")
    (tmp_path / "one.feather").write_bytes(b"FEA1" + bytes(60))
    (tmp_path / "cut.arrow").write_bytes(b"ARROW1\0\0" + bytes(60))
    (tmp_path / "cut.orc").write_bytes(b"ORC" + bytes(60))
    frame.to_csv(tmp_path / "named.csv.zip", index=False)
    (tmp_path / "named.csv.zip").rename(tmp_path / "plain.zip")
    for name, said in {
        "split": r"split by 'colour=blue': read it with pandas.read_parquet",
        "deep": r"holds tables in its folders: pass the pattern '.*\*\.csv'",
        "lie.csv": r"no text but a Parquet file: its name must end in \.parquet",
        "packed.csv": r"no text but compressed by gzip: its name must end in \.csv\.gz",
        "old.csv": r"save it as \.xlsx",
        "one.feather": "Feather of version 1",
        "cut.arrow": "no readable Arrow file",
        "cut.orc": "no readable ORC file",
        "rows.json": "write an object a line to a .jsonl file",
        "plain.zip": "is an archive: name it after its table",
    }.items():
        with pytest.raises(ValueError, match=said):
            load(tmp_path / name)


def test_text_that_begins_like_another_form_is_text(tmp_path):
    (tmp_path / "a.csv").write_text("ORC,PAR1,label\n" + "1.5,2,a\n2.5,3,b\n" * 30)
    assert list(load(tmp_path / "a.csv").classes) == ["a", "b"]


def test_every_way_is_the_same_task(tmp_path):
    sources = ways(tmp_path)
    first = load(sources.pop("comma.csv"))
    assert [column.kind for column in first.preprocessing.columns] == [
        "number",
        "number",
        "category",
        "date",
        "category",
    ]
    features = first.train._items
    for name, source in sources.items():
        task = load(source)
        assert task.classes == first.classes, name
        assert task.splits == first.splits, name
        assert task.train.labels == first.train.labels, name
        assert task.train._items.equal(features), name
        new = read(source, first.preprocessing, classes=first.classes)
        assert new._items.equal(features), name  # so that one model predicts the same from each
        assert new.labels == read(tmp_path / "comma.csv", first.preprocessing, classes=first.classes).labels


def test_polars_is_read(tmp_path):
    polars = pytest.importorskip("polars")
    frame = table()
    given = polars.from_pandas(frame)
    levels = polars.Enum(["red", "green", "blue", "none"])
    coded = given.with_columns(polars.col("colour").cast(levels), polars.col("when").cast(polars.Date))
    for way in (given, given.lazy(), coded):
        assert load(way).train._items.equal(load(frame).train._items)
