"""Runs: data, a network, a method and a seed; one at a time, or a grid of them.

`experiment` says what is to be done, `defaults` what need not be said, `running` makes a run of it, and `Run` is its
folder, which everything else reads: `bundle` (the model), `mistakes`, `probes`, `audit`, `grid` (many runs), `table`
(what they show).
"""

from vicinal.runs.audit import CrossAudit, audited, audited_by_aum
from vicinal.runs.baselines import ALWAYS, BASELINES, baselines, measure_baselines
from vicinal.runs.bundle import Bundle
from vicinal.runs.defaults import default_config, mixed_at_embeddings
from vicinal.runs.experiment import Experiment, FurtherSet, data_name, folder_name
from vicinal.runs.grid import run_grid
from vicinal.runs.mistakes import confident_mistakes, shown
from vicinal.runs.probes import OODResult, attacks_on, between, ood_reports, prediction_sets, with_mc_dropout
from vicinal.runs.run import Finished, LabelsOutcome, Outcome, Run
from vicinal.runs.running import run, run_labels
from vicinal.runs.scored import LabelsScored, Scored
from vicinal.runs.table import GridResult

__all__ = [
    "Experiment",
    "FurtherSet",
    "run",
    "Run",
    "Outcome",
    "Scored",
    "run_labels",
    "Finished",
    "LabelsOutcome",
    "LabelsScored",
    "Bundle",
    "run_grid",
    "GridResult",
    "ood_reports",
    "OODResult",
    "attacks_on",
    "with_mc_dropout",
    "prediction_sets",
    "between",
    "audited",
    "audited_by_aum",
    "CrossAudit",
    "baselines",
    "ALWAYS",
    "BASELINES",
    "measure_baselines",
    "data_name",
    "folder_name",
    "default_config",
    "mixed_at_embeddings",
    "confident_mistakes",
    "shown",
]
