"""Inputs that fuzzing found worth keeping, run through the targets again."""

from __future__ import annotations

import pytest
from benchmarks.fuzz import TARGETS, corpus


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_of_each_target(name):
    kept = list(corpus(name))
    assert kept
    for _, data in kept:
        TARGETS[name](data)
