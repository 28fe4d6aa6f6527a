"""Predictions that are already there: measured and repaired from a file of any size, a chunk at a time.

Files build on one another in this order: `class_names`, `score_columns`, `reading`
(chunks and their checks), `writing`, `evaluation`, `binary_ranking`, `calibrating`, `prediction_sets`.
"""

from vicinal.predictions.binary_ranking import binary_of_file
from vicinal.predictions.calibrating import Calibrated, calibrate_file
from vicinal.predictions.evaluation import evaluate_file
from vicinal.predictions.prediction_sets import sets_of_file
from vicinal.predictions.reading import FileChunk, PredictionsFile, open_file
from vicinal.predictions.writing import write

__all__ = ["open_file", "PredictionsFile", "FileChunk", "evaluate_file", "binary_of_file", "sets_of_file",
           "calibrate_file", "Calibrated", "write"]  # fmt: skip
