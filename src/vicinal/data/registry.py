"""The kinds of data that `load` knows. A new one is its own file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vicinal.data.audio import AudioKind
from vicinal.data.image import ImageKind
from vicinal.data.kind import Kind
from vicinal.data.tabular import TabularKind
from vicinal.data.text import TextKind

#: Every kind of data, by its name.
KINDS: Mapping[str, Kind[Any, Any]] = {
    kind.name: kind for kind in (TabularKind(), TextKind(), ImageKind(), AudioKind())
}
#: Those whose samples are files, by their name: the others are in tables.
FILE_KINDS = {name: kind for name, kind in KINDS.items() if kind.suffixes}
