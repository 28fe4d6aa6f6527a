r"""P22 Table 1, the rows of BERT and RoBERTa: what a temperature does to plainly trained models, from stored logits.

Nothing is trained, so a seed leaves out one of G parts of the test samples. The fall of the ECE is then a jackknife
pseudo-value, :math:`G\,\theta - (G - 1)\,\theta_{-s}`. The mean over seeds has an interval over samples (Tukey 1958).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from vicinal.calibrators import TemperatureScaling
from vicinal.calibrators.temperature import GRID
from vicinal.metrics import Evaluation, evaluate
from vicinal.papers.base import Place, Recipe, Scale, Settings, needed, where_printed
from vicinal.papers.claims import FIRST_SEED, Claim, Key, metric, pooled
from vicinal.papers.plots import bars
from vicinal.papers.trained import metrics_of

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

FOLDER = "logits/nli_baan2022"
#: The runs that are stored, and the paper's ECE (%) before and after the temperature.
MODELS: dict[tuple[str, str], Settings] = {
    ("SNLI", "BERT"): {"files": "bert-base-uncased", "runs": 2, "before": 2.54, "after": 1.14},
    ("SNLI", "RoBERTa"): {"files": "roberta-base", "runs": 3, "before": 1.93, "after": 0.84},
    ("SNLI → MNLI", "RoBERTa"): {"files": "roberta-base", "runs": 3, "before": 3.62, "after": 1.46},
}


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    for (data, network), model in MODELS.items():
        for run in range(model["runs"]):
            name = f"{data.split()[-1]}_{{part}}_{model['files']}_{run}.jsonl.gz"
            yield (data, network, f"run {run + 1}"), {"file": f"{FOLDER}/{name}"}


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Fit temperatures on the development half, with hard and with smoothed targets; measure on the test half."""
    logits, labels = stored(settings["file"].format(part="dev"))
    hard = TemperatureScaling(search="grid").fit(logits, labels).temperature_
    smoothed = fit_smoothed(logits, labels, settings["smoothing"])
    logits, labels = stored(settings["file"].format(part="test"))

    def measured(rows: NDArray[np.int64], temperature: float) -> Evaluation:
        return evaluate(labels[rows], logits=logits[rows] / temperature, n_bins=settings["n_bins"])

    def fall(rows: NDArray[np.int64]) -> float:
        return measured(rows, 1.0).ece.value - measured(rows, hard).ece.value

    # Parts are contiguous, since hypotheses of one premise stand together.
    every, parts = np.arange(len(labels)), settings["parts"]
    rest = np.delete(every, np.array_split(every, parts)[seed % parts])
    return {
        **metrics_of(measured(rest, 1.0)),
        "after": measured(rest, hard).ece,
        "after smoothed": measured(rest, smoothed).ece,
        "fall": parts * fall(every) - (parts - 1) * fall(rest),
        "temperature": hard,
        "temperature smoothed": smoothed,
    }


def fit_smoothed(logits: NDArray[np.float64], labels: NDArray[np.int64], smoothing: float) -> float:
    """Return the temperature of the grid with the lowest cross-entropy to targets that leave `smoothing` to others."""
    targets = np.full(logits.shape, smoothing / (logits.shape[1] - 1))
    targets[np.arange(len(labels)), labels] = 1 - smoothing
    costs = [(logsumexp(logits / t, axis=1) - (targets * logits).sum(1) / t).mean() for t in GRID]
    return float(GRID[int(np.argmin(costs))])


def stored(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the logits and labels of a file below the data root."""
    with gzip.open(located(name), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return np.array([row["logits"] for row in rows]), np.array([row["true"] for row in rows])


def located(name: str) -> Path:
    what = "the predictions that Baan et al. (2022) published in github.com/jsbaan/calibration-on-disagreement-data"
    return needed(name, by="p22-vanilla", what=f"{what}, data/predictions")


def claims(at: Scale) -> Iterable[Claim]:
    falls = {
        of: pooled(metric("fall", *of, f"run {run + 1}") for run in range(model["runs"]))
        for of, model in MODELS.items()
    }
    paper = {of: (model["before"] - model["after"]) / 100 for of, model in MODELS.items()}
    yield Claim(
        "A temperature lowers the ECE, mean of the models and data sets",
        pooled(falls.values()),
        primary=True,
        paper=sum(paper.values()) / len(paper),
        overconfident=[(*of, "run 1") for of in MODELS],
    )
    for (data, network), fall in falls.items():
        yield Claim(
            f"{data}, {network}: a temperature lowers the ECE (mean of {MODELS[data, network]['runs']} runs)",
            fall,
            paper=paper[data, network],
            overconfident=[(data, network, "run 1")],
        )


#: Parts of the test samples, and seeds: each leaves out one. There is one look.
PARTS = 20
SCALE = Scale(
    seeds=range(FIRST_SEED, FIRST_SEED + PARTS),
    looks=(PARTS,),
    minutes=2,
    settings={"n_bins": 10, "smoothing": 0.1, "parts": PARTS},
    about="BERT-base and RoBERTa-base as Baan et al. (2022) trained them; intervals are over the test samples, and "
    "verdicts speak of these trained models.",
)

#: Where the tables print metrics.
PRINTED = {"ece": ("ECE, 10 bins", "%"), "after": ("ECE after TS", "%")}

RECIPE = Recipe(
    place=Place("P22", "Table 1, BERT and RoBERTa", "Temperature scaling of plainly trained models"),
    cells=cells,
    measure=measure,
    check=lambda at: [located(settings["file"].format(part="dev")) for _, settings in cells(at)],
    claims=claims,
    columns={
        "error": "error (%)",
        "gap": "confidence − accuracy (%)",
        "ece": "ECE (%), 10 bins",
        "after": "… after a temperature (%)",
        "after smoothed": "… fitted to smoothed targets (%)",
        "temperature": "temperature",
        "temperature smoothed": "… of smoothed targets",
    },
    published={
        f"{data}, {network}": {"ECE, 10 bins": model["before"], "ECE after TS": model["after"]}
        for (data, network), model in MODELS.items()
    },
    scales=dict.fromkeys(("cpu", "night", "paper"), SCALE),
    printed=where_printed(lambda key: ", ".join(key[:2]), PRINTED),
    draw=bars(
        {"ece": "ECE (%)", "after": "ECE after a temperature (%)", "after smoothed": "ECE, smoothed targets (%)"}
    ),
    reading=(
        "The paper quotes these rows from Desai & Durrett (2020). Other people's runs of the same models on the same "
        "halves of the development sets stand in for them; the models are trained on SNLI, and each data set's own "
        "development half decides the temperature, the best of 0.01, 0.02, …, 5.00.",
        "In Table 1 a temperature makes the models that were trained with label smoothing worse (BERT on SNLI 7.12 → "
        "8.37, RoBERTa 6.38 → 8.70), which one that minimises the NLL of labels should not do. It would if it was "
        "fitted to smoothed targets, so that is measured too, with 0.1 spread over the other classes.",
    ),
    findings=(
        "A temperature that is fitted to smoothed targets leaves these models with an ECE of 9 to 12 %, all of it too "
        "little confidence: what the paper's rows with label smoothing look like after theirs. Fitted to the labels it "
        "lowers every ECE.",
    ),
)
