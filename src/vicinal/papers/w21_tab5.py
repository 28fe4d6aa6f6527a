"""W21 Table 5: with what, and how far, the texts of a pair are padded."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import images, texts
from vicinal.papers.base import Data, Method, Place, Recipe, Reported, Scale, three_scales, where_printed
from vicinal.papers.claims import Claim, Pair, pooled
from vicinal.papers.plots import bars

#: The paper's accuracies.
PAPER = {
    "No Pad": Reported(78.38, 3.2),
    "unused (pair)": Reported(80.22, 1.2),
    "SEP (pair)": Reported(82.00, 1.4),
    "PAD (pair)": Reported(81.20, 1.0),
    "unused (max)": Reported(68.14, 5.3),
    "SEP (max)": Reported(69.21, 5.6),
    "PAD (max)": Reported(73.61, 3.3),
}


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    by_name = {}
    for name in PAPER:
        pad, _, scope = name.lower().replace("(", "").replace(")", "").partition(" ")
        written = "pad='none'" if name == "No Pad" else f"pad='{pad}'"
        written += f", scope={at.settings['length']}" if scope == "max" else ""
        by_name[name] = Method(f"SequenceMixup.input(alpha=1.0, {written})")
    return by_name


TOKENS = ("SEP", "PAD", "unused")


def gain(worse: str, better: str) -> float:
    """Return the paper's gain in accuracy from one row to another."""
    return (PAPER[better] - PAPER[worse]) / 100


def claims(at: Scale) -> Iterable[Claim]:
    to_longest = [(f"{pad} (max)", f"{pad} (pair)") for pad in TOKENS]
    to_none = [("No Pad", f"{pad} (pair)") for pad in TOKENS]
    for on in at.pairs():
        for rows, than in ((to_longest, "padding to the maximum length"), (to_none, "no padding")):
            yield Claim(
                f"{on}: padding to the longer of a pair is better than {than}, mean of the three tokens",
                pooled(on.fall("error", *row) for row in rows),
                primary=True,
                paper=sum(gain(*row) for row in rows) / len(rows),
            )
        for pad, row in zip(TOKENS, to_longest, strict=True):
            text = f"{on}: {pad} to the longer of a pair is better than to the maximum length"
            yield Claim(text, on.fall("error", *row), paper=gain(*row))
        text = f"{on}: SEP to the longer of a pair is better than no padding"
        yield Claim(text, on.fall("error", *to_none[0]), paper=gain(*to_none[0]))


def sst2(length: int, **options: int | str) -> dict[str, Data]:
    return {"SST-2": Data("glue:sst2", {"train_size": 64, "subset": "random", **options, "max_length": length})}


RECIPE = Recipe(
    printed=where_printed(lambda key: key[-1], {"error": ("accuracy (%)", "accuracy")}),
    place=Place("W21", "Table 5", "Padding of pairs"),
    methods=methods,
    measure=images.selected,
    claims=claims,
    columns=texts.COLUMNS,
    published={name: {"accuracy (%)": accuracy} for name, accuracy in PAPER.items()},
    scales=three_scales(
        seeds=5,
        minutes=(12, 40, 60),
        data=(sst2(48, val=0), sst2(64, val=0), sst2(128, val=images.ORACLE)),
        networks=(texts.MINILM, texts.MINILM, texts.BERT),
        training=(
            {**texts.TRAINING, "steps": 40},
            {**texts.TRAINING, "steps": 80},
            {"epochs": 10, "batch_size": 16, "lr": 2e-5, "select": "accuracy", **texts.GIVEN_ONLY},
        ),
        settings=({"length": 48}, {"length": 64}, {"length": 128}),
        about=(
            "MiniLM, 40 steps at 1e-4, at most 48 tokens, the whole test set (872 sentences).",
            "MiniLM, 80 steps, 64 tokens, the whole test set.",
            "BERT-base, 10 epochs; the rate is not given: 2e-5, as for most tasks of Table 6. The "
            "best epoch is an oracle's, chosen on the development set, which is the test set.",
        ),
    ),
    draw=bars({"error": "error (%)"}),
    reading=(
        texts.W21_ERRORS,
        "That nothing is padded is read as: a position without a token adds a zero vector to the mix. α, rate and "
        "steps of this experiment are not given: α = 1.",
    ),
    pilot="Plain training alone on 64 sentences of SST-2, seed 100, which no result uses: after 40 steps at 3e-4 the "
    "training loss is 0.001 and 31 % of the test sentences are wrong. The rate is that of Tables 2 and 3, 1e-4.",
)
