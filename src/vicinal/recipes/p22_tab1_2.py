"""P22 Tables 1 and 2: calibration and accuracy of guided mixup, in and out of domain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from vicinal.recipes import texts
from vicinal.recipes.base import Data, Method, Place, Scale, three_scales
from vicinal.recipes.claims import Claim

BERT, MIXUP, MANIFOLD, OURS, SMOOTHED, PUBLISHED = "BERT", "Mixup", "M-Mixup", "Ours", "Ours + LS", "Ours, as published"
LESS_SMOOTHED = "Ours + LS, σ of RoBERTa"
ALL = (BERT, MIXUP, MANIFOLD, OURS, SMOOTHED)
#: The tasks: the other domain, and the label smoothing that suits BERT (Section 4.3).
TASKS: dict[str, dict[str, object]] = {
    "SNLI": {"other": "mnli", "printed": "MNLI", "smoothing": 0.01},
    "QQP": {"other": "twitterppdb", "printed": "TwitterPPDB", "smoothing": 0.03},
    "SWAG": {"other": "hellaswag", "printed": "HellaSWAG", "smoothing": 0.3},
    "HellaSwag": {"other": "swag", "printed": "SWAG", "smoothing": 0.3},
}


def rows(*printed: tuple[float, float, float, float]) -> dict[str, tuple[float, float, float, float]]:
    return dict(zip(ALL, printed, strict=True))


#: ECE in the domain and out of it, accuracy in the domain and out of it (%), of the five rows.
PAPER = {
    ("BERT", "SNLI"): rows((2.54, 7.09, 90.04, 73.52), (7.73, 19.51, 88.82, 69.19), (3.17, 12.92, 86.40, 66.61),
        (1.29, 2.73, 90.01, 73.48), (1.85, 2.26, 90.14, 72.36)),
    ("BERT", "QQP"): rows((2.71, 8.51, 90.27, 87.63), (9.04, 11.70, 89.12, 87.45), (8.55, 12.10, 89.37, 86.51),
        (2.05, 5.69, 90.13, 88.04), (1.70, 5.37, 90.32, 87.62)),
    ("BERT", "SWAG"): rows((2.49, 12.62, 79.40, 34.48), (7.08, 10.93, 74.98, 33.22), (5.18, 9.82, 76.96, 34.57),
        (2.01, 5.49, 78.94, 34.63), (2.09, 4.26, 79.26, 34.97)),
    ("RoBERTa", "SNLI"): rows((1.93, 3.62, 91.23, 78.79), (7.67, 16.85, 90.59, 75.74), (7.32, 19.78, 90.30, 73.69),
        (1.34, 1.41, 91.61, 78.01), (1.28, 1.37, 91.24, 78.86)),
    ("RoBERTa", "QQP"): rows((2.33, 9.55, 91.11, 86.72), (3.41, 11.03, 89.20, 84.74), (3.54, 7.18, 89.47, 86.04),
        (2.47, 3.94, 89.19, 87.13), (2.18, 3.96, 89.75, 87.63)),
    ("RoBERTa", "SWAG"): rows((1.76, 11.93, 82.45, 41.68), (3.60, 7.02, 79.91, 40.92), (1.68, 5.63, 73.79, 41.60),
        (1.24, 2.40, 81.47, 40.95), (1.12, 1.86, 82.69, 41.37)),
}  # fmt: skip


def methods(data: str, at: Scale) -> dict[str, Method]:
    every = {
        BERT: Method("ERM()"),
        MIXUP: Method("SequenceMixup.input(alpha=0.4)"),
        MANIFOLD: Method(f"SequenceMixup.manifold(alpha=0.4, layers=[{at.settings['layers']}])"),
        OURS: Method("GuidedMixup()"),
        SMOOTHED: Method(f"GuidedMixup(label_smoothing={TASKS[data]['smoothing']})"),
        LESS_SMOOTHED: Method("GuidedMixup(label_smoothing=0.003)"),
        PUBLISHED: Method("GuidedMixup(saliency='logits')"),  # where two classes make all saliencies alike
    }
    wanted = [*at.settings["rows"][data], *([PUBLISHED] if data == "QQP" else [])]
    return {name: every[name] for name in wanted}


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        data, network = on
        trained = at.settings["rows"][data]
        paper = PAPER.get(("RoBERTa" if network.startswith("RoBERTa") else "BERT", data), {})
        domains = [("ece", data, 0)]
        if at.data[data].source in at.settings["other"]:
            domains.append(("other ece", f"{data} → {TASKS[data]['printed']}", 1))
        guided = [(OURS, OURS, "guided mixup")]
        if SMOOTHED in trained:
            row = LESS_SMOOTHED if (data, network) == ("SNLI", "RoBERTa-base") else SMOOTHED
            guided.append((row, SMOOTHED, "guided mixup with label smoothing"))
        for (name, printed, place), (row, column, said), baseline in itertools.product(domains, guided, ALL[:3]):
            if baseline in trained:
                yield Claim(
                    f"{printed}, {network}: the ECE of {said} is below that of {baseline}",
                    on.fall(name, baseline, row),
                    paper=(paper[baseline][place] - paper[column][place]) / 100 if paper else None,
                    overconfident=on.cell(BERT),
                )
        yield Claim(
            f"{on}: guided mixup loses no more than a point of accuracy",
            on.fall("error", BERT, OURS),
            margin=0.01,
            paper=(paper[OURS][2] - paper[BERT][2]) / 100 if paper else None,
        )


def few(length: int, held_out: int, *, qqp: int, questions: tuple[int, int, int]) -> dict[str, Data]:
    """Return 640 pairs of SNLI, so many of QQP, and questions of HellaSwag: how many, held out, their length."""
    train, answered, tokens = questions
    pairs = {"max_length": length, "max_held_out": held_out}
    asked = {"train_size": train, "val": answered, "max_length": tokens, "max_held_out": answered}
    return {
        "SNLI": Data("snli", {"train_size": 640, **pairs}),
        "HellaSwag": Data("hellaswag", asked, {"lr": 3e-4}),  # few questions take a higher rate
        "QQP": Data("qqp", {"train_size": qqp, **pairs}),
    }


def settings(
    data: Mapping[str, Data], trained: Mapping[str, Sequence[str]], *, layers: int, n_other: int
) -> dict[str, object]:
    """Return the settings of a scale; no TwitterPPDB below the paper's."""
    other = {name: TASKS[name]["other"] for name in data if name != "QQP" or layers == 12}
    return {
        "layers": layers,
        "rows": {name: list(of) for name, of in trained.items()},
        "other": {data[name].source: source for name, source in other.items()},
        "smoothing": {of.source: TASKS[name]["smoothing"] for name, of in data.items()},
        "n_other": n_other,
    }


PILOT = (
    "Plain training alone, seed 100, which no result uses, three epochs: at 1e-4 it errs on 41 % of SNLI's test pairs "
    "after 640 training pairs and on 33 % of QQP's after 160, and confidence exceeds accuracy by 8 and 18 points; 64 "
    "questions of HellaSwag are not learned at 1e-4, at 3e-4 the error is 70 %, by chance 75 %, and the excess 15 "
    "points. A first look at 240 pairs of SNLI and 3e-4 left 58 % wrong, which decided for more pairs at a lower rate."
)
TRAINING = {**texts.TRAINING, "epochs": 3, "eval_every": 3, "lr": 1e-4, "clip_norm": 1.0, "weight_decay": 0.0}
SECTION_4_3 = {"epochs": 3, "batch_size": 16, "lr": 1e-5, "clip_norm": 1.0, "weight_decay": 0.0, "select": "nll"}
SMALL = {"SNLI": ALL, "HellaSwag": (BERT, OURS), "QQP": (BERT, OURS)}
HERE = few(32, 300, qqp=160, questions=(64, 100, 40))
NIGHT = few(64, 1000, qqp=640, questions=(320, 300, 64))
THERE = {"SNLI": Data("snli"), "QQP": Data("qqp"), "SWAG": Data("swag")}

RECIPE = texts.p22_table(
    place=Place("P22", "Tables 1 and 2", "Guided mixup in and out of domain"),
    methods=methods,
    claims=claims,
    published={
        f"{network}, {data} → {TASKS[data]['printed']}, {'plain' if name == BERT else name}": dict(
            zip(("ECE", "ECE, other domain", "accuracy", "accuracy, other domain"), row, strict=True)
        )
        for (network, data), printed in PAPER.items()
        for name, row in printed.items()
    },
    scales=three_scales(
        seeds=(3, 3, 5),
        minutes=(20, 150, 12_000),
        data=(HERE, NIGHT, THERE),
        networks=(texts.MINILM, texts.MINILM, texts.BERT | texts.ROBERTA),
        training=(TRAINING, TRAINING, {**SECTION_4_3, **texts.ANY_LENGTHS}),
        settings=(
            settings(HERE, SMALL, layers=6, n_other=300),
            settings(NIGHT, dict.fromkeys(SMALL, ALL), layers=6, n_other=1000),
            settings(THERE, {"SNLI": (*ALL, LESS_SMOOTHED), "QQP": ALL, "SWAG": ALL}, layers=12, n_other=100_000),
        ),
        about=(
            "MiniLM, whose makers trained it on SNLI, MNLI and QQP pairs among others; 640 pairs of SNLI, 160 "
            "of QQP, three epochs at 1e-4, 64 questions of HellaSwag at 3e-4; HellaSwag → SWAG, the other way round, "
            "since little of SWAG is at hand, and no TwitterPPDB.",
            "MiniLM, 640 pairs of SNLI and QQP, 320 questions of HellaSwag; all methods everywhere.",
            "BERT-base, three epochs at 1e-5, and RoBERTa-base, at 2e-5 with batches of 32 and weight decay 0.1; "
            "all training samples. Not in the paper: warm-up and linear decay of the rate.",
        ),
    ),
    reading=(
        "BERT is plain training, of RoBERTa too. Guided mixup is the published search over the whole other category. "
        "M-Mixup mixes the output of the last encoder layer. Learning rates are those printed (BERT 1e-5, RoBERTa "
        "2e-5); the README of the authors' code has them the other way round. Label smoothing follows the formula of "
        "Section 3.4; the numbers of its footnote, 0.99 for σ = 0.001, contradict it.",
        "With two classes, as on QQP, the published saliencies are all alike; the library pairs by label instead "
        "(Ours), and the published rule is a row of its own.",
        "The temperature is the best of 0.01, …, 5.00 on the validation set, fitted to the labels and, as the paper "
        "may have done, to targets smoothed with each task's σ. Sizes at cpu scale are what twenty minutes allow.",
    ),
    pilot=PILOT,
    findings=(
        "Three seeds and 18 claims ask of the clearest difference that it be above ten times its standard deviation. "
        "But the rows lean against the paper: guided mixup has a higher ECE than Mixup with all three seeds, on SNLI "
        "and on MNLI, and than plain training on QQP and from HellaSwag to SWAG. Plain training exceeds its accuracy "
        "by 14 to 22 points on SNLI, where the paper's has an ECE of 2.54 % after half a million pairs. Guided mixup "
        "keeps 0.8 of the plain loss and leaves the excess as it is (19.1 against 18.1 points); Mixup trains on "
        "mixtures alone and takes it down to 11. More training pairs were not tried.",
        "A temperature fitted to smoothed targets does no harm here; with 0.1 and better models it does (p22-vanilla). "
        "On QQP the ECE of the published rule and of the remedy differ by no more than the seeds do.",
    ),
)
