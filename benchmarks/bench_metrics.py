"""Reliability tables and their intervals, against torchmetrics, netcal and a loop over resamples."""

from __future__ import annotations

import functools
import tracemalloc
import warnings
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torchmetrics.classification import MulticlassCalibrationError
from torchmetrics.functional.classification import multiclass_calibration_error

from benchmarks.timing import goal, interleaved, milliseconds, ratio, shown, table, versions
from vicinal.metrics import ReliabilityTable, error_estimates, evaluate, kernels

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from netcal.metrics import ECE

BINS = 15


@functools.cache
def classifier(rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Float32 probabilities of a calibrated classifier and labels drawn from them."""
    generator = torch.Generator().manual_seed(0)
    probs, labels = torch.empty(rows, classes), torch.empty(rows, dtype=torch.int64)
    for p, y in zip(probs.split(100_000), labels.split(100_000), strict=True):
        p.copy_((4 * torch.randn(p.shape, generator=generator)).softmax(1))
        y.copy_(torch.multinomial(p, 1, generator=generator)[:, 0])
    return probs, labels


def ece(probs: Tensor, labels: Tensor, *, compiled: bool) -> float:
    """The ECE with the compiled loops or without."""
    kernels.load()
    with patch.object(kernels, "_loaded", kernels._loaded if compiled else [None]):
        return ReliabilityTable.from_probs(labels, probs, n_bins=BINS).ece()


def whole_tables(rounds: int = 7) -> str:
    """ECE of predictions held in memory."""
    rows = []
    for n, k in ((10_000_000, 10), (1_000_000, 100)):
        probs, labels = classifier(n, k)
        contenders = {
            "vicinal": lambda p=probs, y=labels: ece(p, y, compiled=False),
            "vicinal[speed]": lambda p=probs, y=labels: ece(p, y, compiled=True),
            "torchmetrics": lambda p=probs, y=labels, k=k: multiclass_calibration_error(
                p, y, num_classes=k, n_bins=BINS
            ),
        }
        seconds = interleaved(contenders, rounds=rounds)
        arrays = probs.numpy(), labels.numpy()
        slow = interleaved(
            {"vicinal": contenders["vicinal"], "netcal": lambda a=arrays: ECE(BINS).measure(*a)}, rounds=3, warmup=0
        )
        values = {
            "vicinal": float(contenders["vicinal"]()),
            "torchmetrics": float(contenders["torchmetrics"]()),
            "netcal": float(ECE(BINS).measure(*arrays)),
        }
        size = f"{n // 1_000_000} M × {k}"
        rows.append([size, "vicinal", milliseconds(seconds["vicinal"]), "", "", f"{values['vicinal']:.7f}"])
        times = shown(ratio(seconds["vicinal"], seconds["vicinal[speed]"]))
        rows.append(
            [
                size,
                "vicinal[speed]",
                milliseconds(seconds["vicinal[speed]"]),
                f"1 / {times}",
                goal(ratio(seconds["vicinal"], seconds["vicinal[speed]"]), at_least=2),
                f"{float(contenders['vicinal[speed]']()):.7f}",
            ]
        )
        for name, taken, least in (("torchmetrics", seconds, 6), ("netcal", slow, 20)):
            faster = ratio(taken[name], taken["vicinal"])
            wanted = goal(faster, at_least=least) if k == 10 or name == "torchmetrics" else ""
            rows.append([size, name, milliseconds(taken[name]), shown(faster), wanted, f"{values[name]:.7f}"])
    return table(["probabilities", "library", "time", "vicinal is faster by", "goal", f"ECE, {BINS} bins"], rows)


def memory() -> str:
    """What a table of 10 M × 10 probabilities (400 MB) allocates beside them."""
    probs, labels = classifier(10_000_000, 10)
    tracemalloc.start()
    ReliabilityTable.from_probs(labels, probs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return f"Extra memory of the table of 10 M × 10: {peak / 1e6:.1f} MB (the probabilities: 400 MB)."


def streaming(rounds: int = 300) -> str:
    """One update with a batch of 256 samples of 1,000 classes, with torch's threads and with one."""
    rows, threads = [], torch.get_num_threads()
    for n in sorted({threads, 1}, reverse=True):
        torch.set_num_threads(n)
        rows += _updates(f"{n} thread{'s' * (n > 1)}", rounds)
    torch.set_num_threads(threads)
    header = [
        "256 × 1,000",
        "vicinal",
        "torchmetrics",
        "faster by",
        "goal",
        "state kept",
        f"after {rounds + 20} updates, torchmetrics",
    ]
    return table(header, rows)


def _updates(threads: str, rounds: int) -> list[list[str]]:
    rows = []
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(256, 1000, generator=generator)
    labels = torch.randint(1000, (256,), generator=generator)
    for kind, scores in (("probs", logits.softmax(1)), ("logits", logits)):
        ours, theirs = ReliabilityTable(BINS), MulticlassCalibrationError(1000, n_bins=BINS)

        def update(ours=ours, kind=kind, scores=scores):
            ours.update(labels, **{kind: scores})

        def their_update(theirs=theirs, scores=scores):
            theirs.update(scores, labels)

        seconds = interleaved({"vicinal": update, "torchmetrics": their_update}, rounds=rounds, warmup=20)
        kept = sum(t.nbytes for t in (*theirs.confidences, *theirs.accuracies))
        own = ours.counts.nbytes + ours.sums.nbytes + ours.squares.nbytes + ours.edges.nbytes
        faster = ratio(seconds["torchmetrics"], seconds["vicinal"])
        times = [milliseconds(seconds[name]) for name in ("vicinal", "torchmetrics")]
        rows.append([f"{kind}, {threads}", *times, shown(faster), goal(faster, at_least=2), f"{own} B", f"{kept} B"])
    return rows


def intervals(rounds: int = 5, resamples: int = 1000) -> str:
    """The intervals of 1 million samples from their bins, and by 1,000 resamples (timed on 10)."""
    probs, labels = classifier(1_000_000, 100)
    held = evaluate(labels, probs=probs)
    confidence = held.samples.confidence.astype(np.float64)
    correct = held.samples.predictions == held.samples.labels
    random = np.random.default_rng(0)

    def loop(times: int = 10) -> list[float]:
        found = []
        for _ in range(times):
            pick = random.integers(len(confidence), size=len(confidence))
            found.append(ReliabilityTable.from_confidences(confidence[pick], correct[pick]).ece())
        return found

    seconds = interleaved({"bins": lambda: error_estimates(held.table), "loop": loop}, rounds=rounds)
    seconds["loop"] *= resamples / 10
    rows = [
        ["from the bins (ECE, OE, MCE, RMS together)", milliseconds(seconds["bins"]), ""],
        [
            "loop over resamples, ECE (10 timed × 100)",
            milliseconds(seconds["loop"]),
            shown(ratio(seconds["loop"], seconds["bins"])),
        ],
    ]
    return table(["1,000 resamples of 1 M samples", "time", "faster by"], rows)


def main() -> None:
    print(versions("torchmetrics", "netcal", "numpy"))
    for part in (streaming, intervals, whole_tables, memory):
        print(f"\n{part()}", flush=True)


if __name__ == "__main__":
    main()
