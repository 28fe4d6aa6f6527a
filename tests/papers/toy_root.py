"""All data of the papers in the form they were published in, with a few samples each."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import wavfile

SYNSETS = [f"n0144{k:04}" for k in range(6)]
QQP = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
LABELS = ("entailment", "neutral", "contradiction")


def write_all(root: Path) -> None:
    """Write every data set of the papers below a data root."""
    for part in (_images, _sounds, _tables, _texts, _glue, _desai, _others):
        part(root)


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _lines(rows: Iterable[Sequence[object]], separator: str = "\t") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def _sentence(k: int) -> str:
    return f"the film was {('good', 'bad', 'dull', 'fine')[k % 4]} and so it is {'not ' * (k % 3)}grey"


def _images(root: Path) -> None:
    random = np.random.default_rng(0)
    for name, classes, shape in (("cifar10", 10, (32, 32, 3)), ("cifar100", 100, (32, 32, 3)),
                                 ("fashion-mnist", 10, (28, 28))):  # fmt: skip
        arrays = {}
        for part, n in (("train", 2), ("test", 1)):
            arrays[f"x_{part}"] = random.integers(0, 256, (n * classes, *shape), dtype=np.uint8)
            arrays[f"y_{part}"] = np.tile(np.arange(classes), n)
        np.savez(root / f"{name}.npz", **arrays)
    (root / "stl10_binary").mkdir()
    for part in ("train", "test"):
        random.integers(0, 256, 20 * 3 * 96 * 96, dtype=np.uint8).tofile(root / "stl10_binary" / f"{part}_X.bin")
        np.tile(np.arange(1, 11, dtype=np.uint8), 2).tofile(root / "stl10_binary" / f"{part}_y.bin")
    picture = io.BytesIO()
    Image.new("RGB", (72, 64), "red").save(picture, "JPEG")
    tiny, notes = root / "tiny-imagenet-200", []
    for k, name in enumerate(SYNSETS):
        for i in range(3):
            _write(root / "imagenet" / "train" / name / f"{i}.JPEG", picture.getvalue())
            _write(tiny / "train" / name / "images" / f"{name}_{i}.JPEG", picture.getvalue())
        _write(root / "imagenet" / "val" / name / "0.JPEG", picture.getvalue())
        _write(tiny / "val" / "images" / f"val_{k}.JPEG", picture.getvalue())
        notes.append((f"val_{k}.JPEG", name, 0, 0, 9, 9))
    _write(tiny / "val" / "val_annotations.txt", _lines(notes))


def _sounds(root: Path) -> None:
    home, random = root / "speech_commands_v0.01", np.random.default_rng(0)
    for word in ("yes", "no"):
        for k in range(8):
            wave = io.BytesIO()
            wavfile.write(wave, 16_000, (1000 * random.standard_normal(4000)).astype(np.int16))
            _write(home / word / f"{k}.wav", wave.getvalue())
    for name, numbers in (("validation", (0, 1)), ("testing", (2, 3))):
        _write(home / f"{name}_list.txt", _lines([(f"{word}/{k}.wav",) for word in ("yes", "no") for k in numbers]))


def _tables(root: Path) -> None:
    random = np.random.default_rng(0)

    def rows(n: int, columns: int, label: Callable[[int], object]) -> str:
        return _lines([[*random.random(columns).round(3), label(k)] for k in range(n)], ",")

    _write(
        root / "abalone" / "abalone.data",
        "".join("M," + line for line in rows(24, 7, lambda k: k % 2).splitlines(True)),
    )
    _write(root / "arrhythmia" / "arrhythmia.data", rows(24, 279, lambda k: 1 + k % 2))
    _write(root / "htru2" / "HTRU_2.csv", rows(24, 8, lambda k: k % 2))
    _write(root / "iris" / "iris.data", rows(24, 4, lambda k: f"Iris-{k % 3}"))
    for part in ("train", "valid"):
        _write(root / "arcene" / f"arcene_{part}.data", _lines(random.integers(0, 9, (12, 5)).tolist(), " "))
        _write(root / "arcene" / f"arcene_{part}.labels", "".join(f"{1 - 2 * (k % 2)}\n" for k in range(12)))
    head = "@relation phishing\n\n@attribute URL {1,0,-1}\n@attribute port {1,-1}\n@attribute Result {-1,1}\n\n@data\n"
    _write(root / "phishing" / "Training Dataset.arff", head + "1,1,-1\n0,1,1\n-1,-1,1\n0,-1,-1\n" * 6)


def _texts(root: Path) -> None:
    for end in ("pos", "neg"):
        _write(root / "mr" / f"rt-polarity.{end}", "".join(f"{_sentence(k)} {end}\n" for k in range(20)))
    for file in ("train_5500.label", "TREC_10.label"):
        _write(root / "trec" / file, "".join(f"{('NUM', 'DESC')[k % 2]}:x {_sentence(k)}\n" for k in range(12)))
    for part in ("train", "test"):
        for k in range(48):
            _write(root / "aclImdb" / part / ("neg", "pos")[k % 2] / f"{k}_1.txt", _sentence(k))
        body = "".join(f'"{1 + k % 4}","Title {k}","{_sentence(k)}"\n' for k in range(48))
        _write(root / "agnews" / f"{part}.csv", body)
    vectors = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32)
    (root / "weights" / "glove").mkdir(parents=True)
    np.savez(root / "weights/glove/glove_6B_300d.npz", words=np.array(["film", "good", "bad", "not"]), vectors=vectors)
    for part in ("train", "dev"):
        passages = [{"question": f"is it {k}", "passage": _sentence(k), "answer": bool(k % 2)} for k in range(12)]
        _write(root / "boolq" / f"{part}.jsonl", "".join(json.dumps(row) + "\n" for row in passages))


def _glue(root: Path) -> None:
    pair, same = ("sentence1", "sentence2"), ("entailment", "not_entailment")
    forms: dict[str, tuple[tuple[str, ...] | None, Callable[[int], tuple[object, ...]]]] = {
        "CoLA": (None, lambda k: ("gj04", k % 2, "", _sentence(k))),
        "SST-2": (("sentence", "label"), lambda k: (_sentence(k), k % 2)),
        "MRPC": (("Quality", "#1 String", "#2 String"), lambda k: (k % 2, _sentence(k), "it is")),
        "STS-B": (("index", *pair, "score"), lambda k: (k, _sentence(k), "it is", float(k % 6))),
        "QQP": (QQP, lambda k: (k, k, k, _sentence(k), "so", k % 2)),
        "QNLI": (("index", "question", "sentence", "label"), lambda k: (k, _sentence(k), "so", same[k % 2])),
        "RTE": (("index", *pair, "label"), lambda k: (k, _sentence(k), "so", same[k % 2])),
        "MNLI": (("index", *pair, "gold_label"), lambda k: (k, _sentence(k), "so", LABELS[k % 3])),
    }
    for name, (head, row) in forms.items():
        parts = ("train", "dev") if name != "MNLI" else ("train", "dev_matched", "dev_mismatched")
        n = 80 if name == "SST-2" else 12
        for part in parts:
            _write(root / "glue" / name / f"{part}.tsv", _lines([*([head] if head else []), *map(row, range(n))]))


def _desai(root: Path) -> None:
    home, endings = root / "calibration_data", ["good", "bad", "dull", "fine"]
    pairs = [("gold_label", "sentence1", "sentence2"), *((LABELS[k % 3], _sentence(k), "so") for k in range(12))]
    questions = [QQP, *((k, k, k, _sentence(k), "so", k % 2) for k in range(12))]
    swag = io.StringIO()
    writer = csv.writer(swag)
    writer.writerow(["startphrase", "sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"])
    writer.writerows([["", _sentence(k), "it", *endings, k % 4] for k in range(12)])
    stories = [{"ctx_a": _sentence(k), "ctx_b": "it", "ctx": "", "endings": endings, "label": k % 4} for k in range(12)]
    for part in ("train", "dev", "test"):
        for name in ("SNLI", "MNLI"):
            _write(home / name / f"{part}.txt", _lines(pairs))
        _write(home / "QQP" / f"{part}.txt", _lines(questions))
        tweets = [(_sentence(k), "so", f"({5 * (k % 2)}, 6)", "x") for k in range(12)]
        _write(home / "TwitterPPDB" / f"{part}.txt", _lines(tweets))
        _write(home / "SWAG" / f"{part}.txt", swag.getvalue())
        _write(home / "HellaSWAG" / f"{part}.txt", "".join(json.dumps(row) + "\n" for row in stories))


def _others(root: Path) -> None:
    rows = "".join(json.dumps({"logits": [k % 3, 1.0, 0.5], "true": k % 3}) + "\n" for k in range(60))
    for data, name, runs in (
        ("SNLI", "bert-base-uncased", 2),
        ("SNLI", "roberta-base", 3),
        ("MNLI", "roberta-base", 3),
    ):
        for run in range(runs):
            for part in ("dev", "test"):
                file = f"logits/nli_baan2022/{data}_{part}_{name}_{run}.jsonl.gz"
                _write(root / file, gzip.compress(rows.encode()))
