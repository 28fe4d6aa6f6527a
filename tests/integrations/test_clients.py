"""The objectives with clients that no extra brings: timm, fastai, Keras, optuna. Skipped where they are missing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vicinal


def test_timm_with_checkpointed_blocks():
    timm = pytest.importorskip("timm", reason="needs timm: pip install timm")
    torch.manual_seed(0)
    model: nn.Module = timm.create_model("resnet10t", num_classes=4).train()
    x, y = torch.randn(6, 3, 32, 32), torch.arange(6) % 4
    plans = torch.Generator()
    for layer in ("input", "layer1", "layer3"):
        objective = vicinal.ManifoldMixup(layers=[layer])
        grads = []
        for checkpointed in (False, True):
            model.set_grad_checkpointing(checkpointed)
            model.zero_grad()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):  # a checkpointed block runs twice, and would count twice
                    module.momentum = 0.0
            loss = objective(model, x, y, generator=plans.manual_seed(0))
            loss.backward()
            grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        for plain, again in zip(*grads, strict=True):
            torch.testing.assert_close(plain, again, rtol=1e-4, atol=1e-6)


def test_fastai_tensors_are_the_tensors_they_are():
    fastai = pytest.importorskip("fastai.torch_core", reason="needs fastai: pip install fastai")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 3
    marked = fastai.TensorImage(x), fastai.TensorCategory(y)
    for objective in (
        vicinal.Mixup(alpha=0.4),
        vicinal.CutMix(),
        vicinal.ManifoldMixup(layers=["0"]),
        vicinal.LogitMix(vicinal.Mixup(alpha=3.0)),
        vicinal.RegMixup(vicinal.Mixup(alpha=10.0)),
    ):
        plain, same = (
            objective(model, *batch, generator=torch.Generator().manual_seed(0)) for batch in ((x, y), marked)
        )
        assert type(same) is torch.Tensor
        torch.testing.assert_close(plain, same)


def test_a_search_over_the_objective(tmp_path: Path):
    optuna = pytest.importorskip("optuna", reason="needs optuna: pip install optuna")
    pytest.importorskip("transformers", reason="needs transformers: pip install 'vicinal[text]'")
    from tests.integrations.test_huggingface import arguments, rows, small_bert
    from vicinal.integrations.huggingface import MixupTrainer, compute_metrics

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tried: list[float] = []

    def objective(trial: Any) -> vicinal.Objective:
        tried.append(trial.suggest_float("alpha", 0.1, 1.0))
        return vicinal.SequenceMixup.cls(alpha=tried[-1])

    trainer = MixupTrainer(
        args=arguments(tmp_path, eval_strategy="steps", eval_steps=1),
        model_init=lambda trial=None: small_bert(),
        train_dataset=rows(8),
        eval_dataset=rows(8),
        objective=vicinal.ERM(),
        objective_init=objective,
        compute_metrics=compute_metrics,
    )
    best = trainer.hyperparameter_search(
        hp_space=lambda trial: {}, n_trials=2, backend="optuna", compute_objective=lambda metrics: metrics["eval_nll"]
    )
    assert len(set(tried)) == 2
    assert best.hyperparameters["alpha"] in tried
    assert trainer.training_objective == vicinal.SequenceMixup.cls(alpha=tried[-1])


# Keras and fastai call what numpy and torch have deprecated.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning", "ignore:`torch.jit:FutureWarning")
@pytest.mark.parametrize(
    ("example", "package"),
    [
        ("huggingface_vision", "transformers"),
        ("timm_loop", "timm"),
        ("fastai_learner", "fastai"),
        ("keras_model", "keras"),
    ],
)
def test_the_examples_run(example: str, package: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any):
    if package == "keras" and package not in sys.modules:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip(package, reason=f"needs {package}: pip install {package}")
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'vicinal[train]'")
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / f"{example}.py"), run_name="__main__")
    said = capsys.readouterr().out
    accuracy = next(line for line in said.splitlines() if line.startswith("accuracy"))
    assert float(accuracy.split()[1]) > 0.8
    assert "ece" in said
