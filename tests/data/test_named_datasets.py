"""Data sets by name: found where they lie, in the forms they come in."""

from __future__ import annotations

import gzip
import sys
import types

import numpy as np
import pandas as pd
import pytest
import torch

from tests.data import make
from vicinal import data


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No data set of this machine is found."""
    monkeypatch.delenv("VICINAL_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def arrays(n: int, channels: int | None = 3, classes: int = 10, size: int = 32):
    rng = np.random.default_rng(n)
    shape = (n, size, size) if channels is None else (n, size, size, channels)
    return rng.integers(0, 256, shape, dtype=np.uint8), np.arange(n) % classes


def write_idx(folder, **parts):
    folder.mkdir(parents=True)
    for prefix, (x, y) in parts.items():
        for what, values in (("images-idx3", x), ("labels-idx1", y.astype(np.uint8))):
            header = b"\x00\x00\x08" + bytes([values.ndim]) + np.array(values.shape, ">u4").tobytes()
            with gzip.open(folder / f"{prefix}-{what}-ubyte.gz", "wb") as file:
                file.write(header + values.tobytes())


def test_digits():
    task = data.load("digits")
    assert task.classes == tuple("0123456789")
    assert task.spec == {"n_classes": 10, "kind": "image", "input_shape": (1, 8, 8)}
    assert task.train.augment == "none"  # a mirrored digit is none
    assert task.train.original(3) == f"digits[{task.splits['train'][3]}]"
    from sklearn.datasets import load_digits

    own = load_digits()
    for position, index in enumerate(task.splits["test"][:20]):
        x, y = task.test[position]
        assert y == own.target[index]
        pixels = x * task.preprocessing.std[0] + task.preprocessing.mean[0]
        np.testing.assert_allclose(pixels[0] * 16, own.images[index], atol=0.04)


def test_an_npz_file_by_path_and_by_name(tmp_path, monkeypatch):
    (tmp_path / "images" / "cifar10").mkdir(parents=True)
    path = tmp_path / "images" / "cifar10" / "cifar10_part.npz"
    (x, y), (x_test, y_test) = arrays(100), arrays(30)
    np.savez(path, x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    task = data.load(path)
    assert task.splits["test"] == list(range(100, 130))
    assert [len(task.splits[part]) for part in ("train", "val")] == [80, 20]
    assert task.classes == tuple(str(k) for k in range(10))
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    named = data.load("CIFAR10")
    assert named.classes[0] == "airplane"
    assert named.train.augment == "standard"
    assert named.fingerprint == task.fingerprint
    assert "cifar10 from cifar10_part.npz: 130 images" in named.notes
    monkeypatch.delenv("VICINAL_DATA")
    assert data.load("cifar10", data.ReadOptions(data_root=tmp_path)).splits == named.splits
    assert data.load("images/cifar10/cifar10_part.npz", data.ReadOptions(data_root=tmp_path)).splits == named.splits
    half = data.load(path, data.ImageOptions(image_size=16))
    assert half.spec["input_shape"] == (3, 16, 16)
    new = data.read(path, half.preprocessing, classes=half.classes)
    assert torch.equal(new[100][0], half.test[0][0])


def test_fashion_mnist_as_distributions_install_it(tmp_path):
    x, y = arrays(60, None, size=28)
    write_idx(tmp_path / "share" / "datasets" / "fashion-mnist", train=(x, y), t10k=arrays(20, None, size=28))
    task = data.load("fashion_mnist", data.SplitOptions(val=0.2))
    assert task.spec["input_shape"] == (1, 28, 28)
    assert task.classes[9] == "Ankle boot"
    assert len(task.test) == 20
    assert len(task.val) == 10
    index = task.splits["train"][0]
    pixels = (
        task.preprocessing.mean[0]
        + task.preprocessing.std[0] * data.load("fashion-mnist", data.SplitOptions(val=0.2), augment="none").train[0][0]
    )
    np.testing.assert_allclose(pixels[0] * 255, x[index], atol=1e-3)


def test_mnist_as_torchvision_keeps_it(tmp_path):
    write_idx(tmp_path / "MNIST" / "raw", train=arrays(60, None, size=28), t10k=arrays(20, None, size=28))
    task = data.load("mnist", data.ReadOptions(data_root=tmp_path))
    assert task.train.augment == "crop"
    path = tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    with pytest.raises(ValueError, match="is not a complete IDX file"):
        data.load("mnist", data.ReadOptions(data_root=tmp_path))


def test_torchvision_data_and_what_to_do_without(tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    import torchvision.datasets

    class Fake:
        def __init__(self, root, *, train, download):
            if not download:
                raise RuntimeError("not found")
            if "cache" in root:
                raise OSError("no network here")
            self.data, self.targets = arrays(60 if train else 20)
            self.targets, self.classes = self.targets.tolist(), [f"class {k}" for k in range(10)]

    monkeypatch.setattr(torchvision.datasets, "CIFAR100", Fake)
    task = data.load("cifar100", data.ReadOptions(data_root=tmp_path / "mine"))
    assert task.classes[3] == "class 3"
    assert len(task.test) == 20
    with pytest.raises(ValueError, match=r"cifar100 .*: its server does not answer. Pass data_root='FOLDER'"):
        data.load("cifar100")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros((4, 8, 8), np.float32)}, r"must be uint8 \[N, H, W\] or \[N, H, W, C\]"),
        ({"y_train": np.zeros(3, np.int64)}, r"labels of .* must be class numbers \[4\], got int64 \[3\]"),
        ({"classes": np.array(["a"])}, "must be below 1, the number of classes, got 1"),
        ({"x_train": None}, "must hold x_train and y_train, got y_train"),
    ],
)
def test_bad_arrays_are_named(tmp_path, changes, message):
    held = {"x_train": np.zeros((4, 8, 8), np.uint8), "y_train": np.arange(4) % 2, **changes}
    np.savez(tmp_path / "a.npz", **{name: value for name, value in held.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        data.load(tmp_path / "a.npz")


def test_the_hub_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="'hf:glue' needs the datasets library: pip install datasets"):
        data.load("hf:glue")


def test_the_hub_from_local_files(tmp_path, monkeypatch):
    """A stand-in for the library that reads local files, with the parts of its interface that are used."""
    frame = make.reviews(60)
    frame["label"] = [["bad", "good"].index(mood) for mood in frame.pop("mood")]
    frame[:40].to_parquet(tmp_path / "train.parquet")
    frame[40:].to_parquet(tmp_path / "validation.parquet")
    frame[:5].assign(label=-1).to_parquet(tmp_path / "test.parquet")
    frame[:5].to_parquet(tmp_path / "unsupervised.parquet")

    class Part:
        def __init__(self, path):
            self.path, self.features = path, {"label": types.SimpleNamespace(names=["bad", "good"])}

        def to_pandas(self):
            return pd.read_parquet(self.path)

    def load_dataset(name, *config):
        if name != "mine/reviews":
            raise FileNotFoundError(f"no {name}")
        assert config == ("plain",)
        return {part: Part(tmp_path / f"{part}.parquet") for part in ("train", "validation", "test", "unsupervised")}

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    task = data.load("hf:mine/reviews:plain", data.TextOptions(tokenizer="words"))
    assert task.classes == ("bad", "good")
    assert task.splits["val"] == list(range(40, 60))
    assert len(task.train) + len(task.test) == 40
    assert "left out: the split 'test', without labels" in task.notes
    assert "left out: the split 'unsupervised'" in " ".join(task.notes)
    with pytest.raises(ValueError, match=r"'hf:other' could not be loaded: its server has no such data"):
        data.load("hf:other")


def test_stl10_as_published(tmp_path):
    """Channels first, each column by column, labels from 1: written pixel by pixel."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    written = {}
    for part, n in (("train", 20), ("test", 10)):
        x, y = rng.integers(0, 256, (n, 96, 96, 3), dtype=np.uint8), 1 + np.arange(n, dtype=np.uint8) % 10
        with open(folder / f"{part}_X.bin", "wb") as file:
            for image in x:
                for channel in range(3):
                    for column in range(96):
                        file.write(image[:, column, channel].tobytes())
        (folder / f"{part}_y.bin").write_bytes(y.tobytes())
        written[part] = x
    task = data.load("stl10", data.ReadOptions(data_root=tmp_path), data.SplitOptions(val=10))
    assert task.spec["input_shape"] == (3, 96, 96)
    assert task.classes[0] == "airplane"
    assert [task.test[i][1] for i in range(10)] == list(range(10))
    mean, std = (torch.tensor(v)[:, None, None] for v in (task.preprocessing.mean, task.preprocessing.std))
    pixels = (task.test[3][0] * std + mean) * 255
    np.testing.assert_allclose(pixels.permute(1, 2, 0), written["test"][3], atol=1e-2)
    (folder / "test_X.bin").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"stl10 in .* is not complete"):
        data.load("stl10", data.ReadOptions(data_root=tmp_path))


def test_both_validation_sets_of_mnli(monkeypatch):
    class Part:
        def __init__(self, name):
            rows = 24 if name == "train" else 6
            self.frame = pd.DataFrame({"premise": [f"{name} {k} is so and so" for k in range(rows)], "label": 0})
            self.frame["label"] = [k % 2 for k in range(rows)]
            self.features = {"label": types.SimpleNamespace(names=["entailment", "neutral"])}

        def to_pandas(self):
            return self.frame

    names = ("train", "validation_matched", "validation_mismatched")
    loaded = {name: Part(name) for name in names}
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=lambda *words: dict(loaded)))
    task = data.load("hf:glue:mnli", data.TextOptions(text="premise", tokenizer="words"))
    assert len(task.val) == 6
    assert all(str(task.val.original(i)).startswith("validation_matched") for i in range(6))
    assert "left out: the split 'validation_mismatched'" in " ".join(task.notes)
    other = data.read("hf:glue:mnli:validation_mismatched", task.preprocessing, classes=task.classes)
    assert len(other) == 6
    assert str(other.original(0)).startswith("validation_mismatched")
    with pytest.raises(ValueError, match=r"'hf:glue:mnli' has no split 'dev'"):
        data.load("hf:glue:mnli:dev", data.TextOptions(text="premise"))
