"""Experiments: data, a network, a method and a seed; one at a time, or a grid of them.

`record` says what an experiment is, `usual` what it need not say, `run` makes a run of it (with `mistakes` for the
report), and `grid` runs many and compares them.
"""

from vicinal.experiments.mistakes import confident_mistakes, shown
from vicinal.experiments.record import Experiment, folder_name
from vicinal.experiments.run import Outcome, Scored, finished, run
from vicinal.experiments.usual import usual_config, where_texts_are_mixed

__all__ = [
    "Experiment",
    "Outcome",
    "Scored",
    "run",
    "finished",
    "folder_name",
    "usual_config",
    "where_texts_are_mixed",
    "confident_mistakes",
    "shown",
]
