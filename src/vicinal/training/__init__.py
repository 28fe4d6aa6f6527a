"""Training: one readable loop on Accelerate, whose runs can be killed at any moment.

`fitting` has `fit`, and `loop` the training itself. They stand on `config` (how to train), `batches` (which samples
when), `predicting` (logits, of validation sets and of all else), `folder` (what is on disk), `layout` (the names of its
files), `environment` (what is borrowed and given back) and `progress` (what is on the screen).

Names are imported on first use: `config`, from which the command makes its options, needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal._memory import kept_memory
    from vicinal.objectives.guided.aum import AUMRecorder
    from vicinal.training.config import FitConfig
    from vicinal.training.fitting import FitResult, fit
    from vicinal.training.folder import load_weights, read_predictions

__all__ = ["fit", "FitConfig", "FitResult", "AUMRecorder", "kept_memory", "load_weights", "read_predictions"]

_HOMES = {
    "AUMRecorder": "vicinal.objectives.guided.aum",
    "FitConfig": "vicinal.training.config",
    "FitResult": "vicinal.training.fitting",
    "fit": "vicinal.training.fitting",
    "kept_memory": "vicinal._memory",
    "load_weights": "vicinal.training.folder",
    "read_predictions": "vicinal.training.folder",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'vicinal.training' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
