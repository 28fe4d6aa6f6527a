"""The names of the files of a training: the one place that knows them.

folder/
config.json               what `fit` was asked for: method, configuration, sizes; written once
metrics.jsonl             one line per evaluation or epoch; the same training writes the same bytes
checkpoint/               checkpoint.json names the files that belong to it; replacing it is the commit
first-stage/              a training of its own: the plain one before `GuidedMixup`
model.safetensors         the selected weights
predictions.parquet       index, label and logits of the validation set, before the temperature
predictions-epoch-1.parquet       … after an epoch
result.json               best and last metrics, versions, timings: training is finished
"""

from __future__ import annotations

import os
from pathlib import Path


class TrainingFiles:
    """Where everything is in the folder of a training."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path = Path(path)
        self.lock = path / ".lock"
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint"
        self.checkpoint_record = self.checkpoint / "checkpoint.json"
        self.initial_weights = path / "initial.safetensors"
        self.weights = path / "model.safetensors"
        self.result = path / "result.json"
        self.tensorboard = path / "tensorboard"
        self.error = path / "error.txt"

    @property
    def first_stage(self) -> TrainingFiles:
        """The training of the first stage, inside this one."""
        return TrainingFiles(self.path / "first-stage")

    def predictions(self, key: str = "val") -> Path:
        """Return the predictions of a set: `"val"`, `"test"`, …, or `"epoch-1"` for validation after it."""
        return self.path / ("predictions.parquet" if key == "val" else f"predictions-{key}.parquet")

    def kept_predictions(self) -> list[Path]:
        """Return the predictions that training wrote: of validation, and of each set after the epochs asked for."""
        return [self.predictions(), *sorted(self.path.glob("predictions-*epoch-*.parquet"))]
