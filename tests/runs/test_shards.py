"""Shards on a Ray cluster: the numbers of one process, whatever dies on the way."""

from __future__ import annotations

import importlib.util
import pickle
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cli.running import TINY, refused
from tests.cli.running import vicinal as command
from vicinal.predictions import binary_of_file, evaluate_file, open_file, write
from vicinal.runs import scheduler
from vicinal.runs.scheduler import Pool
from vicinal.runs.shards import evaluate_shards, map_shards

cloudpickle = pytest.importorskip("cloudpickle")
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'vicinal[scale]'"
)


class Ray:
    """A cluster in this process. What goes to a worker and back is pickled; the last task given is the first done."""

    class Error(Exception):
        pass

    exceptions = SimpleNamespace(RayError=Error)

    def __init__(self, deaths=()):
        self.deaths, self.started = list(deaths), 0

    def is_initialized(self):
        return True

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 2, "GPU": 1}}]

    def cluster_resources(self):
        return {"CPU": 2, "GPU": 1}

    def remote(self, **options):
        self.options = options

        def decorate(function):
            packed = cloudpickle.dumps(function)

            def submit(argument):
                self.started += 1
                return (self.started, packed, pickle.dumps(argument))

            return SimpleNamespace(remote=submit)

        return decorate

    def wait(self, tasks, timeout):
        return tasks[-1:], tasks[:-1]

    def get(self, task):
        number, function, argument = task
        if number in self.deaths:
            raise self.Error("the worker died")
        return pickle.loads(pickle.dumps(pickle.loads(function)(pickle.loads(argument))))

    def cancel(self, task, force):
        pass


@pytest.fixture
def cluster(monkeypatch):
    def connect(*deaths):
        ray, require = Ray(deaths), scheduler.require
        monkeypatch.setattr(scheduler, "require", lambda name, extra: ray if name == "ray" else require(name, extra))
        return ray

    return connect


def write_shards(folder, n_classes, *, n=5, rows=700, form="parquet"):
    random, classes = np.random.default_rng(1), [f"c{k}" for k in range(n_classes)]
    folder.mkdir()
    for k in range(n):
        probs = random.dirichlet(np.ones(n_classes), rows + 10 * k).round(2)  # rounded: the worst mistakes have ties
        probs[:, -1] = 1 - probs[:, :-1].sum(1)
        probs = probs.clip(0, 1)
        label = [classes[i] for i in (probs.cumsum(1) < random.random((len(probs), 1))).sum(1).clip(0, n_classes - 1)]
        write(folder / f"part-{k}.{form}", classes, [({"label": label}, probs)])
    return folder


def assert_same(one, other):
    """Counts are equal, sums agree to 1e-12."""
    a, b = one.to_dict(), other.to_dict()
    assert a.keys() == b.keys()

    def check(left, right, where):
        if isinstance(left, dict):
            assert left.keys() == right.keys(), where
            for key in left:
                check(left[key], right[key], f"{where}.{key}")
        elif isinstance(left, list | tuple):
            assert len(left) == len(right), where
            for k, pair in enumerate(zip(left, right, strict=True)):
                check(*pair, f"{where}[{k}]")
        elif isinstance(left, float):
            assert left == pytest.approx(right, rel=1e-12, abs=1e-12), where
        else:
            assert left == right, where

    check(a, b, "")


@pytest.mark.parametrize(("n_classes", "form"), [(2, "parquet"), (2, "csv"), (3, "parquet")])
def test_shards_add_up_to_the_file_though_a_worker_dies(n_classes, form, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("vicinal.predictions.binary_ranking._IN_MEMORY", 300)  # several runs a shard
    monkeypatch.setattr("vicinal.predictions.binary_ranking._RANGE", 500)  # several ranges
    monkeypatch.setattr("vicinal.predictions.binary_ranking._SHORTEST_RUN", 50)
    path = write_shards(tmp_path / "shards", n_classes, form=form)
    ray, file, seen = cluster(2, 3), open_file(path), []
    evaluation, binary = evaluate_shards(file, Pool(backend="ray"), progress=lambda n, total: seen.append(n))
    assert ray.started == (15 if n_classes == 2 else 7)
    assert_same(evaluation, evaluate_file(path))
    assert evaluation.worst == evaluate_file(path).worst
    if n_classes == 2:
        assert_same(binary, binary_of_file(path))
    else:
        assert binary is None
    assert seen[-1] == evaluation.n == 3600
    assert seen == sorted(seen)


def test_an_error_of_a_shard_is_the_users_and_a_shard_that_kills_is_named(cluster, tmp_path):
    path = write_shards(tmp_path / "shards", 3, form="csv")
    text = (path / "part-3.csv").read_text().splitlines()
    (path / "part-3.csv").write_text("\n".join([text[0], text[1].rsplit(",", 1)[0] + ",7", *text[2:]]) + "\n")
    cluster()
    with pytest.raises(ValueError, match=r"probabilities must lie in \[0, 1\], but row 1 of .*part-3\.csv"):
        evaluate_shards(open_file(path), Pool(backend="ray"))
    cluster(1, 2, 3)
    with pytest.raises(RuntimeError, match="shard 1 of 1: the process that ran it died 3 times"):
        map_shards(len, ["x"], Pool(backend="ray"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    random = np.random.default_rng(0)
    shards = folder / "shards"
    shards.mkdir()
    for k in range(4):
        x = random.normal(size=(90 + k, 2))
        rows = [f"{a:.3f},{b:.3f},{'p' if a + b > 0 else 'n'},id{k}-{i}" for i, (a, b) in enumerate(x)]
        (shards / f"part-{k}.csv").write_text("\n".join(["a,b,y,id", *rows]) + "\n")
    command("train", shards, "--target", "y", "--out", folder / "run", "--drop", "id", *TINY)
    return folder / "run", shards


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_predictions_of_shards_are_those_of_one_process(form, trained, cluster, tmp_path):
    import pandas as pd

    run, shards = trained
    options = ["--keep", "id", "--sets", "0.9", "--max-risk", "0.4"]
    command("predict", run, shards, "--out", tmp_path / f"one.{form}", *options)
    ray = cluster(2)
    options += ["--backend", "ray", "--gpus", "0.5"]
    done = command("predict", run, shards, "--out", tmp_path / f"ray.{form}", *options, "--json")
    assert ray.options["num_gpus"] == 0.5
    read = pd.read_csv if form == "csv" else pd.read_parquet
    pd.testing.assert_frame_equal(
        read(tmp_path / f"one.{form}"), read(tmp_path / f"ray.{form}"), rtol=1e-6, check_exact=False
    )
    assert done.events("result")[0]["rows"] == 366
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"one.{form}", f"ray.{form}"]


def test_shards_that_only_all_cells_tell_how_to_read_are_refused(trained, cluster, tmp_path):
    run, _ = trained
    new = tmp_path / "new"
    new.mkdir()
    (new / "part-0.csv").write_text('a,b\n"1,234",1\n"2,345",2\n')  # 1.234 or 1234
    (new / "part-1.csv").write_text('a,b\n"0,5",1\n"0,25",2\n')
    cluster()
    words = ["predict", run, new, "--backend", "ray", "--out", tmp_path / "p.csv"]
    said = refused(*words)
    assert "column 'a' in several ways, decimal '.' in 'part-0.csv' and ',' in 'part-1.csv': pass --decimal" in said
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    command("predict", run, new, "--out", tmp_path / "one.csv")
    command(*words, "--decimal", ",")
    assert (tmp_path / "p.csv").read_text() == (tmp_path / "one.csv").read_text()


def test_options_of_a_cluster_are_refused_where_they_mean_nothing(trained, tmp_path):
    run, shards = trained
    out = ["--out", tmp_path / "p.csv"]
    assert "--workers needs --backend ray" in refused("predict", run, shards, *out, "--workers", "2")
    path = write_shards(tmp_path / "shards", 3)
    assert "--backend must be" in refused("evaluate", path, "--backend", "spark")
    assert "--backend is for a predictions file" in refused("evaluate", run, "--backend", "ray")
    sets = ["--sets", "0.9", "--sets-kind", "adaptive-randomised"]
    assert "draws a number for each row" in refused("predict", run, shards, *out, "--backend", "ray", *sets)


@needs_ray
@pytest.mark.slow
def test_a_cluster_of_two_nodes_of_which_one_is_killed(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else they starve on a machine that others load
    from ray.cluster_utils import Cluster

    path = write_shards(tmp_path / "shards", 2, n=12, rows=20_000)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
    killed = threading.Event()

    def kill(n, total):
        if n > total / 4 and not killed.is_set():
            killed.set()
            threading.Thread(target=nodes.remove_node, args=(second,), kwargs={"allow_graceful": False}).start()

    try:
        evaluation, binary = evaluate_shards(open_file(path), Pool(backend="ray"), progress=kill)
        until = time.monotonic() + 60
        while sum(node["Alive"] for node in ray.nodes()) > 1 and time.monotonic() < until:
            time.sleep(0.5)
        assert sum(node["Alive"] for node in ray.nodes()) == 1
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert killed.is_set()
    assert_same(evaluation, evaluate_file(path))
    assert_same(binary, binary_of_file(path))
