"""Word vectors in every format they come in, and through the command."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

import vicinal as library
from tests.cli.running import vicinal
from tests.data import make
from vicinal.data.tokens import Words
from vicinal.data.word_vectors import read_vectors

TABLE = {"good": [0.5, -1.0, 2.0], "film": [1.0, 0.0, 0.25], "the": [3.0, 3.0, 3.0]}


def glove(path: Path) -> None:
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in TABLE.items()))


def word2vec_text(path: Path) -> None:
    glove(path)
    path.write_text(f"3 3\n{path.read_text()}")


def word2vec_binary(path: Path) -> None:
    body = b"".join(f"{word} ".encode() + struct.pack("<3f", *row) + b"\n" for word, row in TABLE.items())
    path.write_bytes(b"3 3\n" + body)


def npz(path: Path) -> None:
    np.savez(path, words=np.array(list(TABLE)), vectors=np.array(list(TABLE.values()), dtype=np.float32))


def gzipped(path: Path) -> None:
    glove(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


FORMATS = {"glove.txt": glove, "w2v.txt": word2vec_text, "w2v.bin": word2vec_binary, "g.npz": npz, "g.txt.gz": gzipped}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(tmp_path, name):
    FORMATS[name](tmp_path / name)
    vectors = read_vectors(tmp_path / name, {"good", "film", "strange"})
    assert set(vectors) == {"good", "film"}
    np.testing.assert_array_equal(vectors["good"], np.float32(TABLE["good"]))
    table = Words(("film", "strange")).vectors(tmp_path / name)
    assert table.shape == (5, 3)
    np.testing.assert_array_equal(table[3], TABLE["film"])
    assert np.isnan(table[[0, 1, 2, 4]]).all()


def test_entries_with_spaces_are_not_their_first_words(tmp_path):
    """The largest GloVe file has some, such as "at name@domain.com" beside "at"."""
    (tmp_path / "a.txt").write_text("the 1 2\n. . 5 6\nat name@domain.com 3 4\nat 7 8\n")
    vectors = read_vectors(tmp_path / "a.txt", {"the", "at", "."})
    assert {word: vector.tolist() for word, vector in vectors.items()} == {"the": [1, 2], "at": [7, 8]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good 1 2\nfilm 1 2 3\n", r"finite vectors of one length, got vectors of lengths \[2, 3\]"),
        ("a.txt", b"other 1 2\n", "no vector of any word of the training texts"),
        ("a.txt", b"good 1 x\n", "holds no word vectors that can be read"),
        ("a.bin", b"2 3\ngood \x00\x00", "ends in the middle of a vector"),
        ("a.bin", b"2 3\ngoo", "ends in the middle of a word"),
        ("a.npz", b"no archive", "holds no word vectors that can be read"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path / name, {"good", "film"})


def test_the_command_starts_from_them_and_training_changes_them(tmp_path):
    frame = make.reviews(60)
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    words = sorted({word for text in frame["review"] for word in text.lower().split()})
    rng = np.random.default_rng(0)
    table = {word: rng.normal(size=8).round(3).tolist() for word in words}
    (tmp_path / "glove.txt").write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in table.items()))
    start = ["train", tmp_path / "reviews.csv", "--target", "mood", "--text", "review", "--model", "sentencecnn"]
    given = ["--model-option", f"vectors={tmp_path / 'glove.txt'}", "--model-option", "maps=4", "--batch-size", 16]
    ran = vicinal(*start, *given, "--epochs", 1, "--lr", "1e-9", "--out", tmp_path / "a")
    assert "words have one" in ran.out
    bundle = library.load(tmp_path / "a")
    assert bundle.spec.options["dim"] == 8
    ids = bundle.preprocessing.tokenizer._ids
    word = next(word for word in words if word in ids)
    still = bundle.module.embedding.weight[ids[word]].detach().numpy()
    np.testing.assert_allclose(still, table[word], atol=1e-4)
    vicinal(*start, *given, "--epochs", 3, "--out", tmp_path / "b")
    moved = library.load(tmp_path / "b").module.embedding.weight[ids[word]].detach().numpy()
    assert np.abs(moved - table[word]).max() > 1e-4
    (tmp_path / "glove.txt").unlink()
    assert library.load(tmp_path / "b").predict_proba(["good"]).shape == (1, 2)  # the file is not needed any more
    ran = vicinal(*start, *given, "--epochs", 1, "--out", tmp_path / "c", code=1)
    assert "of word vectors" in ran.err
