"""Runs: data, a network, a method and a seed; one at a time, or a grid of them.

`vicinal.experiment` holds the options, `execute` runs it, and `Run` is its folder, which
everything else reads: `bundle` (the model), `scores` (metrics), `mistakes`, `error_slices`, `baselines`, `probes`,
`audit`. `grid` makes many runs, `scheduler` runs them anywhere, and `summary_table` compares them.
"""

from vicinal.experiment import EvalSet, Experiment
from vicinal.runs.audit import CrossAudit, audited, audited_by_aum
from vicinal.runs.baselines import baselines, measure_baselines
from vicinal.runs.bundle import Bundle
from vicinal.runs.execute import run
from vicinal.runs.external import result_of_predictions
from vicinal.runs.grid import merged, run_grid
from vicinal.runs.importance import Importance, permutation_importance
from vicinal.runs.probes import OODResult, attacks_on, between, ood_reports, prediction_sets, with_mc_dropout
from vicinal.runs.run import Run, RunResult
from vicinal.runs.scheduler import Pool
from vicinal.runs.scores import Scores
from vicinal.runs.summary_table import GridResult

__all__ = ["Experiment", "EvalSet", "run", "Run", "RunResult", "Scores", "Bundle", "run_grid", "merged", "GridResult",
           "Pool", "ood_reports", "OODResult", "attacks_on", "with_mc_dropout", "prediction_sets", "between", "audited",
           "audited_by_aum", "CrossAudit", "baselines", "measure_baselines", "Importance",
           "permutation_importance", "result_of_predictions"]  # fmt: skip
