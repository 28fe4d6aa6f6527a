"""Names of what needs torch, for the help and for checks that come before it. Tests compare them with what there is."""

from __future__ import annotations

import difflib
from pathlib import Path

from vicinal._checks import nearest_names

#: The calibrators, in the order of `vicinal.calibrators.CALIBRATORS`.
CALIBRATORS = ("temperature", "svs", "sms", "quadratic", "isotonic", "vector", "dirichlet", "beta", "venn-abers",
               "histogram")  # fmt: skip
#: The networks of each kind of data, in the order of `vicinal.models.names`.
NETWORKS = {
    "tabular": ("mlp-and-trees", "two-view-mlp", "mlp", "linear", "ensemble-mlp", "hgb"),
    "text": ("minilm", "sentencecnn"),
    "image": ("densenet-bc-190", "lenet", "mlp", "mobilenetv2", "preactresnet10", "preactresnet18", "resnet101",
              "resnet18", "resnet34", "resnet50", "resnext101", "resnext50", "shufflenetv2", "soundresnet", "vgg11",
              "vgg16", "wideresnet28-10"),
}  # fmt: skip


def check_network(name: str | None) -> None:
    """Refuse a name that is no network's but almost. Any other may be a checkpoint, which the kind of data decides.

    >>> check_network("resnet81")
    Traceback (most recent call last):
    ...
    ValueError: there is no network 'resnet81'; did you mean 'resnet18' or 'resnet101' or 'resnext101'?
    """
    known = {each for names in NETWORKS.values() for each in names}
    if name is None or name in known or any(mark in name for mark in ":/\\") or Path(name).exists():
        return
    if difflib.get_close_matches(name, known, n=1, cutoff=0.8):
        raise ValueError(f"there is no network {name!r}{nearest_names(name, known)}")
