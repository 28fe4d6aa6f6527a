"""The paper scale is the paper's setting: which options the papers give, resolved as a training sees them."""

from __future__ import annotations

import pytest

from vicinal.papers import get, names
from vicinal.papers.deviations import deviations
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
    """L22 trains PuzzleMix as its code does, and light networks as their papers do, which name ImageNet alone."""
    epochs = {cell.key[-1]: options["epochs"] for cell, options in resolved("l22-tab2") if cell.key[0] == "CIFAR-100"}
    assert {name: n for name, n in epochs.items() if n != 300} == {"PuzzleMix": 1200, "LogitMix over PuzzleMix": 1200}
    (only,) = deviations(get("l22-tab2"), "paper")
    assert only.what == "schedule"
    assert "as in Sandler et al. (2018)" in only.paper
    assert "Sandler" not in only.here
