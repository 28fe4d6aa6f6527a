"""P22 Tables 1 and 2: calibration and accuracy of guided mixup, in and out of domain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vicinal.papers import texts
from vicinal.papers.base import Data, Method, Place, Scale, three_scales, where_printed
from vicinal.papers.claims import LOOKS, Claim, Contrast, Key, Pair, pooled
from vicinal.papers.published_p22 import four, tables_1_and_2

BERT, MIXUP, MANIFOLD, OURS, SMOOTHED, PUBLISHED = "BERT", "Mixup", "M-Mixup", "Ours", "Ours + LS", "Ours, as published"
ALL = (BERT, MIXUP, MANIFOLD, OURS, SMOOTHED)
#: The baselines with label smoothing, which the paper scale has.
SMOOTHED_BASELINES = tuple(f"{name} + LS" for name in (BERT, MIXUP, MANIFOLD))
#: The tasks: the other domain, and the label smoothing that suits BERT (Section 4.3).
TASKS: dict[str, dict[str, Any]] = {
    "SNLI": {"other": "mnli", "printed": "MNLI", "smoothing": 0.01},
    "QQP": {"other": "twitterppdb", "printed": "TwitterPPDB", "smoothing": 0.03},
    "SWAG": {"other": "hellaswag", "printed": "HellaSWAG", "smoothing": 0.3},
}


#: ECE in the domain and out of it, accuracy in the domain and out of it (%), by network and task, then by row.
PAPER = {
    (network, data): {name: four(network, data, name.replace(BERT, "plain")) for name in (*ALL, *SMOOTHED_BASELINES)}
    for network in ("BERT", "RoBERTa")
    for data in TASKS
}


def smoothing(on: Pair) -> float:
    """Return σ of Section 4.3: RoBERTa has another on SNLI."""
    return 0.003 if on == ("SNLI", "RoBERTa-base") else float(TASKS[on.data]["smoothing"])


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    manifold, sigma = f"SequenceMixup.manifold(alpha=0.4, layers=[{at.settings['layers']}]", smoothing(on)
    every = {
        BERT: Method("ERM()"),
        MIXUP: Method("SequenceMixup.input(alpha=0.4)"),
        MANIFOLD: Method(f"{manifold})"),
        OURS: Method("GuidedMixup()"),
        SMOOTHED: Method(f"GuidedMixup(label_smoothing={sigma})"),
        PUBLISHED: Method("GuidedMixup(saliency='logits')"),  # where two classes make all saliencies alike
        f"{BERT} + LS": Method("ERM(label_smoothing=0.1)"),  # Desai & Durrett's, whose rows the paper quotes
        f"{MIXUP} + LS": Method(f"SequenceMixup.input(alpha=0.4, label_smoothing={sigma})"),
        f"{MANIFOLD} + LS": Method(f"{manifold}, label_smoothing={sigma})"),
    }
    return {name: every[name] for name in at.settings["rows"][on.data]}


#: A metric in the domain or out of it, and its place in the tables.
INSIDE, OUTSIDE = ("ece", 0), ("other ece", 1)


def published(on: Pair) -> Mapping[str, tuple[float, float, float, float]]:
    """Return the paper's rows of a data set: RoBERTa's, or BERT's, beside which MiniLM stands."""
    return PAPER["RoBERTa" if on.network.startswith("RoBERTa") else "BERT", on.data]


def fall(on: Pair, domain: tuple[str, int], baseline: str, row: str) -> tuple[Contrast, float]:
    """Return by how much the ECE falls from a baseline to guided mixup, here and in the paper."""
    name, place = domain
    return on.fall(name, baseline, row), (published(on)[baseline][place] - published(on)[row][place]) / 100


def claims(at: Scale) -> Iterable[Claim]:
    pairs = list(at.pairs())
    inside = [(on, INSIDE) for on in pairs]
    outside = [(on, OUTSIDE) for on in pairs if at.data[on.data].source in at.settings["other"]]
    for where, baseline, text in (
        (inside, BERT, "in the domain the ECE of guided mixup is below that of plain training"),
        (outside, BERT, "out of the domain the ECE of guided mixup is below that of plain training"),
        (inside + outside, MIXUP, "in and out of the domain the ECE of guided mixup is below that of Mixup"),
    ):
        falls = [fall(on, domain, baseline, OURS) for on, domain in where]
        yield Claim(
            f"Mean of the tasks: {text}",
            pooled(here for here, _ in falls),
            primary=True,
            paper=sum(paper for _, paper in falls) / len(falls),
            overconfident=sorted({on.cell(BERT) for on, _ in where}),
        )
    guided = {OURS: "guided mixup", SMOOTHED: "guided mixup with label smoothing"}
    for (on, domain), (row, said), baseline in itertools.product(inside + outside, guided.items(), ALL[:3]):
        if {row, baseline} <= set(at.settings["rows"][on.data]):
            here, paper = fall(on, domain, baseline, row)
            if paper > 0:  # the paper makes no other claim: without label smoothing RoBERTa's ECE on QQP rises
                data = on.data if domain == INSIDE else f"{on.data} → {TASKS[on.data]['printed']}"
                text = f"{data}, {on.network}: the ECE of {said} is below that of {baseline}"
                yield Claim(text, here, paper=paper, overconfident=[on.cell(BERT)])
    for on in pairs:
        loss = (published(on)[OURS][2] - published(on)[BERT][2]) / 100
        if loss > -0.01:  # RoBERTa loses 1.92 points on QQP
            text = f"{on}: guided mixup loses no more than a point of accuracy"
            yield Claim(text, on.fall("error", BERT, OURS), kind="no worse", paper=loss)


def pairs_of(length: int, held_out: int, *, snli: int, qqp: int) -> dict[str, Data]:
    """Return so many pairs of SNLI and of QQP, of at most so many tokens."""
    options = {"max_length": length, "max_held_out": held_out}
    sizes = {"SNLI": snli, "QQP": qqp}
    return {name: Data(name.lower(), {"train_size": size, **options}) for name, size in sizes.items()}


def settings(
    data: Mapping[str, Data], trained: Mapping[str, Sequence[str]], *, layers: int, n_other: int
) -> dict[str, object]:
    """Return the settings of a scale; no TwitterPPDB below the paper's, which has Desai & Durrett's splits."""
    at_paper = layers == 12
    other = {name: f"{TASKS[name]['other']}{DESAI if at_paper else ''}" for name in data if name != "QQP" or at_paper}
    return {
        **({"other temperature": True} if at_paper else {}),
        "layers": layers,
        "rows": {name: list(of) for name, of in trained.items()},
        "other": {data[name].source: source for name, source in other.items()},
        "smoothing": {of.source: TASKS[name]["smoothing"] for name, of in data.items()},
        "n_other": n_other,
    }


PILOT = (
    "Plain training alone, seed 100, which no result uses, three epochs at 1e-4: it errs on 41 % of SNLI's test pairs "
    "after 640 training pairs and on 33 % of QQP's after 160, and confidence exceeds accuracy by 8 and 18 points."
)
TRAINING = {**texts.TRAINING, "epochs": 3, "eval_every": 3, "clip_norm": 1.0, "weight_decay": 0.0}
SECTION_4_3 = {**texts.GIVEN_ONLY, "epochs": 3, "batch_size": 16, "lr": 1e-5, "clip_norm": 1.0, "select": "nll"}
HERE = pairs_of(32, 1000, snli=5000, qqp=1000)
NIGHT = pairs_of(64, 5000, snli=20_000, qqp=5000)
#: What the names of Desai & Durrett's splits end in.
DESAI = ":desai"
THERE = {name: Data(f"{name.lower()}{DESAI}") for name in TASKS}
PRIMARY = (BERT, MIXUP, OURS)
EVERY = (*ALL, *SMOOTHED_BASELINES)
AT_PAPER = {"SNLI": EVERY, "QQP": (*EVERY, PUBLISHED), "SWAG": EVERY}

#: Where the tables print metrics.
COLUMNS = {
    "error": ("accuracy", "accuracy"),
    "ece": ("ECE", "%"),
    "after": ("ECE after TS", "%"),
    "other error": ("accuracy, other domain", "accuracy"),
    "other ece": ("ECE, other domain", "%"),
    "other after": ("ECE after TS, other domain", "%"),
}


def row(key: Key) -> str:
    """Return the row of the tables; BERT's stand beside those of other models."""
    data, network, method = key
    model = "RoBERTa" if network.startswith("RoBERTa") else "BERT"
    domain = next(one for one in RECIPE.published if one.startswith(f"{model}, {data} ")).split(", ")[1]
    return f"{model}, {domain}, {method.replace(BERT, 'plain')}"


RECIPE = texts.p22_table(
    printed=where_printed(row, COLUMNS),
    place=Place("P22", "Tables 1 and 2", "Guided mixup in and out of domain"),
    methods=methods,
    claims=claims,
    published=tables_1_and_2(),
    scales=three_scales(
        seeds=(5, 3, 5),
        looks=[LOOKS, (3, 5, 10, 20), LOOKS],
        minutes=(105, 160, 20_000),
        data=(HERE, NIGHT, THERE),
        networks=(texts.MINILM, texts.MINILM, texts.BERT | texts.ROBERTA),
        training=(TRAINING, TRAINING, SECTION_4_3),
        settings=(
            settings(HERE, {"SNLI": ALL, "QQP": (*PRIMARY, PUBLISHED)}, layers=6, n_other=1000),
            settings(NIGHT, dict.fromkeys(NIGHT, PRIMARY), layers=6, n_other=5000),
            settings(THERE, AT_PAPER, layers=12, n_other=100_000),
        ),
        about=(
            "MiniLM, whose makers trained it on SNLI, MNLI and QQP pairs among others; 5,000 pairs of SNLI and 1,000 "
            "of QQP, three epochs at 1e-4, 1,000 test pairs of each and of MNLI. No TwitterPPDB, and no SWAG, of which "
            "little is at hand.",
            "MiniLM, 20,000 pairs of SNLI and 5,000 of QQP, three epochs at 1e-4, 5,000 test pairs of each and of "
            "MNLI; the methods of the primary claims only.",
            "BERT-base, three epochs at 1e-5, and RoBERTa-base, at 2e-5 with batches of 32 and weight decay 0.1; "
            "all training samples. The splits are Desai & Durrett's.",
        ),
    ),
    reading=(
        "BERT is plain training, of RoBERTa too. Guided mixup is the published search over the whole other category. "
        "M-Mixup mixes the output of the last encoder layer. Learning rates are those printed (BERT 1e-5, RoBERTa "
        "2e-5); the README of the authors' code has them the other way round. Label smoothing follows the formula of "
        "Section 3.4; the numbers of its footnote, 0.99 for σ = 0.001, contradict it.",
        "With two classes, as on QQP, the published saliencies are all alike. The library pairs by label (Ours).",
        "The temperature is the best of 0.01, …, 5.00 on the validation set, for the labels and for smoothed targets; "
        "out of the domain on that of the other set, as Desai & Durrett do. BERT + LS is theirs, with 0.1.",
        "Three epochs are the paper's. 5,000 pairs keep a training of MiniLM at five minutes on one core, and guided "
        "mixup, which trains twice, at ten. The primary claims ask that plain training be over-confident on SNLI.",
    ),
    pilot=PILOT,
)
