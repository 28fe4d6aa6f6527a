"""Experiments: data, a network, a method and a seed; one at a time, or a grid of them.

`record` says what an experiment is, `usual` what it need not say, `run` makes a run of it (with `mistakes` for the
report), `grid` runs many, and `table` compares them. `probes` and `audit` look at a finished run.
"""

from vicinal.runs.audit import audited
from vicinal.runs.defaults import usual_config, where_texts_are_mixed
from vicinal.runs.experiment import Experiment, data_name, folder_name
from vicinal.runs.grid import run_grid
from vicinal.runs.mistakes import confident_mistakes, shown
from vicinal.runs.probes import attacks_on, between, ood_reports, with_mc_dropout
from vicinal.runs.run import Outcome, Scored, finished, reopen, run
from vicinal.runs.table import GridResult

__all__ = [
    "Experiment",
    "Outcome",
    "Scored",
    "run",
    "finished",
    "reopen",
    "run_grid",
    "GridResult",
    "ood_reports",
    "attacks_on",
    "with_mc_dropout",
    "between",
    "audited",
    "data_name",
    "folder_name",
    "usual_config",
    "where_texts_are_mixed",
    "confident_mistakes",
    "shown",
]
