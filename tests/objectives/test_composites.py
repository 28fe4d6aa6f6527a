"""LogitMix, RegMixup and the schedules over any mixing objective."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vicinal import (
    ERM,
    CutMix,
    During,
    KMixup,
    LogitMix,
    ManifoldMixup,
    Mixup,
    PuzzleMix,
    RegMixup,
    SequenceMixup,
    Warmup,
)

K = 4
BASES = [Mixup(alpha=3.0), KMixup(alpha=1.0, k=3), CutMix(alpha=1.0), ManifoldMixup(layers=["1"])]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def setup(n: int = 5):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, K)).double()
    g = torch.Generator().manual_seed(1)
    return model, torch.randn(n, 1, 4, 4, generator=g, dtype=torch.float64), torch.randint(K, (n,), generator=g)


def slow_terms(base, model, x, y, seed):
    """The three terms of LogitMix by loops, from two separate forwards."""
    plan = base.draw(model, x, y, generator=seeded(seed))
    clean, mixed = model(x), base.forward(model, x, plan)
    mse = l2 = probs = 0.0
    for i in range(len(x)):
        sources = list(zip(plan.weights[i].double(), plan.partners[i].tolist(), strict=True))
        target = sum(w * clean[j] for w, j in sources)
        mse = mse + ((target - mixed[i]) ** 2).sum() / K
        l2 = l2 + ((target - mixed[i]) ** 2).sum() ** 0.5
        target = sum(w * clean[j].softmax(0) for w, j in sources)
        probs = probs + ((target - mixed[i].softmax(0)) ** 2).sum() / K
    n = len(x)
    return (
        F.cross_entropy(clean, y),
        {"mse": mse / n, "l2": l2 / n, "probs": probs / n},
        base.loss(mixed, y, plan).mean(),
    )


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("kind", ["mse", "l2", "probs"])
@pytest.mark.parametrize("split_forward", [False, True])
def test_logitmix_against_its_equation(base, kind, split_forward):
    model, x, y = setup()
    objective = LogitMix(base, weight=0.3, cls_weight=2, mix_weight=0.7, similarity=kind, split_forward=split_forward)
    for seed in range(3):
        clean, similar, mixed = slow_terms(base, model, x, y, seed)
        terms = objective.terms(model, x, y, generator=seeded(seed))
        torch.testing.assert_close(terms["clean"], 2 * clean)
        torch.testing.assert_close(terms["similarity"], 0.3 * similar[kind], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(terms["mixed"], 0.7 * mixed, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(objective(model, x, y, generator=seeded(seed)), sum(terms.values()))


@pytest.mark.parametrize("base", BASES, ids=repr)
def test_regmixup_against_its_equation(base):
    model, x, y = setup()
    clean, _, mixed = slow_terms(base, model, x, y, 0)
    loss = RegMixup(base, weight=0.5)(model, x, y, generator=seeded())
    torch.testing.assert_close(loss, clean + 0.5 * mixed, atol=1e-6, rtol=1e-5)


def test_gradients_flow_into_both_sides_of_the_similarity():
    model, x, y = setup()
    objective = LogitMix(Mixup(alpha=3.0), cls_weight=0, mix_weight=0)
    objective(model, x, y, generator=seeded()).backward()
    both = model[1].weight.grad.clone()
    model.zero_grad()
    plan = objective.base.draw(model, x, y, generator=seeded())
    target, mixed = plan.combine(model(x)), objective.base.forward(model, x, plan)
    (target - mixed).square().mean().backward()
    torch.testing.assert_close(both, model[1].weight.grad)
    model.zero_grad()
    (target.detach() - objective.base.forward(model, x, plan)).square().mean().backward()
    assert not torch.allclose(both, model[1].weight.grad)


def test_one_forward_by_default_two_when_split():
    for split_forward, rows in ((False, [10]), (True, [5, 5])):
        model, x, y = setup()
        seen = []
        model.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(len(args[0])))
        LogitMix(Mixup(alpha=3.0), split_forward=split_forward)(model, x, y)
        assert seen == rows


def test_split_forward_keeps_batchnorm_statistics_apart():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, K))
    x, y = torch.randn(6, 3), torch.randint(K, (6,))
    clean = copy.deepcopy(model)(x)
    losses = LogitMix(Mixup(alpha=3.0), split_forward=True).terms(model, x, y)
    torch.testing.assert_close(losses["clean"], F.cross_entropy(clean, y))


def test_logitmix_of_equation_3_has_two_classification_terms_and_the_norm():
    """Eq. 3 of Bang et al., pair by pair: H of a sample, H of its partner, the norm, and the mixed loss."""
    model, x, y = setup(7)
    base = Mixup(alpha=3.0, per_sample=True)
    plan = base.draw(model, x, y, generator=seeded(4))
    total = 0.0
    for i, j in enumerate(plan.partner.tolist()):
        lam = plan.lam[i].double()
        z1, z2, z = model(x[i : i + 1])[0], model(x[j : j + 1])[0], model((lam * x[i] + (1 - lam) * x[j])[None])[0]
        cls = F.cross_entropy(z1, y[i]) + F.cross_entropy(z2, y[j])
        sim = sum((lam * a + (1 - lam) * b - c) ** 2 for a, b, c in zip(z1, z2, z, strict=True)) ** 0.5
        mix = lam * F.cross_entropy(z, y[i]) + (1 - lam) * F.cross_entropy(z, y[j])
        total = total + (cls + sim + mix) / len(x)
    objective = LogitMix(base, weight=1.0, cls_weight=2, similarity="l2")
    torch.testing.assert_close(objective(model, x, y, generator=seeded(4)), total, atol=1e-6, rtol=1e-6)


def test_the_norm_has_a_gradient_where_it_is_zero():
    model, x, y = setup(1)  # one sample is its own partner: clean and mixed logits are equal
    LogitMix(Mixup(alpha=3.0), similarity="l2")(model, x, y).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("base", "weight"),
    [
        (Mixup(alpha=3.0), 1.0),
        (KMixup(alpha=1.0, k=3), 1.0),
        (CutMix(), 0.1),
        (PuzzleMix(), 0.5),
        (ManifoldMixup(layers=["1"]), 1.0),
        (SequenceMixup.input(), 1.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_weight_of_logitmix_is_the_papers_where_none_is_given(base, weight):
    objective = LogitMix(base)
    assert objective.weight == weight
    assert f"weight={weight}, cls_weight" in repr(objective)
    assert objective == LogitMix(base, weight=weight)
    assert LogitMix(base, weight=0).weight == 0.0


def test_logitmix_warns_where_a_linear_head_makes_the_similarity_zero():
    model, x, y = setup()
    for layer in ("2", "3"):  # what the head receives, and what it returns
        with pytest.warns(UserWarning, match="identically zero"):
            terms = LogitMix(ManifoldMixup(layers=[layer])).terms(model, x, y, generator=seeded())
        assert terms["similarity"] < 1e-10
    LogitMix(ManifoldMixup(layers=["1"])).terms(model, x, y, generator=seeded())  # before the ReLU: not linear
    LogitMix(ManifoldMixup(layers=["2"]), weight=0)(model, x, y)
    LogitMix(ManifoldMixup(layers=["2"]), similarity="probs")(model, x, y)

    class Functional(nn.Module):
        """The ReLU is no module, so the order of modules alone would mislead."""

        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(16, 8), nn.Linear(8, K)

        def forward(self, x):
            return self.head(self.first(x.flatten(1)).relu())

    LogitMix(ManifoldMixup(layers=["first"]))(Functional().double(), x, y)


def test_logitmix_warns_through_average_pooling_too():
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, K)
    ).double()
    _, x, y = setup()
    with pytest.warns(UserWarning, match="identically zero"):
        LogitMix(ManifoldMixup(layers=["1"]))(model, x, y)
    LogitMix(ManifoldMixup(layers=["0"]))(model, x, y)


def test_a_batch_left_unmixed_costs_cross_entropy_once_in_every_ablation():
    model, x, y = setup()
    for composite, weight in (
        (LogitMix(CutMix(prob=0.0)), 1.0),
        (LogitMix(CutMix(prob=0.0), cls_weight=2), 2.0),
        (LogitMix(CutMix(prob=0.0), cls_weight=0), 1.0),
        (LogitMix(CutMix(prob=0.0), mix_weight=0), 1.0),
        (LogitMix(CutMix(prob=0.0), cls_weight=0, mix_weight=0.5), 0.5),
        (LogitMix(CutMix(prob=0.0), cls_weight=0, mix_weight=0), 0.0),
        (RegMixup(CutMix(prob=0.0)), 1.0),
    ):
        terms = composite.terms(model, x, y)
        torch.testing.assert_close(sum(terms.values()), weight * ERM()(model, x, y))
        assert list(terms) == list(type(composite)(Mixup(alpha=1.0)).terms(model, x, y)), "the same names to log"


def test_label_smoothing_of_the_base_holds_for_the_clean_term_too():
    model, x, y = setup()
    terms = LogitMix(Mixup(alpha=1.0, label_smoothing=0.1)).terms(model, x, y)
    torch.testing.assert_close(terms["clean"], ERM(label_smoothing=0.1)(model, x, y))


def test_only_mixing_objectives_can_be_wrapped():
    for wrong in (ERM(), LogitMix(Mixup(alpha=1.0)), "Mixup", None, Mixup):
        for composite in (LogitMix, RegMixup):
            with pytest.raises(TypeError, match="base must be a mixing objective"):
                composite(wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogitMix(Mixup(alpha=1.0), weight=-1), "weight must be a number of at least 0, got -1"),
        (lambda: LogitMix(Mixup(alpha=1.0), cls_weight=-1), "cls_weight must be"),
        (lambda: LogitMix(Mixup(alpha=1.0), similarity="cos"), "similarity must be one of 'mse', 'l2', 'probs'"),
        (lambda: RegMixup(Mixup(alpha=1.0), weight=float("nan")), "weight must be"),
        (lambda: Warmup(Mixup(alpha=1.0), epochs=-1), "epochs must be"),
        (lambda: During(Mixup(alpha=1.0), start=3, stop=2), "stop must be a number above 3 or inf, got 2"),
    ],
)
def test_bad_hyper_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_warmup_and_between_follow_the_epoch():
    model, x, y = setup()
    plain, inner = ERM()(model, x, y), Mixup(alpha=1.0)(model, x, y, generator=seeded())

    def at(objective, epoch):
        return objective(model, x, y, epoch=epoch, generator=seeded())

    warm = Warmup(Mixup(alpha=1.0), epochs=2)
    assert [torch.equal(at(warm, e), plain) for e in (0, 1.99, 2.0, 7)] == [True, True, False, False]
    torch.testing.assert_close(at(warm, 2.0), inner)
    window = During(Mixup(alpha=1.0), start=1, stop=2.5)
    assert [torch.equal(at(window, e), plain) for e in (0.99, 1.0, 2.49, 2.5)] == [True, False, False, True]


def test_schedules_need_the_epoch_and_say_so():
    model, x, y = setup()
    for objective in (Warmup(Mixup(alpha=1.0), epochs=1), During(Mixup(alpha=1.0), start=0, stop=1)):
        with pytest.raises(ValueError, match="pass epoch="):
            objective(model, x, y)


def test_schedules_wrap_objectives_only():
    with pytest.raises(TypeError, match="objective must be an objective"):
        Warmup("Mixup", epochs=1)


def test_schedules_over_objectives_without_state_have_no_state():
    schedule = Warmup(Mixup(alpha=1.0), epochs=1)
    assert schedule.state_dict() == {}
    schedule.load_state_dict({})
    with pytest.raises(ValueError, match="keeps no training state"):
        schedule.load_state_dict({"counts": torch.zeros(1)})
    with pytest.raises(TypeError, match="nothing to bind"):
        schedule.bind()


def test_labels_left_in_the_batch_are_refused():
    model, x, y = setup()
    with pytest.raises(ValueError, match="x holds 'labels'"):
        ERM()(model, {"input": x, "labels": y}, y)


def test_one_row_that_stands_for_all_is_not_doubled():
    class Shifted(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, pixels, shift):
            assert shift.shape == (1, 4)
            return self.net(pixels) + shift

    net, x, y = setup()
    batch = {"pixels": x, "shift": torch.zeros(1, 4, dtype=torch.int64)}
    expected = LogitMix(Mixup(alpha=3.0))(net, x, y, generator=seeded())
    torch.testing.assert_close(LogitMix(Mixup(alpha=3.0))(Shifted(net), batch, y, generator=seeded()), expected)
