"""The loop against slow loops, and runs that were disturbed against runs that were not, bit for bit."""

from __future__ import annotations

import copy
import dataclasses
import errno
import fcntl
import json
import math
import os
import pickle
import random
import re
import resource
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

import vicinal
from vicinal import ERM, GuidedMixup, LogitMix, Mixup, Warmup, _atomic, _random, losses
from vicinal.training import (
    FitConfig,
    FitResult,
    batches,
    environment,
    fit,
    folder,
    load_weights,
    loop,
    read_predictions,
)
from vicinal.training.batches import EpochPlan, MicroBatches


def classes(n: int = 61, *, seed: int = 0) -> TensorDataset:
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def network(*, dropout: float = 0.0, norm: bool = False) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Linear(5, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.ReLU(), nn.Dropout(dropout)]
        return nn.Sequential(*layers, nn.Linear(8, 3))


def quick(**fields) -> FitConfig:
    return FitConfig(**{"epochs": 2, "batch_size": 16, "lr": 0.01, "trackers": (), "checkpoint_minutes": 0, **fields})


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


TRAIN, VAL = classes(), classes(29, seed=1)


# Configuration


def test_a_config_survives_json():
    config = quick(optimizer="sgd", schedule="milestones", milestones=(1, 1.5), keep_predictions_at=(2, 1))
    assert FitConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.keep_predictions_at == (1, 2)
    with pytest.raises(ValueError, match=r"no field 'epoch'; did you mean 'epochs'"):
        FitConfig.from_dict({"epoch": 3})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"epochs": 2.5}, "epochs must be an integer"),
        ({"steps": 0}, "steps must be"),
        ({"batch_size": -1}, "batch_size must be"),
        ({"accumulation": True}, "accumulation must be"),
        ({"optimizer": "lamb"}, "optimizer must be one of 'sgd'"),
        ({"lr": 0}, "lr must be a number above 0, got 0"),
        ({"lr": math.nan}, "lr must be"),
        ({"lr": "0.1"}, "lr must be"),
        ({"momentum": -1}, "momentum must be"),
        ({"nesterov": 1}, "nesterov must be True or False"),
        ({"nesterov": True}, "nesterov needs optimizer='sgd'"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"betas": (0.9, 1.0)}, "betas must be two numbers"),
        ({"rho": 2}, "rho must be"),
        ({"weight_decay": -0.1}, "weight_decay must be"),
        ({"schedule": "exponential"}, "schedule must be one of"),
        ({"schedule": "milestones"}, "belong together"),
        ({"milestones": (3,)}, "belong together"),
        ({"milestones": 3}, "milestones must be a tuple, got 3"),
        ({"factor": 0}, "factor must be"),
        ({"warmup_epochs": 1, "warmup_steps": 5}, "not both"),
        ({"clip_norm": -1}, "clip_norm must be"),
        ({"mixed_precision": "fp8"}, "mixed_precision must be one of"),
        ({"select": "loss"}, "select must be one of"),
        ({"patience": 0}, "patience must be"),
        ({"eval_every": 0}, "eval_every must be"),
        ({"keep_predictions_at": (0,)}, "keep_predictions_at must be"),
        ({"keep_predictions_at": "last"}, "keep_predictions_at must be a tuple"),
        ({"checkpoint_minutes": -1}, "checkpoint_minutes must be"),
        ({"seed": -1}, "seed must be"),
        ({"num_workers": -1}, "num_workers must be"),
        ({"num_workers": 100_000}, "num_workers must be an integer from 0 to 1,024, got 100000"),
        ({"trackers": "wandb"}, "trackers must be a tuple"),
        ({"trackers": ("tensorbored",)}, r"trackers must be one of .*'tensorboard'"),
        ({"device": "cudda"}, "device must be a device such as 'cpu'"),
        ({"device": "cuda:"}, "device must be a device such as 'cpu'"),
    ],
)
def test_bad_settings_are_refused_by_name(fields, message):
    with pytest.raises((ValueError, TypeError), match=message):
        FitConfig(**fields)


def rates(n_steps: int, steps_per_epoch: int, **fields) -> list[float]:
    config = FitConfig(optimizer="sgd", lr=2.0, **fields)
    return [config.lr_at(t, n_steps=n_steps, steps_per_epoch=steps_per_epoch) for t in range(n_steps)]


def test_a_warmup_has_a_start():
    """Zhang et al. (2018): from 0.1 to 0.4 over five epochs, then divided by ten at 10, 60, 120 and 180 of 200."""
    config = FitConfig(
        optimizer="sgd",
        lr=0.4,
        epochs=200,
        warmup_epochs=5,
        warmup_start=0.1,
        schedule="milestones",
        milestones=(10, 60, 120, 180),
    )
    steps = 7
    rate = [config.lr_at(t, n_steps=200 * steps, steps_per_epoch=steps) for t in range(200 * steps)]
    assert rate[: 5 * steps] == pytest.approx(np.linspace(0.1, 0.4, 5 * steps, endpoint=False))
    assert rate[5 * steps] == 0.4
    assert [rate[e * steps] for e in (9, 10, 60, 120, 180)] == pytest.approx([0.4, 0.04, 4e-3, 4e-4, 4e-5])
    assert FitConfig(lr=0.4, warmup_steps=4, warmup_start=0).lr_at(0, n_steps=9, steps_per_epoch=3) == 0
    with pytest.raises(ValueError, match=r"warmup_start=0.1 needs a warm-up: pass warmup_epochs"):
        FitConfig(warmup_start=0.1)


def torch_rates(n_steps: int, make) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = make(optimizer)
    found = []
    for _ in range(n_steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_schedules_are_torchs():
    schedulers = torch.optim.lr_scheduler
    assert rates(7, 2) == [2.0] * 7
    assert rates(9, 2, schedule="cosine") == pytest.approx(torch_rates(9, lambda o: schedulers.CosineAnnealingLR(o, 9)))
    linear = torch_rates(9, lambda o: schedulers.LinearLR(o, 1.0, 1e-300, 9))
    assert rates(9, 2, schedule="linear") == pytest.approx(linear)
    steps = torch_rates(10, lambda o: schedulers.MultiStepLR(o, [4, 6], gamma=0.2))
    assert rates(10, 2, schedule="milestones", milestones=(2, 3), factor=0.2) == pytest.approx(steps)
    assert rates(4, 2, schedule="milestones", milestones=(0.5,)) == pytest.approx([2, 0.2, 0.2, 0.2])


def test_the_schedule_begins_after_the_warm_up():
    warm = rates(10, 4, schedule="linear", warmup_epochs=0.5)
    assert warm[:2] == [1.0, 2.0]
    assert warm[2:] == rates(8, 4, schedule="linear")
    assert rates(10, 4, schedule="linear", warmup_steps=2) == warm
    assert rates(3, 4, schedule="cosine", warmup_steps=5) == pytest.approx([0.4, 0.8, 1.2])


# Which samples when


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3))
def test_an_epoch_has_every_sample_in_micro_batches_of_one_size(n, batch_size, accumulation, world):
    plan = EpochPlan(n, batch_size=batch_size, micro_batches_per_step=accumulation * world, seed=0)

    def keys(start: int, rank: int, world: int) -> list[list[tuple[int, int]]]:
        micro_batches = MicroBatches(plan, start=start, stop=2 * plan.parts, rank=rank, world=world)
        return [[(epoch, i) for i in index.tolist()] for epoch, index in micro_batches]

    merged = [micro for row in zip(*(keys(0, rank, world) for rank in range(world)), strict=True) for micro in row]
    assert merged == keys(0, 0, 1)
    for epoch in range(2):
        parts = merged[epoch * plan.parts : (epoch + 1) * plan.parts]
        sizes = [len(p) for p in parts]
        assert sizes == [plan.size(m) for m in range(plan.parts)]
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1
        seen = [i for p in parts for e, i in p if e == epoch]
        assert set(seen) == set(range(n))
        if n >= plan.parts:
            assert len(seen) == n
    assert keys(plan.per_step, 0, 1) == merged[plan.per_step :]  # where a resumed run begins


def test_the_order_is_drawn_from_seed_and_epoch():
    orders = {
        tuple(EpochPlan(20, batch_size=20, micro_batches_per_step=1, seed=seed).indices(epoch, 0).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 3))
def test_batches_of_like_length_hold_every_sample_once(n, batch_size, per_step):
    lengths = torch.arange(n) * 7 % 13
    kept = {"batch_size": batch_size, "micro_batches_per_step": per_step, "seed": 0}
    plan, plain = EpochPlan(n, lengths=lengths, **kept), EpochPlan(n, **kept)
    index = [plan.indices(3, number).tolist() for number in range(plan.parts)]
    assert sorted(i for part in index for i in part) == sorted(
        i for number in range(plan.parts) for i in plain.indices(3, number).tolist()
    )
    assert [len(part) for part in index] == [plan.size(number) for number in range(plan.parts)]
    assert [plan.indices(3, number).tolist() for number in range(plan.parts)] == index


def test_batches_of_like_length_leave_little_padding():
    lengths = torch.randint(1, 100, (1000,), generator=torch.Generator().manual_seed(0))

    def padded(plan: EpochPlan) -> int:
        every = [lengths[plan.indices(0, number)] for number in range(plan.parts)]
        return sum(int(of.max()) * len(of) for of in every)

    kept = {"batch_size": 10, "micro_batches_per_step": 1, "seed": 0}
    grouped, plain = EpochPlan(1000, lengths=lengths, **kept), EpochPlan(1000, **kept)
    assert padded(grouped) < 1.1 * int(lengths.sum()) < 0.65 * padded(plain)
    means = [float(lengths[grouped.indices(0, number)].float().mean()) for number in range(grouped.parts)]
    assert means != sorted(means)  # batches come in any order, not short ones first


@pytest.mark.parametrize(("metric", "value"), [("accuracy", 0.5), ("nll", 1.0)])
def test_training_stops_where_a_metric_is_reached(metric, value):
    whole = fit(network(), ERM(), TRAIN, VAL, config=quick(epochs=12))
    met = [
        line[f"val_{metric}"] >= value if metric == "accuracy" else line["val_nll"] <= value for line in whole.history
    ]
    first = met.index(True)
    assert first < 11
    result = fit(network(), ERM(), TRAIN, VAL, config=quick(epochs=12, stop_at=(metric, value)))
    assert result.history == whole.history[: first + 1]
    assert result.info["stopped_early"]
    with pytest.raises(ValueError, match=r"stop_at=.* needs a validation set"):
        fit(network(), ERM(), TRAIN, config=quick(stop_at=(metric, value)))
    for wrong in (("loss", 1.0), ("accuracy",), 3):
        with pytest.raises((ValueError, TypeError), match="stop_at"):
            quick(stop_at=wrong)
    config = quick(stop_at=(metric, value))
    assert FitConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_lengths_are_needed_to_group_by_them():
    with pytest.raises(ValueError, match=r"group_by_length=True needs a training set with `lengths`"):
        fit(network(), ERM(), TRAIN, config=quick(group_by_length=True))


class Noisy(Dataset):
    """Draws from all three global generators, as transforms do."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        draws = [random.random(), np.random.rand(), float(torch.rand(1)), float(i), 1.0]  # noqa: NPY002
        return torch.tensor(draws), i % 3


class Told(Noisy):
    """Draws by itself, from what `set_epoch` tells."""

    def set_epoch(self, epoch: int, seed: int) -> None:
        self.key = (seed, epoch)

    def __getitem__(self, i: int):
        generator = torch.Generator().manual_seed(_random.seed_from(*self.key, i))
        return torch.rand(5, generator=generator), i % 3


@pytest.mark.parametrize("dataset", [Noisy(9), Told(9), Subset(Told(12), range(9))], ids=["noisy", "told", "subset"])
def test_augmentation_is_drawn_from_seed_epoch_and_index(dataset):
    keyed = batches.KeyedDataset(dataset, 3, purpose="augmentation")

    def loaded(epoch: int, *index: int) -> torch.Tensor:
        return keyed.__getitems__((epoch, torch.tensor(index)))[1][0]

    first, late = loaded(0, 4, 5), loaded(1, 4)
    assert torch.equal(late, loaded(1, 4))
    assert torch.equal(first, loaded(0, 5, 4).flip(0))
    assert len({tuple(row.tolist()[:3]) for row in torch.cat([first, late])}) == 3


def test_rows_of_tensors_are_taken_at_once():
    picked = Subset(Subset(TRAIN, [5, 3, 8, 1]), [2, 0])
    index, (x, y) = batches.KeyedDataset(picked, 0, purpose="p").__getitems__((0, torch.tensor([1, 0])))
    assert index.tolist() == [1, 0]
    assert torch.equal(x, TRAIN.tensors[0][[5, 8]])
    assert torch.equal(y, TRAIN.tensors[1][[5, 8]])


# The loop against a slow one


def slowly(model: nn.Module, objective, config: FitConfig, optimizer: torch.optim.Optimizer) -> nn.Module:
    """The whole of training as one would first write it."""
    x, y = TRAIN.tensors
    n, step = len(y), 0
    per_epoch = math.ceil(n / (config.batch_size * config.accumulation))
    for epoch in range(config.epochs):
        generator = torch.Generator().manual_seed(_random.seed_from("order", config.seed, epoch))
        order = torch.randperm(n, generator=generator)
        parts = per_epoch * config.accumulation
        pieces = [order[k * n // parts : (k + 1) * n // parts] for k in range(parts)]
        for first in range(0, parts, config.accumulation):
            micro = pieces[first : first + config.accumulation]
            optimizer.param_groups[0]["lr"] = config.lr_at(
                step, n_steps=config.epochs * per_epoch, steps_per_epoch=per_epoch
            )
            optimizer.zero_grad()
            for number, index in enumerate(micro):
                seed = _random.seed_from("step", config.seed, step, number)
                torch.manual_seed(seed)
                generator = torch.Generator().manual_seed(seed)
                loss = objective(model, x[index], y[index], index=index, epoch=step / per_epoch, generator=generator)
                (loss * (len(index) / sum(map(len, micro)))).backward()
            if config.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            optimizer.step()
            step += 1
    return model


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01, betas=(0.8, 0.9)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01, betas=(0.8, 0.9)),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1, weight_decay=0.01, rho=0.95),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_what_a_slow_loop_does(name):
    config = quick(
        optimizer=name,
        lr=0.05,
        nesterov=name == "sgd",
        weight_decay=0.01,
        betas=(0.8, 0.9),
        rho=0.95,
        accumulation=2,
        batch_size=8,
        schedule="cosine",
        warmup_steps=2,
        clip_norm=0.5,
        seed=7,
    )
    objective = Warmup(Mixup(alpha=0.4), epochs=0.6)
    expected = network(dropout=0.3).train()
    slowly(expected, objective, config, OPTIMIZERS[name](expected.parameters()))
    model = network(dropout=0.3)
    fit(model, objective, TRAIN, config=config)
    for got, want in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, want)


def test_accumulation_is_a_larger_batch():
    whole, parts = network(), network()
    fit(whole, ERM(), TRAIN, config=quick(batch_size=24))
    fit(parts, ERM(), TRAIN, config=quick(batch_size=8, accumulation=3))
    for got, want in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(got, want)


def test_clipping_bounds_the_step():
    model = network()
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    fit(model, ERM(), TRAIN, config=quick(optimizer="sgd", momentum=0, steps=1, lr=1.0, clip_norm=0.01))
    moved = (nn.utils.parameters_to_vector(model.parameters()) - before).norm().item()
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_the_objective_is_told_index_and_epoch():
    seen: list[tuple[float, list[int]]] = []

    def objective(model, x, y, *, index=None, epoch=None, generator=None):
        assert torch.equal(TRAIN.tensors[0][index], x)
        assert generator is not None
        seen.append((epoch, index.tolist()))
        return losses.loss(model(x), y).mean()

    result = fit(network(), objective, TRAIN, config=quick())
    assert " at 0x" not in result.info["method"]
    assert [epoch for epoch, _ in seen] == [step / 4 for step in range(8)]
    assert sorted(i for _, index in seen[:4] for i in index) == list(range(61))


def test_steps_instead_of_epochs():
    result = fit(network(), ERM(), TRAIN, VAL, config=quick(steps=6))
    assert [line["step"] for line in result.history] == [4, 6]
    assert result.info["epochs"] == 1.5


def test_global_generators_are_left_as_they_were():
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    fit(network(dropout=0.5), Mixup(alpha=1.0), Noisy(20), Noisy(9), config=quick())
    assert (torch.rand(1), random.random(), np.random.rand()) == expected  # noqa: NPY002


# Evaluation and selection


def test_the_best_epoch_is_kept_beside_the_last(tmp_path):
    config = quick(optimizer="sgd", lr=3.0, epochs=8, select="accuracy")
    model = network()
    result = fit(model, ERM(), TRAIN, VAL, out=tmp_path, config=config)
    scores = [line["val_accuracy"] for line in result.history]
    assert result.best == result.history[int(np.argmax(scores))]
    assert result.last == result.history[-1]
    assert result.best != result.last, "choose a learning rate with which the last is not the best"
    assert not model.training
    with torch.no_grad():
        assert torch.equal(model(VAL.tensors[0]).argmax(1), result.logits.argmax(1))
        torch.testing.assert_close(model(VAL.tensors[0]), result.logits)
    assert float((result.logits.argmax(1) == VAL.tensors[1]).float().mean()) == pytest.approx(max(scores))
    logits, labels = read_predictions(tmp_path / "predictions.parquet")
    assert torch.equal(logits, result.logits)
    assert torch.equal(labels, VAL.tensors[1])
    selected, last = load_weights(tmp_path), load_weights(tmp_path, last=True)
    assert all(torch.equal(t, selected[name]) for name, t in model.state_dict().items())
    assert any(not torch.equal(t, selected[name]) for name, t in last.items())
    by_nll = fit(network(), ERM(), TRAIN, VAL, config=dataclasses.replace(config, select="nll"))
    assert by_nll.best["val_nll"] == min(line["val_nll"] for line in by_nll.history)
    by_last = fit(network(), ERM(), TRAIN, VAL, config=dataclasses.replace(config, select="last"))
    assert by_last.best == by_last.last == result.last


def test_validation_metrics_are_those_of_the_metrics():
    result = fit(network(), ERM(), TRAIN, VAL, config=quick(select="last", eval_batch_size=7))
    logits, labels = result.logits, result.labels
    assert result.last["val_nll"] == vicinal.metrics.nll(labels, logits=logits)
    assert result.last["val_ece"] == vicinal.ReliabilityTable.from_logits(labels, logits.double()).ece()
    assert result.last["val_mcc"] == vicinal.metrics.mcc(labels, logits=logits)
    assert result.info["ece_bins"] == 15


def test_training_stops_when_the_validation_nll_does_not_improve():
    config = quick(epochs=50, optimizer="sgd", lr=1.0, patience=2)
    result = fit(network(), ERM(), TRAIN, VAL, config=config)
    errors = [line["val_nll"] for line in result.history]
    assert result.info["stopped_early"]
    assert len(errors) < 50
    assert int(np.argmin(errors)) == len(errors) - 3
    assert result.best == result.history[-3]


def test_when_it_is_evaluated(tmp_path):
    config = quick(epochs=5, eval_every=2, keep_predictions_at=(1, 4))
    result = fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=config)
    assert [line["epoch"] for line in result.history] == [1, 2, 3, 4, 5]
    assert [line["epoch"] for line in result.history if "val_nll" in line] == [1, 2, 4, 5]
    assert sorted(p.name for p in tmp_path.glob("*epoch*")) == [f"predictions-epoch-{e}.parquet" for e in (1, 4)]
    result = fit(network(), ERM(), TRAIN, VAL, config=quick(eval_every_steps=3))
    assert [line["step"] for line in result.history if "val_nll" in line] == [3, 6, 8]


def test_regression():
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x.sum(1))
    result = fit(
        nn.Linear(5, 1),
        Mixup(alpha=0.2),
        data,
        data,
        config=quick(epochs=60, lr=0.05, patience=60),
        target_type="regression",
    )
    assert result.best["val_mse"] < 0.05
    assert result.best["val_spearman"] > 0.95
    with pytest.raises(ValueError, match="select='accuracy' needs classes"):
        fit(nn.Linear(5, 1), ERM(), data, data, config=quick(select="accuracy"), target_type="regression")


class Texts(Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int):
        return list(range(1, 2 + i % 4)), i % 2


def pad(items):
    rows = [torch.tensor(tokens) for tokens, _ in items]
    return {"input_ids": nn.utils.rnn.pad_sequence(rows, batch_first=True)}, torch.tensor([label for _, label in items])


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.EmbeddingBag(9, 4, padding_idx=0), nn.Linear(4, 2)
        self.clipped = 0

    def forward(self, input_ids):
        return self.head(self.embedding(input_ids))

    def clip_norms(self) -> None:
        self.clipped += 1


def test_mappings_a_collate_function_and_a_constraint_on_the_weights():
    model = Reader()
    result = fit(model, ERM(), Texts(), Texts(), config=quick(batch_size=5), collate_fn=pad)
    assert result.logits.shape == (12, 2)
    assert model.clipped == result.info["steps"]


# Sets that are only watched


def test_watched_sets_are_measured_and_choose_nothing(tmp_path):
    plain, model = network(dropout=0.2), network(dropout=0.2)
    config = quick(eval_every_steps=3, patience=9, keep_predictions_at=(1,))
    expected = fit(plain, Mixup(alpha=0.4), TRAIN, VAL, config=config)
    watch = {"test": classes(40, seed=3), "again": VAL, "train": TRAIN}
    result = fit(model, Mixup(alpha=0.4), TRAIN, VAL, watch=watch, out=tmp_path, config=config)
    assert same(model, plain)
    for line, without in zip(result.history, expected.history, strict=True):
        assert {name: value for name, value in line.items() if not name.startswith(tuple(watch))} == without
        assert {name[6:] for name in line if name.startswith("again_")} == {
            name[4:] for name in line if name.startswith("val_")
        }
        for name, value in line.items():
            if name.startswith("val_"):
                assert line[f"again_{name[4:]}"] == value
    x, y = TRAIN.tensors
    logits, labels = read_predictions(tmp_path / "predictions-train-epoch-1.parquet")
    assert torch.equal(labels, y)
    line = next(line for line in result.history if line["epoch"] == 1)
    assert line["train_accuracy"] == pytest.approx((logits.argmax(1) == y).double().mean().item())
    assert line["train_confidence"] == pytest.approx(logits.double().softmax(1).max(1).values.mean().item())
    last = result.history[-1]
    assert last["train_nll"] == pytest.approx(
        torch.nn.functional.cross_entropy(network_at_the_end(tmp_path)(x).double(), y).item(), rel=1e-5
    )
    with pytest.raises(ValueError, match=r"holds another run: watch\.again was 29 and is None"):
        fit(network(), Mixup(alpha=0.4), TRAIN, VAL, out=tmp_path, config=config)


def network_at_the_end(run: Path) -> nn.Module:
    model = network(dropout=0.2)
    model.load_state_dict(load_weights(run, last=True))
    return model.eval()


class Settled(nn.Linear):
    """A network that keeps what it is given to settle by."""

    def after_fit(self, trained, held_out):
        self.held_out, self.trained = [list(held_out), list(held_out)], [list(trained), list(trained)]


@pytest.mark.parametrize("soft", [False, True])
def test_what_settles_sees_every_sample_in_order_and_what_it_counts(soft):
    rows, weight, of_class = classes(), torch.rand(61), torch.tensor([1.0, 2.0, 3.0])
    x, y = rows.tensors
    targets = nn.functional.one_hot(y, 3) * 0.7 + 0.1
    train = TensorDataset(x, targets) if soft else rows
    model = Settled(5, 3)
    fit(model, ERM(), train, rows, config=quick(), weight=weight, class_weights=of_class, progress=False)
    for seen in model.held_out:  # it can be read again
        assert all(torch.equal(torch.cat(parts), t) for parts, t in zip(zip(*seen, strict=True), (x, y), strict=True))
    for seen in model.trained:
        inputs, labels, weights = (torch.cat(parts) for parts in zip(*seen, strict=True))
        assert torch.equal(inputs, x)
        assert torch.equal(labels, train.tensors[1])
        torch.testing.assert_close(weights, weight * (targets @ of_class if soft else of_class[y]))
    fit(model, ERM(), train, rows, config=quick(), progress=False)
    assert all(weights is None for _, _, weights in model.trained[0])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(3), r"weight must have a number for each of the 61 samples of train, got \[3\]"),
        ({"val": torch.ones(3)}, r"weight must have a number for each of the 61 samples of val, got \[3\]"),
        ({"test": torch.ones(3)}, "weight must be of 'train' or 'val', got 'test'"),
    ],
)
def test_weights_that_fit_no_samples_are_refused(weight, message):
    rows = classes()
    with pytest.raises(ValueError, match=message):
        fit(network(), ERM(), rows, rows, config=quick(), weight=weight)


def test_without_validation_the_last_weights_stay_and_watched_sets_are_measured():
    result = fit(network(), ERM(), TRAIN, watch={"test": VAL}, config=quick(eval_every_steps=2))
    assert all("test_nll" in line for line in result.history)
    assert result.logits is None
    assert result.best == result.history[-1]
    for name in ("val", "loss", "a b", 3):
        with pytest.raises((ValueError, TypeError), match="watch must be named"):
            fit(network(), ERM(), TRAIN, watch={name: VAL}, config=quick())


# Disturbed runs


class StopError(Exception):
    pass


def failing_after(n_calls: int):
    """Return what to give `on_metrics` or wrap an objective with: it ends a run from inside."""
    left = [n_calls]

    def tick(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            raise StopError

    return tick


def files_of(run: Path) -> dict[str, bytes]:
    """Everything in a run folder that must not depend on disturbances."""
    same_bytes = ["config.json", "metrics.jsonl", "model.safetensors", "predictions.parquet"]
    return {name: (run / name).read_bytes() for name in same_bytes if (run / name).exists()}


GUIDED = GuidedMixup(pool="set")
CASES = {
    "sgd": (ERM(), TRAIN, quick(optimizer="sgd", eval_every_steps=3)),
    "adamw, dropout, clipping": (Mixup(alpha=0.4), TRAIN, quick(clip_norm=1.0, accumulation=2, schedule="cosine")),
    "adadelta, named terms": (LogitMix(Mixup(alpha=1.0)), TRAIN, quick(optimizer="adadelta", select="accuracy")),
    "transforms": (Mixup(alpha=0.4), Noisy(30), quick(patience=1, keep_predictions_at=(1,))),
    "its own augmentation": (ERM(), Told(30), quick(select="last")),
    "guided by batch": (Warmup(GuidedMixup(pool="batch"), epochs=0.5), TRAIN, quick()),
    "guided by set": (GUIDED, TRAIN, quick(eval_every_steps=3, patience=9, keep_predictions_at=(1,), select="mcc")),
    "warm-up": (Mixup(alpha=0.4), TRAIN, quick(warmup_epochs=1, warmup_start=0.001)),
    "bf16": (Mixup(alpha=0.4), TRAIN, quick(mixed_precision="bf16")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_ended_at_any_step_ends_the_same(case, tmp_path, monkeypatch):
    objective, data, config = CASES[case]
    undisturbed = network(dropout=0.2, norm=True)
    expected = fit(undisturbed, objective, data, VAL, out=tmp_path / "whole", config=config)

    def no_pickle(*args, **kwargs):
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(torch, "load", no_pickle)
    monkeypatch.setattr(pickle, "load", no_pickle)
    monkeypatch.setattr(pickle, "loads", no_pickle)
    original = loop.Loop._train_step
    for attempt in range(100):
        tick = failing_after(1 + attempt % 2)

        def step(self, stream, tick=tick):
            tick()
            original(self, stream)

        monkeypatch.setattr(loop.Loop, "_train_step", step)
        model = network(dropout=0.2, norm=True)
        if attempt:  # the weights a resumed run starts with come from the folder, not from the caller
            nn.init.zeros_(model[0].weight)
        try:
            result = fit(model, objective, data, VAL, out=tmp_path / "disturbed", config=config)
            break
        except StopError:
            pass
    assert attempt > 1
    assert same(model, undisturbed)
    assert files_of(tmp_path / "disturbed") == files_of(tmp_path / "whole")
    assert (result.best, result.last, result.history) == (expected.best, expected.last, expected.history)
    assert torch.equal(result.logits, expected.logits)
    assert result.info["resumed"] > 0


@pytest.mark.parametrize("every", [0, 60])
def test_workers_and_the_times_of_checkpoints_change_nothing(every, tmp_path):
    expected = network()
    fit(expected, Mixup(alpha=0.4), Noisy(30), VAL, out=tmp_path / "a", config=quick())
    model = network()
    config = quick(num_workers=2, checkpoint_minutes=every)
    with pytest.raises(StopError):
        fit(model, Mixup(alpha=0.4), Noisy(30), VAL, out=tmp_path / "b", config=config, on_metrics=failing_after(1))
    fit(model, Mixup(alpha=0.4), Noisy(30), VAL, out=tmp_path / "b", config=config)
    assert same(model, expected)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_training_and_validation_may_be_parts_of_one_dataset(tmp_path):
    def run(name, **fields):
        whole, model = Told(40), network()
        parts = Subset(whole, range(30)), Subset(whole, range(30, 40))
        fit(model, ERM(), *parts, out=tmp_path / name, config=quick(eval_every_steps=1), **fields)
        return model

    expected = run("a")
    for n in range(3):
        with pytest.raises(StopError):
            run("b", on_metrics=failing_after(n % 2))
    assert same(run("b"), expected)


def test_memory_formats_survive(tmp_path):
    images = TensorDataset(torch.randn(24, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3)

    def run(name, **fields):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 3)).to(
                memory_format=torch.channels_last
            )
        fit(model, ERM(), images, images, out=tmp_path / name, config=quick(), **fields)
        return model

    expected = run("a")
    with pytest.raises(StopError):
        run("b", on_metrics=failing_after(1))
    resumed = run("b")
    assert same(resumed, expected)
    assert resumed[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_half_a_line_of_metrics_is_cut_off(tmp_path):
    expected = fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "a", config=quick(checkpoint_minutes=60))
    with pytest.raises(StopError):
        fit(
            network(),
            ERM(),
            TRAIN,
            VAL,
            out=tmp_path / "b",
            config=quick(checkpoint_minutes=60),
            on_metrics=failing_after(1),
        )
    with open(tmp_path / "b" / "metrics.jsonl", "a") as file:
        file.write('{"step": 8, "lo')
    result = fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "b", config=quick(checkpoint_minutes=60))
    assert result.history == expected.history
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_says_how_to_go_on(number, tmp_path):
    before = signal.getsignal(number)
    config = quick(checkpoint_minutes=60)
    kind = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    stopped = r"stopped after step 4 of 8; the checkpoint is in .* start the same run again"
    with pytest.raises(kind, match=stopped) as ended:
        fit(
            network(),
            ERM(),
            TRAIN,
            VAL,
            out=tmp_path,
            config=config,
            on_metrics=lambda line: os.kill(os.getpid(), number),
        )
    assert signal.getsignal(number) is before
    if number == signal.SIGTERM:
        assert ended.value.code == 143
    result = fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=config)
    expected = fit(network(), ERM(), TRAIN, VAL, config=config)
    assert result.history == expected.history
    assert result.info["resumed"] == 1


def test_without_a_folder_ctrl_c_is_pythons():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs do not have
    try:
        interrupt_without_a_folder()
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_without_a_folder():
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        fit(network(), ERM(), TRAIN, VAL, config=quick(), on_metrics=lambda line: os.kill(os.getpid(), signal.SIGINT))


# The disk


@pytest.mark.parametrize("failing", ["state-5.safetensors", "checkpoint.json", "best-4.safetensors", "metrics.jsonl"])
def test_a_full_disk_leaves_the_checkpoint_before_it_intact(failing, tmp_path, monkeypatch):
    expected = network()
    fit(expected, ERM(), TRAIN, VAL, out=tmp_path / "a", config=quick())
    real, calls = _atomic.sync, []

    def full(path):
        calls.append(path.name)
        if failing in path.name and (failing != "checkpoint.json" or len(calls) > 25):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(_atomic, "sync", full)
        patch.setattr(folder, "sync", full)
        with pytest.raises(OSError, match=r"the disk is full; the checkpoint of step . is intact") as found:
            fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "b", config=quick())
    assert found.value.errno == errno.ENOSPC
    assert not list((tmp_path / "b").rglob("*.tmp"))
    model = network()
    fit(model, ERM(), TRAIN, VAL, out=tmp_path / "b", config=quick())
    assert same(model, expected)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_a_write_that_really_fails_is_an_os_error(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match=r"checkpoint of step 0 .*File too large; nothing was saved"):
            fit(nn.Linear(5, 3000), ERM(), TRAIN, out=tmp_path, config=quick())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_finished_run_is_not_run_again(tmp_path):
    model = network()
    first = fit(model, Mixup(alpha=0.4), TRAIN, VAL, out=tmp_path, config=quick())
    again = network()
    second = fit(again, Mixup(alpha=0.4), TRAIN, VAL, out=tmp_path, config=quick(), on_metrics=failing_after(0))
    assert same(again, model)
    assert (second.best, second.history, second.info) == (first.best, first.history, first.info)
    assert torch.equal(second.logits, first.logits)
    assert isinstance(second, FitResult)
    assert str(tmp_path) in repr(second)


def test_a_run_that_failed_at_its_first_step_is_not_in_the_way(tmp_path):
    with pytest.raises(ValueError, match="x must be"):
        fit(network(), failing_at_once, TRAIN, VAL, out=tmp_path, config=quick())
    assert (tmp_path / "checkpoint" / "checkpoint.json").exists()
    mended = fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
    assert mended.history == fit(network(), ERM(), TRAIN, VAL, config=quick()).history


def failing_at_once(*args, **kwargs):
    raise ValueError("x must be something else")


def test_another_run_is_refused_by_what_differs(tmp_path):
    def start(objective=ERM(), **fields):  # noqa: B008
        about = fields.pop("about", {"data": "abc"})
        return fit(network(), objective, TRAIN, VAL, out=tmp_path, config=quick(**fields), about=about)

    start()
    start(num_workers=0, checkpoint_minutes=3, trackers=None)  # how it is run is free
    with pytest.raises(ValueError, match=r"lr was 0.01 and is 0.02"):
        start(lr=0.02)
    with pytest.raises(ValueError, match="method was 'ERM"):
        start(Mixup(alpha=1.0))
    with pytest.raises(ValueError, match=r": data was 'abc' and is 'abd'"):
        start(about={"data": "abd"})
    with pytest.raises(ValueError, match="processes times accumulation must be 1 to resume it"):
        start(accumulation=2)
    with pytest.raises(TypeError, match="about must be ready for JSON"):
        start(about={"data": {1, 2}})
    (tmp_path / "result.json").unlink()  # a finished run makes a damaged file again
    (tmp_path / "config.json").write_text('{"format": 2}')
    with pytest.raises(ValueError, match="is of format 2, this version of vicinal reads 1"):
        start()
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"'model.safetensors', … but no config.json"):
        start()


def test_a_folder_that_is_not_a_run_is_left_alone(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "precious.txt").write_text("mine")
    (tmp_path / ".notes.tmp").write_text("mine, too")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"'.notes.tmp', 'checkpoint' but no config.json"):
        fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
    assert {path: path.read_bytes() for path in before} == before
    (tmp_path / "config.json").write_text('{"format": 1}')  # a common name, which makes no run
    with pytest.raises(ValueError, match=r"config.json is not that of a run"):
        fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
    assert {path: path.read_bytes() for path in before} == before


def test_drafts_of_other_programs_are_left_alone(tmp_path):
    (tmp_path / ".notes.4194999.tmp").write_text("mine")
    with pytest.raises(ValueError, match=r"holds '.notes.4194999.tmp' but no config.json"):
        fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
    (tmp_path / ".notes.4194999.tmp").rename(tmp_path.parent / ".notes.4194999.tmp")
    fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
    (tmp_path.parent / ".notes.4194999.tmp").rename(tmp_path / ".notes.4194999.tmp")
    fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
    assert (tmp_path / ".notes.4194999.tmp").read_text() == "mine"


@pytest.mark.parametrize("damage", ["gone", "flipped", "cut"])
def test_weights_that_are_damaged_are_restored(damage, tmp_path):
    expected = fit(network(), Mixup(alpha=0.4), TRAIN, VAL, out=tmp_path, config=quick())
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    if damage == "gone":
        weights.unlink()
    else:
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if damage == "flipped" else content[:100])
        with pytest.raises(ValueError, match="is not the file that was written: its checksum differs"):
            load_weights(tmp_path)
    with pytest.warns(UserWarning, match=r"the weights .* (gone|damaged)"):
        result = fit(network(), Mixup(alpha=0.4), TRAIN, VAL, out=tmp_path, config=quick())
    assert weights.read_bytes() == content
    assert (result.best, result.history) == (expected.best, expected.history)


def test_what_files_may_claim_does_not_bound_what_is_trained(tmp_path):
    expected = fit(wide(), ERM(), TRAIN, VAL, config=quick())
    with vicinal.max_memory("30KB"):
        result = fit(wide(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
        assert (tmp_path / "model.safetensors").stat().st_size > 30_000
        assert result.best == expected.best
        with pytest.raises(ValueError, match=r"model.safetensors takes .* KB of memory, and 30 KB are allowed"):
            fit(wide(), ERM(), TRAIN, VAL, out=tmp_path, config=quick())
    assert fit(wide(), ERM(), TRAIN, VAL, out=tmp_path, config=quick()).best == expected.best


def wide() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 1_000), nn.ReLU(), nn.Linear(1_000, 3))


def test_without_its_checkpoint_a_run_starts_anew_and_ends_the_same(tmp_path):
    expected = fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "a", config=quick())
    with pytest.raises(StopError):
        fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "b", config=quick(), on_metrics=failing_after(1))
    shutil.rmtree(tmp_path / "b" / "checkpoint")
    result = fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "b", config=quick())
    assert result.history == expected.history
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


@pytest.mark.parametrize(
    "kind", ["state", "best", "state flipped", "best flipped", "checkpoint.json", "checkpoint.json empty"]
)
def test_a_damaged_checkpoint_is_noticed_and_the_run_ends_the_same(kind, tmp_path):
    expected = fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "a", config=quick())
    with pytest.raises(StopError):
        fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "b", config=quick(), on_metrics=failing_after(1))
    (file,) = (tmp_path / "b" / "checkpoint").glob(f"{kind.split()[0]}*")
    content = file.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])  # of the last weight: still a file of tensors
    damaged = {"empty": b'{"format": 1}', "flipped": flipped}
    file.write_bytes(damaged.get(kind.split()[-1], content[:40]))
    with pytest.warns(UserWarning, match=r"the checkpoint cannot be read .*: training starts over"):
        result = fit(network(), ERM(), TRAIN, VAL, out=tmp_path / "b", config=quick())
    assert result.history == expected.history
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_a_second_writer_is_refused(tmp_path):
    with open(tmp_path / ".lock", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("process 12 on there")
        file.flush()
        with pytest.raises(RuntimeError, match="is in use: process 12 on there is writing to it; wait"):
            fit(network(), ERM(), TRAIN, out=tmp_path, config=quick())
    fit(network(), ERM(), TRAIN, out=tmp_path, config=quick())


@pytest.mark.parametrize("kind", ["text", "link", "folder"])
def test_a_lock_that_is_not_ours_is_left_alone(kind, tmp_path):
    mine, lock = tmp_path / "mine", tmp_path / "run" / ".lock"
    mine.write_text("my notes")
    lock.parent.mkdir()
    {"text": lambda: lock.write_text("my notes"), "link": lambda: lock.symlink_to(mine), "folder": lock.mkdir}[kind]()
    with pytest.raises(ValueError, match=r"\.lock' but no config\.json|\.lock is not a lock of ours"):
        fit(network(), ERM(), TRAIN, out=tmp_path / "run", config=quick())
    assert mine.read_text() == "my notes"
    assert [path.name for path in lock.parent.iterdir()] == [".lock"]
    assert kind != "text" or lock.read_text() == "my notes"


def test_names_with_spaces_quotes_and_other_scripts(tmp_path):
    out = tmp_path / "a \"b\" <script> 'é' 数"
    result = fit(network(), ERM(), TRAIN, VAL, out=str(out), config=quick(), about={"classes": ["<script>", "数"]})
    assert json.loads((out / "result.json").read_text(encoding="utf-8"))["about"] == {"classes": ["<script>", "数"]}
    assert result.out == out


def test_tied_weights_and_other_buffers_are_saved(tmp_path):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
            self.second.weight = self.first.weight
            self.register_buffer("mask", torch.tensor([True, False]))

        def forward(self, x):
            return self.head(self.second(self.first(x)))

    model = Tied()
    fit(model, ERM(), TRAIN, out=tmp_path, config=quick())
    loaded = Tied()
    loaded.load_state_dict(load_weights(tmp_path))
    assert same(loaded, model)
    assert loaded.first.weight is loaded.second.weight


def test_trees_of_state_survive():
    tree = {"a": [1, 2.5, None, True, "x"], "b": {"0": torch.eye(2), "c": {}}, "d": (torch.tensor(3),)}
    packed, tensors = folder.pack(tree)
    back = folder.unpack(json.loads(json.dumps(packed)), tensors)
    assert back["a"] == tree["a"]
    assert torch.equal(back["b"]["0"], torch.eye(2))
    assert back["d"][0] == 3
    with pytest.raises(TypeError, match="got set at 'x/y'"):
        folder.pack({"x": {"y": {1}}})


# Two stages


@pytest.mark.parametrize("objective", [GuidedMixup(pool="batch"), Warmup(GUIDED, epochs=1)], ids=["batch", "set"])
def test_guided_mixup_is_two_runs_from_the_same_weights(objective, tmp_path):
    aum = objective.tracker(len(TRAIN))

    def plainly(model, x, y, *, index=None, epoch=None, generator=None):
        logits = model(x)
        aum.update(logits, y, index, epoch=epoch)
        return losses.loss(logits, y).mean()

    fit(network(dropout=0.2), plainly, TRAIN, config=quick())
    bound = objective.bind(aum, dataset=TRAIN, collate_fn=torch.utils.data.default_collate)
    expected = network(dropout=0.2)
    fit(expected, bound, TRAIN, VAL, config=quick())
    model = network(dropout=0.2)
    result = fit(model, objective, TRAIN, VAL, out=tmp_path, config=quick())
    assert same(model, expected)
    assert result.info["method"] == repr(objective)
    assert result.info["objective"]["aum_threshold"] == pytest.approx(float(np.median(aum.values())))
    assert json.loads((tmp_path / "first-stage" / "result.json").read_text())["method"] == repr(ERM())
    again = network()
    fit(again, objective, TRAIN, VAL, out=tmp_path, config=quick())
    assert same(again, expected)


def test_batches_hold_both_categories_for_guided_mixup():
    high = torch.arange(40) < 9
    plan = EpochPlan(40, batch_size=8, micro_batches_per_step=1, seed=0, high=high)
    seen = set()
    for number in range(plan.parts):
        index = plan.indices(0, number).tolist()
        assert abs(2 * sum(bool(high[i]) for i in index) - len(index)) <= 1
        seen |= set(index)
    assert seen == set(range(40))


# Precision, trackers, progress, mistakes


def test_accelerate_settings_of_others_are_set_aside_and_put_back():
    import accelerate
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    theirs = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    try:
        fit(network(), Mixup(alpha=0.4), TRAIN, VAL, config=quick(mixed_precision="bf16", epochs=1))
        assert theirs.mixed_precision == "no"
        assert theirs.gradient_state.num_steps == 3
    finally:
        AcceleratorState._reset_state()


@pytest.mark.parametrize("has", [{"avx512_bf16": True}, {"amx_bf16": True}, {}], ids=["avx512", "amx", "neither"])
def test_half_precision_that_the_processor_emulates_is_said_to_be_slow(has, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "x86_64", **has})
    monkeypatch.setattr(environment, "only_cpu", lambda: True)
    half, images = quick(mixed_precision="bf16"), nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    for model, config in ((network(), half), (images, quick())):
        environment.warn_if_slow(model, config)  # warnings are errors here
    said = nullcontext() if has else pytest.warns(UserWarning, match="mixed_precision='bf16' is many times slower")
    with said:
        environment.warn_if_slow(images, half)


def test_a_torch_that_does_not_know_the_processor_trains_in_half_precision(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)  # an older one
    monkeypatch.setattr(environment, "only_cpu", lambda: True)
    environment.warn_if_slow(nn.Conv2d(3, 4, 3), quick(mixed_precision="bf16"))


def test_bf16_leaves_the_model_as_it_was():
    model = network()
    keys = set(vars(model))
    result = fit(model, Mixup(alpha=0.4), TRAIN, VAL, config=quick(mixed_precision="bf16", epochs=20))
    assert set(vars(model)) == keys
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert result.best["val_accuracy"] > 0.6
    assert copy.deepcopy(model)(VAL.tensors[0]).dtype == torch.float32
    model.load_state_dict(network().state_dict())
    again = fit(model, Mixup(alpha=0.4), TRAIN, VAL, config=quick(mixed_precision="bf16", epochs=20))
    assert again.history == result.history
    plain = fit(network(), Mixup(alpha=0.4), TRAIN, VAL, config=quick(epochs=20))  # the precision is free again
    assert plain.last["loss"] != result.last["loss"]
    assert plain.last["loss"] == pytest.approx(result.last["loss"], rel=0.05)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_compiled_model_is_trained_and_given_back(precision, tmp_path):
    torch._dynamo.reset()
    inner = network()
    model = torch.compile(inner, backend="aot_eager")
    keys = set(vars(inner)), set(vars(model))
    config = quick(mixed_precision=precision, select="last")
    result = fit(model, Mixup(alpha=0.4), TRAIN, VAL, out=tmp_path, config=config)
    assert result.model is model
    assert (set(vars(inner)), set(vars(model))) == keys
    assert set(load_weights(tmp_path)) == set(inner.state_dict())
    expected = fit(network(), Mixup(alpha=0.4), TRAIN, VAL, config=config)
    assert result.last["val_nll"] == pytest.approx(expected.last["val_nll"], rel=1e-2 if precision == "bf16" else 1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU knows fp16")
def test_fp16_needs_a_gpu():
    with pytest.raises(ValueError, match="mixed_precision='fp16' needs a GPU"):
        fit(network(), ERM(), TRAIN, config=quick(mixed_precision="fp16"))


def test_tensorboard_is_written_by_default(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = quick(trackers=None)
    with pytest.raises(StopError):
        fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=config, on_metrics=failing_after(1))
    result = fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=config)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "vicinal")).Reload()
    assert [event.step for event in events.Scalars("val_ece")] == [4, 8]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx([line["loss"] for line in result.history])


def test_progress_is_for_terminals(capsys, monkeypatch):
    fit(network(), ERM(), TRAIN, VAL, config=quick())
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    fit(network(), ERM(), TRAIN, VAL, config=quick())
    shown = capsys.readouterr().err
    assert "ERM" in shown
    assert "epoch 2.0/2" in shown
    assert "ECE (15 bins)" in shown
    monkeypatch.setenv("COLUMNS", "80")
    fit(network(), ERM(), TRAIN, VAL, config=quick())
    plain = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().err)
    assert re.search(r"epoch 2.0/2 \d:\d\d:\d\d left \d:\d\d:\d\d loss .*…", plain)
    fit(network(), ERM(), TRAIN, VAL, config=quick(), progress=False)
    assert capsys.readouterr().err == ""


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    with pytest.raises(FloatingPointError, match=r"not finite after step .*: lower lr=1e"):
        fit(network(), ERM(), TRAIN, VAL, out=tmp_path, config=quick(optimizer="sgd", lr=1e30, epochs=5))
    assert all(bool(t.isfinite().all()) for t in load_weights(tmp_path, last=True).values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": print}, "model must be a torch.nn.Module"),
        ({"objective": Mixup}, "objective must be an objective"),
        ({"train": iter([])}, "train must be a map-style dataset"),
        ({"val": []}, "val is empty"),
        ({"config": {"epochs": 1}}, "config must be a FitConfig"),
        ({"val": None, "config": FitConfig(patience=1)}, "patience=1 needs a validation set"),
        ({"train": [(torch.zeros(5), "a")]}, "y must be a tensor"),
        ({"train": [torch.zeros(5)]}, r"a batch must be \(x, y\)"),
        ({"train": [("text", 1)]}, "x must be a tensor or a mapping"),
        ({"collate_fn": lambda items: (torch.zeros(3, 5), torch.zeros(2))}, "a batch of 16 samples|a batch of 15"),
        ({"val": TensorDataset(torch.zeros(4, 5), torch.full((4, 3), 1 / 3))}, "validation labels must be integers"),
        ({"model": nn.Linear(5, 3).requires_grad_(False)}, "no parameters to train"),
        ({"model": nn.DataParallel(nn.Linear(5, 3))}, "DataParallel"),
        ({"config": FitConfig(trackers=("tensorboard",))}, "pass out"),
        ({"config": FitConfig(trackers=("clearml",))}, "the tracker 'clearml' is not installed"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    given = {"model": network(), "objective": ERM(), "train": TRAIN, "val": VAL, "config": quick(), **arguments}
    with pytest.raises((TypeError, ValueError, ImportError), match=message):
        fit(**given)
    fit(network(), ERM(), TRAIN, config=quick(steps=1))  # a refused run leaves nothing behind


def test_labels_with_a_logit_each_are_measured_by_their_means(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 4, generator=generator)
    y = (x[:, :3] > 0).long()
    data, config = TensorDataset(x, y), FitConfig(epochs=3, batch_size=16, lr=0.05)
    result = fit(
        nn.Linear(4, 3), Mixup(alpha=0.2), data, data, target_type="multilabel", config=config, out=tmp_path / "run"
    )
    z = result.model(x).detach()
    assert result.best["val_accuracy"] == pytest.approx(float(((z > 0) == y).double().mean()))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(z.double(), y.double())
    assert result.best["val_nll"] == pytest.approx(float(expected), rel=1e-5)
    assert result.labels.shape == (96, 3)
    again = fit(
        nn.Linear(4, 3), Mixup(alpha=0.2), data, data, target_type="multilabel", config=config, out=tmp_path / "run"
    )
    assert torch.equal(again.labels, y)
    one = TensorDataset(x, y[:, 0].float())
    binary = fit(nn.Linear(4, 1), Mixup(alpha=0.2), one, one, target_type="binary", config=config)
    z = binary.model(x).detach()[:, 0]
    assert binary.best["val_accuracy"] == pytest.approx(float(((z > 0) == y[:, 0]).double().mean()))
    with pytest.raises(ValueError, match="targets must hold 0 and 1"):
        fit(
            nn.Linear(4, 1),
            Mixup(alpha=0.2),
            one,
            TensorDataset(x, x[:, 0].sigmoid()),
            target_type="binary",
            config=config,
        )
