"""Perceptrons and trees: the perceptrons alone in training, the mean of both in evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from vicinal import models
from vicinal.models import MLPAndTrees, TwoViewMLP


def test_in_training_it_is_the_perceptrons_alone() -> None:
    torch.manual_seed(0)
    model = MLPAndTrees(6, 3, plain=[0, 2], hidden=[8], dropout=0.0)
    torch.manual_seed(0)
    alone = TwoViewMLP(6, 3, plain=[0, 2], hidden=[8], dropout=0.0)  # the same draws
    x = torch.randn(7, 6)
    assert torch.equal(model(x), alone(x))
    assert torch.equal(model.eval()(x), alone.eval()(x))  # before there are trees


def test_once_settled_it_is_the_mean_of_both() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(300, 6)).astype(np.float32))
    y = (x[:, 1] > 0).long() + (x[:, 3] > 0)
    model = MLPAndTrees(6, 3, plain=[0, 2], hidden=[8], dropout=0.0, numbers=[1, 3], iterations=6).eval()
    model.after_fit([(x[:200], y[:200], None)], [(x[200:250], y[200:250]), (x[250:], y[250:])])
    w = float(model.share)
    assert w < 0.5  # the trees have learned it, the network has not
    theirs = HistGradientBoostingClassifier(
        max_iter=6, max_leaf_nodes=15, max_depth=10, l2_regularization=1.0, early_stopping=False
    ).fit(x[:200, [1, 3]], y[:200])
    of_network = model.network(x).double().softmax(1).detach().numpy()
    expected = w * of_network + (1 - w) * theirs.predict_proba(x[:, [1, 3]].numpy())
    np.testing.assert_allclose(model(x).detach().exp().numpy(), expected, atol=1e-6)
    again = MLPAndTrees(6, 3, plain=[0, 2], hidden=[8], dropout=0.0, numbers=[1, 3], iterations=6).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x), model(x))
    assert torch.equal(model.train()(x), model.network(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):  # the trees see the same numbers
        assert torch.equal(model.trees(x), again.trees(x).float())


def test_what_is_loaded_without_trees_has_none() -> None:
    settled, fresh = (MLPAndTrees(4, 2, hidden=[8], iterations=2).eval() for _ in range(2))
    x = torch.randn(40, 4)
    y = (x[:, 0] > 0).long()
    weights = {name: t.clone() for name, t in fresh.state_dict().items()}
    settled.after_fit([(x, y, None)], [(x, y)])
    settled.load_state_dict(weights)  # as training does, which goes back to the best epoch
    assert torch.equal(settled(x), fresh.network(x))


@pytest.mark.parametrize("share", [-3.0, 0.0, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    model = MLPAndTrees(4, 2, hidden=[8], iterations=2)
    with pytest.raises(ValueError, match=r"the weights are damaged: share must be in \(0, 1\]"):
        model.load_state_dict({**model.state_dict(), "share": torch.tensor(share)})


def test_it_is_a_network_by_name() -> None:
    about = {"kind": "tabular", "n_classes": 3, "input_shape": (8,), "plain": [0, 5], "numbers": [0]}
    spec = models.specify(**about, categories=[(5, 8)], leaves=4)
    assert spec.name == "mlp-and-trees"
    assert spec.options["categories"] == [[5, 8]]
    model = models.ModelSpec.from_dict(spec.to_dict()).build()
    assert isinstance(model, MLPAndTrees)
    assert (model.trees.n_columns, model.trees.leaves, model.network.plain.tolist()) == (2, 4, [0, 5])


def test_of_many_classes_there_are_fewer_trees_and_of_very_many_none() -> None:
    about = {"kind": "tabular", "input_shape": (8,)}
    trees = {k: models.specify(**about, n_classes=k).options.get("iterations") for k in (2, 30, 31, 100, 300, 301)}
    assert trees == {2: 100, 30: 100, 31: 96, 100: 30, 300: 10, 301: None}
    assert models.specify(**about, n_classes=301).name == "two-view-mlp"
    assert models.specify("mlp-and-trees", **about, n_classes=9000).options["iterations"] == 1
    assert models.specify(**about, n_classes=100, iterations=70).options["iterations"] == 70


def test_more_rows_have_more_and_larger_trees() -> None:
    about = {"kind": "tabular", "input_shape": (8,), "n_classes": 20}
    options = [models.specify(**about, n_train=n).options for n in (4999, 5000, 20_000, 10**6)]
    assert [(o["iterations"], o["leaves"]) for o in options] == [(100, 15), (300, 15), (300, 31), (300, 63)]
