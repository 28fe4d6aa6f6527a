from __future__ import annotations

import dataclasses
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import vicinal
from tests.data import make
from vicinal import data, models
from vicinal._atomic import DamagedFileError, read_json, sealed, write_json
from vicinal.data.tabular import TabularPreprocessing
from vicinal.runs.bundle import Bundle, read_record
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators
from vicinal.runs.layout import RunFiles


def _bundle(task: data.Task, **options: Any) -> Bundle:
    name = options.pop("model", None)
    torch.manual_seed(0)
    spec = models.specify(name, **task.spec, **options)
    return Bundle(
        module=spec.build(),
        spec=spec,
        preprocessing=task.preprocessing,
        classes=task.classes,
        calibrators=HeadCalibrators.of_temperatures({ONLY_HEAD: 1.7}, 3),
        method="ERM()",
        fingerprint=task.fingerprint,
        versions={"vicinal": "0"},
    )


def sealed_again(record: dict[str, Any]) -> dict[str, Any]:
    """What somebody writes who changes a record and knows how it is sealed."""
    return sealed({name: value for name, value in record.items() if name != "checksum"})


@pytest.fixture
def people(tmp_path: Path) -> tuple[Bundle, pd.DataFrame]:
    frame = make.people(40)
    return _bundle(data.load(frame, target="kind"), hidden=[4]), frame


def _of_kind(kind: str, root: Path) -> tuple[Bundle, Any]:
    """A bundle of each kind, and new data for it."""
    if kind == "tabular":
        frame = make.people(40)
        return _bundle(data.load(frame, target="kind"), hidden=[4]), frame.head(7)
    if kind in ("text", "pair"):
        frame = make.reviews(40).assign(answer=lambda f: f["review"].iloc[::-1].to_numpy())
        columns = "review" if kind == "text" else ["review", "answer"]
        task = data.load(frame, data.TextOptions(text=columns, tokenizer="words"), target="mood")
        return _bundle(task, model="sentencecnn"), frame.head(7)
    if kind == "image":
        make.image_folder(root / "images", classes=make.HOSTILE, size=8)
        return _bundle(data.load(str(root / "images"), data.SplitOptions(val=0.2, test=0.2)), width=2), str(
            root / "images"
        )
    make.sound_folder(root / "sounds")
    task = data.load(str(root / "sounds"), data.SplitOptions(val=0.2, test=0.2), data.AudioOptions(seconds=0.2))
    return _bundle(task), str(root / "sounds")


KINDS = ("tabular", "text", "pair", "image", "audio")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, new = _of_kind(kind, tmp_path)
    folder = bundle.save(tmp_path / "a <b> é")
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    again = vicinal.load(folder)
    probs = bundle.predict_proba(new)
    np.testing.assert_array_equal(again.predict_proba(new), probs)
    for field in dataclasses.fields(Bundle):
        if field.name not in ("module", "calibrators"):
            assert getattr(again, field.name) == getattr(bundle, field.name)
    assert again.calibrators.to_dict() == bundle.calibrators.to_dict()
    assert not again.module.training
    # p = softmax(f(x) / T), by hand
    logits = bundle.logits(new).double().numpy() / 1.7
    by_hand = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probs, by_hand, atol=1e-12)
    assert again.predict(new).tolist() == [bundle.classes[i] for i in probs.argmax(axis=1)]


@pytest.mark.parametrize(
    "kind", ["tabular", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("text", "image", "audio"))]
)
def test_onnx_has_the_temperature_inside(kind: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    bundle, new = _of_kind(kind, tmp_path)
    assert bundle.to_onnx(tmp_path / "model.onnx") < 1e-4
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    split = bundle.read(new)
    for n in (1, 3):
        x, _ = split.collate_fn([split[i] for i in range(n)])
        inputs = dict(x) if isinstance(x, dict) else {"input": x}
        inputs = {entry.name: inputs[entry.name].numpy() for entry in session.get_inputs()}
        logits, probs = session.run(["logits", "probabilities"], inputs)
        np.testing.assert_allclose(probs, bundle.predict_proba(new)[:n], atol=1e-5)
        np.testing.assert_allclose(logits, bundle.logits(new)[:n].numpy() / 1.7, rtol=1e-4, atol=1e-5)
    facts = session.get_modelmeta().custom_metadata_map
    if isinstance(bundle.preprocessing, TabularPreprocessing):  # which number of the input is what
        assert len(json.loads(facts["features"])) == bundle.preprocessing.width
    assert json.loads(facts["classes"]) == list(bundle.classes)


def test_an_onnx_file_that_differs_is_not_written(
    people: tuple[Bundle, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    monkeypatch.setattr("vicinal.runs.bundle.largest_difference", lambda *args: float("nan"))
    with pytest.raises(RuntimeError, match="it was not written"):
        people[0].to_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_batches_change_nothing(people: tuple[Bundle, pd.DataFrame]) -> None:
    bundle, frame = people
    seen: list[int] = []
    split = bundle.read(frame)
    parts = list(bundle.iter_logits(split, batch_size=7, progress=seen.append))
    assert seen == [7, 7, 7, 7, 7, 5]
    torch.testing.assert_close(torch.cat(parts), bundle.logits(frame))


def test_labelled_data(people: tuple[Bundle, pd.DataFrame]) -> None:
    bundle, frame = people
    split = bundle.read(frame.replace({"kind": {"a": "z"}}), labelled=True)
    assert {split.labels[i] for i in range(len(split))} == {bundle.classes.index("b")}
    assert "'z'" in " ".join(split.notes)
    with pytest.raises(ValueError, match="has a class of the model"):
        bundle.read(frame.assign(kind="z"), labelled=True)
    with pytest.raises(ValueError, match=r"no samples|no rows|empty"):
        bundle.predict_proba(frame.head(0))


def test_hostile_fields(people: tuple[Bundle, pd.DataFrame]) -> None:
    with pytest.raises(ValueError, match="classes must be 2, as many as the network has, got 3"):
        dataclasses.replace(people[0], classes=("a", "b", "c"))
    for temperature in (0.0, -1.0, 1e-320, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature must be"):
            dataclasses.replace(people[0], calibrators=HeadCalibrators.of_temperatures({ONLY_HEAD: temperature}, 3))


def test_records_that_are_not_whole(people: tuple[Bundle, pd.DataFrame], tmp_path: Path) -> None:
    folder = people[0].save(tmp_path / "run")
    record = read_json(folder / "model.json")
    write_json(
        folder / "model.json", sealed_again({name: value for name, value in record.items() if name != "temperature"})
    )
    with pytest.raises(ValueError, match="lacks 'temperature': it is incomplete"):
        vicinal.load(folder)
    write_json(folder / "model.json", {**record, "format": 99})
    with pytest.raises(ValueError, match=r"format 99, .*reads 1: use the version that wrote it, 0"):
        vicinal.load(folder)
    write_json(folder / "model.json", record)
    content = (folder / "model.safetensors").read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), b"no tensors"):
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(ValueError, match="is not the file that was written: its checksum differs"):
            vicinal.load(folder)
    write_json(
        folder / "model.json", sealed_again({name: value for name, value in record.items() if name != "weights"})
    )
    with pytest.raises(ValueError, match="lacks 'weights': it is incomplete"):
        vicinal.load(folder)
    with pytest.raises(FileNotFoundError, match="did you mean"):
        vicinal.load(tmp_path / "rum")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_pipe_in_the_place_of_a_file_is_refused(
    people: tuple[Bundle, pd.DataFrame], tmp_path: Path, name: str
) -> None:
    folder = people[0].save(tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=f"{name} is not a regular file"):
        vicinal.load(folder)


def test_a_record_that_was_changed_is_noticed(people: tuple[Bundle, pd.DataFrame], tmp_path: Path) -> None:
    folder = people[0].save(tmp_path / "run")
    path = folder / "model.json"
    content = path.read_bytes()
    at = content.index(b"1.7")  # the temperature
    path.write_bytes(content[:at] + b"1.6" + content[at + 3 :])
    with pytest.raises(ValueError, match=r"model\.json is damaged: its checksum differs"):
        vicinal.load(folder)
    # Laid out otherwise it says the same. One without a checksum is refused.
    path.write_text(json.dumps(json.loads(content)))
    assert vicinal.load(folder).temperature == 1.7
    record = json.loads(content)
    del record["checksum"]
    path.write_text(json.dumps(record))
    with pytest.raises(
        DamagedFileError, match=r"model\.json has no checksum: .*; save the model again to write it again"
    ):
        vicinal.load(folder)


def test_a_flipped_bit_of_a_record_is_noticed_or_says_the_same(
    people: tuple[Bundle, pd.DataFrame], tmp_path: Path
) -> None:
    folder = people[0].save(tmp_path / "run")
    path = folder / "model.json"
    content, wanted = path.read_bytes(), read_json(folder / "model.json")
    noticed = 0
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 7]) + content[at + 1 :])
        try:
            found = read_record(RunFiles(folder))
        except ValueError:
            noticed += 1
        else:
            assert found == {name: value for name, value in wanted.items() if name != "checksum"}
    assert noticed > len(content) // 7 * 0.6  # the rest is white space


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(
    people: tuple[Bundle, pd.DataFrame], tmp_path: Path, value: float
) -> None:
    bundle, _ = people
    with torch.no_grad():
        next(bundle.module.parameters()).view(-1)[0] = value
    with pytest.raises(ValueError, match="holds weights that are not finite numbers"):
        Bundle.load(bundle.save(tmp_path / "run"))


@pytest.mark.parametrize(("field", "value"), [("mean", float("nan")), ("std", float("inf")), ("std", 0.0)])
def test_a_scale_that_is_not_finite_is_refused(
    people: tuple[Bundle, pd.DataFrame], tmp_path: Path, field: str, value: float
) -> None:
    path = people[0].save(tmp_path / "run") / "model.json"
    record = read_json(path)
    record["preprocessing"]["columns"][0][field] = value
    write_json(path, sealed_again(record))
    with pytest.raises(ValueError, match=f"{field} must be a"):
        Bundle.load(path.parent)


@pytest.mark.parametrize(
    "ranks",
    [
        [[0.0, 0.1], [2.0, 0.5], [1.0, 0.9]],
        [[0.0, 0.1], [1.0, 0.9], [1.0, 0.9]],
        [[0.0, 0.9], [1.0, 0.5], [2.0, 0.1]],
        [[0.0, 0.1], [1.0, 0.5], [2.0, 45.0]],
        [[0.0, -1.0], [1.0, 0.5], [2.0, 0.9]],
        [[0.0, 0.1], [1.0, float("nan")], [2.0, 0.9]],
        [[0.0, 0.1, 0.2]],
        [["x", 0.1]],
        [0.0, 1.0],
        {"0.0": 0.1},
        7,
        None,
    ],
    ids=str,
)
def test_damaged_ranks_are_refused(people: tuple[Bundle, pd.DataFrame], tmp_path: Path, ranks: object) -> None:
    path = people[0].save(tmp_path / "run") / "model.json"
    record = read_json(path)
    record["preprocessing"]["columns"][0]["ranks"] = ranks
    write_json(path, sealed_again(record))
    with pytest.raises(ValueError, match=r"model\.json.*ranks must be pairs of a value and its rank"):
        Bundle.load(path.parent)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("limits", [1.0, -1.0], "two numbers, the lower one first"),
        ("limits", [float("nan"), 1.0], "two numbers, the lower one first"),
        ("limits", [1.0], "two numbers, the lower one first"),
        ("edges", [0.0, 1.0, 1.0], "numbers that rise"),
        ("edges", [0.0, 2.0, 1.0], "numbers that rise"),
        ("edges", ["a"], "numbers that rise"),
        ("edges", 3, "numbers that rise"),
    ],
)
def test_damaged_limits_and_edges_are_refused(
    people: tuple[Bundle, pd.DataFrame], tmp_path: Path, field: str, value: object, allowed: str
) -> None:
    path = people[0].save(tmp_path / "run") / "model.json"
    record = read_json(path)
    record["preprocessing"]["columns"][0][field] = value
    write_json(path, sealed_again(record))
    with pytest.raises(ValueError, match=f"{field} must be {allowed}"):
        Bundle.load(path.parent)


def test_a_sample_that_the_network_overflows_at_is_named(people: tuple[Bundle, pd.DataFrame]) -> None:
    bundle, frame = people
    first, *others = bundle.module.parameters()
    with torch.no_grad():
        first.zero_()  # so that no sample is spared by a ReLU
        for weights in others:
            weights.fill_(1e30)
    with pytest.raises(ValueError, match=r"answer to sample 0 \(from 0\) is not finite"):
        bundle.predict_proba(frame)


@pytest.mark.parametrize(
    ("change", "what", "built"),
    [
        ({"options": {"hidden": [45_000, 45_000]}}, "weights, and model.safetensors holds", ["meta"]),
        ({"members": 10**9}, "1,000,000,000 networks, and model.safetensors holds", []),
    ],
)
def test_a_network_larger_than_its_weights_is_refused_before_it_is_built(
    people: tuple[Bundle, pd.DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Any,
    what: str,
    built: Any,
) -> None:
    path = people[0].save(tmp_path / "run") / "model.json"
    record = read_json(path)
    options = {**record["network"]["options"], **change.pop("options", {})}
    record["network"] |= {**change, "options": options}
    write_json(path, sealed_again(record))
    devices, build = [], models.ModelSpec.build
    monkeypatch.setattr(
        models.ModelSpec, "build", lambda *a, **k: (devices.append(torch.get_default_device().type), build(*a, **k))[1]
    )
    with pytest.raises(ValueError, match=f"model.json asks for .*{what}.*: the files do not belong together"):
        Bundle.load(path.parent)
    assert devices == built  # nothing was allocated


def test_columns_that_do_not_fit_the_network_are_refused(people: tuple[Bundle, pd.DataFrame], tmp_path: Path) -> None:
    path = people[0].save(tmp_path / "run") / "model.json"
    record = read_json(path)
    record["preprocessing"]["columns"].pop()
    write_json(path, sealed_again(record))
    with pytest.raises(DamagedFileError, match=r"model.json asks for a network of .* and its columns become"):
        Bundle.load(path.parent)


def test_a_network_without_a_name_is_refused(people: tuple[Bundle, pd.DataFrame], tmp_path: Path) -> None:
    path = people[0].save(tmp_path / "run") / "model.json"
    write_json(path, sealed_again(read_json(path) | {"network": {**read_json(path)["network"], "name": 1.5}}))
    with pytest.raises(ValueError, match=r"model\.json describes what this version does not know"):
        Bundle.load(path.parent)


def test_images_of_40_000_pixels_a_side_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, _ = _of_kind("image", tmp_path)
    path = bundle.save(tmp_path / "run") / "model.json"
    record = read_json(path)
    record["preprocessing"] |= {"height": 40_000, "width": 40_000}
    write_json(path, sealed_again(record))
    with pytest.raises(ValueError, match="are more than 178,956,970 pixels: max_pixels raises that"):
        Bundle.load(path.parent)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("versions", [], "an object"),
        ("versions", None, "an object"),
        ("classes", 3, "a list"),
        ("network", [], "an object"),
    ],
)
def test_a_record_of_the_wrong_shape_is_one_sentence(
    people: tuple[Bundle, pd.DataFrame], tmp_path: Path, name: str, value: object, what: str
) -> None:
    path = people[0].save(tmp_path / "run") / "model.json"
    write_json(path, sealed_again(read_json(path) | {name: value}))
    with pytest.raises(ValueError, match=f"model.json: '{name}' must be {what}, got"):
        Bundle.load(path.parent)
