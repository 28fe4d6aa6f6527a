"""A calibrated network as ONNX, compared with the original by onnxruntime before anyone uses it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._checks import require
from vicinal._typing import Batch
from vicinal.objectives.forward import call


class _Calibrated(nn.Module):
    """The network with its temperature, called with its inputs one after the other."""

    temperature: Tensor

    def __init__(self, module: nn.Module, temperature: float | Sequence[float], names: Sequence[str]) -> None:
        super().__init__()
        self.module, self.names = module, names
        self.register_buffer("temperature", torch.tensor(temperature))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits / T and their softmax, or the sigmoid of each where each has a temperature."""
        x: Batch = dict(zip(self.names, inputs, strict=True)) if self.names else inputs[0]
        logits = call(self.module, x) / self.temperature
        return logits, logits.sigmoid() if self.temperature.ndim else logits.softmax(dim=1)


def export(
    module: nn.Module, temperature: float | Sequence[float], x: Batch, path: Path, metadata: Mapping[str, object]
) -> None:
    """Write a network and its temperature as one ONNX file.

    Parameters
    ----------
    module, temperature
        The network, in eval mode, and what its logits are divided by, or those of each label.
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
            _Calibrated(module, temperature, names),
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
