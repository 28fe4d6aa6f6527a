"""Predictions that are already there: measured and repaired from a file of any size, a chunk at a time.

Files build on one another in this order: `classes` (names to numbers), `columns` (what they hold, by name), `reading`
(chunks and their checks), `writing`, `evaluation`, `two_classes`, `calibrating`, `sets`.
"""

from vicinal.predictions.calibrating import Calibrated, calibrate_file
from vicinal.predictions.evaluation import evaluate_file
from vicinal.predictions.reading import FileChunk, PredictionsFile, open_file
from vicinal.predictions.sets import sets_of_file
from vicinal.predictions.two_classes import binary_of_file
from vicinal.predictions.writing import write

__all__ = [
    "open_file",
    "PredictionsFile",
    "FileChunk",
    "evaluate_file",
    "binary_of_file",
    "sets_of_file",
    "calibrate_file",
    "Calibrated",
    "write",
]
