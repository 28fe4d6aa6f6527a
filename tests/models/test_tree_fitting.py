"""Which rows trees are fitted to, and how many trees are taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.models import Boosted
from vicinal.models.tree_fitting import gather, grow


@pytest.mark.parametrize("size", [1, 7, 60, 1000])
def test_of_many_rows_every_so_many_of_each_class_are_seen(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.models.tree_fitting._MOST_ROWS", 50)
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.choice(3, 990, p=[0.6, 0.395, 0.005]))
    x = torch.arange(990.0)[:, None]
    weight = torch.rand(990)
    batches = zip(x.split(size), labels.split(size), weight.split(size), strict=True)
    seen = gather(Boosted(1, 3), batches)
    assert 40 < len(seen.labels) <= 100
    for k in range(3):  # 990 rows, of which at most 100 may be kept: the same share of every class
        of_class = np.flatnonzero(labels.numpy() == k)
        np.testing.assert_array_equal(seen.x[seen.labels == k][:, 0], of_class[::16])
    np.testing.assert_array_equal(seen.weight, weight.double().numpy()[seen.x[:, 0].astype(int)])
    soft = torch.nn.functional.one_hot(labels[:90], 3) * 0.7 + 0.1
    np.testing.assert_array_equal(gather(Boosted(1, 3), [(x[:90], soft, None)]).labels, labels[:90])
    few = gather(Boosted(1, 3), [(x[:90], labels[:90], None)])
    np.testing.assert_array_equal(few.x[:, 0], np.arange(90))
    assert (few.weight == 1).all()


def test_of_many_classes_fewer_rows_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.models.tree_fitting._MOST_SCORES", 300)
    for n_classes, n_rows in ((2, 250), (3, 125), (10, 40), (60, 120)):  # as many as there are classes at least
        seen = gather(Boosted(1, n_classes), [(torch.zeros(2000, 1), torch.arange(2000) % n_classes, None)])
        assert n_rows / 2 <= len(seen.labels) <= 2 * max(300 // seen.labels.max(), n_classes)
        assert len(np.unique(seen.labels)) == n_classes


def test_as_many_trees_are_taken_as_suit_held_out_rows() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(400, 3)).astype(np.float32))
    y = torch.from_numpy((x[:, 0].numpy() + rng.normal(size=400) > 0).astype(int))
    trees = Boosted(3, 2, iterations=160)
    train, val = (gather(trees, [(x[part], y[part], None)]) for part in (slice(200), slice(200, 400)))
    history, n_trees = grow(trees, train, val)
    best = int(np.argmin([line["val_nll"] for line in history]))
    assert best == n_trees - 1 == len(trees.feature) - 1
    assert 0 < best < 50  # more trees learn the noise by heart
    assert len(history) == best + 31  # and growing has stopped
    nll = torch.nn.functional.cross_entropy(trees(x[200:]).double(), y[200:])
    assert history[best]["val_nll"] == pytest.approx(float(nll), abs=1e-6)
    assert history[-1]["loss"] < history[best]["loss"]
    with pytest.raises(ValueError, match="needs rows of all 2 classes, got 1"):
        grow(trees, train._replace(labels=np.zeros(200, np.int64)), val)


def test_weights_count() -> None:
    x, y = torch.tensor([[0.0], [1.0]]).repeat(40, 1), torch.tensor([0, 1]).repeat(40)
    trees = Boosted(1, 2, iterations=1)
    grow(trees, gather(trees, [(x, y, torch.where(y == 1, 3.0, 1.0))]), None)
    assert float(trees.baseline) == pytest.approx(np.log(3))
