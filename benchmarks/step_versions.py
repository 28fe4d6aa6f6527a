"""Training steps of two versions of the sources, in turns: is a step slower than it was?

    python -m benchmarks.step_versions CHECKOUT [SECONDS]

CHECKOUT is a clone or worktree of the older commit. Each version runs in a process of its own on one thread, and takes
one step at a time, when it is asked. What counts is processor time.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

IMAGES = ("ERM()", "Mixup(alpha=1.0)", "CutMix()", "LogitMix(Mixup(alpha=3.0))", "PuzzleMix()")
TEXTS = ("ERM()", "SequenceMixup.input()", "LogitMix(SequenceMixup.input())")
STEPS = [("ResNet-18", m) for m in IMAGES] + [("ViT-tiny", m) for m in IMAGES] + [("MiniLM", m) for m in TEXTS]
ROOT = Path(__file__).parents[1]


def serve() -> None:
    """Answer each line of standard input, the number of a step, with its processor seconds."""
    import timm
    import torch

    from benchmarks.bench_steps import mini_lm
    from benchmarks.resnet import CifarResNet18, step_with
    from vicinal import parse
    from vicinal.training import kept_memory

    torch.set_num_threads(1)
    torch.manual_seed(0)
    texts = {"input_ids": torch.randint(1000, 2000, (8, 64)), "attention_mask": torch.ones(8, 64, dtype=torch.long)}
    inputs = {
        "ResNet-18": (torch.randn(64, 3, 32, 32), torch.randint(10, (64,)), CifarResNet18),
        "ViT-tiny": (
            torch.randn(16, 3, 112, 112),
            torch.randint(10, (16,)),
            lambda: timm.create_model("vit_tiny_patch16_224", img_size=112, num_classes=10),
        ),
        "MiniLM": (texts, torch.randint(2, (8,)), mini_lm),
    }
    steps = [step_with(parse(m), *inputs[net][:2], make=inputs[net][2]) for net, m in STEPS]
    with kept_memory():
        for step in steps:
            step()
        print("ready", flush=True)
        for line in sys.stdin:
            start = time.process_time()
            steps[int(line)]()
            print(time.process_time() - start, flush=True)


def main(checkout: str, seconds: float = 300.0) -> None:
    import torch

    from benchmarks.timing import table, versions

    torch.set_num_threads(1)  # as those that are started have

    def started(root: Path) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(root / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        call = [sys.executable, "-W", "ignore", "-m", "benchmarks.step_versions"]
        return subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT)

    asked = {"old": started(Path(checkout).resolve()), "new": started(ROOT)}
    for process in asked.values():
        while process.stdout.readline().strip() != "ready":
            if process.poll() is not None:
                raise SystemExit("a version could not be started")
    took: dict[tuple[str, int], list[float]] = {(which, i): [] for which in asked for i in range(len(STEPS))}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for i in range(len(STEPS)):
            for which in random.sample(list(asked), 2):  # in either order, so that neither always follows the other
                asked[which].stdin.write(f"{i}\n")
                asked[which].stdin.flush()
                took[which, i].append(float(asked[which].stdout.readline()))
    for process in asked.values():
        process.stdin.close()
        process.wait()
    rows = []
    for i, (net, method) in enumerate(STEPS):
        plain = STEPS.index((net, "ERM()"))
        ratios = sorted(b / a for a, b in zip(took["old", i], took["new", i], strict=True))
        tenth = len(ratios) // 10
        of_erm = [
            statistics.median(b / a for a, b in zip(took[w, plain], took[w, i], strict=True)) for w in ("old", "new")
        ]
        shown = f"{statistics.median(ratios):.2f} ({ratios[tenth]:.2f}–{ratios[-1 - tenth]:.2f})"
        rows.append([net, f"`{method}`", shown, *(f"{x:.2f}×" for x in of_erm)])
    print(versions("timm", "transformers"), f"{len(took['old', 0])} rounds", sep="; ", end="\n\n")
    print(table(["network", "method", "new / old (80 % of rounds)", "of ERM, old", "of ERM, new"], rows))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:
        main(sys.argv[1], *map(float, sys.argv[2:]))
