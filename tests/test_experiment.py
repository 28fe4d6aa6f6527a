from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import refused, vicinal
from vicinal import runs
from vicinal.experiment import data_name, folder_name
from vicinal.runs import EvalSet, Experiment

FULL = Experiment(
    source="my data/it's <here>.csv",
    method="Warmup(LogitMix(Mixup(alpha=3.0), weight=0.5), epochs=2.0)",
    data={
        "target": 'the "class"',
        "text": ["one text", "the other"],
        "seed": 3,
        "train_size": 40,
        "subset": "random",
        "val": 30,
        "test": 0.25,
        "max_bad": 2,
        "rare": "train",
        "encoding": "latin-1",
    },
    model="hf:some/checkpoint",
    model_options={"dropout": 0.3, "name": "a b", "hidden": [4, 5], "flag": True},
    training={
        "epochs": 3,
        "lr": 1e-5,
        "milestones": [1.0, 2.5],
        "nesterov": True,
        "keep_predictions_at": [1, 3],
        "trackers": ["tensorboard"],
        "clip_norm": 1.0,
        "warmup_epochs": 2.0,
        "warmup_start": 1e-6,
    },
    eval_data=(
        "elsewhere.csv",
        {
            "source": "third place.csv",
            "columns": {"q, 1": "one text", "q=2": "the other"},
            "class_names": {"same": "entailment"},
            "development": "third dev.csv",
        },
    ),
    watch=("train", "eval-2"),
    temperature="grid",
    new_subset_per_seed=True,
    corrupt=0.2,
    seed=7,
)


def table(path: Path, target: str = "class") -> None:
    """Write a file that is there, since a command looks for it and its target before anything else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["one text", "the other", target], ["a", "b", "c"]])


@pytest.mark.parametrize(
    "experiment",
    [FULL, Experiment(source="digits"), Experiment(source=FULL.source, data={"target": "2", "header": False})],
)
def test_its_command_asks_for_the_same(experiment: Experiment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for source in (FULL.source, "elsewhere.csv", "third place.csv", "third dev.csv"):
        table(tmp_path / str(source), FULL.data["target"])
    asked: list[Any] = []

    def run(experiment: Experiment, out: Path, **options: Any) -> None:
        asked.extend((experiment, out))

    monkeypatch.setattr(runs, "run", run)
    words = shlex.split(experiment.command(out="the run"))
    assert words[0] == "vicinal"
    vicinal(*words[1:], cwd=tmp_path)
    assert asked == [experiment, Path("the run")]


def test_record_round_trip() -> None:
    assert Experiment.from_dict(FULL.to_dict()) == FULL
    with pytest.raises(ValueError, match="no field 'sead'; did you mean 'seed'"):
        Experiment.from_dict({"source": "digits", "sead": 1})


def test_what_is_not_given_is_not_recorded() -> None:
    assert Experiment(source="digits", data={"target": None}).data == {}
    assert Experiment(source="digits").to_dict()["training"] == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"training": {"seed": 1}}, "pass seed"),
        ({"corrupt": 1.5}, "corrupt must be"),
        ({"seed": -1}, "seed must be"),
        ({"data": {"target": object()}}, "data must be a mapping ready for JSON"),
        ({"training": 3}, "training must be a mapping"),
    ],
)
def test_hostile_fields(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Experiment(source="digits", **fields)


@pytest.mark.parametrize("source", ["../a b/c.tar.gz", "hf:x/y:z", "...", "日本.csv", '<script>"', "/"])
def test_names_of_folders_can_be_made(source: str, tmp_path: Path) -> None:
    name = folder_name(Experiment(source=source, method="LogitMix(" * 30 + "Mixup(alpha=3.0)" + ")" * 30))
    (tmp_path / name).mkdir()  # one folder, not several, and not too long a name
    assert (tmp_path / name).parent == tmp_path
    assert data_name(source)


def test_how_a_run_proceeds_is_no_part_of_what_it_is():
    usual = Experiment(source="digits", training={"epochs": 2})
    other = Experiment(source="digits", training={"epochs": 2, "num_workers": 1, "trackers": []})
    assert usual != other
    assert usual.resume_key() == other.resume_key()
    assert usual.resume_key() != Experiment(source="digits", training={"epochs": 3}).resume_key()


def test_maps_are_of_one_further_set_or_of_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("snli.csv", "one.csv", "two.csv", "dev.csv"):
        table(tmp_path / name)
    asked: list[Any] = []
    monkeypatch.setattr(runs, "run", lambda experiment, out, **options: asked.append(experiment))
    maps = ["--map", "q1=premise,q2=hypothesis", "--map", "2:q1=text", "--map-class", '2:{"a,b": "c"}']
    vicinal(
        "train",
        "snli.csv",
        "--eval-data",
        "one.csv",
        "--eval-data",
        "two.csv",
        *maps,
        "--eval-development",
        "1:dev.csv",
        cwd=tmp_path,
    )
    one, two = asked[0].eval_sets
    assert one == EvalSet(source="one.csv", columns={"q1": "premise", "q2": "hypothesis"}, development="dev.csv")
    assert two == EvalSet(source="two.csv", columns={"q1": "text", "q2": "hypothesis"}, class_names={"a,b": "c"})
    assert "for a set that --eval-data names" in refused("train", "digits", "--eval-data", "digits", "--map", "2:a=b")
    assert "--map must be NAME=NAME" in refused("train", "digits", "--eval-data", "digits", "--map", "a")
