"""What a path or a name turns into: a task with splits, classes and a preprocessing that can be saved."""

from vicinal.data.audio import AudioPreprocessing
from vicinal.data.images import MOST_PIXELS, ImagePreprocessing
from vicinal.data.loading import KINDS, load, read
from vicinal.data.named import NAMES
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.regression import ScoredTexts, Scores, load_scores
from vicinal.data.splitting import stratified_split, stratified_subset
from vicinal.data.streaming import Stream, stream
from vicinal.data.tabular import TabularPreprocessing
from vicinal.data.task import Split, Task
from vicinal.data.text import TextPreprocessing
from vicinal.data.tokens import Subwords, Words

__all__ = [
    "load",
    "read",
    "stream",
    "Stream",
    "load_scores",
    "ScoredTexts",
    "Scores",
    "Task",
    "Split",
    "Preprocessing",
    "TabularPreprocessing",
    "TextPreprocessing",
    "ImagePreprocessing",
    "AudioPreprocessing",
    "Words",
    "Subwords",
    "stratified_split",
    "stratified_subset",
    "KINDS",
    "MOST_PIXELS",
    "NAMES",
]
