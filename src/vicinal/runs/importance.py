r"""Permutation importance: how much worse the model is when a column of the test set is shuffled.

.. math:: I_c = \frac{1}{n} \sum_i \Big( \frac{1}{R} \sum_r \ell(x_i^{c \leftarrow \pi_r}, y_i) - \ell(x_i, y_i) \Big),
    \qquad \ell = \mathrm{NLL}

The interval is that of a mean over test samples. A column that others replace has a low importance though it informs.

References
----------
Breiman, "Random Forests", Machine Learning 2001; Fisher, Rudin & Dominici, "All Models are Wrong, but Many are Useful",
JMLR 2019 (the loss in place of the error).
"""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal import _random
from vicinal._atomic import DamagedFileError, read_sealed, sealed, write_json
from vicinal.data.tabular import TabularPreprocessing
from vicinal.metrics import Estimate
from vicinal.metrics.intervals import mean_interval
from vicinal.runs.run import Run, RunResult

#: Shuffles of each column; test samples and numbers of a batch that are looked at, at most.
_REPEATS, _MOST, _BATCH = 3, 5_000, 2**22


@dataclass(frozen=True)
class Importance:
    """How much a column matters. Made by `permutation_importance`.

    Examples
    --------
    >>> Importance("age", Estimate(0.12, 0.08, 0.17)).nll.value
    0.12
    """

    column: str
    """The name of the column."""
    nll: Estimate | None
    """The increase of the NLL with its interval; None of a column that the model does not read."""


@torch.no_grad()
def permutation_importance(result: RunResult, *, most_cells: int | None = None) -> list[Importance]:
    """Return the importance of the columns of a table, the largest first, and of columns that were dropped last.

    It is empty of other data, of several targets, and without a test set. Of more than 5,000 test samples, the first
    5,000 are taken. It is empty too where these samples times the columns are more than `most_cells`.

    Returns
    -------
    list[Importance]
        The columns, each with the increase of the NLL.

    Examples
    --------
    >>> result = Run("runs/table").result()  # doctest: +SKIP
    >>> [(one.column, one.nll) for one in permutation_importance(result)]  # doctest: +SKIP
    """
    if result.is_multilabel or "test" not in result.sets:
        return []
    bundle = result.run.bundle()
    encoding = bundle.preprocessing
    if not isinstance(encoding, TabularPreprocessing):
        return []
    test = result.run.task().test
    n = min(len(test), _MOST)
    if most_cells is not None and n * len(encoding.columns) > most_cells:
        return []
    x = torch.from_numpy(test.features()[:n]).float()
    y = torch.tensor(test.labels)[:n]

    def nll(rows: Tensor) -> Tensor:
        parts = rows.split(max(1, _BATCH // rows.shape[1]))
        probs = bundle.calibrated(torch.cat([bundle.network(part) for part in parts]))
        return -probs[torch.arange(n), y].clamp_min(1e-12).log()

    generator = torch.Generator().manual_seed(_random.seed_from("importance", result.experiment.seed))
    plain, start, found = nll(x), 0, []
    for column in encoding.columns:
        block = slice(start, start + column.width)
        start += column.width
        worse = torch.zeros(n, dtype=torch.float64)
        for _ in range(_REPEATS):
            shuffled = x.clone()
            shuffled[:, block] = x[_random.permutation(n, generator=generator), block]
            worse += (nll(shuffled) - plain) / _REPEATS
        found.append(Importance(column.name, mean_interval(worse.numpy(), 0.95, low=-math.inf, high=math.inf)))
    found.sort(key=lambda one: -one.nll.value if one.nll is not None else math.inf)
    return [*found, *(Importance(name, None) for name in encoding.ignored)]


def kept_importance(run: Run) -> list[Importance]:
    """Return the importance that is kept with a run; a damaged file counts as none, with a warning."""
    path = run.files.importance
    try:
        kept = read_sealed(path)["columns"] if path.exists() else []
        return [Importance(str(n), None if nll is None else Estimate.from_dict(nll)) for n, nll in kept]
    except (DamagedFileError, KeyError, TypeError, ValueError):
        warnings.warn(f"{path} is damaged and ignored", stacklevel=2)
        return []


def measured_importance(result: RunResult, *, most_cells: int | None = None) -> list[Importance]:
    """Return the importance that is kept with a run, or measure and keep it, so that all verdicts on it agree.

    It is empty where `permutation_importance` is.
    """
    if kept := kept_importance(result.run):
        return kept
    found = permutation_importance(result, most_cells=most_cells)
    if found:
        columns = [[one.column, None if one.nll is None else one.nll.to_dict()] for one in found]
        with contextlib.suppress(OSError):  # a folder that may only be read
            write_json(result.run.files.importance, sealed({"columns": columns}))
    return found
