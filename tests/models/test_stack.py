"""Perceptrons and the trees of several libraries, weighted on validation rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.models import Stack, specify
from vicinal.models.averaged import best_share
from vicinal.models.stack import best_shares, trees_at_hand


def test_shares_of_two_are_those_of_one_number() -> None:
    of_truth = torch.rand(2, 200, generator=torch.Generator().manual_seed(0))
    expected = best_share(*of_truth, (3.0, 3.0))
    np.testing.assert_allclose(best_shares(of_truth).numpy(), [expected, 1 - expected], atol=2e-3)


def test_no_other_shares_are_better() -> None:
    generator = torch.Generator().manual_seed(1)
    of_truth = torch.rand(4, 300, generator=generator, dtype=torch.float64)
    found = best_shares(of_truth)

    def value(w: torch.Tensor) -> float:
        return float((w @ of_truth).log().sum() + 3.0 * w.log().sum())

    others = torch.distributions.Dirichlet(torch.ones(4, dtype=torch.float64)).sample((200,))
    near = (found * torch.exp(0.05 * torch.randn(200, 4, generator=generator, dtype=torch.float64))).abs()
    assert all(value(found) >= value(w / w.sum()) - 1e-3 for w in [*others, *near])


def test_it_is_the_weighted_mean_of_its_parts() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(300, 6)).astype(np.float32))
    y = (x[:, 1] > 0).long() + (x[:, 3] > 0)
    parts = trees_at_hand()
    model = Stack(6, 3, parts=parts, hidden=[8], iterations=6).eval()
    assert torch.equal(model(x), model.network(x))  # before there are trees
    model.after_fit([(x[:200], y[:200], None)], [(x[200:250], y[200:250]), (x[250:], y[250:])])
    each = torch.stack([part(x).softmax(1) for part in (model.network, *model.trees.values())])
    assert float(model.shares.sum()) == pytest.approx(1)
    assert list(model.share_of()) == ["network", *parts]
    np.testing.assert_allclose(
        model(x).exp().detach(), torch.einsum("m,mnk->nk", model.shares, each).detach(), atol=1e-6
    )
    again = Stack(6, 3, parts=parts, hidden=[8], iterations=6).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x), model(x))


def test_the_record_says_which_trees_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.models.stack.find_spec", lambda name: None if name == "catboost" else True)
    spec = specify("best", kind="tabular", n_classes=3, input_shape=(6,), n_train=100)
    assert spec.options["parts"] == ["hgb", "lightgbm"]
    assert specify("best", kind="tabular", n_classes=3, input_shape=(6,), parts=["hgb"]).options["parts"] == ["hgb"]
    with pytest.raises(ValueError, match=r"parts.*hgb"):
        Stack(6, 3, parts=["xgboost"])
