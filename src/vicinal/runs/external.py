"""Files of predictions beside runs: the answers of any model on the test samples of a run, as a result to compare."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vicinal._atomic import Json
from vicinal.experiment import Experiment
from vicinal.predictions import open_file
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators
from vicinal.runs.run import RunResult
from vicinal.runs.scores import score


def result_of_predictions(
    path: str | os.PathLike[str], like: RunResult | None = None, *, n_bins: int = 15
) -> RunResult:
    r"""Return a predictions file with labels as a result that has a test set only, and no calibrator.

    Parameters
    ----------
    path
        The file. Its rows are the test samples of `like` in their order, or all rows of its data.
    like
        The result that it is compared with. Labels that differ from its test labels are an error.
    n_bins
        Of the calibration errors.

    Returns
    -------
    RunResult
        The result, which `merged` compares with others.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     _ = path.write_text("label,prob_dog,prob_cat\ncat,0.25,0.75\ndog,0.2,0.8\n")
    ...     result = result_of_predictions(path)
    >>> result.sets["test"].after.accuracy.value
    0.5
    """
    file = open_file(path)
    target = None if like is None else like.experiment.data.get("target")
    if file.label is None and target in file.others:
        file = open_file(path, label=str(target))
    if file.kind == "confidence" or file.label is None:
        lacks = (
            "a column of labels, which shows that the samples are the same" if file.label is None else "probabilities"
        )
        raise ValueError(f"{str(path)!r} needs {lacks}: `vicinal predict RUN DATA --keep COLUMN` writes both")
    chunks = [chunk for chunk in file.chunks() if len(chunk)]
    if not chunks:
        raise ValueError(f"{str(path)!r} has no rows")
    scores = np.concatenate([np.asarray(chunk.scores, np.float64) for chunk in chunks])
    labels = np.concatenate([np.asarray(chunk.labels, np.int64) for chunk in chunks])
    names = [str(name) for name in chunks[-1].classes]
    if like is not None:
        scores, labels = _aligned(str(path), scores, labels, names, like.of_classes())
        names = [str(name) for name in like.facts["data"]["classes"]]
    logits = scores if file.kind == "logits" else np.log(np.maximum(scores, 1e-300))
    untouched = HeadCalibrators.of_temperatures({ONLY_HEAD: 1.0}, len(names))
    test = score("test", torch.from_numpy(logits), torch.from_numpy(labels), untouched, n_bins)
    data = {"name": Path(path).name, "classes": names} if like is None else like.facts["data"]
    about = {"fingerprint": None, "splits": None} if like is None else like.fit["about"]
    experiment = Experiment(source=str(path)) if like is None else like.experiment
    facts: Json = {"data": data, "network": {"name": "predictions"}, "weights": 0, "notes": []}
    fit = {"method": "predictions", "seconds": None, "about": about}
    return RunResult(experiment, Path(path), facts, fit, [], {"test": test}, untouched)


def _aligned(
    path: str, scores: NDArray[np.float64], labels: NDArray[np.int64], names: list[str], like: RunResult
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scores and labels of the test samples of a result, in its order of samples and classes."""
    classes, wanted = [str(name) for name in like.facts["data"]["classes"]], like.test.labels.numpy()
    if sorted(names) != sorted(classes):
        raise ValueError(f"{path!r} has the classes {names}, and {str(like.out)!r} has {classes}")
    order = [names.index(name) for name in classes]
    scores, labels = scores[:, order], np.argsort(order)[labels]
    if len(labels) != len(wanted):
        positions = np.array(like.run.task().test.indices)
        n = 1 + int(positions.max())
        if len(labels) < n:
            size = f"{len(wanted):,} test samples of {str(like.out)!r}, or all rows of its data"
            raise ValueError(f"{path!r} has {len(labels):,} rows, and it needs those of the {size}")
        scores, labels = scores[positions], labels[positions]
    if differ := int((labels != wanted).sum()):
        raise ValueError(
            f"{path!r} has other labels than the test samples of {str(like.out)!r}: {differ:,} of {len(wanted):,} "
            "differ. Its rows must be the same samples in the same order"
        )
    return scores, labels
