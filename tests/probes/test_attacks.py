from __future__ import annotations

import copy
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from vicinal.probes import Attack, attack_errors, fgsm, ifgsm, parse_attack

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def network(seed=0, channels=3, n_classes=7):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, n_classes),
    )


def images(n=6, channels=3, side=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, channels, side, side, generator=generator)
    x[:, :, 0, 0], x[:, :, 0, 1] = 0.0, 1.0  # ends of the range
    return x, torch.randint(7, (n,), generator=generator)


def normalised(x):
    return (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)


def raw(x):
    return x * torch.tensor(STD).view(1, 3, 1, 1) + torch.tensor(MEAN).view(1, 3, 1, 1)


def by_hand(model, x, y, epsilon, steps):
    """The formula, sample by sample, in units of the input and in float64."""
    model = copy.deepcopy(model).double().eval()
    rows = []
    for row, label in zip(x.double(), y, strict=True):
        found = row
        for _ in range(steps):
            leaf = found[None].clone().requires_grad_()
            logits = model((leaf - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1))
            loss = -logits.softmax(1)[0, label].log()
            slope = torch.autograd.grad(loss, leaf)[0][0]
            found = (found + epsilon / steps * slope.sign()).clamp(0, 1)
        rows.append(found)
    return torch.stack(rows)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_it_is_the_formula(steps):
    model, (x, y) = network(), images()
    found = ifgsm(model, normalised(x), y, epsilon=8 / 255, steps=steps, mean=MEAN, std=STD)
    torch.testing.assert_close(raw(found), by_hand(model, x, y, 8 / 255, steps).float(), atol=2e-6, rtol=0)
    if steps == 1:
        assert torch.equal(found, fgsm(model, normalised(x), y, epsilon=8 / 255, mean=MEAN, std=STD))


@pytest.mark.parametrize("epsilon", [1 / 255, 4 / 255, 0.3])
def test_foolbox_agrees(epsilon):
    foolbox = pytest.importorskip("foolbox")
    model, (x, y) = network().eval(), images(11)
    preprocessing = {"mean": torch.tensor(MEAN), "std": torch.tensor(STD), "axis": -3}
    theirs = foolbox.PyTorchModel(model, bounds=(0, 1), preprocessing=preprocessing, device="cpu")
    for attack, ours in (
        (foolbox.attacks.LinfFastGradientAttack(random_start=False), fgsm),
        (
            foolbox.attacks.LinfBasicIterativeAttack(abs_stepsize=epsilon / 10, steps=10, random_start=False),
            ifgsm,
        ),
    ):
        found = attack.run(theirs, x, y, epsilon=epsilon)
        own = ours(model, normalised(x), y, epsilon=epsilon, mean=MEAN, std=STD)
        torch.testing.assert_close(raw(own), found, atol=2e-6, rtol=0)


@given(
    st.integers(1, 5),
    st.floats(0, 2),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 99),
)
def test_it_never_leaves_the_ball_or_the_range(n, epsilon, steps, normalise, dtype, seed):
    model = network(seed).to(dtype)
    x, y = images(n, seed=seed)
    x = x.to(dtype)
    mean, std = (MEAN, STD) if normalise else (None, None)
    given_x = normalised(x).to(dtype) if normalise else x
    kept = given_x.clone()
    found = ifgsm(model, given_x, y, epsilon=epsilon, steps=steps, mean=mean, std=std)
    assert torch.equal(given_x, kept)
    assert found.dtype == dtype
    assert found.shape == x.shape
    back = raw(found) if normalise else found
    slack = 4 * torch.finfo(torch.float32).eps
    assert float((back - x).abs().max()) <= epsilon + slack
    assert -slack <= float(back.min()) <= float(back.max()) <= 1 + slack
    if not normalise:  # then it is exact
        assert 0 <= float(found.min()) <= float(found.max()) <= 1
    if epsilon == 0:
        assert torch.equal(found, given_x)


def test_epsilon_zero_returns_the_input_even_where_normalising_has_rounded():
    x, y = images(40)
    given_x = normalised(x)
    for attack in (Attack("fgsm", 0), Attack("ifgsm", 0, 10)):
        assert torch.equal(attack(network(), given_x, y, mean=MEAN, std=STD), given_x)


def test_without_a_range_every_entry_moves_by_epsilon():
    model, (x, y) = network(), images()
    found = fgsm(model, 5 * x - 2, y, epsilon=0.1, clip=None)
    torch.testing.assert_close((found - (5 * x - 2)).abs(), torch.full_like(x, 0.1))


def test_one_step_raises_the_loss():
    model, (x, y) = network().eval(), images(30)
    before = nn.functional.cross_entropy(model(x), y)
    assert nn.functional.cross_entropy(model(fgsm(model, x, y, epsilon=0.01)), y) > before


def test_a_sample_is_attacked_alike_in_any_batch():
    model, (x, y) = network(), images(7)
    whole = fgsm(model, x, y, epsilon=0.05)
    torch.testing.assert_close(whole[3:4], fgsm(model, x[3:4], y[3:4], epsilon=0.05))


class Wrapped(nn.Module):
    def __init__(self, inner, fail=False):
        super().__init__()
        self.inner, self.fail = inner, fail

    def forward(self, x):
        torch.rand(3)  # a model may draw
        if self.fail:
            raise RuntimeError("out of order")
        return SimpleNamespace(logits=self.inner(x), loss=None)


def state(model):
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()]
    return [m.training for m in model.modules()], gradients, flags, [b.clone() for b in model.buffers()]


def same(a, b):
    return all(
        (x is None and y is None) or (torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y)
        for xs, ys in zip(a, b, strict=True)
        for x, y in zip(xs, ys, strict=True)
    )


@pytest.mark.parametrize("fail", [False, True])
def test_modes_gradients_buffers_and_generators_are_as_before_even_after_an_error(fail):
    model = Wrapped(network(), fail).train()
    model.inner[1].eval()  # a frozen BatchNorm stays frozen
    model.inner[0].weight.requires_grad_(False)
    model.inner[6].weight.grad = torch.ones_like(model.inner[6].weight)
    before, random = state(model), (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    (x, y), run = images(5), lambda: attack_errors(model, images(5), Attack("ifgsm", 0.1, 2), batch_size=2)
    for probe in (run, lambda: fgsm(model, x, y, epsilon=0.1)):
        if fail:
            with pytest.raises(RuntimeError, match="out of order"):
                probe()
        else:
            probe()
        assert same(before, state(model))
        assert torch.equal(torch.get_rng_state(), random[0])
        assert np.array_equal(np.random.get_state()[1], random[1])  # noqa: NPY002


def test_it_works_without_gradients_and_in_inference_mode_and_on_objects_with_logits():
    model, (x, y) = network(), images()
    expected = fgsm(model, x, y, epsilon=0.1)
    with torch.no_grad():
        assert torch.equal(fgsm(Wrapped(model), x, y, epsilon=0.1), expected)
    with torch.inference_mode():
        assert torch.equal(fgsm(model, x.clone(), y.clone(), epsilon=0.1), expected)
        found = attack_errors(model, (x.clone(), y.clone()), Attack("fgsm", 0.1))
    assert found == attack_errors(model, (x, y), Attack("fgsm", 0.1))
    assert torch.is_grad_enabled()


def test_a_model_may_work_in_place():
    model, (x, y) = network(), images()
    kept = x.clone()
    found = ifgsm(nn.Sequential(nn.ReLU(inplace=True), model), x, y, epsilon=0.1, steps=2)
    torch.testing.assert_close(found, ifgsm(nn.Sequential(nn.ReLU(), model), x, y, epsilon=0.1, steps=2))
    assert torch.equal(x, kept)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("normalise", [False, True])
@given(epsilon=st.floats(0, 1), steps=st.integers(1, 3), seed=st.integers(0, 99))
def test_half_precision_is_rounded_into_the_ball_and_the_range(dtype, normalise, epsilon, steps, seed):
    (x, y), (mean, std) = images(3, seed=seed), ((MEAN, STD) if normalise else (0.0, 1.0))
    x = (normalised(x) if normalise else x).to(dtype)
    found = ifgsm(network(seed).to(dtype), x, y, epsilon=epsilon, steps=steps, mean=mean, std=std)
    assert found.dtype == dtype
    given_x, back = (t.double() for t in (x, found))
    wide, floor, ceiling = (
        torch.tensor(ends, dtype=torch.float64).expand(3).view(1, 3, 1, 1)
        for ends in (
            [epsilon / s for s in np.broadcast_to(std, 3)],
            *(
                [(end - m) / s for m, s in zip(np.broadcast_to(mean, 3), np.broadcast_to(std, 3), strict=True)]
                for end in (0, 1)
            ),
        )
    )
    slack = 1e-6
    assert bool(((back - given_x).abs() <= wide + slack).all())
    # An input that was itself rounded out of the range may stay where it is.
    assert bool((back >= torch.minimum(floor, given_x) - slack).all())
    assert bool((back <= torch.maximum(ceiling, given_x) + slack).all())
    if epsilon == 0:
        assert torch.equal(found, x)
    if epsilon > 0.2:
        assert bool((back != given_x).any())


def test_an_epsilon_that_overflows_is_refused_and_a_huge_one_reaches_the_ends():
    model, (x, y) = network(), images()
    assert set(fgsm(model, x, y, epsilon=1e30).unique().tolist()) == {0.0, 1.0}
    with pytest.raises(ValueError, match=r"epsilon=1e\+38 reaches beyond what torch\.float32 holds"):
        fgsm(model, x, y, epsilon=1e38, std=1e-3, clip=None)
    with pytest.raises(ValueError, match=r"epsilon=100000\.0 reaches beyond what torch\.float16 holds"):
        fgsm(network().half(), x.half(), y, epsilon=1e5, clip=None)


def test_the_errors_count_what_a_loop_counts():
    model, source, (x, y) = network(0), network(1), images(23)
    for given_source in (None, source):
        found = attack_errors(model, (x, y), Attack("fgsm", 0.1), source=given_source, top=(1, 2, 5), batch_size=7)
        adversarial = fgsm(given_source or model, x, y, epsilon=0.1)
        assert found.black_box == (given_source is not None)
        assert found.n == 23
        model.eval()
        for inputs, errors in ((x, found.clean), (adversarial, found.attacked)):
            logits = model(inputs)
            for k in (1, 2, 5):
                wrong = sum(
                    int(label) not in row.topk(k).indices.tolist() for row, label in zip(logits, y, strict=True)
                )
                ends = stats.binomtest(wrong, 23).proportion_ci(method="exact")
                assert (errors[k].value, errors[k].low, errors[k].high) == pytest.approx(
                    (wrong / 23, ends.low, ends.high)
                )
    assert found.to_dict()["attack"] == "fgsm:0.1"
    assert "black box, 23 samples" in str(found)


def test_batches_that_do_not_divide_and_loaders_count_alike():
    model, (x, y) = network(), images(10)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
    attack = Attack("ifgsm", 0.05, 3)
    whole = attack_errors(model, (x, y), attack)
    assert attack_errors(model, loader, attack) == whole
    assert attack_errors(model, (x, y), attack, batch_size=3) == whole
    assert attack_errors(model, (x, y), attack, source=model) == whole


def test_arrays_and_lists_are_tensors_too():
    model, (x, y) = network(), images(10)
    attack = Attack("fgsm", 0.05)
    whole = attack_errors(model, (x, y), attack)
    for held in ((x.numpy(), y.numpy()), (x, y.tolist()), [(x[:4], y[:4].tolist()), (x[4:], y[4:].numpy())]):
        assert attack_errors(model, held, attack) == whole


def test_with_k_or_fewer_classes_the_top_k_error_is_zero_and_the_first_wins_among_equals():
    model = nn.Linear(2, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    found = attack_errors(model, (torch.rand(3, 2), torch.tensor([0, 1, 2])), Attack("fgsm", 0.1), top=(1, 2, 3, 5))
    assert [found.clean[k].value for k in (1, 2, 3, 5)] == pytest.approx([2 / 3, 1 / 3, 0, 0])


@pytest.mark.parametrize(
    ("text", "attack"),
    [
        ("fgsm:4/255", Attack("fgsm", 4 / 255)),
        ("fgsm:0.1", Attack("fgsm", 0.1)),
        (" fgsm:0 ", Attack("fgsm", 0)),
        ("ifgsm:8/255", Attack("ifgsm", 8 / 255, 10)),
        ("ifgsm:1e-2:3", Attack("ifgsm", 0.01, 3)),
    ],
)
def test_attacks_are_written_as_text(text, attack):
    assert parse_attack(text) == attack
    assert parse_attack(str(attack)) == attack


@given(st.sampled_from(["fgsm", "ifgsm"]), st.floats(0, 10), st.integers(1, 50))
def test_text_and_attack_are_one(name, epsilon, steps):
    attack = Attack(name, epsilon, steps if name == "ifgsm" else 1)
    assert parse_attack(str(attack)) == attack


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pgd:4/255", "there is no attack 'pgd'; there are 'fgsm', 'ifgsm'"),
        ("", "there is no attack ''; there are 'fgsm', 'ifgsm'"),
        ("fgsm", "an attack by fgsm is written fgsm:EPSILON, such as fgsm:4/255, got 'fgsm'"),
        ("fgsm:4/255:3", "an attack by fgsm is written fgsm:EPSILON, such as fgsm:4/255, got 'fgsm:4/255:3'"),
        ("fgsm:4/0", "the epsilon of 'fgsm:4/0' must be a number or a fraction such as 4/255, got '4/0'"),
        ("fgsm:big", "the epsilon of 'fgsm:big' must be a number or a fraction such as 4/255, got 'big'"),
        ("fgsm:inf", "the epsilon of 'fgsm:inf' must be a number or a fraction such as 4/255, got 'inf'"),
        ("fgsm:-1/255", "epsilon must be a number of at least 0, got -0.00392156862745098"),
        ("ifgsm:4/255:0", "steps must be an integer of at least 1, got 0"),
        ("ifgsm:4/255:ten", "the steps of 'ifgsm:4/255:ten' must be an integer of at least 1, got 'ten'"),
        ("ifgsm:1:2:3", "an attack by ifgsm is written ifgsm:EPSILON or ifgsm:EPSILON:STEPS, such as ifgsm:4/255, "
         "got 'ifgsm:1:2:3'"),
    ],
)  # fmt: skip
def test_what_is_no_attack_is_refused_by_name(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_attack(text)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"epsilon": -0.1}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        (
            {"x": {"input_ids": torch.ones(2, 3)}},
            "x must be a tensor .*got dict",
        ),
        ({"x": torch.zeros(6, 3, 5, 5, dtype=torch.uint8)}, "floating tensor to be attacked, got torch.uint8"),
        ({"x": torch.zeros(0, 3, 5, 5)}, "at least one row"),
        ({"y": torch.zeros(6)}, "y must be integer labels"),
        ({"y": torch.full((6,), 9)}, "labels must be in"),
        ({"std": 0.0}, "std must be positive"),
        ({"std": (1.0, 1.0)}, "std must be a number or 3 of them, one per channel, got 2"),
        ({"mean": math.inf}, "mean must be finite"),
        ({"clip": (1, 0)}, "low < high"),
        ({"clip": 1}, "clip must be two numbers"),
        ({"x": 3 * images()[0]}, r"x lies outside clip=\(0.0, 1.0\): .* reach from 0 to 3"),
        ({"x": images()[0] * torch.nan}, "not finite"),
        ({"steps": 0}, "steps must be"),
        ({"model": lambda x: x}, "model must be an nn.Module, got function"),
    ],
)
def test_bad_arguments_are_refused(change, match):
    x, y = images()
    arguments = {"model": network(), "x": x, "y": y, "epsilon": 0.1} | change
    with pytest.raises((ValueError, TypeError), match=match):
        ifgsm(arguments.pop("model"), arguments.pop("x"), arguments.pop("y"), **arguments)


def test_bad_data_and_attacks_are_refused():
    model, (x, y) = network(), images()
    with pytest.raises(TypeError, match="attack must be an Attack"):
        attack_errors(model, (x, y), "fgsm:4/255")
    with pytest.raises(ValueError, match="data is empty"):
        attack_errors(model, [], Attack("fgsm", 0.1))
    with pytest.raises(ValueError, match="the same number of rows, got 6 and 5"):
        attack_errors(model, (x, y[1:]), Attack("fgsm", 0.1))
    with pytest.raises(TypeError, match=r"x must be a tensor .*got dict"):
        attack_errors(model, ({"input_ids": x}, y), Attack("fgsm", 0.1))
    with pytest.raises(TypeError, match="yield pairs"):
        attack_errors(model, [x], Attack("fgsm", 0.1))
    with pytest.raises(TypeError, match="tokens have no gradient"):
        attack_errors(model, [({"input_ids": x}, y)], Attack("fgsm", 0.1))
    with pytest.raises(ValueError, match="top is empty"):
        attack_errors(model, (x, y), Attack("fgsm", 0.1), top=())
    with pytest.raises(ValueError, match="fgsm takes one step"):
        Attack("fgsm", 0.1, 3)
