"""Training: one readable loop on Accelerate, whose runs can be killed at any moment.

`fitting` has `fit`, and `loop` the training itself. They stand on `config` (how to train), `batches` (which samples
when), `predicting` (logits, of validation sets and of all else), `folder` (what is on disk), `environment` (what is
borrowed and given back) and `progress` (what is on the screen).
"""

from vicinal._arrays import kept_memory
from vicinal.objectives.guided.aum import AUMRecorder
from vicinal.training.config import FitConfig
from vicinal.training.fitting import FitResult, fit
from vicinal.training.folder import load_weights, read_predictions

__all__ = ["fit", "FitConfig", "FitResult", "AUMRecorder", "kept_memory", "load_weights", "read_predictions"]
