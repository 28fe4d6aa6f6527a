"""Train a linear head on a frozen network (`--fast`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from vicinal import _random
from vicinal.data import Split
from vicinal.runs.layout import RunFiles
from vicinal.training import FitConfig, FitResult
from vicinal.training.environment import joined_process
from vicinal.training.features import Standardised, compute_features, head_of, logits_of_features, put_head
from vicinal.training.fitting import finished
from vicinal.training.folder import TrainingFolder
from vicinal.training.predicting import AtPrecision, channels_last_

#: Called with a linear layer, its training and validation set and a folder; trains it.
Train = Callable[[nn.Module, TensorDataset, TensorDataset | None, Path], FitResult]


def fit_frozen(
    network: nn.Module,
    train_head: Train,
    train: Split,
    val: Split | None,
    *,
    config: FitConfig,
    out: Path,
    about: Mapping[str, object],
) -> FitResult:
    """Train the head of a network on features that are computed once, and return the whole network as one training.

    The network is pretrained and has a new linear head, which `train_head` trains in a folder within `out`; its other
    weights stay as they are. Training samples are not augmented. The config says how the head is trained, and the
    precision and the evaluation batches of the network. `about` are the facts that a resumed run must match.
    """
    process = joined_process()
    folder = TrainingFolder(out, main=process.is_main_process)
    network.to(process.device).eval()
    if config.channels_last:
        channels_last_(network)
    with folder.locked():
        folder.check_in({"frozen": True, "config": config.resume_key(), "about": dict(about)})
        process.wait_for_everyone()
        if (done := folder.result(rewrites_metrics=True)) is not None:
            return finished(network, folder, done)
        served = AtPrecision(
            network, config.mixed_precision, channels_last=config.channels_last, full_float32=config.full_float32
        )
        features_of = partial(
            compute_features,
            served,
            device=process.device,
            collate_fn=train.collate_fn,
            num_workers=config.num_workers,
        )
        # Features are computed once, so each sample has one view: no augmentation.
        plain = train.relabelled(train.labels or [], augment="none")
        (features,), labels = features_of(plain)
        scale = Standardised(features)
        validation = held_out = None
        if val is not None:
            held_out = features_of(val, batch_size=config.evaluation_batch_size)
            validation = TensorDataset(scale(torch.cat(held_out[0])), held_out[1])
        head = _new_head(head_of(network), config.seed)
        trained = train_head(head, TensorDataset(scale(features), labels), validation, RunFiles(out).head)
        if not isinstance(trained.model, nn.Linear):
            raise TypeError(f"the head must stay nn.Linear, got {type(trained.model).__name__}")
        put_head(network, trained.model, scale)
        predictions = None
        if held_out is not None:
            logits = logits_of_features(served, held_out[0], device=process.device)
            predictions = {"logits": logits, "labels": held_out[1]}
        info = {name: value for name, value in trained.info.items() if name != "weights"} | {"about": dict(about)}
        done = folder.finish(network.state_dict(), predictions, info, trained.history)
        process.wait_for_everyone()
        return finished(network, folder, done)


def _new_head(like: nn.Linear, seed: int) -> nn.Linear:
    """Return a linear layer of this shape with the weights that the seed gives."""
    with _random.restored_globals():
        _random.seed_globals(_random.seed_from("head", seed))
        return nn.Linear(like.in_features, like.out_features)
