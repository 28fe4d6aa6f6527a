"""The draws have the distributions their names promise."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import vicinal
from vicinal import _random

N = 40_000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.1, 0.2, 0.4, 1.0, 2.0, 8.0, 32.0])
def test_lambda_is_beta_distributed(alpha):
    lam = _random.beta(alpha, N, generator=seeded()).numpy()
    exact = stats.beta(alpha, alpha)
    assert lam.dtype == np.float64
    assert ((lam >= 0) & (lam <= 1)).all()
    # Each tolerance is five standard errors of the sample moment.
    assert lam.mean() == pytest.approx(0.5, abs=5 * exact.std() / math.sqrt(N))
    fourth = exact.moment(4) - 4 * exact.moment(3) / 2 + 6 * exact.moment(2) / 4 - 4 * exact.mean() / 8 + 1 / 16
    assert lam.var() == pytest.approx(exact.var(), abs=5 * math.sqrt((fourth - exact.var() ** 2) / N) + 1e-12)
    centre = exact.cdf(0.6) - exact.cdf(0.4)
    assert ((lam > 0.4) & (lam < 0.6)).mean() == pytest.approx(centre, abs=5 * math.sqrt(centre * (1 - centre) / N))


@pytest.mark.parametrize("size", [0, 7, 16, 2**16, 2**16 + 15, 2**16 + 16, 3 * 2**16 + 5])
def test_noise_is_that_of_one_float64_draw(size):
    for like, draw in ((_random.normal_like, torch.randn), (_random.uniform_like, torch.rand)):
        for dtype in (torch.bfloat16, torch.float32, torch.float64):
            generator, whole = seeded(), seeded()
            got, want = (
                like(torch.empty(size, dtype=dtype), generator=generator),
                draw(size, dtype=torch.float64, generator=whole),
            )
            assert torch.equal(got, want if dtype == torch.float64 else want.float())
            assert torch.equal(generator.get_state(), whole.get_state())


@pytest.mark.parametrize("alpha", [0.1, 1.0, 8.0])
def test_lambda_passes_a_kolmogorov_smirnov_test(alpha):
    lam = _random.beta(alpha, N, generator=seeded(1)).numpy()
    exact = stats.beta(alpha, alpha)
    lower = lam[lam < 0.5]  # the upper half is its mirror image, rounded to 1 where the lower goes on to 1e-300
    assert stats.kstest(lower, lambda v: exact.cdf(v) / exact.cdf(0.5)).pvalue > 1e-4


def test_limits_of_alpha():
    assert torch.equal(_random.beta(0, 3), torch.ones(3, dtype=torch.float64))
    assert torch.equal(_random.beta(math.inf, 3), torch.full((3,), 0.5, dtype=torch.float64))
    assert torch.equal(_random.dirichlet(0, 3, 2)[:, 0], torch.ones(2, dtype=torch.float64))
    for alpha in (5e-324, 1e-300, 1e300):
        assert not _random.beta(alpha, 100).isnan().any()


@pytest.mark.parametrize("alpha", [0.05, 1.0, 8.0])
def test_dirichlet_weights(alpha):
    weights = _random.dirichlet(alpha, 3, N, generator=seeded()).numpy()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)
    marginal = stats.beta(alpha, 2 * alpha)
    for column in weights.T:
        assert column.mean() == pytest.approx(1 / 3, abs=5 * marginal.std() / math.sqrt(N))
        lower = column[column < 0.5]
        assert stats.kstest(lower, lambda v: marginal.cdf(v) / marginal.cdf(0.5)).pvalue > 1e-4


def test_permutations_are_uniform_and_may_have_fixed_points():
    draws = [tuple(_random.permutation(3, generator=g).tolist()) for g in [seeded()] for _ in range(6000)]
    counts = np.array([draws.count(p) for p in set(draws)])
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_a_matching_is_its_own_inverse(n):
    generator = seeded()
    for _ in range(20):
        partner = _random.matching(n, generator=generator)
        assert torch.equal(partner[partner], torch.arange(n))
        assert int((partner == torch.arange(n)).sum()) == n % 2


def test_within_class_partners_share_the_label_and_are_uniform():
    labels = torch.tensor([2, 0, 2, 1, 0, 2, 0])
    generator = seeded()
    draws = torch.stack([_random.within_class(labels, generator=generator) for _ in range(3000)])
    assert (labels[draws] == labels).all()
    assert (draws.sort(dim=1).values == torch.arange(len(labels))).all()
    for row, label in enumerate(labels):
        counts = torch.bincount(draws[:, row], minlength=len(labels))[labels == label]
        assert len(counts) == 1 or stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_all_randomness_is_drawn_in_one_file():
    """No other file may draw (but modules start, as torch's do, from its global generator, by `nn.init`)."""
    draws = re.compile(
        r"torch\.(rand|randn|randint|randperm|bernoulli|multinomial|normal)\("
        r"|np\.random\.(?!RandomState|Generator|SeedSequence)"
        r"|(?<!init)\.(normal_|uniform_|bernoulli_|random_)\(|^import random"
    )
    source = Path(vicinal.__file__).parent
    for path in source.rglob("*.py"):
        if path.name == "_random.py":
            continue
        lines = path.read_text().splitlines()
        code = "\n".join(line for line in lines if ">>>" not in line and "..." not in line[:12])
        assert not (found := draws.search(code)), f"{path.name} draws by itself: {found.group()}"
