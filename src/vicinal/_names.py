"""Names of what needs torch, for the help and for checks that come before it. Tests compare them with what there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from vicinal._checks import nearest_names

#: The calibrators, in the order of `vicinal.calibrators.CALIBRATORS`.
CALIBRATORS = ("temperature", "svs", "sms", "quadratic", "isotonic", "vector", "dirichlet", "beta", "venn-abers",
               "histogram")  # fmt: skip
#: The kinds of data.
KINDS = ("tabular", "text", "image", "audio")
#: Where metrics can be logged, in the order of Accelerate.
TRACKERS = ("aim", "tensorboard", "wandb", "trackio", "comet_ml", "mlflow", "clearml", "dvclive", "swanlab")
#: The kinds of devices that torch knows.
DEVICES = ("cpu", "cuda", "ipu", "xpu", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla",
           "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone")  # fmt: skip
#: The networks of each kind of data, in the order of `vicinal.models.names`.
NETWORKS = {
    "tabular": ("mlp-and-trees", "two-view-mlp", "mlp", "linear", "ensemble-mlp", "hgb", "lightgbm", "catboost",
                "best"),
    "text": ("minilm", "sentencecnn"),
    "image": ("densenet-bc-190", "lenet", "mlp", "mobilenetv2", "preactresnet10", "preactresnet18", "resnet101",
              "resnet18", "resnet34", "resnet50", "resnext101", "resnext50", "shufflenetv2", "soundresnet", "vgg11",
              "vgg16", "wideresnet28-10"),
}  # fmt: skip


_TREES = ("iterations", "rate", "leaves", "depth", "l2")
#: The options of the networks for rows of a table, and what they learn from the data alone.
TABULAR_OPTIONS = {
    "mlp-and-trees": ("hidden", "dropout", *_TREES),
    "two-view-mlp": ("hidden", "dropout"),
    "mlp": ("hidden", "dropout"),
    "linear": (),
    "ensemble-mlp": ("hidden", "dropout", "members"),
    "hgb": _TREES,
}
FROM_THE_DATA = ("plain", "numbers", "categories", "exclusive")


def check_network_options(name: str, options: Iterable[str]) -> None:
    """Refuse an option that a network for rows of a table does not have.

    >>> check_network_options("mlp", ["dropuot"])
    Traceback (most recent call last):
    ...
    ValueError: mlp has no option 'dropuot'; did you mean 'dropout'?
    """
    known = TABULAR_OPTIONS[name]
    for option in options:
        if option not in (*known, *FROM_THE_DATA):
            raise ValueError(f"{name} has no option {option!r}{nearest_names(option, known)}")


def check_network(name: str | None, kind: str | None = None) -> None:
    """Refuse a name that is no network's. Where the kind of data is not known, what is not almost a name may be a file.

    >>> check_network("resnet81")
    Traceback (most recent call last):
    ...
    ValueError: there is no network 'resnet81'; did you mean 'resnet18' or 'resnet101' or 'resnext101'?
    >>> check_network("mpl", "tabular")
    Traceback (most recent call last):
    ...
    ValueError: there is no network 'mpl' for tabular data; did you mean 'mlp'?
    """
    if name is None:
        return
    if kind == "tabular":
        if name not in NETWORKS[kind]:
            raise ValueError(f"there is no network {name!r} for tabular data{nearest_names(name, NETWORKS[kind])}")
        return
    known = {each for names in NETWORKS.values() for each in names}
    if name in known or any(mark in name for mark in ":/\\") or Path(name).exists():
        return
    # Short names differ in a large part of their letters by one mistake.
    if difflib.get_close_matches(name, known, n=1, cutoff=0.8 if len(name) > 4 else 0.6):
        raise ValueError(f"there is no network {name!r}{nearest_names(name, known)}")
