"""Data: a path or a name becomes a `Task` with splits, classes and a preprocessing that can be saved.

Names are imported on first use: `options`, from which the command makes its options, needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import on_first_use

if TYPE_CHECKING:
    from vicinal.data.kind import Kind
    from vicinal.data.loading import load, load_from_config, read
    from vicinal.data.names import NAMES
    from vicinal.data.options import (
        AudioOptions,
        ImageOptions,
        ReadOptions,
        SplitOptions,
        TableOptions,
        TextOptions,
    )
    from vicinal.data.preprocessing import Preprocessing
    from vicinal.data.splitting import stratified_split, stratified_subset
    from vicinal.data.streaming import Stream, stream
    from vicinal.data.task import Split, Task

__all__ = ["load", "load_from_config", "SplitOptions", "ReadOptions", "TableOptions", "TextOptions", "ImageOptions",
           "AudioOptions", "read", "stream", "Stream", "Task", "Split", "Preprocessing", "stratified_split",
           "stratified_subset", "Kind", "NAMES"]  # fmt: skip

#: Where each name lives.
_HOMES = {
    ".kind": ["Kind"],
    ".loading": ["load", "load_from_config", "read"],
    ".names": ["NAMES"],
    ".options": ["AudioOptions", "ImageOptions", "ReadOptions", "SplitOptions", "TableOptions",
                "TextOptions"],
    ".preprocessing": ["Preprocessing"],
    ".splitting": ["stratified_split", "stratified_subset"],
    ".streaming": ["Stream", "stream"],
    ".task": ["Split", "Task"],
}  # fmt: skip
__getattr__ = on_first_use(__name__, _HOMES)
