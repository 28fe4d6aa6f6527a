"""What `vicinal predict` writes of each row: probabilities, answers and prediction sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal._checks import Argument, ArgumentError, Sentence, choice
from vicinal.cli.options import use_device

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
class Answers:
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
class Work:
    """What to predict and how: all that a worker elsewhere needs to know."""

    run: str
    data: str
    answers: Answers
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


def _decision_rules(bundle: Bundle, run: Path, answers: Answers) -> tuple[RiskThreshold | None, PredictionSets | None]:
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


def _sets(bundle: Bundle, run: Path, answers: Answers) -> PredictionSets:
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
