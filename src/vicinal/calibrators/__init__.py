"""Post-hoc calibration: `fit(logits, labels)` on held-out predictions, then call on logits.

Every calibrator maps logits `[N, K]` to calibrated logits `[N, K]`, so what takes logits (a loss, a metric,
another calibrator) takes its output; `predict_proba` is their softmax. Those that work on one class against the rest
return log-probabilities. `vicinal.calibrate` chooses one by cross-validation.

===========================  ========================  ====================  =========================================
calibrator                   learns                    predicted class       use it for
===========================  ========================  ====================  =========================================
`TemperatureScaling`         one number                kept                  any sample size; the default of training
`StructuredVectorScaling`    2K numbers, regularised   may change            classes biased differently
`StructuredMatrixScaling`    K² + K, regularised       may change            classes that are taken for each other
`QuadraticScaling`           3 numbers                 may change            two classes, wrong at one end
`BetaCalibration`            3 numbers                 may change            two classes, probabilities near 0 and 1
`IsotonicCalibration`        monotone functions        may change            two classes, thousands of samples
`VennAbersCalibration`       monotone functions        may change            two classes, with a range for each answer
`DirichletCalibration`       K² + K, regularised       may change            comparisons; the strength is to be chosen
`VectorScaling`              2K numbers                may change            comparisons; overfits small sets
`HistogramBinning`           K × n_bins values         may change            comparisons
`MixtureCalibration`         what its members learn    may change            several of these; what `auto` may take
===========================  ========================  ====================  =========================================

`Calibrator.load(path)` reads whichever of them was saved; `cross_validate` says whether one helps.
"""

from vicinal.calibrators.auto import Calibration, Candidate, calibrate
from vicinal.calibrators.base import Calibrator
from vicinal.calibrators.beta import BetaCalibration
from vicinal.calibrators.dirichlet import DirichletCalibration
from vicinal.calibrators.histogram import HistogramBinning
from vicinal.calibrators.isotonic import IsotonicCalibration
from vicinal.calibrators.mixture import MixtureCalibration
from vicinal.calibrators.names import CALIBRATORS
from vicinal.calibrators.parts import LossParts, loss_parts
from vicinal.calibrators.quadratic import QuadraticScaling
from vicinal.calibrators.structured_matrix import StructuredMatrixScaling
from vicinal.calibrators.structured_vector import StructuredVectorScaling
from vicinal.calibrators.temperature import TemperatureScaling
from vicinal.calibrators.validation import CrossValidation, cross_validate
from vicinal.calibrators.vector import VectorScaling
from vicinal.calibrators.venn_abers import VennAbersCalibration

__all__ = [
    "CALIBRATORS",
    "Calibration",
    "Calibrator",
    "Candidate",
    "TemperatureScaling",
    "StructuredVectorScaling",
    "StructuredMatrixScaling",
    "QuadraticScaling",
    "BetaCalibration",
    "IsotonicCalibration",
    "VennAbersCalibration",
    "DirichletCalibration",
    "VectorScaling",
    "HistogramBinning",
    "MixtureCalibration",
    "CrossValidation",
    "LossParts",
    "loss_parts",
    "calibrate",
    "cross_validate",
]
