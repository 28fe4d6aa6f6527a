"""How long a training will take, from one step, and what is faster: said before hours of it begin."""

from __future__ import annotations

import copy
import time

import torch
from torch import nn

from vicinal import _random
from vicinal._checks import Argument, Sentence
from vicinal.models.pretrained import at_hand
from vicinal.training import FitConfig
from vicinal.training.environment import joined_process

#: Samples of the step that is timed, and how often it is.
_SAMPLES, _REPEATS = 8, 2
#: Shorter trainings are not announced, in seconds.
_LONG = 180.0


def expected_seconds(network: nn.Module, shape: tuple[int, ...], n_train: int, config: FitConfig) -> float:
    """Return the seconds that a training takes by the time of a step of plain training, forward and backward.

    The network stays as it is, and so do the global random states.
    """
    process = joined_process()
    trial, x = copy.deepcopy(network).to(process.device).train(), torch.zeros(_SAMPLES, *shape, device=process.device)
    best = float("inf")
    with _random.restored_globals():
        for _ in range(_REPEATS):  # the first has to take its memory
            began = time.perf_counter()
            trial(x).logsumexp(dim=1).sum().backward()
            if process.device.type != "cpu":
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - began)
    samples = config.steps * config.batch_size if config.steps is not None else config.epochs * n_train
    return best / _SAMPLES * samples


def time_notice(seconds: float, kind: str, device: str) -> Sentence | None:
    """Return how long a training of images or sounds will take and what is faster; None of a short one."""
    if seconds < _LONG:
        return None
    long = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
    said = f"training takes about {long} on {device}, by the time of one step; faster: ", Argument("epochs", 10)
    if kind != "image":
        return Sentence(*said, ", or shorter sounds with ", Argument("seconds", 1))
    frozen = Sentence(", or ", Argument("pretrained"), " ", Argument("fast"), ", a head on features of ")
    where = "weights that are at hand" if at_hand("resnet18") else "downloaded weights"
    return Sentence(*said, ", ", Argument("image_size", 64), frozen, where)
