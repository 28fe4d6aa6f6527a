from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
from torch import nn

from vicinal import ERM, LogitMix, ManifoldMixup
from vicinal.objectives.forward import locate, mixed_at, unwrap

K = 3


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Pair(NamedTuple):
    value: torch.Tensor
    note: str


class Block(nn.Module):
    """Returns what its kind says: a tensor, a tuple or a named tuple."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(6, 6), kind

    def forward(self, x):
        x = self.linear(x).tanh()
        return {"tensor": x, "tuple": (x, "rest"), "named": Pair(x, "rest"), "text": "x", "empty": ()}[self.kind]


class Net(nn.Module):
    def __init__(self, kind: str = "tensor") -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block("tensor"), Block(kind)])
        self.head = nn.Linear(6, K)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            if isinstance(x, tuple):
                assert x[1] == "rest"
                x = x[0]
        return self.head(x)


def data(n: int = 5):
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, 6, generator=g), torch.randint(K, (n,), generator=g)


@pytest.mark.parametrize("kind", ["tensor", "tuple", "named"])
def test_a_hidden_layer_is_mixed_as_by_hand(kind):
    torch.manual_seed(0)
    model, (x, y) = Net(kind), data()
    objective = ManifoldMixup(layers=["blocks.1"])
    plan = objective.draw(model, x, y, generator=seeded())
    hidden = x
    for block in model.blocks:
        hidden = block.linear(hidden).tanh()
    lam = plan.lam[:, None]
    logits = model.head(lam * hidden + (1 - lam) * hidden[plan.partner])
    torch.testing.assert_close(objective.forward(model, x, plan), logits)
    log_p = logits.log_softmax(1)
    rows = range(len(x))
    expected = -sum(
        plan.lam[i] * log_p[i, y[i]] + (1 - plan.lam[i]) * log_p[i, y[plan.partner[i]]] for i in rows
    ) / len(x)
    torch.testing.assert_close(objective(model, x, y, generator=seeded()), expected)


def test_nested_layers_and_the_input():
    torch.manual_seed(0)
    model, (x, y) = Net(), data()
    for layer in ("input", "blocks.0.linear", "blocks.1", "head"):
        objective = ManifoldMixup(layers=[layer])
        plan = objective.draw(model, x, y, generator=seeded())
        logits = objective.forward(model, x, plan)
        mix = lambda t, plan=plan: plan.lam[:, None] * t + (1 - plan.lam[:, None]) * t[plan.partner]  # noqa: E731
        h = mix(x) if layer == "input" else x
        h = model.blocks[0].linear(h)
        h = (mix(h) if layer == "blocks.0.linear" else h).tanh()
        h = model.blocks[1](h)
        h = model.head(mix(h) if layer == "blocks.1" else h)
        torch.testing.assert_close(logits, mix(h) if layer == "head" else h)


def test_layers_are_drawn_uniformly():
    model, (x, y) = Net(), data()
    objective, generator = ManifoldMixup(layers=["input", "blocks.0", "blocks.1"]), seeded()
    draws = [objective.draw(model, x, y, generator=generator).layer for _ in range(600)]
    assert all(abs(draws.count(name) - 200) < 60 for name in objective.layers)


def test_one_forward_of_the_doubled_batch_is_clean_then_mixed():
    torch.manual_seed(0)
    model, (x, y) = Net(), data()
    for layer in ("input", "blocks.0"):
        objective = ManifoldMixup(layers=[layer])
        plan = objective.draw(model, x, y, generator=seeded())
        clean, mixed = objective.forward(model, x, plan, beside_clean=True).chunk(2)
        torch.testing.assert_close(clean, model(x))
        torch.testing.assert_close(mixed, objective.forward(model, x, plan))


def test_unknown_layers_list_the_nearest_real_names():
    model, (x, y) = Net(), data()
    with pytest.raises(ValueError, match=r"no layer 'block\.1'; did you mean 'blocks\.1'"):
        ManifoldMixup(layers=["input", "block.1"])(model, x, y)
    with pytest.raises(ValueError, match="no layer"):
        ManifoldMixup(layers=["blocks.7"])(model, x, y)
    with pytest.raises(ValueError, match="no layer"):
        ManifoldMixup(layers=["head.weight"])(model, x, y)


@pytest.mark.parametrize("layers", [[], "input", [""], [1], None, 3, {"input", "head"}, iter(["input"])])
def test_layers_must_be_names(layers):
    with pytest.raises(ValueError, match="non-empty list of 'input' and names"):
        ManifoldMixup(layers=layers)


@pytest.mark.parametrize("kind", ["text", "empty"])
def test_other_outputs_are_refused(kind):
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block(kind)

        def forward(self, x):
            self.block(x)
            return x[:, :K]

    x, y = data()
    returned = {"text": "str", "empty": "tuple"}[kind]
    with pytest.raises(ValueError, match=f"'block' must return a tensor, or a tuple.*{returned}"):
        ManifoldMixup(layers=["block"])(Single(), x, y)


def test_a_layer_must_run_exactly_once():
    class Odd(nn.Module):
        def __init__(self, times):
            super().__init__()
            self.layer, self.times = nn.Linear(6, 6), times

        def forward(self, x):
            for _ in range(self.times):
                x = self.layer(x)
            return x[:, :K]

    x, y = data()
    for times in (0, 2):
        model = Odd(times)
        original = model.layer
        with pytest.raises(ValueError, match=f"'layer' ran {times} times"):
            ManifoldMixup(layers=["layer"])(model, x, y)
        assert model.layer is original


class TimeFirst(nn.Module):
    def __init__(self, *, flat: bool = False) -> None:
        super().__init__()
        self.memory, self.head, self.flat = nn.LSTM(4, 5), nn.Linear(5, 3), flat
        self.places = nn.Embedding(20, 4)
        self.fold = nn.Flatten(0, 1) if flat else nn.Identity()

    def forward(self, x):
        x = (x + self.places(torch.arange(x.shape[1]))).transpose(0, 1)
        states = self.fold(self.memory(x)[0])
        return self.head(states.view(*x.shape[:2], 5)[-1])


@pytest.mark.parametrize("steps", [3, 6, 7, 12])  # 6 is the number of rows, 12 that of [x; x]
def test_the_rows_of_a_layer_that_is_time_first_are_its_second_axis(steps):
    torch.manual_seed(0)
    model, x, y = TimeFirst(), torch.randn(6, steps, 4), torch.randint(3, (6,))
    objective = ManifoldMixup(layers=["memory"])
    plan = objective.draw(model, x, y, generator=seeded())
    assert plan.axis == 1
    states = model.memory((x + model.places.weight[:steps]).transpose(0, 1))[0][-1]  # [B, D]
    lam = plan.lam[:, None]
    want = model.head(lam * states + (1 - lam) * states[plan.partner])
    torch.testing.assert_close(objective.forward(model, x, plan), want)
    clean, mixed = objective.forward(model, x, plan, beside_clean=True).chunk(2)
    torch.testing.assert_close(mixed, want)
    torch.testing.assert_close(clean, model(x))
    assert isinstance(model.memory, nn.LSTM)


@pytest.mark.parametrize("steps", [6, 12])
def test_a_layer_without_rows_is_refused(steps):
    model, x, y = TimeFirst(flat=True), torch.randn(6, steps, 4), torch.randint(3, (6,))
    with pytest.raises(ValueError, match="'places' is the same for any number of rows"):
        ManifoldMixup(layers=["places"])(model, x, y)
    with pytest.raises(ValueError, match=f"'fold' returned {6 * steps} rows for a batch of 6"):
        ManifoldMixup(layers=["fold"])(model, x, y)


class Remembers(nn.Module):
    """Reads the last hidden state, the second thing that its LSTM returns."""

    def __init__(self, *, output: bool = False) -> None:
        super().__init__()
        self.first, self.memory, self.head = nn.Linear(4, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)
        self.output = output

    def forward(self, x):
        states, (last, _) = self.memory(self.first(x))
        return self.head(states[:, -1] if self.output else last[-1])


def test_a_layer_whose_first_tensor_is_not_read_is_refused():
    torch.manual_seed(0)
    x, y = torch.randn(6, 7, 4), torch.arange(6) % 3
    with pytest.raises(ValueError, match=r"the logits do not depend on what the layer 'memory' returns.*another layer"):
        ManifoldMixup(layers=["first", "memory"])(Remembers(), x, y)
    assert ManifoldMixup(layers=["memory"])(Remembers(output=True), x, y).isfinite()
    zeros = Remembers(output=True)  # a head that starts from zeros depends on nothing yet
    nn.init.zeros_(zeros.head.weight)
    assert ManifoldMixup(layers=["memory"])(zeros, x, y).isfinite()


class Masked(nn.Module):
    """Averages what a layer makes of the tokens that the mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x, attention_mask):
        kept = attention_mask[..., None]
        return self.head((self.tokens(x).tanh() * kept).sum(1) / kept.sum(1))


@pytest.mark.parametrize("layer", ["tokens", "head"])
def test_masks_are_shared_where_tokens_are_mixed_and_not_after(layer):
    torch.manual_seed(0)
    model, y = Masked(), torch.arange(6) % 3
    mask = (torch.arange(7) < torch.tensor([7, 3, 5, 2, 7, 4])[:, None]).long()
    x = {"x": torch.randn(6, 7, 4), "attention_mask": mask}
    objective = ManifoldMixup(layers=[layer])
    plan = objective.draw(model, x, y, generator=seeded())
    lam, clean = plan.lam[:, None], model(**x)
    if layer == "head":
        want = lam * clean + (1 - lam) * clean[plan.partner]
    else:
        states, kept = model.tokens(x["x"]), (mask | mask[plan.partner])[..., None]
        mixed = (lam[..., None] * states + (1 - lam[..., None]) * states[plan.partner]).tanh() * kept
        want = model.head(mixed.sum(1) / kept.sum(1))
    torch.testing.assert_close(objective.forward(model, x, plan), want)
    torch.testing.assert_close(objective.forward(model, x, plan, beside_clean=True), torch.cat([clean, want]))


def test_inputs_whose_rows_are_the_second_axis_are_refused():
    class OnSteps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory, self.head = nn.LSTM(4, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.memory(x)[0][-1])

    x, y = torch.randn(6, 6, 4), torch.arange(6) % 3
    with pytest.raises(ValueError, match=r"logits \[6, 3\] for two rows of x as for three, so its rows are not on"):
        ManifoldMixup(layers=["memory"])(OnSteps(), x, y)


def test_to_ask_for_the_axis_leaves_the_model_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3))
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    ManifoldMixup(layers=["1"]).draw(
        model, torch.randn(6, 4, generator=seeded()), torch.arange(6) % 3, generator=seeded()
    )
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(m.training for m in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("iterated", [False, True])
def test_a_sequential_may_be_iterated_over(iterated):
    """timm's networks do, to checkpoint each block."""

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.head = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh())), nn.Linear(4, 3)

        def forward(self, x):
            assert isinstance(self.blocks, nn.Sequential)
            if not iterated:
                return self.head(self.blocks(x))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    torch.manual_seed(0)
    model, x, y = Blocks(), torch.randn(6, 4), torch.arange(6) % 3
    objective = ManifoldMixup(layers=["blocks"])
    plan = objective.draw(model, x, y, generator=seeded())
    want = model.head(plan.combine(model.blocks(x)))
    torch.testing.assert_close(objective.forward(model, x, plan), want)
    model.list = nn.ModuleList([nn.Linear(4, 4)])
    with pytest.raises(ValueError, match=r"'list' is an nn\.ModuleList, .* one of \['0'\]"):
        ManifoldMixup(layers=["list"])(model, x, y)


def test_what_is_not_a_module_or_a_tensor_is_named():
    head, x, y = nn.Linear(4, 3), torch.randn(6, 4), torch.randint(3, (6,))
    with pytest.raises(TypeError, match=r"model must be an nn\.Module .* got function"):
        ManifoldMixup(layers=["head"])(lambda x: head(x), x, y)
    with pytest.raises(TypeError, match="x must be a tensor or a mapping of tensors, got ndarray"):
        ManifoldMixup(layers=["input"])(head, x.numpy(), y)
    with pytest.raises(TypeError, match="y must be a tensor of labels or targets, got list"):
        ERM()(head, x, y.tolist())


def test_data_parallel_is_refused():
    x, y = data()
    with pytest.raises(ValueError, match="use DistributedDataParallel"):
        ManifoldMixup(layers=["head"])(nn.DataParallel(Net()), x, y)


def test_names_resolve_through_compiled_wrappers():
    model = Net()
    compiled = torch.compile(model, backend="eager")
    assert unwrap(compiled) is model
    assert locate(compiled, "blocks.0.linear") == (model.blocks[0], "linear")
    model.blocks[0] = torch.compile(model.blocks[0], backend="eager")
    parent, key = locate(model, "blocks.0.linear")
    assert (type(parent), key) == (Block, "linear")


def test_attributes_of_the_layer_stay_readable_while_it_is_mixed():
    class Curious(Net):
        def forward(self, x):
            assert self.head.weight.shape == (K, 6)
            assert self.head.in_features == 6
            return super().forward(x)

    x, y = data()
    assert ManifoldMixup(layers=["head"])(Curious(), x, y).isfinite()


def test_the_first_input_can_be_mixed_instead_of_the_output():
    torch.manual_seed(0)
    model, (x, _) = Net(), data()
    with mixed_at(model, "head", lambda h: h * 2, inputs=True):
        logits = model(x)
    expected = model.head(model.blocks[1](model.blocks[0](x)) * 2)
    torch.testing.assert_close(logits, expected)


def test_without_gradients_it_still_works():
    model, (x, y) = Net(), data()
    with torch.no_grad():
        assert ManifoldMixup(layers=["head"])(model, x, y).isfinite()


def test_batchnorm_statistics_of_layers_below_the_mix_see_clean_data():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, K))
    (x, y), plain = data(), copy.deepcopy(model)
    ManifoldMixup(layers=["2"])(model, x, y)
    ERM()(plain, x, y)
    torch.testing.assert_close(model[1].running_mean, plain[1].running_mean)


def test_logitmix_over_the_last_layer_is_exactly_linear():
    torch.manual_seed(0)
    model, (x, y) = Net(), data()
    with pytest.warns(UserWarning, match="the similarity term is identically zero"):
        terms = LogitMix(ManifoldMixup(layers=["blocks.1"])).terms(model, x, y, generator=seeded())
    assert terms["similarity"].item() == pytest.approx(0, abs=1e-10)
