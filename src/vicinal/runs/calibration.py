"""The calibrators of a model, one for each head: fitted on held-out logits, stored with it, applied to all it answers.

A multi-class model has one head. A multi-label model has one for each label, which is a question of two classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal._atomic import Json
from vicinal.calibrators import CALIBRATORS, Calibrator, MixtureCalibration, TemperatureScaling
from vicinal.calibrators.two_logits import two_logits

#: The name of the only head of a multi-class model.
ONLY_HEAD = "class"


@dataclass(frozen=True, eq=False)
class HeadCalibrators:
    """A fitted calibrator for each head, by its name.

    >>> HeadCalibrators.of_temperatures({ONLY_HEAD: 2.0})(torch.tensor([[4.0, 0.0]])).tolist()
    [[2.0, 0.0]]
    """

    by_head: Mapping[str, Calibrator]

    @classmethod
    def of_temperatures(cls, temperatures: Mapping[str, float], n_classes: int = 2) -> HeadCalibrators:
        """Return calibrators that divide the logits of each head by a temperature."""
        return cls({name: TemperatureScaling.of(t, n_classes) for name, t in temperatures.items()})

    @property
    def is_multilabel(self) -> bool:
        """Whether each head is a label."""
        return tuple(self.by_head) != (ONLY_HEAD,)

    @property
    def temperatures(self) -> dict[str, float]:
        """The temperature of each head by its name; NaN for a head with another calibrator."""
        each = self.by_head.items()
        return {name: c.temperature_ if isinstance(c, TemperatureScaling) else math.nan for name, c in each}

    @property
    def temperature(self) -> float:
        """The mean temperature of all heads, of which multi-class has one; NaN with other calibrators."""
        return sum(self.temperatures.values()) / len(self.by_head)

    @property
    def only_temperatures(self) -> bool:
        """Whether all divide logits by a temperature, so that no prediction changes."""
        return all(isinstance(c, TemperatureScaling) for c in self.by_head.values())

    def text(self, head: str = ONLY_HEAD) -> str:
        """Return the calibrator of a head in a word or two: `"temperature 1.234"` or `"sms"`."""
        calibrator = self.by_head[head]
        if isinstance(calibrator, TemperatureScaling):
            return f"temperature {calibrator.temperature_:.3f}"
        if isinstance(calibrator, MixtureCalibration):
            return calibrator.text
        return next(name for name, kind in CALIBRATORS.items() if isinstance(calibrator, kind))  # type: ignore[arg-type]

    def head(self, name: str) -> HeadCalibrators:
        """Return the calibrator of one head, as that of a question of two classes."""
        return HeadCalibrators({ONLY_HEAD: self.by_head[name]})

    def __call__(self, logits: Tensor) -> Tensor:
        """Return calibrated logits of the same shape, in float64: `[N, K]`, or `[N, L]` with one for each label."""
        z = logits.double()
        if self.only_temperatures:
            return z / torch.tensor(list(self.temperatures.values()), dtype=torch.float64)
        if not self.is_multilabel:
            return self.by_head[ONLY_HEAD](z)
        both = [c(two_logits(z[:, k])) for k, c in enumerate(self.by_head.values())]
        return torch.stack([pair[:, 1] - pair[:, 0] for pair in both], dim=1)

    def to_dict(self) -> Json:
        """Return the calibrators as JSON can hold them: temperatures alone, or the state of each head's calibrator."""
        if not self.only_temperatures:
            return {"calibrators": {name: c.state_dict() for name, c in self.by_head.items()}}
        return {"temperatures": self.temperatures} if self.is_multilabel else {"temperature": self.temperature}

    @classmethod
    def from_dict(cls, record: Json, n_classes: int = 2, default: HeadCalibrators | None = None) -> HeadCalibrators:
        """Return what `to_dict` recorded among other facts; `default` where a record has none of its own."""
        if "calibrators" in record:
            states = record["calibrators"].items()
            return cls({str(name): Calibrator.from_state_dict(state) for name, state in states})
        if "temperatures" in record:
            return cls.of_temperatures({str(name): float(t) for name, t in record["temperatures"].items()})
        if "temperature" in record or default is None:
            return cls.of_temperatures({ONLY_HEAD: float(record["temperature"])}, n_classes)
        return default
