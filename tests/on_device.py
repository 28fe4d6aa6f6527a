"""Everything once on the simulated device, in a process of its own: prints what happened as JSON.

`python -m tests.on_device` is run by `tests/contracts/test_devices.py` and by `python -m benchmarks devices`.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import vicinal
from tests.contracts.cases import CALIBRATORS
from tests.simulated_device import NAME, Device, Remote, on_device
from vicinal import _random
from vicinal.objectives.base import Objective
from vicinal.objectives.guided.aum import AUMRecorder

B, K = 8, 5


class Net(nn.Module):
    def __init__(self, n_outputs: int = K) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))


class Texts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.encoder = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.classifier = nn.Linear(8, K)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        h = self.embedding(input_ids)
        for layer in self.encoder:
            h = layer(h).relu()
        mask = attention_mask[..., None].to(h)
        return self.classifier((h * mask).sum(1) / mask.sum(1))


class Decoder(nn.Module):
    """Reads a text at its last token that is not padding, where its head is on every token, as GPT-2 does."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(pad_token_id=1)
        self.embedding, self.layer, self.score = nn.Embedding(30, 8), nn.Linear(8, 8), nn.Linear(8, K)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.layer(self.embedding(input_ids).cumsum(1)).tanh()
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        last = torch.where(input_ids != 1, places, 0).amax(1)
        return self.score(states)[torch.arange(len(last), device=last.device), last]


OBJECTIVES = [
    "ERM()",
    "ERM(label_smoothing=0.1, confidence_penalty=0.1)",
    "Mixup(alpha=0.4)",
    "Mixup(alpha=0.4, labels='nearest', per_sample=True)",
    "Mixup(alpha=1.0, partners='same_class')",
    "KMixup(alpha=1.0, k=3)",
    "GaussianVicinity(sigma=0.1)",
    "CutMix(alpha=1.0)",
    "CutMix(alpha=1.0, per_sample=True)",
    "Focal()",
    "ResizeMix()",
    "ManifoldMixup(layers=['input', 'stem', 'block'])",
    "PuzzleMix(block_counts=[2, 4])",
    "PuzzleMix(block_counts=[4], transport=False, mean=[0.1, 0.2, 0.3], std=[0.5, 0.5, 0.5])",
    "PuzzleMix(block_counts=[2], solver='exact', adv_prob=1.0)",
    "LogitMix(Mixup(alpha=3.0))",
    "LogitMix(ManifoldMixup(layers=['block']))",
    "LogitMix(CutMix(alpha=1.0))",
    "RegMixup(Mixup(alpha=10.0))",
    "RandomChoice(Mixup(alpha=0.8), CutMix(alpha=1.0))",
    "Warmup(Mixup(alpha=0.1), epochs=1)",
    "During(Mixup(alpha=0.1), start=5, stop=6)",
    "SequenceMixup.input()",
    "SequenceMixup.cls()",
    "SequenceMixup.manifold(layers=[0, 1, 'head'])",
    "LogitMix(SequenceMixup.input())",
    "GuidedMixup(pool='batch')",
    "GuidedMixup(pool='set')",
    "AUM",
]


#: Those that look up samples, with the index on the device, where the trainers of other libraries put it.
INDEXED = ["AUM", "GuidedMixup(pool='batch')", "GuidedMixup(pool='set')"]

#: What a decoder may be mixed by.
OF_DECODERS = ["SequenceMixup.input()", "SequenceMixup.cls()", "ManifoldMixup(layers=['embedding'])"]

#: What the loop runs: plans, labels that it knows on the host, and noise that threads draw.
LOOPED = [
    "Mixup(alpha=1.0)",
    "Mixup(alpha=1.0, partners='same_class')",
    "LogitMix(CutMix(alpha=1.0, per_sample=True))",
    "GaussianVicinity(sigma=0.1)",
    "Warmup(RandomChoice(Mixup(alpha=1.0), GaussianVicinity(sigma=0.1)), epochs=0.5)",
]


def data(text: bool) -> tuple[Any, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(B) % K
    if not text:
        return torch.rand(B, 3, 8, 8, generator=generator), y
    ids = torch.randint(5, 30, (B, 6), generator=generator)
    mask = (torch.arange(6) < torch.arange(B)[:, None] % 4 + 3).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, y


def made(name: str, model: nn.Module, x: Any, y: Tensor) -> Objective:
    """Return the objective of an expression, with its training state where it has one."""
    objective: Any = vicinal.GuidedMixup() if name == "AUM" else vicinal.parse(name)
    if not isinstance(objective, vicinal.GuidedMixup):
        return objective
    aum = objective.tracker(B)
    aum.update(model(x).detach(), y, torch.arange(B), epoch=0)
    if name == "AUM":
        return AUMRecorder(aum)
    dataset = torch.utils.data.TensorDataset(x, y)
    return objective.bind(aum, dataset=dataset, collate_fn=torch.utils.data.default_collate)


def objective_steps(
    name: str, *, has_float64: bool, steps: int = 3, index_there: bool = False, decoder: bool = False
) -> dict[str, Any]:
    """Return losses on the CPU and on the device, and the events of the last step."""
    text = decoder or "Sequence" in name
    torch.manual_seed(0)
    model: nn.Module = Decoder() if decoder else Texts() if text else Net()
    x, y = data(text)
    if decoder and "Manifold" in name:
        x = {**x, "attention_mask": torch.ones_like(x["attention_mask"])}  # texts of one length
    objective = made(name, model, x, y)
    there, other = copy.deepcopy(model), copy.deepcopy(objective)

    def run(model: nn.Module, objective: Objective, x: Any, y: Tensor, index: Tensor, s: int) -> Tensor:
        generator = torch.Generator().manual_seed(s)
        loss = objective(model, x, y, index=index, epoch=1.5 + s, generator=generator)
        loss.backward()
        return loss.detach()

    index = torch.arange(B)
    want = [float(run(model, objective, x, y, index, s)) for s in range(steps)]
    device = Device(has_float64=has_float64)
    with device:
        on_device(there)
        remote_x, remote_y, remote_index = device.put(x), device.put(y), device.put(index) if index_there else index
        got = []
        for s in range(steps):
            device.clear()
            got.append(float(run(there, other, remote_x, remote_y, remote_index, s).inner))
    return {"want": want, "got": got, "waits": device.waits, "copies": device.copies, "kernels": device.kernels}


def other_targets(*, has_float64: bool) -> dict[str, Any]:
    """Soft targets, weights, several labels and numbers: the losses and the events of `Mixup`."""
    x, y = data(text=False)
    kinds: dict[str, tuple[nn.Module, Tensor, dict[str, Any]]] = {
        "soft": (Net(), nn.functional.one_hot(y, K).float() * 0.9 + 0.02, {}),
        "weight": (Net(), y, {"weight": torch.linspace(0, 1, B)}),
        "class_weights": (Net(), y, {"class_weights": torch.ones(K)}),
        "binary": (Net(1), (y > 2).long(), {"target_type": "binary"}),
        "multilabel": (Net(3), (torch.rand(B, 3) > 0.5).float(), {"target_type": "multilabel"}),
        "regression": (Net(1), torch.randn(B), {"target_type": "regression"}),
    }
    found = {}
    for name, (model, targets, more) in kinds.items():
        objective, there = vicinal.Mixup(alpha=1.0), copy.deepcopy(model)
        want = objective(model, x, targets, generator=torch.Generator().manual_seed(0), **more)
        device = Device(has_float64=has_float64)
        with device:
            on_device(there)
            moved = {k: device.put(v) if k == "weight" else v for k, v in more.items()}
            got = objective(
                there, device.put(x), device.put(targets), generator=torch.Generator().manual_seed(0), **moved
            )
        found[name] = {"want": [float(want)], "got": [float(got.detach().inner)], "waits": device.waits}
    return found


def bad_values() -> dict[str, str]:
    """The errors of labels, targets and weights that are wrong, where nobody waits for them."""
    x, y = data(text=False)
    cases: dict[str, tuple[Tensor, dict[str, Any]]] = {
        "label": (torch.full_like(y, K), {}),
        "ignored label": (torch.full_like(y, -100), {}),
        "soft": (torch.ones(B, K), {}),
        "weight": (y, {"weight": torch.full([B], -1.0)}),
    }
    found = {}
    for name, (targets, more) in cases.items():
        device = Device()
        with device:
            moved = {k: device.put(v) for k, v in more.items()}
            try:
                vicinal.ERM()(on_device(Net()), device.put(x), device.put(targets), **moved)
                found[name] = "no error"
            except (RuntimeError, ValueError) as error:
                found[name] = str(error)
    return found


def calibrators() -> dict[str, Any]:
    """Every calibrator and kind of set, fitted to tensors of the device: the same as on the CPU."""
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(60, 3, generator=generator) * 3, torch.randint(3, (60,), generator=generator)
    found = {}
    for case in (vicinal.LeastAmbiguousSets(), vicinal.AdaptiveSets(), *CALIBRATORS):
        want = copy.deepcopy(case).fit(logits, labels)(logits)
        device = Device(has_float64=False)
        with device:
            got = copy.deepcopy(case).fit(device.put(logits), device.put(labels))(device.put(logits))
        there, here = (torch.as_tensor(value).double() for value in (getattr(got, "inner", got), want))
        found[repr(case)] = bool(torch.allclose(there, here, atol=1e-6))
    return found


def metrics() -> dict[str, Any]:
    """The metrics of tensors of the device, of every target type, and the torchmetrics classes there."""
    from vicinal.integrations import torchmetrics
    from vicinal.integrations.torchmetrics import ECE, ReliabilityMetric

    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(300, 7, generator=generator) * 3, torch.randint(7, (300,), generator=generator)
    targets = {
        "multiclass": (labels, logits),
        "binary": (labels > 3, logits[:, 0]),
        "multilabel": (logits.roll(1, 0) > 0, logits),
        "regression": (logits.sum(1), logits[:, 0]),
    }
    want = {
        kind: vicinal.metrics.measure(given[0], logits=given[1], target_type=kind) for kind, given in targets.items()
    }
    device = Device(has_float64=False)
    with device:
        there = {
            kind: vicinal.metrics.measure(device.put(y), logits=device.put(z), target_type=kind)
            for kind, (y, z) in targets.items()
        }
        every = {name: kind(n_bins=15).to(NAME) for name, kind in vars(torchmetrics).items() if _is_metric(kind)}
        for each in every.values():
            each.update(device.put(labels), logits=device.put(logits))
        values = {name: float(each.compute().inner) for name, each in every.items()}
        metric, ece = ReliabilityMetric(n_bins=15).to(NAME), ECE(n_bins=15, ignore_index=3, preds="logits").to(NAME)
        z, y = device.put(logits), device.put(labels)
        metric.update(y[:100], logits=z[:100])
        device.clear()
        metric.update(y[100:], logits=z[100:])
        ece.update(z, y)
        waits = list(device.waits)
        table, value = metric.compute(), ece.compute()
        soft = ReliabilityMetric(n_bins=15).to(NAME)
        soft.update(y, probs=device.put(logits.softmax(1)))
        of_probs = soft.compute()
    plain = vicinal.ReliabilityTable(15).update(labels, logits=logits)
    kept = labels != 3
    return {
        "measured": [want, there],
        "torchmetrics": [{name: getattr(plain, name.lower())() for name in values}, values],
        "waits": waits,
        "counts": bool((table.counts == plain.counts).all()),
        "sums": float(abs(table.sums - plain.sums).max()),
        "squares": float(abs(table.squares - plain.squares).max()),
        "probs": bool((of_probs.counts == plain.counts).all()),
        "ece": [float(value.inner), vicinal.ReliabilityTable(15).update(labels[kept], logits=logits[kept]).ece()],
    }


def _is_metric(kind: object) -> bool:
    """Return whether this is one of the classes whose value is a number."""
    from vicinal.integrations.torchmetrics import ReliabilityMetric

    public = isinstance(kind, type) and issubclass(kind, ReliabilityMetric) and not kind.__name__.startswith("_")
    return public and kind is not ReliabilityMetric


def training() -> dict[str, Any]:
    """The training loop: what makes the host wait in a step, and the sentence for a wrong label."""
    from vicinal.training.config import FitConfig
    from vicinal.training.folder import TrainingFolder
    from vicinal.training.loop import Loop, Supervision, TrainingData

    x, y = data(text=False)
    plain = FitConfig(epochs=2, batch_size=B // 2, lr=0.1, optimizer="sgd", select="last", trackers=())
    accelerator = SimpleNamespace(
        process_index=0, num_processes=1, device=NAME, scaler=None, is_main_process=True, log_with=[],
        log=lambda *a, **k: None, wait_for_everyone=lambda: None, no_sync=lambda model: nullcontext(),
        clip_grad_norm_=nn.utils.clip_grad_norm_,
    )  # fmt: skip

    def loop(
        model: nn.Module,
        labels: Tensor,
        method: str = "Mixup(alpha=1.0)",
        config: FitConfig = plain,
        **changes: Any,
    ) -> Loop:
        made = SimpleNamespace(**{**vars(accelerator), **changes})
        train = torch.utils.data.TensorDataset(x, labels)
        weighted = Supervision(weight=torch.linspace(0.5, 1.5, B), class_weights=torch.linspace(0.5, 1.5, K))
        data = TrainingData(train) if config is plain else TrainingData(train, {"val": train}, supervision=weighted)
        return Loop(made, model, vicinal.parse(method), data, config, TrainingFolder(None, main=True))

    def steps(method: str, config: FitConfig = plain) -> dict[str, Any]:
        """The events of the second step, and the loss of whole runs here and there."""
        threads: list[str] = []

        def noted(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def run(*args: Any, **kwargs: Any) -> Tensor:
                threads.append(threading.current_thread().name)
                return draw(*args, **kwargs)

            return run

        torch.manual_seed(0)
        here = torch.device("cpu")
        want, _ = loop(Net(), y, method, config, device=here).run({"method": method}, progress=False)
        device = Device(has_float64=False)
        noise, weights = (
            patch.object(_random, name, noted(getattr(_random, name))) for name in ("normal_like", "dirichlet")
        )
        with device, noise, weights:
            made = loop(on_device(Net()), y, method, config)
            batches = made._batches()
            made._train_step(batches)
            device.clear()
            made._train_step(batches)
            events = {"waits": list(device.waits), "copies": list(device.copies)}
            torch.manual_seed(0)
            got, _ = loop(on_device(Net()), y, method, config).run({"method": method}, progress=False)
        drawn = [threads.count(threading.current_thread().name), len(threads)]
        kept = ("loss", "loss_clean", "loss_similarity", "loss_mixed", "val_nll")
        lines = [{name: run["last"][name] for name in kept if name in run["last"]} for run in (want, got)]
        return {**events, "want": want["last"]["loss"], "got": got["last"]["loss"], "lines": lines, "drawn": drawn}

    with Device():
        try:
            loop(on_device(Net()), torch.full_like(y, K)).run({"method": "Mixup"}, progress=False)
            error = "no error"
        except (RuntimeError, ValueError) as raised:
            error = f"{type(raised).__name__}: {raised}"
    full: dict[str, Any] = {"optimizer": "adamw", "clip_norm": 1.0, "ema": 0.9, "accumulation": 2}
    config = dataclasses.replace(plain, **full, channels_last=True, lr=1e-3)
    return {
        "error": error,
        "steps": {method: steps(method) for method in LOOPED},
        "with options": steps("LogitMix(CutMix(alpha=1.0))", config),
    }


def papers() -> dict[str, Any]:
    """What recipes of the papers compute beside objectives: their own losses, attacks, lines of images, and the GAN."""
    from vicinal.papers.gan import GanConfig, fit_gan, ring_of_gaussians
    from vicinal.papers.l22_tab4 import VWCI
    from vicinal.papers.z18_choices import TwoLoaders
    from vicinal.probes import between_samples, fgsm

    x, y = data(text=False)
    train: Any = torch.utils.data.TensorDataset(x, y)
    train.collate_fn = torch.utils.data.default_collate
    torch.manual_seed(0)
    model = Net().eval()
    there = copy.deepcopy(model)
    gan = GanConfig(hidden=[8], iterations=2, batch_size=8)

    def computed(model: nn.Module, put: Callable[[Any], Any], device: torch.device) -> dict[str, list[float]]:
        def losses(objective: Objective) -> list[float]:
            generator = torch.Generator().manual_seed(0)
            return host(objective(model, put(x), put(y), generator=generator))

        def host(value: Tensor) -> list[float]:
            value = value.detach()
            return [float(one) for one in (value.inner if isinstance(value, Remote) else value).flatten()]

        lines = between_samples(model, train, pairs=3, lambdas=[-0.5, 0.5], generator=torch.Generator().manual_seed(0))
        return {
            "two loaders": losses(TwoLoaders(1.0, train)),
            "VWCI": losses(VWCI(2)),
            "attack": host(fgsm(model, put(x), put(y), epsilon=0.1)),
            "between": [float(one) for one in lines.mean_confidence.value],
            "GAN": host(fit_gan(ring_of_gaussians(), gan, keep_at=[2], seed=0, device=device).last),
        }

    want = computed(model, lambda tensor: tensor, torch.device("cpu"))
    device = Device(has_float64=False)
    with device:
        got = computed(on_device(there), device.put, NAME)
    return {name: {"want": want[name], "got": got[name]} for name in want}


def hugging_face() -> dict[str, Any]:
    """The loss of `MixupTrainer`, of a batch on the device."""
    from transformers import TrainingArguments

    from vicinal.integrations.huggingface import MixupTrainer

    x, y = data(text=True)
    torch.manual_seed(0)
    model = Texts()
    model.config = SimpleNamespace(num_labels=K)  # type: ignore[assignment]
    there = copy.deepcopy(model)
    with tempfile.TemporaryDirectory() as folder:
        how = TrainingArguments(folder, use_cpu=True, report_to=[])
        trainer = MixupTrainer(model, how, objective=vicinal.SequenceMixup.cls())
        torch.manual_seed(1)
        want = trainer.compute_loss(model, {**x, "labels": y})
        device = Device(has_float64=False)
        with device:
            on_device(there)
            found, waits = [], []
            for labels in (y, nn.functional.one_hot(y, K).float()):  # soft ones are checked to be that
                inputs = device.put({**x, "labels": labels})
                for _ in range(2):
                    device.clear()
                    torch.manual_seed(1)
                    loss = trainer.compute_loss(there, inputs)
                found.append(float(loss.detach().inner))
                waits += device.waits
    return {"want": [float(want)] * 2, "got": found, "waits": waits}


def lightning() -> dict[str, Any]:
    """The training step of `MixupMixin`, of a batch on the device."""
    from lightning import LightningModule

    from vicinal.integrations.lightning import MixupMixin

    class Module(MixupMixin, LightningModule):
        objective = vicinal.LogitMix(vicinal.Mixup(alpha=3.0))

        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def log(self, *args: Any, **kwargs: Any) -> None: ...

        def log_dict(self, *args: Any, **kwargs: Any) -> None: ...

    x, y = data(text=False)
    torch.manual_seed(0)
    module = Module()
    there = copy.deepcopy(module)
    for each in (module, there):
        each._trainer = SimpleNamespace(world_size=1, num_training_batches=1, current_epoch=0)  # type: ignore[assignment]
        each._fabric = None
    torch.manual_seed(1)
    want = module.training_step((x, y), 0)
    device = Device(has_float64=False)
    with device:
        on_device(there)
        batch = (device.put(x), device.put(y))
        device.clear()
        torch.manual_seed(1)
        got = there.training_step(batch, 0)
    return {"want": [float(want)], "got": [float(got.detach().inner)], "waits": device.waits}


def guarded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what the function does, or the error it ends with."""
    try:
        return function(*args, **kwargs)
    except Exception:
        return {"crash": traceback.format_exc(limit=-4)}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "objectives": {name: guarded(objective_steps, name, has_float64=True) for name in OBJECTIVES},
        "without float64": {name: guarded(objective_steps, name, has_float64=False) for name in OBJECTIVES},
        "index there": {name: guarded(objective_steps, name, has_float64=True, index_there=True) for name in INDEXED},
        "decoders": {name: guarded(objective_steps, name, has_float64=True, decoder=True) for name in OF_DECODERS},
        "targets": guarded(other_targets, has_float64=True),
        "bad values": guarded(bad_values),
        "calibrators": guarded(calibrators),
        "metrics": guarded(metrics),
        "training": guarded(training),
        "papers": guarded(papers),
        "hugging face": guarded(hugging_face),
        "lightning": guarded(lightning),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
