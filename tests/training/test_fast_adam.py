"""A quick step of Adam gives the very numbers of torch's class."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from vicinal.training import FitConfig
from vicinal.training.fast_adam import quick_step

MAKE = {
    "adam": lambda params: torch.optim.Adam(params, lr=0.1, betas=(0.8, 0.95), weight_decay=0.01, fused=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.1, betas=(0.8, 0.95), weight_decay=0.01, fused=True),
    "adamw, double": lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
    "adam, not fused": lambda params: torch.optim.Adam(params, lr=0.1),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adadelta": lambda params: torch.optim.Adadelta(params, lr=0.1),
}


def networks(name: str) -> list[nn.Module]:
    torch.manual_seed(0)
    one, other = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    other.load_state_dict(one.state_dict())
    return [network.double() if "double" in name else network for network in (one, other)]


def take(network: nn.Module, optimizer: torch.optim.Optimizer, step, number: int, without: int = -1) -> None:
    generator = torch.Generator().manual_seed(number)
    for position, p in enumerate(network.parameters()):
        drawn = torch.randn(p.shape, generator=generator).to(p)
        p.grad = None if position == without else drawn
    optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
    step()


@pytest.mark.parametrize("name", MAKE)
def test_every_weight_and_moment_is_that_of_the_class(name):
    one, other = networks(name)
    torchs, ours = MAKE[name](one.parameters()), MAKE[name](other.parameters())
    quick = quick_step(ours)
    for number in range(7):
        without = {0: 1, 4: 2}.get(number, -1)  # a layer that a step leaves out has no gradient
        take(one, torchs, torchs.step, number, without)
        take(other, ours, quick, number, without)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    for a, b in zip(torchs.state.values(), ours.state.values(), strict=True):
        assert a.keys() == b.keys()
        assert all(a[key] is b[key] is None or torch.equal(a[key], b[key]) for key in a)


def test_it_goes_on_from_a_loaded_state():
    one, other = networks("")
    before, after = MAKE["adamw"](one.parameters()), MAKE["adamw"](other.parameters())
    quick = quick_step(before)
    for number in range(3):
        take(one, before, quick, number)
    resumed = quick_step(after)
    other.load_state_dict(one.state_dict())
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    for number in range(3, 6):
        take(one, before, quick, number)
        take(other, after, resumed, number)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_only_fused_adam_on_the_cpu_is_quick():
    weight = nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD([weight], lr=0.1)
    assert quick_step(sgd) == sgd.step
    several = torch.optim.Adam([{"params": [weight]}, {"params": [nn.Parameter(torch.ones(1))]}], fused=True)
    assert quick_step(several) == several.step
    adam = torch.optim.Adam([weight], fused=True)
    assert quick_step(adam) != adam.step


@pytest.mark.parametrize(("name", "nesterov"), [("sgd", False), ("sgd", True), ("adam", False), ("adadelta", False)])
def test_a_parameter_may_have_its_first_gradient_late(name, nesterov):
    """Torch's fused SGD raised a TypeError; what it gives now is what torch's plain loop over parameters gives."""
    config = FitConfig(optimizer=name, lr=0.1, momentum=0.9, nesterov=nesterov)
    one, other = networks(name)
    optimizer = config.make_optimizer(one.parameters())
    settings = {key: value for key, value in optimizer.defaults.items() if key not in ("fused", "foreach")}
    plain = type(optimizer)(other.parameters(), **settings, foreach=False)
    for number in range(4):
        without = 1 if number < 2 else -1
        take(one, optimizer, quick_step(optimizer), number, without)
        take(other, plain, plain.step, number, without)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)
