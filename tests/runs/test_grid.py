"""Grids of experiments: what is skipped, what survives, and that the table is the same wherever cells ran."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.backend import context
from scipy import stats

from vicinal._memory import max_memory
from vicinal._portable import VARIABLES, is_asked
from vicinal.experiment import folder_name
from vicinal.metrics import Estimate, compare
from vicinal.metrics.intervals import over_seeds
from vicinal.report.verdicts import judge_comparison, judge_run
from vicinal.runs import Experiment, GridResult, Run, run_grid
from vicinal.runs import scheduler as jobs_module
from vicinal.runs.grid import _rooted
from vicinal.runs.scheduler import Pool, run_jobs
from vicinal.training.folder import locked

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'vicinal[scale]'"
)
METHODS = ["ERM()", "Mixup(alpha=0.2)"]
SEEDS = [0, 1]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(5)])
    frame["y"] = np.where(x[:, 0] + rng.normal(size=300) > 0, "yes", "no")
    path = tmp_path_factory.mktemp("data") / "coins.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def base(source) -> Experiment:
    return Experiment(
        source=str(source), data={"target": "y"}, training={"epochs": 4, "checkpoint_minutes": 0, "patience": 4}
    )


@pytest.fixture(scope="module")
def reference(base, tmp_path_factory) -> GridResult:
    """The grid, undisturbed."""
    result = run_grid(base, METHODS, SEEDS, tmp_path_factory.mktemp("grid"), progress=False)
    assert result.failures == {}
    return result


@pytest.fixture
def copy(reference, tmp_path) -> Path:
    """The folder of a finished grid."""
    return Path(shutil.copytree(reference.out, tmp_path / "copy"))


def stamps(out: Path) -> dict[str, int]:
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in out.rglob("*.json") if path.parent != out}


def same(a: GridResult, b: GridResult) -> bool:
    """Whether the metrics are equal to the last digit."""
    assert a.results.keys() == b.results.keys()
    logits = all(torch.equal(a.results[key].test.logits, b.results[key].test.logits) for key in a.results)
    return logits and all(a.rows(after=x) == b.rows(after=x) and a.table(after=x) == b.table(after=x) for x in (0, 1))


# What a grid is


def test_every_cell_is_a_run_of_its_own(reference, base):
    assert reference.methods == tuple(METHODS)
    assert list(reference.results) == [(method, seed) for seed in SEEDS for method in METHODS]
    for (method, seed), outcome in reference.results.items():
        assert outcome.experiment.method == method
        assert outcome.experiment.seed == seed
        assert outcome.out == reference.out / folder_name(outcome.experiment)
        assert outcome.fit["config"]["trackers"] == []
        assert outcome.fit["threads"] == 1
    logits = [outcome.test.logits for outcome in reference.results.values()]
    assert not any(torch.equal(a, b) for i, a in enumerate(logits) for b in logits[:i])


def test_threads_are_as_they_were(base, tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run_grid(base, ["ERM()"], [0], tmp_path, progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_finished_cells_are_skipped_and_failing_ones_do_not_stop_others(copy, base, reference):
    before, seen = stamps(copy), []
    result = run_grid(
        base,
        ["PuzzleMix()", *METHODS],
        [*SEEDS, 2],
        copy,
        progress=False,
        on_cell=lambda method, seed, outcome, error: seen.append((method, seed, outcome is not None, error)),
    )
    after = stamps(copy)
    assert {name: after[name] for name in before} == before
    assert set(result.results) == {(method, seed) for method in METHODS for seed in (0, 1, 2)}
    assert set(result.failures) == {("PuzzleMix()", seed) for seed in (0, 1, 2)}
    for seed in (0, 1, 2):
        error = result.failures["PuzzleMix()", seed]
        assert error.startswith("ValueError: PuzzleMix needs images")
        text = (copy / f"coins-PuzzleMix-seed{seed}" / "error.txt").read_text()
        assert text.startswith(error)
        assert "Traceback (most recent call last)" in text
    assert sorted(seen) == sorted(
        (method, seed, method in METHODS, result.failures.get((method, seed)))
        for method in result.methods
        for seed in result.seeds
    )
    # Nothing to compare with: the first method has no run.
    assert result.comparison("ERM()") is None
    rows = result.rows()
    assert rows[0] == {"method": "PuzzleMix()", "n_seeds": 0}
    assert [row["difference"] for row in rows[1:]] == [None, None]
    assert "3 of 9 cells failed" in result.table()
    json.dumps(result.to_dict(), allow_nan=False)
    # A part of what the folder holds, in other words: nothing runs.
    again = run_grid(base, ["ERM( )", "Mixup(alpha=0.20)"], SEEDS, copy, progress=False)
    assert stamps(copy) == after
    assert again.methods == ("ERM( )", "Mixup(alpha=0.20)")
    assert again.rows()[1]["nll"] == reference.rows()[1]["nll"]
    assert json.loads((copy / "grid.json").read_text())["methods"] == [*METHODS, "PuzzleMix()"]


def test_a_cell_that_failed_is_tried_again(copy, base, reference):
    cell = reference.results["ERM()", 0].out.name
    (copy / cell / "evaluation.json").unlink()
    (copy / cell / "error.txt").write_text("MemoryError: no\n\nTraceback …")
    splits = copy / cell / "splits.json"
    splits.unlink()
    splits.mkdir()  # it cannot be written now
    broken = run_grid(base, METHODS, SEEDS, copy, progress=False)
    assert list(broken.failures) == [("ERM()", 0)]
    assert "splits.json" in broken.failures["ERM()", 0]
    comparison = broken.comparison("Mixup(alpha=0.2)")
    assert comparison is not None
    assert comparison.n_seeds == 1  # the seed that both have
    assert [row["n_seeds"] for row in broken.rows()] == [1, 2]
    splits.rmdir()
    mended = run_grid(base, METHODS, SEEDS, copy, progress=False)
    assert mended.failures == {}
    assert not (copy / cell / "error.txt").exists()
    assert same(mended, reference)


def test_another_grid_in_the_folder_is_refused(copy, base, source):
    for other, message in (
        (dataclasses.replace(base, training={"epochs": 5}), r"training was .*'epochs': 4.* and is .*'epochs': 5"),
        (dataclasses.replace(base, corrupt=0.2), r"corrupt was 0\.0 and is 0\.2"),
    ):
        with pytest.raises(ValueError, match=message):
            run_grid(other, METHODS, SEEDS, copy)
    with pytest.raises(ValueError, match="threads was 1 and is 2"):
        run_grid(base, METHODS, SEEDS, copy, pool=Pool(threads=2, backend="ray"))
    with locked(copy), pytest.raises(RuntimeError, match="in use"):
        run_grid(base, METHODS, SEEDS, copy)


def test_a_grid_that_never_began_is_not_in_the_way(base, source, tmp_path):
    """A wrong target or learning rate fails in every cell; the mended call need not go elsewhere."""
    wrong = dataclasses.replace(base, data={"target": "nothing"})
    assert len(run_grid(wrong, ["ERM()"], [0], tmp_path / "g", progress=False).failures) == 1
    wild = dataclasses.replace(base, training={"lr": 1e30})
    assert "not finite" in run_grid(wild, ["ERM()"], [0], tmp_path / "g", progress=False).failures["ERM()", 0]
    quick = dataclasses.replace(base, training={"epochs": 1})
    assert run_grid(quick, ["ERM()"], [0], tmp_path / "g", progress=False).failures == {}
    with pytest.raises(ValueError, match="holds another comparison: training was"):
        run_grid(base, ["ERM()"], [0], tmp_path / "g", progress=False)
    with pytest.raises(ValueError, match="out must be a folder for the runs"):
        run_grid(base, ["ERM()"], [0], source, progress=False)


def test_data_that_changed_meanwhile_is_an_error(base, source, tmp_path):
    moved = shutil.copy(source, tmp_path / "coins.csv")
    base = dataclasses.replace(base, source=str(moved), training={"epochs": 1})
    run_grid(base, ["ERM()"], [0], tmp_path / "grid", progress=False)
    with open(moved, "a") as file:
        file.write("1,2,3,4,5,yes\n")
    with pytest.raises(ValueError, match=r"coins\.csv has changed: coins-ERM-seed0 and coins-ERM-seed1"):
        run_grid(base, ["ERM()"], [0, 1], tmp_path / "grid", progress=False)


def test_methods_of_one_folder_name_have_two_folders(base, tmp_path):
    long = "Warmup(Warmup(Warmup(Warmup(Mixup(alpha=0.2), epochs=1.0), epochs=1.0), epochs=1.0), epochs={})"
    methods = [long.format(1.0), long.format(2.0)]
    fast = dataclasses.replace(base, training={"steps": 1})
    result = run_grid(fast, methods, [0], tmp_path, progress=False)
    assert result.failures == {}
    folders = [outcome.out.name for outcome in result.results.values()]
    assert folders[1].startswith(folders[0] + "-")
    # Each stays where it is, whatever is asked for first.
    again = run_grid(fast, methods[::-1], [0], tmp_path, progress=False)
    assert [again.results[method, 0].out.name for method in methods] == folders


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": []}, "methods must be one or more expressions"),
        ({"methods": "ERM()"}, "methods must be one or more expressions"),
        ({"methods": ["ERM()", "ERM(label_smoothing=0)"]}, r"'ERM\(\)' and 'ERM\(label_smoothing=0\)' are both ERM"),
        ({"methods": ["Mixup(alhpa=1)"]}, "no parameter 'alhpa'"),
        ({"seeds": []}, "seeds must be one or more integers"),
        ({"seeds": [1, 1]}, r"seeds must be different from each other, got \[1, 1\]"),
        ({"seeds": [-1]}, "seeds must be an integer of at least 0"),
        ({"workers": 0}, "workers must be an integer from 1 to 1,024"),
        ({"workers": 100_000}, "workers must be an integer from 1 to 1,024, got 100000"),
        ({"workers": 1000, "threads": 2}, "workers × threads must be at most"),
        ({"threads": 0}, "threads must be an integer of at least 1"),
        ({"backend": "threading"}, "backend must be one of 'loky', 'ray', 'dask'"),
        ({"address": "auto"}, "address='auto' is that of a cluster: name the cluster's kind"),
        ({"backend": "dask", "workers": 1}, "workers must be at least 2 on a Dask cluster"),
        ({"gpus": 1}, "must be at most the 0 GPUs of this machine"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(base, tmp_path, change, message):
    arguments = {"methods": METHODS, "seeds": SEEDS}
    of_grid = {name: change[name] for name in arguments if name in change}
    of_pool = {name: value for name, value in change.items() if name not in of_grid}
    with pytest.raises(ValueError, match=message):
        run_grid(base, out=tmp_path / "grid", **{**arguments, **of_grid}, pool=Pool(**of_pool))
    assert not (tmp_path / "grid").exists()


class Unconnected:
    """A Ray that must not be asked to connect: it would try again for minutes."""

    def is_initialized(self):
        return False


@pytest.mark.parametrize("backend", ["ray", "dask"])
@pytest.mark.parametrize("protocol", ["", "tcp://"])
def test_an_address_where_no_cluster_is_is_refused_at_once_and_named(base, tmp_path, monkeypatch, backend, protocol):
    monkeypatch.setattr(jobs_module, "require", lambda *names: Unconnected())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with socket.socket() as bound:  # taken, but nobody listens
        bound.bind(("127.0.0.1", 0))
        address = f"{protocol}127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"address='{address}': no cluster answers there"):
            run_grid(base, METHODS, SEEDS, tmp_path / "grid", pool=Pool(backend=backend, address=address))
        if backend == "ray":
            monkeypatch.setenv("RAY_ADDRESS", address)  # it is what Ray takes for "auto"
            with pytest.raises(ConnectionError, match=f"address='{address}': no cluster answers"):
                run_grid(base, METHODS, SEEDS, tmp_path / "grid", pool=Pool(backend=backend, address="auto"))
    for wrong in ("nowhere", "host:port", "127.0.0.1:99999"):
        with pytest.raises(ValueError, match=f"address must be 'auto' or 'host:port', got '{wrong}'"):
            run_grid(base, METHODS, SEEDS, tmp_path / "grid", pool=Pool(backend=backend, address=wrong))
    assert not (tmp_path / "grid").exists()


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """Give the port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_addresses_that_only_the_cluster_knows_are_left_to_it(monkeypatch):
    monkeypatch.setattr(jobs_module, "require", lambda *names: Unconnected())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    services = SimpleNamespace(canonicalize_bootstrap_address=lambda address: None)
    monkeypatch.setitem(sys.modules, "ray._private.services", services)
    for address in (None, "local"):
        Pool(backend="ray", address=address).check_cluster()
    with listening() as port:
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            Pool(backend="ray", address=address).check_cluster()
        services.canonicalize_bootstrap_address = lambda address: f"127.0.0.1:{port}"
        Pool(backend="ray", address="auto").check_cluster()
    with pytest.raises(ConnectionError, match=f"'127.0.0.1:{port}': no cluster answers there"):  # it has gone
        Pool(backend="ray", address="auto").check_cluster()
    monkeypatch.setattr(Unconnected, "is_initialized", lambda ray: True)  # then the connection there is is used
    Pool(backend="ray", address="127.0.0.1:1").check_cluster()


@needs_ray
def test_the_cluster_of_this_machine_where_there_is_none_leaves_nothing(base, tmp_path, monkeypatch):
    from ray._private import services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(services, "find_gcs_addresses", set)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: None)
    with pytest.raises(ConnectionError, match="address='auto': no Ray cluster runs on this machine"):
        run_grid(base, METHODS, SEEDS, tmp_path / "grid", pool=Pool(backend="ray", address="auto"))
    assert not (tmp_path / "grid").exists()


def test_a_cluster_whose_library_is_missing_is_refused_before_anything_is_written(base, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for backend, message in (("dask", "backend='dask' needs .*pip install distributed"), ("ray", "ray, which is not")):
        with pytest.raises(ImportError, match=message):
            run_grid(base, METHODS, SEEDS, tmp_path / "grid", pool=Pool(backend=backend))
    assert not (tmp_path / "grid").exists()


def test_paths_become_absolute_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "here.csv", "checkpoint"):
        (tmp_path / name).mkdir()
    base = Experiment(
        source="here.csv", eval_data=("digits", "gone.csv"), model="hf:checkpoint", data={"data_root": "root"}
    )
    rooted = _rooted(base)
    assert rooted.source == str(tmp_path / "here.csv")
    assert [further.source for further in rooted.eval_sets] == ["digits", "gone.csv"]
    assert rooted.model == f"hf:{tmp_path / 'checkpoint'}"
    assert rooted.data == {"data_root": str(tmp_path / "root")}
    assert _rooted(dataclasses.replace(base, training={"trackers": ["wandb"]})).training == {"trackers": ["wandb"]}


# What it shows


def test_rows_are_means_and_paired_differences(reference):
    for after in (False, True):
        first, second = reference.rows(after=after)
        runs = {m: [reference.results[m, s].test for s in SEEDS] for m in METHODS}
        runs = {m: [s.after if after else s.before for s in tests] for m, tests in runs.items()}
        expected = compare(runs["ERM()"], runs["Mixup(alpha=0.2)"])
        assert first["difference"] is None
        for name in ("accuracy", "mcc", "nll", "brier", "ece", "oe", "rms"):
            value = np.mean([getattr(run, name).value for run in runs["Mixup(alpha=0.2)"]])
            assert second[name]["value"] == pytest.approx(value)
            assert second[name]["low"] <= value <= second[name]["high"]
            assert second["difference"][name]["value"] == expected[name].value
            assert second["difference"][name]["low"] == expected[name].low
            better = {"a": "ERM()", "b": "Mixup(alpha=0.2)", None: None}[expected[name].better]
            assert second["difference"][name]["better"] == better
    turned = reference.comparison("ERM()", "Mixup(alpha=0.2)", after=True)
    assert turned is not None
    assert turned["nll"].value == -expected["nll"].value
    assert turned.names == ("Mixup(alpha=0.2)", "ERM()")
    with pytest.raises(ValueError, match=r"'Mixup\(\)' is not a method of this grid; did you mean"):
        reference.comparison("Mixup()")


def test_table_is_markdown_and_says_the_bins(reference):
    table = reference.table()
    metrics = "accuracy | NLL | Brier score | ECE (15 bins) | ECE, debiased (15 bins) | OE (15 bins)"
    assert f"| {metrics} | calibrator |" in table
    assert "45 test samples, 2 seeds, before the temperature" in table
    assert "after the temperature" in reference.table(after=True)
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines[:4]} == {10}
    assert {line.count("|") for line in lines[4:]} == {8}
    nll = reference.rows()[0]["nll"]
    assert f"{nll['value']:.4f} [{nll['low']:.4f}, {nll['high']:.4f}]" in lines[2]
    record = reference.to_dict()
    json.dumps(record, allow_nan=False)
    assert {(cell["method"], cell["seed"]) for cell in record["cells"]} == set(reference.results)
    assert record["before"] == reference.rows()


def test_means_with_deviations_and_errors_over_seeds(reference):
    values = [reference.results["ERM()", seed].test.before.nll.value for seed in SEEDS]
    nll = reference.rows()[0]["nll"]
    assert nll["sd"] == pytest.approx(np.std(values, ddof=1))
    assert nll["se"] == pytest.approx(np.std(values, ddof=1) / math.sqrt(2))
    for spread, words in (("sd", "± standard deviation over seeds"), ("se", "± standard error of the mean")):
        table = reference.table(spread=spread)
        assert words in table
        assert f"{nll['value']:.4f} ± {nll[spread]:.4f}" in table
    with pytest.raises(ValueError, match="spread must be one of 'interval', 'sd', 'se', got 'range'"):
        reference.table(spread="range")


def test_further_sets_are_compared_too(base, source, tmp_path):
    """Before and after the temperature, which is that set's own where it has a development set."""
    development = tmp_path / "development.csv"
    pd.read_csv(source)[::2].to_csv(development, index=False)
    eval_data = ({"source": str(source), "development": str(development)}, str(source))
    wider = dataclasses.replace(
        base, eval_data=eval_data, training={"epochs": 1}, data={"target": "y", "train_size": 60}
    )
    result = run_grid(wider, METHODS, SEEDS, tmp_path / "grid", n_bins=7, progress=False)
    assert result.failures == {}
    assert list(result.extra_sets) == ["eval-1", "eval-2"]
    runs = {m: [result.results[m, s].sets["eval-1"] for s in SEEDS] for m in METHODS}
    for after in (False, True):
        _, second = result.rows(after=after, on="eval-1")
        wanted = [s.after if after else s.before for s in runs[METHODS[1]]]
        assert second["ece"]["value"] == pytest.approx(np.mean([run.ece.value for run in wanted]))
        assert (second["n"], second["n_bins"]) == (300, 7)
        assert second["temperature"] == pytest.approx(np.mean([s.temperature for s in runs[METHODS[1]]]))
        against = [s.after if after else s.before for s in runs[METHODS[0]]]
        expected = compare(against, wanted)
        assert second["difference"]["nll"]["value"] == pytest.approx(expected["nll"].value)
        assert f"300 samples of {source}, 2 seeds, {'after' if after else 'before'} the temperature" in result.table(
            after=after
        )
    assert result.to_dict()["eval_data"]["eval-2"]["before"] == result.rows(on="eval-2")
    with pytest.raises(ValueError, match=r"on must be .*'eval-2', got 'eval-3'"):
        result.rows(on="eval-3")


def test_a_further_set_that_is_split_already_is_said_to_be(base, source, tmp_path):
    frame = pd.read_csv(source)
    (tmp_path / "split").mkdir()
    for name, rows in (("train", frame[:200]), ("test", frame[200:])):
        rows.to_csv(tmp_path / "split" / f"{name}.csv", index=False)
    wider = dataclasses.replace(base, eval_data=(str(tmp_path / "split"),), training={"epochs": 1})
    for _ in range(2):  # trained, and read again
        table = run_grid(wider, METHODS, [0], tmp_path / "grid", progress=False).table()
        assert "100 samples of" in table
        assert f"Of {tmp_path / 'split'}: it is split already: its test part, 100 of 300 samples" in table


# Choosing by validation


def test_the_verdict_says_what_to_use(reference):
    advised, followed = reference.advised()
    said = judge_comparison(reference)
    best, other = [row["method"] for row in reference.ranked(after=True)]
    assert said.startswith(f"Lowest NLL after calibration: `{best}`.")
    assert f"No significant difference to `{other}`." in said
    times = {name: reference.seconds(name) for name in (best, other)}
    assert advised == min(times, key=times.get)
    assert (f"`{advised}` trains faster than `{best}` (" in said) == (advised != best)
    alone = judge_run(reference.results[advised, SEEDS[0]])
    assert said == f"{followed} `{advised}`: {alone.sentence} Next step: {alone.next_step}"


def test_seeds_of_finished_runs_are_not_missing(reference):
    (method, seed), one = next(iter(reference.results.items()))
    beside = dataclasses.replace(
        reference,
        methods=(*reference.methods, "runs/one", "broken"),
        results={**reference.results, ("runs/one", seed): one, ("broken", seed): one},
        failures={("broken", reference.seeds[1]): "out of memory"},
    )
    counted = [beside.counted_seeds(name) for name in (method, "runs/one", "broken")]
    assert counted == ["2 of 2", "1", "1 of 2"]


def test_the_validation_set_chooses(base, tmp_path):
    """Over the label smoothings of a search, by every metric, as loops over the saved predictions do."""
    methods = [f"ERM(label_smoothing={sigma})" for sigma in (0.001, 0.1, 0.5)]
    result = run_grid(base, methods, SEEDS, tmp_path, progress=False)
    for by in ("nll", "ece", "accuracy"):
        means = []
        for method in methods:
            values = []
            for seed in SEEDS:
                logits, labels = Run(result.results[method, seed].out).predictions("val")
                probs = torch.softmax(logits.double(), 1)
                confidence, predicted = probs.max(1)
                right = (predicted == labels).double()
                if by == "nll":
                    values.append(-sum(math.log(probs[i, y]) for i, y in enumerate(labels)) / len(labels))
                elif by == "accuracy":
                    values.append(-right.mean().item())
                else:
                    bins = [torch.ceil(15 * confidence) - 1 == b for b in range(15)]
                    gaps = [abs((confidence[b] - right[b]).sum().item()) for b in bins]
                    values.append(sum(gaps) / len(labels))
            means.append(sum(values) / len(values))
        assert result.chosen(by) == methods[int(np.argmin(means))]
    table = result.table(choose="nll")
    assert "45 validation samples, 2 seeds, before the temperature" in table
    assert f"Chosen by NLL of the validation set: `{result.chosen('nll')}`" in table
    assert "validation" not in result.table(after=True, choose="nll")
    with pytest.raises(ValueError, match=r"by must be one of 'accuracy', .*, got 'loss'"):
        result.chosen("loss")
    with pytest.raises(ValueError, match=r"by must be .*got 'top5_error'"):
        result.chosen("top5_error")


def test_what_failed_is_not_chosen_and_means_are_over_shared_seeds(reference):
    first, second = METHODS
    best = reference.chosen("nll")
    alone = {key: outcome for key, outcome in reference.results.items() if key[0] != best}
    missing = dataclasses.replace(reference, results=alone, failures={(best, seed): "gone" for seed in SEEDS})
    assert missing.chosen("nll") == (second if best == first else first)
    one = {key: outcome for key, outcome in reference.results.items() if key != (first, 1)}
    nll = {m: reference.results[m, 0].sets["val"].before.nll.value for m in METHODS}
    assert dataclasses.replace(reference, results=one).chosen("nll") == min(nll, key=nll.get)
    nothing = {(first, 0): reference.results[first, 0], (second, 1): reference.results[second, 1]}
    with pytest.raises(ValueError, match="no seed in common"):
        dataclasses.replace(reference, results=nothing).chosen("nll")


def test_without_a_validation_set_nothing_is_chosen(base, tmp_path):
    without = dataclasses.replace(base, data={"target": "y", "val": 0}, training={"epochs": 1})
    result = run_grid(without, METHODS, [0], tmp_path, progress=False)
    with pytest.raises(ValueError, match="has no validation samples"):
        result.chosen("nll")


def test_top_5_error_has_a_column_where_there_are_more_than_five_classes(tmp_path):
    digits = Experiment(source="digits", training={"epochs": 1}, model_options={"width": 4}, data={"train_size": 100})
    result = run_grid(digits, ["ERM()", "ERM(label_smoothing=0.1)"], [0], tmp_path, progress=False)
    outcome = result.results["ERM()", 0]
    logits, labels = outcome.test.logits, outcome.test.labels
    missed = [int(y not in row.argsort(descending=True)[:5]) for row, y in zip(logits, labels, strict=True)]
    assert result.rows()[0]["top5_error"]["value"] == pytest.approx(sum(missed) / len(missed))
    assert "| top-5 error |" in result.table()
    assert result.rows()[1]["difference"]["top5_error"]["value"] == pytest.approx(
        result.rows()[1]["top5_error"]["value"] - sum(missed) / len(missed)
    )


def test_intervals_over_seeds_hold_the_truth():
    # The metric is a mean of 50 samples that the seeds share, plus a shift of each seed.
    rng = np.random.default_rng(0)
    n, n_seeds, held = 50, 4, 0
    for _ in range(1000):
        samples = rng.normal(size=n)
        runs = []
        for shift in rng.normal(0, 0.2, n_seeds):
            half = 1.96 * samples.std(ddof=1) / math.sqrt(n)
            mean = float(samples.mean() + shift)
            runs.append(Estimate(mean, mean - half, mean + half))
        found = over_seeds(runs, limits=(-math.inf, math.inf))
        held += found.low <= 0 <= found.high
    assert 0.93 < held / 1000 < 0.98


def test_intervals_over_seeds_by_hand():
    runs = [Estimate(0.29, 0.19, 0.49), Estimate(0.31, 0.26, 0.41)]
    found = over_seeds(runs, limits=(0.0, 1.0))
    assert found.value == pytest.approx(0.3)
    of_seeds = stats.t.ppf(0.975, 1) * 0.01  # the standard error of two values 0.02 apart
    assert found.low == pytest.approx(0.3 - math.sqrt(0.075**2 + of_seeds**2))
    assert found.high == pytest.approx(0.3 + math.sqrt(0.15**2 + of_seeds**2))
    assert over_seeds(runs[:1], limits=(0, 1)) == runs[0]
    same = over_seeds([Estimate(0.5, 0.4, 0.7)] * 3, limits=(0, 1))
    assert (same.value, same.low, same.high) == pytest.approx((0.5, 0.4, 0.7))
    unknown = over_seeds([Estimate(math.inf, 0, math.inf), runs[0]], limits=(0, math.inf))
    assert (unknown.low, unknown.high) == (0, math.inf)


def test_label_noise_errors_are_averaged(base, tmp_path):
    noisy = dataclasses.replace(base, corrupt=0.4, training={"epochs": 1})
    result = run_grid(noisy, ["ERM()"], SEEDS, tmp_path, progress=False)
    (row,) = result.rows()
    cells = [outcome.label_noise for outcome in result.results.values()]
    for which in ("best", "last"):
        for name in ("test", "train_real", "train_corrupted"):
            assert row["label_noise"][which][name] == pytest.approx(np.mean([c[which][name] for c in cells]))
    assert "training, corrupted labels, last" in result.table()


def test_label_noise_errors_of_no_samples_are_left_out(base, tmp_path):
    noisy = dataclasses.replace(base, corrupt=1e-9, training={"steps": 1})
    result = run_grid(noisy, ["ERM()"], [0], tmp_path, progress=False)
    (row,) = result.rows()
    assert set(row["label_noise"]["best"]) == {"test", "train_real"}
    assert "training, real labels, last" in result.table()
    assert "nan" not in result.table()


def test_without_a_test_set_there_is_nothing_to_compare(base, tmp_path):
    bare = dataclasses.replace(base, data={"target": "y", "test": 0}, training={"steps": 1})
    result = run_grid(bare, ["ERM()"], [0], tmp_path, progress=False)
    with pytest.raises(ValueError, match="has no test samples"):
        result.rows()


# Where cells run


def holder(folder: Path) -> int:
    """Return the process that wrote a run."""
    return int((folder / ".lock").read_text().split()[1])


@pytest.mark.slow
def test_two_workers_give_the_same_table(base, reference, tmp_path, monkeypatch):
    seen = []
    monkeypatch.chdir(Path(base.source).parent)
    result = run_grid(
        dataclasses.replace(base, source="coins.csv"),
        ["PuzzleMix()", *METHODS],
        SEEDS,
        tmp_path / "grid",
        pool=Pool(workers=2),
        on_cell=lambda *cell: seen.append(cell[:2]),
    )
    assert set(result.failures) == {("PuzzleMix()", seed) for seed in SEEDS}
    assert sorted(seen) == sorted((method, seed) for method in result.methods for seed in SEEDS)
    assert all(holder(outcome.out) != os.getpid() for outcome in result.results.values())
    for method, row in zip(METHODS, reference.rows(), strict=True):
        found = result.rows()[result.methods.index(method)]
        assert {**found, "difference": None} == {**row, "difference": None}
    assert same(run_grid(base, METHODS, SEEDS, tmp_path / "grid"), reference)


@pytest.mark.slow
def test_a_worker_that_dies_costs_nothing(base, reference, tmp_path):
    killed = []

    def kill_one() -> None:
        while not killed:
            for lock in tmp_path.glob("grid/*/.lock"):
                if lock.read_text() and not killed:
                    killed.append(holder(lock.parent))
                    os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.005)

    thread = threading.Thread(target=kill_one)
    thread.start()
    try:
        result = run_grid(base, METHODS, SEEDS, tmp_path / "grid", pool=Pool(workers=2))
    finally:
        killed = killed or [0]
        thread.join()
    assert killed[0] not in (0, os.getpid())
    assert result.failures == {}
    assert same(result, reference)


@dataclasses.dataclass(frozen=True)
class Toy:
    """A job that leaves a file; one called "deadly" kills its process, one called "once" the first time."""

    folder: Path

    def result(self):
        return int((self.folder / "done").read_text()) if (self.folder / "done").exists() else None

    def run(self, *, progress):
        self.folder.mkdir(exist_ok=True)
        begun = self.folder / "begun"
        begun.write_text(begun.read_text() + "." if begun.exists() else ".")
        time.sleep(0.3)
        if self.folder.name == "deadly" or (self.folder.name == "once" and begun.read_text() == "."):
            os.kill(os.getpid(), signal.SIGKILL)
        (self.folder / "done").write_text(str(os.getpid()))


@pytest.fixture
def forked() -> Iterator[None]:
    """Fork the workers of a pool from this process, which has loaded everything: there are many in the tests below."""
    before = context.get_start_method()
    context.set_start_method("fork", force=True)
    yield
    context.set_start_method(before, force=True)
    get_reusable_executor().shutdown(wait=True)


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not forked there")
@pytest.mark.filterwarnings("ignore:.fork. start method should not be used")  # the jobs are toys, and start no threads
@pytest.mark.usefixtures("forked")
def test_after_a_death_what_is_left_runs_together_and_only_the_one_to_blame_fails(tmp_path, monkeypatch):
    names = ["a", "b", "deadly", *"cdefgh", "once", *"ijkl"]
    cells = {name: Toy(tmp_path / name) for name in names}
    rounds, parallel = [], joblib.Parallel.__call__
    monkeypatch.setattr(joblib.Parallel, "__call__", lambda self, tasks: parallel(self, count(tasks, rounds)))
    results, failures = run_jobs(cells, Pool(workers=2), progress=False)
    assert set(failures) == {"deadly"}
    assert list(results) == [name for name in names if name != "deadly"]
    # Together until the culprit and its neighbour are known, then the two alone; not each of twelve.
    assert rounds[0] == len(names)
    assert sum(size == 1 for size in rounds) <= 4
    assert not any((tmp_path / name / "begun").read_text() == "...." for name in names)
    # The next command takes up what is missing, and nothing else.
    before = {name: (tmp_path / name / "begun").read_text() for name in names if name != "deadly"}
    (tmp_path / "deadly").rename(tmp_path / "mended")
    cells["deadly"] = Toy(tmp_path / "mended")
    results, failures = run_jobs(cells, Pool(workers=2), progress=False)
    assert (len(results), failures) == (len(names), {})
    assert {name: (tmp_path / name / "begun").read_text() for name in before} == before


def count(tasks, rounds):
    tasks = list(tasks)
    rounds.append(len(tasks))
    return tasks


class Cluster:
    """A Ray of `nodes`, each with the CPUs it says; a task runs when its result is asked for."""

    class Error(Exception):
        pass

    exceptions = SimpleNamespace(RayError=Error)

    def __init__(self, *cpus: float, lost_after: int = 1000) -> None:
        self.cpus, self.lost_after, self.most, self.cancelled = cpus, lost_after, 0, []

    def is_initialized(self):
        return True

    def nodes(self):
        alive = self.lost_after > 0
        return [{"Alive": alive, "Resources": {"CPU": cpus} if alive else {}} for cpus in self.cpus]

    def cluster_resources(self):
        return {"CPU": sum(self.cpus)} if self.lost_after > 0 else {}

    def remote(self, **options):
        portable = {"runtime_env": {"env_vars": VARIABLES}} if is_asked() else {}
        assert options == {"num_cpus": 1, "num_gpus": 0, "max_retries": 0, **portable}
        return lambda function: SimpleNamespace(remote=lambda job, *a, **k: (job, lambda: function(job, *a, **k)))

    def wait(self, tasks, timeout):
        self.most = max(self.most, len(tasks))
        return (tasks[:1], tasks[1:]) if self.lost_after > 0 else ([], tasks)

    def get(self, task):
        job, run = task
        self.lost_after -= 1
        job.folder.mkdir(exist_ok=True)
        deaths = job.folder / "deaths"
        deaths.write_text(deaths.read_text() + "." if deaths.exists() else ".")
        if job.folder.name == "deadly" or (job.folder.name == "struck" and deaths.read_text() == "."):
            raise self.Error("the worker died")
        return run()

    def cancel(self, task, force):
        self.cancelled.append(task)


def test_a_worker_of_a_cluster_that_dies_costs_its_job_a_start_and_no_other(tmp_path, monkeypatch):
    ray, names = Cluster(2, 1), ["a", "deadly", "struck", *"bcd"]
    monkeypatch.setattr(jobs_module, "require", lambda *names: ray)
    jobs = {name: Toy(tmp_path / name) for name in names}
    results, failures = run_jobs(jobs, Pool(backend="ray"), progress=False)
    assert list(results) == ["a", "struck", "b", "c", "d"]
    assert list(failures) == ["deadly"]
    assert "died 3 times" in failures["deadly"]
    assert "died 3 times" in (tmp_path / "deadly" / "error.txt").read_text()
    starts = {name: len((tmp_path / name / "deaths").read_text()) for name in names}
    assert starts == {"a": 1, "deadly": 3, "struck": 2, "b": 1, "c": 1, "d": 1}
    assert ray.most == 3
    # As many at once as asked for; more than there is room for are refused at once.
    ray = Cluster(2, 1)
    more = {name: Toy(tmp_path / name) for name in "efgh"}
    run_jobs(more, Pool(backend="ray", workers=2), progress=False)
    assert ray.most == 2
    with pytest.raises(ValueError, match=r"3 cells of 1 CPUs and 0 GPUs .*workers=4"):
        run_jobs({"i": Toy(tmp_path / "i")}, Pool(backend="ray", workers=4), progress=False)
    # A cell runs on one node: two nodes of one CPU have no room for a cell of two.
    slots = [jobs_module._free_slots(Cluster(*cpus), SimpleNamespace(threads=2, gpus=0)) for cpus in ((1, 1), (5, 2))]
    assert slots == [0, 3]


def test_a_cluster_without_processors_is_waited_for_with_a_limit(tmp_path, monkeypatch):
    ray = Cluster(1, 1, lost_after=2)
    monkeypatch.setattr(jobs_module, "require", lambda *names: ray)
    monkeypatch.setattr(jobs_module, "_LOOK", 0.01)
    monkeypatch.setattr(jobs_module, "_WAIT", 0.05)
    jobs = {name: Toy(tmp_path / name) for name in "abcd"}
    with pytest.warns(UserWarning, match=r"no node .*up to 0\.05 s"):
        results, failures = run_jobs(jobs, Pool(backend="ray"), progress=False)
    assert (list(results), list(failures)) == (["a", "b"], ["c", "d"])
    assert "start the same comparison again when its nodes are back" in failures["c"]
    assert len(ray.cancelled) == 1  # what Ray had been given: it must not run later
    # The nodes are back: the next command takes up what is missing, and nothing else.
    ray = Cluster(1, 1)
    results, failures = run_jobs(jobs, Pool(backend="ray"), progress=False)
    assert (list(results), failures) == (list("abcd"), {})
    assert [(tmp_path / name / "begun").read_text() for name in "abcd"] == ["."] * 4


@pytest.mark.slow
def test_killed_half_way_and_started_again(base, reference, tmp_path):
    out = tmp_path / "grid"
    code = (
        "import json, sys; from vicinal.runs import Experiment, Pool, run_grid\n"
        "run_grid(Experiment.from_dict(json.loads(sys.argv[1])), *json.loads(sys.argv[2]), sys.argv[3], "
        "pool=Pool(workers=2))"
    )
    arguments = [json.dumps(base.to_dict()), json.dumps([METHODS, SEEDS]), str(out)]
    driver = subprocess.Popen([sys.executable, "-c", code, *arguments])
    try:
        wait_for(lambda: list(out.glob("*/evaluation.json")), driver)
    finally:
        driver.kill()
        driver.wait()
    done = stamps(out)
    cells = [outcome.out.name for outcome in reference.results.values()]
    finished_cells = [cell for cell in cells if (out / cell / "evaluation.json").exists()]
    assert 1 <= len(finished_cells) < len(cells)
    # The workers end with it: else they would hold the folders of their cells.
    for cell in cells:
        wait_for(lambda folder=out / cell: is_free(folder))
    again = run_grid(base, METHODS, SEEDS, out, progress=False)
    assert again.failures == {}
    assert same(again, reference)
    after = stamps(out)
    for name, stamp in done.items():
        if Path(name).parts[0] in finished_cells:
            assert after[name] == stamp, name


def test_an_interrupt_says_how_to_go_on(base, tmp_path, reference):
    def interrupt(*cell) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"1 of 4 cells are finished and kept"):
        run_grid(base, METHODS, SEEDS, tmp_path, progress=False, on_cell=interrupt)
    assert same(run_grid(base, METHODS, SEEDS, tmp_path, progress=False), reference)


@needs_ray
@pytest.mark.slow
def test_a_ray_cluster_of_two_nodes_one_of_whose_workers_is_killed_gives_the_same_table(base, reference, tmp_path):
    out, folder = tmp_path / "grid", tempfile.mkdtemp(prefix="ray")  # sockets need a short path
    code = (
        "import json, sys; from vicinal.runs import Experiment, Pool, run_grid\n"
        "result = run_grid(Experiment.from_dict(json.loads(sys.argv[1])), *json.loads(sys.argv[2]), sys.argv[3],\n"
        "                  pool=Pool(backend='ray', address=sys.argv[4]))\n"
        "open('table.md', 'w').write(result.table())\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    # Without Ray's tokens: with one in the home folder the head has refused the node.
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    environment["RAY_worker_niceness"] = "0"  # else a busy machine leaves workers hardly any time
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
    ray += ["--object-store-memory=80000000"]
    head = [*ray, "--head", f"--port={address.split(':')[1]}", "--include-dashboard=false", f"--temp-dir={folder}"]
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in (("head", head), ("node", [*ray, f"--address={address}"])):
            log = tmp_path / f"{name}.log"
            with open(log, "w") as file:
                nodes.append(subprocess.Popen(command, stdout=file, stderr=file, env=environment))
            wait_for(lambda: answers(address), nodes[-1])  # a node looks for the head at once
        for node in nodes:
            wait_for(lambda: all("Ray runtime started" in log.read_text() for log in tmp_path.glob("*.log")), node)
        arguments = [json.dumps(base.to_dict()), json.dumps([METHODS, SEEDS]), str(out), address]
        with open(tmp_path / "driver.txt", "w") as file:
            # A process of its own, for what Ray warns of and changes.
            nodes.append(
                subprocess.Popen(
                    [sys.executable, "-c", code, *arguments], cwd=tmp_path, env=environment, stdout=file, stderr=file
                )
            )
        # Which node a worker belongs to: its parent is the node's manager. It lives while its cell runs.
        parents: dict[int, int] = {}
        killed: list[int] = []
        while nodes[-1].poll() is None:
            for lock in out.glob("*/.lock"):
                with contextlib.suppress(IndexError, psutil.NoSuchProcess):  # not written yet; gone already
                    parents.setdefault(holder(lock.parent), psutil.Process(holder(lock.parent)).ppid())
            if parents and not killed:
                killed.append(next(iter(parents)))
                os.kill(killed[0], signal.SIGKILL)  # as the kernel does when memory runs out
            time.sleep(0.02)
    finally:
        started = [process for node in nodes if node.poll() is None for process in family(node.pid)]
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(started, timeout=10)
        for node in nodes:
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)
    assert nodes[-1].returncode == 0, (tmp_path / "driver.txt").read_text()
    assert {holder(lock.parent) for lock in out.glob("*/.lock")} == set(parents) - set(killed)
    assert len(set(parents.values())) == 2  # both nodes ran cells
    assert (tmp_path / "table.md").read_text() == reference.table()
    stamped = stamps(out)
    result = run_grid(base, METHODS, SEEDS, out, progress=False)
    assert stamps(out) == stamped  # all is there
    assert same(result, reference)


def answers(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def wait_for(condition, process: subprocess.Popen | None = None, *, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, "it ended before"
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def is_free(folder: Path) -> bool:
    try:
        with locked(folder):
            return True
    except RuntimeError:
        return False


def test_a_finished_cell_can_be_read_alone(reference, base):
    cell = dataclasses.replace(_rooted(base), method="ERM()", seed=1)
    outcome = Run(reference.out / folder_name(cell)).result(cell)
    assert outcome is not None
    assert torch.equal(outcome.test.logits, reference.results["ERM()", 1].test.logits)


def test_jobs_elsewhere_have_the_settings_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VICINAL_DATA", "data")
    monkeypatch.delenv("VICINAL_MAX_MEMORY", raising=False)
    assert jobs_module._settings() == {"VICINAL_DATA": str(tmp_path / "data")}
    with max_memory("1KB"):
        assert jobs_module._settings()["VICINAL_MAX_MEMORY"] == "1000"
