"""Coverage-guided fuzzing of what reads a user's text: tables, labels, dates, numbers, expressions and model.json.

    python -m benchmarks.fuzz numbers --seconds 600       fuzz one target; needs `pip install atheris`
    python -m benchmarks.fuzz replay                      run the committed corpus, without atheris

A target takes bytes. It must end, raise nothing but the errors that commands turn into a sentence, and keep what it
says of its result. New inputs are kept in a folder (`--corpus`); `tests/fuzz_corpus/` has a small selection, which the
suite replays.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

#: What a command turns into a sentence.
EXPECTED = (ValueError, OSError, MemoryError)
#: What `vicinal.load` turns into a sentence: a record may hold anything.
OF_A_RECORD = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
CORPUS = Path(__file__).resolve().parents[1] / "tests" / "fuzz_corpus"
_FORMS = (".csv", ".tsv", ".jsonl", ".txt", ".npz", ".parquet", ".npy", ".csv.gz", ".arrow", ".orc")


def tables(data: bytes) -> None:
    """Open a file of some form, scan it, and read each row once."""
    from vicinal.data.table_scan import scan_table
    from vicinal.tables import open_table

    form = _FORMS[data[0] % len(_FORMS)] if data else ".csv"
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(*EXPECTED):
        path = Path(folder) / f"t{form}"
        path.write_bytes(data[1:])
        table = open_table(path, arrays_too=True)
        bad: list[object] = []
        rows = [row for chunk in table.chunks(bad=bad) for row in chunk.rows.tolist()]  # type: ignore[arg-type]
        assert rows == sorted(set(rows)), "rows are numbered from 1, each once"
        if form != ".npz" and table.columns:
            scan = scan_table(table, next(iter(table.columns)))
            assert scan.readable.sum() == len(rows)
            assert {summary.kind() for summary in scan.summaries.values()} <= _KINDS
            scan.notes()


_KINDS = {"number", "category", "date", "text", "sparse", "constant", "id", "nested"}


def labels(data: bytes) -> None:
    """Name classes: a name is its own name, and training and evaluation agree."""
    from vicinal.data.table_scan import ClassNames
    from vicinal.predictions.class_names import ClassCodes
    from vicinal.tables.column_values import name_of

    cells = data.decode("utf-8", "replace").split("\n")[:50]
    for cell in cells:
        name = name_of(cell)
        assert name_of(name) == name
        assert name_of(cell.encode()) == name
    with contextlib.suppress(*EXPECTED):
        column = pa.array(cells, pa.string())
        trained = ClassNames("label")
        numbers = trained.encode(column)
        codes = ClassCodes(None).encode(column, what="label", rows=np.arange(1, len(cells) + 1))
        same = [(a == b) for a in codes.tolist() for b in codes.tolist() if a >= 0 and b >= 0]
        assert len(same) or (codes < 0).all()
        named = [trained.names[k] for k in numbers.tolist() if k >= 0]
        assert all(named)


def dates(data: bytes) -> None:
    """Read dates: ISO text has one meaning, and an order changes only what it can change."""
    from vicinal.data.dates import DateEvidence, date_parts, is_date
    from vicinal.tables.column_values import name_of

    cells = data.decode("utf-8", "replace").split("\n")[:50]
    evidence = DateEvidence()
    for cell in cells:
        evidence.add(name_of(cell), 1)
    column = pa.array(cells, pa.string())
    first, second = (date_parts(column, day_first=order, times=True) for order in (True, False))
    for i, cell in enumerate(cells):
        text = name_of(cell)  # as a column of dates is scanned
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            with contextlib.suppress(ValueError):
                day = datetime.date.fromisoformat(text)
                assert first.parts["day"][i] == second.parts["day"][i] == (day - datetime.date(1970, 1, 1)).days
                assert (first.parts["month"][i], first.parts["year"][i]) == (day.month, day.year)
        if not math.isnan(first.parts["day"][i]) or not math.isnan(second.parts["day"][i]):
            assert is_date(text)


def numbers(data: bytes) -> None:
    """Read numbers: all at once as one by one, finite or missing, and what Python reads is read alike."""
    from vicinal.tables.column_values import LARGEST
    from vicinal.tables.number_format import Evidence, NumberFormat, decide, read_numbers

    cells = data.decode("utf-8", "replace").split("\n")[:50]
    column = pa.array(cells, pa.string())
    evidence = Evidence()
    for form in (NumberFormat(), NumberFormat(decimal=","), NumberFormat(unit="kg"), NumberFormat(thousands=".")):
        at_once = read_numbers(column, form, evidence)
        by_cell = read_numbers(column.dictionary_encode(), form)
        for one, other in zip(at_once, by_cell, strict=True):
            np.testing.assert_array_equal(one, other)
        values, odd, contrary = at_once
        assert not (contrary & ~odd).any()
        assert np.isnan(values[odd]).all()
        assert (np.isnan(values) | (np.abs(values) <= LARGEST)).all()
    for cell, value in zip(cells, read_numbers(column).values.tolist(), strict=True):
        if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", cell) and len(cell) <= 80 and abs(float(cell)) <= LARGEST:
            assert value == float(cell)
    decide({"x": evidence})


def expressions(data: bytes) -> None:
    """Parse an expression: what it builds prints as what builds it."""
    from vicinal.expressions import parse

    with contextlib.suppress(ValueError, TypeError):
        built = parse(data.decode("utf-8", "replace"))
        assert repr(parse(repr(built))) == repr(built)


def model_json(data: bytes) -> None:
    """Restore what model.json records of the data and the network, and encode a row with it."""
    from vicinal.data.preprocessing import Preprocessing
    from vicinal.data.tabular import TabularPreprocessing

    try:
        record = json.loads(data)
        reader = Preprocessing.from_dict(record)
        restored = json.loads(json.dumps(reader.to_dict()))
    except (*OF_A_RECORD, UnicodeDecodeError):
        return
    with contextlib.suppress(*OF_A_RECORD, MemoryError):
        assert Preprocessing.from_dict(restored).to_dict() == reader.to_dict()
    if isinstance(reader, TabularPreprocessing) and reader.columns:
        with contextlib.suppress(*OF_A_RECORD, MemoryError):
            features = reader({str(column.name): "1" for column in reader.columns})
            assert not np.isnan(np.asarray(features)).any(), "a damaged record gives an error, not NaN"


TARGETS: dict[str, Callable[[bytes], None]] = {
    "tables": tables,
    "labels": labels,
    "dates": dates,
    "numbers": numbers,
    "expressions": expressions,
    "model_json": model_json,
}


_TABLES = ("vicinal.tables.number_format", "vicinal.tables.column_values")
_MODULES = {
    "tables": (*_TABLES, "vicinal.tables.delimited", "vicinal.tables.json_lines", "vicinal.data.table_scan"),
    "labels": (*_TABLES, "vicinal.predictions.class_names"),
    "dates": (*_TABLES, "vicinal.data.dates"),
    "numbers": _TABLES,
    "expressions": ("vicinal.expressions",),
    "model_json": ("vicinal.data.column_encoders", "vicinal.data.preprocessing"),
}


def corpus(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the committed inputs of a target, with their names."""
    for path in sorted((CORPUS / name).iterdir()):
        yield path.name, path.read_bytes()


def replay() -> int:
    """Run the committed corpus through its targets; return how many inputs there are."""
    n = 0
    for name, target in TARGETS.items():
        for _, data in corpus(name):
            target(data)
            n += 1
    return n


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Fuzz a target for some seconds; inputs that reach new code are added to a folder."""
    import atheris

    # What one target runs through: to instrument all of the package takes minutes.
    with atheris.instrument_imports(include=[*_MODULES[name]], enable_loader_override=False):
        for module in _MODULES[name]:
            importlib.import_module(module)
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-timeout=600", "-rss_limit_mb=4096"]
    atheris.Setup([*words, f"-artifact_prefix={folder}/", str(folder), str(CORPUS / name)], TARGETS[name])
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*TARGETS, "replay"])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path, default=Path("fuzz"))
    asked = parser.parse_args()
    if asked.target == "replay":
        print(f"{replay()} inputs")
    else:
        fuzz(asked.target, asked.seconds, asked.corpus / asked.target)


if __name__ == "__main__":
    main()
