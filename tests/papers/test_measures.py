"""What single recipes compute by themselves, against slow versions."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import beta
from torch.utils.data import TensorDataset

from tests.data.checkpoints import save_tiny
from tests.data.test_regression import write_stsb
from vicinal import parse
from vicinal.calibrators import TemperatureScaling, loss_parts
from vicinal.metrics import evaluate
from vicinal.papers import SCALES, get, images, l22_tab2, l22_tab3, names, p22_vanilla, t19_fig5, texts, z18_fig5
from vicinal.papers.base import FIRST_SEED
from vicinal.papers.trained import Trained


@pytest.fixture
def predictions():
    draw = np.random.default_rng(0)
    labels = draw.integers(3, size=60)
    return 4 * (np.eye(3)[labels] + draw.normal(size=(60, 3))), labels


def test_a_temperature_for_smoothed_targets(predictions):
    logits, labels = predictions

    def cost(t):
        total = 0.0
        for z, y in zip(logits, labels, strict=True):
            normaliser = sum(math.exp(v / t) for v in z)
            for k in range(3):
                total -= (0.8 if k == y else 0.1) * math.log(math.exp(z[k] / t) / normaliser)
        return total

    best = min((k / 100 for k in range(100, 501)), key=cost)
    assert p22_vanilla.fit_smoothed(logits, labels, 0.2) == pytest.approx(best)
    hard = TemperatureScaling(search="grid").fit(logits, labels).temperature_
    assert p22_vanilla.fit_smoothed(logits, labels, 0.0) == hard < best


def test_stored_logits_are_read_and_missing_ones_named(predictions, tmp_path, monkeypatch):
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    recipe = get("p22-vanilla")
    with pytest.raises(FileNotFoundError, match=r"p22-vanilla needs logits/nli_baan2022/SNLI_dev_bert"):
        recipe.check(recipe.scales["cpu"])
    logits, labels = predictions
    lines = [json.dumps({"logits": z.tolist(), "true": int(y)}) for z, y in zip(logits, labels, strict=True)]
    for part in ("dev", "test"):
        with gzip.open(tmp_path / f"a_{part}.jsonl.gz", "wt") as file:
            file.write("\n".join(lines))
    settings = {"file": "a_{part}.jsonl.gz", "n_bins": 10, "smoothing": 0.1, "parts": 3}
    every = [recipe.measure([], settings, seed) for seed in (999, 1000, 1001)]
    hard = every[0]["temperature"]
    assert hard < every[0]["temperature smoothed"]

    def fall(rows: list[int]) -> float:
        before, after = (evaluate(labels[rows], logits=logits[rows] / t, n_bins=10).ece.value for t in (1.0, hard))
        return before - after

    for part, measured in enumerate(every):  # a third of the 60 samples is left out, and makes a pseudo-value
        rest = [i for i in range(60) if not 20 * part <= i < 20 * (part + 1)]
        assert measured["ece"] == evaluate(labels[rest], logits=logits[rest], n_bins=10).ece
        assert measured["fall"] == pytest.approx(3 * fall(list(range(60))) - 2 * fall(rest))


class _Labelled(TensorDataset):
    labels: list[int]


class _Run:
    """What a finished run on SNLI shows of itself, with logits that were drawn."""

    def __init__(self, logits: np.ndarray, labels: np.ndarray) -> None:
        self.logits, self.labels, self.temperature = torch.tensor(logits), torch.tensor(labels), 2.0
        held_out = SimpleNamespace(logits=self.logits, labels=self.labels)
        self.result = SimpleNamespace(experiment=SimpleNamespace(source="snli"), sets={"val": held_out})
        self.bundle = SimpleNamespace(read=self._read, iter_logits=lambda subset: [torch.stack([r[0] for r in subset])])

    def _read(self, source: str, *, labelled: bool, part: str) -> _Labelled:
        assert (source, labelled, part) == ("mnli", True, "test")
        other = _Labelled(-self.logits)  # in the other domain it is wrong where it is right here
        other.labels = self.labels.tolist()
        return other

    def test_logits(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.logits, self.labels

    def test(self, *, n_bins: int) -> object:
        return evaluate(self.labels, logits=self.logits, n_bins=n_bins)


def test_both_domains_and_both_temperatures(predictions):
    logits, labels = predictions
    settings = {"smoothing": {"snli": 0.1}, "other": {"snli": "mnli"}, "n_other": 30}
    measured = texts.in_both_domains([_Run(logits, labels)], settings, 0)
    assert measured["ece"] == evaluate(labels, logits=logits, n_bins=10).ece
    assert measured["after"] == evaluate(labels, logits=logits / 2, n_bins=10).ece
    smoothed = p22_vanilla.fit_smoothed(logits, labels, 0.1)
    assert measured["after smoothed"] == evaluate(labels, logits=logits / smoothed, n_bins=10).ece
    assert measured["other error"].value > measured["error"].value
    alone = texts.in_both_domains([_Run(logits, labels)], {**settings, "other": {}}, 0)
    assert "other ece" not in alone


@pytest.mark.parametrize("select", ["accuracy", "last"])
def test_the_last_epoch_is_measured_and_the_selected_one_where_there_is_one(predictions, select):
    logits, labels = predictions
    selected, last = (evaluate(labels, logits=one) for one in (logits, -logits))
    run = SimpleNamespace(
        result=SimpleNamespace(experiment=SimpleNamespace(training={"select": select})),
        test=lambda n_bins: selected,
        test_of_last=lambda n_bins: last,
        last_logits=(-logits, labels),
    )
    measured = images.both_epochs([run], {}, 0)
    parts = loss_parts(labels, logits=-logits)
    for name in ("nll", "brier"):  # the parts are those of the weights that are measured
        assert measured[f"{name} refinement"] == parts[name].refinement
        assert measured[f"{name} calibration"].value == pytest.approx(
            measured[name].value - measured[f"{name} refinement"].value
        )
    assert measured["ece"] == last.ece != selected.ece
    assert measured["rms debiased"] == last.rms_debiased
    assert measured.get("best ece") == (None if select == "last" else selected.ece)


def test_a_gan_keeps_its_panels_and_counts_its_modes():
    settings = {"target": "ring of 8", "alpha": 0.2, "panels": [1, 3], "width": 8}
    measured = z18_fig5.measure([], settings, 1000)
    assert {len(measured[f"samples {i}"]) for i in (1, 3)} == {z18_fig5.SHOWN}
    assert measured["covered"] == measured["modes"] / 8
    assert not any("samples" in name for name in z18_fig5.measure([], settings, 1001))


def test_paddings_are_those_of_the_table():
    recipe = get("w21-tab5")
    at = recipe.scales["cpu"]
    written = {name: parse(method.expression) for name, method in recipe.methods_of(next(at.pairs()), at).items()}
    assert {name: (one.pad, one.scope) for name, one in written.items()} == {
        "No Pad": ("none", "pair"),
        "unused (pair)": ("unused", "pair"),
        "SEP (pair)": ("sep", "pair"),
        "PAD (pair)": ("pad", "pair"),
        "unused (max)": ("unused", at.settings["length"]),
        "SEP (max)": ("sep", at.settings["length"]),
        "PAD (max)": ("pad", at.settings["length"]),
    }


def test_logitmix_takes_the_papers_weights():
    weights = {name: parse(above).weight for name, (_, above) in l22_tab2.BASES.items()}
    assert weights == {"Mixup": 1.0, "CutMix": 0.1, "PuzzleMix": 0.5, "Manifold Mixup": 1.0}
    recipe = get("l22-sec5-4")
    at = recipe.scales["cpu"]
    best = recipe.methods_of(next(iter(at.pairs())), at)
    assert parse(best["CutMix, weight 0.1"].expression).weight == 0.1
    assert parse(best["Mixup, weight 2"].expression).weight == 2.0


def test_recipes_of_one_paper_share_trainings():
    def trained(name: str, scale: str = "cpu") -> set[str]:
        return {json.dumps(e.to_dict(), sort_keys=True) for cell in get(name).rows(scale) for e in cell.trainings}

    assert len(trained("l22-tab1") & trained("l22-tab2")) == 10  # vanilla and LogitMix with five seeds
    assert len(trained("l22-tab1") & trained("l22-tab5")) == 15  # Mixup, LogitMix and (−) cross-entropy at α = 3
    assert len(trained("l22-tab2") & trained("l22-sec5-4")) == 15  # the best weight of each base
    assert len(trained("l22-tab2") & trained("l22-tab5")) == 10  # Mixup at α = 0.4 and LogitMix
    assert len(trained("p22-tab1-2") & trained("p22-tab3")) == 10  # BERT and Ours + LS on SNLI


OF_TEXTS_AND_LOGITS = [name for name in names() if name[:3] in ("l22", "p22", "w21")]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", OF_TEXTS_AND_LOGITS)
def test_families_of_claims(name, scale):
    recipe = get(name)
    at = recipe.scales[scale]
    claims = list(recipe.claims(at))
    assert 1 <= sum(claim.primary for claim in claims) <= 3
    assert all(bool(claim.reason) == (claim.margin != 0.01) for claim in claims)
    assert all(claim.kind == "above" or claim.threshold == 0 for claim in claims)
    assert list(at.seeds) == list(range(FIRST_SEED, FIRST_SEED + len(at.seeds)))
    assert len(at.seeds) in at.looks


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", OF_TEXTS_AND_LOGITS)
def test_a_secondary_claim_is_one_that_the_paper_makes(name, scale):
    """Its own numbers bear it out: above zero, or no more than the margin below it."""
    for claim in get(name).claims(get(name).scales[scale]):
        if claim.paper is not None and not (claim.primary and claim.kind == "above"):
            assert claim.paper > (0 if claim.kind == "above" else -claim.margin), claim.text


def test_table_2_stands_beside_its_own_networks():
    at = get("l22-tab2").scales["paper"]
    of = {claim.text: claim.paper for claim in get("l22-tab2").claims(at)}
    assert of["CIFAR-100, VGG16: LogitMix lowers the error of Mixup"] == pytest.approx(0.0120)
    assert of["CIFAR-100, MobileNetV2: LogitMix lowers the error of CutMix"] == pytest.approx(0.0109)
    assert of["TinyImageNet, MobileNetV2: LogitMix lowers the error of PuzzleMix"] == pytest.approx(0.0122)
    assert of["CIFAR-100, ShuffleNetV2: the ECE of LogitMix over Mixup is below that of Vanilla"] == pytest.approx(
        0.037
    )
    assert not any("TinyImageNet, VGG16" in text for text in of)
    # Gains as printed in brackets, mean of five networks.
    here = {claim.text: claim.paper for claim in get("l22-tab2").claims(get("l22-tab2").scales["cpu"])}
    gains = (1.20 + 1.77 + 0.53 + 3.92 + 1.36) / 500
    assert here["CIFAR-10, PreAct ResNet-10: LogitMix lowers the error of Mixup"] == pytest.approx(gains)


def test_alphas_are_those_of_the_authors_code():
    alpha = {name: (parse(alone).alpha, parse(above).base.alpha) for name, (alone, above) in l22_tab2.BASES.items()}
    assert alpha["Mixup"] == (0.4, 3.0)
    assert alpha["CutMix"] == (1.0, 3.0)
    assert parse(get("l22-tab4").methods["Mixup"].expression).alpha == 0.4


def test_the_night_has_the_methods_of_the_primary_claims_alone():
    for name, trained in (
        ("l22-tab2", {"Vanilla", "Mixup", "LogitMix over Mixup", "CutMix", "LogitMix over CutMix"}),
        ("p22-tab1-2", {"BERT", "Mixup", "Ours"}),
        ("w21-tab2", {"Base", "CLS", "Input", "Mani"}),
    ):
        recipe = get(name)
        assert {cell.key[-1] for cell in recipe.rows("night")} == trained
        needs = {key for claim in recipe.claims(recipe.scales["night"]) if claim.primary for key, _ in claim.needs}
        assert {key[-1] for key in needs} == trained


@pytest.mark.slow
def test_stsb_is_scored_by_spearman(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    write_stsb(tmp_path)
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    at = get("l22-tab3").scales["night"]
    small = {**at.settings["STS-B"], "train_size": 24, "max_length": 16}
    small["training"] = {**small["training"], "lr": 0.01, "epochs": 25}
    rows = list(l22_tab3.cells(dataclasses.replace(at, settings={**at.settings, "layers": 2, "STS-B": small})))
    assert [key for key, _ in rows] == [("STS-B", "MiniLM-L6", name) for name in ("BERT", "Mixup", "LogitMix")]
    for (*_, name), settings in rows:
        settings = {"STS-B": small, **settings, "network": str(save_tiny(tmp_path / "bert"))}
        l22_tab3.train(settings, 0, tmp_path / name)
        assert l22_tab3.measure([Trained(tmp_path / name)], settings, 0)["score"] > 0.9
    assert not list(l22_tab3.cells(get("l22-tab3").scales["cpu"]))


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 3.0])
def test_the_entropy_of_a_mixed_label_is_distributed_as_beta_says(alpha):
    def entropy(lam):
        return -lam * math.log(lam) - (1 - lam) * math.log1p(-lam)

    for h in (0.05, 0.3, 0.6, 0.69):
        edge = brentq(lambda lam, h=h: entropy(lam) - h, 1e-12, 0.5)
        middle = quad(beta(alpha, alpha).pdf, edge, 1 - edge)[0]
        assert t19_fig5.entropy_cdf(np.array([h]), alpha)[0] == pytest.approx(1 - middle, abs=1e-7)
    assert t19_fig5.entropy_cdf(np.array([0.0, math.log(2)]), alpha).tolist() == [0, 1]
