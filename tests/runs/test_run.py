from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import vicinal as library
from tests.data import make
from vicinal._atomic import DamagedFileError, checksum, read_sealed, sealed, write_json
from vicinal.calibrators import TemperatureScaling, cross_validate
from vicinal.expressions import parse
from vicinal.metrics import evaluate
from vicinal.objectives.erm import ERM
from vicinal.objectives.sequence import mixed_at_embeddings
from vicinal.runs import EvalSet, Experiment, Run, measure_baselines, run
from vicinal.runs.baselines import ALWAYS
from vicinal.runs.mistakes import confident_mistakes, shown
from vicinal.training import FitConfig, fit, load_weights, read_predictions
from vicinal.training.defaults import default_config, default_options

TINY = {"epochs": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "people.csv"
    make.people(80).to_csv(path, index=False)
    return path


def _experiment(table: Path, **fields: Any) -> Experiment:
    plain = {"data": {"target": "kind"}, "model": "mlp", "model_options": {"hidden": [4]}, "training": TINY}
    return Experiment(source=str(table), **{**plain, **fields})


@pytest.fixture(scope="module")
def done(table: Path) -> Any:
    return run(_experiment(table), table.parent / "done", progress=False)


def test_rows_of_a_run_are_encoded_as_they_were(table: Path, done: Any, tmp_path: Path) -> None:
    """Another version may fit columns otherwise, and the network would not take their features."""
    shutil.copytree(done.out, tmp_path / "earlier")
    path = tmp_path / "earlier" / "model.json"
    record = read_sealed(path)
    age = next(column for column in record["preprocessing"]["columns"] if column["name"] == "age")
    age["mean"] = 0.0
    write_json(path, sealed(record))
    earlier, now = Run(tmp_path / "earlier").task(), done.run.task()
    assert earlier.preprocessing.to_dict() == record["preprocessing"]
    assert earlier.splits == now.splits
    moved = (earlier.test.features() - now.test.features()).mean(0)
    assert np.count_nonzero(moved) == 1


def test_the_metrics_are_those_of_the_saved_predictions(done: Any) -> None:
    for key, name in (("val", "predictions.parquet"), ("test", "predictions-test.parquet")):
        logits, labels = read_predictions(done.out / name)
        before = evaluate(labels, logits=logits)
        after = evaluate(labels, logits=logits.double() / done.temperature)
        assert done.sets[key].before.nll == before.nll
        assert done.sets[key].after.ece == after.ece
    assert done.sets["val"].after.nll.value <= done.sets["val"].before.nll.value
    recorded = json.loads((done.out / "evaluation.json").read_text())
    assert recorded["sets"]["test"]["after"]["ece"]["value"] == done.test.after.ece.value


def test_a_finished_run_is_read_again(done: Any, table: Path) -> None:
    again = Run(done.out).result()
    assert again.to_dict() == done.to_dict()
    assert again.experiment == done.experiment
    assert torch.equal(again.test.logits, done.test.logits)
    with pytest.raises(ValueError, match=r"holds another run, of vicinal train .* --target kind"):
        run(_experiment(table, seed=1), done.out, progress=False)
    assert not Run(table.parent / "nothing").is_finished
    with pytest.raises(ValueError, match="is not a run of vicinal"):
        Run(table.parent / "nothing").result()


def test_a_run_killed_before_its_evaluation_goes_on(done: Any, table: Path, tmp_path: Path) -> None:
    """Between training and evaluation.json nothing is lost and nothing trained again."""
    out = tmp_path / "run"
    run(_experiment(table), out, progress=False)
    wanted = {name: (out / name).read_bytes() for name in ("model.json", "splits.json", "mistakes.json")}
    trained = (out / "model.safetensors").stat().st_mtime_ns
    for name in (*wanted, "evaluation.json", "experiment.json", "predictions-test.parquet"):
        (out / name).unlink()
    assert not Run(out).is_finished
    lines: list[Any] = []
    outcome = run(_experiment(table), out, progress=False, on_metrics=lines.append)
    assert outcome is not None
    assert lines == []
    assert (out / "model.safetensors").stat().st_mtime_ns == trained
    assert {name: (out / name).read_bytes() for name in wanted} == wanted
    assert outcome.to_dict()["sets"] == done.to_dict()["sets"]


def test_reopening(done: Any, table: Path, tmp_path: Path) -> None:
    bundle, task = done.run.bundle(), done.run.task()
    logits = bundle.logits(task.test)
    assert torch.equal(logits, done.test.logits)
    assert task.test.labels == done.test.labels.tolist()


def test_reopening_with_fewer_training_samples_and_other_labels(table: Path, tmp_path: Path) -> None:
    data = {"target": "kind", "train_size": 20, "max_held_out": 5, "seed": 5}
    experiment = _experiment(table, data=data, corrupt=0.5)
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    assert outcome.label_noise is not None
    task = outcome.run.task()
    assert len(task.train) == 20
    assert len(task.test) == len(task.val) == 5
    assert task.train.indices == json.loads((outcome.out / "splits.json").read_text())["train"]
    plain = library.data.load(str(table), library.data.SplitOptions(train_size=20, seed=5), target="kind")
    changed = sum(a != b for a, b in zip(task.train.labels, plain.train.labels, strict=True))
    assert changed == outcome.label_noise["changed"] > 0


def test_further_sets_are_read_before_training(table: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        run(_experiment(table, eval_data=("nowhere.csv",)), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_no_test_set(table: Path, tmp_path: Path) -> None:
    outcome = run(_experiment(table, data={"target": "kind", "test": 0}), tmp_path / "run", progress=False)
    assert outcome is not None
    assert list(outcome.sets) == ["val"]
    with pytest.raises(ValueError, match="has no test set"):
        _ = outcome.test


@pytest.mark.parametrize("search", ["newton", "grid"])
def test_a_temperature_at_the_end_of_its_range_is_kept_and_said(search: str, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 60)
    pd.DataFrame({"x": x, "z": 2 * x, "y": np.where(x > 0, "up", "down")}).to_csv(tmp_path / "easy.csv", index=False)
    notes: list[str] = []
    training = {"epochs": 40, "lr": 0.05, "patience": 40}
    experiment = Experiment(
        source=str(tmp_path / "easy.csv"),
        data={"target": "y"},
        model="two-view-mlp",
        training=training,
        method="ERM()",
        temperature=search,
    )
    outcome = run(experiment, tmp_path / "run", progress=False, on_note=notes.append)
    assert outcome is not None
    assert outcome.sets["val"].before.accuracy.value == 1
    val = outcome.sets["val"]
    with pytest.warns(UserWarning, match="the temperature stopped at"):
        calibrator = TemperatureScaling(search=search).fit(val.logits, val.labels)
    assert outcome.temperature == calibrator.temperature_
    # So few samples without a mistake show nothing beyond the model's own confidence; the grid keeps its end.
    assert outcome.temperature == {"newton": 1.0, "grid": 0.01}[search]
    assert [note for note in notes if note.startswith("temperature ")] == outcome.facts["notes"]
    assert "the temperature stopped at" in outcome.facts["notes"][0]


def test_a_temperature_that_does_not_help_by_cross_validation_is_not_applied(table: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    options = {"target": "kind", "val": 37, "test": 21}
    outcome = run(_experiment(table, data=options), tmp_path / "run", progress=False, on_note=notes.append)
    assert outcome is not None
    val = outcome.sets["val"]
    calibrator = TemperatureScaling().fit(val.logits, val.labels)
    assert calibrator.temperature_ != 1
    assert not cross_validate(calibrator, val.logits, val.labels).helps
    assert outcome.temperature == library.load(outcome.out).temperature == 1
    (said,) = outcome.facts["notes"]
    assert said in notes
    assert f"37 samples, one of {calibrator.temperature_:.3g} would not help by cross-validation (NLL " in said


def test_the_temperature_of_the_published_grid(table: Path, tmp_path: Path) -> None:
    outcome = run(_experiment(table, temperature="grid"), tmp_path / "run", progress=False)
    assert outcome is not None
    val = outcome.sets["val"]
    grid = [round(0.01 * k, 2) for k in range(1, 501)]
    nll = [torch.nn.functional.cross_entropy(val.logits.double() / t, val.labels).item() for t in grid]
    assert outcome.temperature == pytest.approx(grid[int(np.argmin(nll))])
    assert library.load(outcome.out).temperature == outcome.temperature


# Further sets


def test_a_further_set_with_other_names_and_a_temperature_of_its_own(table: Path, tmp_path: Path) -> None:
    frame = make.people(60).rename(columns={"age": "years"})
    frame["kind"] = frame["kind"].map({"a": "first", "b": "second"})
    frame[:30].to_csv(tmp_path / "far.csv", index=False)
    frame[30:].to_csv(tmp_path / "far-dev.csv", index=False)
    names = {"columns": {"years": "age"}, "class_names": {"first": "a", "second": "b"}}
    far = EvalSet(source=str(tmp_path / "far.csv"), development=str(tmp_path / "far-dev.csv"), **names)
    near = {"source": str(tmp_path / "far.csv"), **names}
    experiment = _experiment(table, eval_data=(far, near), temperature="grid")
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    first, second = outcome.sets["eval-1"], outcome.sets["eval-2"]
    assert torch.equal(first.logits, second.logits)
    assert second.temperature == outcome.temperature != first.temperature
    bundle = library.load(outcome.out)
    plain = make.people(60)
    assert torch.equal(first.logits, bundle.logits(plain[:30].reset_index(drop=True)))
    dev = plain[30:].reset_index(drop=True)
    labels = torch.tensor(bundle.read(dev, labelled=True).labels)
    assert first.temperature == TemperatureScaling(search="grid").fit(bundle.logits(dev), labels).temperature_
    assert first.after.nll.value == pytest.approx(
        torch.nn.functional.cross_entropy(first.logits.double() / first.temperature, first.labels).item()
    )
    again = Run(outcome.out).result(experiment)
    assert again.to_dict() == outcome.to_dict()
    for wrong, message in (
        ({"columns": {"yeras": "age"}}, "has no column 'yeras'; did you mean 'years'"),
        ({"class_names": {"first": "c"}, "columns": {"years": "age"}}, "the model has no class 'c'"),
        ({"class_names": {"frist": "a"}, "columns": {"years": "age"}}, "the data have no class 'frist'; did you mean"),
    ):
        with pytest.raises(ValueError, match=message):
            run(_experiment(table, eval_data=({"source": far.source, **wrong},)), tmp_path / "wrong", progress=False)


def test_of_data_that_are_split_already_the_test_part_counts(table: Path, tmp_path: Path) -> None:
    frame, notes = make.people(90), []
    (tmp_path / "split").mkdir()
    for name, rows in (("train", frame[:50]), ("test", frame[50:])):
        rows.to_csv(tmp_path / "split" / f"{name}.csv", index=False)
    experiment = _experiment(table, eval_data=(str(tmp_path / "split"),))
    outcome = run(experiment, tmp_path / "run", progress=False, on_note=notes.append)
    assert outcome is not None
    assert outcome.sets["eval-1"].before.n == 40
    said = "it is split already: its test part, 40 of 90 samples"
    assert any(said in note for note in notes)
    assert outcome.sets["eval-1"].notes == Run(outcome.out).result().sets["eval-1"].notes == (said,)


@pytest.mark.parametrize(("test_part", "n"), [("val", 30), ("test", 40)])
def test_no_training_rows_are_evaluated_for_a_missing_part(table: Path, tmp_path: Path, test_part: str, n: int) -> None:
    """Without a test part the validation part counts; without a validation part the temperature is of the others."""
    frame, folder = make.people(90), tmp_path / "split"
    folder.mkdir()
    frame[:-n].to_csv(folder / "train.csv", index=False)
    frame[-n:].to_csv(folder / f"{test_part}.csv", index=False)
    names = {"source": str(folder), "development": str(folder)}
    experiment = _experiment(table, eval_data=(names,), temperature="grid")
    if test_part == "val":  # what is evaluated is all that could be fitted on
        with pytest.raises(ValueError, match="development must be other samples"):
            run(experiment, tmp_path / "run", progress=False)
        experiment = _experiment(table, eval_data=(str(folder),))
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    bundle, scored = outcome.run.bundle(), outcome.sets["eval-1"]
    assert torch.equal(scored.logits, bundle.logits(frame[-n:].reset_index(drop=True)))
    assert scored.notes == (f"it is split already: its {test_part} part, {n} of 90 samples",)
    if test_part == "test":
        logits = bundle.logits(frame[:-n].reset_index(drop=True))
        labels = torch.tensor(bundle.read(frame[:-n].reset_index(drop=True), labelled=True).labels)
        assert scored.temperature == TemperatureScaling(search="grid").fit(logits, labels).temperature_


def test_watching_and_what_an_oracle_would_choose(table: Path, tmp_path: Path) -> None:
    experiment = _experiment(table, watch=("train", "test", "eval-1"), eval_data=(str(table),))
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    errors = [1 - line["test_accuracy"] for line in outcome.history]
    oracle = outcome.oracle()
    assert oracle["test"]["error"] == min(errors)
    assert oracle["test"]["step"] == outcome.history[errors.index(min(errors))]["step"]
    assert set(oracle) == {"train", "test", "eval-1"}
    assert Run(outcome.out).result().to_dict()["oracle"] == oracle
    bundle, task = outcome.run.bundle(), outcome.run.task()
    best = outcome.fit["best"]
    plain = task.train.relabelled(task.train.labels, augment="none")
    right = bundle.logits(plain).argmax(1) == torch.tensor(plain.labels)
    assert best["train_accuracy"] == pytest.approx(right.double().mean().item())
    with pytest.raises(ValueError, match="watch must be one of 'train', 'test', got 'eval-1'"):
        _experiment(table, watch=("eval-1",))


def test_no_list_of_all_labels_is_made_to_train(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large table it would take more memory than the features."""
    monkeypatch.setattr(library.data.Split, "relabelled", lambda *given, **named: pytest.fail("all labels were copied"))
    assert run(_experiment(table), tmp_path / "run", progress=False) is not None


def test_each_seed_may_have_training_samples_of_its_own(table: Path, tmp_path: Path) -> None:
    data = {"target": "kind", "train_size": 20, "subset": "random"}
    outcomes = [
        run(
            _experiment(table, data=data, new_subset_per_seed=new, seed=seed), tmp_path / f"{new}{seed}", progress=False
        )
        for new in (False, True)
        for seed in (1, 2)
    ]
    train, rest = zip(
        *((s["train"], (s["val"], s["test"])) for s in (o.run.task().splits for o in outcomes if o)), strict=True
    )
    assert all(len(samples) == 20 for samples in train)
    assert train[0] == train[1]
    assert train[2] != train[3]
    assert all(held == rest[0] for held in rest)
    with pytest.raises(ValueError, match="new_subset_per_seed needs a subset: pass train_size"):
        _experiment(table, new_subset_per_seed=True)


# One loop that predicts


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_the_temperature_is_fitted_on_the_logits_that_are_served(precision: str, table: Path, tmp_path: Path) -> None:
    """Validation (in training), test, a further set and `predict`: the same rows have the same logits, bit for bit."""
    training = {**TINY, "mixed_precision": precision}
    frame = pd.read_csv(table)
    frame.to_csv(tmp_path / "all.csv", index=False)
    options = {"target": "kind", "val": 37, "test": 21}
    splits = library.data.load_from_config(str(table), options).splits
    for name in ("val", "test"):
        frame.iloc[splits[name]].to_csv(tmp_path / f"{name}.csv", index=False)
    experiment = _experiment(
        table, data=options, training=training, eval_data=(str(tmp_path / "val.csv"),), temperature="grid"
    )
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    bundle = library.load(outcome.out)
    assert bundle.precision == precision
    for name in ("val", "test"):
        served = bundle.logits(str(tmp_path / f"{name}.csv"))
        assert torch.equal(served, outcome.sets[name].logits)
        assert torch.equal(served, read_predictions(outcome.run.files.predictions(name))[0])
        probs = torch.tensor(bundle.predict_proba(str(tmp_path / f"{name}.csv")))
        assert torch.equal(probs, bundle.calibrated(served))
    assert torch.equal(outcome.sets["eval-1"].logits, outcome.sets["val"].logits)
    refitted = TemperatureScaling(search="grid").fit(
        served := bundle.logits(str(tmp_path / "val.csv")), outcome.sets["val"].labels
    )
    assert refitted.temperature_ == outcome.temperature
    # The network that probes look into is the one that is served.
    x = torch.stack([bundle.read(str(tmp_path / "val.csv"))[i][0] for i in range(16)])
    assert torch.equal(bundle.network(x), served[:16])
    assert torch.equal(bundle.module(x), served[:16]) == (precision == "no")


# Runs of the first version


def test_an_earlier_run_is_read_once_its_record_has_a_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(__file__).parent / "written_by_0_1", tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    with pytest.raises(DamagedFileError, match=r"model\.json has no checksum: .*; run its training command again"):
        library.load("run")
    write_json(Path("run/model.json"), sealed(read_sealed(Path("run/model.json")) | {"weights": "sha256:0"}))
    with pytest.raises(DamagedFileError, match="its checksum differs"):
        library.load("run")
    weights = checksum(Path("run/model.safetensors"))
    write_json(Path("run/model.json"), sealed(read_sealed(Path("run/model.json")) | {"weights": weights}))
    outcome = Run("run").result()
    recorded = json.loads(Path("run/evaluation.json").read_text())
    assert outcome.temperature == recorded["temperature"]
    for key in ("val", "test"):
        assert outcome.sets[key].before.nll.value == pytest.approx(recorded["sets"][key]["before"]["nll"]["value"])
        assert outcome.sets[key].after.ece.value == pytest.approx(recorded["sets"][key]["after"]["ece"]["value"])
    task = outcome.run.task()
    bundle = library.load("run")
    torch.testing.assert_close(bundle.logits(task.test), outcome.test.logits)
    assert len(bundle.predict("coins.csv")) == 60
    assert len(load_weights("run", last=True)) == len(bundle.module.state_dict())
    notes: list[str] = []
    again = run(outcome.experiment, "run", progress=False, on_note=notes.append)
    assert notes == ["run is finished: nothing to do"]
    assert again is not None
    # An unfinished one resumes where its network is named, here from its last checkpoint; the default is another now.
    for name in ("evaluation.json", "result.json"):
        (tmp_path / "old" / "run" / name).unlink()
    with pytest.raises(ValueError, match=r"run holds another run: .*name was 'mlp' and is 'mlp-and-trees'"):
        run(outcome.experiment, "run", progress=False)
    lines: list[Any] = []
    named = dataclasses.replace(outcome.experiment, model="mlp")
    again = run(named, "run", progress=False, on_metrics=lines.append)
    assert again is not None
    assert lines == []
    assert again.test.before.nll.value == pytest.approx(outcome.test.before.nll.value)
    assert again.run.network == "mlp"
    assert Run("nowhere").network is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluation.json", b"{"),
        ("evaluation.json", b'{"format": 1, "temperature": 1.0}'),
        ("predictions.parquet", b"PAR1 and no more"),
        ("predictions-test.parquet", None),
        ("experiment.json", b""),
        ("experiment.json", None),
        ("experiment.json", b'{"format": 1, "asked": {}}'),
        ("model.json", None),
        ("model.json", b'"x"'),
        ("splits.json", None),
    ],
    ids=str,
)
def test_what_is_damaged_in_a_finished_run_is_made_anew(done, table: Path, tmp_path: Path, name, content) -> None:
    folder = tmp_path / "run"
    shutil.copytree(done.out, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    said: list[str] = []
    again = name == "predictions.parquet"
    with pytest.warns(UserWarning, match="the checkpoint") if again else contextlib.nullcontext():
        outcome = run(done.experiment, folder, progress=False, on_note=said.append)
    assert any(name in note for note in said)
    assert outcome.test.after.accuracy == done.test.after.accuracy
    assert path.read_bytes() == before[name] or name.endswith(".json")
    assert (folder / "model.safetensors").read_bytes() == before["model.safetensors"]
    said.clear()
    run(done.experiment, folder, progress=False, on_note=said.append)
    assert said == [f"{folder} is finished: nothing to do"]


@pytest.mark.parametrize("content", [None, b"{", b'{"format": 1}'], ids=str)
def test_a_damaged_result_is_taken_from_the_checkpoint(done, tmp_path: Path, content: bytes | None) -> None:
    folder = tmp_path / "run"
    shutil.copytree(done.out, folder)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "result.json").unlink()
    if content is not None:
        (folder / "result.json").write_bytes(content)
    with pytest.warns(UserWarning, match="is incomplete") if content else contextlib.nullcontext():
        outcome = run(done.experiment, folder, progress=False)
    assert outcome.test.after.accuracy == done.test.after.accuracy
    assert outcome.history == done.history
    assert (folder / "model.safetensors").read_bytes() == weights
    assert Run(folder).result().fit["best"] == done.fit["best"]


def test_a_changed_record_of_the_model_is_restored(done, table: Path, tmp_path: Path) -> None:
    folder, said = tmp_path / "run", []
    shutil.copytree(done.out, folder)
    content = (folder / "model.json").read_bytes()
    record = json.loads(content)
    (folder / "model.json").write_text(json.dumps({**record, "temperature": 3.0}))
    with pytest.raises(ValueError, match="its checksum differs"):
        library.load(folder)
    run(done.experiment, folder, progress=False, on_note=said.append)
    assert "model.json is damaged: its checksum differs" in said[0]
    assert (folder / "model.json").read_bytes() == content
    assert library.load(folder).temperature == done.temperature


def test_damaged_metrics_of_simpler_models_are_measured_again(done, tmp_path: Path) -> None:
    shutil.copytree(done.out, tmp_path / "run")
    damaged = Run(tmp_path / "run")
    damaged.files.baselines.write_text('{"format": 1, "models": ')
    with pytest.warns(UserWarning, match=r"baselines\.json is damaged and ignored"):
        measure_baselines(damaged.result())
    assert set(damaged.baselines()) == set(ALWAYS)


USES = {
    "config.json": lambda run: run.network,
    "experiment.json": lambda run: run.bundle(),
    "splits.json": lambda run: run.task(),
    "mistakes.json": lambda run: (run.mistakes(), run.error_slices(), run.slices()),
    "predictions.parquet": lambda run: run.predictions("val"),
    "predictions-test.parquet": lambda run: run.predictions("test"),
    "metrics.jsonl": lambda run: run.result(),
    "evaluation.json": lambda run: run.is_multilabel,
    "result.json": lambda run: run.result(),
}


@pytest.mark.parametrize("name", USES)
def test_one_changed_digit_is_noticed_where_it_is_used_and_made_again(done, tmp_path: Path, name: str) -> None:
    """A digit leaves valid JSON, and a byte of Parquet's data leaves a file that is read: only a checksum differs."""
    folder = tmp_path / "run"
    shutil.copytree(done.out, folder)
    path, whole = folder / name, (folder / name).read_bytes()
    at = next(i for i in range(len(whole) // 3, len(whole)) if whole[i : i + 1].isdigit())
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for use in (USES[name], lambda run: run.result()):
        with pytest.raises(DamagedFileError, match=rf"{name} is damaged: its checksum differs; ") as error:
            use(Run(folder))
        assert (f"`{done.experiment.command(folder)}`" in str(error.value)) == (name != "experiment.json")
    if name == "metrics.jsonl":
        with pytest.raises(DamagedFileError, match="Only training writes it: remove"):
            run(done.experiment, folder, progress=False)
        return
    again = name in ("predictions.parquet", "result.json")
    with pytest.warns(UserWarning, match="the checkpoint") if again else contextlib.nullcontext():
        run(done.experiment, folder, progress=False)
    assert path.read_bytes() == whole or name in ("evaluation.json", "result.json")  # these have timings
    said: list[str] = []
    run(done.experiment, folder, progress=False, on_note=said.append)
    assert said == [f"{folder} is finished: nothing to do"]


def test_a_damaged_config_that_other_options_would_write_is_refused(tmp_path: Path) -> None:
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    data = torch.utils.data.TensorDataset(x, y)
    settings = FitConfig(epochs=1)
    fit(torch.nn.Linear(3, 2), ERM(), data, out=tmp_path / "run", config=settings, progress=False)
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(DamagedFileError, match="these options do not give it again"):
        fit(torch.nn.Linear(3, 2), ERM(), data, out=tmp_path / "run", config=FitConfig(epochs=2), progress=False)
    fit(torch.nn.Linear(3, 2), ERM(), data, out=tmp_path / "run", config=settings, progress=False)
    assert (tmp_path / "run" / "config.json").exists()


def test_weights_that_are_gone_are_noticed(table: Path, tmp_path: Path) -> None:
    out, notes = tmp_path / "run", []
    wanted = run(_experiment(table), out, progress=False)
    content = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(content[:50])
    with pytest.raises(ValueError, match="its checksum differs; start the run again"):
        library.load(out)
    with pytest.warns(UserWarning, match="taken from the checkpoint again"):
        again = run(_experiment(table), out, progress=False, on_note=notes.append)
    assert "their checksum differs; the run resumes" in notes[0]
    assert (out / "model.safetensors").read_bytes() == content
    assert wanted is not None
    assert again is not None
    assert again.to_dict()["sets"] == wanted.to_dict()["sets"]


def test_a_folder_of_something_else_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ValueError, match=r"holds 'photo.jpg' but no config.json: it is not a run"):
        run(Experiment(source="nowhere.csv"), tmp_path, progress=False)


# Mistakes


def test_a_link_that_leads_nowhere_is_refused_before_any_work(table: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=r"out='.*link' is a link to 'nowhere', which is not there: create it"):
        run(_experiment(table), tmp_path / "link", progress=False)
    assert not (tmp_path / "nowhere").exists()


def test_the_most_confident_mistakes_come_first() -> None:
    task = library.data.load("digits")
    split, n = task.test, len(task.test)
    probs = torch.rand((n, 10), generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    found = confident_mistakes(split, probs, task.classes, n=7, of_each=0)
    confidence, predicted = probs.max(dim=1)
    wrong = [i for i in range(n) if predicted[i] != split.labels[i]]
    worst = sorted(wrong, key=lambda i: -confidence[i].item())[:7]
    assert [entry["index"] for entry in found] == [split.indices[i] for i in worst]
    assert [entry["confidence"] for entry in found] == [confidence[i].item() for i in worst]
    assert found[0]["picture"].startswith("data:image/png;base64,")
    json.dumps(found, allow_nan=False)
    some = confident_mistakes(split, probs, task.classes, n=7, of_each=2)
    assert [entry["confidence"] for entry in some] == sorted((e["confidence"] for e in some), reverse=True)
    assert {e["index"] for e in found} < {e["index"] for e in some}
    for what in ("label", "prediction"):
        counts = [sum(entry[what] == name for entry in some) for name in task.classes]
        assert min(counts) >= 2
    assert len(confident_mistakes(split, probs, task.classes, of_each=20)) == 60


def test_what_is_shown_of_a_sample(tmp_path: Path) -> None:
    make.people(40).to_csv(tmp_path / "people.csv", index=False)
    row = shown(library.data.load(str(tmp_path / "people.csv"), target="kind").train, 0)["row"]
    assert {"age", "height cm", "colour"} <= set(row)
    frame = make.reviews(30)
    frame["review"] = frame["review"] + " and so on" * 100
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    task = library.data.load(str(tmp_path / "reviews.csv"), library.data.TextOptions(tokenizer="words"), target="mood")
    (text,) = shown(task.train, 0)["text"]
    assert len(text) == 601
    assert text.endswith("…")
    make.sound_folder(tmp_path / "sounds")
    seen = shown(library.data.load(str(tmp_path / "sounds"), library.data.SplitOptions(val=0.2, test=0.2)).train, 0)
    assert seen["picture"].startswith("data:image/png")
    assert seen["origin"].endswith((".wav", ".flac"))


# What is usual


def test_what_is_given_takes_its_companions_along() -> None:
    config = default_config("audio", "lenet", {"schedule": "cosine"}, seed=1)
    assert (config.schedule, config.milestones, config.seed) == ("cosine", (), 1)
    config = default_config("image", "resnet18", {"optimizer": "adamw"}, seed=0)
    assert (config.lr, config.nesterov) == (1e-3, False)
    config = default_config("image", "resnet18", {"optimizer": "sgd"}, seed=0)
    assert (config.lr, config.nesterov) == (0.1, True)
    config = default_config("text", "minilm", {"warmup_steps": 3}, seed=0)
    assert (config.warmup_epochs, config.warmup_steps) == (0, 3)
    config = default_config("image", "resnet18", {"milestones": [5.0]}, seed=0)
    assert config.schedule == "milestones"
    assert default_config("tabular", "mlp", {}, seed=0).patience == 10
    assert default_config("tabular", "mlp", {}, seed=0, validated=False).patience is None


def test_texts_are_mixed_at_their_embeddings() -> None:
    found = mixed_at_embeddings(parse("Warmup(LogitMix(Mixup(alpha=0.3, label_smoothing=0.1), weight=0.5), epochs=2)"))
    mixed = "SequenceMixup.input(alpha=0.3, label_smoothing=0.1)"
    assert found == parse(f"Warmup(LogitMix({mixed}, weight=0.5), epochs=2)")
    for same in ("ERM()", "SequenceMixup.cls(alpha=0.2)", "ManifoldMixup(alpha=2.0, layers=('x',))"):
        assert mixed_at_embeddings(parse(same)) == parse(same)
    with pytest.raises(ValueError, match="labels='nearest'"):
        mixed_at_embeddings(parse("Mixup(alpha=0.2, labels='nearest')"))


def test_outcomes_are_records(done: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.temperature = 2.0
    json.dumps(done.to_dict(), allow_nan=False)


def test_the_rate_of_rows_goes_by_their_number() -> None:
    """Large batches take a higher rate that falls to zero; what is given counts first."""

    def config(n: int, validated: bool = True, **given: object) -> FitConfig:
        return default_config("tabular", "two-view-mlp", given, seed=0, n_train=n, validated=validated)

    few, many = config(14_000), config(15_000)
    assert (few.batch_size, few.lr, few.schedule, few.epochs) == (256, 1e-3, "constant", 120)
    assert (many.batch_size, many.lr, many.schedule, many.epochs) == (512, 6e-3, "cosine", 60)
    assert (many.eval_every * many.patience, few.eval_every * few.patience) == (12, 20)
    assert config(10**7).lr == 6e-3
    assert (config(15_000, lr=1e-4, epochs=5).lr, config(15_000, lr=1e-4, epochs=5).epochs) == (1e-4, 5)
    assert (config(15_000, validated=False).lr, config(15_000, validated=False).schedule) == (1e-3, "constant")


def test_the_usual_network_of_few_images_is_narrow(tmp_path: Path) -> None:
    """And has a normalisation before its head, without which it may not learn; named, it is as published."""
    small = Experiment(
        source="digits", training={"epochs": 1, "trackers": []}, data={"train_size": 40, "max_held_out": 20}
    )
    outcome = run(small, tmp_path / "usual", progress=False)
    assert outcome is not None
    options = outcome.facts["network"]["options"]
    assert (options["final_norm"], options["width"]) == (True, 16)
    named = dataclasses.replace(small, model="preactresnet18", model_options={"width": 4})
    outcome = run(named, tmp_path / "named", progress=False)
    assert outcome is not None
    options = outcome.facts["network"]["options"]
    assert (options["final_norm"], options["width"]) == (False, 4)
    assert default_options("preactresnet18", 50_000) == {"final_norm": True}
    assert default_options("resnet18", 100) == {}


def test_few_images_and_texts_are_trained_for_enough_steps() -> None:
    """Smaller batches of images, at a rate in proportion, and more epochs of texts; what is given counts first."""

    def images(n: int, **given: object) -> tuple[int, float]:
        config = default_config("image", "resnet18", given, seed=0, n_train=n)
        return config.batch_size, config.lr

    assert images(40) == (16, 0.0125)
    assert images(400) == (50, pytest.approx(0.1 * 50 / 128))
    assert images(1024) == images(50_000) == (128, 0.1)
    assert images(40, lr=0.2) == (128, 0.2)
    assert images(40, batch_size=7) == (7, 0.1)
    tuned = default_config("image", "resnet18", {}, seed=0, n_train=512, pretrained=True)
    assert (tuned.batch_size, tuned.lr) == (64, 0.005)

    def epochs(n: int, validated: bool = True, **given: object) -> int:
        return default_config("text", "minilm", given, seed=0, n_train=n, validated=validated).epochs

    assert [epochs(n) for n in (50, 420, 1000, 5000)] == [15, 11, 5, 4]
    assert epochs(50, validated=False) == 4  # nothing would tell when it is enough
    assert (epochs(50, epochs=2), epochs(50, batch_size=8)) == (2, 4)


def test_sounds_have_a_small_network_on_mel_bands_and_lenet_the_papers_spectrogram(tmp_path: Path) -> None:
    folder = make.sound_folder(tmp_path / "sounds", n=8)
    usual = Experiment(source=str(folder), data={"seconds": 0.3}, training={"steps": 1, "trackers": []})
    outcome = run(usual, tmp_path / "usual", progress=False)
    assert outcome is not None
    assert outcome.facts["network"]["name"] == "soundresnet"
    assert outcome.facts["weights"] < 1_000_000
    assert tuple(outcome.run.task().spec["input_shape"]) == (1, 64, 31)
    lenet = dataclasses.replace(usual, model="lenet", model_options={"hidden": 8})
    outcome = run(lenet, tmp_path / "lenet", progress=False)
    assert outcome is not None
    assert tuple(outcome.run.task().spec["input_shape"]) == (1, 160, 31)


def test_small_folders_of_sounds_have_enough_steps() -> None:
    sizes = {n: default_config("audio", "soundresnet", {}, seed=0, n_train=n).batch_size for n in (60, 448, 5000)}
    assert sizes == {60: 16, 448: 22, 5000: 100}
    assert default_config("audio", "lenet", {}, seed=0, n_train=60).batch_size == 100
    assert default_config("audio", "soundresnet", {"batch_size": 7}, seed=0, n_train=60).batch_size == 7
