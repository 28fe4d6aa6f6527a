"""Sets of real scores: held-out logits or probabilities of trained models, to fit calibrators on and to judge them by.

Published logits (where VICINAL_DATA has them), and gradient boosting, random forests and networks of scikit-learn
trained on the tables of `benchmarks.tables` that have 700 rows or more. A fifth of a table is validation (200 to 10,000
rows), three tenths are test, the rest trains. Another seed gives other parts and other models.

    python -m benchmarks.scores FOLDER [SEED]     write them, one NPZ a set, where they are not there yet
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.tables import TABLES

#: At least so many rows: a fifth of them is then more than a hundred.
FEWEST, MOST = 700, 50_000
NLI = [("SNLI", "bert-base-uncased", 2), ("SNLI", "roberta-base", 3), ("MNLI", "roberta-base", 3)]
MODELS = ("boosting", "forest", "network")


@dataclass(frozen=True, eq=False)
class Scores:
    """Validation and test scores of one model."""

    name: str
    kind: str
    """`"logits"` or `"probs"`."""
    val: NDArray[np.float64]
    val_labels: NDArray[np.int64]
    test: NDArray[np.float64]
    test_labels: NDArray[np.int64]

    def save(self, path: Path) -> None:
        arrays = {name: value for name, value in vars(self).items() if name not in ("name", "kind")}
        np.savez_compressed(path, kind=np.array(self.kind), **arrays)

    @classmethod
    def load(cls, path: Path) -> Scores:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files if name != "kind"}
            return cls(name=path.stem, kind=str(file["kind"]), **arrays)


def all_scores(folder: Path, seed: int = 0) -> Iterator[Scores]:
    """Yield every set, published logits first; those of models are trained once and kept in the folder."""
    yield from published()
    folder = folder / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, load in TABLES.items():
        paths = {model: folder / f"{name} {model}.npz" for model in MODELS}
        missing, small = [m for m, path in paths.items() if not path.exists()], folder / f"{name}.small"
        if small.exists():
            continue
        if missing:
            try:
                frame = load()
            except (ImportError, FileNotFoundError, ValueError, KeyError, AttributeError) as error:
                print(f"{name}: left out ({error})", file=sys.stderr)
                continue
            if len(frame) < FEWEST:
                small.touch()
                continue
            parts = split(frame, seed)
            for model in missing:
                trained(f"{name} {model}", model, seed, *parts).save(paths[model])
        for path in paths.values():
            yield Scores.load(path)


def published() -> Iterator[Scores]:
    """Yield the published logits under VICINAL_DATA."""
    root = Path(os.environ.get("VICINAL_DATA", "")) / "logits"
    path = root / "kull_resnet110_cifar10" / "resnet110_c10_logits.npz"
    if not path.exists():
        print("no published logits: VICINAL_DATA does not have them", file=sys.stderr)
        return
    with np.load(path) as file:
        val, y_val, test, y_test = (file[name] for name in ("logits_val", "y_val", "logits_test", "y_test"))
    yield Scores(
        "CIFAR-10 ResNet-110", "logits", val.astype(float), y_val.ravel().astype(int), test.astype(float),
        y_test.ravel().astype(int),
    )  # fmt: skip
    for data, model, seeds in NLI:
        for seed in range(seeds):
            parts: list[Any] = []
            for part in ("dev", "test"):
                path = root / "nli_baan2022" / f"{data}_{part}_{model}_{seed}.jsonl.gz"
                with gzip.open(path, "rt") as lines:
                    rows = [json.loads(line) for line in lines]
                parts += [np.array([row["logits"] for row in rows]), np.array([row["true"] for row in rows])]
            yield Scores(f"{data} {model} {seed}", "logits", *parts)


def split(frame: pd.DataFrame, seed: int) -> tuple[Any, ...]:
    """Return numbers and labels of the training, validation and test rows."""
    frame = frame.sample(min(len(frame), MOST), random_state=seed).reset_index(drop=True)
    target = frame.pop("target").astype(str)
    target = target.where(target.map(target.value_counts()) >= 30)  # rarer classes may be missing from a part
    frame, target = frame[target.notna()], target[target.notna()]
    columns = []
    for name in frame:
        column = pd.to_numeric(frame[name], errors="coerce")
        if column.notna().mean() >= 0.5 * frame[name].notna().mean() and column.notna().any():
            columns.append(column.to_numpy(float)[:, None])
        elif frame[name].nunique() <= 20:
            columns.append(pd.get_dummies(frame[name]).to_numpy(float))
        else:
            columns.append(pd.factorize(frame[name], sort=True)[0].astype(float)[:, None])
    x, y = np.concatenate(columns, axis=1), pd.factorize(target, sort=True)[0]
    n_val, n_test = int(np.clip(0.2 * len(x), 200, 10_000)), int(np.clip(0.3 * len(x), 200, 15_000))
    val, test, train = slice(None, n_val), slice(n_val, n_val + n_test), slice(n_val + n_test, None)
    return x[train], y[train], x[val], y[val], x[test], y[test]


def trained(name: str, model: str, seed: int, *parts: Any) -> Scores:
    """Train one model; return its scores."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y, x_val, y_val, x_test, y_test = parts
    estimator = {
        "boosting": lambda: HistGradientBoostingClassifier(random_state=seed, early_stopping=False),
        "forest": lambda: make_pipeline(SimpleImputer(), RandomForestClassifier(random_state=seed)),
        "network": lambda: make_pipeline(
            SimpleImputer(), StandardScaler(), MLPClassifier((64, 64), max_iter=40, random_state=seed)
        ),
    }[model]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)
        probs = [np.zeros((len(part), int(y.max()) + 1)) for part in (x_val, x_test)]
        for out, part in zip(probs, (x_val, x_test), strict=True):
            out[:, estimator.classes_] = estimator.predict_proba(part)
    known = [np.isin(labels, estimator.classes_) for labels in (y_val, y_test)]
    return Scores(name, "probs", probs[0][known[0]], y_val[known[0]], probs[1][known[1]], y_test[known[1]])


if __name__ == "__main__":
    for scores in all_scores(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0):
        sizes = f"{len(scores.val_labels)} validation, {len(scores.test_labels)} test, {scores.val.shape[1]} classes"
        print(f"{scores.name}: {sizes}", flush=True)
