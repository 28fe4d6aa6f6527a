"""Trees as arrays: what scikit-learn says, and what walking down each tree says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from vicinal.models import Boosted


def walked(nodes: Any, x: NDArray[np.float64]) -> float:
    """Return the leaf of one row, by walking down."""
    node = nodes[0]
    while not node["is_leaf"]:
        node = nodes[node["left"] if x[node["feature_idx"]] <= node["num_threshold"] else node["right"]]
    return float(node["value"])


def fitted(x: NDArray[np.float32], y: NDArray[np.int64], model: Boosted) -> Any:
    """Fit trees to what the model sees of some rows, one iteration in three fewer than it has room for."""
    theirs = HistGradientBoostingClassifier(
        max_iter=model.iterations * 2 // 3, max_leaf_nodes=model.leaves, max_depth=model.depth, early_stopping=False
    ).fit(model.columns(torch.from_numpy(x)).T.numpy(), y)
    model.set_trees([[tree.nodes for tree in trees] for trees in theirs._predictors], theirs._baseline_prediction)
    return theirs


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("leaves", [2, 9, 31, 32, 60])
def test_the_arrays_say_what_scikit_learn_says(n_classes: int, leaves: int) -> None:
    rng = np.random.default_rng(n_classes)
    x = rng.normal(size=(1500, 5)).astype(np.float32)
    y = (np.abs(x[:, 0] + x[:, 1] * x[:, 2]) * 2).astype(int) % n_classes
    model = Boosted(5, n_classes, iterations=12, leaves=leaves)
    assert torch.equal(model(torch.zeros(2, 5)), torch.zeros(2, n_classes))
    theirs = fitted(x, y, model)
    sizes = [tree.get_n_leaf_nodes() for trees in theirs._predictors for tree in trees]
    assert max(sizes) == leaves
    new = rng.normal(size=(50, 5)).astype(np.float32)
    logits = model(torch.from_numpy(new))
    np.testing.assert_allclose(logits.double().softmax(1).numpy(), theirs.predict_proba(new), atol=1e-6)
    raw = np.array([[sum(walked(trees[k].nodes, row) for trees in theirs._predictors)
                     for k in range(model.outputs)] for row in new[:5].astype(float)])  # fmt: skip
    raw += theirs._baseline_prediction.ravel()
    np.testing.assert_allclose(logits[:5, -model.outputs :].numpy(), raw, atol=1e-5)
    again = Boosted(5, n_classes, iterations=12, leaves=leaves)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(torch.from_numpy(new)), logits)
    assert torch.equal(model(torch.from_numpy(new[:1])), logits[:1])
    model.set_trees([], np.zeros(model.outputs))  # trees of before are gone
    assert torch.equal(model(torch.from_numpy(new)), torch.zeros(50, n_classes))


@pytest.mark.parametrize("leaves", [9, 40])
def test_many_rows_are_answered_in_blocks(leaves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    model = Boosted(5, 3, iterations=8, leaves=leaves)
    fitted(x, rng.integers(0, 3, 300), model)
    at_once = model(torch.from_numpy(x))
    monkeypatch.setattr("vicinal.models.boosted._CELLS", 24 * 70)
    torch.testing.assert_close(model(torch.from_numpy(x)), at_once, rtol=0, atol=1e-6)  # the order of sums differs


@pytest.mark.parametrize("leaves", [9, 40])
def test_trees_of_a_single_leaf_count_wherever_they_stand(leaves: int) -> None:
    x = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    model = Boosted(2, 2, iterations=9, leaves=leaves)
    theirs = fitted(x, (x[:, 0] > 0).astype(int), model)
    trees = [each[0].nodes for each in theirs._predictors]
    for place in (0, 2, 5):
        trees[place] = trees[place][:1].copy()
        trees[place]["is_leaf"], trees[place]["value"] = 1, 0.5 + place
    model.set_trees([[nodes] for nodes in trees], [0.25])
    expected = [0.25 + sum(walked(nodes, row) for nodes in trees) for row in x[:9]]
    np.testing.assert_allclose(model(torch.from_numpy(x[:9]))[:, 1].numpy(), expected, atol=1e-6)


def test_a_feature_next_to_a_threshold_is_on_its_side_of_it() -> None:
    """Thresholds have twice the digits of features: rounded to the nearest, some would change sides."""
    x = np.random.default_rng(0).normal(size=(400, 1)).astype(np.float32)
    model = Boosted(1, 2, iterations=9)
    theirs = fitted(x, (np.sin(9 * x[:, 0]) > 0).astype(int), model)
    for trees in theirs._predictors:
        for k, node in enumerate(trees[0].nodes):  # just below, at and just above what float32 can hold
            node["num_threshold"] = float(np.float32(node["num_threshold"])) + (k % 3 - 1) * 1e-12
    model.set_trees([[tree.nodes for tree in trees] for trees in theirs._predictors], theirs._baseline_prediction)
    near = np.concatenate([tree[0].nodes["num_threshold"].astype(np.float32) for tree in theirs._predictors])
    new = np.concatenate([near, np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))])[:, None]
    probs = model(torch.from_numpy(new)).double().softmax(1).numpy()
    np.testing.assert_allclose(probs, theirs.predict_proba(new), atol=1e-6)


def test_a_category_is_the_number_of_its_value() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 4, 300), rng.integers(0, 3, 300)  # 0 stands for none
    x = np.zeros((300, 8), np.float32)
    x[:, [0, 4]] = rng.normal(size=(300, 2))
    for values, start in ((first, 1), (second, 5)):
        rows = np.flatnonzero(values)
        x[rows, start + values[rows] - 1] = 1
    model = Boosted(8, 3, numbers=[4, 0], categories=[(1, 4), (5, 7)], iterations=6)
    columns = model.columns(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(columns, np.stack([x[:, 4], x[:, 0], first, second]))
    y = (first + second + (x[:, 0] > 0)) % 3
    theirs = fitted(x, y, model)
    probs = model(torch.from_numpy(x)).double().softmax(1).numpy()
    np.testing.assert_allclose(probs, theirs.predict_proba(columns.T), atol=1e-6)


def test_places_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="numbers must be places below 4"):
        Boosted(4, 2, numbers=[4])
    with pytest.raises(ValueError, match="categories must be ranges of places below 4"):
        Boosted(4, 2, categories=[(2, 5)])
    with pytest.raises(ValueError, match="at least one place"):
        Boosted(4, 2, numbers=[])


@pytest.mark.parametrize(("name", "value"), [("feature", 5), ("feature", -1), ("left", 17), ("right", -3)])
def test_trees_that_lead_nowhere_are_refused(name: str, value: int) -> None:
    trees = Boosted(5, 3, iterations=2, leaves=9).state_dict()
    trees[name][0, 2, 3] = value
    with pytest.raises(ValueError, match=f"the trees are damaged: {name} must be in"):
        Boosted(5, 3, iterations=2, leaves=9).load_state_dict(trees)


@pytest.mark.parametrize("leaves", [9, 40])
def test_trees_that_lead_back_or_share_nodes_are_refused(leaves: int) -> None:
    trees = Boosted(5, 3, iterations=2, leaves=leaves).state_dict()
    trees["left"][0, 0, 0] = 1
    with pytest.raises(ValueError, match="the trees are damaged: a node leads back"):
        Boosted(5, 3, iterations=2, leaves=leaves).load_state_dict(trees)
    for node in range(8):  # both children of each are the next: 2 to the 8 leaves
        trees["left"][0, 0, node] = trees["right"][0, 0, node] = node + 1
    with pytest.raises(ValueError, match=f"the trees are damaged: one has more than {leaves} leaves"):
        Boosted(5, 3, iterations=2, leaves=leaves).load_state_dict(trees)


def test_a_tree_is_no_deeper_than_its_leaves_allow() -> None:
    for leaves in (9, 40):
        deep = Boosted(5, 3, iterations=2, leaves=leaves, depth=10**12)  # each level is a step of the forward
        assert deep(torch.zeros(2, 5)).shape == (2, 3)
