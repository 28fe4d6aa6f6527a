"""Trees of LightGBM and CatBoost: what their libraries fit, kept as text."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from vicinal.models import CatBoostTrees, LightGBMTrees, ModelSpec, specify
from vicinal.models.tree_columns import Seen
from vicinal.models.tree_fitting import gather, grow
from vicinal.models.tree_libraries import LibraryTrees

LIBRARIES = {"lightgbm": LightGBMTrees, "catboost": CatBoostTrees}


@pytest.fixture(params=LIBRARIES)
def name(request: pytest.FixtureRequest) -> str:
    library: str = request.param
    pytest.importorskip(library)
    return library


def rows(n_classes: int, n: int = 400) -> tuple[Tensor, Tensor]:
    """Two numbers and a category of four values, one-hot, on which the class depends."""
    rng = np.random.default_rng(0)
    code, numbers = rng.integers(0, 4, n), rng.normal(size=(n, 2))
    y = (code % 2 + (numbers[:, 0] > 0) * (n_classes - 2)) % n_classes
    x = np.concatenate([numbers, np.eye(4)[code]], axis=1).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def fitted(name: str, n_classes: int) -> tuple[LibraryTrees, Tensor, Tensor]:
    x, y = rows(n_classes)
    model = LIBRARIES[name](6, n_classes, numbers=[0, 1], categories=[(2, 6)], iterations=40).eval()
    grown = grow(model, gather(model, [(x[:250], y[:250], None)]), gather(model, [(x[250:], y[250:], None)]))
    assert 1 <= grown.n_trees <= 40
    assert grown.history[grown.n_trees - 1]["val_nll"] == min(line["val_nll"] for line in grown.history)
    return model, x, y


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_answers_as_its_library(name: str, n_classes: int) -> None:
    model, x, y = fitted(name, n_classes)
    assert float((model(x).argmax(dim=1) == y).double().mean()) > 0.97
    library = model.read(model.text.numpy().tobytes())
    columns = model.columns(x).T.numpy()
    if name == "lightgbm":
        theirs = library.predict(columns)
    else:
        theirs = library.predict_proba(model._pool(columns))[:, 1 if n_classes == 2 else slice(None)]
    ours = model(x).double().softmax(dim=1)
    np.testing.assert_allclose(ours[:, 1] if n_classes == 2 else ours, theirs, atol=1e-6)


def test_text_is_all_that_is_saved(name: str) -> None:
    model, x, _ = fitted(name, 3)
    spec = specify(name, kind="tabular", n_classes=3, input_shape=(6,), numbers=[0, 1], categories=[(2, 6)])
    again = ModelSpec.from_dict(spec.to_dict()).build().eval()
    assert torch.equal(again(x), torch.zeros(len(x), 3))
    again.load_state_dict({key: t.clone() for key, t in model.state_dict().items()})
    assert torch.equal(again(x), model(x))
    assert model.text.numpy().tobytes()[:4] in (b"tree", b"{\n  ")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(model).double()):
        assert torch.equal(other(x), model(x))


def test_weights_count(name: str) -> None:
    x = torch.zeros(300, 6)
    seen = Seen(x[:, :3].numpy(), np.arange(300) % 2, np.where(np.arange(300) % 2, 3.0, 1.0))
    model = LIBRARIES[name](6, 2, numbers=[0, 1], categories=[(2, 6)], iterations=60, rate=0.5).eval()
    if name == "catboost":  # it refuses columns that do not vary
        seen = seen._replace(x=np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32).clip(0, 3))
    grow(model, seen, None)
    assert float(model(x)[:, 1].sigmoid().mean()) == pytest.approx(0.75, abs=0.06)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import sys

    model, x, _ = fitted(name, 2)
    model._model = None
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=name):
        model(x)


def test_it_cannot_be_exported(name: str) -> None:
    model, x, _ = fitted(name, 2)
    with pytest.raises(Exception, match="cannot be exported"):
        torch.export.export(model, (x,))
