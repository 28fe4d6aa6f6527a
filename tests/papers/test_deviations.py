"""The paper scale is the paper's setting: which options the papers give, resolved as a training sees them."""

from __future__ import annotations

import pytest

from vicinal.expressions import parse
from vicinal.papers import get, names
from vicinal.papers.deviations import deviations, ran_with
from vicinal.papers.execute import described
from vicinal.papers.hardware import Hardware
from vicinal.papers.keys import training_record


def resolved(name):
    """Every option of every training of a recipe at paper scale: of data and of training in one."""
    for cell in get(name).rows("paper", [1000]):
        for experiment in cell.trainings:
            record = training_record(experiment)
            yield cell, {**record["data"], **record["training"]}


#: Data sets that come with a development set, or with one of W21's Table 1 or Desai & Durrett's.
WITH_DEVELOPMENT = ("speechcommands", "imdb:w21", "agnews:w21", "snli", "qqp", "swag")


@pytest.mark.parametrize("name", names())
def test_all_samples_are_trained_on(name):
    """T19's temperature is the one exception, which the list of deviations names."""
    for cell, options in resolved(name):
        if name != "t19-tab1-fig8":
            source = cell.trainings[0].source
            assert options["val"] in (0, "test") or source.startswith(WITH_DEVELOPMENT), cell.name
        assert options["train_size"] in (None, 32, 64)  # W21's few examples
    held_out = [one for one in deviations(get(name), "paper") if one.what == "samples held out for validation"]
    assert held_out == ([("samples held out for validation", "500", "none")] if name == "t19-tab1-fig8" else [])


def test_an_epoch_that_is_chosen_on_the_test_set_is_called_an_oracles():
    for name in names():
        at = get(name).scales["paper"]
        if any(options["val"] == "test" and options["select"] != "last" for _, options in resolved(name)):
            assert "oracle" in at.about, name


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("z18")])
def test_z18_measures_the_last_epoch_and_has_no_nesterov_momentum_on_cifar(name):
    for cell, options in resolved(name):
        assert options["select"] == "last"
        if cell.trainings[0].source.startswith("cifar"):
            plain = {"optimizer": "sgd", "lr": 0.1, "nesterov": False, "weight_decay": 1e-4, "warmup_epochs": 0.0}
            assert {field: options[field] for field in plain} == plain
            assert (options["epochs"], options["batch_size"]) == (200, 128)


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(("w21", "l22-tab3", "p22"))])
def test_texts_have_the_papers_options_and_no_others(name):
    for _, options in resolved(name):
        clipped = 1.0 if name.startswith("p22") else None
        decay = options["weight_decay"] if name.startswith("p22") else 0.0
        given = {"schedule": "constant", "warmup_epochs": 0.0, "clip_norm": clipped, "weight_decay": decay}
        assert {field: options[field] for field in given} == given
        assert decay in (0.0, 0.1)


def test_deviations_follow_from_the_record():
    """What is computed names each option in which the small scales differ, and nothing at the paper's own."""
    listed = {one.what: (one.here, one.paper) for one in deviations(get("t19-fig2"), "cpu")}
    assert listed["samples held out for validation"] == ("2,000", "none")
    assert listed["schedule"] == ("cosine", "× 0.5 after 2, 60, 120 and 160")
    assert deviations(get("t19-fig2"), "paper") == []
    chosen = {one.what: one.paper for one in deviations(get("w21-tab5"), "cpu")}
    assert chosen["epoch that is measured"] == "best test accuracy (oracle)"


def test_what_the_paper_trains_otherwise_is_listed_or_done():
    """L22 trains PuzzleMix as its public code does, and light networks by the procedures of their papers."""
    found = {cell.key: options for cell, options in resolved("l22-tab2")}
    epochs = {key[-1]: options["epochs"] for key, options in found.items() if key[0] == "CIFAR-100"}
    assert {name: n for name, n in epochs.items() if n != 300} == {"PuzzleMix": 1200, "LogitMix over PuzzleMix": 1200}
    for (data, _, method), options in found.items():
        if "PuzzleMix" in method and data != "ILSVRC2015":
            code = {"nesterov": True, "weight_decay": 1e-4, "batch_size": 100, "schedule": "milestones", "factor": 0.1}
            assert {field: options[field] for field in code} == code
    mobile, shuffle = (found["CIFAR-100", name, "Mixup"] for name in ("MobileNetV2", "ShuffleNetV2"))
    assert (mobile["lr"], mobile["factor"], mobile["batch_size"], mobile["weight_decay"]) == (0.045, 0.98, 96, 4e-5)
    assert mobile["milestones"] == list(range(1, 300))
    assert (shuffle["lr"], shuffle["schedule"], shuffle["batch_size"]) == (0.5, "linear", 1024)
    (only,) = deviations(get("l22-tab2"), "paper")
    assert only.what == "training of PuzzleMix on ILSVRC2015"
    listed = {one.what: one for one in deviations(get("l22-sec5-4"), "cpu")}["training of single methods"]
    assert listed.here == "none"
    assert "epochs 1,200" in listed.paper


def test_puzzlemix_knows_the_images_it_mixes():
    """TinyImageNet and ILSVRC have statistics of their own; on the first the public code adds the clean loss."""
    method = {cell.key: parse(cell.trainings[0].method) for cell in get("l22-tab2").rows("paper", [1000])}
    cifar, tiny, large = (method[data, "ResNet50", "PuzzleMix"] for data in ("CIFAR-100", "TinyImageNet", "ILSVRC2015"))
    assert len({cifar.mean, tiny.mean, large.mean}) == 3
    assert (tiny.clean_weight, cifar.clean_weight) == (1.0, 0.0)
    assert method["TinyImageNet", "ResNet50", "LogitMix over PuzzleMix"].base.clean_weight == 0.0
    cut = method["ILSVRC2015", "ResNet50", "CutMix"]
    assert cut.prob == 1.0


def test_t19_claims_at_paper_scale_are_of_the_epoch_that_the_paper_measures():
    for name in ("t19-fig2", "t19-fig2-alpha", "t19-fig6", "t19-supp"):
        recipe = get(name)
        for scale, prefix in (("paper", "best "), ("cpu", "")):
            primary = [claim for claim in recipe.claims(recipe.scales[scale]) if claim.primary]
            metrics = {metric for claim in primary for _, metric in claim.contrast.needs}
            assert metrics <= {f"{prefix}ece", f"{prefix}oe"}, name
    listed = {one.what: (one.here, one.paper) for one in deviations(get("t19-fig6"), "cpu")}
    assert listed["epoch that is measured"] == (
        "last, and beside it best validation accuracy",
        "best test accuracy (oracle)",
    )


def test_how_a_result_was_run_is_listed_beside_the_record():
    hardware = Hardware(gpu_memory=24, mixed_precision="bf16", num_workers=4).of(get("z18-tab3"), "paper")
    settings = described(hardware, "paper")
    assert settings["hardware"] == {"gpu_memory": 24, "mixed_precision": "bf16"}  # workers do not change digits
    assert "hardware" not in described(get("z18-tab3"), "paper")
    listed = ran_with({**settings, "slices": {"stl10": "40 of 13,000 samples"}})
    assert [(one.what, one.here, one.paper) for one in listed] == [
        ("gpu memory", "24", "not given"),
        ("mixed precision", "bf16", "not given"),
        ("samples of stl10", "40", "13,000"),
    ]
