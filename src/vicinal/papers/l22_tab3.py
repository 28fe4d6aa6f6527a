"""L22 Table 3: LogitMix on GLUE."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Subset

from vicinal import _random, models
from vicinal.data import SplitOptions, TextOptions
from vicinal.data.regression import load_scores
from vicinal.expressions import parse
from vicinal.metrics import evaluate
from vicinal.papers import images, texts
from vicinal.papers.base import Data, Method, Network, Place, Printed, Recipe, Scale, Settings, three_scales
from vicinal.papers.calibratable import parts_of
from vicinal.papers.claims import Claim, Key, Pair, pooled
from vicinal.papers.plots import bars
from vicinal.papers.trained import Part, logits_of, metrics_of
from vicinal.training import FitConfig, fit

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

BASE, MIXUP, LOGITMIX = "BERT", "Mixup", "LogitMix"
LARGE = "BERT-large"
#: The scores of BERT-base and of BERT-large: MCC on CoLA, Spearman on STS-B, else accuracy.
PAPER = {
    "MNLI-mm": (84.73, 84.29, 84.73, 85.99, 86.02, 86.10),
    "QQP": (91.25, 91.15, 91.25, 90.20, 90.09, 90.95),
    "QNLI": (91.43, 91.36, 91.58, 92.20, 92.42, 92.60),
    "SST-2": (93.12, 93.12, 93.12, 92.89, 92.66, 93.58),
    "CoLA": (57.82, 58.82, 58.85, 60.88, 61.86, 63.89),
    "STS-B": (89.43, 89.44, 89.45, 89.9, 90.02, 89.98),
    "MRPC": (87.75, 87.50, 87.50, 87.75, 88.24, 89.22),
    "RTE": (68.95, 67.87, 70.04, 73.29, 73.29, 74.37),
}
#: The columns: the three methods with BERT-base, then with BERT-large.
TITLES = ("BERT-base", "Mixup", "LogitMix", "BERT-large", "Mixup, BERT-large", "LogitMix, BERT-large")
SOURCES = {"CoLA": "glue:cola", "RTE": "glue:rte", "SST-2": "glue:sst2", "QQP": "qqp"}
#: All but STS-B, which predicts a number.
GLUE = {**SOURCES, "QQP": "glue:qqp", "MNLI-mm": "glue:mnli", "QNLI": "glue:qnli", "MRPC": "glue:mrpc"}
STSB = "STS-B"
#: Tasks whose scores are coarser than a point, and why.
WIDER = {
    "CoLA": "a correlation of some 1,000 sentences, three in ten of which are not acceptable, has a standard error of "
    "3 points",
    "RTE": "its 277 test pairs leave an accuracy with a standard error of 3 points",
}


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    """Return the rows; what is mixed is the output of the last encoder layer (Sun et al. 2020).

    At paper scale the last half of training mixes, as there.
    """
    mixup = f"SequenceMixup.manifold(alpha=3.0, layers=[{24 if on.network == LARGE else at.settings['layers']}])"
    plain = at.settings.get("plain epochs")
    rows = {MIXUP: mixup, LOGITMIX: f"LogitMix({mixup})"}
    late = {name: f"Warmup({text}, epochs={plain})" if plain else text for name, text in rows.items()}
    return {BASE: Method("ERM()"), **{name: Method(text) for name, text in late.items()}}


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    """Yield the rows of STS-B, where a scale has it."""
    if STSB in at.settings:
        for network in at.networks:
            for name, method in methods(Pair(STSB, network), at).items():
                yield (STSB, network, name), {"network": at.networks[network].name, "method": method.expression}


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return GLUE's score of the test set (MCC on CoLA, Spearman on STS-B, else accuracy), and all other metrics."""
    run = trained[0]
    if "network" in settings:
        return {"score": float(run.history[-1]["test_spearman"])}
    source, evaluation, logits, labels = run.result.experiment.source, run.test(), *run.test_logits()
    if source in settings.get("score_on", {}):  # the other of MNLI's two development sets
        other = run.bundle.read(settings["score_on"][source], labelled=True, part="test")
        rows = list(range(min(len(other), settings["n_other"])))
        logits, labels = logits_of(run.bundle, Part(other, rows)), torch.tensor(other.labels)[rows]
        evaluation = evaluate(labels, logits=logits)
    score = evaluation.mcc if source.endswith("cola") else evaluation.accuracy
    return {**metrics_of(evaluation), **parts_of(logits, labels), "score": score}


def train(settings: Settings, seed: int, folder: Path) -> None:
    """Train on STS-B, by squared error; Spearman's correlation on its development set is in the history."""
    of = settings[STSB]
    tokens = TextOptions(tokenizer=models.tokenizer_of(settings["network"]), max_length=of["max_length"])
    sets = load_scores("glue:stsb", tokens, SplitOptions(val=of.get("val", 0.1), seed=seed))
    chosen = _random.permutation(len(sets.train), generator=torch.Generator().manual_seed(seed)).tolist()
    torch.manual_seed(seed)
    model, objective = models.build(settings["network"], **sets.spec), parse(settings["method"])
    train = Subset(sets.train, chosen[: of["train_size"]])
    here = {"seed": seed, "trackers": (), "device": os.environ.get("VICINAL_DEVICE")}
    how: Settings = {"config": FitConfig(**{**of["training"], **here}), "collate_fn": sets.collate_fn}
    watch = {"test": sets.test}
    fit(model, objective, train, sets.val, watch=watch, out=folder, target_type="regression", progress=False, **how)


def claims(at: Scale) -> Iterable[Claim]:
    every = (*at.data, *([STSB] if STSB in at.settings else []))
    for number, (baseline, printed) in enumerate(((BASE, "plain training"), (MIXUP, "Mixup"))):
        for network in at.networks:
            first = 3 if network == LARGE else 0
            paper = {data: (PAPER[data][first + 2] - PAPER[data][first + number]) / 100 for data in every}
            gains = {data: Pair(data, network).fall("score", LOGITMIX, baseline) for data in every}
            yield Claim(
                f"{network}: the mean score of LogitMix over the tasks is above that of {printed}",
                pooled(gains.values()),
                primary=network != LARGE,
                paper=sum(paper.values()) / len(paper),
            )
            for data, gain in gains.items():
                yield Claim(
                    f"{data}, {network}: LogitMix's score is no worse than that of {printed}",
                    gain,
                    kind="no worse",
                    margin=0.02 if data in WIDER else 0.01,
                    reason=WIDER.get(data, ""),
                    paper=paper[data],
                )


def row_printed(key: Key) -> dict[str, Printed]:
    if key[1] == LARGE:
        return {"score": Printed(key[0], LARGE if key[-1] == BASE else f"{key[-1]}, {LARGE}")}
    return {"score": Printed(key[0], "BERT-base" if key[-1] == BASE else key[-1])}


def glue(train_size: int, n_other: int, training: Settings, **options: str) -> dict[str, object]:
    """Return the settings of a scale that has STS-B and MNLI's mismatched development set."""
    scored = {"train_size": train_size, "max_length": 128, "training": dict(training), **options}
    return {STSB: scored, "score_on": {"glue:mnli": "glue:mnli:mismatched"}, "n_other": n_other}


TRAINING = {**texts.TRAINING, "epochs": 3}
PUBLISHED = {"epochs": 3, "batch_size": 8, "lr": 2e-5, "select": "last", **texts.GIVEN_ONLY}
SMALL = {"CoLA": (640, 32), "RTE": (240, 64), "SST-2": (640, 32), "QQP": (640, 32)}

RECIPE = Recipe(
    printed=row_printed,
    place=Place("L22", "Table 3", "LogitMix on GLUE"),
    methods=methods,
    measure=measure,
    cells=cells,
    train=train,
    claims=claims,
    columns={"score": "MCC (CoLA), Spearman (STS-B) or accuracy (%)", **texts.CALIBRATION},
    published={name: dict(zip(TITLES, scores, strict=True)) for name, scores in PAPER.items()},
    scales=three_scales(
        seeds=5,
        minutes=(26, 400, 60_000),
        data=(
            texts.small(SOURCES, SMALL, held_out=1000),
            texts.small(GLUE, dict.fromkeys(GLUE, (1000, 128)), held_out=800),
            {name: Data(source, {"max_length": 128, "val": 0}) for name, source in GLUE.items()},
        ),
        networks=(texts.MINILM, texts.MINILM, {**texts.BERT, LARGE: Network("hf:google-bert/bert-large-uncased")}),
        training=(TRAINING, TRAINING, PUBLISHED),
        settings=(
            {"layers": 6},
            {"layers": 6, **glue(1000, 800, TRAINING)},
            {"layers": 12, "plain epochs": 1.5, **glue(100_000, 100_000, PUBLISHED, val=images.ORACLE)},
        ),
        about=(
            "MiniLM (trained on QQP pairs among others by its makers); 640 texts of CoLA, SST-2 and QQP, 240 pairs of "
            "RTE, three epochs at 1e-4, up to 1,000 test texts. MNLI's training set, QNLI, MRPC and STS-B are not at "
            "hand.",
            "MiniLM, 1,000 texts of each task, all eight; the files of GLUE have to be at hand.",
            "BERT-base, batches of 8, 2e-5, three epochs, 128 tokens; development sets are the test sets, MNLI's "
            "mismatched one. The last half of training mixes.",
        ),
    ),
    draw=bars({"score": "score (%)"}),
    reading=(
        "α = 3 (Section 5). Mixup-Transformer (Sun et al. 2020) mixes what the encoder returns. Were that the input "
        "of a linear head the similarity term would be zero whatever the network; between BERT's last layer and its "
        "classifier there is a pooler with a tanh, so it is not.",
        "The paper's mean gains, 0.26 and 0.37 points, are over all eight tasks of BERT-base (0.95 and 0.76 of "
        "BERT-large); over the four at hand they are 0.53 and 0.58. On single tasks LogitMix equals plain training or "
        "Mixup in six of sixteen comparisons or is below it, so the claims there are that it is no worse.",
    ),
    pilot=f"{texts.PILOT_COLA} With the same rate and epochs the error on 320 sentences of SST-2 is 24 %, on 160 "
    "pairs of QQP 33 %, on 240 of RTE 47 %; confidence exceeds accuracy by 15, 18 and 16 points.",
)
