"""Evaluating, calibrating, comparing, auditing, exporting."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import vicinal as library
from tests.cli.running import TINY, refused, started, text_of, vicinal
from tests.data import make
from vicinal.metrics import evaluate, evaluate_binary
from vicinal.training import read_predictions


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Overconfident predictions: to fit on, and to repair."""
    rng = np.random.default_rng(0)

    def write(name: str, n: int) -> Path:
        logits = rng.normal(size=(n, 3)) * 2
        probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = [rng.choice(["a", "b", "c"], p=row) for row in probs]
        sharp = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
        frame = pd.DataFrame(sharp, columns=["prob_a", "prob_b", "prob_c"]).assign(label=labels)
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return write("validation.csv", 800), write("test.csv", 600)


def test_a_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = vicinal("evaluate", files[1], "--bins", 10, "--json").events("result")[0]
    frame = pd.read_csv(files[1])
    probs = frame[["prob_a", "prob_b", "prob_c"]].to_numpy()
    wanted = evaluate(frame["label"].map({"a": 0, "b": 1, "c": 2}).to_numpy(), probs=probs, n_bins=10)
    assert result["n_bins"] == 10
    for name in ("accuracy", "ece", "nll"):
        assert result[name]["value"] == pytest.approx(getattr(wanted, name).value)
    said = vicinal("evaluate", files[1], "--report", tmp_path / "report.html").out
    assert "15 bins" in said
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert f"vicinal evaluate {files[1]} --report {tmp_path / 'report.html'}" in text_of(tmp_path / "report.html")


def test_a_report_says_how_to_make_it_again(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("y;my cat;dog\ncat;80;20\n;1;99\n")
    words = ["--label", "y", "--kind", "probs", "--columns", "my cat", "--columns", "dog", "--missing", "drop"]
    words += ["--classes", "cat", "--classes", "dog", "--normalise"]
    vicinal("evaluate", tmp_path / "p.csv", *words, "--report", tmp_path / "r.html")
    command = next(line for line in text_of(tmp_path / "r.html").splitlines() if "vicinal evaluate" in line)
    again = shlex.split(command)
    (tmp_path / "r.html").unlink()
    assert "1 of 2 rows are left out" in vicinal(*again[1:]).out
    assert (tmp_path / "r.html").exists()


def test_slices_of_a_file_and_of_a_run(files: tuple[Path, Path], trained: Path, table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(files[1]).assign(sex=["f", "m"] * 300)
    frame.to_csv(tmp_path / "p.csv", index=False)
    result = vicinal("evaluate", tmp_path / "p.csv", "--report", tmp_path / "p.html", "--json").events("result")[0]
    assert {one["name"] for one in result["slices"]} == {"sex is 'f'", "sex is 'm'"}
    assert "Which parts of the data are worse?" in text_of(tmp_path / "p.html")
    assert "sex is 'f'" in vicinal("evaluate", tmp_path / "p.csv", "--slice", "sex").out
    assert "--slice must be one of 'sex', got 'age'" in refused("evaluate", tmp_path / "p.csv", "--slice", "age")
    # The same command again finds a finished run, and slices it by the column that is named now.
    words = ["train", table, "--target", "kind", "--out", trained, *TINY, "--slice", "colour"]
    again = vicinal(*words, "--report", tmp_path / "r.html", "--json").events("result")[0]
    assert {one["name"].partition(" ")[0] for one in again["slices"]} == {"colour"}
    assert "--slice colour --report" in text_of(tmp_path / "r.html")


def test_a_reader_that_has_enough(files: tuple[Path, Path]) -> None:
    """`vicinal evaluate … | head -1` is no mistake, so there is nothing to say."""
    process = started("evaluate", files[0], "--json", cwd=files[0].parent)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(300)
    process.stderr.close()


def test_a_report_replaces_nothing_but_a_page(files: tuple[Path, Path]) -> None:
    before = files[0].read_bytes()
    assert "--report must end in .html" in refused("evaluate", files[0], "--report", files[0])
    assert files[0].read_bytes() == before
    assert "is not a folder" in refused("evaluate", files[0], "--report", files[0] / "r.html")


def test_what_a_file_may_lack(files: tuple[Path, Path], table: Path, trained: Path) -> None:
    frame = pd.read_csv(files[1])
    frame.drop(columns="label").to_csv(files[1], index=False)
    assert "Name it with --label" in refused("evaluate", files[1])
    frame.rename(columns={"label": "truth"}).to_csv(files[1], index=False)
    assert "--label label is no column" in refused("evaluate", files[1], "--label", "label")
    vicinal("evaluate", files[1], "--label", "truth")
    assert "--columns" in refused("evaluate", table, "--label", "kind")
    assert "--bins must be an integer of at least 1" in refused("evaluate", files[0], "--bins", 0)
    assert "--ood needs a run's folder" in refused("evaluate", files[0], "--ood", "noise")
    assert "--ood-score needs a run's folder" in refused("evaluate", files[0], "--ood-score", "entropy")
    for option in (["--label", "x"], ["--normalise"], ["--missing", "drop"]):
        assert f"{option[0]} is for a predictions file" in refused("evaluate", trained, *option)
    assert "there is no file" in refused("evaluate", files[0].with_name("nothing.csv"))
    empty = files[0].parent / "empty"
    empty.mkdir()
    assert "it has no evaluation.json" in refused("evaluate", empty)


def test_a_run(trained: Path, tmp_path: Path) -> None:
    logits, labels = read_predictions(trained / "predictions-test.parquet")
    temperature = library.load(trained).temperature
    for bins in (15, 4):
        result = vicinal("evaluate", trained, "--bins", bins, "--json").events("result")[0]
        wanted = evaluate(labels, logits=logits.double() / temperature, n_bins=bins)
        assert result["sets"]["test"]["after"]["ece"]["value"] == pytest.approx(wanted.ece.value)
    assert "ECE (4 bins)" in vicinal("evaluate", trained, "--bins", 4, "--report", tmp_path / "r.html").out
    assert (tmp_path / "r.html").exists()


def test_a_run_without_its_config_is_no_folder_of_predictions(trained: Path, table: Path, tmp_path: Path) -> None:
    """Its predictions are tables, which would be measured as one file."""
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    assert "config.json is gone" in refused("evaluate", tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    assert "model.safetensors is gone; start the run again" in refused("evaluate", tmp_path / "run", table)


def test_a_run_of_two_classes_says_how_it_ranks(trained: Path) -> None:
    logits, labels = read_predictions(trained / "predictions-test.parquet")
    positive = (logits.double() / library.load(trained).temperature).softmax(dim=1)[:, 1]
    ranked = evaluate_binary(labels, positive)
    said = vicinal("evaluate", trained).out
    for name, metric in (("AUROC", ranked.auroc), ("AP", ranked.average_precision)):
        assert f"{name} {100 * metric.value:.1f} %" in said
    assert "P('b') on the test set, calibrated: AUROC" in said


def test_a_run_on_new_data(trained: Path, table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table).iloc[:40]
    frame.loc[3, "kind"] = "stranger"
    new = tmp_path / "new.csv"
    frame.to_csv(new, index=False)
    ran = vicinal("evaluate", trained, new, "--bins", 7, "--json")
    result = ran.events("result")[0]
    bundle, known = library.load(trained), frame.drop(index=3)
    numbers = [bundle.classes.index(name) for name in known["kind"]]
    wanted = evaluate(numbers, probs=bundle.predict_proba(known), n_bins=7)
    for metric in ("accuracy", "nll", "ece"):
        assert result["after"][metric]["value"] == pytest.approx(wanted.metrics[metric].value, rel=1e-6)
    assert result["notes"][0] == "left out: 1 samples of 'stranger', which the model does not know"
    assert "of these 39 samples were trained on" in result["notes"][1]
    assert "ECE (7 bins)" in vicinal("evaluate", trained, new, "--bins", 7).out
    assert "--mc-dropout is for the run's own test set: leave DATA out" in refused(
        "evaluate", trained, new, "--mc-dropout", 2
    )
    assert "--label is for a predictions file" in refused("evaluate", trained, new, "--label", "kind")
    assert "with --keep LABELS" in refused("evaluate", trained, new, "--report", tmp_path / "page.html")


def test_a_run_on_its_own_data_is_said_to_know_them(trained: Path, table: Path, tmp_path: Path) -> None:
    splits = json.loads((trained / "splits.json").read_text())
    n = sum(len(splits[part]) for part in ("train", "val", "test"))
    said = vicinal("evaluate", trained, table)
    assert f"{len(splits['train'])} of these {n} samples were trained on" in said.out + said.err
    # A part of them in another file, in another order and beside new rows, is recognised by its content.
    frame, other = pd.read_csv(table), make.people(20).assign(age=lambda frame: frame["age"] + 0.5)
    some = splits["train"][7:1:-1]
    pd.concat([other, frame.iloc[some]]).to_csv(tmp_path / "part.csv", index=False)
    notes = vicinal("evaluate", trained, tmp_path / "part.csv", "--json").events("result")[0]["notes"]
    assert any(f"{len(some)} of these {20 + len(some)} samples were trained on" in note for note in notes)


def test_other_data_and_noise(trained: Path, pictures: Path, table: Path, tmp_path: Path) -> None:
    far = make.people(50).assign(age=9999)
    far.drop(columns="kind").to_csv(tmp_path / "far.csv", index=False)
    result = vicinal("evaluate", trained, "--ood", tmp_path / "far.csv", "--ood", "noise", "--json").events("result")[0]
    # Without the temperature and with it.
    assert [entry["data"] for entry in result["ood"]] == [str(tmp_path / "far.csv")] * 2 + ["noise"] * 2
    assert len({entry["how"] for entry in result["ood"]}) == 2
    ran = vicinal("evaluate", pictures, "--ood", "noise", "--ood-score", "energy")
    assert "telling the test set from other data, by energy" in ran.out
    assert "AUROC" in ran.out
    said = refused("evaluate", trained, "--ood", "noise", "--ood-score", "size")
    assert "--ood-score must be one of 'max_probability'" in said


def test_attacks(pictures: Path, trained: Path, tmp_path: Path) -> None:
    words = ["evaluate", pictures, "--attack", "fgsm:8/255", "--attack", "ifgsm:8/255:3"]
    ran = vicinal(*words, "--report", tmp_path / "report.html")
    assert "errors on attacked test images (white box)" in ran.out
    assert "ifgsm:8/255:3" in ran.out
    attacks = vicinal(*words, "--attack-from", pictures, "--json").events("result")[0]["attacks"]
    assert len(attacks) == 2
    assert "there is no attack 'fgm'; did you mean 'fgsm'" in refused("evaluate", pictures, "--attack", "fgm:1/255")
    assert "attacks need inputs in a valid range" in refused("evaluate", trained, "--attack", "fgsm:1/255")
    assert "takes other inputs" in refused(*words, "--attack-from", trained)


def test_data_that_have_changed(tmp_path: Path) -> None:
    make.people(40).to_csv(tmp_path / "data.csv", index=False)
    vicinal("train", tmp_path / "data.csv", "--target", "kind", "--out", tmp_path / "run", *TINY)
    make.people(41).to_csv(tmp_path / "data.csv", index=False)
    assert "has changed since" in refused("evaluate", tmp_path / "run", "--ood", "noise")
    (tmp_path / "data.csv").unlink()
    assert "was trained on it: work in the folder in which" in refused("audit", tmp_path / "run")
    assert "validation" in vicinal("evaluate", tmp_path / "run").out  # needs no data


@pytest.mark.parametrize("calibrator", ["temperature", "vector", "isotonic", "histogram"])
def test_calibrate(calibrator: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "repaired.csv"
    words = ["calibrate", *files, "--out", out, "--calibrator", calibrator, "--save", tmp_path / "calibrator.json"]
    result = vicinal(*words, "--json").events("result")[0]
    assert (result["fitted_on"], result["rows"]) == (800, 600)
    errors = [
        vicinal("evaluate", path, "--label", "label", "--json").events("result")[0]["ece"]["value"]
        for path in (files[1], out)
    ]
    assert errors[1] < errors[0] / 2
    assert json.loads((tmp_path / "calibrator.json").read_text())["learned"]
    if calibrator == "temperature":
        assert result["temperature"] == pytest.approx(3, rel=0.15)
        assert "temperature: " in vicinal(*words).out


def test_a_calibrator_that_is_not_applied_has_no_temperature(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    probs = rng.uniform(size=60).round(3)
    frame = pd.DataFrame({"y_true": (rng.uniform(size=60) < probs).astype(int), "y_prob": probs})
    frame.to_csv(tmp_path / "val.csv", index=False)
    words = ["calibrate", tmp_path / "val.csv", tmp_path / "val.csv", "--out", tmp_path / "out.csv"]
    said = vicinal(*words, "--calibrator", "histogram").out
    assert "is not applied" in said
    assert "temperature" not in said


def test_calibrate_mistakes(files: tuple[Path, Path], table: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "x.csv"]
    said = refused("calibrate", *files, *out, "--calibrator", "platt")
    assert "--calibrator must be one of 'auto', 'temperature'" in said
    assert "must end in one of" in refused("calibrate", *files, "--out", tmp_path / "x.doc")
    assert "there is no file" in refused("calibrate", tmp_path / "nothing.csv", files[1], *out)
    assert "--save must be a file to write" in refused("calibrate", *files, *out, "--save", tmp_path)
    assert not (tmp_path / "x.csv").exists()
    assert "is an input of this command, which would be lost" in refused("calibrate", *files, "--out", files[0])
    vicinal("calibrate", *files, *out, "--save", tmp_path / "new" / "calibrator.json")
    assert (tmp_path / "new" / "calibrator.json").exists()


def test_audit(trained: Path, table: Path, tmp_path: Path) -> None:
    assert "--top must be an integer of at least 1, got 0" in refused("audit", trained, "--top", 0)
    assert not (trained / "audit").exists()  # known before any training
    assert "--by must be one of" in refused("audit", trained, "--by", "margin")
    assert "--out needs --by cross-validation" in refused("audit", trained, "--by", "aum", "--out", tmp_path / "s.csv")
    rows = pd.read_csv(table)
    out = tmp_path / "suspects.csv"
    ran = vicinal("audit", trained, "--folds", 2, "--out", out, "--report", tmp_path / "report.html")
    assert "training 1 of 2: without" in ran.out
    splits = json.loads((trained / "splits.json").read_text())
    n = sum(len(splits[part]) for part in ("train", "val", "test"))
    assert f"of {n} labels" in ran.out or f"among {n} labels" in ran.out
    result = vicinal("audit", trained, "--folds", 2, "--top", 5, "--json").events("result")[0]
    assert result["n"] == n
    assert 0 <= result["false_alarms"]["value"] <= result["candidates"]
    assert 0 <= result["noise"]["low"] <= result["noise"]["value"] <= result["noise"]["high"]
    # Candidates are listed in any case; they are claimed to be wrong, all or none.
    assert result["suspicious"] in (0, result["candidates"])
    assert len(result["samples"]) == min(5, result["candidates"])
    assert all(s["candidate"] and s["suspicious"] == (result["suspicious"] > 0) for s in result["samples"])
    assert ("No label noise beyond class overlap is significant" in ran.out) == (result["suspicious"] == 0)
    assert out.exists() == (result["candidates"] > 0)
    if out.exists():
        suspects = pd.read_csv(out)
        assert len(suspects) == result["candidates"]
        assert suspects["label"].tolist() == rows["kind"][suspects["index"]].tolist()
        assert (suspects["prediction"] != suspects["label"]).all()
        assert suspects["reason"].str.contains("a model that did not see it").all()


def test_audit_by_margins(trained: Path, table: Path, tmp_path: Path) -> None:
    ran = vicinal("audit", trained, "--by", "aum", "--top", 3, "--report", tmp_path / "report.html")
    assert "training 1 of 2" in ran.out
    n = len(json.loads((trained / "splits.json").read_text())["train"])
    assert f"of {n} samples" in ran.out
    result = vicinal("audit", trained, "--by", "aum", "--top", 5, "--json").events("result")[0]
    assert [len(result["samples"]), result["n"]] == [5, n]
    rows = pd.read_csv(table)
    for sample in result["samples"]:
        assert sample["label"] == rows["kind"][sample["index"]]
        assert float(sample["row"]["age"]) == rows["age"][sample["index"]]
    assert "is not a run of vicinal" in refused("audit", tmp_path)


def test_export(trained: Path, tmp_path: Path) -> None:
    said = vicinal("export", trained, "--out", tmp_path / "model.onnx").out
    assert "run by onnxruntime" in said
    assert (tmp_path / "model.onnx").exists()
    assert "there is no folder" in refused("export", trained, "--out", tmp_path / "nowhere" / "model.onnx")


def test_compare(table: Path, tmp_path: Path) -> None:
    words = ["compare", table, "--target", "kind", "--out", tmp_path / "runs", "--workers", 1, "--seeds", 2, *TINY]
    said = refused(*words, "--method", "ERM()")
    assert "name at least two methods, models, runs or files: --method 'ERM()' --method 'Mixup(alpha=0.2)'" in said
    two = ["--method", "ERM()", "--method", "Mixup(alpha=1.0)"]
    result = vicinal(*words, *two, "--json").events("result")[0]
    assert Path(result["report"]).exists()
    assert "Differences to `ERM()`" in result["markdown"]
    for seeds in (0, 10**12, "9" * 30):
        assert f"--seeds must be an integer from 1 to 10,000, got {seeds}" in refused(*words, *two, "--seeds", seeds)
    chosen = vicinal(*words, *two, "--choose", "ece", "--json").events("result")[0]  # finished runs are read
    assert chosen["chosen"] in two
    assert f"Chosen by ECE (15 bins) of the validation set: `{chosen['chosen']}`" in chosen["markdown"]
    assert chosen["chosen"] in Path(result["report"]).read_text(encoding="utf-8")
    assert "--choose must be one of 'accuracy'" in refused(*words, *two, "--choose", "loss")
    said = vicinal(*words, *two, "--parts").out
    assert "refinement less the first's" in said
    assert "Calibration and refinement" in Path(result["report"]).read_text(encoding="utf-8")
    # One method that cannot work: the others are reported, and the end is a failure.
    ran = vicinal(*words, *two, "--method", "CutMix(alpha=1.0)", code=1)
    assert "CutMix needs images" in ran.out
    assert "`Mixup(alpha=1.0)`" in ran.out
    assert "ERM(), seed 0, calibrated" in ran.out  # which of the runs stands beside baselines
    assert ran.err == ""


def test_compare_takes_models_runs_and_predictions(trained: Path, table: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    vicinal("predict", trained, table, "--keep", "kind", "--out", file)
    words = ["compare", table, "--target", "kind", "--out", tmp_path / "runs", "--seeds", 1, "--workers", 1, *TINY]
    beside = ["--run", trained, "--predictions", file]
    ran = vicinal(*words, "--model", "mlp", *beside, "--json").events("result")[0]
    assert ran["methods"] == ["ERM()", str(trained), str(file)]
    # All rows of the data are in the file, of which those of the test set are compared: the run's own answers.
    last = ran["after"][2]["difference"]["nll"]
    run = vicinal("compare", *beside, "--out", tmp_path / "two", "--json").events("result")[0]
    assert abs(run["after"][1]["difference"]["nll"]["value"]) < 1e-5
    assert last["low"] < last["value"] < last["high"]
    page = text_of(tmp_path / "runs" / "report.html")
    assert f"--predictions {file}" in page
    assert "Lowest NLL after calibration:" in page
    assert ran["verdict"].startswith("Lowest NLL after calibration: `")
    heads = [line for line in ran["markdown"].splitlines() if line.startswith("| method")]
    assert heads[0].endswith("| training |")
    frame = pd.read_csv(file)
    frame.assign(kind=frame["kind"].sample(frac=1, random_state=0).to_numpy()).to_csv(file, index=False)
    assert "other labels than the test samples of" in refused("compare", *beside, "--out", tmp_path / "three")
    frame[:30].to_csv(file, index=False)
    assert "has 30 rows, and it needs those of the" in refused("compare", *beside, "--out", tmp_path / "three")
    frame.drop(columns="kind").to_csv(file, index=False)
    assert "needs a column of labels" in refused("compare", *beside, "--out", tmp_path / "three")


def test_options_that_a_model_does_not_take_are_refused_before_training(table: Path, tmp_path: Path) -> None:
    words = ["compare", table, "--target", "kind", "--model", "mlp,hgb", "--epochs", 1, "--out", tmp_path / "runs"]
    assert "--epochs is for networks" in refused(*words)
    assert not (tmp_path / "runs").exists()


def test_prediction_files_alone_are_compared(files: tuple[Path, Path], tmp_path: Path) -> None:
    frame = pd.read_csv(files[1])
    columns = ["prob_a", "prob_b", "prob_c"]
    calm = frame[columns] ** (1 / 3)
    frame.assign(**calm.div(calm.sum(axis=1), axis=0)).to_csv(tmp_path / "calm.csv", index=False)
    words = ["compare", "--predictions", files[1], "--predictions", tmp_path / "calm.csv", "--out", tmp_path / "runs"]
    ran = vicinal(*words).out
    assert f"Lowest NLL after calibration: `{tmp_path / 'calm.csv'}`. Significantly better than `{files[1]}`." in ran
    assert ran.count("| method ") == 2  # metrics and differences, once: nothing is calibrated
    page = text_of(tmp_path / "runs" / "report.html")
    assert "All runs are in" not in page
    assert "Each run by itself" not in page
    alone = vicinal("evaluate", tmp_path / "calm.csv").out
    assert alone.strip().splitlines()[-1] in ran


def test_a_comparison_does_not_advise_what_is_useless(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(600) < 0.4, "yes", "no")
    for name in ("one", "two"):
        p = np.clip(0.4 + 0.2 * rng.normal(size=600), 0.02, 0.98)
        pd.DataFrame({"label": labels, "prob_no": 1 - p, "prob_yes": p}).to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["--predictions", tmp_path / "one.csv", "--predictions", tmp_path / "two.csv", "--out", tmp_path / "runs"]
    ran = vicinal("compare", *words, "--json").events("result")[0]
    assert "Next step: Do not use it." in ran["verdict"]
    assert "Do not use it." in text_of(tmp_path / "runs" / "report.html")
    assert "Do not use it." in vicinal("evaluate", tmp_path / "one.csv").out


def test_words_for_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a narrow terminal an interval stands below its metric, never broken in two."""
    from vicinal.cli.console import Console

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    row = ["validation, calibrated", "1,000", "66.7 % (35.4–87.9)", *["0.183 (0.000–0.330)"] * 3]
    Console(as_json=False).table("", ["", "n", "accuracy", "ECE (15 bins)", "OE", "NLL"], [row])
    shown = capsys.readouterr().out
    assert shown.count("(0.000–0.330)") == 3
    assert max(map(len, shown.splitlines())) <= 80


def test_a_probability_is_what_the_model_says(trained: Path, table: Path) -> None:
    bundle = library.load(trained)
    probs = bundle.predict_proba(table)
    again = torch.softmax(bundle.logits(table).double() / bundle.temperature, dim=1)
    np.testing.assert_allclose(probs, again.numpy())


def test_a_folder_and_a_pattern_of_shards(files: tuple[Path, Path], tmp_path: Path) -> None:
    frame = pd.read_csv(files[1])
    folder = tmp_path / "shards"
    folder.mkdir()
    for k in range(3):
        frame[k::3].to_csv(folder / f"part-{k}.csv", index=False)
    first, again, whole = (
        json.loads(vicinal("evaluate", what, "--json").out.splitlines()[-1])
        for what in (folder, folder / "*.csv", files[1])
    )
    assert first["n"] == again["n"] == whole["n"] == len(frame)
    assert first["ece"] == again["ece"]
    assert first["accuracy"] == whole["accuracy"]
    vicinal("calibrate", files[0], folder, "--out", tmp_path / "repaired.csv")
    assert len(pd.read_csv(tmp_path / "repaired.csv")) == len(frame)
