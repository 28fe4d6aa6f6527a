"""Where the data and weights of the papers come from, how large they are, and what a recipe needs of them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vicinal.data.class_folders import find
from vicinal.data.named_datasets import from_name
from vicinal.data.names import roots
from vicinal.papers.base import Recipe


class Source(NamedTuple):
    """A data set, or weights."""

    title: str
    form: str
    """What lies below the data root; empty for what is downloaded by itself."""
    gigabytes: float
    """On disk, unpacked."""
    url: str
    samples: int = 0
    """Labelled samples of all parts. A file with fewer is a slice."""


def _read() -> dict[str, Source]:
    rows = csv.DictReader(Path(__file__).with_name("sources.tsv").read_text("utf-8").splitlines(), delimiter="\t")
    return {
        row["name"]: Source(row["title"], row["form"], float(row["gigabytes"]), row["url"], int(row["samples"]))
        for row in rows
    }


#: By the name that recipes have, without what follows a colon where that only chooses a split.
SOURCES: Mapping[str, Source] = _read()

#: A setting that stands for data which no `Data` names.
_SETTINGS = {"STS-B": "glue:stsb"}


def source_of(name: str) -> Source | None:
    """Return the source of a data set or of weights, None where it is not of the papers."""
    return SOURCES.get(name) or SOURCES.get(name.partition(":")[0])


def needs(recipe: Recipe, scale: str) -> dict[str, Source]:
    """Return all that a recipe needs at a scale, by name: data, other domains, weights and files."""
    at = recipe.scales[scale]
    names = [of.source for of in at.data.values()]
    names += [
        text for network in at.networks.values() for text in (network.name, network.options.get("vectors")) if text
    ]
    names += _texts(at.settings)
    for _, settings in () if recipe.cells is None else recipe.cells(at):
        names += _texts({name: value for name, value in settings.items() if name != "experiment"})
    found = {name: source_of(name) for name in dict.fromkeys(names)}
    unique = {source.title: (name, source) for name, source in found.items() if source is not None}
    return dict(unique.values())


def is_there(name: str) -> bool:
    """Return whether data or a file can be opened here without a download."""
    if name.startswith("hf:") or name == "minilm":
        from transformers.utils.hub import cached_file

        checkpoint = name.removeprefix("hf:") if name != "minilm" else "sentence-transformers/all-MiniLM-L6-v2"
        try:
            return cached_file(checkpoint, "config.json", local_files_only=True) is not None
        except OSError:
            return False
    if "/" in name:
        return find(name, roots(None)) is not None
    if name in SOURCES and not SOURCES[name].form:  # torchvision would download it
        like = re.compile(name.replace("-", "") + r"(?!\d)")
        entries = (entry for root in roots(None) for pattern in ("*", "*/*") for entry in root.glob(pattern))
        return name == "digits" or any(like.match(re.sub(r"\W|_", "", entry.name.lower())) for entry in entries)
    try:
        from_name(name, None)
    except (OSError, ValueError, ImportError):
        return False
    return True


def _texts(value: Any) -> Iterator[str]:
    """Yield the sources that settings name: texts, and keys that stand for data."""
    if isinstance(value, str):
        yield value if value in SOURCES else value.rpartition("/")[0]
    elif isinstance(value, Mapping):
        yield from (_SETTINGS[key] for key in value if key in _SETTINGS)
        for one in value.values():
            yield from _texts(one)
