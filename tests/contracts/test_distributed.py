"""Every objective under DistributedDataParallel and FSDP2, in two real gloo processes; one spawn for all cases."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import vicinal
from tests.processes import in_processes

from .cases import CNN, OBJECTIVES, K, batch

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


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.encoder = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.classifier = nn.Linear(8, K)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embedding(input_ids)
        for layer in self.encoder:
            states = layer(states).relu()
        return self.classifier(states.mean(1))


def sharded(model: nn.Module) -> nn.Module:
    """Shard the weights of each part that has some, and of the whole."""
    mesh = init_device_mesh("cpu", (WORLD,))
    for part in [m for m in model.modules() if m is not model and any(True for _ in m.parameters(recurse=False))]:
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def hidden_saliency(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """No rank has the matrix of a sharded head, by which the gradients at the sentence vector are compared."""
    aum = vicinal.GuidedMixup(pool="batch").tracker(len(y))
    aum.update(torch.eye(K)[y.roll(1)] * torch.arange(len(y))[:, None], y, torch.arange(len(y)), epoch=0)
    objective = vicinal.GuidedMixup(pool="batch", saliency="hidden").bind(aum)
    with pytest.raises(ValueError, match="the weights of the head are sharded"):
        objective(model, x, y, index=torch.arange(len(y)))


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    x, y = batch(WORLD * HALF)
    ids = torch.randint(30, (WORLD * HALF, 6), generator=torch.Generator().manual_seed(0))
    of_words = {text: vicinal.parse(text) for text in ("SequenceMixup.manifold(layers=[0, 1, 'head'])",)}
    for text, objective in (OBJECTIVES | of_words).items():
        torch.manual_seed(0)
        model, given = (Words(), ids) if text in of_words else (CNN(), x)
        shards = list(zip(given.chunk(WORLD), y.chunk(WORLD), strict=True))
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
        spread = sharded(copy.deepcopy(model))
        step(objective, spread, *shards[rank], rank).backward()
        for p, want in zip(spread.parameters(), expected, strict=True):
            assert p.grad.to_local().numel() < want.numel() or want.numel() == 1, text  # a share of it is here
            torch.testing.assert_close(p.grad.full_tensor(), want, msg=lambda m, text=text: f"{text}, sharded: {m}")
    uneven_draws(rank, x.chunk(WORLD)[rank], y.chunk(WORLD)[rank])
    hidden_saliency(sharded(CNN()), *batch(WORLD * HALF))
    Path(folder, f"done{rank}").write_text(str(len(OBJECTIVES)))
    dist.barrier()
    dist.destroy_process_group()


def test_every_objective_gives_the_mean_gradient_of_two_processes(tmp_path):
    in_processes(WORLD, worker, str(tmp_path))
    assert [Path(tmp_path, f"done{rank}").read_text() for rank in range(WORLD)] == [str(len(OBJECTIVES))] * WORLD
