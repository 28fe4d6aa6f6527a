"""Averages of weights against slow loops; runs that were disturbed against runs that were not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.training.test_fit import TRAIN, VAL, network, quick, same
from vicinal import Mixup
from vicinal.training import fit
from vicinal.training.averaging import recompute_batch_norm
from vicinal.training.loop import Loop


class Watching:
    """Cross-entropy that notes the weights before each step."""

    def __init__(self) -> None:
        self.seen: list[list[torch.Tensor]] = []

    def __call__(self, model, x, y, *, index=None, epoch=None, generator=None):
        self.seen.append([p.detach().clone() for p in model.parameters()])
        return F.cross_entropy(model(x), y)

    def __repr__(self) -> str:
        return "watching"


def trained(watch=None, *, norm=False, val=VAL, **fields):
    model = network(norm=norm)
    objective = watch or Mixup(alpha=0.4)
    result = fit(model, objective, TRAIN, val, config=quick(epochs=4, select="last", **fields), progress=False)
    return model, result


@pytest.mark.parametrize("val", [VAL, None])
def test_the_exponential_average_by_loops_and_training_takes_the_same_way(val):
    plain, averaged = Watching(), Watching()
    last, _ = trained(plain, val=val)
    model, _ = trained(averaged, val=val, ema=0.6)
    assert all(
        torch.equal(a, b)
        for one, two in zip(plain.seen, averaged.seen, strict=True)
        for a, b in zip(one, two, strict=True)
    )
    after = [*plain.seen[1:], [p.detach() for p in last.parameters()]]
    mean = [p.double() for p in after[0]]
    for t, weights in enumerate(after):
        d = 0.0 if t == 0 else min(0.6, (1 + t) / (10 + t))
        mean = [d * m + (1 - d) * w.double() for m, w in zip(mean, weights, strict=True)]
    for p, m in zip(model.parameters(), mean, strict=True):
        torch.testing.assert_close(p.double(), m, rtol=1e-5, atol=1e-6)


def test_the_mean_of_the_ends_of_epochs_by_loops():
    watch = Watching()
    last, _ = trained(watch)
    steps = len(watch.seen) // 4
    ends = [watch.seen[2 * steps], watch.seen[3 * steps], [p.detach() for p in last.parameters()]]  # of epochs 2, 3, 4
    model, result = trained(Watching(), swa=1)
    for p, *each in zip(model.parameters(), *ends, strict=True):
        torch.testing.assert_close(p, torch.stack(each).mean(0))
    plain = trained(Watching())[1].history
    assert result.history[0] == plain[0]  # nothing is averaged yet
    assert result.history[1] == plain[1]  # of one
    assert result.history[2]["loss"] == plain[2]["loss"]
    assert result.history[2]["val_nll"] != plain[2]["val_nll"]


def test_batch_norm_is_computed_again_by_loops():
    model = network(norm=True)
    x = TRAIN.tensors[0]
    batches = [x[:30], x[30:60], x[60:]]  # the last is one row, which has no variance
    hidden = [model[0](b).detach() for b in batches[:2]]
    untouched = copy.deepcopy(model.state_dict())
    recompute_batch_norm(model, lambda: ((len(b), lambda b=b: model(b)) for b in batches))
    torch.testing.assert_close(model[1].running_mean, (hidden[0].mean(0) + hidden[1].mean(0)) / 2)
    torch.testing.assert_close(model[1].running_var, (hidden[0].var(0) + hidden[1].var(0)) / 2)
    assert model[1].momentum == 0.1
    assert all(m.training for m in model.modules())
    assert all(
        torch.equal(model.state_dict()[n], t) for n, t in untouched.items() if "running" not in n and "num" not in n
    )


@pytest.mark.parametrize("how", [{"ema": 0.9}, {"swa": 1}], ids=["ema", "swa"])
def test_kept_weights_are_the_averaged_ones_with_their_statistics(how, tmp_path):
    model = network(norm=True)
    config = quick(epochs=4, **how)
    result = fit(model, Mixup(alpha=0.4), TRAIN, VAL, out=tmp_path, config=config, progress=False)
    logits = model(VAL.tensors[0]).detach()
    torch.testing.assert_close(logits, result.logits)  # what was evaluated is what is served
    assert F.cross_entropy(result.logits.double(), VAL.tensors[1]).item() == pytest.approx(result.best["val_nll"])
    running = model[1].running_mean.clone()
    order = torch.randperm(len(TRAIN), generator=torch.Generator().manual_seed(3))
    recompute_batch_norm(model, lambda: ((len(i), lambda i=i: model(TRAIN.tensors[0][i])) for i in order.split(61)))
    torch.testing.assert_close(running, model[1].running_mean, rtol=0.05, atol=0.05)  # another cut of the same rows


@pytest.mark.parametrize("how", [{"ema": 0.9}, {"swa": 1}, {"ema": 0.9, "select": "last"}], ids=repr)
@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_disturbed_run_ends_with_the_same_bits(how, at, tmp_path):
    config = quick(epochs=4, **how)

    def run(out, on_metrics=None):
        model = network(dropout=0.2, norm=True)
        fit(model, Mixup(alpha=0.4), TRAIN, VAL, out=out, config=config, progress=False, on_metrics=on_metrics)
        return model

    def disturb(line):
        if line["epoch"] == at:
            raise InterruptedError

    whole = run(tmp_path / "whole")
    with pytest.raises(InterruptedError):
        run(tmp_path / "resumed", disturb)
    assert same(run(tmp_path / "resumed"), whole)
    for name in ("metrics.jsonl", "model.safetensors", "predictions.parquet"):
        assert (tmp_path / "resumed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_weights_are_given_back_after_an_error(monkeypatch):
    model = network(norm=True)
    before = []

    def fails(self, name, bar):
        before.append(self.average.mean[0].clone())
        assert torch.equal(next(iter(self.module.parameters())), before[0])
        raise InterruptedError

    watch = Watching()
    monkeypatch.setattr(Loop, "_evaluate", fails)
    with pytest.raises(InterruptedError):
        fit(model, watch, TRAIN, VAL, config=quick(ema=0.9), progress=False)
    assert not torch.equal(next(iter(model.parameters())), before[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ema": 0.9, "swa": 1}, "give ema or swa, not both"),
        ({"ema": 1}, r"ema must be a number in \(0, 1\), got 1"),
        ({"ema": 0}, "ema must be"),
        ({"swa": -1}, "swa must be"),
        ({"swa": 4}, "swa=4.0 must leave an epoch to average, and there are 4"),
    ],
)
def test_bad_averages_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        fit(nn.Linear(5, 3), Mixup(alpha=0.4), TRAIN, VAL, config=quick(epochs=4, **fields), progress=False)
