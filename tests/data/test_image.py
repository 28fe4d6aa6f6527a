"""Images of every mode and size, their augmentation and normalisation."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from tests.data import make
from vicinal import data
from vicinal._checks import Argument
from vicinal.data import Preprocessing
from vicinal.data.image import ImagePreprocessing, crop_and_flip, open_image, resized_crop_box


def through_json(preprocessing: Preprocessing) -> Preprocessing:
    return Preprocessing.from_dict(json.loads(json.dumps(preprocessing.to_dict())))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_folder_of_small_images(tmp_path):
    folder = make.image_folder(tmp_path / "my pets", n=10)
    (folder / "cat" / "notes.txt").write_text("not an image")
    (folder / "empty").mkdir()
    (folder / ".hidden").mkdir()
    task = data.load(folder, augment="none")
    assert task.kind == "image"
    assert task.classes == ("cat", "dog")
    assert task.spec == {"n_classes": 2, "kind": "image", "input_shape": (3, 12, 12)}
    assert "kind: colour images of 12 × 12 px" in task.notes
    assert "left out: 1 file of other types" in task.notes
    assert "left out: empty, without any image file" in task.notes
    pixels = torch.stack([x for x, _ in task.train])
    torch.testing.assert_close(pixels.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(pixels.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)
    path = task.test.original(0)
    want = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(v)[:, None, None] for v in (task.preprocessing.mean, task.preprocessing.std))
    torch.testing.assert_close(task.test[0][0], (want - mean) / std)
    again = through_json(task.preprocessing)
    assert torch.equal(again(path), task.test[0][0])
    assert data.load(folder).fingerprint == task.fingerprint


def test_new_images_to_predict(tmp_path):
    task = data.load(make.image_folder(tmp_path / "a", n=10))
    flat = tmp_path / "new"
    flat.mkdir()
    Image.new("RGBA", (40, 20), (255, 0, 0, 128)).save(flat / "wide.png")
    Image.new("L", (5, 9), 77).save(flat / "small.gif")
    new = data.read(flat, through_json(task.preprocessing))
    assert [x.shape for x, _ in new] == [(3, 12, 12)] * 2
    assert new.original(1).endswith("wide.png")
    assert len(data.read(flat / "wide.png", task.preprocessing)) == 1
    labelled = data.read(
        make.image_folder(tmp_path / "b", classes=["dog", "cow"]), task.preprocessing, classes=task.classes
    )
    assert set(labelled.labels) == {1}
    assert "left out: 6 samples of 'cow', which the model does not know" in labelled.notes
    with pytest.raises(ValueError, match="put its files in class folders"):
        data.read(flat, task.preprocessing, classes=task.classes)


def test_modes_are_read_as_a_viewer_shows_them(tmp_path):
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    palette = Image.fromarray(grey).convert("P")
    half = Image.new("RGBA", (8, 8), (200, 100, 0, 51))  # one fifth opaque, on white
    deep = Image.fromarray((grey.astype(np.uint16)) * 257)
    images = {"l.png": Image.fromarray(grey), "p.gif": palette, "rgba.png": half, "i16.png": deep}
    images["i16.tif"], images["cmyk.jpg"] = deep, Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    images["f.tif"] = Image.fromarray((grey / 255).astype(np.float32))
    images["one.png"] = Image.new("1", (8, 8), 1)
    images["la.png"] = Image.merge("LA", [Image.fromarray(grey), Image.new("L", (8, 8), 0)])
    for name, image in images.items():
        image.save(tmp_path / name)
    got = {name: np.asarray(open_image(tmp_path / name)) for name in images}
    for name in ("l.png", "i16.png", "i16.tif", "f.tif"):
        np.testing.assert_array_equal(got[name], grey)
    np.testing.assert_array_equal(got["rgba.png"][0, 0], [244, 224, 204])  # 255 - (255 - c) / 5
    assert (got["la.png"] == 255).all()
    assert (got["one.png"] == 255).all()
    assert got["cmyk.jpg"].shape == (8, 8, 3)
    assert got["p.gif"].shape == (8, 8, 3)


def test_exif_orientation_is_followed(tmp_path):
    image = Image.fromarray(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    image.save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(open_image(tmp_path / "turned.png")), np.rot90(np.asarray(image), -1))


def test_grey_stays_grey_and_sizes_are_made_one(tmp_path):
    rng = np.random.default_rng(0)
    for k, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        for i in range(5):
            Image.fromarray(rng.integers(0, 256, (20 + 3 * i, 26), dtype=np.uint8)).save(
                tmp_path / name / f"{k}{i}.png"
            )
    task = data.load(tmp_path)
    assert task.spec["input_shape"] == (1, 26, 26)
    assert any("from 5 different sizes" in note for note in task.notes)
    assert data.load(tmp_path, data.ImageOptions(image_size=16)).spec["input_shape"] == (1, 16, 16)


def test_a_few_large_images_among_small_ones_make_none_larger(tmp_path):
    make.image_folder(tmp_path / "icons", n=6, size=24)
    Image.fromarray(np.full((300, 200, 3), 90, np.uint8)).save(tmp_path / "icons" / "cat" / "large.png")
    task = data.load(tmp_path / "icons")
    assert task.spec["input_shape"] == (3, 24, 24)
    assert any("from 2 different sizes" in note for note in task.notes)
    assert len(task.train) + len(task.val) + len(task.test) == 13
    larger = data.load(
        tmp_path / "icons", data.ImageOptions(image_size=30)
    ).preprocessing  # as another version may have chosen
    assert data.load(tmp_path / "icons", fitted=larger).preprocessing.height == 30


def test_large_images_get_224_px(tmp_path):
    make.image_folder(tmp_path, n=4, size=130)
    task = data.load(tmp_path)
    assert task.spec["input_shape"] == (3, 224, 224)
    assert task.train[0][0].shape == (3, 224, 224)
    x = task.test[0][0]
    image = Image.open(task.test.original(0)).resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240))
    torch.testing.assert_close(x, normalised(task, image))
    assert torch.equal(through_json(task.preprocessing)(task.test.original(0)), x)
    first = task.train[0][0]
    assert torch.equal(first, task.train[0][0])
    task.train.set_epoch(1, 0)
    assert not torch.equal(first, task.train[0][0])


def normalised(task, image):
    mean, std = (torch.tensor(v)[:, None, None] for v in (task.preprocessing.mean, task.preprocessing.std))
    return (torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 - mean) / std


@pytest.mark.parametrize("size", [32, 96, 160])
def test_a_given_size_is_the_size_without_a_zoom(tmp_path, size):
    make.image_folder(tmp_path, n=4, size=130)
    task = data.load(tmp_path, data.ImageOptions(image_size=size))
    image = Image.open(task.test.original(0)).resize((size, size), Image.Resampling.BILINEAR)
    torch.testing.assert_close(task.test[0][0], normalised(task, image))
    assert task.train[0][0].shape == (3, size, size)


def test_images_of_96_px_keep_their_size_and_are_cropped_with_padding(tmp_path, monkeypatch):
    make.image_folder(tmp_path, n=4, size=96)
    task = data.load(tmp_path)
    assert task.spec["input_shape"] == (3, 96, 96)
    plain = data.load(tmp_path, augment="none")
    torch.testing.assert_close(plain.test[0][0], normalised(task, Image.open(task.test.original(0))))
    black = normalised(task, np.zeros((1, 1, 3), np.uint8))
    shifts = set()
    for i in range(len(task.train)):
        x, whole = task.train[i][0], plain.train[i][0]
        padded = black.expand(3, 120, 120).clone()
        padded[:, 12:108, 12:108] = whole
        windows = padded.unfold(1, 96, 1).unfold(2, 96, 1).flatten(1, 2)  # [3, 25 · 25, 96, 96]
        distances = torch.stack([(windows - y[:, None]).abs().amax((0, 2, 3)) for y in (x, x.flip(-1))])
        assert distances.min() < 1e-4
        shifts.add(int(distances.argmin()))
    assert len(shifts) > 1
    monkeypatch.setattr("vicinal.data.grid_inputs.MEMORY", 1000)  # too many to keep: read when they are asked for
    read = data.load(tmp_path)
    assert all(torch.equal(read.test[i][0], task.test[i][0]) for i in range(len(read.test)))


def test_augmentation_follows_seed_epoch_and_index_alone(tmp_path):
    train = data.load(make.image_folder(tmp_path, n=10)).train
    assert train.augment == "standard"

    def epoch(number, seed=0, order=None):
        train.set_epoch(number, seed)
        return {i: train[i][0] for i in (order or range(len(train)))}

    first, state = epoch(0), torch.get_rng_state()
    torch.manual_seed(5)
    again = epoch(0, order=list(reversed(range(len(train)))))
    assert all(torch.equal(first[i], again[i]) for i in first)
    assert sum(not torch.equal(first[i], x) for i, x in epoch(1).items()) > len(train) / 2
    assert sum(not torch.equal(first[i], x) for i, x in epoch(0, seed=1).items()) > len(train) / 2
    torch.set_rng_state(state)
    epoch(2)
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn from the global generator


def test_padded_crops_and_flips_are_what_they_say():
    image = torch.arange(1, 3 * 32 * 32 + 1, dtype=torch.int32).view(3, 32, 32)
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    seen = set()
    for seed in range(200):
        crop = crop_and_flip(image, 4, flip=True, generator=seeded(seed))
        windows = {(t, l): padded[:, t : t + 32, l : l + 32] for t in range(9) for l in range(9)}  # noqa: E741
        matches = [
            (*place, mirrored)
            for place, window in windows.items()
            for mirrored in (False, True)
            if torch.equal(crop, window.flip(-1) if mirrored else window)
        ]
        assert len(matches) == 1
        seen |= set(matches)
    assert {top for top, _, _ in seen} == {left for _, left, _ in seen} == set(range(9))
    assert 0.4 < sum(m for _, _, m in seen) / len(seen) < 0.6
    crops = {crop_and_flip(image, 0, flip=False, generator=seeded(seed)).sum().item() for seed in range(20)}
    assert crops == {image.sum().item()}


def test_resized_crops_lie_inside_with_the_right_areas():
    boxes = np.array([resized_crop_box(120, 200, seeded(seed)) for seed in range(500)])
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2] <= 200).all()
    assert (boxes[:, 3] <= 120).all()
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    share = w * h / (120 * 200)
    assert share.min() > 0.075
    assert share.max() <= 1
    assert 0.3 < share.mean() < 0.55  # large boxes often do not fit an oblong image
    assert ((w / h > 0.72) & (w / h < 1.37)).all()
    left, top, right, bottom = resized_crop_box(10, 1000, seeded())  # nothing fits: the centre
    assert (bottom - top, right - left) == (10, 13)
    assert abs(left + right - 1000) <= 1


def test_unreadable_images_are_named_counted_and_limited(tmp_path):
    folder = make.image_folder(tmp_path, n=30)
    bad = folder / "cat" / "broken.png"
    bad.write_bytes((folder / "cat" / "picture 0.png").read_bytes()[:60])
    (folder / "dog" / "empty.jpg").touch()
    task = data.load(folder)
    (note,) = [note for note in task.notes if note.startswith("skipped")]
    assert "2 of 62 image files could not be read" in note
    assert str(bad) in note
    assert sum(map(len, task.splits.values())) == 60
    with pytest.raises(ValueError, match=r"could not be read.*max_bad=0\.01"):
        data.load(folder, data.ReadOptions(max_bad=0.01))


def test_hostile_names(tmp_path):
    task = data.load(make.image_folder(tmp_path / 'a folder\'s "name" ü', classes=make.HOSTILE))
    assert task.classes == tuple(sorted(name.replace("/", "_") for name in make.HOSTILE))
    assert json.loads(json.dumps(task.summary()))["classes"] == list(task.classes)


def test_a_folder_that_is_split(tmp_path):
    for part, n in (("train", 8), ("valid", 3), ("test", 4)):
        make.image_folder(tmp_path / part, n=n)
    task = data.load(tmp_path)
    assert [len(task.splits[part]) for part in ("train", "val", "test")] == [16, 6, 8]
    assert "test" in task.test.original(0)
    assert any("the source's own" in note for note in task.notes)
    make.image_folder(tmp_path / "test", classes=["horse"])
    with pytest.raises(ValueError, match="the training set has no sample of 'horse'"):
        data.load(tmp_path)


def test_images_and_sounds_together(tmp_path):
    make.image_folder(tmp_path, n=10)
    make.sound_folder(tmp_path, n=10)
    with pytest.raises(ValueError, match="holds files of several kinds: pass kind='audio' or kind='image'"):
        data.load(tmp_path)
    assert data.load(tmp_path, kind="image").classes == ("cat", "dog")
    assert data.load(tmp_path, kind="audio").classes == ("high", "low")


def test_images_without_class_folders(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="images but no class folders"):
        data.load(tmp_path)


def test_an_image_in_memory():
    preprocessing = ImagePreprocessing(1, 4, 4, 1.0, (0.0,), (1.0,))
    assert preprocessing(np.full((8, 8, 3), 255, dtype=np.uint8)).tolist() == [[[1.0] * 4] * 4]
    with pytest.raises(ValueError, match=r"an image must be a path or uint8 .* got float64 \[8, 8\]"):
        preprocessing(np.zeros((8, 8)))


def test_images_of_too_many_pixels_are_not_decoded_and_count_as_bad(tmp_path, monkeypatch):
    folder = make.image_folder(tmp_path / "images", size=8)
    huge = next(folder.rglob("*.png")).with_name("huge.png")
    header = b"IHDR" + struct.pack(">IIBBBBB", 40_000, 40_000, 1, 0, 0, 0, 0)
    huge.write_bytes(
        b"\x89PNG\r\n\x1a\n\0\0\0\r" + header + struct.pack(">I", zlib.crc32(header)) + b"\0\0\0\4IDAT" + bytes(8)
    )
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", _counted(loaded := []))
    task = data.load(folder, data.ReadOptions(max_bad=1))
    why = "huge.png (it has more than 178,956,970 pixels: raise max_pixels to read it)"
    notes = [note for note in task.notes if why in note]
    assert Argument("max_pixels") in notes[0].parts  # the command says --max-pixels
    assert max(loaded) <= 64
    with pytest.raises(ValueError, match="it has more than 63 pixels"):
        data.load(folder, data.ReadOptions(max_bad=1), data.ImageOptions(max_pixels=63))
    with pytest.raises(ValueError, match="max_pixels must be an integer of at least 1, got 0"):
        data.load(folder, data.ImageOptions(max_pixels=0))
    # The limit goes with what reads the images later, in training and for new data, and is not saved with the model.
    for limit in (64, 10**9):
        assert (
            data.load(folder, data.ReadOptions(max_bad=1), data.ImageOptions(max_pixels=limit)).preprocessing.max_pixels
            == limit
        )
    assert "max_pixels" not in task.preprocessing.to_dict()
    with pytest.raises(ValueError, match=r"8 × 8, .*63 pixels: max_pixels"):
        task.preprocessing.limited(63)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tif", "ppm"])
def test_of_very_many_images_those_cut_short_are_seen_before_training(tmp_path, monkeypatch, suffix):
    folder = tmp_path / "images"
    random = np.random.default_rng(0)
    for k, name in enumerate("ab"):
        (folder / name).mkdir(parents=True)
        for i in range(6):
            pixels = (random.integers(0, 128, (40, 40, 3)) + 127 * k).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.{suffix}")
    whole = (folder / "a" / f"0.{suffix}").read_bytes()
    (folder / "a" / f"0.{suffix}").write_bytes(whole[: len(whole) * 2 // 3])
    (folder / "a" / f"1.{suffix}").write_bytes((folder / "a" / f"1.{suffix}").read_bytes() + b"more")
    monkeypatch.setattr("vicinal.data.class_folders.MANY", 5)
    with pytest.raises(ValueError, match=r"1 of 12 image files .*0\..*max_bad=0"):
        data.load(folder, data.ReadOptions(max_bad=0))
    task = data.load(folder, data.ReadOptions(max_bad=1))
    assert sum(map(len, task.splits.values())) == 11
    assert any("skipped: 1 of 12 image files" in note for note in task.notes)
    for part in (task.train, task.val, task.test):
        assert all(torch.isfinite(x).all() for x, _ in part)


def _counted(sizes):
    load = ImageFile.ImageFile.load

    def counted(self):
        sizes.append(self.width * self.height)
        return load(self)

    return counted
