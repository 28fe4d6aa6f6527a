"""Predictions to write to files in every form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def classifier(n: int, k: int, *, seed: int = 0, dtype=np.float64, scale: float = 2.0):
    """Logits, probabilities and labels drawn from them, a little less sharp."""
    random = np.random.default_rng(seed)
    logits = (scale * random.standard_normal((n, k))).astype(dtype)
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs = (exp / exp.sum(axis=1, keepdims=True)).astype(dtype)
    soft = np.exp(logits.astype(np.float64) / 1.5)
    soft /= soft.sum(axis=1, keepdims=True)
    labels = (soft.cumsum(axis=1) < random.random((n, 1))).sum(axis=1).clip(0, k - 1)
    return logits, probs, labels


def save(path: Path, labels, scores, *, prefix: str = "prob_", names=None, row_group: int | None = None) -> Path:
    """Write labels and a column for each class, by the suffix."""
    names = names if names is not None else [str(k) for k in range(scores.shape[1])]
    columns = {"label": pa.array(labels)}
    columns |= {f"{prefix}{name}": pa.array(np.ascontiguousarray(scores[:, k])) for k, name in enumerate(names)}
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=row_group)
    elif path.suffix == ".npz":
        kind = {"prob_": "probs", "logit_": "logits"}[prefix]
        np.savez(path, labels=np.asarray(labels), **{kind: scores}, classes=np.array(names))
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


def read_all(file):
    """Return labels and scores of all chunks."""
    chunks = list(file.chunks())
    return np.concatenate([c.labels for c in chunks]), np.concatenate([c.scores for c in chunks])
