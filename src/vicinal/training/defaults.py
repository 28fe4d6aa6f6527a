"""The defaults for a kind of data: how long and how fast to train. No torch, so that `--help` can show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from vicinal._atomic import Json
from vicinal.training.config import FitConfig

#: Fields of `FitConfig` by name.
TrainingOptions: TypeAlias = "dict[str, Any]"

#: The default network of each kind of data.
NETWORKS = {"tabular": "mlp-and-trees", "image": "preactresnet18", "text": "minilm", "audio": "soundresnet"}

#: Training samples for which defaults are shown where they depend on the number.
_TYPICAL = 5_000
#: Rows of a table: small networks that train in seconds, stopped once validation does not improve.
_TABULAR: TrainingOptions = {"epochs": 60, "lr": 1e-3, "weight_decay": 1e-4, "patience": 10}
#: Logistic regression: its loss is convex, so that large steps do no harm.
_LINEAR: TrainingOptions = {"epochs": 100, "lr": 1e-2, "weight_decay": 1e-4, "patience": 10}
#: Two perceptrons: each sees half of the rows of an epoch, so there are twice as many, and twice the patience.
_TWO_VIEWS: TrainingOptions = {"epochs": 120, "lr": 1e-3, "weight_decay": 1e-4, "patience": 20}
#: Of many rows, whose batches are large: a higher rate that falls to zero, and half of the epochs, every other of which
#: is evaluated; patience counts evaluations (`benchmarks/README.md`).
_TWO_VIEWS_OF_MANY: TrainingOptions = {
    **_TWO_VIEWS,
    "epochs": 60,
    "lr": 6e-3,
    "schedule": "cosine",
    "eval_every": 2,
    "patience": 6,
}
_LARGE_BATCH = 9
#: The ensemble of perceptrons; without a validation set to stop by, fewer epochs.
_ENSEMBLE_MLP: TrainingOptions = {"epochs": 100, "lr": 2e-3, "weight_decay": 1e-4, "patience": 16}
_UNVALIDATED_EPOCHS = 33
#: Batches of both are of a size that makes about so many steps an epoch.
_STEPS = 40
#: Batches of the residual network for sounds too, where they are few: from 16 to the 100 of the paper.
_AUDIO_STEPS, _AUDIO_BATCHES = 20, (16, 100)
#: Images: the standard recipe of residual networks, with a short warm-up and a cosine instead of steps. Of few images
#: batches are smaller, down to 16, so that an epoch has about eight steps, and the rate falls in proportion.
_IMAGE_STEPS, _IMAGE_BATCHES = 8, (16, 128)
_IMAGE: TrainingOptions = {
    "epochs": 30,
    "batch_size": 128,
    "optimizer": "sgd",
    "lr": 0.1,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "warmup_epochs": 1.0,
}
#: With fewer training images than these the default network is so many maps wide instead of 64, which is a sixteenth of
#: the weights. Its last block is followed by a normalisation, without which a rate of 0.1 can
#: be too high for few images, and the network never learns (`benchmarks/README.md`).
_FEW_IMAGES, _NARROW = 10_000, 16
#: Images, from pretrained weights: a tenth of the rate, and half of the epochs.
_FINE_TUNED: TrainingOptions = {**_IMAGE, "epochs": 15, "lr": 0.01, "weight_decay": 1e-4}
#: Sounds: 30 epochs of Adam at 3e-3, divided by 10 every 10 epochs, in batches of 100 (Zhang et al. 2018, Section 3.3).
#: The warm-up of the rate is ours: without it LeNet's 16 million hidden weights can die in the first steps. So are
#: smaller batches of small folders: 450 sounds in batches of 100 are 150 steps, of which every tenth is the warm-up.
_AUDIO: TrainingOptions = {
    "epochs": 30,
    "batch_size": 100,
    "optimizer": "adam",
    "lr": 3e-3,
    "schedule": "milestones",
    "milestones": (10, 20),
    "warmup_epochs": 3.0,
}
#: The sentence CNN: Adadelta and batches of 50 (Kim 2014), stopped early.
_SENTENCE_CNN: TrainingOptions = {
    "epochs": 25,
    "batch_size": 50,
    "optimizer": "adadelta",
    "lr": 1.0,
    "rho": 0.95,
    "patience": 5,
}
#: A pretrained transformer: AdamW at 5e-5 with warm-up and linear decay for a few epochs, as in BERT's fine-tuning;
#: batches of like length, which leave little padding to compute. Few texts have more epochs, until there are so many
#: steps: what seems to be the weakness of fine-tuning on few samples is that it ends too soon (Zhang et al. 2021).
_TRANSFORMER_STEPS, _MOST_TRANSFORMER_EPOCHS = 150, 15
_TRANSFORMER: TrainingOptions = {
    "epochs": 4,
    "batch_size": 32,
    "group_by_length": True,
    "lr": 5e-5,
    "weight_decay": 0.01,
    "schedule": "linear",
    "warmup_epochs": 0.4,
    "clip_norm": 1.0,
}


def default_options(network: str, n_train: int) -> dict[str, object]:
    """Return the options of the default network for this many training samples.

    A network that is named is as published, without them.

    >>> default_options("preactresnet18", 500)
    {'final_norm': True, 'width': 16}
    """
    if network != "preactresnet18":
        return {}
    return {"final_norm": True, **({"width": _NARROW} if n_train < _FEW_IMAGES else {})}


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
    several perceptrons in one network train for fewer epochs. Their batches, and those of images and of soundresnet,
    depend on the number of training samples, and so do the rates of perceptrons and images, and the epochs of
    transformers. Images are fine-tuned from `pretrained` weights at a lower rate.

    >>> default_config("audio", "lenet", {"schedule": "cosine", "epochs": 5}, seed=0).milestones
    ()
    """
    defaults = _defaults(kind, network, given, validated=validated, n_train=n_train, pretrained=pretrained)
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


def _defaults(
    kind: str, network: str, given: Mapping[str, object], *, validated: bool, n_train: int | None, pretrained: bool
) -> Json:
    """Return the defaults of a network, by the number of training samples where that is known."""
    if network == "linear":
        return _LINEAR
    if network in ("mlp-and-trees", "two-view-mlp", "ensemble-mlp", "best"):
        of_two_views = network != "ensemble-mlp"
        config, least, most = (_TWO_VIEWS, 8, 10) if of_two_views else (_ENSEMBLE_MLP, 5, 9)
        power = round(math.log2(n_train / _STEPS)) if n_train else 8
        if of_two_views and validated and power >= _LARGE_BATCH:
            config = _TWO_VIEWS_OF_MANY
        fewer = {} if validated else {"epochs": _UNVALIDATED_EPOCHS}
        return {**config, "batch_size": 2 ** min(max(power, least), most), **fewer}
    if kind == "text":
        return _SENTENCE_CNN if network == "sentencecnn" else _of_texts(given, n_train if validated else None)
    if kind == "image":
        config = _FINE_TUNED if pretrained else _IMAGE
        if n_train is None or {"batch_size", "lr", "optimizer"} & set(given):
            return config
        size = _batch(n_train, _IMAGE_STEPS, _IMAGE_BATCHES)
        return {**config, "batch_size": size, "lr": config["lr"] * size / _IMAGE_BATCHES[1]}
    if network == "soundresnet" and n_train is not None:
        return {**_AUDIO, "batch_size": _batch(n_train, _AUDIO_STEPS, _AUDIO_BATCHES)}
    return _AUDIO if kind == "audio" else _TABULAR


def _batch(n_train: int, steps: int, bounds: tuple[int, int]) -> int:
    """Return the size of batches that makes about so many steps an epoch."""
    return min(max(n_train // steps, bounds[0]), bounds[1])


def _of_texts(given: Mapping[str, object], n_train: int | None) -> Json:
    if not n_train or "batch_size" in given:
        return _TRANSFORMER
    epochs = math.ceil(_TRANSFORMER_STEPS / math.ceil(n_train / _TRANSFORMER["batch_size"]))
    return {**_TRANSFORMER, "epochs": min(max(epochs, _TRANSFORMER["epochs"]), _MOST_TRANSFORMER_EPOCHS)}


def defaults_by_kind() -> dict[str, dict[str, object]]:
    """Return the value of each training option by the kind of data, for the default networks.

    Those of `batch_size`, `epochs` and `lr` depend on the number of samples too, and are given for a few thousand.

    >>> defaults_by_kind()["optimizer"]
    {'tabular': 'adamw', 'image': 'sgd', 'text': 'adamw', 'audio': 'adam'}
    """
    of = {kind: default_config(kind, net, {}, seed=0, n_train=_TYPICAL).to_dict() for kind, net in NETWORKS.items()}
    return {name: {kind: config[name] for kind, config in of.items()} for name in of["tabular"]}
