"""Pretrained word vectors: GloVe text, word2vec text or binary, and NPZ files of `words` and `vectors`.

Only the vectors of wanted words are kept, so that a file of millions needs no more memory than the vocabulary.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Sentence, message_of
from vicinal._memory import check_memory
from vicinal.tables import read_arrays
from vicinal.tables.base import LARGEST_ROW, is_number
from vicinal.tables.file_access import lines_of, regular

Vector = NDArray[np.float32]
#: The most bytes of a word: a damaged file may hold no end of one.
_LONGEST_WORD = 10_000


def read_vectors(path: Path, wanted: Collection[str]) -> dict[str, Vector]:
    """Return the vectors of the wanted words that a file has, all of one length.

    Parameters
    ----------
    path
        An `.npz` file with `words` [N] and `vectors` [N, D]; a `.bin` file of word2vec; else text, a word and its D
        numbers a line, after a line of N and D (word2vec) or without one (GloVe). Text and binary may be gzipped.
    wanted
        The words to keep.
    """
    keep = frozenset(wanted)
    regular(path)
    try:
        if path.suffix == ".npz":
            file = read_arrays(path)
            pairs = zip(file["words"].tolist(), file["vectors"].astype(np.float32), strict=True)
            vectors = {word: vector for word, vector in pairs if word in keep}
        else:
            vectors = dict(_entries(path, keep))
    except (OSError, EOFError, KeyError, ValueError) as error:
        why = Sentence(f"{str(path)!r} holds no word vectors that can be read: ", message_of(error))
        raise ValueError(why) from error
    lengths = {len(vector) for vector in vectors.values()}
    if len(lengths) != 1 or not all(np.isfinite(vector).all() for vector in vectors.values()):
        what = f"vectors of lengths {sorted(lengths)}" if lengths else "no vector of any word of the training texts"
        raise ValueError(f"{str(path)!r} must hold finite vectors of one length, got {what}")
    return vectors


def _entries(path: Path, keep: Collection[str]) -> Iterator[tuple[str, Vector]]:
    packed = path.suffix == ".gz"
    if path.name.removesuffix(".gz").endswith(".bin"):
        with gzip.open(path) if packed else open(path, "rb") as stream:
            yield from _binary(stream, keep)
    else:
        with gzip.open(path) if packed else open(path, "rb") as stream:
            yield from _text((line.decode(errors="replace") for line in lines_of(path, stream)), keep)


def _text(lines: Iterable[str], keep: Collection[str]) -> Iterator[tuple[str, Vector]]:
    dim = 0
    for line in lines:
        cells = line.rstrip().split(" ")
        if not dim and len(cells) == 2:
            dim = int(cells[1])  # word2vec's first line: how many words, how many numbers each
            continue
        dim = dim or len(cells) - 1
        # An entry with a space, such as "at name@domain.com" of GloVe, is no word of a text.
        if cells[0] in keep and (len(cells) <= dim + 1 or is_number(cells[1])):
            yield cells[0], np.array(cells[1:], dtype=np.float32)


def _binary(stream: IO[bytes] | gzip.GzipFile, keep: Collection[str]) -> Iterator[tuple[str, Vector]]:
    n, dim = (int(part) for part in stream.readline(_LONGEST_WORD).split())
    check_memory("a vector", 4 * dim, default=LARGEST_ROW)
    for _ in range(n):
        word = b""
        while (byte := stream.read(1)) != b" ":
            if not byte or len(word) > _LONGEST_WORD:
                raise EOFError("it ends in the middle of a word")
            word += byte
        content = stream.read(4 * dim)
        if len(content) != 4 * dim:
            raise EOFError("it ends in the middle of a vector")
        name = word.lstrip(b"\n").decode("utf-8", errors="replace")
        if name in keep:
            yield name, np.frombuffer(content, "<f4").astype(np.float32)
