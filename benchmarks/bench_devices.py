"""What makes the host wait for a device, and how many graphs a compiled step has, of every objective.

The device is the simulated one of the tests, so this needs no GPU and measures no time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch
from tests.contracts.cases import MLP, batch
from tests.contracts.test_devices import ALLOWED

import vicinal
from benchmarks.timing import MISSED, table


def waits() -> str:
    """The blocking events, copies and kernels of a steady step, forward and backward."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.on_device"], cwd=Path(__file__).parents[1], capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    rows = []
    for name, step in found["objectives"].items():
        without = found["without float64"][name]
        events = ", ".join(f"{n} × {event}" if n > 1 else event for event, n in Counter(step["waits"]).items())
        allowed = ALLOWED.get(name, 0)
        met = "" if len(step["waits"]) <= allowed else f" {MISSED}"
        counts = [str(len(step["waits"])), str(len(without["waits"])), str(len(step["copies"])), str(step["kernels"])]
        rows.append([f"`{name}`", *counts, f"≤ {allowed}{met}", events])
    for name, step in found["training"]["steps"].items():
        rows.append([f"`fit` with `{name}`", "", str(len(step["waits"])), str(len(step["copies"])), "", "0", ""])
    step = found["metrics"]
    rows.append(["torchmetrics, an update", str(len(step["waits"])), "", "", "", "0", ""])
    header = ["objective", "waits", "without float64", "copies nobody waits for", "kernels", "goal", "what for"]
    return table(header, rows)


def graphs(steps: int = 6) -> str:
    """The graphs after the first and the last of some steps, each compiled as a whole."""
    from torch._dynamo.utils import counters

    rows = []
    for text in ("ERM()", "Mixup(alpha=1.0)", "CutMix()", "CutMix(per_sample=True)", "KMixup(alpha=1.0, k=3)",
                 "GaussianVicinity(sigma=0.1)", "LogitMix(Mixup(alpha=3.0))", "RegMixup(Mixup(alpha=10.0))",
                 "ManifoldMixup(layers=['input', 'hidden'])", "RandomChoice(Mixup(alpha=0.8), CutMix())",
                 "PuzzleMix(block_counts=[2, 4])"):  # fmt: skip
        torch._dynamo.reset()
        counters.clear()
        model, objective, (x, y) = MLP(), vicinal.parse(text), batch(8)
        step = torch.compile(lambda x, y, o=objective, m=model: o(m, x, y), backend="eager")
        after = []
        for s in range(steps):
            torch.manual_seed(s)
            step(x, y)
            after.append(counters["stats"]["unique_graphs"])
        rows.append([f"`{text}`", str(after[0]), str(after[-1])])
    return table(["objective", "graphs after a step", f"after {steps}"], rows)


def main() -> None:
    print(waits(), flush=True)
    print(f"\n{graphs()}", flush=True)


if __name__ == "__main__":
    main()
