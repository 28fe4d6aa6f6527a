"""Saliency: the formula, and that taking it leaves no trace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.objectives.puzzle.common import ConvNet, batch, seeded
from vicinal import PuzzleMix
from vicinal.objectives.puzzle.saliency import block_saliency, saliency


def test_saliency_is_the_formula() -> None:
    model = ConvNet().eval().double()
    x, y = batch(4, 3, 8, 8)
    x = x.double().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(x), y, reduction="sum"), x)
    torch.testing.assert_close(saliency(model, x.detach(), y), gradient.square().mean(1).sqrt())


def test_saliency_of_tiny_gradients_is_not_lost() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    x, y = batch(2, 1, 4, 4, classes=2)
    usual = saliency(model, x, y)

    def scaled(x: Tensor) -> Tensor:
        return (model(x).double() * 1e-30).float() + 0 * model(x)

    class Quiet(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scaled(x)

    quiet = saliency(Quiet(), x, y)
    assert bool((quiet > 0).all())
    assert torch.isfinite(block_saliency(quiet, 2)).all()
    assert usual.shape == quiet.shape


@pytest.mark.parametrize("objective", [PuzzleMix(), PuzzleMix(adv_prob=1.0), PuzzleMix(solver="exact")])
def test_drawing_leaves_no_trace(objective: PuzzleMix) -> None:
    model = ConvNet()
    model.features[1].eval()  # a mixture of modes must come back as it was
    x, y = batch(6, 3, 16, 16)
    nn.functional.cross_entropy(model(x), y).backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    state = {name: t.clone() for name, t in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    kept = x.clone()
    global_state = torch.get_rng_state()
    objective.draw(model, x, y, generator=seeded())
    assert torch.equal(torch.get_rng_state(), global_state)
    assert modes == [m.training for m in model.modules()]
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    assert torch.equal(x, kept)
    assert not x.requires_grad


def test_an_exception_in_the_forward_restores_the_modes() -> None:
    class Broken(ConvNet):
        def forward(self, x: Tensor) -> Tensor:
            assert not self.training
            super().forward(x)
            raise RuntimeError("out of memory")

    model = Broken()
    model.features[3].eval()
    modes = [m.training for m in model.modules()]
    x, y = batch(4, 3, 8, 8)
    with pytest.raises(RuntimeError, match="out of memory"):
        PuzzleMix()(model, x, y)
    assert modes == [m.training for m in model.modules()]


def test_a_first_layer_that_works_in_place() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 5))
    x, y = batch(4, 1, 8, 8)
    x = x - 0.5
    kept = x.clone()
    PuzzleMix()(model, x, y).backward()
    assert torch.equal(x, kept)


def test_a_model_that_cuts_the_gradient_is_named() -> None:
    class Frozen(ConvNet):
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = super().forward(x.detach())
            return logits

    x, y = batch(2, 3, 8, 8)
    with pytest.raises(ValueError, match="does not reach it: a part of the model detaches"):
        PuzzleMix()(Frozen(), x, y)
    with pytest.raises(ValueError, match="does not reach it"):
        saliency(Frozen().requires_grad_(False), x, y)


def test_without_gradients() -> None:
    x, y = batch(4, 3, 8, 8)
    with torch.no_grad():
        loss = PuzzleMix(clean_weight=1.0)(ConvNet(), x, y)
    assert not loss.requires_grad
    assert loss.isfinite()


@pytest.mark.parametrize("gap", [12.0, 18.0, 60.0])  # losses of 6e-6, 1.5e-8 and 1e-26
@pytest.mark.parametrize("smoothing", [0.0, 0.01])
def test_float16_loses_no_gradient_of_a_well_learnt_image(gap: float, smoothing: float) -> None:
    """Averaged over 32 × 32 pixels, the gradients of small losses are below the least number of float16."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    x = torch.rand(16, 3, 32, 32)
    with torch.no_grad():
        labels = model(x).argmax(1)
        factor = gap / model(x).topk(2, 1).values.diff(dim=1).abs().median()
        model[-1].weight *= factor
        model[-1].bias *= factor
    exact = saliency(model, x, labels, label_smoothing=smoothing)
    with torch.autocast("cpu", dtype=torch.float16):
        plain = x.clone().requires_grad_()
        nn.functional.cross_entropy(model(plain).float(), labels, reduction="sum").backward()
        half = saliency(model, x, labels, label_smoothing=smoothing)
    assert int((plain.grad.abs().sum((1, 2, 3)) == 0).sum()) > 0  # what is lost without a scale
    assert bool((half.sum((1, 2)) > 0).all())
    assert (block_saliency(half, 4) - block_saliency(exact, 4)).abs().max() < 0.02
