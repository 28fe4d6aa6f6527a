r"""A linear head on a frozen network: features are computed once, and training is cheap.

The head is trained on standardised features, :math:`z = V (f - \mu) / \sigma + c`, and then put into the network as
:math:`W = V / \sigma`, :math:`b = c - V \mu / \sigma`: what is saved and served is the whole network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from vicinal._typing import Batch
from vicinal.objectives.forward import call
from vicinal.objectives.transformers import head_name
from vicinal.progress import stage
from vicinal.training.batches import Collate, KeyedDataset, MapDataset, listed_batches
from vicinal.training.predicting import AtPrecision, to_device

#: Samples at a time, if any order will do.
_BATCH = 64


def head_of(network: nn.Module) -> nn.Linear:
    """Return the linear layer that gives the logits."""
    head = network.get_submodule(head_name(network))
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise TypeError(f"the head must be nn.Linear with a bias, got {head}")
    return head


@torch.no_grad()
def compute_features(
    served: AtPrecision,
    dataset: MapDataset,
    *,
    device: torch.device,
    collate_fn: Collate | None,
    batch_size: int | None = None,
    num_workers: int = 0,
) -> tuple[list[Tensor], Tensor]:
    """Return what reaches the head, and the labels, of a dataset in evaluation mode.

    Parameters
    ----------
    served
        The network, on the device, as predictions will be served.
    dataset
        Map-style, of (x, y). Where it has `lengths`, and the order is free, batches are of like length.
    device
        Where to compute.
    collate_fn
        Makes a batch of samples.
    batch_size
        How many samples at a time, in order, so that logits of these features have the bits of the served ones; if not
        given the order is free, and features are one tensor, in order of the samples.
    num_workers
        Processes that load samples.

    Returns
    -------
    features, labels
        A list of `[B, D]` by batch (one `[N, D]` where the order was free) on the CPU, and `[N]`.
    """
    every = torch.arange(len(dataset))
    order = every
    lengths = getattr(dataset, "lengths", None)
    if batch_size is None and lengths is not None:
        order = torch.tensor(lengths).argsort(descending=True, stable=True)  # longest first: memory runs out at once
    keyed = KeyedDataset(dataset, 0, purpose="evaluation", collate_fn=collate_fn)
    batches = listed_batches(keyed, order.split(batch_size or _BATCH), num_workers=num_workers)
    served.eval()
    features, labels = [], []
    with stage("features", len(dataset)) as advance:
        for reached, y in _iter_features(served, batches, device):
            features.append(reached.cpu())
            labels.append(y)
            advance(len(y))
    if batch_size is not None:
        return features, torch.cat(labels)
    back = order.argsort()
    return [torch.cat(features)[back]], torch.cat(labels)[back]


def _iter_features(
    served: AtPrecision, batches: Iterator[tuple[Tensor, Batch, Tensor]], device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    reached: list[Tensor] = []
    handle = head_of(served.network).register_forward_pre_hook(lambda head, inputs: reached.append(inputs[0]))
    try:
        for _, x, y in batches:
            call(served, to_device(x, device))
            yield reached.pop(), y
    finally:
        handle.remove()


class Standardised:
    """Standardises features by their mean and standard deviation."""

    def __init__(self, features: Tensor) -> None:
        values = features.double()
        self.mean = values.mean(0)
        spread = values.std(0, correction=0)
        self.std = torch.where(spread > 1e-6, spread, torch.ones_like(spread))

    def __call__(self, features: Tensor) -> Tensor:
        """Return features with mean 0 and standard deviation 1."""
        return ((features.double() - self.mean) / self.std).float()


@torch.no_grad()
def put_head(network: nn.Module, trained: nn.Linear, scale: Standardised) -> None:
    """Put a head that was trained on standardised features into the network."""
    head = head_of(network)
    weight = trained.weight.double().cpu() / scale.std
    head.weight.copy_(weight)
    head.bias.copy_(trained.bias.double().cpu() - weight @ scale.mean)


@torch.no_grad()
def logits_of_features(served: AtPrecision, features: Sequence[Tensor], *, device: torch.device) -> Tensor:
    """Return the logits of features by batch: those that the network gives of the samples, in the same batches."""
    head = AtPrecision(head_of(served.network), served.precision, full_float32=served.full_float32)
    return torch.cat([head(part.to(device)).cpu() for part in features])
