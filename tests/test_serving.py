"""The HTTP example answers with the model's calibrated probabilities."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal import data, models
from vicinal.runs import Bundle
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
pytest.importorskip("fastapi")
EXAMPLE = Path(__file__).parent.parent / "examples" / "serve_onnx.py"


def test_it_serves_what_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(60, 3)), columns=["a", "b", "c"])
    frame["kind"] = np.where(frame["a"] > 0, "high", "low")
    task = data.load(frame, target="kind")
    spec = models.specify("mlp", **task.spec, hidden=[4])
    torch.manual_seed(0)
    bundle = Bundle(
        module=spec.build(),
        spec=spec,
        preprocessing=task.preprocessing,
        classes=task.classes,
        calibrators=HeadCalibrators.of_temperatures({ONLY_HEAD: 1.7}, len(task.classes)),
    )
    bundle.to_onnx(tmp_path / "model.onnx")
    monkeypatch.setenv("VICINAL_ONNX", str(tmp_path / "model.onnx"))
    client = TestClient(runpy.run_path(str(EXAMPLE))["app"])
    rows = torch.stack([bundle.read(frame)[i][0] for i in range(5)])
    answer = client.post("/predict", json={"rows": rows.tolist()}).json()
    served = [[row[name] for name in bundle.classes] for row in answer]
    np.testing.assert_allclose(served, bundle.predict_proba(frame)[:5], atol=1e-5)
    assert len(client.get("/features").json()) == rows.shape[1]
    assert client.post("/predict", json={"rows": [[1.0]]}).status_code == 422
    assert client.post("/predict", json={"rows": [["x"] * rows.shape[1]]}).status_code == 422
