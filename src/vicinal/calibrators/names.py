"""Calibrators by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vicinal._checks import choice
from vicinal.calibrators.base import Calibrator
from vicinal.calibrators.beta import BetaCalibration
from vicinal.calibrators.dirichlet import DirichletCalibration
from vicinal.calibrators.histogram import HistogramBinning
from vicinal.calibrators.isotonic import IsotonicCalibration
from vicinal.calibrators.quadratic import QuadraticScaling
from vicinal.calibrators.structured_matrix import StructuredMatrixScaling
from vicinal.calibrators.structured_vector import StructuredVectorScaling
from vicinal.calibrators.temperature import TemperatureScaling
from vicinal.calibrators.vector import VectorScaling
from vicinal.calibrators.venn_abers import VennAbersCalibration

#: By name, in the order of simplicity.
CALIBRATORS: Mapping[str, Callable[[], Calibrator]] = {
    "temperature": TemperatureScaling,
    "svs": StructuredVectorScaling,
    "sms": StructuredMatrixScaling,
    "quadratic": QuadraticScaling,
    "isotonic": IsotonicCalibration,
    "vector": VectorScaling,
    "dirichlet": DirichletCalibration,
    "beta": BetaCalibration,
    "venn-abers": VennAbersCalibration,
    "histogram": HistogramBinning,
}


def named(name: str, n_classes: int) -> Calibrator:
    """Return the calibrator of this name, not fitted; `"none"` is fitted already, to so many classes."""
    if name == "none":
        return TemperatureScaling.of(1.0, n_classes)
    return CALIBRATORS[choice("calibrator", name, tuple(CALIBRATORS))]()
