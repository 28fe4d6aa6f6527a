"""The names of the files of a run: those of its training (`vicinal.training.layout`) and these.

run/
experiment.json           the options of the experiment, and what the data turned out to be
splits.json               which samples of the source are in which split
train-digests.npy         a hash of each training row or text, to recognise it in new data
model.json                with the weights the trained model: see `vicinal.runs.bundle`
predictions-test.parquet  logits of the test set; predictions-eval-1.parquet of an extra evaluation set
groups.json               the group of each held-out sample, where samples have groups
weights.json              the weight of each held-out sample, where samples have weights
mistakes.json             the most confident mistakes on the test set, and the error slices
importance.json           the importance of columns on the test set
baselines.json            the metrics of baselines on the test set
evaluation.json           the metrics of each set, before and after the temperature: all is done

members/                  the trainings of an ensemble, a folder each
head/                     the training of a linear head on a frozen network
audit/                    trainings and audit.json, what they say about the labels
error.txt                 why a cell of a grid failed
"""

from __future__ import annotations

import os
from pathlib import Path

from vicinal.training.layout import TrainingFiles


class RunFiles(TrainingFiles):
    """Where everything is in the folder of a run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.experiment = self.path / "experiment.json"
        self.splits = self.path / "splits.json"
        self.digests = self.path / "train-digests.npy"
        self.groups = self.path / "groups.json"
        self.weights_of_samples = self.path / "weights.json"
        self.model = self.path / "model.json"
        self.mistakes = self.path / "mistakes.json"
        self.importance = self.path / "importance.json"
        self.baselines = self.path / "baselines.json"
        self.evaluation = self.path / "evaluation.json"
        self.audit_record = self.path / "audit" / "audit.json"
        self.head = self.path / "head"

    def member(self, number: int) -> Path:
        """Return the folder of one training of an ensemble, from 1."""
        return self.path / "members" / f"member-{number}"

    def audit_training(self, name: str) -> Path:
        """Return the folder of one of the trainings of an audit: `"fold-1"`, or `"training-1"` of one by margins."""
        return self.path / "audit" / name
