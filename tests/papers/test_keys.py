"""Keys of cells: pinned, complete, and blind to names in the code."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import pytest

from vicinal import data, models
from vicinal.data.options import RECORDS
from vicinal.models.sentence_cnn import SentenceCNN
from vicinal.papers import SCALES, get, keys, names
from vicinal.papers.base import Cell
from vicinal.runs import Experiment
from vicinal.training.config import MECHANICAL, FitConfig

PINNED = json.loads((Path(__file__).parent / "pinned_keys.json").read_text(encoding="utf-8"))
PLAIN = Experiment(source="cifar10", method="ERM()", model="preactresnet10", training={"batch_size": 8})


def plain(**changed: object) -> Experiment:
    return dataclasses.replace(PLAIN, **changed)


@pytest.mark.parametrize("pinned", PINNED, ids=lambda pinned: pinned["row"])
def test_keys_are_pinned(pinned):
    """A key that changes would orphan committed cells: raise NUMERICS where digits change, else mend keys.py."""
    cells = {cell.name: cell for cell in get(pinned["recipe"]).rows(pinned["scale"], [pinned["seed"]])}
    assert keys.cell_key(cells[pinned["row"]]) == pinned["key"]


def test_twenty_are_pinned():
    assert len({pinned["key"] for pinned in PINNED}) == 20
    assert len({pinned["recipe"] for pinned in PINNED}) >= 10


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "cifar100"},
        {"method": "ERM(label_smoothing=0.1)"},
        {"data": {"val": 0.2}},
        {"data": {"seed": 1}},
        {"model_options": {"width": 8}},
        {"model": "preactresnet18"},
        {"training": {"batch_size": 8, "lr": 0.3}},
        {"training": {"batch_size": 8, "channels_last": True}},
        {"corrupt": 0.5},
        {"seed": 1},
    ],
    ids=str,
)
def test_every_option_counts(changed):
    assert keys.training_key(plain(**changed)) != keys.training_key(PLAIN)


@pytest.mark.parametrize(
    "same",
    [
        {"method": "ERM(label_smoothing=0)"},
        {"data": {"val": 0.15}},
        {"data": {"data_root": "elsewhere"}},
        {"model_options": {"dropout": 0.0}},
        {"training": {"batch_size": 8, "momentum": 0.9}},
        {"training": {"batch_size": 8, "num_workers": 2, "channels_last": False}},
    ],
    ids=str,
)
def test_what_changes_nothing_does_not_count(same):
    assert keys.training_key(plain(**same)) == keys.training_key(PLAIN)


def test_an_option_without_a_fixed_name_is_refused():
    with pytest.raises(ValueError, match="no fixed name for the option 'colour' of data"):
        keys.training_key(plain(data={"colour": 1}))
    with pytest.raises(ValueError, match="no defaults for the network 'timm:vit'"):
        keys.training_key(plain(model="timm:vit"))
    with pytest.raises(ValueError, match="no fixed name for the option 'depth' of preactresnet10"):
        keys.training_key(plain(model_options={"depth": 3}))


def test_defaults_are_those_of_the_code():
    """A default that changes in the code must change here too, and with it the keys that rest on it."""
    stated = {one.name: one.default for record in RECORDS for one in dataclasses.fields(record)}
    stated |= {p.name: p.default for p in inspect.signature(data.load).parameters.values()}
    for code, (_, default) in keys._DATA.items():
        # The first is a limit, not a setting. Recipes with sounds name their length, which data decide otherwise.
        if code not in ("max_pixels", "seconds"):
            assert stated[code] == (tuple(default) if default == [] else default), code
    fields = {f.name for f in dataclasses.fields(FitConfig)}
    assert fields == {*keys._TRAINING, *keys.ADDED["training"], *MECHANICAL}
    for name, default in keys.ADDED["training"].items():
        assert getattr(FitConfig(), name) == default
    for code, (_, default) in keys._EXPERIMENT.items():
        assert PLAIN.to_dict()[code] == default, code
    taken = {"source", "method", "data", "model", "model_options", "training"}
    assert {f.name for f in dataclasses.fields(Experiment)} == {*keys._EXPERIMENT, *keys.ADDED["experiment"], *taken}


def test_defaults_of_networks_are_those_of_the_code():
    shapes = {"tabular": (5,), "image": (3, 32, 32), "audio": (1, 64, 64)}
    for name, defaults in keys.NETWORKS.items():
        kind = {"mlp": "tabular", "lenet": "audio", "vgg11": "audio"}.get(name, "image")
        if name in ("sentencecnn", "minilm"):
            continue
        options = models.specify(name, kind=kind, n_classes=3, input_shape=shapes[kind]).options
        assert options == defaults, name
    words = {p.name: p.default for p in inspect.signature(SentenceCNN.__init__).parameters.values()}
    for name, default in keys.NETWORKS["sentencecnn"].items():
        if name != "vectors":
            assert words[name] == (tuple(default) if isinstance(default, list) else default)


@pytest.mark.parametrize("name", names())
def test_every_cell_has_a_key_of_its_own(name):
    measure = get(name).measure
    assert f"{measure.__module__.rpartition('.')[2]}.{measure.__qualname__}" in keys.MEASURES
    for scale in SCALES:
        cells = get(name).rows(scale, [1000, 1001])
        assert len({keys.cell_key(cell) for cell in cells}) == len(cells)


def test_names_of_measures_are_fixed():
    def last_epoch(trained, settings, seed):
        return {}

    last_epoch.__module__, last_epoch.__qualname__ = "vicinal.papers.images", "last_epoch"
    assert keys.cell_record(Cell(("row",), 3, last_epoch))["measure"] == "last epoch"


def test_recipes_with_sounds_name_their_length():
    """A key without a length means one second, as it did when the first were written."""
    from vicinal.papers import z18_fig4

    source = inspect.getsource(z18_fig4)
    assert source.count('Data("') == source.count('"seconds"') > 0
