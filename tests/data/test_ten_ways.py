"""A table that is written in many ways is the same task, and one model predicts the same from each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    made = ["comma.csv", "german.csv", "tabs.tsv.gz", "typed.parquet", "dictionary.parquet", "book.xlsx", "lines.jsonl"]
    paths: dict[str, object] = {name: folder / name for name in [*made, "arrays.npz", "shards"]}
    arrow = pa.Table.from_pandas(frame)
    return {**paths, "frame": frame, "arrow": arrow, "stream": Stream(arrow)}


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
    assert load(polars.from_pandas(frame)).train._items.equal(load(frame).train._items)
