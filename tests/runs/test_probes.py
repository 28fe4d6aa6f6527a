from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.data import make
from vicinal import _random
from vicinal._atomic import read_sealed, sealed, write_json
from vicinal.metrics import evaluate
from vicinal.probes import attack_errors, between_samples, gaussian_like, parse_attack
from vicinal.probes.uncertainty import MCDropout
from vicinal.runs import Experiment, attacks_on, between, ood_reports, probes, run, with_mc_dropout
from vicinal.runs.probes import OOD_SCORES


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    training = {"epochs": 2, "batch_size": 64, "lr": 0.05}
    data = {"augment": "crop"}
    experiment = Experiment(source="digits", data=data, model_options={"width": 4}, training=training)
    return run(experiment, tmp_path_factory.mktemp("digits") / "run", progress=False)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("table") / "data.csv"
    x = np.linspace(-3, 3, 200)
    pd.DataFrame({"x": x, "y": np.where(np.sin(5 * x) + x > 0, "up", "down")}).to_csv(path, index=False)
    training = {"epochs": 30, "lr": 0.02, "batch_size": 32}
    return run(
        Experiment(source=str(path), data={"target": "y"}, model_options={"dropout": 0.05}, training=training),
        path.parent / "run",
        progress=False,
    )


def test_what_is_uncertain_is_told_apart(table: Any, tmp_path: Path) -> None:
    """Points on the class boundary are all less sure than the test set."""
    bundle = table.run.bundle()
    grid = np.linspace(-3, 3, 2000)
    sure = bundle.predict_proba(pd.DataFrame({"x": grid})).max(axis=1)
    pd.DataFrame({"x": grid[sure.argsort()[:40]]}).to_csv(tmp_path / "boundary.csv", index=False)
    for score in OOD_SCORES:
        plain, calibrated = ood_reports(table, [str(tmp_path / "boundary.csv")], score=score)
        assert (plain.source, plain.how, calibrated.how) == (str(tmp_path / "boundary.csv"), "plain", "calibrated")
        if score != "energy":  # which looks at the size of logits, not at their differences
            assert calibrated.report.metrics["auroc"].value > 0.9


def test_the_test_set_itself_is_not_told_apart(table: Any) -> None:
    for result in ood_reports(table, [table.experiment.source], passes=5):
        assert 0.3 < result.report.metrics["auroc"].value < 0.7


def test_other_data_without_the_temperature_with_it_and_with_dropout_on(digits: Any, table: Any) -> None:
    """By hand, from the logits: Thulasidasan et al. (2019) need all three."""
    source = table.experiment.source
    plain, calibrated, dropped = ood_reports(table, [source], score="entropy", passes=7)
    assert [r.name for r in (plain, calibrated, dropped)] == [source, f"{source}, calibrated", f"{source}, dropout on"]
    bundle, task = table.run.bundle(), table.run.task()
    outside = bundle.logits(source).double()
    for result, t in ((plain, 1.0), (calibrated, table.temperature)):
        scores = []
        for logits in (table.test.logits.double(), outside):
            log_p = (logits / t).log_softmax(1)
            scores.append((log_p.exp() * log_p).sum(1))
        pairs = (scores[0][:, None] > scores[1][None]).double() + 0.5 * (scores[0][:, None] == scores[1][None])
        assert result.report.metrics["auroc"].value == pytest.approx(pairs.mean().item())
    scores = []
    for dataset in (task.test, bundle.read(source)):
        model, generator = MCDropout(bundle.network, 7), torch.Generator()
        generator.manual_seed(_random.seed_from("passes", 0))
        rows = [
            model(torch.stack([dataset[i][0] for i in range(k, min(k + 32, len(dataset)))]), generator=generator)
            for k in range(0, len(dataset), 32)
        ]
        log_p = torch.cat(rows).double().log_softmax(1)
        scores.append((log_p.exp() * log_p).sum(1))
    pairs = (scores[0][:, None] > scores[1][None]).double() + 0.5 * (scores[0][:, None] == scores[1][None])
    assert dropped.report.metrics["auroc"].value == pytest.approx(pairs.mean().item(), abs=1e-6)
    with pytest.raises(ValueError, match="score='energy' is of logits"):
        ood_reports(table, [source], score="energy", passes=7)


def test_noise_is_the_same_each_time(digits: Any) -> None:
    first, second = (ood_reports(digits, ["noise"])[1].report.to_dict() for _ in range(2))
    assert first == second


def test_noise_is_like_the_training_set_as_the_network_sees_it(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its moments are those of training samples that are normalised, and not augmented."""
    made = []

    def kept(*given: Any, **options: Any) -> Any:
        made.append(gaussian_like(*given, **options))
        return made[-1]

    monkeypatch.setattr(probes, "gaussian_like", kept)
    ood_reports(digits, ["noise"])
    task = digits.run.task()
    plain = task.train.relabelled(task.train.labels, augment="none")
    x = torch.stack([plain[i][0] for i in range(len(plain))]).double()
    assert len(made[0]) == len(task.test)
    assert made[0].mean.tolist() == pytest.approx([float(x.mean())])
    assert made[0].std.tolist() == pytest.approx([float(x.std(correction=0))])


def test_an_attack_is_in_units_of_pixels(digits: Any) -> None:
    bundle, task = digits.run.bundle(), digits.run.task()
    x, y = torch.stack([task.test[i][0] for i in range(len(task.test))]), torch.tensor(task.test.labels)
    seen = task.preprocessing
    for text in ("fgsm:16/255", "ifgsm:32/255:3"):
        ((_, found),) = attacks_on(digits, [text])
        assert found == attack_errors(bundle.module, (x, y), parse_attack(text), mean=seen.mean, std=seen.std)
        unscaled = attack_errors(bundle.module, (x, y), parse_attack(text), clip=None)
        assert found.attacked != unscaled.attacked


def test_attacks_do_harm(digits: Any) -> None:
    (name, gentle), (_, strong) = attacks_on(digits, ["fgsm:1/255", "ifgsm:48/255:5"])
    assert name == "fgsm:1/255"
    error = 1 - digits.test.before.accuracy.value
    assert gentle.clean[1].value == pytest.approx(error)
    assert strong.attacked[1].value > error
    assert gentle.attacked[1].value <= strong.attacked[1].value
    ((_, black),) = attacks_on(digits, ["ifgsm:48/255:5"], source=str(digits.out))
    assert black.attacked[1].value == pytest.approx(strong.attacked[1].value)


def test_mc_dropout_evaluates_the_mean_of_the_passes(table: Any) -> None:
    found = with_mc_dropout(table, 4)
    assert with_mc_dropout(table, 4) == found
    bundle, task = table.run.bundle(), table.run.task()
    x = torch.stack([task.test[i][0] for i in range(len(task.test))])
    many = evaluate(torch.tensor(task.test.labels), logits=MCDropout(bundle.module, 200)(x))
    assert found.nll.value == pytest.approx(many.nll.value, abs=0.1)
    assert found.nll.value != pytest.approx(table.test.before.nll.value, abs=1e-6)  # dropout was on
    assert found.n == len(task.test)


def test_between_looks_at_training_samples_without_augmentation(digits: Any) -> None:
    found = between(digits, 12)
    assert found.to_dict() == between(digits, 12).to_dict()
    assert found.n_pairs == 12
    assert (found.lambdas[0], found.lambdas[-1]) == (-0.5, 1.5)
    assert found.gradient_norm is not None
    bundle, task = digits.run.bundle(), digits.run.task()
    plain = task.train.relabelled(task.train.labels, augment="none")
    held = [plain[i] for i in range(len(plain))]
    x, y = torch.stack([a for a, _ in held]), torch.tensor([int(b) for _, b in held])
    ends = between_samples(bundle.module, (x, y), pairs=500, lambdas=[1.0], gradient="none")
    wrong = (bundle.module(x).argmax(1) != y).double().mean()  # the second label can be right by chance
    assert float(ends.misses.low[0]) <= float(wrong)


def test_what_cannot_be_probed(digits: Any, table: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="score must be one of"):
        ood_reports(digits, ["noise"], score="size")
    with pytest.raises(ValueError, match="attacks need inputs in a valid range"):
        attacks_on(table, ["fgsm:1/255"])
    with pytest.raises(ValueError, match="takes other inputs"):
        attacks_on(digits, ["fgsm:1/255"], source=str(table.out))
    make.reviews(30).to_csv(tmp_path / "reviews.csv", index=False)
    experiment = Experiment(
        source=str(tmp_path / "reviews.csv"),
        data={"target": "mood", "test": 0},
        model="sentencecnn",
        training={"epochs": 1},
    )
    texts = run(experiment, tmp_path / "run", progress=False)
    assert texts is not None
    with pytest.raises(ValueError, match="has no test set"):
        ood_reports(texts, ["noise"])
    with pytest.raises(ValueError, match="has no test set"):
        attacks_on(texts, ["fgsm:1/255"])
    with pytest.raises(ValueError, match="between texts there is nothing"):
        between(texts)
    with pytest.raises(ValueError, match="dropout"):
        with_mc_dropout(digits)


def test_an_attacking_run_must_have_the_same_classes(digits: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(digits.out, other)
    record = read_sealed(other / "model.json")
    write_json(other / "model.json", sealed({**record, "classes": record["classes"][::-1]}))
    with pytest.raises(ValueError, match="has other classes"):
        attacks_on(digits, ["fgsm:1/255"], source=str(other))


@pytest.mark.parametrize(
    "probe",
    [
        lambda digits, table: ood_reports(digits, ["noise", digits.experiment.source]),
        lambda digits, table: attacks_on(digits, ["fgsm:8/255"], source=str(digits.out)),
        lambda digits, table: with_mc_dropout(table, 2),
        lambda digits, table: between(table, 3),
    ],
)
def test_global_generators_are_left_as_they_were(probe: Any, digits: Any, table: Any) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    probe(digits, table)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_the_model_is_left_as_it_was(digits: Any) -> None:
    weights = (digits.out / "model.safetensors").read_bytes()
    attacks_on(digits, ["fgsm:8/255"])
    assert (digits.out / "model.safetensors").read_bytes() == weights
    bundle, task = digits.run.bundle(), digits.run.task()
    torch.testing.assert_close(bundle.logits(task.test), digits.test.logits)
