"""Is the model right, and does it know when? Calibration from one reliability table; proper scores; intervals.

Files build on one another in this order: `_predictions` (one pass over predictions), `intervals`, `reliability`
and `scores`, `classwise`, `evaluation`, `comparison`.
"""

from vicinal.metrics.classwise import ClasswiseTable, classwise_ece
from vicinal.metrics.comparison import Comparison, Difference, compare
from vicinal.metrics.evaluation import (
    Evaluation,
    Samples,
    error_estimates,
    evaluate,
    maximum_error_estimate,
)
from vicinal.metrics.intervals import Estimate, wilson
from vicinal.metrics.reliability import BinSums, ReliabilityTable, equal_mass_edges
from vicinal.metrics.scores import accuracy, brier, mcc, nll, spearman, spearman_estimate, top_k

__all__ = [
    "ReliabilityTable",
    "BinSums",
    "equal_mass_edges",
    "ClasswiseTable",
    "classwise_ece",
    "accuracy",
    "top_k",
    "mcc",
    "nll",
    "brier",
    "spearman",
    "spearman_estimate",
    "Estimate",
    "wilson",
    "Evaluation",
    "Samples",
    "evaluate",
    "error_estimates",
    "maximum_error_estimate",
    "Comparison",
    "Difference",
    "compare",
]
