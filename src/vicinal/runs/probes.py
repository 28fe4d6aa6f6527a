"""Probe a run with other inputs: out-of-distribution data, noise, adversarial attacks.

The state of global random generators is restored: a loader draws from them, and so does building a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from vicinal import _random
from vicinal._checks import Argument, Sentence, choice
from vicinal.calibrators.conformal import kinds_of_sets
from vicinal.data import Task
from vicinal.data.image import ImagePreprocessing
from vicinal.metrics import Evaluation, SetEvaluation, evaluate, evaluate_sets, ood
from vicinal.metrics.ood import OODReport, ood_report
from vicinal.probes.attacks import AttackErrors, attack_errors, parse_attack
from vicinal.probes.between import BetweenCurves, between_samples
from vicinal.probes.noise import GaussianNoise, gaussian_like
from vicinal.probes.uncertainty import MCDropout
from vicinal.runs.bundle import Bundle
from vicinal.runs.run import RunResult

#: The name of made-up inputs: Gaussian noise with the training set's mean and variance.
NOISE = "noise"

#: The scores by name; higher for samples that look like the training data.
OOD_SCORES: dict[str, Callable[[Tensor], NDArray[np.float64]]] = {
    "max_probability": ood.max_probability,
    "entropy": ood.negative_entropy,
    "energy": ood.energy,
    "margin": ood.margin,
}


def prediction_sets(result: RunResult, coverage: float) -> dict[str, SetEvaluation]:
    """Measure prediction sets on the test set, fitted on the validation set; by what a table calls them.

    The validation set chose the weights and the calibrator, so the guarantee is not exact here: what is measured shows
    whether that matters.

    Returns
    -------
    dict[str, SetEvaluation]
        The metrics of each kind of prediction sets.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> {name: sets.size.value for name, sets in prediction_sets(result, 0.9).items()}  # doctest: +SKIP
    """
    if "val" not in result.sets or "test" not in result.sets:
        raise ValueError(Sentence(Argument("sets"), " needs a validation and a test set"))
    val, test = (result.sets[name] for name in ("val", "test"))
    scaled, how = result.calibrators, {"generator": torch.Generator().manual_seed(0)}
    return {
        name: evaluate_sets(
            test.labels, sets=kind.fit(scaled(val.logits), val.labels, **how)(scaled(test.logits), **how)
        )
        for name, kind in kinds_of_sets(coverage, val.logits.shape[1]).items()
    }


@dataclass(frozen=True)
class OODResult:
    """How well a run tells its test set from other data, in one way of looking at its logits.

    Examples
    --------
    >>> from vicinal.metrics import ood_report
    >>> OODResult("noise", "plain", ood_report([0.9, 0.8, 0.7], [0.6, 0.5])).report.auroc.value
    1.0
    """

    source: str
    """The other data, or `"noise"`."""
    how: str
    """`"plain"`, `"calibrated"` or `"mc_dropout"`."""
    report: OODReport
    """How well the scores separate the two."""

    @property
    def name(self) -> str:
        """What a table calls it."""
        return f"{self.source}{_HOW[self.how]}"


#: The ways of looking at logits, by what a table calls them.
_HOW = {"plain": "", "calibrated": ", calibrated", "mc_dropout": ", dropout on"}


@_random.restored_globals()
def ood_reports(
    result: RunResult,
    sources: Sequence[str],
    *,
    score: str = "max_probability",
    passes: int | None = None,
    **options: Any,
) -> list[OODResult]:
    """Return how well a run tells its test set from other data: before and after calibration, and with dropout on.

    Thulasidasan et al. (2019, Section 7 and Table 1) compare all three.

    Parameters
    ----------
    result
        A finished run.
    sources
        What `vicinal.data.load` takes, of the same kind as the training data (labels are not used), or `"noise"`.
    score
        `"max_probability"`, `"entropy"`, `"energy"` or `"margin"`.
    passes
        How often to predict with dropout on; the mean of the probabilities is scored (`MCDropout`), without the
        calibrator, which was fitted to one pass without dropout. Not at all if not given.
    options
        Of `vicinal.data.read`.

    Returns
    -------
    list[OODResult]
        The reports of each source in each way, in that order.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> ood_reports(result, ["noise"])[0].report.auroc  # doctest: +SKIP
    """
    scored = OOD_SCORES[choice("score", score, tuple(OOD_SCORES))]
    if passes is not None and score == "energy":
        energy = Argument("score", "energy")
        raise ValueError(Sentence(energy, " is of logits, and means of probabilities have none: leave one out"))
    bundle, task = result.run.bundle(), result.run.task()

    def ways(dataset: Sized, logits: Tensor) -> dict[str, NDArray[np.float64]]:
        scores = {"plain": scored(logits.double()), "calibrated": scored(bundle.calibrators(logits))}
        return scores if passes is None else {**scores, "mc_dropout": scored(_mc_logits(bundle, dataset, passes))}

    inside, results = ways(task.test, result.test.logits), []
    for source in sources:
        dataset = _noise(task) if source == NOISE else bundle.read(source, **options)
        outside = ways(dataset, torch.cat(list(bundle.iter_logits(dataset))))
        results += [OODResult(source, how, ood_report(inside[how], outside[how])) for how in outside]
    return results


def _noise(task: Task) -> Unlabelled:
    """Return as much noise as there are test samples."""
    if task.kind == "text":
        raise ValueError("noise needs inputs that are numbers; for texts name other texts instead")
    plain = task.train.relabelled(task.train.labels or [], augment="none")
    generator = torch.Generator().manual_seed(_random.seed_from("noise", 0))
    per = "dataset" if task.kind == "audio" else "channel"
    return Unlabelled(gaussian_like(plain, len(task.test), per=per, generator=generator))


def _mc_logits(bundle: Bundle, dataset: object, passes: int) -> Tensor:
    """Return the log of the mean probabilities over passes with dropout on."""
    model, generator = MCDropout(bundle.network, passes), torch.Generator().manual_seed(_random.seed_from("passes", 0))
    return torch.cat(list(bundle.iter_logits(dataset, network=lambda x: model(x, generator=generator))))


class Unlabelled:
    """Inputs as the prediction loop takes them: with a label, which is -1 where there is none."""

    def __init__(self, inputs: GaussianNoise) -> None:
        self._inputs = inputs

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self._inputs[i], -1


@_random.restored_globals()
def attacks_on(
    result: RunResult, attacks: Sequence[str], *, source: str | None = None
) -> list[tuple[str, AttackErrors]]:
    """Return the errors of a run's model on its attacked test set, by attack.

    Attacks are written `"fgsm:4/255"` or `"ifgsm:4/255:10"`, with ε in units of pixels in [0, 1]. With `source`,
    another run whose gradients are used, it is a black-box attack.

    Returns
    -------
    list[tuple[str, AttackErrors]]
        The name of each attack and the errors under it.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> attacks_on(result, ["fgsm:4/255"])[0][1].attacked[1]  # doctest: +SKIP
    """
    wanted = [parse_attack(text) for text in attacks]
    bundle, task = result.run.bundle(), result.run.task()
    if not len(task.test):
        raise ValueError(f"{str(result.out)!r} has no test set to attack")
    if not isinstance(task.preprocessing, ImagePreprocessing):
        raise ValueError(f"attacks need inputs in a valid range, as images have; this run is on {task.kind} data")
    other = None if source is None else Bundle.load(source)
    if other is not None and other.preprocessing != bundle.preprocessing:
        raise ValueError(f"the attacking run {source!r} takes other inputs: train it on the same data")
    if other is not None and other.classes != bundle.classes:
        raise ValueError(f"the attacking run {source!r} has other classes: train it on the same data")
    results = []
    for attack in wanted:
        errors = attack_errors(
            bundle.network,
            DataLoader(task.test, batch_size=bundle.batch_size, collate_fn=task.collate_fn),
            attack,
            source=None if other is None else other.network,
            mean=task.preprocessing.mean,
            std=task.preprocessing.std,
        )
        results.append((str(attack), errors))
    return results


@_random.restored_globals()
def with_mc_dropout(result: RunResult, passes: int = 10) -> Evaluation:
    """Return the metrics of a run on its test set with dropout on, averaged over several passes.

    The calibrator is left out: it was fitted to one pass without dropout.

    Returns
    -------
    Evaluation
        The metrics of the averaged probabilities.

    Examples
    --------
    >>> result = Run("runs/table").result()  # doctest: +SKIP
    >>> with_mc_dropout(result, passes=5).nll  # doctest: +SKIP
    """
    bundle, task = result.run.bundle(), result.run.task()
    logits = _mc_logits(bundle, task.test, passes)
    return evaluate(torch.tensor(task.test.labels), logits=logits, n_bins=result.test.before.n_bins)


@_random.restored_globals()
def between(result: RunResult, pairs: int = 200) -> BetweenCurves:
    """Return what a run's network does along segments between training samples, and half as far beyond them.

    Returns
    -------
    BetweenCurves
        The curves over λ from −0.5 to 1.5.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> between(result, pairs=20).misses.value  # doctest: +SKIP
    """
    bundle, task = result.run.bundle(), result.run.task()
    if task.kind == "text":
        raise ValueError("between texts there is nothing: this needs inputs that are numbers")
    plain = task.train.relabelled(task.train.labels or [], augment="none")
    generator = torch.Generator().manual_seed(_random.seed_from("pairs", 0))
    lambdas = torch.linspace(-0.5, 1.5, 21, dtype=torch.float64)
    return between_samples(bundle.network, plain, pairs=pairs, lambdas=lambdas, generator=generator)
