"""Metrics in sentences: what a confidence is worth, and what may be answered without asking a person."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vicinal.metrics import Estimate, Evaluation, ReliabilityTable, clopper_pearson, error_estimates
from vicinal.metrics.selective import RiskCoverage, RiskThreshold
from vicinal.report.formatting import count, number, percent, span, threshold, with_interval

#: With fewer samples the interval of an accuracy is too wide to say anything: ±8 points at 90 %.
ENOUGH = 50
#: A gap between confidence and accuracy that nobody would act on, however certain it is.
_SMALL = 0.01
#: How often to be right, the strictest first.
_WANTED = (0.99, 0.98, 0.95, 0.9, 0.8)

#: A rule that answers fewer cases than this is no use, and a few lucky samples make one.
_WORTHWHILE = 0.05

#: Numbers of bins.
Bins: TypeAlias = "NDArray[np.intp]"

_NBSP = "\u00a0"


@dataclass(frozen=True)
class Verdict:
    """What a confidence is worth."""

    tone: str
    """`"fits"`, `"over"` (it is right less often than it says, or no better than no model), `"under"`, or
    `"unknown"`."""
    sentence: str
    """In one sentence."""
    word: str
    """In a few words."""
    more: str = ""
    """What the sentence leaves out."""


def verdict(table: ReliabilityTable) -> Verdict:
    r"""Say how often the model is right when it says 90 %, or what it says most often.

    The accuracy is that of the bins around 90 % with its exact interval; where they hold fewer than 50 samples, of the
    fullest bin. A gap counts where the interval excludes the confidence and it is at least one point. That one fits
    does not mean that all do: another that is off is named, and so is an ECE that chance does not explain.

    >>> table = ReliabilityTable.from_confidences([0.9] * 1000, [True] * 900 + [False] * 100)
    >>> verdict(table).sentence
    'When it says 90\xa0%, it is right 87–92\xa0% of the time.'
    >>> verdict(ReliabilityTable.from_confidences([0.9] * 10, [True] * 10)).tone
    'unknown'
    """
    bins = _around(table, 0.9)
    if table.bin_count[bins].sum() < ENOUGH:
        bins = np.array([int(table.bin_count.argmax())])
    n = int(table.bin_count[bins].sum())
    if n < ENOUGH:
        most = "" if n == table.n else f", at most {n} of them with about the same confidence"
        return Verdict(
            "unknown",
            f"There are too few samples to tell how far to trust it: {count(table.n, 'sample')}{most}.",
            "No verdict.",
            f"It takes {ENOUGH} of about the same confidence for an interval that says anything.",
        )
    tone, sentence = _compared(*_pooled(table, bins), 0.95)
    parts = [(tone, ""), _elsewhere(table, bins), _overall(table)]
    ways = {way for way, _ in parts} - {"fits"}
    others = [text for _, text in parts if text]
    if len(ways) > 1:
        word = "Its confidence is uneven: too high in places, too low in others."
    elif others and tone == "fits":
        word = "There its confidence fits."
    else:
        whole = f"Well calibrated (n = {table.n:,})."
        word = {"over": "It is over-confident.", "under": "It is under-confident: more often right than it says."}.get(
            tone, whole
        )
    return Verdict(tone, sentence + ".", word, " ".join(others))


def judged(evaluation: Evaluation, classes: Sequence[str] = ()) -> Verdict:
    """Return the verdict on an evaluation, which always names what is reached without a model.

    A model that is not better than the most frequent class is never said to fit.
    """
    base = evaluation.base_rate
    calibration = verdict(evaluation.table)
    if base is None:
        return calibration
    without = base_rate_sentence(evaluation, classes)
    warning = majority_warning(evaluation, classes)
    if warning:
        tone = "over" if _is_no_better(evaluation) else "unknown"
        return Verdict(tone, warning, "Its answers are no use as they are.", f"{without} {calibration.sentence}")
    return replace(calibration, more=f"{calibration.more} {without}".strip())


def base_rate_sentence(evaluation: Evaluation, classes: Sequence[str] = ()) -> str:
    """Say what is reached without a model: the share of the most frequent class, and the NLL of the shares."""
    base, nll = evaluation.base_rate, evaluation.metrics.get("nll")
    if base is None:
        return ""
    of_model = "" if nll is None else f"; its own NLL is {nll.value:.3f}"
    return (
        f"Without a model: always answering {_class_name(base.majority, evaluation, classes)} is right "
        f"{percent(base.share)} of the time, and the shares of the classes have an NLL of {base.nll:.3f}{of_model}."
    )


def majority_warning(evaluation: Evaluation, classes: Sequence[str] = ()) -> str:
    """Say so where a model is not better, or not shown to be better, than always answering the most frequent class.

    It is better where the interval of its accuracy lies above the share of that class, or that of its NLL below the
    NLL of the shares and it answers with the right class more often.
    """
    base, accuracy, nll = evaluation.base_rate, evaluation.metrics.get("accuracy"), evaluation.metrics.get("nll")
    if base is None or accuracy is None or accuracy.low > base.share:
        return ""
    name = _class_name(base.majority, evaluation, classes)
    always = f"always answering {name}, which is right {percent(base.share)} of the time"
    if _is_no_better(evaluation):
        return f"It is no better than {always}."
    if nll is None or nll.high >= base.nll:
        return f"It is not shown to be better than {always}: {count(evaluation.n, 'sample')} are too few to tell."
    if accuracy.value <= base.share:
        return (
            f"It is right no more often than {always}; only its probabilities say more than the shares of the classes."
        )
    return ""


def versus_baselines(evaluation: Evaluation, simpler: Mapping[str, Mapping[str, Estimate | None]]) -> str:
    """Say whether the model has a significantly lower NLL than the best baseline.

    `"nll_difference"` among the metrics of a baseline is paired, sample by sample. Where both models are right on every
    sample, it shows their confidence but not the cost of a mistake, and decides nothing.
    """
    nll_here = evaluation.metrics.get("nll")
    others = {name: nll.value for name, figures in simpler.items() if (nll := figures.get("nll")) is not None}
    if nll_here is None or not others:
        return ""
    best = min(others, key=lambda name: others[name])
    less, accuracies = (
        simpler[best]["nll_difference"],
        (evaluation.metrics.get("accuracy"), simpler[best].get("accuracy")),
    )
    if less is None:
        return ""
    head = "No significant difference to the best baseline"
    if all(accuracy is not None and accuracy.value == 1 for accuracy in accuracies):
        head += ", since both are right on every sample"
    elif less.high < 0 or less.low > 0:
        head = "Better than the baselines" if less.high < 0 else "Worse than the best baseline"
    interval = f"difference {_signed(less.value)}, 95 % CI {_signed(less.low)} to {_signed(less.high)}"
    return f"{head}: NLL {nll_here.value:.3f}, {best} {others[best]:.3f} ({interval})."


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−") if math.isfinite(value) else number(value)


def _is_no_better(evaluation: Evaluation) -> bool:
    base, accuracy, nll = evaluation.base_rate, evaluation.metrics.get("accuracy"), evaluation.metrics.get("nll")
    if base is None or accuracy is None or accuracy.value > base.share:
        return False
    return nll is None or nll.value >= base.nll


def _class_name(number: int, evaluation: Evaluation, classes: Sequence[str]) -> str:
    names = classes or evaluation.classes
    return repr(names[number]) if number < len(names) else f"class {number}"


def _around(table: ReliabilityTable, confidence: float) -> Bins:
    """Return the bins within five points of a confidence, or the bin that holds it."""
    low, high = table.edges[:-1], table.edges[1:]
    inside = np.flatnonzero((low >= confidence - 0.05 - 1e-9) & (high <= confidence + 0.05 + 1e-9))
    return inside if len(inside) else table.bin_index(np.array([confidence]))


def _pooled(table: ReliabilityTable, bins: Bins) -> tuple[float, int, int]:
    """Return the mean confidence, the number right and the number of samples of some bins together."""
    sums, n = table.bins, int(table.bin_count[bins].sum())
    return float(sums.confidence[bins].sum()) / n, int(sums.correct[bins].sum()), n


def _compared(confidence: float, right: int, n: int, level: float) -> tuple[str, str]:
    low, high = (float(end) for end in clopper_pearson(right, n, level))
    gap = confidence - right / n
    chance = low <= confidence <= high
    tone = "fits" if chance or abs(gap) < _SMALL else "over" if gap > 0 else "under"
    decimals = 1 if confidence > 0.97 or high - low < 0.03 else 0
    # 99.96 % must not be printed as the certainty that it is not.
    said = "over 99.9" if 0.9995 <= confidence < 1 else f"{100 * confidence:.{decimals}f}".removesuffix(".0")
    often = {"over": "only ", "under": "in fact "}.get(tone, "")
    sentence = f"When it says {said}{_NBSP}%, it is right {often}{span(low, high, decimals)} of the time"
    return tone, sentence


def _elsewhere(table: ReliabilityTable, used: Bins) -> tuple[str, str]:
    """Name the other bin that is farthest off beyond chance, all bins considered at once (Bonferroni)."""
    others = [b for b in range(table.n_bins) if b not in used and table.bin_count[b] >= ENOUGH]
    level = 1 - 0.05 / max(len(others), 1)
    off: list[tuple[float, str, str]] = []
    for b in others:
        confidence, right, n = _pooled(table, np.array([b]))
        tone, sentence = _compared(confidence, right, n, level)
        if tone != "fits":
            off.append((abs(confidence - right / n), tone, sentence))
    if not off:
        return "fits", ""
    _, tone, worst = max(off)
    return tone, f"Elsewhere it is less reliable: {worst[0].lower()}{worst[1:]}."


def _overall(table: ReliabilityTable) -> tuple[str, str]:
    """Say so where the mean gap over all bins is more than chance explains, and more than a point."""
    ece = error_estimates(table)["ece"]
    if ece.low < _SMALL:
        return "fits", ""
    value, interval = with_interval(ece, share=True)
    gap = table.confidence - table.accuracy
    tone = "fits" if abs(gap) < ece.value / 2 else "over" if gap > 0 else "under"
    way = {"over": ": on the whole it is over-confident", "under": ": on the whole it is under-confident"}.get(tone, "")
    return tone, (
        f"Over all levels the mean gap (ECE, {table.n_bins} bins) is {value} ({interval}), "
        f"more than chance explains{way}."
    )


# What may be answered


@dataclass(frozen=True)
class Rule:
    """A threshold that held-out samples promise an accuracy for, and what it does on some samples."""

    wanted: float
    """The accuracy promised."""
    chosen: RiskThreshold
    """Threshold and coverage on the held-out samples."""
    coverage: float
    """The share answered of the samples it was tried on."""
    accuracy: Estimate | None
    """On those that are answered; None where none is."""


def rules(held_out: RiskCoverage, tried_on: RiskCoverage) -> list[Rule]:
    """Return the promises that held-out samples support, the strictest first, and what came of them elsewhere.

    `held_out` is of samples that nothing else is claimed about, such as the validation set.
    """
    supported: list[Rule] = []
    for wanted in _WANTED:
        chosen = held_out.risk_threshold(round(1 - wanted, 6))
        if not chosen.n_accepted:
            continue
        accepted = tried_on.confidences > chosen.threshold
        n, wrong = int(tried_on.counts[accepted].sum()), int(tried_on.errors[accepted].sum())
        low, high = clopper_pearson(n - wrong, n)
        accuracy = Estimate(1 - wrong / n, float(low), float(high)) if n else None
        supported.append(Rule(wanted, chosen, n / tried_on.n, accuracy))
        if chosen.threshold == -math.inf:
            break  # less accuracy is promised by the same rule
    return supported


def promise(promises: list[Rule], held_out: RiskCoverage | None, curve: RiskCoverage) -> str:
    """Say in one sentence what to answer and what to pass on.

    The first of the promises, which `rules` made from `held_out`, is worded; where there is none, one looks back at
    `curve`, that of the samples of the report.
    """
    if promises:
        first = promises[0]
        lack = ""
        if first.wanted < _WANTED[0] and held_out is not None:
            lack = f" ({percent(_WANTED[0], 0)} is more than {count(held_out.n, 'sample')} can promise)"
        answer = f"To be right {percent(first.wanted, 0)} of the time{lack}, answer"
        if first.chosen.threshold == -math.inf:
            return f"{answer} every case."
        cases = percent(first.coverage, 0)
        return (
            f"{answer} these {cases} of cases, those above {threshold(first.chosen)} confidence, and pass on the rest."
        )
    for wanted in _WANTED:
        # 1 − 0.99 is not quite 0.01.
        share = curve.coverage_at_risk(1 - wanted + 1e-12)
        if share >= _WORTHWHILE:
            answered = "every case" if share == 1 else f"the {percent(share, 0)} of cases of highest confidence"
            rest = "" if share == 1 else " and passed on the rest"
            return (
                f"Looking back, it would have been right {percent(wanted, 0)} of the time had it answered "
                f"{answered}{rest}."
            )
    return (
        f"It should not answer on its own: whatever the threshold, if it answers {percent(_WORTHWHILE, 0)} of cases or "
        f"more, over {percent(1 - _WANTED[-1], 0)} of the answers are wrong."
    )


def answered_above(curve: RiskCoverage, confidence: float) -> str:
    r"""Say how many cases are answered above a confidence, and how many of these wrongly, with exact intervals.

    >>> from vicinal.metrics import risk_coverage
    >>> answered_above(risk_coverage([0.9] * 80 + [0.6] * 20, [True] * 76 + [False] * 24), 0.7).replace("\xa0", " ")
    'Above 70 %: 80.0 % of cases answered (70–88 %), 5.0 % of the answers wrong (1–13 %).'
    """
    above = curve.confidences > confidence
    n, wrong = int(curve.counts[above].sum()), int(curve.errors[above].sum())
    head = f"Above {percent(confidence, 0)}:"
    if not n:
        return f"{head} no case is answered."
    ends = [clopper_pearson(n, curve.n), clopper_pearson(wrong, n)]
    cases, errors = (span(float(low), float(high), 0) for low, high in ends)
    answered = f"{percent(n / curve.n)} of cases answered ({cases})"
    return f"{head} {answered}, {percent(wrong / n)} of the answers wrong ({errors})."
