"""Reports: one HTML file each that shows how far to trust a model, readable on a phone, printable, without network.

`words` says figures in sentences, `figures` draws, `sections` makes tables, and there is a file for each kind of page.
"""

from vicinal.report.comparison import write_comparison
from vicinal.report.labels import write_labels
from vicinal.report.predictions import write_predictions
from vicinal.report.recipe import RecipePage, Rows, write_recipe
from vicinal.report.run import write_run

__all__ = ["write_run", "write_labels", "write_predictions", "write_comparison", "write_recipe", "RecipePage", "Rows"]
