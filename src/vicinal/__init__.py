"""Vicinal: train classifiers whose probabilities can be trusted, and prove it.

Every public name is imported on first use, so `import vicinal` costs next to nothing:

>>> import vicinal
>>> vicinal.Mixup(alpha=0.4).alpha
0.4
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import on_first_use

__version__ = "1.0.0"

#: The public objectives, and where each lives: what the command can name. A new method adds its one line here.
OBJECTIVES = {
    "ERM": "vicinal.objectives.erm",
    "Focal": "vicinal.objectives.focal",
    "Mixup": "vicinal.objectives.mixup",
    "KMixup": "vicinal.objectives.kmixup",
    "GaussianVicinity": "vicinal.objectives.gaussian",
    "CutMix": "vicinal.objectives.cutmix",
    "ResizeMix": "vicinal.objectives.resizemix",
    "ManifoldMixup": "vicinal.objectives.manifold",
    "PuzzleMix": "vicinal.objectives.puzzle.objective",
    "SequenceMixup": "vicinal.objectives.sequence",
    "GuidedMixup": "vicinal.objectives.guided.objective",
    "LogitMix": "vicinal.objectives.logitmix",
    "RegMixup": "vicinal.objectives.regmixup",
    "Warmup": "vicinal.objectives.schedule",
    "During": "vicinal.objectives.schedule",
    "RandomChoice": "vicinal.objectives.random_choice",
}

#: Where every other public name lives.
_HOMES = {
    "vicinal._memory": ["max_memory"],
    "vicinal.expressions": ["parse"],
    "vicinal.objectives.base": ["Objective"],
    "vicinal.objectives.guided.aum": ["AUM"],
    "vicinal.objectives.guided.sampler": ["BalancedBatchSampler"],
    "vicinal.metrics": [
        "ReliabilityTable",
        "Evaluation",
        "Comparison",
        "evaluate",
        "compare",
        "ood_report",
        "risk_coverage",
        "risk_threshold",
    ],
    "vicinal.probes.uncertainty": ["MCDropout", "Ensemble"],
    "vicinal.calibrators": [
        "Calibration",
        "calibrate",
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
    ],
    "vicinal.calibrators.conformal": ["LeastAmbiguousSets", "AdaptiveSets", "RegularisedSets"],
    "vicinal.training": ["fit"],
    "vicinal.runs.bundle": ["Bundle", "load"],
    "vicinal.runs.estimator": ["VicinalClassifier"],
}
_MODULES = ["calibrators", "data", "integrations", "losses", "metrics", "mixing", "models", "plots", "predictions",
            "probes", "report", "runs", "training"]  # fmt: skip

__all__ = [*OBJECTIVES, *(name for names in _HOMES.values() for name in names), *_MODULES, "__version__"]
_OF_OBJECTIVES = {home: [name for name in OBJECTIVES if OBJECTIVES[name] == home] for home in OBJECTIVES.values()}
__getattr__ = on_first_use(__name__, {**_HOMES, **_OF_OBJECTIVES}, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from vicinal import calibrators as calibrators
    from vicinal import data as data
    from vicinal import integrations as integrations
    from vicinal import losses as losses
    from vicinal import metrics as metrics
    from vicinal import mixing as mixing
    from vicinal import models as models
    from vicinal import plots as plots
    from vicinal import predictions as predictions
    from vicinal import probes as probes
    from vicinal import report as report
    from vicinal import runs as runs
    from vicinal import training as training
    from vicinal._memory import max_memory as max_memory
    from vicinal.calibrators import BetaCalibration as BetaCalibration
    from vicinal.calibrators import Calibration as Calibration
    from vicinal.calibrators import DirichletCalibration as DirichletCalibration
    from vicinal.calibrators import HistogramBinning as HistogramBinning
    from vicinal.calibrators import IsotonicCalibration as IsotonicCalibration
    from vicinal.calibrators import QuadraticScaling as QuadraticScaling
    from vicinal.calibrators import StructuredMatrixScaling as StructuredMatrixScaling
    from vicinal.calibrators import StructuredVectorScaling as StructuredVectorScaling
    from vicinal.calibrators import TemperatureScaling as TemperatureScaling
    from vicinal.calibrators import VectorScaling as VectorScaling
    from vicinal.calibrators import VennAbersCalibration as VennAbersCalibration
    from vicinal.calibrators import calibrate as calibrate
    from vicinal.calibrators.conformal import AdaptiveSets as AdaptiveSets
    from vicinal.calibrators.conformal import LeastAmbiguousSets as LeastAmbiguousSets
    from vicinal.calibrators.conformal import RegularisedSets as RegularisedSets
    from vicinal.expressions import parse as parse
    from vicinal.metrics import Comparison as Comparison
    from vicinal.metrics import Evaluation as Evaluation
    from vicinal.metrics import ReliabilityTable as ReliabilityTable
    from vicinal.metrics import compare as compare
    from vicinal.metrics import evaluate as evaluate
    from vicinal.metrics import ood_report as ood_report
    from vicinal.metrics import risk_coverage as risk_coverage
    from vicinal.metrics import risk_threshold as risk_threshold
    from vicinal.objectives.base import Objective as Objective
    from vicinal.objectives.cutmix import CutMix as CutMix
    from vicinal.objectives.erm import ERM as ERM
    from vicinal.objectives.focal import Focal as Focal
    from vicinal.objectives.gaussian import GaussianVicinity as GaussianVicinity
    from vicinal.objectives.guided.aum import AUM as AUM
    from vicinal.objectives.guided.objective import GuidedMixup as GuidedMixup
    from vicinal.objectives.guided.sampler import BalancedBatchSampler as BalancedBatchSampler
    from vicinal.objectives.kmixup import KMixup as KMixup
    from vicinal.objectives.logitmix import LogitMix as LogitMix
    from vicinal.objectives.manifold import ManifoldMixup as ManifoldMixup
    from vicinal.objectives.mixup import Mixup as Mixup
    from vicinal.objectives.puzzle.objective import PuzzleMix as PuzzleMix
    from vicinal.objectives.random_choice import RandomChoice as RandomChoice
    from vicinal.objectives.regmixup import RegMixup as RegMixup
    from vicinal.objectives.resizemix import ResizeMix as ResizeMix
    from vicinal.objectives.schedule import During as During
    from vicinal.objectives.schedule import Warmup as Warmup
    from vicinal.objectives.sequence import SequenceMixup as SequenceMixup
    from vicinal.probes.uncertainty import Ensemble as Ensemble
    from vicinal.probes.uncertainty import MCDropout as MCDropout
    from vicinal.runs.bundle import Bundle as Bundle
    from vicinal.runs.bundle import load as load
    from vicinal.runs.estimator import VicinalClassifier as VicinalClassifier
    from vicinal.training import fit as fit
