"""One verdict on a model: is its confidence right, is it useful, is any class or slice off, and what to do next.

`judge` decides. The terminal, `vicinal evaluate`, the reports and `--json` show what it returns. Overall calibration
comes first, then usefulness, leakage, baselines, single classes and slices. A confidence is off where one of these
shows it, by a point or more:

- the mean gap between confidence and accuracy (two-sided, 2 %),
- the slope b of P(right) = σ(b · logit confidence), which is 1 / T for two classes (likelihood ratio, 1 %),
- the lower end of the interval of the ECE,
- the accuracy in a bin of at least 50 samples (exact, 1 %, Bonferroni over bins).

A model is useful where its NLL, its Brier score or its AUROC is significantly better than answering with the shares of
the classes. Accuracy decides only where the probabilities of all classes are unknown.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vicinal.metrics import BinaryEvaluation, Estimate, Evaluation, Slice, clopper_pearson, error_estimates
from vicinal.metrics.base_rate import BaseRate
from vicinal.metrics.error_intervals import squared_gaps
from vicinal.metrics.intervals import mean_interval
from vicinal.metrics.selective import RiskCoverage, RiskThreshold
from vicinal.report.formatting import count, number, percent, span, threshold, with_interval

if TYPE_CHECKING:
    from vicinal.runs import GridResult, Importance, RunResult

#: With fewer samples the interval of an accuracy is too wide to say anything: ±8 points at 90 %.
ENOUGH = 50
#: Answers that name a class, at least, before its confidence is judged.
_ENOUGH_NAMED = 20
#: A gap between confidence and accuracy that nobody would act on, however significant it is.
_SMALL = 0.01
#: A difference of scores that rounding explains.
_NOTHING = 1e-6
#: A gap that too few samples cannot exclude: then they show neither a good nor a bad calibration.
_LARGE = 0.1
#: The baseline that is preferred where a model is no better.
SIMPLE = "logistic regression"
#: The share of the NLL of the shares of the classes that a model takes away, and of what it is better by that is lost
#: without one column; and how far that column is ahead of the next.
_MOST_OF_IT, _FAR_AHEAD = 0.5, 5
#: Levels that together keep false alarms at 5 %: the normal quantile for the gap (2 %), χ² for the slope (1 %), and the
#: level for all bins and for all classes.
_Z_GAP, _CHI_SLOPE, _OF_BINS = 2.3263, 6.6349, 0.01
#: How often to be right, the strictest first.
_WANTED = (0.99, 0.98, 0.95, 0.9, 0.8)
#: A rule that answers fewer cases than this is no use, and a few lucky samples make one.
_WORTHWHILE = 0.05

#: Metrics of baselines by name; `"nll_difference"` is the NLL of the model less theirs, paired on the same samples.
Baselines = Mapping[str, Mapping[str, Estimate | None]]

_WAYS = {
    "over": "Over-confident",
    "under": "Under-confident",
    "uneven": "Unevenly calibrated",
    "fits": "Well calibrated",
    "unknown": "Too few samples to judge the confidence",
}


@dataclass(frozen=True)
class Finding:
    """The answer to one question: a status in one word, and a sentence, which is empty where nothing is known."""

    status: str
    sentence: str
    detail: str = ""
    """What adds to the sentence."""
    columns: tuple[str, ...] = ()
    """The columns that it is about."""


@dataclass(frozen=True)
class Verdict:
    """What to think of a model, and what to do next. Made by `judge`."""

    tone: str
    """The worst of the findings: `"fits"`, `"over"`, `"under"`, `"uneven"`, `"leak"`, `"worse"` (than a baseline),
    `"useless"` or `"unknown"`."""
    sentence: str
    """The finding that decides."""
    calibration: Finding
    """`fits`, `over`, `under`, `uneven` or `unknown`."""
    usefulness: Finding
    """`useful`, `useless`, `miscalibrated` (it ranks, but its probabilities mislead) or `unknown`."""
    classes: Finding
    """`fits`, `off` or `unknown`."""
    slices: Finding
    """`fits`, `off` (the confidence in a slice), `worse` (its accuracy or NLL) or `unknown`."""
    baselines: Finding
    """`better`, `worse`, `no difference` or `unknown`."""
    leakage: Finding
    """`leak` (a column holds nearly all information, or its data warn of it), `fits` or `unknown`."""
    next_step: str
    """What to do, with the command where there is one."""
    section: str = ""
    """The identifier of the report's section that helps with it."""

    @property
    def others(self) -> list[str]:
        """The findings that the headline leaves out."""
        found = (self.calibration, self.usefulness, self.leakage, self.classes, self.slices, self.baselines)
        said = [text for each in found for text in (each.sentence, each.detail)]
        return [text for text in said if text and text != self.sentence]

    def __str__(self) -> str:
        return "\n".join([self.sentence, *self.others, f"Next step: {self.next_step}"])

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return asdict(self)


def judge(
    evaluation: Evaluation,
    *,
    classes: Sequence[str] = (),
    binary: BinaryEvaluation | None = None,
    baselines: Baselines | None = None,
    slices: Sequence[Slice] | None = None,
    importance: Sequence[Importance] = (),
    warnings: Sequence[str] = (),
) -> Verdict:
    r"""Judge a model by its evaluation.

    Parameters
    ----------
    evaluation
        Of new samples.
    classes
        Names of the classes; by default those of the evaluation.
    binary
        How the probability of the second of two classes ranks.
    baselines
        Metrics of baselines on the same samples, as `Run.baselines` returns them.
    slices
        Metrics of slices, the worst first; by default those of the evaluation.
    importance
        Of the columns, as `vicinal.runs.permutation_importance` returns it.
    warnings
        Those of the training data, among which may be columns that leak the target.

    >>> from vicinal.metrics import evaluate
    >>> probs = [[0.95, 0.05]] * 500 + [[0.05, 0.95]] * 500
    >>> found = judge(evaluate(([0] * 430 + [1] * 70) + ([1] * 430 + [0] * 70), probs=probs))
    >>> found.tone, found.sentence.replace("\xa0", " ")
    ('over', 'Over-confident: it says 95.0 % on average and is right 86.0 % of the time.')
    """
    names = classes or evaluation.classes
    calibration = _calibration(evaluation)
    useful = _usefulness(evaluation, names, binary, baselines or {})
    by_class = _by_class(evaluation, names)
    by_slice = _by_slice(evaluation, evaluation.slices if slices is None else slices)
    against = versus_baselines(evaluation, baselines or {})
    leakage = _leakage(evaluation, importance, warnings)
    # What a green headline must not hide, the gravest first.
    of_parts = (("uneven", by_class, "off"), ("uneven", by_slice, "off"))
    hidden = (("leak", leakage, "leak"), ("worse", against, "worse"), *of_parts)
    part = next(((tone, each.sentence) for tone, each, status in hidden if each.status == status), None)
    if useful.status in ("useless", "unknown") and useful.sentence and calibration.status != "unknown":
        tone, sentence = ("useless" if useful.status == "useless" else "unknown"), useful.sentence
    elif calibration.status == "fits" and part is not None:
        tone, sentence = part
        # Beside a class or a slice that is off, "well calibrated" alone would contradict the headline.
        calibration = replace(calibration, sentence=calibration.sentence.replace(" (n", " overall (n", 1))
    else:
        tone, sentence = calibration.status, calibration.sentence
    verdict = Verdict(tone, sentence, calibration, useful, by_class, by_slice, against, leakage, "")
    step, section = _next_step(evaluation, verdict, names)
    simple = against.status == "no difference" and _as_good(SIMPLE, baselines or {})
    more = f" {SIMPLE.capitalize()}, which is simpler, is not significantly worse." if simple else ""
    return replace(verdict, next_step=step + more, section=section)


# Calibration


def _calibration(evaluation: Evaluation) -> Finding:
    """Compare confidence and accuracy, overall first and then in each bin."""
    table, n = evaluation.table, evaluation.n
    if n < ENOUGH:
        return Finding("unknown", f"{_WAYS['unknown']}: {count(n, 'sample')}, and it takes at least {ENOUGH}.")
    gap, error = _mean_gap(evaluation)
    slope, shift, is_sloped = _slope(evaluation)
    ece = error_estimates(table)["ece"]
    bins = _bins_off(evaluation)
    says = f"it says {percent(table.confidence)} on average and is right {percent(table.accuracy)} of the time"
    if abs(gap) >= max(_SMALL, _Z_GAP * error):
        tone = "over" if gap > 0 else "under"
        return Finding(tone, f"{_WAYS[tone]}: {says}.", bins)
    if is_sloped and shift >= _SMALL:
        tone = "over" if slope < 1 else "under"
        return Finding(tone, f"{_WAYS[tone]}: {says}, but a temperature of {1 / slope:.2f} fits better.", bins)
    if ece.low >= _SMALL or bins:
        mean = f"the mean gap over {table.n_bins} bins (ECE) is {' ('.join(with_interval(ece, share=True))})"
        return Finding("uneven", f"{_WAYS['uneven']}: {mean}.", bins)
    # At the level of the test, so that an interval without 0 and "well calibrated" do not meet.
    within = f"98 % CI {_points(gap - _Z_GAP * error)} to {_points(gap + _Z_GAP * error)} points"
    if abs(gap) + 1.96 * error > _LARGE:
        return Finding("unknown", f"{_WAYS['unknown']}: {says} (n = {n:,}, gap {within}).")
    return Finding("fits", f"{_WAYS['fits']} (n = {n:,}): {says} (gap {within}).")


def _mean_gap(evaluation: Evaluation) -> tuple[float, float]:
    """Return mean confidence less accuracy and its standard error, at least that of calibrated confidences."""
    table, n = evaluation.table, evaluation.n
    gap = table.confidence - table.accuracy
    observed = float(squared_gaps(table).sum()) / n - gap**2
    expected = (float(table.sums.sum()) - float(table.squares.sum())) / n
    return gap, math.sqrt(max(observed, expected, 0) / n)


def _slope(evaluation: Evaluation) -> tuple[float, float, bool]:
    """Return b of P(right) = σ(b · logit c), the mean change of confidence by it, and whether b = 1 is rejected."""
    if evaluation.samples is not None:
        confidence, right = evaluation.samples.confidence, evaluation.samples.correct.astype(np.float64)
        n = np.ones_like(right)
    else:
        sums = evaluation.fine.bins
        filled = sums.count > 0
        n, right = sums.count[filled].astype(np.float64), sums.correct[filled].astype(np.float64)
        confidence = sums.confidence[filled] / n
    c = np.clip(np.asarray(confidence, np.float64), 1e-7, 1 - 1e-7)
    z = np.log(c) - np.log1p(-c)
    b = 1.0
    for _ in range(50):
        p = 1 / (1 + np.exp(-b * z))
        curvature = float((n * p * (1 - p) * z**2).sum())
        step = float(((right - n * p) * z).sum()) / max(curvature, 1e-12)
        b = min(max(b + max(min(step, 1.0), -1.0), 0.02), 50.0)
        if abs(step) < 1e-9:
            break

    def log_likelihood(slope: float) -> float:
        return float(-(right * np.logaddexp(0, -slope * z) + (n - right) * np.logaddexp(0, slope * z)).sum())

    shift = float((n * np.abs(1 / (1 + np.exp(-b * z)) - c)).sum() / n.sum())
    return b, shift, 2 * (log_likelihood(b) - log_likelihood(1.0)) > _CHI_SLOPE


def _bins_off(evaluation: Evaluation) -> str:
    """Name the bin whose accuracy is farthest from its confidence beyond chance, all bins considered (Bonferroni)."""
    table = evaluation.table
    large = np.flatnonzero(table.bin_count >= ENOUGH)
    level = 1 - _OF_BINS / max(len(large), 1)
    off: list[tuple[float, str]] = []
    for b in large:
        n, right = int(table.bin_count[b]), int(table.bins.correct[b])
        confidence = float(table.bins.confidence[b]) / n
        low, high = (float(end) for end in clopper_pearson(right, n, level))
        if abs(confidence - right / n) >= _SMALL and not low <= confidence <= high:
            off.append((abs(confidence - right / n), _said_of_bin(confidence, right / n, low, high)))
    return max(off)[1] if off else ""


def _said_of_bin(confidence: float, accuracy: float, low: float, high: float) -> str:
    """Say how often it is right in a bin, with the decimals at which the printed interval leaves the confidence out."""
    decimals = 1 if confidence > 0.97 or high - low < 0.03 else 0
    while decimals < 2 and math.floor(low * 10 ** (decimals + 2)) <= round(
        confidence * 10 ** (decimals + 2)
    ) <= math.ceil(high * 10 ** (decimals + 2)):
        decimals += 1
    # 99.96 % must not be printed as the certainty that it is not.
    said = "over 99.9" if 0.9995 <= confidence < 1 else f"{100 * confidence:.{decimals}f}".removesuffix(".0")
    often = "only " if confidence > accuracy else "in fact "
    return f"When it says {said}\u00a0%, it is right {often}{span(low, high, decimals)} of the time."


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


# Usefulness


def _usefulness(
    evaluation: Evaluation, names: Sequence[str], binary: BinaryEvaluation | None, baselines: Baselines
) -> Finding:
    """Compare NLL, Brier and AUROC with answering the shares of the classes; accuracy where these are unknown."""
    base, accuracy = evaluation.base_rate, evaluation.metrics.get("accuracy")
    if base is None or accuracy is None:
        return Finding("unknown", "")
    nll, brier = (_less(name, evaluation, base) for name in ("nll", "brier"))
    if measured := baselines.get("majority class", {}).get("nll_difference"):
        nll = measured
    auroc = None if binary is None else binary.auroc
    always = f"always answering {_class_name(base.majority, names)}, which is right {percent(base.share)} of the time"
    known = evaluation.metrics.get("nll")
    scores = [] if known is None else [f"NLL {known.value:.3f}, {base.nll:.3f} by the shares of the classes"]
    scores += [] if auroc is None else [f"AUROC {percent(auroc.value)}"]
    facts = "; ".join(scores) or f"accuracy {percent(accuracy.value)}, {percent(base.share)} by the most frequent class"
    ranks = auroc is not None and auroc.low > 0.5
    worse = nll is not None and (nll.low > 0 or math.isinf(nll.value))
    if not worse and (ranks or any(each is not None and each.high < -_NOTHING for each in (nll, brier))):
        few = "" if accuracy.low > base.share else f" Accuracy does not show it: {always}."
        few = few.replace(", which is right", " is right") if nll is not None or ranks else ""
        return Finding("useful", f"Useful: {facts}.{few}")
    if worse and (ranks or accuracy.low > base.share):
        return Finding("miscalibrated", f"It separates the classes, but its probabilities mislead: {facts}.")
    if nll is None and accuracy.low > base.share:
        return Finding("useful", f"Useful: {facts}.")
    no_better = [each is None or each.value >= -_NOTHING for each in (nll, brier)]
    if worse or (all(no_better) and accuracy.value <= base.share):
        return Finding("useless", f"No better than {always} ({facts}).")
    few = f"{count(evaluation.n, 'sample')} are too few to decide"
    return Finding("unknown", f"Not shown to be better than {always}: {few} ({facts}).")


def _less(name: str, evaluation: Evaluation, base: BaseRate) -> Estimate | None:
    """Return NLL or Brier less that of the shares of the classes, paired where the samples are known."""
    measured, counts = evaluation.metrics.get(name), evaluation.class_counts
    if measured is None or counts is None:
        return None
    share = counts / counts.sum()
    of_class = -np.log(np.maximum(share, 1e-300)) if name == "nll" else 1 - 2 * share + (share**2).sum()
    samples = evaluation.samples
    if samples is None or name not in samples.values or not math.isfinite(measured.value):
        constant = base.nll if name == "nll" else float(1 - (share**2).sum())
        return Estimate(measured.value - constant, measured.low - constant, measured.high - constant)
    less = samples.moments(samples.values[name] - of_class[samples.labels], 0.95)
    return mean_interval(less, 0.95, low=-math.inf, high=math.inf)


def _class_name(number: int, names: Sequence[str]) -> str:
    return repr(names[number]) if number < len(names) else f"class {number}"


# Classes


def _by_class(evaluation: Evaluation, names: Sequence[str]) -> Finding:
    """Compare the confidence of the answers that name a class with how often they are right (Bonferroni)."""
    confusion, confidence = evaluation.confusion, evaluation.named_confidence
    if confusion is None or confidence is None:
        return Finding("unknown", "")
    named, right = confusion.sum(axis=0), confusion.diagonal()
    tried = np.flatnonzero(named >= _ENOUGH_NAMED)
    if not len(tried):
        return Finding("unknown", "")
    low, high = clopper_pearson(right[tried], named[tried], 1 - _OF_BINS / len(tried))
    says, is_right = confidence[tried] / named[tried], right[tried] / named[tried]
    gap = says - is_right
    off = np.flatnonzero(((says < low) | (says > high)) & (np.abs(gap) >= _SMALL))
    if not len(off):
        return Finding("fits", "")
    worst = off[np.abs(gap[off]).argmax()]
    n = int(named[tried[worst]])
    way = "Over" if gap[worst] > 0 else "Under"
    others = count(len(off) - 1, "other class", "other classes")
    more = "" if len(off) == 1 else f" The confidence of {others} is off too."
    return Finding(
        "off",
        f"{way}-confident in {_class_name(int(tried[worst]), names)}: answers with this class say "
        f"{percent(says[worst])} and are right {percent(is_right[worst])} of the time (n = {n:,}).{more}",
    )


# Slices


def _by_slice(evaluation: Evaluation, slices: Sequence[Slice]) -> Finding:
    """Name the slice whose confidence is off the most, or else the worst slice, of those that are significant."""
    found = [one for one in slices if one.status]
    if not found:
        return Finding("fits" if slices else "unknown", "")
    off = [one for one in found if one.is_off]
    worst = max(off, key=lambda one: abs(one.gap.value)) if off else found[0]
    right = f"right {percent(worst.accuracy.value)} of the time"
    if off:
        way = "Over" if worst.gap.value > 0 else "Under"
        says = percent(worst.accuracy.value + worst.gap.value)
        return Finding("off", f"{way}-confident in the slice {_named(worst)}: it says {says} and is {right}.")
    nll = "" if worst.nll is None else f", NLL {worst.nll.value:.3f} ({evaluation.nll.value:.3f} overall)"
    overall = percent(evaluation.table.accuracy)
    return Finding("worse", f"The worst slice is {_named(worst)}: it is {right} ({overall} overall){nll}.")


def _named(one: Slice) -> str:
    return f"“{one.name}” (n = {one.n:,})"


# Leakage


def _leakage(evaluation: Evaluation, importance: Sequence[Importance], warnings: Sequence[str]) -> Finding:
    """Say whether a column leaks: by the importance, or by a warning of the data.

    Importance divides over copies of a column, of which the model can lose any one. The warning looks at each alone.
    """
    found = _most_important(evaluation, importance)
    if not warnings:
        return found
    from vicinal.data.leakage import leaks_in  # only for runs: a predictions file is judged without torch

    if not (warned := leaks_in(warnings)):
        return found
    said = [f"{text[0].upper()}{text[1:]}." for text in warned.values()]
    columns = tuple(dict.fromkeys((*found.columns, *warned)))
    sentence, *more = [found.sentence, *said] if found.sentence else said
    return Finding("leak", sentence, " ".join(more), columns)


def _most_important(evaluation: Evaluation, importance: Sequence[Importance]) -> Finding:
    """Say whether one column holds nearly all information of a model that knows most of the answers.

    Without it the model would lose what it is better by. One good column of a modest model is no sign of leakage.
    """
    known = [(one.column, one.nll) for one in importance if one.nll is not None]
    if len(known) < 2 or evaluation.base_rate is None or "nll" not in evaluation.metrics:
        return Finding("unknown", "")
    (name, first), (_, second) = known[:2]
    useful = evaluation.base_rate.nll - evaluation.nll.value
    knows = evaluation.nll.value <= (1 - _MOST_OF_IT) * evaluation.base_rate.nll
    if knows and first.low > _MOST_OF_IT * useful and first.value > _FAR_AHEAD * max(second.value, 0):
        leaks = "it leaks the target unless it is known before the answer"
        return Finding("leak", f"Nearly all information is in the column {name!r}: {leaks}.", columns=(name,))
    return Finding("fits", "")


# Baselines


def _as_good(name: str, baselines: Baselines) -> bool:
    """Whether the model is not significantly better than a baseline."""
    less = baselines.get(name, {}).get("nll_difference")
    return less is not None and less.high >= 0


def versus_baselines(evaluation: Evaluation, baselines: Baselines) -> Finding:
    """Say whether the model has a significantly lower NLL than every baseline.

    `"nll_difference"` among the metrics of a baseline is paired, sample by sample. Where both models are right on every
    sample, it shows their confidence but not the cost of a mistake, and decides nothing.
    """
    nll, accuracy = evaluation.metrics.get("nll"), evaluation.metrics.get("accuracy")
    others = {name: e.value for name, of in baselines.items() if (e := of.get("nll")) and of.get("nll_difference")}
    if nll is None or not others:
        return Finding("unknown", "")
    best = min(others, key=lambda name: others[name])
    less = {name: e for name in others if (e := baselines[name]["nll_difference"])}
    theirs = baselines[best].get("accuracy")
    status, head = "no difference", "No significant difference to the best baseline"
    if accuracy is not None and theirs is not None and accuracy.value == theirs.value == 1:
        head += ", since both are right on every sample"
    elif all(each.high < 0 for each in less.values()):
        status, head = "better", "Better than the baselines"
    elif less[best].low > 0:
        status, head = "worse", "Worse than the best baseline"
    sentence = f"{head}: NLL {nll.value:.3f}, {best} {others[best]:.3f} ({_difference(less[best])})."
    if SIMPLE not in less or best == SIMPLE or status == "better":
        return Finding(status, sentence)
    simple = less[SIMPLE]
    head = "Better than" if simple.high < 0 else "Worse than" if simple.low > 0 else "No significant difference to"
    return Finding(status, sentence, f"{head} {SIMPLE}: NLL {others[SIMPLE]:.3f} ({_difference(simple)}).")


def _difference(estimate: Estimate) -> str:
    value, low, high = (
        f"{end:+.3f}".replace("-", "−") if math.isfinite(end) else number(end)
        for end in (estimate.value, estimate.low, estimate.high)
    )
    return f"difference {value}, 95 % CI {low} to {high}"


def _next_step(evaluation: Evaluation, found: Verdict, names: Sequence[str]) -> tuple[str, str]:
    """Return what to do, and the section of the report that helps with it."""
    file, calibration, useful = evaluation.path, found.calibration, found.usefulness
    repair = "train again with `--calibrate auto`, or with more validation samples"
    if file is not None:
        repair = f"run `vicinal calibrate VALIDATION {shlex.quote(str(file))} --calibrator auto --out FILE`"
        repair += " on held-out predictions"
    if found.leakage.status == "leak" and useful.status != "useless":
        drop = " ".join(f"--drop {shlex.quote(name)}" for name in found.leakage.columns)
        check = "Check that column. If it is not known in time, train again without it"
        if len(found.leakage.columns) > 1:
            check = "Check these columns. If they are not known in time, train again without them"
        return f"{check}: `{drop}`.", "importance"
    if found.baselines.status == "worse" and calibration.status in ("fits", "unknown"):
        better = "Use the best baseline, or try another model: compare them with `vicinal compare --model`."
        return better, "baselines"
    if calibration.status == "unknown" or (useful.status == "unknown" and useful.sentence):
        return f"Measure it on more labelled samples than these {evaluation.n:,}.", ""
    if useful.status == "useless":
        return "Do not use it. Check the labels, and look for inputs that carry information about them.", ""
    if calibration.status in ("over", "under", "uneven") or useful.status == "miscalibrated":
        simple = repair.replace(" --calibrator auto", "") if calibration.status in ("over", "under") else repair
        return f"Calibrate it: {simple}.", "reliability"
    if found.classes.status == "off":
        return f"Calibrate its classes: {repair}.", "classes"
    if found.slices.status == "off":
        alone = "Use it, but not its confidence in that slice: pass these cases on, or train with more samples of them."
        return alone, "slices"
    watch = " Watch the worst slice: pass its cases on, or train with more samples of them."
    care = watch if found.slices.status == "worse" else ""
    if useful.status == "useful" and "Accuracy does not show it" in useful.sentence:
        choose = f"Choose a threshold on {_probability_to_cut(evaluation, names)}, by what each kind of mistake costs."
        return f"{choose}{care}", "binary"
    return f"Use it. Choose the confidence above which it may answer on its own.{care}", "risk"


def _probability_to_cut(evaluation: Evaluation, names: Sequence[str]) -> str:
    """Name the probability that the section of two classes shows: that of the second class, even if it is frequent."""
    if len(names) != 2 or evaluation.base_rate is None:
        return "the probability of the rare class"
    rare = f" (the rest is that of the rare class {names[0]!r})" if evaluation.base_rate.majority == 1 else ""
    return f"the probability of {names[1]!r}{rare}"


def judge_run(
    result: RunResult, slices: Sequence[Slice] | None = None, importance: Sequence[Importance] | None = None
) -> Verdict:
    """Judge a run of classes by its test set, or by its validation set where it has no other.

    `slices` are those of columns that were named; by default all that training measured. `importance` is that of the
    columns; by default the one that is kept with the run.
    """
    from vicinal.runs.importance import kept_importance

    key = next((name for name in ("test", "val") if name in result.sets), None)
    if key is None:
        none = Finding("unknown", "")
        step = "Set samples aside for validation and for testing."
        said = "No samples were held out, so nothing is known."
        return Verdict("unknown", said, none, none, none, none, none, none, step)
    scored = result.sets[key]
    of_test = key == "test"
    of_file = result.fit["method"] == "predictions"
    return judge(
        replace(scored.after, path=result.out) if of_file else scored.after,
        classes=result.facts["data"]["classes"],
        binary=scored.binary(),
        baselines=result.run.baselines() if of_test else {},
        slices=slices if slices is not None or not of_test else result.run.slices(),
        importance=(importance or kept_importance(result.run)) if of_test else (),
        warnings=result.facts["data"].get("warnings", ()),
    )


def judge_comparison(result: GridResult) -> str:
    """Say which method of a comparison to use, or that none is of use: its first run is judged as a run by itself."""
    method, said = result.advised()
    if not method or result.labels:
        return f"{said} Next step: Use `{method}`." if method else ""
    advised = next(each for (name, _), each in result.results.items() if name == method)
    found = judge_run(advised)
    return f"{said} `{' '.join(method.split())}`: {found.sentence}{_of_baseline(found)} Next step: {found.next_step}"


def _of_baseline(found: Verdict) -> str:
    """Return the comparison with baselines where one is better and the headline does not say so."""
    return f" {found.baselines.sentence}" if found.baselines.status == "worse" and found.tone != "worse" else ""


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
            lack = f" ({percent(_WANTED[0], 0)} is more than {count(held_out.n, 'sample')} can guarantee)"
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


def _level(confidence: float) -> str:
    """Return a confidence rounded up to as many digits as it takes, so that what is said of it holds."""
    digits = 0 if abs(100 * confidence - round(100 * confidence)) < 1e-9 else 2 if confidence < 0.999 else 4
    text = f"{math.ceil(100 * confidence * 10**digits - 1e-6) / 10**digits:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text}\u00a0%"


def answered_above(curve: RiskCoverage, confidence: float) -> str:
    r"""Say how many cases are answered above a confidence, and how many of these wrongly, with exact intervals.

    >>> from vicinal.metrics import risk_coverage
    >>> answered_above(risk_coverage([0.9] * 80 + [0.6] * 20, [True] * 76 + [False] * 24), 0.7).replace("\xa0", " ")
    'Above 70 %: 80.0 % of cases answered (70–88 %), 5.0 % of the answers wrong (1–13 %).'
    """
    above = curve.confidences > confidence
    n, wrong = int(curve.counts[above].sum()), int(curve.errors[above].sum())
    head = f"Above {_level(confidence)}:"
    if not n:
        return f"{head} no case is answered."
    ends = [clopper_pearson(n, curve.n), clopper_pearson(wrong, n)]
    cases, errors = (span(float(low), float(high), 0) for low, high in ends)
    answered = f"{percent(n / curve.n)} of cases answered ({cases})"
    return f"{head} {answered}, {percent(wrong / n)} of the answers wrong ({errors})."
