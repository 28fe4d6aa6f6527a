"""A recipe of seconds on the digits, and a script that runs it: `python -m tests.papers.tiny FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from vicinal.papers import images
from vicinal.papers.base import Data, Network, Place, Recipe, Scale, methods
from vicinal.papers.claims import Claim, metric
from vicinal.papers.execute import plan, reproduce
from vicinal.papers.plots import bars
from vicinal.runs.scheduler import Pool

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        erm, mixup = (metric("error", data, network, method) for method in (ERM, MIXUP))
        yield Claim(text="mixup lowers the error", contrast=erm - mixup, paper=0.01, primary=True)
        yield Claim(
            text="mixup lowers the ECE",
            contrast=metric("ece", data, network, ERM) - metric("ece", data, network, MIXUP),
            overconfident=[(data, network, ERM)],
        )


SCALE = Scale(
    seeds=range(1000, 1002),
    looks=(2, 5),
    minutes=0.1,
    data={"digits": Data("digits", {"train_size": 100})},
    networks={"MLP": Network("mlp", {"hidden": [8]})},
    training={"epochs": 2, "batch_size": 20, "optimizer": "adam", "lr": 0.01, "schedule": "constant"},
)
RECIPE = Recipe(
    place=Place("Z18", "nowhere", "A recipe of seconds"),
    methods=methods(ERM, MIXUP),
    measure=images.selected,
    claims=claims,
    columns={"error": "error (%)", "ece": "ECE (%)"},
    scales=dict.fromkeys(("cpu", "night", "paper"), SCALE),
    draw=bars({"error": "error (%)"}),
)

if __name__ == "__main__":
    reproduce(plan("tiny", RECIPE, "cpu", Path(sys.argv[1])), Pool(workers=2), progress=False)
