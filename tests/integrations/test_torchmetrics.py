"""The torchmetrics classes are the reliability table: streamed, moved, collected and merged over processes."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch import nn

from tests.processes import in_processes
from vicinal import ReliabilityTable, evaluate

pytest.importorskip("torchmetrics")
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from vicinal.integrations.torchmetrics import ECE, OE, ReliabilityMetric

N, K = 1000, 5


def predictions(n: int = N) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(n, K, generator=generator)
    return logits, torch.randint(K, (n,), generator=generator)


def assert_same(a: ReliabilityTable, b: ReliabilityTable) -> None:
    assert np.array_equal(a.counts, b.counts)
    np.testing.assert_allclose(a.sums, b.sums, rtol=1e-12)
    np.testing.assert_allclose(a.squares, b.squares, rtol=1e-12)


def test_streamed_equals_the_table():
    logits, labels = predictions()
    table = ReliabilityTable.from_logits(labels, logits, n_bins=10)
    metric, ece, oe = ReliabilityMetric(n_bins=10), ECE(n_bins=10), OE(n_bins=10)
    for z, y in zip(logits.split(130), labels.split(130), strict=True):
        metric.update(y, logits=z)
        ece.update(y, probs=z.double().softmax(1))
        batch = oe(y, logits=z)
        assert float(batch) == pytest.approx(ReliabilityTable.from_logits(y, z, n_bins=10).oe())
    assert_same(metric.compute(), table)
    assert float(ece.compute()) == pytest.approx(table.ece(), rel=1e-7)
    assert float(oe.compute()) == pytest.approx(table.oe(), rel=1e-12)


def test_confidence_one_belongs_to_the_last_bin():
    """Half at 1.0 with accuracy 0.9, half at 0.95 with accuracy 1.0: 0.025, where torchmetrics' own says 0.075."""
    confidence = torch.tensor([1.0] * 100 + [0.95] * 100, dtype=torch.float64)
    probs = torch.stack([confidence, 1 - confidence], dim=1)
    metric = ECE()
    metric.update(torch.tensor([1] * 10 + [0] * 190), probs=probs)
    assert float(metric.compute()) == pytest.approx(0.025)


def test_logits_within_zero_and_one_are_still_logits():
    logits, labels = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0])
    metric = ReliabilityMetric()
    metric.update(labels, logits=logits)
    assert metric.compute().confidence == pytest.approx(float(logits.softmax(1).amax(1).mean()))
    with pytest.raises(ValueError, match="exactly one of logits= and probs="):
        metric.update(labels)
    with pytest.raises(ValueError, match="exactly one of logits= and probs="):
        metric.update(labels, logits=logits, probs=logits)
    with pytest.raises(ValueError, match="n_bins"):
        ECE(n_bins=0)


@pytest.mark.parametrize(
    "convert",
    [
        lambda m: m.to(torch.bfloat16),
        lambda m: m.half(),
        lambda m: m.float(),
        lambda m: m.bfloat16(),
        lambda m: m.to("cpu", torch.float16),
        lambda m: m.metric.set_dtype(torch.float16),
    ],
)
def test_the_sums_stay_exact_when_the_model_changes_its_type(convert):
    logits, labels = predictions()
    model = nn.Module()
    model.net, model.metric = nn.Linear(2, 2), ReliabilityMetric()
    model.metric.update(labels[:500], logits=logits[:500])
    convert(model)
    model.metric.update(labels[500:], logits=logits[500:])
    assert model.metric.counts.dtype == torch.int64
    assert model.metric.sums.dtype == model.metric.squares.dtype == torch.float64
    assert_same(model.metric.compute(), ReliabilityTable.from_logits(labels, logits))
    model.metric.reset()
    assert model.metric.sums.dtype == torch.float64


def test_forty_million_confident_samples():
    """torchmetrics sums in float32: at 40 million samples of confidence 0.9999 its error is 0.0 (truth 0.3999)."""
    metric = ECE()
    metric.update(
        torch.tensor([0, 0, 0, 1, 1]), probs=torch.tensor([[0.9999, 0.0001]], dtype=torch.float64).expand(5, 2)
    )
    for name in ("counts", "sums", "squares"):
        setattr(metric, name, getattr(metric, name) * (40_000_000 // 5))
    other = ECE()
    other.update(torch.tensor([0]), probs=torch.tensor([[0.9999, 0.0001]], dtype=torch.float64))
    metric.merge_state(other)
    assert int(metric.counts.sum()) == 40_000_001
    assert float(metric.compute()) == pytest.approx(0.3999, abs=1e-6)


def test_reset_collection_and_bfloat16_logits():
    logits, labels = predictions()
    collection = MetricCollection({"ece": ECE(), "oe": OE(), "table": ReliabilityMetric()})
    for z, y in zip(logits.bfloat16().split(300), labels.split(300), strict=True):
        collection.update(y, logits=z)
    result = collection.compute()
    table = ReliabilityTable.from_logits(labels, logits.bfloat16())
    assert float(result["ece"]) == pytest.approx(table.ece())
    assert float(result["oe"]) == pytest.approx(table.oe())
    assert_same(result["table"], table)
    collection.reset()
    collection.update(labels[:10], logits=logits[:10])
    assert collection.compute()["table"].n == 10


def test_state_dict_round_trip():
    logits, labels = predictions()
    metric, other = ECE(), ECE()
    metric.persistent(True)
    metric.update(labels, logits=logits)
    other.load_state_dict(metric.state_dict())
    other.persistent(True)
    assert torch.equal(other.sums, metric.sums)


def test_an_empty_metric_says_so():
    with (
        pytest.warns(UserWarning, match="before the ``update`` method"),
        pytest.raises(ValueError, match="the table is empty"),
    ):
        ECE().compute()


def _worker(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        logits, labels = predictions()
        part = slice(0, 300) if rank == 0 else slice(300, N)  # of unequal size
        metric, table = ECE(n_bins=10), ReliabilityMetric(n_bins=10)
        for m in (metric, table):
            m.update(labels[part], logits=logits[part])
        merged, error = table.compute(), metric.compute()
        own = int(table.counts.sum())  # after compute each process holds its own part again
        torch.save((merged.counts, merged.sums, merged.squares, float(error), own), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


def test_two_processes_give_one_table(tmp_path: Path):
    in_processes(2, _worker, str(tmp_path))
    logits, labels = predictions()
    expected = ReliabilityTable.from_logits(labels, logits, n_bins=10)
    for rank, size in enumerate((300, 700)):
        counts, sums, squares, error, own = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        assert np.array_equal(counts, expected.counts)
        np.testing.assert_allclose(sums, expected.sums, rtol=1e-12)
        np.testing.assert_allclose(squares, expected.squares, rtol=1e-12)
        assert error == pytest.approx(expected.ece(), rel=1e-12)
        assert own == size


def test_the_example_runs(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "torchmetrics_loop.py"), run_name="__main__")
    assert "epoch 10: accuracy 0.9" in capsys.readouterr().out


def test_beside_the_metrics_of_torchmetrics():
    logits, labels = predictions()
    probs = logits.softmax(1)
    labels = torch.where(torch.arange(N) % 7 == 0, -1, labels)
    own = ECE(n_bins=10, ignore_index=-1)
    both = MetricCollection(
        {"accuracy": MulticlassAccuracy(K, average="micro", ignore_index=-1), "ece": own, "oe": OE(ignore_index=-1)}
    )
    for p, y in zip(probs.split(300), labels.split(300), strict=True):
        both.update(p, y)
    kept = labels >= 0
    table = ReliabilityTable.from_logits(labels[kept], logits[kept], n_bins=10)
    values = both.compute()
    assert float(values["ece"]) == pytest.approx(table.ece(), rel=1e-6)
    assert float(values["accuracy"]) == pytest.approx(table.accuracy, rel=1e-6)
    by_logits = ECE(n_bins=10, preds="logits", ignore_index=-1)
    by_logits.update(logits, labels)
    assert float(by_logits.compute()) == pytest.approx(table.ece(), rel=1e-6)
    by_logits.update(torch.zeros(2, K), torch.tensor([-1, -1]))  # nothing that counts
    with pytest.raises(ValueError, match="not both"):
        by_logits.update(logits, labels, logits=logits)


def test_plots():
    plt = pytest.importorskip("matplotlib.pyplot")
    logits, labels = predictions(50)
    for metric in (ECE(), ReliabilityMetric()):
        metric.update(labels, logits=logits)
        figure, axes = metric.plot()
        assert axes.figure is figure
        plt.close(figure)


def test_pixels_and_one_score_as_torchmetrics_takes_them():
    generator = torch.Generator().manual_seed(0)
    scores, pixels = torch.randn(4, 3, 5, 6, generator=generator), torch.randint(3, (4, 5, 6), generator=generator)
    pixels[0, 0] = -1
    both = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(num_classes=3, ignore_index=-1, average="micro"),
            "ece": ECE(preds="logits", ignore_index=-1),
        }
    )
    both.update(scores, pixels)
    rows = [(scores[i, :, a, b], pixels[i, a, b]) for i in range(4) for a in range(5) for b in range(6)]
    z, labels = (torch.stack(part) for part in zip(*[row for row in rows if row[1] != -1], strict=True))
    want = evaluate(labels, logits=z)
    values = both.compute()
    assert float(values["ece"]) == pytest.approx(want.ece.value)
    assert float(values["accuracy"]) == pytest.approx(want.accuracy.value)
    p, yes = torch.rand(50, generator=generator), torch.randint(2, (50,), generator=generator)
    want = evaluate(yes, probs=torch.stack([1 - p, p], 1))
    assert float(ECE()(p, yes)) == pytest.approx(want.ece.value)
    assert float(ECE(preds="logits")(p.logit(), yes)) == pytest.approx(want.ece.value, rel=1e-5)
