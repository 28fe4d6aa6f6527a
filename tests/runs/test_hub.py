"""Models are shared as folders: what is uploaded and downloaded is checked on local ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vicinal
from tests.data import make
from tests.runs.test_bundle import _bundle
from vicinal import Bundle, data
from vicinal.runs.hub import model_card, save_pretrained

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def people() -> tuple[Bundle, Any]:
    frame = make.people(40)
    return _bundle(data.load(frame, target="kind"), hidden=[4]), frame


@pytest.fixture
def evaluation(people: tuple[Bundle, Any]) -> vicinal.Evaluation:
    bundle, frame = people
    labels = [bundle.classes.index(str(one)) for one in frame["kind"]]
    return vicinal.evaluate(labels, probs=bundle.predict_proba(frame))


def test_a_folder_holds_model_card_and_diagram(people, evaluation, tmp_path: Path) -> None:
    bundle, frame = people
    folder = save_pretrained(bundle, tmp_path / "people", evaluation=evaluation)
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.json", "model.safetensors", "README.md", "reliability.png"}
    again = Bundle.from_pretrained(folder)
    np.testing.assert_array_equal(again.predict_proba(frame), bundle.predict_proba(frame))
    card = hub.ModelCard.load(folder / "README.md")
    assert card.data.library_name == "vicinal"
    assert card.data.pipeline_tag == "tabular-classification"
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results["ece"] == pytest.approx(evaluation.ece.value, rel=1e-5)
    assert results.keys() == {name for name, one in evaluation.metrics.items() if one is not None}
    assert "![Reliability diagram](reliability.png)" in card.text
    assert f"{len(frame):,} test samples" in card.text


def test_without_an_evaluation_the_card_has_no_metrics(people, tmp_path: Path) -> None:
    folder = save_pretrained(people[0], tmp_path / "people")
    assert not (folder / "reliability.png").exists()
    assert hub.ModelCard.load(folder / "README.md").data.eval_results is None


def test_many_and_hostile_classes_stay_readable(people) -> None:
    bundle = people[0]
    object.__setattr__(bundle, "classes", tuple(f"class {i}" for i in range(1000)))
    card = model_card(bundle, None, "m")
    assert "1,000 classes" in card
    assert "class 999" not in card
    object.__setattr__(bundle, "classes", ("a`b\n# c", "d"))
    assert "of `a'b # c`, `d`, trained" in model_card(bundle, None, "m")


def test_uploaded_and_downloaded_again(people, evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, frame = people
    remote = tmp_path / "remote"
    calls: list[tuple[str, Any]] = []

    class Api:
        def __init__(self, token: str | None = None) -> None:
            calls.append(("token", token))

        def create_repo(self, repo_id: str, **options: Any) -> None:
            calls.append(("create", options))
            (remote / repo_id).mkdir(parents=True)

        def upload_folder(self, *, repo_id: str, folder_path: Path, **options: Any) -> Any:
            calls.append(("upload", options))
            shutil.copytree(folder_path, remote / repo_id, dirs_exist_ok=True)
            return SimpleNamespace(commit_url=f"hub/{repo_id}")

    def snapshot_download(repo_id: str, *, allow_patterns: list[str], **options: Any) -> str:
        fetched = tmp_path / "fetched"
        fetched.mkdir()
        for name in allow_patterns:
            shutil.copy(remote / repo_id / name, fetched)
        return str(fetched)

    monkeypatch.setattr(hub, "HfApi", Api)
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert bundle.push_to_hub("me/people", evaluation=evaluation, private=True, token="secret") == "hub/me/people"
    assert [name for name, _ in calls] == ["token", "create", "upload"]
    assert calls[1][1] == {"private": True, "exist_ok": True}
    card = (remote / "me/people" / "README.md").read_text(encoding="utf-8")
    assert "# people" in card
    assert 'Bundle.from_pretrained("me/people")' in card
    assert all(b"secret" not in path.read_bytes() for path in (remote / "me/people").iterdir())
    again = Bundle.from_pretrained("me/people")
    np.testing.assert_array_equal(again.predict_proba(frame), bundle.predict_proba(frame))
    # A repository may hold anything else. It is not fetched.
    assert {path.name for path in (tmp_path / "fetched").iterdir()} == {"model.json", "model.safetensors"}
