"""W21 Table 4 and Figure 2: tasks that need syntax, and their test loss in the course of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vicinal.papers import images, texts
from vicinal.papers.base import Data, Method, Place, Printed, Recipe, Scale, Settings, three, three_scales
from vicinal.papers.calibratable import parts_of
from vicinal.papers.claims import Claim, Contrast, Key, Pair, pooled
from vicinal.papers.plots import curves
from vicinal.papers.texts import BASE, CLS, INPUT, MANIFOLD
from vicinal.papers.trained import metrics_of

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained
    from vicinal.runs import Experiment

#: MCC (CoLA) or accuracy, loss and ECE, all times 100.
PAPER = {
    "CoLA": {
        BASE: three("52.5±0.6 56±4 11.5±0.3"),
        CLS: three("52.8±0.6 48±1 9.7±0.1"),
        INPUT: three("50.8±0.8 48±8 10.1±1.4"),
        MANIFOLD: three("51.0±1.0 45±2 9.0±0.9"),
    },
    "RTE": {BASE: three("63.8±1.4 125±20 27.6±1.9"), CLS: three("63.8±1.0 80±4 20.8±1.3")},
    "BoolQ": {BASE: three("73.4±0.3 170±7 24.8±0.3"), CLS: three("73.1±0.3 89±1 21.8±0.3")},
}
SOURCES = {"CoLA": "glue:cola", "RTE": "glue:rte", "BoolQ": "boolq"}

#: Maximum length, learning rate, epochs, and the score that chooses the epoch (Section 3.2).
TABLE_6 = {
    "CoLA": (128, {"lr": 2e-5, "epochs": 5, "select": "mcc"}),
    "RTE": (128, {"lr": 3e-5, "epochs": 5, "select": "accuracy"}),
    "BoolQ": (256, {"lr": 2e-5, "epochs": 10, "select": "accuracy"}),
}


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    """Return the rows of a task; α is 0.75 on CoLA (Table 6)."""
    every = texts.w21_methods(0.75 if on.data == "CoLA" else 1.0, at.settings["layers"])
    return {name: every[name] for name in PAPER[on.data]}


def watched(one: Experiment) -> tuple[Experiment, ...]:
    """Return the training, with the test loss in its course."""
    return (dataclasses.replace(one, watch=("test",)),)


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Measure the selected weights on the test set, and its loss at every evaluation."""
    evaluation = trained[0].test()
    course = [line["test_nll"] for line in trained[0].history if "test_nll" in line]
    parts = parts_of(*trained[0].test_logits())
    return {**metrics_of(evaluation), **parts, "mcc": evaluation.mcc, "last": course[-1], "course": course}


def score_gain(on: Pair) -> Contrast:
    """Return by how much CLS raises the score of Table 4: MCC on CoLA, else accuracy."""
    return on.fall("mcc", CLS, BASE) if on.data == "CoLA" else on.fall("error", BASE, CLS)


def paper_gain(data: str, place: int) -> float:
    """Return the paper's gain by CLS: in the score, or by how much loss and ECE fall."""
    base, cls = PAPER[data][BASE][place], PAPER[data][CLS][place]
    return (cls - base if place == 0 else base - cls) / 100


NLL: Settings = {"margin": texts.NATS, "reason": texts.NATS_REASON, "unit": "nats"}


def claims(at: Scale) -> Iterable[Claim]:
    pairs = list(at.pairs())
    bases = [on.cell(BASE) for on in pairs]

    def paper(place: int) -> float:
        return sum(paper_gain(on.data, place) for on in pairs) / len(pairs)

    text = "Mean of the tasks: under CLS the test loss ends lower"
    last = pooled(on.fall("last", BASE, CLS) for on in pairs)
    yield Claim(text, last, primary=True, paper=paper(1), overconfident=bases, **NLL)
    text = "Mean of the tasks: CLS lowers the calibration error (RMS, debiased)"
    error = pooled(on.fall("rms debiased", BASE, CLS) for on in pairs)
    yield Claim(text, error, primary=True, overconfident=bases)
    text = "Mean of the tasks: CLS loses no more than a point of MCC or accuracy"
    yield Claim(text, pooled(map(score_gain, pairs)), kind="no worse", primary=True, paper=paper(0))
    for on in pairs:
        base = on.cell(BASE)
        text = f"{on}: under CLS the test loss ends lower"
        yield Claim(text, on.fall("last", BASE, CLS), paper=paper_gain(on.data, 1), overconfident=[base], **NLL)
        text = f"{on}: CLS lowers the calibration error (RMS, debiased)"
        yield Claim(text, on.fall("rms debiased", BASE, CLS), overconfident=[base])
        for method in [name for name in (INPUT, MANIFOLD) if name in PAPER[on.data]]:
            loss = (PAPER[on.data][BASE][0] - PAPER[on.data][method][0]) / 100
            yield Claim(f"{on}: {method} lowers the MCC", on.fall("mcc", BASE, method), paper=loss)


def few(evaluated: int) -> Settings:
    """Return the training of MiniLM, evaluated every so many steps."""
    return {**texts.TRAINING, "epochs": 3, "eval_every_steps": evaluated}


COLA = {"train_size": 1000, "val": 0, "max_length": 32, "max_held_out": 1000}


def row_printed(key: Key) -> dict[str, Printed]:
    row = f"{key[0]}, {key[-1]}"
    score = Printed(row, "MCC (CoLA) or accuracy", "%" if key[0] == "CoLA" else "accuracy")
    found = {"nll": Printed(row, "loss", "× 100"), "ece": Printed(row, "ECE")}
    return {"mcc" if key[0] == "CoLA" else "error": score, **found}


RECIPE = Recipe(
    printed=row_printed,
    place=Place("W21", "Table 4 and Figure 2", "CoLA, RTE and BoolQ, and the course of their test loss"),
    methods=methods,
    trainings=watched,
    measure=measure,
    claims=claims,
    curves=("course",),
    columns={
        "mcc": "MCC (%)",
        "error": "error (%)",
        "nll": "NLL",
        "last": "NLL at the end",
        "ece": "ECE (%), 15 bins",
        "rms debiased": "RMS calibration error, debiased (%)",
        "gap": "confidence − accuracy (%)",
    },
    published={
        f"{data}, {name}": {"MCC (CoLA) or accuracy": score, "loss": loss, "ECE": ece}
        for data, rows in PAPER.items()
        for name, (score, loss, ece) in rows.items()
    },
    scales=three_scales(
        seeds=5,
        minutes=(27, 150, 600),
        data=(
            {"CoLA": Data("glue:cola", COLA, {"eval_every_steps": 45})}
            | texts.small(SOURCES, {"RTE": (240, 64), "BoolQ": (240, 64)}, held_out=1000),
            texts.small(SOURCES, dict.fromkeys(SOURCES, (1200, 128)), held_out=500),
            {
                name: Data(SOURCES[name], {"max_length": length, "val": images.ORACLE}, of)
                for name, (length, of) in TABLE_6.items()
            },
        ),
        networks=(texts.MINILM, texts.MINILM, texts.BERT),
        training=(few(15), few(45), {"batch_size": 16, "eval_every_steps": 100, **texts.GIVEN_ONLY}),
        settings=({"layers": 6}, {"layers": 6}, {"layers": 12}),
        about=(
            "MiniLM; 1,000 sentences of CoLA and 240 texts of at most 64 tokens of RTE and BoolQ, three epochs at "
            "1e-4, the last step; 1,000 test texts (RTE: 277).",
            "MiniLM, 1,200 texts of at most 128 tokens.",
            "BERT-base, all texts, lengths, rates and epochs of Table 6, the evaluation with the best score on the "
            "development sets, which are the test sets: an oracle's choice.",
        ),
    ),
    draw=curves({"course": ("test loss", 1.0)}, xlabel="evaluation"),
    reading=(
        texts.W21_ERRORS,
        "Table 4 is of the epoch with the best score on the development set, Figure 2 of all steps. Optimiser and "
        "Manifold's layers are not named. That Input and Manifold under-perform the base is said of CoLA. Below paper "
        "scale the last step is measured, so that the loss at the end is the loss of Table 4 too.",
        "The claims are about a calibration error that few samples do not bias, since RTE has 277 test pairs; the "
        "paper's ECE is not in the same unit. The claims about all tasks ask that plain training be over-confident on "
        "CoLA.",
    ),
    pilot=f"{texts.PILOT_COLA} On RTE and BoolQ, 240 pairs each, the error is 47 and 51 %, no better than chance, and "
    "confidence exceeds accuracy by 16 and 27 points.",
)
