"""Repair the predictions of a file: fit a calibrator on one file, apply it to another as it is read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, choice
from vicinal.predictions.file_evaluation import (
    group_columns,
    joined_groups,
    joined_weights,
    row_weights,
    weight_columns,
)
from vicinal.predictions.predictions_file import FileChunk, PredictionsFile, as_file
from vicinal.predictions.writer import check_output, write
from vicinal.tables import Columns
from vicinal.tables.column_values import merged_notes

if TYPE_CHECKING:
    from vicinal.calibrators import Calibration, LossParts
    from vicinal.calibrators.base import Calibrator

#: A calibrator is cross-validated on up to this many rows: with more it cannot overfit.
_CHECKED = 100_000


@dataclass(frozen=True, eq=False)
class Calibrated:
    r"""What `calibrate_file` did.

    Attributes
    ----------
    path
        The file it wrote.
    calibrator
        The fitted calibrator; `save` keeps it. One that changes nothing where the one asked for does not help.
    n_fitted, n_rows
        Rows it was fitted on, and rows written.
    notes
        What is worth knowing, in sentences.
    applied
        Whether the calibrator asked for was applied.
    choice
        With `"auto"`, what was tried, what was taken, and why.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "validation.csv"
    ...     _ = path.write_text("label,prob_a,prob_b\n" + "a,0.9,0.1\na,0.9,0.1\nb,0.9,0.1\nb,0.1,0.9\n" * 9)
    ...     done = calibrate_file(path, path, Path(folder) / "out.csv")
    >>> done.applied, done.n_fitted, done.n_rows
    (True, 36, 36)
    """

    path: Path
    calibrator: Calibrator
    n_fitted: int
    n_rows: int
    notes: tuple[str, ...]
    applied: bool = True
    choice: Calibration | None = None

    @property
    def sentences(self) -> list[str]:
        """What was done, and the notes."""
        what = f"{self.calibrator!r} fitted on {self.n_fitted:,} rows" if self.applied else "not calibrated"
        return [f"{what}; {self.n_rows:,} rows written to {self.path}", *self.notes]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def calibrate_file(
    validation: str | os.PathLike[str] | PredictionsFile,
    file: str | os.PathLike[str] | PredictionsFile,
    out: str | os.PathLike[str],
    *,
    calibrator: str | Calibrator = "temperature",
    check: bool = True,
    group: str | None = None,
    weight: str | None = None,
    safe_csv: bool = False,
) -> Calibrated:
    r"""Fit a calibrator on the predictions of one file, and write those of another with calibrated probabilities.

    Logits are used as they are. Probabilities become logarithms, which differ from the original logits by a constant in
    each row. Softmax, and so temperature scaling, does not see it.
    Half the smallest positive probability of `validation` stands for probabilities of 0.

    The scores of `validation` are held in memory; `file` is read and written some rows at a time. Its other columns
    are kept, `prediction` and `confidence` are replaced or added, and probabilities are in columns `prob_<class>`
    (in an NPZ file: in the matrix `probs`).

    Parameters
    ----------
    validation
        Held-out predictions with labels: not those the model was trained on, and not those it will be judged by.
    file
        The predictions to repair. It needs no labels. Its classes are those of `validation`, in any order.
    out
        Where to; .csv, .csv.gz, .tsv, .parquet or .npz.
    calibrator
        `"auto"`, which chooses by cross-validation, a name of `vicinal.calibrators.CALIBRATORS`, or a calibrator,
        which is fitted (again).
    check
        Whether the calibrator must help by cross-validation on `validation` (up to 100,000 rows; with more it is not
        looked at). One that does not is not applied: the probabilities stay as they are, and `notes` say so.
    group
        The column of groups of `validation`, where rows of a group are alike: cross-validation keeps each together.
    weight
        The column of `validation` that says how much each row counts in the fit and in the check.
    safe_csv
        See `write`.

    Returns
    -------
    Calibrated
        The file that was written, and the fitted calibrator.

    Examples
    --------
    >>> import tempfile
    >>> rows = ["a,0.9,0.1", "a,0.9,0.1", "b,0.9,0.1", "b,0.1,0.9"] * 9  # right in three of four cases
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "validation.csv"
    ...     _ = path.write_text("\n".join(["label,prob_a,prob_b", *rows]))
    ...     done = calibrate_file(path, path, Path(folder) / "out.csv")
    >>> round(done.calibrator.temperature_, 4)  # log 9 / log 3
    2.0
    """
    target = check_output(out)
    held_out, given = as_file(validation), as_file(file)
    method = None if calibrator == "auto" else _method(calibrator)
    fitted_on, repaired = (
        target.exists() and any(target.samefile(path) for path in one.source.files) for one in (held_out, given)
    )
    if fitted_on and not repaired:
        raise ValueError(
            Sentence(
                Argument("out"),
                f" must not be the validation file {str(target)!r}, which would be lost: choose another name",
            )
        )
    order = _check_pair(held_out, given, method)
    counts = _Counts()
    logits, labels, least, groups, weights = _collected(held_out, counts, group, weight)
    note, chosen = None, None
    if method is None:
        chosen = _chosen(logits, labels, groups, weights)
        applied = chosen.calibrator
    else:
        note = _objection(method, logits, labels, groups, weights) if check and len(labels) <= _CHECKED else None
        applied = method.fit(logits, labels, sample_weight=weights) if note is None else _unchanged(logits.shape[1])
    notes = [
        *([] if chosen is None else [str(chosen)]),
        *([] if note is None else [note]),
        *merged_notes(counts.spellings),
        *_zeros(held_out, counts.n_zero),
        *_dropped(held_out, counts.n_dropped),
    ]
    n_fitted, counts = len(labels), _Counts()
    del logits, labels
    kept = _kept(given)
    n_rows = write(
        target, held_out.classes or (), _repaired(given, applied, order, kept, counts, least), safe_csv=safe_csv
    )
    if left := [name for name in given.others if name not in (*kept, "prediction", "confidence")]:
        notes.append(f"left out, as they have another number of rows: {', '.join(map(repr, left))}")
    notes += [*_zeros(given, counts.n_zero), *_dropped(given, counts.n_dropped)]
    return Calibrated(target, applied, n_fitted, n_rows, tuple(dict.fromkeys(notes)), note is None, chosen)


def _unchanged(n_classes: int) -> Calibrator:
    from vicinal.calibrators import TemperatureScaling

    return TemperatureScaling.of(1.0, n_classes)


def _objection(
    method: Calibrator,
    logits: NDArray[np.floating],
    labels: NDArray[np.int64],
    groups: object,
    weights: NDArray[np.float64] | None,
) -> str | None:
    """Return why a calibrator is not applied, None where it helps by cross-validation."""
    from vicinal.calibrators import cross_validate

    enough = len(labels) > 1
    tried = cross_validate(method, logits, labels, sample_weight=weights, groups=groups) if enough else None
    if tried is not None and tried.helps:
        return None
    seen = "" if tried is None else f" (NLL {tried.with_it:.4f} with it and {tried.without:.4f} without)"
    return Sentence(
        f"{method!r} is not applied, the probabilities stay as they are: by cross-validation on {len(labels):,} rows "
        f"it does not help{seen}; ",
        Argument("check", False),
        " applies it all the same",
    )


@dataclass
class _Counts:
    n_zero: int = 0
    n_dropped: int = 0
    spellings: Mapping[str, Collection[str]] = field(default_factory=dict)


def _method(value: object) -> Calibrator:
    from vicinal.calibrators import CALIBRATORS
    from vicinal.calibrators.base import Calibrator

    return value if isinstance(value, Calibrator) else CALIBRATORS[choice("calibrator", value, tuple(CALIBRATORS))]()


def _chosen(
    logits: NDArray[np.floating], labels: NDArray[np.int64], groups: object, weights: NDArray[np.float64] | None
) -> Calibration:
    from vicinal.calibrators import calibrate

    together = None if groups is None else np.asarray(groups)
    return calibrate(labels, logits=logits, sample_weight=weights, groups=together)


def _check_pair(validation: PredictionsFile, file: PredictionsFile, method: Calibrator | None) -> NDArray[np.intp]:
    """Return where each class of `validation` stands in `file`, or say why the two do not fit."""
    for one in (validation, file):
        if one.classes is None or one.kind == "confidence":
            raise ValueError(
                f"{str(one.path)!r} holds predictions and confidences only: calibrating needs the probabilities or "
                "logits of all classes (columns prob_<class> or logit_<class>, or a column probs or logits)"
            )
    validation.required_label()
    ours, theirs = validation.classes or (), file.classes or ()
    if set(ours) != set(theirs):
        odd = sorted(set(ours) ^ set(theirs))
        raise ValueError(
            Sentence(
                f"{str(validation.path)!r} and {str(file.path)!r} must have the same classes, but {odd[0]!r} is in one "
                f"of them only ({len(ours)} and {len(theirs)} classes). Name the classes of a file with ",
                Argument("classes"),
            )
        )
    if validation.kind != file.kind and type(method).__name__ == "VectorScaling":
        raise ValueError(
            f"{str(validation.path)!r} holds {validation.kind} and {str(file.path)!r} {file.kind}: vector scaling "
            "needs the same of both, as it sees the constant by which logarithms of probabilities differ from logits"
        )
    place = {name: i for i, name in enumerate(theirs)}
    return np.array([place[name] for name in ours], np.intp)


def parts_of_file(
    file: str | os.PathLike[str] | PredictionsFile, *, group: str | None = None, weight: str | None = None
) -> dict[str, LossParts]:
    r"""Return calibration and refinement of a predictions file, as `vicinal.calibrators.loss_parts` does.

    The scores of all classes are held in memory, as those that a calibrator is fitted on. Of more than 100,000 rows
    every second, third, … is taken.

    Parameters
    ----------
    file
        A predictions file with the scores of all classes.
    group, weight
        The columns of groups and of weights, as for `evaluate_file`.

    Returns
    -------
    dict[str, LossParts]
        The parts of NLL and Brier score.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "answers.csv"
    ...     _ = path.write_text("label,prob_0,prob_1\n" + "0,0.9,0.1\n1,0.3,0.7\n1,0.6,0.4\n" * 20)
    ...     sorted(parts_of_file(path))
    ['brier', 'nll']
    """
    from vicinal.calibrators import loss_parts

    opened = as_file(file)
    if opened.kind == "confidence":
        raise ValueError(f"calibration parts need the scores of all classes, and {str(opened.path)!r} has one a row")
    logits, labels, _, groups, weights = _collected(opened, _Counts(), group, weight)
    some = slice(None, None, -(-len(labels) // _CHECKED))
    alike = None if groups is None else np.asarray(groups)[some]
    counted = None if weights is None else weights[some]
    return loss_parts(labels[some], logits=logits[some], sample_weight=counted, groups=alike)


def _collected(
    file: PredictionsFile, counts: _Counts, group: str | None, weight: str | None
) -> tuple[NDArray[np.floating], NDArray[np.int64], float, object, NDArray[np.float64] | None]:
    """Return logits and labels, what a probability of 0 was taken for, the groups and the weights."""
    from vicinal.calibrators.auto import least_prob

    scores, labels, groups, weights = [], [], [], []
    for chunk in file.chunks(others=[*group_columns(file, group), *weight_columns(file, weight)]):
        weights += [] if weight is None else [row_weights(chunk, weight)]
        groups += [] if group is None else [chunk.others[group]]
        counts.spellings = chunk.spellings
        scores.append(_scores(file, chunk, counts))
        labels.append(chunk.labels)
    if not sum(map(len, scores)):
        raise ValueError(f"{str(file.path)!r} has no rows to fit on")
    known = np.concatenate(scores)
    least = 0.0 if file.kind == "logits" else least_prob(known)
    truth = np.concatenate([part for part in labels if part is not None])
    counted = None if weight is None else joined_weights(weights, weight)
    return _as_logits(file, known, least), truth, least, joined_groups(groups) if groups else None, counted


def _repaired(
    file: PredictionsFile, method: Calibrator, order: NDArray[np.intp], kept: list[str], counts: _Counts, least: float
) -> Iterator[tuple[Columns, NDArray[np.floating]]]:
    for chunk in file.chunks(labels=False, others=kept):
        if len(chunk):
            logits = np.ascontiguousarray(_as_logits(file, _scores(file, chunk, counts), least)[:, order])
            yield chunk.others, method.predict_proba(logits)


def _as_logits(file: PredictionsFile, scores: NDArray[np.floating], least: float) -> NDArray[np.floating]:
    """Return logits; of probabilities, which are raised to `least`, the logarithms."""
    return file.logits(scores if file.kind == "logits" else np.maximum(scores, scores.dtype.type(least)))


def _scores(file: PredictionsFile, chunk: FileChunk, counts: _Counts) -> NDArray[np.floating]:
    """Return scores, float64 where the file holds it, else float32."""
    counts.n_dropped += chunk.n_dropped
    scores = np.asarray(chunk.scores)
    scores = scores if scores.dtype == np.float64 else scores.astype(np.float32)
    if file.kind != "logits":
        counts.n_zero += int((scores == 0).sum())
    return scores


def _kept(file: PredictionsFile) -> list[str]:
    """Return the columns to hand along, in the order of the file."""
    rows = file.source.columns[file.columns[0]].n_rows
    names = {*file.others, *([file.label] if file.label is not None else [])} - {"prediction", "confidence"}
    return [name for name in file.source.columns if name in names and file.source.columns[name].n_rows == rows]


def _zeros(file: PredictionsFile, n: int) -> list[str]:
    said = "are 0: half the smallest positive one stands for them"
    return [f"{n:,} probabilities of {file.path.name} {said}"] if n else []


def _dropped(file: PredictionsFile, n: int) -> list[str]:
    return [f"{n:,} rows of {file.path.name} are left out: a value is missing"] if n else []
