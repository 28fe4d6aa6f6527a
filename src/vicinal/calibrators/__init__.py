"""Post-hoc calibration: `fit(logits, labels)` on held-out predictions, then call on logits.

Every calibrator maps logits `[N, K]` to calibrated logits `[N, K]`, so what takes logits (a loss, a metric,
another calibrator) takes its output; `predict_proba` is their softmax. `IsotonicCalibration` and
`HistogramBinning`, one class against the rest, return log-probabilities.

==========================  =====================  ====================  =============================
calibrator                  learns                 predicted class       use it for
==========================  =====================  ====================  =============================
`TemperatureScaling`        one number             kept                  the default; any sample size
`VectorScaling`             2K numbers             may change            classes biased differently
`HistogramBinning`          K × n_bins values      may change            few classes, no assumed shape
`IsotonicCalibration`       K monotone functions   may change            few classes, many samples
==========================  =====================  ====================  =============================

`Calibrator.load(path)` reads whichever of them was saved; `cross_validate` says whether one helps.
"""

from vicinal.calibrators.base import Calibrator
from vicinal.calibrators.histogram import HistogramBinning
from vicinal.calibrators.isotonic import IsotonicCalibration
from vicinal.calibrators.temperature import TemperatureScaling
from vicinal.calibrators.validation import CrossValidation, cross_validate
from vicinal.calibrators.vector import VectorScaling

__all__ = [
    "Calibrator",
    "TemperatureScaling",
    "VectorScaling",
    "IsotonicCalibration",
    "HistogramBinning",
    "CrossValidation",
    "cross_validate",
]
