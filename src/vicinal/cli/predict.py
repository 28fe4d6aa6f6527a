"""`vicinal predict`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal._checks import Argument, ArgumentError, Sentence, choice, integer, number
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.options import (
    CsvCommon,
    Predictions,
    ShardOptions,
    Written,
    share_or_number,
    takes_records,
    use_device,
)
from vicinal.cli.outputs import check_outputs

if TYPE_CHECKING:
    from torch import Tensor

    from vicinal.calibrators.conformal import PredictionSets
    from vicinal.data import Stream
    from vicinal.metrics.selective import RiskThreshold
    from vicinal.runs.bundle import Bundle

#: The answer of a row that is passed on.
ABSTAIN = "abstain"
#: Numbers to write at a time, about.
_GATHERED = 2**17
#: The kinds of prediction sets; `vicinal.calibrators.conformal.SETS` has them, and costs the import of torch.
SET_KINDS = ("least-ambiguous", "adaptive", "adaptive-randomised", "regularised")
#: The columns of the file, beside the probabilities.
_WRITTEN = ("row", "answer", "set", "prediction", "confidence")


@dataclass(frozen=True)
class _Answers:
    """What is written of each row beside its probabilities."""

    max_risk: Annotated[
        float | None,
        typer.Option(help="Abstain from the least confident rows, so that the share of wrong answers is below this."),
    ] = None
    level: Annotated[float, typer.Option(help="The confidence level at which --max-risk must hold.")] = 0.95
    sets: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Add each row's prediction set, which holds the true class with this probability: 0.9.",
        ),
    ] = None
    sets_kind: Annotated[
        str,
        typer.Option(
            metavar="|".join(SET_KINDS),
            help="With --sets: the smallest sets, larger ones for harder rows, those with a random last class and "
            "exact coverage, or those that are rarely large (RAPS).",
        ),
    ] = SET_KINDS[0]
    within_class: Annotated[
        bool, typer.Option("--within-class", help="With --sets: hold the coverage in each class, rare ones too.")
    ] = False
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Copy this column of a table, such as an identifier; may be repeated."),
    ] = None


@dataclass(frozen=True)
class _Reading:
    """How the data are read, and where predictions are computed."""

    batch_size: Annotated[
        int | None, typer.Option(help="Samples at a time; by default as many as in the run's evaluation.")
    ] = None
    device: Annotated[
        str | None,
        typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps; by default on the device that trained the run."),
    ] = None
    max_bad: Annotated[
        str, typer.Option(metavar="SHARE|NUMBER", help="Skip at most so many unreadable rows or files.")
    ] = "0.05"
    encoding: Annotated[str | None, typer.Option(help="Encoding of a text file, such as latin-1.")] = None
    header: Annotated[bool, typer.Option(help="Whether the first line of a table names the columns.")] = True
    max_pixels: Annotated[int, typer.Option(help="The most pixels of an image that is read.")] = 178_956_970
    data_root: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where named data sets are.")] = None


@handle_errors
@takes_records
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="New data of the same kind, labelled or not.")],
    out: Predictions,
    *,
    answers: _Answers,
    reading: _Reading,
    written: Written,
    shards: ShardOptions,
    common: CsvCommon,
) -> None:
    """Write each row's class and calibrated probabilities.

    The file has the number of the row, from 0 (and the name of a picture or sound, and columns to --keep),
    `prediction`, `confidence` and a column of probability for each class; with --sets a column `set`, a JSON list of
    classes. Of a run of several targets it has the probability of each, and `prediction`, a JSON list of those above
    one half.
    """
    from vicinal.predictions import write
    from vicinal.predictions.writer import check_output

    check_output(out)
    check_outputs({"--out": out}, [run, data], overwrite=common.overwrite, data_root=reading.data_root)
    if reading.batch_size is not None:
        integer("batch_size", reading.batch_size, low=1)
    if not 0 < number("level", answers.level) < 1:
        raise ArgumentError("level", answers.level, "a number in (0, 1)")
    how = {name: getattr(reading, name) for name in ("encoding", "header", "data_root", "batch_size")}
    how |= {"max_bad": share_or_number("max_bad", reading.max_bad), **written.options()}
    work = Work(str(run.absolute()), data, answers, reading.device, reading.max_pixels, how)
    console = Console(as_json=common.as_json)
    if shards.is_here:
        with console.stage("loading the model"):
            bundle, rule, sets = work.loaded()
        with console.stage("opening the data"):
            blocks = work.blocks(bundle)
        answered = AnswerCounter()
        with console.stage("predicting", blocks.n_rows) as advance:
            chunks = answered_chunks(bundle, blocks, reading.batch_size, rule, sets, answered, advance)
            n = write(out, bundle.classes, chunks, safe_csv=common.safe_csv, exclusive=not bundle.is_multilabel)
        notes: Sequence[str] = blocks.notes
    else:
        from vicinal.cli.predict_shards import predict_on_ray

        with console.stage("loading the model"):
            bundle, rule, sets = work.loaded()
        answered, notes = predict_on_ray(console, work, bundle, out, shards, safe_csv=common.safe_csv)
        n = answered.rows
    for note in notes:
        console.note(note)
    facts = {} if rule is None else answered.facts(n, rule)
    facts |= {} if sets is None else {"set_size": answered.in_sets / n}
    console.event("result", {"out": str(out), "rows": n, **facts})
    console.say(f"{out}: {n:,} row{'s' * (n != 1)}, {_outputs(bundle)}")
    if rule is not None:
        console.say(answered.sentence(n, rule))
    if sets is not None:
        if few := [name for name, end in zip(bundle.classes, sets.thresholds_, strict=True) if end == math.inf]:
            console.say(f"in every set, for lack of held-out samples: {', '.join(map(repr, few))}")
        console.say(
            f"prediction sets of {100 * sets.coverage:g} % coverage hold {answered.in_sets / n:.2f} classes on average"
        )


@dataclass(frozen=True)
class Work:
    """What to predict and how: all that a worker elsewhere needs to know."""

    run: str
    data: str
    answers: _Answers
    device: str | None
    max_pixels: int
    how: Mapping[str, Any]

    def loaded(self) -> tuple[Bundle, RiskThreshold | None, PredictionSets | None]:
        """Return the model, the threshold of --max-risk and the sets of --sets."""
        import vicinal
        from vicinal.runs import Run

        use_device(self.device)
        bundle = vicinal.load(self.run, device=Run(self.run).device, max_pixels=self.max_pixels)
        return bundle, *_decision_rules(bundle, Path(self.run), self.answers)

    def blocks(self, bundle: Bundle) -> Stream:
        """Open the data."""
        return bundle.stream(self.data, keep=_kept(self.answers.keep or []), **self.how)


def _decision_rules(bundle: Bundle, run: Path, answers: _Answers) -> tuple[RiskThreshold | None, PredictionSets | None]:
    """Return the threshold of --max-risk and the prediction sets of --sets, where they are asked for."""
    for option in ("max_risk", "sets"):
        if bundle.is_multilabel and getattr(answers, option) is not None:
            instead = "without it the file has the probability of each"
            raise ValueError(
                Sentence(Argument(option), f" needs classes, and {str(run)!r} has several targets: {instead}")
            )
    for option, default in (("within_class", False), ("sets_kind", SET_KINDS[0])):
        if getattr(answers, option) != default and answers.sets is None:
            raise ValueError(Sentence(Argument(option), " needs ", Argument("sets")))
    rule = None if answers.max_risk is None else _rule(bundle, run, answers.max_risk, answers.level)
    if rule is not None and ABSTAIN in bundle.classes:
        raise ValueError(f"a class is called {ABSTAIN!r}, which is what --max-risk writes where it gives no answer")
    return rule, None if answers.sets is None else _sets(bundle, run, answers)


def _kept(names: list[str]) -> list[str]:
    """Return the columns to copy, if they do not have the names of those that are written."""
    for name in names:
        if name in _WRITTEN or name.startswith("prob_"):
            raise ArgumentError("keep", name, f"another name than those written here: {', '.join(_WRITTEN)}, prob_…")
    return list(dict.fromkeys(names))


def _outputs(bundle: Bundle) -> str:
    """Return what the model answers with, in words."""
    if not bundle.is_multilabel:
        return f"{len(bundle.classes)} classes, {bundle.calibrators.text()}"
    if not bundle.calibrators.only_temperatures:
        return f"{len(bundle.classes)} labels, {', '.join(map(bundle.calibrators.text, bundle.classes))}"
    temperatures = ", ".join(f"{value:.3f}" for value in bundle.calibrators.temperatures.values())
    return f"{len(bundle.classes)} labels, temperatures {temperatures}"


class AnswerCounter:
    """How many rows were answered, and how many classes their sets hold."""

    def __init__(self) -> None:
        self.n = self.in_sets = self.rows = 0

    def facts(self, n: int, rule: RiskThreshold) -> dict[str, object]:
        """Return what a machine wants to know of the rule."""
        return {"answered": self.n, "coverage": self.n / n, "threshold": rule.threshold, "risk_bound": rule.upper_bound}

    def sentence(self, n: int, rule: RiskThreshold) -> str:
        """Return what a person wants to know of the rule."""
        if rule.n_accepted == 0:
            return f"no row is answered: the held-out data cannot show a risk of at most {rule.max_risk:g}"
        everything = rule.threshold == float("-inf")
        where = "every row" if everything else f"where the confidence is above {rule.threshold:.4f}"
        return (
            f"{self.n:,} of {n:,} rows answered ({100 * self.n / n:.1f} %), {where}; on data like the held-out ones "
            f"at most {100 * rule.max_risk:g} % of answers are wrong (confidence level {100 * rule.level:g} %)"
        )


def _rule(bundle: Bundle, run: Path, max_risk: float, level: float) -> RiskThreshold:
    """Return the threshold that the test set, which neither training nor calibration has seen, can vouch for."""
    from vicinal.metrics import risk_threshold
    from vicinal.runs import Run

    result = Run(run).result() if Run(run).is_finished else None
    if result is None or "test" not in result.sets:
        raise ValueError(f"--max-risk needs the held-out predictions of a run, and {str(run)!r} has none")
    # As the new data's, to the last bit: a copy of the sample that sets the threshold must not lie above it.
    confidence, predicted = bundle.calibrated(result.test.logits).max(dim=1)
    return risk_threshold(confidence, predicted == result.test.labels, max_risk, level=level)


def _sets(bundle: Bundle, run: Path, answers: _Answers) -> PredictionSets:
    """Return sets fitted on the test set, which neither training nor calibration has seen."""
    import torch

    from vicinal.calibrators.conformal import SETS
    from vicinal.runs import Run

    kind = SETS[choice("sets_kind", answers.sets_kind, SET_KINDS)]
    fitted = kind(coverage=answers.sets, by_class=answers.within_class)
    result = Run(run).result() if Run(run).is_finished else None
    if result is None or "test" not in result.sets:
        raise ValueError(f"--sets needs the held-out predictions of a run, and {str(run)!r} has none")
    generator = torch.Generator().manual_seed(0)
    return fitted.fit(bundle.calibrators(result.test.logits), result.test.labels, generator=generator)


def answered_chunks(
    bundle: Bundle,
    blocks: Stream,
    batch_size: int | None,
    rule: RiskThreshold | None,
    sets: PredictionSets | None,
    answered: AnswerCounter,
    advance: Any,
) -> Iterator[tuple[dict[str, object], object]]:
    """Yield the columns to keep and the probabilities, some batches at a time."""
    import numpy as np
    import torch

    generator = torch.Generator().manual_seed(1)  # another one than the threshold's
    names = np.array(bundle.classes, dtype=object)
    origin = "file" if bundle.preprocessing.kind in ("image", "audio") else None
    for rows, split in blocks:
        first = 0
        # Rows keep their numbers in the file, so that an error names the row of the user.
        batches = bundle.iter_logits(split, batch_size=batch_size, progress=advance, numbers=rows)
        for logits in _gathered(batches):
            probs = bundle.calibrated(logits).numpy()
            here = range(first, first + len(probs))
            first += len(probs)
            places = rows[here.start : here.stop]
            columns: dict[str, object] = {"row": places, **blocks.kept(places)}
            if origin is not None:
                columns[origin] = [str(split.original(i)) for i in here]
            if rule is not None:
                above = probs.max(axis=1) > rule.threshold
                answered.n += int(above.sum())
                columns["answer"] = np.where(above, names[probs.argmax(axis=1)], ABSTAIN).tolist()
            if sets is not None:
                inside = sets(bundle.calibrators(logits), generator=generator)
                answered.in_sets += int(inside.sum())
                columns["set"] = [json.dumps(names[row].tolist(), ensure_ascii=False) for row in inside]
            yield columns, probs


def _gathered(batches: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yield the same rows in larger tensors: writing a batch of 128 rows takes longer than the network."""
    import torch

    waiting: list[Tensor] = []
    numbers = 0
    for batch in batches:
        waiting.append(batch)
        numbers += batch.numel()
        if numbers >= _GATHERED:
            yield torch.cat(waiting)
            waiting, numbers = [], 0
    if waiting:
        yield torch.cat(waiting)
