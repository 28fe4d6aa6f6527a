"""What is the default for a kind of data: how long and how fast to train, and where a text is mixed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from vicinal.objectives.base import Objective
from vicinal.objectives.mixup import Mixup
from vicinal.objectives.sequence import SequenceMixup
from vicinal.training import FitConfig

__all__ = ["default_config", "mixed_at_embeddings"]

#: Rows of a table: small networks that train in seconds, stopped once validation does not improve.
_TABULAR: dict[str, object] = {"epochs": 60, "lr": 1e-3, "weight_decay": 1e-4, "patience": 10}
#: Logistic regression: its loss is convex, so that large steps do no harm.
_LINEAR: dict[str, object] = {"epochs": 100, "lr": 1e-2, "weight_decay": 1e-4, "patience": 10}
#: Two perceptrons: each sees half of the rows of an epoch, so there are twice as many, and twice the patience.
_TWO_VIEWS: dict[str, object] = {"epochs": 120, "lr": 1e-3, "weight_decay": 1e-4, "patience": 20}
#: Of many rows, whose batches are large: a higher rate that falls to zero, and fewer epochs (`benchmarks/README.md`).
_TWO_VIEWS_OF_MANY: dict[str, object] = {**_TWO_VIEWS, "epochs": 80, "lr": 4e-3, "schedule": "cosine"}
_LARGE_BATCH = 9
#: The ensemble of perceptrons; without a validation set to stop by, fewer epochs.
_ENSEMBLE_MLP: dict[str, object] = {"epochs": 100, "lr": 2e-3, "weight_decay": 1e-4, "patience": 16}
_UNVALIDATED_EPOCHS = 33
#: Batches of both are of a size that makes about so many steps an epoch.
_STEPS = 40
#: Batches of the residual network for sounds too, where they are few: from 16 to the 100 of the paper.
_AUDIO_STEPS, _AUDIO_BATCHES = 20, (16, 100)
#: Images: the usual recipe of residual networks, with a short warm-up and a cosine instead of steps.
_IMAGE: dict[str, object] = {
    "epochs": 30,
    "optimizer": "sgd",
    "lr": 0.1,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "warmup_epochs": 1.0,
}
#: Images, from pretrained weights: a tenth of the rate, and half of the epochs.
_FINE_TUNED: dict[str, object] = {**_IMAGE, "epochs": 15, "lr": 0.01, "weight_decay": 1e-4}
#: Sounds: 30 epochs of Adam at 3e-3, divided by 10 every 10 epochs, in batches of 100 (Zhang et al. 2018, Section 3.3).
#: The warm-up of the rate is ours: without it LeNet's 16 million hidden weights can die in the first steps. So are
#: smaller batches of small folders: 450 sounds in batches of 100 are 150 steps, of which every tenth is the warm-up.
_AUDIO: dict[str, object] = {
    "epochs": 30,
    "batch_size": 100,
    "optimizer": "adam",
    "lr": 3e-3,
    "schedule": "milestones",
    "milestones": (10, 20),
    "warmup_epochs": 3.0,
}
#: The sentence CNN: Adadelta and batches of 50 (Kim 2014), stopped early.
_SENTENCE_CNN: dict[str, object] = {
    "epochs": 25,
    "batch_size": 50,
    "optimizer": "adadelta",
    "lr": 1.0,
    "rho": 0.95,
    "patience": 5,
}
#: A pretrained transformer: AdamW at 5e-5 with warm-up and linear decay for a few epochs, as in BERT's fine-tuning;
#: batches of like length, which leave little padding to compute.
_TRANSFORMER: dict[str, object] = {
    "epochs": 4,
    "batch_size": 32,
    "group_by_length": True,
    "lr": 5e-5,
    "weight_decay": 0.01,
    "schedule": "linear",
    "warmup_epochs": 0.4,
    "clip_norm": 1.0,
}


def default_config(
    kind: str,
    network: str,
    given: Mapping[str, object],
    *,
    seed: int,
    validated: bool = True,
    n_train: int | None = None,
    pretrained: bool = False,
) -> FitConfig:
    """Return how to train on a kind of data, with the fields that were given in place of the defaults.

    A schedule that is given takes the default milestones and warm-up with it, and so does another optimizer its rate.
    Without a validation set (`validated=False`) nothing can be stopped early, so the default patience is left out, and
    several perceptrons in one network train for fewer epochs. Their batches, and those of soundresnet, depend on the
    number of training samples, and so does the rate of the perceptrons. Images are fine-tuned from `pretrained` weights
    at a lower rate.

    >>> default_config("audio", "lenet", {"schedule": "cosine", "epochs": 5}, seed=0).milestones
    ()
    """
    if kind == "text":
        defaults = _SENTENCE_CNN if network == "sentencecnn" else _TRANSFORMER
    else:
        defaults = {"tabular": _TABULAR, "image": _FINE_TUNED if pretrained else _IMAGE, "audio": _AUDIO}[kind]
    if network == "linear":
        defaults = _LINEAR
    if network in ("two-view-mlp", "ensemble-mlp"):
        usual, least, most = (_TWO_VIEWS, 8, 10) if network == "two-view-mlp" else (_ENSEMBLE_MLP, 5, 9)
        power = round(math.log2(n_train / _STEPS)) if n_train else 8
        if network == "two-view-mlp" and validated and power >= _LARGE_BATCH:
            usual = _TWO_VIEWS_OF_MANY
        fewer = {} if validated else {"epochs": _UNVALIDATED_EPOCHS}
        defaults = {**usual, "batch_size": 2 ** min(max(power, least), most), **fewer}
    if network == "soundresnet" and n_train:
        least, most = _AUDIO_BATCHES
        defaults = {**defaults, "batch_size": min(max(n_train // _AUDIO_STEPS, least), most)}
    fields = {name: value for name, value in defaults.items() if validated or name != "patience"}
    if "schedule" in given:
        fields = {name: value for name, value in fields.items() if name not in ("milestones", "warmup_epochs")}
    if "milestones" in given:
        fields["schedule"] = "milestones"
    if "warmup_steps" in given:
        fields.pop("warmup_epochs", None)
    if "optimizer" in given and given["optimizer"] != fields.get("optimizer", "adamw"):
        fields = {name: value for name, value in fields.items() if name not in ("lr", "nesterov", "rho")}
    return FitConfig.from_dict({**fields, **given, "seed": seed})


def mixed_at_embeddings(objective: Objective) -> Objective:
    """Return the objective for token ids: what mixes inputs mixes their embeddings.

    Token ids cannot be averaged. Thulasidasan et al. (2019, Section 4) and Zhang & Vaidya (2021, Section 3.5.2) mix
    the embeddings instead, so `Mixup` becomes `SequenceMixup.input`, in composites too; anything else is left as it is.

    >>> mixed_at_embeddings(Mixup(alpha=0.2)) == SequenceMixup.input(alpha=0.2)
    True
    """
    if isinstance(objective, Mixup):
        if (objective.labels, objective.partners) != ("soft", "any"):
            raise ValueError(
                f"labels={objective.labels!r}, partners={objective.partners!r}: texts are mixed at their embeddings, "
                "by SequenceMixup, which has neither; leave them out"
            )
        return SequenceMixup.input(
            alpha=objective.alpha, per_sample=objective.per_sample, label_smoothing=objective.label_smoothing
        )
    record: Any = objective  # every objective is a dataclass, but its base class cannot say so
    parts = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    mixed = {name: mixed_at_embeddings(part) for name, part in parts.items() if isinstance(part, Objective)}
    return dataclasses.replace(record, **mixed) if mixed else objective
