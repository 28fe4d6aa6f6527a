"""Prediction sets of a predictions file: fitted on one half of its rows, measured on the other, in two passes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vicinal.metrics import SetEvaluation, SetTally
from vicinal.predictions.predictions_file import PredictionsFile, as_file


def sets_of_file(file: str | os.PathLike[str] | PredictionsFile, coverage: float) -> dict[str, SetEvaluation]:
    r"""Measure prediction sets on a predictions file, by what a table calls them.

    Every second row of the file, the first among them, fits the sets, and the others are measured: rows that both fit
    and are measured would look better covered than new ones. The file is read twice; memory holds three numbers for
    each row that is fitted on.

    Parameters
    ----------
    file
        A path, or what `open_file` returned: labels with probabilities or logits of all classes.
    coverage
        The share of sets that are to hold the true class.

    Returns
    -------
    dict[str, SetEvaluation]
        The metrics of each kind of prediction sets.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     _ = path.write_text("label,prob_dog,prob_cat\n" + "cat,0.25,0.75\ndog,0.6,0.4\ndog,0.7,0.3\n" * 20)
    ...     {name: sets.n for name, sets in sets_of_file(path, coverage=0.9).items()}
    {'least ambiguous': 30, 'adaptive': 30, 'adaptive, randomised': 30, 'least ambiguous, within each class': 30}
    """
    import torch  # which reading and measuring do without

    from vicinal.calibrators.conformal import kinds_of_sets

    opened, generator = as_file(file), torch.Generator().manual_seed(0)
    if opened.kind == "confidence":
        raise ValueError(
            f"prediction sets need the scores of all classes, and {str(opened.path)!r} has one of each row"
        )
    n_classes = opened.n_classes or 0
    kinds = kinds_of_sets(coverage, n_classes)
    scores: dict[str, list[NDArray[np.float64]]] = {name: [] for name in kinds}
    truth: list[NDArray[np.int64]] = []
    for logits, labels in _half(opened, 0):
        truth.append(labels)
        for name, kind in kinds.items():
            scores[name].append(kind.scores_of_truth(logits, labels, generator=generator))
    if not truth:
        raise ValueError(f"{str(opened.path)!r} has no rows to fit prediction sets on")
    tallies = {name: SetTally(n_classes) for name in kinds}
    for name, kind in kinds.items():
        kind.fit_scores(np.concatenate(scores.pop(name)), np.concatenate(truth), n_classes)
    for logits, labels in _half(opened, 1):
        for name, kind in kinds.items():
            tallies[name].update(kind(logits, generator=generator), labels)
    return {name: tally.evaluation() for name, tally in tallies.items()}


def _half(file: PredictionsFile, which: int) -> Iterator[tuple[NDArray[np.floating], NDArray[np.int64]]]:
    """Yield logits and labels of every second row that can be used."""
    seen = 0
    for chunk in file.chunks():
        chosen = slice((which - seen) % 2, None, 2)
        seen += len(chunk)
        labels = np.asarray(chunk.labels)[chosen]
        if len(labels):
            yield file.logits(np.asarray(chunk.scores, np.float64)[chosen]), labels
