"""Which method is the best default? Plain training, mixup, LogitMix and RegMixup on tables, texts, images or sounds.

Every method trains the usual network of the data by `vicinal train`'s defaults, on the same splits; what counts is the
NLL on the test set after the temperature, since the temperature is always fitted.

    python -m benchmarks.choosing [--only wine titanic] [--seeds 2] [--rows 1000] [--out results.json]
    python -m benchmarks.choosing --data FOLDER --data FILE.csv:TARGET
    python -m benchmarks.choosing --data cifar10 --model preactresnet10 --width 16 --epochs 15 --rows 1000 --members 3
    python -m benchmarks.choosing --texts trec mr sst2 agnews glue:cola
    python -m benchmarks.choosing --data trec --rows 150 --held-out 200

Tables are those of `benchmarks.tables`; `--data` names others, folders of images or sounds, or public sets; of texts
all weights of MiniLM are trained. `--texts` encodes public texts once by MiniLM, as `--fast` does, and trains linear
heads on these features. `--members N` adds ensembles of plain training and of the default. Trainings that are in the
file of `--out` already are not done again, so a measurement that was stopped goes on. A training whose loss does not
stay finite is said and left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.tables import TABLES
from vicinal.data import NAMES, SplitOptions, TextOptions, load
from vicinal.models import specify
from vicinal.runs import Experiment, run
from vicinal.training.features import compute_features
from vicinal.training.predicting import AtPrecision

METHODS = (
    "ERM()",
    "Mixup(alpha=0.1)",
    "Mixup(alpha=0.2)",
    "Mixup(alpha=1.0)",
    "LogitMix(Mixup(alpha=3.0))",
    "RegMixup(Mixup(alpha=10.0))",
)
#: What is trained as an ensemble too.
TOGETHER = ("ERM()", "Mixup(alpha=0.2)")
METRICS = ("accuracy", "nll", "ece")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(TABLES), choices=list(TABLES), metavar="TABLE")
    parser.add_argument("--data", action="append", default=[], metavar="PATH[:TARGET]", help="these instead of tables")
    parser.add_argument("--texts", nargs="*", default=[], metavar="NAME", help="features of these texts instead")
    parser.add_argument("--model", help="the network instead of the usual one")
    parser.add_argument("--width", type=int, help="its width")
    parser.add_argument("--epochs", type=int, help="instead of the usual number")
    parser.add_argument("--members", type=int, default=1, help="of ensembles")
    parser.add_argument("--seeds", type=int, default=2, help="splits and trainings of each")
    parser.add_argument("--rows", type=int, default=1000, help="at most so many rows of a table, or to train on")
    parser.add_argument("--held-out", type=int, help="at most so many to validate and to test on, of a named set")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    records = json.loads(args.out.read_text()) if args.out is not None and args.out.exists() else []
    how: dict[str, Any] = {"model": args.model or ("linear" if args.texts else None)}
    how["model_options"] = {"width": args.width} if args.width else {}
    how["training"] = {"trackers": [], **({"epochs": args.epochs} if args.epochs else {})}
    wanted = [(method, 1) for method in METHODS] + [(method, args.members) for method in TOGETHER if args.members > 1]
    with tempfile.TemporaryDirectory() as folder:
        found = encoded(args.texts, args.rows, Path(folder)) if args.texts else sources(args, Path(folder))
        for name, source, data in found:
            for seed in range(args.seeds):
                for method, members in wanted:
                    label = method if members == 1 else f"{method}, {members} members"
                    if any((r["data"], r["seed"], r["method"]) == (name, seed, label) for r in records):
                        continue
                    try:
                        outcome = measured(source, data, {**how, "method": method, "ensemble": members}, seed)
                    except FloatingPointError as error:
                        print(f"{name}, {label}: {error}", flush=True)
                        continue
                    records.append({"data": name, "seed": seed, "method": label, **outcome})
                    print(json.dumps(records[-1]), flush=True)
                    if args.out is not None:
                        args.out.write_text(json.dumps(records, indent=1) + "\n")
    print(summary(records))


def sources(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the name, the source and the options of each set of data."""
    for path in args.data:
        source, _, target = (path, "", "") if path in NAMES else path.partition(":")
        fewer = {"train_size": args.rows, "max_held_out": args.held_out} if source in NAMES else {}
        name = source if source in NAMES else Path(source).stem
        yield name, source, {**({"target": target} if target else {}), **fewer}
    for name in [] if args.data else args.only:
        try:
            frame = TABLES[name]()
        except (ImportError, FileNotFoundError, ValueError, KeyError, AttributeError) as error:
            print(f"{name}: left out ({error})")
            continue
        path = folder / f"{name}.csv"
        frame.sample(min(args.rows, len(frame)), random_state=0).to_csv(path, index=False)
        yield name, str(path), {"target": "target"}


def encoded(names: list[str], rows: int, folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield public texts as tables of the features that a linear head sees with `--fast`."""
    for name in names:
        task = load(name, SplitOptions(train_size=rows, max_held_out=50), TextOptions(tokenizer="minilm"))
        network = specify("minilm", **task.spec, pooling="mean").build()
        (features,), labels = compute_features(
            AtPrecision(network, "no"), task.train, device=torch.device("cpu"), collate_fn=task.collate_fn
        )
        columns = {f"f{k}": column for k, column in enumerate(features.double().numpy().T)}
        path = folder / f"{name}.csv"
        pd.DataFrame(columns).assign(target=[task.classes[k] for k in labels]).to_csv(path, index=False)
        yield name, str(path), {"target": "target"}


def measured(source: str, data: dict[str, Any], how: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train by one method on one split, and return the metrics before and after the temperature."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        experiment = Experiment(source=source, data={**data, "seed": seed}, seed=seed, **how)
        outcome = run(experiment, Path(out) / "run", progress=False)
        assert outcome is not None
        sides = {"before": outcome.test.before, "after": outcome.test.after}
        metrics = {
            side: {name: round(of.metrics[name].value, 6) for name in METRICS}  # type: ignore[union-attr]
            for side, of in sides.items()
        }
        network = outcome.facts["network"]["name"]
    return {**metrics, "network": network, "seconds": round(time.process_time() - began, 1)}


def summary(records: list[dict[str, Any]]) -> str:
    """Return a table of means over sets of data, with the difference of NLL to plain training.

    The difference is a mean over sets (seeds are averaged first), with a 95 % interval by the t distribution over sets;
    only sets that every method was trained on count.
    """
    from scipy.stats import t

    nll: dict[tuple[str, str], list[float]] = {}
    for record in records:
        nll.setdefault((record["data"], record["method"]), []).append(record["after"]["nll"])
    methods = list(dict.fromkeys(r["method"] for r in records))
    names = sorted({r["data"] for r in records if all((r["data"], method) in nll for method in methods)})
    lines = [
        f"| method, over {len(names)} sets | accuracy | NLL before | NLL after | ECE before | ECE after | "
        "NLL after, less that of ERM | lowest in |",
        "|---|---|---|---|---|---|---|---|",
    ]
    mean = {method: np.array([np.mean(nll[name, method]) for name in names]) for method in methods}
    lowest = [min(methods, key=lambda method: mean[method][k]) for k in range(len(names))]
    for method in methods:
        mine = [r for r in records if r["method"] == method and r["data"] in names]

        def average(side: str, metric: str, mine: list[dict[str, Any]] = mine) -> float:
            return float(np.mean([np.mean([r[side][metric] for r in mine if r["data"] == name]) for name in names]))

        difference = mean[method] - mean["ERM()"]
        against = "" if method == "ERM()" else f"{difference.mean():+.3f}"
        if against and len(names) > 1:
            half = t.ppf(0.975, len(names) - 1) * difference.std(ddof=1) / len(names) ** 0.5
            against += f" ± {half:.3f}"
        cells = [f"{100 * average('after', 'accuracy'):.1f} %"]
        cells += [f"{average(side, metric):.3f}" for metric in ("nll", "ece") for side in ("before", "after")]
        lines.append(f"| `{method}` | {' | '.join(cells)} | {against} | {lowest.count(method)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
