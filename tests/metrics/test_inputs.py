"""What people hold predictions in: frames with nullable and Arrow columns, objects, integers, bools."""

import numpy as np
import pandas as pd
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
