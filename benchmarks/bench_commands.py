"""Whole commands, each a process of its own: what its user waits for, imports and all.

    python -m benchmarks commands                              start-up, and predict of 5 million rows
    python -m benchmarks.bench_commands --rows 50000           a smoke run

`vicinal evaluate` of large files is `python -m benchmarks predictions`, `vicinal train` of a million rows to its first
step is in `python -m benchmarks tables`.

Seconds are of the processor, user and system, of the whole process; the peak is that of its memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.timing import marked, table

COLUMNS = 6


#: Runs a command and prints what it used. A process of its own, since a child's peak begins with that of its parent.
MEASURED = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "vicinal", *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def run(words: list[str]) -> tuple[float, float]:
    """Run a command; return seconds of the processor and the peak of memory in MB."""
    cpu, peak = subprocess.check_output([sys.executable, "-c", MEASURED, *words], text=True).split()[-2:]
    return float(cpu), float(peak)


def start_up(folder: Path, rounds: int = 5) -> str:
    """`vicinal evaluate` of a file of 100 rows, beside `vicinal --help`."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    random = np.random.default_rng(0)
    first = random.random(100)
    small = pa.table({"label": random.integers(2, size=100), "prob_0": first, "prob_1": 1 - first})
    parquet.write_table(small, folder / "small.parquet")
    lines = ["label,prob_0,prob_1", *(f"{i % 2},{p:.6f},{1 - p:.6f}" for i, p in enumerate(first))]
    (folder / "small.csv").write_text("\n".join(lines))
    rows = []
    for name, words, most in (
        ("vicinal --help", ["--help"], 0.5),
        ("vicinal evaluate small.csv", ["evaluate", str(folder / "small.csv")], 1.0),
        ("vicinal evaluate small.parquet", ["evaluate", str(folder / "small.parquet")], 1.0),
    ):
        found = [run(words) for _ in range(rounds + 1)][1:]  # the first reads the files of its modules
        taken = float(np.median([cpu for cpu, _ in found]))
        wanted = marked(f"≤ {most:g} s", taken <= most)
        rows.append([f"`{name}`", f"{taken:.2f} s", f"{max(peak for _, peak in found):,.0f} MB", wanted])
    return table(["start-up", "cpu", "peak", "goal"], rows)


def rows_file(path: Path, rows: int) -> Path:
    """Write a table of normal numbers and two classes, a million rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    random = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, 1_000_000):
        x = random.standard_normal((min(1_000_000, rows - start), COLUMNS), dtype=np.float32)
        label = pa.array(np.where(x[:, 0] + x[:, 1] ** 2 > 0.5, "yes", "no"))
        part = pa.table({**{f"x{k}": x[:, k].copy() for k in range(COLUMNS)}, "label": label})
        writer = writer or parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()
    return path


def predicting(folder: Path, rows: int) -> str:
    """`vicinal predict`, streamed, beside the same one row at a time."""
    train, model = rows_file(folder / "train.parquet", 2_000), str(folder / "run")
    run(["train", str(train), "--target", "label", "--model", "mlp", "--steps", "50", "--out", model])

    def predict(n: int, *options: str) -> tuple[float, float]:
        data, out = rows_file(folder / f"{n}.parquet", n), folder / "answers.parquet"
        out.unlink(missing_ok=True)
        return run(["predict", model, str(data), "--out", str(out), *options])

    few, some = predict(100), max(rows // 100, 1_000)
    tenth, whole, one_by_one = predict(rows // 10), predict(rows), predict(some, "--batch-size", "1")
    rates = [rows / (whole[0] - few[0]), some / max(one_by_one[0] - few[0], 1e-9)]
    faster, growth = rates[0] / rates[1], whole[1] / tenth[1]
    shown = [
        [f"{rows // 10:,} rows", f"{tenth[0]:.1f} s", "", f"{tenth[1]:,.0f} MB", "", ""],
        [
            f"{rows:,} rows",
            f"{whole[0]:.1f} s",
            f"{rates[0]:,.0f}",
            f"{whole[1]:,.0f} MB",
            f"{faster:.0f}× row by row; {growth:.2f}× the memory of a tenth of the rows",
            marked("≥ 5×, constant memory", faster >= 5 and growth <= 1.2),
        ],
        [
            f"{some:,} rows, `--batch-size 1`",
            f"{one_by_one[0]:.1f} s",
            f"{rates[1]:,.0f}",
            f"{one_by_one[1]:,.0f} MB",
            "",
            "",
        ],
    ]
    head = ["`vicinal predict`, 6 columns", "cpu", "rows a second beyond the start", "peak", "compared", "goal"]
    return table(head, shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows to predict")
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        print(start_up(Path(name)), end="\n\n", flush=True)
        print(predicting(Path(name), rows))


if __name__ == "__main__":
    main()
