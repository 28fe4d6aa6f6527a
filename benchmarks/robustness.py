"""Calibration, out-of-distribution detection, attacks and label noise on a part of Fashion-MNIST.

    VICINAL_DATA=… python -m benchmarks.robustness [--seeds 3] [--jobs 2] [--out robustness-runs]

The probes of Thulasidasan et al. (2019), Table 1 and Figure 8, and of Zhang et al. (2018), Tables 2 and 3, with a small
network on two cores: whether a claim shows up here, not whether it was right there. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import torch
from scipy.special import stdtrit
from torch.utils.data import DataLoader, Subset

import vicinal
from vicinal import _random, data, models
from vicinal.calibrators import TemperatureScaling
from vicinal.metrics import auroc, max_probability
from vicinal.probes.attacks import Attack, attack_errors
from vicinal.probes.label_noise import best_and_last, corrupt_labels, noise_errors
from vicinal.probes.noise import gaussian_like
from vicinal.probes.uncertainty import MCDropout
from vicinal.runs.bundle import Bundle
from vicinal.training import FitConfig

DROPOUT = 0.3
N_TEST, N_OUT = 2_000, 1_000
PASSES = 10
EPSILON = 4 / 255
CLEAN = FitConfig(
    epochs=12, batch_size=64, optimizer="sgd", lr=0.05, nesterov=True, weight_decay=5e-4, schedule="cosine", trackers=()
)
#: Long enough, without augmentation and decay, for the network to learn wrong labels by heart.
NOISY = FitConfig(
    epochs=40,
    batch_size=64,
    optimizer="sgd",
    lr=0.05,
    nesterov=True,
    schedule="milestones",
    milestones=(30,),
    select="accuracy",
    eval_every=4,
    eval_batch_size=500,
    trackers=(),
)


@dataclass(frozen=True)
class Cell:
    """One training."""

    table: str
    method: str
    dropout: float
    noise: float
    seed: int

    @property
    def name(self) -> str:
        return self.method if not self.dropout else f"{self.method} with dropout {self.dropout:g}"


def cells(seeds: int) -> list[Cell]:
    clean = [("ERM()", 0.0), ("ERM()", DROPOUT), ("Mixup(alpha=0.4)", 0.0), ("LogitMix(Mixup(alpha=3.0))", 0.0)]
    found = [Cell("clean", method, p, 0.0, seed) for method, p in clean for seed in range(seeds)]
    for noise, mixup in ((0.2, "Mixup(alpha=8.0)"), (0.5, "Mixup(alpha=32.0)")):
        noisy = [("ERM()", 0.0), ("ERM()", DROPOUT), (mixup, 0.0)]
        found += [Cell(f"noise {noise:g}", method, p, noise, seed) for method, p in noisy for seed in range(seeds)]
    return found


def run(cell: Cell, out: Path) -> dict:
    """Train and probe; what is found is kept in the run's folder."""
    torch.set_num_threads(1)
    name = f"{cell.table}-{cell.name}-{cell.seed}".replace(" ", "-").replace("/", "-")
    folder = out / "".join(c for c in name if c.isalnum() or c in "-._=")
    kept = folder / "probes.json"
    if kept.exists():
        return json.loads(kept.read_text())
    noisy = cell.noise > 0
    task = data.load("fashion-mnist", train_size=600 if noisy else 2000, val=1000, augment="none" if noisy else None)
    with _random.restored_globals():
        _random.seed_globals(_random.seed_from("weights", cell.seed))
        spec = models.specify("preactresnet18", **task.spec, width=8, dropout=cell.dropout)
        model = spec.build()
    objective = vicinal.parse(cell.method)
    config = FitConfig.from_dict({**(NOISY if noisy else CLEAN).to_dict(), "seed": cell.seed})
    if noisy:
        found = noise_probes(cell, task, model, objective, config, folder)
    else:
        result = vicinal.fit(
            model, objective, task.train, task.val, out=folder, config=config, collate_fn=task.collate_fn
        )
        bundle = Bundle(module=result.model, spec=spec, preprocessing=task.preprocessing, classes=task.classes)
        found = clean_probes(task, bundle, result)
    kept.write_text(json.dumps(found))
    return found


def test_part(task):
    """Return a part of the test set, every class in its proportion: the attacks and passes take their time."""
    return Subset(task.test, data.stratified_subset(task.test.labels, N_TEST, seed=0))


def clean_probes(task, bundle, result) -> dict:
    temperature = TemperatureScaling().fit(result.logits, result.labels).temperature_
    test = test_part(task)
    labels = torch.tensor([y for _, y in test])
    strange = {
        "CIFAR-10 in grey": Subset(bundle.read("cifar10"), range(N_OUT)),
        "noise": gaussian_like(
            task.train.relabelled(task.train.labels, augment="none"), N_OUT, generator=torch.Generator().manual_seed(0)
        ),
    }

    def logits_of(dataset, model):
        rows = []
        for start in range(0, len(dataset), 500):
            items = [dataset[i] for i in range(start, min(start + 500, len(dataset)))]
            x = torch.stack([item[0] if isinstance(item, tuple) else item for item in items])
            with torch.inference_mode():
                rows.append(model(x))
        return torch.cat(rows)

    versions = {"": (bundle.module, 1.0), " + temperature": (bundle.module, temperature)}
    if any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in bundle.module.modules()):
        mc, generator = MCDropout(bundle.module, PASSES), torch.Generator().manual_seed(0)
        versions[f" + MC dropout, {PASSES} passes"] = (lambda x: mc(x, generator=generator), 1.0)
    found = {}
    cache: dict = {}
    for suffix, (model, t) in versions.items():
        if id(model) not in cache:
            cache[id(model)] = {name: logits_of(dataset, model) for name, dataset in {"test": test, **strange}.items()}
        logits = {name: rows.double() / t for name, rows in cache[id(model)].items()}
        figures = vicinal.evaluate(labels, logits=logits["test"])
        own = max_probability(logits["test"])
        found[suffix] = {
            "accuracy": figures.accuracy.value,
            "ECE": figures.ece.value,
            "OE": figures.oe.value,
            **{f"AUROC, {name}": auroc(own, max_probability(logits[name])) for name in strange},
        }
    pixels = task.preprocessing
    errors = attack_errors(
        bundle.module,
        DataLoader(test, batch_size=500, collate_fn=task.collate_fn),
        Attack("fgsm", EPSILON),
        mean=pixels.mean,
        std=pixels.std,
    )
    found[""]["FGSM 4/255, top-1 error"] = errors.attacked[1].value
    return found


def noise_probes(cell, task, model, objective, config, folder) -> dict:
    generator = torch.Generator().manual_seed(cell.seed)
    real = torch.tensor(task.train.labels)
    labels, mask = corrupt_labels(real, cell.noise, len(task.classes), generator=generator)
    train = task.train.relabelled(labels.tolist())
    # The test set stands where the validation set should: the best epoch is an oracle's, as in the paper.
    result = vicinal.fit(
        model, objective, train, test_part(task), out=folder, config=config, collate_fn=task.collate_fn
    )
    errors = best_and_last([1 - line["val_accuracy"] for line in result.history if "val_accuracy" in line])
    result.model.load_state_dict(vicinal.training.load_weights(folder, last=True))
    result.model.eval()
    rows = []
    for x, _ in DataLoader(train, batch_size=500, collate_fn=task.collate_fn):
        with torch.inference_mode():
            rows.append(result.model(x).argmax(dim=1))
    last = noise_errors(torch.cat(rows), real, labels, mask)
    return {
        "": {
            "test error, best epoch (oracle)": errors.best,
            "test error, last epoch": errors.last,
            "training error, real labels": last.real.value,
            "training error, corrupted labels": last.corrupted.value,
        }
    }


# Tables


def mean_interval(values: list[float]) -> tuple[float, float]:
    """Return the mean over seeds and half the width of its 95 % t interval."""
    n = len(values)
    return float(np.mean(values)), float(stdtrit(n - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else 0.0


def table(rows: dict[str, dict[str, list[float]]]) -> None:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    print("| method | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, row in rows.items():
        cells = []
        for column in columns:
            if column not in row:
                cells.append("")
                continue
            mean, half = mean_interval(row[column])
            cells.append(
                f"{mean:.3f} ± {half:.3f}" if column in ("ECE", "OE") else f"{100 * mean:.1f} ± {100 * half:.1f}"
            )
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()


def verdict(claim: str, lower: list[float], higher: list[float]) -> None:
    """Print whether `lower` is below `higher`, paired by seed."""
    mean, half = mean_interval([a - b for a, b in zip(lower, higher, strict=True)])
    word = "holds" if mean + half < 0 else "does not hold" if mean - half > 0 else "cannot tell"
    print(f"- {claim}: **{word}** (difference {mean:+.3f} ± {half:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("robustness-runs"))
    options = parser.parse_args()
    asked = cells(options.seeds)
    found = joblib.Parallel(n_jobs=options.jobs)(joblib.delayed(run)(cell, options.out) for cell in asked)
    tables: dict[str, dict[str, dict[str, list[float]]]] = {}
    for cell, probes in zip(asked, found, strict=True):
        for suffix, figures in probes.items():
            row = tables.setdefault(cell.table, {}).setdefault(cell.name + suffix, {})
            for name, value in figures.items():
                row.setdefault(name, []).append(value)
    for title, rows in tables.items():
        print(f"### {title}\n")
        table(rows)
    clean = tables["clean"]
    erm, mixup, logitmix = clean["ERM()"], clean["Mixup(alpha=0.4)"], clean["LogitMix(Mixup(alpha=3.0))"]
    scaled = clean["ERM() + temperature"]
    dropout = clean[f"ERM() with dropout {DROPOUT:g} + MC dropout, {PASSES} passes"]
    verdict("mixup has a lower ECE than ERM (T19)", mixup["ECE"], erm["ECE"])
    verdict("mixup has a lower OE than ERM (T19)", mixup["OE"], erm["OE"])
    for out in ("CIFAR-10 in grey", "noise"):
        key = f"AUROC, {out}"
        for name, other in (("ERM", erm), ("ERM with temperature", scaled), ("MC dropout", dropout)):
            verdict(f"mixup tells {out} better than {name} (T19 Table 1)", other[key], mixup[key])
    key = "FGSM 4/255, top-1 error"
    verdict("mixup has a lower FGSM error than ERM (Z18 Table 3)", mixup[key], erm[key])
    verdict("LogitMix is more accurate than mixup (L22)", mixup["accuracy"], logitmix["accuracy"])
    verdict("LogitMix has a lower ECE than ERM (L22)", logitmix["ECE"], erm["ECE"])
    for noise, method in ((0.2, "Mixup(alpha=8.0)"), (0.5, "Mixup(alpha=32.0)")):
        rows = tables[f"noise {noise:g}"]
        for name in ("ERM()", f"ERM() with dropout {DROPOUT:g}"):
            for key in ("test error, best epoch (oracle)", "test error, last epoch"):
                claim = f"{100 * noise:g} % noise: {method} has a lower {key} than {name} (Z18 Table 2)"
                verdict(claim, rows[method][key], rows[name][key])
        key = "training error, corrupted labels"
        verdict(f"{100 * noise:g} % noise: {method} memorises less than ERM()", rows["ERM()"][key], rows[method][key])


if __name__ == "__main__":
    main()
