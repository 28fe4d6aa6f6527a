"""Every recipe at paper scale on networks and data of a moment: what `--coverage` says is covered is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.data.checkpoints import save_tiny
from tests.papers.toy_root import write_all
from vicinal.papers import execute, get, names
from vicinal.papers.base import Data, Network, Recipe
from vicinal.papers.claims import Key
from vicinal.papers.coverage import Part, parts
from vicinal.papers.execute import check_data, plan
from vicinal.runs.scheduler import Pool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the temperature stopped at"),
    pytest.mark.filterwarnings("ignore:with two classes every logit saliency"),
]

#: Parts of names of networks, and the options that make them small.
TINY = {
    "sentencecnn": {"maps": 2},
    "lenet": {"maps": 2, "hidden": 8},
    "vgg11": {"width": 2, "hidden": [8]},
    "vgg16": {"width": 2},
    "mlp": {"hidden": [8]},
}
#: Recipes whose panels are of certain epochs or iterations, and how many are trained here.
EPOCHS = {"t19-fig1": 200, "t19-fig7": 10}
#: Settings that say how much is measured.
FEWER = {"pairs": 5, "gradients": 2, "draws": 100, "group": 20, "points": 50, "epochs": 2, "width": 4}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """All data of the papers, and a BERT of two layers."""
    pytest.importorskip("transformers")
    home = tmp_path_factory.mktemp("papers")
    (home / "data").mkdir()
    write_all(home / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VICINAL_DATA", str(home / "data"))
        yield save_tiny(home / "bert", positions=512)


def tiny(network: Network, training: Mapping[str, Any], checkpoint: str) -> Network:
    """Return a small network of the same kind."""
    name = str(network.name)
    if name.startswith("hf:"):
        return Network(f"hf:{checkpoint}", {}, training)
    if name in TINY:
        return Network(name, {**network.options, **TINY[name]}, training)
    return Network("preactresnet10", {"width": 2, "final_norm": False}, training)


def shortened(training: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """Return a training of so many epochs, with the same choice of the epoch."""
    short = {**training, **({"epochs": epochs} if "epochs" in training else {})}
    if short.get("milestones"):
        short["milestones"] = [1]
    if short.get("warmup_epochs"):
        short["warmup_epochs"] = 0.5
    return {**short, **({"batch_size": min(short["batch_size"], 100)} if "batch_size" in short else {})}


def smaller(of: Data, epochs: int) -> Data:
    """Return a data set with small images and short sounds."""
    options = dict(of.options)
    if of.source in ("imagenet", "tinyimagenet", "stl10"):
        options["image_size"] = 32
    if of.source == "speechcommands":
        options["seconds"] = 0.25
    if options.get("val") == 500:  # of T19's temperature
        options["val"] = 10
    return dataclasses.replace(of, options=options, training=shortened(of.training, epochs))


def toy(name: str, checkpoint: str) -> Recipe:
    """Return a recipe whose paper scale is of a moment: the same rows, methods and measures."""
    recipe, epochs = get(name), EPOCHS.get(name, 1)
    at = recipe.scales["paper"]
    settings = {**at.settings, **{key: value for key, value in FEWER.items() if isinstance(at.settings.get(key), int)}}
    if "layers" in settings:
        settings["layers"] = 2
    if "STS-B" in settings:
        settings["STS-B"] = {**settings["STS-B"], "training": shortened(settings["STS-B"]["training"], 1)}
    if name == "z18-fig5":
        settings["panels"] = [1, 2, 3, 4, 5]
    at = dataclasses.replace(
        at,
        networks={key: tiny(of, shortened(of.training, epochs), checkpoint) for key, of in at.networks.items()},
        data={key: smaller(of, epochs) for key, of in at.data.items()},
        settings=settings,
        training=shortened(at.training, epochs),
    )
    return dataclasses.replace(recipe, scales={**recipe.scales, "paper": at})


def one_of_each(recipe: Recipe, covered: Sequence[Part]) -> Iterator[Key]:
    """Yield a covered row of each data set, and of those that are no trainings; BERT-large is left out."""
    seen = set()
    for cell in recipe.rows("paper", [1000]):
        kind = (cell.key[0], cell.train is not None, not cell.trainings)
        is_covered = not covered or any(shows(recipe, cell.key, part) for part in covered)
        if kind not in seen and is_covered and "BERT-large" not in cell.key:
            seen.add(kind)
            yield cell.key


def shows(recipe: Recipe, key: Key, part: Part) -> str:
    """Return the metric of a row that a part of a paper is, if it stands there."""
    if part.is_panel:
        return part.column if set(part.row.split(" · ")) <= set(key) else ""
    places = recipe.printed(key) if recipe.printed is not None else {}
    return next((name for name, at in places.items() if (at.row, at.column) == (part.row, part.column)), "")


@pytest.mark.parametrize("name", names())
def test_what_is_covered_is_measured(tmp_path, checkpoint, name):
    recipe, covered = toy(name, checkpoint), [part for part in parts() if part.recipe == name]
    wanted = plan(name, recipe, "paper", tmp_path, seeds=[1000], rows=set(one_of_each(recipe, covered)))
    (wanted,) = check_data([wanted], allow_slices=True)
    result = execute.reproduce(wanted, Pool(), progress=False)
    assert not result.failures
    found = 0
    for part in covered:
        for cell in result.cells:
            metric = shows(recipe, cell.key, part)
            if metric.startswith("samples "):  # a panel of Z18's Figure 5: of the iterations that were asked for
                metric = "samples 5"
            if metric:
                found += 1
                assert metric in {**cell.metrics, **cell.curves}, (part, cell.key)
    assert found or not covered
