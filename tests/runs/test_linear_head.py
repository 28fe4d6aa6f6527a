"""`--fast` and `--pretrained`: a head on frozen features is a run like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from tests.cli.running import refused, vicinal
from tests.data.checkpoints import save_tiny
from tests.data.make import image_folder, people, sound_folder
from vicinal import load
from vicinal.data.image import open_image
from vicinal.models import build
from vicinal.runs import Experiment, Run, run


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fast")
    save_tiny(root / "bert")
    rng = np.random.default_rng(0)
    filler = ["the film was", "it is so", "and the", "not", "sense"]
    ends = (" bad dull", "no"), (" good fine", "yes")
    starts = [" ".join(rng.choice(filler, rng.integers(1, 6))) for _ in range(160)]
    rows = [(start + ends[i % 2][0], ends[i % 2][1]) for i, start in enumerate(starts)]
    pd.DataFrame(rows, columns=["text", "label"]).to_csv(root / "t.csv", index=False)
    return root


def of_texts(root: Path, **changed: Any) -> Experiment:
    data = {"target": "label", "text": "text", "kind": "text"}
    training = {"trackers": [], "epochs": 30}
    return Experiment(
        source=str(root / "t.csv"), data=data, model=str(root / "bert"), training=training, fast=True, **changed
    )


@pytest.fixture(scope="module")
def fast(texts: Path) -> Any:
    notes: list[str] = []
    outcome = run(of_texts(texts), texts / "run", progress=False, on_note=notes.append)
    assert any(note.startswith("fast: ") for note in notes)
    return outcome


def test_texts_are_learned_from_features(fast: Any, texts: Path) -> None:
    bundle = load(fast.out)
    assert bundle.spec.options["pooling"] == "mean"
    assert fast.test.before.metrics["accuracy"].value > 0.9
    task = Run(fast.out).task()
    assert torch.equal(bundle.logits(task.val), fast.sets["val"].logits)  # the temperature is of what is served
    assert torch.equal(bundle.logits(task.test), fast.test.logits)
    from transformers import AutoModel

    frozen = AutoModel.from_pretrained(texts / "bert").state_dict()
    own = bundle.module.state_dict()
    for name, tensor in frozen.items():
        if not name.startswith("pooler."):
            assert torch.equal(own[f"encoder.{name}"], tensor)
    assert "--fast" in fast.experiment.command()


def test_the_same_again_and_from_the_middle(fast: Any, texts: Path) -> None:
    notes: list[str] = []
    again = run(of_texts(texts), texts / "run", progress=False, on_note=notes.append)
    assert "nothing to do" in notes[0]
    assert torch.equal(again.test.logits, fast.test.logits)
    (texts / "run" / "evaluation.json").unlink()
    (texts / "run" / "result.json").unlink()  # as if it was killed before the whole was put together
    resumed = run(of_texts(texts), texts / "run", progress=False)
    assert torch.equal(resumed.test.logits, fast.test.logits)


@pytest.mark.slow
def test_it_is_written_as_onnx(fast: Any, tmp_path: Path) -> None:
    for name in ("onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    assert load(fast.out).to_onnx(tmp_path / "m.onnx") < 1e-4


def test_mean_pooling_by_a_loop(texts: Path) -> None:
    from transformers import AutoModel

    torch.manual_seed(0)
    model = build(str(texts / "bert"), kind="text", n_classes=2, pooling="mean").eval()
    encoder = AutoModel.from_pretrained(texts / "bert").eval()
    ids = torch.tensor([[2, 5, 6, 3, 0], [2, 7, 3, 0, 0]])
    mask = (ids != 0).long()
    states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    for row in range(2):
        n = int(mask[row].sum())
        mean = sum(states[row, t] for t in range(n)) / n
        expected = model.classifier(mean)
        assert torch.allclose(model(input_ids=ids, attention_mask=mask)[row], expected, atol=1e-6)


def mixed(folder: Path) -> Path:
    """Add what cameras, scanners and the web leave in folders: other modes, sizes, and more than one picture."""
    rng = np.random.default_rng(5)
    for name, level in (("cat", 40), ("dog", 200)):
        grey = Image.fromarray((level + rng.integers(0, 40, (90, 130))).astype(np.uint8))
        grey.save(folder / name / "grey.png")
        grey.convert("CMYK").save(folder / name / "print.jpg")
        grey.convert("RGBA").save(folder / name / "see-through.png")
        Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(folder / name / "deep.png")
        grey.save(folder / name / "moving.gif", save_all=True, append_images=[Image.new("L", (130, 90), 128)] * 3)
        turned = Image.Exif()
        turned[0x0112] = 6
        grey.convert("RGB").save(folder / name / "turned.jpg", exif=turned)
    return folder


def test_a_moving_picture_is_its_first_frame(tmp_path: Path) -> None:
    folder = mixed(image_folder(tmp_path / "images", n=6, size=80))
    grey, first = (open_image(folder / "cat" / name) for name in ("grey.png", "moving.gif"))
    assert first.size == (130, 90)
    assert np.array_equal(np.asarray(first.convert("L")), np.asarray(grey))


def test_images_from_a_file_of_weights(tmp_path: Path) -> None:
    folder = mixed(image_folder(tmp_path / "images", n=8, size=80))
    torch.manual_seed(3)
    weights = build("shufflenetv2", kind="image", n_classes=10, input_shape=(3, 72, 72)).state_dict()
    torch.save(weights, tmp_path / "w.pt")
    words = ["train", folder, "--model", "shufflenetv2", "--pretrained", tmp_path / "w.pt", "--image-size", "72"]
    ran = vicinal(*words, "--fast", "--epochs", "3", "--json", "--out", tmp_path / "run")
    notes = " ".join(event["text"] for event in ran.events("note"))
    assert "new, since the classes are others: fc.weight, fc.bias" in notes
    bundle = load(tmp_path / "run")
    own = bundle.module.state_dict()
    assert all(torch.equal(own[name], t) for name, t in weights.items() if not name.startswith("fc."))
    assert bundle.preprocessing.mean[0] in (0.485, (0.485 + 0.456 + 0.406) / 3)
    tuned = vicinal(*words, "--epochs", "1", "--json", "--out", tmp_path / "tuned")
    assert "fast: " not in tuned.out
    own = load(tmp_path / "tuned").module.state_dict()
    assert not torch.equal(own["conv5.0.weight"], weights["conv5.0.weight"])
    torch.save({name: t + 1 if t.is_floating_point() else t for name, t in weights.items()}, tmp_path / "w.pt")
    (tmp_path / "tuned" / "evaluation.json").unlink()
    said = refused(*words, "--epochs", "1", "--out", tmp_path / "tuned")
    assert "holds another run: --pretrained was" in said


def test_what_cannot_be_fast(tmp_path: Path, texts: Path) -> None:
    people().to_csv(tmp_path / "p.csv", index=False)
    said = refused("train", tmp_path / "p.csv", "--target", people().columns[-1], "--fast", "--out", tmp_path / "a")
    assert "--fast needs a network that was trained before" in said
    folder = image_folder(tmp_path / "images", n=6)
    assert "--pretrained" in refused("train", folder, "--fast", "--out", tmp_path / "b")
    sounds = sound_folder(tmp_path / "sounds")
    assert "--pretrained is for images" in refused("train", sounds, "--pretrained", "--out", tmp_path / "c")
    assert "no published weights" in refused(
        "train", folder, "--model", "lenet", "--pretrained", "--out", tmp_path / "d"
    )
    with pytest.raises(ValueError, match="ensemble is of whole networks: pass it without fast"):
        of_texts(texts, ensemble=2)
