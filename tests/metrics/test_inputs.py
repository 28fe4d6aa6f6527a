"""What people hold predictions in: frames with nullable and Arrow columns, objects, integers, bools."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from vicinal import evaluate

PROBS = np.array([[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
LABELS = [1, 0, 0]
WANTED = evaluate(LABELS, probs=PROBS)


@pytest.mark.parametrize(
    "probs",
    [
        pd.DataFrame(PROBS).astype("Float64"),
        pd.DataFrame(PROBS).astype("double[pyarrow]"),
        PROBS.astype(object),
        PROBS.tolist(),
    ],
    ids=["Float64", "arrow", "objects", "lists"],
)
@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        np.array(LABELS, bool),
        pd.Series(LABELS, dtype="Int64"),
        pd.Series(LABELS, dtype="int64[pyarrow]"),
        pd.Series(LABELS).astype("boolean"),
        np.array(LABELS, object),
    ],
    ids=["list", "bool", "Int64", "arrow", "boolean", "objects"],
)
def test_valid_input_is_taken(labels, probs):
    found = evaluate(labels, probs=probs)
    assert found.nll == WANTED.nll
    assert found.accuracy == WANTED.accuracy


def test_integer_logits_are_logits():
    whole = np.array([[0, 2], [1, 0], [1, 3]])
    assert evaluate(LABELS, logits=whole).nll == evaluate(LABELS, logits=whole.astype(float)).nll


def test_a_missing_number_is_named_by_its_place():
    frame = pd.DataFrame(PROBS).astype("Float64")
    frame.iloc[1, 1] = pd.NA
    with pytest.raises(TypeError, match=r"a missing value at \[1, 1\]"):
        evaluate(LABELS, probs=frame)


def test_logits_beyond_all_measure_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match=r"within ±1e\+30, got one of size 1e\+160"):
        evaluate([0, 1], logits=[[1e160, 0.0], [0.0, -1e160]])


def test_columns_of_lists_lazy_frames_and_decimals_are_matrices() -> None:
    logits = np.random.default_rng(0).normal(size=(30, 2)).round(3)
    labels = np.arange(30) % 2
    wanted = evaluate(labels, logits=logits).to_dict()
    exact = np.array([[Decimal(str(cell)) for cell in row] for row in logits.tolist()], object)
    ways = [pd.Series(list(logits)), pd.Series(logits.tolist()), pa.array(logits.tolist()), exact]
    if (polars := pytest.importorskip("polars")) is not None:
        ways += [polars.DataFrame(logits).lazy(), polars.Series(logits.tolist())]
    for way in ways:
        assert evaluate(labels, logits=way).to_dict() == wanted
    uneven = pd.Series([[1.0, 2.0], [1.0]])
    with pytest.raises(TypeError, match="logits must hold numbers"):
        evaluate([0, 1], logits=uneven)


@pytest.mark.parametrize("column", [pd.Series([0, None, 1], dtype="Int64"), pa.array([0, None, 1])])
def test_missing_labels_are_said_to_be_missing(column: object) -> None:
    with pytest.raises(ValueError, match="labels has 1 missing value: leave these samples out"):
        evaluate(column, logits=np.eye(3)[:, :2])
