"""Summarise a grid of experiments: the metrics of each method over seeds, and paired differences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from vicinal._atomic import Json
from vicinal._checks import ArgumentError, choice, nearest_names
from vicinal.metrics import METRICS, Comparison, Estimate, Evaluation, Metric, compare
from vicinal.metrics.intervals import over_seeds
from vicinal.metrics.registry import columns
from vicinal.runs.calibration import HeadCalibrators
from vicinal.runs.run import RunResult

#: A cell: the method as asked for, and the seed.
Key = tuple[str, int]

#: A hint that names more seeds than this helps nobody.
_MOST_SEEDS = 200

_SAMPLES = {"test": "test samples", "val": "validation samples"}

#: What may stand beside a mean over seeds.
_SPREADS = {
    "interval": "interval",
    "sd": "standard deviation over seeds",
    "se": "standard error of the mean over seeds",
}


@dataclass(frozen=True, eq=False)
class GridResult:
    """The result of a grid. Made by `run_grid`.

    Metrics are those of the test set, before the temperature or, with `after=True`, after it. With several labels they
    are means over labels; `of_label` returns those of one.

    Examples
    --------
    >>> result = GridResult(Path("grid"), ("ERM()",), (0,), {}, {("ERM()", 0): "out of memory"})
    >>> result.failures["ERM()", 0]
    'out of memory'
    """

    out: Path
    """The folder, in which each run has its own."""
    methods: tuple[str, ...]
    """The expressions, as they were given. The others are compared with the first."""
    seeds: tuple[int, ...]
    """The seeds that each method runs with."""
    results: Mapping[Key, RunResult]
    """By method and seed."""
    failures: dict[Key, str]
    """Errors, by method and seed; the traceback is in `error.txt` of the cell's folder."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, where the target is several columns of 0 and 1; else none."""
        first = next(iter(self.results.values()), None)
        return () if first is None or not first.is_multilabel else tuple(first.calibrators.by_head)

    def of_label(self, label: str) -> GridResult:
        """Return the summary of one of several labels."""
        choice("label", label, self.labels)
        return dataclasses.replace(self, results={key: each.head(label) for key, each in self.results.items()})

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
            The set: `"test"`, `"val"`, or `"eval-1"`, … for an extra evaluation set.
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

    def rows(self, *, after: bool = False, on: str = "test") -> list[Json]:
        r"""Return a row of plain numbers for each method.

        Each metric has its mean over seeds as `value`, and `low` and `high`, the ends of an interval for other samples
        *and* other seeds (`vicinal.metrics.intervals.over_seeds`). With one seed they are the ends of that run's own
        interval. `sd` is the standard deviation over seeds and `se` the standard error of their mean; both are None
        with one seed.

        `difference` is the paired difference to the first method. Its `better` names the method that is significantly
        better, or is None. Unknown and infinite numbers are None.

        Parameters
        ----------
        after
            Of the probabilities after the temperature.
        on
            The set: `"test"`, `"val"`, or `"eval-1"`, … for an extra evaluation set.
        """
        return [self._row(method, after, on) for method in self.methods]

    @property
    def extra_sets(self) -> dict[str, str]:
        """The names of the extra evaluation sets, by key."""
        first = next(iter(self.results.values()), None)
        return {} if first is None else {key: s.name for key, s in first.sets.items() if key not in ("val", "test")}

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON can hold it."""
        return {
            "methods": list(self.methods),
            "seeds": list(self.seeds),
            "before": self.rows(),
            "after": self.rows(after=True),
            "eval_data": {
                key: {"name": name, "before": self.rows(on=key), "after": self.rows(after=True, on=key)}
                for key, name in self.extra_sets.items()
            },
            **({"labels": {name: self._of_label_rows(name) for name in self.labels}} if self.labels else {}),
            "cells": [
                {**result.to_dict(), "method": m, "seed": s, "folder": str(result.out)}
                for (m, s), result in self.results.items()
            ],
            "failures": [{"method": m, "seed": s, "error": error} for (m, s), error in self.failures.items()],
        }

    def columns(self, asked: Sequence[str] = (), *, after: bool = False, on: str = "test") -> list[Metric]:
        """Return the metrics that have a column: the default ones, MCC for unbalanced classes, and `asked`."""
        runs = [run for method in self.methods for run in self._evaluations(method, after, on).values()]
        if not runs:
            return []
        every = runs[0].heads.values() or [runs[0]]
        shown = {metric.name for evaluation in every for metric in columns(evaluation, asked)}
        return [metric for name, metric in METRICS.items() if name in shown and runs[0].metrics.get(name) is not None]

    def chosen(self, by: str = "nll") -> str:
        """Return the method that is best by a validation metric, before the temperature.

        Methods are ranked by the mean over the seeds that all of them have; a method without any run is left out, and
        ties go to the first. The test set is not used, so its metrics stay unbiased: select hyper-parameters this way.

        Parameters
        ----------
        by
            The name of a metric, such as `"nll"` or `"ece"`.
        """
        metric = METRICS[choice("by", by, tuple(METRICS))]
        runs = {method: of for method in self.methods if (of := self._evaluations(method, False, "val"))}
        shared = [seed for seed in self.seeds if all(seed in of for of in runs.values())]
        if not runs or not shared:
            raise ValueError("the methods have no seed in common: nothing can be chosen")
        means: dict[str, float] = {}
        for method, of in runs.items():
            values = [estimate.value for seed in shared if (estimate := of[seed].metrics.get(by)) is not None]
            if len(values) < len(shared):
                raise ArgumentError("by", by, "a metric that the validation set has")
            means[method] = float(np.mean(values))
        return (max if metric.higher_is_better else min)(means, key=means.__getitem__)

    def table(
        self,
        *,
        after: bool = False,
        metrics: Sequence[str] = (),
        spread: str = "interval",
        choose: str | None = None,
        times: bool = False,
    ) -> str:
        """Return the rows as Markdown: metrics, differences, extra evaluation sets, label-noise errors, what failed.

        The lowest NLL comes first.

        Parameters
        ----------
        after
            Of the probabilities after the temperature: metrics and differences alone, as the rest does not change.
        metrics
            The names of more metrics to show, such as `"mcc"` or `"top5_error"`.
        spread
            What stands beside each mean: its `"interval"`, or ± the standard deviation over seeds, `"sd"`, or ± the
            standard error, `"se"`. The last two ignore the choice of samples. Differences always have intervals.
        choose
            The name of a metric: show the validation set too, and which method this metric selects on it.
        times
            Show the mean time of training.
        """
        choice("spread", spread, tuple(_SPREADS))
        parts = self._tables("test", after, metrics, spread, times)
        for label in self.labels:
            _, *tables = self.of_label(label)._tables("test", after, metrics, spread)
            parts += [f"The label {label!r} alone", *tables]
        for key in self.extra_sets:
            parts += self._tables(key, after, metrics, spread)
        noisy = [row for row in self.rows() if "label_noise" in row]
        if not after and noisy:  # the temperature changes no prediction
            parts.append("Errors with corrupted training labels, of the kept (by validation) and of the last weights")
            parts.append(_noise_table(noisy))
        if not after and choose is not None:
            parts += self._tables("val", False, (choose,), spread)[:2]
            chosen, n_bins = self.chosen(choose), next(iter(self.results.values())).test.uncalibrated.n_bins
            parts.append(f"Chosen by {METRICS[choose].heading(n_bins)} of the validation set: {_code(chosen)}")
        if not after and self.failures:
            failed = [f"- {_code(m)}, seed {s}: {error}" for (m, s), error in self.failures.items()]
            cells = len(self.methods) * len(self.seeds)
            parts.append("\n".join([f"{len(failed)} of {counted(cells, 'cell')} failed:", *failed]))
        return "\n\n".join(parts)

    def _of_label_rows(self, label: str) -> dict[str, list[dict[str, object]]]:
        alone = self.of_label(label)
        return {"before": alone.rows(), "after": alone.rows(after=True)}

    def ranked(self, *, after: bool = False, on: str = "test") -> list[Json]:
        """Return the rows of the methods that have runs, the lowest NLL first."""
        known = [row for row in self.rows(after=after, on=on) if row["n_seeds"]]
        return sorted(known, key=lambda row: math.inf if row["nll"]["value"] is None else row["nll"]["value"])

    @property
    def is_calibrated(self) -> bool:
        """Whether a calibrator changes any metric: otherwise before and after are the same."""
        sets = [each for result in self.results.values() for each in result.sets.values()]
        return any(each.calibrated.metrics != each.uncalibrated.metrics for each in sets)

    def advised(self, *, after: bool = True) -> tuple[str, str]:
        """Return the method to use, if any is, and the comparison that it follows from; empty without a second one.

        It is the fastest to train of those that are not significantly worse than the lowest NLL on the test set.
        """
        best, *others = [row["method"] for row in self.ranked(after=after)] or [""]
        if not others:
            return "", ""
        found = {name: self.comparison(best, name, after=after) for name in others}
        worse = [name for name, each in found.items() if each is not None and each["nll"].better == "b"]
        as_good = [name for name, each in found.items() if each is not None and name not in worse]
        said = f"Lowest NLL {'after' if after else 'before'} calibration: {_code(best)}."
        said += f" Significantly better than {', '.join(map(_code, worse))}." if worse else ""
        if not as_good:
            return best, said
        rest = ", ".join(map(_code, as_good))
        said += f" No significant difference to {rest}. More test samples or seeds may show one."
        times = {name: seconds for name in (best, *as_good) if (seconds := self.seconds(name)) is not None}
        fastest = min(times, key=times.__getitem__) if best in times else best
        if fastest != best:
            both = f"({_time(times[fastest])}, {_time(times[best])})"
            said += f" {_code(fastest)} trains faster than {_code(best)} {both}."
        return fastest, said

    def seconds(self, method: str) -> float | None:
        """Return the mean time of training a method; None where it is unknown, as of predictions."""
        times = [each.fit["seconds"] for (name, _), each in self.results.items() if name == method]
        return None if not times or None in times else float(np.mean(times))

    def counted_seeds(self, method: str) -> str:
        """Return how many seeds a method has, of how many: a finished run or a file has no others that are missing."""
        n = sum(name == method for name, _ in self.results)
        failed = any(name == method for name, _ in self.failures)
        return f"{n} of {len(self.seeds)}" if failed or n == len(self.seeds) else str(n)

    def _tables(self, on: str, after: bool, metrics: Sequence[str], spread: str, times: bool = False) -> list[str]:
        """Return the metrics and differences on one set, each after a line that says what they are."""
        known = self.ranked(after=after, on=on)
        if not known:
            return []
        shown = self.columns(metrics, after=after, on=on)
        samples = _SAMPLES.get(on) or f"samples of {self.extra_sets[on]}"
        beside = f"[{100 * known[0]['level']:g} % intervals]" if spread == "interval" else f"± {_SPREADS[spread]}"
        notes = () if after else next(iter(self.results.values())).sets[on].notes
        parts = [
            f"{known[0]['n']:,} {samples}, {self._counted()}, {'after' if after else 'before'} the temperature; "
            f"{beside}",
            *([f"Of {self.extra_sets[on]}: {'; '.join(notes)}"] if notes else []),
            self._metrics_table(known, shown, spread, times),
        ]
        others = [row for row in known if row["difference"] is not None]
        if others:
            parts.append(
                f"Differences to {_code(self.methods[0])}, paired on samples and seeds; where neither better nor worse "
                "is given, the difference is not significant"
            )
            parts.append(_differences_table(others, [metric for metric in shown if metric.compared]))
            hints = [f"- {_code(row['method'])}: {row['difference']['hint']}" for row in others]
            parts += (
                ["\n".join(hint for hint in hints if not hint.endswith(": "))]
                if any(row["difference"]["hint"] for row in others)
                else []
            )
        return parts

    def _counted(self) -> str:
        means = [f"means over {counted(len(self.labels), 'label')}"] if self.labels else []
        return ", ".join([*means, counted(len(self.seeds), "seed")])

    def __str__(self) -> str:
        return f"{self.table(after=True)}\n\n{self.table()}"

    def _evaluations(self, method: str, after: bool, on: str) -> dict[int, Evaluation]:
        results = {seed: self.results[method, seed] for seed in self.seeds if (method, seed) in self.results}
        for result in results.values():
            if on not in result.sets and on not in _SAMPLES:
                raise ArgumentError("on", on, f"one of {', '.join(map(repr, ('test', 'val', *self.extra_sets)))}")
            if on not in result.sets:
                missing = f"{result.out} has no {_SAMPLES[on]} to compare methods on"
                raise ValueError(f"{missing}: hold out a share of the data")
        sets = {seed: result.sets[on] for seed, result in results.items()}
        return {seed: each.calibrated if after else each.uncalibrated for seed, each in sets.items()}

    def _row(self, method: str, after: bool, on: str) -> dict[str, object]:
        runs = list(self._evaluations(method, after, on).values())
        row: dict[str, object] = {"method": method, "n_seeds": len(runs)}
        if not runs:
            return row
        results = [result for (m, _), result in self.results.items() if m == method]
        first = runs[0]
        row |= {"n": first.n, "n_bins": first.n_bins, "level": first.level}
        fitted = [result.sets[on].calibrators for result in results]
        only = all(each.only_temperatures for each in fitted)
        row["temperature"] = float(np.mean([each.temperature for each in fitted])) if only else None
        row["calibrator"] = _calibrators(fitted)
        for name in first.metrics:
            estimates = [estimate for run in runs if (estimate := run.metrics.get(name)) is not None]
            if len(estimates) == len(runs):
                mean = over_seeds(estimates, first.level, limits=METRICS[name].limits)
                row[name] = {**mean.to_dict(), **_spreads([estimate.value for estimate in estimates])}
        comparison = None if method == self.methods[0] else self.comparison(method, after=after, on=on)
        row["difference"] = (
            None if comparison is None else _differences(comparison) | {"hint": self._hint(comparison, after, on)}
        )
        noisy = [result.label_noise for result in results if result.label_noise is not None]
        if noisy and on == "test":
            row["label_noise"] = {which: _means([noise[which] for noise in noisy]) for which in ("best", "last")}
        return row

    def _hint(self, comparison: Comparison, after: bool, on: str) -> str:
        """Say how many seeds would decide the NLL if means and spreads stay as they are; "" where it is decided."""
        if "nll" not in comparison.differences or (d := comparison["nll"]).better is not None:
            return ""
        if not all(map(math.isfinite, (d.value, d.low, d.high))):
            return ""
        a, b = (self._evaluations(name, after, on) for name in comparison.names)
        of_seeds = [b[seed].nll.value - a[seed].nll.value for seed in a if seed in b]
        # The end that is nearer to 0 decides. Of its distance the seeds have a part, and samples the rest.
        reach = (d.value - d.low if d.value > 0 else d.high - d.value) ** 2
        spread, n = float(np.var(of_seeds, ddof=1)) if len(of_seeds) > 1 else 0.0, len(of_seeds)
        by_seeds = {s: float(stdtrit(s - 1, (1 + comparison.level) / 2)) ** 2 / s for s in range(2, _MOST_SEEDS + 1)}
        samples = max(reach - by_seeds.get(n, 0.0) * spread, 0.0)
        if samples >= d.value**2:
            return "more test samples, not seeds, would decide the NLL"
        if n < 2:
            return "one seed does not show how seeds differ: train with more"
        enough = [s for s, part in by_seeds.items() if samples + part * spread < d.value**2]
        return f"about {enough[0]} seeds would decide the NLL" if enough else "no practical number of seeds would do"

    def _metrics_table(self, rows: list[Json], shown: list[Metric], spread: str, times: bool) -> str:
        lines = [
            [
                _code(row["method"]),
                self.counted_seeds(row["method"]),
                *(_estimate(row[metric.name], spread=spread) for metric in shown),
                row["calibrator"],
                *([_time(self.seconds(row["method"]))] if times else []),
            ]
            for row in rows
        ]
        last = ["calibrator", *(["training"] if times else [])]
        return _markdown(["method", "seeds", *_headings(rows, shown), *last], lines)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:,.0f} s"


def _calibrators(fitted: Sequence[HeadCalibrators]) -> str:
    """Return the mean temperature, or the names of the calibrators of all seeds and heads."""
    if all(each.only_temperatures for each in fitted):
        return f"T = {np.mean([each.temperature for each in fitted]):.3f}"
    words = [each.text(head).partition(" ")[0] for each in fitted for head in each.by_head]
    return ", ".join(dict.fromkeys(words))


# Numbers


def _spreads(values: Sequence[float]) -> dict[str, float | None]:
    """Return the standard deviation over seeds, and the standard error of their mean; None with one seed."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 and np.isfinite(values).all() else None
    return {"sd": sd, "se": None if sd is None else sd / math.sqrt(len(values))}


def _means(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each error over seeds; an error over no samples (NaN) is left out."""
    means = {name: float(np.mean([each[name] for each in errors])) for name in errors[0]}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


def _differences(comparison: Comparison) -> dict[str, object]:
    called = {"a": comparison.names[0], "b": comparison.names[1], None: None}
    differences = {
        name: {**Estimate(d.value, d.low, d.high).to_dict(), "better": called[d.better]}
        for name, d in comparison.differences.items()
    }
    return {"to": comparison.names[0], "n_seeds": comparison.n_seeds, **differences}


# Markdown


def _differences_table(rows: list[Json], shown: list[Metric]) -> str:
    lines = []
    for row in rows:
        difference, texts = row["difference"], []
        for metric in shown:
            d = difference[metric.name]
            verdict = "" if d["better"] is None else " better" if d["better"] == row["method"] else " worse"
            texts.append(_estimate(d, "+") + verdict)
        lines.append([_code(row["method"]), str(difference["n_seeds"]), *texts])
    return _markdown(["method", "seeds", *_headings(rows, shown)], lines)


def _headings(rows: list[Json], shown: list[Metric]) -> list[str]:
    return [metric.heading(rows[0]["n_bins"]) for metric in shown]


def _noise_table(rows: list[Json]) -> str:
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


def _estimate(entry: Mapping[str, float | None], sign: str = "", *, spread: str = "interval") -> str:
    if spread != "interval":
        value, around = ("?" if entry[name] is None else f"{entry[name]:.4f}" for name in ("value", spread))
        return f"{value} ± {around}"
    value, low, high = ("∞" if entry[name] is None else f"{entry[name]:{sign}.4f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _markdown(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


def _code(method: str) -> str:
    return f"`{' '.join(method.split())}`".replace("|", "\\|")


def counted(n: int, what: str) -> str:
    """Return "1 seed", "2 seeds"."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
