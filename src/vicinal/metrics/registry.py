"""The one list of metrics: what each is called, where it comes from, and how far to trust it.

A metric is an entry of `METRICS`. Whatever reports numbers (an evaluation, a file's, a training run's, a table of
methods, a report, a comparison) goes through the list, so that an entry is all there is to add. It derives from one of
six sums, which `vicinal.metrics.Tally` keeps:

- a mean of numbers that each sample has (`per_sample`), such as NLL;
- the reliability table (`of_bins`), such as ECE;
- how often each label met each prediction (`of_pairs`), such as MCC;
- the reliability tables of all classes (`of_classes`);
- the reliability table of some 10,000 bins (`of_fine`), such as smooth ECE;
- the numbers themselves (`of_numbers`), which regression has in place of classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vicinal._arrays import Values
from vicinal._checks import ArgumentError
from vicinal.metrics.chunks import Array, Chunk, Floats
from vicinal.metrics.classwise import ClasswiseTable
from vicinal.metrics.error_intervals import ChanceGaps, chance_of_norm, chance_of_sum, error_estimates
from vicinal.metrics.intervals import Estimate, Moments, clopper_pearson, mean_interval
from vicinal.metrics.reliability import (
    BinSums,
    ReliabilityTable,
    calibration_mse,
    calibration_mse_debiased,
    expected_error,
    expected_error_debiased,
    maximum_error,
    overconfidence_error,
)
from vicinal.metrics.scores import brier_of, mcc_contributions, mcc_estimate, misses, nll_of, spearman_estimate
from vicinal.metrics.smooth import smooth_ece_of

if TYPE_CHECKING:
    from vicinal.metrics.tally import Evaluation, Samples

#: Labels, predictions, and how many samples have both, `[P]`.
Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], Values]
Ends: TypeAlias = tuple[float, float]
#: Of bins, the samples' bins, their confidences and whether they are right: what each adds to a metric, `[..., N]`.
Contributions: TypeAlias = Callable[[BinSums, NDArray[np.intp], Floats, NDArray[np.bool_]], Array]


@dataclass(frozen=True, eq=False)
class Sums:
    """All that metrics derive from, and what is asked of their intervals."""

    table: ReliabilityTable
    """The reliability table; its `n` is the number of samples."""
    n_classes: int = 0
    """K."""
    moments: Mapping[str, Moments] = field(default_factory=dict)
    """Of the metrics that are means, as far as the samples have them, by name."""
    pairs: Pairs | None = None
    """Labels met with predictions; None where they are not known."""
    classwise: ClasswiseTable | None = None
    """The reliability tables of all classes; None where they are not known."""
    level: float = 0.95
    """Confidence level of the intervals."""
    fine: ReliabilityTable | None = None
    """The reliability table of some 10,000 bins; None where no metric needs it."""
    numbers: tuple[Floats, Floats] | None = None
    """Of a regression, targets and predictions, `[N]` each."""

    def thinned(self, times: float) -> Sums:
        """Return what fewer samples of the same kind would give, for intervals of samples in groups."""
        return replace(
            self,
            table=self.table.thinned(times),
            moments={name: moments.thinned(times) for name, moments in self.moments.items()},
            pairs=None if self.pairs is None else (*self.pairs[:2], self.pairs[2] / times),
            fine=None if self.fine is None else self.fine.thinned(times),
        )

    def weighted(self, samples: Samples, weights: Array) -> Sums:
        """Return the sums in which each of the samples that they are of counts so many times, `[N]`."""

        def table(like: ReliabilityTable) -> ReliabilityTable:
            return like.weighted(samples.confidence, samples.correct, weights)

        return replace(
            self,
            table=table(self.table),
            moments={name: Moments.of(of.astype(np.float64), weights) for name, of in samples.values.items()},
            pairs=None if self.pairs is None else (samples.labels, samples.predictions, weights),
            classwise=None,
            fine=None if self.fine is None else table(self.fine),
        )

    @cached_property
    def errors(self) -> dict[str, Estimate]:
        """The calibration errors whose intervals are known in closed form, worked out once for all of them."""
        return error_estimates(self.table, self.level)


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """A metric. Exactly one of `per_sample` and the `of_` fields says what it is.

    Examples
    --------
    >>> from vicinal.metrics import METRICS
    >>> METRICS["ece"].title, METRICS["ece"].limits, METRICS["ece"].higher_is_better
    ('ECE', (0.0, 1.0), False)
    """

    name: str
    """In Python, JSON files and the command: `"ece"`."""
    title: str
    """In print, within a sentence."""
    about: str
    """What it is, in a few words."""
    limits: Ends = (0.0, 1.0)
    """Its range."""
    higher_is_better: bool = False
    """Which way is better."""
    percent: bool = False
    """Whether it is written as a percentage (else as a decimal number)."""
    binned: bool = False
    """Whether it depends on the number of bins, which is then printed with it."""
    column: bool | Callable[[Evaluation], bool] = False
    """Whether it has a column in tables of methods and runs: always, never, or where this says so of an evaluation."""
    column_below: int = 0
    """It has a column, too, in tables of evaluations of fewer samples than this."""
    brief: bool = False
    """Whether it has one in tables with room for few."""
    headline: bool = False
    """Whether it stands at the top of a report and in the progress line of a training."""
    on_request: bool = False
    """Whether it is measured only when it is asked for, being costly."""
    more_classes_than: int = 0
    """It is measured where there are more classes than this."""
    per_sample: Callable[[Chunk], NDArray[np.float64] | NDArray[np.bool_]] | None = None
    """The number of each sample of a chunk, `[M]`; the metric is their mean."""
    mean_of_correct: bool = False
    """Whether it is the mean of whether predictions are right, whatever else is known of the samples."""
    answers_only: bool = False
    """Whether it depends on the answers alone: two models may agree on all of few samples, and not on all others."""
    infinite: str = ""
    """Of a mean: when a sample's number is infinite, in words."""
    mistake: Callable[[Sums], float] | None = None
    """Of a mean: what a wrong prediction is typically worth, for its interval; see `mean_interval`."""
    of_bins: Callable[[BinSums], Array] | None = None
    """The metric of the bins of (variants of) the reliability table, `[...]`."""
    contributions: Contributions | None = None
    """Of a metric of the bins: given the bins `[..., n_bins]`, each sample's bin, its confidence and whether it is
    right, `[..., N]`, what it contributes to the metric, `[..., N]`: the metric is their mean, and their spread its
    error. Without them two models are not compared by it."""
    raised_by_chance: ChanceGaps | None = None
    """Of a metric of the bins that lies above the truth by chance: how far, in either of two models; see `compare`."""
    uncut: Callable[[BinSums], Array] | None = None
    """Of a metric that is cut off at 0: the same sum with the sign of its gaps, `[...]`; see `compare`."""
    of_pairs: Callable[..., tuple[float, Array]] | None = None
    """Of labels, predictions and counts: the metric, and what each pair contributes to it, `[P]` (the metric is the
    mean of the contributions, and their spread is its error)."""
    of_classes: Callable[[ClasswiseTable], float] | None = None
    """The metric of the reliability tables of all classes."""
    of_fine: Callable[[ReliabilityTable, float], Estimate] | None = None
    """The metric of a reliability table of some 10,000 bins, with its interval of this level."""
    of_numbers: Callable[[Floats, Floats, float], Estimate] | None = None
    """The metric of targets and predictions of a regression, `[N]` each, with its interval of this level."""
    interval: Callable[[Sums, float], Ends] | None = None
    """The ends of its interval. By default those of a mean or, of a metric of the bins, of the delta method."""

    def __post_init__(self) -> None:
        # Two sources could disagree, and none would be silently unknown.
        names = ("per_sample", "of_bins", "of_pairs", "of_classes", "of_fine", "of_numbers")
        given = sum(getattr(self, name) is not None for name in names)
        if given != 1:
            raise ArgumentError("sources", given, f"exactly one of {', '.join(f'{name}=' for name in names)}")

    @property
    def compared(self) -> bool:
        """Whether two models can be compared by it."""
        return any(source is not None for source in (self.per_sample, self.of_pairs, self.contributions))

    def measures(self, target_type: str) -> bool:
        """Whether it is a metric of targets of this type: of numbers, or of classes and labels."""
        return (target_type == "regression") == (self.of_numbers is not None)

    def heading(self, n_bins: int) -> str:
        """Return its title, with the number of bins where it depends on them.

        >>> METRICS["ece"].heading(15), METRICS["nll"].heading(15)
        ('ECE (15 bins)', 'NLL')
        """
        return f"{self.title} ({n_bins} bins)" if self.binned else self.title

    def text(self, estimate: Estimate | None) -> str:
        """Return an estimate with its interval as it is written in tables, a dash where there is none.

        >>> METRICS["accuracy"].text(Estimate(0.9123, 0.9, 0.925)), METRICS["nll"].text(Estimate(0.3, 0.2, math.inf))
        ('91.2 % (90.0–92.5)', '0.300 (0.200–∞)')
        """
        if estimate is None:
            return "–"
        scale, decimals, unit = (100, 1, " %") if self.percent else (1, 3, "")
        value, low, high = (
            f"{scale * end:.{decimals}f}" if math.isfinite(end) else "∞" for end in (estimate.value, *_ends(estimate))
        )
        if math.isnan(estimate.low):
            return f"{value}{unit}"
        return f"{value}{unit} ({low}{' to ' if estimate.low < 0 else '–'}{high})"

    def of_each(self, table: ReliabilityTable, samples: Samples) -> Array | None:
        """Return what each sample contributes, `[N]`: the metric is their mean. None where that is not known."""
        if self.of_pairs is not None:
            return self.of_pairs(samples.labels, samples.predictions, samples.weights)[1]
        if self.contributions is not None:
            index = table.bin_index(samples.confidence)
            return self.contributions(table.bins, index, samples.confidence, samples.correct)
        values = samples.values.get(self.name)
        return None if values is None else values.astype(np.float64)

    def unknown(self, sums: Sums) -> str | None:
        """Return why these sums do not tell the metric, None if they do."""
        if self.of_pairs is not None and sums.pairs is None:
            few = sums.n_classes <= MOST_PAIRED
            return "labels and predicted classes are needed" if few else f"there are more than {MOST_PAIRED:,} classes"
        measured = sums.moments[self.name].n if self.name in sums.moments else 0
        # A mean over some of the samples would pass for one over all: confidences without classes have no NLL.
        partly = self.per_sample is not None and measured != sums.table.n
        if partly or (self.of_classes is not None and (sums.classwise is None or sums.classwise.n != sums.table.n)):
            return "the probabilities of all classes are needed"
        return None

    def value(self, sums: Sums) -> float:
        """Return the metric."""
        if self.per_sample is not None:
            return sums.moments[self.name].mean
        if self.of_bins is not None:
            return float(self.of_bins(sums.table.filled()))
        if self.of_pairs is not None and sums.pairs is not None:
            return self.of_pairs(*sums.pairs)[0]
        if self.of_classes is not None and sums.classwise is not None:
            return self.of_classes(sums.classwise)
        if self.of_fine is not None and sums.fine is not None:
            return self.of_fine(sums.fine, sums.level).value
        if self.of_numbers is not None and sums.numbers is not None:
            return self.of_numbers(*sums.numbers, sums.level).value
        raise ValueError(f"{self.name} is not known: {self.unknown(sums)}")

    def estimate(self, sums: Sums, samples: Samples | None = None) -> Estimate:
        """Return the metric with its interval; with `samples` in groups, that of as many independent ones."""
        if samples is not None and samples.groups is not None:
            each = self.of_each(sums.table, samples)
            if each is None:  # of the bins, but not a mean: the gaps are alike in a group
                each = (samples.confidence - samples.correct).astype(np.float64)
            if samples.weights is not None:  # an infinite loss of a sample that counts for nothing is nothing
                each = np.where(samples.weights > 0, each, 0.0)
            if not np.isfinite(each).all():
                return self.estimate(sums)  # an infinite loss has no spread, and its interval is the whole range
            times = samples.groups.design_effect(each, sums.level, any_wrong=not samples.correct.all())
            thin, value = self.estimate(sums.thinned(times)), self.value(sums)
            return Estimate(value, min(thin.low, value), max(thin.high, value)) if thin.low == thin.low else thin
        # These two make value and interval together: to ask for the value first would compute it twice.
        if self.of_fine is not None and sums.fine is not None:
            return self.of_fine(sums.fine, sums.level)
        if self.of_numbers is not None and sums.numbers is not None:
            return self.of_numbers(*sums.numbers, sums.level)
        value = self.value(sums)
        if self.interval is not None:
            return Estimate(value, *self.interval(sums, value))
        if self.per_sample is not None:
            mistake = None if self.mistake is None else self.mistake(sums)
            moments, (low, high) = sums.moments[self.name], self.limits
            return mean_interval(moments, sums.level, low=low, high=high, mistake=mistake)
        if self.of_bins is not None:
            influence, counts = sums.table.influence(self.of_bins)
            moments = Moments(sums.table.n, value, float(counts @ influence**2))
            return mean_interval(moments, sums.level, low=self.limits[0], high=self.limits[1])
        return Estimate(value, math.nan, math.nan)


#: How often each pair of classes occurred is counted up to this many classes.
MOST_PAIRED = 2_000


# Intervals that are not the default of their kind


def _of_proportion(sums: Sums, value: float) -> Ends:
    low, high = clopper_pearson(value * sums.table.n, sums.table.n, sums.level)
    return float(low), float(high)


def _nll_of_mistake(sums: Sums) -> float:
    """Return the mean loss if predictions were wrong, with what they leave over spread evenly on other classes."""
    bins = sums.table.bins
    # A mistake leaves at most 1 − confidence to the truth. The floor keeps a confidence of 1 from making it infinite.
    left = np.maximum(1 - bins.confidence / np.maximum(bins.count, 1), 1e-12) / max(sums.n_classes - 1, 1)
    return float(bins.count @ -np.log(left)) / sums.table.n


def _of_mcc(sums: Sums, value: float) -> Ends:
    if sums.pairs is None:
        raise ValueError("MCC needs labels and predicted classes")
    labels, predictions, counts = sums.pairs
    return _ends(mcc_estimate(labels, predictions, sums.level, counts))


def _ends(estimate: Estimate) -> Ends:
    return estimate.low, estimate.high


# What each sample contributes to a metric of the bins: with δ the gap of its bin and D its confidence less its accuracy


def _of_accuracy(bins: BinSums, index: NDArray[np.intp], confidence: Floats, correct: NDArray[np.bool_]) -> Array:
    return correct.astype(np.float64)


def _of_ece(bins: BinSums, index: NDArray[np.intp], confidence: Floats, correct: NDArray[np.bool_]) -> Array:
    each: Array = np.take_along_axis(np.sign(_gaps(bins)), index, axis=-1) * (confidence - correct)
    return each


def _of_oe(bins: BinSums, index: NDArray[np.intp], confidence: Floats, correct: NDArray[np.bool_]) -> Array:
    # OE counts over-confident bins only, by their confidence, so others contribute nothing.
    weight = np.where(_gaps(bins) > 0, bins.confidence / np.maximum(bins.count, 1), 0)
    each: Array = np.take_along_axis(weight, index, axis=-1) * (confidence - correct)
    return each


def _of_rms(bins: BinSums, index: NDArray[np.intp], confidence: Floats, correct: NDArray[np.bool_]) -> Array:
    # RMS = √(Σ p δ²): a sample of bin b moves it by (δ D − δ²/2)/RMS − RMS/2.
    rms, gap = np.asarray(_rms(bins))[..., None], np.take_along_axis(_gaps(bins), index, axis=-1)
    pull: Array = (gap * (confidence - correct) - gap**2 / 2) / np.where(rms > 0, rms, 1) + rms / 2
    return pull


def _gaps(bins: BinSums) -> Array:
    gaps: Array = (bins.confidence - bins.correct) / np.maximum(bins.count, 1)
    return gaps


# The list


def _accuracy(bins: BinSums) -> Array:
    share: Array = bins.correct.sum(axis=-1) / bins.count.sum(axis=-1)
    return share


def _rms(bins: BinSums) -> Array:
    return np.sqrt(calibration_mse(bins))


def _rms_debiased(bins: BinSums) -> Array:
    return np.sqrt(np.maximum(calibration_mse_debiased(bins), 0))


def _unbalanced(evaluation: Evaluation) -> bool:
    """Whether the labels' entropy is below nine tenths of that of classes of one size: for two, 68 : 32 or worse."""
    counts = evaluation.class_counts
    if counts is None or len(counts) < 2:
        return False
    share = counts[counts > 0] / counts.sum()
    # Entropy rather than the largest share: it notices imbalance among many classes as among two.
    return bool(-(share @ np.log(share)) < 0.9 * math.log(len(counts)))


def _squared_error(targets: Floats, predictions: Floats, level: float) -> Estimate:
    return mean_interval((predictions - targets) ** 2, level, low=0.0, high=math.inf)


def _spearman(targets: Floats, predictions: Floats, level: float) -> Estimate:
    return spearman_estimate(targets, predictions, level=level)


def _signed_oe(bins: BinSums) -> Array:
    gaps = bins.confidence / np.maximum(bins.count, 1) * (bins.confidence - bins.correct)
    signed: Array = gaps.sum(axis=-1) / bins.count.sum(axis=-1)
    return signed


def _error(name: str, title: str, about: str, of_bins: Callable[[BinSums], Array], **fields: Any) -> Metric:
    """Return the entry of a calibration error, whose interval is known in closed form."""

    def interval(sums: Sums, value: float) -> Ends:
        return _ends(sums.errors[name])

    named = Metric(name=name, title=title, about=about, of_bins=of_bins, interval=interval, percent=True, binned=True)
    return replace(named, **fields)


#: By name, in the order of print.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="accuracy",
            title="accuracy",
            about="how often it is right",
            higher_is_better=True,
            percent=True,
            column=True,
            brief=True,
            headline=True,
            mean_of_correct=True,
            answers_only=True,
            of_bins=_accuracy,
            contributions=_of_accuracy,
            interval=_of_proportion,
        ),
        Metric(
            name="top5_error",
            title="top-5 error",
            about="how often the truth is not among its five first guesses",
            percent=True,
            column=True,
            more_classes_than=5,
            answers_only=True,
            per_sample=lambda chunk: misses(chunk, 5),
            interval=_of_proportion,
        ),
        Metric(
            name="mcc",
            title="MCC",
            about="Matthews' correlation of answers and truth",
            limits=(-1.0, 1.0),
            higher_is_better=True,
            column=_unbalanced,
            answers_only=True,
            of_pairs=mcc_contributions,
            interval=_of_mcc,
        ),
        Metric(
            name="nll",
            title="NLL",
            about="negative log-likelihood; lower is better",
            limits=(0.0, math.inf),
            column=True,
            brief=True,
            headline=True,
            per_sample=nll_of,
            infinite="the true class has probability 0",
            mistake=_nll_of_mistake,
        ),
        Metric(
            name="brier",
            title="Brier score",
            about="squared error of the probabilities; lower is better",
            limits=(0.0, 2.0),
            column=True,
            brief=True,
            per_sample=brier_of,
            mistake=lambda sums: 1 + float(sums.table.squares.sum()) / sums.table.n,  # 1 − 2p + Σp², p near 0
        ),
        _error(
            "ece",
            "ECE",
            "mean gap between confidence and accuracy",
            expected_error,
            contributions=_of_ece,
            raised_by_chance=chance_of_sum(lambda bins: np.ones_like(bins.count)),
            column=True,
            brief=True,
            headline=True,
        ),
        # A calibrated model has an ECE of 3 to 6 % on 200 samples, and of 1 to 3 % on 1,000, by chance alone.
        _error(
            "ece_debiased",
            "ECE, debiased",
            "ECE without what chance alone contributes",
            expected_error_debiased,
            column_below=1_000,
        ),
        _error(
            "oe",
            "OE",
            "overconfidence error: gaps where it is over-confident, weighted by confidence",
            overconfidence_error,
            contributions=_of_oe,
            # Half: the gaps that chance opens are as often below the diagonal, where they cost nothing, as above.
            raised_by_chance=chance_of_sum(lambda bins: bins.confidence / np.maximum(bins.count, 1) / 2),
            uncut=_signed_oe,
            column=True,
        ),
        Metric(
            name="smooth_ece",
            title="smooth ECE",
            about="mean gap between confidence and accuracy, smoothed instead of binned",
            percent=True,
            of_fine=smooth_ece_of,
        ),
        _error("mce", "MCE", "largest gap of any bin", maximum_error),
        _error(
            "rms",
            "RMS gap",
            "root of the mean squared gap",
            _rms,
            contributions=_of_rms,
            raised_by_chance=chance_of_norm,
        ),
        _error("rms_debiased", "RMS gap, corrected", "without what chance alone contributes", _rms_debiased),
        Metric(
            name="classwise_ece",
            title="classwise ECE",
            about="mean gap of the probabilities of all classes",
            percent=True,
            binned=True,
            on_request=True,
            of_classes=ClasswiseTable.ece,
        ),
        Metric(
            name="mse",
            title="squared error",
            about="mean squared error of the numbers",
            limits=(0.0, math.inf),
            column=True,
            brief=True,
            headline=True,
            of_numbers=_squared_error,
        ),
        Metric(
            name="spearman",
            title="Spearman's correlation",
            about="rank correlation of predictions and targets",
            limits=(-1.0, 1.0),
            higher_is_better=True,
            column=True,
            brief=True,
            of_numbers=_spearman,
        ),
    )
}


def metrics_named(names: Sequence[str] | None = None, target_type: str = "multiclass") -> list[Metric]:
    """Return these metrics in the order of print, as far as targets of this type have them.

    Without names they are all that need not be asked for.
    """
    for name in names or ():
        if name not in METRICS:
            raise ArgumentError("metrics", name, f"some of {', '.join(METRICS)}")
    every = [metric for metric in METRICS.values() if metric.measures(target_type)]
    return [metric for metric in every if (not metric.on_request if names is None else metric.name in names)]


def watched(target_type: str = "multiclass") -> list[str]:
    """Return the names of the metrics to measure while a model trains: those that may have a column."""
    return [name for name, metric in METRICS.items() if metric.column and metric.measures(target_type)]


def brief(known: Mapping[str, Estimate | None]) -> list[Metric]:
    """Return those of the metrics that are known which tables with room for few have a column for."""
    return [metric for name, metric in METRICS.items() if metric.brief and known.get(name) is not None]


def columns(evaluation: Evaluation, asked: Sequence[str] = ()) -> list[Metric]:
    """Return the metrics that have a column in tables of such evaluations, and those asked for."""
    asked = [metric.name for metric in metrics_named(asked)]
    return [
        metric
        for name, metric in METRICS.items()
        if evaluation.metrics.get(name) is not None
        and (
            name in asked
            or evaluation.n < metric.column_below
            or (metric.column(evaluation) if callable(metric.column) else metric.column)
        )
    ]
