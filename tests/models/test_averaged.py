"""How much each of two models counts in a mean of their probabilities; `tests/runs/test_ensemble.py` has the mean."""

from __future__ import annotations

import pytest
import torch

from vicinal.models.averaged import best_share


@pytest.mark.parametrize(("a", "b"), [(5, 5), (10, 1)])
def test_the_share_is_the_best_of_all(a: float, b: float) -> None:
    """The sum of logarithms, with some rows more for each, is nowhere larger on a fine grid."""
    random = torch.Generator().manual_seed(0)
    for n in (1, 10, 2000):
        p, q = torch.rand(n, generator=random).sqrt(), torch.rand(n, generator=random)
        shares = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)[:, None]
        value = (shares * p + (1 - shares) * q).log().sum(1)
        value += a * shares.log()[:, 0] + b * (1 - shares).log()[:, 0]
        assert best_share(p, q, (a, b)) == pytest.approx(float(shares[value.argmax()]), abs=2e-3)
    assert best_share(torch.ones(1), torch.ones(1), (a, b)) == pytest.approx(a / (a + b), abs=1e-3)
    assert 0.4 < best_share(torch.ones(2), torch.zeros(2)) - 0.1 < 0.6  # two rows do not decide
    assert best_share(torch.ones(2000), torch.zeros(2000)) > 0.99
    assert best_share(torch.zeros(3), torch.zeros(3)) == 0.5
