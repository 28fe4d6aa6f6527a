"""Everything on a simulated device: the numbers of the CPU, and no wait of the host that is not allowed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import vicinal
from tests.contracts.cases import MLP, K, batch
from vicinal._checks import TARGET_TYPES

pytest.importorskip("transformers")
pytest.importorskip("torchmetrics")
pytest.importorskip("lightning")
if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
    pytest.skip("this torch has no devices written in Python", allow_module_level=True)

#: The blocking events of a steady step of each objective. A test holds them as they are: more is an error, and so is
#: fewer, after which the number here has to be lowered.
ALLOWED: dict[str, int] = {
    "Mixup(alpha=1.0, partners='same_class')": 1,  # who is of one class depends on the labels
    "PuzzleMix(block_counts=[2, 4])": 1,  # masks and saliency, for the transport
    "PuzzleMix(block_counts=[2], solver='exact', adv_prob=1.0)": 2,
    "GuidedMixup(pool='set')": 1,  # the host needs to know whom to load
    "AUM": 1,
}
#: Where the index is on the device, the host has to look at it.
INDEX_THERE = {"AUM": 1, "GuidedMixup(pool='batch')": 1, "GuidedMixup(pool='set')": 2}
#: Where there is no float64 the search is the CPU's.
WITHOUT_FLOAT64: dict[str, int] = ALLOWED | {"GuidedMixup(pool='batch')": 1, "GuidedMixup(pool='set')": 1}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What happened in a process with the device, since it stays registered in its process."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.on_device"], cwd=root, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize(
    ("part", "allowed"),
    [("objectives", ALLOWED), ("without float64", WITHOUT_FLOAT64), ("index there", INDEX_THERE), ("decoders", {})],
)
def test_objectives_have_the_losses_of_the_cpu_and_exactly_the_waits_allowed(found, part, allowed):
    assert set(allowed) <= set(found[part])
    for name, steps in found[part].items():
        assert "crash" not in steps, f"{name}: {steps['crash']}"
        assert steps["got"] == steps["want"], name
        assert len(steps["waits"]) == allowed.get(name, 0), f"{name}: {steps['waits']}"


def test_every_public_objective_ran(found):
    ran = " ".join(found["objectives"])
    assert [name for name in vicinal.OBJECTIVES if name not in ran] == []


def test_a_plan_travels_in_one_copy(found):
    for name in (
        "Mixup(alpha=0.4)",
        "CutMix(alpha=1.0, per_sample=True)",
        "KMixup(alpha=1.0, k=3)",
        "ResizeMix()",
        "SequenceMixup.cls()",
    ):
        assert len(found["objectives"][name]["copies"]) == 1


def test_other_targets(found):
    for name, step in found["targets"].items():
        assert step["got"] == step["want"], name
        assert step["waits"] == [], name


def test_wrong_values_are_refused_without_waiting_for_them(found):
    errors = found["bad values"]
    assert "labels must be in [0, 4] for 5 logits" in errors["label"]
    assert "labels must be in" in errors["ignored label"]  # which torch's cross-entropy would leave out
    assert "sum to one" in errors["soft"]
    assert "weight must be finite numbers of at least 0" in errors["weight"]


def test_calibrators_and_prediction_sets(found):
    assert len(found["calibrators"]) >= 6
    assert all(found["calibrators"].values()), found["calibrators"]


def test_metrics_count_there_and_wait_for_nothing(found):
    metrics = found["metrics"]
    assert metrics["measured"][0] == metrics["measured"][1]
    assert set(metrics["measured"][0]) == set(TARGET_TYPES)
    assert set(metrics["torchmetrics"][0]) >= {"ECE", "OE"}
    assert metrics["torchmetrics"][1] == pytest.approx(metrics["torchmetrics"][0], abs=1e-6)
    assert metrics["waits"] == []
    assert metrics["counts"]
    assert metrics["probs"]
    assert metrics["sums"] < 1e-5  # of 300 float32 confidences
    assert metrics["squares"] < 1e-5
    assert metrics["ece"][0] == pytest.approx(metrics["ece"][1], abs=1e-6)


def test_a_step_of_the_loop_waits_for_nothing_and_refuses_labels_in_its_own_words(found):
    training = found["training"]
    for name, step in training["steps"].items():
        assert step["waits"] == [], name
        assert len(step["copies"]) == 3, name  # x, y, and the plan or the noise
        assert step["got"] == step["want"], name
        on_main, drawn = step["drawn"]
        assert drawn > on_main == 0, name  # threads draw λ and the noise
    options = training["with options"]
    assert options["waits"] == []
    assert {"loss_similarity", "val_nll"} < set(options["lines"][0])
    assert options["lines"][1] == pytest.approx(options["lines"][0], rel=1e-4)
    assert training["error"] == "ValueError: labels must be in [0, 4] for 5 logits, got 5"


def test_what_recipes_measure_is_the_same_there(found):
    assert "crash" not in found["papers"], found["papers"]["crash"]
    for name, values in found["papers"].items():
        assert values["got"] == pytest.approx(values["want"], abs=1e-6), name


@pytest.mark.parametrize("name", ["hugging face", "lightning"])
def test_integrations(found, name):
    assert found[name].get("got") == found[name].get("want") is not None, found[name]
    assert found[name]["waits"] == []


# Compiled steps

#: Of the compiler, which asks every tensor that goes on after a break of the graph for its gradient.
compiler_warns = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


def graphs(expression: str, steps: int = 4) -> list[int]:
    """Return how many graphs there are after each step that is compiled as a whole; losses are those of eager."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model, objective, (x, y) = MLP(), vicinal.parse(expression), batch(8)
    step = torch.compile(lambda x, y: objective(model, x, y, epoch=1.5), backend="eager")
    found = []
    for s in range(steps):
        torch.manual_seed(s)
        got = step(x, y)
        torch.manual_seed(s)
        want = objective(model, x, y, epoch=1.5)
        assert torch.equal(got, want)
        found.append(counters["stats"]["unique_graphs"])
    return found


@compiler_warns
def test_plain_training_is_one_graph():
    torch._dynamo.reset()
    model, (x, y) = MLP(), batch(8)
    outside = vicinal.Warmup(vicinal.Mixup(alpha=1.0), epochs=1)
    whole = torch.compile(lambda x, y: vicinal.ERM()(model, x, y), backend="eager", fullgraph=True)
    assert torch.equal(whole(x, y), vicinal.ERM()(model, x, y))
    early = torch.compile(lambda x, y: outside(model, x, y, epoch=0.5), backend="eager", fullgraph=True)
    assert torch.equal(early(x, y), outside(model, x, y, epoch=0.5))
    with pytest.raises(RuntimeError, match=r"labels must be in \[0, 4\]"):
        whole(x, torch.full_like(y, K))


@compiler_warns
@pytest.mark.parametrize(
    "expression",
    ["Mixup(alpha=1.0)", "CutMix(per_sample=True)", "ResizeMix()", "GaussianVicinity(sigma=0.1)", "RegMixup(CutMix())"],
)
def test_a_step_is_one_graph_whatever_is_drawn(expression):
    assert graphs(expression) == [1] * 4


@compiler_warns
def test_each_objective_that_is_drawn_has_its_graph():
    found = graphs("RandomChoice(ERM(), RegMixup(CutMix()), GaussianVicinity(sigma=0.1))", steps=6)
    assert found[0] == 1
    assert found[-1] <= 3


@compiler_warns
@pytest.mark.parametrize(
    "expression",
    ["Mixup(alpha=1.0)", "CutMix(prob=0.5)", "CutMix(per_sample=True)", "ResizeMix()", "PuzzleMix()"],
)
def test_a_step_whose_plan_is_given_is_one_graph_without_a_break(expression):
    from torch._dynamo.utils import counters

    model, base, (x, y) = MLP(), vicinal.parse(expression), batch(8)
    for objective in (base, vicinal.LogitMix(base)):
        torch._dynamo.reset()
        counters.clear()
        whole = torch.compile(
            lambda x, y, plan, o=objective: sum(o.terms(model, x, y, drawn=plan).values()),
            backend="eager",
            fullgraph=True,
        )
        for s in range(3):
            plan = base.draw(model, x, y, generator=torch.Generator().manual_seed(s))
            want = objective(model, x, y, generator=torch.Generator().manual_seed(s))
            assert torch.equal(whole(x, y, plan), want)
        assert counters["stats"]["unique_graphs"] <= 2  # LogitMix has one for batches that are left unmixed


@compiler_warns
@pytest.mark.parametrize("expression", ["CutMix(per_sample=True)", "ResizeMix()"])
def test_a_step_whose_plan_is_on_a_device_is_one_graph(expression):
    torch._dynamo.reset()
    objective, (x, y) = vicinal.parse(expression), batch(8)
    plan = objective.draw(MLP(), x, y)
    tensors = {f.name: value for f in fields(plan) if isinstance(value := getattr(plan, f.name), torch.Tensor)}
    there = replace(plan, **{name: t.to("meta") for name, t in tensors.items()})
    model = MLP().to("meta")
    whole = torch.compile(lambda x, y: objective.terms(model, x, y, drawn=there), backend="eager", fullgraph=True)
    assert whole(x.to("meta"), y.to("meta"))["loss"].is_meta


@compiler_warns
@pytest.mark.slow
def test_a_hidden_layer_has_a_graph_of_its_own_and_no_more():
    assert graphs("ManifoldMixup(layers=['input', 'hidden.0'])", steps=6)[-1] == 2
    after = graphs("ManifoldMixup(layers=['input', 'hidden'])", steps=6)  # a container is put together in each step
    assert after[2:] == after[2:3] * 4


@compiler_warns
@pytest.mark.slow
def test_objectives_that_track_samples_compile():
    torch._dynamo.reset()
    model, (x, y) = MLP(), batch(8)
    index, guided = torch.arange(8), vicinal.GuidedMixup(pool="batch")
    aum = guided.tracker(8)
    recorder = vicinal.objectives.guided.aum.AUMRecorder(aum)
    torch.compile(lambda: recorder(model, x, y, index=index, epoch=0.0), backend="eager")()
    bound = guided.bind(aum)

    def step() -> torch.Tensor:
        return bound(model, x, y, index=index)

    torch.manual_seed(0)
    got = torch.compile(step, backend="eager")()
    torch.manual_seed(0)
    assert torch.equal(got, step())


def test_objectives_inside_transforms_of_functions():
    model, (x, y) = MLP(), batch(8)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    class Called(torch.nn.Module):
        def __init__(self, held: dict[str, torch.Tensor]) -> None:
            super().__init__()
            self.held = held

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(model, self.held, (x,))

    def loss(held: dict[str, torch.Tensor]) -> torch.Tensor:
        return vicinal.Mixup(alpha=1.0)(Called(held), x, y, generator=torch.Generator().manual_seed(0))

    def loss_of(held: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return vicinal.Mixup(alpha=1.0)(Called(held), x, y, weight=torch.ones(len(y)))

    torch.manual_seed(0)
    each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0), randomness="same")
    mapped = each(parameters, x.view(4, 2, *x.shape[1:]), y.view(4, 2))
    for i in range(4):
        torch.manual_seed(0)
        for name, want in torch.func.grad(loss_of)(parameters, x[2 * i : 2 * i + 2], y[2 * i : 2 * i + 2]).items():
            torch.testing.assert_close(mapped[name][i], want)
    with pytest.raises(ValueError, match=r"labels must be in \[0, 4\]"):
        each(parameters, x.view(4, 2, *x.shape[1:]), y.view(4, 2) + K)

    for expression in ("CutMix(per_sample=True)", "GaussianVicinity(sigma=0.1)"):
        objective = vicinal.parse(expression)
        torch.manual_seed(0)
        mapped_losses = torch.func.vmap(lambda x, y, o=objective: o(model, x, y), randomness="same")(
            x.view(4, 2, *x.shape[1:]), y.view(4, 2)
        )
        for i in range(4):
            torch.manual_seed(0)
            torch.testing.assert_close(mapped_losses[i], objective(model, x[2 * i : 2 * i + 2], y[2 * i : 2 * i + 2]))

    got = torch.func.grad(loss)(parameters)
    vicinal.Mixup(alpha=1.0)(model, x, y, generator=torch.Generator().manual_seed(0)).backward()
    for name, p in model.named_parameters():
        assert torch.equal(got[name], p.grad)
