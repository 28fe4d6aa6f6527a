"""What every objective inherits: the call, the terms, the training state, and functions as objectives."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from vicinal import AUM, ERM, GuidedMixup, Mixup, Warmup
from vicinal._typing import Step
from vicinal.mixing import PairPlan
from vicinal.objectives.base import InputMixing, Objective, as_objective, clean_and_mixed
from vicinal.objectives.guided.aum import AUMRecorder


class Spy(Objective):
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def compute_terms(self, model, x, y, step):
        self.steps.append(step)
        return {"a": x.sum(), "b": 2 * x.sum()}


def test_a_call_is_bundled_as_one_step():
    spy, x, generator = Spy(), torch.arange(3), torch.Generator()
    assert spy(torch.sum, x, x, index=x, epoch=1.5, generator=generator) == 9
    assert spy.terms(None, x, x, epoch=2) == {"a": 3, "b": 6}
    assert [(s.index is x, s.epoch, s.generator is generator) for s in spy.steps] == [
        (True, 1.5, True),
        (False, 2, False),
    ]
    with pytest.raises(TypeError, match="epochs"):
        spy.terms(None, x, x, epochs=2)


def test_the_arguments_of_a_call_are_written_once():
    import vicinal

    calls = {inspect.unwrap(getattr(vicinal, name).__call__) for name in vicinal.OBJECTIVES}
    assert calls == {Objective.__call__}


def test_an_objective_without_state_says_so():
    objective = Mixup(alpha=1.0)
    assert objective.tracker(5) is None
    assert objective.balanced is None
    assert objective.state_dict() == {}
    objective.load_state_dict({})
    objective.all_reduce()
    with pytest.raises(ValueError, match="keeps no training state"):
        objective.load_state_dict({"counts": torch.zeros(1)})
    with pytest.raises(TypeError, match="nothing to bind"):
        objective.bind(AUM(5))


@pytest.mark.parametrize("wrap", [lambda o: o, lambda o: Warmup(o, epochs=1)], ids=["alone", "scheduled"])
@pytest.mark.parametrize("pool", ["batch", "set"])
def test_state_is_reached_through_the_base_class_also_inside_a_schedule(wrap, pool):
    objective = wrap(GuidedMixup(pool=pool))
    aum = objective.tracker(8)
    assert isinstance(aum, AUM)
    assert aum.saliency == (pool == "set")
    x, y, index = torch.randn(8, 4), torch.arange(8) % 3, torch.arange(8)
    model = nn.Linear(4, 3)
    aum.update(model(x), y, index, epoch=0)
    data = torch.utils.data.TensorDataset(x, y)
    bound = objective.bind(aum, dataset=data, collate_fn=torch.utils.data.default_collate)
    assert bound.tracker(8) is None, "bound: no first run is needed any more"
    assert (bound.balanced is not None) == (pool == "batch")
    bound(model, x, y, index=index, epoch=1.0)
    state = bound.state_dict()
    other = objective.bind(aum, dataset=data, collate_fn=torch.utils.data.default_collate)
    other.load_state_dict(state)
    assert all(torch.equal(t, state[name]) for name, t in other.state_dict().items())


def test_the_recorder_is_plain_training_that_feeds_its_tracker():
    torch.manual_seed(0)
    model, x, y, index = nn.Linear(4, 3), torch.randn(6, 4), torch.arange(6) % 3, torch.arange(6)
    recorder = AUMRecorder(AUM(6), ERM(label_smoothing=0.1))
    loss = recorder(model, x, y, index=index, epoch=0.0)
    assert torch.equal(loss, ERM(label_smoothing=0.1)(model, x, y))
    for i, z in enumerate(model(x)):
        margin = z[y[i]] - max(z[k] for k in range(3) if k != y[i])
        assert recorder.aum.values([i]).item() == pytest.approx(margin.item(), abs=1e-6)
    assert recorder.state_dict().keys() == recorder.aum.state_dict().keys()
    with pytest.raises(ValueError, match="index= and epoch="):
        recorder(model, x, y)
    with pytest.raises(ValueError, match=r"must be ERM\(\)"):
        AUMRecorder(AUM(6), Mixup(alpha=1.0))


def test_functions_are_objectives_and_callables_with_state_are_refused():
    def squares(model, x, y, *, index=None, epoch=None, generator=None):
        return (model(x) - y).square().mean() * epoch

    x = torch.randn(3, 2)
    assert as_objective(squares)(nn.Identity(), x, x + 1, epoch=3.0).item() == pytest.approx(3.0)
    assert as_objective(ERM()) == ERM()
    for wrong in (Mixup, "Mixup", None):
        with pytest.raises(TypeError, match="objective must be an objective"):
            as_objective(wrong)
    with pytest.raises(TypeError, match="derive from"):
        as_objective(nn.Linear(2, 2))


@dataclass(frozen=True, kw_only=True, repr=False)
class Reversed(InputMixing[PairPlan]):
    """All that an input-mixing method writes: `draw` and `mix`."""

    label_smoothing: float = 0.0

    def draw(self, model, x, y, *, generator=None):
        return PairPlan(torch.full((len(y),), 0.25), torch.arange(len(y)).flip(0))

    def mix(self, x: Tensor, plan: PairPlan) -> Tensor:
        return plan.combine(x)


def test_input_mixing_inherits_forward_and_loss():
    torch.manual_seed(0)
    objective, model, x, y = Reversed(), nn.Linear(4, 3), torch.randn(5, 4), torch.arange(5) % 3
    log_p = model(0.25 * x + 0.75 * x.flip(0)).log_softmax(1)
    slow = -sum(0.25 * log_p[i, y[i]] + 0.75 * log_p[i, y[4 - i]] for i in range(5)) / 5
    torch.testing.assert_close(objective(model, x, y), slow)
    plan = objective.draw(model, x, y)
    for split in (False, True):
        clean, mixed = clean_and_mixed(objective, model, x, plan, split_forward=split)
        torch.testing.assert_close(clean, model(x))
        torch.testing.assert_close(mixed, objective.forward(model, x, plan))
