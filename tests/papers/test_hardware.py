"""The paper scale at toy size: shapes of the real data, two processes, micro-batches, and what is refused."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import wavfile

import vicinal as vicinal_package
from tests.cli.running import refused, vicinal
from tests.data.checkpoints import save_tiny
from tests.data.test_regression import write_stsb
from tests.processes import free_port, in_processes, world
from vicinal import models
from vicinal.papers import execute, get, images, l22_tab3, names, z18_fig4, z18_tab1
from vicinal.papers.base import Data, Network, Recipe
from vicinal.papers.execute import check_data, plan
from vicinal.papers.hardware import MICRO_BATCHES, Hardware, held
from vicinal.papers.keys import cell_key, training_record
from vicinal.papers.report import recipe_page
from vicinal.papers.results import Result
from vicinal.papers.sources import SOURCES, needs
from vicinal.runs.scheduler import Pool, visible_gpus

#: `vicinal.runs.run` is a function too.
run_module = importlib.import_module("vicinal.runs.run")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data root with an ImageNet-shaped folder, Speech Commands, GLUE's files and STL-10's binaries."""
    home = tmp_path / "data"
    monkeypatch.setenv("VICINAL_DATA", str(home))
    picture, random = io.BytesIO(), np.random.default_rng(0)
    Image.new("RGB", (40, 36), "red").save(picture, "JPEG")
    for part, n in (("train", 6), ("val", 3)):
        for name in (f"n0144{k:04}" for k in range(6)):
            for k in range(n):
                path = home / "imagenet" / part / name / f"{k}.JPEG"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture.getvalue())
    lists = {"validation_list.txt": [], "testing_list.txt": []}
    for word in ("yes", "no"):
        (home / "speech_commands_v0.01" / word).mkdir(parents=True)
        for k in range(8):
            sound = (1000 * random.standard_normal(4000)).astype(np.int16)
            wavfile.write(home / "speech_commands_v0.01" / word / f"{k}.wav", 16_000, sound)
            if k < 4:
                lists["validation_list.txt" if k < 2 else "testing_list.txt"].append(f"{word}/{k}.wav")
    for name, files in lists.items():
        (home / "speech_commands_v0.01" / name).write_text("\n".join(files))
    (home / "glue" / "RTE").mkdir(parents=True)
    rows = [f"{k}\tA man {k}.\tHe {k}.\t{('entailment', 'not_entailment')[k % 2]}" for k in range(12)]
    for part in ("train", "dev"):
        (home / "glue" / "RTE" / f"{part}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]))
    (home / "stl10_binary").mkdir()
    for part in ("train", "test"):
        random.integers(0, 256, 20 * 3 * 96 * 96, dtype=np.uint8).tofile(home / "stl10_binary" / f"{part}_X.bin")
        np.tile(np.arange(1, 11, dtype=np.uint8), 2).tofile(home / "stl10_binary" / f"{part}_y.bin")
    return home


def toy(recipe: Recipe, **changes) -> Recipe:
    """A recipe whose paper scale is of a moment: the same data, methods and measures."""
    at = dataclasses.replace(recipe.scales["paper"], **changes)
    return dataclasses.replace(recipe, scales={**recipe.scales, "paper": at})


SHORT = {"epochs": 1, "batch_size": 8, "optimizer": "sgd", "lr": 0.01, "schedule": "constant", "select": "last"}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("z18-tab1", {"networks": dict.fromkeys(z18_tab1.THERE, Network("preactresnet10", {"width": 2}))}),
        ("z18-fig4", {"networks": z18_fig4.networks(width=2), "training": {**SHORT, "eval_batch_size": 4}}),
        ("t19-supp", {"data": {"STL-10": Data("stl10", {"val": "test"})}, "networks": images.TINY}),
    ],
)
def test_the_path_of_the_paper_scale(root, tmp_path, name, changes):
    recipe = toy(get(name), **{"training": SHORT, **changes})
    rows = list(recipe.rows("paper", [1000]))[:1]
    wanted = plan(name, recipe, "paper", tmp_path / "out", seeds=[1000], rows=[row.key for row in rows])
    with pytest.raises(ValueError, match=r"which is not the paper's data: get all of them, or pass allow_slices"):
        check_data([wanted])
    (wanted,) = check_data([wanted], allow_slices=True)
    result = execute.reproduce(wanted, Pool(), progress=False)
    assert not result.failures
    assert "samples" in next(iter(result.settings["slices"].values()))
    again = plan(name, recipe, "paper", tmp_path / "out", seeds=[1000], rows=[row.key for row in rows])
    with pytest.raises(ValueError, match=r"were run with .* samples of"):  # nothing is left, and they stay slices
        check_data([again])
    (again,) = check_data([again], allow_slices=True)
    assert execute.reproduce(again, Pool(), progress=False).settings["slices"] == result.settings["slices"]
    page = recipe_page(recipe, result).deviations
    assert page is not None
    assert any(row[0].startswith("samples of") for row in page.rows)
    cell = result.cells[0].metrics
    assert {"z18-tab1": "top-5", "z18-fig4": "validation", "t19-supp": "ece 100"}[name] in cell


def test_the_path_of_glue(root, tmp_path):
    """LogitMix in the last half of training, on the TSV files of RTE, and of STS-B by regression."""
    pytest.importorskip("transformers")
    write_stsb(root)
    checkpoint = save_tiny(tmp_path / "bert", positions=128)
    recipe = toy(
        get("l22-tab3"),
        data={"RTE": Data("glue:rte", {"max_length": 32, "val": 0})},
        networks={"BERT-base": Network(f"hf:{checkpoint}")},
        training=SHORT,
        settings={
            **l22_tab3.glue(100, 100, SHORT, val=images.ORACLE),
            "layers": 2,
            "plain epochs": 0.5,
            "score_on": {},
        },
    )
    hardware = Hardware(accumulation=2, device="cpu").of(recipe, "paper")
    wanted = plan("l22-tab3", hardware, "paper", tmp_path / "out", seeds=[1000], only=["LogitMix"])
    (wanted,) = check_data([wanted], allow_slices=True)
    result = execute.reproduce(wanted, Pool(), progress=False)
    assert not result.failures
    assert {cell.key[0]: -1 <= cell.metrics["score"].value <= 1 for cell in result.cells} == {
        "RTE": True,
        "STS-B": True,
    }
    (regression,) = (job for job in wanted.trainings.values() if job.folder.name.startswith("own-STS-B"))
    assert json.loads((regression.folder / "config.json").read_text())["micro_batches_per_step"] == 2


def choices(folder) -> execute.Plan:
    """A plan of three rows that fit cuts for 24 GB: an experiment, and one that no expression names."""
    small = {"train_size": 60, "max_held_out": 100, "val": 0, "augment": "none"}
    networks = {"PreAct ResNet-18": Network("preactresnet10", {"width": 4})}
    recipe = toy(get("z18-choices"), data={"CIFAR-10": Data("digits", small)}, networks=networks, training=SHORT)
    cut = Hardware(gpu_memory=24, device="cpu").of(recipe, "paper")
    return plan("z18-choices", cut, "paper", folder, seeds=[1000, 1001], only=["two loaders", "ERM()"])


def share(rank: int, folder: Path, port: int) -> None:
    """What a process of torchrun does: all train, and the first one measures."""
    os.environ.update(world(rank, 2, port))
    torch.set_num_threads(1)
    failed = execute.train(choices(folder), Pool(), progress=False)
    assert failed == {}
    if execute.is_first_process():
        execute.reproduce(choices(folder), Pool(), progress=False, failed=failed)


@pytest.mark.slow
def test_two_processes_share_the_trainings_of_a_recipe(tmp_path):
    in_processes(2, share, tmp_path, free_port())
    result = Result.read(tmp_path / "z18-choices.json")
    assert len(result.cells) == 4
    configs = [json.loads(path.read_text())["config"] for path in tmp_path.glob("runs/*/config.json")]
    assert [config["batch_size"] for config in configs] == [4] * 4  # each process takes half of 8


@pytest.mark.slow
def test_torchrun_reproduces_a_recipe(root, tmp_path):
    """The command itself, at paper scale, on data of the shape of Speech Commands."""
    call = ["torchrun", "--nproc-per-node", "2", "--master-port", str(free_port()), "--no-python"]
    call += ["vicinal", "reproduce", "z18-fig4", "--scale", "paper", "--gpu-memory", "24", "--allow-slices"]
    call += ["--only", "LeNet · ERM", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path / "out")]
    subprocess.run(call, check=True, timeout=300)
    (cell,) = Result.read(tmp_path / "out" / "z18-fig4.json").cells
    assert 0 <= cell.metrics["validation"].value <= 1


def test_other_domains_are_looked_for_before_anything_trains(root, tmp_path, monkeypatch):
    for part in ("train", "dev", "test"):
        path = root / "calibration_data" / "SNLI" / f"{part}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("entailment\tA man.\tHe.\n")
    wanted = plan("p22-tab3", get("p22-tab3"), "paper", tmp_path, seeds=[1000])
    with pytest.raises(FileNotFoundError, match=r"p22-tab3 needs .*:desai, calibration_data/.* from https://github"):
        check_data([wanted])


def test_slices_are_recorded_with_the_recipes_that_use_them(root, tmp_path):
    """Of other domains and development sets too, which no `Data` names."""
    tables = toy(get("z18-fig4"), networks=z18_fig4.networks(width=2))
    images_of = toy(get("t19-supp"), data={"STL-10": Data("stl10", {"val": "test"})}, networks=images.TINY)
    wanted = [
        plan(name, recipe, "paper", tmp_path, seeds=[1000])
        for name, recipe in (("z18-fig4", tables), ("t19-supp", images_of))
    ]
    assert [set(one.slices) for one in check_data(wanted, allow_slices=True)] == [{"speechcommands"}, {"stl10"}]
    write_stsb(root)
    scored = toy(get("l22-tab3"), data={"RTE": Data("glue:rte", {"max_length": 32, "val": 0})})
    rows = [cell.key for cell in scored.rows("paper", [1000]) if cell.key[0] == "STS-B"]
    with pytest.raises(FileNotFoundError, match="glue:mnli:mismatched"):
        check_data([plan("l22-tab3", scored, "paper", tmp_path, seeds=[1000], rows=rows)], allow_slices=True)
    (root / "glue" / "MNLI").mkdir()
    lines = "gold_label\tsentence1\tsentence2\nneutral\tA man.\tHe.\n"
    (root / "glue" / "MNLI" / "dev_mismatched.tsv").write_text(lines)
    (one,) = check_data([plan("l22-tab3", scored, "paper", tmp_path, seeds=[1000], rows=rows)], allow_slices=True)
    assert set(one.slices) == {"glue:rte", "glue:stsb", "glue:mnli:mismatched"}


def test_check_lists_all_that_is_needed_before_anything_trains(root, tmp_path):
    ran = vicinal("reproduce", "l22-tab3", "t19-tab1-fig8", "--scale", "paper", "--check", "--json", "--out", tmp_path)
    first, second = ran.events("needs")
    assert {"glue:rte", "glue:stsb", "glue:mnli:mismatched", "hf:google-bert/bert-large-uncased"} <= set(
        first["sources"]
    )
    assert [first["sources"][name]["there"] for name in ("glue:rte", "glue:cola")] == [True, False]
    assert set(second["sources"]) == {"stl10", "tinyimagenet"}  # the other images too
    assert second["hours"] > 0
    assert second["gigabytes"] > 3
    assert second["runs"] > 1  # 15 VGG-16 with their checkpoints
    batches = {(one["network"], one["method"]): one["cut"] for one in ran.events("batch")}
    assert batches["hf:google-bert/bert-large-uncased", "LogitMix"] == ["4 × 2", "8 × 1"]
    assert batches["vgg16", ""] == ["128 × 1", "128 × 1"]
    assert not (tmp_path / "runs").exists()


def test_every_source_of_the_papers_is_listed():
    for name in names():
        recipe = get(name)
        for scale in recipe.scales:
            listed = {source.title for source in needs(recipe, scale).values()}
            for of in recipe.scales[scale].data.values():
                known = SOURCES.get(of.source) or SOURCES[of.source.partition(":")[0]]
                assert known.title in listed
                assert known.url


def test_a_batch_of_1024_is_cut_for_one_gpu_and_for_eight(monkeypatch):
    recipe = get("z18-tab3")
    (cell, *_) = (
        Hardware(gpu_memory=24, mixed_precision="bf16", num_workers=8).of(recipe, "paper").rows("paper", [1000])
    )
    training = cell.trainings[0].training
    assert (training["batch_size"], training["accumulation"]) == (128, 8)
    assert (training["mixed_precision"], training["num_workers"]) == ("bf16", 8)
    assert cell_key(cell) != cell_key(recipe.rows("paper", [1000])[0])  # digits differ
    (cell, *_) = Hardware(gpu_memory=24).of(recipe, "paper").rows("paper", [1000])  # float32 takes twice the memory
    assert (cell.trainings[0].training["batch_size"], cell.trainings[0].training["accumulation"]) == (64, 16)
    monkeypatch.setenv("WORLD_SIZE", "8")
    (cell, *_) = Hardware(gpu_memory=80).of(recipe, "paper").rows("paper", [1000])
    assert (cell.trainings[0].training["batch_size"], cell.trainings[0].training["accumulation"]) == (128, 1)
    for network, (small, large) in MICRO_BATCHES.items():
        assert small <= large, network


def activations(model, x) -> float:
    """The bytes of what a forward keeps for the backward, of one of two samples."""
    kept = {}
    weights = {one.untyped_storage()._cdata for one in model.parameters()}

    def pack(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.train()(x)
    assert output is not None
    return sum(one.untyped_storage().nbytes() for at, one in kept.items() if at not in weights) / 2


@pytest.mark.parametrize(
    ("network", "size", "options"),
    [
        ("resnet50", 224, {}),
        ("resnet101", 224, {}),
        ("resnext101", 224, {"groups": 64}),
        ("resnext50", 32, {}),
        ("wideresnet28-10", 32, {}),
        ("densenet-bc-190", 32, {}),
        ("shufflenetv2", 32, {}),
    ],
)
def test_micro_batches_fit_into_24_and_80_gigabytes(network, size, options):
    """By the activations of a network without numbers, in bfloat16; weights have a gradient, momentum and a copy."""
    with torch.device("meta"):
        model = models.build(network, kind="image", n_classes=1000, input_shape=(3, size, size), **options)
        one = activations(model.bfloat16(), torch.empty(2, 3, size, size, dtype=torch.bfloat16))
    weights = 16 * sum(one.numel() for one in model.parameters())
    for most, memory in zip(MICRO_BATCHES[network], (24, 80), strict=True):
        assert most * one + weights < 0.95 * memory * 1e9


def test_micro_batches_of_texts_fit():
    """By the activations of one layer of BERT-base: four choices of 256 tokens, and BERT-large's 128 tokens."""
    transformers = pytest.importorskip("transformers")

    def bytes_of(layers, tokens, **sizes):
        model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers, vocab_size=50, **sizes))
        return activations(model.bfloat16(), torch.zeros(2, tokens, dtype=torch.long))

    assert MICRO_BATCHES["hf:FacebookAI/roberta-base"] == MICRO_BATCHES["hf:google-bert/bert-base-uncased"]
    large = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
    for network, layers, tokens, choices, weights, sizes in (
        ("hf:google-bert/bert-base-uncased", 12, 256, 4, 110e6, {}),
        ("hf:google-bert/bert-large-uncased", 24, 128, 1, 340e6, large),
    ):
        one = choices * layers * (bytes_of(2, tokens, **sizes) - bytes_of(1, tokens, **sizes))
        for most, memory in zip(MICRO_BATCHES[network], (24, 80), strict=True):
            assert most * one + 16 * weights < 0.95 * memory * 1e9, network


@pytest.mark.parametrize("memory", [24, 80])
def test_every_recipe_has_its_batch_on_any_gpu(memory):
    """Micro-batches make up the batch of the paper, fewer samples each where a step holds clean and mixed ones."""
    for name in names():
        plain, cut = get(name).rows("paper", [1000]), Hardware(gpu_memory=memory).of(get(name), "paper")
        for cell, adapted in zip(plain, cut.rows("paper", [1000]), strict=True):
            for one, other in zip(cell.trainings, adapted.trainings, strict=True):
                batch = training_record(one)["training"]["batch_size"]
                assert other.training["batch_size"] * other.training["accumulation"] == batch
                most = MICRO_BATCHES.get(str(one.model), (batch, batch))[memory == 80]
                assert other.training["batch_size"] <= max(1, most // held(one.method)) or most == batch


@pytest.mark.parametrize(("name", "row"), [("z18-choices", "two loaders, α = 1"), ("l22-tab4", "VWCI")])
def test_hardware_reaches_rows_that_no_expression_names(name, row):
    recipe = get(name)
    asked = Hardware(gpu_memory=24, mixed_precision="bf16", device="cpu").of(recipe, "paper")
    plain, adapted = (
        next(cell for cell in one.rows("paper", [1000]) if cell.key[-1] == row) for one in (recipe, asked)
    )
    training = adapted.settings["experiment"]["training"]
    assert (training["mixed_precision"], training["device"]) == ("bf16", "cpu")
    assert cell_key(adapted) != cell_key(plain)
    mechanical = Hardware(num_workers=2, device="cpu").of(recipe, "paper")
    same = next(cell for cell in mechanical.rows("paper", [1000]) if cell.key[-1] == row)
    assert cell_key(same) == cell_key(plain)


def test_hardware_reaches_regression():
    recipe = get("l22-tab3")
    asked = Hardware(gpu_memory=24, mixed_precision="bf16", device="cpu").of(recipe, "paper")
    cell = next(cell for cell in asked.rows("paper", [1000]) if cell.key[:2] == ("STS-B", "BERT-large"))
    assert cell.settings["STS-B"]["training"]["mixed_precision"] == "bf16"
    assert "device" not in cell.settings["STS-B"]["training"]
    assert cell.train is not None


def test_two_loaders_are_trained_once_into_a_folder_and_then_measured(tmp_path):
    """By the plan, as any training: what was trained is not trained again."""
    small = {"train_size": 60, "max_held_out": 100, "val": 0, "augment": "none"}
    networks = {"PreAct ResNet-18": Network("preactresnet10", {"width": 4})}
    recipe = toy(get("z18-choices"), data={"CIFAR-10": Data("digits", small)}, networks=networks, training=SHORT)
    wanted = plan("z18-choices", recipe, "paper", tmp_path, seeds=[1000], only=["two loaders"])
    (job,) = wanted.trainings.values()
    assert job.result() is None
    assert execute.train(wanted, Pool(), progress=False) == {}
    weights = job.folder / "model.safetensors"
    written = weights.stat().st_mtime_ns
    result = execute.reproduce(wanted, Pool(), progress=False)
    assert not result.failures
    assert weights.stat().st_mtime_ns == written
    assert 0 <= result.cells[0].metrics["error"].value <= 1


def test_what_changes_digits_is_for_the_paper_scale(tmp_path):
    said = refused("reproduce", "z18-tab4", "--mixed-precision", "bf16", "--out", tmp_path)
    assert "--mixed-precision bf16 changes digits" in said
    mechanical = Hardware(num_workers=2, device="cpu").of(get("z18-tab4"), "cpu")
    assert cell_key(mechanical.rows("cpu", [1000])[0]) == cell_key(get("z18-tab4").rows("cpu", [1000])[0])


def test_several_processes_divide_a_batch_or_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "several processes divide the paper's batch" in refused("reproduce", "z18-tab4", "--out", tmp_path)
    asked = ("--scale", "paper", "--gpu-memory", 24, "--until", "decided", "--out", tmp_path)
    assert "the first process alone knows" in refused("reproduce", "z18-tab4", *asked)
    assert not list(tmp_path.iterdir())


def test_local_workers_have_gpus_of_their_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert Pool(workers=4, gpus=1).gpus == 1
    with pytest.raises(ValueError, match="must be at most the 4 GPUs of this machine, got 3 × 2"):
        Pool(workers=3, gpus=2)
    assert {visible_gpus(k, 1, list("0123")) for k in range(4)} == set("0123")


def test_stop_at_from_the_command(tmp_path):
    short = ("--model", "preactresnet10", "--model-option", "width=2", "--train-size", 60, "--epochs", 5)
    how = ("--method", "ERM()", "--stop-at", "accuracy=0.01", "--out", tmp_path / "run", "--json")
    ran = vicinal("train", "digits", *short, *how)
    assert len(ran.events("metrics")) == 1
    assert "--stop-at must be a finite number, got 'high'" in refused(
        "train", "digits", "--stop-at", "accuracy=high", "--out", tmp_path / "other"
    )


@pytest.mark.parametrize(
    ("record", "asked", "chosen"),
    [
        ({"device": "cuda"}, None, [None]),  # the GPU that is here
        ({"device": "cuda"}, "cuda:1", ["cuda:1"]),
        ({"device": "cpu"}, None, []),
        ({"device": "cpu"}, "cuda", ["cuda"]),
        (None, None, [None]),  # a model that was saved without a record of its training
    ],
)
def test_a_run_is_measured_where_it_was_trained(tmp_path, monkeypatch, record, asked, chosen):
    """On the device of its training if torch sees one here, or on the one that is asked for."""
    seen = []
    monkeypatch.setattr(run_module, "chosen_device", lambda name: seen.append(name) or torch.device("meta"))
    if record is not None:
        (tmp_path / "result.json").write_text(json.dumps({"format": 1, **record}))
    if asked is not None:
        monkeypatch.setenv("VICINAL_DEVICE", asked)
    assert run_module.Run(tmp_path).device.type == ("meta" if chosen else "cpu")
    assert seen == chosen


@pytest.mark.parametrize("command", [("evaluate",), ("predict", "digits", "--out", "answers.csv")])
def test_a_device_that_is_not_there_is_refused(tmp_path, command):
    name, *rest = command
    assert "--device cuda is not there: torch sees 0" in refused(name, tmp_path, *rest, "--device", "cuda")


def test_predict_computes_where_the_run_was_trained(tmp_path, monkeypatch):
    """On the device that the run names, unless --device names another."""
    seen = []

    def load(run, *, device, max_pixels):
        seen.append(str(device))
        raise ValueError("stop here")

    monkeypatch.setattr(vicinal_package, "load", load)
    monkeypatch.setattr(run_module.Run, "device", property(lambda run: torch.device("cuda:3")))
    assert "stop here" in refused("predict", tmp_path, "digits", "--out", tmp_path / "answers.csv")
    assert seen == ["cuda:3"]
