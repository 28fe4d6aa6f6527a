"""MixupMixin under a real lightning.Trainer, against hand-made steps and metrics."""

from __future__ import annotations

import random
import runpy
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import vicinal
from tests.processes import load_ahead
from vicinal import metrics

pytest.importorskip("lightning")
from lightning import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.strategies import DDPStrategy

from vicinal._typing import Step
from vicinal.calibrators.two_logits import two_logits
from vicinal.integrations.lightning import MixupMixin
from vicinal.objectives.base import Objective
from vicinal.objectives.guided.aum import AUM, margins

pytestmark = [
    # Lightning's advice for long runs: more loader workers, a longer log interval, a loader for every step.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller than the logging interval"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    # torch's, from Lightning's own loading of optimizer states and from its use of tree specs.
    pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\).*:FutureWarning"),
]

N, D, K = 24, 6, 3


def data(n: int = N) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, D, generator=generator), torch.randint(K, (n,), generator=generator), torch.arange(n)


def loader(batch_size: int, n: int = N, *, indexed: bool = False) -> DataLoader[Any]:
    x, y, index = data(n)
    return DataLoader(TensorDataset(x, y, index) if indexed else TensorDataset(x, y), batch_size=batch_size)


class Net(MixupMixin, LightningModule):
    def __init__(self, objective: Any, *, aum: AUM | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(D, 8), nn.ReLU(), nn.Linear(8, K))
        self.objective, self.aum = objective, aum

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder: Path, **kwargs: Any) -> Trainer:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return Trainer(**{"accelerator": "cpu", "default_root_dir": folder, "max_epochs": 1, **quiet, **kwargs})


def assert_same_weights(a: nn.Module, b: nn.Module, **tolerance: float) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, msg=name, **tolerance)


class Recorder(Objective):
    """ERM that remembers its calls; with training state, as a bound GuidedMixup has."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, float]] = []
        self.seen = torch.zeros(N)

    def compute_terms(self, model: Any, x: Any, y: Tensor, step: Step) -> dict[str, Tensor]:
        self.calls.append((step.index, step.epoch))
        self.seen[step.index] += 1
        return {"loss": F.cross_entropy(model(x), y)}

    def __repr__(self) -> str:
        return "Recorder()"

    def state_dict(self) -> dict[str, Tensor]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.seen = state["seen"]


class TestTraining:
    def test_accumulated_batches_are_one_large_batch(self, tmp_path):
        whole, parts = Net(vicinal.ERM()), Net(vicinal.ERM())
        trainer(tmp_path).fit(whole, loader(N))
        trainer(tmp_path, accumulate_grad_batches=4).fit(parts, loader(N // 4))
        assert_same_weights(parts, whole, rtol=1e-5, atol=1e-7)

        reference = Net(None)
        x, y, _ = data()
        F.cross_entropy(reference(x), y).backward()
        with torch.no_grad():
            for p in reference.parameters():
                p -= 0.1 * p.grad
        assert_same_weights(parts, reference, rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize(
        "objective", [vicinal.Mixup(alpha=1.0), vicinal.ManifoldMixup(alpha=1.0, layers=["net.0"])], ids=repr
    )
    def test_the_objective_makes_the_loss(self, tmp_path, objective):
        """One step of mixup, with the draws of torch's global generator; layers are named from the module."""
        state = []

        class Spy(Net):
            def training_step(self, batch: Any, batch_idx: int) -> Tensor:
                state.append(torch.get_rng_state())
                return super().training_step(batch, batch_idx)

        module, run = Spy(objective), trainer(tmp_path)
        run.fit(module, loader(N))
        reference = Net(None)
        x, y, _ = data()
        torch.set_rng_state(state[0])
        loss = objective(reference, x, y)
        loss.backward()
        with torch.no_grad():
            for p in reference.parameters():
                p -= 0.1 * p.grad
            plain = float(F.cross_entropy(Net(None)(x), y))
        assert_same_weights(module, reference)
        assert float(run.callback_metrics["train_loss"]) == pytest.approx(float(loss.detach()))
        assert float(loss.detach()) != pytest.approx(plain)

    def test_index_and_epoch_reach_the_objective(self, tmp_path):
        recorder = Recorder()
        trainer(tmp_path, max_epochs=2).fit(Net(recorder), loader(8, indexed=True))
        assert [epoch for _, epoch in recorder.calls] == pytest.approx([0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3])
        assert recorder.seen.tolist() == [2.0] * N
        assert recorder.calls[1][0].tolist() == list(range(8, 16))

    def test_bfloat16(self, tmp_path):
        module = Net(vicinal.Mixup(alpha=0.4))
        run = trainer(tmp_path, precision="bf16-mixed")
        run.fit(module, loader(8), loader(8))
        assert torch.isfinite(run.callback_metrics["train_loss"])
        assert all(p.dtype == torch.float32 and p.isfinite().all() for p in module.parameters())


class TestValidation:
    @pytest.mark.parametrize("stage", ["val", "test"])
    def test_metrics_are_those_of_all_samples(self, tmp_path, stage):
        module, run = Net(vicinal.Mixup(alpha=1.0)), trainer(tmp_path)
        module.n_bins = 10
        measured = (run.validate if stage == "val" else run.test)(module, loader(7), verbose=False)[0]
        x, y, _ = data()
        with torch.no_grad():
            logits = module(x)
        table = vicinal.ReliabilityTable.from_logits(y, logits, n_bins=10)
        expected = {
            "nll": float(F.cross_entropy(logits, y)),
            "brier": metrics.brier(y, logits=logits),
            "mcc": metrics.mcc(y, logits=logits),
            "accuracy": table.accuracy,
            "ece": table.ece(),
            "oe": table.oe(),
            "n_bins": 10,
        }
        assert measured == pytest.approx({f"{stage}_{name}": value for name, value in expected.items()}, rel=1e-5)

    @pytest.mark.slow
    def test_two_processes_report_one_table(self, tmp_path):
        load_ahead()
        run = trainer(tmp_path, devices=2, strategy=DDPStrategy(start_method="forkserver"))
        module = Net(vicinal.ERM())
        measured = run.validate(module, loader(5), verbose=False)[0]
        x, y, _ = data()
        with torch.no_grad():
            logits = module(x)
        table = vicinal.ReliabilityTable.from_logits(y, logits)
        assert measured["val_ece"] == pytest.approx(table.ece(), rel=1e-5)
        assert measured["val_accuracy"] == pytest.approx(table.accuracy, rel=1e-5)
        assert measured["val_nll"] == pytest.approx(float(F.cross_entropy(logits, y)), rel=1e-5)

    @pytest.mark.parametrize("stage", ["val", "test"])
    def test_rows_that_a_distributed_sampler_repeats_count_once(self, tmp_path, stage):
        x, y, _ = data(23)
        with torch.no_grad():
            logits = Net(vicinal.ERM())(x)
        for rank, n in ((0, 12), (1, 11)):
            sampler = DistributedSampler(TensorDataset(x, y), num_replicas=2, rank=rank, shuffle=False)
            module, run = Net(vicinal.ERM()), trainer(tmp_path, use_distributed_sampler=False)
            part = DataLoader(TensorDataset(x, y), batch_size=5, sampler=sampler)
            measured = (run.validate if stage == "val" else run.test)(module, [part], verbose=False)[0]
            assert module._tallies[0].n == n
            want = float(F.cross_entropy(logits[rank::2], y[rank::2]))
            assert measured[f"{stage}_nll"] == pytest.approx(want, rel=1e-5)

    def test_predictions_of_labelled_and_unlabelled_batches(self, tmp_path):
        module, run = Net(vicinal.ERM()), trainer(tmp_path)
        x, y, _ = data()
        with torch.no_grad():
            want = module.eval()(x)
        for rows in (TensorDataset(x, y), TensorDataset(x)):
            logits = torch.cat(run.predict(module, DataLoader(rows, batch_size=7)))
            torch.testing.assert_close(logits, want)

    def test_each_epoch_starts_afresh_and_each_loader_has_its_own_table(self, tmp_path):
        module, run = Net(vicinal.ERM()), trainer(tmp_path, max_epochs=2)
        run.fit(module, loader(8), [loader(8), loader(5, 10)])
        x, y, _ = data(10)
        with torch.no_grad():
            expected = float(F.cross_entropy(module(x), y))
        assert float(run.callback_metrics["val_nll/dataloader_idx_1"]) == pytest.approx(expected, rel=1e-5)
        assert module._tallies[0].table.n == N

    def test_hooks_of_the_module_it_is_put_before_still_run(self, tmp_path):
        called = []

        class Own(LightningModule):
            def on_validation_epoch_start(self) -> None:
                called.append("start")

            def on_validation_epoch_end(self) -> None:
                called.append("end")

        class Mixed(Net, Own):  # the mixin's hooks, then those of Own
            pass

        trainer(tmp_path).validate(Mixed(vicinal.ERM()), loader(8), verbose=False)
        assert called == ["start", "end"]

    def test_a_tokenised_batch(self, tmp_path):
        class Mapped(Net):
            def forward(self, pixels: Tensor) -> Tensor:
                return self.net(pixels)

        x, y, index = data()
        rows = [{"pixels": x[i], "labels": y[i], "index": index[i]} for i in range(N)]
        module, run = Mapped(vicinal.Mixup(alpha=0.4)), trainer(tmp_path)
        run.fit(module, DataLoader(rows, batch_size=8), DataLoader(rows, batch_size=8))
        assert 0 <= float(run.callback_metrics["val_ece"]) <= 1

    @pytest.mark.parametrize(("batch", "message"), [({"x": 1}, "labels"), (torch.zeros(2), "Tensor"), ((1,), "tuple")])
    def test_other_batches_are_refused(self, batch, message):
        with pytest.raises(ValueError, match=message):
            Net(vicinal.ERM()).training_step(batch, 0)


class TestTracking:
    def test_aum_of_clean_training_logits(self, tmp_path):
        aum = AUM(N)
        module = Net(vicinal.ERM(), aum=aum)
        trainer(tmp_path, max_epochs=2).fit(module, loader(N, indexed=True))
        first, x, y = Net(None), *data()[:2]
        with torch.no_grad():
            torch.testing.assert_close(aum.values(), (margins(first(x), y) + self.second(x, y)).double() / 2)
        plain = Net(vicinal.ERM())
        trainer(tmp_path, max_epochs=2).fit(plain, loader(N, indexed=True))
        assert_same_weights(module, plain, rtol=0, atol=0)

    @staticmethod
    def second(x: Tensor, y: Tensor) -> Tensor:
        """The margins after one step."""
        model = Net(None)
        with torch.enable_grad():
            F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p -= 0.1 * p.grad
        return margins(model(x), y)

    def test_aum_needs_clean_samples_and_their_numbers(self, tmp_path):
        with pytest.raises(ValueError, match=r"must be ERM\(\)"):
            trainer(tmp_path).fit(Net(vicinal.Mixup(alpha=1.0), aum=AUM(N)), loader(8, indexed=True))
        with pytest.raises(ValueError, match="index"):
            trainer(tmp_path).fit(Net(vicinal.ERM(), aum=AUM(N)), loader(8))

    def test_two_stages(self, tmp_path):
        aum = AUM(N)
        trainer(tmp_path).fit(Net(vicinal.ERM(), aum=aum), loader(8, indexed=True))
        objective = vicinal.GuidedMixup(pool="batch").bind(aum)
        batches = []

        class Spy(Net):
            def training_step(self, batch: Any, batch_idx: int) -> Tensor:
                batches.append(batch[2].tolist())
                return super().training_step(batch, batch_idx)

        sampler = vicinal.BalancedBatchSampler(objective.high, batch_size=8)
        balanced = DataLoader(TensorDataset(*data()), batch_sampler=sampler)
        trainer(tmp_path, max_epochs=2).fit(Spy(objective), balanced)
        assert objective.plain_batches == 0
        assert all(int(objective.high[batch].sum()) == 4 for batch in batches)
        assert sorted(chain(*batches[:3])) == sorted(chain(*batches[3:])) == list(range(N))
        assert batches[:3] != batches[3:], "each epoch has its own order"

    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's
    @pytest.mark.slow
    def test_two_stages_of_a_compiled_module(self, tmp_path):
        weights = []
        for compiled in (False, True):
            torch._dynamo.reset()
            aum = AUM(N)
            first = Net(vicinal.ERM(), aum=aum)
            torch.manual_seed(0)
            trainer(tmp_path).fit(torch.compile(first, backend="eager") if compiled else first, loader(8, indexed=True))
            second = Net(vicinal.GuidedMixup(pool="batch").bind(aum))
            trainer(tmp_path).fit(
                torch.compile(second, backend="eager") if compiled else second, loader(8, indexed=True)
            )
            weights.append((second, aum.values()))
        assert_same_weights(weights[0][0], weights[1][0], rtol=0, atol=0)
        assert torch.equal(weights[0][1], weights[1][1])

    @pytest.mark.parametrize("tracked", [False, True])
    def test_state_is_saved_with_the_checkpoint_and_restored(self, tmp_path, tracked):
        def module() -> Net:
            return Net(vicinal.ERM(), aum=AUM(N)) if tracked else Net(Recorder())

        first, second, path = module(), module(), tmp_path / "saved.ckpt"
        run = trainer(tmp_path)
        run.fit(first, loader(8, indexed=True))
        run.save_checkpoint(path)
        trainer(tmp_path, max_epochs=2).fit(second, loader(8, indexed=True), ckpt_path=path)
        counts = second.aum.counts if tracked else second.objective.seen
        assert counts.tolist() == [2] * N
        other = Net(Recorder()) if tracked else Net(vicinal.ERM(), aum=AUM(N))
        with pytest.raises(ValueError, match="the checkpoint has no state of"):
            trainer(tmp_path).fit(other, loader(8, indexed=True), ckpt_path=path)


class Saved(Net):
    """Its hyper-parameters hold the objective."""

    def __init__(self, objective: Any) -> None:
        super().__init__(objective)
        self.save_hyperparameters()


def test_a_resumed_run_mixes_as_an_uninterrupted_one(tmp_path):
    objective = vicinal.LogitMix(vicinal.Mixup(alpha=1.0))
    weights = []
    for stops in ([4], [2, 4]):
        path = None
        for stop in stops:
            torch.manual_seed(5 if path is None else 99)
            module, run = Saved(objective), trainer(tmp_path, max_epochs=stop)
            if path is None:
                torch.manual_seed(5)
            run.fit(module, loader(8), ckpt_path=path)
            path = tmp_path / "some.ckpt"
            run.save_checkpoint(path)
        weights.append(module)
    assert_same_weights(*weights, rtol=0, atol=0)
    assert Saved.load_from_checkpoint(path).objective == objective
    assert {"train_loss_clean", "train_loss_similarity", "train_loss_mixed"} <= set(run.callback_metrics)


class Augmented(TensorDataset):
    """Draws from the generators of Python and NumPy, as many transforms do."""

    def __getitem__(self, i: int) -> Any:
        x, y = super().__getitem__(i)[:2]
        return x * random.uniform(0.5, 1.5) + np.random.normal(), y  # noqa: NPY002


def test_a_resumed_run_augments_as_an_uninterrupted_one(tmp_path):
    weights = []
    for stops in ([4], [2, 4]):
        path = None
        for stop in stops:
            seed_everything(5 if path is None else 99)
            module, run = Saved(vicinal.Mixup(alpha=1.0)), trainer(tmp_path, max_epochs=stop)
            seed_everything(5 if path is None else 99)
            run.fit(module, DataLoader(Augmented(*data()[:2]), batch_size=8, shuffle=True), ckpt_path=path)
            path = tmp_path / "some.ckpt"
            run.save_checkpoint(path)
        weights.append(module)
    assert_same_weights(*weights, rtol=0, atol=0)


class Resumable(DataLoader[Any]):
    """A loader that keeps its order and its place, as torchdata's StatefulDataLoader does."""

    epoch, place = 0, 0

    def __iter__(self) -> Any:
        torch.rand(1)  # as every loader draws a number to begin an epoch
        return self.batches()

    def batches(self) -> Any:
        order = torch.randperm(N, generator=torch.Generator().manual_seed(self.epoch)).split(8)
        while self.place < len(order):
            rows = [self.dataset[i] for i in order[self.place]]
            self.place += 1
            yield [torch.stack(part) for part in zip(*rows, strict=True)]
        self.epoch, self.place = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.place = state["epoch"], state["place"]


@pytest.mark.parametrize("stop", [1, 5, 6])
def test_a_run_resumed_within_an_epoch_mixes_as_an_uninterrupted_one(tmp_path, stop):
    path = tmp_path / "some.ckpt"

    class Save(Callback):
        def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
            if trainer.global_step == stop:
                trainer.save_checkpoint(path)

    modules = []
    for saved in (None, path):
        module = Net(vicinal.Mixup(alpha=1.0))
        module.net.insert(2, nn.Dropout(0.5))
        torch.manual_seed(5 if saved is None else 99)
        run = trainer(tmp_path, max_epochs=3, callbacks=[Save()] if saved is None else None)
        run.fit(module, Resumable(TensorDataset(*data()[:2]), batch_size=8), ckpt_path=saved)
        modules.append(module)
    assert_same_weights(*modules, rtol=0, atol=0)


@pytest.mark.parametrize("target_type", ["binary", "multilabel", "regression"])
def test_other_target_types(tmp_path, target_type):
    x, y, _ = data()
    targets = {
        "binary": (y > 0).float(),
        "multilabel": F.one_hot(y, 3) | F.one_hot((y + 1) % 3, 3),
        "regression": y / 2,
    }
    module = Net(vicinal.ERM())
    module.target_type, module.net = (
        target_type,
        nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 3 if target_type == "multilabel" else 1)),
    )
    logits, target = module(x).detach(), targets[target_type].float()
    columns = target.reshape(len(x), -1)
    if target_type == "regression":
        want = metric = float((logits - columns).square().mean())
    else:
        want = F.binary_cross_entropy_with_logits(logits, columns).item()
        every = [
            vicinal.evaluate(columns[:, k].long(), logits=two_logits(logits[:, k])) for k in range(columns.shape[1])
        ]
        metric = sum(each.ece.value for each in every) / len(every)
    run = trainer(tmp_path, max_steps=1)
    rows = DataLoader(TensorDataset(x, target), batch_size=len(x))
    run.validate(module, rows)
    name = "val_mse" if target_type == "regression" else "val_ece"
    assert float(run.callback_metrics[name]) == pytest.approx(metric, rel=1e-5)
    run.fit(module, rows)
    assert float(run.callback_metrics["train_loss"]) == pytest.approx(want, rel=1e-5)


def test_an_expression_is_an_objective(tmp_path):
    expression = "LogitMix(Mixup(alpha=3.0))"
    losses = []
    for objective in (expression, vicinal.parse(expression)):
        module, run = Net(objective), trainer(tmp_path, max_steps=2)
        run.fit(module, loader(8))
        losses.append(float(run.callback_metrics["train_loss"]))
    assert losses[0] == losses[1]


class Configured(Net):
    def __init__(self, objective: vicinal.Objective | str = "ERM()") -> None:
        super().__init__(objective)


@pytest.mark.parametrize(
    ("words", "objective"),
    [
        (["vicinal.Mixup", ".alpha=0.7"], "Mixup(alpha=0.7)"),
        (
            ["vicinal.LogitMix", ".base=vicinal.Mixup", ".base.alpha=2.0", ".weight=0.5"],
            "LogitMix(Mixup(alpha=2.0), weight=0.5)",
        ),
        (
            ["vicinal.Warmup", ".objective=vicinal.RegMixup", ".objective.base=vicinal.CutMix", ".epochs=2"],
            "Warmup(RegMixup(CutMix()), epochs=2)",
        ),
        (
            [
                "vicinal.RandomChoice",
                ".objectives=[{class_path: vicinal.Mixup, init_args: {alpha: 0.8}}, {class_path: vicinal.CutMix}]",
            ],
            "RandomChoice(Mixup(alpha=0.8), CutMix(alpha=1.0))",
        ),
        (["RandomChoice(Mixup(alpha=0.8), CutMix(alpha=1.0))"], "RandomChoice(Mixup(alpha=0.8), CutMix(alpha=1.0))"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jsonargparse's, about how Lightning calls it
def test_the_command_line_of_lightning(words, objective, tmp_path, monkeypatch):
    pytest.importorskip("jsonargparse", reason="needs jsonargparse: pip install 'jsonargparse[signatures]'")
    from lightning.pytorch.cli import LightningCLI

    monkeypatch.chdir(tmp_path)
    first, *more = words
    given = [f"--model.objective={first}", *(f"--model.objective{word}" for word in more)]
    monkeypatch.setattr(
        sys, "argv", ["train.py", *given, "--seed_everything=0", "--trainer.logger=false", "--trainer.accelerator=cpu"]
    )
    made = LightningCLI(Configured, run=False)
    assert repr(made.model._tracked()) == repr(vicinal.parse(objective))


def test_soft_targets_are_validated_by_their_largest_class(tmp_path):
    x, y, _ = data()
    module, run = Net(vicinal.ERM()), trainer(tmp_path)
    soft = 0.9 * F.one_hot(y, 3) + 0.1 / 3
    run.validate(module, DataLoader(TensorDataset(x, soft), batch_size=8))
    want = vicinal.evaluate(y, logits=module(x).detach())
    assert float(run.callback_metrics["val_nll"]) == pytest.approx(want.nll.value, rel=1e-5)


def test_each_process_draws_its_own_lambda():
    def drawn(rank: int, processes: int = 2) -> float:
        torch.manual_seed(0)  # as `seed_everything` does in every process
        module = Net(vicinal.ERM())
        module._trainer = SimpleNamespace(world_size=processes, global_rank=rank)
        return float(torch.rand(1, generator=module._generator()))

    assert drawn(0) != drawn(1)
    assert drawn(1) == drawn(1)
    module = Net(vicinal.ERM())
    module._trainer = SimpleNamespace(world_size=1, global_rank=0)
    assert module._generator() is None


def test_class_weights(tmp_path):
    module = Net(vicinal.ERM())
    module.class_weights = [1.0, 2.0, 5.0]
    x, y, _ = data()
    want = F.cross_entropy(module(x), y, weight=torch.tensor(module.class_weights)).item()
    run = trainer(tmp_path, max_steps=1)
    run.fit(module, loader(N))
    assert float(run.callback_metrics["train_loss"]) == pytest.approx(want, rel=1e-5)


def test_the_example_runs(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lightning_module.py"), run_name="__main__")
    assert "val_ece" in capsys.readouterr().out
