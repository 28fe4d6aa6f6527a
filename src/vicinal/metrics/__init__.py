"""Is the model right, and does it know when? Calibration from one reliability table; proper scores; intervals.

Then what rests on knowing it: selective prediction and out-of-distribution detection. Files build on one another in
this order: `chunks` (one pass over predictions), `intervals`, `reliability`, `scores`, `ranking` and `ood`,
`classwise` and `selective`, `error_intervals`, `registry` (the one list of them), `tally` (the one measurement),
`comparison`.
"""

from vicinal.metrics.base_rate import BaseRate, base_rate
from vicinal.metrics.binary import BinaryEvaluation, evaluate_binary
from vicinal.metrics.classwise import ClasswiseTable, classwise_ece
from vicinal.metrics.comparison import Comparison, Difference, compare
from vicinal.metrics.error_intervals import error_estimates
from vicinal.metrics.intervals import Estimate, clopper_pearson
from vicinal.metrics.ood import (
    OODReport,
    energy,
    fpr_at_tpr,
    margin,
    max_probability,
    negative_entropy,
    ood_report,
)
from vicinal.metrics.ranking import auroc, average_precision
from vicinal.metrics.registry import METRICS, Metric
from vicinal.metrics.reliability import BinSums, ReliabilityTable, equal_mass_edges
from vicinal.metrics.scores import accuracy, brier, mcc, nll, spearman, spearman_estimate, top_k
from vicinal.metrics.selective import RiskCoverage, RiskThreshold, risk_coverage, risk_threshold
from vicinal.metrics.set_coverage import SetEvaluation, SetTally, evaluate_sets
from vicinal.metrics.slices import Slice, evaluate_slices
from vicinal.metrics.tally import Evaluation, Mistake, Samples, Tally, evaluate, measure

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
    "clopper_pearson",
    "METRICS",
    "Metric",
    "Tally",
    "Evaluation",
    "Mistake",
    "Samples",
    "evaluate",
    "measure",
    "BinaryEvaluation",
    "evaluate_binary",
    "BaseRate",
    "base_rate",
    "error_estimates",
    "Comparison",
    "Difference",
    "compare",
    "RiskCoverage",
    "RiskThreshold",
    "risk_coverage",
    "risk_threshold",
    "SetEvaluation",
    "Slice",
    "evaluate_slices",
    "SetTally",
    "evaluate_sets",
    "OODReport",
    "ood_report",
    "auroc",
    "average_precision",
    "fpr_at_tpr",
    "max_probability",
    "negative_entropy",
    "energy",
    "margin",
]
