"""What the trainings of a recipe take, before anything trains: disk, and how their batches are cut."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from vicinal import models
from vicinal.papers.execute import Plan
from vicinal.papers.hardware import HELD, MEMORIES, Size, held, micro_batch
from vicinal.papers.keys import training_record
from vicinal.papers.sources import SOURCES
from vicinal.papers.trained import FitJob, TrainingJob
from vicinal.runs import Experiment

#: A run keeps the selected weights, and a checkpoint of the last ones with the optimizer's state.
COPIES = 4


class Batch(NamedTuple):
    """A batch of the paper, and what it is cut into in half precision."""

    network: str
    batch: int
    method: str
    """The methods' name, where a step of theirs holds more than the batch."""
    cut: tuple[str, ...]
    """For each of `MEMORIES`: micro-batch × accumulation."""


def batches(plan: Plan) -> list[Batch]:
    """Return the batches of a plan's trainings, and their micro-batches for each size of GPU memory."""
    found: dict[Batch, None] = {}
    for one in filter(None, map(_experiment, plan.trainings.values())):
        record: Any = training_record(one)
        # On hardware that was asked for the batch is cut already.
        batch = record["training"]["batch_size"] * record["training"]["accumulation"]
        n = held(one.method)
        cuts = (micro_batch(Size(str(one.model), batch, n), memory) for memory in MEMORIES)
        cut = tuple(f"{micro:,} × {accumulation}" for micro, accumulation in cuts)
        name = next((name.rstrip("(") for name in HELD if name in one.method), "")
        found[Batch(str(one.model), batch, name, cut)] = None
    return list(found)


def gigabytes(plan: Plan) -> float:
    """Return the disk that the runs of a plan take."""
    total = 0.0
    for one in filter(None, map(_experiment, plan.trainings.values())):
        stages = 2 if "GuidedMixup" in one.method else 1
        total += stages * COPIES * _weights(str(one.model), _frozen(one.model_options))
    return total


def _experiment(job: TrainingJob | FitJob) -> Experiment | None:
    """Return what a job trains; None for a toy."""
    if isinstance(job, TrainingJob):
        return job.experiment
    if "experiment" in job.settings:
        return Experiment.from_dict(job.settings["experiment"])
    scored = next((of for of in job.settings.values() if isinstance(of, dict) and "training" in of), None)
    if scored is None:
        return None
    method, network = job.settings["method"], job.settings["network"]
    return Experiment(source="glue:stsb", method=method, model=network, training=scored["training"])


def _frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())


@functools.cache
def _weights(network: str, options: tuple[tuple[str, Any], ...]) -> float:
    """Return the gigabytes of a network's weights; networks of words and sounds are small."""
    if network in SOURCES:
        return SOURCES[network].gigabytes
    try:
        with torch.device("meta"):
            built = models.build(network, kind="image", n_classes=1000, input_shape=(3, 32, 32), **dict(options))
    except (TypeError, ValueError):
        return 0.01
    return sum(4 * one.numel() for one in built.parameters()) / 1e9
