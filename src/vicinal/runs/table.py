"""What a grid of experiments shows: each method's figures over samples and seeds, and paired differences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from vicinal._checks import ArgumentError, choice, nearest_names
from vicinal.metrics import FIGURES, Comparison, Estimate, Evaluation, Figure, MultilabelEvaluation, compare
from vicinal.metrics.figures import columns
from vicinal.runs.run import LabelsOutcome, Outcome

__all__ = ["AnyOutcome", "GridResult", "Key", "counted"]

#: What a cell leads to: one for classes, or for several labels.
AnyOutcome = Outcome | LabelsOutcome

#: A cell: the method as asked for, and the seed.
Key = tuple[str, int]

_SAMPLES = {"test": "test samples", "val": "validation samples"}

#: What may stand beside a mean over seeds.
_SPREADS = {
    "interval": "interval",
    "sd": "standard deviation over seeds",
    "se": "standard error of the mean over seeds",
}


@dataclass(frozen=True, eq=False)
class GridResult:
    """What a grid led to. Made by `run_grid`.

    The figures are those of the test set, before the temperature or, with `after=True`, after it. Of several labels
    they are means over labels; `of_label` has those of one.
    """

    out: Path
    """The folder, in which each run has its own."""
    methods: tuple[str, ...]
    """The expressions, as they were asked for. The others are compared with the first."""
    seeds: tuple[int, ...]
    """Those that each method was asked to run with."""
    outcomes: Mapping[Key, AnyOutcome]
    """By method and seed."""
    failures: dict[Key, str]
    """What went wrong, by method and seed; the whole story is in `error.txt` of the cell's folder."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, where the target is several columns of 0 and 1; else none."""
        first = next(iter(self.outcomes.values()), None)
        return tuple(first.temperatures) if isinstance(first, LabelsOutcome) else ()

    def of_label(self, label: str) -> GridResult:
        """Return what the grid shows of one of several labels."""
        choice("label", label, self.labels)
        alone = {key: o.of_label(label) for key, o in self.outcomes.items() if isinstance(o, LabelsOutcome)}
        return dataclasses.replace(self, outcomes=alone)

    def comparison(
        self, method: str, against: str | None = None, *, after: bool = False, on: str = "test"
    ) -> Comparison | None:
        """Return the paired difference of two methods over samples and seeds; see `vicinal.compare`.

        Only seeds that both have count (`n_seeds`). None if there is none.

        Parameters
        ----------
        method
            One of `methods`.
        against
            Another, the first if not given; differences are `method` − `against`.
        after
            Compare the probabilities after the temperature.
        on
            The set: `"test"`, `"val"`, or `"also-1"`, … for a further one.
        """
        against = self.methods[0] if against is None else against
        for name in (method, against):
            if name not in self.methods:
                raise ValueError(f"{name!r} is not a method of this grid{nearest_names(name, self.methods)}")
        of_method, of_against = (self._evaluations(name, after, on) for name in (method, against))
        shared = [seed for seed in self.seeds if seed in of_method and seed in of_against]
        if not shared:
            return None
        a, b = ([of[seed] for seed in shared] for of in (of_against, of_method))
        return compare(a, b, names=(against, method))

    def rows(self, *, after: bool = False, on: str = "test") -> list[dict[str, Any]]:
        r"""Return a row of plain numbers for each method.

        Each figure has its mean over seeds as `value`, and `low` and `high`, which speak of other samples *and* other
        seeds: as in `vicinal.compare` they are :math:`\bar v \pm t \sqrt{w + s^2/S}` with Welch–Satterthwaite's
        degrees of freedom, where :math:`s^2` is the variance over the :math:`S` seeds and :math:`w` that of one run's
        figure over samples, from its own interval, on either side. The seeds share their samples, so :math:`w` is not
        divided by :math:`S`. With one seed they are the ends of that run's interval. Beside them stand `sd`, the
        standard deviation over seeds, and `se`, that of their mean, :math:`s/\sqrt S`; with one seed None.

        `difference` is that to the first method, paired, with `better`: the method that is better beyond chance, or
        None. Where something is not known or infinite it is None.

        Parameters
        ----------
        after
            Of the probabilities after the temperature.
        on
            The set: `"test"`, `"val"`, or `"also-1"`, … for a further one.
        """
        return [self._row(method, after, on) for method in self.methods]

    @property
    def further(self) -> dict[str, str]:
        """The names of the further sets, by key."""
        first = next(iter(self.outcomes.values()), None)
        return {} if first is None else {key: s.name for key, s in first.sets.items() if key not in ("val", "test")}

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON can hold it."""
        return {
            "methods": list(self.methods),
            "seeds": list(self.seeds),
            "before": self.rows(),
            "after": self.rows(after=True),
            "also": {
                key: {"name": name, "before": self.rows(on=key), "after": self.rows(after=True, on=key)}
                for key, name in self.further.items()
            },
            **({"labels": {name: self._of_label_rows(name) for name in self.labels}} if self.labels else {}),
            "cells": [
                {**o.to_dict(), "method": m, "seed": s, "folder": str(o.out)} for (m, s), o in self.outcomes.items()
            ],
            "failures": [{"method": m, "seed": s, "error": error} for (m, s), error in self.failures.items()],
        }

    def columns(self, asked: Sequence[str] = (), *, after: bool = False, on: str = "test") -> list[Figure]:
        """Return the figures that have a column: the usual ones, MCC where classes are unbalanced, and `asked`."""
        runs = [run for method in self.methods for run in self._evaluations(method, after, on).values()]
        if not runs:
            return []
        every = runs[0].labels.values() if isinstance(runs[0], MultilabelEvaluation) else [runs[0]]
        shown = {figure.name for evaluation in every for figure in columns(evaluation, asked)}
        return [figure for name, figure in FIGURES.items() if name in shown and runs[0].figures.get(name) is not None]

    def chosen(self, by: str = "nll") -> str:
        """Return the method that is best by a figure of the validation set, before the temperature.

        What counts is the mean over the seeds that all methods have (one that failed throughout aside); of equals the
        first. The test set has no say, so its figures stay honest: this is how to search for a hyper-parameter.

        Parameters
        ----------
        by
            The name of a figure, such as `"nll"` or `"ece"`.
        """
        figure = FIGURES[choice("by", by, tuple(FIGURES))]
        runs = {method: of for method in self.methods if (of := self._evaluations(method, False, "val"))}
        shared = [seed for seed in self.seeds if all(seed in of for of in runs.values())]
        if not runs or not shared:
            raise ValueError("the methods have no seed in common: nothing can be chosen")
        means: dict[str, float] = {}
        for method, of in runs.items():
            values = [estimate.value for seed in shared if (estimate := of[seed].figures.get(by)) is not None]
            if len(values) < len(shared):
                raise ArgumentError("by", by, "a figure that the validation set has")
            means[method] = float(np.mean(values))
        return (max if figure.higher_is_better else min)(means, key=means.__getitem__)

    def table(
        self, *, after: bool = False, figures: Sequence[str] = (), spread: str = "interval", choose: str | None = None
    ) -> str:
        """Return the rows as Markdown: figures, paired differences, further sets, label-noise errors, what failed.

        Parameters
        ----------
        after
            Of the probabilities after the temperature: figures and differences alone, as the rest does not change.
        figures
            The names of further figures to show, such as `"mcc"` or `"top5_error"`.
        spread
            What stands beside each mean: its `"interval"`, or ± the standard deviation over seeds, `"sd"`, or ± the
            standard error, `"se"`. Neither of these speaks of other samples, and differences always have intervals.
        choose
            The name of a figure: show those of the validation set too, and which method it chooses.
        """
        choice("spread", spread, tuple(_SPREADS))
        parts = self._tables("test", after, figures, spread)
        for label in self.labels:
            _, *tables = self.of_label(label)._tables("test", after, figures, spread)
            parts += [f"The label {label!r} alone", *tables]
        for key in self.further:
            parts += self._tables(key, after, figures, spread)
        noisy = [row for row in self.rows() if "label_noise" in row]
        if not after and noisy:  # the temperature changes no prediction
            parts.append("Errors with corrupted training labels, of the kept (by validation) and of the last weights")
            parts.append(_noise_table(noisy))
        if not after and choose is not None:
            parts += self._tables("val", False, (choose,), spread)[:2]
            chosen, n_bins = self.chosen(choose), next(iter(self.outcomes.values())).test.before.n_bins
            parts.append(f"Chosen by {FIGURES[choose].heading(n_bins)} of the validation set: {_code(chosen)}")
        if not after and self.failures:
            failed = [f"- {_code(m)}, seed {s}: {error}" for (m, s), error in self.failures.items()]
            cells = len(self.methods) * len(self.seeds)
            parts.append("\n".join([f"{len(failed)} of {counted(cells, 'cell')} failed:", *failed]))
        return "\n\n".join(parts)

    def _of_label_rows(self, label: str) -> dict[str, list[dict[str, object]]]:
        alone = self.of_label(label)
        return {"before": alone.rows(), "after": alone.rows(after=True)}

    def _tables(self, on: str, after: bool, figures: Sequence[str], spread: str) -> list[str]:
        """Return the figures and differences on one set, each with a line that says what they are."""
        known = [row for row in self.rows(after=after, on=on) if row["n_seeds"]]
        if not known:
            return []
        shown = self.columns(figures, after=after, on=on)
        samples = _SAMPLES.get(on) or f"samples of {self.further[on]}"
        beside = f"[{100 * known[0]['level']:g} % intervals]" if spread == "interval" else f"± {_SPREADS[spread]}"
        notes = () if after else next(iter(self.outcomes.values())).sets[on].notes
        parts = [
            f"{known[0]['n']:,} {samples}, {self._counted()}, {'after' if after else 'before'} the temperature; "
            f"{beside}",
            *([f"Of {self.further[on]}: {'; '.join(notes)}"] if notes else []),
            self._figures_table(known, shown, spread),
        ]
        others = [row for row in known if row["difference"] is not None]
        if others:
            parts.append(
                f"Differences to {_code(self.methods[0])}, paired on samples and seeds; where neither better nor worse "
                "is said, these runs cannot tell"
            )
            parts.append(_differences_table(others, [figure for figure in shown if figure.compared]))
        return parts

    def _counted(self) -> str:
        means = [f"means over {counted(len(self.labels), 'label')}"] if self.labels else []
        return ", ".join([*means, counted(len(self.seeds), "seed")])

    def __str__(self) -> str:
        return f"{self.table(after=True)}\n\n{self.table()}"

    def _evaluations(self, method: str, after: bool, on: str) -> dict[int, Evaluation | MultilabelEvaluation]:
        outcomes = {seed: self.outcomes[method, seed] for seed in self.seeds if (method, seed) in self.outcomes}
        for outcome in outcomes.values():
            if on not in outcome.sets and on not in _SAMPLES:
                raise ArgumentError("on", on, f"one of {', '.join(map(repr, ('test', 'val', *self.further)))}")
            if on not in outcome.sets:
                missing = f"{outcome.out} has no {_SAMPLES[on]} to compare methods on"
                raise ValueError(f"{missing}: hold out a share of the data")
        return {seed: o.sets[on].after if after else o.sets[on].before for seed, o in outcomes.items()}

    def _row(self, method: str, after: bool, on: str) -> dict[str, object]:
        runs = list(self._evaluations(method, after, on).values())
        row: dict[str, object] = {"method": method, "n_seeds": len(runs)}
        if not runs:
            return row
        outcomes = [o for (m, _), o in self.outcomes.items() if m == method]
        first = runs[0]
        row |= {"n": first.n, "n_bins": first.n_bins, "level": first.level}
        row["temperature"] = float(np.mean([o.sets[on].temperature for o in outcomes]))
        for name in first.figures:
            estimates = [estimate for run in runs if (estimate := run.figures.get(name)) is not None]
            if len(estimates) == len(runs):
                mean = _over_seeds(estimates, first.level, FIGURES[name].limits)
                row[name] = {**mean.to_dict(), **_spreads([estimate.value for estimate in estimates])}
        comparison = None if method == self.methods[0] else self.comparison(method, after=after, on=on)
        row["difference"] = None if comparison is None else _differences(comparison)
        noisy = [o.label_noise for o in outcomes if o.label_noise is not None]
        if noisy and on == "test":
            row["label_noise"] = {which: _means([noise[which] for noise in noisy]) for which in ("best", "last")}
        return row

    def _figures_table(self, rows: list[dict[str, Any]], shown: list[Figure], spread: str) -> str:
        lines = [
            [
                _code(row["method"]),
                f"{row['n_seeds']} of {len(self.seeds)}",
                *(_estimate(row[figure.name], spread=spread) for figure in shown),
                f"{row['temperature']:.3f}",
            ]
            for row in rows
        ]
        return _markdown(["method", "seeds", *_headings(rows, shown), "temperature"], lines)


# Figures


def _over_seeds(runs: Sequence[Estimate], level: float, limits: tuple[float, float]) -> Estimate:
    """Return the mean over seeds with an interval for other samples and other seeds; see `GridResult.rows`."""
    values = np.array([run.value for run in runs])
    mean = float(values.mean())
    if len(runs) == 1:
        return runs[0]
    if not math.isfinite(mean):
        return Estimate(mean, *limits)
    between = float(values.var(ddof=1)) / len(runs)

    def half(gap: float) -> float:
        # Half lengths add up as squares, which never covers less than either: see `vicinal.compare`.
        return math.hypot(gap, float(stdtrit(len(runs) - 1, (1 + level) / 2)) * math.sqrt(between))

    low = mean - half(float(np.mean([run.value - run.low for run in runs])))
    high = mean + half(float(np.mean([run.high - run.value for run in runs])))
    return Estimate(mean, max(low, limits[0]), min(high, limits[1]))


def _spreads(values: Sequence[float]) -> dict[str, float | None]:
    """Return the standard deviation over seeds, and the standard error of their mean; None with one seed."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 and np.isfinite(values).all() else None
    return {"sd": sd, "se": None if sd is None else sd / math.sqrt(len(values))}


def _means(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each error over seeds; one that is of no samples (NaN) is left out."""
    means = {name: float(np.mean([each[name] for each in errors])) for name in errors[0]}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


def _differences(comparison: Comparison) -> dict[str, object]:
    called = {"a": comparison.names[0], "b": comparison.names[1], None: None}
    figures = {
        name: {**Estimate(d.value, d.low, d.high).to_dict(), "better": called[d.better]}
        for name, d in comparison.differences.items()
    }
    return {"to": comparison.names[0], "n_seeds": comparison.n_seeds, **figures}


# Markdown


def _differences_table(rows: list[dict[str, Any]], shown: list[Figure]) -> str:
    lines = []
    for row in rows:
        difference, texts = row["difference"], []
        for figure in shown:
            d = difference[figure.name]
            verdict = "" if d["better"] is None else " better" if d["better"] == row["method"] else " worse"
            texts.append(_estimate(d, "+") + verdict)
        lines.append([_code(row["method"]), str(difference["n_seeds"]), *texts])
    return _markdown(["method", "seeds", *_headings(rows, shown)], lines)


def _headings(rows: list[dict[str, Any]], shown: list[Figure]) -> list[str]:
    return [figure.heading(rows[0]["n_bins"]) for figure in shown]


def _noise_table(rows: list[dict[str, Any]]) -> str:
    names = {"test": "test", "train_real": "training, real labels", "train_corrupted": "training, corrupted labels"}
    shown = [name for name in names if name in rows[0]["label_noise"]["best"]]
    heads = [f"{names[name]}, {which}" for name in shown for which in ("kept", "last")]
    lines = [
        [
            _code(row["method"]),
            *(f"{row['label_noise'][which][name]:.4f}" for name in shown for which in ("best", "last")),
        ]
        for row in rows
    ]
    return _markdown(["method", *heads], lines)


def _estimate(figure: Mapping[str, float | None], sign: str = "", *, spread: str = "interval") -> str:
    if spread != "interval":
        value, around = ("?" if figure[name] is None else f"{figure[name]:.4f}" for name in ("value", spread))
        return f"{value} ± {around}"
    value, low, high = (
        "∞" if figure[name] is None else f"{figure[name]:{sign}.4f}" for name in ("value", "low", "high")
    )
    return f"{value} [{low}, {high}]"


def _markdown(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


def _code(method: str) -> str:
    return f"`{' '.join(method.split())}`".replace("|", "\\|")


def counted(n: int, what: str) -> str:
    """Return "1 seed", "2 seeds"."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
