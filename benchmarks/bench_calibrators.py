"""Calibrators against probmetrics, scikit-learn, netcal and torch-uncertainty: how good, and how fast.

How good: every calibrator is fitted on the validation part of each set of real scores (see `benchmarks.scores`) and
judged on its test part. Peers get probabilities (the floor of ours in place of 0), and NLL is of probabilities of at
least 1e-12. Differences to `auto` are paired over sets.

How fast: temperature scaling, interleaved in one process.

Every library is handed the input it likes best, made before the clock starts: netcal float64 probabilities (on
float32 it silently returns 1), scikit-learn's solver an array, torch-uncertainty a loader of one
batch. A ratio is the median over rounds of (theirs / ours) within a round.

    python -m benchmarks.bench_calibrators [--scores FOLDER] [--seed 1] [--sets 500] [--out FILE]
        [--again "vicinal auto"]
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import logging
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.scores import Scores, all_scores
from benchmarks.timing import marked
from vicinal import calibrate, evaluate
from vicinal._atomic import replacing
from vicinal.calibrators import (
    CALIBRATORS,
    HistogramBinning,
    IsotonicCalibration,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
)
from vicinal.calibrators.auto import least_prob
from vicinal.calibrators.base import softmax

PLANTED = 1.7
Fit = Callable[[], float]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scores", type=Path, default=Path(tempfile.gettempdir()) / "vicinal-scores")
    parser.add_argument("--seed", type=int, default=1, help="of the parts and models of tables")
    parser.add_argument("--sets", type=int, default=500, help="at most so many sets; 0 for none")
    parser.add_argument("--out", type=Path, help="JSON lines of the results; what it holds is not measured again")
    parser.add_argument("--again", nargs="*", default=(), metavar="NAME", help="contenders to measure again")
    args = parser.parse_args(argv)
    if args.sets:
        out = args.out or args.scores / f"seed-{args.seed}.jsonl"
        print(quality_table(measured_sets(args.scores, args.seed, args.sets, out, args.again)))
        print()
    logits, labels = planted(args.rows, args.classes)
    print(temperature_table(logits, labels, args.rounds))
    print()
    print(own_table(args.rounds))


Calibrate = Callable[[Any, Any, Any], Any]
#: A set: what it is, and what each contender gives.
Record = dict[str, Any]
_ABOUT = ("set", "n", "classes", "test")


def ours(name: str) -> Calibrate:
    def run(val: Any, labels: Any, test: Any) -> Any:
        return calibrate(labels, probs=val, method=name).predict_proba(probs=test)

    return run


def contenders() -> dict[str, Calibrate]:
    """Return what is compared: validation probabilities and labels, and test probabilities in; probabilities out."""
    found = {f"vicinal {name}": ours(name) for name in ("auto", "none", *CALIBRATORS)}
    if importlib.util.find_spec("probmetrics"):
        from probmetrics.calibrators import SMSCalibrator, SVSCalibrator, TemperatureScalingCalibrator

        for name, kind in (("svs", SVSCalibrator), ("sms", SMSCalibrator), ("ts", TemperatureScalingCalibrator)):
            found[f"probmetrics {name}"] = lambda val, y, test, kind=kind: kind().fit(val, y).predict_proba(test)
    if importlib.util.find_spec("sklearn"):
        for name in ("temperature", "isotonic", "sigmoid"):
            found[f"scikit-learn {name}"] = functools.partial(sklearn_calibrated, name)
    if importlib.util.find_spec("netcal"):
        found["netcal temperature"] = functools.partial(netcal_calibrated, "TemperatureScaling")
        found["netcal beta"] = functools.partial(netcal_calibrated, "BetaCalibration")
    if importlib.util.find_spec("torch_uncertainty"):
        for name in ("TemperatureScaler", "VectorScaler"):
            found[f"torch-uncertainty {name}"] = functools.partial(torch_uncertainty_calibrated, name)
    return found


def sklearn_calibrated(method: str, val: Any, labels: Any, test: Any) -> Any:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Given(ClassifierMixin, BaseEstimator):
        """A classifier whose rows are its probabilities."""

        def fit(self, X: Any, y: Any) -> Any:
            self.classes_ = np.unique(y)
            return self

        def predict_proba(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:
            return self.classes_[X.argmax(axis=1)]

    every = np.arange(val.shape[1])
    given = Given().fit(val, every)
    fitted = CalibratedClassifierCV(FrozenEstimator(given), method=method).fit(val, labels)
    probs = np.zeros(test.shape)
    probs[:, fitted.classes_] = fitted.predict_proba(test)
    return probs


def netcal_calibrated(name: str, val: Any, labels: Any, test: Any) -> Any:
    import netcal.scaling

    peer = getattr(netcal.scaling, name)()
    two = val.shape[1] == 2
    peer.fit(val[:, 1] if two else val, labels)
    out = np.asarray(peer.transform(test[:, 1] if two else test))
    return np.stack([1 - out.ravel(), out.ravel()], axis=1) if two else out


def torch_uncertainty_calibrated(name: str, val: Any, labels: Any, test: Any) -> Any:
    import torch_uncertainty.post_processing as post

    peer = getattr(post, name)(**({"num_classes": val.shape[1]} if name == "VectorScaler" else {}))
    logits = [torch.from_numpy(np.log(part)).float() for part in (val, test)]
    peer.fit([(logits[0], torch.from_numpy(labels))], progress=False)
    with torch.no_grad():
        return peer._scale(logits[1]).softmax(dim=1).numpy()


def measured_sets(folder: Path, seed: int, most: int, out: Path, again: Collection[str] = ()) -> list[Record]:
    """Return NLL, Brier score, ECE, smooth ECE and seconds of every contender on every set.

    What the file holds is not measured again, except for the contenders named in `again`.
    """
    every = contenders()
    kept = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    records = {record["set"]: {k: v for k, v in record.items() if k not in again} for record in kept}
    for scores in itertools.islice(all_scores(folder, seed), most):
        record = records.setdefault(scores.name, {"set": scores.name})
        missing = [name for name in every if name not in record]
        if missing:
            measure_set(record, scores, {name: every[name] for name in missing})
            with replacing(out) as temporary:
                temporary.write_text("".join(json.dumps(one) + "\n" for one in records.values()))
    return [{name: record[name] for name in [*_ABOUT, *every]} for record in records.values()]


def prepared(scores: Scores) -> tuple[Any, Any]:
    """Return the probabilities of the validation and the test part, with the floor of ours in place of 0."""
    val, test = (softmax(x) if scores.kind == "logits" else x for x in (scores.val, scores.test))
    least = least_prob(val)
    val, test = (np.maximum(x, least) / np.maximum(x, least).sum(axis=1, keepdims=True) for x in (val, test))
    return val, test


def measure_set(record: Record, scores: Scores, runs: Mapping[str, Calibrate]) -> None:
    """Add what contenders give on a set to its record."""
    val, test = prepared(scores)
    record |= {"n": len(val), "classes": val.shape[1], "test": len(test)}

    def calibrated(run: Calibrate) -> Any:
        probs = np.asarray(run(val, scores.val_labels, test), dtype=np.float64)
        if not np.isfinite(probs).all():
            raise ValueError("probabilities that are not finite")
        probs = np.clip(probs, 1e-12, 1)
        return probs / probs.sum(axis=1, keepdims=True)

    def losses(probs: Any) -> Any:
        return -np.log(probs[np.arange(len(test)), scores.test_labels])

    for name, run in runs.items():
        start = time.perf_counter()
        try:
            probs = calibrated(run)
        except Exception as error:
            record[name] = {"error": repr(error)[:200]}
            continue
        seconds = time.perf_counter() - start
        found = evaluate(scores.test_labels, probs=probs, metrics=["nll", "brier", "ece", "smooth_ece"])
        record[name] = {f: e.value for f, e in found.metrics.items() if e is not None} | {"seconds": seconds}
        if name == "vicinal auto":
            gap = losses(probs) - losses(calibrated(ours("temperature")))
            record[name]["worse than temperature"] = bool(gap.mean() > gap.std() / math.sqrt(len(gap)) > 0)


def quality_table(records: list[Record]) -> str:
    """Return the means over the sets that every contender could do, and paired differences of NLL to `auto`."""
    names = [name for name in records[0] if name not in _ABOUT]
    done = {name: [r for r in records if "nll" in r[name]] for name in names}
    lines = [
        f"{len(records)} sets of {min(r['n'] for r in records):,} to {max(r['n'] for r in records):,} validation rows",
        "",
        "| calibrator | sets | NLL | NLL less auto's (95 % interval) | Brier | ECE | smooth ECE | median seconds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        some = done[name]
        if not some:
            lines.append(f"| {name} | 0 | failed: {records[0][name]['error'][:60]} | | | | | |")
            continue
        means = [np.mean([r[name][f] for r in some]) for f in ("nll", "brier", "ece", "smooth_ece")]
        gaps = np.array([r[name]["nll"] - r["vicinal auto"]["nll"] for r in some])
        half = 1.96 * gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
        seconds = statistics.median(r[name]["seconds"] for r in some)
        lines.append(
            f"| {name} | {len(some)} | {means[0]:.4f} | {gaps.mean():+.4f} ({gaps.mean() - half:+.4f} to "
            f"{gaps.mean() + half:+.4f}) | {means[1]:.4f} | {means[2]:.4f} | {means[3]:.4f} | {seconds:.3f} |"
        )
    worse = sum(r["vicinal auto"]["worse than temperature"] for r in records)
    mean = {name: np.mean([r[name]["nll"] for r in records]) for name in names if len(done[name]) == len(records)}
    nearest = min((name for name in mean if not name.startswith("vicinal")), key=lambda name: mean[name], default="")
    met = not nearest or mean["vicinal auto"] <= mean[nearest]
    lines += [
        "",
        f"Mean NLL of auto {mean['vicinal auto']:.5f}; of the best peer, {nearest}, {mean.get(nearest, math.nan):.5f} "
        f"({marked('not above', met)}).",
        f"auto is worse than temperature by more than one standard error in {worse} of {len(records)} sets "
        f"({marked('at most 5 %', worse <= 0.05 * len(records))}).",
    ]
    both = [r for r in records if "nll" in r.get("probmetrics sms", {})]
    if times := [r["vicinal sms"]["seconds"] / r["probmetrics sms"]["seconds"] for r in both]:
        slow = marked("at most 1", statistics.median(times) <= 1)
        lines.append(
            f"SMS takes {statistics.median(times):.2f} times probmetrics' time, {max(times):.2f} at most ({slow})."
        )
    return "\n".join(lines)


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
        StructuredVectorScaling(),
        StructuredMatrixScaling(),
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
