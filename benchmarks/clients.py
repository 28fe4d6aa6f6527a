"""The objectives in the hands of their clients, against a loop written by hand: a part of `benchmarks.matrix`.

    python -m benchmarks.matrix clients            all of them
    python -m benchmarks.matrix clients/lightning  one: trainer, lightning, sklearn, torchmetrics, compiled, sharded

A trainer must reach the weights of the same steps by hand, on the batches and draws that it took. A compiled or sharded
model must have the loss and the gradients of the plain one. An estimator given an objective as text must be that given
the object. A metric must be that of the library.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import vicinal
from vicinal import metrics
from vicinal.objectives.forward import call
from vicinal.objectives.transformers import encoder_layer_names

Attempt = Callable[[str, Callable[[], Any]], bool]
LR = 0.1

OF_TEXTS = ("bert", "distilbert", "deberta-v2", "xlnet", "gpt2", "llama", "t5")
OF_IMAGES = ("vit", "convnext", "resnet")
OF_SOUNDS = ("wav2vec2",)
EXPRESSIONS = {
    "text": (
        "ERM()",
        "SequenceMixup(layers=[0])",
        "SequenceMixup(layers=[0, 1, 'head'], per_sample=True)",
        "SequenceMixup.cls(prob=0.5)",
        "LogitMix(SequenceMixup(layers=[1]), weight=0.1)",
        "RandomChoice(SequenceMixup.cls(), ERM(label_smoothing=0.1))",
    ),
    "images": (
        "ERM()",
        "Mixup(alpha=1.0, prob=0.5)",
        "CutMix(alpha=1.0, per_sample=True)",
        "KMixup(alpha=1.0, k=3)",
        "PuzzleMix(block_counts=[2, 4])",
        "LogitMix(Mixup(alpha=3.0))",
        "RegMixup(CutMix(alpha=1.0), split_forward=True)",
        "Warmup(RandomChoice(Mixup(alpha=0.8), CutMix(alpha=1.0)), epochs=1)",
    ),
    "sounds": ("Mixup(alpha=1.0)", "RegMixup(Mixup(alpha=10.0))", "GaussianVicinity(sigma=0.1)"),
}


def cases() -> Iterator[tuple[str, nn.Module, Any, Tensor, list[vicinal.Objective]]]:
    """Yield a few models of each kind, with a batch and the objectives for it."""
    from benchmarks.matrix import batch_of, models_of, without_dropout

    for family, names in (("text", OF_TEXTS), ("images", OF_IMAGES), ("sounds", OF_SOUNDS)):
        for name in names:
            torch.manual_seed(0)
            model = without_dropout(models_of(family)[name]())
            objectives = [vicinal.parse(text) for text in EXPRESSIONS[family]]
            if name == "t5":  # no layer but the head can be mixed
                objectives = [o for o in objectives if "layers=(0" not in repr(o) and "layers=(1" not in repr(o)]
            layer = encoder_layer_names(model)[0] if name in ("bert", "vit") else ""
            objectives += [vicinal.ManifoldMixup(layers=[layer])] if layer else []
            yield f"{family}/{name}", model, *batch_of(family, name), objectives


class Noting(vicinal.Objective):
    """An objective that writes down each batch, and where torch's generator was before it drew."""

    def __init__(self, objective: vicinal.Objective) -> None:
        self.objective, self.noted = objective, []

    def compute_terms(self, model: Any, x: Any, y: Tensor, step: Any) -> dict[str, Tensor]:
        kept = {key: t.clone() for key, t in x.items()} if isinstance(x, dict) else x.clone()
        self.noted.append((kept, y.clone(), torch.get_rng_state(), step.epoch))
        return self.objective.compute_terms(model, x, y, step)

    def __repr__(self) -> str:
        return repr(self.objective)


def by_hand(model: nn.Module, noting: Noting) -> nn.Module:
    """Return the model after the noted steps of gradient descent."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    with torch.random.fork_rng():
        for x, y, state, epoch in noting.noted:
            torch.set_rng_state(state)
            optimizer.zero_grad()
            noting.objective(model, x, y, epoch=epoch).backward()
            optimizer.step()
    return model


def check_same(a: nn.Module, b: nn.Module, *, what: str = "weights") -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{what} of {name}: {m}")


def check_trainer(model: nn.Module, x: dict[str, Tensor], y: Tensor, objective: vicinal.Objective) -> None:
    """MixupTrainer takes the steps of a loop, and evaluates by plain cross-entropy."""
    from transformers import PrinterCallback, TrainingArguments

    from vicinal.integrations.huggingface import MixupTrainer, compute_metrics

    rows = [{**{key: t[i] for key, t in x.items()}, "labels": int(y[i]), "index": i} for i in range(len(y))]
    noting, plain = Noting(objective), copy.deepcopy(model)
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"per_device_train_batch_size": len(y) // 2, "num_train_epochs": 2}
        options |= {"optim": "sgd", "learning_rate": LR, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
        options |= {
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": True,
            "save_strategy": "no",
            "logging_strategy": "no",
        }
        args = TrainingArguments(folder, **options)
        trainer = MixupTrainer(
            model, args, train_dataset=rows, eval_dataset=rows, objective=noting, compute_metrics=compute_metrics
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        measured = trainer.evaluate()
    assert len(noting.noted) == 4, "not two steps in each of two epochs"
    check_same(model, by_hand(plain, noting))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(call(model.eval(), x), y)
    torch.testing.assert_close(measured["eval_nll"], float(loss), rtol=1e-4, atol=1e-5)


def check_lightning(model: nn.Module, x: Any, y: Tensor, objective: vicinal.Objective) -> None:
    """A module with the mixin takes the steps of a loop, and its metrics are those of the library."""
    from lightning import LightningModule, Trainer
    from torch.utils.data import DataLoader

    from vicinal.integrations.lightning import MixupMixin

    class Module(MixupMixin, LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.objective = model, noting

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.inner(*args, **kwargs)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=LR)

    noting = Noting(within(objective, "inner."))
    plain = Noting(objective)
    start = copy.deepcopy(model)
    rows: list[Any] = [{**{key: t[i] for key, t in x.items()}, "labels": y[i]} for i in range(len(y))]
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="cpu", max_epochs=2, enable_model_summary=False, num_sanity_val_steps=0, **quiet)
    trainer.fit(Module(), DataLoader(rows, len(y) // 2, shuffle=True), DataLoader(rows, 3))
    plain.noted = noting.noted
    check_same(model, by_hand(start, plain))
    with torch.no_grad():
        expected = metrics.ReliabilityTable(15).update(y, logits=call(model.eval(), x)).ece()
    torch.testing.assert_close(float(trainer.callback_metrics["val_ece"]), expected, rtol=1e-4, atol=1e-5)


def within(objective: vicinal.Objective, prefix: str) -> vicinal.Objective:
    """Return the objective for a model that is a part of another."""
    if not isinstance(objective, vicinal.ManifoldMixup):
        return objective
    return vicinal.ManifoldMixup(layers=[prefix + name for name in objective.layers], alpha=objective.alpha)


def check_wrapped(model: nn.Module, wrapped: nn.Module, x: Any, y: Tensor, objective: vicinal.Objective) -> None:
    """A compiled or sharded model has the loss and the gradients of the plain one."""
    losses = []
    for each in (model, wrapped):
        each.train().zero_grad()
        torch.manual_seed(3)
        losses.append(objective(each, x, y, epoch=2.0, generator=torch.Generator().manual_seed(1)))
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    for (name, p), q in zip(model.named_parameters(), wrapped.parameters(), strict=True):
        grad = q.grad.full_tensor() if hasattr(q.grad, "full_tensor") else q.grad
        assert (p.grad is None) == (grad is None), f"gradient of {name}"
        if grad is not None:
            torch.testing.assert_close(grad, p.grad, rtol=1e-3, atol=1e-5)


def compiled(model: nn.Module) -> nn.Module:
    torch._dynamo.reset()
    return torch.compile(copy.deepcopy(model), backend="aot_eager")  # type: ignore[return-value]


def sharded(model: nn.Module) -> nn.Module:
    """Return a copy whose parameters are sharded, each large part for itself, over the one process there is."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh, copied = dist.device_mesh.init_device_mesh("cpu", (1,)), copy.deepcopy(model)
    for name in encoder_layer_names(copied) if getattr(copied.config, "is_encoder_decoder", None) is False else []:
        fully_shard(copied.get_submodule(name), mesh=mesh)
    fully_shard(copied, mesh=mesh)
    return copied


def check_sklearn(text: str) -> None:
    """An objective as text trains as the object does, learns, and takes weights."""
    import numpy as np
    from sklearn.datasets import load_iris

    from vicinal.integrations.sklearn import MixupClassifier

    X, y = load_iris(return_X_y=True)
    options = {"hidden_layer_sizes": (16,), "max_iter": 8, "random_state": 0, "learning_rate_init": 0.01}
    fitted = [MixupClassifier(o, **options).fit(X, y) for o in (text, vicinal.parse(text))]
    np.testing.assert_array_equal(*(m.predict_proba(X) for m in fitted))
    assert fitted[0].score(X, y) > 0.8, "has not learned"
    ones = MixupClassifier(text, **options).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_allclose(ones.predict_proba(X), fitted[0].predict_proba(X), atol=1e-4)


def check_torchmetrics(preds: str) -> None:
    """Beside torchmetrics' own in a collection, batch by batch, the metrics are the library's."""
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy

    from vicinal.integrations.torchmetrics import ECE, OE

    torch.manual_seed(0)
    logits, y = 3 * torch.randn(500, 5), torch.randint(5, (500,))
    given = logits if preds == "logits" else logits.softmax(1)
    ours = {"ece": ECE(preds=preds, ignore_index=4), "oe": OE(preds=preds, ignore_index=4)}
    every = MetricCollection({"accuracy": MulticlassAccuracy(5, average="micro", ignore_index=4), **ours})
    for batch, labels in zip(given.split(64), y.split(64), strict=True):
        every.update(batch, labels)
    values, kept = every.compute(), y != 4
    table = metrics.ReliabilityTable(15).update(y[kept], logits=logits[kept])
    for name, metric in (("ece", table.ece()), ("oe", table.oe())):
        torch.testing.assert_close(float(values[name]), metric)
    torch.testing.assert_close(float(values["accuracy"]), float((logits.argmax(1) == y)[kept].float().mean()))


def run_clients(one: str, attempt: Attempt) -> None:
    """Check every client, or one."""
    if one in ("", "sklearn"):
        plain = [o for o in EXPRESSIONS["images"] if "CutMix" not in o and "PuzzleMix" not in o]
        for text in (*plain, "ManifoldMixup(layers=['hidden1'])", "RandomChoice(Mixup(alpha=0.8), ERM())"):
            attempt(f"clients/sklearn {text}", lambda text=text: check_sklearn(text))
    if one in ("", "torchmetrics"):
        for preds in ("probs", "logits"):
            attempt(f"clients/torchmetrics {preds}", lambda preds=preds: check_torchmetrics(preds))
    checks: dict[str, Callable[[nn.Module, Any, Tensor, vicinal.Objective], None]] = {
        "trainer": lambda m, x, y, o: check_trainer(copy.deepcopy(m), x, y, o),
        "lightning": lambda m, x, y, o: check_lightning(copy.deepcopy(m), x, y, o),
        "compiled": lambda m, x, y, o: check_wrapped(m, compiled(m), x, y, o),
        "sharded": lambda m, x, y, o: check_wrapped(m, sharded(m), x, y, o),
    }
    for client, check in checks.items():
        for name, model, x, y, objectives in cases() if one in ("", client) else ():
            for o in objectives:
                given = (model, x, y, o)
                attempt(f"clients/{client} {name} {o!r}", lambda check=check, given=given: check(*given))
