"""PuzzleMix: the objective around masks, saliency and transport."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import vicinal
from tests.objectives.puzzle.common import SOLVERS, ConvNet, batch, seeded
from vicinal import ERM, LogitMix, PuzzleMix, RegMixup
from vicinal.objectives.puzzle.cut import mask_costs
from vicinal.objectives.puzzle.saliency import block_saliency
from vicinal.objectives.puzzle.transport import apply_transport, mix_blocks, transport_plan

# The objective --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    "shape", [(6, 3, 32, 32), (5, 1, 28, 28), (1, 3, 16, 16), (3, 1, 40, 96), (4, 24, 12), (3, 2, 4, 8, 8)]
)
def test_any_image(shape: tuple[int, ...], solver: str) -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(
                nn.functional.adaptive_avg_pool2d(x.flatten(1, -3) if x.ndim > 3 else x[:, None], 4)[:, 0].flatten(1)
            )

    x, y = batch(*shape)
    model = Mean()
    for seed in range(3):
        plan = PuzzleMix(solver=solver).draw(model, x, y, generator=seeded(seed))
        assert plan.masks.min() >= 0
        assert plan.masks.max() <= 1
        assert plan.lam.dtype == torch.float32
        torch.testing.assert_close(plan.lam, plan.masks.mean((1, 2)))
        assert PuzzleMix().mix(x, plan).shape == x.shape
        loss = PuzzleMix(solver=solver)(model, x, y, generator=seeded(seed))
        assert loss.isfinite()
        loss.backward()


@pytest.mark.parametrize("lam", [0.0, 1.0])
@pytest.mark.parametrize("constant", [True, False])
def test_extreme_lambda_and_no_gradient(lam: float, constant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal._random.beta", lambda *args, **kwargs: torch.tensor([lam], dtype=torch.float64))
    model = ConvNet()
    if constant:
        nn.init.zeros_(model.head.weight)  # zero gradient at the input
    x, y = batch(5, 3, 16, 16)
    plan = PuzzleMix().draw(model, x, y, generator=seeded())
    if constant:
        assert bool((plan.lam == lam).all())
        assert torch.equal(PuzzleMix().mix(x, plan), x if lam else x[plan.partner])
    assert PuzzleMix()(model, x, y).isfinite()


def test_nothing_moves_when_all_images_are_equal() -> None:
    x, y = batch(1, 3, 16, 16)
    x, y = x.expand(6, -1, -1, -1), y.expand(6)
    for seed in range(4):
        plan = PuzzleMix(transport=False).draw(ConvNet(), x, y, generator=seeded(seed))
        assert torch.equal(PuzzleMix().mix(x, plan), x)
    flat = torch.full((6, 3, 16, 16), 0.3)  # one colour: moving blocks shows nothing either
    assert torch.equal(PuzzleMix().mix(flat, PuzzleMix().draw(ConvNet(), flat, y, generator=seeded())), flat)


def test_loss_is_the_formula() -> None:
    model = ConvNet().eval()
    x, y = batch(6, 3, 16, 16)
    objective = PuzzleMix(label_smoothing=0.1)
    plan = objective.draw(model, x, y, generator=seeded(2))
    mixed = plan.masks.repeat_interleave(16 // plan.masks.shape[-1], 1).repeat_interleave(16 // plan.masks.shape[-1], 2)
    log_p = model(PuzzleMix().mix(x, plan)).log_softmax(1)
    smooth = torch.full((6, 5), 0.1 / 4).scatter_(1, y[:, None], 0.9)
    ratio = mixed.mean((1, 2))[:, None]
    target = ratio * smooth + (1 - ratio) * smooth[plan.partner]
    expected = -(target * log_p).sum(1).mean()
    torch.testing.assert_close(objective(model, x, y, generator=seeded(2)), expected)


def test_alpha_zero_is_erm() -> None:
    model = ConvNet().eval()
    x, y = batch(5, 3, 8, 8)
    assert not PuzzleMix(alpha=0).draw(model, x, y).mixed
    torch.testing.assert_close(PuzzleMix(alpha=0)(model, x, y), ERM()(model, x, y))


def test_same_generator_same_loss() -> None:
    model = ConvNet()
    x, y = batch(6, 3, 16, 16)
    objective = PuzzleMix(adv_prob=0.5)
    model.features[3].p = 0.0
    # The saliency sees BatchNorm's statistics, which each step moves: start from the same ones.
    first, second, third = (objective(copy.deepcopy(model), x, y, generator=seeded(s)) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    model = ConvNet().to(dtype)
    x, y = batch(4, 3, 16, 16)
    plan = PuzzleMix().draw(model, x.to(dtype), y, generator=seeded())
    assert PuzzleMix().mix(x.to(dtype), plan).dtype == dtype
    loss = PuzzleMix(adv_prob=1.0)(model, x.to(dtype), y, generator=seeded())
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_soft_labels_and_regression() -> None:
    model = ConvNet().eval()
    x, y = batch(4, 3, 8, 8)
    hard = PuzzleMix()(model, x, y, generator=seeded())
    soft = PuzzleMix()(model, x, nn.functional.one_hot(y, 5).float(), generator=seeded())
    torch.testing.assert_close(hard, soft)
    assert PuzzleMix()(ConvNet(classes=1), x, torch.rand(4), target_type="regression").isfinite()


def test_a_mapping_with_one_image() -> None:
    class Named(ConvNet):
        def forward(self, pixel_values: Tensor, scale: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(pixel_values) * scale[:, None]

    x, y = batch(4, 3, 8, 8)
    loss = LogitMix(PuzzleMix())(Named(), {"pixel_values": x, "scale": torch.ones(4, dtype=torch.int64)}, y)
    loss.backward()
    assert loss.isfinite()


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_beside_clean(noise: float) -> None:
    x, y = batch(5, 3, 16, 16)
    model, objective = ConvNet().eval(), PuzzleMix(adv_prob=noise)
    plan = objective.draw(model, x, y, generator=seeded())
    clean, mixed = objective.forward(model, x, plan, beside_clean=True).chunk(2)
    torch.testing.assert_close(clean, model(x))
    torch.testing.assert_close(mixed, model(objective.mix(x, plan)))


@pytest.mark.parametrize("objective", [PuzzleMix(), PuzzleMix(adv_prob=1.0), PuzzleMix(alpha=0)], ids=repr)
def test_what_is_drawn_does_not_depend_on_the_model_and_what_is_solved_draws_nothing(objective: PuzzleMix) -> None:
    x, y = batch(5, 3, 16, 16)
    drawn = objective.draw_choices(x, y, generator=seeded(3))
    before = torch.get_rng_state()
    for model in (ConvNet(), nn.Sequential(nn.Flatten(), nn.Linear(768, 5))):
        plan = objective.solve(model, x, y, drawn)
        whole = objective.draw(model, x, y, generator=seeded(3))
        assert torch.equal(plan.masks, whole.masks)
        assert torch.equal(objective.mix(x, plan), objective.mix(x, whole))
    torch.set_rng_state(before)
    objective.solve(model, x, y, drawn)
    assert torch.equal(torch.get_rng_state(), before)


def test_under_logitmix_and_regmixup() -> None:
    model = ConvNet().eval()
    x, y = batch(6, 3, 16, 16)
    objective = LogitMix(PuzzleMix(), weight=0.5)
    one = objective.terms(model, x, y, generator=seeded(1))
    two = LogitMix(PuzzleMix(), weight=0.5, split_forward=True).terms(model, x, y, generator=seeded(1))
    for name, value in one.items():
        torch.testing.assert_close(value, two[name])
        assert value > 0
    assert RegMixup(PuzzleMix())(model, x, y).isfinite()


def test_clean_weight_adds_the_clean_loss() -> None:
    model = ConvNet().eval()
    x, y = batch(6, 3, 16, 16)
    plain, clean = PuzzleMix()(model, x, y, generator=seeded()), ERM()(model, x, y)
    both = PuzzleMix(clean_weight=0.7)(model, x, y, generator=seeded())
    torch.testing.assert_close(both, plain + 0.7 * clean)
    expected = torch.autograd.grad(plain + 0.7 * clean, list(model.parameters()))
    assert all(p.grad is None for p in model.parameters())
    both.backward()
    for p, g in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, g)


def test_clean_weight_runs_in_the_models_own_mode() -> None:
    model = ConvNet().train()
    x, y = batch(6, 3, 8, 8)
    before = int(model.features[1].num_batches_tracked)
    PuzzleMix(clean_weight=1.0)(model, x, y)
    assert int(model.features[1].num_batches_tracked) == before + 2
    PuzzleMix()(model, x, y)
    assert int(model.features[1].num_batches_tracked) == before + 3


def test_distributed() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x, y = batch(4, 3, 8, 8)
        model = ConvNet()
        model.features[3].p = 0.0
        for objective in (PuzzleMix(), PuzzleMix(clean_weight=0.5)):
            gradients = []
            for wrapped in (model, nn.parallel.DistributedDataParallel(model)):
                model.zero_grad()
                objective(wrapped, x, y, generator=seeded()).backward()
                gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            for a, b in zip(*gradients, strict=True):
                torch.testing.assert_close(a, b)
        static = nn.parallel.DistributedDataParallel(model, static_graph=True)
        with pytest.raises(ValueError, match=r"clean_weight must be 0 .*static_graph"):
            PuzzleMix(clean_weight=0.5)(static, x, y)
        PuzzleMix()(static, x, y).backward()
    finally:
        dist.destroy_process_group()


def test_checkpointed_and_compiled() -> None:
    class Checkpointed(ConvNet):
        reentrant = False

        def forward(self, x: Tensor) -> Tensor:
            h = torch.utils.checkpoint.checkpoint(self.features, x, use_reentrant=self.reentrant)
            return self.head(h.flatten(1))

    torch.manual_seed(0)
    plain, checkpointed = ConvNet(), Checkpointed()
    plain.features[3].p = checkpointed.features[3].p = 0.0
    checkpointed.load_state_dict(plain.state_dict())
    x, y = batch(4, 3, 8, 8)
    expected = PuzzleMix()(plain, x, y, generator=seeded())
    torch.testing.assert_close(PuzzleMix()(checkpointed, x, y, generator=seeded()), expected)
    plain.load_state_dict(checkpointed.state_dict())
    checkpointed.reentrant = True
    with pytest.raises(ValueError, match="use_reentrant=False"):
        PuzzleMix()(checkpointed, x, y)
    assert all(m.training for m in checkpointed.modules())
    compiled = torch.compile(plain, backend="aot_eager")
    compiled(x)
    torch.testing.assert_close(PuzzleMix()(compiled, x, y, generator=seeded()), expected)


# Adversarial noise ----------------------------------------------------------------------------------------------


def test_noise_is_bounded_and_stays_in_range() -> None:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    pixels, y = batch(6, 3, 16, 16)
    shift, scale = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
    x = (pixels - shift) / scale
    objective = PuzzleMix(adv_prob=1.0, adv_eps=10.0, mean=mean, std=std)
    plan = objective.draw(ConvNet(), x, y, generator=seeded(1))
    assert plan.noise is not None
    assert plan.noisy == (True, True)
    noise = plan.noise * scale
    assert 1e-3 < noise.abs().max() <= 10 / 255 + 1e-6
    noisy = (x + plan.noise) * scale + shift
    assert noisy.min() > -1e-5
    assert noisy.max() < 1 + 1e-5
    torch.testing.assert_close(
        PuzzleMix().mix(x, plan),
        mix_blocks(x + plan.noise, (x + plan.noise)[plan.partner], plan.masks, plan.source, plan.partner_source),
    )


def test_noise_makes_the_loss_larger() -> None:
    model = ConvNet().eval()
    x, y = batch(64, 3, 16, 16)
    objective = PuzzleMix(adv_prob=1.0, adv_eps=20.0)
    plan = objective.draw(model, x, y, generator=seeded())
    attacked, clean = (nn.functional.cross_entropy(model(t), y) for t in (x + plan.noise, x))
    assert attacked > clean


def test_noise_comes_as_often_as_asked() -> None:
    objective, (x, y), generator = PuzzleMix(adv_prob=0.3), batch(2, 1, 4, 4), seeded()
    drawn = [objective.draw_choices(x, y, generator=generator) for _ in range(1000)]
    own, other = (sum(flags) / len(drawn) for flags in zip(*(d.noisy for d in drawn), strict=True))
    assert 0.25 < own < 0.35
    assert 0.25 < other < 0.35
    assert all((d.start is None) == (d.scale is None) == (d.noisy == (False, False)) for d in drawn)


def test_noise_needs_the_scale_of_the_pixels() -> None:
    x, y = batch(2, 3, 8, 8)
    with pytest.raises(ValueError, match=r"mean and std must bring x to \[0, 1\]"):
        PuzzleMix(adv_prob=0.1)(ConvNet(), 4 * x - 2, y)


# Construction and errors ----------------------------------------------------------------------------------------


def test_repr_parses_back() -> None:
    for objective in (
        PuzzleMix(),
        PuzzleMix(alpha=0.5, block_counts=[2, 4], transport=False, solver="exact", mean=[0.5, 0.4, 0.3], std=0.25),
        LogitMix(PuzzleMix(adv_prob=0.1), weight=0.5),
    ):
        assert vicinal.parse(repr(objective)) == objective
        hash(objective)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -1}, "alpha must be"),
        ({"block_counts": ()}, "block_counts must be a non-empty list"),
        ({"block_counts": 4}, "block_counts must be a non-empty list"),
        ({"block_counts": (1, 2)}, "block_counts must be an integer of at least 2, got 1"),
        ({"block_counts": "24"}, "block_counts must be an integer"),
        ({"labels": 1}, "labels must be an integer of at least 2, got 1"),
        ({"beta": -0.1}, "beta must be"),
        ({"gamma": math.nan}, "gamma must be"),
        ({"eta": -1}, "eta must be"),
        ({"neighbour_size": 0}, "neighbour_size must be"),
        ({"transport": 1}, "transport must be True or False"),
        ({"transport_eps": 0}, "transport_eps must be a number above 0, got 0"),
        ({"transport_blocks": 1}, "transport_blocks must be an integer of at least 2"),
        ({"solver": "gco"}, "solver must be one of 'fast', 'exact', got 'gco'"),
        ({"clean_weight": -1}, "clean_weight must be"),
        ({"adv_eps": 300}, "adv_eps must be"),
        ({"adv_prob": 2}, "adv_prob must be a number in \\[0, 1\\], got 2"),
        ({"std": 0}, "std must be a number above 0"),
        ({"std": (1.0, 0.0)}, "std must be a number above 0"),
        ({"mean": "0"}, "mean must be"),
        ({"label_smoothing": 2}, "label_smoothing must be"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        PuzzleMix(**arguments)  # type: ignore[arg-type]


def test_block_counts_that_do_not_divide() -> None:
    x, y = batch(2, 3, 30, 45)
    with pytest.raises(ValueError, match=r"30 × 45 images \(3, 5, 15\), got \(2, 4, 8, 16\)"):
        PuzzleMix()(ConvNet(), x, y)
    assert PuzzleMix(block_counts=(5, 16))(ConvNet(), x, y).isfinite()  # those that divide are used
    prime, y = batch(2, 3, 31, 37)
    with pytest.raises(ValueError, match="there is none: crop or pad"):
        PuzzleMix()(ConvNet(), prime, y)


def test_the_public_pieces_name_what_is_wrong() -> None:
    shares = block_saliency(torch.rand(2, 8, 8), 4)
    for blocks in (0, 3, 16):  # pooling would leave out pixels without a word
        with pytest.raises(ValueError, match=rf"must divide both sides of 8 × 8 images, got {blocks}"):
            block_saliency(torch.rand(2, 8, 8), blocks)
    with pytest.raises(ValueError, match=r"must divide both sides of 8 × 6 images, got 4"):
        mask_costs(torch.rand(2, 3, 8, 6), shares, torch.tensor([1, 0]), 0.5)
    with pytest.raises(ValueError, match=r"must divide both sides of 8 × 6 images, got 4"):
        apply_transport(torch.rand(2, 3, 8, 6), torch.arange(16).expand(2, -1))
    with pytest.raises(ValueError, match=r"lam must be a number in \[0, 1\], got 1.5"):
        mask_costs(torch.rand(2, 3, 8, 8), shares, torch.tensor([1, 0]), 1.5)
    with pytest.raises(ValueError, match="labels must be an integer of at least 2, got 1"):
        mask_costs(torch.rand(2, 3, 8, 8), shares, torch.tensor([1, 0]), 0.5, labels=1)
    with pytest.raises(ValueError, match="eps must be a number above 0, got 0"):
        transport_plan(shares, shares, eps=0)
    with pytest.raises(ValueError, match="at least 2 × 2 blocks"):
        transport_plan(torch.ones(1, 1, 1), torch.ones(1, 1, 1))


def test_bad_input() -> None:
    y = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="needs images"):
        PuzzleMix()(nn.Linear(4, 2), torch.rand(2, 4), y)
    with pytest.raises(ValueError, match="must be a floating tensor"):
        PuzzleMix()(ConvNet(), torch.zeros(2, 3, 8, 8, dtype=torch.uint8), y)
    with pytest.raises(ValueError, match="mean has 2 numbers"):
        PuzzleMix(mean=(0.1, 0.2))(ConvNet(), torch.rand(2, 3, 8, 8), y)
