from __future__ import annotations

import math
import random
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vicinal import (
    AUM,
    ERM,
    CutMix,
    During,
    GaussianVicinity,
    GuidedMixup,
    LogitMix,
    Mixup,
    RegMixup,
    TemperatureScaling,
    Warmup,
    evaluate,
)
from vicinal.probes.uncertainty import Ensemble, MCDropout

K = 3


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(dropout: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.5) if dropout is None else dropout,
        nn.Linear(16, K),
    )


X = torch.randn(5, 4, generator=seeded(9))


def state_of(model):
    modes = [m.training for m in model.modules()]
    return modes, {k: v.clone() for k, v in model.state_dict().items()}, [p.grad for p in model.parameters()]


def assert_untouched(model, before):
    modes, weights, grads = before
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert all(now is then for now, then in zip((p.grad for p in model.parameters()), grads, strict=True))


class Odd(nn.Module):
    """A model in a mode of its own in every part."""

    def __init__(self, kind="logits"):
        super().__init__()
        self.body, self.kind = network(), kind
        self.train()
        self.body[1].eval()
        self.body[4].eval()

    def forward(self, x=None, features=None, scale=None):
        if self.kind == "error":
            raise RuntimeError("broken")
        logits = self.body(x if features is None else features)
        if scale is not None:
            logits = logits * scale
        return SimpleNamespace(logits=logits) if self.kind == "object" else logits


# MC dropout


def test_the_log_of_the_mean_probability_of_the_passes():
    mc = MCDropout(network(), passes=7)
    found, samples = mc(X, generator=seeded()), mc.samples(X, generator=seeded())
    assert samples.shape == (7, 5, K)
    for row in range(5):
        slow = torch.stack([samples[s, row].softmax(0) for s in range(7)]).mean(0)
        torch.testing.assert_close(found[row].exp(), slow)
    torch.testing.assert_close(found.softmax(1), found.exp())
    assert not found.requires_grad


def test_only_dropout_is_active():
    model = network()
    kept = {}
    model[1].register_forward_hook(lambda m, *_: kept.update(norm=m.training))
    model[3].register_forward_hook(lambda m, *_: kept.update(dropout=m.training))
    before = state_of(model)
    samples = MCDropout(model, passes=4).samples(X)
    assert kept == {"norm": False, "dropout": True}
    assert_untouched(model, before)  # running statistics too
    assert len(samples.unique(dim=0)) == 4


def test_the_passes_of_a_known_layer_are_bernoulli():
    layer = nn.Linear(2, 2, bias=False)
    nn.init.eye_(layer.weight)
    samples = MCDropout(nn.Sequential(nn.Dropout(0.25), layer), passes=4000).samples(
        torch.ones(1, 2), generator=seeded()
    )
    dropped = (samples == 0).double()
    assert samples.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert float(dropped.mean()) == pytest.approx(0.25, abs=0.025)
    # Rows and passes draw apart: both entries are dropped together by chance only.
    assert float(dropped.prod(2).mean()) == pytest.approx(0.0625, abs=0.02)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.5),
        nn.Dropout1d(0.5),
        nn.Dropout2d(0.5),
        nn.Dropout3d(0.5),
        nn.AlphaDropout(0.5),
        nn.FeatureAlphaDropout(0.5),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_every_kind_of_dropout_counts(layer):
    shape = {"Dropout1d": (6, 1), "Dropout2d": (6, 1, 1)}.get(type(layer).__name__, (6, 1, 1, 1))
    model = nn.Sequential(nn.Unflatten(1, shape), layer, nn.Flatten(), nn.Linear(6, K))
    samples = MCDropout(model, passes=8).samples(torch.ones(3, 6), generator=seeded())
    assert len(samples.unique(dim=0)) > 1


@pytest.mark.parametrize("max_rows", [1, 5, 9, 10, 14, 1000])
def test_any_division_of_the_passes_gives_as_many_and_rows_stay_in_order(max_rows):
    rows = []
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, K))
    model.register_forward_hook(lambda _, args, __: rows.append(len(args[0])))
    samples = MCDropout(model, passes=7, max_rows=max_rows).samples(X, generator=seeded())
    assert samples.shape == (7, 5, K)
    together = max(1, max_rows // 5)
    assert rows == [5 * min(together, 7 - start) for start in range(0, 7, together)]
    # A dropout that never drops shows which row is which.
    model[0].p = 1e-9
    samples = MCDropout(model, passes=7, max_rows=max_rows).samples(X)
    torch.testing.assert_close(samples, model[1](X).detach().expand(7, 5, K))


def test_a_seed_repeats_and_the_global_generators_are_given_back():
    mc = MCDropout(network(), passes=3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first, second = mc(X, generator=seeded(3)), mc(X, generator=seeded(3))
    assert torch.equal(first, second)
    assert not torch.equal(first, mc(X, generator=seeded(4)))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_without_a_generator_torchs_global_one_decides():
    mc = MCDropout(network(), passes=3)
    torch.manual_seed(5)
    first, next_one = mc(X), mc(X)
    torch.manual_seed(5)
    assert torch.equal(mc(X), first)
    assert not torch.equal(first, next_one)


@pytest.mark.parametrize("kind", ["logits", "object", "error"])
def test_modes_are_restored_one_by_one_even_after_an_error(kind):
    model = Odd(kind)
    before, state = state_of(model), torch.get_rng_state()
    for probe in (MCDropout(model, passes=2), Ensemble([model, Odd(kind)])):
        if kind == "error":
            with pytest.raises(RuntimeError, match="broken"):
                probe.samples(X)
        else:
            assert probe(X).shape == (5, K)
        assert_untouched(model, before)
    torch.set_rng_state(state)
    with pytest.raises(RuntimeError, match="broken"):
        MCDropout(Odd("error")).samples(X, generator=seeded())
    assert torch.equal(torch.get_rng_state(), state)


def test_mappings_are_passed_by_name_and_single_rows_stand_for_all():
    model = Odd("object").eval()
    batch = {"features": X, "scale": torch.full((1, K), 2.0)}
    kept = {name: t.clone() for name, t in batch.items()}
    doubled = MCDropout(model, passes=4).samples(batch, generator=seeded(1))
    torch.testing.assert_close(doubled, 2 * MCDropout(model, passes=4).samples(X, generator=seeded(1)))
    torch.testing.assert_close(Ensemble([model]).samples(batch)[0], 2 * model(X).logits.detach())
    assert all(torch.equal(t, kept[name]) for name, t in batch.items())


def test_a_batch_of_one_and_of_none():
    mc = MCDropout(network(), passes=3)
    assert mc(X[:1]).shape == (1, K)
    assert mc(X[:0]).shape == (0, K)


def test_half_precision_is_averaged_in_float32():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, K)).to(torch.bfloat16)
    found = MCDropout(model, passes=5)(X.to(torch.bfloat16))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.exp().sum(1), torch.ones(5))
    assert MCDropout(network().double())(X.double()).dtype == torch.float64


def test_confident_passes_do_not_underflow():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, K))
    with torch.no_grad():
        model[1].weight.mul_(1e4)
    assert MCDropout(model, passes=3)(X).isfinite().all()


@pytest.mark.parametrize("dropout", [nn.Dropout(0.0), nn.Identity()], ids=["p=0", "none"])
def test_a_model_without_dropout_is_refused(dropout):
    why = "has p=0" if isinstance(dropout, nn.Dropout) else "it has no dropout layer"
    with pytest.raises(ValueError, match=f"model must have dropout with p > 0.*{why}.*dropout_modules="):
        MCDropout(network(dropout))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(4, K), nn.BatchNorm1d(K)

    def forward(self, x):
        return self.norm(self.inner(F.dropout(x, 0.5, training=self.training)))


def test_functional_dropout_is_named():
    with pytest.raises(ValueError, match=r"F\.dropout"):
        MCDropout(Functional())
    model = nn.Sequential(Functional())
    before = state_of(model)
    assert len(MCDropout(model, passes=4, dropout_modules=["0"]).samples(X).unique(dim=0)) == 4
    assert len(MCDropout(model[0], passes=4, dropout_modules="").samples(X).unique(dim=0)) == 4
    assert_untouched(model, before)
    with pytest.raises(ValueError, match=r"dropout_modules names '0\.inne', .*did you mean '0\.inner'"):
        MCDropout(model, dropout_modules=["0.inne"])


def test_recurrent_layers_and_attention_drop_by_themselves():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, K, num_layers=2, dropout=0.5, batch_first=True)

        def forward(self, x):
            return self.lstm(x[:, None])[0][:, -1]

    class Attentive(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)

        def forward(self, x):
            return self.attention(x[:, None].repeat(1, 3, 1) + torch.eye(4)[:3], x[:, None], x[:, None])[0][:, 0]

    for model in (Recurrent(), Attentive()):
        assert len(MCDropout(model, passes=6).samples(X, generator=seeded()).unique(dim=0)) > 1


def test_the_fused_transformer_layer_does_not_skip_dropout():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(8, K)

        def forward(self, x):
            return self.head(self.encoder(x).mean(1))

    model = Encoder()
    before = state_of(model)
    # In eval mode without gradients torch fuses the layer, and the dropout layers inside are never called.
    samples = MCDropout(model, passes=4).samples(torch.randn(2, 5, 8, generator=seeded()))
    assert len(samples.unique(dim=0)) == 4
    assert_untouched(model, before)


def test_a_compiled_model_drops_too():
    model = network().eval()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        compiled(X)  # warm, in eval mode
    before = state_of(compiled)
    assert len(MCDropout(compiled, passes=4, max_rows=5).samples(X).unique(dim=0)) == 4
    assert_untouched(compiled, before)
    torch.testing.assert_close(Ensemble([compiled]).samples(X)[0], model(X).detach())


@pytest.mark.parametrize("kind", ["densenet", "swin"])
def test_layers_of_torchvision_that_call_dropout_themselves_drop(kind):
    torchvision = pytest.importorskip("torchvision")
    if kind == "densenet":
        model = torchvision.models.DenseNet(4, (1, 1), 8, drop_rate=0.5, num_classes=K)
    else:
        swin = torchvision.models.SwinTransformer
        model = swin([4, 4], 8, [2], [2], [2, 2], attention_dropout=0.5, stochastic_depth_prob=0.9, num_classes=K)
    x, before = torch.randn(2, 3, 32, 32, generator=seeded()), state_of(model)
    samples = MCDropout(model, passes=4, max_rows=3).samples(x)
    assert len(samples.unique(dim=0)) == 4
    assert_untouched(model, before)  # BatchNorm's statistics among them
    calm = MCDropout(model)._dropout()
    assert not any(isinstance(m, (nn.BatchNorm2d, torchvision.ops.StochasticDepth)) for m in calm)


@pytest.mark.parametrize("where", ["dropout", "activation_dropout", "attention_dropout"])
def test_layers_of_hugging_face_models_that_call_dropout_themselves_drop(where):
    transformers = pytest.importorskip("transformers")
    sizes = {f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in SMALL.items()}
    rates = {"dropout": 0.0, "activation_dropout": 0.0, "attention_dropout": 0.0, where: 0.5}
    config = transformers.BartConfig(
        vocab_size=20, d_model=8, max_position_embeddings=16, num_labels=K, **sizes, **rates
    )
    model = transformers.BartForSequenceClassification(config)
    batch = {"input_ids": torch.tensor([[0, 5, 6, 2], [0, 7, 8, 2]])}
    before = state_of(model)
    assert len(MCDropout(model, passes=4, max_rows=4).samples(batch).unique(dim=0)) == 4
    assert_untouched(model, before)


SMALL = {"layers": 1, "attention_heads": 2, "ffn_dim": 8}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("where", ["attention_probs_dropout_prob", "hidden_dropout_prob"])
def test_hugging_face_models_drop_in_their_attention_too(attention, where):
    transformers = pytest.importorskip("transformers")
    rates = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, where: 0.5}
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        num_labels=K,
        attn_implementation=attention,
        **rates,
    )
    model = transformers.BertForSequenceClassification(config)
    batch = {"input_ids": torch.tensor([[2, 3, 4], [5, 6, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    before = state_of(model)
    for max_rows in (2, 100):
        samples = MCDropout(model, passes=4, max_rows=max_rows).samples(batch)
        assert samples.shape == (4, 2, K)
        assert len(samples.unique(dim=0)) == 4
    assert_untouched(model, before)
    mean = Ensemble([model])(batch)
    torch.testing.assert_close(mean, model.eval()(**batch).logits.log_softmax(1).detach())


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: MCDropout(lambda x: x), "model must be an nn.Module, got function"),
        (lambda: MCDropout(network(), 0), "passes must be"),
        (lambda: MCDropout(network(), max_rows=0), "max_rows must be"),
        (lambda: MCDropout(network())({"x": X, "labels": X}), "x holds 'labels'"),
        (lambda: MCDropout(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1)))(X), "K of at least 2, got .*one logit"),
        (lambda: MCDropout(nn.Sequential(nn.Dropout(0.5), nn.Flatten(0)))(X), r"must return logits \[50, K\]"),
        (lambda: Ensemble([]), "models is empty"),
        (lambda: Ensemble(network()), "models must be a list of models, got one Sequential"),
        (lambda: Ensemble([network(), 3]), r"models\[1\] must be an nn.Module, got int"),
        (lambda: Ensemble([nn.Linear(4, 3)] * 2), "the same model twice"),
        (lambda: Ensemble([nn.Linear(4, 3), nn.Linear(4, 2)])(X), r"models\[0\] gives \[5, 3\], models\[1\] \[5, 2\]"),
        (lambda: Ensemble([network()], temperature=0), "temperature must be a number above 0"),
        (lambda: Ensemble([network()]).with_temperature(None), "temperature must be a number above 0, got None"),
        (lambda: Ensemble([network()], methods="Mixup(alpha=0.4)"), "vicinal.parse reads them from text"),
        (lambda: Ensemble([network()], methods=[Mixup]), "methods must be objectives"),
        (lambda: Ensemble([network()], methods=[ERM(), ERM()]), "one for each of the 1 models, got 2"),
    ],
)
def test_bad_input_is_refused_by_name(call, match):
    with pytest.raises((ValueError, TypeError), match=match):
        call()


# Ensembles


def members(n=3):
    torch.manual_seed(1)
    return [nn.Linear(4, K) for _ in range(n)]


def test_an_ensemble_averages_probabilities_in_eval_mode():
    models = [network(), network().train()]
    with torch.no_grad():
        models[1][0].weight.add_(0.3)
    found, samples = Ensemble(models)(X), Ensemble(nn.ModuleList(models)).samples(X)
    slow = [model.eval()(X).detach() for model in models]
    torch.testing.assert_close(samples, torch.stack(slow))
    torch.testing.assert_close(found.exp(), (slow[0].softmax(1) + slow[1].softmax(1)) / 2)


def test_an_ensemble_of_one_is_the_model():
    model = members(1)[0]
    torch.testing.assert_close(Ensemble([model])(X).exp(), model(X).softmax(1).detach())


def test_the_temperature_applies_to_the_average():
    ensemble = Ensemble(members())
    hot = ensemble.with_temperature(2.0)
    torch.testing.assert_close(hot(X), (ensemble(X) / 2).log_softmax(1))
    torch.testing.assert_close(hot.samples(X), ensemble.samples(X))
    assert (ensemble.temperature, hot.temperature, len(hot)) == (None, 2.0, 3)


def test_pool_then_calibrate_recovers_a_planted_under_confidence():
    generator = seeded()
    x = torch.randn(4000, 4, generator=generator)
    teacher = 2 * torch.randn(4, K, generator=generator)
    labels = torch.multinomial((x @ teacher).softmax(1), 1, generator=generator)[:, 0]
    models = members(4)
    with torch.no_grad():  # members that know the teacher, noisily and with a third of its confidence
        for model in models:
            model.weight.copy_((teacher + 0.5 * torch.randn(4, K, generator=generator)).T / 3)
            model.bias.zero_()
    with pytest.warns(UserWarning, match="under-confident"):
        ensemble = Ensemble(models, methods=Mixup(alpha=0.4))
    scaling = TemperatureScaling().fit(ensemble(x[:2000]), labels[:2000])
    assert scaling.temperature_ < 0.5
    before, after = (
        evaluate(labels[2000:], logits=e(x[2000:])) for e in (ensemble, ensemble.with_temperature(scaling.temperature_))
    )
    assert before.ece.value > 0.15
    assert after.ece.value < 0.05
    assert after.accuracy.value == before.accuracy.value


MIXING = [
    Mixup(alpha=0.4),
    CutMix(alpha=1.0),
    Mixup(alpha=math.inf),
    LogitMix(Mixup(alpha=3.0)),
    RegMixup(Mixup(alpha=10.0)),
    Warmup(Mixup(alpha=0.1), epochs=5),
    During(LogitMix(Mixup(alpha=0.1)), start=1, stop=2),
    GuidedMixup(),
]


def bound_guided():
    aum = AUM(n_samples=4)
    aum.update(torch.eye(4), torch.tensor([0, 1, 2, 0]), torch.arange(4), epoch=0)
    return GuidedMixup(pool="batch").bind(aum)


@pytest.mark.parametrize("method", [*MIXING, bound_guided()], ids=lambda method: repr(method)[:40])
def test_members_trained_by_mixing_are_warned_of_with_the_reference(method):
    with pytest.warns(UserWarning, match=r"under-confident.*Wen et al\. 2021.*Rahaman & Thiery 2021") as caught:
        Ensemble(members(2), methods=[ERM(), method])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ensemble(members(2), methods=method, temperature=0.8)  # already seen to
        Ensemble(members(1), methods=method)  # nothing is averaged


@pytest.mark.parametrize("method", [None, ERM(), ERM(label_smoothing=0.1), GaussianVicinity(sigma=0.1), Mixup(alpha=0)])
def test_others_are_not(method):
    Ensemble(members(2), methods=method)


def test_they_print():
    assert repr(MCDropout(network())) == "MCDropout(Sequential, passes=10, max_rows=512)"
    assert repr(Ensemble(members())) == "Ensemble(3 × Linear, temperature=None)"
