"""How long a training takes is said before it begins, and leaves the network and the random states alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from vicinal.runs import Experiment
from vicinal.runs.execute import specified
from vicinal.runs.expected_time import expected_seconds, time_notice
from vicinal.runs.run import load_task
from vicinal.training import FitConfig


def test_it_grows_with_epochs_and_samples_and_changes_nothing() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(2))
    network(torch.zeros(2, 3, 8, 8))
    before = {name: t.clone() for name, t in network.state_dict().items()}
    state = torch.get_rng_state()
    few = expected_seconds(network, (3, 8, 8), 1000, FitConfig(epochs=1))
    many = expected_seconds(network, (3, 8, 8), 1000, FitConfig(epochs=10_000))
    steps = expected_seconds(network, (3, 8, 8), 1000, FitConfig(steps=10**6, batch_size=10))
    assert 0 < few < many
    assert 0 < few < steps
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(t, before[name]) for name, t in network.state_dict().items())


def test_it_says_what_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert time_notice(100.0, "image", "cpu") is None
    monkeypatch.setattr("vicinal.runs.expected_time.at_hand", lambda name: True)
    said = str(time_notice(3600.0, "image", "cpu"))
    assert said.startswith("training takes about 60 minutes on cpu, by the time of one step; faster: epochs=10, ")
    assert "image_size=64" in said
    assert "weights that are at hand" in said
    assert "2.0 hours" in str(time_notice(7200.0, "audio", "cuda"))
    assert "seconds=1" in str(time_notice(7200.0, "audio", "cuda"))


def test_few_images_of_100_px_get_the_narrow_network(tmp_path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(10):
            pixels = np.random.default_rng(k).integers(0, 255, (100, 100, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{k}.png")
    experiment = Experiment(source=str(tmp_path))
    spec, _ = specified(experiment, load_task(experiment))
    assert (spec.name, spec.options["width"]) == ("preactresnet18", 16)
    assert sum(p.numel() for p in spec.build().parameters()) < 1_000_000
