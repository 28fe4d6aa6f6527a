"""Temperature scaling against netcal, scikit-learn and torch-uncertainty, interleaved in one process.

Every library is handed the input it likes best, made before the clock starts: netcal float64 probabilities (on
float32 it silently returns 1), scikit-learn's solver an array, torch-uncertainty a loader of one
batch. A ratio is the median over rounds of (theirs / ours) within a round.

    python benchmarks/bench_calibrators.py [--rows 50000] [--classes 1000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import logging
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vicinal.calibrators import HistogramBinning, IsotonicCalibration, TemperatureScaling, VectorScaling

PLANTED = 1.7
Fit = Callable[[], float]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    logits, labels = planted(args.rows, args.classes)
    print(temperature_table(logits, labels, args.rounds))
    print()
    print(own_table(args.rounds))


def planted(rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Float32 logits whose labels are drawn from softmax(logits / PLANTED)."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, classes, generator=generator)
    labels = torch.cat(
        [torch.multinomial((z / PLANTED).softmax(1), 1, generator=generator)[:, 0] for z in logits.split(5_000)]
    )
    return logits, labels


def temperature_table(logits: Tensor, labels: Tensor, rounds: int) -> str:
    fits = {"vicinal": lambda: TemperatureScaling().fit(logits, labels).temperature_}
    for peer, build in (
        ("netcal", netcal_fit),
        ("scikit-learn", sklearn_fit),
        ("torch-uncertainty", torch_uncertainty_fit),
    ):
        if importlib.util.find_spec({"scikit-learn": "sklearn"}.get(peer, peer.replace("-", "_"))):
            fits[peer] = build(logits, labels)
    fits["vicinal"]()  # threads and allocator are warm for everyone
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name, fit in fits.items():
            start = time.perf_counter()
            found[name] = fit()
            seconds[name].append(time.perf_counter() - start)
    lines = [
        f"Temperature on {len(logits):,} × {logits.shape[1]:,} float32 logits, planted T = {PLANTED}, "
        f"{torch.get_num_threads()} threads, median of {rounds}",
        "",
        "| library | seconds | times vicinal | T | T − ours |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, times in seconds.items():
        ratio = statistics.median(t / ours for t, ours in zip(times, seconds["vicinal"], strict=True))
        label = name if name == "vicinal" else f"{name} {importlib.metadata.version(name)}"
        lines.append(
            f"| {label} | {statistics.median(times):.3f} | {ratio:.1f} | {found[name]:.6f} "
            f"| {found[name] - found['vicinal']:+.1e} |"
        )
    return "\n".join(lines)


def own_table(rounds: int, rows: int = 20_000, classes: int = 100) -> str:
    """What each calibrator costs; there is no claim about peers here."""
    logits, labels = planted(rows, classes)
    lines = [f"Seconds on {rows:,} × {classes} float32 logits", "", "| calibrator | fit | call |", "|---|---:|---:|"]
    for calibrator in (
        TemperatureScaling(),
        TemperatureScaling(search="grid"),
        TemperatureScaling(search="grid", criterion="ece"),
        VectorScaling(),
        HistogramBinning(),
        IsotonicCalibration(),
    ):
        fit, call = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            calibrator.fit(logits, labels)
            middle = time.perf_counter()
            calibrator(logits)
            fit.append(middle - start)
            call.append(time.perf_counter() - middle)
        lines.append(f"| `{calibrator}` | {statistics.median(fit):.3f} | {statistics.median(call):.3f} |")
    return "\n".join(lines)


def netcal_fit(logits: Tensor, labels: Tensor) -> Fit:
    from netcal.scaling import TemperatureScaling as Peer

    probs, y = logits.double().softmax(1).numpy(), labels.numpy()

    def fit() -> float:
        peer = Peer()
        peer.fit(probs, y)
        return float(1 / np.asarray(peer.temperature).item())  # netcal multiplies by what it calls temperature

    return fit


def sklearn_fit(logits: Tensor, labels: Tensor) -> Fit:
    # The solver inside CalibratedClassifierCV(method="temperature"), without what the wrapper adds to its time.
    from sklearn.calibration import _TemperatureScaling as Peer

    X, y = logits.numpy(), labels.numpy()
    return lambda: float(1 / Peer().fit(X, y).beta_)


def torch_uncertainty_fit(logits: Tensor, labels: Tensor) -> Fit:
    from torch_uncertainty.post_processing import TemperatureScaler

    def fit() -> float:
        peer = TemperatureScaler()
        peer.fit([(logits, labels)], progress=False)
        return float(peer.temperature[0])

    return fit


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    main()
