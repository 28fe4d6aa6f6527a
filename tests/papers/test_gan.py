from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from vicinal import _random
from vicinal.papers.gan import (
    GanConfig,
    GaussianMixture,
    any_pairs_loss,
    coverage,
    discriminator_loss,
    fit_gan,
    generator_loss,
    grid_of_gaussians,
    ring_of_gaussians,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(seed=0, inputs=2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))


def batches(n=5):
    return torch.randn(n, 2, generator=seeded(1)), torch.randn(n, 2, generator=seeded(2))


def bce(logit, target):
    p = 1 / (1 + math.exp(-float(logit)))
    return -target * math.log(p) - (1 - target) * math.log(1 - p)


@given(st.integers(1, 6), st.sampled_from([0.2, 1.0, math.inf]), st.booleans(), st.integers(0, 99))
def test_the_discriminators_loss_is_the_formula(n, alpha, per_sample, seed):
    d, (x, fake) = network(), batches(n)
    lam = _random.beta(alpha, n if per_sample else 1, generator=seeded(seed)).tolist()
    lam = lam if per_sample else lam * n
    with torch.no_grad():
        found = discriminator_loss(d, x, fake, alpha=alpha, per_sample=per_sample, generator=seeded(seed))
        rows = [bce(d((w * x[i] + (1 - w) * fake[i])[None]), w) for i, w in enumerate(lam)]
        given_lam = discriminator_loss(d, x, fake, lam=torch.tensor(lam))
    assert float(found) == pytest.approx(sum(rows) / n, rel=1e-4)
    assert float(given_lam) == pytest.approx(float(found), rel=1e-5)


@torch.no_grad()
def test_without_mixup_it_is_the_plain_gan_and_the_limit_of_small_alpha():
    d, (x, fake) = network(), batches(64)
    plain = float(discriminator_loss(d, x, fake, alpha=0))
    by_hand = np.mean([bce(z, 1) for z in d(x)]) / 2 + np.mean([bce(z, 0) for z in d(fake)]) / 2
    assert plain == pytest.approx(by_hand, rel=1e-5)
    generator = seeded()
    limit = [float(discriminator_loss(d, x, fake, alpha=1e-4, generator=generator)) for _ in range(2000)]
    assert np.mean(limit) == pytest.approx(plain, abs=5 * np.std(limit) / 2000**0.5 + 1e-4)


@given(st.integers(1, 6), st.floats(0, 1), st.booleans(), st.integers(0, 99))
@torch.no_grad()
def test_the_loss_of_any_pairs_is_the_formula(n, high, two_batches, seed):
    d, (x, fake) = network(), batches(n)
    others = (x.flip(0) + 1, fake.flip(0) - 1) if two_batches else None
    lam = (high * torch.rand(2 * n, dtype=torch.float64, generator=seeded(seed))).tolist()
    partner = torch.randperm(2 * n, generator=seeded(seed + 1)).tolist()
    rows = [*x, *fake]
    second = rows if others is None else [*others[0], *others[1]]
    by_hand = []
    for i, (w, j) in enumerate(zip(lam, partner, strict=True)):
        target = w * (j < n) + (1 - w) * (i < n)
        by_hand.append(bce(d((w * second[j] + (1 - w) * rows[i])[None]), target))
    found = any_pairs_loss(d, x, fake, others=others, lam=torch.tensor(lam), partner=torch.tensor(partner))
    assert float(found) == pytest.approx(np.mean(by_hand), rel=1e-4)


@torch.no_grad()
def test_any_pairs_draw_a_lambda_for_each_row_and_are_the_plain_gan_at_zero():
    d, (x, fake) = network(), batches(64)
    assert torch.equal(any_pairs_loss(d, x, fake, high=0), discriminator_loss(d, x, fake, alpha=0))
    generator = seeded()
    lam = 0.2 * torch.rand(128, dtype=torch.float64, generator=generator).float()
    partner = _random.permutation(128, generator=generator)
    assert torch.equal(
        any_pairs_loss(d, x, fake, generator=seeded()), any_pairs_loss(d, x, fake, lam=lam, partner=partner)
    )


@torch.no_grad()
def test_the_generators_losses_are_the_formulas():
    d, (x, fake) = network(), batches()
    assert float(generator_loss(d, fake, kind="non-saturating")) == pytest.approx(
        np.mean([bce(z, 1) for z in d(fake)]), rel=1e-5
    )
    saturating = float(generator_loss(d, fake, kind="saturating"))
    assert saturating == pytest.approx(-np.mean([bce(z, 0) for z in d(fake)]), rel=1e-5)
    published = generator_loss(d, fake, real=x, alpha=0.5, generator=seeded())
    lam = float(_random.beta(0.5, 1, generator=seeded()))
    by_hand = -np.mean([bce(z, lam) for z in d(lam * x + (1 - lam) * fake)])
    assert float(published) == pytest.approx(by_hand, rel=1e-5)
    mixed = generator_loss(d, fake, kind="minimax", real=x, alpha=0.5, generator=seeded())
    assert torch.equal(mixed, published)
    assert float(mixed) == -float(discriminator_loss(d, x, fake, alpha=0.5, generator=seeded()))
    plain = float(generator_loss(d, fake, kind="minimax", real=x, alpha=0))
    assert plain == pytest.approx(saturating / 2 - np.mean([bce(z, 1) for z in d(x)]) / 2, rel=1e-5)


def test_gradients_flow_and_shapes_of_logits_do_not_matter():
    d, (x, fake) = network(), batches()
    fake.requires_grad_()
    for loss in (
        discriminator_loss(d, x, fake, generator=seeded()),
        generator_loss(d, fake, kind="saturating"),
        generator_loss(d, fake, real=x, generator=seeded()),
    ):
        slope, *rest = torch.autograd.grad(loss, [fake, *d.parameters()])
        assert slope.abs().sum() > 0
        assert any(r.abs().sum() > 0 for r in rest)

    class Flat(nn.Module):
        def forward(self, t):
            return SimpleNamespace(logits=d(t).view(-1))

    assert torch.equal(generator_loss(Flat(), fake, real=x, alpha=0), generator_loss(d, fake, real=x, alpha=0))
    coarse = fake.to(torch.bfloat16)
    assert generator_loss(d.to(torch.bfloat16), coarse, real=x.to(torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda d, x, f: discriminator_loss(d, x, f[1:]), r"one shape, got \[5, 2\] and \[4, 2\]"),
        (lambda d, x, f: discriminator_loss(d, x.long(), f), "real must be a floating tensor"),
        (lambda d, x, f: discriminator_loss(d, x[:0], f[:0]), "at least one row"),
        (lambda d, x, f: discriminator_loss(d, x, f, alpha=-1), "alpha"),
        (lambda d, x, f: discriminator_loss(d, x, f, lam=1.5), r"lam must be in \[0, 1\]"),
        (lambda d, x, f: discriminator_loss(d, x, f, lam=torch.ones(3)), "lam must be a number or have shape"),
        (lambda d, x, f: discriminator_loss(nn.Linear(2, 2), x, f), "one logit per row"),
        (lambda d, x, f: any_pairs_loss(d, x, f, others=(x, f[1:])), "others must have one shape"),
        (lambda d, x, f: any_pairs_loss(d, x.long(), f), "real must be a floating tensor"),
        (lambda d, x, f: any_pairs_loss(d, x, f, high=1.1), "high"),
        (lambda d, x, f: any_pairs_loss(d, x, f, lam=torch.ones(5)), r"have shape \[10\]"),
        (lambda d, x, f: any_pairs_loss(d, x, f, partner=torch.arange(5)), r"partner must have shape \[10\]"),
        (lambda d, x, f: GanConfig(pairs="any"), "pass generator_loss='saturating'"),
        (lambda d, x, f: GanConfig(pairs="both"), "pairs"),
        (lambda d, x, f: GanConfig(pairs="any", generator_loss="saturating", alpha=2), "alpha"),
        (lambda d, x, f: discriminator_loss(d, x, f, alpha=0, per_sample="yes"), "per_sample"),
        (lambda d, x, f: generator_loss(d, f), "pass real, or kind='non-saturating'"),
        (
            lambda d, x, f: generator_loss(d, f[:0], real=x[:0]),
            "real must be a floating .* at least one row",
        ),
        (
            lambda d, x, f: generator_loss(d, f.detach().numpy(), real=x),
            "fake must be a floating tensor .*, got ndarray",
        ),
        (lambda d, x, f: generator_loss(d, f.long(), kind="non-saturating"), "fake must be a floating tensor"),
        (lambda d, x, f: generator_loss(d, f, kind="wasserstein"), "kind must be one of"),
        (lambda d, x, f: GanConfig(iterations=0), "iterations"),
        (lambda d, x, f: GanConfig(generator_loss="hinge"), "generator_loss must be one of"),
        (lambda d, x, f: fit_gan(ring_of_gaussians(), keep_at=[0]), "keep_at"),
        (lambda d, x, f: coverage(torch.zeros(3), ring_of_gaussians()), "samples must have shape"),
        (lambda d, x, f: coverage(torch.zeros(3, 2), ring_of_gaussians(), at_least=0), "at_least"),
        (lambda d, x, f: ring_of_gaussians(std=0), "std"),
        (lambda d, x, f: ring_of_gaussians(0), "n_modes"),
        (lambda d, x, f: grid_of_gaussians(2, spacing=0), "spacing"),
    ],
)
def test_bad_arguments_are_refused(call, match):
    with pytest.raises((ValueError, TypeError), match=match):
        call(network(), *batches())


@pytest.mark.parametrize("target", [ring_of_gaussians(), grid_of_gaussians()], ids=["ring", "grid"])
def test_the_mixtures_have_their_modes_and_spread(target):
    n = 20_000
    found = coverage(target.sample(n, generator=seeded()), target)
    assert found.modes == found.n_modes == len(target.centres)
    assert stats.binomtest(round(found.high_quality.value * n), n, 1 - math.exp(-4.5)).pvalue > 1e-4
    assert stats.chisquare(found.counts).pvalue > 1e-4
    assert math.isclose(float(target.centres.mean()), 0, abs_tol=1e-6)


def test_coverage_counts_what_a_loop_counts():
    target = grid_of_gaussians(3, spacing=1, std=0.1)
    points = 1.2 * torch.randn(300, 2, generator=seeded())
    points[0] = math.nan
    points[1] = math.inf
    counts = [0] * 9
    for point in points.tolist():
        distances = [math.dist(point, centre) for centre in target.centres.tolist()]
        if min(distances) <= 0.2:
            counts[distances.index(min(distances))] += 1
    found = coverage(points, target, n_std=2, at_least=3)
    assert found.counts == tuple(counts)
    assert found.modes == sum(c >= 3 for c in counts)
    assert found.high_quality.value == pytest.approx(sum(counts) / 300)
    assert found.to_dict()["counts"] == counts


def small(**changes):
    return GanConfig(**{"hidden": (16,), "batch_size": 8, **changes})


@pytest.mark.parametrize("kind", ["minimax", "saturating", "non-saturating"])
def test_a_seed_gives_the_same_gan_and_leaves_the_generators_alone(kind):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    config = small(iterations=7, generator_loss=kind)
    a, b = (fit_gan(ring_of_gaussians(), config, keep_at=(2, 5, 100), n_samples=30) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert list(a.samples) == [2, 5, 7]
    assert all(torch.equal(a.samples[i], b.samples[i]) for i in a.samples)
    assert torch.equal(a.last, a.samples[7])
    assert not torch.equal(a.samples[2], a.samples[5])
    assert a.losses.shape == (7, 2)
    assert bool(a.losses.isfinite().all())
    other = fit_gan(ring_of_gaussians(), config, seed=1, n_samples=30)
    assert not torch.equal(other.last, a.last)


def test_with_and_without_mixup_start_from_the_same_weights_and_see_the_same_data():
    asked: list[list[torch.Tensor]] = []

    class Recorded(GaussianMixture):
        def sample(self, n, *, generator=None):
            asked[-1].append(super().sample(n, generator=generator))
            return asked[-1][-1]

    ring = ring_of_gaussians()
    starts = []
    for alpha in (0.2, 0.0):
        asked.append([])
        fit = fit_gan(Recorded(ring.centres, ring.std), small(alpha=alpha, iterations=1, lr=1e-12))
        starts.append(fit.last)
    torch.testing.assert_close(*starts)
    assert len(asked[0]) == 6  # five steps of the discriminator, one of the generator
    assert all(torch.equal(a, b) for a, b in zip(*asked, strict=True))


def test_a_step_is_the_published_one():
    """One iteration, replayed with other code."""
    target, batch = ring_of_gaussians(), 8
    fit = fit_gan(target, small(iterations=1, discriminator_steps=2, alpha=0.4))
    start = fit_gan(target, small(iterations=1, discriminator_steps=1, lr=1e-30))
    g, d = start.generator, start.discriminator
    data, noise, lambdas = (
        torch.Generator().manual_seed(_random.seed_from("gan", name, 0)) for name in ("data", "noise", "lambda")
    )
    adams = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in (g, d)]
    for _ in range(2):
        x = target.sample(batch, generator=data)
        with torch.no_grad():
            fake = g(torch.randn(batch, 2, dtype=torch.float64, generator=noise).float())
        lam = float(_random.beta(0.4, 1, generator=lambdas))
        p = d(lam * x + (1 - lam) * fake).sigmoid()
        loss = -(lam * p.log() + (1 - lam) * (1 - p).log()).mean()
        adams[1].zero_grad()
        loss.backward()
        adams[1].step()
    x = target.sample(batch, generator=data)
    fake = g(torch.randn(batch, 2, dtype=torch.float64, generator=noise).float())
    lam = float(_random.beta(0.4, 1, generator=lambdas))
    p = d(lam * x + (1 - lam) * fake).sigmoid()
    adams[0].zero_grad()
    (lam * p.log() + (1 - lam) * (1 - p).log()).mean().backward()
    adams[0].step()
    for mine, theirs in zip(
        [*g.parameters(), *d.parameters()], [*fit.generator.parameters(), *fit.discriminator.parameters()], strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_a_step_of_any_pairs_is_that_of_the_public_example():
    """One iteration, replayed with other code; without mixup the first batches are the same."""
    target, batch = ring_of_gaussians(radius=1.0), 8
    form = {"pairs": "any", "generator_loss": "saturating", "iterations": 1, "discriminator_steps": 1}
    fit, start = fit_gan(target, small(**form)), fit_gan(target, small(lr=1e-30, **form))
    g, d = start.generator, start.discriminator
    data, noise, lambdas, other_data, other_noise = (
        torch.Generator().manual_seed(_random.seed_from("gan", name, 0))
        for name in ("data", "noise", "lambda", "other data", "other noise")
    )

    def made(source):
        return g(torch.randn(batch, 2, dtype=torch.float64, generator=source).float())

    adams = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in (g, d)]
    with torch.no_grad():
        first = torch.cat([target.sample(batch, generator=data), made(noise)])
        second = torch.cat([target.sample(batch, generator=other_data), made(other_noise)])
    labels = torch.tensor([1.0] * batch + [0.0] * batch)
    lam = 0.2 * torch.rand(2 * batch, dtype=torch.float64, generator=lambdas).float()
    partner = _random.permutation(2 * batch, generator=lambdas)
    p = d(lam[:, None] * second[partner] + (1 - lam[:, None]) * first).sigmoid()[:, 0]
    aim = lam * labels[partner] + (1 - lam) * labels
    adams[1].zero_grad()
    (-(aim * p.log() + (1 - aim) * (1 - p).log()).mean()).backward()
    adams[1].step()
    adams[0].zero_grad()
    (1 - d(made(noise)).sigmoid()).log().mean().backward()
    adams[0].step()
    for mine, theirs in zip(
        [*g.parameters(), *d.parameters()], [*fit.generator.parameters(), *fit.discriminator.parameters()], strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_it_learns_a_single_gaussian():
    target = ring_of_gaussians(1, std=0.3)
    size = {"hidden": (32, 32), "batch_size": 64}
    fit = fit_gan(target, GanConfig(iterations=150, generator_loss="non-saturating", **size), n_samples=500)
    first = fit_gan(target, GanConfig(iterations=1, **size), n_samples=500)
    assert coverage(first.last, target).high_quality.value < 0.2
    assert coverage(fit.last, target).high_quality.value > 0.6
