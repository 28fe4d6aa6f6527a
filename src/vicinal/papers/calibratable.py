"""Are mixup models "less calibratable"? The parts of the loss that a calibrator takes away and leaves, row by row.

Wang et al. (2023) say that calibration after training helps models trained with mixup less than those trained without.
What is left after the best calibrator is the refinement part, see `vicinal.calibrators.loss_parts`. So a method is less
calibratable where its refinement part is larger than that of plain training, paired over seeds.

References
----------
Wang, Li, Zhao, Liu & Ma (2023), On the Pitfall of Mixup for Uncertainty Calibration.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from vicinal.calibrators import loss_parts
from vicinal.metrics import Estimate
from vicinal.metrics.intervals import over_seeds
from vicinal.papers.base import Recipe
from vicinal.papers.claims import Key, Pair
from vicinal.papers.page_tables import markdown
from vicinal.papers.results import Result

#: Metrics of a cell, and the titles of their columns.
PARTS = {
    "nll calibration": "NLL: calibration",
    "nll refinement": "NLL: refinement",
    "brier calibration": "Brier: calibration",
    "brier refinement": "Brier: refinement",
}
_PLAIN = "ERM()"


def parts_of(logits: Tensor, labels: Tensor) -> dict[str, Estimate]:
    """Return the calibration and refinement parts of NLL and Brier score, by the names in `PARTS`."""
    parts = loss_parts(labels, logits=logits)
    return {name: getattr(parts[name.split()[0]], name.split()[1]) for name in PARTS}


def section(recipe: Recipe, result: Result) -> Iterator[str]:
    """Yield the lines of a page about both parts; nothing for a table without losses or without plain training."""
    if all(result.estimate(key, "nll") is None or _base(recipe, result, key) is None for key in result.keys):
        return
    yield from (f"## Calibration and refinement ({result.scale} scale)", "")
    if all(result.estimate(key, name) is None for key in result.keys for name in PARTS):
        yield from ("–. These cells were measured before the parts were. Cells that are run from now on have them.", "")
        return
    rows = []
    for key in result.keys:
        more = refinement_gap(recipe, result, key)
        shown = [_value(result.estimate(key, name)) for name in PARTS]
        rows.append([" · ".join(key), *shown, "" if more is None else _signed(more), _verdict(more)])
    head = ["here", *PARTS.values(), "NLL refinement less that of ERM", "less calibratable than ERM?"]
    yield from ("Refinement is the loss after the best calibrator, cross-validated. Calibration is the rest.", "")
    yield from (markdown(head, rows), "")


def refinement_gap(recipe: Recipe, result: Result, key: Key) -> Estimate | None:
    """Return by how much the NLL's refinement part exceeds that of plain training, paired over seeds, 95 % interval.

    None for plain training itself, and where fewer than two seeds have both.
    """
    base = _base(recipe, result, key)
    if base is None or base == key:
        return None
    name = "nll refinement"
    plain = {cell.seed: cell.metrics[name].value for cell in result.of(base) if name in cell.metrics}
    own = {cell.seed: cell.metrics[name].value for cell in result.of(key) if name in cell.metrics}
    gaps = [own[seed] - plain[seed] for seed in own if seed in plain]
    return over_seeds([Estimate(gap, gap, gap) for gap in gaps], other_samples=False) if len(gaps) > 1 else None


def _base(recipe: Recipe, result: Result, key: Key) -> Key | None:
    """Return the row of plain training on the same data with the same network, if there is one."""
    if len(key) != 3:
        return None
    methods = recipe.methods_of(Pair(key[0], key[1]), recipe.scales[result.scale])
    found = [name for name, method in methods.items() if method.expression == _PLAIN and not method.training]
    return (key[0], key[1], found[0]) if found else None


def _verdict(more: Estimate | None) -> str:
    if more is None:
        return ""
    return "**yes**" if more.low > 0 else "**no, more**" if more.high < 0 else "not significant"


def _value(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return f"{estimate.value:.3f} ± {(estimate.high - estimate.low) / 2:.3f}".replace("-", "−")


def _signed(more: Estimate) -> str:
    return f"{more.value:+.4f} [{more.low:+.4f}, {more.high:+.4f}]".replace("-", "−")
