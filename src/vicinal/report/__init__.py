"""Reports: one HTML file each that shows how far to trust a model, readable on a phone, printable, without network.

`verdicts` judges, `formatting` prints numbers, `plots` draws, `sections` makes tables; each kind of page has a file.
Pages are imported when asked for: `verdicts` alone, which `vicinal evaluate` prints, needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal.report.comparison import write_comparison
    from vicinal.report.predictions import write_predictions
    from vicinal.report.run import write_run

__all__ = ["write_run", "write_predictions", "write_comparison"]

_HOMES = {
    "write_comparison": "comparison",
    "write_predictions": "predictions",
    "write_run": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vicinal.report' has no attribute {name!r}")
    return getattr(importlib.import_module(f"vicinal.report.{_HOMES[name]}"), name)
