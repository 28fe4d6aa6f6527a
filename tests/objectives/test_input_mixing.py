"""Mixup, KMixup, CutMix and GaussianVicinity against loops written from their equations."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from vicinal import (
    ERM,
    CutMix,
    GaussianVicinity,
    KMixup,
    LogitMix,
    ManifoldMixup,
    Mixup,
    PuzzleMix,
    RegMixup,
    ResizeMix,
    parse,
)
from vicinal._random import normal_like
from vicinal.mixing import PairPlan
from vicinal.objectives.cutmix import BoxPlan
from vicinal.objectives.kmixup import GroupPlan
from vicinal.objectives.puzzle.objective import PuzzlePlan

K = 4
INPUT_MIXERS = [Mixup(alpha=1.0), KMixup(alpha=1.0, k=3), CutMix(alpha=1.0)]


def linear(n: int = 4 * 5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(n, 8), nn.ReLU(), nn.Linear(8, K)).double()


def images(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 1, 4, 5, generator=g, dtype=torch.float64), torch.randint(K, (n,), generator=g)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def nll(model, x, label):
    return -model(x[None])[0].log_softmax(0)[label]


@given(st.integers(1, 6), st.booleans(), st.sampled_from(["soft", "nearest"]), st.integers(0, 500))
def test_mixup_against_its_equation(n, per_sample, labels, seed):
    model, (x, y) = linear(), images(n, seed)
    objective = Mixup(alpha=0.7, per_sample=per_sample, labels=labels)
    plan = objective.draw(model, x, y, generator=seeded(seed))
    total = 0.0
    for i in range(n):
        j, lam = int(plan.partner[i]), plan.lam[i].double()
        mixed = lam * x[i] + (1 - lam) * x[j]
        if labels == "nearest":
            lam = 1.0 if lam >= 0.5 else 0.0
        total += lam * nll(model, mixed, y[i]) + (1 - lam) * nll(model, mixed, y[j])
    loss = objective(model, x, y, generator=seeded(seed))
    torch.testing.assert_close(loss, total / n, atol=1e-6, rtol=1e-6)
    assert len(set(plan.lam.tolist())) == (n if per_sample else 1)


@given(st.integers(1, 6), st.integers(2, 4), st.booleans(), st.integers(0, 500))
def test_kmixup_against_its_equation(n, k, per_sample, seed):
    model, (x, y) = linear(), images(n, seed)
    objective = KMixup(alpha=1.0, k=k, per_sample=per_sample)
    plan = objective.draw(model, x, y, generator=seeded(seed))
    assert plan.partners[:, 0].tolist() == list(range(n)), "the first source is the sample itself"
    total = 0.0
    for i in range(n):
        sources = [(float(w), int(p)) for w, p in zip(plan.weights[i], plan.partners[i], strict=True)]
        mixed = sum(w * x[p] for w, p in sources)
        total += sum(w * nll(model, mixed, y[p]) for w, p in sources)
    torch.testing.assert_close(objective(model, x, y, generator=seeded(seed)), total / n, atol=1e-6, rtol=1e-6)


@given(st.integers(1, 6), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 500))
def test_cutmix_against_its_equation(n, per_sample, correct_area, prob, seed):
    model, (x, y) = linear(), images(n, seed)
    objective = CutMix(alpha=1.0, per_sample=per_sample, correct_area=correct_area, prob=prob)
    plan = objective.draw(model, x, y, generator=seeded(seed))
    boxes = plan.boxes.expand(n, 4).tolist()
    total = 0.0
    for i, (top, left, bottom, right) in enumerate(boxes):
        j, mixed, pasted = int(plan.partner[i]), x[i].clone(), 0
        for row in range(top, bottom):
            for column in range(left, right):
                mixed[:, row, column] = x[j][:, row, column]
                pasted += 1
        if correct_area:
            assert float(plan.lam[i]) == pytest.approx(1 - pasted / 20)
        lam = plan.lam[i].double()
        total += lam * nll(model, mixed, y[i]) + (1 - lam) * nll(model, mixed, y[j])
    torch.testing.assert_close(objective(model, x, y, generator=seeded(seed)), total / n, atol=1e-6, rtol=1e-6)
    if prob == 0:
        assert not plan.mixed
        torch.testing.assert_close(plan.lam, torch.ones(n))


def test_gaussian_vicinity_adds_noise_of_the_given_size():
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append(x)
            return x[:, :K]

    x, y = torch.ones(500, 40), torch.zeros(500, dtype=torch.int64)
    GaussianVicinity(sigma=0.3)(Spy(), x, y, generator=seeded())
    noise = seen[0] - x
    assert noise.std().item() == pytest.approx(0.3, rel=0.02)
    assert noise.mean().item() == pytest.approx(0, abs=0.01)
    GaussianVicinity(sigma=0)(Spy(), x, y)
    assert torch.equal(seen[1], x)


def test_erm_against_its_equation():
    model, (x, y) = linear(), images(5)
    logits = model(x)
    p = logits.softmax(1)
    entropy = -(p * p.log()).sum(1)
    plain = F.cross_entropy(logits, y)
    torch.testing.assert_close(ERM()(model, x, y), plain)
    torch.testing.assert_close(ERM(confidence_penalty=0.1)(model, x, y), (plain - 0.1 * entropy.mean()))


@pytest.mark.parametrize("objective", INPUT_MIXERS, ids=repr)
def test_alpha_zero_is_plain_training(objective):
    model, (x, y) = linear(), images(5)
    off = type(objective)(**{**{f.name: getattr(objective, f.name) for f in dataclasses.fields(objective)}, "alpha": 0})
    plain = ERM()(model, x, y)
    for variant in (off, LogitMix(off), RegMixup(off)):
        torch.testing.assert_close(variant(model, x, y, generator=seeded()), plain)


@pytest.mark.parametrize(
    ("objective", "plan"),
    [
        (Mixup(alpha=1.0), PairPlan(torch.ones(5), torch.tensor([4, 3, 2, 1, 0]))),
        (
            KMixup(alpha=1.0, k=2),
            GroupPlan(torch.tensor([[1.0, 0.0]] * 5), torch.tensor([[i, 4 - i] for i in range(5)])),
        ),
        (CutMix(), BoxPlan(torch.ones(5), torch.tensor([4, 3, 2, 1, 0]), boxes=torch.zeros(4, dtype=torch.int64))),
    ],
    ids=["Mixup", "KMixup", "CutMix"],
)
def test_lambda_one_equals_erm_and_a_plan_can_be_injected(objective, plan):
    model, (x, y) = linear(), images(5)
    loss = objective.loss(objective.forward(model, x, plan), y, plan).mean()
    torch.testing.assert_close(loss, ERM()(model, x, y))


def test_alpha_inf_averages():
    model, (x, y) = linear(), images(4)
    assert torch.equal(Mixup(alpha=math.inf).draw(model, x, y).lam, torch.full((4,), 0.5))


def test_same_class_partners_share_the_label():
    model, (x, y) = linear(), images(30)
    plan = Mixup(alpha=1.0, partners="same_class").draw(model, x, y, generator=seeded())
    assert torch.equal(y[plan.partner], y)
    with pytest.raises(ValueError, match="needs integer labels"):
        Mixup(alpha=1.0, partners="same_class")(model, x, torch.randn(30), target_type="regression")


def test_nearest_keeps_the_own_label_at_one_half():
    model, (x, y) = linear(), images(4)
    objective = Mixup(alpha=math.inf, labels="nearest")
    plan = objective.draw(model, x, y, generator=seeded())
    logits = objective.forward(model, x, plan)
    torch.testing.assert_close(objective.loss(logits, y, plan), F.cross_entropy(logits, y, reduction="none"))


@pytest.mark.parametrize("objective", INPUT_MIXERS, ids=repr)
def test_mappings_with_one_floating_tensor(objective):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = linear()

        def forward(self, pixels, mask):
            assert len(pixels) == len(mask)
            return self.net(pixels)

    model, (x, y) = Named(), images(5)
    batch = {"pixels": x, "mask": torch.ones(5, dtype=torch.int64)}
    torch.testing.assert_close(
        objective(model, batch, y, generator=seeded()), objective(model.net, x, y, generator=seeded())
    )
    assert LogitMix(objective)(model, batch, y, generator=seeded()).isfinite()
    with pytest.raises(ValueError, match=r"exactly one floating tensor.*'pixels', 'extra'"):
        objective(model, {**batch, "extra": x}, y)
    with pytest.raises(ValueError, match="SequenceMixup"):
        objective(model, {"mask": batch["mask"]}, y)


class ImageAndTable(nn.Module):
    """Two floating inputs and an integer one; remembers what it was called with."""

    def __init__(self):
        super().__init__()
        self.image, self.table, self.layer = nn.Linear(20, K), nn.Linear(3, K), nn.Identity()

    def forward(self, image, table, depth, code):
        self.seen = {"image": image, "table": table, "depth": depth}
        return self.layer(self.image(image.flatten(1)) + self.table(table) + depth.mean((1, 2, 3))[:, None])


def several(n=6):
    x, y = images(n)
    generator = seeded()
    table, depth = torch.randn(n, 3, generator=generator), torch.rand(n, 2, 4, 5, generator=generator)
    return {"image": x.float(), "table": table, "depth": depth, "code": torch.arange(n)}, y


NAMES = ("image", "table", "depth")
SEVERAL = [
    Mixup(alpha=1.0, per_sample=True, inputs=NAMES),
    KMixup(alpha=1.0, k=3, inputs=NAMES),
    CutMix(inputs=NAMES),
    ResizeMix(inputs=NAMES),
    PuzzleMix(block_counts=[1 + 1], adv_prob=1.0, inputs=NAMES),
    ManifoldMixup(layers=["input"], inputs=NAMES),
]


@pytest.mark.parametrize("objective", SEVERAL, ids=lambda one: type(one).__name__)
def test_named_inputs_are_mixed_with_one_plan(objective):
    torch.manual_seed(0)
    model, (x, y) = ImageAndTable(), several()
    if isinstance(objective, PuzzleMix):  # blocks must divide both sides
        x = {**x, "image": torch.rand(6, 1, 4, 4), "depth": torch.rand(6, 2, 4, 4)}
        model.image = nn.Linear(16, K)
    before = {name: t.clone() for name, t in x.items()}
    plan = objective.draw(model, x, y, generator=seeded())
    objective.forward(model, x, plan)
    assert all(torch.equal(x[name], before[name]) for name in x)
    for i in range(6):  # the table: each source's row by its share of the label
        row = sum(float(w) * x["table"][int(j)] for w, j in zip(plan.weights[i], plan.partners[i], strict=True))
        torch.testing.assert_close(model.seen["table"][i], row)
    seen = model.seen
    single = replace(objective, inputs=())
    for name in ("image", "depth"):  # of one height and width: as if each were alone
        alone = x[name] if name == "image" else x[name] + 0
        noiseless = replace(plan, noise=None) if name == "depth" and isinstance(plan, PuzzlePlan) else plan
        layer = nn.Identity()
        torch.testing.assert_close(seen[name], single.forward(layer, alone, noiseless), rtol=0, atol=0)
    loss = objective(model, x, y, generator=seeded())
    assert torch.equal(loss, objective(model, x, y, generator=seeded()))
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert LogitMix(objective, weight=0.1)(model, x, y, generator=seeded()).isfinite()


def test_noise_is_added_to_every_named_input():
    model, (x, y) = ImageAndTable(), several()
    GaussianVicinity(sigma=0.1, inputs=NAMES)(model, x, y, generator=seeded())
    generator = seeded()
    for name in NAMES:
        noise = normal_like(x[name], generator=generator)
        torch.testing.assert_close(model.seen[name], x[name] + 0.1 * noise)


@pytest.mark.parametrize("objective", [*SEVERAL, GaussianVicinity(sigma=0.1, inputs=NAMES)], ids=repr)
def test_inputs_are_printed_where_they_are_given_and_must_be_all(objective):
    assert "inputs" not in repr(replace(objective, inputs=()))
    assert parse(repr(objective)) == objective
    model, (x, y) = ImageAndTable(), several()
    for names, message in (
        ((), r"exactly one floating tensor.*inputs=\('image', 'table', 'depth'\)"),
        (("image", "table"), "every floating tensor.*'depth' is floating and would stay unmixed"),
        ((*NAMES, "code"), "'code' is not a floating tensor of x"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(objective, inputs=names)(model, x, y)
    with pytest.raises(ValueError, match="x is one tensor"):
        objective(nn.Flatten(), x["image"], y)


@pytest.mark.parametrize("given", ["image", ("image", "image"), (1,), ("",)])
def test_inputs_are_different_names(given):
    with pytest.raises(ValueError, match="inputs must be different names of tensors"):
        Mixup(alpha=1.0, inputs=given)


@pytest.mark.parametrize("objective", [*INPUT_MIXERS, GaussianVicinity(sigma=0.1)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_integer_input_is_refused_with_advice(objective, dtype):
    with pytest.raises(ValueError, match=rf"floating tensor.*{dtype}.*SequenceMixup"):
        objective(linear(), torch.zeros(4, 1, 4, 5, dtype=dtype), torch.zeros(4, dtype=torch.int64))


def test_cutmix_needs_images():
    with pytest.raises(ValueError, match=r"needs images \[B, …, H, W\], got \[4, 5\]"):
        CutMix()(nn.Linear(5, K), torch.zeros(4, 5), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("objective", [CutMix(), PuzzleMix()], ids=repr)
def test_images_with_their_channels_last_are_refused(objective):
    with pytest.raises(ValueError, match=r"got \[4, 8, 8, 3\], whose channels are last"):
        objective(nn.Flatten(), torch.zeros(4, 8, 8, 3), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixup(alpha=-0.1), "alpha must be a number of at least 0 or inf, got -0.1"),
        (lambda: Mixup(alpha=float("nan")), "alpha must be .* got nan"),
        (lambda: Mixup(alpha=1.0, labels="hard"), "labels must be one of 'soft', 'nearest', got 'hard'"),
        (lambda: Mixup(alpha=1.0, partners="x"), "partners must be one of"),
        (lambda: Mixup(alpha=1.0, label_smoothing=1.5), r"label_smoothing must be a number in \[0, 1\], got 1.5"),
        (lambda: CutMix(prob=1.1), r"prob must be a number in \[0, 1\], got 1.1"),
        (lambda: CutMix(prob=-0.1), r"prob must be a number in \[0, 1\], got -0.1"),
        (lambda: KMixup(alpha=1.0, k=1), "k must be an integer of at least 2, got 1"),
        (lambda: GaussianVicinity(sigma=-1), "sigma must be a number of at least 0, got -1"),
        (lambda: GaussianVicinity(sigma=math.inf), "sigma must be"),
        (lambda: ERM(label_smoothing=-0.1), r"label_smoothing must be a number in \[0, 1\]"),
        (lambda: ERM(confidence_penalty=-0.1), "confidence_penalty must be"),
    ],
)
def test_bad_hyper_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [lambda: Mixup(alpha="1"), lambda: Mixup(alpha=True), lambda: Mixup(alpha=1.0, per_sample=1), lambda: Mixup(1.0)],
)
def test_wrong_types_are_refused(make):
    with pytest.raises(TypeError):
        make()


def test_a_mixed_sample_carries_the_mixed_weight_by_loops():
    torch.manual_seed(0)
    model, x, y, w = nn.Linear(4, 3), torch.randn(5, 4), torch.arange(5) % 3, torch.tensor([0.0, 1.0, 2.0, 0.5, 4.0])
    for objective in (Mixup(alpha=1.0, per_sample=True), Mixup(alpha=1.0, per_sample=True, labels="nearest")):
        plan = objective.draw(model, x, y, generator=torch.Generator().manual_seed(0))
        total, weights = 0.0, 0.0
        for i in range(5):
            j, lam = int(plan.partner[i]), float(plan.lam[i])
            log_p = model(lam * x[i] + (1 - lam) * x[j]).log_softmax(0)
            share = lam if objective.labels == "soft" else float(lam >= 0.5)
            weight = share * w[i] + (1 - share) * w[j]
            total = total - weight * (share * log_p[y[i]] + (1 - share) * log_p[y[j]])
            weights = weights + weight
        got = objective(model, x, y, weight=w, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(got, total / weights)
    torch.testing.assert_close(
        ERM()(model, x, y, weight=w), nn.functional.cross_entropy(model(x), y, reduction="none").mul(w).sum() / w.sum()
    )
    by_class = torch.tensor([1.0, 2.0, 5.0])
    want = nn.functional.cross_entropy(model(x), y, weight=by_class)
    torch.testing.assert_close(ERM()(model, x, y, class_weights=by_class), want)


class Sounds(nn.Module):
    """Looks at what its mask lets through, as Wav2Vec2 does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Identity(), nn.Linear(6, 3)

    def forward(self, input_values, attention_mask):
        return self.head(self.layer(input_values) * attention_mask)


@pytest.mark.parametrize(
    "objective", [Mixup(alpha=1.0), ManifoldMixup(layers=["layer"]), ManifoldMixup(layers=["input"])], ids=repr
)
def test_the_tail_of_a_longer_partner_is_not_masked(objective):
    torch.manual_seed(0)
    mask = (torch.arange(6) < torch.tensor([2, 6, 4])[:, None]).long()
    x, y = {"input_values": torch.randn(3, 6) * mask, "attention_mask": mask}, torch.tensor([0, 1, 2])
    model = Sounds()
    plan = objective.draw(model, x, y, generator=torch.Generator().manual_seed(0))
    want = model.head(plan.combine(x["input_values"]))  # nothing of either is lost
    torch.testing.assert_close(objective.forward(model, x, plan), want)
    clean, mixed = objective.forward(model, x, plan, beside_clean=True).chunk(2)
    torch.testing.assert_close(mixed, want)
    torch.testing.assert_close(clean, model(**x))
    seen = []
    model.layer.register_forward_hook(lambda *_: None)
    unmixed = replace(plan, lam=torch.ones(3))
    model.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    objective.forward(model, {**x, "input_values": torch.ones(3, 6)}, unmixed)
    assert torch.equal(seen[0], mask.float())  # where nothing of the partner is mixed in, nothing of its mask is


def test_auxiliary_heads_are_refused():
    """torchvision's Inception and GoogLeNet: their heads would stay as they were drawn."""

    class Outputs(NamedTuple):
        logits: torch.Tensor
        aux_logits: torch.Tensor | None

    class Inception(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.aux = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return Outputs(self.head(x), self.aux(x) if self.training else None)

    model, x, y = Inception(), torch.randn(5, 4), torch.arange(5) % 3
    for objective in (ERM(), Mixup(alpha=0.4)):
        with pytest.raises(ValueError, match=r"returns aux_logits beside its logits.*aux_logits=False"):
            objective(model, x, y)
    assert ERM()(model.eval(), x, y).isfinite()


@pytest.mark.parametrize("objective", [*SEVERAL, GaussianVicinity(sigma=0.0, inputs=NAMES)], ids=repr)
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_named_inputs_keep_the_contract_of_objectives(objective, n, dtype):
    torch.manual_seed(0)
    model, (x, y) = ImageAndTable().to(dtype), several(n)
    if isinstance(objective, PuzzleMix):
        x = {**x, "image": torch.rand(n, 1, 4, 4), "depth": torch.rand(n, 2, 4, 4)}
        model.image = nn.Linear(16, K, dtype=dtype)
    x = {name: t.to(dtype) if t.is_floating_point() else t for name, t in x.items()}
    model.eval()
    loss = objective(model, x, y, generator=seeded())
    assert loss.ndim == 0
    assert loss.isfinite()
    assert not model.training
    assert all(seen.dtype == dtype for seen in model.seen.values())
    # Nothing mixed, or no noise, is plain training.
    off = replace(objective, alpha=0) if hasattr(objective, "alpha") else objective
    if not isinstance(off, ResizeMix):
        torch.testing.assert_close(off(model, x, y, generator=seeded()), ERM()(model, x, y))
