from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from vicinal import _random
from vicinal.metrics.intervals import mean_interval
from vicinal.probes import between_samples


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(n_classes=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, n_classes))


def data(n=30, n_classes=4):
    return 2 * torch.randn(n, 3, generator=seeded(1)), torch.randint(n_classes, (n,), generator=seeded(2))


LAMBDAS = [-0.5, 0.0, 0.25, 1.0, 1.5]


def by_hand(model, x, y, pairs, gradient):
    """Misses, confidences and gradient norms, pair by pair and in float64."""
    model = model.double().eval()
    generator = seeded()
    first = _random.integers(len(x), pairs, generator=generator)
    other = _random.integers(len(x) - 1, pairs, generator=generator)
    rows = []
    for lam in LAMBDAS:
        for i, j in zip(first.tolist(), other.tolist(), strict=True):
            j = j + 1 if j >= i else j
            assert i != j
            point = (lam * x[i].double() + (1 - lam) * x[j].double()).requires_grad_()
            probs = model(point[None])[0].softmax(0)
            if gradient == "logits":
                slopes = torch.autograd.functional.jacobian(lambda p: model(p[None])[0], point)
            else:
                loss = -lam * probs[y[i]].log() - (1 - lam) * probs[y[j]].log()
                slopes = torch.autograd.grad(loss, point, retain_graph=True)[0]
            missed = int(probs.argmax()) not in (int(y[i]), int(y[j]))
            rows.append((missed, float(probs.detach().max()), float((slopes**2).sum()) ** 0.5))
    model.float()
    return np.array(rows).reshape(len(LAMBDAS), pairs, 3)


@pytest.mark.parametrize("gradient", ["logits", "loss"])
@pytest.mark.parametrize("batch_size", [7, 256])
def test_the_curves_are_those_of_a_loop(gradient, batch_size):
    model, (x, y) = network(), data()
    found = between_samples(
        model, (x, y), pairs=23, lambdas=LAMBDAS, gradient=gradient, batch_size=batch_size, generator=seeded()
    )
    slow = by_hand(model, x, y, 23, gradient)
    assert found.n_pairs == 23
    np.testing.assert_allclose(found.lambdas, LAMBDAS)
    np.testing.assert_allclose(found.misses.value, slow[..., 0].mean(1))
    np.testing.assert_allclose(found.mean_confidence.value, slow[..., 1].mean(1), atol=1e-5)
    np.testing.assert_allclose(found.gradient_norm.value, slow[..., 2].mean(1), rtol=1e-4)
    for at in range(len(LAMBDAS)):
        ends = stats.binomtest(int(slow[at, :, 0].sum()), 23).proportion_ci(method="exact")
        assert (found.misses.low[at], found.misses.high[at]) == pytest.approx((ends.low, ends.high))
        ends = mean_interval(slow[at, :, 2], 0.95, low=0.0, high=np.inf)
        assert found.gradient_norm.high[at] == pytest.approx(ends.high, rel=1e-3)


def test_at_the_ends_a_perfect_model_misses_nothing_and_its_labels_decide():
    torch.manual_seed(0)
    x = torch.eye(3)[torch.arange(60) % 3] + 0.01 * torch.randn(60, 3)
    y = torch.arange(60) % 3
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.copy_(10 * torch.eye(3))
        model.bias.copy_(torch.tensor([0.0, 0.0, 6.0]))  # between classes 0 and 1 the third wins
    found = between_samples(model, (x, y), pairs=400, lambdas=[0, 0.5, 1], generator=seeded())
    assert found.misses.value[0] == found.misses.value[2] == 0
    assert found.misses.low[1] < 2 / 9 < found.misses.high[1]


def test_a_dataset_gives_what_its_tensors_give_and_loads_only_what_is_drawn():
    model, (x, y) = network(), data()
    loaded = []

    class Few(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            loaded.append(i)
            return x[i], int(y[i])

    whole = between_samples(model, (x, y), pairs=5, lambdas=LAMBDAS, generator=seeded())
    few = between_samples(model, Few(), pairs=5, lambdas=torch.tensor(LAMBDAS), batch_size=2, generator=seeded())
    np.testing.assert_allclose(few.mean_confidence.value, whole.mean_confidence.value, atol=1e-6)
    assert np.array_equal(few.misses.value, whole.misses.value)
    assert len(loaded) == 10


class Wrapped(nn.Module):
    def __init__(self, inner, fail=False):
        super().__init__()
        self.inner, self.fail = inner, fail

    def forward(self, x):
        torch.rand(1)
        if self.fail:
            raise RuntimeError("out of order")
        return SimpleNamespace(logits=self.inner(x))


def test_arrays_and_lists_are_tensors_too():
    model, (x, y) = network(), data()
    wanted = between_samples(model, (x, y), pairs=5, generator=seeded()).to_dict()
    for held in ((x.numpy(), y.numpy()), (x, y.tolist())):
        assert between_samples(model, held, pairs=5, generator=seeded()).to_dict() == wanted


@pytest.mark.parametrize("fail", [False, True])
def test_the_model_and_the_generators_are_left_as_they_were(fail):
    model = Wrapped(network(), fail).train()
    model.inner[1].eval()
    model.inner[0].weight.grad = torch.ones(8, 3)
    modes = [m.training for m in model.modules()]
    before, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    try:
        with torch.no_grad():
            found = between_samples(model, data(), pairs=5, generator=seeded())
    except RuntimeError:
        assert fail
    else:
        plain = between_samples(model.inner, data(), pairs=5, generator=seeded())
        assert np.array_equal(found.gradient_norm.value, plain.gradient_norm.value)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(model.inner[0].weight.grad, torch.ones(8, 3))
    assert all(p.grad is None for name, p in model.named_parameters() if name != "inner.0.weight")
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_gradients_need_not_be_taken_and_the_result_is_plain_numbers():
    found = between_samples(network(), data(), pairs=4, gradient="none")
    assert found.gradient_norm is None
    plain = found.to_dict()
    assert plain["gradient_norm"] is None
    assert len(plain["misses"]["low"]) == len(plain["lambdas"]) == 11


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"data": ({"input_ids": torch.ones(3, 2)}, torch.ones(3))}, "x must be a tensor to be interpolated, got dict"),
        ({"data": (torch.ones(3, 3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))}, "floating tensor"),
        ({"data": (torch.ones(3, 3), torch.zeros(2, dtype=torch.int64))}, "the same number of rows, got 3 and 2"),
        ({"data": (torch.ones(1, 3), torch.zeros(1, dtype=torch.int64))}, "at least 2 samples"),
        ({"data": (torch.ones(5, 3), torch.full((5,), 9))}, "labels must be in"),
        (
            {"data": (torch.full((5, 3), torch.nan), torch.zeros(5, dtype=torch.int64))},
            "got NaN or inf at λ = 0",
        ),
        ({"data": (torch.ones(3, 3), [0, 1])}, "the same number of rows, got 3 and 2"),
        ({"data": iter([])}, "data must be tensors"),
        ({"pairs": 0}, "pairs must be"),
        ({"lambdas": []}, "lambdas is empty"),
        ({"lambdas": [float("nan")]}, "lambdas must be"),
        ({"gradient": "input"}, "gradient must be one of"),
        ({"batch_size": 0}, "batch_size"),
        ({"level": 1.0}, "level"),
    ],
)
def test_bad_arguments_are_refused(change, match):
    arguments = {"data": data()} | change
    with pytest.raises((ValueError, TypeError), match=match):
        between_samples(network(), arguments.pop("data"), **arguments)
