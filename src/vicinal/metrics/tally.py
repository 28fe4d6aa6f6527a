"""The one measurement: predictions in, chunk by chunk, on any number of threads and processes; metrics out."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import Values, as_array, as_classes, as_vector
from vicinal._checks import TARGET_TYPES, ArgumentError, choice, integer, scores_by_name
from vicinal.metrics.base_rate import BaseRate, base_rate
from vicinal.metrics.chunks import Array, Chunk, Floats, class_numbers, open_predictions, two_columns
from vicinal.metrics.classwise import ClasswiseTable
from vicinal.metrics.clusters import Groups
from vicinal.metrics.display import html_table, reliability_svg, side_by_side
from vicinal.metrics.intervals import Estimate, Moments, confidence_level
from vicinal.metrics.multilabel import mean_estimates, two_classes
from vicinal.metrics.registry import METRICS, MOST_PAIRED, Metric, Pairs, Sums, brief, metrics_named, watched
from vicinal.metrics.reliability import Additive, ReliabilityTable, checked_confidences
from vicinal.metrics.slices import Slice, evaluate_slices

#: A fine table has at least so many bins: a multiple of the bins that are asked for, which are sums of them.
FINE_BINS = 10_000
#: Pairs of label and prediction that may wait before they are added to the confusion matrix.
_WAITING = 2**20
#: Groups whose metrics are shown one by one; more are clusters, such as patients.
_SHOWN_GROUPS = 100


@dataclass(frozen=True, eq=False)
class Samples:
    """What a paired comparison needs of each sample, `[N]` each.

    Examples
    --------
    >>> from vicinal import evaluate
    >>> samples = evaluate([0, 1], probs=[[0.75, 0.25], [0.5, 0.5]]).samples
    >>> samples.predictions.tolist(), samples.confidence.tolist()
    ([0, 0], [0.75, 0.5])
    """

    labels: NDArray[np.int64]
    """The class."""
    predictions: NDArray[np.int64]
    """The first of the classes with the highest score."""
    confidence: Floats
    """The highest probability."""
    values: Mapping[str, Values]
    """By name of the metric, the sample's number for each metric that is a mean, such as its NLL."""
    groups: Groups | None = None
    """Which samples belong together and how much each counts, where that was given."""

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each prediction is right, `[N]`."""
        right: NDArray[np.bool_] = self.predictions == self.labels
        return right

    @property
    def weights(self) -> Array | None:
        """How much each sample counts, with mean 1, `[N]`; None where all count the same."""
        return None if self.groups is None else self.groups.weights

    def moments(self, values: Array, level: float) -> Moments:
        """Return the moments of values `[N]` of the samples; with weights those of as many samples as they are worth.

        `level` is the confidence level of the interval that they are for.
        """
        if self.groups is None or self.groups.weights is None:
            return Moments.of(values)
        return Moments.of(values, self.groups.weights).thinned(self.groups.design_effect(values, level))

    def take(self, mask: NDArray[np.bool_]) -> Samples:
        """Return some of the samples, `[N]`; their weights have mean 1 again, and groups are left out."""
        weights = None if self.weights is None else Groups.of(None, int(mask.sum()), self.weights[mask])
        values = {name: of[mask] for name, of in self.values.items()}
        return Samples(self.labels[mask], self.predictions[mask], self.confidence[mask], values, weights)


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: its row (from 1), the true and the predicted class, the confidence.

    Examples
    --------
    >>> tally = Tally(worst=5).update([0, 1], probs=[[0.1, 0.9], [0.2, 0.8]])
    >>> tally.evaluation().worst
    (Mistake(row=1, label='0', prediction='1', confidence=0.9),)
    """

    row: int
    label: str
    prediction: str
    confidence: float


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a model on a set of samples. Made by `evaluate`, `Tally.evaluation` and `evaluate_file`.

    Each metric of `vicinal.metrics.METRICS` that was measured is an attribute: `evaluation.ece` is an `Estimate`
    (value, low, high), or None where `notes` says why it is unknown. With several labels it is the mean over labels,
    and `heads` has the evaluation of each.

    Examples
    --------
    >>> from vicinal import evaluate
    >>> result = evaluate([0, 1, 1, 0], probs=[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    >>> result.n, result.accuracy.value, result.confusion.tolist()
    (4, 0.75, [[2, 0], [1, 1]])
    """

    n: int
    """The number of samples."""
    n_classes: int
    """K."""
    n_bins: int
    """The number of bins, which the calibration errors depend on."""
    level: float
    """Confidence level of the intervals."""
    metrics: Mapping[str, Estimate | None]
    """The estimates by name, in order."""
    notes: tuple[str, ...] = ()
    """What is worth knowing, in sentences."""
    table: ReliabilityTable = field(repr=False, compare=False, kw_only=True)
    """The reliability table."""
    fine: ReliabilityTable = field(repr=False, compare=False, kw_only=True)
    """The same of some 10,000 bins, for curves over confidence, where they were asked for; else `table`."""
    classwise: ClasswiseTable | None = field(default=None, repr=False, compare=False)
    """The reliability tables of all classes, where they were asked for."""
    confusion: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    """How many samples of each class (rows) were predicted as each class (columns); None where that is not known, or
    of very many classes."""
    named_confidence: Floats | None = field(default=None, repr=False, compare=False)
    """The summed confidence of the predictions of each class, `[K]`; None where `confusion` is, and with weights."""
    samples: Samples | None = field(default=None, repr=False, compare=False)
    """Values of each sample, which `compare` pairs up, where they were kept."""
    worst: tuple[Mistake, ...] = field(default=(), repr=False)
    """The wrong predictions with the highest confidence, the most confident first, where they were asked for."""
    classes: tuple[str, ...] = field(default=(), repr=False)
    """The names of the classes, where they have any."""
    path: Path | None = None
    """The file that was measured, if it was one."""
    kind: str = "probs"
    """What the file holds: probs, logits or confidence."""
    heads: Mapping[str, Evaluation] = field(default_factory=dict, repr=False)
    """Of several labels, the evaluation of each by its name, of the classes no and yes; of classes it is empty."""
    slices: tuple[Slice, ...] = field(default=(), repr=False, compare=False)
    """The metrics of slices or groups, the worst first, where they were asked for."""

    def __getattr__(self, name: str) -> Estimate:
        metrics = self.__dict__.get("metrics", {})
        if name not in metrics:
            raise AttributeError(f"{name!r} was not measured: there are {', '.join(metrics)}")
        estimate: Estimate = metrics[name]
        return estimate

    @property
    def class_counts(self) -> NDArray[np.number] | None:
        """How many samples each class has, or their weights, `[K]`; None where it is not known."""
        if self.samples is not None:
            return np.bincount(self.samples.labels, self.samples.weights, self.n_classes)
        counts: NDArray[np.int64] | None = None if self.confusion is None else self.confusion.sum(axis=1)
        return counts

    @property
    def base_rate(self) -> BaseRate | None:
        """The majority baseline: the share of the most frequent class; None where it is not known."""
        counts = self.class_counts
        return None if counts is None or not counts.sum() else base_rate(counts)

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers for a JSON file: sizes, and for each metric its value, low and high; of a file, more.

        With several labels they are the means, and the same of each label.
        """
        if self.heads:
            means = {name: None if metric is None else metric.to_dict() for name, metric in self.metrics.items()}
            return {"mean": means, "labels": {name: head.to_dict() for name, head in self.heads.items()}}
        sizes = {"n": self.n, "n_classes": self.n_classes, "n_bins": self.n_bins, "level": self.level}
        metrics: dict[str, object] = {name: None if e is None else e.to_dict() for name, e in self.metrics.items()}
        metrics |= {"slices": [one.to_dict() for one in self.slices]} if self.slices else {}
        if self.path is None:
            return {**sizes, **metrics}
        return {
            "path": str(self.path),
            "kind": self.kind,
            **sizes,
            **metrics,
            "classes": list(self.classes),
            "bins": self.table.to_records(),
            "worst": [asdict(mistake) for mistake in self.worst],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        classes = f", {self.n_classes} classes" if self.n_classes else ""
        head = f"{self.n:,} samples{classes}, {self.n_bins} bins; {100 * self.level:g} % intervals"
        wide = max(12, *map(len, self.metrics)) + 1
        lines = [f"{name:<{wide}}{'–' if metric is None else metric}" for name, metric in self.metrics.items()]
        if self.heads:
            lines = self._head_lines()
            head = f"{self.n:,} samples, {len(self.heads)} labels, {self.n_bins} bins; {100 * self.level:g} % intervals"
        return "\n".join([head, *lines, *(f"note: {note}" for note in self.notes)])

    def _head_lines(self) -> list[str]:
        """Return a line for the means over labels and for each label, with the metrics that short tables show."""
        shown = [metric.name for metric in brief(self.metrics)]
        wide = max(len("mean"), *map(len, self.heads)) + 1
        rows = {"": shown, "mean": [str(self.metrics[name]) for name in shown]}
        rows |= {label: [str(head.metrics[name]) for name in shown] for label, head in self.heads.items()}
        lines = (f"{name:<{wide}}" + "".join(f"{cell:<26}" for cell in cells) for name, cells in rows.items())
        return [line.rstrip() for line in lines]

    def _repr_html_(self) -> str:
        """Return the metrics and the reliability diagram as a notebook shows them."""
        classes = f", {self.n_classes} classes" if self.n_classes else ""
        caption = f"{self.n:,} samples{classes}; {100 * self.level:g} % intervals"
        rows = [(METRICS[name].heading(self.n_bins), METRICS[name].text(e)) for name, e in self.metrics.items()]
        return side_by_side(caption, html_table(["", "value"], rows), reliability_svg(self.table))


class Tally(Additive):
    """Everything that metrics derive from, added up: any stream, shards, threads or processes give the same metrics.

    Memory is O(bins + K) beside the chunk at hand, and what is asked for in addition. A regression keeps its numbers,
    since a rank correlation needs all of them.

    Parameters
    ----------
    n_bins
        Equal-width bins of the calibration errors.
    target_type
        What the targets are: classes (`"multiclass"`), 0 or 1 with one logit (`"binary"`), several of these
        (`"multilabel"`) or numbers (`"regression"`). Each label is a head, a tally of two classes, and metrics are
        means over heads.
    metrics
        The names of the metrics to measure; by default all that are cheap.
    fine
        Whether to keep a fine reliability table, of some 10,000 bins, for curves over confidence.
    keep_samples
        Whether to keep the values of each sample, which `compare` needs.
    worst
        How many of the most confident mistakes to keep.

    Examples
    --------
    >>> tally = Tally(n_bins=10, metrics=["accuracy", "nll", "ece"])
    >>> for label, probs in ((0, [0.9, 0.1]), (1, [0.4, 0.6])):
    ...     tally = tally.update([label], probs=[probs])
    >>> {name: round(value, 4) for name, value in tally.values().items()}
    {'accuracy': 1.0, 'nll': 0.3081, 'ece': 0.25}
    >>> (tally + tally).evaluation().n
    4
    """

    def __init__(
        self,
        n_bins: int = 15,
        *,
        target_type: str = "multiclass",
        metrics: Sequence[str] | None = None,
        fine: bool = False,
        keep_samples: bool = False,
        worst: int = 0,
    ) -> None:
        self.n_bins = integer("n_bins", n_bins, low=1)
        self.target_type = choice("target_type", target_type, TARGET_TYPES)
        self.heads: list[Tally] = []
        self._numbers: list[tuple[Floats, Floats]] = []
        self.names = [metric.name for metric in metrics_named(metrics, target_type)]
        self.n_worst = integer("worst", worst, low=0)
        # The fine table is the only one that is counted: the coarse one is sums of its bins, exactly.
        fine = fine or any(METRICS[name].of_fine for name in self.names)
        self.finer = max(1, math.ceil(FINE_BINS / self.n_bins)) if fine else 1
        self.fine = ReliabilityTable(self.n_bins * self.finer)
        self.n_classes = 0
        self.kind = "probs"
        self.moments: dict[str, Moments] = {}
        self.classwise: ClasswiseTable | None = None
        self.mistakes: list[tuple[float, int, int, int]] = []
        """Negative confidence, row, label, prediction: the smallest are the worst."""
        self._samples: list[Samples] | None = [] if keep_samples else None
        # Pairs are counted only if a metric needs them: K² counters would dwarf the rest for thousands of classes.
        self._paired = keep_samples or any(METRICS[name].of_pairs for name in self.names)
        self._confusion: NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self._pairs: list[Pairs] = []
        self._named: Floats = np.zeros(0)

    @property
    def n(self) -> int:
        """The number of samples."""
        if self.target_type == "multiclass":
            return self.fine.n
        return self.heads[0].n if self.heads else sum(len(targets) for targets, _ in self._numbers)

    @property
    def metrics(self) -> list[Metric]:
        """What is measured: all that was asked for and can be had of so many classes."""
        asked = (METRICS[name] for name in self.names)
        return [f for f in asked if not f.more_classes_than or self.n_classes > f.more_classes_than]

    @property
    def table(self) -> ReliabilityTable:
        """The reliability table of `n_bins` bins."""
        return self.fine if self.finer == 1 else self.fine.coarser(self.finer)

    def update(
        self,
        labels: ArrayLike,
        *,
        logits: ArrayLike | None = None,
        probs: ArrayLike | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> Tally:
        """Add class numbers `[N]` with logits or probabilities `[N, K]`, and return the tally.

        Labels of 0 and 1 are `[N, L]` or `[N]`, as are their logits or their probabilities of 1. Numbers are `[N]`,
        with predictions as `logits`, `[N]` or `[N, 1]`.

        After an error it is what it was before. `rows` `[N]` are the samples' numbers in `worst`, by default from 1.
        """
        if self.target_type == "regression":
            return self._update_numbers(labels, logits)
        if self.target_type != "multiclass":
            return self._update_heads(labels, logits, probs)
        # Blocks are counted in parts of their own and merged at the end, by threads where there are several: sums come
        # out in one order, and an error leaves the tally as it was.
        predictions = open_predictions(labels, logits, probs)
        first = self.n + 1

        def counted(chunks: Iterator[Chunk]) -> Tally:
            part = self.empty()
            part.n_classes = predictions.n_classes
            part.kind = "logits" if predictions.holds_logits else "probs"
            for chunk in chunks:
                at = chunk.rows.start + first + np.arange(len(chunk)) if rows is None else rows[chunk.rows]
                part._add(chunk, at)
            return part

        for part in predictions.map_blocks(counted):
            self.merge_(part)
        return self

    def update_confidences(
        self,
        confidence: ArrayLike,
        correct: ArrayLike | None = None,
        *,
        labels: ArrayLike | None = None,
        predictions: ArrayLike | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> Tally:
        """Add confidences `[N]` with whether each prediction is right, or with class numbers `[N]` of both.

        What needs the probabilities of all classes is unknown then, and, with `correct`, what needs the classes.
        """
        if (correct is None) == (labels is None) or (labels is None) != (predictions is None):
            raise ArgumentError(
                "correct", correct, "whether predictions are right, or None with labels= and predictions="
            )
        # A part of its own, so that an error below leaves this tally as it was.
        part = self.empty()
        part.kind = "confidence"
        if correct is not None:
            part.fine.update_confidences(confidence, correct)
            part._paired = False
        else:
            truth, guess = as_classes("labels", labels), as_classes("predictions", predictions)
            if len(truth) != len(guess):
                raise ValueError(f"labels and predictions must have the same length, got {len(truth)} and {len(guess)}")
            part.n_classes = int(max(truth.max(), guess.max())) + 1
            part.fine.update_confidences(confidence, truth == guess)
            at = np.arange(self.n + 1, self.n + 1 + len(truth)) if rows is None else rows
            given = checked_confidences(confidence)
            part._add_classes(truth, guess, given, at)
            if part._samples is not None:
                part._samples.append(Samples(truth, guess, given, {}))
        self.merge_(part)
        return self

    def empty(self) -> Tally:
        """Return a tally without samples that measures the same."""
        return self._like(self.target_type)

    def _like(self, target_type: str) -> Tally:
        kept = self._samples is not None
        return Tally(
            self.n_bins,
            target_type=target_type,
            metrics=self.names,
            fine=self.finer > 1,
            keep_samples=kept,
            worst=self.n_worst,
        )

    def merge_(self, other: Tally) -> None:
        """Take in the samples of another tally that measures the same."""
        if self.names != other.names:
            raise ValueError(f"only tallies of the same metrics add up, got {self.names} and {other.names}")
        if self.target_type != other.target_type:
            types = f"{self.target_type!r} and {other.target_type!r}"
            raise ValueError(f"only tallies of the same target type add up, got {types}")
        if self.target_type != "multiclass":
            self._numbers += other._numbers
            # An empty tally has no heads yet: how many there are is known from the first update.
            mine = self.heads or [head.empty() for head in other.heads]
            if other.heads and len(mine) != len(other.heads):
                raise ValueError(f"only tallies of as many labels add up, got {len(mine)} and {len(other.heads)}")
            self.heads = [a + b for a, b in zip(mine, other.heads, strict=True)] if other.heads else mine
            return
        self.kind = self.kind if self.n else other.kind
        self.fine.merge_(other.fine)
        if not other.n:
            return
        self.n_classes = max(self.n_classes, other.n_classes)
        self._paired = self._paired and other._paired
        for name, moments in other.moments.items():
            self.moments[name] = self.moments.get(name, Moments()) + moments
        if other.classwise is not None:
            if self.classwise is None:
                self.classwise = other.classwise.empty()
            self.classwise.merge_(other.classwise)
        self.mistakes = sorted(self.mistakes + other.mistakes)[: self.n_worst]
        if self._samples is not None and other._samples is not None:
            self._samples += other._samples
        if other._confusion.size:
            self._pairs.append(_cells(other._confusion))
        self._pairs += other._pairs
        self._named = _padded(self._named, self.n_classes) + _padded(other._named, self.n_classes)
        # Adding to a large matrix for each small batch would cost more than the batch: pairs wait until they are many.
        if sum(len(labels) for labels, _, _ in self._pairs) > _WAITING:
            self._count_pairs()

    def all_reduce(self) -> Tally:
        """Return the sum of the tallies of all processes of `torch.distributed`; without any, the tally itself."""
        torch = sys.modules.get("torch")
        if torch is None or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self
        # Gathered whole: tallies of other samples may hold other classes, and arrays of other sizes do not reduce.
        tallies: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(tallies, self)
        return sum(tallies, self.empty())

    @property
    def confusion(self) -> NDArray[np.int64] | None:
        """How many samples of each class (rows) were predicted as each class (columns); None where it is not known."""
        # Above this many classes the matrix would take 32 MB and more. Pairs of kept samples do instead.
        if not self._paired or self.n_classes > MOST_PAIRED:
            return None
        # Where samples are kept the matrix is made of them when it is asked for, not batch by batch.
        if self._samples is not None and not self._confusion.size:
            return _confusion([_pairs(s.labels, s.predictions, self.n_classes) for s in self._samples], self.n_classes)
        self._count_pairs()
        return np.pad(self._confusion, (0, self.n_classes - len(self._confusion)))

    @property
    def samples(self) -> Samples | None:
        """What was kept of each sample, None if nothing was."""
        if not self._samples:
            return None
        if len(self._samples) > 1:
            self._samples = [_joined(self._samples)]
        return self._samples[0]

    def sums(self, level: float = 0.95) -> Sums:
        """Return what metrics derive from. Labels have these each, so that it is their heads that are asked."""
        if not self.n:
            raise ValueError("the tally is empty: there is nothing to measure; update it first")
        if self._numbers:
            targets, predictions = (np.concatenate(parts) for parts in zip(*self._numbers, strict=True))
            return Sums(self.table, level=confidence_level(level), numbers=(targets, predictions))
        confusion, samples, pairs = self.confusion, self.samples, None
        if confusion is not None:
            pairs = _cells(confusion)
        elif self._paired and samples is not None:  # of very many classes: pair by pair
            pairs = (samples.labels, samples.predictions, np.ones(self.n, np.int64))
        return Sums(
            self.table,
            n_classes=self.n_classes,
            moments=self.moments,
            pairs=pairs,
            classwise=self.classwise,
            level=confidence_level(level),
            fine=self.fine if self.finer > 1 or self.n_bins >= FINE_BINS else None,
        )

    def values(self) -> dict[str, float]:
        """Return the metrics that are known, without their intervals; of several labels, the means over labels."""
        if self.heads:
            every = [head.values() for head in self.heads]
            shared = [name for name in every[0] if all(name in each for each in every)]
            return {name: sum(each[name] for each in every) / len(every) for name in shared}
        sums = self.sums()
        return {metric.name: metric.value(sums) for metric in self.metrics if metric.unknown(sums) is None}

    def evaluation(
        self,
        level: float = 0.95,
        *,
        names: Sequence[str] | None = None,
        groups: ArrayLike | Groups | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Evaluation:
        """Return all metrics with their intervals.

        Parameters
        ----------
        level
            Confidence level of the intervals, in (0, 1).
        names
            Of the labels, where there are several; by default `"0"`, `"1"`, ….
        groups
            The name or number of each sample's group, `[N]`; see `evaluate`. It needs samples that were kept.
        sample_weight
            How much each sample counts, `[N]`; see `evaluate`. It needs samples that were kept.
        """
        given = groups is not None or sample_weight is not None
        together = Groups.of(groups, self.n, sample_weight) if given else None
        if together is not None and together.weights is not None and self.target_type == "regression":
            raise ArgumentError("sample_weight", sample_weight, "None for a regression")
        if self.heads:
            return self._evaluation_of_heads(level, names, together)
        sums, samples = self.sums(level), self.samples
        if together is not None:
            if samples is None:
                raise ValueError("groups and weights need the values of each sample: Tally(keep_samples=True)")
            samples = replace(samples, groups=together)
        weights, notes = None if together is None else together.weights, self._infinite()
        if weights is not None and samples is not None:
            sums = sums.weighted(samples, weights)
            worth = Groups.of(None, self.n, weights).effective
            notes.append(f"samples are weighted: they are worth {worth:,.0f} of equal weight")
        estimates: dict[str, Estimate | None] = {}
        unknown: dict[str, list[str]] = {}
        for metric in self.metrics:
            why = "it is not measured with weights" if weights is not None and metric.of_classes else None
            why = why or metric.unknown(sums)
            estimates[metric.name] = metric.estimate(sums, samples) if why is None else None
            if why is not None:
                unknown.setdefault(why, []).append(metric.title)
        return Evaluation(
            n=self.n,
            n_classes=self.n_classes,
            n_bins=self.n_bins,
            level=sums.level,
            metrics=estimates,
            notes=(*notes, *(f"{', '.join(titles)} unknown: {why}" for why, titles in unknown.items())),
            table=sums.table,
            fine=self.fine if weights is None or sums.fine is None else sums.fine,
            classwise=self.classwise if weights is None else None,
            confusion=self.confusion,
            named_confidence=None
            if self.confusion is None or weights is not None
            else _padded(self._named, self.n_classes),
            samples=samples,
            worst=tuple(Mistake(row, str(y), str(z), -minus) for minus, row, y, z in self.mistakes),
            kind=self.kind,
        )

    def _evaluation_of_heads(self, level: float, names: Sequence[str] | None, groups: Groups | None) -> Evaluation:
        known = [str(k) for k in range(len(self.heads))] if names is None else [str(name) for name in names]
        if len(known) != len(self.heads) or len(set(known)) != len(known):
            raise ArgumentError("names", names, f"{len(self.heads)} different names, one for each label")
        heads = {name: head.evaluation(level, groups=groups) for name, head in zip(known, self.heads, strict=True)}
        first, *more = heads.values()
        # The answers to all labels in one table, for a diagram; its errors are not the means over labels.
        table = sum((head.table for head in more), first.table)
        means = mean_estimates(heads, level)
        return Evaluation(self.n, 2, self.n_bins, first.level, means, table=table, fine=table, heads=heads)

    def _update_heads(self, targets: ArrayLike, logits: ArrayLike | None, probs: ArrayLike | None) -> Tally:
        columns = list(two_classes(targets, logits=logits, probs=probs))
        heads = self.heads or [self._like("multiclass") for _ in columns]
        if len(columns) != len(heads):
            raise ValueError(f"this tally has {len(heads)} labels, got {len(columns)}")
        for head, (labels, scores) in zip(heads, columns, strict=True):
            head.update(labels, probs=scores) if logits is None else head.update(labels, logits=scores)
        self.heads = heads
        return self

    def _update_numbers(self, targets: ArrayLike, predictions: ArrayLike | None) -> Tally:
        if predictions is None:
            raise ArgumentError("logits", None, "the predictions of a regression, [N] or [N, 1]")
        truth, guess = (_single_column(name, v) for name, v in (("labels", targets), ("logits", predictions)))
        if len(truth) != len(guess):
            raise ValueError(f"labels and logits must have the same length, got {len(truth)} and {len(guess)}")
        self._numbers.append((truth, guess))
        return self

    def _infinite(self) -> list[str]:
        known = [
            (metric, self.moments[metric.name].n_infinite) for metric in self.metrics if metric.name in self.moments
        ]
        return [f"{metric.title} is infinite: {metric.infinite} in {n:,} samples" for metric, n in known if n]

    def _add(self, chunk: Chunk, rows: NDArray[np.int64]) -> None:
        """Count samples that are already checked."""
        self.fine.add(chunk.confidence, chunk.correct)
        values = {metric.name: metric.per_sample(chunk) for metric in self.metrics if metric.per_sample is not None}
        for name, numbers in values.items():
            self.moments[name] = self.moments.get(name, Moments()) + Moments.of(numbers.astype(np.float64, copy=False))
        if any(metric.of_classes for metric in self.metrics):
            if self.classwise is None:
                self.classwise = ClasswiseTable(self.n_classes, self.n_bins)
            self.classwise.add(chunk)
        self._add_classes(chunk.labels, chunk.predictions, chunk.confidence, rows)
        if self._samples is not None:
            self._samples.append(Samples(chunk.labels, chunk.predictions, chunk.confidence, values))

    def _add_classes(
        self, labels: NDArray[np.int64], guess: NDArray[np.int64], confidence: Floats, rows: NDArray[np.int64]
    ) -> None:
        if self.n_worst:
            worst = _most_confident(np.flatnonzero(labels != guess), confidence, self.n_worst)
            self.mistakes += [(-float(confidence[i]), int(rows[i]), int(labels[i]), int(guess[i])) for i in worst]
            self.mistakes = sorted(self.mistakes)[: self.n_worst]
        if self._paired and self.n_classes <= MOST_PAIRED:
            self._named = _padded(self._named, self.n_classes)
            self._named += np.bincount(guess, confidence, minlength=self.n_classes)
        if self._paired and self._samples is None and self.n_classes <= MOST_PAIRED:
            self._pairs.append(_pairs(labels, guess, self.n_classes))

    def _count_pairs(self) -> None:
        """Add the pairs that wait to the confusion matrix, which grows with the classes that were met."""
        if self._pairs:
            total = _confusion(self._pairs, max(self.n_classes, len(self._confusion)))
            total[: len(self._confusion), : len(self._confusion)] += self._confusion
            self._confusion, self._pairs = total, []


def measure(labels: ArrayLike, *, logits: ArrayLike, target_type: str, n_bins: int = 15) -> dict[str, float]:
    """Return the metrics to watch while a model trains, without intervals, for any target type; see `Tally`.

    Returns
    -------
    dict[str, float]
        The value of each metric by name.

    Examples
    --------
    >>> measure([[1, 0], [0, 1]], logits=[[2.0, -1.0], [-3.0, -0.5]], target_type="multilabel")["accuracy"]
    0.75
    """
    tally = Tally(n_bins, target_type=target_type, metrics=watched(target_type))
    return tally.update(labels, logits=logits).values()


@scores_by_name
def evaluate(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    target_type: str = "multiclass",
    classes: Sequence[object] | None = None,
    names: Sequence[str] | None = None,
    n_bins: int = 15,
    metrics: Sequence[str] | None = None,
    level: float = 0.95,
    groups: ArrayLike | Groups | None = None,
    sample_weight: ArrayLike | None = None,
    slices: Mapping[str, ArrayLike] | ArrayLike | None = None,
) -> Evaluation:
    """Return the accuracy, proper scores and calibration errors of predictions, with intervals.

    Intervals cost less than the metrics: accuracy has Clopper and Pearson's, NLL and Brier that of a mean, MCC that of
    the delta method, and the calibration errors theirs from the bins (see `vicinal.metrics.error_intervals`). For a
    single sample, and for an infinite NLL, that of a mean is the whole range of the metric.

    Parameters
    ----------
    labels
        Class numbers or names `[N]`, or what `target_type` says.
    logits, probs
        Scores `[N, K]`, exactly one of the two; numpy, torch or lists, of any float type. For two classes those of the
        second, `[N]`, are enough.
    target_type
        `"multiclass"`; `"multilabel"` for 0 and 1 of each label `[N, L]`, with a logit or a probability of 1 each;
        `"binary"` for one of them; `"regression"` for numbers, with predictions as `logits`.
    classes
        The class of each column of the scores, where labels are names; by default all labels in sorted order, as
        scikit-learn's `classes_`.
    names
        Of the labels, where there are several; by default `"0"`, `"1"`, ….
    n_bins
        Equal-width bins of the calibration errors.
    metrics
        The names of the metrics to measure (see `vicinal.metrics.METRICS`); by default all that are cheap.
    level
        Confidence level of the intervals, in (0, 1).
    groups
        The name or number of each sample's group, `[N]`, where samples of a group are alike, such as images of one
        patient. The intervals then allow for it; see `vicinal.metrics.clusters`. Up to 100 groups are slices, too.
    sample_weight
        How much each sample counts, `[N]`, at least 0. Metrics are weighted means, and the intervals allow for weights
        that differ; see `vicinal.metrics.clusters`.
    slices
        Columns to slice by, which leave the other intervals as they are: values `[N]`, or several columns by name. The
        result's `slices` has accuracy, gap and NLL of each slice, the worst first; see `evaluate_slices`.

    Returns
    -------
    Evaluation
        Each metric is an attribute, an `Estimate` with `value`, `low` and `high`.

    Examples
    --------
    >>> f"{evaluate(['no', 'yes', 'yes'], probs=[0.1, 0.8, 0.6]).accuracy:.2f}"
    '1.00'
    >>> both = [[0.9, 0.2], [0.4, 0.6]]
    >>> found = evaluate([[1, 0], [0, 0]], probs=both, target_type="multilabel", names=["wet", "cold"])
    >>> found.heads["wet"].accuracy.value, found.accuracy.value
    (1.0, 0.75)
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]]
    >>> print(evaluate([0, 1, 1, 0], probs=probs, n_bins=10, metrics=["accuracy", "mcc", "nll", "brier", "ece"]))
    4 samples, 2 classes, 10 bins; 95 % intervals
    accuracy 0.7500 [0.1941, 0.9937]
    mcc      0.5774 [-1.0000, 1.0000]
    nll      0.4004 [0.0000, 1.7735]
    brier    0.2500 [0.0000, 2.0000]
    ece      0.3000 [0.0000, 0.6865]
    """
    confidence_level(level)
    if target_type == "multiclass" and (logits is None) != (probs is None):
        logits = None if logits is None else two_columns(logits, are_probs=False)
        probs = None if probs is None else two_columns(probs, are_probs=True)
        labels = class_numbers(labels, classes, logits if probs is None else probs)
    tally = Tally(n_bins, target_type=target_type, metrics=metrics, keep_samples=True)
    found = tally.update(labels, logits=logits, probs=probs).evaluation(
        level, names=names, groups=groups, sample_weight=sample_weight
    )
    if slices is None and found.samples is not None and groups is not None and not isinstance(groups, Groups):
        slices = groups if len(np.unique(np.asarray(groups))) <= _SHOWN_GROUPS else None
    return found if slices is None else replace(found, slices=tuple(evaluate_slices(found, slices, level=level)))


def _single_column(name: str, values: ArrayLike) -> Floats:
    array = as_array(name, values)
    return as_vector(name, array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array)


def _most_confident(wrong: NDArray[np.intp], confidence: Floats, n: int) -> NDArray[np.intp]:
    """Return the mistakes with the highest confidence; of equals those that come first."""
    if len(wrong) <= n:
        return wrong
    # A partition finds the n-th largest without sorting. Ties at it are cut by position, so that chunks do not matter.
    least = np.partition(confidence[wrong], len(wrong) - n)[len(wrong) - n]
    above, equal = wrong[confidence[wrong] > least], wrong[confidence[wrong] == least]
    return np.concatenate([above, equal[: n - len(above)]])


def _joined(parts: Sequence[Samples]) -> Samples:
    # What some of the samples lack, such as the NLL of those known by their confidence alone, is no use for any.
    names = [name for name in parts[0].values if all(name in part.values for part in parts)]
    labels, guess, confidence = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "predictions", "confidence")
    )
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in names}
    return Samples(labels, guess, confidence, values)


def _padded(sums: Floats, k: int) -> Floats:
    """Return sums by class for k classes or more."""
    return np.pad(sums.astype(np.float64), (0, max(k - len(sums), 0)))


def _pairs(labels: NDArray[np.int64], guess: NDArray[np.int64], k: int) -> Pairs:
    """Return label, prediction, and how many samples have both, of the pairs that occur."""
    cell = labels * k + guess
    # A bincount is fastest while its K² counters are no more than the samples; beyond, only pairs that occur are kept.
    if k * k <= len(cell):
        return _cells(np.bincount(cell, minlength=k * k).reshape(k, k))
    filled, counts = np.unique(cell, return_counts=True)
    return filled // k, filled % k, counts


def _cells(confusion: NDArray[np.int64]) -> Pairs:
    labels, guess = np.nonzero(confusion)
    return labels, guess, confusion[labels, guess]


def _confusion(pairs: Sequence[Pairs], k: int) -> NDArray[np.int64]:
    total = np.zeros((k, k), np.int64)
    for labels, guess, counts in pairs:
        total[labels, guess] += counts
    return total
