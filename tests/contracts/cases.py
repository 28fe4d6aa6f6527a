"""One or more instances of every public objective and calibrator: what the contracts run over.

A new one adds its line here; a test fails until it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import vicinal
from vicinal.calibrators import (
    BetaCalibration,
    Calibrator,
    DirichletCalibration,
    HistogramBinning,
    IsotonicCalibration,
    MixtureCalibration,
    QuadraticScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    VennAbersCalibration,
)
from vicinal.objectives.base import Objective

K = 5


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.hidden = nn.Sequential(nn.Linear(3 * 8 * 8, 16), nn.ReLU())
        self.head = nn.Linear(16, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self.flat(x)))


class CNN(nn.Module):
    """With BatchNorm, dropout and a nested block: what mixing must not disturb."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.hidden(x).mean((2, 3))))


@dataclass
class Output:
    logits: Tensor


class WithLogits(MLP):
    """Returns an object with `.logits`, as Hugging Face models do."""

    def forward(self, x: Tensor) -> Output:  # type: ignore[override]
        return Output(super().forward(x))


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": MLP, "cnn": CNN, "logits": WithLogits}

_EXPRESSIONS = [
    "ERM()",
    "ERM(label_smoothing=0.1, confidence_penalty=0.1)",
    "Focal()",
    "Focal(gamma=2.0, low_gamma=2.0)",
    "Mixup(alpha=0.4)",
    "Mixup(alpha=0.4, labels='nearest', per_sample=True, label_smoothing=0.1)",
    "Mixup(alpha=1.0, partners='same_class')",
    "KMixup(alpha=1.0, k=3)",
    "KMixup(alpha=1.0, k=3, per_sample=True)",
    "GaussianVicinity(sigma=0.1)",
    "CutMix(alpha=1.0)",
    "CutMix(alpha=1.0, prob=0.5, per_sample=True)",
    "ResizeMix()",
    "LogitMix(ResizeMix(), weight=0.1)",
    "ManifoldMixup(layers=['input', 'hidden'])",
    "ManifoldMixup(layers=['hidden.0'], alpha=inf)",
    "LogitMix(Mixup(alpha=3.0))",
    "LogitMix(CutMix(alpha=1.0), weight=0.1, similarity='l2')",
    "LogitMix(ManifoldMixup(layers=['hidden']), similarity='probs', split_forward=True)",
    "PuzzleMix(block_counts=[2, 4])",
    "PuzzleMix(solver='exact', clean_weight=0.5, transport=False)",
    "LogitMix(PuzzleMix(block_counts=[2, 4]), weight=0.5)",
    "RegMixup(Mixup(alpha=10.0))",
    "RegMixup(KMixup(alpha=1.0, k=3), weight=0.5)",
    "Warmup(Mixup(alpha=0.1), epochs=1)",
    "During(LogitMix(Mixup(alpha=3.0)), start=1, stop=3)",
    "RandomChoice(Mixup(alpha=0.8, prob=0.5), CutMix(alpha=1.0), probs=[0.25, 0.75])",
]
OBJECTIVES: dict[str, Objective] = {text: vicinal.parse(text) for text in _EXPRESSIONS}

#: Objectives that need a transformer or training state; their own test files hold the contract for them.
ELSEWHERE: dict[str, str] = {
    "SequenceMixup": "objectives/test_sequence.py",
    "GuidedMixup": "objectives/guided/test_objective.py",
}


def batch(n: int = 6, *, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, 3, 8, 8, generator=generator).to(dtype)
    return x, torch.randint(K, (n,), generator=generator)


#: Not fitted; who fits one makes a copy.
CALIBRATORS: list[Calibrator] = [
    TemperatureScaling(),
    TemperatureScaling(search="grid"),
    TemperatureScaling(search="grid", criterion="ece", n_bins=10),
    StructuredVectorScaling(),
    StructuredMatrixScaling(),
    StructuredMatrixScaling(max_classes=2),
    QuadraticScaling(),
    BetaCalibration(),
    IsotonicCalibration(),
    VennAbersCalibration(),
    DirichletCalibration(),
    VectorScaling(),
    HistogramBinning(),
    HistogramBinning(n_bins=8, equal_mass=True),
    MixtureCalibration(members=("temperature", "isotonic", "sms"), shares=(0.25, 0.25, 0.5)),
]
