"""Rows per second of each stage on one and two processes, and what Ray adds.

    python -m benchmarks scale
    python -m benchmarks.bench_scale --rows 20000000 --memory-only        evaluate of 20 M rows, under 600 MB

Two processes take turns with one, so that the noise of the machine hits both. The fastest of the rounds counts, because
what else runs only adds time. Each process has one thread. The clock starts when all have imported what they need.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.timing import marked, table, versions

#: Rows of a shard, shards, and columns of numbers in the table that is trained on.
SHARDS, COLUMNS = 8, 20
#: The goals: the time of two workers beside that of one, and the memory of `evaluate` in MB.
GOAL, MEMORY = 0.6, 600


def make(folder: Path, rows: int, *, features: bool) -> None:
    """Write shards of a table of numbers with two classes, and shards of predictions of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("table", "predictions"):
        (folder / name).mkdir()
    for k in range(SHARDS):
        random, n = np.random.default_rng(k), rows // SHARDS
        numbers = random.standard_normal((COLUMNS if features else 1, n), dtype=np.float32)
        probs = 1 / (1 + np.exp(-2 * numbers[0].astype(np.float64)))
        labels = (random.random(n) < probs).astype(np.int64)
        if features:
            columns = {f"x{j}": numbers[j] for j in range(COLUMNS)} | {"y": labels}
            pq.write_table(pa.table(columns), folder / "table" / f"part-{k}.parquet", row_group_size=2**17)
        scores = {"label": labels, "prob_0": 1 - probs, "prob_1": probs}
        pq.write_table(pa.table(scores), folder / "predictions" / f"part-{k}.parquet", row_group_size=2**17)


def read(folder: Path, mine: list[int]) -> int:
    from vicinal.tables import open_table

    return sum(len(c) for k in mine for c in open_table(folder / "table" / f"part-{k}.parquet").chunks())


def load_together(folder: Path, mine: list[int]) -> int:
    """Load the table to train on; several processes read it together, as under torchrun."""
    import torch.distributed as dist

    from vicinal import data
    from vicinal.data.readers import Readers

    world = int(os.environ["WORLD_SIZE"])
    if not mine:
        if world > 1:
            dist.init_process_group("gloo")
        return 0
    task = data.load(
        str(folder / "table"), data.TableOptions(features="standard"), target="y", readers=Readers.joined()
    )
    return sum(map(len, (task.train, task.val, task.test))) // world


def encode(folder: Path, mine: list[int]) -> int:
    import vicinal

    bundle = vicinal.load(folder / "run")
    return sum(len(split) for k in mine for _, split in bundle.stream(folder / "table" / f"part-{k}.parquet"))


def step(folder: Path, mine: list[int]) -> int:
    import torch

    from vicinal import Mixup

    network = torch.nn.Sequential(torch.nn.Linear(COLUMNS, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))
    optimizer, objective = torch.optim.AdamW(network.parameters()), Mixup(alpha=0.2)
    x, y = torch.randn(1024, COLUMNS), torch.randint(2, (1024,))
    steps = 60 * len(mine)
    for _ in range(steps):
        optimizer.zero_grad()
        objective(network, x, y).backward()
        optimizer.step()
    return steps * len(y)


def predict(folder: Path, mine: list[int]) -> int:
    import vicinal
    from vicinal.predictions import write

    bundle, n = vicinal.load(folder / "run"), 0
    for k in mine:
        blocks = bundle.stream(folder / "table" / f"part-{k}.parquet")
        chunks = (({"row": rows}, bundle.calibrated(logits).numpy()) for rows, split in blocks
                  for logits in bundle.iter_logits(split, batch_size=len(split)))  # fmt: skip
        n += write(folder / f"out-{k}.parquet", bundle.classes, chunks)
    return n


def evaluate(folder: Path, mine: list[int]) -> int:
    from vicinal.predictions import binary_of_file, evaluate_file

    n = 0
    for k in mine:
        path = folder / "predictions" / f"part-{k}.parquet"
        n += evaluate_file(path).n
        binary_of_file(path)
    return n


STAGES: dict[str, Callable[[Path, list[int]], int]] = {
    "read": read, "load to train": load_together, "encode": encode, "train step": step, "predict": predict,
    "evaluate": evaluate,
}  # fmt: skip


def worker(name: str, folder: Path, mine: list[int]) -> None:
    """Do a stage for some shards, when told to; print the rows."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401  # else the first file would be charged for it
    import torch

    torch.set_num_threads(1)
    STAGES[name](folder, [])  # the other imports
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.process_time()
    print(STAGES[name](folder, mine), time.process_time() - began, flush=True)


def processes(name: str, folder: Path, n: int) -> tuple[float, float, int]:
    """Return the seconds that `n` processes take for all shards, those of the processor, and the rows.

    Of the processor's seconds those of the busiest process count: they hardly depend on what else runs.
    """
    each = [[k for k in range(SHARDS) if k % n == i] for i in range(n)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(n),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bench_scale", "--worker", name, "--folder", str(folder),
             "--mine", ",".join(map(str, mine))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**given, "RANK": str(rank)},
        ) for rank, mine in enumerate(each)
    ]  # fmt: skip
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()
    start = time.perf_counter()
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    said = [one.stdout.readline().split() for one in started if one.stdout is not None]
    seconds = time.perf_counter() - start
    for one in started:
        one.communicate()
    return seconds, max(float(busy) for _, busy in said), sum(int(rows) for rows, _ in said)


def memory(folder: Path) -> float:
    """Return the peak memory of `vicinal evaluate` of all shards, in MB."""
    # `ru_maxrss` would be that of this process where it is larger: a child starts with its parent's.
    code = (
        "import sys; sys.argv = ['vicinal', 'evaluate', sys.argv[1], '--json']\n"
        "from vicinal.cli import main\n"
        "def peak(): return next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1]\n"
        "try: main()\n"
        "finally: print(int(peak()) // 1024, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "predictions")], capture_output=True, text=True, check=True
    )
    return float(done.stderr.split()[-1])


def on_ray(folder: Path, rounds: int) -> list[list[str]]:
    """Return the rows on Ray: `evaluate` of all shards by one and two workers, beside one process without it."""
    import ray

    from vicinal.predictions import binary_of_file, evaluate_file, open_file
    from vicinal.runs.scheduler import Pool
    from vicinal.runs.shards import evaluate_shards

    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    file = open_file(folder / "predictions")

    def alone() -> None:
        evaluate_file(file)
        binary_of_file(file)

    ways: dict[str, Callable[[], object]] = {
        "one process": alone,
        "Ray, 1 worker": lambda: evaluate_shards(file, Pool(backend="ray", workers=1)),
        "Ray, 2 workers": lambda: evaluate_shards(file, Pool(backend="ray", workers=2)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):  # the first turn starts the workers
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    ray.shutdown()
    alone_s, one_s, two_s = map(min, times.values())
    n = file.n_rows or 0
    return [
        ["one process", f"{alone_s:.2f} s", f"{n / alone_s / 1e6:.2f} M", "", ""],
        ["Ray, 1 worker", f"{one_s:.2f} s", f"{n / one_s / 1e6:.2f} M", f"{one_s / alone_s:.2f} of one process", ""],
        ["Ray, 2 workers", f"{two_s:.2f} s", f"{n / two_s / 1e6:.2f} M", f"{two_s / one_s:.2f} of one worker",
         marked(f"≤ {GOAL:g}", two_s <= GOAL * one_s)],
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--mine", default="")
    parser.add_argument("--memory-only", action="store_true")
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, given.folder, [int(k) for k in given.mine.split(",") if k])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, given.rows, features=not given.memory_only)
        if not given.memory_only:
            options = ["--target", "y", "--model", "mlp", "--steps", "20", "--out", str(folder / "run")]
            train = [sys.executable, "-m", "vicinal", "train", str(folder / "table" / "part-0.parquet"), *options]
            subprocess.run(train, check=True, capture_output=True)
            rows = []
            for stage in STAGES:
                times: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
                counts: dict[int, int] = {}
                for _ in range(given.rounds):
                    for n in times:
                        *seconds, counts[n] = processes(stage, folder, n)
                        times[n].append((seconds[0], seconds[1]))
                (one, two), (busy, busiest) = ([min(pair[k] for pair in times[n]) for n in (1, 2)] for k in (0, 1))
                rate = [f"{counts[n] / seconds / 1e6:.2f} M" for n, seconds in ((1, one), (2, two))]
                reached = marked(f"≤ {GOAL:g}", two <= GOAL * one)
                rows.append([stage, *rate, f"{two / one:.2f}", f"{busiest / busy:.2f}", reached])
            header = ["1 process, rows/s", "2 processes", "time of two", "processor time of the busier", "goal"]
            print(table([f"{given.rows:,} rows", *header], rows))
            print()
            large = folder / "large"  # a task of Ray costs some 10 ms, so that small shards measure that alone
            large.mkdir()
            make(large, 4 * given.rows, features=False)
            header = [f"evaluate {4 * given.rows:,} rows, two classes", "time", "rows/s", "beside", "goal"]
            print(table(header, on_ray(large, given.rounds)))
            print()
        peak = memory(folder)
        print(table(["`vicinal evaluate`, two classes", "peak memory", "goal"],
                    [[f"{given.rows:,} rows", f"{peak:.0f} MB", marked(f"< {MEMORY} MB", peak < MEMORY)]]))  # fmt: skip
        print(f"\n{versions('ray', 'pyarrow')}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
