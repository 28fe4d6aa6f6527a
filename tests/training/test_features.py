"""A linear head on a frozen network, against loops."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from vicinal.training.features import Standardised, compute_features, head_of, logits_of_features, put_head
from vicinal.training.predicting import AtPrecision


class Texts(Dataset):
    """Rows of different lengths, summed: the network of them is a loop."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.rows = [torch.rand(n, generator=generator) for n in (3, 1, 7, 2, 5, 4, 6)]
        self.lengths = [len(row) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.rows[i], i % 2


def padded(batch):
    longest = max(len(row) for row, _ in batch)
    rows = [torch.nn.functional.pad(row, (0, longest - len(row))) for row, _ in batch]
    return torch.stack(rows), torch.tensor([y for _, y in batch])


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.shape[1])
        return self.classifier(self.dropout(torch.stack([x.sum(1), (x**2).sum(1)], dim=1)))


def computed(network, **options):
    served = AtPrecision(network, "no")
    return compute_features(served, Texts(), device=torch.device("cpu"), collate_fn=padded, **options)


def test_features_are_in_order_whatever_the_batches(monkeypatch):
    monkeypatch.setattr("vicinal.training.features._BATCH", 2)
    network = Network().train()
    (features,), labels = computed(network)
    slowly = torch.stack([torch.stack([row.sum(), (row**2).sum()]) for row in Texts().rows])
    assert torch.allclose(features, slowly)
    assert labels.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert network.seen == [7, 5, 3, 1]  # of like length
    network.seen.clear()
    parts, _ = computed(network, batch_size=3)
    assert network.seen == [7, 5, 6]
    assert torch.allclose(torch.cat(parts), slowly)
    assert not head_of(network)._forward_pre_hooks


def test_the_head_in_the_network_gives_what_was_trained():
    network, trained = Network().eval(), nn.Linear(2, 3)
    parts, _ = computed(network, batch_size=3)
    features = torch.cat(parts)
    scale = Standardised(features)
    assert torch.allclose(scale(features).mean(0), torch.zeros(2), atol=1e-6)
    assert torch.allclose(scale(features).std(0, correction=0), torch.ones(2), atol=1e-6)
    put_head(network, trained, scale)
    logits = logits_of_features(AtPrecision(network, "no"), parts, device=torch.device("cpu"))
    assert torch.allclose(logits, trained(scale(features)), atol=1e-5)
    served = [network(padded([Texts()[i] for i in rows])[0]) for rows in (range(3), range(3, 6), range(6, 7))]
    assert torch.equal(logits, torch.cat(served))


def test_a_feature_that_never_changes_stays_finite():
    features = torch.tensor([[1.0, 5.0], [2.0, 5.0]])
    assert torch.equal(Standardised(features)(features), torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))


def test_a_network_without_a_linear_head():
    with pytest.raises(ValueError, match=r"no nn\.Linear"):
        head_of(nn.Sequential(nn.Conv2d(1, 2, 3)))
