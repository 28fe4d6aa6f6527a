"""What every public objective promises."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.checkpoint import checkpoint

import vicinal
from vicinal.expressions import objective_names
from vicinal.objectives.base import Objective

from .cases import CNN, ELSEWHERE, MLP, MODELS, OBJECTIVES, K, batch

EPOCH = 1.5  # inside the window of the schedules among the cases

objectives = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES.keys())
models = pytest.mark.parametrize("make_model", MODELS.values(), ids=MODELS.keys())


def run(objective: Objective, model: nn.Module, x: Tensor, y: Tensor, seed: int = 0, **more: Any) -> Tensor:
    torch.manual_seed(seed)  # dropout
    return objective(model, x, y, epoch=EPOCH, generator=torch.Generator().manual_seed(seed), **more)


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def snapshot(model: nn.Module) -> tuple[object, ...]:
    """Everything of a model that an objective must leave alone (BatchNorm's running statistics may move)."""
    return (
        [
            (name, id(m), m.training, len(m._forward_hooks), len(m._forward_pre_hooks))
            for name, m in model.named_modules()
        ],
        [(name, id(p), p.requires_grad) for name, p in model.named_parameters()],
        list(model.state_dict()),
    )


def test_every_public_objective_has_a_case():
    covered = {type(o).__name__ for o in OBJECTIVES.values()} | set(ELSEWHERE)
    assert covered == set(objective_names())
    for name, home in ELSEWHERE.items():
        assert name in (Path(__file__).parents[1] / home).read_text()


def test_every_public_objective_has_a_card():
    cards = {path.stem for path in (Path(__file__).parents[2] / "src" / "vicinal" / "cards").glob("*.md")}
    missing = [name for name in objective_names() if name.lower() not in cards]
    assert not missing


@models
@objectives
def test_loss_is_a_finite_scalar_whose_gradient_reaches_every_parameter(objective, make_model):
    torch.manual_seed(0)
    model, (x, y) = make_model(), batch()
    loss = run(objective, model, x, y)
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    loss.backward()
    for name, grad in gradients(model).items():
        assert grad is not None, name
        assert grad.isfinite().all(), name
    assert any(grad.abs().sum() > 0 for grad in gradients(model).values())


@pytest.mark.parametrize("n", [1, 2, 5])
@objectives
def test_any_batch_size(objective, n):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch(n)
    loss = run(objective, model, x, y)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("n", [3, 5, 7, 12])
@objectives
def test_x_and_y_of_different_lengths_are_refused(objective, n):
    """Above all half and twice as many: `[x; x]` is never made of them by accident."""
    torch.manual_seed(0)
    model, (x, _), (_, y) = MLP(), batch(6), batch(n)
    with pytest.raises(ValueError, match=r"rows|logits \[|lam must"):
        run(objective, model, x, y)


@objectives
def test_same_generator_same_loss_and_the_global_one_is_left_alone(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    before = torch.get_rng_state()
    losses = [objective(model, x, y, epoch=EPOCH, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*losses)
    assert torch.equal(before, torch.get_rng_state())


@objectives
def test_without_a_generator_the_global_one_is_used(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    losses = []
    for _ in range(2):
        torch.manual_seed(7)
        losses.append(objective(model, x, y, epoch=EPOCH))
    assert torch.equal(*losses)


@models
@objectives
def test_inputs_modes_hooks_and_submodules_are_untouched(objective, make_model):
    torch.manual_seed(0)
    model, (x, y) = make_model(), batch()
    list(model.modules())[-1].eval()  # a mode that is not the parent's must survive too
    x0, y0, before, grads = x.clone(), y.clone(), snapshot(model), gradients(model)
    run(objective, model, x, y)
    assert torch.equal(x, x0)
    assert torch.equal(y, y0)
    assert snapshot(model) == before
    assert gradients(model) == grads, "an objective never writes .grad"


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("the model broke")


@pytest.mark.parametrize("where", ["hidden", "head"])
@objectives
def test_everything_is_restored_after_an_exception_in_the_forward(objective, where):
    torch.manual_seed(0)
    model, (x, y) = CNN(), batch()
    if where == "hidden":
        model.hidden[1] = Failing()
    else:
        model.head = Failing()
    model.drop.eval()
    before, x0 = snapshot(model), x.clone()
    with pytest.raises(RuntimeError, match="the model broke"):
        run(objective, model, x, y)
    assert snapshot(model) == before
    assert torch.equal(x, x0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@objectives
def test_other_float_types(objective, dtype):
    torch.manual_seed(0)
    model = CNN().eval()
    x, y = batch()
    reference = run(objective, model, x, y)
    converted = copy.deepcopy(model).to(dtype)
    loss = run(objective, converted, x.to(dtype), y)
    loss.backward()
    assert loss.dtype in (torch.float32, torch.float64)
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-4
    assert loss.item() == pytest.approx(reference.item(), rel=tolerance, abs=tolerance)
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in converted.parameters())


@objectives
def test_autocast(objective):
    torch.manual_seed(0)
    model, (x, y) = CNN().eval(), batch()
    reference = run(objective, model, x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = run(objective, model, x, y)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(reference.item(), rel=0.05, abs=0.05)


@objectives
def test_soft_targets_equal_the_labels_they_stand_for(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    if "same_class" in repr(objective):
        with pytest.raises(ValueError, match="needs integer labels"):
            run(objective, model, x, one_hot(y, K).float())
        return
    hard = run(objective, model, x, y)
    soft = run(objective, model, x, one_hot(y, K).float())
    torch.testing.assert_close(hard, soft)


@objectives
def test_regression_targets(objective):
    unfit = ("label_smoothing=0.1", "confidence_penalty=0.1", "same_class", "'probs'")
    torch.manual_seed(0)
    model, (x, _) = MLP(), batch()
    model.head = nn.Linear(16, 1)
    y = torch.randn(len(x))
    if any(word in repr(objective) for word in unfit):
        with pytest.raises(ValueError, match=r"label_smoothing|confidence_penalty|same_class|probs"):
            run(objective, model, x, y, target_type="regression")
        return
    loss = run(objective, model, x, y, target_type="regression")
    loss.backward()
    assert loss.isfinite()


@objectives
def test_terms_sum_to_the_loss(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    terms = objective.terms(model, x, y, epoch=EPOCH, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sum(terms.values()), run(objective, model, x, y))


@objectives
def test_gradient_accumulation_is_the_mean_of_the_micro_batches(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch(6)
    for part, seed in ((slice(0, 3), 1), (slice(3, 6), 2)):
        (run(objective, model, x[part], y[part], seed) / 2).backward()
    accumulated = gradients(model)
    model.zero_grad()
    ((run(objective, model, x[:3], y[:3], 1) + run(objective, model, x[3:], y[3:], 2)) / 2).backward()
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad, accumulated[name])


class Checkpointed(MLP):
    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.flat(x).requires_grad_()  # a reentrant checkpoint needs an input with a gradient
        return self.head(checkpoint(self.hidden, x, use_reentrant=self.use_reentrant))


@objectives
def test_gradient_checkpointing_gives_the_same_gradients(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    checkpointed = Checkpointed(use_reentrant=False)
    checkpointed.load_state_dict(model.state_dict())
    if "hidden.0" in repr(objective):
        # The layer lies inside what is checkpointed and would be recomputed unmixed: torch refuses.
        with pytest.raises(torch.utils.checkpoint.CheckpointError):
            run(objective, checkpointed, x, y).backward()
        return
    loss, other = run(objective, model, x, y), run(objective, checkpointed, x, y)
    torch.testing.assert_close(loss, other)
    loss.backward()
    other.backward()
    for name, grad in gradients(checkpointed).items():
        torch.testing.assert_close(grad, dict(gradients(model))[name])


@objectives
def test_a_reentrant_checkpoint_is_right_or_refused(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    checkpointed = Checkpointed(use_reentrant=True)
    checkpointed.load_state_dict(model.state_dict())
    before = snapshot(checkpointed)
    if "'hidden" in repr(objective) or "PuzzleMix" in repr(objective):
        seeds = range(20)  # until the layer is drawn
        with pytest.raises(ValueError, match="reentrant"):
            [run(objective, checkpointed, x, y, seed) for seed in seeds]
        assert snapshot(checkpointed) == before
        return
    run(objective, model, x, y).backward()
    run(objective, checkpointed, x, y).backward()
    for name, grad in gradients(checkpointed).items():
        torch.testing.assert_close(grad, dict(gradients(model))[name])


@functools.cache
def compiled_cnn() -> tuple[nn.Module, nn.Module]:
    """A model, and the same compiled once for all objectives: its graphs are kept, whatever was mixed before."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = CNN().eval()
    return model, torch.compile(copy.deepcopy(model), backend="aot_eager")


@objectives
def test_a_compiled_model_gives_the_same_loss_and_gradients(objective):
    (model, compiled), (x, y) = compiled_cnn(), batch()
    compiled(x)  # compiled and warm before the objective is called: hooks would be skipped from here on
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    for seed in range(2):
        model.zero_grad()
        compiled.zero_grad()
        loss = run(objective, model, x, y, seed)
        # Beyond 8 graphs nothing would be compiled, and the model would be compared with itself.
        with config.patch({limit: 100}):
            other = run(objective, compiled, x, y, seed)
        torch.testing.assert_close(other, loss)
        loss.backward()
        other.backward()
        for (name, grad), other_grad in zip(gradients(model).items(), gradients(compiled).values(), strict=True):
            torch.testing.assert_close(other_grad, grad, msg=name)


@pytest.mark.slow
def test_a_model_compiled_by_inductor():
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, (x, y) = MLP(), batch()
    compiled = torch.compile(copy.deepcopy(model))
    compiled(x)
    objective = vicinal.ManifoldMixup(layers=["hidden"])
    torch.testing.assert_close(run(objective, compiled, x, y), run(objective, model, x, y))


def test_mixing_a_layer_of_a_compiled_model_does_not_recompile_every_step():
    torch.manual_seed(0)
    torch._dynamo.reset()
    compiled, (x, y) = torch.compile(MLP(), backend="aot_eager"), batch()
    objective = vicinal.ManifoldMixup(layers=["hidden"])
    for seed in range(2):
        run(objective, compiled, x, y, seed)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(2, 6):
            run(objective, compiled, x, y, seed)


@objectives
def test_repr_is_the_python_that_builds_it(objective):
    text = repr(objective)
    assert vicinal.parse(text) == objective
    assert repr(vicinal.parse(text)) == text
    assert hash(vicinal.parse(text)) == hash(objective)
    namespace = {name: getattr(vicinal, name) for name in objective_names()} | {"inf": float("inf")}
    assert eval(text, namespace) == objective


@objectives
def test_objectives_are_frozen(objective):
    field = next(iter(objective.__dataclass_fields__))
    with pytest.raises(AttributeError):
        setattr(objective, field, 0)


@objectives
def test_mistakes_in_the_targets_are_named(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    with pytest.raises(ValueError, match=r"labels must be in \[0, 4\] for 5 logits, got 5"):
        run(objective, model, x, torch.full_like(y, 5))
    with pytest.raises(ValueError, match=r"labels must be in \[0, 4\] for 5 logits, got -1"):
        run(objective, model, x, torch.full_like(y, -1))
    if "same_class" not in repr(objective):
        with pytest.raises(ValueError, match="sum to one"):
            run(objective, model, x, torch.ones(len(y), K))


@objectives
def test_equal_weights_change_nothing(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    plain = run(objective, model, x, y)
    torch.testing.assert_close(run(objective, model, x, y, weight=torch.full((len(y),), 2.5)), plain)
    torch.testing.assert_close(run(objective, model, x, y, class_weights=[2.0] * K), plain)


@objectives
def test_a_class_with_weight_zero_is_not_learned(objective):
    """Batches of one: whatever the method mixes, the weight of the mixture is that of its only source."""
    torch.manual_seed(0)
    model, (x, _) = MLP(), batch(1)
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])
    assert run(objective, model, x, torch.tensor([1]), class_weights=weights).item() == 0
    assert run(objective, model, x, torch.tensor([0]), class_weights=weights).item() != 0


@objectives
def test_class_weights_are_sample_weights(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    weights = torch.tensor([1.0, 2.0, 3.0, 0.5, 4.0])
    want = run(objective, model, x, y, weight=weights[y])
    torch.testing.assert_close(run(objective, model, x, y, class_weights=weights), want)
    half = run(objective, model, x, y, weight=weights[y].sqrt(), class_weights=weights.sqrt())
    torch.testing.assert_close(half, want)
    with pytest.raises(ValueError, match="weight must have one number for each of the 6 rows, got 5"):
        run(objective, model, x, y, weight=torch.ones(5))
    with pytest.raises(ValueError, match="class_weights must have a number for each"):
        run(objective, model, x, y, class_weights=[1.0])
    with pytest.raises(ValueError, match="class_weights must have a number for each of the 5 classes, got 6"):
        run(objective, model, x, y, class_weights=[1.0] * 6)
    with pytest.raises(ValueError, match="weight must be finite numbers of at least 0"):
        run(objective, model, x, y, weight=-torch.ones(6))


class OneLogit(MLP):
    def __init__(self, n: int = 1) -> None:
        super().__init__()
        self.head = nn.Linear(16, n)


class TwoLogits(nn.Module):
    """The same answers as classes: no has the logit 0."""

    def __init__(self, one: OneLogit) -> None:
        super().__init__()
        self.flat, self.hidden, self.head = one.flat, one.hidden, nn.Linear(16, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.cat([0 * one.head.weight, one.head.weight]))
            self.head.bias.copy_(torch.cat([0 * one.head.bias, one.head.bias]))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self.flat(x)))


@objectives
def test_one_logit_is_two_classes(objective):
    torch.manual_seed(0)
    one, (x, y) = OneLogit(), batch()
    y = y % 2
    if any(word in repr(objective) for word in ("same_class", "'probs'")):
        with pytest.raises(ValueError, match=r"same_class|probs"):
            run(objective, one, x, y, target_type="binary")
        return
    binary = run(objective, one, x, y, target_type="binary")
    torch.testing.assert_close(run(objective, one, x, y.float()[:, None], target_type="binary"), binary)
    if "LogitMix" not in repr(objective):  # whose distance is one of logits, of which there are two
        torch.testing.assert_close(binary, run(objective, TwoLogits(one), x, y))
        weights = [1.0, 3.0]
        weighted = run(objective, one, x, y, target_type="binary", class_weights=weights)
        torch.testing.assert_close(weighted, run(objective, TwoLogits(one), x, y, class_weights=weights))


@objectives
def test_one_logit_is_never_guessed(objective):
    model, (x, _) = OneLogit(), batch()
    zeros = torch.zeros(len(x), dtype=torch.int64)
    with pytest.raises(ValueError, match=r"pass target_type='binary'|probs"):
        run(objective, model, x, zeros)
    with pytest.raises(ValueError, match=r"target_type='binary' .*target_type='regression'"):
        run(objective, model, x, zeros.float())


@objectives
def test_several_labels_are_the_mean_of_each(objective):
    torch.manual_seed(0)
    model, (x, _) = OneLogit(3), batch()
    y = torch.randint(2, (len(x), 3))
    if any(word in repr(objective) for word in ("same_class", "'probs'")):
        with pytest.raises(ValueError, match=r"same_class|probs"):
            run(objective, model, x, y, target_type="multilabel")
        return
    loss = run(objective, model, x, y, target_type="multilabel")
    loss.backward()
    assert loss.isfinite()
    if "PuzzleMix" in repr(objective) or "LogitMix" in repr(objective):
        return  # the saliency, and the norm of the distance, are of all labels together
    each = []
    for k in range(3):
        single = copy.deepcopy(model)
        single.head = nn.Linear(16, 1)
        with torch.no_grad():
            single.head.weight.copy_(model.head.weight[k : k + 1])
            single.head.bias.copy_(model.head.bias[k : k + 1])
        each.append(run(objective, single, x, y[:, k], target_type="binary"))
    torch.testing.assert_close(torch.stack(each).mean(), loss)


class Watching(MLP):
    """Notes how the memory of its inputs is laid out."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = getattr(self, "kept", True) and x.is_contiguous(memory_format=torch.channels_last)
        return super().forward(x)


@objectives
def test_channels_last_images_stay_so(objective):
    torch.manual_seed(0)
    model, (x, y) = Watching(), batch()
    want = run(objective, model, x, y)
    model.kept = True
    got = run(objective, model, x.to(memory_format=torch.channels_last), y)
    assert model.kept
    torch.testing.assert_close(got, want)


@objectives
def test_a_default_device_is_not_drawn_on(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    want = run(objective, model, x, y)
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        got = objective(model, x, y, epoch=EPOCH, generator=generator)
    torch.testing.assert_close(got, want)


class Marked(Tensor):
    """A tensor that only says what it holds, and will not be computed with another, as fastai's."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("lerp_", "gather", "index_select", "view", "cat", "__get__", "__getitem__"):
            raise TypeError(f"no implementation found for {func.__name__} of {types}")
        return super().__torch_function__(func, types, args, kwargs or {})


@objectives
def test_tensors_of_a_subclass(objective):
    torch.manual_seed(0)
    model, (x, y) = MLP(), batch()
    want = run(objective, model, x, y)
    torch.testing.assert_close(run(objective, model, x.as_subclass(Marked), y.as_subclass(Marked)), want)
