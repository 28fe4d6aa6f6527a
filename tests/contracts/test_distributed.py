"""Every objective under DistributedDataParallel, in two real gloo processes; one spawn for all cases."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import vicinal
from tests.processes import in_processes

from .cases import CNN, OBJECTIVES, batch

WORLD = 2
HALF = 4


def step(objective, model, x, y, rank):
    torch.manual_seed(rank)  # dropout
    return objective(model, x, y, epoch=1.5, generator=torch.Generator().manual_seed(rank))


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters()]


def uneven_draws(rank: int, x: torch.Tensor, y: torch.Tensor) -> None:
    """Where processes wait for each other in each forward, none may draw that it runs once while another runs twice."""
    objective = vicinal.parse("LogitMix(Mixup(alpha=3.0, prob=0.5), split_forward=True)")
    with_buffers = DistributedDataParallel(
        nn.Sequential(nn.BatchNorm2d(x.shape[1]), nn.Flatten(), nn.Linear(x[0].numel(), 5))
    )
    with pytest.raises(ValueError, match=r"runs the model 1 or 2 times in a step.*use split_forward=False, prob=1"):
        step(objective, with_buffers, x, y, rank)
    for even in ("LogitMix(Mixup(alpha=3.0, prob=0.5))", "LogitMix(Mixup(alpha=3.0), split_forward=True)"):
        step(vicinal.parse(even), with_buffers, x, y, rank).backward()
    net = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 5)))
    for seed in range(4):  # without buffers nobody waits: draws may differ
        step(objective, net, x, y, WORLD * seed + rank).backward()


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    x, y = batch(WORLD * HALF)
    shards = [(x[r * HALF : (r + 1) * HALF], y[r * HALF : (r + 1) * HALF]) for r in range(WORLD)]
    for text, objective in OBJECTIVES.items():
        torch.manual_seed(0)
        model = CNN()
        expected = None
        for r, (x_r, y_r) in enumerate(shards):  # what DDP should give: the mean over the shards
            alone = copy.deepcopy(model)
            (step(objective, alone, x_r, y_r, r) / WORLD).backward()
            shares = gradients(alone)
            expected = shares if expected is None else [a + b for a, b in zip(expected, shares, strict=True)]
        parallel = DistributedDataParallel(copy.deepcopy(model))
        step(objective, parallel, *shards[rank], rank).backward()
        for got, want in zip(gradients(parallel), expected, strict=True):
            torch.testing.assert_close(got, want, msg=lambda m, text=text: f"{text}: {m}")
    uneven_draws(rank, *shards[rank])
    Path(folder, f"done{rank}").write_text(str(len(OBJECTIVES)))
    dist.barrier()
    dist.destroy_process_group()


def test_every_objective_gives_the_mean_gradient_of_two_processes(tmp_path):
    in_processes(WORLD, worker, str(tmp_path))
    assert [Path(tmp_path, f"done{rank}").read_text() for rank in range(WORLD)] == [str(len(OBJECTIVES))] * WORLD
