"""Perceptrons that share their weights: each row by one member in training, by all of them in evaluation."""

from __future__ import annotations

import pytest
import torch

from vicinal import models
from vicinal.models import EnsembleMLP


def slowly(model: EnsembleMLP, row: torch.Tensor, member: int) -> torch.Tensor:
    """Return the logits of a row by a member: s ⊙ W (r ⊙ x) + b, layer by layer."""
    h = row
    for layer, _, _ in model.layers:
        h = layer.linear.weight @ (layer.scale_in[member] * h) * layer.scale_out[member] + layer.bias[member]
        h = h.clamp_min(0)
    return model.classifier(model.scale.scale_in[member] * h)


@pytest.mark.parametrize("n", [1, 5, 6])
def test_equals_each_member_by_hand(n: int) -> None:
    torch.manual_seed(0)
    model = EnsembleMLP(4, 3, hidden=[5, 6], dropout=0.0, members=3)
    with torch.no_grad():
        model.scale.scale_in.uniform_(0.5, 1.5)
        model.layers[0][0].scale_out.uniform_(0.5, 1.5)
    x = torch.randn(n, 4)
    logits = model.train()(x)
    for i in range(n):
        torch.testing.assert_close(logits[i], slowly(model, x[i], i % 3))
    probs = model.eval()(x).exp()
    for i in range(n):
        mean = torch.stack([slowly(model, x[i], m).softmax(0) for m in range(3)]).mean(0)
        torch.testing.assert_close(probs[i], mean)


def test_members_differ_and_one_member_is_a_plain_perceptron() -> None:
    model = EnsembleMLP(4, 2, members=4)
    assert set(model.layers[0][0].scale_in.unique().tolist()) == {-1.0, 1.0}
    assert (model.layers[1][0].scale_in == 1).all()
    one = EnsembleMLP(4, 2, members=1, dropout=0.0)
    x = torch.randn(3, 4)
    torch.testing.assert_close(one.train()(x).log_softmax(1), one.eval()(x))


def test_it_is_a_network_by_name() -> None:
    spec = models.specify("ensemble-mlp", kind="tabular", n_classes=3, input_shape=(8,))
    assert models.ModelSpec.from_dict(spec.to_dict()) == spec
    assert isinstance(spec.build(), EnsembleMLP)
    with pytest.raises(TypeError, match="hidden must be a list"):
        EnsembleMLP(4, 2, hidden=5)  # type: ignore[arg-type]
