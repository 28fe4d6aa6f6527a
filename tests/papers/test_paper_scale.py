"""What only the paper scale measures, on a network of a moment: the same code as on ImageNet."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vicinal.metrics import evaluate
from vicinal.papers import images, l22_tab4, t19_hull, z18_sec5
from vicinal.papers.trained import Trained
from vicinal.runs import Experiment, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trained with `val="test"`, as T19's figures are."""
    asked = Experiment(
        source="digits",
        method="ERM()",
        model="preactresnet10",
        model_options={"width": 4},
        data={"train_size": 60, "max_held_out": 100, "val": "test", "augment": "none"},
        training={"epochs": 2, "batch_size": 30, "select": "accuracy", "trackers": []},
    )
    folder = tmp_path_factory.mktemp("run") / "digits"
    run(asked, folder, progress=False)
    return Trained(folder)


def test_an_oracles_run_is_read_again_with_its_splits(trained):
    task = trained.task
    assert task.val.indices == task.test.indices
    assert trained.result.sets["val"].before.accuracy == trained.test().accuracy


def test_both_epochs_are_measured_with_many_bins(trained):
    found = images.both_epochs([trained], {images.MANY_BINS: 100}, 0)
    logits, labels = trained.last_logits
    assert found["ece 100"].value == evaluate(labels, logits=logits, n_bins=100).ece.value
    confidence, accuracy, share = map(np.array, found["bins"])
    assert share.sum() == pytest.approx(1)
    assert (share * confidence).sum() == pytest.approx(float(logits.softmax(1).max(1).values.double().mean()), abs=1e-6)
    assert (share * accuracy).sum() == pytest.approx(1 - found["error"].value)
    assert "best ece 100" in found
    assert images.MANY_BINS not in images.both_epochs([trained], {}, 0)


def test_top_5_errors(trained):
    found = images.last_epoch([trained], {"top-5": True}, 0)
    logits, labels = trained.last_logits
    wrong = [label not in row.topk(5).indices for row, label in zip(logits, labels, strict=True)]
    assert found["top-5"] == pytest.approx(np.mean(wrong))
    assert "top-5" not in images.last_epoch([trained], {}, 0)


def test_training_error_and_gap(trained):
    found = z18_sec5.measure([trained], {}, 0)
    assert found["gap"] == pytest.approx(found["error"].value - found["train"].value)


def test_confidence_beyond_the_hull_is_that_of_points_beyond_pairs(trained):
    found = t19_hull.measure([trained], {"pairs": 5}, 0)
    assert len(found["confidence"]) == len(t19_hull.LAMBDAS)
    beyond = [c for c, share in zip(found["confidence"], t19_hull.LAMBDAS, strict=True) if share < 0 or share > 1]
    assert found["beyond"] == pytest.approx(np.mean(beyond))


def test_vwci_is_the_loss_of_seo_et_al():
    """Against loops over passes and samples, and equal to cross-entropy where all passes agree."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    torch.manual_seed(1)
    loss = l22_tab4.VWCI(passes=3)(model, x, y)
    torch.manual_seed(1)
    passes = [model(x).softmax(1).double().tolist() for _ in range(3)]
    total = 0.0
    for i in range(6):
        mean = [sum(p[i][k] for p in passes) / 3 for k in range(3)]
        alpha = sum(1 - sum(math.sqrt(mean[k] * p[i][k]) for k in range(3)) for p in passes) / 3
        for p in passes:
            kl = sum(math.log((1 / 3) / p[i][k]) / 3 for k in range(3))
            total += ((1 - alpha) * -math.log(p[i][y[i]]) + alpha * kl) / 3 / 6
    assert loss.item() == pytest.approx(total, rel=1e-5)
    plain = l22_tab4.VWCI(passes=2)(model.eval(), x, y)
    assert plain.item() == pytest.approx(torch.nn.functional.cross_entropy(model(x), y).item(), abs=1e-5)
