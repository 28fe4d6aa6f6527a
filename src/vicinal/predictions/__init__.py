"""Predictions that are already there: measured and repaired from a file of any size, a chunk at a time.

Files build on one another in this order: `class_names`, `score_columns`, `predictions_file` (chunks and their
checks), `writer`, `file_evaluation`, `binary_ranking`, `file_calibration`, `prediction_sets`.
"""

from vicinal.predictions.binary_ranking import binary_of_file
from vicinal.predictions.file_calibration import Calibrated, calibrate_file, parts_of_file
from vicinal.predictions.file_evaluation import evaluate_file
from vicinal.predictions.prediction_sets import sets_of_file
from vicinal.predictions.predictions_file import PredictionsFile, open_file
from vicinal.predictions.writer import write

__all__ = ["open_file", "PredictionsFile", "evaluate_file", "binary_of_file", "sets_of_file", "parts_of_file",
           "calibrate_file", "Calibrated", "write"]  # fmt: skip
