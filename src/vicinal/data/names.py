"""The data sets that have a name, without what reads them: a wrong name is found before torch is imported."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vicinal._checks import Argument, Sentence
from vicinal.data import class_folders
from vicinal.data.class_folders import listed
from vicinal.data.published_folders import FOLDERS
from vicinal.data.published_tables import PUBLISHED
from vicinal.tables import Table, is_pattern


@dataclass(frozen=True)
class NamedImages:
    """A torchvision data set: the class, what else it takes, and what augmentation suits it."""

    torchvision: str
    augment: str = "standard"
    classes: tuple[str, ...] = ()
    idx: bool = False
    """Whether it comes as the four IDX files of MNIST."""
    split: bool = False
    """Whether it takes `split="train"` instead of `train=True`."""


TEN = tuple(str(k) for k in range(10))
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_STL10 = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
_KANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")

TORCHVISION = {
    "mnist": NamedImages("MNIST", "crop", TEN, idx=True),
    "fashion-mnist": NamedImages("FashionMNIST", "standard", _CLOTHES, idx=True),
    "kmnist": NamedImages("KMNIST", "crop", _KANA, idx=True),
    "usps": NamedImages("USPS", "crop", TEN),
    "svhn": NamedImages("SVHN", "crop", TEN, split=True),
    "cifar10": NamedImages("CIFAR10", "standard", _CIFAR10),
    "cifar100": NamedImages("CIFAR100"),
    "stl10": NamedImages("STL10", "standard", _STL10, split=True),
}

#: Every name that `load` knows besides files, folders and `hf:NAME`.
NAMES = ("digits", *TORCHVISION, *FOLDERS, *PUBLISHED)
#: What the target column may be called where it is not named; the first group that has one counts.
_TARGET_NAMES = (("target", "label", "class"), ("y",))


def roots(data_root: str | Path | None) -> list[Path]:
    """Return the folders in which data sets are looked for."""
    given = data_root or os.environ.get("VICINAL_DATA")
    return [Path(given).expanduser()] if given else []


def is_name(source: str) -> bool:
    """Return whether a source is the name of a data set, as `load` takes it."""
    return source.startswith("hf:") or source.lower().replace("_", "-") in NAMES


def require_source(source: str, data_root: str | Path | None) -> None:
    """Raise if a source is no name, no file, no folder and no pattern of files."""
    is_known = is_name(source) or is_pattern(Path(source).expanduser())
    if not is_known and class_folders.find(source, roots(data_root)) is None:
        raise class_folders.missing(source, NAMES)


def default_target(table: Table) -> str:
    """Return the column of the class where none is named, or say which columns there are."""
    for names in _TARGET_NAMES:
        found = [name for name in table.columns if name.lower() in names]
        if len(found) == 1:
            return found[0]
    columns = listed([repr(name) for name in table.columns], n=20)
    what = f", the column of {table.name!r} that holds the class: one of {columns}"
    raise ValueError(Sentence("pass ", Argument("target"), what, *table.header_hint()))
