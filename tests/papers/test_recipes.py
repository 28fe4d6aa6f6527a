"""Every recipe as a file: it can be read, its methods parse, its claims speak of its cells, at every scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vicinal
from vicinal import models
from vicinal.expressions import parse
from vicinal.papers import PAPERS, SCALES, get, images, names
from vicinal.papers.claims import FIRST_SEED, LATER_SEED, Claim
from vicinal.papers.execute import described

#: Tables of the papers whose numbers are in print, not in an image.
WITH_NUMBERS = (
    "z18-tab1",
    "z18-tab2",
    "z18-tab3",
    "z18-tab4",
    "t19-tab1-fig8",
    "p22-vanilla",
    "l22-tab1",
    "l22-tab2",
    "l22-tab3",
    "l22-tab4",
    "l22-tab5",
    "p22-tab1-2",
    "p22-tab3",
    "w21-tab2",
    "w21-tab3",
    "w21-tab4-fig2",
    "w21-tab5",
)


def test_the_list_is_sorted_by_paper():
    assert len(names()) >= 18
    assert [name[:3] for name in names()] == sorted(
        (name[:3] for name in names()), key=[p.lower() for p in PAPERS].index
    )


def test_a_recipe_that_is_none():
    with pytest.raises(ValueError, match="there is no recipe 'z18-tab22'; did you mean 'z18-tab2'"):
        get("z18-tab22")


@pytest.mark.parametrize("name", names())
def test_a_recipe_reads_like_its_table(name):
    recipe = get(name)
    assert recipe.place.paper.lower() == name[:3]
    assert all(recipe.place)
    assert tuple(recipe.scales) == SCALES
    assert recipe.columns
    assert recipe.draw is not None
    lines = (Path(vicinal.__file__).parent / "papers" / f"{name.replace('-', '_')}.py").read_text().splitlines()
    assert len(lines) <= 200, "a recipe is one page"
    # The night cell at cpu scale takes hours, and guided mixup trains twice on 5,000 pairs.
    long = {"t19-fig2-alpha": 400, "p22-tab1-2": 150, "p22-tab3": 150}
    assert recipe.scales["cpu"].minutes <= long.get(name, 70)
    assert bool(recipe.published) or name not in WITH_NUMBERS


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", names())
def test_claims_speak_of_cells_and_methods_parse(name, scale):
    recipe = get(name)
    cells = recipe.rows(scale)
    keys = {cell.key for cell in cells}
    assert len({(cell.key, cell.seed) for cell in cells}) == len(cells)
    claims = list(recipe.claims(recipe.scales[scale]))
    assert claims
    assert len({claim.text for claim in claims}) == len(claims)
    for claim in claims:
        assert {key for key, _ in claim.needs} <= keys
    assert 1 <= sum(claim.primary for claim in claims) <= 3
    for claim in claims:
        if isinstance(claim, Claim):
            assert (claim.margin != 0.01) == bool(claim.reason), claim.text
            assert claim.threshold == 0 or claim.kind == "above", claim.text
    assert recipe.scales[scale].seeds[0] == (LATER_SEED if name in ("z18-sec5", "t19-hull") else FIRST_SEED)
    for cell in cells:
        for experiment in cell.trainings:
            parse(experiment.method)
            assert str(experiment.model).startswith("hf:") or experiment.model in (None, *models.names(), "mlp")
            assert "seed" in experiment.data
    json.dumps(described(recipe, scale))


def test_seeds_can_be_others():
    cells = get("z18-fig3").rows("cpu", range(10, 12))
    assert {cell.seed for cell in cells} == {10, 11}
    assert all(e.seed == e.data["seed"] == cell.seed for cell in cells for e in cell.trainings)


def test_networks_go_with_their_data_at_paper_scale():
    for name in ("t19-fig2", "t19-fig6"):
        assert list(get(name).scales["paper"].pairs()) == [
            ("CIFAR-10", "VGG-16"),
            ("CIFAR-10", "ResNet-34"),
            ("CIFAR-100", "VGG-16"),
            ("CIFAR-100", "ResNet-34"),
            ("Fashion-MNIST", "ResNet-18"),
            ("STL-10", "VGG-16"),
        ]


def test_settings_say_what_the_names_of_rows_do_not():
    methods = described(get("z18-tab2"), "cpu")["methods"]
    assert methods["20 %"] == {
        "ERM": {"expression": "ERM()"},
        "ERM + dropout": {"expression": "ERM()", "network": {"dropout": 0.5}},
        "mixup": {"expression": "Mixup(alpha=8.0)"},
    }
    assert methods["80 %"]["mixup"] == {"expression": "Mixup(alpha=32.0)"}
    assert "methods" not in described(get("z18-fig3"), "cpu")


@pytest.mark.parametrize("name", names())
def test_a_scale_names_no_network_that_it_does_not_train(name):
    for scale in get(name).scales.values():
        if "PreAct ResNet-10" in scale.about:
            assert "preactresnet10" in {network.name for network in scale.networks.values()}


def test_claims_about_the_night_cell_are_primary_ones_of_shared_trainings():
    trained = {}
    for name in ("z18-fig3", "t19-fig2", "t19-fig2-alpha"):
        recipe = get(name)
        at = recipe.scales["night"]
        assert {"data": at.data, "networks": at.networks, "training": at.training} == images.night_cifar10()
        if name != "t19-fig2-alpha":
            assert all(claim.primary for claim in recipe.claims(at))
        trained[name] = {
            json.dumps(e.to_dict(), sort_keys=True) for cell in recipe.rows("night") for e in cell.trainings
        }
    assert len(trained["z18-fig3"]) == len(trained["t19-fig2"]) == 10
    assert len(trained["z18-fig3"] & trained["t19-fig2"]) == 5  # ERM with five seeds
    assert trained["z18-fig3"] | trained["t19-fig2"] < trained["t19-fig2-alpha"]


def test_recipes_share_trainings():
    here, there = (
        {json.dumps(e.to_dict(), sort_keys=True) for cell in get(name).rows("cpu") for e in cell.trainings}
        for name in ("t19-fig2", "t19-fig6")
    )
    assert len(here & there) == 20  # ERM and mixup on two sets with five seeds
