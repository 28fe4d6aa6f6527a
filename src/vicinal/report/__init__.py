"""Reports: one HTML file each that shows how far to trust a model, readable on a phone, printable, without network.

`verdicts` judges, `formatting` prints numbers, `plots` draws, `sections` makes tables; each kind of page has a file.
Pages are imported when asked for: `verdicts` alone, which `vicinal evaluate` prints, needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import on_first_use

if TYPE_CHECKING:
    from vicinal.report.comparison import write_comparison
    from vicinal.report.predictions import write_predictions
    from vicinal.report.run import ReportExtras, write_run

__all__ = ["write_run", "ReportExtras", "write_predictions", "write_comparison"]

__getattr__ = on_first_use(
    __name__,
    {
        ".comparison": ["write_comparison"],
        ".predictions": ["write_predictions"],
        ".run": ["ReportExtras", "write_run"],
    },
)
