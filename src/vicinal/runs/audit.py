"""Which training labels of a run look wrong: two plain trainings with threshold samples (Pleiss et al. 2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vicinal import _random
from vicinal._checks import integer
from vicinal._files import write_json
from vicinal.objectives.guided.aum import AUM
from vicinal.probes.mislabelled import Audit, find_mislabelled
from vicinal.runs.defaults import default_config
from vicinal.runs.mistakes import shown
from vicinal.runs.run import Outcome
from vicinal.training import AUMRecorder, fit

__all__ = ["audited"]


@_random.restored_globals()
def audited(
    outcome: Outcome,
    *,
    percentile: float = 99.0,
    n: int = 50,
    progress: bool = True,
    on_note: Callable[[str], None] | None = None,
) -> tuple[Audit, list[dict[str, Any]]]:
    """Return the audit of a run's training labels, and the most suspicious samples ready to be shown.

    The network of the run is trained plainly, twice, with one more class that a share of 1/(K + 1) of the samples are
    put into, a different one each time. A label is suspicious where its margin, averaged over training, is no better
    than that of samples which do not belong where they were put. The trainings are kept in the run's folder `audit`, so
    an audit that was stopped goes on.

    Parameters
    ----------
    outcome
        A finished run.
    percentile
        Of the threshold samples' margins, up to which a sample is suspicious.
    n
        How many samples to return, the most suspicious first.
    progress
        Show progress where standard error is a terminal.
    on_note
        Called with each thing worth saying.
    """
    integer("n", n, low=1)
    files, spec, task = outcome.run.files, outcome.run.bundle().spec, outcome.run.task()
    say = on_note or (lambda note: None)
    experiment = outcome.experiment
    config = dataclasses.replace(
        default_config(task.kind, spec.name, experiment.training, seed=experiment.seed, n_train=len(task.train)),
        select="last",
        patience=None,
        keep_predictions_at=(),
        eval_every_steps=None,
        trackers=(),
    )

    def train(labels: Tensor, n_outputs: int, number: int) -> Tensor:
        say(f"training {number + 1} of 2: {int((labels == n_outputs - 1).sum())} samples put into a class of their own")
        with _random.restored_globals():
            _random.seed_globals(_random.seed_from("audit", experiment.seed, number))
            model = dataclasses.replace(spec, n_classes=n_outputs).build()
        recorder = AUMRecorder(AUM(len(task.train)))
        fit(
            model,
            recorder,
            task.train.relabelled(labels.tolist()),
            out=files.audit_training(number + 1),
            config=config,
            collate_fn=task.collate_fn,
            progress=progress,
            about={"fingerprint": task.fingerprint, "network": spec.to_dict()},
        )
        return recorder.aum.values()

    generator = torch.Generator().manual_seed(_random.seed_from("audit", experiment.seed))
    labels = torch.tensor(task.train.labels)
    audit = find_mislabelled(train, labels, len(task.classes), percentile=percentile, generator=generator)
    worst = audit.ranking[:n].tolist()
    samples = [
        {
            "index": task.train.indices[i],
            "label": task.classes[int(labels[i])],
            "aum": float(audit.aum[i]),
            "threshold": audit.thresholds[int(audit.run[i])],
            "suspicious": bool(audit.suspicious[i]),
            **shown(task.train, i, original),
        }
        for i, original in zip(worst, task.train.raws(worst), strict=True)
    ]
    counts = {"suspicious": int(audit.suspicious.sum()), "n": len(labels), "percentile": audit.percentile}
    write_json(files.audit_record, {**counts, "samples": samples})
    return audit, samples
