"""A calibrated network as ONNX, compared with the original by onnxruntime before anyone uses it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vicinal._checks import require
from vicinal._typing import Batch
from vicinal.calibrators import (
    Calibrator,
    IsotonicCalibration,
    MixtureCalibration,
    QuadraticScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
)
from vicinal.calibrators.base import Floats
from vicinal.calibrators.two_logits import two_logits
from vicinal.objectives.forward import call
from vicinal.runs.calibration import HeadCalibrators


class _Calibrated(nn.Module):
    """The network with its calibrators, called with its inputs one after the other."""

    def __init__(self, module: nn.Module, calibrators: HeadCalibrators, names: Sequence[str]) -> None:
        super().__init__()
        self.module, self.names, self.is_multilabel = module, names, calibrators.is_multilabel
        self.heads = nn.ModuleList(_in_torch(calibrator) for calibrator in calibrators.by_head.values())

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return calibrated logits and their softmax, or the sigmoid of each where each is a label."""
        x: Batch = dict(zip(self.names, inputs, strict=True)) if self.names else inputs[0]
        logits = call(self.module, x)
        if not self.is_multilabel:
            logits = self.heads[0](logits)
            return logits, logits.softmax(dim=1)
        both = [head(two_logits(logits[:, k])) for k, head in enumerate(self.heads)]
        logits = torch.stack([pair[:, 1] - pair[:, 0] for pair in both], dim=1)
        return logits, logits.sigmoid()


class _Affine(nn.Module):
    """A z + b, or with a temperature A ln softmax(z) / T + b."""

    matrix: Tensor
    bias: Tensor

    def __init__(self, matrix: Floats, bias: Floats, temperature: float | None = None) -> None:
        super().__init__()
        self.temperature = temperature
        self.register_buffer("matrix", torch.tensor(matrix.T, dtype=torch.float32))
        self.register_buffer("bias", torch.tensor(bias, dtype=torch.float32))

    def forward(self, logits: Tensor) -> Tensor:
        z = logits if self.temperature is None else logits.log_softmax(dim=1) / self.temperature
        return z @ self.matrix + self.bias


class _Divided(nn.Module):
    temperature: Tensor

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.tensor(temperature))

    def forward(self, logits: Tensor) -> Tensor:
        return logits / self.temperature


class _Interpolated(nn.Module):
    """Straight lines between corners, constant outside: `numpy.interp`."""

    x: Tensor
    y: Tensor

    def __init__(self, x: Floats, y: Floats) -> None:
        super().__init__()
        # A corner beyond the last one, of the same height, spares the case of one corner.
        self.register_buffer("x", torch.tensor(np.append(x, x[-1] + 1), dtype=torch.float32))
        self.register_buffer("y", torch.tensor(np.append(y, y[-1]), dtype=torch.float32))

    def forward(self, odds: Tensor) -> Tensor:
        inside = odds.clamp(self.x[0], self.x[-1])
        after = (inside[:, None] >= self.x).sum(dim=1).clamp(1, len(self.x) - 1)
        low, high = self.x[after - 1], self.x[after]
        part = (inside - low) / (high - low)
        return self.y[after - 1] * (1 - part) + self.y[after] * part


class _Quadratic(nn.Module):
    """A quadratic function between two ends, straight outside."""

    def __init__(self, coefficients: Floats, ends: Floats) -> None:
        super().__init__()
        self.a, self.b, self.c = coefficients.tolist()
        self.low, self.high = ends.tolist()

    def forward(self, odds: Tensor) -> Tensor:
        inside = odds.clamp(self.low, self.high)
        slope = (self.b + 2 * self.c * inside).clamp(min=0)
        mapped: Tensor = self.a + self.b * inside + self.c * inside**2 + (odds - inside) * slope
        return mapped


class _OneAgainstRest(nn.Module):
    """A map of the log-odds of each class, of two classes of the second, and what they give together."""

    others: Tensor

    def __init__(self, maps: Sequence[nn.Module], temperature: float = 1.0) -> None:
        super().__init__()
        self.maps, self.temperature = nn.ModuleList(maps), temperature
        self.register_buffer("others", torch.zeros(len(maps), len(maps)).fill_diagonal_(-torch.inf))

    def forward(self, logits: Tensor) -> Tensor:
        z = logits / self.temperature
        if len(self.maps) == 1:
            second: Tensor = self.maps[0](z[:, 1] - z[:, 0])
            return two_logits(second)
        odds = z - (z[:, None, :] + self.others).logsumexp(dim=2)
        mapped = torch.stack([one(odds[:, k]) for k, one in enumerate(self.maps)], dim=1)
        return nn.functional.logsigmoid(mapped)


class _Mixture(nn.Module):
    shares: Tensor

    def __init__(self, members: Sequence[nn.Module], shares: Sequence[float]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("shares", torch.tensor(shares))

    def forward(self, logits: Tensor) -> Tensor:
        each = torch.stack([member(logits).log_softmax(dim=1) for member in self.members], dim=2)
        mixed: Tensor = (each + self.shares.log()).logsumexp(dim=2)
        return mixed


def _in_torch(calibrator: Calibrator) -> nn.Module:
    """Return a calibrator as a module that can be exported; one that has no such form is an error."""
    match calibrator:
        case TemperatureScaling():
            return _Divided(calibrator.temperature_)
        case StructuredVectorScaling() | StructuredMatrixScaling():
            learned = calibrator.matrix_ if isinstance(calibrator, StructuredMatrixScaling) else calibrator.scale_
            matrix = np.diag(learned) if learned.ndim == 1 else learned
            return _Affine(matrix, calibrator.bias_, calibrator.temperature_)
        case VectorScaling():
            return _Affine(np.diag(calibrator.scale_), calibrator.bias_)
        case QuadraticScaling():
            curves = zip(calibrator.coefficients_, calibrator.range_, strict=True)
            return _OneAgainstRest([_Quadratic(*one) for one in curves], calibrator.temperature_)
        case IsotonicCalibration():
            corners = zip(calibrator.centres_, calibrator.values_, strict=True)
            return _OneAgainstRest([_Interpolated(*one) for one in corners])
        case MixtureCalibration():
            return _Mixture([_in_torch(member) for member in calibrator.members_], calibrator.shares)
        case _:
            raise ValueError(
                f"{type(calibrator).__name__} cannot be written as ONNX: train with --calibrate auto, temperature, "
                "svs, sms, quadratic, isotonic or vector, or serve the run folder itself"
            )


def export(
    module: nn.Module, calibrators: HeadCalibrators, x: Batch, path: Path, metadata: Mapping[str, object]
) -> None:
    """Write a network and its calibrators as one ONNX file.

    Parameters
    ----------
    module, calibrators
        The network, in eval mode, and the calibrator of each head. One that has no form in ONNX is an error.
    x
        An example of its input, of at least two rows. The number of rows, and the length of token ids, stay free.
    path
        The file.
    metadata
        What else to keep in the file, each value as JSON.
    """
    require("onnxscript", "export")
    onnx = require("onnx", "export")
    rows, length = torch.export.Dim("rows"), torch.export.Dim("length")
    names = list(x) if isinstance(x, Mapping) else []
    inputs = tuple(x.values()) if isinstance(x, Mapping) else (x,)
    # The length of texts is the last dimension: of [rows, length], or of [rows, answers, length] in multiple choice.
    free = {0: rows, inputs[0].ndim - 1: length} if names else {0: rows}
    with _quiet():
        program: Any = torch.onnx.export(
            _Calibrated(module, calibrators, names),
            inputs,
            input_names=names or ["input"],
            output_names=["logits", "probabilities"],
            dynamic_shapes=(tuple(free for _ in inputs),),
            dynamo=True,
            verbose=False,
        )
    proto = program.model_proto
    onnx.helper.set_model_props(proto, {name: json.dumps(value) for name, value in metadata.items()})
    onnx.save_model(proto, str(path))


def largest_difference(path: Path, x: Batch, probs: Tensor) -> float:
    """Return how far the file's probabilities are from `probs` at most, when onnxruntime runs it on `x`."""
    runtime = require("onnxruntime", "export")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = [entry.name for entry in session.get_inputs()]
    given = dict(x) if isinstance(x, Mapping) else {wanted[0]: x}
    theirs = session.run(["probabilities"], {name: given[name].numpy() for name in wanted})[0]
    return float((torch.from_numpy(theirs).double() - probs).abs().max())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's talk about its own versions to itself."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
