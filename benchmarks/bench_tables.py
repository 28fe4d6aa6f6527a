"""A CSV file of a million rows and twenty columns, read, typed, split and encoded: seconds and peak memory.

    python -m benchmarks.bench_tables                        a million rows, 14 numbers and 6 categories
    python -m benchmarks.bench_tables --rows 100000          a smoke run

Each contender is a process of its own, so that its peak memory is its own; they take turns. The clock starts after the
imports; seconds of the processor are shown beside those on the wall, which other work on the machine lengthens.

- `load` is `vicinal.data.load`: kinds of columns, classes, splits, fitted preprocessing, features of every row.
- `read` is the reader alone, all cells as text.
- `pandas.read_csv` reads and types, and does none of the rest.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import table

NUMBERS = 14
CATEGORIES = (2, 5, 12, 30, 60, 100)

#: `vicinal.data.load` before there was one reader (commit f0252cc), of the same file on the same machine.
BEFORE = {"rows": 1_000_000, "cpu": 104.3, "peak": 5134, "features": 858}


def make(path: Path, rows: int) -> None:
    """Write the file: normal numbers, some of them missing, and categories of 2 to 100 values."""
    import pyarrow as pa
    import pyarrow.csv as text

    random = np.random.default_rng(0)
    columns = {}
    for k in range(NUMBERS):
        missing = random.random(rows) < 0.02 if k % 5 == 4 else None
        columns[f"x{k}"] = pa.array(random.normal(10 * k, 1 + k, rows).round(4), mask=missing)
    for k, n in enumerate(CATEGORIES):
        columns[f"c{k}"] = pa.array([f"value {j}" for j in range(n)]).take(pa.array(random.integers(0, n, rows)))
    first = columns["x0"].to_numpy(zero_copy_only=False)
    columns["label"] = pa.array(np.where(first + random.normal(size=rows) > 0, "yes", "no"))
    text.write_csv(pa.table(columns), path)


def run(contender: str, path: str) -> dict[str, float]:
    """Run one contender and return seconds, and megabytes beyond what the imports took."""
    import pandas  # all contenders pay for the same imports, before the clock
    import pyarrow.csv  # noqa: F401

    from vicinal import data
    from vicinal.tables import open_table

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    features = 0
    if contender == "load":
        task = data.load(path, target="label")
        features = 4 * task.spec["input_shape"][0] * sum(map(len, task.splits.values()))
    elif contender == "read":
        for _ in open_table(path).chunks():
            pass
    else:
        pandas.read_csv(path)
    taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {**taken, "peak": peak / 1024, "features": features / 2**20}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(*options.run)))
        return
    contenders = ("load", "read", "pandas.read_csv")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        make(path, options.rows)
        for _ in range(options.rounds):
            for name in contenders:
                command = [sys.executable, "-m", "benchmarks.bench_tables", "--run", name, str(path)]
                results[name].append(json.loads(subprocess.check_output(command)))
    lines = [[name, *_shown(runs)] for name, runs in results.items()]
    if options.rows == BEFORE["rows"]:
        lines.append(
            ["`load` at f0252cc", "", f"{BEFORE['cpu']:.1f}", f"{BEFORE['peak']:,}", f"{BEFORE['features']:,}"]
        )
    print(f"{options.rows:,} rows × {NUMBERS + len(CATEGORIES)} columns; the fastest of {options.rounds} rounds\n")
    print(table(["", "wall s", "cpu s", "peak MB beyond imports", "features MB"], lines))


def _shown(runs: list[dict[str, float]]) -> list[str]:
    best = min(runs, key=lambda one: one["cpu"])
    return [f"{best['wall']:.1f}", f"{best['cpu']:.1f}", f"{best['peak']:,.0f}", f"{best['features']:,.0f}"]


if __name__ == "__main__":
    main()
