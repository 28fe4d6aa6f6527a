"""Train the members of an ensemble, and put them together as one training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from vicinal import _random
from vicinal.models.averaged import Averaged
from vicinal.probes.uncertainty import mean_logits
from vicinal.runs.layout import RunFiles
from vicinal.training import FitResult
from vicinal.training.environment import joined_process
from vicinal.training.folder import TrainingFolder


def member_seeds(seed: int, n: int) -> list[int]:
    """Return the seed of each member; the first is that of a single network.

    >>> member_seeds(3, 1)
    [3]
    """
    return [seed, *(_random.seed_from("member", seed, k) for k in range(1, n))]


def ensemble(
    train: Callable[[int, Path], FitResult], seeds: Sequence[int], out: Path, about: Mapping[str, object]
) -> FitResult:
    """Train members one by one in folders of their own, and return them as one training, which the folder then holds.

    `train` is called with a seed and a folder, and trains a member or resumes it. The metrics of the training are those
    of the first member, the predictions those of the mean. `about` are the facts that a resumed run must match.
    """
    process = joined_process()
    folder = TrainingFolder(out, main=process.is_main_process)
    with folder.locked():
        folder.check_in({"ensemble": len(seeds), "about": dict(about)})
        process.wait_for_everyone()
        members = [train(seed, RunFiles(out).member(k)) for k, seed in enumerate(seeds, start=1)]
        first = members[0]
        model = Averaged([member.model for member in members]).eval()
        predictions = _mean_predictions(members)
        info = {
            **{name: value for name, value in first.info.items() if name != "weights"},
            "ensemble": [{"seed": seed, "best": member.best} for seed, member in zip(seeds, members, strict=True)],
            "seconds": round(sum(member.info["seconds"] for member in members), 3),
            "about": dict(about),
        }
        # The members are trained in any case: a damaged result is written again from them.
        if (done := folder.result(rewrites_metrics=True)) is None:
            done = folder.finish(model.state_dict(), predictions, info, first.history)
    return FitResult.of(model, done, first.history, predictions, folder)


def _mean_predictions(members: Sequence[FitResult]) -> dict[str, Tensor] | None:
    """Return the logits of the mean probabilities on the validation set, and its labels."""
    logits = [member.logits for member in members if member.logits is not None]
    labels = members[0].labels
    if labels is None or not logits:
        return None
    return {"logits": mean_logits(torch.stack(logits), 0), "labels": labels}
