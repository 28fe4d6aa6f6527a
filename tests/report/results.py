"""Outcomes made by hand, for reports of what no test has the time to train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from vicinal._atomic import write_json
from vicinal.metrics import evaluate
from vicinal.runs import Experiment, RunResult, Scores
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators

SCRIPT = "<script>alert(1)</script>"
#: A picture of one pixel.
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def scored(name: str, n: int, k: int, *, seed: int = 0, sharpness: float = 1.0, temperature: float = 1.0) -> Scores:
    """Return predictions that are calibrated for sharpness 1, over-confident above it, perfect at infinity."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    perfect = sharpness == float("inf")
    logits = 30 * torch.nn.functional.one_hot(labels, k).float() if perfect else sharpness * logits
    after = evaluate(labels, logits=logits.double() / temperature)
    fitted = HeadCalibrators.of_temperatures({ONLY_HEAD: temperature}, k)
    return Scores(name, logits, labels, fitted, evaluate(labels, logits=logits), after)


def outcome(
    out: Path,
    sets: dict[str, Scores],
    *,
    classes: list[str] | None = None,
    mistakes: list[dict[str, Any]] | None = None,
    history: list[dict[str, Any]] | None = None,
    temperature: float = 1.0,
    label_noise: dict[str, Any] | None = None,
    **facts: Any,
) -> RunResult:
    k = next(iter(sets.values())).after.n_classes if sets else len(classes or "ab")
    names = classes or [f"class {i}" for i in range(k)]
    out.mkdir(parents=True, exist_ok=True)
    if mistakes is not None:
        write_json(out / "mistakes.json", {"kind": "tabular", "mistakes": mistakes})
    line = {"step": 10, "epoch": 1.0, "loss": 1.5}
    if "val" in sets:
        line |= {"val_nll": 1.2, "val_accuracy": 0.6, "val_ece": 0.1}
    history = [line, {**line, "epoch": 2.0, "loss": 1.2}] if history is None else history
    data = {
        "name": "made up",
        "kind": "tabular",
        "classes": names,
        "fingerprint": "sha256:0",
        "sizes": {"train": 1000, **{name: s.after.n for name, s in sets.items() if not name.startswith("eval")}},
        "notes": ["kind: rows"],
    }
    fit = {
        "method": "ERM(label_smoothing=0.0, confidence_penalty=0.0)",
        "config": {"optimizer": "adamw", "lr": 1e-3, "batch_size": 128},
        "best": history[-1] if history else None,
        "ece_bins": 15,
        "epochs": 2.0,
        "seconds": 1.5,
        "device": "cpu",
        "versions": {"vicinal": "0"},
    }
    about = {"data": data, "network": {"name": "mlp", "options": {}}, "weights": 1234, "notes": [], **facts}
    calibrators = HeadCalibrators.of_temperatures({ONLY_HEAD: temperature}, len(data["classes"]))
    return RunResult(
        Experiment(source="made up", method="ERM()"), out, about, fit, history, sets, calibrators, label_noise
    )
