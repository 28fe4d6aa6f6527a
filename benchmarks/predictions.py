"""Evaluate a predictions file of 50 million rows: rows per second and peak memory, beside pandas with torchmetrics.

    python -m benchmarks.predictions                          label, prediction, confidence; 50 million rows
    python -m benchmarks.predictions --kind probs             label and ten float32 probabilities (2 GB)
    python -m benchmarks.predictions --rows 1000000           a smoke run

Each contender is a process of its own, so that its peak memory is its own; they take turns. The clock starts after
the imports. Ours gives every metric of `vicinal evaluate` with intervals; the script gives the ECE alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CLASSES = 10
BINS = 15


def make(path: Path, kind: str, rows: int) -> None:
    """Write predictions of a calibrated classifier, a million rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, 1_000_000):
        n = min(1_000_000, rows - start)
        probs = np.exp(3 * random.standard_normal((n, CLASSES), dtype=np.float32))
        probs /= probs.sum(axis=1, keepdims=True)
        labels = (probs.cumsum(axis=1) < random.random((n, 1))).sum(axis=1).clip(0, CLASSES - 1)
        columns = {"label": labels}
        if kind == "probs":
            columns |= {f"prob_{k}": np.ascontiguousarray(probs[:, k]) for k in range(CLASSES)}
        else:
            columns |= {"prediction": probs.argmax(axis=1), "confidence": probs.max(axis=1)}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def ours(path: Path, kind: str) -> tuple[float, float]:
    import pyarrow.parquet  # noqa: F401  # imported by both before the clock starts

    from vicinal.predictions import evaluate_file

    start = time.perf_counter()
    error = evaluate_file(path, n_bins=BINS).ece.value
    return time.perf_counter() - start, error


def script(path: Path, kind: str) -> tuple[float, float]:
    """The obvious way: read the file, make tensors, call the metric."""
    import pandas as pd
    import pyarrow.parquet  # noqa: F401
    import torch
    from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

    start = time.perf_counter()
    frame = pd.read_parquet(path)
    if kind == "probs":
        probs = torch.tensor(frame[[f"prob_{k}" for k in range(CLASSES)]].to_numpy())
        metric = MulticlassCalibrationError(num_classes=CLASSES, n_bins=BINS)
        error = float(metric(probs, torch.tensor(frame["label"].to_numpy())))
    else:
        correct = (frame["label"] == frame["prediction"]).to_numpy().astype(np.int64)
        metric = BinaryCalibrationError(n_bins=BINS)
        error = float(metric(torch.tensor(frame["confidence"].to_numpy()), torch.tensor(correct)))
    return time.perf_counter() - start, error


def peak() -> int:
    """Return the most bytes that this process has held (`ru_maxrss` begins with what its parent held)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


CONTENDERS = {"vicinal": ours, "pandas and torchmetrics": script}


def measured(name: str, path: Path, kind: str) -> dict[str, float]:
    """Run a contender in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.predictions", "--kind", kind, "--contender", name, "--file", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{name} failed: {run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--kind", choices=["confidence", "probs"], default="confidence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contender", choices=list(CONTENDERS))
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    if arguments.contender:
        seconds, error = CONTENDERS[arguments.contender](arguments.file, arguments.kind)
        print(json.dumps({"seconds": seconds, "peak": peak(), "ece": error}))
        return
    from benchmarks.timing import goal, ratio, shown, table, versions

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        make(path, arguments.kind, arguments.rows)
        size = path.stat().st_size
        rounds = [{name: measured(name, path, arguments.kind) for name in CONTENDERS} for _ in range(arguments.rounds)]
    seconds = {name: np.array([found[name]["seconds"] for found in rounds]) for name in CONTENDERS}
    rows = []
    for name in CONTENDERS:
        held = max(found[name]["peak"] for found in rounds) / 1e6
        faster, wanted = "", "< 700 MB" + ("" if held < 700 else " **missed**")
        if name != "vicinal":
            times = ratio(seconds[name], seconds["vicinal"])
            faster, wanted = shown(times), goal(times, at_least=4)
        rows.append(
            [
                name,
                f"{np.median(seconds[name]):.3g} s",
                f"{arguments.rows / np.median(seconds[name]) / 1e6:.3g} M",
                f"{held:,.0f} MB",
                f"{rounds[0][name]['ece']:.7f}",
                faster,
                wanted,
            ]
        )
    columns = "label, prediction, confidence" if arguments.kind == "confidence" else f"label, {CLASSES} probabilities"
    head = f"{arguments.rows:,} rows of {columns} ({size / 1e6:,.0f} MB)"
    print(
        table(
            [head, "time", "rows per second", "peak memory", f"ECE, {BINS} bins", "vicinal is faster by", "goal"], rows
        )
    )
    print(f"\n{versions('pandas', 'pyarrow', 'torchmetrics')}")


if __name__ == "__main__":
    main()
