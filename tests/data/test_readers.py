"""Processes that read a table together know what one process knows, to the last bit, and read it once."""

from __future__ import annotations

import os
import pickle
import tempfile

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist

from tests.processes import free_port, in_processes, world
from vicinal.data import load
from vicinal.data.options import ReadOptions, SplitOptions, TableOptions, TextOptions
from vicinal.data.readers import Readers
from vicinal.data.table_scan import Summary
from vicinal.tables import open_table
from vicinal.tables.base import Table
from vicinal.tables.number_format import VARIED
from vicinal.tables.pieces import piece, renumbered


def messy(n, seed=0):
    """Return columns of every kind, with what makes them hard to read."""
    random = np.random.default_rng(seed)
    x = random.normal(size=n)
    day, month = random.integers(1, 29, n), random.integers(1, 13, n)
    frame = pd.DataFrame({
        "x": x.round(3),
        "skewed": random.exponential(size=n).round(4) * (random.random(n) < 0.7),
        "colour": random.choice(["red", "green", "blue", ""], n, p=[0.5, 0.3, 0.15, 0.05]),
        "town": [f"t{k}" for k in random.integers(0, 150, n)],
        "when": [f"{d:02d}/{m:02d}/2021" for d, m in zip(day, month, strict=True)],
        "number": np.arange(n) + 1,
        "comment": [f"it was day {k % 400} of a long way that we took" for k in random.permutation(n)],
        "w": random.choice([1, 2], n),
        "y": np.where(x + random.normal(size=n) > 0, "yes", "no"),
    })  # fmt: skip
    return frame.astype(object)


def write_csv(folder, n=900, parts=3):
    folder.mkdir()
    frame = messy(n)
    frame.loc[5, "x"] = "many"  # no number, among numbers
    frame.loc[n - 2, "x"] = "few"
    frame.loc[40, "y"] = ""
    for k, rows in enumerate(np.array_split(np.arange(n), parts)):
        frame.iloc[rows].to_csv(folder / f"part-{k}.csv", index=False)
    with (folder / f"part-{parts - 1}.csv").open("a") as file:
        file.write("1,2,3\n")  # too few cells
    return folder


def write_late(folder):
    """Write shards whose later rows decide how the earlier ones are read."""
    folder.mkdir()
    random = np.random.default_rng(2)
    for k in range(3):
        n = 300
        comma = [f"{v:.3f}".replace(".", ",") if k else f"{int(1000 * abs(v)) + 1000:,}" for v in random.normal(size=n)]
        code = [str(v) if k == 0 else f"c{v % 9}" for v in range(n)]
        y = random.choice([["a", "b"], ["b", "c"], ["d", "a"]][k], n)
        pd.DataFrame({"v": comma, "code": code, "z": random.normal(size=n), "y": y}).to_csv(
            folder / f"{k}.csv", index=False
        )
    return folder


def write_parquet(path, rows_of_group, n=1000):
    frame = messy(n, 3)
    for name in ("x", "skewed", "number", "w"):
        frame[name] = frame[name].astype(float)
    frame.loc[3:9, "x"] = np.nan
    frame.to_parquet(path, row_group_size=rows_of_group)
    return path


def known(task):
    """Return all that is known of a task, ready to be compared."""
    items = task.train._items
    return {
        "classes": task.classes,
        "splits": {name: part.tolist() for name, part in task.positions.items()},
        "items": items.numpy().tobytes() if isinstance(items, torch.Tensor) else items,
        "labels": [(task.train.labels), task.val.labels, task.test.labels],
        "notes": [str(note) for note in task.notes],
        "warnings": [str(note) for note in task.warnings],
        "preprocessing": task.preprocessing.to_dict(),
        "fingerprint": task.fingerprint,
        "weights": None if task.train.weights is None else task.train.weights.tolist(),
    }


STEPS = ("_first", "_last", "_step")
CASES = {
    "csv": ("csv", {}, ()),
    "groups and weights": ("csv", {}, (SplitOptions(group="town"), TableOptions(weight="w"))),
    "time": ("csv", {}, (SplitOptions(time="when"),)),
    "text": ("csv", {"kind": "text"}, (TextOptions(text="comment"),)),
    "late": ("late", {}, ()),
    "row groups": ("aligned.parquet", {}, ()),
    "unaligned": ("odd.parquet", {}, ()),
    "one file": ("csv/part-0.csv", {}, ()),
}


def _load(folder, case, readers=None):
    where, also, options = CASES[case]
    read = () if where == "late" else (ReadOptions(max_bad=5),)
    return load(str(folder / where), *options, *read, target="y", readers=readers, **also)


def _count_reads(counted):
    """Count the rows that are read of each file."""
    for kind in (cls for cls in Table.__subclasses__() if cls.__name__ in ("Delimited", "Parquet")):
        chunks = kind.chunks

        def counting(self, *args, _chunks=chunks, **also):
            for chunk in _chunks(self, *args, **also):
                counted[0] += len(chunk)
                yield chunk

        kind.chunks = counting


def _reader(rank, size, port, folder, cases, nodes, where):
    os.environ.update({**world(rank, size, port), "GROUP_RANK": str(nodes[rank])})
    tempfile.tempdir = str(folder)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    counted = [0]
    _count_reads(counted)
    readers = Readers.joined()
    found = {}
    for case in cases:
        before = counted[0]
        found[case] = known(_load(folder, case, readers)), counted[0] - before
    with open(where / f"{rank}.pickle", "wb") as file:
        pickle.dump(found, file)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables")
    write_csv(path / "csv")
    write_late(path / "late")
    write_parquet(path / "odd.parquet", 130)
    n = 2**16
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=3 * n + 5), "y": np.arange(3 * n + 5) % 2})
    frame.to_parquet(path / "aligned.parquet", row_group_size=n)
    return path


def _read_together(size, nodes, folder, cases, where):
    where.mkdir(exist_ok=True)
    in_processes(size, _reader, size, free_port(), folder, cases, nodes, where)
    return [pickle.loads((where / f"{rank}.pickle").read_bytes()) for rank in range(size)]


def _assert_known(found, wanted, case):
    for name, value in wanted.items():
        if case == "unaligned" and name == "preprocessing":
            continue  # means of other chunks differ in the last digits
        if case == "unaligned" and name == "items":
            one, other = (np.frombuffer(content, np.float32) for content in (found[name], value))
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        else:
            assert found[name] == value, (case, name)


def test_two_processes_that_read_together_know_what_one_knows(folder, tmp_path):
    of_rank = _read_together(2, [0, 0], folder, list(CASES), tmp_path)
    for case in CASES:
        wanted = known(_load(folder, case))
        for found in of_rank:
            _assert_known(found[case][0], wanted, case)
    # Three passes over 2 of 4 row groups, and the first chunk once more.
    n = 2**16
    assert [found["row groups"][1] for found in of_rank] == pytest.approx([3 * 2 * n + n, 3 * n + n], rel=1e-3)
    assert not list(folder.glob("vicinal-*"))


@pytest.mark.slow
def test_nodes_send_each_other_what_they_have_read(folder, tmp_path):
    of_rank = _read_together(3, [0, 0, 1], folder, ["csv", "row groups"], tmp_path)
    for case in ("csv", "row groups"):
        wanted = known(_load(folder, case))
        for found in of_rank:
            _assert_known(found[case][0], wanted, case)


def _failing(rank, size, port, where):
    os.environ.update(world(rank, size, port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    readers = Readers.joined()

    def work():
        if rank == 1:
            raise ValueError("row 7 is odd")

    with pytest.raises(ValueError, match="row 7 is odd"):
        readers.together(work)
    if rank == 1:
        os._exit(0)
    with pytest.raises(RuntimeError, match="another process ended while the data were read"):
        readers.together(lambda: None)


def test_an_error_of_one_process_is_raised_in_all_and_a_death_is_noticed(tmp_path):
    in_processes(2, _failing, 2, free_port(), tmp_path)


@pytest.mark.parametrize("of", [1, 2, 3, 5])
@pytest.mark.parametrize("where", ["csv", "odd.parquet", "aligned.parquet"])
def test_pieces_have_every_row_once_and_in_order(where, of, folder):
    table = open_table(folder / where)
    bad, seen, before = [], [], 0
    wanted_bad = []
    wanted = [
        (row, y) for c in table.chunks(["y"], bad=wanted_bad) for row, y in zip(c.rows, c["y"].to_pylist(), strict=True)
    ]
    for k in range(of):
        part = piece(table, k, of)
        own, last = [], before
        for chunk in renumbered(part, before).chunks(["y"], bad=own):
            seen += zip(chunk.rows, chunk["y"].to_pylist(), strict=True)
            last = int(chunk.rows[-1])
        bad += own
        before = max([last, *(row.row for row in own)])
    assert seen == wanted
    assert bad == wanted_bad


@pytest.mark.parametrize("cuts", [[100], [50, 100, 150], [0, 50, 250]])
def test_summaries_of_parts_add_up(cuts):
    import pyarrow as pa

    frame = messy(300, 5)
    frame["step"] = [str(7 - k) for k in range(300)]
    frame["same"] = "4.0"
    frame["id"] = [str(k) for k in np.random.default_rng(0).permutation(300)]
    frame["mixed"] = [f"{k / 8}" if k % 3 else "n/a" for k in range(300)]
    for name in frame:
        cells = pa.array(frame[name].astype(str))
        whole = Summary(name, count_values=True)
        for start in range(0, 300, 50):
            whole.add(cells[start : start + 50])
        total = Summary(name, count_values=True)
        for start, stop in zip([0, *cuts], [*cuts, 300], strict=True):
            part = Summary(name, count_values=True)
            for first in range(start, stop, 50):
                part.add(cells[first : min(first + 50, stop)])
            total.merge(part)
        facts = [
            {**vars(s), **vars(s.evidence), "kind": s.kind(), "evidence": 0, "dates": vars(s.dates),
             # Of different texts and numbers it only counts whether there are many, and of texts the markers.
             "texts": len(s.evidence.texts), "markers": s._n_without_markers,
             "distinct": len(s.evidence.distinct) >= VARIED, "values": set(s.values),
             "_ids": None if s._ids is None else np.concatenate([*s._ids, []]).tolist()}
            for s in (whole, total)
        ]  # fmt: skip
        if total._ids is None:  # it is no counter, so its steps are of no interest
            facts = [{name: value for name, value in one.items() if name not in STEPS} for one in facts]
        assert facts[0] == facts[1], name


@pytest.mark.parametrize("cuts", [[60_000], [1000, 180_000], [5, 6, 7]])
def test_quantiles_of_parts_are_those_of_the_whole(cuts):
    import pyarrow as pa

    from vicinal.data.column_encoders import Budget, column_fit
    from vicinal.tables import Chunk

    values = np.random.default_rng(0).normal(size=200_000)
    stops = sorted({*range(5000, 200_001, 5000), *cuts})
    chunks = [
        (a, Chunk({"x": pa.array(values[a:b])}, np.arange(a, b) + 1, None))
        for a, b in zip([0, *stops], stops, strict=False)
    ]
    whole, total = (column_fit("number", "x", keeps=True) for _ in range(2))
    for _, chunk in chunks:
        whole.add(chunk, np.ones(len(chunk), bool))
    for start, stop in zip([0, *cuts], [*cuts, 200_000], strict=True):
        part = column_fit("number", "x", keeps=True)
        for first, chunk in chunks:
            if start <= first < stop:
                part.add(chunk, np.ones(len(chunk), bool))
        total.merge(part)
    budget = Budget.of("ranked", 200_000, 1)
    assert total.column(budget) == whole.column(budget)
