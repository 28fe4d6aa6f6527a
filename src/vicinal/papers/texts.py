"""What the recipes on texts share: MiniLM below paper scale, BERT-base at it, and the methods of W21.

The cell is MiniLM-L6 (22.7 million weights, all of them trained) on a few dozen to a few thousand texts of at most 64
tokens. It is trained in batches of 16 by AdamW at a constant rate. Its last step is measured on about 1,000 held-out
texts. Sizes follow from what a step costs on one core: 0.3 s at 32 tokens, 0.6 s at 64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vicinal.calibrators import TemperatureScaling
from vicinal.data import stratified_subset
from vicinal.metrics import evaluate
from vicinal.papers import images
from vicinal.papers.base import Data, Method, Network, Recipe, Scale, Settings, three_scales, where_printed
from vicinal.papers.calibratable import parts_of
from vicinal.papers.claims import LOOKS, Claim, Pair, pooled
from vicinal.papers.p22_vanilla import fit_smoothed
from vicinal.papers.plots import bars
from vicinal.papers.trained import Part, logits_of, metrics_of

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained
    from vicinal.runs import Experiment

#: Networks below paper scale, and at it.
MINILM, BERT = {"MiniLM-L6": Network("minilm")}, {"BERT-base": Network("hf:google-bert/bert-base-uncased")}
#: P22 Section 4.3.
ROBERTA = {
    "RoBERTa-base": Network("hf:FacebookAI/roberta-base", training={"batch_size": 32, "lr": 2e-5, "weight_decay": 0.1})
}

#: The papers mix texts of any lengths.
ANY_LENGTHS = {"group_by_length": False}
#: W21 (Table 6) and L22 give rate, batch size and epochs, and nothing of the rest: AdamW without schedule, warm-up,
#: weight decay or clipping.
GIVEN_ONLY: Settings = {
    "optimizer": "adamw",
    "schedule": "constant",
    "warmup_epochs": 0,
    "weight_decay": 0.0,
    "clip_norm": 0,
    **ANY_LENGTHS,
}

TRAINING: Settings = {
    "batch_size": 16,
    "eval_batch_size": 50,
    **ANY_LENGTHS,
    "optimizer": "adamw",
    "lr": 1e-4,
    "weight_decay": 0.01,
    "schedule": "constant",
    "select": "last",
}

CALIBRATION = {"nll": "NLL", "ece": "ECE (%), 15 bins", "gap": "confidence − accuracy (%)"}
COLUMNS = {"error": "error (%)", **CALIBRATION}

PILOT = (
    "Plain training alone on 32 reviews of IMDb of 64 tokens, seed 100, which no result uses: after 32 steps at 3e-4 "
    "38 % of 1,000 test reviews are wrong, and confidence exceeds accuracy by 37 points. At 1e-4, nearer the paper's "
    "rate, 33 % are wrong and the excess is 28 points, beside 32 % and an ECE of 29 % in the paper. That decided for "
    "1e-4."
)

PILOT_COLA = (
    "Plain training alone on 640 sentences of CoLA, seed 100, which no result uses: near the end of three epochs at "
    "1e-4 (step 105 of 120) the training loss is 0.33, 64 % of the test sentences are right (MCC 0.05), and "
    "confidence exceeds accuracy by 19 points."
)

#: The margin of an NLL, and why it is not 0.01.
NATS = 0.05
NATS_REASON = "0.05 nats change the geometric mean of the true class's probability by 5 %"

#: W21 Section 3.1: 32 examples, drawn at random for every seed.
SUBSET = {"train_size": 32, "subset": "random"}
FEW = "32 examples"
BASE, CLS, INPUT, MANIFOLD = "Base", "CLS", "Input", "Mani"


def small(sources: Mapping[str, str], sizes: Mapping[str, tuple[int, int]], *, held_out: int) -> dict[str, Data]:
    """Return subsets of data sets, all of whose training texts are trained on: how many, and their longest length."""
    return {
        name: Data(sources[name], {"train_size": size, "val": 0, "max_length": length, "max_held_out": held_out})
        for name, (size, length) in sizes.items()
    }


def w21_methods(alpha: float, layers: int) -> dict[str, Method]:
    """Return the rows of W21's tables, for an encoder of so many layers."""
    every = list(range(layers + 1))
    return {
        BASE: Method("ERM()"),
        CLS: Method(f"SequenceMixup.cls(alpha={alpha})"),
        INPUT: Method(f"SequenceMixup.input(alpha={alpha})"),
        MANIFOLD: Method(f"SequenceMixup.manifold(alpha={alpha}, layers={every})"),
    }


Scores = Mapping[str, Mapping[str, tuple[float, float, float]]]
FORMS = (CLS, INPUT, MANIFOLD)
#: Where W21 prints metrics.
W21_COLUMNS = {"error": ("accuracy", "accuracy"), "nll": ("loss", "× 100"), "ece": ("ECE", "%")}
#: What W21 compares, as here: the printed name, the place in its tables, and the unit.
COMPARED = {"nll": ("NLL", 1, "nats"), "ece": ("ECE", 2, "points"), "error": ("error", 0, "points")}


def w21_claims(paper: Scores) -> Callable[[Scale], Iterable[Claim]]:
    """Return the claims that mixup lowers NLL, ECE and error, with the paper's accuracy, loss and ECE (× 100).

    With all examples the paper's accuracies hardly rise, and the claim there is that they do not fall.
    """

    def fall(name: str, on: Pair, form: str) -> float:
        place = COMPARED[name][1]
        sign = -1 if name == "error" else 1
        return sign * (paper[on.data][BASE][place] - paper[on.data][form][place]) / 100

    def kind(name: str, data: Iterable[str]) -> str:
        return "above" if name != "error" or any(FEW in one for one in data) else "no worse"

    def verb(name: str, data: Iterable[str]) -> str:
        return "is below" if kind(name, data) == "above" else "is no more than a point above"

    def claim(name: str, text: str, where: Sequence[tuple[Pair, str]], *, primary: bool) -> Claim:
        data = [on.data for on, _ in where]
        printed, _, unit = COMPARED[name]
        return Claim(
            text.format(f"{printed} {verb(name, data)}"),
            pooled(on.fall(name, BASE, form) for on, form in where),
            kind=kind(name, data),
            margin=NATS if name == "nll" else 0.01,
            reason=NATS_REASON if name == "nll" else "",
            primary=primary,
            paper=sum(fall(name, on, form) for on, form in where) / len(where),
            unit=unit,
            overconfident=[] if name == "error" else sorted({on.cell(BASE) for on, _ in where}),
        )

    def claims(at: Scale) -> Iterable[Claim]:
        every = [(on, form) for on in at.pairs() for form in FORMS]
        for name in COMPARED:
            yield claim(
                name, f"{', '.join(at.data)}: mixup's {{}} the base's, mean of its three forms", every, primary=True
            )
        for on, form in every:
            for name in COMPARED:
                yield claim(name, f"{on}: {form}'s {{}} the base's", [(on, form)], primary=False)

    return claims


@dataclasses.dataclass(frozen=True)
class Below:
    """A scale below the paper's: MiniLM on fewer or shorter texts."""

    data: Mapping[str, Data]
    training: Settings
    """In what it differs from `TRAINING`."""
    minutes: float
    about: str
    """What differs from the paper."""
    seeds: int = 5
    looks: Sequence[int] = LOOKS


def w21_table(
    *,
    source: str,
    paper: Scores,
    cpu: Below,
    night: Below,
    minutes: float,
    rate: float,
    chosen_on: str,
    **parts: Any,
) -> Recipe:
    """Return the recipe of Table 2 or 3: MiniLM on 32 examples and, at paper scale, BERT on 32 and on all.

    Parameters
    ----------
    source
        The data set's name.
    paper
        Accuracy, loss and ECE (all times 100) of each method, with 32 examples and with all.
    cpu, night
        The scales below the paper's.
    minutes, rate, chosen_on
        At its scale: how long it takes, the learning rate (Table 6), and on what of the test set the best epoch is
        chosen.
    parts
        Of the recipe.
    """
    (short, whole), printed = paper, f"{rate:.0e}".replace("e-0", "e-")
    published = {
        short: Data(f"{source}:w21", {**SUBSET, "max_length": 128}),
        whole: Data(f"{source}:w21", {"max_length": 128}),
    }
    best = f"BERT-base, 10 epochs at {printed}, the epoch with the best accuracy on {chosen_on} of the test set."
    scales = three_scales(
        seeds=(cpu.seeds, night.seeds, 5),
        looks=(cpu.looks, night.looks, LOOKS),
        minutes=(cpu.minutes, night.minutes, minutes),
        data=(cpu.data, night.data, published),
        networks=(MINILM, MINILM, BERT),
        training=(
            {**TRAINING, **cpu.training},
            {**TRAINING, **night.training},
            {"epochs": 10, "batch_size": 16, "lr": rate, "select": "accuracy", **GIVEN_ONLY},
        ),
        settings=({"layers": 6}, {"layers": 6}, {"layers": 12}),
        about=(cpu.about, night.about, best),
    )
    defaults = {
        "methods": lambda on, at: w21_methods(1.0, at.settings["layers"]),
        "measure": images.selected,
        "claims": w21_claims(paper),
        "printed": where_printed(lambda key: f"{key[0]}, {key[-1]}", W21_COLUMNS),
        "columns": COLUMNS,
        "draw": bars({"nll": "NLL", "ece": "ECE (%)", "error": "error (%)"}),
        "published": {
            f"{data}, {name}": {"accuracy": accuracy, "loss": loss, "ECE": ece}
            for data, rows in paper.items()
            for name, (accuracy, loss, ece) in rows.items()
        },
    }
    parts["reading"] = (*parts.get("reading", ()), W21_ERRORS)
    return Recipe(scales=scales, **{**defaults, **parts})


#: What W21 prints after ±.
W21_ERRORS = "The paper prints standard errors of five runs after ±."

#: What the tables of P22's recipes show.
BOTH_DOMAINS = {
    "error": "error (%)",
    "ece": "ECE (%), 10 bins",
    "gap": "confidence − accuracy (%)",
    "after": "ECE after a temperature (%)",
    "after smoothed": "… of smoothed targets (%)",
    "other error": "error, other domain (%)",
    "other ece": "ECE, other domain (%)",
    "other after": "ECE after a temperature, other domain (%)",
}


def p22_table(**parts: Any) -> Recipe:
    """Return a recipe of P22 about calibration in and out of the domain, which `parts` make up or change."""
    drawn = bars({"ece": "ECE (%)", "other ece": "ECE, other domain (%)"})
    defaults = {"trainings": with_grid, "measure": in_both_domains, "columns": BOTH_DOMAINS, "draw": drawn}
    return Recipe(**{**defaults, **parts})


def with_grid(one: Experiment) -> tuple[Experiment, ...]:
    """Return the training, with P22's search for the temperature."""
    return (dataclasses.replace(one, temperature="grid"),)


def in_both_domains(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Measure on the test set, also after temperatures of hard and of smoothed targets, and on the other domain."""
    run = trained[0]
    source, (logits, labels), held_out = run.result.experiment.source, run.test_logits(), run.result.sets["val"]
    smoothing = settings["smoothing"][source]
    smoothed = fit_smoothed(held_out.logits.double().numpy(), held_out.labels.numpy(), smoothing)
    measured: Measured = {
        **metrics_of(run.test(n_bins=10)),
        **parts_of(logits, labels),
        "after": evaluate(labels, logits=logits / run.temperature, n_bins=10).ece,
        "after smoothed": evaluate(labels, logits=logits / smoothed, n_bins=10).ece,
    }
    if source in settings["other"]:
        other = run.bundle.read(settings["other"][source], labelled=True, part="test")
        classes = torch.tensor(other.labels)
        rows = stratified_subset(classes.tolist(), min(settings["n_other"], len(other)), seed=seed)
        logits, classes = logits_of(run.bundle, Part(other, rows)), classes[rows]
        outside = metrics_of(evaluate(classes, logits=logits, n_bins=10))
        measured |= {f"other {name}": outside[name] for name in ("error", "ece", "gap")}
        if settings.get("other temperature"):
            development = run.bundle.read(settings["other"][source], labelled=True, part="val")
            fitted = TemperatureScaling(search="grid").fit(
                logits_of(run.bundle, development).double().numpy(), np.array(development.labels)
            )
            measured["other after"] = evaluate(classes, logits=logits / fitted.temperature_, n_bins=10).ece
    return measured
