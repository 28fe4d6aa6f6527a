"""Vicinal: train classifiers whose probabilities can be trusted, and prove it.

Every public name is imported on first use, so `import vicinal` costs next to nothing:

>>> import vicinal
>>> vicinal.Mixup(alpha=0.4).alpha
0.4
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

#: The public objectives, and where each lives: what the command can name. A new method adds its one line here.
OBJECTIVES = {
    "ERM": "vicinal.objectives.erm",
    "Mixup": "vicinal.objectives.mixup",
    "KMixup": "vicinal.objectives.kmixup",
    "GaussianVicinity": "vicinal.objectives.gaussian",
    "CutMix": "vicinal.objectives.cutmix",
    "ManifoldMixup": "vicinal.objectives.manifold",
    "PuzzleMix": "vicinal.objectives.puzzle.objective",
    "SequenceMixup": "vicinal.objectives.sequence",
    "GuidedMixup": "vicinal.objectives.guided.objective",
    "LogitMix": "vicinal.objectives.logitmix",
    "RegMixup": "vicinal.objectives.regmixup",
    "Warmup": "vicinal.objectives.schedule",
    "Between": "vicinal.objectives.schedule",
    "Choice": "vicinal.objectives.choice",
}

#: Where every other public name lives.
_HOMES = {
    "vicinal._files": ["max_memory"],
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
    "vicinal.calibrators": ["TemperatureScaling", "VectorScaling", "IsotonicCalibration", "HistogramBinning"],
    "vicinal.calibrators.sets": ["LeastAmbiguousSets", "AdaptiveSets"],
    "vicinal.training": ["fit"],
    "vicinal.runs.bundle": ["Bundle", "load"],
}
_HOME_OF = OBJECTIVES | {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ["calibrators", "data", "losses", "metrics", "mixing", "models", "plots", "predictions", "probes"]

#: Modules that had another name in the last release; the old one goes with the next.
_MOVED = {
    "bundle": "vicinal.runs.bundle",
    "experiments": "vicinal.runs",
    "gan": "vicinal.probes.gan",
    "robustness": "vicinal.probes",
    "uncertainty": "vicinal.probes.uncertainty",
}

__all__ = [*_HOME_OF, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    elif name in _MODULES or name in _MOVED:
        value = importlib.import_module(f"vicinal.{name}")
    else:
        raise AttributeError(f"module 'vicinal' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _OldNames(MetaPathFinder, Loader):
    """Imports a module by its old name: `vicinal.gan` is the module `vicinal.probes.gan`, with a warning."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, name, *rest = [*fullname.split("."), ""]
        if package != "vicinal" or name not in _MOVED:
            return None
        return ModuleSpec(fullname, self, loader_state=".".join([_MOVED[name], *rest]).rstrip("."))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {spec.loader_state}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(spec.loader_state)
        # The import system is about to write the old name's spec into the module, which is shared.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _OldNames())  # before the one that would load `vicinal.robustness.noise` a second time


if TYPE_CHECKING:
    from vicinal import calibrators as calibrators
    from vicinal import data as data
    from vicinal import losses as losses
    from vicinal import metrics as metrics
    from vicinal import mixing as mixing
    from vicinal import models as models
    from vicinal import plots as plots
    from vicinal import predictions as predictions
    from vicinal import probes as probes
    from vicinal._files import max_memory as max_memory
    from vicinal.calibrators import HistogramBinning as HistogramBinning
    from vicinal.calibrators import IsotonicCalibration as IsotonicCalibration
    from vicinal.calibrators import TemperatureScaling as TemperatureScaling
    from vicinal.calibrators import VectorScaling as VectorScaling
    from vicinal.calibrators.sets import AdaptiveSets as AdaptiveSets
    from vicinal.calibrators.sets import LeastAmbiguousSets as LeastAmbiguousSets
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
    from vicinal.objectives.choice import Choice as Choice
    from vicinal.objectives.cutmix import CutMix as CutMix
    from vicinal.objectives.erm import ERM as ERM
    from vicinal.objectives.gaussian import GaussianVicinity as GaussianVicinity
    from vicinal.objectives.guided.aum import AUM as AUM
    from vicinal.objectives.guided.objective import GuidedMixup as GuidedMixup
    from vicinal.objectives.guided.sampler import BalancedBatchSampler as BalancedBatchSampler
    from vicinal.objectives.kmixup import KMixup as KMixup
    from vicinal.objectives.logitmix import LogitMix as LogitMix
    from vicinal.objectives.manifold import ManifoldMixup as ManifoldMixup
    from vicinal.objectives.mixup import Mixup as Mixup
    from vicinal.objectives.puzzle.objective import PuzzleMix as PuzzleMix
    from vicinal.objectives.regmixup import RegMixup as RegMixup
    from vicinal.objectives.schedule import Between as Between
    from vicinal.objectives.schedule import Warmup as Warmup
    from vicinal.objectives.sequence import SequenceMixup as SequenceMixup
    from vicinal.probes.uncertainty import Ensemble as Ensemble
    from vicinal.probes.uncertainty import MCDropout as MCDropout
    from vicinal.runs.bundle import Bundle as Bundle
    from vicinal.runs.bundle import load as load
    from vicinal.training import fit as fit
