"""Training with channels last: what layers are handed, and the same digits wherever logits are computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.data.make import image_folder
from vicinal import load
from vicinal.expressions import parse
from vicinal.models import build
from vicinal.probes.attacks import fgsm
from vicinal.runs import Experiment, run
from vicinal.training import FitConfig, fit, loop
from vicinal.training.predicting import AtPrecision, channels_last_, to_device


class StopError(Exception):
    pass


def is_last(t: Tensor) -> bool:
    return t.is_contiguous(memory_format=torch.channels_last) and not t.is_contiguous()


def images(n: int = 24, seed: int = 0) -> TensorDataset:
    x = torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0].mean((1, 2)) > 0.5).long())


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build("preactresnet10", kind="image", n_classes=2, input_shape=(3, 8, 8), width=4)


def config(**fields: Any) -> FitConfig:
    plain = {"epochs": 2, "batch_size": 8, "optimizer": "sgd", "lr": 0.05, "trackers": (), "checkpoint_minutes": 0}
    return FitConfig(**{**plain, "channels_last": True, **fields})


def seen_by_convolutions(model: nn.Module) -> list[bool]:
    """Return a list that grows by whether each convolution's input has its channels last; sides of 1 do not count."""
    seen: list[bool] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[-1] > 1:
            seen.append(is_last(inputs[0]))

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(note)
    return seen


METHODS = (
    "ERM()",
    "Mixup(alpha=1.0)",
    "Mixup(alpha=1.0, per_sample=True)",
    "KMixup(alpha=1.0, k=3)",
    "GaussianVicinity(sigma=0.1)",
    "CutMix(alpha=1.0)",
    "CutMix(alpha=1.0, per_sample=True)",
    "PuzzleMix(clean_weight=1.0, adv_eps=4.0, adv_prob=1.0)",
    "ManifoldMixup(layers=['layer1'])",
    "LogitMix(CutMix(alpha=1.0))",
    "LogitMix(ManifoldMixup(layers=['layer2']), weight=0.5)",
    "LogitMix(PuzzleMix(), weight=0.5)",
    "RegMixup(Mixup(alpha=10.0))",
)


@pytest.mark.parametrize("method", METHODS)
def test_no_method_puts_channels_first_again(method: str) -> None:
    model = network()
    seen = seen_by_convolutions(model)
    fit(model, parse(method), images(), images(9, seed=1), config=config(epochs=1), progress=False)
    assert seen
    assert all(seen)
    assert all(is_last(p) for p in model.parameters() if p.ndim == 4 and p.shape[-1] > 1)


def test_weights_are_those_of_channels_first_but_for_rounding() -> None:
    models = []
    for channels_last in (False, True):
        model = network()
        fit(model, parse("Mixup(alpha=1.0)"), images(), config=config(channels_last=channels_last), progress=False)
        models.append(model)
    first, last = (dict(model.state_dict()) for model in models)
    assert all(torch.allclose(first[name], last[name], atol=1e-4) for name in first)


def test_a_run_that_was_ended_at_any_step_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"config": config(), "progress": False}
    method, train, val = parse("CutMix(alpha=1.0)"), images(), images(9, seed=1)
    whole = fit(network(), method, train, val, out=tmp_path / "whole", **how)
    step, resume = loop.Loop._train_step, loop.Loop._resume
    began = [0]

    def resumed_at(self: loop.Loop) -> None:
        resume(self)
        began[0] = self.step

    def only_one(self: loop.Loop, batches: Any) -> None:
        if self.step > began[0]:
            raise StopError
        step(self, batches)

    monkeypatch.setattr(loop.Loop, "_resume", resumed_at)
    monkeypatch.setattr(loop.Loop, "_train_step", only_one)
    for _ in range(20):
        try:
            resumed = fit(network(), method, train, val, out=tmp_path / "resumed", **how)
            break
        except StopError:
            pass
    assert resumed.info["resumed"] > 3
    assert (tmp_path / "resumed/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    assert whole.logits is not None
    assert resumed.logits is not None
    assert torch.equal(resumed.logits, whole.logits)
    assert resumed.history == whole.history


def test_a_model_answers_alike_whatever_the_layout_of_what_it_is_given() -> None:
    model = network().eval()
    channels_last_(model)
    served = AtPrecision(model, "no", channels_last=True)
    seen = seen_by_convolutions(model)
    x = images().tensors[0]
    logits = served(x)
    assert torch.equal(served(x.contiguous(memory_format=torch.channels_last)), logits)
    assert all(seen)


def test_attacks_keep_the_layout() -> None:
    model = network().eval()
    channels_last_(model)
    x, y = images().tensors
    last = x.contiguous(memory_format=torch.channels_last)
    served = AtPrecision(model, "no", channels_last=True)
    attacked = fgsm(served, last, y, epsilon=0.1, clip=None)
    assert is_last(attacked)
    assert torch.equal(attacked, fgsm(served, x, y, epsilon=0.1, clip=None))


def test_only_floating_tensors_of_four_dimensions_are_laid_out_anew() -> None:
    batch = {"image": torch.rand(2, 3, 4, 4), "mask": torch.ones(2, 3, 4, 4).long(), "more": torch.rand(2, 3, 4)}
    moved = to_device(batch, torch.device("cpu"), channels_last=True)
    assert is_last(moved["image"])
    assert moved["mask"] is batch["mask"]
    assert moved["more"] is batch["more"]
    channels_last_(nn.Conv3d(3, 4, 3))  # weights of five dimensions stay as they are


def test_what_would_corrupt_memory_is_refused() -> None:
    """A strided 1×1 convolution of few channels: https://github.com/uxlfoundation/oneDNN/issues/6035."""
    unsafe = nn.Sequential(nn.Conv2d(3, 8, 1, stride=2), nn.Flatten(), nn.Linear(8 * 16, 2))
    with pytest.raises(ValueError, match=r"channels_last=True is not safe .* layer '0'"):
        fit(unsafe, parse("ERM()"), images(), config=config(epochs=1), progress=False)
    fit(unsafe, parse("ERM()"), images(), config=config(epochs=1, channels_last=False), progress=False)


@pytest.mark.parametrize("fields", [{}, {"ensemble": 2}], ids=["one network", "an ensemble"])
def test_what_is_served_has_the_bits_of_what_was_evaluated(fields: dict[str, Any], tmp_path: Path) -> None:
    training = {"epochs": 2, "batch_size": 8, "trackers": [], "channels_last": True}
    options = {"width": 4}
    experiment = Experiment(
        source=str(image_folder(tmp_path / "images", n=20)),
        model="preactresnet10",
        model_options=options,
        training=training,
        **fields,
    )
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    bundle, task = load(tmp_path / "run"), outcome.run.task()
    assert bundle.channels_last
    seen = seen_by_convolutions(bundle.module)
    assert torch.equal(bundle.logits(task.test), outcome.test.logits)
    if not fields:  # of an ensemble the mean is taken of kept logits
        assert torch.equal(bundle.logits(task.val), outcome.sets["val"].logits)
    assert seen
    assert all(seen)
    bundle.save(tmp_path / "copy")
    assert load(tmp_path / "copy").channels_last
