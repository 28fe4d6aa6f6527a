"""How often each objective makes the host wait for a device, and how many graphs its compiled step has.

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
from tests.contracts.test_devices import ALLOWED, INDEX_THERE
from tests.contracts.test_distributed import Words

import vicinal
from benchmarks.timing import marked, table
from vicinal.objectives.guided.aum import AUMRecorder


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
        counts = [str(len(step["waits"])), str(len(without["waits"])), str(len(step["copies"])), str(step["kernels"])]
        rows.append([f"`{name}`", *counts, _at_most(allowed, len(step["waits"])), events])
    for part, where, most in (("index there", "`index` there", INDEX_THERE), ("decoders", "a decoder", {})):
        for name, step in found[part].items():
            n, allowed = len(step["waits"]), most.get(name, 0)
            rows.append([f"`{name}`, {where}", str(n), "", str(len(step["copies"])), "", _at_most(allowed, n), ""])
    for name, step in found["training"]["steps"].items():
        n = len(step["waits"])
        rows.append([f"`fit` with `{name}`", "", str(n), str(len(step["copies"])), "", _at_most(0, n), ""])
    n = len(found["metrics"]["waits"])
    rows.append(["torchmetrics, an update", str(n), "", "", "", _at_most(0, n), ""])
    header = ["objective", "waits", "without float64", "copies nobody waits for", "kernels", "goal", "what for"]
    return table(header, rows)


def _at_most(allowed: int, n: int) -> str:
    return marked(f"≤ {allowed}", n <= allowed)


#: Graphs that a compiled step may have: one for each thing that a draw decides, such as a layer, and one more after
#: each time that the host looks at the logits.
GRAPHS = {
    "ERM()": 1,
    "Mixup(alpha=1.0)": 1,
    "KMixup(alpha=1.0, k=3)": 1,
    "CutMix()": 1,
    "CutMix(per_sample=True)": 1,
    "ResizeMix()": 1,
    "GaussianVicinity(sigma=0.1)": 1,
    "LogitMix(Mixup(alpha=3.0))": 1,
    "RegMixup(Mixup(alpha=10.0))": 1,
    "RandomChoice(Mixup(alpha=0.8), CutMix())": 2,
    "ManifoldMixup(layers=['input', 'hidden.0'])": 2,
    "SequenceMixup.manifold(layers=[0, 1, 'head'])": 3,
    "PuzzleMix(block_counts=[2, 4])": 2,
    "GuidedMixup(pool='batch')": 3,
    "AUM": 2,
}


def graphs(steps: int = 8) -> str:
    """The graphs after the first and the last of some steps, each compiled as a whole."""
    from torch._dynamo.utils import counters

    rows = []
    for text, allowed in GRAPHS.items():
        torch._dynamo.reset()
        counters.clear()
        model, (x, y) = MLP(), batch(8)
        if text.startswith("Sequence"):
            model, x = Words(), torch.randint(30, (8, 6))
        aum = vicinal.GuidedMixup(pool="batch").tracker(8)
        aum.update(torch.randn(8, 5), y, torch.arange(8), epoch=0)
        objective = AUMRecorder(aum) if text == "AUM" else vicinal.parse(text)
        objective = objective.bind(aum) if isinstance(objective, vicinal.GuidedMixup) else objective
        how = {"index": torch.arange(8), "epoch": 0.5}
        step = torch.compile(lambda x, y, o=objective, m=model, how=how: o(m, x, y, **how), backend="eager")
        after = []
        for s in range(steps):
            torch.manual_seed(s)
            step(x, y)
            after.append(counters["stats"]["unique_graphs"])
        rows.append([f"`{text}`", str(after[0]), str(after[-1]), marked(f"≤ {allowed}", after[-1] <= allowed)])
    return table(["objective", "graphs after a step", f"after {steps}", "goal"], rows)


def main() -> None:
    print(waits(), flush=True)
    print(f"\n{graphs()}", flush=True)


if __name__ == "__main__":
    main()
