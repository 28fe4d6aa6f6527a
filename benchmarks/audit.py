"""`vicinal audit` against cleanlab on tables with flipped labels.

Of each table a share of the labels is changed to another class at random. `vicinal audit` judges them by its own
cross-validation; cleanlab (`pip install cleanlab`, `find_label_issues` with its defaults) by that of histogram gradient
boosting, five folds, as its documentation suggests. Precision is the share of changed labels among the suspicious ones,
recall the share of suspicious ones among the changed.

    python -m benchmarks.audit [--only titanic spam] [--noise 0.1] [--rows 2000] [--seed 0]
    python -m benchmarks.audit --rules [--only titanic spam] [--rows 500]
    python -m benchmarks.audit --simulated [--seeds 20]
    python -m benchmarks.audit --trained [--seeds 2]
    python -m benchmarks.audit --people [--calibrated] [--half dev]

The second compares the rules alone, in a minute: `probes.label_issues` and cleanlab on the same out-of-fold
probabilities, those of logistic regression, and cleanlab on those of gradient boosting, at three shares of changed
labels. `--simulated` gives both the true probabilities, and labels drawn from them, unchanged or changed, on several
settings and seeds. `--trained` trains the default network on tables whose classes overlap much, a share of the labels
changed, and gives both rules the probabilities of its audit.

`--people` is of wrong labels that people gave: in SNLI and MNLI the writer of a sentence says what it is, four others
judge it, and the majority of five counts. The writer's label, the last letter of a pair's name, is wrong where it is
another. The probabilities are those of published models that were trained on other pairs
(VICINAL_DATA/logits/nli_baan2022, Baan et al. 2022). Beside the rules stand as many of our ranking as
cleanlab takes, and the average precision of two rankings, by the margin and by cleanlab's quality of a label, the
probability of the label itself.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.tables import TABLES
from vicinal import TemperatureScaling
from vicinal.probes import label_issues
from vicinal.runs import Experiment, audited, run

#: Quick tables, with two classes and with more.
USUAL = (
    "titanic",
    "affairs",
    "credit cards",
    "spam",
    "orange juice",
    "breast cancer",
    "biopsy",
    "abalone",
    "penguins",
    "wine",
)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(USUAL), choices=list(TABLES), metavar="TABLE")
    parser.add_argument("--noise", type=float, default=0.1, help="share of labels to change")
    parser.add_argument("--rows", type=int, default=2000, help="at most so many rows of a table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=20, help="draws of each setting of --simulated")
    parser.add_argument("--rules", action="store_true", help="compare the rules alone")
    parser.add_argument("--simulated", action="store_true", help="compare the rules on true probabilities")
    parser.add_argument("--trained", action="store_true", help="compare the rules on trained models")
    parser.add_argument("--people", action="store_true", help="labels that people gave")
    parser.add_argument("--half", choices=("dev", "test"), default="test", help="which half of these")
    parser.add_argument("--calibrated", action="store_true", help="… by probabilities after a temperature")
    args = parser.parse_args(argv)
    if args.people:
        compare_on_people(Path(os.environ["VICINAL_DATA"]) / "logits" / "nli_baan2022", args.half, args.calibrated)
        return
    if args.simulated:
        compare_simulated(range(args.seed, args.seed + args.seeds))
        return
    if args.trained:
        compare_trained(range(args.seed, args.seed + args.seeds))
        return
    if args.rules:
        compare_rules(args.only, args.rows, args.seed)
        return
    print("| table (rows; classes) | vicinal: precision, recall | cleanlab: precision, recall |\n|---|---|---|")
    scores: list[tuple[float, ...]] = []
    for name in args.only:
        frame = TABLES[name]()
        frame = frame.sample(min(args.rows, len(frame)), random_state=args.seed).reset_index(drop=True)
        frame, changed = flipped(frame, args.noise, args.seed)
        one = (*scored(ours(frame, args.seed), changed), *scored(cleanlab(frame, args.seed), changed))
        scores.append(one)
        sizes = f"{len(frame)}; {frame['target'].nunique()}"
        print(f"| {name} ({sizes}) | {one[0]:.2f}, {one[1]:.2f} | {one[2]:.2f}, {one[3]:.2f} |", flush=True)
    mean = np.mean(scores, axis=0)
    print(f"| mean of {len(scores)} | {mean[0]:.2f}, {mean[1]:.2f} | {mean[2]:.2f}, {mean[3]:.2f} |")


def flipped(frame: pd.DataFrame, share: float, seed: int) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Return the table with a share of its labels changed to another class, and which."""
    rng = np.random.default_rng(seed)
    codes, classes = pd.factorize(frame["target"].astype(str), sort=True)
    changed = np.zeros(len(frame), bool)
    changed[rng.choice(len(frame), round(share * len(frame)), replace=False)] = True
    moved = (codes + rng.integers(1, len(classes), len(codes))) % len(classes)
    return frame.assign(target=np.asarray(classes)[np.where(changed, moved, codes)]), changed


def ours(frame: pd.DataFrame, seed: int) -> np.ndarray[Any, Any]:
    """Return which rows `vicinal audit` lists as candidates."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        frame.to_csv(path, index=False)
        experiment = Experiment(source=str(path), data={"target": "target"}, training={"trackers": []}, seed=seed)
        outcome = run(experiment, Path(folder) / "run", progress=False)
        assert outcome is not None
        found = np.zeros(len(frame), bool)
        found[[one["index"] for one in audited(outcome, progress=False).samples]] = True
        return found


def cleanlab(frame: pd.DataFrame, seed: int) -> np.ndarray[Any, Any]:
    """Return which rows cleanlab suspects by the cross-validation of gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x = frame.drop(columns="target").apply(
        lambda c: pd.to_numeric(c) if pd.api.types.is_numeric_dtype(c) else pd.factorize(c)[0]
    )
    model = HistGradientBoostingClassifier(random_state=seed)
    return by_cleanlab(*out_of_fold(model, x.astype(float), frame, seed))


def out_of_fold(
    model: Any, x: pd.DataFrame, frame: pd.DataFrame, seed: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the probabilities of five-fold cross-validation, and the labels."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    labels, _ = pd.factorize(frame["target"], sort=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return cross_val_predict(model, x, labels, cv=folds, method="predict_proba"), labels


def by_cleanlab(probs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which rows cleanlab suspects by these probabilities."""
    from cleanlab.filter import find_label_issues  # type: ignore[import-not-found]

    mask: np.ndarray[Any, Any] = find_label_issues(labels, probs, n_jobs=1)
    return mask


def compare_rules(names: list[str], n_rows: int, seed: int) -> None:
    """Print the mean precision and recall of rules, for three shares of changed labels."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    head = "vicinal's rule on logistic regression | cleanlab's on the same | cleanlab's on gradient boosting"
    print(f"| changed labels | {head} |\n|---|---|---|---|")
    for noise in (0.05, 0.1, 0.2):
        scores = []
        for name in names:
            frame = TABLES[name]()
            frame = frame.sample(min(n_rows, len(frame)), random_state=seed).reset_index(drop=True)
            frame, changed = flipped(frame, noise, seed)
            x = pd.get_dummies(frame.drop(columns="target")).astype(float)
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
            probs, labels = out_of_fold(model, x.fillna(x.mean()).fillna(0), frame, seed)
            ours = label_issues(labels, probs=probs).candidates.numpy()
            found = ours, by_cleanlab(probs, labels), cleanlab(frame, seed)
            scores.append([scored(one, changed) for one in found])
        means = [f"{precision:.2f}, {recall:.2f}" for precision, recall in np.mean(scores, axis=0)]
        print(f"| {100 * noise:g} % | {' | '.join(means)} |", flush=True)


#: Rows, classes and scale of logits: the smaller the scale, the more the classes overlap.
SETTINGS = ((1000, 2, 1.0), (2000, 2, 2.0), (5000, 2, 1.0), (2000, 4, 2.0), (1000, 3, 5.0), (3000, 10, 3.0))


def simulated(
    n: int, k: int, scale: float, share: float, seed: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return probabilities, labels drawn from them of which a share is changed, and which are."""
    rng = np.random.default_rng([seed, n, k, round(10 * scale), round(100 * share)])
    logits = scale * rng.normal(size=(n, k))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = np.minimum((probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), k - 1)
    changed = rng.random(n) < share
    return probs, np.where(changed, (truth + rng.integers(1, k, n)) % k, truth), changed


def compare_simulated(seeds: range) -> None:
    """Print what both rules claim, and find, of labels drawn from the probabilities they are given, mean over seeds.

    A claim of ours is a significant one. Precision and recall are of the candidates for review, in all draws.
    """
    head = "claimed: vicinal, cleanlab | vicinal: precision, recall | cleanlab: precision, recall"
    more = "recall less cleanlab's (95 % CI) | false alarms: expected, true, draws within the interval"
    print(f"| rows; classes; scale of logits | changed | {head} | {more} |\n|---|---|---|---|---|---|---|")
    for n, k, scale in SETTINGS:
        for share in (0.0, 0.05, 0.1, 0.2):
            draws = []
            for seed in seeds:
                probs, labels, changed = simulated(n, k, scale, share, seed)
                issues = label_issues(labels, probs=probs)
                found = issues.candidates.numpy(), by_cleanlab(probs, labels)
                rates = [rate for one in found for rate in scored(one, changed)]
                claims = float(issues.suspicious.double().mean()), found[1].mean()
                expected, false = issues.false_alarms, (found[0] & ~changed).sum()
                inside = expected.low - 2 * false**0.5 <= false <= expected.high + 2 * false**0.5
                draws.append([*claims, *rates, expected.value, false, inside])
            table = np.array(draws, float)
            mean, less = table.mean(axis=0), table[:, 3] - table[:, 5]
            half = 1.96 * less.std(ddof=1) / np.sqrt(len(less))
            cells = [
                f"{n}; {k}; {scale:g} | {100 * share:g} % | {mean[0]:.4f}, {mean[1]:.4f}",
                f"{mean[2]:.3f}, {mean[3]:.3f} | {mean[4]:.3f}, {mean[5]:.3f}" if share else "– | –",
                f"{less.mean():+.3f} ± {half:.3f}" if share else "–",
                f"{mean[6]:.0f}, {mean[7]:.0f}, {table[:, 8].sum():.0f} of {len(table)}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


#: Rows, classes and scale of logits of tables that networks are trained on.
TRAINED = ((2000, 2, 1.2), (2000, 4, 2.5))


def overlapping(n: int, k: int, scale: float, share: float, seed: int) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Return a table whose classes overlap, labels drawn from their probabilities, a share changed, and which are."""
    rng = np.random.default_rng([seed, n, k, int(10 * scale), int(100 * share)])
    x = rng.normal(size=(n, 6))
    linear, bent = scale * rng.normal(size=(6, k)) / np.sqrt(6), scale * rng.normal(size=(6, k)) / np.sqrt(6)
    logits = x @ linear + 0.5 * np.abs(x) @ bent
    logits -= logits.mean(axis=0)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = np.minimum((probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), k - 1)
    changed = rng.random(n) < share
    labels = np.where(changed, (truth + rng.integers(1, k, n)) % k, truth)
    return pd.DataFrame(x.round(4), columns=list("abcdef")).assign(target=[f"c{y}" for y in labels]), changed


def compare_trained(seeds: range) -> None:
    """Print what both rules claim and find by the probabilities of our audit, table by table."""
    head = "claimed: vicinal, cleanlab | vicinal: precision, recall | cleanlab: precision, recall"
    more = "noise (95 % CI), true | false alarms: expected (95 % CI), true"
    print(f"| rows; classes; seed | changed | {head} | {more} |\n|---|---|---|---|---|---|---|")
    for seed in seeds:
        for n, k, scale in TRAINED:
            for share in (0.0, 0.05, 0.1, 0.2):
                frame, moved = overlapping(n, k, scale, share, seed)
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "table.csv"
                    frame.to_csv(path, index=False)
                    how = {"training": {"trackers": []}, "seed": seed}
                    result = run(
                        Experiment(source=str(path), data={"target": "target"}, **how),
                        Path(folder) / "run",
                        progress=False,
                    )
                    assert result is not None
                    audit, task = audited(result, progress=False), result.run.task()
                    changed = moved[np.concatenate([part.positions for part in (task.train, task.val, task.test)])]
                issues, theirs = audit.issues, by_cleanlab(audit.probs, audit.labels)
                found, false = issues.candidates.numpy(), issues.false_alarms
                pairs = [", ".join(f"{rate:.3f}" for rate in scored(one, changed)) for one in (found, theirs)]
                noise, claimed = issues.noise, float(issues.suspicious.double().mean())
                cells = [
                    f"{n}; {k}; {seed} | {100 * share:g} % | {claimed:.3f}, {theirs.mean():.3f}",
                    " | ".join(pairs) if share else "– | –",
                    f"{noise.value:.3f} ({noise.low:.3f}–{noise.high:.3f}), {changed.mean():.3f}",
                    f"{false.value:.0f} ({false.low:.0f}–{false.high:.0f}), {(found & ~changed).sum()}",
                ]
                print(f"| {' | '.join(cells)} |", flush=True)


def compare_on_people(folder: Path, half: str, calibrated: bool) -> None:
    """Print precision and recall of the rules, of as many of our ranking as cleanlab takes, and average precisions."""
    from sklearn.metrics import average_precision_score

    head = "ours | cleanlab's | as many by our ranking | average precision: margin, self-confidence"
    print(f"| pairs, model | wrong labels | {head} |\n|---|---|---|---|---|---|")
    for path in sorted(folder.glob(f"*_{half}_*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            rows = [json.loads(line) for line in lines]
        probs, truth = np.array([row["probs"] for row in rows]), np.array([row["true"] for row in rows])
        labels = np.array(["ecn".index(row["uid"][-1]) for row in rows])
        if calibrated:
            logits = torch.tensor(np.log(np.maximum(probs, 1e-12)))
            probs = TemperatureScaling().fit(logits, torch.tensor(labels))(logits).softmax(dim=1).numpy()
        wrong, issues, theirs = labels != truth, label_issues(labels, probs=probs), by_cleanlab(probs, labels)
        as_many = np.zeros(len(labels), bool)
        as_many[issues.ranking.numpy()[: theirs.sum()]] = True
        pairs = [scored(one, wrong) for one in (issues.candidates.numpy(), theirs, as_many)]
        rankings = issues.margin.numpy(), -probs[np.arange(len(labels)), labels]
        pairs.append(tuple(float(average_precision_score(wrong, ranking)) for ranking in rankings))
        cells = " | ".join(f"{first:.3f}, {second:.3f}" for first, second in pairs)
        print(f"| {path.name.partition('.')[0].replace('_', ' ')} | {wrong.sum()} of {len(wrong)} | {cells} |")


def scored(found: np.ndarray[Any, Any], changed: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return precision and recall."""
    hits = float((found & changed).sum())
    return hits / max(float(found.sum()), 1), hits / max(float(changed.sum()), 1)


if __name__ == "__main__":
    main()
