"""Serve an exported model over HTTP, calibration included.

    vicinal export runs/wine --out wine.onnx
    VICINAL_ONNX=wine.onnx uvicorn examples.serve_onnx:app
    curl localhost:8000/predict -H 'content-type: application/json' -d '{"rows": [[0.1, 0.2, ...]]}'

Rows are inputs of the network. `/features` lists what each number of a table's row is. The file needs onnxruntime and
NumPy alone: neither torch nor Vicinal is imported.
"""

import json
import os

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

session = onnxruntime.InferenceSession(os.environ["VICINAL_ONNX"], providers=["CPUExecutionProvider"])
facts = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
shape = session.get_inputs()[0].shape[1:]
app = FastAPI(title="Calibrated probabilities")


class Rows(BaseModel):
    rows: list


@app.get("/features")
def features() -> list[str]:
    return facts.get("features", [])


@app.post("/predict")
def predict(given: Rows) -> list[dict[str, float]]:
    try:
        x = np.asarray(given.rows, dtype=np.float32).reshape(-1, *shape)
    except ValueError as error:
        raise HTTPException(422, f"each row must have the shape {shape}: {error}") from error
    if not np.isfinite(x).all():
        raise HTTPException(422, "all numbers must be finite")
    (probs,) = session.run(["probabilities"], {session.get_inputs()[0].name: x})
    return [dict(zip(facts["classes"], row, strict=True)) for row in probs.tolist()]
