"""Data: a path or a name becomes a `Task` with splits, classes and a preprocessing that can be saved.

Names are imported on first use: `options`, from which the command makes its options, needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal.data.audio import AudioPreprocessing
    from vicinal.data.image import ImagePreprocessing
    from vicinal.data.kind import Kind
    from vicinal.data.loading import load, load_from_config, read
    from vicinal.data.named_datasets import NAMES
    from vicinal.data.options import (
        AudioOptions,
        ImageOptions,
        ReadOptions,
        SplitOptions,
        TableOptions,
        TextOptions,
    )
    from vicinal.data.preprocessing import Preprocessing
    from vicinal.data.regression import ScoredTexts, Scores, load_scores
    from vicinal.data.splitting import stratified_split, stratified_subset
    from vicinal.data.streaming import Stream, stream
    from vicinal.data.tabular import TabularPreprocessing
    from vicinal.data.task import Split, Task
    from vicinal.data.text import TextPreprocessing
    from vicinal.data.tokens import Subwords, Words

__all__ = ["load", "load_from_config", "SplitOptions", "ReadOptions", "TableOptions", "TextOptions", "ImageOptions",
           "AudioOptions", "read", "stream", "Stream", "load_scores", "ScoredTexts", "Scores", "Task", "Split",
           "Preprocessing", "TabularPreprocessing", "TextPreprocessing", "ImagePreprocessing", "AudioPreprocessing",
           "Words", "Subwords", "stratified_split", "stratified_subset", "Kind", "NAMES"]  # fmt: skip

#: Where each name lives.
_HOMES = {
    "audio": ["AudioPreprocessing"],
    "image": ["ImagePreprocessing"],
    "kind": ["Kind"],
    "loading": ["load", "load_from_config", "read"],
    "named_datasets": ["NAMES"],
    "options": ["AudioOptions", "ImageOptions", "ReadOptions", "SplitOptions", "TableOptions",
                "TextOptions"],
    "preprocessing": ["Preprocessing"],
    "regression": ["ScoredTexts", "Scores", "load_scores"],
    "splitting": ["stratified_split", "stratified_subset"],
    "streaming": ["Stream", "stream"],
    "tabular": ["TabularPreprocessing"],
    "task": ["Split", "Task"],
    "text": ["TextPreprocessing"],
    "tokens": ["Subwords", "Words"],
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'vicinal.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"vicinal.data.{_HOME_OF[name]}"), name)
