"""The options of `fit` for GPUs, as far as a machine without one can tell."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from vicinal import Objective, parse
from vicinal.training import FitConfig, fit
from vicinal.training.predicting import AtPrecision


def trained(method: str | Objective = "Mixup(alpha=1.0)", **options: Any) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x, y = torch.randn(32, 4), torch.arange(32) % 3
    config = FitConfig(epochs=2, batch_size=8, select="last", trackers=(), **options)
    objective = parse(method) if isinstance(method, str) else method
    return fit(model, objective, TensorDataset(x, y), config=config, progress=False).model


class Settings(Objective):
    """Plain training that notes torch's settings."""

    def __init__(self) -> None:
        self.seen: set[tuple[bool, bool]] = set()

    def compute_terms(self, model: Any, x: Any, y: Any, step: Any) -> dict[str, torch.Tensor]:
        self.seen.add((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
        return {"loss": nn.functional.cross_entropy(model(x), y)}

    def __repr__(self) -> str:
        return "Settings()"


@pytest.mark.parametrize("full_float32", [False, True])
def test_products_are_rounded_while_it_trains_unless_full_precision_is_asked_for(full_float32):
    objective = Settings()
    trained(objective, full_float32=full_float32)
    assert objective.seen == {(not full_float32, not full_float32)}
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32  # torch's own defaults again


@pytest.mark.parametrize("full_float32", [False, True])
def test_a_trained_network_multiplies_on_a_gpu_as_it_was_trained(full_float32):
    seen = []

    class OnGpu(nn.Module):
        def parameters(self, recurse: bool = True) -> Any:
            yield SimpleNamespace(device=torch.device("cuda"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
            return x

    AtPrecision(OnGpu(), "no", full_float32=full_float32)(torch.ones(2, 3))
    assert seen == [(not full_float32, not full_float32)]
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="an older torch")
def test_torch_may_have_been_told_in_its_newer_way():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        trained()
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's
@pytest.mark.parametrize(
    "method", ["Mixup(alpha=1.0)", "ManifoldMixup(layers=['input', '0'])", "GuidedMixup(pool='batch')"]
)
def test_a_network_that_is_compiled_ends_with_the_same_weights(method, monkeypatch):
    plain = trained(method)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    compiled = trained(method, compile=True)
    assert type(compiled) is nn.Sequential
    for p, q in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_device_is_chosen_by_its_name():
    assert next(trained(device="cpu").parameters()).is_cpu
    with pytest.raises(
        ValueError, match=r"device must be a device such as 'cpu', 'cuda', 'cuda:1' or 'mps', got 'gpu'"
    ):
        FitConfig(device="gpu")
    missing = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(
        ValueError, match=f"device='{missing}' is not there: torch sees {torch.cuda.device_count()} of that kind"
    ):
        trained(device=missing)


@pytest.mark.parametrize(("optimizer", "precision", "fused"), [("sgd", "no", True), ("adamw", "bf16", True),
                                                               ("adam", "fp16", False)])  # fmt: skip
def test_optimizers_are_fused_where_loss_scaling_allows_it(optimizer, precision, fused):
    made = FitConfig(optimizer=optimizer, mixed_precision=precision).make_optimizer(torch.nn.Linear(2, 2).parameters())
    assert made.defaults["fused"] is fused
