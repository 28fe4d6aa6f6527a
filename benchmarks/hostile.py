"""Hundreds of files, folders, options and saved models that are not as they should be, given to the command.

    python -m benchmarks.hostile                          all cases, some minutes of a processor
    python -m benchmarks.hostile --seed 7 --only bundle   other mutations; only cases whose name holds a word

Each command must end with exit code 0, 1 or 2 and, where it is not 0, with one sentence and no new file; without a
traceback, in 10 seconds of the processor, with every input as it was, no stray file, and no number that is not finite.
Commands are forks of one process that has imported everything, each with a limit on its memory.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.commands import Ended, command, warm
from vicinal._atomic import FORMAT, read_json, sealed

#: Of the processor: what no command may take.
CPU_SECONDS = 10
TINY = ("--epochs", "1", "--model-option", "hidden=[4]")
#: A record whose lists are nested as deep as no parser follows.
DEEP = b'{"format": 1, "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
TRAIN = ("train", "{file}", "--target", "label", "--out", "run", *TINY)


@dataclass(frozen=True)
class Case:
    """A command in a folder with one hostile thing; `{file}` in its words is that thing."""

    name: str
    words: tuple[str, ...]
    make: Callable[[Path], Path | None]
    """Writes into the folder and returns what `{file}` is."""
    before: Callable[[], object] = field(default=lambda: None)
    """Called in the process of the command, before it."""


# What is hostile


def good_table(rows: int = 60, seed: int = 0) -> list[list[str]]:
    draw = random.Random(seed)
    body = [[f"{draw.gauss(0, 1):.4f}", f"{draw.random():.3f}", draw.choice("abc")] for _ in range(rows)]
    return [["x", "y", "colour", "label"], *([*cells, "yes" if float(cells[0]) > 0 else "no"] for cells in body)]


def text_of(rows: list[list[str]], separator: str = ",", end: str = "\n") -> str:
    return end.join(separator.join(cells) for cells in rows) + end


def changed(row: int, column: int, cell: str) -> bytes:
    rows = good_table()
    rows[row][column] = cell
    return text_of(rows).encode("utf-8", "surrogatepass")


def tables() -> dict[str, bytes]:
    """CSV files, in bytes, by name."""
    rows = good_table()
    good = text_of(rows)
    odd_cells = [
        "nan",
        "inf",
        "-inf",
        "1e39",
        "1e400",
        "-1e-400",
        "0x10",
        "1_000",
        "１２",
        "1,5",
        '"',
        '""',
        '"a',
        "\t",
        "\0",
        "\ud800",
        "\u202e",
        "=1+1",
        "=cmd|'/c calc'!A0",
        "9" * 400,
        "a" * 100_000,
        "'; DROP TABLE x;--",
        "\ufeff",
        "\x1b[31m",
        "NaN(7)",
        "1e",
        "--1",
        "+-1",
        "True",
        "2020-13-45",
        "31/02/2020",
        "\u2212" + "1",
        "infinity",
        "1e38",
        "3.5e38",
        "١٢٣",
        "{}",
        "[1]",
    ]
    made = {f"cell {k}": changed(7, 0, cell) for k, cell in enumerate(odd_cells)}
    made |= {f"class {k}": changed(7, 3, cell) for k, cell in enumerate(odd_cells)}
    made |= {f"name {k}": changed(0, 0, cell) for k, cell in enumerate(odd_cells)}
    made |= {
        f"in {codec}": good.replace("yes", "ja ü").encode(codec, "replace")
        for codec in ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252", "shift-jis", "utf-7", "cp037")
    }
    made |= {f"ends {end!r}": text_of(rows, end=end).encode() for end in ("\r", "\r\n", "\n\r", "\n\n", "\u2028")}
    made |= {f"separator {mark!r}": text_of(rows, mark).encode() for mark in (";", "|", "\t", " ", "^", "::", "\x1f")}
    many = "\n".join(["x,label", *(f"{i},c{i}" for i in range(120_000))]) + "\n"
    made |= {
        "empty": b"",
        "one byte": b"\n",
        "only spaces": b"   \n  \n",
        "header only": b"x,y,colour,label\n",
        "header without end": b"x,y,colour,label",
        "one row": text_of(rows[:2]).encode(),
        "two rows": text_of(rows[:3]).encode(),
        "no header": text_of(rows[1:]).encode(),
        "header twice": text_of([rows[0], *rows]).encode(),
        "names equal": changed(0, 0, "y"),
        "names all equal": text_of([["label"] * 4, *rows[1:]]).encode(),
        "names empty": text_of([["", "", "", "label"], *rows[1:]]).encode(),
        "target alone": text_of([[cells[-1]] for cells in rows]).encode(),
        "one class": good.replace("yes", "no").encode(),
        "ragged": text_of([cells[: 1 + k % 4] for k, cells in enumerate(rows)]).encode(),
        "all too long": text_of([rows[0], *([*cells, "1"] for cells in rows[1:])]).encode(),
        "quote open": good.replace("yes", '"yes', 1).encode(),
        "quotes everywhere": good.replace(",", '","').encode(),
        "quote lone at end": good.encode() + b'"',
        "trailing commas": good.replace("\n", ",\n").encode(),
        "mixed ends": good.replace("\n", "\r\n", 20).encode(),
        "zeros": b"\0" * 5000,
        "gzip inside": b"\x1f\x8b" + os.urandom(3000),
        "random": random.Random(1).randbytes(20_000),
        "html": b"<!doctype html><html><body>404</body></html>\n",
        "json": b'[{"x": 1, "label": "a"}]\n',
        "parquet inside": b"PAR1" + b"\1" * 400 + b"PAR1",
        "long line": b"x,label\n" + b"1" * 5_000_000 + b",a\n",
        "long name": b"x" * 2_000_000 + b",label\n1,a\n2,b\n" * 20,
        "many columns": b",".join(b"x%d" % k for k in range(20_000)) + b",label\n" + (b"1," * 20_000 + b"a\n") * 3,
        "120,000 classes": many.encode(),
        "text as class": "\n".join(["x,label", *(f"{i % 7},some words of row {i}" for i in range(3000))]).encode(),
        "bom in the middle": good.encode()[:500] + b"\xef\xbb\xbf" + good.encode()[500:],
        "two boms": b"\xef\xbb\xbf" * 2 + good.encode(),
        "constant": text_of([rows[0], *(["1", "1", "a", cells[3]] for cells in rows[1:])]).encode(),
        "missing all": text_of([rows[0], *(["", "?", "NA", cells[3]] for cells in rows[1:])]).encode(),
        "far values": text_of(
            [rows[0], *([f"{1e38 if k % 2 else -1e38}", *cells[1:]] for k, cells in enumerate(rows[1:]))]
        ).encode(),
        "tiny values": text_of(
            [rows[0], *([f"{k * 1e-320}", *cells[1:]] for k, cells in enumerate(rows[1:]))]
        ).encode(),
        "rows equal": text_of([rows[0], *[rows[1], rows[2]] * 40]).encode(),
        "comment": b"# made by hand\n" + good.encode(),
        "bidi name": good.replace("label", "label\u202e", 1).encode(),
        "target upper": good.replace("label", "LABEL", 1).encode(),
    }
    return made


def predictions() -> dict[str, bytes]:
    """Files of predictions, by name."""
    draw = random.Random(3)
    rows = [["label", "prediction", "confidence"]]
    rows += [[draw.choice("abc"), draw.choice("abc"), f"{draw.uniform(0.34, 1):.4f}"] for _ in range(80)]
    good = text_of(rows)

    def with_cell(cell: str, column: int = 2) -> bytes:
        copy = [list(cells) for cells in rows]
        copy[9][column] = cell
        return text_of(copy).encode("utf-8", "surrogatepass")

    cells = [
        "nan",
        "inf",
        "-0.1",
        "1.1",
        "1.0000001",
        "1e400",
        "",
        "50%",
        "0,5",
        "x",
        "1e-400",
        "\0",
        "None",
        "[0.5]",
        "-0",
        "２",
    ]
    made = {f"confidence {cell!r}": with_cell(cell) for cell in cells}
    made |= {
        f"label {cell!r}": with_cell(cell, 0) for cell in ("", "nan", "\ud800", "a" * 70_000, "\u202e", "d", " a", "A")
    }
    probs = [["label", "prob_a", "prob_b", "prob_c"]]
    for _ in range(60):
        p = np.array([draw.random() for _ in range(3)])
        probs.append([draw.choice("abc"), *(f"{value:.6f}" for value in p / p.sum())])

    def with_probs(row: list[str]) -> bytes:
        return text_of([*probs[:5], row, *probs[6:]]).encode()

    made |= {
        f"probs {k}": with_probs(["a", *row])
        for k, row in enumerate(
            [
                ["1", "1", "1"],
                ["0", "0", "0"],
                ["nan", "0.5", "0.5"],
                ["-1", "1", "1"],
                ["2", "-1", "0"],
                ["inf", "0", "0"],
                ["", "", ""],
                ["1e-320", "0", "1"],
                ["0.5", "0.5"],
                ["0.3", "0.3", "0.4", "0"],
            ]
        )
    }
    logits = [
        ["label", "logit_a", "logit_b"],
        *([draw.choice("ab"), f"{draw.gauss(0, 2)}", f"{draw.gauss(0, 2)}"] for _ in range(60)),
    ]
    made |= {
        f"logits {k}": text_of([*logits[:5], ["a", *row], *logits[6:]]).encode()
        for k, row in enumerate(
            [["1e308", "-1e308"], ["inf", "0"], ["nan", "0"], ["1e39", "0"], ["", "0"], ["-inf", "-inf"]]
        )
    }
    made |= {
        "good": good.encode(),
        "good probs": text_of(probs).encode(),
        "header only": b"label,prediction,confidence\n",
        "no label": b"prediction,confidence\na,0.5\n" * 3,
        "one row": text_of(rows[:2]).encode(),
        "one class": text_of([rows[0], *[["a", "a", "0.9"]] * 30]).encode(),
        "certain": text_of([rows[0], *[["a", "a", "1"]] * 30]).encode(),
        "both": b"label,confidence,prob_a,prob_b\na,0.5,0.5,0.5\n" * 9,
        "a probability lacks": text_of([cells[:3] for cells in probs]).encode(),
        "class unknown": text_of([*probs, ["z", "1", "0", "0"]]).encode(),
        "names equal": text_of([["label", "prob_a", "prob_a", "prob_c"], *probs[1:]]).encode(),
        "4,000 classes": (
            ",".join(["label", *(f"prob_{k}" for k in range(4000))]) + "\n" + ("0," + "1," + "0," * 3998 + "0\n") * 4
        ).encode(),
        "empty": b"",
        "random": random.Random(2).randbytes(9000),
        "utf-16": good.encode("utf-16"),
        "open quote": good.encode() + b'"a,b',
    }
    return made


def binary_files() -> dict[str, bytes]:
    """Arrays, Parquet, safetensors, JSON lines, archives and workbooks that lie, by name with suffix."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    def npz(**arrays: Any) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()

    def lying(shape: str, dtype: str = "<f8", content: bytes = b"\0" * 64) -> bytes:
        head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in ("label", "x", "probs"):
                archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content)
        return buffer.getvalue()

    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("label.npy", b"\x93NUMPY\x01\x00" + b"v\0" + b" " * 117 + b"\n" + b"\0" * 200_000_000)
    sink = io.BytesIO()
    parquet.write_table(
        pa.table(
            {
                "x": [0.1, 0.2] * 40,
                "y": [1, 2] * 40,
                "colour": ["a", "b"] * 40,
                "label": ["yes", "no"] * 40,
                "prediction": ["yes", "no"] * 40,
                "confidence": [0.8, 0.9] * 40,
            }
        ),
        sink,
    )
    good = sink.getvalue()
    draw = random.Random(5)
    made = {
        "good.parquet": good,
        "cut.parquet": good[:-20],
        "half.parquet": good[: len(good) // 2],
        "magic.parquet": b"PAR1PAR1",
        "claims.npz": lying("(10, 1000000000000)"),
        "negative.npz": lying("(-1, 3)"),
        "object.npz": lying("(3,)", "|O"),
        "deep.npz": lying("(" + "(" * 90 + ")" * 90 + ",)"),
        "text.npz": lying("(4,)", "<U1000000000"),
        "bomb.npz": bomb.getvalue(),
        "void.npz": lying("(2,)", "|V99999999"),
        "no arrays.npz": npz(),
        "one array.npz": npz(x=np.zeros(3)),
        "lengths.npz": npz(label=np.zeros(3, int), probs=np.ones((4, 2)) / 2),
        "nan.npz": npz(label=np.zeros(9, int), probs=np.full((9, 2), np.nan)),
        "not.npz": b"PK\x03\x04" + b"\0" * 90,
        "cut.npz": npz(label=np.arange(99), probs=np.ones((99, 2)) / 2)[:300],
        "scalar.jsonl": b"1\n2\n",
        "nested.jsonl": b'{"label": "a", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}\n" * 2,
        "half.jsonl": b'{"label": "a", "x": 1}\n{"label": "b", "x"',
        "types.jsonl": b'{"label": "a", "x": 1}\n{"label": 2, "x": "b"}\n{"x": null}\n' * 9,
        "keys.jsonl": b'{"label": "a", "label": "b", "x": 1, "": 2}\n' * 9,
        "big number.jsonl": b'{"label": "a", "x": 1e999}\n{"label": "b", "x": -1e999}\n' * 9,
        "surrogate.jsonl": b'{"label": "\\ud800", "x": 1}\n{"label": "b", "x": 2}\n' * 9,
        "nan.jsonl": b'{"label": "a", "x": NaN}\n{"label": "b", "x": Infinity}\n' * 9,
        "a.csv.gz": b"\x1f\x8b\x08\x00" + b"\0" * 40,
        "a.csv.bz2": b"BZh9" + b"\0" * 40,
        "a.csv.xz": b"\xfd7zXZ\0" + b"\0" * 40,
        "a.csv.zip": b"PK\5\6" + b"\0" * 18,
        "a.xlsx": b"PK\x03\x04" + b"\0" * 100,
        "b.xlsx": b"no workbook",
        "a.pickle": b"cos\nsystem\n(S'touch pwned'\ntR.",
        "a.safetensors": struct.pack("<Q", 2**60) + b"{}",
        "a.feather": b"ARROW1\0\0",
        "a.unknown": b"x,label\n1,a\n",
        "noname": b"x,label\n1,a\n2,b\n",
        ".csv": b"x,label\n1,a\n2,b\n",
    }
    for k in range(12):
        content = bytearray(good)
        for _ in range(1 + k % 4):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        made[f"flipped {k}.parquet"] = bytes(content)
    return made


def arrays() -> dict[str, bytes]:
    """NPY files that lie, by name with suffix."""

    def npy(shape: str, dtype: str = "'<f8'", content: bytes = b"\0" * 64) -> bytes:
        head = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content

    return {
        "claims.npy": npy("(1000000000, 1000000)"),
        "negative.npy": npy("(-3, 2)"),
        "object.npy": npy("(2,)", "'|O'"),
        "three.npy": npy("(2, 2, 2)"),
        "wide.npy": npy("(2, 300000)", "'|u1'", b"\1" * 600_000),
        "nested.npy": npy("(2,)", "[('label', [('a', '<i4')]), ('x', '<f4')]"),
        "text.npy": npy("(4, 4)", "'<U1'"),
        "empty.npy": npy("(0, 3)"),
        "nan.npy": npy("(4, 2)", content=struct.pack("<8d", *[float("nan")] * 8)),
    }


def workbooks(draw: random.Random) -> dict[str, bytes]:
    """Excel workbooks that lie or are damaged, by name with suffix."""
    import openpyxl

    book = openpyxl.Workbook()
    for row in good_table():
        book.active.append(row)
    sink = io.BytesIO()
    book.save(sink)
    good = sink.getvalue()

    def with_sheet(change: Callable[[bytes], bytes]) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                content = old.read(name)
                new.writestr(name, change(content) if name.endswith("sheet1.xml") else content)
        return made.getvalue()

    lines = [
        b'<!ENTITY e0 "aaaaaaaaaa">',
        *(b'<!ENTITY e%d "%s">' % (k, b"&e%d;" % (k - 1) * 10) for k in range(1, 10)),
    ]
    entity = b"<!DOCTYPE x [" + b"".join(lines) + b"]>"
    made = {
        "good.xlsx": good,
        "dimension.xlsx": with_sheet(lambda sheet: sheet.replace(b'ref="A1:D61"', b'ref="A1:XFD1048576"')),
        "rows.xlsx": with_sheet(lambda sheet: sheet.replace(b'r="61"', b'r="1048576"').replace(b"61", b"1048576")),
        "half.xlsx": with_sheet(lambda sheet: sheet[: len(sheet) // 2]),
        "entities.xlsx": with_sheet(lambda sheet: entity + sheet.replace(b">yes<", b">&e9;<", 3)),
        "no sheet.xlsx": with_sheet(lambda sheet: b"<worksheet/>"),
        "bomb.xlsx": with_sheet(lambda sheet: sheet.replace(b"</sheetData>", b" " * 200_000_000 + b"</sheetData>")),
        "shared.xlsx": with_sheet(
            lambda sheet: sheet.replace(b't="inlineStr"><is><t>yes</t></is>', b't="s"><v>99999999</v>')
        ),
    }
    for k in range(6):
        content = bytearray(good)
        for _ in range(1 + k):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        made[f"flipped {k}.xlsx"] = bytes(content)
    return made


# Cases


def writer(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return make


def table_cases(run: Path, draw: random.Random) -> Iterator[Case]:
    for name, content in tables().items():
        make = writer("data.csv", content)
        yield Case(f"train: {name}", TRAIN, make)
        yield Case(f"predict: {name}", ("predict", str(run), "{file}", "--out", "answers.csv"), make)
    for name, content in predictions().items():
        make = writer("predictions.csv", content)
        yield Case(f"evaluate: {name}", ("evaluate", "{file}", "--json"), make)
        yield Case(
            f"calibrate: {name}", ("calibrate", "{file}", "{file}", "--out", "better.csv", "--save", "how.json"), make
        )
        yield Case(f"sets: {name}", ("evaluate", "{file}", "--sets", "0.8", "--report", "page.html"), make)
    for name, content in (binary_files() | arrays() | workbooks(draw)).items():
        make = writer(name, content)
        yield Case(f"train file: {name}", TRAIN, make)
        yield Case(f"evaluate file: {name}", ("evaluate", "{file}", "--json"), make)
        yield Case(f"predict file: {name}", ("predict", str(run), "{file}", "--out", "answers.csv"), make)


def mutated_cases(run: Path, draw: random.Random, n: int) -> Iterator[Case]:
    """Good files with some bytes changed, cut, doubled or put in."""
    marks = [
        b'"',
        b",",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"nan",
        b"1e39",
        b"\xf0\x9f\x92\xa9",
        b"\t",
        b";",
        b"-",
        b"",
    ]
    rows = good_table(seed=draw.randrange(1000))
    prediction = predictions()["good"]
    for k in range(n):
        content = bytearray(text_of(rows).encode() if k % 2 else prediction)
        for _ in range(draw.choice([1, 1, 3, 20])):
            at = draw.randrange(len(content))
            content[at : at + draw.choice([0, 1, 5])] = draw.choice(marks)
        if draw.random() < 0.2:
            content = content[: draw.randrange(len(content))]
        make = writer("data.csv", bytes(content))
        if k % 2:
            yield Case(f"mutated, train {k}", TRAIN, make)
            yield Case(f"mutated, predict {k}", ("predict", str(run), "{file}", "--out", "answers.parquet"), make)
        else:
            yield Case(f"mutated, evaluate {k}", ("evaluate", "{file}", "--json"), make)
            yield Case(f"mutated, calibrate {k}", ("calibrate", "{file}", "{file}", "--out", "better.csv"), make)


def bundle_cases(run: Path, draw: random.Random, n: int) -> Iterator[Case]:
    """Copies of a run with one file damaged: cut, flipped, emptied, gone, another type."""
    names = [
        "model.json",
        "model.safetensors",
        "experiment.json",
        "result.json",
        "predictions-test.parquet",
        "splits.json",
        "evaluation.json",
        "mistakes.json",
        "config.json",
        "metrics.jsonl",
        "predictions.parquet",
        "baselines.json",
    ]
    data = str(run.parent / "good.csv")
    commands = [
        ("predict", "{file}", data, "--out", "answers.csv"),
        ("evaluate", "{file}", "--json"),
        ("export", "{file}", "--out", "m.onnx"),
        ("evaluate", "{file}", "--sets", "0.8", "--report", "page.html"),
        ("predict", "{file}", data, "--out", "answers.csv"),
    ]

    def damaged(name: str, how: int, at: float, bit: int) -> Callable[[Path], Path]:
        def make(folder: Path) -> Path:
            copy = folder / "copy"
            shutil.copytree(run, copy)
            path = copy / name
            content = bytearray(path.read_bytes()) if path.exists() else bytearray(b"{}")
            place = int(at * len(content))
            if how == 0:
                content[place] ^= 1 << bit
            elif how == 1:
                content = content[:place]
            elif how == 2:
                content = bytearray([b"", b"[]", b"null", b"{}", b'{"format": 1}', b"\xff\xfe", DEEP, b"1"][bit])
            path.unlink(missing_ok=True)
            if how < 3:
                path.write_bytes(content)
            elif how == 4:
                path.mkdir()
            elif how == 5:
                path.symlink_to(path)
            return copy

        return make

    for k in range(n):
        name, how = draw.choice(names[: 2 if k % 2 else None]), draw.choice([0, 0, 0, 1, 2, 3, 4, 5])
        make = damaged(name, how, draw.random(), draw.randrange(8))
        yield Case(f"bundle of {run.name} {k}: {name}, {how}", commands[k % len(commands)], make)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value in a record, of lists to the first three."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key)
        yield from leaves(part, (*path, key))


def record_cases(run: Path, draw: random.Random, n: int) -> Iterator[Case]:
    """Copies of a run whose model record says one other thing, with a checksum to match: it was written like that."""
    odd = [None, True, -1, 0, 10**12, 10**30, 1e308, 0.5, "", "x", "\0", "../../x", "é" * 9999, [], {}, [[]], 45_000]
    odd += [float("nan"), float("-inf"), 1e-320, ["x"] * 5]
    data = str(run.parent / "good.csv")
    commands = [
        ("predict", "{file}", data, "--out", "answers.csv"),
        ("evaluate", "{file}", data, "--json"),
        ("export", "{file}", "--out", "m.onnx"),
    ]
    record = read_json(run / "model.json")
    ways = sorted(leaves({name: value for name, value in record.items() if name != "checksum"}), key=str)
    for k in range(n):
        way, value = draw.choice(ways), draw.choice(odd)
        name = f"record of {run.name}: {'.'.join(map(str, way))} = {str(value)[:12]!r}, {k}"
        yield Case(name, commands[k % 4 % 3], changed_record(run, way, value))


def changed_record(run: Path, way: tuple[Any, ...], value: object) -> Callable[[Path], Path]:
    """Return what makes a copy of a run whose model record says this in one place."""

    def make(folder: Path) -> Path:
        copy = folder / "copy"
        shutil.copytree(run, copy)
        record = read_json(run / "model.json")
        changed = {name: part for name, part in record.items() if name != "checksum"}
        at = changed
        for key in way[:-1]:
            at = at[key]
        at[way[-1]] = value
        (copy / "model.json").write_text(json.dumps({"format": FORMAT, **sealed(changed)}))
        return copy

    return make


def scale_cases(run: Path) -> Iterator[Case]:
    """Copies of a run whose first number has ranks, edges or limits that cannot be."""
    rising = [[float(k), k / 9] for k in range(10)]
    odd: dict[str, list[object]] = {
        "ranks": [
            rising[::-1],
            [[value, 1 - rank] for value, rank in rising],
            [[value, rank * 1e9] for value, rank in rising],
            [[0.0, rank] for _, rank in rising],
            [[value, float("nan")] for value, _ in rising],
            [[value] for value, _ in rising],
            [[value, [rank]] for value, rank in rising],
            [[str(value), "x"] for value, _ in rising],
            [],
            {},
            None,
            10**400,
            rising * 100_000,
        ],
        "edges": [[2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, float("inf"), 1.0], ["x"], [[0.0], [1.0]], 1, None],
        "limits": [[1.0, 0.0], [0.0], [0.0, 1.0, 2.0], [None, None], "ab", {}, None],
    }
    for name, values in odd.items():
        for k, value in enumerate(values):
            way = ("preprocessing", "columns", 0, name)
            words = ("predict", "{file}", str(run.parent / "good.csv"), "--out", "answers.csv")
            yield Case(f"scale of {run.name}: {name} {k}", words, changed_record(run, way, value))


def written_cells(draw: random.Random) -> dict[str, Callable[[int], str]]:
    """Return ways to write a cell of row i: dates, numbers, units and missing markers as people write them."""
    share, day, far = draw.random() / 4, draw.choice((12, 28)), draw.choice((-999, 9999, -99))

    def date(i: int) -> tuple[int, int, int]:
        return 2000 + i % 20, 1 + i * 7 % 12, 1 + i * 5 % day

    def some(text: Callable[[int], str], other: str) -> Callable[[int], str]:
        return lambda i: other if draw.random() < share else text(i)

    ways: dict[str, Callable[[int], str]] = {
        "day first": lambda i: "{2:02}/{1:02}/{0}".format(*date(i)),
        "month first": lambda i: "{1:02}/{2:02}/{0}".format(*date(i)),
        "iso": lambda i: "{}-{:02}-{:02}".format(*date(i)),
        "compact": lambda i: "{}{:02}{:02}".format(*date(i)),
        "german": lambda i: f"{i * 37 % 9 + 1}.{i * 13 % 900 + 100},{i % 90 + 10}",
        "thousands": lambda i: f"{i % 9 + 1}.{i * 13 % 900 + 100}",
        "unit": lambda i: f"{i * 0.7:.1f} kg",
        "brackets": lambda i: f"({i % 9 + 1},200)",
        "multiple": lambda i: f"{i * 0.3:.1f}M",
        "time": lambda i: f"{i % 24:02}:{i % 60:02}",
        "sentinel": lambda i: str(far if i % 5 == 0 else i * 3 % 17),
    }
    return ways | {
        f"{name}, some {other!r}": some(ways[name], other) for name in ways for other in ("TBD", "31/12/1999")
    }


def written_labels() -> dict[str, Any]:
    """Return columns of labels of unusual types, 60 rows each."""
    import uuid

    import pyarrow as pa

    half = [i % 2 for i in range(60)]
    ids = [uuid.UUID(int=k + 1).bytes for k in half]
    return {
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array(half, pa.int8())),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(ids, pa.binary(16))),
        "map": pa.array([[("a", k)] for k in half], pa.map_(pa.string(), pa.int64())),
        "not UTF-8": pa.array([bytes([254 + k]) for k in half]),
        "5,000 digits": pa.array(["1" * 4999 + str(k) for k in half]),
        "1 and 1.0": pa.array([("1", "1.0", "2")[i % 3] for i in range(60)]),
        "NFC and NFD": pa.array([("caf\u00e9", "cafe\u0301", "tea")[i % 3] for i in range(60)]),
        "unused category": pa.DictionaryArray.from_arrays(pa.array(half, pa.int8()), pa.array(["a", "b", "never"])),
        "half floats": pa.array(np.array(half, np.float16)),
        "decimals": pa.array([str(k) for k in half]).cast(pa.decimal128(5, 2)),
    }


def written_cases(run: Path, draw: random.Random, n: int) -> Iterator[Case]:
    """Values as people write them, in tables to train on, to predict and to evaluate."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for k in range(n):
        ways = written_cells(draw)
        name, other = draw.sample(sorted(ways), 2)
        rows = [["a", "b", "label"], *([ways[name](i), ways[other](i), "xy"[i % 2]] for i in range(60))]
        make = writer("data.csv", text_of(rows, draw.choice(";\t|")).encode())
        yield Case(f"written {k}: {name}; {other}", TRAIN, make)
        yield Case(f"written {k}: {name}; {other}, predict", ("predict", str(run), "{file}", "--out", "a.csv"), make)
    for name, labels in written_labels().items():
        said = pa.array(np.linspace(0.5, 1, 60))
        table = pa.table({"x": np.arange(60) % 7, "label": labels, "prediction": labels, "confidence": said})
        sink = io.BytesIO()
        pq.write_table(table, sink)
        make = writer("data.parquet", sink.getvalue())
        yield Case(f"written label: {name}", (*TRAIN, "--drop", "prediction"), make)
        yield Case(f"written label: {name}, evaluate", ("evaluate", "{file}", "--json"), make)
    wide = [[f"c{i}" for i in range(2_000)], *([str(i * j % 7) for i in range(2_000)] for j in range(12))]
    wide[0][-1], make = "label", writer("data.csv", text_of(wide).encode())
    yield Case("written: 2,000 columns of 12 rows", TRAIN, make)
    huge = [["label", "logit_a", "logit_b"], *(["ab"[i % 2], "1e160", str(-i)] for i in range(60))]
    yield Case("written: logits of 1e160", ("evaluate", "{file}", "--json"), writer("p.csv", text_of(huge).encode()))

    def dangling(folder: Path) -> Path:
        (folder / "run").symlink_to("nowhere")
        return writer("data.csv", text_of(good_table()).encode())(folder)

    yield Case("written: a link that leads nowhere as --out", TRAIN, dangling)

    def loud(folder: Path) -> Path:
        import soundfile

        for name in ("high", "low"):
            (folder / "sounds" / name).mkdir(parents=True)
            for i in range(12):
                wave = np.full(4_000, 1e38 if i == 0 and name == "high" else 0.1 * (i + 1), np.float32)
                soundfile.write(folder / "sounds" / name / f"{i}.wav", wave, 8_000, subtype="FLOAT")
        return folder / "sounds"

    yield Case(
        "written: a sound of 1e38", ("train", "{file}", "--out", "run", "--epochs", "1", "--model", "linear"), loud
    )


def special_cases(run: Path) -> Iterator[Case]:
    good = text_of(good_table()).encode()

    def fifo(folder: Path) -> Path:
        os.mkfifo(folder / "data.csv")
        return folder / "data.csv"

    def loop(folder: Path) -> Path:
        (folder / "data.csv").symlink_to("data.csv")
        return folder / "data.csv"

    def parent(folder: Path) -> Path:
        (folder / "images" / "cat").mkdir(parents=True)
        (folder / "images" / "dog").symlink_to("..")
        (folder / "images" / "cat" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 50)
        return folder / "images"

    def unreadable(folder: Path) -> Path:
        path = writer("data.csv", good)(folder)
        path.chmod(0)
        folder.chmod(0o755)
        return path

    def foreign(folder: Path) -> Path:
        (folder / "run").mkdir()
        (folder / "run" / "thesis.txt").write_text("mine")
        return writer("data.csv", good)(folder)

    def no_text(folder: Path) -> Path:
        path = Path(os.fsdecode(os.fsencode(folder) + b"/d\xff\xfe.csv"))
        path.write_bytes(good)
        return path

    def shards(*contents: bytes) -> Callable[[Path], Path]:
        def make(folder: Path) -> Path:
            (folder / "shards").mkdir()
            for k, content in enumerate(contents):
                (folder / "shards" / f"{k}.csv").write_bytes(content)
            return folder / "shards"

        return make

    places: dict[str, Callable[[Path], Path | None]] = {
        "fifo": fifo,
        "loop": loop,
        "parent": parent,
        "unreadable": unreadable,
        "no text": no_text,
        "device": lambda folder: Path("/dev/zero"),
        "null": lambda folder: Path("/dev/null"),
        "folder": lambda folder: folder,
        "gone": lambda folder: folder / "gone.csv",
        "emoji": writer("d💩 \u202e.csv", good),
        "option": writer("--target.csv", good),
        "spaces": writer(" .csv", good),
        "glob": writer("a[b]*.csv", good),
        "long": lambda folder: folder / ("x" * 300 + ".csv"),
        "memory": lambda folder: Path("/proc/self/mem"),
        "terminal": lambda folder: Path("/dev/tty"),
        "shards": shards(good, b"x,label\n1,a\n"),
        "shards empty": shards(good, b""),
        "shards none": shards(),
        "shards order": shards(good, good.replace(b"x,y", b"y,x", 1)),
    }
    nobody: Callable[[], object] = lambda: (os.setgroups([]), os.setgid(65534), os.setuid(65534))  # noqa: E731
    for name, make in places.items():
        before = nobody if name == "unreadable" else lambda: None
        yield Case(f"special, train {name}", TRAIN, make, before)
        yield Case(f"special, evaluate {name}", ("evaluate", "{file}"), make, before)
        yield Case(f"special, predict {name}", ("predict", str(run), "{file}", "--out", "answers.csv"), make, before)
        yield Case(f"special, calibrate {name}", ("calibrate", "{file}", "{file}", "--out", "better.csv"), make, before)
    make = writer("data.csv", good)
    predict = ("predict", str(run), "{file}", "--out")
    for out in (
        "{file}",
        "./data.csv",
        "gone/a.csv",
        "/proc/a.csv",
        "/dev/full",
        ".",
        "a.unknown",
        "",
        "a\0b.csv",
        "x" * 300 + ".csv",
        "~",
        str(run),
        str(run / "model.json"),
    ):
        yield Case(f"special, out {out[:20]!r}", (*predict, out), make)
        yield Case(
            f"special, save {out[:20]!r}",
            ("calibrate", "{file}", "{file}", "--out", "b.csv", "--save", out),
            writer("data.csv", predictions()["good"]),
        )
        yield Case(
            f"special, report {out[:20]!r}",
            ("evaluate", "{file}", "--report", out),
            writer("data.csv", predictions()["good"]),
        )
    yield Case("special, foreign folder", TRAIN, foreign)
    yield Case("special, run into its data", (*TRAIN[:5], "{file}", *TINY), make)
    for stream in (0, 1, 2):
        yield Case(
            f"special, closed {stream}",
            ("evaluate", "{file}"),
            writer("p.csv", predictions()["good"]),
            lambda s=stream: _close(s),
        )
    yield Case(
        "special, stdout full",
        ("evaluate", "{file}"),
        writer("p.csv", predictions()["good"]),
        lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
    )


def small_disk_cases(run: Path) -> Iterator[Case]:
    """Commands that may write no file above some bytes, as on a full disk or beyond a quota."""
    good, said = text_of(good_table()).encode(), predictions()["good"]
    for size in (500, 4_000):

        def limit(size: int = size) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        name = f"special, files up to {size},"
        for out in ("answers.csv", "answers.parquet", "answers.npz"):
            words = ("predict", str(run), "{file}", "--out", out)
            yield Case(f"{name} predict {out}", words, writer("data.csv", good), limit)
        yield Case(f"{name} train", TRAIN, writer("data.csv", good), limit)
        words = ("calibrate", "{file}", "{file}", "--out", "better.csv")
        yield Case(f"{name} calibrate", words, writer("p.csv", said), limit)
        yield Case(f"{name} report", ("evaluate", "{file}", "--report", "page.html"), writer("p.csv", said), limit)


def _close(stream: int) -> None:
    """Close a stream as a shell does before a command begins: Python then has none."""
    setattr(sys, ("stdin", "stdout", "stderr")[stream], None)
    os.close(stream)


def option_cases(run: Path) -> Iterator[Case]:
    make = writer("data.csv", text_of(good_table()).encode())
    numbers = ("-1", "0", "nan", "inf", "1e400", "x", "", "9" * 30, "1.5", "--")
    for option in (
        "--val",
        "--test",
        "--max-held-out",
        "--train-size",
        "--max-bad",
        "--epochs",
        "--batch-size",
        "--lr",
        "--seed",
        "--bins",
        "--ensemble",
    ):
        for value in numbers[:: 2 if option in ("--lr", "--seed", "--test") else 1]:
            yield Case(f"option {option} {value[:8]!r}", (*TRAIN, f"{option}={value}"), make)
    methods = (
        "Mixup(",
        "Mixup(alpha=-1)",
        "Mixup(alpha=nan)",
        "__import__('os')",
        "Mixup(alpha=1e400)",
        "(" * 10_000,
        "LogitMix()",
        "mixup",
        "",
        "Mixup(**{})",
        "Mixup(alpha=[1])",
        "Warmup(Warmup(Mixup(alpha=1.0), epochs=1), epochs=-1)",
        "PuzzleMix()",
        "CutMix(alpha=1.0)",
        "\0",
        "Mixup(alpha=True)",
    )
    for method in methods:
        yield Case(f"option --method {method[:24]!r}", (*TRAIN, "--method", method), make)
    for words in (
        ("--encoding", "base64"),
        ("--encoding", "\0"),
        ("--encoding", "utf-16"),
        ("--kind", "text"),
        ("--kind", "image"),
        ("--drop", "gone"),
        ("--drop", "label"),
        ("--group", "label"),
        ("--time", "colour"),
        ("--text", "colour"),
        ("--model", "gone"),
        ("--model-option", "hidden=[1e9]"),
        ("--model-option", "hidden"),
        ("--model-option", "hidden=[0]"),
        ("--model-option", "hidden=__import__('os')"),
        ("--no-header",),
        ("--device", "cuda:9"),
        ("--eval-data", "gone.csv"),
        ("--corrupt", "2"),
        ("--rare", "x"),
        ("--target", "x"),
        ("--target", "y"),
        ("--report", "{file}"),
        ("--out", "{file}"),
        ("--features", "x"),
    ):
        yield Case(f"option {' '.join(words)[:30]!r}", (*TRAIN, *words), make)
    good = writer("p.csv", predictions()["good"])
    for words in (
        ("--bins", "0"),
        ("--bins", "1000000000"),
        ("--sets", "1"),
        ("--sets", "-1"),
        ("--label", "gone"),
        ("--columns", "label"),
        ("--normalise",),
    ):
        yield Case(f"option evaluate {' '.join(words)!r}", ("evaluate", "{file}", *words), good)
    for words in (("--max-risk", "nan"), ("--max-risk", "2"), ("--level", "1"), ("--sets", "nan"), ("--keep", "gone")):
        of_run = ("predict", str(run), "{file}", "--out", "answers.csv", *words)
        yield Case(f"option predict {' '.join(words)!r}", of_run, make)
    for words in (("--top", "-1"), ("--folds", "1"), ("--folds", "999999"), ("--out", "{file}")):
        of_run = ("audit", str(run), "--out", "audit.csv", *words)
        yield Case(f"option audit {' '.join(words)!r}", of_run, make)


#: What no option expects, or hardly one: numbers, words, and files, folders and what is neither.
NUMBERS = (
    *("-1", "0", "-0.0", "1", "2", "3", "0.5", "-0.5", "nan", "inf", "-inf", "1e400", "1e-400", "1e308", "1e3", "0x10"),
    *("1_000", "１２", "²", "100000", "2147483648", "9223372036854775808", "9" * 30, "9" * 5000, "1/3", "50%", "1,5"),
)
WORDS = (
    *(
        "",
        " ",
        "x",
        "é💩",
        "\u202e",
        "\udcff",
        "\x1b[31m",
        "\n",
        "'",
        '"',
        "$(id)",
        "--",
        "-",
        "*",
        "[",
        "{",
        "=",
        "a=b",
    ),
    *(
        ",",
        ":",
        "1:",
        "0:a=b",
        "9:a=b",
        "None",
        "True",
        "null",
        "[]",
        "{}",
        "label",
        "colour",
        "x,y",
        "ERM()",
        "Mixup(alpha=1.0)",
    ),
    *(
        "noise",
        "fgsm:1",
        "digits",
        "hf:x",
        "http://x",
        "utf-16",
        "base64",
        "a" * 300,
        "a" * 100_000,
        "hidden=[2]",
        "x=y,y=x",
    ),
)
PLACES = (
    *(
        "data.csv",
        "p.csv",
        "folder",
        "fifo",
        "loop",
        "hard.csv",
        "link.csv",
        "linked",
        "gone/away",
        "gone/a.html",
        "a.html",
    ),
    *("a.csv", "a.npz", "a.parquet", "..", "~", "~nobody/x", "/dev/null", "/dev/zero", "/proc/self/mem", "/proc/a.csv"),
    *("folder/a.csv", "folder/.lock", "data.csv/a.csv", "*.csv", "**"),
)
#: Options of which nothing is drawn: they ask for another machine.
ELSEWHERE = {"--address"}


def odd_place(folder: Path) -> Path:
    """Write what odd commands find: a table, predictions, a folder that is not ours, a pipe, and links."""
    (folder / "data.csv").write_bytes(text_of(good_table()).encode())
    for name in ("p.csv", "q.csv"):
        (folder / name).write_bytes(predictions()["good probs"])
    (folder / "folder").mkdir()
    for name in ("thesis.txt", ".lock", "model.json"):
        (folder / "folder" / name).write_text("mine")
    os.mkfifo(folder / "fifo")
    os.link(folder / "data.csv", folder / "hard.csv")
    for name, target in (("loop", "loop"), ("link.csv", "p.csv"), ("linked", "folder")):
        (folder / name).symlink_to(target)
    return folder


def surroundings() -> list[Callable[[], object]]:
    """Return what a command may find itself in."""

    def homeless() -> None:
        os.environ.pop("HOME", None)
        os.environ["TMPDIR"] = tempfile.tempdir = "/gone"

    def nowhere() -> None:
        os.mkdir("away")
        os.chdir("away")
        os.rmdir("../away")

    return [
        homeless,
        nowhere,
        lambda: os.umask(0o777),
        lambda: os.environ.update(COLUMNS="1", LANG="C", TERM="dumb"),
        lambda: cast(io.TextIOWrapper, sys.stdout).reconfigure(encoding="ascii"),
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)),
        lambda: os.environ.update(RANK="x", WORLD_SIZE="0", LOCAL_RANK=""),
        lambda: os.environ.update(VICINAL_DATA="/dev/null", HF_HOME="/dev/null"),
    ]


def odd_cases(run: Path, draw: random.Random, n: int) -> Iterator[Case]:
    """Every command with each of its arguments and options n times: odd values, twice, beside another option."""
    from typer.main import get_command

    from vicinal.cli.app import app

    two = ("--method", "ERM()", "--method", "Mixup(alpha=1.0)", "--seeds", "1", "--workers", "1", "--out", "runs")
    good: dict[str, list[tuple[str, ...]]] = {
        "train": [("data.csv", "--target", "label", "--out", "run", *TINY)],
        "predict": [(str(run), "data.csv", "--out", "answers.csv")],
        "evaluate": [("p.csv",), (str(run),), (str(run), "data.csv")],
        "calibrate": [("p.csv", "q.csv", "--out", "better.csv")],
        "compare": [("data.csv", "--target", "label", *two, *TINY)],
        "audit": [(str(run), "--folds", "2", "--out", "audit.csv")],
        "export": [(str(run), "--out", "model.onnx")],
        "reproduce": [("p22-tab3", "--dry-run")],
        "methods": [()],
        "doctor": [()],
    }
    for name, command_ in sorted(vars(get_command(app))["commands"].items()):
        options = [p for p in command_.params if p.param_type_name == "option" and p.opts[0] not in ELSEWHERE]
        for option in options:
            for _ in range(n):
                words = list(draw.choice(good[name]))
                for given in (option, *([draw.choice(options)] if draw.random() < 0.3 else [])):
                    words += [word for _ in range(1 + (draw.random() < 0.15)) for word in odd_option(given, draw)]
                before = draw.choice(surroundings()) if draw.random() < 0.1 else lambda: None
                yield Case(f"odd {name}: {' '.join(words)[:300]!r}", (name, *words), odd_place, before)
        for place in range(2):
            for _ in range(2 * n):
                words = list(draw.choice(good[name]))
                words[place : place + 1] = [value := draw.choice((*NUMBERS, *WORDS, *PLACES))]
                yield Case(f"odd {name}, argument {place}: {value[:40]!r}", (name, *words), odd_place)
        for number, before in enumerate(surroundings()):
            yield Case(f"odd {name}, surroundings {number}", (name, *draw.choice(good[name])), odd_place, before)


def odd_option(option: Any, draw: random.Random) -> list[str]:
    """Return an option as it may be given: a flag or its contrary, else with a value of its own kind or another."""
    if option.is_flag:
        return [draw.choice([*option.opts, *option.secondary_opts])]
    own = [word for word in (option.metavar or "").split("|") if word.islower() and word not in ("ray", "dask")]
    numeric = option.type_descriptor.annotation in (int, float) or "NUMBER" in (option.metavar or "")
    likely = NUMBERS if numeric else own or (*WORDS, *PLACES)
    value = draw.choice(likely if draw.random() < 0.7 else (*NUMBERS, *WORDS, *PLACES))
    return [f"{option.opts[0]}={value}"] if draw.random() < 0.7 else [option.opts[0], value]


# Running


def contents(folder: Path) -> dict[str, str]:
    """Return what is in a folder: the hash of each regular file, and what else there is."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsencode(path.relative_to(folder)).decode(errors="replace")
        regular = path.is_file() and not path.is_symlink()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if regular else "special"
    return found


def faults(case: Case, ended: Ended, before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return what is wrong with how a command ended."""
    said = ended.out + ended.err
    wrong = [f"exit code {ended.code}"] if ended.code not in (0, 1, 2) else []
    wrong += ["traceback"] if "Traceback" in said else []
    wrong += [f"{ended.cpu:.0f} s"] if ended.cpu > CPU_SECONDS else []
    wrong += [f"input touched: {name}" for name, value in before.items() if after.get(name) != value]
    new = [name for name in after if name not in before]
    wrong += [f"stray file {name}" for name in new if name.endswith(".tmp")]
    if ended.code == 1:
        # A run that was begun is a folder of ours, with which the next command goes on.
        files = [name for name in new if not name.startswith(("run", "audit")) and after[name] != "special"]
        wrong += [f"refused, but wrote {files}"] if files else []
        errors = [line for line in ended.err.splitlines() if line.startswith(("Error: ", "Error (process "))]
        wrong += ["no sentence"] if len(errors) != 1 and "closed" not in case.name else []
    if ended.code == 0 and '"event"' in ended.out and any(word in ended.out for word in ("NaN", "Infinity")):
        wrong.append("a metric that is not finite")
    return wrong


def run_all(cases: list[Case], folder: Path) -> int:
    """Run cases, print those that end otherwise than they must, and return their number."""
    bad = 0
    codes: dict[int, int] = {}
    for k, case in enumerate(cases):
        place = folder / f"{k}"
        place.mkdir(mode=0o777)
        place.chmod(0o777)
        file = case.make(place)
        before = contents(place)
        try:
            ended = command(tuple(word.replace("{file}", str(file)) for word in case.words), place, case.before)
        except ValueError:  # a zero byte, which no command can be given
            continue
        wrong = faults(case, ended, before, contents(place))
        codes[ended.code] = codes.get(ended.code, 0) + 1
        if wrong:
            bad += 1
            print(f"\n{case.name}: {', '.join(wrong)}\n  {' '.join(case.words)[:200]}", flush=True)
            print("  " + (ended.err or ended.out)[-700:].replace("\n", "\n  "), flush=True)
        shutil.rmtree(place)
    print(f"\n{len(cases)} cases, {bad} faults; exit codes {dict(sorted(codes.items()))}")
    return bad


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, drawn by the seed")
    parser.add_argument("--mutations", type=int, default=60)
    parser.add_argument("--bundles", type=int, default=60)
    parser.add_argument("--written", type=int, default=30, help="tables of dates and numbers as people write them")
    parser.add_argument("--odd", type=int, default=2, help="odd commands for each option of each command")
    options = parser.parse_args()
    warm()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "good.csv").write_bytes(text_of(good_table()).encode())
        run = folder / "model"
        boosted = folder / "trees"
        hgb = ("--model", "hgb", "--method", "ERM()", "--model-option", "iterations=3")
        for out, how in ((run, TINY), (boosted, hgb)):
            words = ("train", str(folder / "good.csv"), "--target", "label", "--out", out.name, *how)
            if (ended := command(words, folder, lambda: None)).code:
                sys.exit(f"a good run fails: {ended.err}")
        cases = [
            *table_cases(run, random.Random(options.seed)),
            *mutated_cases(run, draw, options.mutations),
            *bundle_cases(run, draw, options.bundles),
            *bundle_cases(boosted, draw, options.bundles // 2),
            *record_cases(run, draw, options.bundles),
            *record_cases(boosted, draw, options.bundles // 2),
            *scale_cases(run),
            *written_cases(run, random.Random(options.seed), options.written),
            *special_cases(run),
            *small_disk_cases(run),
            *option_cases(run),
            *odd_cases(run, random.Random(options.seed), options.odd),
        ]
        chosen = [case for case in cases if options.only in case.name and draw.random() < options.share]
        before = {model: contents(model) for model in (run, boosted)}
        bad = run_all(chosen, folder)
        for model, files in before.items():
            # An audit keeps its trainings in the run.
            after = {name: value for name, value in contents(model).items() if not name.startswith("audit")}
            if after != files:
                names = sorted(name for name in {*after, *files} if after.get(name) != files.get(name))
                sys.exit(f"a command changed the model that it was given: {names}")
    print(json.dumps({"cases": len(chosen), "faults": bad, "seed": options.seed}))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
