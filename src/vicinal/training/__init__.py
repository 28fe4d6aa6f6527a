"""Training: one readable loop on Accelerate, whose runs can be killed at any moment.

`fitting` has `fit`, and `loop` the training itself. They stand on `config` (how to train), `batches` (which samples
when), `predicting` (logits, of validation sets and of all else), `folder` (what is on disk), `layout` (the names of its
files), `environment` (what is borrowed and given back) and `progress` (what is on the screen).

Names are imported on first use: `config`, from which the command makes its options, needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import on_first_use

if TYPE_CHECKING:
    from vicinal._memory import kept_memory
    from vicinal.objectives.guided.aum import AUMRecorder
    from vicinal.training.config import FitConfig
    from vicinal.training.fitting import FitResult, fit
    from vicinal.training.folder import load_weights, read_predictions

__all__ = ["fit", "FitConfig", "FitResult", "AUMRecorder", "kept_memory", "load_weights", "read_predictions"]

__getattr__ = on_first_use(
    __name__,
    {
        ".config": ["FitConfig"],
        ".fitting": ["FitResult", "fit"],
        ".folder": ["load_weights", "read_predictions"],
        "vicinal._memory": ["kept_memory"],
        "vicinal.objectives.guided.aum": ["AUMRecorder"],
    },
)
