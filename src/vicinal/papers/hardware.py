"""A recipe on the GPUs that there are: precision, micro-batches, loader processes, compilation, device.

A step of the paper's batch is cut into micro-batches that fit into a GPU's memory. The rest is made up by accumulation
and by processes: 1,024 images are 128 × 8 on one GPU, and 128 on each of eight under `torchrun`. What changes digits is
part of a cell's key, so such options are for the paper scale alone.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from vicinal._atomic import Json
from vicinal._checks import Argument, ArgumentError, Sentence
from vicinal.papers.base import Recipe, Scale, Settings
from vicinal.papers.claims import Key
from vicinal.papers.keys import training_record
from vicinal.runs import Experiment
from vicinal.training.config import MECHANICAL

#: Samples of a micro-batch by network, for 24 and for 80 GB, in half precision: estimates by the sizes of activations.
#: In float32 half as many fit. ImageNet's images have 224 pixels a side. Texts have 256 tokens and up to four choices,
#: those of BERT-large 128.
MICRO_BATCHES = {
    "resnet50": (256, 1024),
    "resnet101": (128, 512),
    "resnext50": (128, 512),
    "resnext101": (128, 512),
    "shufflenetv2": (1024, 4096),
    "wideresnet28-10": (128, 128),
    "densenet-bc-190": (32, 128),
    "hf:google-bert/bert-base-uncased": (16, 64),
    "hf:FacebookAI/roberta-base": (16, 64),
    "hf:google-bert/bert-large-uncased": (8, 32),
}
#: Samples of which a step keeps activations, for each of a batch: clean ones beside mixed ones.
HELD = {"LogitMix(": 2, "RegMixup(": 2, "GuidedMixup(": 3}
#: The gigabytes that the two columns are for.
MEMORIES = (24, 80)


@dataclass(frozen=True)
class Hardware:
    """How trainings of a recipe run; None leaves what the recipe says."""

    device: str | None = None
    gpu_memory: int | None = None
    """Gigabytes of a GPU: cuts batches into micro-batches that fit."""
    mixed_precision: str | None = None
    accumulation: int | None = None
    num_workers: int | None = None
    compile: bool | None = None
    channels_last: bool | None = None

    def __post_init__(self) -> None:
        if self.gpu_memory is not None and self.gpu_memory < MEMORIES[0]:
            raise ArgumentError("gpu_memory", self.gpu_memory, f"at least {MEMORIES[0]}, in gigabytes")

    def of(self, recipe: Recipe, scale: str) -> Recipe:
        """Return the recipe with its trainings on this hardware."""
        changes = [name for name in ("gpu_memory", "mixed_precision", "accumulation", "compile", "channels_last")
                   if getattr(self, name) not in (None, False)]  # fmt: skip
        if changes and scale != "paper":
            fixed = " changes digits, and the cells of smaller scales are fixed: leave it out, or pass "
            raise ValueError(
                Sentence(Argument(changes[0], getattr(self, changes[0])), fixed, Argument("scale", "paper"))
            )
        before, cells = recipe.trainings, recipe.cells

        def trainings(one: Experiment) -> tuple[Experiment, ...]:
            return tuple(self._adapted(each) for each in ((one,) if before is None else before(one)))

        def adapted_cells(at: Scale) -> Iterator[tuple[Key, Settings]]:
            for key, settings in () if cells is None else cells(at):
                yield key, self._settings({**at.settings, **settings})

        asked = {name: getattr(self, name) for name in changes}
        return dataclasses.replace(recipe, trainings=trainings, cells=adapted_cells, hardware=asked)

    def _settings(self, settings: Settings) -> Settings:
        """Return the settings of a row that is no experiment, with the trainings that they describe adapted."""
        adapted = dict(settings)
        for name, value in settings.items():
            if name == "experiment":
                adapted[name] = self._adapted(Experiment.from_dict(value), settings.get("passes", 1)).to_dict()
            elif isinstance(value, Mapping) and "training" in value:
                changed = self._options(settings["network"], value["training"], held(settings["method"]))
                # These settings are part of the key as they are: what does not change digits stays out.
                kept = {option: one for option, one in changed.items() if option not in MECHANICAL}
                adapted[name] = {**value, "training": {**value["training"], **kept}}
        return adapted

    def _adapted(self, one: Experiment, passes: int = 1) -> Experiment:
        resolved: Json = training_record(one)  # a recipe may leave the batch to the default
        options = self._options(str(one.model), resolved["training"], passes * held(one.method))
        return dataclasses.replace(one, training={**one.training, **options})

    def _options(self, network: str, training: Mapping[str, Any], n_held: int) -> dict[str, object]:
        """Return the options of a training that this hardware sets, if a step holds so many samples for each one."""
        names = ("device", "mixed_precision", "accumulation", "num_workers", "compile", "channels_last")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.gpu_memory is not None:
            half = given.get("mixed_precision", training.get("mixed_precision", "no")) != "no"
            size = Size(network, int(training["batch_size"]), n_held * (1 if half else 2))
            micro, accumulation = micro_batch(size, self.gpu_memory)
            given |= {"batch_size": micro, "accumulation": accumulation}
        return given


class Size(NamedTuple):
    """What a step takes."""

    network: str
    batch: int
    held: int
    """For each sample, of how many samples it keeps activations in half precision."""


def micro_batch(size: Size, gpu_memory: int) -> tuple[int, int]:
    """Return the micro-batch and the accumulation that make up a batch over all processes.

    >>> micro_batch(Size("resnet50", 1024, 1), 24), micro_batch(Size("resnet50", 1024, 2), 80)
    ((256, 4), (512, 2))
    """
    column = sum(gpu_memory >= memory for memory in MEMORIES) - 1
    most = size.batch
    if size.network in MICRO_BATCHES:
        most = max(MICRO_BATCHES[size.network][column] // size.held, 1)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if size.batch % processes:
        raise ValueError(f"a batch of {size.batch} cannot be divided among {processes} processes")
    share = size.batch // processes
    micro = next(size for size in range(min(most, share), 0, -1) if share % size == 0)
    return micro, share // micro


def held(method: str) -> int:
    """Return of how many samples a step keeps activations, for each of a batch.

    >>> held("Mixup(alpha=0.2)"), held("LogitMix(CutMix(alpha=3.0))")
    (1, 2)
    """
    return max((n for name, n in HELD.items() if name in method), default=1)
