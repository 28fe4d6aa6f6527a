"""Find labels of a run that look wrong, by cross-validation or by their margins in training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal import _random
from vicinal._atomic import Json, sealed, write_json
from vicinal._checks import Argument, Sentence, integer
from vicinal.data import Split, Task
from vicinal.data.splitting import fold_numbers, grouped_split, split_positions
from vicinal.objectives.guided.aum import AUM
from vicinal.probes.aum_threshold import Audit, find_mislabelled
from vicinal.probes.confident_learning import LabelIssues, label_issues
from vicinal.runs.execute import held_out_logits
from vicinal.runs.mistakes import shown
from vicinal.runs.run import RunResult, load_task
from vicinal.training import AUMRecorder, fit
from vicinal.training.defaults import default_config

Say = Callable[[str], None]

#: The share of a fold's training samples that says when to stop and what temperature suits.
_VALIDATION = 0.15


@dataclasses.dataclass(frozen=True, eq=False)
class CrossAudit:
    """What cross-validation says about the labels of a run.

    Examples
    --------
    >>> from vicinal.probes import label_issues
    >>> probs, labels = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), np.array([0, 0, 1])
    >>> audit = CrossAudit(label_issues(labels, probs=probs), probs, labels, [], ("cat", "dog"))
    >>> audit.issues.prediction.tolist()
    [0, 1, 1]
    """

    issues: LabelIssues
    """Which labels look wrong."""
    probs: NDArray[np.float64]
    """Of each sample by the model that did not see it, `[N, K]`."""
    labels: NDArray[np.int64]
    """The class numbers that the data have, `[N]`."""
    samples: list[Json]
    """What there is to show, the most probably wrong first."""
    classes: tuple[str, ...]
    """Their names, in the order of class numbers."""

    def review(self) -> Iterator[tuple[dict[str, object], NDArray[np.float64]]]:
        """Yield, of the samples that are shown and candidates, the columns to write and their probabilities."""
        chosen = [sample for sample in self.samples if sample["candidate"]]
        if chosen:
            names = ("index", "label", "label_probability", "wrong_probability", "suspicious", "reason")
            columns: dict[str, object] = {name: [sample[name] for sample in chosen] for name in names}
            yield columns, self.probs[[sample["row_of_probs"] for sample in chosen]]


@_random.restored_globals()
def audited(
    result: RunResult,
    *,
    n_folds: int = 5,
    n: int | None = None,
    progress: bool = True,
    on_note: Say | None = None,
) -> CrossAudit:
    """Return which labels of a run's data look wrong to models that were trained without them.

    All samples, of the training, the validation and the test set, are dealt into folds, groups and copies together. For
    each fold the run's network is trained by the run's method on the others, and gives the fold's probabilities at its
    own calibrator; `label_issues` judges them. The trainings are kept in the run's folder `audit`,
    so an audit that was stopped resumes.

    Shown are the first n samples to review; if n is not given, all candidates. `progress` and `on_note` are as in
    `vicinal.runs.run`.

    Returns
    -------
    CrossAudit
        Which labels look wrong, with the probabilities of every sample.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> audited(result, n_folds=2, progress=False).issues.noise  # doctest: +SKIP
    """
    integer("n_folds", n_folds, low=2)
    if n is not None:
        integer("n", n, low=1)
    say, task, seed = on_note or (lambda note: None), result.run.task(), result.experiment.seed
    parts = [task.train, task.val, task.test]
    places = np.concatenate([part.positions for part in parts])
    labels = np.concatenate([np.array(part.labels, np.int64) for part in parts])
    groups = None if task.groups is None else task.groups[places]
    folds = fold_numbers(labels, n_folds, groups=groups, seed=seed)
    probs = np.zeros((len(labels), len(task.classes)))
    for fold in range(n_folds):
        left_out = folds == fold
        say(f"training {fold + 1} of {n_folds}: without {int(left_out.sum())} samples, which it then judges")
        probs[left_out] = _out_of_fold(result, places, labels, groups, left_out, fold, progress)
    issues = label_issues(labels, probs=probs)
    ranking = issues.ranking.tolist()
    chosen = ranking[: int(issues.candidates.sum()) if n is None else n]
    samples = _shown(task, parts, issues, probs, labels, chosen)
    counts: Json = {"suspicious": int(issues.suspicious.sum()), "n": len(labels), "folds": n_folds}
    counts["candidates"] = int(issues.candidates.sum())
    counts |= {"false_alarms": issues.false_alarms.to_dict(), "noise": issues.noise.to_dict()}
    kept = [{name: value for name, value in sample.items() if name != "row_of_probs"} for sample in samples]
    write_json(result.run.files.audit_record, sealed({**counts, "samples": kept}))
    return CrossAudit(issues, probs, labels, samples, task.classes)


def _out_of_fold(
    result: RunResult,
    places: NDArray[np.int64],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    left_out: NDArray[np.bool_],
    fold: int,
    progress: bool,
) -> NDArray[np.float64]:
    """Return the probabilities of a fold by a network that was trained on the others."""
    experiment, rest = result.experiment, np.flatnonzero(~left_out)
    if groups is None:
        split = split_positions(labels[rest], val=_VALIDATION, test=0.0, seed=fold)
    else:
        split = grouped_split(labels[rest], groups[rest], val=_VALIDATION, test=0.0, seed=fold)
    numbers = {"train": rest[split["train"]], "val": rest[split["val"]], "test": np.flatnonzero(left_out)}
    task = load_task(experiment, splits={part: places[of].tolist() for part, of in numbers.items()})
    # The labels of the run, which corrupted some on request.
    relabelled = {part: getattr(task, part).relabelled(labels[of].tolist()) for part, of in numbers.items()}
    logits = held_out_logits(
        experiment,
        dataclasses.replace(task, **relabelled),
        result.run.files.audit_training(f"fold-{fold + 1}"),
        progress=progress,
    )
    probs: NDArray[np.float64] = logits.softmax(dim=1).numpy()
    return probs


def _shown(
    task: Task,
    parts: Sequence[Split],
    issues: LabelIssues,
    probs: NDArray[np.float64],
    labels: NDArray[np.int64],
    chosen: Sequence[int],
) -> list[Json]:
    """Return what to show of these samples, in this order."""
    ends = np.cumsum([len(part) for part in parts])
    samples = []
    for row in chosen:
        k = int(np.searchsorted(ends, row, side="right"))
        part, i = parts[k], row - int(ends[k] - len(parts[k]))
        label, prediction = int(labels[row]), int(issues.prediction[row])
        of_label, confidence = float(probs[row, label]), float(probs[row, prediction])
        sample = {
            "index": part.indices[i],
            "label": task.classes[label],
            "prediction": task.classes[prediction],
            "confidence": confidence,
            "label_probability": of_label,
            "candidate": bool(issues.candidates[row]),
            "suspicious": bool(issues.suspicious[row]),
            "wrong_probability": float(issues.wrong[row]),
            "reason": _reason(task.classes, label, prediction, of_label, confidence),
            "row_of_probs": row,
        }
        samples.append((part, i, sample))
    return [sample | shown(part, i) for part, i, sample in samples]


def _reason(classes: Sequence[str], label: int, prediction: int, of_label: float, confidence: float) -> str:
    if label == prediction:
        return f"{classes[label]!r} is the most probable class too ({confidence:.3f})"
    return (
        f"a model that did not see it gives {classes[prediction]!r} a probability of {confidence:.3f}, and the label "
        f"{classes[label]!r} one of {of_label:.3f}"
    )


@_random.restored_globals()
def audited_by_aum(
    result: RunResult, *, percentile: float = 99.0, n: int = 50, progress: bool = True, on_note: Say | None = None
) -> tuple[Audit, list[Json]]:
    """Return the audit of a run's training labels by their margins, and the most suspicious samples to be shown.

    The network of the run is trained plainly, twice, with one more class that a share of 1/(K + 1) of the samples are
    put into, a different one each time (Pleiss et al. 2020). A label is suspicious where its margin, averaged over
    training, is no better than that of samples which do not belong where they were put. With two classes a third of
    the samples is put there, which says little: `audited` is the one for few classes.

    Suspicious is a sample whose margin is at most this percentile of those samples' margins; the n most suspicious are
    returned. `progress` and `on_note` are as in `vicinal.runs.run`.

    Returns
    -------
    tuple[Audit, list[dict]]
        The audit, and the samples to be shown.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> audit, samples = audited_by_aum(result, n=10, progress=False)  # doctest: +SKIP
    """
    integer("n", n, low=1)
    files, spec, task = result.run.files, result.run.bundle().spec, result.run.task()
    if spec.name in ("hgb", "lightgbm", "catboost"):
        raise ValueError(Sentence(Argument("by", "aum"), " needs a network: trees have no margins to follow"))
    say = on_note or (lambda note: None)
    experiment = result.experiment
    default = default_config(task.kind, spec.name, experiment.training, seed=experiment.seed, n_train=len(task.train))
    config = default.unvalidated()

    def train(labels: Tensor, n_outputs: int, number: int) -> Tensor:
        say(f"training {number + 1} of 2: {int((labels == n_outputs - 1).sum())} samples put into a class of their own")
        with _random.restored_globals():
            _random.seed_globals(_random.seed_from("audit", experiment.seed, number))
            model = dataclasses.replace(spec, n_classes=n_outputs, members=1).build()
        recorder = AUMRecorder(AUM(len(task.train)))
        fit(
            model,
            recorder,
            task.train.relabelled(labels.tolist()),
            out=files.audit_training(f"training-{number + 1}"),
            config=config,
            collate_fn=task.collate_fn,
            progress=progress,
            about={"fingerprint": task.fingerprint, "network": spec.to_dict()},
        )
        return recorder.aum.values()

    generator = torch.Generator().manual_seed(_random.seed_from("audit", experiment.seed))
    labels = torch.tensor(task.train.labels)
    audit = find_mislabelled(train, labels, len(task.classes), percentile=percentile, generator=generator)
    worst = audit.ranking[:n].tolist()
    samples = [
        {
            "index": task.train.indices[i],
            "label": task.classes[int(labels[i])],
            "aum": float(audit.aum[i]),
            "threshold": audit.thresholds[int(audit.run[i])],
            "suspicious": bool(audit.suspicious[i]),
            **shown(task.train, i, original),
        }
        for i, original in zip(worst, task.train.originals(worst), strict=True)
    ]
    counts = {"suspicious": int(audit.suspicious.sum()), "n": len(labels), "percentile": audit.percentile}
    write_json(files.audit_record, sealed({**counts, "samples": samples}))
    return audit, samples
