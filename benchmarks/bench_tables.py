"""A CSV file of a million rows and twenty columns, read, typed, split and encoded: seconds and peak memory.

    python -m benchmarks.bench_tables                        a million rows, 14 numbers and 6 categories, and --train
    python -m benchmarks.bench_tables --rows 100000          a smoke run
    python -m benchmarks.bench_tables --train                `vicinal train` of 20 numbers a row to its first
                                                             step, beside the same of 2,000 rows
    python -m benchmarks.bench_tables --train --model mlp    the same with a network that takes each number once
    python -m benchmarks.bench_tables --train --shards 50    of a folder of Parquet files of --rows rows each

Each contender is a process of its own, so that its peak memory is its own; they take turns. The clock starts after the
imports; seconds of the processor are shown beside those on the wall, which other work on the machine lengthens.

- `load` is `vicinal.data.load`: kinds of columns, classes, splits, fitted preprocessing, features of every row.
- `read` is the reader alone, all cells as text.
- `pandas.read_csv` reads and types, and does none of the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.predictions import peak
from benchmarks.timing import marked, table

NUMBERS = 14
CATEGORIES = (2, 5, 12, 30, 60, 100)

#: Seconds to the first step beyond the start of the command, and up to how many rows they are the goal.
SECONDS = {10: 1_000_000, 90: 10_000_000}


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


def make_numbers(path: Path, rows: int, columns: int) -> None:
    """Write a file of normal numbers and two classes, as CSV or Parquet."""
    import pyarrow as pa
    import pyarrow.csv as text
    import pyarrow.parquet as parquet

    random = np.random.default_rng(0)
    x = random.standard_normal((rows, columns), dtype=np.float32).round(4)
    label = pa.array(np.where(x[:, 0] + random.standard_normal(rows) > 0, "yes", "no"))
    made = pa.table({**{f"x{k}": x[:, k].copy() for k in range(columns)}, "label": label})
    (text.write_csv if path.suffix == ".csv" else parquet.write_table)(made, path)


def first_step(path: str, held_out: str, model: str) -> None:
    """Be `vicinal train` up to the end of its first step; print seconds of the processor, the peak in MB, the width."""
    from vicinal.cli import main as command
    from vicinal.training.loop import Loop

    step = Loop._train_step

    def measured(self: Loop, batches: object) -> None:
        step(self, batches)
        width = self.train.dataset[0][0].numel()
        print(json.dumps({"cpu": time.process_time(), "peak": peak() / 2**20, "width": width}), flush=True)
        os._exit(0)

    Loop._train_step = measured
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "train",
            path,
            "--target",
            "label",
            "--steps",
            "3",
            "--max-held-out",
            held_out,
            "--model",
            model,
            "--out",
            f"{folder}/run",
        ]
        sys.argv = ["vicinal", *words]
        command()


def train(rows: int, shards: int, model: str) -> None:
    """Print what it takes to the first step, beyond what a small file takes."""
    columns = 4 if shards else 20
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small.csv", Path(name) / ("shards" if shards else "large.csv")
        make_numbers(small, 2_000, columns)
        if shards:
            large.mkdir()
            make_numbers(large / "0.parquet", rows, columns)
            for k in range(1, shards):
                shutil.copyfile(large / "0.parquet", large / f"{k}.parquet")  # a link would count once
        else:
            make_numbers(large, rows, columns)
        found = []
        for path, held_out in ((small, "200"), (large, "10000")):
            command = [sys.executable, "-m", "benchmarks.bench_tables", "--first-step", str(path), held_out, model]
            found.append(json.loads(subprocess.check_output(command).splitlines()[-1]))
    n = rows * max(shards, 1)
    seconds, beyond = found[1]["cpu"] - start_up(), found[1]["peak"] - found[0]["peak"]
    features = 4 * n * found[1]["width"] / 2**20
    cells = [f"{found[1]['cpu']:.1f}", f"{found[0]['cpu']:.1f}", f"{beyond:,.0f}", f"{features:,.0f}"]
    most = next((limit for limit, up_to in SECONDS.items() if n <= up_to), None)
    time_goal = "" if most is None else marked(f"≤ {most} s beyond the start", seconds <= most)
    memory_goal = marked("≤ 2× the features", beyond <= 2 * features)
    titles = ["rows", "network", "cpu s", "of a small file", "peak MB beyond its", "features MB", "goal", "goal"]
    print(table(titles, [[f"{n:,} × {columns}", model, *cells, time_goal, memory_goal]]))


def start_up() -> float:
    """Return the seconds of the processor that the command takes before it looks at a file: its imports."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import vicinal.cli.app, vicinal.runs"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(contender: str, path: str) -> dict[str, float]:
    """Run one contender and return seconds, and megabytes beyond what the imports took."""
    import pandas  # all contenders pay for the same imports, before the clock
    import pyarrow.csv  # noqa: F401

    from vicinal import data
    from vicinal.tables import open_table

    before = peak()
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
    return {**taken, "peak": (peak() - before) / 2**20, "features": features / 2**20}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train", action="store_true", help="measure vicinal train to its first step")
    parser.add_argument("--shards", type=int, default=0, help="with --train: a folder of so many equal Parquet files")
    parser.add_argument("--model", default="two-view-mlp", help="with --train: the network")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--first-step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_step:
        first_step(*options.first_step)
        return
    if options.train:
        train(options.rows, options.shards, options.model)
        return
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
    print(f"{options.rows:,} rows × {NUMBERS + len(CATEGORIES)} columns; the fastest of {options.rounds} rounds\n")
    print(table(["", "wall s", "cpu s", "peak MB beyond imports", "features MB"], lines), end="\n\n", flush=True)
    train(options.rows, options.shards, options.model)


def _shown(runs: list[dict[str, float]]) -> list[str]:
    best = min(runs, key=lambda one: one["cpu"])
    return [f"{best['wall']:.1f}", f"{best['cpu']:.1f}", f"{best['peak']:,.0f}", f"{best['features']:,.0f}"]


if __name__ == "__main__":
    main()
